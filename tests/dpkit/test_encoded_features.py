"""A frozen module before a policy: the unit ball, nothing that trains on, and what is refused."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dpkit.features import Encoded, Scaled  # noqa: E402


def module():
    torch.manual_seed(0)
    layers = [
        torch.nn.Linear(4, 8),
        torch.nn.BatchNorm1d(8),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(8, 3),
    ]
    return torch.nn.Sequential(*layers)


def test_rows_are_the_scaled_outputs_of_the_module_as_it_was():
    given, X = module(), np.random.default_rng(0).normal(size=(20, 4))
    encoded = Encoded(given, bound=0.5)
    found = encoded.transform(X)
    with torch.no_grad():
        expected = given.eval()(torch.as_tensor(X, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(found, Scaled(0.5).transform(expected), rtol=1e-6)
    norms = np.einsum("ij,ij->i", found, found)
    assert (norms <= 1.0).all()
    assert norms.max() > 0.9
    with torch.no_grad():  # whoever trains on, trains another module
        given[0].weight.mul_(3)
    np.testing.assert_array_equal(encoded.transform(X), found)
    assert given[0].weight.requires_grad
    # a row depends on its own input alone, up to what kernels of another size round otherwise
    np.testing.assert_allclose(encoded.transform(X[3:4])[0], found[3], atol=1e-6)


def test_what_makes_no_rows_is_refused():
    with pytest.raises(TypeError, match=r"module must be a torch\.nn\.Module, got a function"):
        Encoded(module, bound=1.0)
    with pytest.raises(ValueError, match="bound must be"):
        Encoded(module(), bound=-1.0)
    with pytest.raises(ValueError, match="one row of every input"):
        Encoded(torch.nn.Flatten(0), bound=1.0).transform(np.ones((2, 3)))
    broken = torch.nn.Linear(2, 2)
    with torch.no_grad():
        broken.bias.fill_(float("nan"))
    with pytest.raises(ValueError, match="finite"):
        Encoded(broken, bound=1.0).transform(np.ones((2, 2)))

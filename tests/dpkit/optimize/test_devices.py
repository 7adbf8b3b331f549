"""Where DP-SGD computes what, and in which precision: sums where the module is, noise on the host."""

from importlib.util import find_spec

import numpy as np
import pytest

from accounting import Budget

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(find_spec("opacus") is None, reason="dp_sgd needs Opacus")

from dpkit.mechanisms import GaussianMechanism  # noqa: E402
from dpkit.optimize import dp_ftrl, dp_sgd  # noqa: E402
from dpkit.torch.layer_rules import RowSums  # noqa: E402
from dpkit.torch.linear_layers import linear_layers  # noqa: E402
from dpkit.torch.private_optimizer import PrivateSteps  # noqa: E402

nn = torch.nn
cross_entropy = nn.functional.cross_entropy
X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


class Own(nn.Module):
    """Layers with a rule, and one without, in the precision that ``casting`` asks for."""

    def __init__(self, casting=None):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.norm, self.down, self.casting = nn.Linear(4, 9), nn.LayerNorm(9), nn.Linear(9, 2), casting

    def forward(self, x):
        if self.casting is None:
            return self.down(self.norm(torch.tanh(self.up(x))))
        with torch.autocast(x.device.type, self.casting):
            # torch runs no norm on half precision where autocast meets vmap
            return self.down(self.norm(torch.tanh(self.up(x)).float()))


def stack():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 2))


def train(fit, module, **more):
    known = {"budget": Budget(8.0, 1e-5, adjacency="replace"), "loss": cross_entropy, "clip": 0.5, "epochs": 2}
    return fit(module, X, Y, rng=np.random.default_rng(1), **(known | more))


@pytest.mark.parametrize("fit", [dp_sgd, dp_ftrl])
@pytest.mark.parametrize("make", [Own, stack])
def test_a_module_in_half_precision_is_trained_in_it(fit, make):
    exact, half = train(fit, make()), train(fit, make().bfloat16())
    assert {p.dtype for p in half.module.parameters()} == {torch.bfloat16}
    assert half.x.dtype == np.float64
    assert 0 < np.linalg.norm(exact.x - half.x) < 0.1 * np.linalg.norm(exact.x)


def test_a_module_that_casts_by_itself_is_trained_in_mixed_precision():
    mixed = train(dp_sgd, Own(casting=torch.bfloat16))
    exact = train(dp_sgd, Own())
    assert {p.dtype for p in mixed.module.parameters()} == {torch.float32}
    assert 0 < np.linalg.norm(exact.x - mixed.x) < 0.1 * np.linalg.norm(exact.x)
    assert mixed.path == exact.path


@pytest.mark.parametrize("make", [Own, stack])
def test_sums_of_half_precision_are_held_to_the_clip_norm(make):
    module = make().bfloat16()
    sums = linear_layers(module, cross_entropy, 0.1) or RowSums(module, cross_entropy, 0.1)
    for i in range(3):
        totals, _ = sums.sums(torch.from_numpy(X[i : i + 1]).bfloat16() * 100, torch.from_numpy(Y[i : i + 1]))
        assert np.linalg.norm(np.concatenate([sums.on.values(t.numpy()).ravel() for t in totals])) <= 0.1


@pytest.mark.parametrize("make", [Own, stack])
def test_sums_are_made_where_the_module_is(make):
    """On a device without numbers: what asked for some on the host, or put some there, would be an error."""
    module = make().to("meta")
    sums = linear_layers(module, cross_entropy, 1.0) or RowSums(module, cross_entropy, 1.0)
    x, y = torch.zeros((6, 4), device="meta"), torch.zeros(6, dtype=torch.int64, device="meta")
    totals, count = sums.sums(x, y)
    totals = list(totals)
    assert {t.device.type for t in [*totals, count]} == {"meta"}
    assert [t.shape for t in totals] == [p.shape for p in module.parameters()]
    assert {t.dtype for t in totals} == {torch.int64}


def test_noise_is_drawn_on_the_host_and_goes_to_the_parameters_precision():
    weight = nn.Parameter(torch.zeros(5, dtype=torch.bfloat16))
    from dpkit.torch.exact_sums import lattice

    seen = []

    class Seen(torch.optim.SGD):
        def step(self, closure=None):
            seen.append(self.param_groups[0]["params"][0].grad.dtype)
            super().step(closure)

    mechanism = GaussianMechanism(noise_multiplier=1.0, sensitivity=1.0, adjacency="add_remove")
    steps = PrivateSteps(Seen([weight], lr=1.0), [weight], mechanism, lattice(1.0), batch=1, rate=None)
    steps.step([torch.zeros(5, dtype=torch.int64)])
    assert seen == [torch.bfloat16]
    assert bool((weight != 0).any())


def test_no_step_is_taken_along_entries_that_have_no_noise():
    from dpkit.torch.exact_sums import lattice

    weight = nn.Parameter(torch.zeros(5))
    mechanism = GaussianMechanism(noise_multiplier=1.0, sensitivity=1.0, adjacency="add_remove")
    steps = PrivateSteps(torch.optim.SGD([weight], lr=1.0), [weight], mechanism, lattice(1.0), batch=1, rate=0.5)
    once = iter([torch.zeros(5, dtype=torch.int64)])
    steps.step(once)
    before = weight.detach().clone()
    for totals in (once, [torch.zeros(4, dtype=torch.int64)]):
        with pytest.raises(ValueError, match=r"totals must be of all 5 entries of the parameters, got (0|4)$"):
            steps.step(totals)
    assert torch.equal(weight, before)
    assert steps.taken == len(steps.history) == 1


def test_a_module_on_two_devices_is_refused():
    module = Own()
    module.down = module.down.to("meta")
    with pytest.raises(ValueError, match=r"model must be on one device.*got \['cpu', 'meta'\]"):
        train(dp_sgd, module)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("fit", [dp_sgd, dp_ftrl])
@pytest.mark.parametrize("make", [Own, stack])
def test_a_gpu_trains_as_the_host_does(fit, make):
    there, here = train(fit, make().to("cuda")), train(fit, make())
    assert {p.device.type for p in there.module.parameters()} == {"cuda"}
    np.testing.assert_allclose(there.x, here.x, atol=1e-3)

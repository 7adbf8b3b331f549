"""Sums of clipped gradients of lists of linear layers are those of row by row; any other module is left alone."""

import importlib
import itertools
import math
from importlib.util import find_spec

import numpy as np
import pytest
from tabled import tabled

from accounting import Budget
from dpkit.torch.linear_layers import linear_layers

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(find_spec("opacus") is None, reason="dp_sgd needs Opacus")

from dpkit.optimize import dp_ftrl, dp_sgd  # noqa: E402
from dpkit.torch.exact_sums import Whole, clipped_totals, lattice  # noqa: E402
from dpkit.torch.private_optimizer import row_gradients  # noqa: E402

nn = torch.nn
models = importlib.import_module("dpkit.torch.problem")
rules = importlib.import_module("dpkit.torch.layer_rules")


def network(*sizes, activation=nn.Tanh, bias=True):
    torch.manual_seed(0)
    layers = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after, bias=bias), activation()]
    return nn.Sequential(*layers[:-1])


def squared(outputs, targets):
    return ((outputs[:, 0] - targets) ** 2).mean()


def smoothed(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1)


def problem(n=60, d=4):
    X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    return X, (X[:, 0] * X[:, 1] > 0).astype(np.int64)


@pytest.mark.parametrize("loss", [nn.functional.cross_entropy, squared, smoothed])
@tabled("bias", [True, False])
@tabled("activation", [nn.Tanh, nn.ReLU, nn.GELU, nn.Softplus])
def test_sums_are_those_of_one_row_at_a_time(loss, bias, activation):
    X, y = (torch.from_numpy(v) for v in problem())
    module = network(4, 8, 8, 3, activation=activation, bias=bias)
    layers, clip = linear_layers(module, loss, 0.5), 0.5
    found, count = layers.sums(X, y)
    on = lattice(clip)
    (expected,), cut = clipped_totals([Whole(row_gradients(module, loss)(X, y))], on)
    found = list(found)
    assert count == cut > 0
    assert [f.shape for f in found] == [p.shape for p in module.parameters()]
    for f, e in zip(found, expected(), strict=True):
        assert np.allclose(layers.on.values(f.numpy()), on.values(e.numpy()), atol=len(X) * clip * 2.0**-17)


def test_rows_that_are_not_finite_count_as_zero():
    X, y = (torch.from_numpy(v) for v in problem(4))
    module = network(4, 3, activation=nn.Identity)
    layers = linear_layers(module, nn.functional.cross_entropy, 1.0)
    expected = list(layers.sums(X[1:], y[1:])[0])
    for bad in (math.nan, math.inf, 3e38):
        X[0] = bad
        found, count = layers.sums(X, y)
        assert count >= 1
        if not math.isfinite(bad):
            assert all(torch.equal(f, e) for f, e in zip(found, expected, strict=True))


class Hidden(nn.Linear):
    """A layer of another class may do anything."""


def hooked():
    module = network(4, 2)
    module[0].register_forward_hook(lambda *_: None)
    return module


def shared():
    module = network(4, 4, 4)
    module[2].weight = module[0].weight
    return module


def twice():
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer)


def frozen():
    module = network(4, 4, 2)
    module[0].bias.requires_grad = False
    return module


def overridden():
    module = network(4, 2)
    module[0].forward = lambda x: x.sum(dim=0).expand(len(x), 2)
    return module


@pytest.mark.parametrize(
    "module",
    [
        hooked(),
        shared(),
        twice(),
        frozen(),
        overridden(),
        nn.Sequential(Hidden(4, 2)),
        nn.Sequential(nn.Linear(4, 2), nn.ReLU(inplace=True)),
        nn.Sequential(nn.Linear(4, 2), nn.Softmax(dim=0)),
        nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)),
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)),
        nn.Sequential(nn.Tanh()),
    ],
)
def test_any_other_module_is_left_to_gradients_of_single_rows(module):
    assert linear_layers(module, squared, 1.0) is None
    assert linear_layers(nn.Sequential(network(4, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2))), squared, 1.0)


@pytest.mark.parametrize("train", [dp_sgd, dp_ftrl])
@pytest.mark.parametrize("many", [False, True])  # layers that see a matrix per row have no vectors
def test_training_is_the_same_as_with_gradients_of_single_rows(train, many, monkeypatch):
    X, y = problem()
    fits = []
    for change in (False, True):
        if change:
            monkeypatch.setattr(models, "linear_layers", lambda *_: None)
            monkeypatch.setattr(rules, "_candidates", lambda module: ({}, {}))
        module = network(4, 5, 2)
        rows = np.repeat(X[:, None], 2, axis=1) if many else X
        loss = (lambda o, t: nn.functional.cross_entropy(o[:, 0], t)) if many else nn.functional.cross_entropy
        adjacency = "add_remove" if train is dp_sgd else "zero_out"
        known = {"public_rows": len(X)} if train is dp_sgd else {}
        fits.append(
            train(
                module, rows, y, loss=loss, clip=0.4, epochs=2, batch=6, rows_at_once=4, learning_rate=0.5,
                budget=Budget(8.0, 1e-6, adjacency=adjacency), rng=np.random.default_rng(1), **known,
            )
        )  # fmt: skip
    fast, slow = fits
    assert np.allclose(fast.x, slow.x, atol=1e-4)
    assert fast.clipped == slow.clipped > 0
    assert fast.noise_multiplier == slow.noise_multiplier

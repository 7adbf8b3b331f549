"""Layer rules: the same sums as row by row, for layers wherever they sit, and which path a module takes."""

import math
from importlib.util import find_spec

import numpy as np
import pytest

from accounting import Budget

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(find_spec("opacus") is None, reason="dp_sgd needs Opacus")

from dpkit.optimize import dp_ftrl, dp_sgd  # noqa: E402
from dpkit.torch.exact_sums import Whole, clipped_totals, lattice  # noqa: E402
from dpkit.torch.layer_rules import RowSums  # noqa: E402
from dpkit.torch.private_optimizer import row_gradients  # noqa: E402

nn, functional = torch.nn, torch.nn.functional
cross_entropy = functional.cross_entropy


def own(forward, **layers):
    """A module of one's own: its layers, and what it does with them."""

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            for name, layer in layers.items():
                setattr(self, name, layer)

        def forward(self, x):
            return forward(self, x)

    return Own()


def attention(self, x):
    q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
    x = x + self.out((q @ k.transpose(1, 2) / math.sqrt(x.shape[2])).softmax(dim=-1) @ v)
    return self.head((x + self.down(functional.gelu(self.up(x)))).mean(dim=1))


def tokens(self, x):
    x = torch.tanh(self.group(self.conv(self.table(x).transpose(1, 2)))).mean(dim=2)
    return self.head(torch.tanh(self.twice(torch.tanh(self.twice(x)))))


def tied_head():
    module = own(
        lambda self, x: self.head(self.middle(self.table(x).mean(dim=1))),
        table=nn.Embedding(30, 9), middle=nn.Linear(9, 9), head=nn.Linear(9, 30, bias=False),
    )  # fmt: skip
    module.head.weight = module.table.weight
    return module


def hooked():
    module = own(lambda self, x: self.b(torch.tanh(self.a(x))), a=nn.Linear(6, 8), b=nn.Linear(8, 5))
    module.a.register_forward_pre_hook(lambda _, taken: (taken[0] * 2,))
    module.a.register_forward_hook(lambda *call: call[-1] ** 2)
    return module


def frozen():
    module = own(lambda self, x: self.b(self.a(x)), a=nn.Linear(6, 8), b=nn.Linear(8, 5))
    module.a.bias.requires_grad_(False)
    return module


def case(name):
    torch.manual_seed(0)
    vectors, images, words = torch.randn(12, 6), torch.randn(12, 3, 6, 6), torch.randint(0, 30, (12, 5))
    sequences = torch.randn(12, 2, 12)
    Linear, Conv = nn.Linear, nn.Conv2d
    return {
        "linear": (own(lambda self, x: self.b(torch.relu(self.a(x))), a=Linear(6, 9), b=Linear(9, 5)), vectors,
                   "by layer rules for a, b"),
        "root": (Linear(6, 5), vectors, "by layer rules for Linear"),
        "attention": (own(attention, norm=nn.LayerNorm(12), qkv=Linear(12, 36), out=Linear(12, 12, bias=False),
                          up=Linear(12, 48), down=Linear(48, 12), head=Linear(12, 5)), sequences,
                      "by layer rules for down, head, qkv, up; row by row for norm (LayerNorm), out (small)"),
        "tokens": (own(tokens, table=nn.Embedding(30, 8, padding_idx=0), conv=nn.Conv1d(8, 64, 3, stride=2, padding=1),
                       group=nn.GroupNorm(8, 64), twice=Linear(64, 64), head=Linear(64, 5)), words,
                   "by layer rules for conv, head, table, twice; row by row for group (GroupNorm)"),
        "images": (own(lambda self, x: self.head(self.conv(x).mean(dim=(2, 3))),
                       conv=Conv(3, 40, 3, stride=2, padding=1, dilation=2), head=Linear(40, 5)), images,
                   "by layer rules for conv, head"),
        "many places": (own(lambda self, x: self.head(self.conv(x).flatten(1)), conv=Conv(3, 4, 3), head=Linear(64, 5)),
                        images, "by layer rules for head; row by row for conv (small)"),
        "tied": (tied_head(), words, "by layer rules for middle; row by row for table (shared), head (shared)"),
        "elsewhere": (own(lambda self, x: self.b(functional.linear(self.a(x), self.a.weight)), a=Linear(6, 6),
                          b=Linear(6, 5)), vectors, "by layer rules for b; row by row for a "
                      "(used outside its own call)"),
        "own parameter": (own(lambda self, x: self.a(x * self.scale), a=Linear(6, 5),
                              scale=nn.Parameter(torch.ones(6))), vectors,
                          "by layer rules for a; row by row for Own (Own)"),
        "hooks": (hooked(), vectors, "by layer rules for a, b"),
        "frozen": (frozen(), vectors, "by layer rules for b; row by row for a (partly frozen)"),
        "unused": (own(lambda self, x: self.a(x), a=Linear(6, 5), b=Linear(6, 5)), vectors,
                   "by layer rules for a; row by row for b (not called)"),
        "by name": (own(lambda self, x: self.a(input=x), a=Linear(6, 5)), vectors, "by layer rules for a"),
        "double": (own(lambda self, x: self.a(x), a=Linear(6, 5)).double(), vectors.double(), "by layer rules for a"),
    }[name]  # fmt: skip


CASES = (
    "linear", "root", "attention", "tokens", "images", "many places", "tied", "elsewhere", "own parameter", "hooks",
    "frozen", "unused", "by name", "double",
)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_sums_are_those_of_one_row_at_a_time_and_the_path_is_said(name):
    module, X, path = case(name)
    y = torch.arange(len(X)) % 5
    for clip in (0.1, 10.0):
        rules, on = RowSums(module, cross_entropy, clip), lattice(clip)
        found, count = rules.sums(X, y)
        ((expected,), cut) = clipped_totals([Whole(row_gradients(module, cross_entropy)(X, y))], on)
        assert int(count) == int(cut)
        for f, e in zip(found, expected(), strict=True):
            assert f.shape == e.shape
            np.testing.assert_allclose(rules.on.values(f.numpy()), on.values(e.numpy()), atol=1e-3 * clip)
        assert rules.path == path


def test_a_module_that_mixes_rows_has_nothing_to_mix():
    module = own(lambda self, x: self.a(x - x.mean(dim=0) + 1.0), a=nn.Linear(6, 5))
    rules = RowSums(module, cross_entropy, 1.0)
    y = torch.arange(4)
    some, other = torch.randn(4, 6), torch.randn(4, 6)
    # alone, every row is its own mean: the layer sees ones
    for f, e in zip(rules.sums(some, y)[0], rules.sums(other, y)[0], strict=True):
        assert torch.equal(f, e)


def test_rows_that_are_not_finite_count_as_zero():
    module, X, _ = case("attention")
    rules, y = RowSums(module, cross_entropy, 1.0), torch.arange(12) % 5
    expected = list(rules.sums(X[1:], y[1:])[0])
    for bad in (math.nan, math.inf):
        X[0, 1, 2] = bad
        found, count = rules.sums(X, y)
        assert count >= 1
        for f, e in zip(found, expected, strict=True):
            # the others' last digits may differ in a batch of another size
            np.testing.assert_allclose(rules.on.values(f.numpy()), rules.on.values(e.numpy()), atol=1e-5)


def test_a_module_that_calls_its_layers_otherwise_every_time_is_stopped():
    class Alternating(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.calls = nn.Linear(40, 40), 0

        def forward(self, x):
            self.calls += 1
            return self.a(self.a(x)) if self.calls % 2 else self.a(x)

    with pytest.raises(RuntimeError, match="calls its layers in another way"):
        RowSums(Alternating(), cross_entropy, 1.0).sums(torch.randn(2, 40), torch.arange(2))


def test_a_class_that_is_made_of_a_layer_has_no_rule():
    class Centred(nn.Linear):
        def forward(self, x):
            return super().forward(x) + self.weight.sum()

    changed = nn.Linear(6, 5)
    changed.forward = lambda x: x @ changed.weight.T * 2
    for layer, why in ((Centred(6, 5), "Centred"), (changed, "Linear")):
        module = own(lambda self, x: self.a(x), a=layer)
        rules = RowSums(module, cross_entropy, 1.0)
        rules.sums(torch.randn(2, 6), torch.arange(2))
        assert rules.path == f"row by row, for a ({why})"


@pytest.mark.parametrize("train", [dp_sgd, dp_ftrl])
def test_a_fit_says_which_path_it_took(train):
    known = {"budget": Budget(8.0, 1e-6, adjacency="replace"), "loss": cross_entropy, "clip": 1.0, "epochs": 1}
    X = np.random.default_rng(0).normal(size=(20, 6))
    y = np.arange(20) % 5
    stack = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 5))
    for module, said in (
        (stack, "by products of whole batches"),
        (own(lambda self, x: self.inner(x), inner=stack), "by layer rules for inner.0, inner.2"),
        (nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 5)), "row by row for 0 (LayerNorm)"),
    ):
        fit = train(module, X, y, rng=np.random.default_rng(1), **known)
        assert said in fit.path
        assert said in repr(fit)


def test_a_module_of_ones_own_trains_like_the_same_layers_in_a_list():
    X = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    y = np.arange(30) % 5
    torch.manual_seed(0)
    stack = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5))
    known = {"budget": Budget(8.0, 1e-6, adjacency="replace"), "loss": cross_entropy, "clip": 0.5, "epochs": 2}
    fits = [
        dp_sgd(module, X, y, rng=np.random.default_rng(1), rows_at_once=4, batch=9, **known)
        for module in (stack, own(lambda self, x: self.inner(x), inner=stack))
    ]
    np.testing.assert_allclose(fits[0].x, fits[1].x, atol=1e-5)

"""A checkpoint goes on with the run that it is of: another module, loss, optimizer or schedule is refused by name."""

import re
import sys
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest

from accounting import Budget, Ledger

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(find_spec("opacus") is None, reason="dp_sgd needs Opacus")

from dpkit.optimize import dp_sgd, glm  # noqa: E402
from dpkit.torch import same_run  # noqa: E402
from dpkit.torch.checkpoint import Kept  # noqa: E402

nn, F = torch.nn, torch.nn.functional
BUDGET = Budget(4.0, 1e-5)
X = np.random.default_rng(0).normal(size=(40, 3))
Y = (X[:, 0] > 0).astype(np.int64)


def network(activation=nn.Tanh, frozen=None):
    """One whose trained parameters start anywhere."""
    parts = [nn.Linear(3, 4), activation(), nn.Linear(4, 2)]
    if frozen is not None:
        parts = [nn.Linear(3, 3).requires_grad_(False), *parts]
        nn.init.constant_(parts[0].weight, frozen)
        nn.init.zeros_(parts[0].bias)
    return nn.Sequential(*parts)


class Crash(Exception):
    """Somewhere."""


def crash(taken, _):
    if taken == 6:
        raise Crash


def train(ledger, path, model=None, X=X, y=Y, **more):
    known = {"budget": BUDGET, "epochs": 3, "batch": 10, "rng": np.random.default_rng(3)}
    if not isinstance(model, same_run.GLM):
        known |= {"loss": F.cross_entropy, "clip": 1.0}
    return dp_sgd(model or network(), X, y, ledger=ledger, checkpoint=path, **(known | more))


def begun(tmp_path, **more):
    """The ledger and the file of a run that crashed in its second epoch."""
    ledger, path = Ledger(BUDGET), tmp_path / "run"
    with pytest.raises(Crash):
        train(ledger, path, progress=crash, **more)
    return ledger, path


def sgd(lr=0.1, **more):
    return {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=lr, **more)}


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.1)


def steps(gamma, step=2):
    return {"schedule": lambda inner: torch.optim.lr_scheduler.StepLR(inner, step, gamma)}


def by(rate):
    return {"schedule": lambda inner: torch.optim.lr_scheduler.LambdaLR(inner, rate)}


def own_loss(outputs, targets):
    return F.cross_entropy(outputs, targets) / 2


class Halved:
    def __call__(self, outputs, targets):
        return F.cross_entropy(outputs, targets) / 2


class Doubled:
    def __call__(self, outputs, targets):
        return F.cross_entropy(outputs, targets) * 2


@pytest.mark.parametrize(
    ("first", "other", "message"),
    [
        ({}, {"model": network(nn.ReLU)}, r"model must be that of the run .*, Sequential\(Linear, Tanh, Linear\) \["),
        ({"model": network(nn.ELU)}, {"model": network(partial(nn.ELU, alpha=0.5))}, "model must be that of the run"),
        ({"model": network(frozen=1.0)}, {"model": network(frozen=1.5)}, "model must be that of the run"),
        ({}, {"learning_rate": 5.0}, r"optimizer must be .* \(lr of group 0\), 0\.1, got 5\.0: give a new file"),
        (sgd(), sgd(7.0), r"optimizer must be .* \(lr of group 0\), 0\.1, got 7\.0"),
        (sgd(), sgd(momentum=0.5), r"optimizer must be .* \(momentum of group 0\), 0\.0, got 0\.5"),
        (sgd(), {"optimizer": adam}, r"optimizer must be .*, SGD of \[4\] parameters, got Adam of \[4\] parameters"),
        ({"optimizer": adam}, sgd(), r"optimizer must be .*, Adam of \[4\] parameters, got SGD"),
        (steps(0.5), steps(0.9), r"schedule must be .* \(gamma\), 0\.5, got 0\.9"),
        (steps(0.5), by(lambda t: 0.5), "schedule must be .*, StepLR, got LambdaLR"),
        (by(lambda t: 0.5**t), by(lambda t: 0.25**t), r"schedule must be .* \(code\)"),
        ({}, {"loss": own_loss}, "loss must be .*, cross_entropy, got own_loss"),
        ({"loss": lambda o, t: own_loss(o, t)}, {"loss": lambda o, t: own_loss(o, t) * 2}, r"loss must be .* \(code\)"),
        ({"loss": Halved()}, {"loss": Doubled()}, "loss must be .*, Halved, got Doubled"),
        (
            {"loss": nn.CrossEntropyLoss()},
            {"loss": nn.CrossEntropyLoss(ignore_index=5)},
            "loss must be .*ignore_index=-100.*, got .*ignore_index=5",
        ),
        ({}, {"y": Y.astype(np.int32), "loss": lambda o, t: F.cross_entropy(o, t.long())}, r"y must be .*torch\.int64"),
    ],
)  # fmt: skip
def test_another_run_is_refused_by_what_differs_and_the_file_stays(first, other, message, tmp_path):
    ledger, path = begun(tmp_path, **first)
    state = path.read_bytes()
    with pytest.raises(ValueError, match=message):
        train(ledger, path, **other)
    assert path.read_bytes() == state
    assert train(ledger, path, **first).success


def test_another_objective_is_refused(tmp_path):
    ledger, path = begun(tmp_path, model=glm("logistic", clip=1.0))
    with pytest.raises(ValueError, match=r"loss must be .*GLM\('logistic', .*, got GLM\('squared'"):
        train(ledger, path, model=glm("squared", clip=1.0))
    assert train(ledger, path, model=glm("logistic", clip=1.0)).success


def test_a_finished_run_is_returned_to_its_own_call_only_and_says_so(tmp_path):
    ledger, path = Ledger(BUDGET), tmp_path / "run"
    done = train(ledger, path)
    again = train(ledger, path)
    assert np.array_equal(again.x, done.x)
    assert "nothing was trained now" in again.message
    assert "nothing was trained now" not in done.message
    with pytest.raises(ValueError, match="model must be"):
        train(ledger, path, model=network(nn.ReLU), learning_rate=5.0)


def test_what_a_run_that_goes_on_may_write_otherwise(tmp_path):
    """The same module made anew with other starting parameters, and a lambda on another line."""
    ledger, path = begun(tmp_path, loss=lambda o, t: F.cross_entropy(o, t) / 2, **steps(0.5))
    same = lambda o, t: F.cross_entropy(o, t) / 2  # noqa: E731
    assert train(ledger, path, loss=same, **steps(0.5)).success


def test_code_of_another_python_cannot_be_compared_and_warns(tmp_path, monkeypatch):
    monkeypatch.setattr(same_run.sys, "version_info", type("Version", (), {"major": 3, "minor": 99})())
    first = {"loss": lambda o, t: F.cross_entropy(o, t)}
    ledger, path = begun(tmp_path, **first)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match=r"code of loss and schedule cannot be compared .* which Python 3\.99 wrote"):
        assert train(ledger, path, loss=lambda o, t: F.cross_entropy(o, t) / 2).success
    assert sys.version_info.minor < 99


def test_a_checkpoint_of_before_goes_on_with_an_optimizer_that_has_its_settings(tmp_path, monkeypatch):
    tree = Kept._tree
    monkeypatch.setattr(Kept, "_tree", lambda self: {k: v for k, v in tree(self).items() if k != "said"})
    ledger, path = begun(tmp_path, **sgd())
    for other in (
        {"optimizer": adam},
        {"optimizer": lambda p: torch.optim.SGD([{"params": p[:2]}, {"params": p[2:]}])},
    ):
        with pytest.raises(ValueError, match="optimizer must be that of the run in the checkpoint"):
            train(ledger, path, **other)
    monkeypatch.undo()
    assert train(ledger, path, **sgd()).success


def test_nothing_in_the_file_depends_on_the_rows(tmp_path, monkeypatch):
    said = []
    make = Kept.__init__

    def noted(self, path, described, facts, *more, **others):
        said.append(facts)
        make(self, path, described, facts, *more, **others)

    monkeypatch.setattr(Kept, "__init__", noted)
    for number, labels in enumerate((Y, 1 - Y)):
        weights = torch.tensor([1.0 + number, 2.0])
        loss = partial(F.cross_entropy, weight=weights, label_smoothing=0.1 * number)
        train(Ledger(BUDGET), tmp_path / str(number), X=X + number, y=labels, loss=loss)
    assert said[0] == said[1]
    assert not re.search(r"0\.1", said[0]["loss"])


class Own(nn.Module):
    """A network of somebody's own; ``twisted`` changes what its forward does, and nothing else."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def twisted():
    return type("Own", (Own,), {"forward": lambda self, x: self.last(-self.first(x))})()


def test_another_forward_is_another_run(tmp_path):
    ledger, path = begun(tmp_path, model=Own())
    with pytest.raises(ValueError, match="model must be that of the run in the checkpoint"):
        train(ledger, path, model=twisted())
    assert train(ledger, path, model=Own()).success


def test_a_setting_is_the_same_number_whatever_its_type(tmp_path):
    ledger, path = begun(tmp_path, **sgd(0.1))
    assert train(ledger, path, **sgd(np.float64(0.1))).success

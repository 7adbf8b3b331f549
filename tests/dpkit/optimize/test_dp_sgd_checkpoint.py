"""Checkpoints of DP-SGD: a run that goes on is the run that was not stopped, is paid once, and goes on once."""

import copy
from importlib.util import find_spec

import numpy as np
import pytest

from accounting import Budget, BudgetExceeded, Gaussian, Ledger
from dpkit.states import RunStopped

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(find_spec("opacus") is None, reason="dp_sgd needs Opacus")

from dpkit.optimize import dp_sgd  # noqa: E402

nn = torch.nn
BUDGET = Budget(4.0, 1e-5, adjacency="replace")
X = np.random.default_rng(0).normal(size=(40, 3))
Y = (X[:, 0] > 0).astype(np.int64)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def train(ledger, path, **more):
    known = {
        "loss": nn.functional.cross_entropy, "clip": 1.0, "budget": BUDGET, "epochs": 4, "batch": 10,
        "optimizer": lambda parameters: torch.optim.Adam(parameters, lr=0.05),
        "schedule": lambda inner: torch.optim.lr_scheduler.StepLR(inner, 5, 0.5), "rng": np.random.default_rng(3),
    }  # fmt: skip
    return dp_sgd(network(), X, Y, ledger=ledger, checkpoint=path, **(known | more))


class Crash(Exception):
    """Somewhere."""


def crash_at(step):
    def progress(taken, steps):
        assert steps == 16
        if taken == step:
            raise Crash

    return progress


@pytest.mark.parametrize("step", [1, 4, 10, 16])
def test_a_run_that_crashed_goes_on_as_if_it_had_not_and_pays_once(step, tmp_path):
    whole = train(Ledger(BUDGET), tmp_path / "whole")
    ledger, path = Ledger.create(tmp_path / "ledger", BUDGET), tmp_path / "run"
    with pytest.raises(Crash):
        train(ledger, path, progress=crash_at(step))
    seen = []
    fit = train(ledger, path, callback=lambda state: seen.append(state.epoch))
    assert np.array_equal(fit.x, whole.x)
    assert seen == list(range(1 + (step - 1) // 4, 5))
    assert len(ledger.rows()) == 1
    assert ledger.total == fit.cost == whole.cost
    assert (fit.success, fit.nit, fit.history) == (True, 16, whole.history)
    assert fit.history[0][2] == 16
    # a run that is at its end is returned once more, and costs nothing
    assert np.array_equal(train(ledger, path).x, whole.x)
    assert len(ledger.rows()) == 1


def test_an_interrupt_returns_whole_epochs_only(tmp_path):
    """Steps of an epoch that is taken again must not leave: they would be released twice."""
    ledger, path = Ledger(BUDGET), tmp_path / "run"
    seen = []

    def stop(taken, _):
        if taken == 10:
            raise KeyboardInterrupt

    fit = train(ledger, path, progress=stop, callback=lambda state: seen.append(state.x.copy()))
    assert not fit.success
    assert "up to epoch 2, and the same call goes on from" in fit.message
    assert fit.nit == 8
    assert np.array_equal(fit.x, seen[-1])
    released = np.concatenate([p.detach().double().numpy().ravel() for p in fit.module.parameters()])
    assert np.array_equal(fit.x, released)
    assert ledger.total == fit.cost


def test_noise_of_an_epoch_that_is_taken_again_is_fresh(tmp_path):
    """With the secure source: of two runs from one state no step is the same."""
    ledger, path, steps = Ledger(BUDGET), tmp_path / "run", []

    class Recording(torch.optim.SGD):
        def step(self, closure=None):
            steps.append(self.param_groups[0]["params"][0].grad.clone())

    more = {"rng": None, "schedule": None, "optimizer": lambda parameters: Recording(parameters, lr=0.0)}
    with pytest.raises(Crash):
        train(ledger, path, progress=crash_at(6), **more)
    train(ledger, path, **more)
    assert len(steps) == 6 + 12
    assert all(not torch.equal(a, b) for i, a in enumerate(steps) for b in steps[:i])
    assert not ledger.simulation


def test_a_copy_of_the_file_does_not_go_on_a_second_time(tmp_path):
    ledger, path = Ledger(BUDGET), tmp_path / "run"
    with pytest.raises(Crash):
        train(ledger, path, progress=crash_at(6))
    old = path.read_bytes()
    train(ledger, path)
    path.write_bytes(old)
    with pytest.raises(ValueError, match="must be the newest of its run"):
        train(ledger, path)


def test_of_two_that_go_on_with_copies_one_stops_before_it_releases(tmp_path):
    ledger, path, twin = Ledger(BUDGET), tmp_path / "run", tmp_path / "twin"
    with pytest.raises(Crash):
        train(ledger, path, progress=crash_at(6))
    twin.write_bytes(path.read_bytes())

    def meanwhile(taken, _):
        if taken == 6:
            train(ledger, twin)

    with pytest.raises(RunStopped, match="another process goes on"):
        train(ledger, path, progress=meanwhile)


@pytest.mark.parametrize("written", [False, True])
def test_a_crash_around_the_first_row_loses_no_spend(written, tmp_path, monkeypatch):
    ledger, path = Ledger(BUDGET), tmp_path / "run"
    spend = Ledger.spend

    def failing(self, *row, **more):
        if written:
            spend(self, *row, **more)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "spend", failing)
        with pytest.raises(Crash):
            train(ledger, path)
    assert len(ledger.rows()) == written
    assert train(ledger, path).success
    assert len(ledger.rows()) == 1


@pytest.mark.thorough
def test_what_does_not_belong_together_is_refused(tmp_path):
    ledger, path = Ledger(BUDGET), tmp_path / "run"
    train(ledger, path, epochs=1)
    state = copy.copy(path.read_bytes())
    for change, message in (
        ({"epochs": 2}, "give a new file to a new run"),
        ({"clip": 0.5, "epochs": 1}, "give a new file to a new run"),
        ({"schedule": None, "epochs": 1}, "schedule must be given just where"),
        ({"rng": None, "epochs": 1}, "rng must be a seeded generator just where"),
        ({"ledger": None, "epochs": 1}, "ledger must be given with a checkpoint"),
        ({"ledger": Ledger(BUDGET), "epochs": 1}, "must be the newest of its run"),
    ):
        with pytest.raises(ValueError, match=message):
            train(**({"ledger": ledger, "path": path} | change))
        assert path.read_bytes() == state
    full = Ledger(BUDGET)
    full.spend(Gaussian(1.5))
    with pytest.raises(BudgetExceeded):
        train(full, tmp_path / "other")
    assert not (tmp_path / "other").exists()

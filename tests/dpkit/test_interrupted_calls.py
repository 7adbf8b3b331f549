"""Ctrl-C in the middle of a long call: what was charged stays, nothing half made is left, and a line says so.

The interrupts are raised from within, at a step or a line of the call; no test sends a signal or looks at a clock.
"""

import threading
from contextlib import suppress

import numpy as np
import pytest
from interrupts import Interrupter
from learners import Stepping
from streams import run_of

from accounting import BestOfRuns, Budget, Gaussian, Ledger
from dpkit.continual import BufferedToeplitz
from dpkit.geometry import LpBall
from dpkit.hyperparameters import best_of
from dpkit.optimize import DPFTRL, dp_ftrl, glm, preconditioned_descent, shuffle_gradient_descent
from dpkit.optimize import noisy_gradient_descent as descent
from dpkit.reproduce.convex_workload import ALGORITHMS, Cell
from dpkit.sklearn import PrivateGLMClassifier, PrivateGLMRegressor, PrivateSearch
from dpkit.states import RunStopped

BUDGET = Budget(1.0, 1e-5)
LOGISTIC = glm("logistic", clip=0.5)
DRAWS = ("standard_normal", "random", "integers", "bytes", "normal", "permutation", "binomial", "standard_exponential")


class Stopping(np.random.Generator):
    """A seeded generator that is interrupted at the first draw."""

    def __getattribute__(self, name):
        if name in DRAWS:
            raise KeyboardInterrupt
        return super().__getattribute__(name)


def stopping():
    return Stopping(np.random.PCG64(0))


def rows(n=60, d=4, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, d)) / np.sqrt(d)
    return X, (X[:, 0] > 0).astype(int)


# ---------------------------------------------------------------------------------------------- optimizers

CALLS = {
    "noisy gradient descent": lambda **more: descent(
        LOGISTIC, *rows(), constraint=LpBall(2, 4, 2.0), budget=BUDGET, **more
    ),
    "preconditioned gradient descent": lambda **more: preconditioned_descent(
        LOGISTIC, *rows(), radius=2.0, budget=BUDGET, **more
    ),
    "shuffle gradient descent": lambda **more: shuffle_gradient_descent(
        LOGISTIC, *rows(), constraint=LpBall(2, 4, 2.0), budget=BUDGET, **more
    ),
    "best of a random number of runs": lambda **more: best_of(
        lambda rng: (float(rng.standard_normal()), None), BestOfRuns(Gaussian(30.0), 0.2), **more
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_was_interrupted_stays_spent_and_says_so(name):
    ledger = Ledger(BUDGET)
    with pytest.raises(KeyboardInterrupt) as caught:
        CALLS[name](rng=stopping(), ledger=ledger)
    (row,) = ledger.rows()
    assert row.outcome == "reserved"
    (note,) = caught.value.__notes__
    assert note == f"{name}: nothing of it is kept, and row 0 of the ledger, {row.release!r}, stays spent"
    assert "\n" not in note
    with pytest.raises(KeyboardInterrupt) as caught:
        CALLS[name](rng=stopping())
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_drawn_before_it_is_charged_wherever_it_is_interrupted(name):
    outcomes = set()
    for line in range(1, 100_000, 401 if name.startswith("shuffle") else 61):
        ledger, rng = Ledger(BUDGET), np.random.default_rng(0)
        untouched = rng.bit_generator.state
        try:
            with Interrupter(line, "dpkit"):
                CALLS[name](rng=rng, ledger=ledger)
        except KeyboardInterrupt:
            outcomes |= {row.outcome for row in ledger.rows()} or {"nothing"}
            assert ledger.rows() or rng.bit_generator.state == untouched
        else:
            break
    assert {"nothing", "reserved"} <= outcomes


@pytest.mark.parametrize("name", CALLS)
def test_what_came_to_its_end_is_settled(name):
    ledger = Ledger(BUDGET)
    CALLS[name](rng=np.random.default_rng(0), ledger=ledger)
    assert [row.outcome for row in ledger.rows()] == ["released"]


# ------------------------------------------------------------------------------------------------- DP-FTRL


def after(count, error=KeyboardInterrupt):
    """A callback that is interrupted at its call of that number."""
    left = [count]

    def callback(_):
        left[0] -= 1
        if not left[0]:
            raise error

    return callback


def test_what_dp_ftrl_released_is_kept_and_its_checkpoint_goes_on(tmp_path):
    X, y = rows()
    ledger = Ledger.create(tmp_path / "ledger", BUDGET)
    known = {"budget": BUDGET, "epochs": 4, "batch": 12, "ledger": ledger, "checkpoint": tmp_path / "run"}
    fit = dp_ftrl(LOGISTIC, X, y, callback=after(2), **known)
    assert (fit.success, fit.nit) == (False, 10)
    assert fit.message == (
        f"interrupted: what 10 of 20 steps released is kept, and DPFTRL.load goes on with {tmp_path / 'run'}"
    )
    again = DPFTRL.load(tmp_path / "run", LOGISTIC, X, y, ledger=ledger)
    np.testing.assert_array_equal(again.theta, fit.x)
    again.advance(again.horizon)
    assert again.result().success
    assert [(row.release, row.outcome) for row in ledger.rows()] == [(fit.cost, "released")]


def test_nothing_is_settled_where_dp_ftrl_released_nothing(monkeypatch):
    ledger = Ledger(BUDGET)
    monkeypatch.setattr(DPFTRL, "_step", lambda self: after(1)(None))
    fit = dp_ftrl(LOGISTIC, *rows(), budget=BUDGET, epochs=2, batch=12, ledger=ledger)
    assert fit.message == "interrupted: what 0 of 10 steps released is kept"
    assert [row.outcome for row in ledger.rows()] == ["reserved"]


def test_a_table_is_ended_and_has_no_line_of_half_a_run(monkeypatch):
    interrupted, step = after(3), vars(DPFTRL)["_step"]
    monkeypatch.setattr(DPFTRL, "_step", lambda self: interrupted(None) or step(self))
    X, y = rows()
    with pytest.raises(KeyboardInterrupt):
        ALGORITHMS["DP-FTRL"].run(LOGISTIC, X, y, Cell(60, 4, 2), BUDGET, 1.0, np.random.default_rng(0))


# --------------------------------------------------------------------------------------------- scikit-learn

ESTIMATORS = {
    "classifier": lambda: PrivateGLMClassifier(BUDGET, max_iter=2, random_state=0),
    "regressor": lambda: PrivateGLMRegressor(BUDGET, target_range=(0, 1), max_iter=2, random_state=0),
    "search": lambda: PrivateSearch(
        PrivateGLMClassifier(max_iter=2), {"radius": [1.0]}, budget=BUDGET, runs=1.5, random_state=0
    ),
}


def fitted(model):
    return {name: value for name, value in vars(model).items() if name.endswith("_")}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_fit_that_is_interrupted_at_any_line_leaves_the_estimator_as_it_was(name):
    model, line, seen = ESTIMATORS[name](), 1, set()
    while True:
        model.fit(*rows())
        before = fitted(model)
        try:
            with Interrupter(line, "dpkit/sklearn"):
                model.fit(*rows(80, 5))
        except KeyboardInterrupt:
            pass
        else:
            break
        # of before, or, where only the way back was interrupted, of after; never of both
        whole = fitted(model) == before or (before.keys() == fitted(model).keys() and model.n_features_in_ == 5)
        assert whole, line
        seen.add(model.n_features_in_)
        assert model.predict(np.zeros((1, model.n_features_in_))).shape == (1,)
        line += 17 if name == "search" else 3
    assert line > 20
    assert 4 in seen
    assert model.n_features_in_ == 5


@pytest.mark.thorough
def test_an_estimator_is_no_half_of_a_run_by_dp_ftrl(monkeypatch):
    monkeypatch.setattr(DPFTRL, "_step", lambda self: after(1)(None))
    X, y = rows()
    ledger = Ledger(BUDGET)
    model = PrivateGLMClassifier(BUDGET, solver="dp_ftrl", epochs=2, ledger=ledger)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert not fitted(model)
    assert len(ledger.rows()) == 1
    search = PrivateSearch(model, {"radius": [1.0]}, budget=BUDGET, ledger=Ledger(BUDGET))
    with pytest.raises(KeyboardInterrupt) as caught:
        search.fit(X, y)
    assert not fitted(search)
    assert "row 0 of the ledger" in caught.value.__notes__[0]


# ----------------------------------------------------------------------------------------- continual sums


def test_a_stream_of_many_adds_is_whole_or_closed_wherever_it_is_interrupted():
    stopped = 0
    for line in range(1, 400, 7):
        ledger = Ledger(BUDGET)
        sums = BufferedToeplitz.calibrated(
            budget=BUDGET, horizon=50, shape=2, sensitivity=2.0, ledger=ledger, rng=np.random.default_rng(0)
        )
        given = []
        with suppress(KeyboardInterrupt), Interrupter(line, "dpkit/continual", "dpkit/states"):
            for _ in range(9):
                given.append(sums.add(np.ones(2)))
        if run_of(sums).stopped is None:
            sums.add(np.ones(2))
            assert sums.steps in (len(given) + 1, len(given) + 2)
        else:
            stopped += 1
            with pytest.raises(RunStopped, match=r"^'.*' stopped at release .* must not be noised again.*$"):
                sums.add(np.ones(2))
        assert [row.release for row in ledger.rows()] == [sums.cost]
    assert 5 < stopped < 57


# ------------------------------------------------------------------------------------------- checkpoints


def stopped_run(path, ledger):
    X, y = rows()
    run = DPFTRL(LOGISTIC, X, y, budget=BUDGET, epochs=3, batch=12, ledger=ledger, checkpoint=path)
    with pytest.raises(KeyboardInterrupt), Stepping(run, after(1)):
        run.advance()
    return run


def test_a_stopped_object_that_is_still_there_lets_go_of_its_checkpoint(tmp_path):
    X, y = rows()
    ledger, path = Ledger.create(tmp_path / "ledger", BUDGET), tmp_path / "run"
    old = stopped_run(path, ledger)
    again = DPFTRL.load(path, LOGISTIC, X, y, ledger=ledger)
    again.advance(again.horizon)
    with pytest.raises(RunStopped, match="load the newest checkpoint"):
        old.advance()
    # the one that goes on does not let go
    with pytest.raises(BlockingIOError, match="go on with the first"):
        DPFTRL.load(path, LOGISTIC, X, y, ledger=ledger)


def test_a_release_under_way_lets_go_of_nothing(tmp_path):
    """Neither in another thread nor below a signal handler, where a run looks stopped, too."""
    X, y = rows()
    ledger, path = Ledger.create(tmp_path / "ledger", BUDGET), tmp_path / "run"
    run = DPFTRL(LOGISTIC, X, y, budget=BUDGET, epochs=3, batch=12, ledger=ledger, checkpoint=path)
    refused = []

    def load():
        with pytest.raises(BlockingIOError):
            DPFTRL.load(path, LOGISTIC, X, y, ledger=ledger)
        refused.append(threading.get_ident())

    def step(make):
        if not refused:
            load()
            other = threading.Thread(target=load)
            other.start()
            other.join()
        make()

    with Stepping(run, step):
        run.advance()
    assert len(set(refused)) == 2
    assert run.steps == 5

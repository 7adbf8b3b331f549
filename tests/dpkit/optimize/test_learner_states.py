"""The online learners as transactions: states go on once, interrupted steps never repeat, threads take turns."""

import copy
import os
import pickle
import sys
from functools import partial

import numpy as np
import pytest
from interrupts import at_once, interrupted, refused_in_a_fork
from learners import sums_of
from tabled import tabled

from accounting import Budget, Ledger
from dpkit.geometry import Ellipsoid, LpBall, Simplex
from dpkit.optimize import (
    FollowTheApproximateLeader,
    FollowTheRegularizedLeader,
    ImplicitGradientDescent,
    OnlineFrankWolfe,
    PolyhedralOnlineFrankWolfe,
    glm,
)
from dpkit.states import RunStopped, files

BUDGET = Budget(1.0, 1e-5)
OBJECTIVE = glm("squared", clip=0.3)
ROWS = np.random.default_rng(0).uniform(-1, 1, size=(60, 3))
LABELS = ROWS @ [0.5, -0.2, 0.1]

LEARNERS = {
    "gaussian": (OnlineFrankWolfe, LpBall(1.5, 3), {}),
    "open": (OnlineFrankWolfe, LpBall(2, 3), {"step_rule": "open", "forgetting": 1.0, "start": [0.1, 0.2, 0.0]}),
    "ellipsoid": (OnlineFrankWolfe, Ellipsoid(np.diag([1.0, 2.0, 3.0])), {}),
    "generalized": (OnlineFrankWolfe, LpBall(1.5, 3), {"noise": "generalized_gaussian", "step_scale": 0.5}),
    "paper": (OnlineFrankWolfe, LpBall(1.5, 3), {"noise": "paper"}),
    "polyhedral": (PolyhedralOnlineFrankWolfe, LpBall(1, 3), {}),
    "polyhedral, every step": (PolyhedralOnlineFrankWolfe, Simplex(3), {"hold": 0.0, "delay": 3.0, "forgetting": 1.3}),
    "polyhedral, paper": (PolyhedralOnlineFrankWolfe, LpBall(1, 3), {"noise": "paper"}),
    "approximate leader": (FollowTheApproximateLeader, LpBall(2, 3), {"start": [0.1, 0.2, 0.0]}),
    "approximate leader, tree": (FollowTheApproximateLeader, LpBall(1.5, 3), {"sums": "tree", "ridge": 0.3}),
    "regularized leader": (FollowTheRegularizedLeader, LpBall(1.5, 3), {"start": [0.1, 0.2, 0.0]}),
    "entropy": (FollowTheRegularizedLeader, Simplex(3), {"regularizer": "entropy", "step_scale": 2.0}),
    "implicit": (ImplicitGradientDescent, LpBall(2, 3), {"ridge": 0.1}),
    "implicit, hidden": (ImplicitGradientDescent, LpBall(2, 3), {"steps_from": "hidden", "start": [0.1, 0.2, 0.0]}),
}
each_learner = pytest.mark.parametrize("name", LEARNERS)


def make(name, *, rng=None, ledger=None, budget=BUDGET, horizon=60):
    kind, constraint, more = LEARNERS[name]
    return kind(OBJECTIVE, constraint, horizon=horizon, budget=budget, rng=rng, ledger=ledger, **more)


def take(learner, rows):
    for i in rows:
        theta = learner.step(ROWS[i], LABELS[i])
    return theta


def learned(learner):
    """Everything that the next release depends on."""
    return files.encode({name: learner.state()[name] for name in ("learned", "generator")})


@each_learner
@tabled("adjacency", ["replace", "zero_out"])
def test_a_simulation_goes_on_bit_for_bit(name, adjacency, tmp_path):
    if name == "paper" and adjacency == "zero_out":
        pytest.skip("the published noise is for swaps")
    budget = Budget(1.0, 1e-5, adjacency=adjacency)
    kind, constraint, _ = LEARNERS[name]
    whole = make(name, rng=np.random.default_rng(5), budget=budget)
    first = make(name, rng=np.random.default_rng(5), budget=budget)
    take(first, range(25))
    files.write(tmp_path / "state", first.state())
    second = kind.restore(files.read(tmp_path / "state")[0], OBJECTIVE, constraint)
    assert np.array_equal(second.theta, first.theta)
    assert np.array_equal(take(second, range(25, 60)), take(whole, range(60)))
    assert (second.steps, second.clipped, second.cost) == (60, whole.clipped, whole.cost)
    with pytest.raises(ValueError, match="at most horizon=60 rows"):
        take(second, [0])


@each_learner
def test_a_private_stream_goes_on_once(name):
    kind, constraint, _ = LEARNERS[name]
    ledger = Ledger(BUDGET)
    learner = make(name, ledger=ledger)
    take(learner, range(5))
    older = learner.state()
    take(learner, [5])
    state = learner.state()
    for wrong, more, message in (
        (state, {"rng": np.random.default_rng(0), "ledger": ledger}, "rng must be None or secure"),
        (state, {}, "ledger must be given for a state that was made with one"),
        (state, {"unattended": True}, "ledger must be given for a state that was made with one"),
        (state, {"ledger": Ledger()}, "ledger must hold the cost of what is restored"),
        (older, {"ledger": ledger}, "the state must be the newest of its run"),
    ):
        with pytest.raises(ValueError, match=message):
            kind.restore(wrong, OBJECTIVE, constraint, **more)
    restored = kind.restore(state, OBJECTIVE, constraint, ledger=ledger)
    assert ledger.total == restored.cost == learner.cost
    with pytest.raises(ValueError, match="the state must be the newest of its run"):
        kind.restore(state, OBJECTIVE, constraint, ledger=ledger)
    # the one that was saved is still there: it stops before its release is seen, and tells so ever after
    theta = learner.theta.copy()
    for _ in range(2):
        with pytest.raises(RunStopped, match="another process goes on with this run"):
            take(learner, [6])
    assert np.array_equal(learner.theta, theta)
    assert restored.steps == 6
    take(restored, range(6, 60))


@each_learner
def test_without_a_ledger_somebody_must_vouch_for_the_state(name):
    kind, constraint, _ = LEARNERS[name]
    learner = make(name)
    take(learner, range(5))
    with pytest.raises(ValueError, match="unattended=True"):
        kind.restore(learner.state(), OBJECTIVE, constraint)
    paths = [take(kind.restore(learner.state(), OBJECTIVE, constraint, unattended=True), range(5, 60)) for _ in "abc"]
    assert len({path.tobytes() for path in paths}) > 1  # the noise is fresh


@each_learner
def test_what_does_not_fit_is_refused(name):
    kind, constraint, _ = LEARNERS[name]
    learner = make(name, rng=np.random.default_rng(5))
    take(learner, range(5))
    state = learner.state()
    other = type(constraint)(1.5, 4) if isinstance(constraint, LpBall) and constraint.p > 1 else Simplex(4)
    small = Simplex(3, 1e-6) if kind is PolyhedralOnlineFrankWolfe or name == "entropy" else LpBall(1.5, 3, 1e-6)
    another = LpBall(1, 3) if isinstance(constraint, Simplex) else LpBall(1.3, 3)
    another = Simplex(3, 2.0) if name == "entropy" else another
    another = Simplex(3) if name in ("polyhedral", "polyhedral, paper") else another
    changed = {key: dict(value) if isinstance(value, dict) else value for key, value in state.items()}
    changed["learned"]["_iterates"] = np.full((2, 3), np.nan)
    fewer = {**state, "learned": {**state["learned"], "steps": 4}}
    more = {**state, "learned": {**state["learned"], "steps": 61}}
    for wrong, objective, where, message in (
        ({**state, "learner": "Other"}, OBJECTIVE, constraint, "state must come from"),
        (
            {**state, "version": 1},
            OBJECTIVE,
            constraint,
            "state must come from .*, version 2, got one of .*, version 1",
        ),
        (state, glm("squared", clip=0.4), constraint, r"objective must have the clip of the saved learner, 0\.3, got"),
        (state, OBJECTIVE, other, "constraint must be that of the saved learner"),
        (state, OBJECTIVE, small, "constraint must be that of the saved learner"),
        (state, OBJECTIVE, another, "constraint must be that of the saved learner"),
        ({**state, "norm": 7.0}, OBJECTIVE, constraint, "constraint must be that of the saved learner"),
        (changed, OBJECTIVE, constraint, "_iterates must be finite"),
        (fewer, OBJECTIVE, constraint, "state must (hold sums|have made the choices) of steps=4"),
        (more, OBJECTIVE, constraint, "state must be of at most horizon=60 rows"),
        ({**state, "noise": {}}, OBJECTIVE, constraint, "noise must hold the entries"),
        ({**state, "noise": state["noise"] | {"adjacency": "x"}}, OBJECTIVE, constraint, "adjacency must be 'replace'"),
        ({**state, "learned": {}}, OBJECTIVE, constraint, "state must hold the entries"),
        ({**state, "run": None}, OBJECTIVE, constraint, "state must have a tree of entries 'run'"),
        ({}, OBJECTIVE, constraint, "state must have an entry 'learner'"),
    ):
        if name == "polyhedral, every step" and "steps=4" in message:
            wrong["learned"]["_made"] = 5
        if name.startswith(("polyhedral", "implicit")) and wrong is fewer:
            continue  # between two choices, or without sums, the number of rows may be off
        with pytest.raises(ValueError, match=message):
            kind.restore(wrong, objective, where)


def test_another_norm_than_was_saved_is_refused():
    # gradients were clipped to ‖g‖_q, q = 3; in another ball's norm they would be up to 9 times as long as the noise
    learner = OnlineFrankWolfe(
        OBJECTIVE, LpBall(1.5, 3), horizon=9, budget=BUDGET, noise="generalized_gaussian", rng=np.random.default_rng(0)
    )
    for p in (1.2, 2.0, 8.0):
        with pytest.raises(ValueError, match="constraint must be that of the saved learner"):
            OnlineFrankWolfe.restore(learner.state(), OBJECTIVE, LpBall(p, 3))


@pytest.mark.parametrize("name", ["gaussian", "polyhedral"])
def test_a_learner_cannot_be_copied(name):
    learner = make(name)
    for make_copy in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            make_copy(learner)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_fork_refuses():
    learner = make("gaussian")
    take(learner, range(3))
    assert refused_in_a_fork(lambda: take(learner, [3]), RunStopped)
    take(learner, [3])


@pytest.mark.parametrize(
    "name", ["gaussian", "generalized", "polyhedral, every step", "regularized leader", "implicit, hidden"]
)
@pytest.mark.parametrize("with_state", [False, True])
def test_an_interrupt_at_any_line_closes_the_learner_or_leaves_it_right(name, with_state, monkeypatch):
    choices = []
    module = sys.modules[PolyhedralOnlineFrankWolfe.__module__]
    choose = module.report_noisy_max
    monkeypatch.setattr(module, "report_noisy_max", lambda *a, **k: choices.append(1) or choose(*a, **k))
    before, after = make(name, rng=np.random.default_rng(5)), make(name, rng=np.random.default_rng(5))
    take(before, range(3))
    take(after, range(4))
    before, after = learned(before), learned(after)
    stopped = went_on = 0
    line = -2 if with_state else -4  # every fifth line from the third, or from the first
    while True:
        line += 5
        choices.clear()
        ledger = Ledger(BUDGET)
        learner = make(name, rng=np.random.default_rng(5), ledger=ledger)
        take(learner, range(3))
        if with_state:
            learner.state()
        if not interrupted(lambda learner=learner: take(learner, [3]), line, "dpkit"):
            break
        try:
            reached = learned(learner)
        except RunStopped:
            stopped += 1
            for _ in range(2):
                with pytest.raises(RunStopped, match="stopped at release 4"):
                    take(learner, [3])
            assert len(choices) <= 4
        else:
            went_on += 1
            assert reached == (after if learner.steps == 4 else before)
            take(learner, range(learner.steps, 6))
            assert name != "polyhedral, every step" or len(choices) == 6
    assert stopped > 6
    assert went_on > 1


@pytest.mark.parametrize("name", ["gaussian", "generalized", "polyhedral, every step", "implicit, hidden"])
def test_threads_take_turns(name, monkeypatch):
    choices = []
    module = sys.modules[PolyhedralOnlineFrankWolfe.__module__]
    choose = module.report_noisy_max
    monkeypatch.setattr(module, "report_noisy_max", lambda *a, **k: choices.append(1) or choose(*a, **k))
    learner = make(name, horizon=400)
    thetas, errors = [], []

    def work(start):
        try:
            for i in range(100):
                thetas.append(learner.step(ROWS[(start + i) % 60], 0.1))
        except BaseException as error:
            errors.append(error)

    at_once(partial(work, 7 * k) for k in range(4))
    assert not errors
    assert learner.steps == len(thetas) == 400
    state = learner.state()
    assert state["run"]["step"] == 400
    if name == "polyhedral, every step":
        assert len(choices) == 400
    else:
        # every row was taken once: nobody's estimate came twice
        assert state["learned"]["steps"] == 400
        assert name == "implicit, hidden" or state["learned"]["_sums"]["steps"] == 400
        assert len({theta.tobytes() for theta in thetas}) == 400
    with pytest.raises(ValueError, match="at most horizon=400 rows"):
        take(learner, [0])


def test_a_signal_handler_may_call_in():
    # the lock is reentrant: what a handler asks for in the middle of a step is refused, and nothing hangs
    learner = make("gaussian")
    inner = sums_of(learner).add
    seen = []

    def add(g):
        for call in (lambda: learner.step(ROWS[0], 0.0), learner.state):
            with pytest.raises(RunStopped):
                call()
        seen.append(g)
        return inner(g)

    sums_of(learner).add = add
    take(learner, range(2))
    assert len(seen) == 2

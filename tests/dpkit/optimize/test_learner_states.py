"""States of the online learners: they go on where they were, once, and only with what fits."""

import io

import numpy as np
import pytest

from accounting import Budget, Ledger
from dpkit.geometry import LpBall, Simplex
from dpkit.optimize import OnlineFrankWolfe, PolyhedralOnlineFrankWolfe, glm

BUDGET = Budget(1.0, 1e-5)
OBJECTIVE = glm("squared", clip=0.3)
ROWS = np.random.default_rng(0).uniform(-1, 1, size=(60, 3))
LABELS = ROWS @ [0.5, -0.2, 0.1]

LEARNERS = {
    "gaussian": (OnlineFrankWolfe, LpBall(1.5, 3), {}),
    "open": (OnlineFrankWolfe, LpBall(2, 3), {"step_rule": "open", "forgetting": 1.0, "start": [0.1, 0.2, 0.0]}),
    "generalized": (OnlineFrankWolfe, LpBall(1.5, 3), {"noise": "generalized_gaussian", "step_scale": 0.5}),
    "paper": (OnlineFrankWolfe, LpBall(1.5, 3), {"noise": "paper"}),
    "polyhedral": (PolyhedralOnlineFrankWolfe, LpBall(1, 3), {}),
    "polyhedral, every step": (PolyhedralOnlineFrankWolfe, Simplex(3), {"hold": 0.0, "delay": 3.0, "forgetting": 1.3}),
    "polyhedral, paper": (PolyhedralOnlineFrankWolfe, LpBall(1, 3), {"noise": "paper"}),
}
each_learner = pytest.mark.parametrize("name", LEARNERS)


def make(name, *, rng=None, ledger=None, budget=BUDGET):
    kind, constraint, more = LEARNERS[name]
    return kind(OBJECTIVE, constraint, horizon=60, budget=budget, rng=rng, ledger=ledger, **more)


def take(learner, rows):
    for i in rows:
        theta = learner.step(ROWS[i], LABELS[i])
    return theta


def through_a_file(state):
    file = io.BytesIO()
    np.savez(file, **state)
    file.seek(0)
    return dict(np.load(file))


@each_learner
@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
def test_a_simulation_goes_on_bit_for_bit(name, adjacency):
    if name == "paper" and adjacency == "zero_out":
        pytest.skip("the published noise is for swaps")
    budget = Budget(1.0, 1e-5, adjacency=adjacency)
    kind, constraint, _ = LEARNERS[name]
    whole = make(name, rng=np.random.default_rng(5), budget=budget)
    first = make(name, rng=np.random.default_rng(5), budget=budget)
    take(first, range(25))
    second = kind.restore(through_a_file(first.state()), OBJECTIVE, constraint)
    assert np.array_equal(second.theta, first.theta)
    assert np.array_equal(take(second, range(25, 60)), take(whole, range(60)))
    assert (second.steps, second.clipped, second.cost) == (60, whole.clipped, whole.cost)
    with pytest.raises(ValueError, match="at most horizon=60 rows"):
        take(second, [0])


@each_learner
def test_a_private_stream_goes_on_with_fresh_noise(name):
    kind, constraint, _ = LEARNERS[name]
    ledger = Ledger(BUDGET)
    learner = make(name, ledger=ledger)
    take(learner, range(5))
    state = through_a_file(learner.state())
    with pytest.raises(ValueError, match="rng must be None or secure"):
        kind.restore(state, OBJECTIVE, constraint, rng=np.random.default_rng(0))
    paths = [take(kind.restore(state, OBJECTIVE, constraint), range(5, 60)) for _ in range(3)]
    assert len({path.tobytes() for path in paths}) > 1
    # the ledger lets it go on once
    restored = kind.restore(state, OBJECTIVE, constraint, ledger=ledger)
    assert ledger.total == restored.cost == learner.cost
    with pytest.raises(ValueError, match="state must be restored once only"):
        kind.restore(state, OBJECTIVE, constraint, ledger=ledger)
    with pytest.raises(ValueError, match="ledger must hold the cost of what is restored"):
        kind.restore(learner.state(), OBJECTIVE, constraint, ledger=Ledger())


@each_learner
def test_what_does_not_fit_is_refused(name):
    kind, constraint, _ = LEARNERS[name]
    learner = make(name, rng=np.random.default_rng(5))
    take(learner, range(5))
    state = learner.state()
    other = type(constraint)(1.5, 4) if isinstance(constraint, LpBall) and constraint.p > 1 else Simplex(4)
    small = Simplex(3, 1e-6) if kind is PolyhedralOnlineFrankWolfe else LpBall(1.5, 3, 1e-6)
    for change, objective, where, message in (
        ({"learner": "Other"}, OBJECTIVE, constraint, "state must come from"),
        ({"version": 2}, OBJECTIVE, constraint, "state must come from .*, version 1, got one of .*, version 2"),
        ({}, glm("squared", clip=0.4), constraint, r"objective must have the clip of the saved learner, 0\.3, got"),
        ({}, OBJECTIVE, other, "constraint must be that of the saved learner"),
        ({}, OBJECTIVE, small, "constraint must be that of the saved learner"),
        ({"gradient": np.full(3, np.nan)}, OBJECTIVE, constraint, "gradient must be finite"),
        ({"steps": -1}, OBJECTIVE, constraint, "steps must be at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            kind.restore(state | {key: np.asarray(value) for key, value in change.items()}, objective, where)
    with pytest.raises(ValueError, match="state must have an entry 'learner'"):
        kind.restore({}, OBJECTIVE, constraint)

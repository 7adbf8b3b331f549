"""Polyhedral online Frank–Wolfe: the scores' sensitivity, the split of the budget, and how little d matters."""

import math

import numpy as np
import pytest

from accounting import ZCDP, Budget, zcdp
from dpkit.geometry import LpBall, Simplex
from dpkit.optimize import PolyhedralOnlineFrankWolfe, glm, polyhedral_online_frank_wolfe

BUDGET = Budget(1.0, 1e-5)


def recorded(X, y, constraint, choices, clip=0.3, adjacency="replace"):
    """The scores and parameters of every choice, when the choices are given."""
    import importlib

    module = importlib.import_module("dpkit.optimize.polyhedral_online_frank_wolfe")
    taken = []

    def choose(scores, sensitivity, epsilon, noise, *, minimise, rng):
        taken.append((np.array(scores), sensitivity, epsilon, noise, minimise))
        return choices[len(taken) - 1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "report_noisy_max", choose)
        learner = PolyhedralOnlineFrankWolfe(
            glm("squared", clip=clip),
            constraint,
            horizon=len(X),
            budget=Budget(1.0, 1e-5, adjacency=adjacency),
            rng=np.random.default_rng(0),
        )
        for x, label in zip(X, y, strict=True):
            learner.step(x, label)
    return taken


@pytest.mark.parametrize("constraint", [LpBall(1, 3, 2.0), Simplex(3, 1.5)])
def test_one_row_moves_the_scores_by_no_more_than_their_sensitivity(constraint):
    worst = 0.0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(12, 3)) * 10.0 ** rng.integers(-3, 3), rng.normal(size=12) * 100
        other, label = X.copy(), y.copy()
        i = rng.integers(12)
        # the same row with opposite sign of the error: the largest change
        label[i] = -1e6 * np.sign(y[i]) * rng.choice([-1, 1])
        other[i] = rng.choice([X[i], -X[i], rng.normal(size=3)], axis=0)
        choices = rng.integers(3, size=12)
        one, two = recorded(X, y, constraint, choices), recorded(other, label, constraint, choices)
        for t, ((a, s, *_), (b, *_)) in enumerate(zip(one, two, strict=True)):
            change = float(np.abs(a - b).max())
            assert change <= s * (1 + 1e-12)
            assert t >= i or change == 0
            worst = max(worst, change / s)
    assert worst > 0.9  # the bound is attained


@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
def test_sensitivity_is_that_of_the_adjacency(adjacency):
    ((_, s, _, noise, minimise),) = recorded([[1.0, 0.0]], [1.0], LpBall(1, 2, 3.0), [0], adjacency=adjacency)
    assert s == pytest.approx((2 if adjacency == "replace" else 1) * 0.3 * 3.0)
    assert (noise, minimise) == ("gumbel", True)


@pytest.mark.parametrize("schedule", ["decreasing", "constant"])
def test_the_choices_add_up_to_the_cost(schedule):
    learner = PolyhedralOnlineFrankWolfe(
        glm("squared", clip=1.0), Simplex(3), horizon=300, budget=BUDGET, schedule=schedule
    )
    spent = sum(learner.epsilon(t) ** 2 / 8 for t in range(1, 301))
    assert spent <= learner.cost.rho
    assert spent == pytest.approx(learner.cost.rho, rel=1e-9)
    assert isinstance(learner.cost, ZCDP)
    ratio = learner.epsilon(100) / learner.epsilon(1)
    assert ratio == pytest.approx(0.1 if schedule == "decreasing" else 1.0)


def test_published_noise():
    learner = PolyhedralOnlineFrankWolfe(
        glm("squared", clip=1.0), Simplex(3), horizon=300, budget=BUDGET, noise="paper"
    )
    first = 1.0 / (2 * math.sqrt(math.log(300) * math.log(1e5)))
    assert learner.epsilon(1) == pytest.approx(first)
    assert zcdp(learner.cost) == pytest.approx(sum(learner.epsilon(t) ** 2 / 2 for t in range(1, 301)))


def risk(d, n):
    rng = np.random.default_rng(d)
    X = rng.uniform(-1, 1, size=(n, d))
    theta = np.zeros(d)
    theta[:2] = 0.5, -0.5
    result = polyhedral_online_frank_wolfe(
        glm("squared", clip=0.3),
        X,
        X @ theta,
        constraint=LpBall(1, d),
        budget=Budget(16.0, 1e-6),
        schedule="constant",
        rng=rng,
    )
    return float(np.sum((result.x - theta) ** 2)) / 3


@pytest.mark.slow
def test_risk_grows_with_the_logarithm_of_the_dimension():
    # a hundred times the dimension, (ln 2000/ln 20)² = 6.4; the risk of θ = 0 is 1/6
    assert risk(1000, 8000) < min(6.4 * risk(10, 8000), 0.1)


def test_refusals():
    objective = glm("squared", clip=1.0)
    for constraint, error, message in (
        (LpBall(2, 3), ValueError, "p must be 1"),
        (object(), TypeError, "constraint must have vertices"),
    ):
        with pytest.raises(error, match=message):
            PolyhedralOnlineFrankWolfe(objective, constraint, horizon=3, budget=BUDGET)
    for change, message in (
        ({"schedule": "growing"}, "schedule 'decreasing' or 'constant'"),
        ({"noise": "gaussian"}, "noise must be 'gumbel' or 'paper'"),
        ({"noise": "paper", "budget": Budget(1.0, 0.0)}, "delta > 0"),
        ({"budget": Budget(1.0, 1e-5, adjacency="add_remove")}, "adjacency must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            PolyhedralOnlineFrankWolfe(objective, Simplex(3), **{"horizon": 3, "budget": BUDGET} | change)
    learner = PolyhedralOnlineFrankWolfe(objective, Simplex(3), horizon=1, budget=BUDGET)
    with pytest.raises(ValueError, match="x must be finite"):
        learner.step([math.nan, 0.0, 0.0], 1.0)
    assert learner.steps == 0
    learner.step([1.0, 0.0, 0.0], 1.0)
    with pytest.raises(ValueError, match="at most horizon=1 rows"):
        learner.step([1.0, 0.0, 0.0], 1.0)

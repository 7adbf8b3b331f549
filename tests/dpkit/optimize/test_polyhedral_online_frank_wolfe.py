"""Polyhedral online Frank–Wolfe: the scores' sensitivity, the split of the budget, and how little d matters."""

import importlib
import math

import numpy as np
import pytest
from tabled import tabled

from accounting import ZCDP, Budget, zcdp
from dpkit.geometry import LpBall, Simplex
from dpkit.optimize import PolyhedralOnlineFrankWolfe, glm, polyhedral_online_frank_wolfe

BUDGET = Budget(1.0, 1e-5)


def weight(i, t, forgetting):
    """What row i counts in the scores at step t, relative to row t."""
    rho = [forgetting / (s + 1) for s in range(t + 1)]
    return rho[i] * math.prod(1 - rho[s] for s in range(i + 1, t + 1)) / rho[t]


def recorded(X, y, constraint, choices, adjacency="replace", **more):
    """The scores and parameters of every choice, when the choices are given."""
    module = importlib.import_module(PolyhedralOnlineFrankWolfe.__module__)
    taken = []

    def choose(scores, sensitivity, epsilon, noise, *, minimise, rng):
        taken.append((np.array(scores), sensitivity, epsilon, noise, minimise))
        return choices[len(taken) - 1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "report_noisy_max", choose)
        known = {"horizon": len(X), "budget": Budget(1.0, 1e-5, adjacency=adjacency), "rng": np.random.default_rng(0)}
        learner = PolyhedralOnlineFrankWolfe(glm("squared", clip=0.3), constraint, **known, **more)
        for x, label in zip(X, y, strict=True):
            learner.step(x, label)
    return taken


@pytest.mark.parametrize("constraint", [LpBall(1, 3, 2.0), Simplex(3, 1.5)])
@pytest.mark.parametrize("forgetting", [1.0, 1.4, 2.0])
def test_one_row_moves_the_scores_by_no_more_than_it_is_charged_for(constraint, forgetting):
    worst = 0.0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(12, 3)) * 10.0 ** rng.integers(-3, 3), rng.normal(size=12) * 100
        other, label = X.copy(), y.copy()
        i = rng.integers(12)
        # the same row with opposite sign of the error: the largest change
        label[i] = -1e6 * np.sign(y[i]) * rng.choice([-1, 1])
        other[i] = rng.choice([X[i], -X[i], rng.normal(size=3)], axis=0)
        choices = rng.integers(3, size=12)
        common = {"forgetting": forgetting, "hold": 0.0}
        one, two = recorded(X, y, constraint, choices, **common), recorded(other, label, constraint, choices, **common)
        for t, ((a, s, *_), (b, *_)) in enumerate(zip(one, two, strict=True)):
            change = float(np.abs(a - b).max())
            charged = weight(i + 1, t + 1, forgetting) * s if t >= i else 0.0
            assert change <= charged * (1 + 1e-12)
            worst = max(worst, change / charged if charged else 0.0)
    assert worst > 0.9  # the bound is attained


@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
def test_sensitivity_is_that_of_the_adjacency(adjacency):
    ((_, s, _, noise, minimise),) = recorded([[1.0, 0.0]], [1.0], LpBall(1, 2, 3.0), [0], adjacency=adjacency)
    assert s == pytest.approx((2 if adjacency == "replace" else 1) * 0.3 * 3.0)
    assert (noise, minimise) == ("gumbel", True)


@tabled("forgetting", [1.0, 1.3, 2.0])
@tabled("hold", [0.0, 0.1, 1.0])
@tabled("noise", ["gumbel", "paper"])
def test_the_dearest_row_spends_what_the_stream_costs(forgetting, hold, noise):
    n = 80
    known = {"horizon": n, "budget": BUDGET, "noise": noise, "forgetting": forgetting, "hold": hold}
    learner = PolyhedralOnlineFrankWolfe(glm("squared", clip=1.0), Simplex(3), **known)
    each = np.array([learner.epsilon(t) for t in range(1, n + 1)])
    times = 1 + np.flatnonzero(each)
    rows = [sum((weight(i, t, forgetting) * each[t - 1]) ** 2 for t in times[times >= i]) for i in range(1, n + 1)]
    spent = max(rows) / (8 if noise == "gumbel" else 2)
    assert spent <= learner.cost.rho * (1 + 1e-12)
    assert spent == pytest.approx(learner.cost.rho, rel=1e-8)
    assert isinstance(learner.cost, ZCDP)
    assert times[0] == 1
    assert learner.epsilon(n + 1) == 0.0
    after = times + np.maximum(1, (hold * times).astype(int))
    assert np.array_equal(after[:-1], times[1:])
    assert after[-1] > n
    expected = np.log(after / times) if noise == "gumbel" else 1 / times
    assert (each[times - 1] / each[0]) ** 2 == pytest.approx(expected / expected[0])


def divergence(row, n=40, **more):
    """KL between the choices of two streams that differ in one row, all others being 0; and what is claimed for it.

    With a clipped row of opposite signs the two corners' log-odds are as far apart as they can be, evenly around 0.
    """
    X, y = np.zeros((n, 2)), np.zeros(n)
    X[row - 1] = 1.0, -1.0
    y[row - 1] = 1e6
    choices = np.zeros(n, dtype=int)
    one, two = (recorded(X, sign * y, Simplex(2), choices, **more) for sign in (1, -1))
    total = 0.0
    for (a, s, epsilon, *_), (b, *_) in zip(one, two, strict=True):
        # Gumbel noise of scale 2s/ε makes the corner v the smallest with probability ∝ exp(−score·ε/(2s))
        p, q = (np.exp(-scores * epsilon / (2 * s)) for scores in (a, b))
        p, q = p / p.sum(), q / q.sum()
        total += float(np.sum(p * np.log(p / q)))
    learner = PolyhedralOnlineFrankWolfe(glm("squared", clip=0.3), Simplex(2), horizon=n, budget=BUDGET, **more)
    return total, learner.cost.rho, max(epsilon for _, _, epsilon, *_ in one) ** 2 / 8


@pytest.mark.parametrize("forgetting", [1.0, 1.5, 2.0])
def test_no_row_tells_more_than_is_claimed_and_the_dearest_tells_all_of_it(forgetting):
    found = [divergence(row, forgetting=forgetting) for row in (1, 2, 3, 5, 10, 20, 30, 40)]
    worst, claim, newest = max(found)
    assert worst <= claim
    assert worst > 0.95 * claim
    # to charge a row for the choice at its own step only would be wrong
    assert worst > 1.1 * newest


def test_to_forget_early_rows_pays_for_less_noise():
    # per choice, the scale of the noise against the largest score, at n = 10⁴ and hold = 0.1
    objective, common = glm("squared", clip=1.0), {"horizon": 10_000, "budget": BUDGET}
    new, old = (PolyhedralOnlineFrankWolfe(objective, Simplex(3), **common, forgetting=f) for f in (2.0, 1.0))
    last = max(t for t in range(9000, 10_001) if new.epsilon(t))
    assert 2 / new.epsilon(last) < 0.7 * 1 / old.epsilon(last)


def test_a_vertex_is_chosen_only_where_it_is_paid_for():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    taken = recorded(X, y, LpBall(1, 3), rng.integers(6, size=60))
    learner = PolyhedralOnlineFrankWolfe(glm("squared", clip=0.3), LpBall(1, 3), horizon=60, budget=BUDGET)
    paid = [epsilon for t in range(1, 61) if (epsilon := learner.epsilon(t))]
    assert [epsilon for _, _, epsilon, _, _ in taken] == paid
    assert len(paid) < 40
    # between two choices the iterates move towards one vertex
    gaps = []
    for x, label in zip(X, y, strict=True):
        before = learner.theta.copy()
        step = learner.step(x, label) - before
        gaps.append(before + step * (learner.steps + 1 + learner.delay))
    kept = [t for t in range(2, 61) if learner.epsilon(t) == 0]
    assert all(np.allclose(gaps[t - 1], gaps[t - 2]) for t in kept)


def test_published_noise():
    learner = PolyhedralOnlineFrankWolfe(
        glm("squared", clip=1.0), Simplex(3), horizon=300, budget=BUDGET, noise="paper", forgetting=1.0, hold=0.0
    )
    first = 1.0 / (2 * math.sqrt(math.log(300) * math.log(1e5)))
    assert learner.epsilon(1) == pytest.approx(first)
    assert zcdp(learner.cost) == pytest.approx(sum(learner.epsilon(t) ** 2 / 2 for t in range(1, 301)))


def test_the_delay_is_what_the_noise_of_a_choice_asks_for():
    common = {"horizon": 10**6, "budget": BUDGET}
    learner = PolyhedralOnlineFrankWolfe(glm("squared", clip=0.3), LpBall(1, 50, 2.0), **common)
    # Gumbel noise of scale 2·(2·clip·2)·2/(tε), 100 vertices, against scores up to clip·2 after t rows
    last = next(t for t in range(10**6, 0, -1) if learner.epsilon(t))
    assert learner.delay == pytest.approx(2 * 8 * math.log(100) / learner.epsilon(last))
    few = PolyhedralOnlineFrankWolfe(glm("squared", clip=0.3), LpBall(1, 50), **common | {"horizon": 100})
    assert few.delay == pytest.approx(30)
    assert PolyhedralOnlineFrankWolfe(glm("squared", clip=0.3), Simplex(3), delay=0.0, **common).delay == 0.0


def test_without_noise_it_is_the_recursion_of_the_paper():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    ball = LpBall(1, 3, 2.0)
    known = {"horizon": 50, "budget": Budget(1e18, 0.999), "forgetting": 1.0, "hold": 0.0, "delay": 0.0}
    learner = PolyhedralOnlineFrankWolfe(glm("squared", clip=50.0), ball, **known, rng=np.random.default_rng(1))
    before = theta = d_t = np.zeros(3)
    for t, (x, label) in enumerate(zip(X, y, strict=True), 1):
        now, old = (x @ theta - label) * x, (x @ before - label) * x
        d_t = (2 * now - old) / 2 if t == 1 else now + (1 - 1 / (t + 1)) * (d_t - old)
        before, theta = theta, theta + (ball.linear_minimizer(d_t) - theta) / (t + 1)
        assert np.allclose(learner.step(x, label), theta, atol=1e-9)
    assert learner.clipped == 0


def excess(d, seed):
    """Of the paper's workload with p = 1 and two relevant features, ε = 1; everything else is the default."""
    rng = np.random.default_rng([d, seed])
    n = 10_000
    X = rng.normal(size=(n, d))
    X /= np.abs(X).max(axis=1, keepdims=True)
    theta = np.zeros(d)
    theta[:2] = 0.5, -0.5
    y = X @ theta + 0.05 * rng.normal(size=n)
    objective, ball = glm("squared", clip=0.3), LpBall(1, d, 2.0)
    x = polyhedral_online_frank_wolfe(objective, X, y, constraint=ball, budget=Budget(1.0, 1 / n), rng=rng).x
    return float(np.mean((X @ (x - theta)) ** 2))


@pytest.mark.slow
def test_a_hundred_times_the_dimension_is_less_than_three_times_the_risk():
    few, many = (np.mean([excess(d, seed) for seed in range(5)]) for d in (10, 1000))
    assert many < 3 * few
    # of θ = 0: 0.14 and 0.044
    assert few < 0.04
    assert many < 0.04


def test_refusals():
    objective = glm("squared", clip=1.0)
    for constraint, error, message in (
        (LpBall(2, 3), ValueError, "p must be 1"),
        (object(), TypeError, "constraint must have vertices"),
    ):
        with pytest.raises(error, match=message):
            PolyhedralOnlineFrankWolfe(objective, constraint, horizon=3, budget=BUDGET)
    for change, message in (
        ({"forgetting": 2.5}, "forgetting must be at most 2, got forgetting=2.5"),
        ({"hold": 1.5}, "hold must be at most 1, got hold=1.5"),
        ({"hold": -0.1}, "hold must be nonnegative"),
        ({"delay": math.nan}, "delay must be"),
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

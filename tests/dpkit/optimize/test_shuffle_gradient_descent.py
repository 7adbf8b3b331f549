"""Gradient descent in the shuffle model: cost, schedules, and accuracy against the central model."""

import math

import numpy as np
import pytest
from tabled import tabled

from accounting import Budget, BudgetExceeded, Gaussian, Ledger, calibrate, delta, epsilon
from dpkit.geometry import Box, LpBall
from dpkit.optimize import glm, shuffle_gradient_descent

BUDGET = Budget(1.0, 1e-6)


def logistic_data(n, d=10, seed=0):
    """Rows of norm at most 1 and coin flips that follow a logistic model."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    theta = rng.standard_normal(d)
    theta *= 4.0 / np.linalg.norm(theta)
    return X, (rng.random(n) < 1 / (1 + np.exp(-X @ theta))).astype(float)


def descend(X, y, **more):
    parameters = {"constraint": LpBall(2, X.shape[1], 4.0), "budget": BUDGET, "rng": np.random.default_rng(0)} | more
    objective = parameters.pop("objective", glm("logistic", clip=1.0))
    return shuffle_gradient_descent(objective, X, y, **parameters)


@pytest.mark.parametrize("schedule", ["numeric", "paper"])
@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
def test_the_whole_run_meets_the_budget_and_is_charged_once(schedule, adjacency):
    budget = Budget(1.0, 1e-6, adjacency=adjacency)
    ledger = Ledger(budget)
    result = descend(*logistic_data(100), budget=budget, schedule=schedule, max_iterations=7, ledger=ledger)
    (row,) = ledger.rows()
    assert row.release == result.release == result.cost
    assert row.simulation
    assert result.cost.adjacency == adjacency
    assert delta(result.cost, 1.0) <= 1e-6
    if schedule == "numeric":
        assert epsilon(result.cost, 1e-6) > 0.98
        with pytest.raises(BudgetExceeded):
            descend(*logistic_data(100), budget=budget, max_iterations=7, ledger=ledger)
        assert len(ledger.rows()) == 1


@pytest.mark.thorough
def test_the_numeric_schedule():
    X, y = logistic_data(300)
    # s(1) = 2·4.2247/300 for exact Gaussian noise; T = L²/(d s(1)²)
    expected = math.ceil(1.0 / (10 * (2 * 4.224678889326835 / 300) ** 2))
    result = descend(X, y)
    assert result.nit == expected == 127
    assert descend(X, y, max_iterations=20).nit == 20
    noise = 10 * result.noise_std**2
    assert result.step_size == pytest.approx(8.0 * math.sqrt(2 / (expected * (1 + noise))))
    assert descend(X, y, smoothness=0.25).step_size == pytest.approx(min(4.0, 8.0 * math.sqrt(2 / (expected * noise))))
    assert descend(X, y, smoothness=4.0).step_size == 0.25
    assert descend(X, y, step_size=0.125).step_size == 0.125
    assert result.nfev == 300 * expected
    assert result.messages_per_user % expected == 0


def test_the_schedule_of_the_paper():
    n, d = 1000, 4
    X, y = logistic_data(n, d)
    budget = Budget(2.0, 1e-3)
    result = descend(X, y, budget=budget, schedule="paper")
    # Algorithm 7 of arXiv:2602.00417
    T = math.floor(4 * n**2 / (d * math.log(n * d / 1e-3) ** 3))
    assert result.nit == min(200, T)
    assert result.step_size == pytest.approx(2 * 8.0 / math.sqrt(result.nit))
    few = descend(X[:100], y[:100], budget=budget, schedule="paper")
    T = math.floor(4 * 100**2 / (d * math.log(100 * d / 1e-3) ** 3))
    assert few.nit == T == 4
    (part,) = few.cost.parts
    assert part[1] == T
    assert delta(part[0], 2.0 / (2 * math.sqrt(2 * T * math.log(1000)))) <= 1e-3 / (T + 1)


@pytest.mark.parametrize("schedule", ["numeric", "paper"])
def test_with_little_noise_it_is_gradient_descent(schedule):
    # ε so large that the noise is a thousandth of a step; the result is the mean of the last half, or of all iterates
    X, y = logistic_data(3000, 3)
    seen = []
    budget = Budget(300.0, 0.4)
    result = descend(X, y, budget=budget, schedule=schedule, max_iterations=9, step_size=0.5, callback=seen.append)
    objective, theta, iterates = glm("logistic", clip=1.0), np.zeros(3), [np.zeros(3)]
    for _ in range(9):
        theta = LpBall(2, 3, 4.0).project(theta - 0.5 * objective.gradient_sum(theta, X, y) / 3000)
        iterates.append(theta)
    np.testing.assert_allclose(seen, iterates[1:], atol=0.02)
    kept = iterates[4:9] if schedule == "numeric" else iterates[:9]
    np.testing.assert_allclose(result.x, np.mean(kept, axis=0), atol=0.02)
    assert result.clipped == 0


def test_iterates_stay_in_the_set_and_hostile_rows_are_clipped():
    X, y = logistic_data(200, 3)
    X[:50] *= 1e200
    seen = []
    box = Box([-0.1] * 3, [0.2] * 3)
    result = descend(X, y, constraint=box, max_iterations=5, callback=seen.append)
    assert len(seen) == 5
    assert all(box.contains(theta) for theta in [*seen, result.x])
    assert result.clipped >= 50


@pytest.mark.parametrize("n", [0, 1])
def test_no_rows_and_one_row(n):
    ledger = Ledger()
    result = descend(np.zeros((n, 2)), np.zeros(n), start=[1.0, 0.5], ledger=ledger)
    assert result.nit == n
    assert len(ledger.rows()) == n
    assert LpBall(2, 2, 4.0).contains(result.x)
    if n == 0:
        np.testing.assert_array_equal(result.x, [1.0, 0.5])
        assert result.cost == 0 * Gaussian(1.0)


@pytest.mark.thorough
def test_dishonest_users_are_made_up_for():
    X, y = logistic_data(500)
    ratio = descend(X, y, honest=0.5).noise_std / descend(X, y).noise_std
    assert ratio == pytest.approx(math.sqrt(2), rel=0.02)


@tabled(
    ("changes", "error", "message"),
    [
        ({"objective": glm("logistic")}, ValueError, "objective must have a clip"),
        ({"schedule": "fast"}, ValueError, "schedule must be 'numeric' or 'paper'"),
        ({"max_iterations": 0}, ValueError, "max_iterations must be at least 1"),
        ({"step_size": 0.0}, ValueError, "step_size must be positive"),
        ({"smoothness": -1.0}, ValueError, "smoothness must be positive"),
        ({"honest": 2.0}, ValueError, "honest must lie in"),
        ({"start": [9.0] * 10}, ValueError, "start must lie in the constraint set"),
        ({"budget": Budget(1.0, 0.0)}, ValueError, "budget must have a positive delta"),
        ({"budget": Budget(1.0, 1e-6, adjacency="add_remove")}, ValueError, r"budget\.adjacency must be one of"),
        ({"constraint": LpBall(2, 3)}, ValueError, r"X must have shape \(n, 3\)"),
        ({"rng": 1}, TypeError, "rng must be"),
    ],
)
def test_bad_arguments_are_refused_and_nothing_is_charged(changes, error, message):
    ledger = Ledger()
    with pytest.raises(error, match=message):
        descend(*logistic_data(50), ledger=ledger, **changes)
    assert ledger.rows() == []


def central_excess(objective, X, y, loss, result, seed):
    """Noisy full-batch gradient descent in the central model at the same budget: same steps, exact Gaussian noise."""
    n, d = X.shape
    rng, ball, theta, mean = np.random.default_rng(seed), LpBall(2, d, 4.0), np.zeros(d), np.zeros(d)
    sigma = 2.0 * calibrate(lambda z: result.nit * Gaussian(z), BUDGET) / n
    first = result.nit // 2
    for t in range(result.nit):
        if t >= first:
            mean += theta / (result.nit - first)
        gradient = objective.gradient_sum(theta, X, y) / n + sigma * rng.standard_normal(d)
        theta = ball.project(theta - result.step_size * gradient)
    assert result.noise_std < 1.03 * sigma
    return loss(mean)


def excess_losses(n, seeds, **more):
    """Mean excess over the non-private minimum, in the shuffle model and in the central one, on the same data."""
    from scipy.optimize import minimize

    X, y = logistic_data(n)
    objective = glm("logistic", clip=1.0)
    best = minimize(
        lambda t: objective.mean(t, X, y), np.zeros(10), jac=lambda t: objective.gradient_sum(t, X, y) / n
    ).x
    least = objective.mean(LpBall(2, 10, 4.0).project(best), X, y)
    shuffled, central = [], []
    for seed in range(seeds):
        result = descend(X, y, smoothness=0.25, rng=np.random.default_rng(seed), **more)
        shuffled.append(objective.mean(result.x, X, y) - least)
        for twin in range(4):
            loss = lambda t: objective.mean(t, X, y) - least  # noqa: E731
            central.append(central_excess(objective, X, y, loss, result, seed=1000 * seed + twin))
    return np.mean(shuffled), np.mean(central)


@pytest.mark.thorough
def test_the_excess_loss_is_close_to_that_of_the_central_model():
    # The noise differs by 2 %. With d = 10 an excess is about a χ²₁₀ variable: means of 4 and 16 of them have a ratio
    # above 4 with probability below 1e-9.
    shuffled, central = excess_losses(10_000, 4, max_iterations=30)
    assert 0 < shuffled < 4 * central
    assert shuffled < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("n", [10_000, 100_000])
def test_the_excess_loss_is_within_twice_that_of_the_central_model(n):
    # Means of 24 and 96: a ratio above 2 has probability below 1e-9.
    shuffled, central = excess_losses(n, 24, max_iterations=60)
    assert 0 < shuffled < 2 * central

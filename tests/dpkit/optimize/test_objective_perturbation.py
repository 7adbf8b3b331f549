"""Objective perturbation: its privacy, integrated numerically for one parameter, and the minimizer it returns."""

import math

import numpy as np
import pytest

from accounting import ApproxDP, Budget, BudgetExceeded, Ledger, ObjectivePerturbation, delta
from accounting import epsilon as epsilon_of
from dpkit.geometry import LpBall
from dpkit.optimize import glm, objective_perturbation

L = 0.6
ROWS, LABELS = np.array([[1.0], [0.7]]), np.array([0.3, -2.0])


def fit_of(budget, X=ROWS, y=LABELS, *, radius=5.0, **more):
    """A fit, by default on two rows, which costs the same as on many."""
    known = {"constraint": LpBall(2, X.shape[1], radius), "rng": np.random.default_rng(0)} | more
    return objective_perturbation(glm("squared", clip=L), X, y, budget=budget, **known)


def density(theta, X, y, ridge, sigma):
    """Of the exact minimizer at a grid of θ, d = 1: p(θ) = φ(b)·|db/dθ|, b = −(Σψ_c(x_iθ)x_i + Λθ); |x_i| ≤ 1."""
    b = -ridge * theta
    for x, label in zip(X, y, strict=True):
        b = b - np.clip(x * theta - label, -L / abs(x), L / abs(x)) * x
    density = np.exp(-0.5 * (b / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
    return density * np.abs(np.gradient(b, theta))


@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_minimizer_is_as_private_as_claimed(adjacency, epsilon):
    budget = Budget(epsilon, 1e-3, adjacency=adjacency)
    result = fit_of(budget)
    ridge, sigma = result.ridge, result.noise_std
    theta = np.linspace(-12 * sigma / ridge, 12 * sigma / ridge, 30_001)
    step = theta[1] - theta[0]
    base = density(theta, ROWS[:, 0], LABELS, ridge, sigma)
    assert base.sum() * step == pytest.approx(1.0, abs=1e-3)
    # the row (1, 0.3) swapped for others, or for nothing
    swaps = [(1.0, 50.0), (1.0, -50.0), (-1.0, 50.0), (0.5, 0.0)] if adjacency == "replace" else [(1e-9, 0.0)]
    found = []
    for x, label in swaps:
        other = density(theta, np.array([x, 0.7]), np.array([label, -2.0]), ridge, sigma)
        for p, q in ((base, other), (other, base)):
            found.append(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * step)
            # a tenth of the noise would be found out
    assert max(found) <= 1e-3
    extreme = [density(theta, np.array([1.0, 0.7]), np.array([s * 50.0, -2.0]), ridge, sigma / 3) for s in (1, -1)]
    assert np.maximum(extreme[0] - math.exp(epsilon) * extreme[1], 0.0).sum() * step > 1e-3


def minimizer_of(cost):
    """The part of a fit's cost that is for the exact minimizer."""
    (found,) = [part for part, _ in cost.parts if isinstance(part, ObjectivePerturbation)]
    return found


@pytest.mark.parametrize("people", [False, True])
@pytest.mark.parametrize("budgeted", [0.3, 1.5])
def test_the_whole_curve_that_is_charged_holds_for_exact_minimizers(people, budgeted):
    budget = Budget(budgeted, 1e-4, adjacency="zero_out", unit="person" if people else "row")
    fit = fit_of(budget, **({"groups": [0, 1]} if people else {}))
    claim = minimizer_of(fit.cost)
    theta = np.linspace(-12 * fit.noise_std / fit.ridge, 12 * fit.noise_std / fit.ridge, 100_001)
    step = theta[1] - theta[0]
    worst = 0.0
    for label in (50.0, -50.0, 0.0):
        with_row, without = (
            density(theta, np.array([x, 0.7]), np.array([label, -2.0]), fit.ridge, fit.noise_std) for x in (1.0, 1e-9)
        )
        for p, q in ((with_row, without), (without, with_row)):
            for at in (0.0, 0.1 * budgeted, 0.4 * budgeted, budgeted, 2 * budgeted):
                found = np.maximum(p - math.exp(at) * q, 0.0).sum() * step
                assert found <= delta(claim, at) * (1 + 1e-3) + 1e-9
                worst = max(worst, found / delta(claim, at))
    # it is not far above the truth, either
    assert worst > (0.02 if people else 0.3)
    halved, other = (
        density(theta, np.array([x, 0.7]), np.array([50.0, -2.0]), fit.ridge, fit.noise_std / 4) for x in (1.0, 1e-9)
    )
    assert np.maximum(halved - math.exp(budgeted) * other, 0.0).sum() * step > delta(claim, budgeted)


@pytest.mark.parametrize(
    ("adjacency", "unit", "ten"),
    [
        ("zero_out", "row", 4.70),
        ("replace", "row", 4.95),
        ("zero_out", "person", 3.17),
        ("add_remove", "person", 3.17),
        ("replace", "person", 3.23),
    ],
)
def test_ten_fits_cost_much_less_than_ten_times_one(adjacency, unit, ten):
    budget = Budget(1.0, 1e-6, adjacency=adjacency, unit=unit)
    ledger = Ledger(budget)
    groups = {"groups": [0, 1]} if unit == "person" else {}
    cost = fit_of(budget, ledger=ledger, **groups).cost
    assert ledger.total == cost
    assert 0.95 < epsilon_of(cost, 1e-6) <= 1.0
    assert delta(cost, 1.0) <= 1e-6
    with pytest.raises(BudgetExceeded):
        fit_of(budget, ledger=ledger, **groups)
    # as (1, 1e-6) each, ten cost 10 at ten times this δ
    assert epsilon_of(10 * cost, 1e-6) == pytest.approx(ten, abs=0.01)
    found = minimizer_of(cost)
    assert (found.one_row, found.adjacency) == (unit == "row", adjacency)


@pytest.mark.parametrize("budget", [Budget(4.0, 1e-6), Budget(4.0, 1e-6, adjacency="zero_out")])
def test_what_has_no_curve_is_charged_as_approximate_dp(budget):
    # more curvature than the Rényi bound is proved for
    assert fit_of(budget).cost == ApproxDP(budget.epsilon, budget.delta, adjacency=budget.adjacency)


def fitted(budget):
    """ln(1 + β/Λ) and L/σ, from what the run reports."""
    run = fit_of(budget, np.ones((1, 1)), [1.0], rng=None)
    return math.log1p(1.0 / run.ridge), L / run.noise_std


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-12])
def test_the_linear_term_is_as_large_as_the_proof_asks(delta):
    normal = np.linspace(-10, 10, 10_001)
    density = np.exp(-0.5 * normal**2) / math.sqrt(2 * math.pi) * 2e-3

    def goes(at):  # ln(1 + β/Λ) + u²/2 + N(0, u²)
        return float(density @ np.maximum(-np.expm1(at - offset - u * u / 2 - u * normal), 0.0))

    def comes(at):  # u²/2 + |N(0, u²)|
        return float(density @ np.maximum(-np.expm1(at - u * u / 2 - u * np.abs(normal)), 0.0))

    offset, u = fitted(Budget(1.0, delta, adjacency="add_remove"))
    assert max(goes(0.99), comes(0.99)) == pytest.approx(0.99 * delta, rel=1e-3)
    # one goes, and another one comes
    offset, u = fitted(Budget(1.0, delta))
    firsts = np.linspace(offset, 0.99, 60).tolist()
    ways = [
        (goes(at) + math.exp(at) * comes(0.99 - at), comes(0.99 - at) + math.exp(0.99 - at) * goes(at)) for at in firsts
    ]
    assert np.min(ways) == pytest.approx(0.99 * delta, rel=0.05)


def test_a_row_of_zeros_changes_nothing_but_rounding():
    # The last noise must not know how many rows there are. A minimizer is found up to γ/Λ, γ = 1e-7·L
    found = []
    for rows in (0, 1, 5):
        budget = Budget(1.0, 1e-5, adjacency="add_remove")
        run = fit_of(budget, np.zeros((rows, 3)), np.ones(rows), radius=1e9)
        found.append(run.x)
        assert np.abs(run.x - found[0]).max() <= 2e-7 * L / run.ridge


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_with_a_generous_budget_it_finds_the_minimizer(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3)) / 3
    y = (X @ [1.0, -1.0, 0.5] + 0.3 * rng.normal(size=2000) > 0).astype(float)
    objective = glm(loss, clip=2.0)
    result = objective_perturbation(
        objective, X, y, constraint=LpBall(2, 3, 50.0), budget=Budget(20.0, 0.1), row_norm=2.0
    )
    assert np.abs(objective.gradient_sum(result.x, X, y)).max() < 10.0


def test_add_remove_does_not_depend_on_the_number_of_rows():
    budget = Budget(1.0, 1e-5, adjacency="add_remove")
    one = fit_of(budget, np.empty((0, 2)), [])
    assert 0.98 < epsilon_of(one.cost, 1e-5) <= 1.0
    assert np.abs(one.x).max() > 0


def test_a_loss_without_curvature_is_refused():
    # its ridge would be 0
    with pytest.raises(ValueError, match=r"finite curvature_bound above 0, .* got the loss 'linear'"):
        objective_perturbation(
            glm("linear", clip=L), np.ones((4, 1)), np.ones(4), constraint=LpBall(2, 1), budget=Budget(1.0, 1e-5)
        )

"""A tilted objective with a term whose gradient turns, integrated exactly: f(θ) a function of ‖θ‖ in d dimensions.

With ψ = f′ the minimizer's length r has the density of σ·χ_d at ρ(r), ρ(r) = Λr + ψ(r), times ρ′(r); without f, ρ = Λr.
∇f has the length ψ, and ∇²f the eigenvalues ψ′ and ψ/r, the second d − 1 times.
"""

import math

import numpy as np
import pytest

from accounting import Gaussian, calibrate
from accounting.budget import Budget
from accounting.notions.perturbed_minimum import divergence, divergences, largest_determinants, largest_shift


def densities(d, L, beta, ridge, sigma, *, start=0.0):
    """A grid, and on it ln of those with f and without; ψ rises from ``start`` to L as fast as β lets it."""
    # in one dimension the first cell has the most
    r = np.linspace(0.0, (math.sqrt(d) + 25.0) * sigma / ridge, 200_001 if d == 1 else 50_001)[1:]
    slope = beta / d
    psi = np.clip(slope * (r - start), 0.0, L)
    logs = []
    for rho in (ridge * r + psi, ridge * r):
        x = rho / sigma
        chi = (d - 1) * np.log(x) - x * x / 2 - (d / 2 - 1) * math.log(2) - math.lgamma(d / 2)
        logs.append(chi + np.log(np.gradient(x, r)))
    return r, *logs


def hockey_stick(r, p, q, epsilon):
    return float(np.maximum(np.exp(p) - np.exp(epsilon + q), 0.0).sum() * (r[1] - r[0]))


@pytest.mark.parametrize(
    ("d", "epsilon", "delta", "share"),
    [(1, 1.0, 1e-4, 0.2), (1, 0.3, 1e-2, 0.1), (6, 4.0, 1e-3, 0.5), (40, 1.0, 1e-4, 0.2), (40, 0.3, 1e-2, 0.1)],
)
def test_a_turning_gradient_costs_no_more_than_is_claimed(d, epsilon, delta, share):
    shift, curvature = largest_shift(epsilon, delta, share, replaced=False)
    for width in (1.0, 0.3):
        for start in (0.0, 0.5 * math.sqrt(d)):
            r, p, q = densities(d, shift * width, curvature, 1.0, 1.0, start=start)
            assert np.exp(p).sum() * (r[1] - r[0]) == pytest.approx(1.0, abs=1e-4)
            assert max(hockey_stick(r, p, q, epsilon), hockey_stick(r, q, p, epsilon)) <= delta


def test_without_a_bound_on_the_trace_it_costs_far_more():
    # every eigenvalue may be β, not their sum: in 400 dimensions the gradient follows the linear term
    shift, curvature = largest_shift(1.0, 1e-4, 0.2, replaced=False)
    r, p, q = densities(400, shift, 400 * curvature, 1.0, 1.0)
    assert max(hockey_stick(r, p, q, 1.0), hockey_stick(r, q, p, 1.0)) > 5e-4


@pytest.mark.parametrize(("s", "curvature"), [(2.0, 0.2), (8.0, 0.1), (20.0, 0.04)])
@pytest.mark.parametrize("d", [1, 7])
def test_the_divergence_is_below_its_bound_and_not_by_much(s, curvature, d):
    shift = 0.3
    bound = divergence(s, shift, curvature, replaced=False)
    r, p, q = densities(d, shift, curvature, 1.0, 1.0)
    found = [math.log(np.exp((1 + s) * a - s * b).sum() * (r[1] - r[0])) / s for a, b in ((p, q), (q, p))]
    assert max(found) <= bound
    assert max(found) >= 0.5 * bound if d == 1 else max(found) > 0.0


@pytest.mark.parametrize("replaced", [False, True])
def test_little_curvature_costs_little_more_than_gaussian_noise(replaced):
    shift, curvature = largest_shift(1.0, 1e-6, 1e-3, replaced=replaced)
    assert 1.0 <= 1.0 / (shift * calibrate(Gaussian, Budget(1.0, 1e-6))) <= 1.09
    assert 0 < curvature < 0.05
    # a person who is another one costs both ways of one who comes or goes
    s = 5.0
    one, other = (divergence(s, 0.0, curvature, replaced=which) for which in (False, True))
    assert one < other < 2 * one


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"curvature": 0.7}, "curvature must be at most 0.6"),
        ({"s": 10.0, "curvature": 0.1}, "below 1/s"),
        ({"s": 0.0}, "s must be"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(ValueError, match=message):
        divergence(**({"s": 1.0, "shift": 0.1, "curvature": 0.1, "replaced": True} | change))
    with pytest.raises(ValueError, match="share"):
        largest_shift(1.0, 1e-6, 1.0, replaced=True)


@pytest.mark.parametrize(
    ("s", "curvature", "d"), [(3.0, 0.5, 40), (20.0, 0.3, 1), (20.0, 0.3, 7), (60.0, 0.1, 40), (9.0, 0.2, 1)]
)
def test_no_order_is_too_large(s, curvature, d):
    for shift in (0.03, 0.3):
        cost = float(divergences(np.array([1 + s]), shift, curvature, replaced=False)[0])
        for start in (0.0, 0.5 * math.sqrt(d)):
            r, p, q = densities(d, shift, curvature, 1.0, 1.0, start=start)
            for a, b in ((p, q), (q, p)):
                found = math.log(np.exp((1 + s) * a - s * b).sum() * (r[1] - r[0])) / s
                assert found <= cost * (1 + 1e-4) + 1e-6
                assert s * curvature >= 1 or found > -1e-3


def test_a_replaced_person_at_any_order():
    """One function of slopes between ±L against another, in one dimension."""
    theta = np.linspace(-30.0, 30.0, 60_001)
    for s, curvature, shift in ((4.0, 0.5, 0.5), (25.0, 0.3, 0.1), (12.0, 0.1, 0.3)):
        cost = float(divergences(np.array([1 + s]), shift, curvature, replaced=True)[0])
        laws = []
        for start in (-1.5, -0.2, 0.0, 0.7):
            psi = np.clip(curvature * (theta - start), -shift / 2, shift / 2)
            laws.append(-((theta + psi) ** 2) / 2 + np.log(np.gradient(theta + psi, theta)))
        laws += [-((theta + sign * shift / 2) ** 2) / 2 for sign in (-1, 1)]
        found = [np.exp((1 + s) * a - s * b).sum() * 1e-3 / math.sqrt(2 * math.pi) for a in laws for b in laws]
        assert 0.0 < math.log(max(found)) / s <= cost
        assert cost < 40 * math.log(max(found)) / s


@pytest.mark.parametrize("curvature", [0.05, 0.3, 0.6])
def test_the_largest_determinants(curvature):
    rng = np.random.default_rng(0)
    s = np.array([0.3, 2.0, 9.0, 40.0, 500.0])
    found = np.zeros(5)
    for count in (1, 1, 2, 3, 5, 8, 20, 60, 200):
        for shares in (np.full(count, 1 / count), rng.dirichlet(np.ones(count)), rng.dirichlet(np.full(count, 0.2))):
            x = curvature * shares
            value = ((1 + s[:, None]) * np.log1p(x) - np.log1p((1 + s[:, None]) * x)).sum(axis=1)
            found = np.maximum(found, value)
    cost = largest_determinants(s, curvature)
    assert np.all(found <= cost)
    assert np.all(found >= 0.85 * cost)

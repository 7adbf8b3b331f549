"""The Rényi accountant."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from accounting import (
    ZCDP,
    ApproxDP,
    DiscreteGaussian,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    LocalShuffled,
    NoisyMax,
    PureDP,
    RandomizedResponse,
    TreeAggregation,
    UnsupportedRelease,
    delta,
    epsilon,
    parallel,
    rdp,
    zcdp,
)

# Curves are right to a relative 1e-12 or so; conversions add a few units in the last place.
TIGHT = 1e-11
EXAMPLES = [
    Gaussian(1.5),
    Laplace(0.7),
    NoisyMax(2.0),
    NoisyMax(0.3, noise="laplace"),
    RandomizedResponse(1.0, 20),
    PureDP(0.7),
    ZCDP(0.1),
    TreeAggregation(5.0, 100),
    LocalShuffled(1.0, 500),
]
log_orders = st.floats(-5, 4)


def test_reference_values():
    # computed with mpmath at 40 digits
    assert rdp(Laplace(2.0), [1.5, 10]) == pytest.approx([0.155977878485739499, 0.428690386467274833], rel=1e-12)
    assert epsilon(ZCDP(0.1), 1e-6, accountant="rdp") == pytest.approx(2.141938928385474, rel=1e-10)


def test_gaussian_like_costs_are_lines():
    orders = np.array([[1.5, 2.0], [10.0, 1e4]])
    for kind in (Gaussian, DiscreteGaussian, GeneralizedGaussian):
        assert np.array_equal(rdp(kind(2.0), orders), orders / 8)
    assert rdp(TreeAggregation(2.0, 1024), 3.0) == pytest.approx(3 * 11 / 8)
    assert rdp(ZCDP(0.3), [2.0]).shape == (1,)
    assert rdp(ZCDP(0.3), 2.0).shape == ()


def renyi(P, Q, alpha):
    """ln Σ P^α Q^(1−α)/(α − 1) of two pmfs, with 80 digits."""
    total = mpmath.fsum(p**alpha * q ** (1 - alpha) for p, q in zip(P, Q, strict=True) if p)
    return mpmath.log(total) / (alpha - 1)


@settings(max_examples=40, deadline=None)
@given(log_eps=st.floats(-5, 2.5), log_eta=log_orders, k=st.integers(2, 5000))
def test_randomized_response_is_exact(log_eps, log_eta, k):
    with mpmath.workdps(80):
        alpha = 1.0 + 10**log_eta
        e = mpmath.exp(mpmath.mpf(10**log_eps))
        P = [e / (e + k - 1), 1 / (e + k - 1), (k - 2) / (e + k - 1)]
        Q = [P[1], P[0], P[2]]
        exact = renyi(P, Q, mpmath.mpf(alpha))
        assert abs(rdp(RandomizedResponse(10**log_eps, k), alpha) / exact - 1) < TIGHT
        if k == 2:
            assert rdp(PureDP(10**log_eps), alpha) == rdp(RandomizedResponse(10**log_eps, 2), alpha)


@settings(max_examples=40, deadline=None)
@given(log_theta=st.floats(-5, 2), log_eta=log_orders)
def test_laplace_is_exact(log_theta, log_eta):
    with mpmath.workdps(80):
        alpha = mpmath.mpf(1.0 + 10**log_eta)
        z = 1 / 10**log_theta
        theta = 1 / mpmath.mpf(z)
        weight = alpha / (2 * alpha - 1)
        moment = weight * mpmath.exp((alpha - 1) * theta) + (1 - weight) * mpmath.exp(-alpha * theta)
        assert abs(rdp(Laplace(z), float(alpha)) / (mpmath.log(moment) / (alpha - 1)) - 1) < TIGHT


@settings(deadline=None)
@given(log_eps=st.floats(-4, 2), log_eta=log_orders)
def test_pure_dp_costs_less_than_the_customary_bound(log_eps, log_eta):
    eps, alpha = 10**log_eps, 1 + 10**log_eta
    assert rdp(PureDP(eps), alpha) <= min(eps**2 * alpha / 2, eps) * (1 + 1e-12)
    assert rdp(NoisyMax(eps), alpha) <= min(eps**2 * alpha / 8, eps) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("eps", "alpha"), [(0.05, 200.0), (0.05, 2.0), (1.0, 1.01), (1.0, 7.5), (4.0, 2.0), (4.0, 200.0), (20.0, 1.01)]
)
def test_a_bounded_range_costs_as_much_as_its_worst_offset(eps, alpha):
    with mpmath.workdps(60):
        worst = max(
            renyi(*([1 / (1 + mpmath.exp(-x)), 1 / (1 + mpmath.exp(x))] for x in (w + eps, w)), mpmath.mpf(alpha))
            for w in (mpmath.mpf(x) for x in np.linspace(-3 * eps - 8, 8, 400))
        )
    curve = rdp(NoisyMax(eps), alpha)
    assert worst <= curve
    assert curve <= max(worst * 1.002, 0) + 1e-12


@pytest.mark.parametrize("release", EXAMPLES, ids=repr)
def test_the_curve_grows_and_its_cumulant_is_convex(release):
    orders = 1 + np.geomspace(1e-3, 1e4, 60)
    curve = rdp(release, orders)
    assert np.all(curve > 0)
    assert np.all(np.diff(curve) >= -1e-9 * curve[1:])
    moments = (orders - 1) * curve
    left, middle, right = orders[:-2], orders[1:-1], orders[2:]
    share = (middle - left) / (right - left)
    assert np.all(moments[1:-1] <= ((1 - share) * moments[:-2] + share * moments[2:]) * (1 + 1e-9))


@pytest.mark.parametrize("release", [r for r in EXAMPLES if not isinstance(r, LocalShuffled)], ids=repr)
def test_zcdp_is_the_steepest_line(release):
    orders = 1 + np.geomspace(1e-6, 1e5, 500)
    steepest = np.max(rdp(release, orders) / orders)
    rho = zcdp(release)
    assert steepest <= rho * (1 + 1e-9)
    assert isinstance(release, NoisyMax) or steepest >= rho * 0.99


@given(counts=st.lists(st.integers(0, 5), min_size=len(EXAMPLES), max_size=len(EXAMPLES)))
@settings(max_examples=30, deadline=None)
def test_curves_add_and_parallel_takes_the_largest(counts):
    orders = np.array([1.1, 2.0, 9.5])
    total = sum((n * release for n, release in zip(counts, EXAMPLES, strict=True)), 0 * EXAMPLES[0])
    expected = sum((n * rdp(release, orders) for n, release in zip(counts, EXAMPLES, strict=True)), np.zeros(3))
    assert rdp(total, orders) == pytest.approx(expected, rel=1e-12)
    assert np.array_equal(rdp(parallel(*EXAMPLES), orders), np.max([rdp(r, orders) for r in EXAMPLES], axis=0))


@settings(max_examples=30, deadline=None)
@given(log_rho=st.floats(-9, 3), log_delta=st.floats(-290, -0.05))
def test_the_best_real_order_is_found(log_rho, log_delta):
    # on the line ε_α = ρα the derivative vanishes where ρu² + ln(1 + u) = ln 1/δ, u = α − 1
    rho, budget = 10**log_rho, -math.log(10**log_delta)
    release = ZCDP(rho)
    u = math.exp(brentq(lambda y: rho * math.exp(2 * y) + math.log1p(math.exp(y)) - budget, -60.0, 60.0, xtol=1e-14))
    by_line = max(0.0, rho * (1 + u) - math.log1p(1 / u) + (budget - math.log1p(u)) / u)
    by_curve = epsilon(release, 10**log_delta, accountant="rdp")
    assert by_curve == pytest.approx(by_line, rel=1e-8, abs=1e-15)
    if by_line > 0:
        assert delta(release, by_curve, accountant="rdp") == pytest.approx(10**log_delta, rel=1e-7)


@pytest.mark.parametrize("release", EXAMPLES[:-1], ids=repr)
def test_no_order_of_a_fine_grid_is_better(release):
    eta = np.geomspace(1e-3, 1e5, 4000)
    for total in (release, 30 * release):
        for level in (1e-2, 1e-6, 1e-30):
            curve = rdp(total, 1 + eta) - np.log1p(1 / eta) - (math.log(level) + np.log1p(eta)) / eta
            found = epsilon(total, level, accountant="rdp")
            assert found <= max(0.0, curve.min()) * (1 + 1e-9)


def test_delta_inverts_epsilon():
    for release in EXAMPLES:
        total = 10 * release
        found = epsilon(total, 1e-7, accountant="rdp")
        assert delta(total, found, accountant="rdp") == pytest.approx(1e-7, rel=1e-6)


@pytest.mark.parametrize("orders", [1.0, 0.5, math.nan, math.inf, [2.0, 1.0]])
def test_orders_must_exceed_one(orders):
    with pytest.raises(ValueError, match="orders must be finite and greater than 1, got orders="):
        rdp(Gaussian(1.0), orders)


def test_what_can_fail_has_no_curve():
    with pytest.raises(UnsupportedRelease, match="RDP accountant has no bound for ApproxDP"):
        rdp(ApproxDP(1.0, 1e-6), 2.0)

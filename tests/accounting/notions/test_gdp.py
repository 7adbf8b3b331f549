"""The Gaussian-DP accountant."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, ndtri

from accounting import (
    ZCDP,
    Gaussian,
    Laplace,
    NoisyMax,
    PureDP,
    RandomizedResponse,
    TreeAggregation,
    UnsupportedRelease,
    epsilon,
    gdp,
    parallel,
)
from accounting.notions.gdp import is_exact


def test_reference_values():
    # computed with mpmath at 40 digits
    tree = TreeAggregation(5.0, 1023)
    assert epsilon(tree, 1e-6, accountant="gdp") == pytest.approx(2.92160059042704586, rel=1e-12)
    assert epsilon(TreeAggregation(5.0, 1024), 1e-6) == pytest.approx(3.0803807005491463, rel=1e-12)
    assert epsilon(1000 * Gaussian(2.0), 1e-6) == pytest.approx(199.284568805627848, rel=1e-12)


@settings(deadline=None)
@given(zs=st.lists(st.floats(0.1, 100), min_size=1, max_size=5), count=st.integers(1, 1000))
def test_squares_of_mu_add(zs, count):
    total = sum(count * Gaussian(z) for z in zs)
    assert gdp(total) == pytest.approx(math.sqrt(count * sum(z**-2 for z in zs)), rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(log_epsilon=st.floats(-6, 3))
def test_mu_of_pure_dp_is_never_optimistic(log_epsilon):
    eps = 10**log_epsilon
    with mpmath.workdps(500):
        # Φ(−μ/2) = 1/(1 + e^ε), where the trade-off curve of randomized response has its kink
        exact = 1 / (1 + mpmath.exp(mpmath.mpf(eps)))
        mu = gdp(PureDP(eps))
        assert mpmath.erfc(mpmath.mpf(mu) / mpmath.sqrt(8)) / 2 <= exact
        assert mpmath.erfc(mpmath.mpf(mu) * (1 - mpmath.mpf("1e-11")) / mpmath.sqrt(8)) / 2 >= exact


def test_parallel_takes_the_worst_branch():
    assert gdp(parallel(Gaussian(1.0), Gaussian(2.0), PureDP(0.1))) == 1.0


def test_exactness_is_claimed_for_gaussians_only():
    assert is_exact(3 * Gaussian(1.0) + parallel(TreeAggregation(2.0, 8), Gaussian(2.0)))
    assert not is_exact(Gaussian(1.0) + PureDP(0.1))
    assert not is_exact(ZCDP(0.1))


def test_zcdp_implies_no_gdp():
    with pytest.raises(UnsupportedRelease, match=r"GDP accountant has no bound for ZCDP\(rho=0.1\)"):
        gdp(Gaussian(1.0) + ZCDP(0.1))


def trade_off(P, Q, level):
    """The smallest false-negative rate of a test of P against Q at a false-positive rate of ``level``, by sorting."""
    order = np.argsort(-Q / P, kind="stable")
    spent, power = np.cumsum(P[order]), np.cumsum(Q[order])
    return 1.0 - np.interp(level, np.r_[0.0, spent], np.r_[0.0, power])


def worst_mu(P, Q):
    """max over levels of Φ⁻¹(1 − a) − Φ⁻¹(f(a)), the smallest μ that a pair of pmfs admits."""
    levels = np.linspace(0, 1, 20_002)[1:-1]
    missed = trade_off(P, Q, levels)
    kept = (missed > 1e-9) & (levels < 1 - 1e-9)
    return np.max(-ndtri(levels[kept]) - ndtri(missed[kept]))


@pytest.mark.parametrize("eps", [0.1, 1.0, 4.0])
def test_no_test_of_a_pair_beats_the_curve_of_mu(eps):
    # fine histograms of Laplace noise; two coins whose log-odds differ by ε; k-ary randomized response
    x = np.arange(-30, 30, 0.002)
    P = np.exp(-np.abs(x)) * 0.001
    Q = np.exp(-np.abs(x - eps)) * 0.001
    assert 0.99 * gdp(Laplace(1 / eps)) <= worst_mu(P / P.sum(), Q / Q.sum()) <= gdp(Laplace(1 / eps)) + 1e-4
    coins = [
        worst_mu(np.array([expit(w), expit(-w)]), np.array([expit(w + eps), expit(-w - eps)]))
        for w in np.linspace(-2 * eps, eps, 61)
    ]
    assert 0.999 * gdp(NoisyMax(eps)) <= max(coins) <= gdp(NoisyMax(eps)) * (1 + 1e-9)
    for k in (2, 3, 20):
        P = np.r_[math.exp(eps), np.ones(k - 1)] / (math.exp(eps) + k - 1)
        mu = gdp(RandomizedResponse(eps, k))
        assert 0.97 * mu <= worst_mu(P, np.roll(P, 1)) <= mu * (1 + 1e-9)


@given(log_epsilon=st.floats(-5, 2), k=st.integers(2, 10_000))
def test_pure_mechanisms_cost_at_most_the_mu_of_their_epsilon(log_epsilon, k):
    eps = 10**log_epsilon
    worst = gdp(PureDP(eps)) * (1 + 1e-9) + 1e-12
    assert max(gdp(Laplace(1 / eps)), gdp(RandomizedResponse(eps, k)), gdp(NoisyMax(eps))) <= worst
    assert gdp(NoisyMax(eps, noise="laplace")) == gdp(NoisyMax(eps, noise="exponential"))
    assert gdp(NoisyMax(eps, noise="laplace")) == pytest.approx(gdp(Laplace(1 / eps)), rel=1e-12)
    assert gdp(RandomizedResponse(eps, 2)) == pytest.approx(gdp(PureDP(eps)), rel=1e-9)


def test_the_scaled_complementary_error_function_is_right_to_a_few_units():
    from scipy.special import erfcx

    from accounting.conversions import _erfcx

    rng = np.random.default_rng(3)
    points = np.concatenate(
        [rng.uniform(-4, 27, 4000), [24.999999999, 25.0, 25.000000001], 10 ** rng.uniform(1, 300, 500)]
    )
    ours = np.array([_erfcx(x) for x in points.tolist()])
    np.testing.assert_allclose(ours, erfcx(points), rtol=2e-15)

"""Losses of a constant plus a half-normal: against quadrature, simulation of the worst case, and published figures."""

import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.half_normal import half_normal_delta, half_normal_mu


@settings(max_examples=40, deadline=None)
@given(mu=st.floats(0.02, 3.0), offset=st.floats(0.0, 2.0), epsilon=st.floats(0.0, 5.0))
def test_the_closed_form_is_the_mean_of_the_bound(mu, offset, epsilon):
    with mpmath.workdps(30):
        start = max(mpmath.mpf(0), mpmath.mpf(epsilon) - offset - mpmath.mpf(mu) ** 2 / 2)

        def integrand(t):
            loss = offset + mpmath.mpf(mu) ** 2 / 2 + t
            return (1 - mpmath.exp(epsilon - loss)) * 2 * mpmath.npdf(t, 0, mu)

        exact = mpmath.quad(integrand, [start, start + mu / 4, start + mu, start + 4 * mu, start + 20 * mu])
    found = half_normal_delta(mu, offset, epsilon)
    assert exact * (1 - mpmath.mpf("1e-12")) <= found
    assert found <= exact * (1 + mpmath.mpf("1e-8")) + 2e-14


@pytest.mark.parametrize(
    ("epsilon", "delta", "share", "ratio"),
    # σ/L for 0.99 of the budgets (1, 1e-6) and (0.5, 1e-5); by the tail of |N| alone the first is 6.279
    [(0.99, 0.99e-6, 0.2, 5.429)],
)
def test_the_noise_of_objective_perturbation(epsilon, delta, share, ratio):
    mu = half_normal_mu(share * epsilon, epsilon, delta)
    assert 1 / mu == pytest.approx(ratio, abs=5e-4)
    assert half_normal_delta(mu, share * epsilon, epsilon) <= delta
    assert half_normal_delta(mu * (1 + 1e-9), share * epsilon, epsilon) > delta
    assert 1 / mu < 6.279


def test_an_offset_beyond_the_budget_leaves_no_noise_level():
    assert half_normal_mu(2.0, 1.0, 1e-6) < 1e-11
    assert half_normal_delta(0.5, 2.0, 1.0) > -math.expm1(-1.0)

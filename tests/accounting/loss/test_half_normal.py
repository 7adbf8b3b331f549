"""Losses of a constant plus a half-normal: against quadrature, simulation of the worst case, and published figures."""

import math

import mpmath
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accounting.loss.half_normal import half_normal_delta


def mean_of_the_bound(mu, offset, epsilon):
    """By quadrature, in units in which the integrand is of size 1: mpmath's tolerance is absolute."""
    mu, offset, epsilon = map(mpmath.mpf, (mu, offset, epsilon))
    start = max(mpmath.mpf(0), epsilon - offset - mu**2 / 2)
    scale = mu / (1 + start / mu)

    def integrand(s):
        t = start + scale * s
        return (1 - mpmath.exp(epsilon - offset - mu**2 / 2 - t)) * mpmath.exp((start**2 - t**2) / (2 * mu**2))

    in_units = mpmath.quad(integrand, [0, 0.25, 1, 2, 4, 8, 16, 32, 64])
    return in_units * 2 * mpmath.npdf(start, 0, mu) * scale


@settings(max_examples=3, deadline=None)
@given(mu=st.floats(0.02, 3.0), offset=st.floats(0.0, 2.0), epsilon=st.floats(0.0, 5.0))
@example(mu=0.0625, offset=0.0, epsilon=1.0)  # a tail of 16 standard deviations
@example(mu=0.0625, offset=1.0 - 0.0625**2 / 2, epsilon=1.0)  # between the two formulas
@example(mu=3.0, offset=900.0, epsilon=900.0)
@example(mu=0.02, offset=900.0, epsilon=900.0)
@example(mu=0.5, offset=900.0, epsilon=901.0)
def test_the_closed_form_is_the_mean_of_the_bound(mu, offset, epsilon):
    with mpmath.workdps(30):
        exact = mean_of_the_bound(mu, offset, epsilon)
        found = half_normal_delta(mu, offset, epsilon)
        assert exact * (1 - mpmath.mpf("1e-22")) <= found
        # a δ in the tail falls by ε − c standard deviations' worth per relative error of ε − c
        assert found <= exact * (1 + mpmath.mpf("1e-9")) + mpmath.mpf("1e-14") * (1 + 2 * epsilon)


def test_an_offset_beyond_the_budget():
    assert half_normal_delta(0.5, 2.0, 1.0) > -math.expm1(-1.0)

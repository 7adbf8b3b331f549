"""Losses of a constant plus a half-normal, those of a row that comes: against quadrature."""

import mpmath
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accounting.loss.one_row import delta_of_arrival


def mean_of_the_bound(mu, epsilon):
    """By quadrature, in units in which the integrand is of size 1: mpmath's tolerance is absolute."""
    mu, epsilon = map(mpmath.mpf, (mu, epsilon))
    start = max(mpmath.mpf(0), epsilon - mu**2 / 2)
    scale = mu / (1 + start / mu)

    def integrand(s):
        t = start + scale * s
        return (1 - mpmath.exp(epsilon - mu**2 / 2 - t)) * mpmath.exp((start**2 - t**2) / (2 * mu**2))

    in_units = mpmath.quad(integrand, [0, 0.25, 1, 2, 4, 8, 16, 32, 64])
    return in_units * 2 * mpmath.npdf(start, 0, mu) * scale


@settings(max_examples=3, deadline=None)
@given(mu=st.floats(0.02, 3.0), epsilon=st.floats(0.0, 5.0))
@example(mu=0.0625, epsilon=1.0)  # a tail of 16 standard deviations
@example(mu=0.0625, epsilon=0.0625**2 / 2)  # between the two formulas
@example(mu=3.0, epsilon=0.0)
@example(mu=0.02, epsilon=0.0)
@example(mu=0.5, epsilon=1.0)
def test_the_closed_form_is_the_mean_of_the_bound(mu, epsilon):
    with mpmath.workdps(30):
        exact = mean_of_the_bound(mu, epsilon)
        found = delta_of_arrival(mu, epsilon)
        assert exact * (1 - mpmath.mpf("1e-22")) <= found
        # a δ in the tail falls by ε standard deviations' worth per relative error of ε
        assert found <= exact * (1 + mpmath.mpf("1e-9")) + mpmath.mpf("1e-14") * (1 + 2 * epsilon)

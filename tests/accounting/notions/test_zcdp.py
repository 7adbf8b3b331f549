"""The zCDP accountant."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import (
    ZCDP,
    DiscreteGaussian,
    Gaussian,
    GeneralizedGaussian,
    NoisyMax,
    PureDP,
    TreeAggregation,
    epsilon,
    parallel,
    zcdp,
)


def test_costs():
    for kind in (Gaussian, DiscreteGaussian, GeneralizedGaussian):
        assert zcdp(kind(2.0)) == 0.125
    assert zcdp(TreeAggregation(2.0, 1024)) == 11 / 8
    assert zcdp(NoisyMax(1.0)) == pytest.approx(0.1233016, abs=1e-7)  # below the customary 1/8
    assert zcdp(ZCDP(0.3)) == 0.3


def test_reference_values():
    # computed with mpmath at 40 digits
    assert epsilon(ZCDP(0.1), 1e-6) == pytest.approx(2.141938551644, rel=1e-12)
    assert epsilon(1000 * DiscreteGaussian(2.0), 1e-6, accountant="zcdp") == pytest.approx(205.8567898604484, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(rhos=st.lists(st.floats(0, 10), min_size=1, max_size=5), count=st.integers(1, 100))
def test_rho_adds_and_parallel_takes_the_largest(rhos, count):
    assert zcdp(sum(count * ZCDP(rho) for rho in rhos)) == pytest.approx(count * sum(rhos), rel=1e-12)
    assert zcdp(parallel(*(ZCDP(rho) for rho in rhos))) == max(rhos)


def test_a_gaussian_costs_less_as_gdp_than_as_zcdp():
    assert epsilon(Gaussian(2.0), 1e-6) < epsilon(Gaussian(2.0), 1e-6, accountant="zcdp")


def test_pure_dp_costs_at_most_half_its_square():
    for eps in (0.01, 0.5, 3.0, 40.0):
        assert zcdp(PureDP(eps)) <= eps**2 / 2

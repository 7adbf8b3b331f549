"""The pure-DP accountant."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Gaussian, Laplace, NoisyMax, PureDP, RandomizedResponse, UnsupportedRelease, epsilon, parallel
from accounting.notions.pure import pure


def test_epsilons_add_and_parallel_takes_the_largest():
    assert pure(3 * PureDP(0.5) + NoisyMax(0.25) + Laplace(4.0) + RandomizedResponse(1.0, 3)) == 3.0
    assert pure(parallel(Laplace(1.0), Laplace(0.5))) == 2.0


@settings(max_examples=40)
@given(eps=st.floats(0.01, 10), count=st.integers(1, 100))
def test_delta_zero_gives_the_sum(eps, count):
    total = epsilon(count * PureDP(eps), 0.0)
    assert total == pytest.approx(count * eps, rel=1e-14)
    assert total.accountant == "pure"


def test_gaussian_noise_is_not_pure():
    with pytest.raises(UnsupportedRelease, match=r"pure-DP accountant has no bound for Gaussian"):
        pure(PureDP(1.0) + Gaussian(1.0))

"""What accountants compute by themselves rather than load a library for it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import PLD, FixedSizeSubsampled, Gaussian, PoissonSubsampled, bound, delta, epsilon, rdp
from accounting.compose.convolution import fast_length
from accounting.loss.gaussian import normal_tail


def test_normal_tails_are_right_to_units_of_z_squared():
    """Against math.erfc, which is itself right to about one such unit (5000 is more than one stretch at once)."""
    z = np.concatenate([[0.0], np.geomspace(1e-300, 1.0, 500), np.linspace(0.0, 37.5, 5000)])
    exact = np.array([0.5 * math.erfc(at * math.sqrt(0.5)) for at in z])
    assert np.all(np.abs(normal_tail(z) - exact) <= 5 * 2.0**-52 * (1 + z * z) * exact)
    assert normal_tail(np.array([40.0, 1e300, np.inf])).tolist() == [0.0, 0.0, 0.0]
    assert normal_tail(np.empty(0)).size == 0


@given(st.integers(1, 10**7))
def test_fast_lengths_are_the_next_ones_without_large_factors(least):
    from scipy.fft import next_fast_len

    found = fast_length(least)
    rest = found
    for factor in (2, 3, 5):
        while rest % factor == 0:
            rest //= factor
    assert rest == 1
    assert found == next_fast_len(least, real=True)


@pytest.mark.parametrize("size", [1, 4096, 4097])
def test_a_tail_does_not_depend_on_its_neighbours(size):
    z = np.linspace(0.0, 9.0, size)
    some = [0, size // 2, size - 1]
    assert normal_tail(z)[some].tolist() == [float(normal_tail(z[i : i + 1])[0]) for i in some]


@pytest.mark.thorough
def test_what_is_too_small_for_a_float_is_nothing():
    """Also where numpy was told to refuse it."""
    release = 11 * FixedSizeSubsampled(Gaussian(2.1), 10, 100)
    with np.errstate(under="raise"):
        (lower, upper), found = bound(release, 1e-6), delta(release, 1.0)
        assert rdp(PoissonSubsampled(Gaussian(1.3), 0.01), [300.0]) > 0
        assert PLD.of(release).epsilon(1e-6) == epsilon(release, 1e-6) == upper >= lower > 0
    assert delta(release, 1.0) == found

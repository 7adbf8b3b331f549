"""Real vectors to integers and back: the enlarged sensitivity holds, and overflow is refused."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from dpkit.samplers.lattice import (
    check_granularity,
    default_granularity,
    from_lattice,
    lattice_scale,
    lattice_sensitivity,
    to_lattice,
)

vectors = npst.arrays(np.float64, 7, elements=st.floats(-1e3, 1e3))


@settings(deadline=None, max_examples=100)
@given(x=vectors, y=vectors, exponent=st.integers(-12, 6), norm=st.sampled_from([1, 2]))
def test_no_pair_is_further_apart_than_the_lattice_sensitivity(x, y, exponent, norm):
    granularity = 2.0**exponent
    distance = float(np.linalg.norm(x - y, norm))
    steps = np.linalg.norm(to_lattice(x, granularity) - to_lattice(y, granularity), norm)
    assert steps <= lattice_sensitivity(distance, granularity, 7, norm=norm) * (1 + 1e-12)


def test_the_rounding_term_is_needed():
    """A pair whose coordinates straddle half steps is as far apart as the bound says."""
    x, y = np.full(9, 0.5 + 1e-9), np.full(9, 0.5 - 1e-9)
    for norm, bound in ((1, 9.0), (2, 3.0)):
        apart = np.linalg.norm(to_lattice(x, 1.0) - to_lattice(y, 1.0), norm)
        assert apart == bound
        assert apart > np.linalg.norm(x - y, norm)
        assert lattice_sensitivity(float(np.linalg.norm(x - y, norm)), 1.0, 9, norm=norm) >= bound


@settings(deadline=None)
@given(log_s=st.floats(-20, 20), dimension=st.integers(1, 10**7), norm=st.sampled_from([1, 2]))
def test_the_default_granularity_adds_at_most_a_thousandth(log_s, dimension, norm):
    s = 10.0**log_s
    granularity = default_granularity(s, dimension, norm=norm)
    assert check_granularity(granularity) == granularity
    added = lattice_sensitivity(s, granularity, dimension, norm=norm) * granularity / s - 1
    assert 2**-11.01 < added < 2**-9.99


def test_the_way_there_and_back():
    x = np.array([[0.3, -1.0], [1e9, 0.0]])
    steps = to_lattice(x, 2.0**-10)
    assert steps.dtype == np.int64
    np.testing.assert_allclose(from_lattice(steps, 2.0**-10), x, rtol=0, atol=2.0**-11)
    assert to_lattice(np.empty(0), 1.0).shape == (0,)


def test_overflow_is_refused():
    assert to_lattice(np.array([2.0**62]), 1.0)[0] == 2**62
    with pytest.raises(ValueError, match=r"value must be at most 2\*\*62 steps"):
        to_lattice(np.array([0.0, -(2.0**62) * (1 + 2**-50)]), 1.0)
    with pytest.raises(ValueError, match=r"value must be at most 2\*\*62 steps"):
        to_lattice(np.array([1e300]), 2.0**-1000)
    with pytest.raises(ValueError, match="must lie in"):
        lattice_scale(1e3, 1e12, 1.0, 1, norm=2)


@pytest.mark.parametrize("granularity", [0.3, 3.0, 0.0, -1.0, math.inf, math.nan])
def test_only_powers_of_two_are_granularities(granularity):
    with pytest.raises(ValueError, match="granularity must be"):
        check_granularity(granularity)

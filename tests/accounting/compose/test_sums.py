"""A composed loss on its grid, from both sides, against Gaussian noise, whose curve is known at every ε."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, norm

from accounting import PureDP
from accounting.compose.convolution import NEGLIGIBLE, Convolution
from accounting.compose.pairs import alternatives
from accounting.conversions import gdp_delta
from accounting.loss.gaussian import GaussianPair

# Each release's μ, how many, the δ that windows are for, the tilt (None: convolved directly), and the grid.
SUMS = [
    (0.3, 20, 1e-6, 0.3, 3e-3),
    (0.3, 20, 1e-6, 6.0, 3e-3),
    (0.3, 20, 1e-6, None, 3e-3),
    (0.3, 20, 1e-6, None, 0.02),
    (0.05, 400, 1e-3, 3.0, 1e-4),
    (0.05, 400, 1e-3, 3.0, 1e-3),
    (1.0, 3, 1e-12, None, 0.01),
    (1.0, 3, 1e-12, None, 0.05),
]


@pytest.mark.parametrize("deviations", [0.4, 1.2, 2.4, 3.6, 4.8])
@pytest.mark.parametrize(("mu", "count", "level", "tilt", "step"), SUMS)
def test_both_ends_are_as_far_from_the_curve_as_is_said(mu, count, level, tilt, step, deviations):
    """The losses of n releases add up to a normal one of mean M²/2 and deviation M = μ√n."""
    losses, whole = Convolution(((GaussianPair(mu), count),), math.log(level * NEGLIGIBLE)), mu * math.sqrt(count)
    window = losses.untilted_window(math.log(level)) if tilt is None else losses.window(tilt, math.log(level))
    above, below = (losses.compose(window, step, lower=lower) for lower in (False, True))
    at = whole * whole / 2 + deviations * whole
    exact, slope = gdp_delta(whole, at), math.exp(at) * norm.sf(at / whole + whole / 2)
    assert above.losses[-1] > at
    if at < above.losses[0]:  # nothing is known below the window
        assert above.delta(at) == 1 >= below.delta_at_least(at, above, exact)
        return
    found, doubt = above.delta(at), above.doubt(at)
    assert exact * (1 - 1e-9) <= found <= exact * (1 + 3e-9) + 1.5 * above.grid_error(at) * above.slope(at) + doubt
    least = below.delta_at_least(at, above, exact)
    assert least <= exact
    if doubt > 1e-7 * exact:  # what wraps around is known no better
        return
    assert above.slope(at) == pytest.approx(slope, rel=0.06)
    assert (found - exact) / slope == pytest.approx(above.grid_error(at), rel=0.2, abs=3e-9)
    # below, what is within a reach of ε is left out: its square times the density there
    reach = step * math.sqrt(count / 2 * math.log(2e6 / exact)) + count * step**2 / 8
    left_out = reach**2 * norm.pdf(deviations) / whole
    if left_out < 0.5 * exact:
        assert 0.8 * left_out < exact - least - 1e-6 * exact < 1.3 * left_out + 1e-6 * exact
    if above.delta(at) < 0.5:
        assert above.epsilon(found) == pytest.approx(at, rel=1e-9)


@pytest.mark.parametrize(("eps", "count", "level", "tilt"), [(0.213, 20, 0.05, 1.0), (0.213, 20, 0.05, None)])
def test_where_no_sum_is_near_only_what_is_as_good_as_impossible_is_left_out_below(eps, count, level, tilt):
    """Between the multiples of a coin's loss: the tails of what the grid adds are counted, a millionth of δ."""
    (parts,) = alternatives(count * PureDP(eps))
    losses = Convolution(parts, math.log(level * NEGLIGIBLE))
    window = losses.untilted_window(math.log(level)) if tilt is None else losses.window(tilt, math.log(level))
    above, below = (losses.compose(window, losses.step(window), lower=lower) for lower in (False, True))
    heads = np.arange(count + 1)
    sums, p = eps * (2 * heads - count), binom.pmf(heads, count, 1 / (1 + math.exp(-eps)))
    for at in eps * np.array([1.0, 3.0, 7.0, 11.0]):
        exact = float(p @ np.maximum(-np.expm1(np.minimum(at - sums, 0.0)), 0.0))
        assert exact < above.delta(at) < exact * (1 + 1e-8)
        assert 0.99e-6 * exact < exact - below.delta_at_least(at, above, exact) < 1.1e-6 * exact


def test_next_to_the_lower_end_of_a_window_what_lies_below_it_takes_off_no_more_than_it_may_be():
    level = math.log(1e-6)
    losses = Convolution(((GaussianPair(0.3), 20),), level + math.log(NEGLIGIBLE))
    window = losses.window(2.0, level)
    assert window.bottom < 0
    above, below = (losses.compose(window, 1e-3, lower=lower) for lower in (False, True))
    narrow = replace(window, bottom=0.3, tilt_below=0.0)
    cut, cut_below = (losses.compose(narrow, 1e-3, lower=lower) for lower in (False, True))
    at = float(cut.losses[0]) + 1e-3
    assert cut.losses[0] > 0.29 > -4.0 > cut.from_below[0] > -math.inf
    least = below.delta_at_least(at, above, 0.1)
    assert 0.95 * least < cut_below.delta_at_least(at, cut, 0.1) < least

"""A composed loss on its grid, from both sides, against Gaussian noise, whose curve is known at every ε."""

import math

import pytest
from scipy.stats import norm

from accounting.compose.convolution import NEGLIGIBLE, Convolution
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

"""Many batches of a fixed size of noisy maxima: no three laws are worse than the bound, and both sides are near."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import FixedSizeSubsampled, NoisyMax, PoissonSubsampled, bound, epsilon
from accounting.adaptive.choices.coins import CoinKind
from accounting.adaptive.fixed_batches.maxima_batches import ReplacedMaxima

TAIL = 1e-12


def gumbel(scores):
    w = np.exp(scores - scores.max())
    return w / w.sum()


def neighbours(data, eps, size, longest):
    """Three vectors of scores up to ``longest`` and more, no two of which are farther apart than ε up to a constant."""
    vector = st.lists(st.floats(0.0, 1.0) | st.sampled_from([0.0, 0.5, 1.0]), min_size=size, max_size=size)
    scores = longest * np.array(data.draw(vector))
    moved = eps * np.array(data.draw(vector)), eps * np.array(data.draw(vector))
    near = min(1.0, eps / max(np.ptp(moved[0] - moved[1]), 1e-9))
    return [scores] + [scores + one * near for one in moved]


def value(laws, rate, curve, x):
    """E_P[V(x − L)] of laws R, S, S′."""
    absent, one, other = laws
    p, q = (1 - rate) * absent + rate * one, (1 - rate) * absent + rate * other
    return sum(a * curve(x - math.log(a / b)) for a, b in zip(p, q, strict=True))


def nothing_yet(x):
    return max(0.0, -math.expm1(x))


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(data=st.data(), eps=st.sampled_from([0.05, 0.5, 2.0]), rate=st.sampled_from([0.02, 0.2, 0.7]))
def test_no_three_neighbours_are_worse(data, eps, rate):
    laws = [gumbel(scores) for scores in neighbours(data, eps, data.draw(st.integers(2, 5)), eps)]
    share = data.draw(st.floats(-1.2, 1.2))
    x = share * math.log1p(rate * math.expm1(eps))
    for count in (1, 2):
        before = ReplacedMaxima(CoinKind(eps), rate, count - 1, TAIL).delta if count > 1 else nothing_yet
        after = ReplacedMaxima(CoinKind(eps), rate, count, TAIL).delta(x)
        assert value(laws, rate, before, x) <= after * (1 + 1e-9) + 1e-14


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "eps", "batch", "count", "width"),
    [
        ("gumbel", 1.0, 100, 20, 0.06),
        ("gumbel", 1.0, 10, 1, 0.01),
        ("exponential", 1.0, 100, 20, 0.1),
        ("laplace", 1.0, 500, 30, 0.2),
        ("laplace", 1.0, 10, 1, 0.01),
    ],
)
def test_totals_are_bracketed(noise, eps, batch, count, width):
    release = count * FixedSizeSubsampled(NoisyMax(eps, noise), batch_size=batch, records=1000)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="ε is only known")
        found = bound(release, 1e-6)
    assert found.lower <= found.upper <= found.lower * (1 + width)
    # a Poisson sample's game is one of those that are to be covered
    assert epsilon(count * PoissonSubsampled(NoisyMax(eps, noise), batch / 1000), 1e-6) <= found.upper * 1.005


@pytest.mark.thorough
def test_rates_and_strengths_that_are_not_played():
    for eps, batch in ((1e-9, 10), (40.0, 10), (1.0, 999)):
        release = 3 * FixedSizeSubsampled(NoisyMax(eps, "gumbel"), batch_size=batch, records=1000)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="ε is only known")
            found = bound(release, 1e-6)
        assert 0 <= found.lower <= found.upper <= 3 * eps * (1 + 1e-9)


@pytest.mark.thorough
def test_totals_beyond_floats():
    # e^x of the largest sum is no float: there are several games
    strong = 80 * FixedSizeSubsampled(NoisyMax(11.0), batch_size=9, records=10)
    assert 80 * math.log1p(0.9 * math.expm1(11.0)) > 800
    assert 400 < epsilon(strong, 1e-6) < 80 * 11

"""Convolutions on a circle, by transforms and directly, against exact ones; and totals that no transform is fit for."""

import math
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from accounting import Gaussian, Laplace, PoissonSubsampled, PureDP, RandomizedResponse
from accounting.compose import pld
from accounting.compose.convolution import NEGLIGIBLE, Convolution, Directly, Sum, Transformed
from accounting.compose.pairs import alternatives

TIMES = (1, 6, 3)


def exact_product(measures, n):
    found = [Fraction(1)] + [Fraction(0)] * (n - 1)
    for measure, times in zip(measures, TIMES, strict=True):
        for _ in range(times):
            found = [sum(found[j] * Fraction(measure[i - j]) for j in range(n)) for i in range(n)]
    return found


@pytest.mark.parametrize("kind", [Directly, Transformed])
@pytest.mark.parametrize("gap", [slice(0), slice(2, 10), slice(9), slice(4, None), slice(11)], ids=str)
def test_errors_are_within_their_bounds(kind, gap):
    rng, n = random.Random(3), 12
    # masses of all sizes, down to far below what a transform tells apart
    measures = [np.array([10 ** rng.uniform(-30, 0) for _ in range(n)]) for _ in TIMES]
    for measure in measures:
        measure[gap] = 0.0  # so that what there is may begin at the circle's end
    measures = [measure / measure.sum() for measure in measures]
    product = kind(n)
    for measure, times in zip(measures, TIMES, strict=True):
        product.take(measure, times)
    found, (largest, norm), relative = product.measure()
    gaps = [abs(Fraction(float(a)) - b) for a, b in zip(found, exact_product(measures, n), strict=True)]
    beyond = [float(gap) - relative * float(a) for gap, a in zip(gaps, found, strict=True)]
    assert max(beyond) <= largest
    assert math.sqrt(sum(max(0.0, gap) ** 2 for gap in beyond)) <= norm
    assert norm <= largest * math.sqrt(n) * (1 + 1e-9)
    # neither bound is idle, and nothing but a transform needs the first
    assert (largest > 1e-17, relative > 0) == ((True, False) if kind is Transformed else (False, True))
    assert kind is Transformed or largest < 1e-290


@pytest.mark.parametrize(
    "cut",
    [
        {"top": 5.0, "tilt_above": 4.0},
        {"bottom": 2.5, "tilt_below": -2.0},
        {"bottom": 2.0, "top": 6.0, "tilt_above": 5.0, "tilt_below": -2.0},
    ],
    ids=str,
)
def test_what_lies_outside_of_a_window_is_paid_for(cut):
    level = math.log(1e-6)
    losses = Convolution(((Laplace(9.0).pair(), 100),), level + math.log(NEGLIGIBLE))
    window = losses.window(4.0, level)
    narrow = replace(window, **cut)
    (whole, below), (found, least) = (
        [losses.compose(some, 1e-3, lower=lower) for lower in (False, True)] for some in (window, narrow)
    )
    for at in (2.6, 3.0, 4.0, found.losses[-1] - 0.5):
        # a loss above it counts as infinite; it may come to lie above ε once more where the window is short, as may one
        # that lies below
        assert whole.delta(at) < found.delta(at) <= whole.delta(at) + found.wraps(at) + found.extra
        assert least.delta_at_least(at, found, 1e-6) <= max(0.0, below.delta_at_least(at, whole, 1e-6))
    # below it nothing is known
    assert found.losses[0] < 0 or found.epsilon(0.9) == pytest.approx(found.losses[0], rel=1e-12)


@pytest.mark.parametrize(("eps", "count", "level"), [(0.2, 400, 1e-6), (0.5, 60, 1e-3), (0.05, 3000, 1e-10)])
def test_windows_are_where_the_sum_is(eps, count, level):
    """Of coins, whose sum is binomial: what is outside is rare, and no more so than bounds by Chernoff lose."""
    (parts,) = alternatives(count * PureDP(eps))
    losses, rare = Convolution(parts, math.log(level * NEGLIGIBLE)), level * NEGLIGIBLE
    heads = np.arange(count + 1)
    sums, log_p = eps * (2 * heads - count), binom.logpmf(heads, count, 1 / (1 + math.exp(-eps)))
    window = losses.untilted_window(math.log(level))
    for outside in (sums > window.top, sums < window.bottom):
        assert 0.005 * rare < np.exp(log_p[outside]).sum() < rare
    assert losses.reach == pytest.approx(eps * count, rel=1e-9)
    for tilt in (1.0, 3.0, 10.0):
        window = losses.window(tilt, math.log(level))
        tilted = np.exp(log_p + tilt * sums - losses.curve(tilt))
        assert tilted.sum() == pytest.approx(1.0, abs=1e-6)  # the moment is what it is
        assert 1e-8 * NEGLIGIBLE < tilted[sums < window.bottom].sum() < NEGLIGIBLE
        assert np.exp(log_p[sums > window.top]).sum() < rare
        assert window.bottom < tilted @ sums <= window.top * (1 + 1e-6) < 1.01 * losses.reach


def test_without_a_tilt_all_that_wraps_around_counts():
    losses = 0.1 * np.arange(-5, 5)
    below, above = (math.log(0.1), 1.0), (-math.inf, 0.0)
    total = Sum(losses, np.full(10, 0.1), (0.0, 0.0), 0.0, 0.0, 0.0, below, above, 0.1, 1.0, 1)
    assert total.wraps(0.2) == pytest.approx(0.1, rel=1e-8)


RARE = 5 * PoissonSubsampled(Gaussian(1.66), 5.7e-4) + 10 * PoissonSubsampled(RandomizedResponse(1.7, 7), 9.7e-4)
REMOVAL = next(parts for parts in alternatives(RARE) if all(pair.present for pair, _ in parts))


@pytest.mark.thorough
def test_large_losses_that_are_too_rare_for_a_transform():
    answer = pld._profile(REMOVAL, 3e-15).best
    # 0.0633 by transforms
    assert answer.window.direct
    assert answer.value == pytest.approx(0.0447, abs=2e-4)
    assert 0.99 * answer.value < pld._lower_epsilon(REMOVAL, 3e-15) < answer.value


def test_direct_sums_agree_with_transforms_where_both_are_good():
    answer = pld._profile(REMOVAL, 1e-6).best
    window = answer.losses.untilted_window(math.log(1e-6))
    total = answer.losses.compose(window, answer.losses.step(window))
    assert not answer.window.direct
    assert total.epsilon(1e-6) == pytest.approx(answer.value, rel=1e-3)
    below = answer.losses.compose(window, answer.losses.step(window), lower=True)
    assert pld._largest_that_fails(below, total, answer.value, 1e-6) <= answer.value

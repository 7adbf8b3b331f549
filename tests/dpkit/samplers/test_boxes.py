"""Rounded normals of a power-of-two scale: their law, the boxes they are drawn from, and the rare exact decisions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from chi_square import fits
from scipy import stats

from dpkit.samplers import _boxes
from dpkit.samplers._boxes import half_normal_tail, lies_below, nearest_multiple, normal_steps, scaled_trials
from dpkit.samplers._exact import LazyUniform

mpmath = pytest.importorskip("mpmath")


def sample(bits, count, seed=0):
    out = np.empty(count, np.int64)
    normal_steps(bits, out, np.random.default_rng(seed))
    return out


@pytest.mark.parametrize("wrong", [0.97, 1.0, 1.03])
@pytest.mark.parametrize("bits", [0, 1, 3, 5])
def test_the_values_are_rounded_normals(bits, wrong):
    scale = wrong * 2.0**bits
    cells = np.arange(-(5 << bits) - 5, (5 << bits) + 6)
    probabilities = stats.norm.cdf((cells + 0.5) / scale) - stats.norm.cdf((cells - 0.5) / scale)
    assert fits(sample(bits, 500_000), cells, probabilities) == (wrong == 1.0)


@pytest.mark.parametrize("bits", [20, 50])
def test_fine_values_are_normal_in_every_strip_of_boxes(bits):
    # 384 strips of width 1/32, and within one the first bits behind it: χ² with false alarm 1e-10
    x = sample(bits, 1_000_000) / 2.0**bits
    edges = np.arange(-192, 193) / 32
    strips = np.floor(x * 32).astype(int)
    assert fits(strips, np.arange(-192, 192), np.diff(stats.norm.cdf(edges)))
    fine = np.arange(0, 64) / 512
    inside = x[(x >= 0) & (x < 0.125)]
    probabilities = np.diff(stats.norm.cdf(np.append(fine, 0.125))) / (stats.norm.cdf(0.125) - 0.5)
    assert fits(np.floor(inside * 512).astype(int), np.arange(64), probabilities)


def test_the_low_bits_are_random():
    values = sample(50, 200_000)
    for bit in range(30):
        ones = int(np.count_nonzero(values >> bit & 1))
        assert abs(ones - 100_000) < 6.6 * math.sqrt(50_000)  # false alarm 1e-9 for 30 bits


def test_the_boxes_cover_the_density_and_hold_what_they_claim():
    start, low = _boxes._START, _boxes._LOW
    tail = _boxes._TAIL_BOX
    height = mpmath.mpf(_boxes._HEIGHT)
    assert len(start) == 4096
    strips = np.where(start >= 0, start, -1 - start) >> 51
    for j in range(192):
        boxes = np.flatnonzero(strips[:tail] == j)
        assert low[boxes].tolist() == [i * _boxes._HEIGHT for i in range(len(boxes))]
        assert len(boxes) * height >= mpmath.exp(-(mpmath.mpf(j) ** 2) / 2048)
        below = [i for i, box in enumerate(boxes) if start[box] >= 0]
        assert all((i + 1) * height <= mpmath.exp(-(mpmath.mpf(j + 1) ** 2) / 2048) for i in below)
    assert (start[tail:] < 0).all()
    # the tail fits into its box
    assert mpmath.exp(-18) / (6 * height / 32) < 1
    assert int(_boxes._TAIL_AT_MOST) >= mpmath.exp(-18) / (6 * height / 32) * 2**64


@pytest.mark.parametrize("nearness", [1e-3, 1e-12, 1e-25])
def test_decisions_near_the_curve_are_exact(nearness):
    rng = np.random.default_rng(1)
    with mpmath.workdps(80):
        for x in (Fraction(3, 7), Fraction(31, 8), Fraction(1, 10**6)):
            for sign in (-1, 1):
                numerator = int(x * 2**300)
                f = mpmath.exp(-((mpmath.mpf(numerator) / 2**300) ** 2) / 2)
                v = (f + sign * nearness * f) / _boxes._HEIGHT
                low = float(mpmath.floor(v)) * _boxes._HEIGHT
                v_numerator = int((v - mpmath.floor(v)) * 2**300)
                if 0 <= v_numerator < 2**300:
                    below = lies_below(LazyUniform(numerator, 300, rng), low, LazyUniform(v_numerator, 300, rng))
                    assert below == (sign < 0)


@pytest.mark.parametrize("sigma", [0.3, 3.3, 1e6 / 3, 2.0**40])
def test_nearest_multiples_are_exact_and_take_more_digits_where_they_must(sigma):
    rng = np.random.default_rng(1)
    for multiple in (1, 7, 12345):
        # x is next to where the nearest integer changes; further digits say on which side of it
        edge = (multiple - Fraction(1, 2)) / Fraction(sigma)
        numerator = math.floor(edge * 2**56)
        for found, above in ((LazyUniform(numerator - 1, 56, rng), 0), (LazyUniform(numerator + 1, 56, rng), 1)):
            assert nearest_multiple(Fraction(sigma), found) == multiple - 1 + above
            assert found.bits == 56
        between = LazyUniform(numerator, 56, rng)
        found = nearest_multiple(Fraction(sigma), between)
        if edge * 2**56 > numerator:
            assert between.bits > 56
        assert found == multiple - 1 + (Fraction(between.numerator, 2**between.bits) >= edge)


def test_words_of_both_sides_are_the_beginnings_of_the_place():
    """The word's digits follow the box's, and their complements on the left: the same as in double precision."""
    words = np.random.default_rng(3).integers(0, 2**64 - 1, 200, dtype=np.uint64, endpoint=True)
    for word in words.tolist():
        side = word & 8191
        x = (word >> 13) + int(_boxes._ENDS[side])
        digits = _boxes._digits(word, np.random.default_rng(0))
        low, high = (
            (digits.numerator, digits.numerator + 1) if word & 1 == 0 else (-digits.numerator - 1, -digits.numerator)
        )
        assert (low, high) == (x, x + 1)
        assert digits.bits == 56


class Given(np.random.Generator):
    """The given words first, and then random ones."""

    def __init__(self, *given):
        super().__init__(np.random.PCG64(0))
        self._given = list(given)

    def integers(self, *bounds, **more):
        return np.array(self._given.pop(0), np.uint64) if self._given else super().integers(*bounds, **more)


def tried(sigma, words, heights):
    """What comes of these words, and of their heights where boxes are not below the curve; and what is rejected."""
    out = np.empty(len(words), np.int64)
    read = [height for word, height in zip(words, heights, strict=True) if word & 8191 >= _boxes._FIRST_OPEN]
    rejected = scaled_trials(sigma, out, np.empty((2, len(words))), Given(words, read))
    return out.tolist(), set(rejected.tolist())


def word_at(position, side, boxes):
    """A word whose first digits are those of |x|, in units of 2⁻⁵⁶, in one of the ordered boxes."""
    box = next(box for box in boxes if int(_boxes._PLACES[box]) == position >> 51 << 51)
    fraction = position % 2**51
    return (2**51 - 1 - fraction if side else fraction) << 13 | box << 1 | side


@pytest.mark.parametrize("sigma", [0.1, 0.37, math.pi, 1e6 / 3, 2.0**40 * (1 - 2.0**-53)])
def test_places_next_to_a_half_are_rounded_exactly_on_both_sides(sigma):
    rng = np.random.default_rng(2)
    lowest = np.flatnonzero(_boxes._FLOORS == 0.0).tolist()  # of each strip: what has a height of 0 is kept
    cases = []
    for i, (k, digits) in enumerate(
        zip(rng.integers(0, 6 * sigma + 1, 1500), rng.integers(-40, 41, 1500), strict=True)
    ):
        position = math.floor((int(k) + Fraction(1, 2)) / Fraction(sigma) * 2**56) + int(digits)
        if position < 5.8 * 2**56:
            cases.append((position, i % 2))
    assert len(cases) > 500
    for position, side in cases:  # one by one, as a single open decision makes a block look closer
        (value,), rejected = tried(sigma, [word_at(position, side, lowest)], [0])
        assert not rejected
        least = math.floor(Fraction(sigma) * Fraction(position, 2**56) + Fraction(1, 2))
        most = math.ceil(Fraction(sigma) * Fraction(position + 1, 2**56) + Fraction(1, 2)) - 1
        assert least <= (-value if side else value) <= most


def test_points_next_to_the_curve_are_kept_just_below_it():
    rng = np.random.default_rng(3)
    words, heights, margins = [], [], []
    with mpmath.workdps(60):
        for box in range(_boxes._FIRST_OPEN // 2, _boxes._LAST_BOX):
            position = int(_boxes._PLACES[box]) + int(rng.integers(2**51))
            v = (mpmath.exp(-((mpmath.mpf(position) / 2**56) ** 2) / 2) - float(_boxes._FLOORS[box])) / _boxes._HEIGHT
            if 1e-9 < v < 1 - 1e-9:
                # 2¹⁴ of these are more than the digits of x that are not drawn can move the curve by
                margins.append(int(rng.choice([-1, 1])) * int(rng.integers(2**14, 2**15)))
                words.append(word_at(position, len(words) % 2, [box]))
                heights.append(int(v * 2**64) + margins[-1])
    _, rejected = tried(0.01, words, heights)
    assert len(words) > 100
    assert rejected == {i for i, margin in enumerate(margins) if margin > 0}


def test_the_tail_box_is_decided_by_itself_on_both_sides():
    # a place that is next to a half as if the box were one of the others, and a usual one
    words = [word_at(position, side, [_boxes._LAST_BOX]) for position in (2**50 - 1, 12345) for side in (0, 1)]
    below, above = 2**20, int(_boxes._TAIL_AT_MOST) + 1
    found, rejected = tried(32.0, words * 2, [below] * 4 + [above] * 4)
    assert rejected == {4, 5, 6, 7}
    assert all(192 <= (-value if i % 2 else value) < 300 for i, value in enumerate(found[:4]))


def test_decisions_that_double_precision_leaves_open_are_taken(monkeypatch):
    # every decision by exact arithmetic: the same law
    monkeypatch.setattr(_boxes, "_ERROR", 2.0)
    cells = np.arange(-8, 9)
    probabilities = stats.norm.cdf((cells + 0.5) / 2) - stats.norm.cdf((cells - 0.5) / 2)
    assert fits(sample(1, 20_000), cells, probabilities)


def test_the_tail_beyond_six_has_its_law():
    # trials whose V is below what can be kept at all, so that one in two or three is kept; V uniform there
    rng = np.random.default_rng(5)
    bound = int(_boxes._TAIL_AT_MOST)
    kept = []
    for _ in range(1500):
        v = LazyUniform(int(rng.integers(0, bound)), 64, rng)
        value = half_normal_tail(Fraction(2**10), LazyUniform(0, 0, rng), v)
        if value is not None:
            kept.append(value)
    total = stats.norm.sf(6)
    share = total * math.sqrt(2 * math.pi) / (_boxes._HEIGHT / 32) / (bound / 2**64)
    assert abs(len(kept) / 1500 - share) < 6.5 * math.sqrt(share * (1 - share) / 1500)
    cells = np.arange(6144, 7400)
    probabilities = stats.norm.cdf(-np.maximum(cells - 0.5, 6144) / 1024) - stats.norm.cdf(-(cells + 0.5) / 1024)
    groups = np.array(kept) // 64
    wanted = {g: probabilities[cells // 64 == g].sum() / total for g in range(96, 115)}
    assert fits(groups, np.array(list(wanted)), np.array(list(wanted.values())))


def test_noise_that_would_overflow_fails_instead_of_telling_what_it_is_added_to(monkeypatch):
    monkeypatch.setattr(_boxes, "_LARGEST", 6 * 2**50)
    rng = np.random.default_rng(0)
    with pytest.raises(OverflowError, match=r"2\*\*61"):
        half_normal_tail(Fraction(2**50), LazyUniform(2**63, 64, rng), LazyUniform(1, 64, rng))

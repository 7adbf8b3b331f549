"""The standard normal law by boxes under its density, whose points have exactly uniform bits.

The half-line is cut into strips of width w = 2⁻⁵, and the area under f(x) = exp(−x²/2) is covered by boxes of one width
w and one height c: strip j holds n_j boxes, c·n_j ≥ f(jw). With a last box for everything beyond R = 6 and a few empty
ones there are 2¹² boxes, so that 12 random bits choose one uniformly. In the i-th box of strip j,

    x = (j + U)·w is kept if c·(i + V) < f(x), U and V uniform,

which is rejection from a uniform point under a staircase: what is kept has a density proportional to f, *whatever* c
is. (A ziggurat needs layers of exactly equal area, which no floating-point table has.) In nine boxes of ten the whole
box lies below the curve, and no decision is taken at all. In the last box x = R + E/R with E standard exponential, kept
with probability f(x)/(w·c·R·exp(−R(x − R))) = exp(−(E/R)²/2 − R²/2)/(R·w·c) (Marsaglia 1964).

Since w is a power of two, the binary digits of x are those of j followed by those of U: random bits as they come. So
⌊2^m·x + ½⌋ is a shift (:func:`normal_steps`). For any other scale (:func:`scaled_normals`) the nearest integer to σx is
taken in double precision, as are decisions near the curve: with a bound on the error, and what it leaves open with as
many further digits as it needs, as in ``discrete``. Here the two sides of the half-line are covered, −x for (j + U)·w
being −(j + 1)·w + (1 − U)·w, and the boxes are counted such that those below the curve come first.
"""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpkit.samplers._exact import LazyUniform, decimal_context, random_words, rounding_slack
from dpkit.samplers._filtered import BLOCK

__all__ = ["MOST_BITS", "half_normal_tail", "lies_below", "nearest_multiple", "normal_steps", "scaled_normals"]

# The scale is at most 2⁵⁰, and then a result beyond 2⁶¹ has a probability below exp(−2²⁰). It is not cut, which would
# show what it is added to: drawing fails, which says nothing about that.
MOST_BITS = 50
_LARGEST = 2**61

_TAIL = 6  # R
_STRIPS = 32 * _TAIL
_HEIGHT = 84 * 2.0**-13  # c
_BOXES = 1 << 12
# of a word: 12 bits for the box, one for the sign, the others are the first 51 binary digits of U
_FRACTION = 51
_UNIT = 2.0 ** -(_FRACTION + 5)  # of the position (j + U)·w as an integer
# of c·(i + V) − f(x) in double precision, absolute; it is below 2⁻⁵⁰
_ERROR = 2.0**-40
# of σx in double precision, relative to σ: two roundings, each within 6·2⁻⁵³, and what follows 2⁻⁵⁶ in x
_PLACE_ERROR = 2.0**-49


def _tables() -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
    """For each box j·2⁵¹, or −1 − j·2⁵¹ where a decision is to be taken, and c·i; and which box is the tail's."""
    certain = 1e-12  # far more than the error of numpy's exponential
    f = np.exp(-0.5 * (np.arange(_STRIPS + 1) / 32) ** 2)
    counts = np.ceil(f[:-1] * (1 + certain) / _HEIGHT).astype(np.int64)
    strip = np.repeat(np.arange(_STRIPS), counts)
    level = np.arange(strip.size) - np.repeat(np.cumsum(counts) - counts, counts)
    inside = (level + 1) * _HEIGHT <= f[strip + 1] * (1 - certain)
    # the tail and the empty boxes behind it lie above the curve: only the first is looked at
    start = np.full(_BOXES, -1)
    start[: strip.size] = np.where(inside, strip << _FRACTION, -1 - (strip << _FRACTION))
    low = np.full(_BOXES, 2.0)
    low[: strip.size] = level * _HEIGHT
    return start, low, strip.size


_START, _LOW, _TAIL_BOX = _tables()
# as 64-bit fractions: V must be below exp(−R²/2)/(R·w·c) for anything in the tail
_TAIL_AT_MOST = np.uint64(math.ceil(math.exp(-(_TAIL**2) / 2) / (_TAIL * _HEIGHT / 32) * (1 + 1e-9) * 2**64))
# the same boxes, those below the curve first: places where they begin, in units of 2⁻⁵⁶, to the right and to the left
_ORDER = np.argsort(_START < 0, kind="stable")
_PLACES = np.where(_START < 0, -1 - _START, _START)[_ORDER]
_ENDS = np.stack([_PLACES, -_PLACES - (1 << _FRACTION)], axis=1).reshape(-1).astype(np.float64)
_FLOORS = _LOW[_ORDER]
_FIRST_OPEN = 2 * int(np.count_nonzero(_START >= 0))
_LAST_BOX = int(np.flatnonzero(_ORDER == _TAIL_BOX)[0])  # the tail's
# numbers that whole arrays are joined with, as arrays without axes: half the time of scalars where arrays are short
_SIDES, _AFTER_SIDES = np.array(2 * _BOXES - 1, np.uint64), np.array(13, np.uint64)
# the sign and exponent of a float in [2⁵², 2⁵³), of which the other digits are a whole number; the ends less that 2⁵²,
# which leaves them exact, for they are multiples of 2⁵¹ below 2⁵⁹
_FROM_WHOLE = np.array(2.0**52).view(np.uint64)
_ENDS_LESS = _ENDS - 2.0**52
# a number below 2⁵¹ in size and this one add up to a float of which the last digits are the nearest whole number
_TO_WHOLE = np.array(3.0 * 2.0**51)
_TO_WHOLE_BITS = _TO_WHOLE.view(np.int64)
# up to so many values take one round, with some to spare; more take one round by blocks, and another for the rejected
_SHORT, _LONG = 1 << 12, 1 << 15


def normal_steps(bits: int, out: NDArray[np.int64], rng: np.random.Generator) -> None:
    """Fill the 1-d array ``out`` with the nearest integers to 2^bits·N, N standard normal, exactly; 0 ≤ bits ≤ 50."""
    filled = 0
    while filled < out.size:
        # 95 in 100 are kept: of so many more there are hardly ever too few, and the first are as good as any
        count = min(BLOCK, out.size - filled)
        trials = np.empty(count + count // 16 + 4, np.int64)
        kept = np.ones(trials.size, np.bool_)
        kept[_trials(bits, trials, rng)] = False
        values = trials[kept][:count]
        out[filled : filled + values.size] = values
        filled += values.size


def _trials(bits: int, out: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.intp]:
    """One trial for each entry of ``out``; the indices of those that were rejected."""
    words = random_words(rng, out.size)
    boxes = (words & np.uint64(_BOXES - 1)).view(np.int64)
    start = _START.take(boxes)
    sign = (words << np.uint64(51)).view(np.int64)
    sign >>= 63
    position = (words >> np.uint64(13)).view(np.int64)
    open_ = np.flatnonzero(start < 0)
    np.add(position, start, out=out)
    out += 1 << (_FRACTION + 4 - bits)
    out >>= _FRACTION + 5 - bits
    rejected = open_
    if open_.size:
        kept, magnitudes = _decide(bits, boxes[open_], position[open_], rng)
        out[open_] = magnitudes
        rejected = open_[~kept]
    out ^= sign
    out -= sign
    return rejected


def _decide(
    bits: int, boxes: NDArray[np.int64], fractions: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """For points in boxes that are not wholly below the curve: whether each is kept, and its rounded multiple."""
    heights = random_words(rng, boxes.size)
    position = -1 - _START[boxes] + fractions
    x = position * _UNIT
    margin = (heights >> np.uint64(1)).view(np.int64) * (_HEIGHT * 2.0**-63)
    margin += _LOW[boxes]
    margin -= np.exp(-0.5 * x * x)
    kept = margin < 0
    magnitude = (position + (1 << (_FRACTION + 4 - bits))) >> (_FRACTION + 5 - bits)
    for i in np.flatnonzero(np.abs(margin) <= _ERROR):
        u = LazyUniform(int(position[i]), _FRACTION + 5, rng)
        kept[i] = lies_below(u, float(_LOW[boxes[i]]), LazyUniform(int(heights[i]), 64, rng))
    for i in np.flatnonzero(boxes == _TAIL_BOX):
        kept[i] = False
        if heights[i] <= _TAIL_AT_MOST:
            value = half_normal_tail(Fraction(2**bits), LazyUniform(0, 0, rng), LazyUniform(int(heights[i]), 64, rng))
            kept[i], magnitude[i] = value is not None, value or 0
    return kept, magnitude


def scaled_normals(sigma: float, out: NDArray[np.int64], rng: np.random.Generator) -> None:
    """Fill the 1-d array ``out`` with the nearest integers to σN, N standard normal, exactly; 2⁻⁴⁰ ≤ σ ≤ 2⁴⁰."""
    if out.size <= _SHORT:
        # 95 in 100 are kept: of so many more there are hardly ever too few, and the first are as good as any
        trials = np.empty(out.size + out.size // 8 + 8, np.int64)
        rejected = scaled_trials(sigma, trials, np.empty((2, trials.size)), rng)
        kept = np.delete(trials, rejected)[: out.size]
        out[: kept.size] = kept
        if kept.size < out.size:
            scaled_normals(sigma, out[kept.size :], rng)
        return
    work = np.empty((2, min(_LONG, out.size)))
    parts = ((start, out[start : start + _LONG]) for start in range(0, out.size, _LONG))
    again = np.concatenate([start + scaled_trials(sigma, part, work[:, : part.size], rng) for start, part in parts])
    more = np.empty(again.size, np.int64)
    scaled_normals(sigma, more, rng)
    out[again] = more


def scaled_trials(
    sigma: float, out: NDArray[np.int64], work: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.intp]:
    """One trial for each entry of ``out``; the indices of those that were rejected. ``work`` (2, n) is overwritten.

    Of a word the last 13 bits are a side and a box, and the others the first 51 digits of U, or of 1 − U on the left.
    """
    words = random_words(rng, out.size)
    sides, place, bits = work[0].view(np.int64), work[1], out.view(np.uint64)
    np.bitwise_and(words, _SIDES, out=sides.view(np.uint64))
    # the digits of U as those of 2⁵² + their number: less time than a conversion
    np.right_shift(words, _AFTER_SIDES, out=bits)
    np.bitwise_or(bits, _FROM_WHOLE, out=bits)
    # 2⁵⁶·x; indices are in range, and only where it is told to cut them does numpy write without a copy
    _ENDS_LESS.take(sides, out=place, mode="clip")
    place += out.view(np.float64)
    open_ = _near_a_curve(sides)
    boxes, x = sides[open_] >> 1, place[open_]
    nearest = work[0]  # in the place of the sides
    place *= sigma * _UNIT
    np.add(place, _TO_WHOLE, out=nearest)  # |σx| < 2⁴³
    np.subtract(nearest.view(np.int64), _TO_WHOLE_BITS, out=out)
    nearest -= _TO_WHOLE
    place -= nearest
    heights = random_words(rng, open_.size)
    x *= _UNIT
    margin = (heights >> np.uint64(1)).view(np.int64) * (_HEIGHT * 2.0**-63)
    margin += _FLOORS[boxes]
    x *= x
    x *= -0.5
    margin -= np.exp(x, out=x)
    rejected = margin >= 0
    far = 0.5 - sigma * _PLACE_ERROR
    between = np.maximum.reduce(np.abs(place, out=place)) >= far
    undecided = np.abs(margin) <= _ERROR
    # in the tail's box, where the margin is above 1, almost all are rejected by their height
    undecided |= (boxes == _LAST_BOX) & (heights <= _TAIL_AT_MOST)
    if not (between or np.count_nonzero(undecided)):
        return open_[rejected]
    digits = {int(i): _digits(int(words[i]), rng) for i in np.flatnonzero(place >= far)}
    for k in np.flatnonzero(undecided):
        i, height = int(open_[k]), LazyUniform(int(heights[k]), 64, rng)
        if boxes[k] == _LAST_BOX:
            digits.pop(i, None)
            value = half_normal_tail(Fraction(sigma), LazyUniform(0, 0, rng), height)
            rejected[k] = value is None
            out[i] = _signed(value or 0, words[i])
        else:
            u = digits.setdefault(i, _digits(int(words[i]), rng))
            rejected[k] = not lies_below(u, float(_FLOORS[boxes[k]]), height)
    for i, u in digits.items():
        out[i] = _signed(nearest_multiple(Fraction(sigma), u), words[i])
    return open_[rejected]


def _near_a_curve(sides: NDArray[np.int64]) -> NDArray[np.intp]:
    """The indices of sides of boxes that do not lie below the curve for certain: 7 in 100."""
    size, more = sides.size, sides.size >> 4
    if size <= _SHORT:
        return (sides >= _FIRST_OPEN).nonzero()[0]
    # numpy finds what is set in half the time if it is more than a tenth of all: so many more are set behind
    found = np.ones(size + more, np.bool_)
    np.greater_equal(sides, _FIRST_OPEN, out=found[:size])
    return found.nonzero()[0][:-more]


def _digits(word: int, rng: np.random.Generator) -> LazyUniform:
    """|x|, of which a word has the first digits; not in the tail."""
    fraction = word >> 13
    if word & 1:
        fraction ^= (1 << _FRACTION) - 1
    return LazyUniform(int(_PLACES[word >> 1 & (_BOXES - 1)]) + fraction, _FRACTION + 5, rng)


def _signed(magnitude: int, word: np.uint64) -> int:
    return -magnitude if int(word) & 1 else magnitude


def nearest_multiple(sigma: Fraction, x: LazyUniform) -> int:
    """⌊σx + ½⌋, where ``x`` is [numerator, numerator + 1)·2^−bits, possibly above 1."""
    while True:
        low, high = (sigma * Fraction(x.numerator + i, 2**x.bits) + Fraction(1, 2) for i in (0, 1))
        first = math.floor(low)
        if high <= first + 1:
            return first
        x.extend()


def lies_below(x: LazyUniform, low: float, v: LazyUniform) -> bool:
    """Whether low + c·V < exp(−x²/2), where ``x`` is [numerator, numerator + 1]·2^−bits, possibly above 1."""
    digits = 40
    while True:
        with localcontext(decimal_context(digits, Fraction(_TAIL))):
            near, far = (Decimal(n) / Decimal(2**x.bits) for n in (x.numerator, x.numerator + 1))
            least, most = (Decimal(low) + Decimal(_HEIGHT) * (v.numerator + i) / Decimal(2**v.bits) for i in (0, 1))
            slack = rounding_slack(digits, Decimal(_TAIL**2))
            if most + slack < (-far * far / 2).exp():
                return True
            if least - slack > (-near * near / 2).exp():
                return False
        x.extend()
        v.extend()
        digits += 40


def half_normal_tail(sigma: Fraction, u: LazyUniform, v: LazyUniform) -> int | None:
    """⌊σx + ½⌋ with x = R − ln(U)/R, if −ln V > (ln(U)/R)²/2 + R²/2 + ln(R·w·c), else None: a trial beyond R."""
    u.extend()
    digits = 40
    while True:
        with localcontext(decimal_context(digits, sigma)):
            low, high = u.minus_log()
            low_v, high_v = v.minus_log()
            if high.is_finite():
                constant = Decimal(_TAIL**2) / 2 + (_TAIL * Decimal(_HEIGHT) / 32).ln()
                ends = [(end / _TAIL) ** 2 / 2 + constant for end in (low, high)]
                slack = rounding_slack(digits, ends[1] + low_v)
                if ends[0] - slack > high_v:
                    return None
                if ends[1] + slack < low_v:
                    scale = Decimal(sigma.numerator) / Decimal(sigma.denominator)
                    slack = (1 + scale) * rounding_slack(digits, low)
                    first, last = (
                        int((scale * (_TAIL + end / _TAIL) + Decimal("0.5") + error).to_integral_value(ROUND_FLOOR))
                        for end, error in ((low, -slack), (high, slack))
                    )
                    if first == last <= _LARGEST:
                        return first
                    if first > _LARGEST:
                        raise OverflowError("noise must be at most 2**61 in size")
        u.extend()
        v.extend()
        digits += 40

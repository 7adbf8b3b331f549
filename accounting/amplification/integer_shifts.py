"""The longest integer vector within a length: what one unit may at most move counts by.

The square of its length is a whole number, S at most as in :func:`~accounting.amplification.shuffled_binomial
.integer_shift`. Of four entries or more it is S, as every number is a sum of four squares (Lagrange 1770).
"""

from __future__ import annotations

import math
from functools import lru_cache

from accounting.amplification.shuffled_binomial import integer_shift

__all__ = ["longest_shift", "shift_length"]

# Squares up to this are looked through for all sums; of larger ones the first few.
_SEARCHED = 100_000
_TRIED = 8


@lru_cache(maxsize=64)
def longest_shift(norm: float, coordinates: int) -> tuple[int, ...]:
    """Positive entries, at most four and no more than ``coordinates``, of a vector that is at most ``norm`` long.

    There is no longer one if norm² is at most 10⁵, or if there is a single coordinate.

    Examples
    --------
    >>> longest_shift(2.9, 5), longest_shift(4.9, 2), longest_shift(2.9, 1), longest_shift(0.5, 3)
    ((2, 2), (4, 2), (2,), ())
    """
    return _longest(integer_shift(norm)[0], min(coordinates, 4))


def shift_length(norm: float, coordinates: int) -> float:
    """What the length of no integer vector exceeds that is at most ``norm`` long.

    Examples
    --------
    >>> [round(shift_length(norm, entries), 4) for norm, entries in ((2.9, 5), (4.9, 2), (2.9, 1), (0.5, 3))]
    [2.8284, 4.4721, 2.0, 0.0]
    """
    square = integer_shift(norm)[0]
    if coordinates == 1 or square <= _SEARCHED:
        square = sum(step * step for step in longest_shift(norm, coordinates))
    return math.sqrt(square) * (1 + 2.0**-52)


def _longest(square: int, entries: int) -> tuple[int, ...]:
    largest = math.isqrt(square)
    if largest == 0:
        return ()
    if entries == 1:
        return (largest,)
    best: tuple[int, ...] = ()
    reached = -1
    # the largest entry is at least as large as all would be if they were alike
    least = math.isqrt(square // entries) if square <= _SEARCHED else largest - _TRIED
    for first in range(largest, max(least, 1) - 1, -1):
        found = (first, *_longest(square - first * first, entries - 1))
        total = sum(step * step for step in found)
        if total > reached:
            best, reached = found, total
        if total == square:
            break
    return best

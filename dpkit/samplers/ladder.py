"""The exponential mechanism on a sorted list of whole numbers, by rank: exactly, and in closed form.

The candidates are the whole numbers o in [A, B]. With L(o) the number of data points below o, o is drawn with
probability ∝ exp(−c·|L(o) − t|). L is constant between neighbouring data points, so the draw is one of n + 1
intervals, interval i with probability ∝ m_i·exp(−c·|i − t|) for its m_i whole numbers, and then one of these evenly
(Smith 2011).

The interval is drawn by Gumbel noise (``noisy_order``). Only the intervals whose rank is within
(60 + ln(B − A + 1))/c of the best one take part one by one. All others together have at most e^(−60) of the weight of
the best; they take part as one class, which is drawn with one random word and examined only if it could win (once in
10¹⁰ draws). Nothing is cut off: the law is the stated one. Cost: O(1/c) after sorting, whatever the number of points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpkit.samplers.noisy_order import NoisyOrder

__all__ = ["draw_by_rank"]

# The others together are lighter than the best by the exponential of this.
FAR = 60.0


def draw_by_rank(
    points: NDArray[np.int64], low: int, high: int, target: Fraction, rate: Fraction, rng: np.random.Generator
) -> int:
    """A whole number o in [``low``, ``high``] with probability ∝ exp(−``rate``·|#{points < o} − ``target``|).

    Parameters
    ----------
    points : ndarray of int64
        Sorted, within [low, high].
    low, high : int
        With low ≤ high.
    target : Fraction
        t, a rank between 0 and the number of points.
    rate : Fraction
        c > 0.
    rng : numpy.random.Generator

    Examples
    --------
    >>> import numpy as np
    >>> from fractions import Fraction
    >>> from dpkit import randomness
    >>> from dpkit.samplers.ladder import draw_by_rank
    >>> points = np.arange(0, 1001, 10)
    >>> draw_by_rank(points, 0, 1000, Fraction(50), Fraction(100), randomness.secure()) in range(491, 501)
    True
    """
    if not 0 < rate < 2**38:  # beyond it the margin of double precision would be used up
        raise ValueError(f"rate must lie in (0, 2**38), got rate={float(rate)!r}")
    n = points.size
    best = _distance_of_best(points, high, target)
    reach = best + math.ceil((FAR + math.log(high - low + 1)) / rate)
    first = max(0, math.ceil(target - reach))
    last = min(n, math.floor(target + reach))
    index = _choose(points, low, high, target, rate, best, first, last, rng)
    start = low if index == 0 else int(points[index - 1]) + 1
    stop = high if index == n else int(points[index])
    return int(rng.integers(start, stop, endpoint=True))


def _sizes(points: NDArray[np.int64], low: int, high: int, first: int, last: int) -> NDArray[np.int64]:
    """m_i for first ≤ i ≤ last: how many whole numbers have exactly i points below them."""
    inner = points[max(0, first - 1) : last + 1]
    ends = [inner]
    if first == 0:
        ends.insert(0, np.array([low - 1]))
    if last == points.size:
        ends.append(np.array([high]))
    edges = np.concatenate(ends)
    return edges[1:] - edges[:-1]


def _distance_of_best(points: NDArray[np.int64], high: int, target: Fraction) -> Fraction:
    """The smallest |i − t| of an interval that is not empty."""
    n = points.size
    j = min(max(math.floor(target), 0), n)
    edge = int(points[j]) if j < n else high  # the upper end of interval j
    below, above = (int(np.searchsorted(points, edge, side)) for side in ("left", "right"))
    found = abs(below - target)
    if j < n and (above < n or high > edge):
        found = min(found, abs(above - target))
    return found


def _choose(
    points: NDArray[np.int64],
    low: int,
    high: int,
    target: Fraction,
    rate: Fraction,
    best: Fraction,
    first: int,
    last: int,
    rng: np.random.Generator,
) -> int:
    """The interval: those from ``first`` to ``last`` one by one, all others as one class."""
    n = points.size
    sizes = _sizes(points, low, high, first, last)
    ranks = first + np.flatnonzero(sizes)
    whole = math.floor(target)
    # relative to the best, in an order that keeps the error below rate·2⁻⁵²·(1 + |i − t|)
    distances = np.abs((ranks - whole) - float(target - whole)) - float(best)

    def exact(i: int) -> Fraction:
        return rate * (best - abs(int(ranks[i]) - target))

    order = NoisyOrder("gumbel", rng)
    order.add(np.minimum(-float(rate) * distances, 0.0), exact, sizes[sizes > 0])
    others = high - low + 1 - int(sizes.sum())
    if others:
        far = [(i, j) for i, j in ((0, first - 1), (last + 1, n)) if i <= j]
        nearest = min(abs(end - target) for ends in far for end in ends)
        bound = math.log(others) - float(rate * (nearest - best))
        if not order.surely_below(bound, _total(points, low, high, target, rate, best, far)):
            winner = order.largest()[0]
            if winner >= 0:
                return int(ranks[winner])
            # which one of a class is largest is independent of how large it is
            return _among(points, low, high, target, rate, best, far, rng)
    return int(ranks[order.largest()[0]])


def _total(
    points: NDArray[np.int64],
    low: int,
    high: int,
    target: Fraction,
    rate: Fraction,
    best: Fraction,
    ranges: list[tuple[int, int]],
) -> Callable[[], tuple[Decimal, Fraction]]:
    """The weight of a class, summed in the current decimal context (which has digits to spare)."""

    def exact() -> tuple[Decimal, Fraction]:
        total = Decimal(0)
        for first, last in ranges:
            for i, size in enumerate(_sizes(points, low, high, first, last).tolist(), start=first):
                if size:
                    weight = rate * (best - abs(i - target))
                    total += size * (Decimal(weight.numerator) / Decimal(weight.denominator)).exp()
        return total, Fraction(0)

    return exact


def _among(
    points: NDArray[np.int64],
    low: int,
    high: int,
    target: Fraction,
    rate: Fraction,
    best: Fraction,
    ranges: list[tuple[int, int]],
    rng: np.random.Generator,
) -> int:
    """One interval of a class."""
    order = NoisyOrder("gumbel", rng)
    ranks = np.concatenate([np.arange(i, j + 1) for i, j in ranges])
    sizes = np.concatenate([_sizes(points, low, high, i, j) for i, j in ranges])
    ranks, sizes = ranks[sizes > 0], sizes[sizes > 0]

    def exact(i: int) -> Fraction:
        return rate * (best - abs(int(ranks[i]) - target))

    order.add(np.array([float(exact(i)) for i in range(ranks.size)]), exact, sizes)
    return int(ranks[order.largest()[0]])

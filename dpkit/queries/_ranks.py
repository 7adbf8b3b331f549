"""How many quantiles at once are drawn, and what their ranks say of the data: the public part of a bisection.

A plan lists the draws of recursive bisection, each after the two that it lies between: in the part of the rows between
those, the rank wanted, and the rate c of the exponential mechanism. It follows from the levels and the budget.

Rank errors. All rows of a part lie in different cells of the lattice (``quantiles``), so every rank from 0 to their
number is that of some cell, and the best cell is at most ½ off. With M cells in the part's range,
P(|L(o) − t| > ½ + s) ≤ M·exp(−c·s): all worse cells together against the best one alone. With L(a) and L(b) the ranks
of the ends, the target t is (1 − r)·L(a) + r·L(b) among all rows; so errors of the ends enter with the weights 1 − r
and r, and that of the draw itself is added. With m draws and M·exp(−c·s) = (1 − confidence)/m for each, all of it holds
at once with the stated probability, whatever the data are.

Intervals of values. Let n be the number of rows, d_j the error bound of o_j. A level q_j with q_j·n + d_j ≤ q·n − 2 has
fewer rows below o_j than the order statistic that ends the quantile q from below, so o_j is a lower bound of it; and
q_j·n − d_j ≥ q·n + 2 makes o_j an upper bound. (Two rows are to spare for interpolation between order statistics.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from accounting.arrays import Array
from dpkit.queries._units import Share

__all__ = ["Step", "between_neighbours", "first_rate", "part_rate", "plan", "rank_errors", "with_neighbours"]

# rows by which an order statistic and an interpolated quantile may be apart
_SPARE = 2.0


@dataclass(frozen=True)
class Step:
    """One draw: of which level, between which (by number; −1 and m are the ends), at which rank and rate."""

    level: int
    start: int
    stop: int
    rank: Fraction
    rate: Fraction


def first_rate(epsilon: float | Fraction, q: float | Fraction, share: Share) -> Fraction:
    """c for all rows in one part; see :mod:`dpkit.queries.quantiles`."""
    rank = Fraction(q)
    return Fraction(epsilon) / (2 * share.per_group * (1 if share.swapped else max(rank, 1 - rank)))


def part_rate(epsilon: float | Fraction, q: float | Fraction, share: Share) -> Fraction:
    """c where the rows are in parts; see there for a round."""
    rank = Fraction(q)
    return Fraction(epsilon) / ((4 if share.swapped else 2) * share.per_group * max(rank, 1 - rank))


def plan(levels: Sequence[float], epsilon: float, share: Share, *, grouped: bool = False) -> list[Step]:
    """The draws for increasing ``levels``, the middle one first.

    ``grouped``: the rows of each group are a part of their own from the start, and the ``per_group`` of the share is
    how many rows of a unit are in all of them.
    """
    exact = [Fraction(level) for level in levels]
    steps: list[Step] = []
    parts = [(-1, len(levels))]
    while parts:
        start, stop = parts.pop()
        if stop - start < 2:
            continue
        middle = start + 1 + (stop - start - 1) // 2
        low = exact[start] if start >= 0 else Fraction(0)
        high = exact[stop] if stop < len(levels) else Fraction(1)
        # between equal levels, at the ends of [0, 1], any rank will do
        rank = (exact[middle] - low) / (high - low) if high > low else Fraction(0)
        in_parts = bool(steps) or grouped
        rate = (part_rate if in_parts else first_rate)(epsilon, rank, share)
        steps.append(Step(middle, start, stop, rank, rate))
        parts += [(middle, stop), (start, middle)]
    return steps


def rank_errors(steps: Sequence[Step], cells: Sequence[int], confidence: float, parts: int = 1) -> Array:
    """d_j of every level: how far the ranks of all draws are from q_j·n at most, together with this probability.

    ``cells`` has the number of cells in the range of each step. The probability is that of so many ``parts`` together.
    """
    m = len(steps)
    errors = np.zeros(m + 2)  # the ends, number m and number −1, have none
    for step, size in zip(steps, cells, strict=True):
        own = 0.5 + (math.log(size) + math.log(m * parts / (1.0 - confidence))) / float(step.rate)
        r = float(step.rank)
        errors[step.level] = own + (1.0 - r) * errors[step.start] + r * errors[step.stop]
    return errors[:m]


def between_neighbours(
    levels: Array, values: Array, errors: Array, n: int, low: float, high: float
) -> tuple[Array, Array]:
    """Bounds of the quantiles of all ``levels`` among n rows in [low, high], of which ``values`` were drawn."""
    below = np.searchsorted(np.maximum.accumulate(levels * n + errors), levels * n - _SPARE, "right")
    above = np.searchsorted(np.minimum.accumulate((levels * n - errors)[::-1])[::-1], levels * n + _SPARE, "left")
    padded = np.concatenate([[low], values, [high]])
    return padded[below], padded[above + 1]


def with_neighbours(
    levels: Array, n: int, epsilon: float, share: Share, cells: int, confidence: float
) -> tuple[Array, Array]:
    """Levels below and above each of the ``levels``, so far that their draws bound it with this ``confidence``.

    By iteration, since a bound depends on which other levels there are; those beyond 0 or 1 are left out.
    """
    gaps = np.full((2, levels.size), _SPARE)
    for _ in range(8):
        below, above = levels - gaps[0] / n, levels + gaps[1] / n
        all_levels = np.unique(np.concatenate([levels, below[below > 0], above[above < 1]]))
        steps = plan(all_levels.tolist(), epsilon, share)
        errors = rank_errors(steps, [cells] * len(steps), confidence)
        for side, wanted in enumerate((below, above)):
            nearest = np.minimum(np.searchsorted(all_levels, wanted), all_levels.size - 1)
            gaps[side] = np.maximum(gaps[side], 1.001 * errors[nearest] + _SPARE + 1.0)
    below, above = levels - gaps[0] / n, levels + gaps[1] / n
    return below[below > 0], above[above < 1]

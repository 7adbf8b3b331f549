"""Counts under binomial noise as dominating pairs: the curves of :mod:`accounting.amplification.count_shifts`.

A unit's counts may be moved either way, so the curve of the worst shift is symmetric.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.amplification.count_shifts import LOG_LEAST, SMALLEST_SHIFT, count_curve, vector_rows
from accounting.amplification.shuffled_binomial import integer_shift
from accounting.arrays import Array
from accounting.loss.curves import pair_of_curve, value_between
from accounting.loss.pair import Atoms, LossPair, Symmetric, mirrored, remembered

__all__ = ["CountsPair", "ShiftPair", "pair_of_counts"]


# A curve's points are this far apart, as a share of μ, and so many at most.
_APART, _MOST_POINTS = 0.03, 2000


@dataclass(frozen=True)
class ShiftPair(Atoms, Symmetric):
    """One count."""

    trials: int
    shift: float

    @remembered(32)
    def _curve(self) -> tuple[Array, Array]:
        return count_curve(self.trials, self.shift)

    @mirrored
    def delta(self, epsilon: float) -> float:
        return value_between(*self._curve(), epsilon)

    @remembered(32)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        return pair_of_curve(*self._curve())


@dataclass(frozen=True)
class CountsPair(Atoms, Symmetric):
    """Several counts."""

    trials: int
    shift_norm: float
    coordinates: int
    rounded: bool

    @mirrored
    def delta(self, epsilon: float) -> float:
        rows = vector_rows(self.trials, self.shift_norm, self.coordinates, self.rounded)
        return float(rows.deltas(np.array(epsilon)))

    @remembered(32)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        rows = vector_rows(self.trials, self.shift_norm, self.coordinates, self.rounded)
        end = rows.end(LOG_LEAST)
        points = math.ceil(end * math.sqrt(self.trials) / (2 * _APART * self.shift_norm))
        epsilons = np.linspace(0.0, end, min(max(points, 2), _MOST_POINTS) + 1)
        return pair_of_curve(epsilons, rows.deltas(epsilons))


def pair_of_counts(trials: int, shift_norm: float, coordinates: int, *, rounded: bool) -> tuple[LossPair, int]:
    """What a listed vector of counts is composed of: a pair, and how often."""
    square, longest = integer_shift(shift_norm)
    real = max(float(shift_norm), SMALLEST_SHIFT) if rounded else float(shift_norm)
    if coordinates == 1:
        return ShiftPair(trials, real if rounded else float(longest)), 1
    if not rounded and longest == 1:
        return ShiftPair(trials, 1.0), min(coordinates, square)
    return CountsPair(trials, real, coordinates, rounded), 1

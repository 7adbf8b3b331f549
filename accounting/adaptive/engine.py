"""Adaptive composition as a game against an adversary, and the one engine that solves it.

Whoever runs one mechanism after another may choose each by what was seen. What k of them cost at worst is a game with
one player:

    V₀(x) = (1 − e^x)₊,    V_k(x) = max over laws of E_P[V_{k−1}(x − L)],    δ(ε) ≤ V_k(ε),

L the privacy loss of one mechanism and x what is left of ε. A *family* says which laws one step may have: a theorem and
its laws, in a file of its own. It plays one round (:class:`Rounds`); all else is here. Families are

* in ``choices``: every coin whose two losses are a given span apart, solved for in each cell (``every_coin``); finitely
  many laws that are worse than these coins, many rounds at a time (``rare_choices``); coins that some scores are
  exactly, from below (``scores_below``);
* in ``fixed_batches``: pure releases, with few losses each (``pure_batches``); Gaussian noise and noise on one integer,
  with losses all over a grid (``gaussian_batches``, ``integer_batches``); noisy maxima, a sum of three maxima
  (``maxima_batches``).

The best of some runs is no such game: no pair is known that is near what one of them is at worst, so there moments
are multiplied (:mod:`accounting.adaptive.repeated_selection.many_selections`).

*Certified.* V is convex in y = e^x, as a maximum of means of such functions, and falls from 1 at y = 0. From above,
what is known at the points of a grid is interpolated linearly in y, and remains an upper bound; beyond the last point V
is at most its last value; before the first one it is at most linear in y from 1 at y = 0. From below, families have
laws on the grid alone, or less than theirs, so that nothing is interpolated; beyond the last point V is at least 0, and
before the first one at least the first value. Where P and Q may change places the game is *symmetric*,
V(−x) = 1 − e^(−x) + e^(−x)V(x), and is played on x ≥ 0. A round is rounded outwards, by more than its sums may be off.

*Losses all over a grid.* Sums over such laws are fast Fourier transforms of V(x)e^(λx) (:class:`Circle`), with a bound
on their rounding errors added or taken off: an output is a sum whose terms pass log₂ n stages, and is right to a few
log₂ n units of the product of the Euclidean norms. Losses that wrap around the circle come to lie outside of x ≥ 0.

*In compositions.* V_k is the curve of a pair, as it is convex, which composes with all else; why whoever plays several
games in any order only processes one draw of each, see :mod:`accounting.adaptive.choices.every_coin`.

All families against games played out by hand: ``tests/accounting/adaptive/test_games.py``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np

from accounting.arrays import UNIT_ROUNDOFF, Array
from accounting.compose.convolution import fast_length
from accounting.loss.curves import pair_of_curve, pair_of_whole_curve, value_between
from accounting.loss.pair import Atoms, LopsidedAtoms, Symmetric, delta_of_atoms, mirrored, remembered

__all__ = [
    "Batches",
    "Board",
    "Circle",
    "Played",
    "Rounds",
    "Sparse",
    "epsilon_between",
    "largest_means",
    "moved",
    "play",
    "rounding_of_transforms",
    "start",
]


# What exponentials of large numbers, and products, are off by.
_OUTWARD = 1 + 2e-13
# Sums at a time that stay in fast memory.
_AT_ONCE = 512


class Rounds(Protocol):
    """A family of laws, on a grid."""

    def best(self, values: Array) -> Array:
        """V after the best law, where it was ``values`` before; rounded outwards."""


# --------------------------------------------------------------------------------------------------- the game


def start(x: Array) -> Array:
    """V₀."""
    return np.maximum(-np.expm1(np.minimum(x, 1.0)), 0.0)


@lru_cache(maxsize=32)
def _before(step: float, count: int) -> tuple[Array, Array]:
    """1 − e^x and e^x at so many points below 0."""
    x = step * np.arange(-count, 0, dtype=np.float64)
    return -np.expm1(x), np.exp(x)


@dataclass(frozen=True)
class Board:
    """Points a ``step`` apart; of a ``symmetric`` game from 0 on. With ``lower`` all is rounded down."""

    step: float
    symmetric: bool = False
    lower: bool = False

    def continued(self, values: Array, before: int, after: int) -> Array:
        """V on so many points more, before the first one and after the last."""
        last = np.full(after, 0.0 if self.lower else values[-1])
        least, falling = _before(self.step, before)
        if self.symmetric:
            missing = max(0, before + 1 - values.size)
            mirrored = np.concatenate([values, np.full(missing, 0.0 if self.lower else values[-1])])
            first = least + falling * mirrored[before:0:-1]
        elif self.lower:
            first = np.full(before, values[0])
        else:
            first = 1 - (1 - values[0]) * falling
        return np.concatenate([first, values, last])


def play(families: Iterable[tuple[Rounds, int]], values: Array) -> Array:
    """So many rounds of each family, from V₀ on; the player chooses, by what was seen, which comes next."""
    families = tuple(families)
    known = {(0,) * len(families): values}
    # by what is left to play; of one family only the last is needed
    for left in itertools.product(*(range(count + 1) for _, count in families)):
        for i, (family, _) in enumerate(families):
            before = (*left[:i], left[i] - 1, *left[i + 1 :])
            if before in known:
                best = family.best(known[before])
                known[left] = np.maximum(best, known[left]) if left in known else best
                if len(families) == 1:
                    del known[before]
    return known[left]


def moved(losses: Array, values: Array, by: float) -> tuple[Array, Array]:
    """Losses from 0 on, and V there, if every sum may be larger ``by`` that much: δ falls no faster than ε grows."""
    values = values.copy()
    values[0] = min(1.0, values[0] + by)
    return np.concatenate([losses[:1], losses[1:] + by]), values


def epsilon_between(x: Array, values: Array, delta: float) -> float:
    """Where V, linear in e^x between the points, falls to ``delta``, rounded up; −∞ and ∞ where it does not."""
    if values[-1] >= delta:
        return math.inf
    if values[0] <= delta:
        return -math.inf
    last = int(np.flatnonzero(values > delta)[-1])
    share = float((values[last] - delta) / (values[last] - values[last + 1]))
    found = float(x[last]) + math.log1p(share * math.expm1(float(x[last + 1] - x[last])))
    return found + 1e-11 * abs(found)


# ----------------------------------------------------------------------------------- laws with few losses, or many


class Sparse:
    """Laws with few losses each: how many points from 0, and P's mass."""

    def __init__(self, board: Board, laws: Iterable[Iterable[tuple[int, float]]], rounding: float) -> None:
        self._board, self._laws = board, [tuple(law) for law in laws]
        self._pad = max((abs(shift) for law in self._laws for shift, _ in law), default=0)
        self._rounded = 1 - rounding if board.lower else 1 + rounding

    def best(self, values: Array) -> Array:
        whole, pad, n = self._board.continued(values, self._pad, self._pad), self._pad, values.size
        best, mean, term = values.copy(), np.empty(n), np.empty(n)
        for law in self._laws:
            mean[:] = 0.0
            for shift, mass in law:
                np.multiply(whole[pad - shift : pad - shift + n], mass, out=term)
                mean += term
            np.maximum(best, mean, out=best)
        return np.minimum(best * self._rounded, 1.0)


def largest_means(laws: Array, whole: Array, size: int, groups: int = 1) -> Array:
    """At ``size`` points the largest sum over a window of ``whole``, added up over ``groups`` of as many laws each.

    ``laws`` are in rows; a window begins where its point is.
    """
    windows = np.ndarray((laws.shape[1], size), np.float64, whole, 0, (whole.itemsize, whole.itemsize))
    sums = (laws @ windows[:, i : i + _AT_ONCE] for i in range(0, size, _AT_ONCE))
    return np.concatenate([some.reshape(groups, -1, some.shape[1]).max(axis=1).sum(axis=0) for some in sums])


# ---------------------------------------------------------------------------- laws with losses all over a grid


def rounding_of_transforms(tilted: Array, n: int) -> float:
    """What a sum over n points is off by at most, as a share of the norm of what is summed."""
    return 8 * UNIT_ROUNDOFF * math.log2(n) * math.sqrt(float(np.max(np.sum(tilted * tilted, axis=1))))


class Circle:
    """Laws with losses all over a symmetric board of ``size`` + 1 points: P's masses times e^(λL), ``tilted``.

    From above they have up to ``beyond`` at infinite losses.
    """

    def __init__(self, board: Board, tilted: Array, tilt: float, size: int, beyond: float = 0.0) -> None:
        self._board, self._reach, self._size, self._beyond = board, tilted.shape[1] // 2, size, beyond
        self._n = fast_length(size + 2 * self._reach + 1)
        self._images = np.fft.rfft(tilted, self._n)
        # new memory for every step takes as long as the transforms
        self._products = np.empty_like(self._images)
        self._rounding = rounding_of_transforms(tilted, self._n)
        self._tilts = np.exp(tilt * board.step * np.arange(-self._reach, size + 1))
        self._down = np.exp(-tilt * board.step * np.arange(size + 1))
        #: What e^(−λx) times the last sums may be off by.
        self.error = 0.0

    def best(self, values: Array) -> Array:
        last = 0.0 if self._board.lower else float(values[-1])
        whole = np.maximum(self._board.continued(values, self._reach, 0) - last, 0.0) * self._tilts
        np.multiply(np.fft.rfft(whole, self._n), self._images, out=self._products)
        sums = np.fft.irfft(self._products, self._n)[:, 2 * self._reach : 2 * self._reach + self._size + 1]
        self.error = self._rounding * math.sqrt(float(whole @ whole))
        if self._board.lower:
            best = (sums.max(axis=0) - self.error) * self._down * (2 - _OUTWARD)
            return np.asarray(np.clip(best, 0.0, 1.0))
        best = ((sums.max(axis=0) + self.error) * self._down + self._beyond + last) * _OUTWARD
        return np.asarray(np.minimum(best, 1.0))


# ------------------------------------------------------------------------------------------------- pairs of games


class Played(LopsidedAtoms):
    """The pair of a game that need not be symmetric; from below with ``lower``."""

    lower: ClassVar[bool] = False

    def _curve(self) -> tuple[Array, Array]:
        """Points from below 0 on, and V there."""
        raise NotImplementedError

    @remembered(64)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        return pair_of_whole_curve(*self._curve(), lower=self.lower)


class Batches(Atoms, Symmetric):
    """The pair of a symmetric game: a curve from above, or finitely many losses ``from_below``."""

    from_below: bool = False

    def _curve(self) -> tuple[Array, Array]:
        """Losses from 0 on, and V there, rounded up."""
        raise NotImplementedError

    def _below(self) -> tuple[Array, Array, Array]:
        """Losses, and what P and Q have there, of a pair that is less bad; where there is one."""
        raise NotImplementedError

    @remembered(64)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        return (*self._below(), 0.0) if self.from_below else pair_of_curve(*self._curve())

    def delta(self, epsilon: float) -> float:
        return delta_of_atoms(epsilon, *self.atoms()[:2]) if self.from_below else self._delta_above(epsilon)

    @mirrored
    def _delta_above(self, epsilon: float) -> float:
        return value_between(*self._curve(), epsilon)

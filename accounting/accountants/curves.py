"""From a curve δ(ε) that is known from above to a pair (P, Q), for compositions; and two pairs that are made so.

The curve H(y), y = e^ε, of any pair is convex in y, and of two neighbours that may change places it is symmetric:
H(1/y) = 1 − 1/y + H(y)/y. So at 1 its slopes are −Q(L > 0) and, to the left, −1 + P(L > 0), with P(L > 0) = H(1) +
Q(L > 0). Given values from above at some ε ≥ 0, the largest symmetric convex function below them is above the truth.
It is their lower hull, with a slope of at least −(1 − H(1))/2 at 1 (so that P(L > 0) + Q(L > 0) ≤ 1, else H(1) is
less); and, being linear in y between its corners, the divergence of a pair with finitely many losses (Doroshenko et al.
2022): at a corner Q has as much as the slope changes by there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.coin_games import Games, played_curve, played_delta
from accounting.accountants.coin_kinds import Kind
from accounting.accountants.lattice_games import Play, game_below
from accounting.accountants.long_games import curve_of_many
from accounting.accountants.losses import Symmetric, histogram
from accounting.half_normal import half_normal_delta

__all__ = [
    "Atoms",
    "Batches",
    "GamePair",
    "HalfNormalPair",
    "LongPair",
    "LopsidedAtoms",
    "PlayedPair",
    "delta_of_atoms",
    "lower_hull",
    "pair_of_curve",
    "pair_of_points_below",
    "pair_of_whole_curve",
]

Array = NDArray[np.float64]

# A curve is followed down to where Q has this.
_LOG_SMALLEST = -700.0
# A curve that is known from below is followed from here on: P has at most e^(−12) at smaller losses.
_LOWEST = -12.0
# e^x of larger losses is beyond floats.
_HIGHEST = 700.0
_POINTS = 400


def pair_of_curve(epsilons: Array, deltas: Array) -> tuple[Array, Array, Array]:
    """Losses in increasing order, and the masses of P and of Q, of the pair of a symmetric curve.

    Parameters
    ----------
    epsilons, deltas : ndarray
        Points at or above the curve; ``epsilons`` rise from 0. Of the last ``deltas`` P has as much beyond all losses,
        which is left to the caller.
    """
    y = np.expm1(epsilons)
    values = deltas - deltas[-1]
    # H(1) such that the line of slope −(1 − H(1))/2 passes below all points
    values[0] = min(values[0], float(np.min((values + y / 2) / (1 + y / 2))))
    kept = lower_hull(y, values)
    losses, values, y = epsilons[kept], values[kept], y[kept]
    q = np.diff(_rising(np.append(np.diff(values) / np.diff(y), 0.0))) * (1 + 1e-9)
    p = np.exp(losses[1:]) * q
    even = np.array([max(0.0, 1 - float(p.sum()) - float(q.sum()))])
    masses = np.concatenate([q[::-1], even, p])
    return np.concatenate([-losses[:0:-1], losses]), masses, masses[::-1]


def pair_of_points_below(losses: Array, values: Array, most: Array) -> tuple[Array, Array, Array]:
    """As :func:`pair_of_curve`, of a pair that is less than what players reach who know the curve at some points.

    Parameters
    ----------
    losses : ndarray
        Rising from 0.
    values, most : ndarray
        For every loss there is a player who starts there, reaches ``values``, and would at no loss reach more than
        ``most``, whose losses lie on the same grid as ``losses``.

    Between two neighbours y_j and y_(j+1), y = e^ε, what the player of y_j reaches is convex, hence at least the line
    that comes from ``most`` at y_(j−1) through ``values`` at y_j; and so it is from the other side. Points below both
    lines, about where they meet, are joined: as at every y_j the line to its left is the steeper one, nothing of that
    lies above them.
    """
    # of losses that are too large for floats there is no need: what is joined falls to 0 sooner
    some = max(3, int(np.searchsorted(losses, _HIGHEST)))
    losses, values, most = losses[:some], values[:some], most[:some]
    y = np.expm1(losses)
    mirrored = -math.expm1(-losses[1]) + math.exp(-losses[1]) * most[1]
    known, outer = values[:-1], np.concatenate([[mirrored], most])
    left = (known - outer[:-2]) / np.diff(np.concatenate([[math.expm1(-losses[1])], y[:-1]]))
    right = (most[2:] - values[1:-1]) / np.diff(y[1:])
    rise, width = left[:-1] - right, np.diff(y[:-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (known[1:] - known[:-1] - right * width) / (rise * width)
    at = y[:-2] + width * np.clip(np.where(rise < 0, share, 0.5), 0.01, 0.99)
    reached = np.minimum(known[:-1] + left[:-1] * (at - y[:-2]), known[1:] + right * (at - y[1:-1]))
    # the last line falls to 0
    end = y[-2] - known[-1] / left[-1] if left[-1] < 0 else y[-1]
    places = np.concatenate([[0.0], at, [max(float(end), float(y[-2]))]])
    found = np.concatenate([values[:1], np.maximum(reached, 0.0), [0.0]])
    epsilons, p, q = pair_of_curve(np.log1p(places), found * (1 - 1e-8))
    return epsilons, p * (1 - 1e-8), q * (1 - 1e-8)


def pair_of_whole_curve(epsilons: Array, deltas: Array, *, lower: bool = False) -> tuple[Array, Array, Array]:
    """As :func:`pair_of_curve`, of a curve that need not be symmetric, with values from ε < 0 on, as H(0) = 1.

    With ``lower`` the values are those, or less, of a curve that is linear in e^ε between them. As every curve it is at
    least 1 − e^ε, and at the last at least 0; by that P and Q are laws, or less by a share of 1e-9, however much less
    than the curve the values are.
    """
    if lower:
        # further below, 1 − e^ε has lost what tells it from 1
        first = min(int(np.searchsorted(epsilons, _LOWEST)), epsilons.size - 2)
        known = slice(first, max(int(np.searchsorted(epsilons, _HIGHEST)), first + 2))
        epsilons, deltas = epsilons[known], np.maximum(deltas[known], -np.expm1(epsilons[known]))
        deltas[0], deltas[-1] = -math.expm1(epsilons[0]), 0.0
    # y − 1, which keeps its digits where all ε are small
    y = np.concatenate([[-1.0], np.expm1(epsilons)])
    values = np.concatenate([[1.0], deltas]) - deltas[-1]
    kept = lower_hull(y, values)
    slopes = _rising(np.append(np.diff(values[kept]) / np.diff(y[kept]), 0.0), lower=lower)
    q = np.diff(slopes) * (1 - 1e-9 if lower else 1 + 1e-9)
    losses = epsilons[np.array(kept[1:]) - 1]
    return losses, np.exp(losses) * q, q


def _rising(slopes: Array, *, lower: bool = False) -> Array:
    """Slopes of a convex curve that ends at 0, which rounding has put out of order where points are close.

    Earlier ones are lowered, so that the curve is more; with ``lower`` later ones are raised, and it is less.
    """
    return np.maximum.accumulate(slopes) if lower else np.minimum.accumulate(slopes[::-1])[::-1]


def lower_hull(x: Array, y: Array) -> list[int]:
    """The points on the largest convex function below them all; x rises."""
    kept: list[int] = []
    for i in range(x.size):
        while len(kept) > 1:
            a, b = kept[-2:]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(i)
    return kept


@dataclass(frozen=True)
class HalfNormalPair(Symmetric):
    """What has losses of at most ``offset`` + μ²/2 + |N(0, μ²)|, both ways; see :mod:`accounting.half_normal`."""

    mu: float
    offset: float

    def delta(self, epsilon: float) -> float:
        if epsilon < 0:
            return -math.expm1(epsilon) + math.exp(epsilon) * self.delta(-epsilon)
        return half_normal_delta(self.mu, self.offset, epsilon)

    def masses(self, edges: Array) -> tuple[Array, Array]:
        losses, p, q = _half_normal_atoms(self)
        in_p, in_q = histogram(edges, losses, p, q)
        in_p[-1] += self.delta(float(losses[-1]))
        return in_p, in_q

    def highest(self, log_tail: float) -> float:
        # P(|N| > x) ≤ e^(−x²/2)
        return self.offset + self.mu**2 / 2 + self.mu * math.sqrt(-2 * max(log_tail, -745.0))


@lru_cache(maxsize=16)
def _half_normal_atoms(pair: HalfNormalPair) -> tuple[Array, Array, Array]:
    first = pair.offset + pair.mu**2 / 2
    x = np.concatenate([np.linspace(0.0, first, 40), first + pair.mu * np.linspace(0.0, 38.0, _POINTS)[1:]])
    values = np.array([pair.delta(float(at)) for at in x])
    # as long as Q has more than next to nothing, which e^−ε makes of what P has
    with np.errstate(divide="ignore"):
        known = np.log(values) - x > _LOG_SMALLEST
    last = int(np.argmin(np.append(known, False)))
    return pair_of_curve(x[:last], values[:last])


class Atoms:
    """Finitely many losses, in increasing order, and what P has beyond them all."""

    def _atoms(self) -> tuple[Array, Array, Array, float]:
        raise NotImplementedError

    def masses(self, edges: Array) -> tuple[Array, Array]:
        losses, p, q, beyond = self._atoms()
        in_p, in_q = histogram(edges, losses, p, q)
        in_p[-1] += beyond
        return in_p, in_q

    def highest(self, log_tail: float) -> float:
        losses, p, _, beyond = self._atoms()
        above = beyond + np.cumsum(p[::-1])
        rare = int(np.searchsorted(above, math.exp(max(log_tail, -745.0)) * (1 - 1e-9)))
        return float(losses[-1 - min(rare, losses.size - 1)]) * (1 + 1e-12)

    def infinite(self) -> float:
        """What P has at infinite losses: all beyond the curve's end."""
        return self._atoms()[3]


class Batches(Atoms, Symmetric):
    """Many batches of a fixed size, last of a composition: a curve from above, or finitely many losses from below."""

    from_below: bool = False

    def _curve(self) -> tuple[Array, Array]:
        """Losses from 0 on, and the divergence there, rounded up."""
        raise NotImplementedError

    def _below(self) -> tuple[Array, Array, Array]:
        """Losses, and what P and Q have there, of a pair that is less bad; where there is one."""
        raise NotImplementedError

    def _atoms(self) -> tuple[Array, Array, Array, float]:
        return _atoms_of_batches(self)

    def delta(self, epsilon: float) -> float:
        if self.from_below:
            return delta_of_atoms(epsilon, *self._atoms()[:2])
        if epsilon < 0:
            return -math.expm1(epsilon) + math.exp(epsilon) * self.delta(-epsilon)
        return value_between(*self._curve(), epsilon)


@lru_cache(maxsize=64)
def _atoms_of_batches(pair: Batches) -> tuple[Array, Array, Array, float]:
    if pair.from_below:
        return *pair._below(), 0.0
    losses, values = pair._curve()
    return *pair_of_curve(losses, values), float(values[-1])


def delta_of_atoms(epsilon: float, losses: Array, p: Array) -> float:
    """The divergence of finitely many losses."""
    return float(p @ np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0))


def value_between(losses: Array, values: Array, epsilon: float) -> float:
    """A curve at ε ≥ 0 that is linear in e^ε between its points, rounded up; beyond them its last value."""
    at = int(np.searchsorted(losses, epsilon, side="right"))
    if at >= losses.size:
        return float(values[-1])
    share = math.expm1(epsilon - losses[at - 1]) / math.expm1(losses[at] - losses[at - 1])
    return float(values[at - 1] + share * (values[at] - values[at - 1])) * (1 + 1e-12)


class LopsidedAtoms(Atoms):
    """The same of a pair that need not be symmetric."""

    def lowest(self, log_tail: float) -> float:
        """An x such that below the loss −x P has at most e^``log_tail``."""
        losses, p, _, _ = self._atoms()
        rare = int(np.searchsorted(np.cumsum(p), math.exp(max(log_tail, -745.0)) * (1 - 1e-9)))
        return max(0.0, -float(losses[min(rare, losses.size - 1)])) * (1 + 1e-12)


@dataclass(frozen=True)
class PlayedPair(LopsidedAtoms):
    """Choices of some kinds, among other releases; see :mod:`accounting.accountants.coin_games`."""

    games: Games

    def delta(self, epsilon: float) -> float:
        if epsilon >= 0:
            return played_delta(self.games, epsilon)
        losses, p, _, beyond = self._atoms()
        return min(1.0, beyond + float(p @ np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0)))

    def _atoms(self) -> tuple[Array, Array, Array, float]:
        return _played_atoms(self)


@dataclass(frozen=True)
class LongPair(LopsidedAtoms):
    """``count`` choices of which few tell much, among other releases; see :mod:`accounting.accountants.long_games`.

    It is there only where that game does not take too long; for δ near e^``level``.
    """

    kind: Kind
    count: int
    level: float

    def delta(self, epsilon: float) -> float:
        losses, p, _, beyond = self._atoms()
        return min(1.0, beyond + delta_of_atoms(epsilon, losses, p))

    def _atoms(self) -> tuple[Array, Array, Array, float]:
        return _long_atoms(self)


@dataclass(frozen=True)
class GamePair(LopsidedAtoms):
    """Choices that come last, each with a few scores, from below; see :mod:`accounting.accountants.lattice_games`."""

    plays: tuple[Play, ...]

    def delta(self, epsilon: float) -> float:
        return delta_of_atoms(epsilon, *self._atoms()[:2])

    def _atoms(self) -> tuple[Array, Array, Array, float]:
        return _game_atoms(self)


@lru_cache(maxsize=32)
def _played_atoms(pair: PlayedPair) -> tuple[Array, Array, Array, float]:
    x, values = played_curve(pair.games)
    return *pair_of_whole_curve(x, values), float(values[-1])


@lru_cache(maxsize=16)
def _long_atoms(pair: LongPair) -> tuple[Array, Array, Array, float]:
    curve = curve_of_many(pair.kind, pair.count, pair.level)
    if curve is None:
        raise ArithmeticError(f"the game of {pair!r} takes too long")
    x, values = curve
    return *pair_of_whole_curve(x, values), float(values[-1])


@lru_cache(maxsize=16)
def _game_atoms(pair: GamePair) -> tuple[Array, Array, Array, float]:
    return *pair_of_whole_curve(*game_below(pair.plays), lower=True), 0.0

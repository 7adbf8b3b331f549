"""From a curve δ(ε) that is known from above to a pair (P, Q), for compositions; and two pairs that are made so.

The curve H(y), y = e^ε, of any pair is convex in y, and of two neighbours that may change places it is symmetric:
H(1/y) = 1 − 1/y + H(y)/y. So at 1 its slopes are −Q(L > 0) and, to the left, −1 + P(L > 0), with P(L > 0) = H(1) +
Q(L > 0). Given values from above at some ε ≥ 0, the largest symmetric convex function below them is above the truth.
It is their lower hull, with a slope of at least −(1 − H(1))/2 at 1 (so that P(L > 0) + Q(L > 0) ≤ 1, else H(1) is
less); and, being linear in y between its corners, the divergence of a pair with finitely many losses (Doroshenko et al.
2022): at a corner Q has as much as the slope changes by there.

**From below.** Between two points a convex curve is above the lines through the two points before, and through the two
points after. The lower hull of what these say is a convex function below the truth, hence the divergence of a pair; one
of less mass, if its slope at 1 should be below −(1 − H(1))/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.adaptive_coins import adaptive_curve, adaptive_curve_at_least, adaptive_delta
from accounting.accountants.losses import Symmetric, histogram
from accounting.half_normal import half_normal_delta

__all__ = ["ChoicesPair", "HalfNormalPair", "pair_below_curve", "pair_of_curve"]

Array = NDArray[np.float64]

# A curve is followed down to this.
_LEAST = 1e-280
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
    kept = _lower_hull(y, values)
    losses, values, y = epsilons[kept], values[kept], y[kept]
    slopes = np.append(np.diff(values) / np.diff(y), 0.0)
    q = np.diff(slopes) * (1 + 1e-9)
    p = np.exp(losses[1:]) * q
    even = np.array([max(0.0, 1 - float(p.sum()) - float(q.sum()))])
    masses = np.concatenate([q[::-1], even, p])
    return np.concatenate([-losses[:0:-1], losses]), masses, masses[::-1]


def pair_below_curve(epsilons: Array, above: Array, below: Array) -> tuple[Array, Array, Array]:
    """As :func:`pair_of_curve`, of a pair whose curve is certainly lower; from values ``above`` and ``below``."""
    y = np.expm1(epsilons)
    # lines through a point from above and the next one from below, continued to the next cell; from either side
    rise = (below[1:] - above[:-1]) / np.diff(y)
    fall = (above[1:] - below[:-1]) / np.diff(y)
    left, right = slice(1, -2), slice(2, -1)  # the cells with a cell on either side
    start, end = rise[:-2], fall[2:]
    # where the two lines meet, if that is in the cell
    gap = np.diff(y)[1:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = (below[right] - end * gap - below[left]) / (start - end)
    meets = (meet > 0) & (meet < gap) & (start < end)
    values = below.copy()
    values[0] = min(below[0], below[1] - fall[1] * (y[1] - y[0]))  # the first cell has no line from the left
    # in the last cell the line from the left counts until it is 0
    x = np.concatenate([y, (y[left] + meet)[meets], [min(y[-1], y[-2] - below[-2] / min(float(rise[-2]), -1e-300))]])
    values = np.concatenate([values, np.maximum(below[left] + start * meet, 0.0)[meets], [0.0]])
    order = np.argsort(x, kind="stable")
    x, values = x[order], values[order]
    values[-1] = 0.0
    kept = _lower_hull(x, values)
    losses, values, x = np.log1p(x[kept]), values[kept], x[kept]
    slopes = np.append(np.diff(values) / np.diff(x), 0.0)
    q = np.maximum(np.diff(slopes), 0.0)
    p = (1 + x[1:]) * q
    masses = np.concatenate([q[::-1], [max(0.0, 1 - float(p.sum()) - float(q.sum()))], p])
    masses /= max(1.0, float(masses.sum())) * (1 + 1e-9)
    return np.concatenate([-losses[:0:-1], losses]), masses, masses[::-1]


def _lower_hull(x: Array, y: Array) -> list[int]:
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
    last = int(np.searchsorted(-values, -_LEAST))
    return pair_of_curve(x[: last + 1], values[: last + 1])


@dataclass(frozen=True)
class ChoicesPair(Symmetric):
    """``count`` choices by the exponential mechanism, each ``epsilon``-DP, among releases of other kinds.

    Let T be one round of the game of :mod:`accounting.accountants.adaptive_coins`, V ↦ max over coins, and C a release
    of a fixed pair, V ↦ E[V(x − L)]. A mean of maxima is at least the maximum of means: TC ≤ CT. Whatever the order,
    the total is therefore at most C…C·T…T·V₀, where the choices come last: the composition of the other pairs with the
    one whose curve is V_k = Tᵏ·V₀. Coins may be exchanged for their mirror images, so that this curve is symmetric.
    Choices of another ε₀ are no such C; they are priced one by one, by ``GumbelPair``, which dominates them. Choices
    that do come last, each with two scores, cost so much: with ``from_below`` the pair is a lower bound on them.
    """

    epsilon: float
    count: int
    from_below: bool = False

    def delta(self, epsilon: float) -> float:
        if self.from_below:
            losses, p, _, _ = _choices_atoms(self)
            return float(p @ np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0))
        if epsilon < 0:
            return -math.expm1(epsilon) + math.exp(epsilon) * self.delta(-epsilon)
        return adaptive_delta(self.epsilon, self.count, epsilon)

    def masses(self, edges: Array) -> tuple[Array, Array]:
        losses, p, q, beyond = _choices_atoms(self)
        in_p, in_q = histogram(edges, losses, p, q)
        in_p[-1] += beyond
        return in_p, in_q

    def highest(self, log_tail: float) -> float:
        losses, p, _, beyond = _choices_atoms(self)
        above = beyond + np.cumsum(p[::-1])
        rare = int(np.searchsorted(above, math.exp(max(log_tail, -745.0)) * (1 - 1e-9)))
        return float(losses[-1 - min(rare, losses.size - 1)]) * (1 + 1e-12)

    def infinite(self) -> float:
        """What P has at infinite losses: all beyond the curve's end."""
        return _choices_atoms(self)[3]


@lru_cache(maxsize=16)
def _choices_atoms(pair: ChoicesPair) -> tuple[Array, Array, Array, float]:
    x, values = adaptive_curve(pair.epsilon, pair.count)
    if pair.from_below:
        # as coarse as an eighth of a deviation: the two curves must be closer than the curve is bent
        stride = max(1, round(0.06 * math.sqrt(pair.count) * pair.epsilon / float(x[1])))
        points = slice(None, None, stride)
        below = adaptive_curve_at_least(pair.epsilon, pair.count)
        return *pair_below_curve(x[points], values[points], below[points]), 0.0
    return *pair_of_curve(x, values), float(values[-1])

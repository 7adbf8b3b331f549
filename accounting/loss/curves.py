"""From a curve δ(ε) that is known from above to a pair (P, Q), for compositions; and pairs that are made so.

The curve H(y), y = e^ε, of any pair is convex in y, and of two neighbours that may change places it is symmetric:
H(1/y) = 1 − 1/y + H(y)/y. So at 1 its slopes are −Q(L > 0) and, to the left, −1 + P(L > 0), with P(L > 0) = H(1) +
Q(L > 0). Given values from above at some ε ≥ 0, the largest symmetric convex function below them is above the truth.
It is their lower hull, with a slope of at least −(1 − H(1))/2 at 1 (so that P(L > 0) + Q(L > 0) ≤ 1, else H(1) is
less); and, being linear in y between its corners, the divergence of a pair with finitely many losses (Doroshenko et al.
2022): at a corner Q has as much as the slope changes by there.
"""

from __future__ import annotations

import math

import numpy as np

from accounting.arrays import Array

__all__ = [
    "lower_hull",
    "pair_of_curve",
    "pair_of_points_below",
    "pair_of_whole_curve",
    "value_between",
]


# A curve that is known from below is followed from here on: P has at most e^(−12) at smaller losses.
_LOWEST = -12.0
# e^x of larger losses is beyond floats.
_HIGHEST = 700.0
# Losses that are nearer to each other are one.
_APART = 1e-10


def pair_of_curve(epsilons: Array, deltas: Array) -> tuple[Array, Array, Array, float]:
    """Losses in increasing order, the masses of P and of Q, and what P has beyond, of the pair of a symmetric curve.

    Parameters
    ----------
    epsilons, deltas : ndarray
        Points at or above the curve; ``epsilons`` rise from 0. P has as much beyond all losses as the last ``deltas``
        say, of those whose e^ε is a float.
    """
    epsilons, deltas = _in_floats(epsilons, deltas)
    # without points next to another the lines are above what they were; between such points rounding is their slope
    apart = np.append(True, np.diff(epsilons) > _APART)
    apart[-1] = True
    epsilons, deltas = epsilons[apart], deltas[apart]
    y = np.expm1(epsilons)
    beyond = float(deltas[-1])
    values = deltas - beyond
    # H(1) such that the line of slope −(1 − H(1))/2 passes below all points
    values[0] = min(values[0], float(np.min((values + (1 - beyond) * y / 2) / (1 + y / 2))))
    kept = lower_hull(y, values)
    losses = epsilons[kept]
    lines = np.diff(values[kept]) / -np.expm1(-np.diff(losses))
    p, q = _masses(losses[1:], lines)
    even = np.array([max(0.0, 1 - float(p.sum()) - float(q.sum()) - beyond)])
    masses = np.concatenate([q[::-1], even, p])
    return np.concatenate([-losses[:0:-1], losses]), masses, masses[::-1], beyond


def _in_floats(epsilons: Array, deltas: Array) -> tuple[Array, Array]:
    some = max(2, int(np.searchsorted(epsilons, _HIGHEST)))
    return epsilons[:some], deltas[:some]


def _masses(losses: Array, lines: Array) -> tuple[Array, Array]:
    """What P and Q have at losses, rounded up, of a curve that ends at 0.

    ``lines`` are the slopes of the lines that end there, times e^loss: P has what that rises by, and Q e^(−loss) of it,
    which may be less than floats hold, as slopes themselves may.
    """
    onwards = np.append(lines[1:] * np.exp(-np.diff(losses)), 0.0)
    p = np.maximum(onwards - lines, 0.0) * (1 + 1e-9)
    return p, p * np.exp(-losses)


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
    epsilons, p, q, _ = pair_of_curve(np.log1p(places), found * (1 - 1e-8))
    return epsilons, p * (1 - 1e-8), q * (1 - 1e-8)


def pair_of_whole_curve(epsilons: Array, deltas: Array, *, lower: bool = False) -> tuple[Array, Array, Array, float]:
    """As :func:`pair_of_curve`, of a curve that need not be symmetric, with values from ε < 0 on, as H(0) = 1.

    With ``lower`` the values are those, or less, of a curve that is linear in e^ε between them. As every curve it is at
    least 1 − e^ε, and at the last at least 0; by that P and Q are laws, or less by a share of 1e-9, however much less
    than the curve the values are.
    """
    epsilons, deltas = _in_floats(epsilons, deltas)
    if lower:
        # further below, 1 − e^ε has lost what tells it from 1
        first = min(int(np.searchsorted(epsilons, _LOWEST)), epsilons.size - 2)
        epsilons, deltas = epsilons[first:], np.maximum(deltas[first:], -np.expm1(epsilons[first:]))
        deltas[0], deltas[-1] = -math.expm1(epsilons[0]), 0.0
    # y − 1, which keeps its digits where all ε are small
    y = np.concatenate([[-1.0], np.expm1(epsilons)])
    values = np.concatenate([[1.0], deltas]) - deltas[-1]
    kept = lower_hull(y, values)
    losses = epsilons[np.array(kept[1:]) - 1]
    rises = np.diff(values[kept])
    if lower:
        # where points are close, rounding has put slopes out of order: later ones are raised, and the curve is less
        q = np.diff(np.maximum.accumulate(np.append(rises / np.diff(y[kept]), 0.0))) * (1 - 1e-9)
        return losses, np.exp(losses) * q, q, 0.0
    # the first line comes from e^ε = 0
    return losses, *_masses(losses, rises / -np.expm1(-np.append(math.inf, np.diff(losses)))), float(deltas[-1])


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


def value_between(losses: Array, values: Array, epsilon: float) -> float:
    """A curve at ε ≥ 0 that is linear in e^ε between its points, rounded up; beyond them its last value."""
    at = int(np.searchsorted(losses, epsilon, side="right"))
    if at >= losses.size:
        return float(values[-1])
    share = math.expm1(epsilon - losses[at - 1]) / math.expm1(losses[at] - losses[at - 1])
    return float(values[at - 1] + share * (values[at] - values[at - 1])) * (1 + 1e-12)

"""The left side of a release's inequality: what its losses make of a Gaussian that is still to come.

See :mod:`accounting.ledger.filters.reserve_costs`, "How c is found". The Gaussian is that of the hockey-stick
divergence of Gaussian DP, D_r(e) = Φ(−e/√r + √r/2) − e^e·Φ(−e/√r − √r/2).

*Choices.* Report-noisy-max with Gumbel noise is, whatever was seen before, at least as private as one of the coins with
the losses t and t − ε₀ (:mod:`accounting.adaptive.choices.every_coin`), and the one pair that dominates them all has a
third more variance than any. So (*) and (**) are asked of every coin: the left side is the largest of theirs. The coins
with t between a and b are dominated by the coin with the losses b and a − ε₀, as all that lie between these are; and
where an interval [a, b] is the worst at any point, it is cut into parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array

if TYPE_CHECKING:
    from accounting.loss.gumbel_maxima import SpanPair
    from accounting.loss.pair import LossPair

__all__ = ["FAR", "SmoothedLosses", "divergence", "smoothed_losses"]

Places = NDArray[np.int_]

# Step of the grid, as a share of the loss's standard deviation, and how many points it may have.
_STEP = 1 / 12
_MOST_CELLS = 6_000
_MOST_POINTS = 20_000
_MOST_STEP = 0.1
# How many intervals of coins, and how many parts of each that is the worst somewhere.
_COINS, _PARTS = 16, 8
# Roots of the reserve up to which D is known to be smooth enough.
FAR = 10.0
# Four points of Gauss and Legendre on [−1, 1].
_NODES = np.array([-0.8611363115940526, -0.3399810435848563, 0.3399810435848563, 0.8611363115940526])
_WEIGHTS = np.array([0.3478548451374538, 0.6521451548625461, 0.6521451548625461, 0.3478548451374538])
# of the bell e^(−x²/2)
_AREA = math.sqrt(2 * math.pi)


def divergence(e: Array, r: float) -> Array:
    """D_r(e) of either sign, to twelve digits: φ(t₁)(M(t₁) − M(t₂)) with Mills' ratio M."""
    root, far = math.sqrt(r), np.abs(e)
    t1, t2 = far / root - root / 2, far / root + root / 2
    bell = np.exp(-0.5 * t1 * t1)
    if root < 0.1:
        # t₁ and t₂ are close: −M′ = 1 − xM is integrated instead, by four points
        middle = (far / root)[:, None] + _NODES * (root / 2)
        apart = (1 - middle * _mills(middle)) @ _WEIGHTS * (root / 2)
        found = bell * apart / _AREA
    else:
        # the bell is common to both terms of the difference, but for t₁ ≤ 0
        found = bell * _mills(np.maximum(t1, 0.0)) / _AREA
        if (inside := t1 <= 0).any():
            from scipy.special import ndtr

            found[inside] = ndtr(-t1[inside])
        found -= bell * _mills(t2) / _AREA
    if (below := e < 0).any():
        less = far[below]
        found[below] = -np.expm1(-less) + np.exp(-less) * found[below]
    return np.asarray(found)


def _mills(x: Array) -> Array:
    """The normal tail over its density."""
    from scipy.special import erfcx

    return np.asarray(math.sqrt(math.pi / 2) * erfcx(x * math.sqrt(0.5)))


@dataclass(frozen=True)
class SmoothedLosses:
    """The left side of (**) at the multiples of a step but for the losses above the grid, their probability, and g."""

    step: float
    points: Array
    left: Array
    above: float
    moment: float


def smoothed_losses(pair: LossPair, reserve: float, failing: float, most: float, order: float) -> SmoothedLosses | None:
    """None where the losses are too large for M, or their law too long for a grid."""
    from accounting.loss.gumbel_maxima import SpanPair

    root, scale = math.sqrt(reserve), _deviation(cast(Any, pair))
    if not 0 < scale**2 < most:
        return None
    missed = failing * scale**2 / 30
    if missed < 1e-280:
        return None
    top, bottom = pair.highest(math.log(missed)), -pair.lowest(math.log(missed))
    reach = max(top, 0.0) + max(FAR * root, math.sqrt(-2 * math.log(missed) * reserve))
    step = max(scale * _STEP, reach / _MOST_POINTS, (top - bottom) / _MOST_CELLS)
    step = min(step, root / 20, _MOST_STEP)
    first, last = math.floor(bottom / step) - 1, math.ceil(top / step) + 1
    count = math.ceil(reach / step)
    if last - first > 2 * _MOST_CELLS or count > 2 * _MOST_POINTS:
        return None
    if isinstance(pair, SpanPair):
        step, left = _of_choices(pair.span, reserve, reach, step)
        return SmoothedLosses(
            step, step * np.arange(left.size, dtype=np.float64), left, 0.0, _moment_of_choices(pair, order)
        )
    points = step * np.arange(count + 1, dtype=np.float64)
    p, above = _on_grid(pair, step, first, last)
    grid = step * np.arange(-last, count - first + 1, dtype=np.float64)
    left = np.convolve(p, divergence(grid, reserve), mode="valid")
    moment = _log_moment(p, step * np.arange(first, last + 1, dtype=np.float64), order)
    # a sum of n products of positive numbers is right to n roundings, in whatever order it is taken
    rounding = 1e-12 + p.size * 2.0**-52
    return SmoothedLosses(step, points, left * (1 + rounding), above, moment)


def _of_choices(epsilon: float, reserve: float, reach: float, step: float) -> tuple[float, Array]:
    """A step of at most ``step``, and the largest left side of all coins at its multiples up to ``reach``."""
    # the cells of ε₀: the step is some of them, and a coin's losses are multiples of them
    most = _COINS * _PARTS
    cells = most * math.ceil(epsilon / step / most)
    each = math.floor(step / (epsilon / cells))
    points = math.ceil(reach * cells / (epsilon * each)) + 1
    last = each * (points - 1) + cells
    table = divergence(epsilon / cells * np.arange(-cells, last + 1, dtype=np.float64), reserve)

    def of(low: Places, high: Places) -> Array:
        """The left sides of the coins with the losses ``high`` and ``low`` − ε₀ in cells, one row each."""
        ends = (np.asarray(epsilon / cells * place, dtype=np.float64) for place in (low, high))
        found = np.empty((low.size, points))
        for row, p, down, up in zip(found, _chance_of_high(epsilon, *ends), 2 * cells - low, cells - high, strict=True):
            np.multiply(table[up::each][:points], p, out=row)
            row += (1 - p) * table[down::each][:points]
        return found

    edges = cells // _COINS * np.arange(_COINS + 1)
    whole, parts = of(edges[:-1], edges[1:]), np.zeros(points)
    while (worst := np.flatnonzero(((whole == whole.max(axis=0)) & (whole > parts)).any(axis=1))).size:
        low = (edges[worst][:, None] + cells // most * np.arange(_PARTS)).ravel()
        parts = np.maximum(parts, of(low, low + cells // most).max(axis=0))
        whole[worst] = 0.0
    return epsilon / cells * each, np.asarray(parts * (1 + 1e-12))


def _chance_of_high(epsilon: float, low: Array, high: Array) -> Array:
    """P of the loss ``high`` where the other is ``low`` − ε₀, of E_P[e^{−L}] = 1."""
    return np.asarray(np.expm1(epsilon - low) / (np.expm1(epsilon - low) - np.expm1(-high)))


def _moment_of_choices(pair: SpanPair, order: float) -> float:
    """ln of the largest E_P[e^{order·L}] of all coins, rounded up."""
    if order * pair.span > 600:
        return math.inf
    edges = np.linspace(0.0, pair.span, 8 * _COINS * _PARTS + 1)
    low, high = edges[:-1], edges[1:]
    p = _chance_of_high(pair.span, low, high)
    grown = p * np.expm1(order * high) + (1 - p) * np.expm1(order * (low - pair.span))
    return math.log1p(float(grown.max()) + 1e-12)


def _log_moment(p: Array, losses: Array, order: float) -> float:
    """ln Σ p·e^{order·loss}, rounded up; infinite beyond the floats."""
    if order * losses[-1] > 600:
        return math.inf
    return math.log1p(max(0.0, float(p @ np.expm1(order * losses)) + max(0.0, float(p.sum()) - 1) + 1e-12))


@lru_cache(maxsize=256)
def _deviation(pair: LossPair) -> float:
    """About the root of E_P[L²]."""
    top, bottom = pair.highest(-40.0), -pair.lowest(-40.0)
    edges = np.linspace(bottom, top, 2_000)
    p, _ = pair.masses(edges)
    centre = (edges[1:] + edges[:-1]) / 2
    return math.sqrt(float(p[1:-1] @ centre**2) + float(p[0]) * bottom**2 + float(p[-1]) * top**2)


def _on_grid(pair: LossPair, step: float, first: int, last: int) -> tuple[Array, float]:
    """P-masses at the multiples ``first`` … ``last`` of ``step``, and the mass above, of a law that is never better."""
    edges = step * np.arange(first, last + 1, dtype=np.float64)
    p, q = pair.masses(edges)
    doubt = abs(float(q.sum()) - 1) + 1e-13
    lost = 1 - float(p.sum())
    if max(abs(lost), doubt) > 1e-6:
        raise ArithmeticError(f"the masses of {pair!r} add up to {p.sum()} and {q.sum()}")
    # where both are a little uncertain, less of Q means a larger loss
    inner_p, inner_q = p[1:-1], q[1:-1] * (1 - doubt)
    lower = np.exp(edges[:-1])
    q_up = np.clip((inner_p - inner_q * lower) / (lower * math.expm1(step)), 0.0, inner_q)
    moved = np.zeros(edges.size)
    moved[1:] += q_up
    moved[:-1] += inner_q - q_up
    moved *= np.exp(edges)
    moved[0] += p[0]
    return moved, float(p[-1]) + max(0.0, lost - 1e-13)

"""What a release costs in Gaussian differential privacy if a little Gaussian noise is still to come.

Most releases are far from Gaussian one by one, and close to it in sum. A single ε-DP release with a small ε is μ-GDP
with μ² = (π/2)·ε² only, and a Poisson sample with no μ at all. But add a Gaussian release with μ² = r, the *reserve*,
and what is needed beyond r is nearly the variance of the loss. So, for a dominating pair (P, Q) with loss L and
D_r(e) = H(e) of r-GDP, Φ(−e/√r + √r/2) − e^e·Φ(−e/√r − √r/2), the cost of a release is a c such that for both
directions and every e ≥ 0

    E_P[D_r(e − L)] ≤ D_{r+c}(e) + κ·c.                                                                       (*)

*Theorem.* Let releases be chosen one after the other, each from what was seen before, and let c_i be their costs,
where a release that is μ-GDP by itself may also cost μ². If always Σ c_i + r ≤ M, the sequence is
(ε, D_M(ε) + κM)-DP for every ε. If they all cost μ², Σ μ² ≤ M is enough, and the filter may change its mind: of
c_i ≤ μ_i², it holds that either inequality is asked of the whole sequence, and either one admits.

*Proof.* (*) holds for e < 0, too, by the other direction, as H(−e) = 1 − e^{−e} + e^{−e}·H′(e) for the exchanged pair.
Average (*) over one more Gaussian release of s ≥ 0: it is true of r + s in place of r, so of any reserve ≥ r; and for
a μ-GDP release with c = μ² and κ = 0 even of any reserve ≥ 0. Let ℓ be the loss of what was released, S its cost and
V = D_{M−S}(ε − ℓ). By (*), E_P[V after] ≤ V before + κ·c, as E_P of the next loss given the past is that of a pair
which is dominated by (P, Q), and t·D_r(ε − ln t) is convex in t. At the start V is D_M(ε), and at the end it is at
least (1 − e^{ε−ℓ})₊, of which E_P is no less than P(A) − e^ε·Q(A) for every event A. Where the first inequality
ends at some release while the second goes on, let all from there on cost μ²: then S ≤ Σ μ² ≤ M still. With several
reserves let a release cost c at the reserve of the inequality that still holds; that grows as the reserve falls. ∎
(For Gaussian releases only this is the filter of Smith & Thakurta 2022.)

*How c is found.* The law of L is moved to a grid of step h such that P and Q keep their masses in every cell (the
chord of a convex function: never less). What lies above the grid counts to the left side in full. Both sides are
then computed at multiples of h. Between them: both are convex in t = e^e, ∂²D_r/∂t² = 2·∂D_r/∂r / t² and ∂D_r/∂r =
φ(e/√r − √r/2)/(2√r), so the chord of D_{r+c} is above it by at most (h²/4)·sup ∂D/∂r over the cell, which D_{r+c+h²/2}
makes good while ∂D/∂r varies by less than 2 there: for h ≤ √r/20 it does, up to 10√r.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from accounting.accountants import pld
from accounting.accountants.gdp import gdp, is_exact
from accounting.errors import UnsupportedRelease
from accounting.releases import Composed, Parallel, Release

if TYPE_CHECKING:
    from accounting.accountants.losses import LossPair

__all__ = ["smoothed_cost"]

Array = NDArray[np.float64]

# Step of the grid, as a share of the loss's standard deviation, and how many points it may have.
_STEP = 1 / 12
_MOST_CELLS = 6_000
_MOST_POINTS = 20_000
# D is computed to twelve digits, and its relative slope in ln r is at least 1/2: c is raised by more than that of r.
_ROUNDING = 1e-10
_FAR = 10.0


def smoothed_cost(release: Release, reserve: float, failing: float, most: float) -> float:
    """The least c known for ``release``, at a reserve and κ = ``failing``; infinite above ``most``.

    Raises
    ------
    UnsupportedRelease
        If a part has neither a pair nor a μ.
    """
    match release:
        case Composed(parts=parts):
            return math.fsum(count * smoothed_cost(part, reserve, failing, most) for part, count in parts)
        case Parallel(branches=branches):
            return max((smoothed_cost(branch, reserve, failing, most) for branch in branches), default=0.0)
    try:
        square = gdp(release) ** 2
    except UnsupportedRelease:
        return _of_pairs(release, reserve, failing, most)
    if is_exact(release):
        return square
    try:
        return min(square, _of_pairs(release, reserve, failing, most))
    except UnsupportedRelease:
        return square


def _of_pairs(release: Release, reserve: float, failing: float, most: float) -> float:
    # composed of several pairs if the description was priced by a weaker one
    return max(
        (
            math.fsum(
                count * max(_of_pair(cast(Any, one), reserve, failing, most) for one in _directions(pair))
                for pair, count in parts
            )
            for parts in pld.alternatives(release)
        ),
        default=0.0,
    )


def _directions(pair: LossPair) -> list[LossPair]:
    """The pair, and the one with P and Q exchanged if that is another one."""
    from accounting.accountants.losses import SubsampledPair

    return [pair, replace(pair, present=not pair.present)] if isinstance(pair, SubsampledPair) else [pair]


@lru_cache(maxsize=4096)
def _of_pair(pair: LossPair, reserve: float, failing: float, most: float) -> float:
    root = math.sqrt(reserve)
    deviation = _deviation(pair)
    if not 0 < deviation**2 < most:
        return math.inf
    missed = failing * deviation**2 / 30
    if missed < 1e-280:
        return math.inf
    top, bottom = pair.highest(math.log(missed)), -pair.lowest(math.log(missed))
    reach = min(_FAR * root, 2 * deviation + math.sqrt(-2 * math.log(missed) * (reserve + 2 * deviation**2)))
    step = max(deviation * _STEP, reach / _MOST_POINTS, (top - bottom) / _MOST_CELLS)
    step = min(step, root / 20)
    first, last = math.floor(bottom / step) - 1, math.ceil(top / step) + 1
    if last - first > 2 * _MOST_CELLS:
        return math.inf
    p, above = _on_grid(pair, step, first, last)
    count = math.ceil(reach / step)
    grid = step * np.arange(-last, count - first + 1, dtype=np.float64)
    left = np.convolve(p, _divergence(grid, reserve))[last - first : last - first + count + 1] + above
    points = step * np.arange(count + 1, dtype=np.float64)
    cost = 0.0
    for _ in range(60):
        short = left * (1 + 1e-12) - _divergence(points, reserve + cost) - failing * cost
        worst = int(np.argmax(short / _slope(points, reserve + cost, failing)))
        if short[worst] <= 0:
            break
        cost = _enough(float(left[worst]) * (1 + 1e-12), float(points[worst]), reserve, failing, cost, most)
        if cost > most:
            return math.inf
    else:
        return math.inf
    # beyond the last point the left side is smaller than there
    if left[-1] > failing * cost:
        return math.inf
    return cost * (1 + 1e-9) + step**2 / 2 + _ROUNDING * reserve


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


def _divergence(e: Array, r: float) -> Array:
    """D_r(e) of either sign, to about twelve digits: φ(t₁)(M(t₁) − M(t₂)) with Mills' ratio M."""
    from scipy.special import erfcx

    root, far = math.sqrt(r), np.abs(e)
    t1, t2 = far / root - root / 2, far / root + root / 2
    with np.errstate(under="ignore"):
        found = 0.5 * np.exp(-0.5 * t1 * t1) * (erfcx(t1 * math.sqrt(0.5)) - erfcx(t2 * math.sqrt(0.5)))
        return np.asarray(np.where(e >= 0, found, -np.expm1(-far) + np.exp(-far) * found))


def _slope(e: Array, r: float, failing: float) -> Array:
    """∂/∂c of the right side of (*)."""
    root = math.sqrt(r)
    with np.errstate(under="ignore"):
        return np.asarray(np.exp(-0.5 * (e / root - root / 2) ** 2) / (root * math.sqrt(8 * math.pi)) + failing)


def _enough(left: float, e: float, reserve: float, failing: float, low: float, most: float) -> float:
    """The c > ``low`` from which (*) holds at one point, to nine digits, rounded up."""
    at = np.array([e])

    def holds(c: float) -> bool:
        return float(_divergence(at, reserve + c)[0]) + failing * c >= left

    high = max(2 * low, 1e-3 * reserve)
    while not holds(high):
        if high > most:
            return math.inf
        low, high = high, 2 * high
    while high - low > 1e-9 * high + 1e-15 * reserve:
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high

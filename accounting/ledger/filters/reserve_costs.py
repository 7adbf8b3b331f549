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
(:mod:`accounting.ledger.filters.level_charges` lets the reserve fall as the budget is spent.)
(For Gaussian releases only this is the filter of Smith & Thakurta 2022.)

*Skewed losses* (little noise on a small sample) break (*) where e is many times √r, and a κ that is large enough there
is expensive everywhere. Such e are rare on the way to a large loss, which goes by e ≈ (r/M)·ε. So the slack is
weighed by the loss: for one ε, one η > 0 and a rate ρ ≥ (1 + η)/2 let

    W_m(e) = D_m(e) + λ·e^{η(ε − e) − ηρ(M − m)},

and ask of c, in place of (*), that ρηc ≥ g with E_P[e^{ηL}] ≤ e^g in both directions, and that
E_P[W_r(e − L)] ≤ W_{r+c}(e) + κ·c, that is

    E_P[D_r(e − L)] ≤ D_{r+c}(e) + κ·c + λ·e^{η(ε − e) − ηρ(M − r)}·(e^{ηρc} − e^g).                          (**)

Then Σ c_i + r ≤ M keeps the sequence (ε, D_M(ε) + λ + κM)-DP. *Proof.* As above with W in place of D, and

- for e < 0 the exchanged pair gives (**) with e^e times the slack at −e, which is less than the slack at e;
- one more Gaussian release of s multiplies the slack by e^{η(1+η)s/2} ≤ e^{ηρs}, and s = c = μ² is a cost, as it
  multiplies the exponential term by no more than e^{ηρc};
- t^{1+η} is convex, so the pair bounds E_P[e^{ηL}]; and W ≥ D at the end, W_M(ε) = D_M(ε) + λ at the start. ∎

*Large and rare losses.* e^{ηL} may have no useful mean because of losses that hardly ever occur. A mechanism that a
pair dominates is a post-processing of it (Blackwell), given the past, too. So let P̃ be what it makes of P without
L > x, and ℓ the sum of the ln dP̃/dQ: Q stays whole. Then E_P̃ of D_r(e − ln dP̃/dQ) is at most that of the pair
without L > x, and so is E_P̃[(dP̃/dQ)^η], which is no more than with all of P either, whatever bounds that. Add P(L >
x) to the left side of (**), and take the smaller one for g: on what is left λe^{η…} is a supermartingale still, and
what is left out counts as failures. For e < 0 the pair loses e^{e−L}·(1 − D_r(L − e)) at most where L > x, so there the
left side of the exchanged pair has Q(L > x) ≤ P(L > x) more: each direction counts what both leave out.

*How c is found.* The law of L is moved to a grid of step h such that P and Q keep their masses in every cell (the
chord of a convex function: never less). What lies above the grid counts to the left side in full. Both sides are
then computed at multiples of h. Between them: both are convex in t = e^e, ∂²D_r/∂t² = 2·∂D_r/∂r / t² and ∂D_r/∂r =
φ(e/√r − √r/2)/(2√r), so the chord of D_{r+c} is above it by at most (h²/4)·sup ∂D/∂r over the cell, which D_{r+c+h²/2}
makes good while ∂D/∂r varies by less than 2 there: for h ≤ √r/20 and h ≤ 1/10 it does, up to 10√r. Beyond that
D_{r+c} is left out of the right side. The chord of t^{−η} is above it by at most η(η+1)(e^h − 1)²/8 of its value at the
left end.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from accounting.compose.pairs import alternatives
from accounting.errors import UnsupportedRelease
from accounting.ledger.filters.smoothed_losses import FAR, divergence, smoothed_losses
from accounting.notions.gdp import gdp, is_exact
from accounting.notions.rdp import rdp
from accounting.releases import ZCDP, Composed, Parallel, Release
from accounting.roots import root_between

if TYPE_CHECKING:
    from accounting.loss.pair import LossPair

__all__ = ["Potential", "smoothed_costs"]


# D is computed to twelve digits, and its relative slope in ln r is at least 1/2: c is raised by more than that of r.
_ROUNDING = 1e-10
# Of an exponent: what a float holds next to any term.
_MOST_GROWTH = 300.0


@dataclass(frozen=True)
class Potential:
    """What bounds the rest of a sequence: W_m(e) = D_m(e) + κm + λ·e^{η(ε − e) − ηρ(M − m)}.

    Parameters
    ----------
    epsilon, most : float
        ε and M: the budget's ε, and what the costs and the reserve may add up to.
    failing : float
        κ.
    weight, order, rate : float
        λ, η and ρ ≥ (1 + η)/2; no exponential term with λ = 0.
    """

    epsilon: float
    most: float
    failing: float
    weight: float = 0.0
    order: float = 1.0
    rate: float = 1.0

    def exponential(self, reserve: float) -> float:
        """The exponential term at e = 0 where only the reserve is left, rounded down."""
        if self.weight == 0:
            return 0.0
        power = self.order * (self.epsilon - self.rate * (self.most - reserve))
        return self.weight * math.exp(min(power, 600.0)) * (1 - 1e-11)


def smoothed_costs(release: Release, reserve: float, potential: Potential, *, plain: bool = True) -> Array:
    """The least c known for ``release`` at a reserve: without the exponential term, and with it; infinite above M.

    Without ``plain`` the first is as good as unknown.

    Raises
    ------
    UnsupportedRelease
        If a part has neither a pair nor a μ.
    """
    match release:
        case Composed(parts=parts):
            terms = [count * smoothed_costs(part, reserve, potential, plain=plain) for part, count in parts]
            return np.sum(terms, axis=0) if terms else np.zeros(2)
        case Parallel(branches=branches):
            terms = [smoothed_costs(branch, reserve, potential, plain=plain) for branch in branches]
            return np.max(terms, axis=0) if terms else np.zeros(2)
        case ZCDP():
            # one by one they may be far worse coins than all together, which their Rényi curves know
            raise UnsupportedRelease(f"nothing is gained from a reserve by {release!r}")
    try:
        square = gdp(release) ** 2
    except UnsupportedRelease:
        return np.array(_of_pairs(release, reserve, potential, plain))
    if is_exact(release):
        return np.full(2, square)
    try:
        return np.minimum(square, _of_pairs(release, reserve, potential, plain))
    except UnsupportedRelease:
        return np.full(2, square)


@lru_cache(maxsize=4096)
def _of_pairs(release: Release, reserve: float, potential: Potential, plain: bool) -> tuple[float, float]:
    moment = math.inf
    if potential.weight > 0:
        with suppress(UnsupportedRelease):
            moment = potential.order * float(rdp(release, np.array([1 + potential.order]))[0]) * (1 + 1e-12)
    found = []
    for parts in alternatives(release):
        # several pairs if the description was priced by a weaker one
        bound = moment if len(parts) == 1 and parts[0][1] == 1 else math.inf
        costs = [count * np.array(_of_pair(cast(Any, pair), bound, reserve, potential, plain)) for pair, count in parts]
        found.append(np.sum(costs, axis=0))
    without, tilted = np.max(found, axis=0) if found else (0.0, 0.0)
    return float(without), float(tilted)


def _directions(pair: LossPair) -> list[LossPair]:
    """The pair, and the one with P and Q exchanged if that is another one."""
    from accounting.loss.sampled import SubsampledPair

    return [pair, replace(pair, present=not pair.present)] if isinstance(pair, SubsampledPair) else [pair]


@lru_cache(maxsize=4096)
def _of_pair(
    pair: LossPair, bound: float, reserve: float, potential: Potential, plain: bool = True
) -> tuple[float, float]:
    """c without and with the exponential term; ``bound`` is one on g."""
    without = 0.0 if plain or potential.weight == 0 else math.inf
    tilted = 0.0
    sides = [
        smoothed_losses(one, reserve, potential.failing, potential.most, potential.order) for one in _directions(pair)
    ]
    laws = [law for law in sides if law is not None]
    left_out = sum(law.above for law in laws) * (2 if len(laws) == 1 else 1)
    if len(laws) < len(sides):
        return math.inf, math.inf
    eta, growth = potential.order, potential.order * potential.rate
    # the larger one of both directions, as losses below 0 are those of the other direction
    moment = min(bound, max(law.moment for law in laws)) if potential.weight > 0 else 0.0
    for law in laws:
        added = law.step**2 / 2 + _ROUNDING * reserve
        side = _Side(law.left + left_out, law.points, reserve, potential.failing, potential.most)
        if without < math.inf:
            without = max(without, _least(side, 0.0) + added)
        if potential.weight == 0:
            continue
        term = potential.exponential(reserve) / _chord(eta, law.step) * np.exp(-eta * law.points)
        term[-1] = 0.0  # beyond it the left side is smaller than there, and κ·c is all that is left of the right one
        side = replace(side, term=term, growth=growth, moment=moment)
        tilted = max(tilted, _least(side, moment / growth) + added)
    return without, tilted if potential.weight > 0 else without


def _chord(order: float, step: float) -> float:
    """How many times the exponential its chord between two points is, at most."""
    return 1 + order * (order + 1) * math.expm1(step) ** 2 / 8 * math.exp(order * step)


@dataclass(frozen=True)
class _Side:
    """Both sides of (*) at growing points: ``left`` ≤ D_{r+c} + κc + ``term``·(e^{growth·c} − e^moment)."""

    left: Array
    points: Array
    reserve: float
    failing: float
    most: float
    term: Array | None = None
    growth: float = 0.0
    moment: float = 0.0

    def at(self, some: slice | NDArray[np.bool_]) -> _Side:
        """Some of them."""
        term = None if self.term is None else self.term[some]
        return replace(self, left=self.left[some], points=self.points[some], term=term)

    def short(self, cost: float) -> Array:
        """By how much the right side is too small. D_{r+c} is left out where it is not known to be smooth."""
        near = int(np.searchsorted(self.points, FAR * math.sqrt(self.reserve), side="right"))
        found = self.left.copy()
        found[:near] -= divergence(self.points[:near], self.reserve + cost)
        found -= self.failing * cost
        if self.term is not None:
            # no more than a float holds: less on the right side only makes a release more expensive
            grown = math.expm1(min(max(0.0, self.growth * cost - self.moment), _MOST_GROWTH))
            found -= self.term * math.exp(self.moment) * grown
        return np.asarray(found)

    def slope(self, cost: float) -> Array:
        """∂/∂c of the right side."""
        root = math.sqrt(self.reserve + cost)
        found = np.exp(-0.5 * (self.points / root - root / 2) ** 2) / (root * math.sqrt(8 * math.pi)) + self.failing
        if self.term is not None:
            found += self.term * self.growth * math.exp(self.growth * cost)
        return np.asarray(found)


def _least(side: _Side, low: float) -> float:
    """The least c ≥ ``low`` at which the right side is large enough at every point, to nine digits, rounded up."""
    cost = low
    for _ in range(60):
        if not cost <= side.most:
            return math.inf
        short = side.short(cost)
        worst = int(np.argmax(short / side.slope(cost)))
        if short[worst] <= 0:
            return cost * (1 + 1e-9)
        cost = _enough(side.at(slice(worst, worst + 1)), cost)
        # the right side grows with c: where it is large enough it stays so
        side = side.at(short > 0)
    return math.inf


def _enough(side: _Side, low: float) -> float:
    """About the c > ``low`` from which (*) holds at one point; :func:`_least` asks the others again."""

    def short(cost: float) -> float:
        return float(side.short(cost)[0])

    rise = max(2 * short(low) / float(side.slope(low)[0]), 1e-3 * side.reserve)
    high = low + min(rise, side.most)
    while short(high) > 0:
        if high > side.most:
            return math.inf
        low, high = high, 2 * high
    if short(low) <= 0:
        return high
    return root_between(short, low, high, absolute=1e-16 * side.reserve, relative=1e-11) * (1 + 5e-10)

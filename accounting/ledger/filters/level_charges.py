"""What a release costs depends on how much is left when it comes.

A release next to a reserve r costs c(r) (:mod:`accounting.ledger.filters.reserve_costs`), less the larger r is: losses
are the nearer to Gaussian the more Gaussian noise they are lost in. One reserve for all has to be small, as it is never
spent, and so all are charged what the last of them costs. But until the last one comes there is more left than that.

*Theorem.* Let 0 = r_0 < r_1 < … < r_J be *levels*, c_j a cost at the reserve r_j, c_0 = μ² of a release that is μ-GDP
by itself, and S what was charged so far. Let each release be chosen from what was seen before, be charged c_j of it for
a j with

    S + c_j ≤ M − r_j,                                                                                        (†)

and be refused if there is none. Then the sequence is (ε, D_M(ε) + λ + κM)-DP. *Proof.* Let V = W_{M−S}(ε − ℓ), ℓ the
loss of what was released. By (†) no less than r_j is left after the release, and what costs c_j at the reserve r_j does
at any larger one. Which j it is follows from what was seen before. So E_P[V after] ≤ V before + κ·c_j, where outcomes
that count as failures are left out as they are there. V is D_M(ε) + λ at the start and at least (1 − e^{ε−ℓ})₊ at the
end, and the κ·c_j add up to κM at most. ∎

The larger r_j the smaller c_j, so j is the largest that (†) allows. Then S is no more than Σ c_j for any one j while
that sum is at most M − r_j, by induction, as (†) holds for this j whenever a release comes.

*Composed releases* are charged one after the other, in any order: they are dominated by the product of their pairs, in
which the order plays no role.

*Later than charged.* A release may be drawn after others that were charged later, or step by step between them: what
dominates its steps can be drawn when it is charged, and what is seen of it later made of that and of what was asked
meanwhile (Blackwell). Whoever chooses the others has then seen less than was charged.

*Units.* What several units meet is charged once, for all, at the level that (†) allows the worst-off: the others'
S is no larger, so (†) holds for them, too. Nothing else than S is remembered of a unit, and S is a sum. A filter may
still ask Σ c_j ≤ M − r_j of a unit for which S got too large that way: were it alone and always charged at the largest
level, its S would be no more than either sum, and so allowed all the way.

*Without their order* releases are charged c_j for one j: if these add up to no more than M − r_j for every unit, then
(†) holds in whatever order they came. If there is no such j, or where a release was admitted for another reason,
S is infinite from there on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable

import numpy as np

from accounting.arrays import UNIT_ROUNDOFF
from accounting.ledger.filters.scopes import ScopedSums
from accounting.releases import Composed, Release

__all__ = ["LevelCharges", "costs_between"]

Terms = list[tuple[int, list[float]]]

# Levels between two at which a release costs the same but for this share are not asked.
_ALIKE = 0.004


class LevelCharges:
    """Charges at the levels of one potential.

    Parameters
    ----------
    limit : float
        M.
    levels : list of float
        r_0 = 0 < r_1 < … < r_J.
    costs : callable
        The costs c_0 ≥ c_1 ≥ … of a release that is not composed; infinite where there is none.
    """

    def __init__(self, limit: float, levels: list[float], costs: Callable[[Release], list[float]]) -> None:
        self._limit = limit
        self._kept = levels[::-1]
        self._costs = costs
        self._known: dict[Release, Terms] = {}

    def terms(self, release: Release) -> Terms:
        """How often each part of a release occurs, and its costs, those at the largest reserve first; remembered."""
        known = self._known.get(release)
        if known is None:
            parts = release.parts if isinstance(release, Composed) else ((release, 1),)
            known = [(count, self._costs(part)[::-1]) for part, count in parts]
            # what costs more as the reserve falls comes first
            known.sort(key=lambda term: _growth(term[1]), reverse=True)
            self._known[release] = known
        return known

    def covers(self, release: Release) -> bool:
        """Whether a release has a cost at the largest reserve."""
        return all(costs[0] < math.inf for _, costs in self.terms(release))

    def charge(self, spent: float, release: Release, slack: float) -> float:
        """What a release is charged after ``spent`` was; infinite if it does not fit."""
        terms, charged = self.terms(release), 0.0
        # every part is added up to once a level
        limit = self._limit * (1 - slack - len(terms) * len(self._kept) * UNIT_ROUNDOFF)
        for count, costs in terms:
            charged += self._one_by_one(limit - spent - charged, count, costs)
        return charged

    def charged_at_least(self, spent: float, release: Release, doubt: float) -> float:
        """Less than :meth:`charge` of the same ``spent`` or more where costs and M differ by a share of ``doubt``.

        Whatever the order of the parts is, too. *Proof.* A copy is charged the more, the more was charged before it, as
        costs fall with the level, and it brings the sum to the more. Cheaper copies below a larger limit may be charged
        at larger levels, so by induction the sum stays below; and each part is charged here as if it were the first. ∎
        """
        room = self._limit * (1 + doubt) - spent
        return sum(
            self._one_by_one(room, count, [cost * (1 - doubt) for cost in costs])
            for count, costs in self.terms(release)
        )

    def _one_by_one(self, room: float, count: int, costs: list[float]) -> float:
        """What copies of a part are charged one after the other where so much is left of M."""
        charged, left = 0.0, count
        for kept, cost in zip(self._kept, costs, strict=True):
            if left == 0:
                break
            at_level = room - kept - charged
            if cost > at_level:
                continue
            fits = int(min(left, at_level // cost)) if cost > 0 else left
            charged += fits * cost
            left -= fits
        return math.inf if left else charged

    def unordered_at_least(self, terms: Iterable[tuple[str | None, Release, int]], doubt: float) -> list[float]:
        """As :meth:`charged_at_least` for releases in any order: all of them at the largest reserve."""
        return [
            count * sum(times * costs[0] * (1 - doubt) for times, costs in self.terms(release))
            for _, release, count in terms
        ]

    def unordered(self, terms: Iterable[tuple[str | None, Release, int]], slack: float) -> list[float]:
        """What each of some releases, of which each was made in a scope so many times, is charged in any order."""
        sums, found = ScopedSums(len(self._kept)), []
        for scope, release, count in terms:
            parts = [times * np.array(costs) for times, costs in self.terms(release)]
            found.append(count * np.sum(parts, axis=0) if parts else np.zeros(len(self._kept)))
            sums.add(scope, found[-1])
        worst = sums.after(None, np.zeros(len(self._kept)))
        fits = [j for j, kept in enumerate(self._kept) if worst[j] <= self._limit * (1 - slack) - kept]
        best = min(fits, key=lambda j: float(worst[j]), default=None)
        return [math.inf if best is None else float(costs[best]) for costs in found]


def _growth(costs: list[float]) -> float:
    """How much more a release costs with half of the levels gone."""
    return costs[len(costs) // 2] / costs[0] if 0 < costs[0] < math.inf else 0.0


def costs_between(levels: list[float], cost: Callable[[float], float]) -> list[float]:
    """The costs at some levels; where they hardly fall, the one at the lowest, which is a cost at the others, too."""
    if not levels:
        return []
    found = [math.nan] * len(levels)
    found[0], found[-1] = cost(levels[0]), cost(levels[-1])

    def fill(low: int, high: int) -> None:
        if high - low < 2:
            return
        if found[low] <= found[high] * (1 + _ALIKE) or found[high] == math.inf:
            found[low + 1 : high] = [found[low]] * (high - low - 1)
            return
        middle = (low + high) // 2
        found[middle] = cost(levels[middle])
        fill(low, middle)
        fill(middle, high)

    fill(0, len(levels) - 1)
    return list(itertools.accumulate(found, min))

"""A sequence of releases like the first one: as many as the tightest accountant proves.

*Theorem.* Let A be what the first release is made of, and n·A, n independent releases of it, be (ε, δ)-DP by any
accountant, the privacy loss distribution included. Let a release be admitted while all that any unit met is copies of
A, no more than n of them. Then the sequence is (ε, δ)-DP, however it is decided what is released where, and when it
stops. *Proof.* A is asked for before any output, and n follows from A and the budget: both are fixed in advance. What a
unit meets is a beginning of the list of n copies, so that the list dominates it. ∎

That is a plan (:mod:`accounting.ledger.filters`) that nobody had to state, with a share of δ of its own beside the
filters that take other releases, too: by the lemma there any of them may hold. Nothing else that a ledger can add up
serves little noise on a small sample: single losses are as large as the whole ε there, so their sum is nowhere near
Gaussian, and no exponential moment is near its tail.
"""

from __future__ import annotations

import math
from functools import lru_cache

from accounting.arrays import Array
from accounting.errors import UnsupportedRelease
from accounting.releases import Composed, Release
from accounting.totals import delta as delta_of
from accounting.totals import epsilon as epsilon_of

__all__ = ["OneKind", "kind_of"]


# No more copies are counted, and how many more than are asked for are priced with them.
_MOST = 10**12
_FURTHER = 1.1


class OneKind:
    """Count the copies of one release.

    Parameters
    ----------
    kind : Release
        A; not composed.
    epsilon, delta : float
        What n·A has to meet.
    """

    def __init__(self, kind: Release, epsilon: float, delta: float) -> None:
        self._kind, self._epsilon, self._delta = kind, epsilon, delta
        # the largest number of copies known to meet (ε, δ), and the least known not to
        self._proved, self._refused = 0, math.inf

    def cost(self, release: Release) -> list[float]:
        """How many copies of the kind a release is; infinite if it is anything else."""
        if release == Composed():
            return [0.0]
        kind, count = kind_of(release)
        return [float(count) if kind == self._kind and count <= _MOST else math.inf]

    def within(self, total: Array, slack: float) -> bool | None:
        """Whether so many copies are within n; None where the accountants have to be asked."""
        if total[0] <= self._proved:
            return True
        return False if total[0] >= self._refused else None

    def decide(self, total: Array) -> bool:
        """Whether so many copies are within n, by the accountants, which are asked about some more, too."""
        while (verdict := self.within(total, 0.0)) is None:
            count = int(total[0])
            further = math.ceil(_FURTHER * count) if math.isinf(self._refused) else (count + int(self._refused)) // 2
            for some in (further, count):
                if self._meets(some):
                    self._proved = some
                    break
                self._refused = some
        return verdict

    def epsilon(self, total: Array) -> float:
        """ε of so many copies."""
        return _epsilon_of_many(self._kind, int(total[0]), self._delta) if total[0] < math.inf else math.inf

    def _meets(self, count: int) -> bool:
        try:
            return float(delta_of(count * self._kind, self._epsilon)) <= self._delta
        except UnsupportedRelease:
            return False


def kind_of(release: Release) -> tuple[Release | None, int]:
    """The only part of a release and how often it occurs; None if there are several or none."""
    if not isinstance(release, Composed):
        return release, 1
    return release.parts[0] if len(release.parts) == 1 else (None, 0)


@lru_cache(maxsize=1024)
def _epsilon_of_many(kind: Release, count: int, delta: float) -> float:
    try:
        return float(epsilon_of(count * kind, delta)) if count else 0.0
    except UnsupportedRelease:
        return math.inf

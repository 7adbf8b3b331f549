"""Shuffled messages of users who all ran the same local randomizer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.amplification.randomizers import Randomizer, curve_atoms
from accounting.amplification.shuffling import shuffled_delta, shuffled_losses
from accounting.arrays import Array
from accounting.loss.pair import Symmetric, histogram

__all__ = ["ShuffledPair"]


# ln of a probability that never matters
_NEVER = -745.0


@dataclass(frozen=True)
class ShuffledPair(Symmetric):
    """Shuffled messages of an ε₀-DP local randomizer; see :mod:`accounting.amplification.shuffling`.

    Of a ``randomizer`` that is known, by its own curve (:mod:`accounting.amplification.randomizers`).
    """

    local_epsilon: float
    users: int
    randomizer: Randomizer | None = None

    def delta(self, epsilon: float) -> float:
        if epsilon < 0:
            return -math.expm1(epsilon) + math.exp(epsilon) * self.delta(-epsilon)
        found = shuffled_delta(self.local_epsilon, self.users, epsilon)
        if self.randomizer is None or found == 0:
            return found
        return min(found, self.randomizer.delta_at_most(self.users, epsilon))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        return histogram(edges, *self._atoms())

    def highest(self, log_tail: float) -> float:
        losses, p, _ = self._atoms()
        rare = int(np.searchsorted(np.cumsum(p[::-1]), math.exp(max(log_tail, _NEVER)) * (1 - 1e-9)))
        return float(losses[-1 - min(rare, losses.size - 1)])

    def _atoms(self) -> tuple[Array, Array, Array]:
        if self.randomizer is not None:
            return curve_atoms(self.randomizer, self.users)
        losses, log_p = shuffled_losses(self.local_epsilon, self.users)
        with np.errstate(under="ignore"):
            return losses, np.exp(log_p), np.exp(log_p - losses)

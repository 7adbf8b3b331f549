"""Shuffled messages of users who all ran the same local randomizer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accounting.amplification.shuffling import shuffled_delta, shuffled_losses
from accounting.arrays import Array
from accounting.loss.pair import Atoms, Symmetric, mirrored
from accounting.loss.randomizers import Randomizer, curve_atoms

__all__ = ["ShuffledPair"]


@dataclass(frozen=True)
class ShuffledPair(Atoms, Symmetric):
    """Shuffled messages of an ε₀-DP local randomizer; see :mod:`accounting.amplification.shuffling`.

    Of a ``randomizer`` that is known, by its own curve (:mod:`accounting.loss.randomizers`).
    """

    local_epsilon: float
    users: int
    randomizer: Randomizer | None = None

    @mirrored
    def delta(self, epsilon: float) -> float:
        found = shuffled_delta(self.local_epsilon, self.users, epsilon)
        if self.randomizer is None or found == 0:
            return found
        return min(found, self.randomizer.delta_at_most(self.users, epsilon))

    def atoms(self) -> tuple[Array, Array, Array, float]:
        if self.randomizer is not None:
            return curve_atoms(self.randomizer, self.users)
        losses, log_p = shuffled_losses(self.local_epsilon, self.users)
        return losses, np.exp(log_p), np.exp(log_p - losses), 0.0

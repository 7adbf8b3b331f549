"""The public half of an experiment: what was released, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpbandits.experiment.sequences import Evidence
from dpkit.moments.trial_batches import STEPS

__all__ = ["Readings"]


@dataclass(frozen=True)
class Readings:
    """The public half.

    Attributes
    ----------
    closed : (K,) ndarray of int
        How many batches of each arm have been released.
    sums : (K, J, m) ndarray of int
        Their noisy sums of each metric's values above ``missing``, in steps; zero where there was none yet.
    counts, when : (K, J) ndarray of int
        How many decisions each had, and after how many decisions of all arms it was released.
    mean, width : (K,) ndarray
        Of normal draws by which arms are chosen, by the first metric, in lengths of its range.
    center, spread : (K, m) ndarray
        Of a posterior of each arm's mean, by metric, the mean and the standard deviation.
    shares : (K,) ndarray
        With which arms are chosen where top-two sampling chooses.
    since : int
        After how many decisions the last release was made.
    found : int
        The arm that was found to be best, plus one; 0 before.
    stopped : str
        Why no further decision is made; empty while they are.
    """

    closed: NDArray[np.int64]
    sums: NDArray[np.int64]
    counts: NDArray[np.int64]
    when: NDArray[np.int64]
    mean: Array
    width: Array
    center: Array
    spread: Array
    shares: Array
    since: int
    found: int
    stopped: str

    def evidence(self, missing: Array, metric: int = 0) -> Evidence:
        """What sequences are told of a metric; ``missing`` of all, in lengths of the range."""
        count = self.counts.sum(axis=1).astype(np.float64)
        total = self.sums[:, :, metric].sum(axis=1) / STEPS + count * missing[metric]
        return Evidence(total, count, self.closed.astype(np.float64))

    def check(self) -> None:
        """Refuse one that was read from a file, and is none."""
        K, J, _ = self.sums.shape
        if (self.closed < 0).any() or (self.closed > J).any() or (self.counts < 0).any() or self.found > K:
            raise ValueError("public must have a sum for each closed batch, and find one of the arms, got others")

"""Policies that play one arm again and again, until enough of its rewards have come for an epoch to end.

Where arms change from round to round, an epoch ends early when its arm is not offered, with the rewards it has. Rewards
of an earlier epoch's arm that come late are not used.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpbandits.policy.choices import Law
from dpbandits.policy.protocol import Pending, Policy
from dpkit.models.likelihood import Rows
from dpkit.states import entries

__all__ = ["Epoch", "RepeatedPlays"]


class Epoch:
    """The arm of the running epoch and what its rewards have been, block by block.

    Parameters
    ----------
    dim : int
        d.
    size : int
        Blocks after which the epoch is full.
    block : int
        So many rewards, in the order in which they come, are kept as their mean.

    Examples
    --------
    >>> epoch = Epoch(2, size=3, block=2)
    >>> epoch.begin(np.array([1.0, 0.0]))
    >>> for reward in (0.0, 1.0, 3.0):
    ...     epoch.take(np.array([1.0, 0.0]), reward)
    >>> epoch.count, epoch.close().tolist()
    (1, [0.5])
    """

    def __init__(self, dim: int, *, size: int, block: int = 1) -> None:
        self.size, self.block = size, block
        self.arm = np.zeros(dim)
        self.running = False
        self.means = Rows(1)  # of the blocks that are full
        self.total = 0.0  # of the block that is not
        self.filled = 0  # its rewards

    @property
    def count(self) -> int:
        """Blocks that are full."""
        return self.means.count

    def same(self, arms: Array) -> NDArray[np.bool_]:
        """Which arms are the epoch's: what was chosen may be a rounding shorter than what was offered."""
        return np.asarray((np.abs(arms - self.arm) <= 2.0**-48).all(axis=-1))

    def begin(self, arm: Array) -> None:
        """Open an epoch."""
        self.arm, self.running = arm.copy(), True

    def take(self, arm: Array, reward: float) -> None:
        """Add a reward, if it is one of this epoch's arm."""
        if not self.running or not self.same(arm):
            return
        self.total += reward
        self.filled += 1
        if self.filled >= self.block:
            self.means.append([self.total / self.filled])
            self.total, self.filled = 0.0, 0

    def close(self) -> Array:
        """End the epoch; the means of its blocks, or of the only one if that was not full."""
        if self.filled and not self.count:
            self.means.append([self.total / self.filled])
        means = self.means.array[:, 0]
        self.running, self.means, self.total, self.filled = False, Rows(1), 0.0, 0
        return means

    _KEPT = ("arm", "running", "means", "total", "filled")

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        return entries.kept(self, self._KEPT)

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        entries.resume(self, self._KEPT, saved)


class RepeatedPlays(Policy):
    """The same arm again until an epoch ends; at its beginning as the base that stands after this one scores."""

    epoch: Epoch

    @abstractmethod
    def _observe(self, arm: Array, means: Array) -> None:
        """Learn from an epoch: its arm, and the means of its blocks, at least one and at most ``epoch.size``."""

    def prepare(self, arms: Array) -> None:
        """An epoch ends where its arm is not offered any more; the next one begins with another arm."""
        if self.epoch.running and not self.epoch.same(arms).any():
            self._close()

    def score(self, arms: Array) -> Array | Law:
        if self.epoch.running:
            return np.asarray(self.epoch.same(arms), dtype=np.float64)
        return super().score(arms)  # type: ignore[safe-super]

    def decided(self, pending: Pending) -> None:
        if not self.epoch.running:
            self.epoch.begin(pending.arm)

    def learn(self, pending: Pending, reward: float) -> None:
        self.epoch.take(pending.arm, reward)
        if self.epoch.count >= self.epoch.size:
            self._close()

    def _close(self) -> None:
        arm, means = self.epoch.arm, self.epoch.close()[: self.epoch.size]
        if len(means):
            self._observe(arm, means)

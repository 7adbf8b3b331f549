"""One arm played again and again, until enough of its rewards have come for an epoch to end.

Where arms change from round to round, an epoch ends early when its arm is not offered, with the rewards it has. Rewards
of an earlier epoch's arm that come late are not used.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpbandits.policy.choices import Law
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferencePolicy
from dpkit.models.likelihood import Rows
from dpkit.states.entries import Kept

__all__ = ["Epoch", "InEpochs"]


class Epoch(Kept):
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
    False
    False
    False
    >>> epoch.count, epoch.close().tolist()
    (1, [0.5])
    """

    _KEPT = ("arm", "running", "means", "total", "filled")

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

    def broken_off(self, arms: Array) -> bool:
        """Whether an epoch is running whose arm is not offered any more."""
        return self.running and not self.same(arms).any()

    def begin(self, arm: Array) -> None:
        """Open an epoch, unless one is running."""
        if not self.running:
            self.arm, self.running = arm.copy(), True

    def take(self, arm: Array, reward: float) -> bool:
        """Add a reward, if it is one of this epoch's arm; whether the epoch is full now."""
        if self.running and self.same(arm):
            self.total += reward
            self.filled += 1
            if self.filled >= self.block:
                self.means.append([self.total / self.filled])
                self.total, self.filled = 0.0, 0
        return self.count >= self.size

    def close(self) -> Array:
        """End the epoch; the means of its blocks, at most ``size``, or of the only one if that was not full."""
        if self.filled and not self.count:
            self.means.append([self.total / self.filled])
        means = self.means.array[: self.size, 0]
        self.running, self.means, self.total, self.filled = False, Rows(1), 0.0, 0
        return means


class InEpochs(ReferencePolicy):
    """A policy that plays one arm for an epoch, and learns from an epoch when it ends.

    An epoch ends where its arm is not offered any more, or when it is full; the next one begins with another arm.
    """

    epoch: Epoch

    def prepare(self, arms: Array) -> None:
        if self.epoch.broken_off(arms):
            self._end()

    def score(self, arms: Array) -> Array | Law:
        return self.epoch.same(arms).astype(np.float64) if self.epoch.running else super().score(arms)

    def decided(self, pending: Pending) -> None:
        self.epoch.begin(pending.arm)

    def learn(self, pending: Pending, reward: float) -> None:
        if self.epoch.take(pending.arm, reward):
            self._end()

    def _end(self) -> None:
        arm, means = self.epoch.arm, self.epoch.close()
        if len(means):
            self.observe(arm, means)

    @abstractmethod
    def observe(self, arm: Array, means: Array) -> None:
        """Learn from an epoch of ``arm`` whose blocks have these means, at least one."""

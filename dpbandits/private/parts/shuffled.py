"""What the shuffle-private policies share: one shuffled sum of records for each batch of a public schedule.

The rounds of a batch are its users: their number is public, and each of them is in this batch and in no other. A user
whose reward comes before the batch ends sends one randomized record, every other user the randomized null vector. Two
things follow. A change of one round, of its arms, its reward or the reward's arrival, changes one input of one sum;
and what a user pays is one release of its batch, so the batches compose in parallel.

A person is a user of the first m batches in which it has rounds, by the first of these; its other rounds send null
vectors. That is decided as decisions are made: which rounds are whose is public, while rewards' arrivals are not, and a
person whose records stood in other batches in the neighbouring run would change 2m sums. So it changes one input of
each of m sums, and pays for m releases (``accounting.amplification.participation.at_most``).

Where rewards are known to come late, a batch is released some announced number of rounds after its last one: until
then its users may still send, while those of later batches do so already.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import ClassVar, Literal, TypeVar

import numpy as np

from accounting.arrays import Array
from dpbandits.policy.private import PrivatePolicy
from dpbandits.policy.protocol import Pending
from dpkit.moments.shuffled import ShuffledBatches

__all__ = ["ShufflePolicy"]

Public = TypeVar("Public")


class ShufflePolicy(PrivatePolicy[Public]):
    """Base of the policies whose batches go through a shuffler: a round counts in the batch of its decision, or not."""

    trust: ClassVar[Literal["shuffle"]] = "shuffle"
    # a person is a user of the same batches whether or not, and whenever, rewards come
    _counts_decisions = True
    _prices_persons = True
    _told_of_absence = False

    def _enters(self, pending: Pending) -> bool:
        """Whether its batch is open. After the last release nobody would ever see a record."""
        is_open = pending.round >= self.schedule.start(self.releases) and len(pending.arm) > 0
        return is_open and self.releases < len(self.schedule.ends)

    def _batch(self) -> int:
        """The batch of the decision at hand; with a lag it is not the next one to be released."""
        return self.schedule.batch(self.decisions)

    def _settle(self, arms: Array) -> None:
        before = self.releases
        super()._settle(arms)
        sums = getattr(self, "_sums", None)
        if (
            self.releases > before
            and isinstance(sums, ShuffledBatches)
            and sums.absent > 0.5
            and not self._told_of_absence
        ):
            self._told_of_absence = True
            warnings.warn(
                f"{100 * sums.absent:.0f} % of the rewards of a batch had not come when it was released, and count for "
                f"nothing: announce how many rounds late they are by delay= (now {self.schedule.lag}). This warning "
                f"depends on when rewards came: show it to nobody who must not know",
                stacklevel=3,
            )

    def _expose(self) -> None:
        super()._expose()
        # rewards of closed batches may still come and count for nothing, so that their arms are not kept
        start = self.schedule.start(self.releases)
        nothing = np.empty(0)
        for key, pending in self._open.items():
            if key < start and len(pending.arm):
                self._open[key] = replace(pending, arm=nothing)

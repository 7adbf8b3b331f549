"""What the kinds of trust differ in: which decisions count, in which batch a record enters, what is dropped, and when.

Joint and local: a record counts when its reward comes, in the batch that is open then.

Shuffle: the rounds of a batch are its users. Their number is public, and each of them is in this batch and in no other.
A user whose reward comes before the batch ends sends one randomized record, every other user the randomized null
vector. Two things follow. A change of one round, of its arms, its reward or the reward's arrival, changes one input of
one sum; and what a user pays is one release of its batch, so the batches compose in parallel. A person is a user of the
first m batches in which it has rounds, by the first of these; its other rounds send null vectors. That is decided as
decisions are made: which rounds are whose is public, while rewards' arrivals are not, and a person whose records stood
in other batches in the neighbouring run would change 2m sums. So it changes one input of each of m sums, and pays for m
releases (``accounting.amplification.participation.at_most``). Where rewards are known to come late, a batch is released
some announced number of rounds after its last one: until then its users may still send, while those of later batches do
so already.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpbandits.durability.pending import Pending

if TYPE_CHECKING:
    from dpbandits.policy.private import PrivatePolicy

__all__ = ["AsDecided", "AsRewarded", "ByTotals", "InArms", "Shuffled", "ShuffledInArms", "counting_of"]

# what a registry has room for
_LAST = 2**32 - 1


class AsRewarded:
    """A record counts when its reward comes, of a person up to m times, once in a batch at most."""

    # whether it is fixed as decisions are made, and not as rewards come, which of them count (and of whom, in which
    # part of the data): then the arm of one that counts no more is dropped
    as_decided = False

    def batch(self, policy: PrivatePolicy[Any]) -> int:
        """The number of the open batch; it grows with every release."""
        return policy.releases

    def admitted(self, policy: PrivatePolicy[Any], pending: Pending) -> Pending:
        """The decision as it waits for its reward."""
        return pending

    def counted(self, policy: PrivatePolicy[Any], pending: Pending) -> None:
        """Note the decision's person, live or from the journal; of the last decision perhaps once more."""

    def enters(self, policy: PrivatePolicy[Any], pending: Pending) -> bool:
        """Whether a record would be learned now, whoever's it is."""
        return True

    def teaches(self, policy: PrivatePolicy[Any], pending: Pending) -> bool:
        """Whether the record of a reward that came is learned; if so, its person's is counted."""
        return policy.persons is None or policy.persons.admit(pending.person, self.batch(policy))

    def released(self, policy: PrivatePolicy[Any]) -> None:
        """A batch was closed and what came of it exposed: drop what counts for nothing."""

    def tell(self, policy: PrivatePolicy[Any]) -> None:
        """Say what its user should know, after releases."""


class ByTotals(AsRewarded):
    """All rounds count: a person pays for them by a total of the policy's own."""

    def teaches(self, policy: PrivatePolicy[Any], pending: Pending) -> bool:
        return True


class AsDecided(AsRewarded):
    """It is fixed as decisions are made in which batch, and of a person in which rounds, a record may enter."""

    as_decided = True

    def admitted(self, policy: PrivatePolicy[Any], pending: Pending) -> Pending:
        persons = policy.persons
        if persons is not None and not persons.may_teach(pending.person, self.batch(policy)):
            return replace(pending, arm=np.empty(0))  # as one whose batch is closed: it counts for nothing
        return pending

    def counted(self, policy: PrivatePolicy[Any], pending: Pending) -> None:
        if policy.persons is not None and len(pending.arm):
            policy.persons.admit(pending.person, self.batch(policy))

    def teaches(self, policy: PrivatePolicy[Any], pending: Pending) -> bool:
        return self.enters(policy, pending)

    def closed(self, policy: PrivatePolicy[Any], pending: Pending) -> bool:
        """Whether the batch of a decision was released, so that its reward counts for nothing."""
        return False

    def released(self, policy: PrivatePolicy[Any]) -> None:
        # rewards of closed batches may still come, but their arms need not be kept
        policy.waiting.drop_arms(lambda pending: self.closed(policy, pending))


class Shuffled(AsDecided):
    """A round counts in the batch of its decision, or not."""

    def __init__(self) -> None:
        self._told = False

    def batch(self, policy: PrivatePolicy[Any]) -> int:
        # that of the decision at hand; with a lag it is not the next one to be released
        return policy.schedule.batch(policy.decisions)

    def enters(self, policy: PrivatePolicy[Any], pending: Pending) -> bool:
        # after the last release nobody would ever see a record
        is_open = not self.closed(policy, pending) and len(pending.arm) > 0
        return is_open and policy.releases < len(policy.schedule.ends)

    def closed(self, policy: PrivatePolicy[Any], pending: Pending) -> bool:
        return pending.round < policy.schedule.start(policy.releases)

    def tell(self, policy: PrivatePolicy[Any]) -> None:
        absent = getattr(getattr(policy, "sums", None), "absent", 0.0)
        if absent > 0.5 and not self._told:
            self._told = True
            _warn_of_absence(absent, f"announce how many rounds late they are by delay= (now {policy.schedule.lag})")


def _warn_of_absence(absent: float, remedy: str) -> None:
    warnings.warn(
        f"{100 * absent:.0f} % of the rewards of a batch had not come when it was released, and count for nothing: "
        f"{remedy}. This warning depends on when rewards came: show it to nobody who must not know",
        stacklevel=5,
    )


class InArms(AsDecided):
    """A reward enters the batch of its arm that is open when it comes, if none of its person has entered that before.

    The second cannot be, unless rewards are late.
    """

    def batch(self, policy: PrivatePolicy[Any]) -> int:
        # the registry counts; who is in which batch is asked of the turns
        return min(policy.decisions, _LAST)

    def admitted(self, policy: PrivatePolicy[Any], pending: Pending) -> Pending:
        if policy.persons is not None and not policy.sums.turns.may_ask(pending.index, pending.person):
            return replace(pending, arm=np.empty(0))
        return super().admitted(policy, pending)

    def counted(self, policy: PrivatePolicy[Any], pending: Pending) -> None:
        super().counted(policy, pending)
        if policy.persons is not None and len(pending.arm):
            policy.sums.turns.ask(pending.index, pending.person)

    def enters(self, policy: PrivatePolicy[Any], pending: Pending) -> bool:
        return len(pending.arm) > 0 and policy.sums.turns.may_tell(pending.index, pending.person)


class ShuffledInArms(InArms):
    """A reward enters the batch of its decision, whose number is the decision's note, or none."""

    def __init__(self) -> None:
        self._told = False

    def tell(self, policy: PrivatePolicy[Any]) -> None:
        if policy.sums.absent > 0.5 and not self._told:
            self._told = True
            _warn_of_absence(policy.sums.absent, "take a first_batch of several times the rounds that they are late")

    def enters(self, policy: PrivatePolicy[Any], pending: Pending) -> bool:
        return len(pending.arm) > 0 and not self.closed(policy, pending)

    def closed(self, policy: PrivatePolicy[Any], pending: Pending) -> bool:
        return bool(pending.note[0] < policy.public.closed[pending.index])


def counting_of(trust: Literal["none", "joint", "shuffle", "local"], *, totals: bool) -> AsRewarded:
    """What counts, of a policy of this kind of trust; with ``totals`` persons pay by a total of their own."""
    if totals:
        return ByTotals()
    return Shuffled() if trust == "shuffle" else AsRewarded()

"""Which rounds of a person count, where each arm has batches of its own.

It is fixed as decisions are made, from public things: a round of a person teaches if the person had fewer than m before
that teach, and none in the open batch of the arm that is played. All others are served, and are in no batch: its number
of decisions counts those that teach. So what is dropped of one person follows from who came when, and from releases;
another person's data have no part in it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from dpbandits.durability.pending import Pending
from dpbandits.policy.private import PrivatePolicy
from dpbandits.policy.trust import AsDecided
from dpkit.moments.arm_turns import ArmTurns

__all__ = ["InArms", "ShuffledInArms"]

# what a registry has room for
_LAST = 2**32 - 1


class _HasTurns(Protocol):
    turns: ArmTurns


class InArms(AsDecided):
    """A reward enters the batch of its arm that is open when it comes, if none of its person has entered that before.

    The second cannot be, unless rewards are late.
    """

    def batch(self, policy: PrivatePolicy[Any]) -> int:
        # the registry counts; who is in which batch is asked of the turns
        return min(policy.decisions, _LAST)

    def admitted(self, policy: PrivatePolicy[Any], pending: Pending) -> Pending:
        if policy.persons is not None and not turns_of(policy).may_ask(pending.index, pending.person):
            return replace(pending, arm=np.empty(0))
        return super().admitted(policy, pending)

    def counted(self, policy: PrivatePolicy[Any], pending: Pending) -> None:
        super().counted(policy, pending)
        if policy.persons is not None and len(pending.arm):
            turns_of(policy).ask(pending.index, pending.person)

    def enters(self, policy: PrivatePolicy[Any], pending: Pending) -> bool:
        return len(pending.arm) > 0 and turns_of(policy).may_tell(pending.index, pending.person)


class ShuffledInArms(InArms):
    """A reward enters the batch of its decision, whose number is the decision's note, or none."""

    def enters(self, policy: PrivatePolicy[Any], pending: Pending) -> bool:
        return len(pending.arm) > 0 and not self.closed(policy, pending)

    def closed(self, policy: PrivatePolicy[Any], pending: Pending) -> bool:
        return bool(pending.note[0] < policy.public.closed[pending.index])


def turns_of(policy: PrivatePolicy[Any]) -> ArmTurns:
    sums: _HasTurns = policy.sums
    return sums.turns

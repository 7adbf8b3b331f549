"""Many rounds of a private policy at once: how long its releases leave it as it is, and what stands in the journal.

Decisions of one stretch are one record in the journal, rewards that come together another one, written through to the
disk before the first is learned. Whoever was interrupted between the two halves goes on from the checkpoint: decisions
that were written down are made again, nobody was told of those that were not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpbandits.durability.pending import Together

if TYPE_CHECKING:
    from dpbandits.policy.private import PrivatePolicy

__all__ = ["admit", "take_in", "until_ranged", "until_scheduled"]

_FOREVER = 2**62


def until_scheduled(policy: PrivatePolicy[Any]) -> int:
    """How many decisions there are before the next release that is due by the schedule, or that of the range."""
    schedule, left = policy.schedule, _FOREVER
    if policy.releases < len(schedule.ends):
        left = schedule.ends[policy.releases] + schedule.lag - policy.clock
    return min(left, until_ranged(policy))


def until_ranged(policy: PrivatePolicy[Any]) -> int:
    """How many decisions there are before the range of rewards is released."""
    scale = policy.scale
    return _FOREVER if scale is None or policy.learned_range is not None else scale.rounds - policy.decisions


def admit(policy: PrivatePolicy[Any], made: Together) -> None:
    """Count decisions that were made together, and wait for their rewards."""
    if len(made) == 1:
        policy.make(made[0])
        return
    # of what an interrupt leaves half made nobody is told, and the journal may have it already
    policy.run.stop("was interrupted while it decided")
    # where nobody's earlier rounds decide whether this one counts
    alike = policy.scale is None and not (policy.counting.as_decided and policy.persons is not None)
    if alike and not {"admit", "counted", "written"} & policy.own:
        policy.durable.add_all(made)
        if "decided" in policy.own:
            policy.decided_many(made)
        policy.waiting.admit(made)
        policy.decisions += len(made)
        if policy.expire_after is not None:
            policy.expire(policy.decisions - policy.expire_after)
    else:
        with policy.durable.gathered():
            for pending in made:
                policy.admit(policy.written(pending))
    policy.run.end()


def take_in(policy: PrivatePolicy[Any], keys: Sequence[int], made: Together, rewards: Sequence[float | None]) -> None:
    """Close decisions and learn, in this order; where there is no reward, close."""
    closed = [key if reward is None else (key, reward) for key, reward in zip(keys, rewards, strict=True)]
    # a record that was half learned must not be learned again, nor one in the journal take another reward
    policy.run.stop("was interrupted while it learned")
    policy.durable.add_all(closed)
    policy.waiting.close(keys)
    told = [reward for reward in rewards if reward is not None]
    came = made
    if len(told) < len(made):
        came = Together.gathered([one for one, reward in zip(made, rewards, strict=True) if reward is not None])
    # where no reward decides whether another one counts
    apart = policy.scale is None and policy.persons is None and not policy.counting.as_decided
    if came and apart and "teach" not in policy.own:
        policy.learn_many(came, told)
    else:
        for pending, reward in zip(came, told, strict=True):
            policy.teach(pending, reward)
    policy.run.end()

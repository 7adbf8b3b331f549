"""Many rounds at once: what ``Policy.select_many`` and ``Policy.update_many`` do.

Between two releases nothing changes that choices depend on, but what is learned; and a private policy's choices do not
depend on that. So the requests of one stretch (``Policy.steady`` says how long it is) are chosen for together: one
array of draws, one product with all arms, one record in the journal. What is due is done between stretches, at the same
decision as if requests came one by one. A policy that cannot tell has stretches of one decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import integer
from dpbandits.durability.pending import Pending
from dpbandits.policy.checks import real_array
from dpbandits.policy.decision import Decision, Decisions, Stretch
from dpbandits.policy.many import Rounds, together
from dpkit.states.entries import short
from dpkit.states.registry import NOBODY, kind_of

if TYPE_CHECKING:
    from dpbandits.policy.protocol import Policy

__all__ = ["checked", "one_by_one", "select", "update"]


def checked(policy: Policy, arms: Any) -> Rounds:
    """What many requests offer, as arrays.

    Raises
    ------
    ValueError
        Naming the first request that offers something else than a round may.
    """
    if isinstance(arms, (int, np.integer)) and not isinstance(arms, bool):
        return np.broadcast_to(one := policy.checked_arms(None), (integer("arms", arms, at_least=0), *one.shape))
    if isinstance(arms, np.ndarray) and arms.ndim == 3:
        found = policy.checked_many(real_array("arms", arms))
        if found is not None:
            return found
    if isinstance(arms, (str, bytes)) or not isinstance(arms, Iterable) or getattr(arms, "ndim", 1) == 0:
        raise ValueError(f"arms must be those of many requests, shape (n, K, d), or a list of arrays, got {short(arms)}")
    rounds = []
    for number, one in enumerate(arms):
        try:
            rounds.append(policy.checked_arms(one))
        except ValueError as error:
            raise ValueError(f"arms[{number}]: {error}") from error
    return together(rounds)


def select(policy: Policy, arms: Any, persons: Sequence[Any] | None) -> Decisions:
    """Choose for many requests; see :meth:`dpbandits.Policy.select_many`."""
    rounds = checked(policy, arms)
    n = len(rounds)
    policy.check_process()
    stretches = []
    with policy.lock:
        if n:
            policy.check_room(n)
        who = _whose(policy, persons, n)
        at = 0
        while at < n:
            policy.prepare(rounds[at])
            part = slice(at, min(n, at + max(1, policy.steady())))
            stretches.append(_stretch(policy, rounds[part], None if who is None else who[part]))
            if policy.decision_log is not None:
                _log(policy, stretches[-1], rounds[part], (persons or n * [None])[part])
            at = part.stop
    return Decisions(stretches, policy.waiting.run)


def one_by_one(policy: Policy, arms: Any, persons: Sequence[Any] | None) -> Decisions:
    """The same, by the policy's own ``select``."""
    rounds = checked(policy, arms)
    with policy.lock:
        _whose(policy, persons, len(rounds))
        made = [policy.select(*one) for one in zip(rounds, persons or len(rounds) * [None], strict=True)]
    return Decisions.of(made, policy.waiting.run)


def update(policy: Policy, decisions: Sequence[Decision | int], rewards: Any) -> None:
    """Learn many rewards; see :meth:`dpbandits.Policy.update_many`."""
    waiting = policy.waiting
    keys = decisions.keys(waiting.run) if isinstance(decisions, Decisions) else [*map(waiting.key, decisions)]
    values = rewards if isinstance(rewards, (list, tuple)) else real_array("rewards", rewards).tolist()
    if not isinstance(values, (list, tuple)) or len(values) != len(keys):
        raise ValueError(f"rewards must be as many as decisions, {len(keys)}, got {short(rewards)}")
    if len(set(keys)) != len(keys):
        raise ValueError("decisions must be given once each, got some twice")
    policy.check_process()
    with policy.lock:
        policy.check_open()
        told: list[tuple[int, Pending, float | None]] = []
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            pending = waiting.get(key)
            if pending is None:
                raise ValueError(
                    f"decisions[{number}]: decision must be one whose reward is still open, got decision id {key!r}"
                )
            try:
                told.append((key, pending, None if value is None else policy.checked_reward(value)))
            except ValueError as error:
                raise ValueError(f"rewards[{number}]: {error}") from error
        policy.take_in_many(told)
        if policy.decision_log is not None:
            for key, _, reward in told:
                policy.decision_log.closed(key, reward)


def _whose(policy: Policy, persons: Sequence[Any] | None, n: int) -> list[int] | None:
    """Whose rounds they are, as it is kept; None where nothing is. Nothing is noted before all are checked."""
    if persons is None:
        if n:
            policy.who(None)  # refused where one is needed
        return None
    if isinstance(persons, (str, bytes)) or not hasattr(persons, "__len__") or len(persons) != n:
        raise ValueError(f"persons must be one for each of {n} requests, got {short(persons)}")
    for number, person in enumerate(persons):
        try:
            kind_of(person)
        except ValueError as error:
            raise ValueError(f"persons[{number}]: {error}") from error
    if len(kinds := {kind_of(person) for person in persons}) > 1:
        raise ValueError(f"persons must be of one type, got {sorted(kinds)}")
    return [policy.who(person) for person in persons]


def _stretch(policy: Policy, rounds: Rounds, who: list[int] | None) -> Stretch:
    """Choose for requests between which nothing is due, and wait for the rewards."""
    laws = policy.score_many(rounds)
    first, release, picks = policy.decisions, policy.number(), laws.draw(policy.rng)
    indices = picks.tolist()
    arms = policy.chosen_many(rounds, picks)
    whose = who or len(indices) * [NOBODY]
    ids = range(first, first + len(indices))
    if policy.takes_notes():
        notes = [*map(policy.note, arms, indices)]
        made = [*map(Pending, arms, indices, ids, notes, whose)]
    else:
        made = [*map(Pending, arms, indices, ids, len(indices) * [()], whose)]
    names = [policy.name_of(index) for index in indices] if policy.name_of(indices[0]) else None
    policy.admit_many(made)
    return Stretch(ids, picks, arms, laws, names, release)


def _log(policy: Policy, made: Stretch, rounds: Rounds, persons: Sequence[Any]) -> None:
    if policy.decision_log is not None:
        for i, (arms, person) in enumerate(zip(rounds, persons, strict=True)):
            policy.decision_log.decided(made.decision(i, policy.waiting.run), arms, person, made.release)

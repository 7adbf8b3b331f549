"""Rows of a log as rounds of a policy's own; see :meth:`dpbandits.Policy.learn_log`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from accounting.arrays import Array
from accounting.checks import integer
from dpbandits._progress_bar import progress_bar
from dpkit.states.entries import short
from dpkit.states.registry import kind_of

if TYPE_CHECKING:
    from dpbandits.policy.protocol import Policy

__all__ = ["learn", "refuse_where_plays_are_counted"]

# rows between two moves of the bar
_TICK = 256


@dataclass(frozen=True, slots=True)
class _CheckedRow:
    """What ``admit_choice`` and ``take_in`` are told of a row; the arm of shape (d,), or a page of arms (m, d)."""

    arm: Array
    index: int
    reward: Any
    person: Any


def refuse_where_plays_are_counted(policy: Policy) -> NoReturn:
    """Refuse logs, for a policy that counts plays without noise: arms that others chose may tell of those who came."""
    raise ValueError(
        "rows must be learned by a policy that protects which arm was chosen, as OnePassPrivateGLM does: "
        f"{type(policy).__name__} counts plays without noise, and takes only choices of its own"
    )


def _checked_rows(policy: Policy, rows: Iterable[Any]) -> list[_CheckedRow]:
    """All rows, or the complaint about the first bad one, which says where it stands."""
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        raise ValueError(f"rows must be an iterable of (arm, reward) or LoggedRound, got {short(rows)}")
    checked = []
    kinds: set[str] = set()
    for number, row in enumerate(rows):
        try:
            checked.append(_checked(policy, row))
            if getattr(policy, "persons", None) is not None:
                kinds.add(_kind(checked[-1].person))
                if len(kinds) > 1:
                    raise ValueError(f"person must be of one type in all rows, got {sorted(kinds)}")
        except (TypeError, ValueError) as error:
            raise ValueError(f"rows[{number}]: {error}") from error
    if not checked:
        raise ValueError("rows must hold at least one row, got none")
    return checked


def _checked(policy: Policy, row: Any) -> _CheckedRow:
    if isinstance(row, (tuple, list)):
        if len(row) not in (2, 3):
            raise ValueError(f"a row must be (arm, reward) or (arm, reward, person), got {len(row)} entries")
        if policy.takes == "context":
            raise ValueError(
                "a row must say which arm was chosen: LoggedRound(context, index, reward), got a tuple, for a policy "
                "that takes contexts"
            )
        given, reward, person = (*row, None)[:3]
        arm, index = policy.logged(given), 0
    elif all(hasattr(row, name) for name in ("arms", "index", "reward")):
        offered, index, reward = policy.checked_arms(row.arms), integer("index", row.index, at_least=0), row.reward
        person = getattr(row, "person", None)
        count = policy.count(offered)
        if index >= count:
            raise ValueError(f"index must be that of one of {count} arms, got index={index}")
        arm = policy.chosen(offered, index)
    else:
        raise ValueError(f"a row must be (arm, reward), (arm, reward, person) or a LoggedRound, got {short(row)}")
    if reward is None:
        raise ValueError("reward must be a number in a log, got None: leave the row out")
    return _CheckedRow(arm, index, policy.reward_of(arm, reward), person)


def _kind(person: object) -> str:
    if person is None:
        raise ValueError(
            "person must be given where the budget protects persons: (arm, reward, person) or LoggedRound(..., "
            "person=id), got person=None"
        )
    return kind_of(person)


def learn(policy: Policy, rows: Iterable[Any], progress: bool) -> int:
    """Check all rows, then take them in, behind the policy's lock; how many they are."""
    policy.check_log()
    policy.check_process()
    checked = _checked_rows(policy, rows)
    with policy.lock:
        policy.check_open()
        _take_in(policy, checked, progress)
    return len(checked)


def _take_in(policy: Policy, rows: list[_CheckedRow], progress: bool) -> None:
    if policy.horizon is not None and policy.decisions + len(rows) > policy.horizon:
        left = policy.horizon - policy.decisions
        raise ValueError(
            f"rows must be at most {left}, what is left of horizon={policy.horizon}, got {len(rows)}: each is a round; "
            "make a policy with a longer horizon, or learn the newest rows only"
        )
    # also refuses, before anything is learned, ids of another type than this run's
    who = [policy.who(row.person) for row in rows]
    with policy.together(), progress_bar(len(rows), "learning the log", progress and len(rows) > _TICK) as tick:
        for done, (row, person) in enumerate(zip(rows, who, strict=True), start=1):
            policy.prepare(np.atleast_2d(row.arm) if policy.takes == "arms" else row.arm)
            key = policy.admit_choice(row.arm, row.index, person)
            policy.take_in(key, policy.waiting[key], row.reward)
            if done % _TICK == 0:
                tick(_TICK)

"""Open decisions: a plain dictionary to whoever asks, and no more arms in memory than twice those that are open."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import Budget
from dpbandits.durability.pending import Pending, Together
from dpbandits.policies import OnePassPrivateGLM
from dpbandits.policy.open_decisions import OpenDecisions


def made(first: int, size: int, *, ragged: bool = False, notes: bool = False) -> Together:
    """Decisions whose arms say which round they are of."""
    rounds = range(first, first + size)
    arms: Any = np.array([[float(round), 0.5] for round in rounds])
    if ragged:
        arms = [np.full(1 + round % 2, float(round)) for round in rounds]
    noted = ([(round, 7) for round in rounds], [round + 1000 for round in rounds]) if notes else ((), ())
    return Together(arms, [round % 3 for round in rounds], rounds, *noted)


def told(pending: Pending) -> tuple[Any, ...]:
    return pending.arm.tolist(), pending.index, pending.round, pending.note, pending.person


def arms_in(waiting: OpenDecisions) -> int:
    """Of how many decisions there are arms in memory."""
    held = {id(one): one for one in waiting._made.values()}.values()
    return sum(1 if isinstance(one, Pending) else len(one) for one in held)


@given(st.data())
def test_it_is_a_dictionary_whatever_is_closed_in_whichever_order(data: st.DataObject) -> None:
    waiting, known, first = OpenDecisions(), {}, 0
    for _ in range(data.draw(st.integers(1, 3))):
        size = data.draw(st.integers(1, 12))
        some = made(first, size, ragged=data.draw(st.booleans()), notes=data.draw(st.booleans()))
        waiting.admit(some)
        known |= {one.round: told(one) for one in some}
        first += size
        for _ in range(data.draw(st.integers(0, 4))):
            keys = data.draw(st.lists(st.sampled_from(sorted(known)), unique=True, max_size=6)) if known else []
            assert [*map(told, waiting.those(keys))] == [known[key] for key in keys]
            match data.draw(st.sampled_from(["close", "delete", "replace", "drop", "expire"])):
                case "close":
                    waiting.close(keys)
                    gone = keys
                case "expire":
                    gone = waiting.expire(keys[0]) if keys else []
                case "delete":
                    for key in keys:
                        del waiting[key]
                    gone = keys
                case "replace":
                    for key in keys:
                        waiting[key] = Pending(np.zeros(1), 0, key)
                        known[key] = told(waiting[key])
                    gone = []
                case _:
                    waiting.drop_arms(lambda pending: pending.round in keys)  # noqa: B023
                    known |= {key: ([], *known[key][1:]) for key in keys}
                    gone = []
            for key in gone:
                del known[key]
            assert [*waiting] == sorted(known)
            assert {key: told(pending) for key, pending in waiting.items()} == known
            assert arms_in(waiting) <= 2 * len(known)


@pytest.mark.parametrize("way", ["forget", "update", "update_many"])
def test_arms_of_closed_decisions_go(way: str) -> None:
    """Of a batch of which one decision is open there is one arm, and the array of all of them has gone."""
    policy = OnePassPrivateGLM(dim=2, budget=Budget(2.0, 1e-6), horizon=4000, first_batch=1000)
    ids = [decision.id for decision in policy.select_many(np.tile(np.eye(2), (256, 1, 1)))]
    (batch,) = {id(one): one for one in policy.waiting._made.values()}.values()
    whole = weakref.ref(batch.arms)
    del batch
    if way == "update_many":
        for start in range(0, 256, 64):
            policy.update_many([key for key in ids[start : start + 64] if key != 77], np.ones(64 - (start == 64)))
    else:
        for key in ids:
            if key != 77:
                _ = policy.forget(key) if way == "forget" else policy.update(key, 1.0)
    assert policy.open_decisions == [77]
    assert arms_in(policy.waiting) == 1
    assert whole() is None
    assert policy.waiting[77].arm.tolist() in ([1.0, 0.0], [0.0, 1.0])
    assert not policy.waiting[77].arm.flags.writeable
    policy.update(77, 1.0)

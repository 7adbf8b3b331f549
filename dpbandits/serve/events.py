"""Events: decisions, under names that their client gave them.

The wire of :mod:`dpbandits.serve.personalizer` names a decision by an event's id, often the client's own. The table
``events`` holds a keyed hash of it, and in the same transaction the decision is written: so an event is there with its
decision, or neither is. A client that had no answer asks again, and is given the first one, if it asks for the same
(``request`` is a keyed hash of what was asked).

An event that waits for its activation has no decision yet. What that will be is kept as a ticket
(:mod:`dpbandits.serve.tickets`), until the wait for a reward would be over; then it is erased, and nothing was decided.

Rows are erased once the wait for the reward is over, whether one came or not: who ranks can see by a second request
whether an event is still there, and must not see by it whether it was rewarded. They go before, with their decision,
where that is erased, or dropped because the database went back. Then events that waited are dropped, too, as they may
have been activated, and learned from, in what was lost.

All functions are called inside :meth:`dpbandits.serve.store.Store.writing`.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from dpbandits.serve.database import Database
from dpbandits.serve.store import Choice, Store
from dpbandits.serve.tickets import read

__all__ = ["InSlots", "Ranked", "activate", "expire", "rank", "reward", "secret"]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A choice for an event: the hashes of its id and of what was asked, and the answer, without anybody's names.

    ``ticket`` where it waits for its activation.
    """

    event: str
    request: str
    answer: str
    choice: Choice
    ticket: str | None = None


@dataclass(frozen=True, slots=True)
class InSlots:
    """Rewards by hashes of slots' ids; where an event has another slot, the default."""

    values: Mapping[str, float]
    default: float

    def by_position(self, answer: str) -> tuple[float, ...] | None:
        """As they are learned, or None where no slot is the event's; ``answer`` is what the event was given."""
        _, slots = json.loads(answer)
        if self.values.keys().isdisjoint(slots):
            return None
        return tuple(self.values.get(one, self.default) for one in slots)


def secret(purpose: str, text: bytes, key: str) -> str:
    """A keyed hash; ``key`` is the database's own, in hexadecimal digits."""
    return hmac.new(bytes.fromhex(key), purpose.encode() + b"\0" + text, sha256).hexdigest()


def rank(store: Store, asked: Sequence[Ranked], now: float, horizon: int | None) -> list[str | None]:
    """Write events down with their decisions, and return their answers, each that of the first time.

    None for an event that is there with another request. Beyond the horizon nothing is kept.
    """
    query = "SELECT event, request, answer FROM events WHERE event IN"
    keys = sorted({one.event for one in asked})
    known = {event: (request, answer) for event, request, answer in store.database.among(query, keys)}
    new: dict[str, Ranked] = {}
    for one in asked:
        if one.event not in known:
            known[one.event] = one.request, one.answer
            new[one.event] = one
    shown = [one for one in new.values() if one.ticket is None]
    ids = store.decide([one.choice for one in shown], now, horizon)
    rows = [_row(one, now, id, None) for one, id in zip(shown, ids, strict=True) if not id.startswith("0-")]
    if not store.over(horizon):
        rows += [_row(one, now, "", one.ticket) for one in new.values() if one.ticket is not None]
    store.database.insert("events (event, request, answer, at, number, id, ticket)", rows)
    return [known[one.event][1] if known[one.event][0] == one.request else None for one in asked]


def _row(one: Ranked, now: float, id: str, ticket: str | None) -> tuple[object, ...]:
    return one.event, one.request, one.answer, now, int(id.partition("-")[0] or 0), id, ticket


def activate(
    store: Store, events: Sequence[str], now: float, horizon: int | None, wait: float | None, key: str
) -> list[None]:
    """Make decisions of events that wait for it; of all others nothing is said, nor done."""
    query = "SELECT event, at, ticket FROM events WHERE number = 0 AND event IN"
    found = store.database.among(query, sorted(set(events)))
    waiting = {event: read(ticket, key) for event, at, ticket in found if wait is None or now < at + wait}
    made = {event: choice for event, choice in waiting.items() if choice is not None}
    ids = store.decide(list(made.values()), now, horizon)
    for event, id in zip(made, ids, strict=True):
        if id.startswith("0-"):
            store.database.execute("DELETE FROM events WHERE event = ?", event)
        else:
            number = int(id.partition("-")[0])
            statement = "UPDATE events SET at = ?, number = ?, id = ?, ticket = NULL WHERE event = ?"
            store.database.execute(statement, now, number, id, event)
    return [None] * len(events)


def reward(store: Store, rewards: Sequence[tuple[str, float | InSlots]], now: float, wait: float | None) -> list[None]:
    """Write down the first reward of each event that has a decision; nothing is said of which were taken."""
    query = "SELECT event, id, answer FROM events WHERE number > 0 AND event IN"
    rows = store.database.among(query, sorted({event for event, _ in rewards}))
    known = {event: (id, answer) for event, id, answer in rows}
    told: list[tuple[str, float | tuple[float, ...]]] = []
    for event, value in rewards:
        if event in known:
            id, answer = known[event]
            learned = value.by_position(answer) if isinstance(value, InSlots) else value
            if learned is not None:
                told.append((id, learned))
    store.reward(told, now, wait)
    return [None] * len(rewards)


def expire(database: Database, before: float, most: int) -> None:
    """Erase events that have waited since before a time, for a reward or their activation; so many at most."""
    some = "SELECT event FROM events WHERE at < ? ORDER BY at LIMIT ?"
    database.execute(f"DELETE FROM events WHERE event IN ({some})", before, most)

"""What workers and learner write to the database, and the argument why nothing is lost or counted twice.

The tables are in :mod:`dpbandits.serve.schema`.

Why a crash of anything at any time does no harm:

* *Numbers have no gaps.* A number is given inside a write transaction, of which one runs at a time
  (:mod:`dpbandits.serve.database`), and is taken back if that does not commit. So decision n of this table is round
  n − 1 of the policy, and the policy's own count of decisions says where the learner stands: no second record of it
  exists that could disagree.
* *A reward is acknowledged after its commit*, which also closes its decision: a second one finds it closed.
* *The learner deletes rewards after the policy's journal, with them, was written through to the disk*. A crash in
  between lets it see a reward again; if the journal has it, the policy does not wait for that round any more, and it is
  skipped.
* *A decision's arm and person are erased after a release that covers it*: before a release the policy's journal, which
  holds both, is written through.
* *A release* is the policy's own transaction (checkpoint, ledger's mark, checkpoint in place). Where ledger and service
  are in one PostgreSQL database, the mark and the row in ``releases`` are one transaction of that database. Else a
  crash after the mark and before the row is made good at the next start, which publishes what the checkpoint holds. A
  release of a number that is here with other contents would be a second one, and is refused. What it covers is erased
  afterwards, a part at a time, and a start goes on with that, too.
* *One learner*: the lease is politeness. What makes a second one impossible is the policy's hold on its checkpoint,
  and, for copies of it, the ledger's marks. A learner that lost its lease writes nothing here.
* *A ticket is activated once*: its number is written down in the transaction that gives it. Where a decision was
  answered with a ticket because its commit gave no answer, the ticket has the decision's token and number, by which it
  is found if it was written (:meth:`Store.activate`).

Rewards carry the number of the last decision before them, and the learner replays both in that order, so batches
hold what they would hold had one process served everybody.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from accounting.arrays import Array
from dpbandits.serve.apprentice import SUMS, Event, sums
from dpbandits.serve.schema import Tables

__all__ = ["Choice", "Event", "LeaseLost", "Status", "Store"]

Status = Literal["accepted", "duplicate", "closed", "late", "unknown"]


class LeaseLost(RuntimeError):
    """Another learner has taken over."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision as it is written down: which arm, with which probability, what it is learned from, and whose it is.

    ``bandit`` is what the bandit would have chosen in an apprentice's place; ``token`` that of a ticket, and ``maybe``
    the number by which it may be written down already.
    """

    chosen: int
    probability: float | None
    arm: Array
    person: str | None = None
    bandit: int | None = None
    token: str | None = None
    maybe: int | None = None


class Store(Tables):
    """What is written, as one process does it: by a worker, or by the learner."""

    # ------------------------------------------------------------------------------- workers, inside ``writing``

    def decide(self, choices: Sequence[Choice], now: float, horizon: int | None) -> list[str]:
        """Write decisions down, and return their ids; beyond the horizon nothing is learned, and nothing is kept."""
        ids, rows = [], []
        for one in choices:
            token = one.token or secrets.token_hex(8)
            if horizon is not None and self._decisions >= horizon:
                ids.append(f"0-{token}")
                continue
            self._decisions += 1
            ids.append(f"{self._decisions}-{token}")
            arm = np.ascontiguousarray(one.arm, "<f8").tobytes()
            rows.append((self._decisions, token, now, one.chosen, one.probability, one.bandit, arm, one.person))
        self._db.insert("decisions (number, token, at, chosen, probability, bandit, arm, person)", rows)
        return ids

    def activate(self, choices: Sequence[Choice], now: float, horizon: int | None) -> list[tuple[str | None, bool]]:
        """Ids of decisions that were made before, by their tokens, and whether they are new here.

        One that may be there already as number ``maybe`` is, if that has its token; the commit that was on its way has
        ended, as this one waited for it. Where the number is used and its row is erased nobody can tell: then the id is
        None, and nothing is written.
        """
        known = dict(self._db.among("SELECT token, number FROM tickets WHERE token IN", [one.token for one in choices]))
        new = {one.token: one for one in choices if one.token not in known}
        used = {one.maybe for one in new.values() if one.maybe is not None and one.maybe <= self._decisions}
        there = dict(self._db.among("SELECT number, token FROM decisions WHERE number IN", sorted(used)))
        ids: dict[Any, str | None] = {token: f"{number}-{token}" for token, number in known.items()}
        for token, one in new.items():
            if one.maybe in used and one.maybe not in there:
                ids[token] = None
            elif one.maybe in used and there[one.maybe] == token:
                ids[token] = f"{one.maybe}-{token}"
        made = [one for token, one in new.items() if token not in ids]
        ids |= zip([one.token for one in made], self.decide(made, now, horizon), strict=True)
        rows = [(token, int(id.partition("-")[0])) for token in new if (id := ids[token]) and not id.startswith("0-")]
        self._db.insert("tickets", rows)
        # of one that was sent twice, the first is new
        told = [(one.token, ids[one.token]) for one in choices]
        return [(id, id is not None and new.pop(token, None) is not None) for token, id in told]

    def reward(self, rewards: Sequence[tuple[str, float]], now: float, wait: float | None) -> list[Status]:
        """Write rewards down, the first one of each decision."""
        numbers = [_number(id, self._decisions) for id, _ in rewards]
        query = "SELECT number, token, rewarded, at, chosen, bandit, probability FROM decisions WHERE number IN"
        known = {row[0]: row[1:] for row in self._db.among(query, sorted({n for n in numbers if n is not None}))}
        statuses: list[Status] = []
        taken: dict[int, tuple[float, int | None, float | None]] = {}
        for (id, value), number in zip(rewards, numbers, strict=True):
            row = None if number is None else known.get(number)
            if number is None or row is None:
                statuses.append("unknown" if number is None else "closed")
                continue
            token, rewarded, at, chosen, bandit, probability = row
            if not secrets.compare_digest(token.encode(), id.partition("-")[2].encode("utf-8", "surrogatepass")):
                statuses.append("unknown")
            elif rewarded or number in taken:
                statuses.append("duplicate")
            elif wait is not None and now >= at + wait:
                statuses.append("late")
            else:
                taken[number] = value, None if bandit is None else int(bandit == chosen), probability
                statuses.append("accepted")
        self._take(taken)
        return statuses

    def _take(self, taken: Mapping[int, tuple[float, int | None, float | None]]) -> None:
        """Close decisions, and let their rewards wait for the learner."""
        rows = []
        for number, (value, agreed, probability) in taken.items():
            self._rewards += 1
            rows.append((self._rewards, number, self._decisions, value, agreed, probability))
        list(self._db.among("UPDATE decisions SET rewarded = 1 WHERE number IN", list(taken)))
        self._db.insert("rewards", rows)

    # ------------------------------------------------------------------------------------------------ learner

    def lead(self, holder: str, now: float, seconds: float) -> bool:
        """Become the learner, or go on being it; False where another one is."""
        with self.writing():
            row = self._db.execute("SELECT holder, until FROM lease WHERE one = 1").fetchone()
            # a lease far in the future is of a clock that was wrong
            if row is not None and row[0] != holder and now < row[1] < now + 100 * seconds:
                return False
            self._db.execute(
                "INSERT INTO lease VALUES (1, ?, ?) "
                "ON CONFLICT (one) DO UPDATE SET holder = excluded.holder, until = excluded.until",
                holder,
                now + seconds,
            )
            return True

    def resign(self, holder: str) -> None:
        """Let another one lead at once."""
        with self.writing():
            self._db.execute("DELETE FROM lease WHERE holder = ?", holder)

    @contextmanager
    def leading(self, holder: str, now: float, seconds: float, connection: Any = None) -> Iterator[None]:
        """A write transaction of the learner, as by :meth:`writing`, which prolongs its lease.

        Raises
        ------
        LeaseLost
            If it is the learner no more; nothing is written.
        """
        with self.writing(connection):
            done = self._db.execute("UPDATE lease SET until = ? WHERE holder = ?", now + seconds, holder)
            if done.rowcount != 1:
                raise LeaseLost("another learner has the lease: this one stops")
            yield

    def order_by_time(self) -> None:
        """Make :meth:`default` quick. Each reward then writes a page of this index, too, so only where it is asked."""
        with self.writing():
            self._db.execute("CREATE INDEX IF NOT EXISTS waiting ON decisions (at) WHERE rewarded = 0")

    def default(self, before: float, value: float, most: int) -> int:
        """Give the default to decisions made before a time that have no reward; how many."""
        query = (
            "SELECT number, chosen, bandit, probability FROM decisions WHERE rewarded = 0 AND at < ? "
            "ORDER BY at, number LIMIT ?"
        )
        rows = self._db.execute(query, before, most).fetchall()
        self._take({n: (value, None if bandit is None else int(bandit == k), p) for n, k, bandit, p in rows})
        return len(rows)

    def decisions(self, after: int, most: int) -> list[tuple[int, Choice]]:
        """The decisions that follow a number, in order."""
        query = (
            "SELECT number, chosen, probability, arm, person FROM decisions WHERE number > ? ORDER BY number LIMIT ?"
        )
        rows = self._db.execute(query, after, most).fetchall()
        return [(n, Choice(k, p, np.frombuffer(arm, "<f8").astype(np.float64), who)) for n, k, p, arm, who in rows]

    def rewards(self, most: int) -> list[Event]:
        """The rewards that wait, in the order in which they came."""
        query = "SELECT number, decision, after, reward, agreed, probability FROM rewards ORDER BY number LIMIT ?"
        return [Event(*row) for row in self._db.execute(query, most).fetchall()]

    def taken(self, events: Sequence[Event], part: int | None) -> None:
        """Delete rewards that the policy has; with ``part``, add them to the owner's curves, in parts of so many."""
        self._db.execute("DELETE FROM rewards WHERE number <= ?", events[-1].number)
        if part is None:
            return
        means: dict[int, Array] = {}
        apprentice: dict[int, Array] = {}
        for event in events:
            number = (event.decision - 1) // part
            means[number] = means.get(number, 0) + np.array([1.0, event.reward])
            if (added := sums(event)) is not None:
                apprentice[number] = apprentice.get(number, 0) + np.array(added)
        self._add("curve", ("rewards", "total"), means)
        self._add("apprentice", SUMS, apprentice)

    def _add(self, table: str, names: Sequence[str], parts: Mapping[int, Array]) -> None:
        """Add to the sums of parts of the run."""
        more = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in names)
        rows = [(number, *added.tolist()) for number, added in parts.items()]
        self._db.insert(table, rows, f" ON CONFLICT (part) DO UPDATE SET {more}")

    def publish(self, number: int, now: float, decisions: int, released: str, shown: str) -> None:
        """Let workers choose by a release.

        Raises
        ------
        ValueError
            If there is another one of this number.
        """
        known = self._one("SELECT released FROM releases WHERE number = ?", number)
        if known is not None and _drawn(known) != _drawn(released):
            raise ValueError(f"release {number} must be made once, got a second one: is the checkpoint of this run?")
        self._db.execute(
            "INSERT INTO releases VALUES (?, ?, ?, ?, ?) ON CONFLICT (number) DO NOTHING",
            number,
            now,
            decisions,
            released,
            shown,
        )
        self._released = max(self._released, number)

    def note(self, name: str, value: Any) -> None:
        """Write down a public fact."""
        self._db.execute(
            "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            name,
            json.dumps(value),
        )

    def forget(self, upto: int, expired: int, most: int) -> bool:
        """Erase what the policy has for good: arms and persons up to a number, and all of what is closed or expired.

        At most so many of each; returns whether more may be left. Workers wait for a transaction to end, and one that
        erases a hundred thousand rows takes a second.
        """
        first = int(self.fact("forgotten") or 0)
        last = max(first, min(upto, first + most))
        self._db.execute("UPDATE decisions SET arm = NULL, person = NULL WHERE number > ? AND number <= ?", first, last)
        closed = "SELECT number FROM decisions WHERE rewarded = 1 AND number <= ? ORDER BY number LIMIT ?"
        old = "SELECT number FROM decisions WHERE number <= ? ORDER BY number LIMIT ?"
        left = last < upto
        for numbers, end in ((closed, last), (old, min(last, expired))):
            left |= self._db.execute(f"DELETE FROM decisions WHERE number IN ({numbers})", end, most).rowcount == most
        self.note("forgotten", last)
        return left


def _number(id: str, last: int) -> int | None:
    """The decision that an id names, 0 beyond the horizon; None for none that was made here."""
    head = id.partition("-")[0]
    return int(head) if head.isascii() and head.isdigit() and len(head) < 19 and int(head) <= last else None


def _drawn(released: str) -> tuple[Any, ...]:
    """What of a release came from noise, and of which run; labels in it may change when a run is loaded."""
    tree = json.loads(released)
    return tree["run"], tree["number"], tree["public"]

"""What workers and learner write to the database, and the argument why nothing is lost or counted twice.

Tables: ``counts`` (one row: decisions and rewards so far, the newest release, the digest after the last decision, and
who was told that this history is the run's), ``decisions`` (numbered 1, 2, …
without gaps), ``rewards`` that the learner has not taken in, ``releases``, the learner's ``lease``, ``tickets`` that
were activated, ``visits`` of an experiment's persons, ``events`` (:mod:`dpbandits.serve.events`), ``facts`` by their
names, and ``curve`` and ``apprentice``, sums of raw rewards where the owner asked for them.

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
* *A database that went back* gives numbers again that others have. No id of theirs fits these rounds, the learner does
  not go on from such a history (:mod:`dpbandits.serve.lineage`), and no worker writes before the learner has said,
  since the worker connected, that it does: it counts itself in (:meth:`Store.knock`), and waits until the learner has
  seen that (:meth:`Store.confirm`). What a database remembers of earlier confirmations is never enough, as it is older
  than the knock.
* *One clock*: rounds are dated by the database's.
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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from accounting.arrays import Array
from dpbandits.serve.apprentice import SUMS, report, sums
from dpbandits.serve.database import Mismatch, Postgres, opened
from dpbandits.serve.lineage import Ids, begun, linked
from dpbandits.serve.tables import NONE, check_format

__all__ = ["Choice", "Event", "LeaseLost", "Status", "Store", "WentBack"]

Status = Literal["accepted", "duplicate", "defaulted", "closed", "late", "unknown"]

# a reward, or those of a slate by position
Told = float | tuple[float, ...]

# what ``rewarded`` says of a decision
_OPEN, _REWARDED, _DEFAULTED = 0, 1, 2
_COUNTS = "decisions, rewards, released, digest, incarnation, knocks, confirmed"


class WentBack(OSError):
    """The database holds less than this process has seen of it."""


class LeaseLost(RuntimeError):
    """Another learner has taken over."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision as it is written down: which arm, with which probability, what it is learned from, and whose it is.

    Of a slate ``arm`` has a row for each position, and ``chosen`` and ``probability`` are of the first one.
    ``bandit`` is what the bandit would have chosen in an apprentice's place; ``token`` that of a ticket, and ``maybe``
    the number by which it may be written down already. ``visit`` is a hash of the person, where each has one
    decision.
    """

    chosen: int
    probability: float | None
    arm: Array
    person: str | None = None
    bandit: int | None = None
    token: str | None = None
    maybe: int | None = None
    visit: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A reward that waits for the learner: of which decision, and after how many decisions it came.

    Of a slate ``positions`` are those that were seen, and ``reward`` is their sum; without them it is the default.
    Of an apprentice: whether the bandit would have chosen the same, and with which probability the old rule did.
    """

    number: int
    decision: int
    after: int
    reward: float
    agreed: int | None = None
    probability: float | None = None
    positions: bytes | None = None

    @property
    def by_position(self) -> list[float]:
        """The rewards of the positions that were seen, from the top."""
        found: list[float] = np.frombuffer(self.positions or b"", "<f8").tolist()
        return found


class Store:
    """The database, as one process sees it, a worker or the learner; used by one thread.

    Parameters
    ----------
    where : Path or str
        An SQLite file, or the address of a PostgreSQL database, in which :func:`dpbandits.serve.operate.init` has made
        the tables.
    clock : callable, optional
        Seconds since 1970, in place of the database's own.

    Attributes
    ----------
    database : Database

    Raises
    ------
    dpbandits.serve.database.Unavailable
        From everything, where the database does not answer.
    Mismatch
        If there is no service, or one of another format.
    """

    def __init__(self, where: Path | str, *, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        try:
            self.database = opened(where)
        except FileNotFoundError as error:
            raise Mismatch(f"storage.database: {error}{NONE}") from None
        # as they stand in the transaction of ``writing``
        self._decisions = self._rewards = self._released = 0
        self._digest = self.incarnation = ""
        # how many decisions the last one that was committed has found or left, and the digest after them
        self._seen = 0, ""
        # this connection's place among those that ask for confirmation, and whether it has it; see ``knock``
        self._knock, self.confirmed = 0, False
        self.now = self.skew = 0.0
        self._ids: Ids | None = None
        try:
            check_format(self.database, where)
        except BaseException:
            self.database.close()
            raise

    def close(self) -> None:
        """Let go of the database."""
        self.database.close()

    @contextmanager
    def writing(self, connection: Any = None) -> Iterator[None]:
        """One write transaction: all of it is durable at its end, or nothing.

        Or a part of the transaction of ``connection``, to the same PostgreSQL database.
        """
        if connection is None:
            context = self.database.writing()
        else:
            context = self.database.joined(connection) if isinstance(self.database, Postgres) else nullcontext()
        with context:
            asked = f"SELECT {_COUNTS}, {self.database.clock} FROM counts{self.database.lock}"
            *found, now = self.database.execute(asked).fetchone()
            self._decisions, self._rewards, self._released, self._digest, incarnation, _, confirmed = found
            self._dated(now)
            seen, digest = self._seen
            if self._decisions < seen or (self._decisions == seen and self._digest != digest and digest):
                raise WentBack("the database does not hold what this process has seen of it")
            if incarnation != self.incarnation:
                self.incarnation, self._ids = incarnation, None
            self.confirmed = 0 < self._knock <= confirmed
            yield
            after = self._decisions, self._rewards, self._released, self._digest
            if after != tuple(found[:4]):
                self.database.execute("UPDATE counts SET decisions = ?, rewards = ?, released = ?, digest = ?", *after)
        if connection is None:
            self._seen = self._decisions, self._digest

    def _dated(self, now: float) -> None:
        """Take the database's time, or the one in its place, and how far this process's clock is ahead of it."""
        self.skew = 0.0 if self._clock is not None else time.time() - now
        self.now = now if self._clock is None else self._clock()

    def time(self) -> float:
        """Seconds since 1970, by the one clock that counts."""
        self._dated(self._one(f"SELECT {self.database.clock}"))
        return self.now

    @property
    def ids(self) -> Ids:
        """The ids of this database's rounds."""
        if self._ids is None:
            self._ids = Ids(str(self.fact("key")), self.fact("incarnations"))
        return self._ids

    # ---------------------------------------------------------------------------------------------- lineage

    def knock(self) -> None:
        """Ask the learner to confirm that this history is the run's, from now on."""
        with self.writing():
            self._knock = int(self._one("UPDATE counts SET knocks = knocks + 1 RETURNING knocks"))
            self.confirmed = False

    def is_confirmed(self) -> bool:
        """Whether the learner has answered this connection's knock."""
        self.confirmed = 0 < self._knock <= int(self._one("SELECT confirmed FROM counts"))
        return self.confirmed

    def confirm(self) -> None:
        """Tell all who have knocked that this history is the run's; inside :meth:`leading`."""
        self.database.execute("UPDATE counts SET confirmed = knocks")

    def chain(self) -> tuple[int, str, str, bool]:
        """How many decisions, the digest after the last, the incarnation, and whether somebody has knocked."""
        n, digest, incarnation, knocks, confirmed = self.database.execute(
            "SELECT decisions, digest, incarnation, knocks, confirmed FROM counts"
        ).fetchone()
        return n, digest, incarnation, knocks > confirmed

    def renew(self, decisions: int, kept: int) -> tuple[str, str]:
        """Begin a new incarnation after so many decisions, without those after ``kept``; it, and its digest.

        For a database that went back: decisions after ``kept`` may be other ones than those that were learned from.
        """
        with self.writing():
            incarnation = secrets.token_hex(16)
            self._digest = begun(incarnation, self._digest)
            self._decisions = decisions
            self.database.execute("UPDATE counts SET incarnation = ?, confirmed = 0", incarnation)
            self.database.execute("DELETE FROM lease")
            self.database.execute("DELETE FROM decisions WHERE number > ?", kept)
            self.database.execute("DELETE FROM rewards WHERE decision > ?", kept)
            self.database.execute("UPDATE rewards SET after = ? WHERE after > ?", decisions, decisions)
            self.database.execute("DELETE FROM tickets WHERE number > ?", kept)
            rows = self.database.execute("SELECT person, id FROM visits").fetchall()
            gone = [person for person, id in rows if int(id.partition("-")[0]) > kept]
            list(self.database.among("DELETE FROM visits WHERE person IN", gone))
            self.database.execute("DELETE FROM events WHERE number > ? OR number = 0", kept)
            later = [one for one in self.fact("incarnations") if one["after"] < decisions]
            self.note("incarnations", [*later, {"id": incarnation, "after": decisions}])
            # where the learner went back behind the database, numbers are given again that it had erased up to
            self.note("forgotten", min(int(self.fact("forgotten") or 0), decisions))
            return incarnation, self._digest

    def _one(self, query: str, *values: Any) -> Any:
        found = self.database.execute(query, *values).fetchone()
        return None if found is None else found[0]

    @property
    def last_release(self) -> int:
        """The number of the newest release, as the last write transaction found it."""
        return self._released

    # ------------------------------------------------------------------------------- workers, inside ``writing``

    def over(self, horizon: int | None) -> bool:
        """Whether no decision counts any more."""
        return horizon is not None and self._decisions >= horizon

    def decide(self, choices: Sequence[Choice], now: float, horizon: int | None) -> list[str]:
        """Write decisions down, and return their ids; beyond the horizon nothing is learned, and nothing is kept."""
        ids, rows = [], []
        for one in choices:
            token = one.token or secrets.token_hex(8)
            if self.over(horizon):
                ids.append(self.ids.made(0, token))
                continue
            self._decisions += 1
            ids.append(self.ids.made(self._decisions, token))
            self._digest = linked(self._digest, self._decisions, token)
            arm = np.ascontiguousarray(one.arm, "<f8").tobytes()
            told = one.chosen, one.probability, one.bandit, arm, one.person
            rows.append((self._decisions, token, now, *told, self._digest))
        self.database.insert("decisions (number, token, at, chosen, probability, bandit, arm, person, digest)", rows)
        return ids

    def visit(self, choices: Sequence[Choice], now: float, horizon: int | None) -> list[tuple[str, int, bool]]:
        """As :meth:`decide`, but whoever has come before is given the decision of the first time.

        Of each the id, the arm, and whether it was made now.
        """
        keys = sorted({str(one.visit) for one in choices})
        rows = self.database.among("SELECT person, id, chosen FROM visits WHERE person IN", keys)
        known = {person: (id, chosen) for person, id, chosen in rows}
        new: dict[str, Choice] = {}
        for one in choices:
            if one.visit not in known:
                new.setdefault(str(one.visit), one)
        ids = self.decide(list(new.values()), now, horizon)
        known |= {key: (id, one.chosen) for (key, one), id in zip(new.items(), ids, strict=True)}
        kept = [(key, *known[key]) for key in new if not known[key][0].startswith("0-")]
        self.database.insert("visits", kept)
        # of a person who is there twice, the first one is new
        return [(*known[str(one.visit)], new.pop(str(one.visit), None) is not None) for one in choices]

    def end(self, reason: str, after: int | None = None) -> dict[str, Any]:
        """Let no decision count after a number, by default that of the last one; if that is not settled already."""
        if (ended := self.fact("ended")) is None:
            ended = {"after": self._decisions if after is None else after, "reason": reason}
            self.note("ended", ended)
        return dict(ended)

    def activate(self, choices: Sequence[Choice], now: float, horizon: int | None) -> list[tuple[str | None, bool]]:
        """Ids of decisions that were made before, by their tokens, and whether they are new here.

        One that may be there already as number ``maybe`` is, if that has its token; the commit that was on its way has
        ended, as this one waited for it. Where the number is used and its row is erased nobody can tell: then the id is
        None, and nothing is written.
        """
        known = dict(
            self.database.among("SELECT token, number FROM tickets WHERE token IN", [one.token for one in choices])
        )
        new = {one.token: one for one in choices if one.token not in known}
        used = {one.maybe for one in new.values() if one.maybe is not None and one.maybe <= self._decisions}
        there = dict(self.database.among("SELECT number, token FROM decisions WHERE number IN", sorted(used)))
        ids: dict[Any, str | None] = {token: self.ids.made(number, token) for token, number in known.items()}
        for token, one in new.items():
            if one.maybe in used and one.maybe not in there:
                ids[token] = None
            elif one.maybe in used and there[one.maybe] == token:
                ids[token] = self.ids.made(int(one.maybe or 0), str(token))
        made = [one for token, one in new.items() if token not in ids]
        ids |= zip([one.token for one in made], self.decide(made, now, horizon), strict=True)
        rows = [(token, int(id.partition("-")[0])) for token in new if (id := ids[token]) and not id.startswith("0-")]
        self.database.insert("tickets", rows)
        # of one that was sent twice, the first is new
        told = [(one.token, ids[one.token]) for one in choices]
        return [(id, id is not None and new.pop(token, None) is not None) for token, id in told]

    def reward(self, rewards: Sequence[tuple[str, Told]], now: float, wait: float | None) -> list[Status]:
        """Write rewards down, the first one of each decision."""
        # what is none of our ids is answered alike, and is never looked up
        found = [self.ids.read(id) for id, _ in rewards]
        query = "SELECT number, token, rewarded, at, chosen, bandit, probability FROM decisions WHERE number IN"
        known = {row[0]: row[1:] for row in self.database.among(query, sorted({one.number for one in found if one}))}
        statuses: list[Status] = []
        taken: dict[int, tuple[Told, int | None, float | None]] = {}
        for (_, value), one in zip(rewards, found, strict=True):
            if one is None:
                statuses.append("unknown")
                continue
            number = one.number
            if (row := known.get(number)) is None:
                statuses.append("closed" if one.proven else "unknown")
                continue
            token, rewarded, at, chosen, bandit, probability = row
            if not secrets.compare_digest(token.encode(), one.nonce.encode()):
                statuses.append("unknown")
            elif rewarded == _DEFAULTED:
                statuses.append("defaulted")
            elif rewarded or number in taken:
                statuses.append("duplicate")
            elif wait is not None and now >= at + wait:
                statuses.append("late")
            else:
                taken[number] = value, None if bandit is None else int(bandit == chosen), probability
                statuses.append("accepted")
        self._take(taken, _REWARDED)
        return statuses

    def _take(self, taken: Mapping[int, tuple[Told, int | None, float | None]], rewarded: int) -> None:
        """Close decisions, and let their rewards wait for the learner."""
        rows = []
        for number, (value, agreed, probability) in taken.items():
            self._rewards += 1
            reward, positions = (
                (sum(value), np.array(value, "<f8").tobytes()) if isinstance(value, tuple) else (value, None)
            )
            rows.append((self._rewards, number, self._decisions, reward, agreed, probability, positions))
        list(self.database.among(f"UPDATE decisions SET rewarded = {rewarded} WHERE number IN", list(taken)))
        self.database.insert("rewards (number, decision, after, reward, agreed, probability, positions)", rows)

    # ------------------------------------------------------------------------------------------------ learner

    def lead(self, holder: str, now: float, seconds: float) -> bool:
        """Become the learner, or go on being it; False where another one is."""
        with self.writing():
            row = self.database.execute("SELECT holder, until FROM lease WHERE one = 1").fetchone()
            # a lease far in the future is of a clock that was wrong
            if row is not None and row[0] != holder and now < row[1] < now + 100 * seconds:
                return False
            later = " ON CONFLICT (one) DO UPDATE SET holder = excluded.holder, until = excluded.until"
            self.database.insert("lease", [(1, holder, now + seconds)], later)
            return True

    def led(self, now: float) -> bool:
        """Whether there is a learner whose lease has not run out."""
        until = self._one("SELECT until FROM lease WHERE one = 1")
        return until is not None and until > now

    def resign(self, holder: str) -> None:
        """Let another one lead at once."""
        with self.writing():
            self.database.execute("DELETE FROM lease WHERE holder = ?", holder)

    @contextmanager
    def leading(self, holder: str, now: float, seconds: float, connection: Any = None) -> Iterator[None]:
        """A write transaction of the learner, as by :meth:`writing`, which prolongs its lease.

        Raises
        ------
        LeaseLost
            If it is the learner no more; nothing is written.
        """
        with self.writing(connection):
            done = self.database.execute("UPDATE lease SET until = ? WHERE holder = ?", now + seconds, holder)
            if done.rowcount != 1:
                raise LeaseLost("another learner has the lease: this one stops")
            yield

    def order_by_time(self) -> None:
        """Make :meth:`default` quick. Each reward then writes a page of this index, too, so only where it is asked."""
        with self.writing():
            self.database.execute("CREATE INDEX IF NOT EXISTS waiting ON decisions (at) WHERE rewarded = 0")

    def default(self, before: float, value: float, most: int) -> int:
        """Give the default to decisions made before a time that have no reward; how many."""
        query = (
            "SELECT number, chosen, bandit, probability FROM decisions WHERE rewarded = 0 AND at < ? "
            "ORDER BY at, number LIMIT ?"
        )
        rows = self.database.execute(query, before, most).fetchall()
        taken = {n: (value, None if bandit is None else int(bandit == k), p) for n, k, bandit, p in rows}
        self._take(taken, _DEFAULTED)
        return len(rows)

    def decisions(self, after: int, most: int) -> list[tuple[int, Choice, str]]:
        """The decisions that follow a number, in order, each with the digest after it."""
        names = "number, chosen, probability, arm, person, token, digest"
        query = f"SELECT {names} FROM decisions WHERE number > ? ORDER BY number LIMIT ?"
        rows = self.database.execute(query, after, most).fetchall()
        return [
            (n, Choice(k, p, np.frombuffer(arm or b"", "<f8").astype(np.float64), who, token=token), digest or "")
            for n, k, p, arm, who, token, digest in rows
        ]

    def next_link(self, after: int) -> list[tuple[int, str, str]]:
        """The decision that follows a number, its nonce and the digest after it; none after the end of a run."""
        if (ended := self.fact("ended")) is not None and after >= ended["after"]:
            return []
        query = "SELECT number, token, digest FROM decisions WHERE number > ? ORDER BY number LIMIT 1"
        return [(n, token, digest or "") for n, token, digest in self.database.execute(query, after).fetchall()]

    def erased_after(self, number: int) -> bool:
        """Whether decisions after a number were learned from and erased: then they are missing again."""
        return int(self.fact("forgotten") or 0) > number

    def rewards(self, most: int) -> list[Event]:
        """The rewards that wait, in the order in which they came."""
        names = "number, decision, after, reward, agreed, probability, positions"
        query = f"SELECT {names} FROM rewards ORDER BY number LIMIT ?"
        return [Event(*row) for row in self.database.execute(query, most).fetchall()]

    def taken(self, events: Sequence[Event], part: int | None) -> None:
        """Delete rewards that the policy has; with ``part``, add them to the owner's curves, in parts of so many."""
        self.database.execute("DELETE FROM rewards WHERE number <= ?", events[-1].number)
        if part is None:
            return
        means: dict[int, Array] = {}
        apprentice: dict[int, Array] = {}
        for event in events:
            number = (event.decision - 1) // part
            means[number] = means.get(number, 0) + np.array([1.0, event.reward])
            if (added := sums(event.reward, event.agreed, event.probability)) is not None:
                apprentice[number] = apprentice.get(number, 0) + np.array(added)
        self._add("curve", ("rewards", "total"), means)
        self._add("apprentice", SUMS, apprentice)

    def _add(self, table: str, names: Sequence[str], parts: Mapping[int, Array]) -> None:
        """Add to the sums of parts of the run."""
        more = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in names)
        rows = [(number, *added.tolist()) for number, added in parts.items()]
        self.database.insert(table, rows, f" ON CONFLICT (part) DO UPDATE SET {more}")

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
        self.database.insert(
            "releases", [(number, now, decisions, released, shown)], " ON CONFLICT (number) DO NOTHING"
        )
        self._released = max(self._released, number)

    def note(self, name: str, value: Any) -> None:
        """Write down a public fact."""
        later = " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        self.database.insert("facts", [(name, json.dumps(value))], later)

    def forget(self, upto: int, expired: int, most: int) -> bool:
        """Erase what the policy has for good: arms and persons up to a number, and all of what is closed or expired.

        At most so many of each; returns whether more may be left. Workers wait for a transaction to end, and one that
        erases a hundred thousand rows takes a second.
        """
        first = int(self.fact("forgotten") or 0)
        last = max(first, min(upto, first + most))
        self.database.execute(
            "UPDATE decisions SET arm = NULL, person = NULL WHERE number > ? AND number <= ?", first, last
        )
        closed = "SELECT number FROM decisions WHERE rewarded > 0 AND number <= ? ORDER BY number LIMIT ?"
        old = "SELECT number FROM decisions WHERE number <= ? ORDER BY number LIMIT ?"
        left = last < upto
        for numbers, end in ((closed, last), (old, min(last, expired))):
            left |= (
                self.database.execute(f"DELETE FROM decisions WHERE number IN ({numbers})", end, most).rowcount == most
            )
        self.note("forgotten", last)
        return left

    def relink(self, after: int) -> str:
        """Begin the chain of digests after a decision; its first one. Inside ``writing``."""
        first = self._digest = begun(self.incarnation)
        rows = self.database.execute("SELECT number, token FROM decisions WHERE number > ? ORDER BY number", after)
        for number, token in rows.fetchall():
            self._digest = linked(self._digest, number, token)
            self.database.execute("UPDATE decisions SET digest = ? WHERE number = ?", self._digest, number)
        return first

    # ---------------------------------------------------------------------------------------------- what is read

    def counts(self) -> dict[str, int]:
        """For monitoring: decisions and releases so far."""
        decisions, released = self.database.execute("SELECT decisions, released FROM counts").fetchone()
        return {"decisions": decisions, "releases": max(released, 0)}

    def waiting(self) -> int:
        """How many rewards the learner has not taken in. Depends on rewards: for the owner alone."""
        return int(self._one("SELECT count(*) FROM rewards") or 0)

    def decided(self) -> int:
        """How many decisions there have been."""
        return int(self._one("SELECT decisions FROM counts"))

    def newest(self) -> int:
        """The number of the newest release, or −1."""
        return int(self._one("SELECT released FROM counts"))

    def released(self, number: int) -> str:
        """A release as JSON."""
        return str(self._one("SELECT released FROM releases WHERE number = ?", number))

    def history(self) -> list[dict[str, Any]]:
        """Of every release: its number, time, how many decisions went before it, and what the page shows of it."""
        rows = self.database.execute("SELECT number, at, decisions, shown FROM releases ORDER BY number")
        return [{"number": n, "at": at, "decisions": k, **json.loads(shown)} for n, at, k, shown in rows]

    def fact(self, name: str) -> Any:
        """What the learner has written down under a name."""
        found = self._one("SELECT value FROM facts WHERE name = ?", name)
        return None if found is None else json.loads(found)

    def curve(self) -> list[dict[str, Any]]:
        """Raw: means of rewards in parts of the run."""
        rows = self.database.execute("SELECT part, rewards, total FROM curve ORDER BY part")
        return [{"part": part, "rewards": int(n), "mean": total / n} for part, n, total in rows]

    def apprentice(self) -> list[dict[str, Any]]:
        """Raw: the report on an apprentice, in parts of the run, the last one of all of it (part −1)."""
        query = f"SELECT part, {', '.join(SUMS)} FROM apprentice ORDER BY part"
        rows = self.database.execute(query).fetchall()
        whole = [(-1, *np.sum([row[1:] for row in rows], axis=0).tolist())] if rows else []
        return [{"part": part, **report(total)} for part, *total in [*rows, *whole]]


def _drawn(released: str) -> tuple[Any, ...]:
    """What of a release came from noise, and of which run; labels in it may change when a run is loaded."""
    tree = json.loads(released)
    return tree["run"], tree["number"], tree["public"]

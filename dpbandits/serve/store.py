"""The database between workers and learner: one SQLite file, and the argument why nothing is lost or counted twice.

Tables: ``decisions`` (numbered 1, 2, … without gaps), ``rewards`` that the learner has not taken in, ``releases``, the
learner's ``lease``, and ``curve``, means of raw rewards where the owner asked for them.

Why a crash of anything at any time does no harm:

* *Numbers have no gaps.* A number is given inside a write transaction, of which SQLite runs one at a time, and is taken
  back if that does not commit. So decision n of this table is round n − 1 of the policy, and the policy's own count of
  decisions says where the learner stands: no second record of it exists that could disagree.
* *A reward is acknowledged after its commit*, which also closes its decision: a second one finds it closed.
* *The learner deletes rewards after the policy's journal, with them, was written through to the disk*. A crash in
  between lets it see a reward again; if the journal has it, the policy does not wait for that round any more, and it is
  skipped.
* *A decision's arm and person are erased after a release that covers it*: before a release the policy's journal, which
  holds both, is written through.
* *A release* is the policy's own transaction (checkpoint, ledger's mark, checkpoint in place); a crash after it and
  before the row in ``releases`` is made good at the next start, which publishes what the checkpoint holds. A release of
  a number that is here with other contents would be a second one, and is refused.
* *One learner*: the lease is politeness. What makes a second one impossible is the policy's hold on its checkpoint,
  and, for copies of it, the ledger's marks. A learner that lost its lease writes nothing here.

Rewards carry the number of the last decision before them, and the learner replays both in that order, so batches
hold what they would hold had one process served everybody.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dpbandits.policy import Array

if sys.platform != "win32":
    import fcntl

__all__ = ["Choice", "Event", "LeaseLost", "Status", "Store"]

Status = Literal["accepted", "duplicate", "closed", "late", "unknown"]

_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS decisions (
  number INTEGER PRIMARY KEY AUTOINCREMENT, token TEXT NOT NULL, at REAL NOT NULL, chosen INTEGER NOT NULL,
  probability REAL, arm BLOB, person TEXT, rewarded INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE INDEX IF NOT EXISTS waiting ON decisions (at) WHERE rewarded = 0;
CREATE INDEX IF NOT EXISTS served ON decisions (number) WHERE rewarded = 1;
CREATE TABLE IF NOT EXISTS rewards (
  number INTEGER PRIMARY KEY AUTOINCREMENT, decision INTEGER NOT NULL, after INTEGER NOT NULL, reward REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS releases (
  number INTEGER PRIMARY KEY, at REAL NOT NULL, decisions INTEGER NOT NULL, released TEXT NOT NULL, shown TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS lease (one INTEGER PRIMARY KEY, holder TEXT NOT NULL, until REAL NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS curve (part INTEGER PRIMARY KEY, rewards INTEGER NOT NULL, total REAL NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""


class LeaseLost(RuntimeError):
    """Another learner has taken over."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision as it is written down: which arm, with which probability, what it is learned from, and whose it is."""

    chosen: int
    probability: float | None
    arm: Array
    person: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A reward that waits for the learner: of which decision, and after how many decisions it came."""

    number: int
    decision: int
    after: int
    reward: float


class Store:
    """The file, as one process sees it; used by one thread.

    Parameters
    ----------
    path : Path
        Made, readable by its owner alone, if it is not there.
    timeout : float
        How many seconds to wait for other writers.
    """

    def __init__(self, path: Path, *, timeout: float = 10.0) -> None:
        self.path = path
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        self._queue = os.open(path.with_name(f"{path.name}-turn"), os.O_RDWR | os.O_CREAT, 0o600)
        self._db = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA secure_delete = ON")
        with self.writing():
            for statement in _SCHEMA.split(";\n"):
                self._db.execute(statement)
            self._db.execute("INSERT OR IGNORE INTO facts VALUES ('format', ?)", (str(_FORMAT),))
            found = self._one("SELECT value FROM facts WHERE name = 'format'")
            if found != str(_FORMAT):
                raise ValueError(f"storage.database must be of format {_FORMAT}, got format {found} in {path}")

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()
        os.close(self._queue)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One write transaction: all of it is durable at its end, or nothing."""
        with self._turn():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for other writers in a queue of the system: SQLite's own waiting sleeps, and looks again."""
        if sys.platform == "win32":
            yield
            return
        fcntl.flock(self._queue, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._queue, fcntl.LOCK_UN)

    def _one(self, query: str, *values: Any) -> Any:
        found = self._db.execute(query, values).fetchone()
        return None if found is None else found[0]

    # ------------------------------------------------------------------------------- workers, inside ``writing``

    def decided(self) -> int:
        """How many decisions there have been."""
        return int(self._one("SELECT seq FROM sqlite_sequence WHERE name = 'decisions'") or 0)

    def decide(self, choices: Sequence[Choice], now: float, horizon: int | None) -> list[str]:
        """Write decisions down, and return their ids; beyond the horizon nothing is learned, and nothing is kept."""
        first = self.decided() + 1
        ids, rows = [], []
        for number, one in enumerate(choices, first):
            token = secrets.token_hex(8)
            if horizon is not None and number > horizon:
                ids.append(f"0-{token}")
                continue
            ids.append(f"{number}-{token}")
            arm = np.ascontiguousarray(one.arm, "<f8").tobytes()
            rows.append((number, token, now, one.chosen, one.probability, arm, one.person))
        self._db.executemany(
            "INSERT INTO decisions (number, token, at, chosen, probability, arm, person) VALUES (?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        return ids

    def reward(self, rewards: Sequence[tuple[str, float]], now: float, wait: float | None) -> list[Status]:
        """Write rewards down, the first one of each decision."""
        last = self.decided()
        return [self._reward(id, value, now, wait, last) for id, value in rewards]

    def _reward(self, id: str, value: float, now: float, wait: float | None, last: int) -> Status:
        head, _, token = id.partition("-")
        if not (head.isascii() and head.isdigit() and len(head) < 19 and int(head) <= last):
            return "unknown"
        number = int(head)
        row = self._db.execute("SELECT token, rewarded, at FROM decisions WHERE number = ?", (number,)).fetchone()
        if row is None:
            return "closed"
        if not secrets.compare_digest(row[0].encode(), token.encode("utf-8", "surrogatepass")):
            return "unknown"
        if row[1]:
            return "duplicate"
        if wait is not None and now >= row[2] + wait:
            return "late"
        self._take(number, value, last)
        return "accepted"

    def _take(self, number: int, value: float, last: int) -> None:
        self._db.execute("UPDATE decisions SET rewarded = 1 WHERE number = ?", (number,))
        self._db.execute("INSERT INTO rewards (decision, after, reward) VALUES (?, ?, ?)", (number, last, value))

    # ------------------------------------------------------------------------------------------ what is public

    def newest(self) -> int:
        """The number of the newest release, or −1."""
        found = self._one("SELECT max(number) FROM releases")
        return -1 if found is None else int(found)

    def released(self, number: int) -> str:
        """A release as JSON."""
        return str(self._one("SELECT released FROM releases WHERE number = ?", number))

    def history(self) -> list[dict[str, Any]]:
        """Of every release: its number, time, how many decisions went before it, and what the page shows of it."""
        rows = self._db.execute("SELECT number, at, decisions, shown FROM releases ORDER BY number")
        return [{"number": n, "at": at, "decisions": k, **json.loads(shown)} for n, at, k, shown in rows]

    def fact(self, name: str) -> Any:
        """What the learner has written down under a name."""
        found = self._one("SELECT value FROM facts WHERE name = ?", name)
        return None if found is None else json.loads(found)

    def curve(self) -> list[dict[str, Any]]:
        """Raw: means of rewards in parts of the run."""
        rows = self._db.execute("SELECT part, rewards, total FROM curve ORDER BY part")
        return [{"part": part, "rewards": n, "mean": total / n} for part, n, total in rows]

    # ------------------------------------------------------------------------------------------------ learner

    def lead(self, holder: str, now: float, seconds: float) -> bool:
        """Become the learner, or go on being it; False where another one is."""
        with self.writing():
            row = self._db.execute("SELECT holder, until FROM lease WHERE one = 1").fetchone()
            # a lease far in the future is of a clock that was wrong
            if row is not None and row[0] != holder and now < row[1] < now + 100 * seconds:
                return False
            self._db.execute("INSERT OR REPLACE INTO lease VALUES (1, ?, ?)", (holder, now + seconds))
            return True

    def resign(self, holder: str) -> None:
        """Let another one lead at once."""
        with self.writing():
            self._db.execute("DELETE FROM lease WHERE holder = ?", (holder,))

    @contextmanager
    def leading(self, holder: str, now: float, seconds: float) -> Iterator[None]:
        """A write transaction of the learner, which prolongs its lease.

        Raises
        ------
        LeaseLost
            If it is the learner no more; nothing is written.
        """
        with self.writing():
            done = self._db.execute("UPDATE lease SET until = ? WHERE holder = ?", (now + seconds, holder))
            if done.rowcount != 1:
                raise LeaseLost("another learner has the lease: this one stops")
            yield

    def default(self, before: float, value: float, most: int) -> int:
        """Give the default to decisions made before a time that have no reward; how many."""
        query = "SELECT number FROM decisions WHERE rewarded = 0 AND at < ? ORDER BY at, number LIMIT ?"
        found = self._db.execute(query, (before, most)).fetchall()
        last = self.decided()
        for (number,) in found:
            self._take(number, value, last)
        return len(found)

    def decisions(self, after: int, most: int) -> list[tuple[int, Choice]]:
        """The decisions that follow a number, in order."""
        query = (
            "SELECT number, chosen, probability, arm, person FROM decisions WHERE number > ? ORDER BY number LIMIT ?"
        )
        rows = self._db.execute(query, (after, most))
        return [(n, Choice(k, p, np.frombuffer(arm, "<f8").astype(np.float64), who)) for n, k, p, arm, who in rows]

    def rewards(self, most: int) -> list[Event]:
        """The rewards that wait, in the order in which they came."""
        query = "SELECT number, decision, after, reward FROM rewards ORDER BY number LIMIT ?"
        return [Event(*row) for row in self._db.execute(query, (most,))]

    def taken(self, events: Sequence[Event], part: int | None) -> None:
        """Delete rewards that the policy has; with ``part``, add them to the owner's curve, in parts of so many."""
        self._db.execute("DELETE FROM rewards WHERE number <= ?", (events[-1].number,))
        if part is None:
            return
        self._db.executemany(
            "INSERT INTO curve VALUES (?, 1, ?) ON CONFLICT (part) DO UPDATE SET rewards = rewards + 1, "
            "total = total + excluded.total",
            [((event.decision - 1) // part, event.reward) for event in events],
        )

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
            "INSERT OR IGNORE INTO releases VALUES (?, ?, ?, ?, ?)", (number, now, decisions, released, shown)
        )

    def note(self, name: str, value: Any) -> None:
        """Write down a public fact."""
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    def forget(self, upto: int, expired: int) -> None:
        """Erase what the policy has for good: arms and persons up to a number, and all of what is closed or expired."""
        first = int(self.fact("forgotten") or 0)
        self._db.execute(
            "UPDATE decisions SET arm = NULL, person = NULL WHERE number > ? AND number <= ?", (first, upto)
        )
        self._db.execute("DELETE FROM decisions WHERE rewarded = 1 AND number <= ?", (upto,))
        self._db.execute("DELETE FROM decisions WHERE number <= ?", (min(upto, expired),))
        self.note("forgotten", max(first, upto))

    def shrink(self) -> None:
        """Empty the write-ahead log, in which erased rows still stand; if readers are busy, the next time."""
        with self._turn():
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def counts(self) -> dict[str, int]:
        """For monitoring: decisions and releases so far."""
        return {"decisions": self.decided(), "releases": max(self.newest(), 0)}

    def waiting(self) -> int:
        """How many rewards the learner has not taken in. Depends on rewards: for the owner alone."""
        return int(self._one("SELECT count(*) FROM rewards") or 0)


def _drawn(released: str) -> tuple[Any, ...]:
    """What of a release came from noise, and of which run; labels in it may change when a run is loaded."""
    tree = json.loads(released)
    return tree["run"], tree["number"], tree["public"]

"""A service's tables: how they are made, one transaction that writes them, and what is read from them.

``counts`` (one row: decisions and rewards so far, and the newest release), ``decisions`` (numbered 1, 2, … without
gaps), ``rewards`` that the learner has not taken in, ``releases``, the learner's ``lease``, ``tickets`` that were
activated, ``facts`` by their names, and ``curve`` and ``apprentice``, sums of raw rewards where the owner asked for
them. Who writes what, and why nothing is lost or counted twice, is in :mod:`dpbandits.serve.store`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from dpbandits.serve.apprentice import SUMS, report
from dpbandits.serve.database import Postgres, opened

__all__ = ["Tables"]

_FORMAT = 2
_SCHEMA = """
CREATE TABLE IF NOT EXISTS counts (
  one {whole} PRIMARY KEY, decisions {whole} NOT NULL, rewards {whole} NOT NULL, released {whole} NOT NULL){end};
CREATE TABLE IF NOT EXISTS decisions (
  number {whole} PRIMARY KEY, token TEXT NOT NULL, at {real} NOT NULL, chosen {whole} NOT NULL, probability {real},
  bandit {whole}, arm {bytes}, person TEXT, rewarded {whole} NOT NULL DEFAULT 0){end};
CREATE INDEX IF NOT EXISTS served ON decisions (number) WHERE rewarded = 1;
CREATE TABLE IF NOT EXISTS rewards (
  number {whole} PRIMARY KEY, decision {whole} NOT NULL, after {whole} NOT NULL, reward {real} NOT NULL,
  agreed {whole}, probability {real}){end};
CREATE TABLE IF NOT EXISTS releases (
  number {whole} PRIMARY KEY, at {real} NOT NULL, decisions {whole} NOT NULL, released TEXT NOT NULL,
  shown TEXT NOT NULL){end};
CREATE TABLE IF NOT EXISTS lease (one {whole} PRIMARY KEY, holder TEXT NOT NULL, until {real} NOT NULL){end};
CREATE TABLE IF NOT EXISTS curve (part {whole} PRIMARY KEY, rewards {real} NOT NULL, total {real} NOT NULL){end};
CREATE TABLE IF NOT EXISTS apprentice (
  part {whole} PRIMARY KEY, rounds {real} NOT NULL, agreed {real} NOT NULL, reward {real} NOT NULL,
  known {real} NOT NULL, w {real} NOT NULL, ww {real} NOT NULL, wr {real} NOT NULL, wwr {real} NOT NULL,
  wwrr {real} NOT NULL){end};
CREATE TABLE IF NOT EXISTS tickets (token TEXT PRIMARY KEY, number {whole} NOT NULL){end};
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL){end}
"""


class Tables:
    """The database, as one process sees it; used by one thread.

    Parameters
    ----------
    where : Path or str
        An SQLite file, or the address of a PostgreSQL database. The tables are made if they are not there.
    timeout : float
        How many seconds to wait for other writers.

    Raises
    ------
    dpbandits.serve.database.Unavailable
        From everything, where the database does not answer.
    """

    def __init__(self, where: Path | str, *, timeout: float = 10.0) -> None:
        self.where = where
        self._db = opened(where, timeout)
        # as they stand in the transaction of ``writing``
        self._decisions = self._rewards = self._released = 0
        try:
            made = [one.format(**self._db.types) for one in _SCHEMA.split(";\n")]
            first = "INSERT INTO facts VALUES ('{}', '{}') ON CONFLICT (name) DO NOTHING"
            made += [first.format("format", _FORMAT), first.format("key", json.dumps(secrets.token_hex(32)))]
            made += ["INSERT INTO counts VALUES (1, 0, 0, -1) ON CONFLICT (one) DO NOTHING"]
            if self._missing():
                self._db.make(made)
            if (found := self.fact("format")) != _FORMAT:
                raise ValueError(f"storage.database must be of format {_FORMAT}, got format {found}: begin a new one")
        except BaseException:
            self._db.close()
            raise

    def _missing(self) -> bool:
        """Whether tables have to be made: the last thing that is made is looked for."""
        try:
            return self._one("SELECT one FROM counts") is None
        except OSError:
            return True

    def close(self) -> None:
        """Let go of the database."""
        self._db.close()

    @contextmanager
    def writing(self, connection: Any = None) -> Iterator[None]:
        """One write transaction: all of it is durable at its end, or nothing.

        Or a part of the transaction of ``connection``, to the same PostgreSQL database.
        """
        if connection is None:
            context = self._db.writing()
        else:
            context = self._db.joined(connection) if isinstance(self._db, Postgres) else nullcontext()
        with context:
            found = self._db.execute(f"SELECT decisions, rewards, released FROM counts{self._db.lock}").fetchone()
            self._decisions, self._rewards, self._released = found
            yield
            if (self._decisions, self._rewards, self._released) != tuple(found):
                self._db.execute(
                    "UPDATE counts SET decisions = ?, rewards = ?, released = ?",
                    self._decisions,
                    self._rewards,
                    self._released,
                )

    def _one(self, query: str, *values: Any) -> Any:
        found = self._db.execute(query, *values).fetchone()
        return None if found is None else found[0]

    @property
    def last_release(self) -> int:
        """The number of the newest release, as the last write transaction found it."""
        return self._released

    def clear(self) -> None:
        """Remove what erased rows have left, as far as the database can."""
        self._db.clear()

    def counts(self) -> dict[str, int]:
        """For monitoring: decisions and releases so far."""
        decisions, released = self._db.execute("SELECT decisions, released FROM counts").fetchone()
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
        rows = self._db.execute("SELECT number, at, decisions, shown FROM releases ORDER BY number")
        return [{"number": n, "at": at, "decisions": k, **json.loads(shown)} for n, at, k, shown in rows]

    def fact(self, name: str) -> Any:
        """What the learner has written down under a name."""
        found = self._one("SELECT value FROM facts WHERE name = ?", name)
        return None if found is None else json.loads(found)

    def curve(self) -> list[dict[str, Any]]:
        """Raw: means of rewards in parts of the run."""
        rows = self._db.execute("SELECT part, rewards, total FROM curve ORDER BY part")
        return [{"part": part, "rewards": int(n), "mean": total / n} for part, n, total in rows]

    def apprentice(self) -> list[dict[str, Any]]:
        """Raw: the report on an apprentice, in parts of the run, the last one of all of it (part −1)."""
        query = f"SELECT part, {', '.join(SUMS)} FROM apprentice ORDER BY part"
        rows = self._db.execute(query).fetchall()
        whole = [(-1, *np.sum([row[1:] for row in rows], axis=0).tolist())] if rows else []
        return [{"part": part, **report(total)} for part, *total in [*rows, *whole]]

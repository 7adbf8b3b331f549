"""Where a service's tables are, SQLite or PostgreSQL, and the little in which the two differ.

All statements are in :mod:`dpbandits.serve.store`, once, in words that both read: ``?`` for a value, ``ON CONFLICT``
for rows that are there already. What differs is how types are called, how a write transaction begins, what erased rows
leave behind, and how errors are named. A mapper of objects to tables would bring nothing to twenty statements, of which
the hot ones are written for their speed, so there is none.

In both, one write transaction runs at a time: numbers without gaps and the order of rewards rest on it. SQLite has
``BEGIN IMMEDIATE``, before which writers of one host wait in a queue of the system; in PostgreSQL a transaction locks
the one row of ``counts`` first.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from accounting.postgres import Place, connect, idle, place

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    import psycopg

__all__ = ["Database", "Mismatch", "Unavailable", "named", "opened"]

# seconds between two times that PostgreSQL is asked to clear away erased rows
_CLEARED = 30.0
# seconds to wait for other writers, or for a connection
_TIMEOUT = 10.0
# values in one statement: old SQLites take 999
_VALUES = 900


class Mismatch(ValueError):
    """The file does not fit what is on disk; the message holds parameters and paths, and no data."""


def named(where: Path | str, schema: str = "service") -> str:
    """A place for messages, without a password."""
    return place(where, schema=schema).name if isinstance(where, str) else str(where)


class Unavailable(OSError):
    """The database cannot be used now; what was being written is written whole, or not at all.

    ``missing`` where it can, and the table that was asked for is not there.
    """

    missing = False


class Database(ABC):
    """A connection, for one thread."""

    # how types are called, and what ends a table
    types: ClassVar[dict[str, str]]
    # seconds since 1970, as the database has them: the one clock by which rounds are dated
    clock: ClassVar[str]
    # after a SELECT of the row whose lock makes a transaction a writer
    lock: ClassVar[str] = ""

    @abstractmethod
    def execute(self, statement: str, *values: Any) -> Any:
        """A statement; a cursor with its rows."""

    def insert(self, into: str, rows: Sequence[Sequence[Any]], more: str = "") -> None:
        """Rows into a table; ``more`` ends the statement. Many in one, as each statement is a round trip elsewhere."""
        each = max(1, _VALUES // len(rows[0])) if rows else 1
        for start in range(0, len(rows), each):
            some = rows[start : start + each]
            groups = ", ".join([f"({', '.join('?' * len(some[0]))})"] * len(some))
            self.execute(f"INSERT INTO {into} VALUES {groups}{more}", *(value for row in some for value in row))

    def among(self, statement: str, values: Sequence[Any]) -> Iterator[Any]:
        """The rows of a statement that ends with IN, for all of some values."""
        for start in range(0, len(values), _VALUES):
            some = values[start : start + _VALUES]
            found = self.execute(f"{statement} ({', '.join('?' * len(some))})", *some)
            if found.description:
                yield from found.fetchall()

    @abstractmethod
    def writing(self) -> Any:
        """A context: all that is written in it is durable at its end, or nothing."""

    def make(self, statements: Sequence[str]) -> None:
        """Make what is not there yet."""
        with self.writing():
            for statement in statements:
                self.execute(statement)

    def columns(self, table: str) -> set[str]:
        """The names of a table's columns; none where it is missing."""
        try:
            found = self.execute(f"SELECT * FROM {table} LIMIT 0")
        except Unavailable as error:
            if error.missing:
                return set()
            raise
        return {str(one[0]) for one in found.description}

    @abstractmethod
    def clear(self) -> None:
        """Remove what erased rows have left, as far as the database can."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it."""


def opened(where: Path | str, *, create: bool = False) -> Database:
    """The database at a path, or at the address of a PostgreSQL server; a file is made only if that is asked for.

    Raises
    ------
    FileNotFoundError
    """
    if isinstance(where, str):
        return Postgres(place(where, schema="service"))
    if not create and not where.exists():
        raise FileNotFoundError(f"there is no database {where}")
    return Sqlite(where)


class Sqlite(Database):
    """A file, made if it is not there, and readable by its owner alone."""

    types: ClassVar = {"whole": "INTEGER", "real": "REAL", "bytes": "BLOB", "end": " STRICT"}
    clock = "(julianday('now') - 2440587.5) * 86400.0"

    def __init__(self, path: Path, timeout: float = _TIMEOUT) -> None:
        self._queue = os.open(path.with_name(f"{path.name}-turn"), os.O_RDWR | os.O_CREAT, 0o600)
        # One at a time: SQLite does not wait for the change into its log as it waits for other locks; and to
        # close a file that is already open as a database would drop the locks that this process has on it.
        with self._turn(), _named(sqlite3.Error):
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            self._db = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
            for setting in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
                self._db.execute(f"PRAGMA {setting}")

    def execute(self, statement: str, *values: Any) -> Any:
        with _named(sqlite3.Error):
            return self._db.execute(statement, values)

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._turn():
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._db.in_transaction:
                    self.execute("ROLLBACK")
                raise
            self.execute("COMMIT")

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

    def clear(self) -> None:
        # the write-ahead log, in which erased rows still stand; most of it beside other writers, who wait for
        # the rest. If readers are busy, the next time
        self.execute("PRAGMA wal_checkpoint(PASSIVE)")
        with self._turn():
            self.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        with self._turn():  # whoever is the last takes the log away
            self._db.close()
        os.close(self._queue)


class Postgres(Database):
    """A schema of its own on a server, made if it is not there."""

    types: ClassVar = {"whole": "BIGINT", "real": "DOUBLE PRECISION", "bytes": "BYTEA", "end": ""}
    clock = "extract(epoch FROM clock_timestamp())::float8"
    lock: ClassVar = " FOR UPDATE"

    def __init__(self, where: Place) -> None:
        import psycopg

        self.where = where
        self._error = psycopg.Error
        self._cleared = time.monotonic()
        try:
            self._db: psycopg.Connection[Any] = connect(where, wait=_TIMEOUT)
        except OSError as error:
            raise Unavailable(str(error)) from None

    def make(self, statements: Sequence[str]) -> None:
        # of several processes that start at the same time, one makes it, and the others wait here
        alone = "SELECT pg_advisory_xact_lock(hashtextextended('service', 0))"
        super().make([alone, f'CREATE SCHEMA IF NOT EXISTS "{self.where.schema}"', *statements])

    def execute(self, statement: str, *values: Any) -> Any:
        with _named(self._error):
            return self._db.execute(statement.replace("?", "%s").encode(), values)

    @contextmanager
    def writing(self) -> Iterator[None]:
        self.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        try:
            yield
            if self.execute("COMMIT").statusmessage != "COMMIT":
                raise Unavailable("the transaction was rolled back")
        finally:
            if not idle(self._db) and not self._db.closed:
                with _named(self._error):
                    self._db.rollback()

    @contextmanager
    def joined(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """Write in the transaction of another connection to the same server, which somebody else commits."""
        own, self._db = self._db, connection
        try:
            self.execute(f'SET LOCAL search_path = "{self.where.schema}"')
            yield
        finally:
            self._db = own

    def clear(self) -> None:
        # it does not overwrite what it removes, nor its log: the disk must be encrypted where that matters
        if time.monotonic() < self._cleared + _CLEARED:
            return
        self._cleared = time.monotonic()
        for table in ("decisions", "rewards", "events"):
            self.execute(f"VACUUM {table}")

    def close(self) -> None:
        self._db.close()


@contextmanager
def _named(*errors: type[Exception]) -> Iterator[None]:
    """A database's errors under one name, without their words, which may hold values."""
    try:
        yield
    except errors as error:
        unusable = Unavailable(f"the database could not be used ({type(error).__name__})")
        unusable.missing = type(error).__name__ == "UndefinedTable" or str(error).startswith("no such table")
        raise unusable from error

"""The file of a ledger: an SQLite database that holds nothing but the entries of a hash chain.

Two tables. ``entries(id, body, hash)``: body is the canonical JSON of entry ``id``, with the hash of the entry
before it. ``head(id, entries, hash)``: one row, the number of entries and the hash of the last, so that a removed
last entry shows. Rows are only ever added.

Durability. A reservation is one ``BEGIN IMMEDIATE`` transaction: the write lock is taken before the books are
brought up to date and the filter is asked, and it is held until the entry is on disk, so that two processes
never both spend what is left of a budget. The write-ahead log with ``synchronous=FULL`` makes that one sync per
reservation where a rollback journal needs three or four, and survives the loss of power as well; ``fullfsync``
asks the same of macOS. What it costs: until the last connection is closed, ``FILE-wal`` is a part of the ledger
and must be copied with it, and the file must lie on a local disk (the processes share memory).

Checkpoints copy the log back into the file while holding the write lock (never ``PASSIVE``), so not beside another
process's commit: SQLite before 3.51.3 can lose a commit that meets a checkpoint in the wrong microsecond.

Forks. A connection must not cross a fork, so all are closed before and opened again when they are next used.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from accounting.errors import LedgerCorrupted
from accounting.ledger.chain import START, link, verify
from accounting.ledger.entries import Entry, from_dict, to_dict

__all__ = ["LedgerFile"]

_SCHEMA = (
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE head (id INTEGER PRIMARY KEY, entries INTEGER NOT NULL, hash TEXT NOT NULL)",
)
_WAIT_SECONDS = 60.0
_COMMITS_PER_CHECKPOINT = 500
_LARGE_LOG = 16 * 2**20  # bytes
# What SQLite reports about the surroundings of a file rather than about its contents.
_SURROUNDINGS = {
    "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM", "SQLITE_PERM", "SQLITE_READONLY",
}  # fmt: skip


class LedgerFile:
    """One process's view of a ledger's file: how far it has read, and the connection that it reads by."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = 0
        self.head = START
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._commits = 0

    def create(self, opening: Entry) -> bool:
        """Make the file, complete with its opening, in one step; False if there is one already."""
        if self.path.exists():
            return False
        if _log(self.path).exists():
            raise LedgerCorrupted(
                f"{self.path} is missing but its log {_log(self.path).name} is not: the ledger was moved or lost"
            )
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        try:
            body, head = link(START, to_dict(opening))
            with self._translated(), closing(_connect(draft)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute("INSERT INTO entries VALUES (0, ?, ?)", (body, head))
                connection.execute("INSERT INTO head VALUES (0, 1, ?)", (head,))
                connection.execute("COMMIT")
            # a link, unlike a rename, never replaces a ledger that another process made in the meantime
            os.link(draft, self.path)
        except FileExistsError:
            return False
        finally:
            for name in (draft.name, f"{draft.name}-wal", f"{draft.name}-shm"):
                draft.with_name(name).unlink(missing_ok=True)
        _sync_directory(self.path.parent)
        return True

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the write lock: commit at the end, or leave the file as it was."""
        with self._translated():
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            with self._translated():
                connection.execute("COMMIT")
        except BaseException:
            if self._connection is connection and connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._commits += 1
        if self._commits % _COMMITS_PER_CHECKPOINT == 0:
            self._checkpoint(connection, "RESTART")

    def append(self, entry: Entry) -> tuple[int, str]:
        """Add an entry inside a transaction; the position to :meth:`advance` to once it is committed."""
        body, head = link(self.head, to_dict(entry))
        with self._translated():
            connection = self._open()
            connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (self.entries, body, head))
            connection.execute("UPDATE head SET entries = ?, hash = ? WHERE id = 0", (self.entries + 1, head))
        return self.entries + 1, head

    def advance(self, position: tuple[int, str]) -> None:
        """Count an entry as read: it is the caller's own."""
        self.entries, self.head = position

    def rewind(self) -> None:
        """Read everything again next time."""
        self.entries, self.head = 0, START

    def unread(self) -> list[tuple[str, Entry]]:
        """Verify and return the entries that were added since the last reading, each with its hash.

        Raises
        ------
        LedgerCorrupted
            Naming the entry at which the chain breaks.
        """
        with self._translated(), self._snapshot() as connection:
            count, head = self._read_head(connection)
            if (count, head) == (self.entries, self.head):
                return []
            rows = connection.execute("SELECT id, body, hash FROM entries WHERE id >= ? ORDER BY id", (self.entries,))
            stored = rows.fetchall()
        if count < self.entries:
            raise LedgerCorrupted(f"{self.path}: {self.entries} entries were there before and {count} are left")
        found: list[tuple[str, Entry]] = []
        for id, body, stated in stored:
            name = f"{self.path}: entry {self.entries}"
            if id != self.entries:
                raise LedgerCorrupted(f"{name} is missing")
            values = verify(self.head, body, stated, name)
            try:
                found.append((stated, from_dict(values)))
            except (KeyError, TypeError, ValueError) as error:
                raise LedgerCorrupted(f"{name} cannot be read: {error}") from None
            self.entries, self.head = self.entries + 1, stated
        if (count, head) != (self.entries, self.head):
            raise LedgerCorrupted(
                f"{self.path}: {self.entries} entries are there and its head counts {count}: "
                f"the last ones were removed, or others added, outside the ledger"
            )
        return found

    def disconnect(self) -> None:
        """Close the connection; the next use opens another."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def __del__(self) -> None:
        self.disconnect()

    def _open(self) -> sqlite3.Connection:
        """The connection, to the file that was there before: a deleted one would take spends to nowhere."""
        if self._connection is not None and self._connection.in_transaction:
            return self._connection
        try:
            status = self.path.stat()
        except FileNotFoundError:
            raise LedgerCorrupted(f"{self.path} was moved or deleted while it was open") from None
        identity = (status.st_dev, status.st_ino)
        if self._identity not in (None, identity):
            raise LedgerCorrupted(f"{self.path} was replaced by another file while it was open")
        if self._connection is None:
            if status.st_size == 0:
                raise LedgerCorrupted(f"{self.path} is empty, and a ledger never is")
            self._identity = identity
            connection = _connect(self.path)
            try:
                schema = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
                if tuple(sql for (sql,) in schema) != _SCHEMA:
                    raise LedgerCorrupted(f"{self.path} does not have the tables of a ledger")
                connection.execute("PRAGMA journal_mode=WAL")
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            # what killed processes left behind; small logs stay, so that readers do not wait for the write lock
            if _log(self.path).exists() and _log(self.path).stat().st_size > _LARGE_LOG:
                self._checkpoint(connection, "TRUNCATE")
        return self._connection

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """One state of the file for several readings."""
        connection = self._open()
        if connection.in_transaction:
            yield connection
            return
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            connection.execute("ROLLBACK")

    def _read_head(self, connection: sqlite3.Connection) -> tuple[int, str]:
        rows = connection.execute("SELECT id, entries, hash FROM head").fetchall()
        if len(rows) != 1 or rows[0][0] != 0 or not (isinstance(rows[0][1], int) and isinstance(rows[0][2], str)):
            raise LedgerCorrupted(f"{self.path}: its head was edited or damaged")
        return rows[0][1], rows[0][2]

    def _checkpoint(self, connection: sqlite3.Connection, mode: str) -> None:
        # it waits for others and may give up; the next one does the work then
        with suppress(sqlite3.OperationalError):
            connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """SQLite's errors as what they mean for a ledger."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorname", "")
            if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise TimeoutError(
                    f"{self.path} was locked by another process for {_WAIT_SECONDS:g} s; nothing was recorded"
                ) from error
            if "_".join(code.split("_")[:2]) in _SURROUNDINGS:
                raise OSError(f"{self.path} cannot be used: {error}") from error
            self.disconnect()
            raise LedgerCorrupted(f"{self.path} cannot be read as a ledger: {error}") from error


def _log(path: Path) -> Path:
    """The write-ahead log beside a file."""
    return path.with_name(path.name + "-wal")


def _connect(path: Path) -> sqlite3.Connection:
    # the caller's lock keeps threads apart; autocommit, so that the only transactions are the ones begun here
    connection = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False)
    for setting in ("synchronous=FULL", "fullfsync=ON", "wal_autocheckpoint=0"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _sync_directory(directory: Path) -> None:
    """Make a new name durable (elsewhere than on POSIX systems, directories cannot be synced)."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""The file of a ledger: an SQLite database with the tables of :mod:`accounting.ledger.stored`.

Durability. A reservation is one ``BEGIN IMMEDIATE`` transaction, held until the entry is on disk. The
write-ahead log with ``synchronous=FULL`` makes that one sync per reservation where a rollback journal needs
three or four, and survives the loss of power as well; ``fullfsync`` asks the same of macOS. What it costs: until the
last connection is closed, ``FILE-wal`` is a part of the ledger and must be copied with it (or use
``Ledger.backup``), and the file must lie on a local disk (the processes share memory).

One name. The log belongs to a name: processes that open one file by two hard links do not see each other's spends.
A file with more than one name is refused.

Checkpoints copy the log back into the file while holding the write lock (never ``PASSIVE``), so not beside another
process's commit: SQLite before 3.51.3 can lose a commit that meets a checkpoint in the wrong microsecond.

Interrupts. A transaction that an exception in a signal handler left open is found and rolled back by the next use. A
handler that spends in the middle of a reading ends its transaction, and the reading is done again.
"""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from accounting.drafts import remove, remove_drafts, sync_directory
from accounting.errors import LedgerCorrupted
from accounting.ledger.journal import Journal
from accounting.ledger.stored import Head, Rows, Stored, schema

__all__ = ["LedgerFile"]

_WAIT_SECONDS = 60.0
_COMMITS_PER_CHECKPOINT = 500
_LARGE_LOG = 16 * 2**20  # bytes
# What SQLite reports about the surroundings of a file rather than about its contents.
_SURROUNDINGS = {
    "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM", "SQLITE_PERM", "SQLITE_READONLY",
}  # fmt: skip


# a file system without hard links: exFAT, some mounts into containers
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_LONGEST_CLAIM = 30.0


def _place(draft: Path, path: Path) -> None:
    """Give the draft its name; a ``FileExistsError`` where another process has made one in the meantime."""
    try:
        os.link(draft, path)  # unlike a rename, it never replaces anything
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    # a folder, which only one process can make, is then the right to rename
    claim, begun = path.with_name(f".{path.name}.claim"), time.monotonic()
    while True:
        try:
            claim.mkdir()
            break
        except FileExistsError:
            if path.exists():
                raise
            if time.monotonic() - begun > _LONGEST_CLAIM:
                raise OSError(
                    errno.EBUSY, "another process stopped while it made this ledger: remove the folder", str(claim)
                ) from None
            time.sleep(0.01)
    try:
        if path.exists():
            raise FileExistsError(errno.EEXIST, "a ledger was made in the meantime", str(path))
        os.rename(draft, path)
    finally:
        claim.rmdir()


class LedgerFile(Stored):
    """A journal in a file: the connection that it is read and written by."""

    path: Path
    _connection: sqlite3.Connection | None = None
    _field = "json_extract(body, '$.{}')"
    _schema = schema(_field)

    def __init__(self, path: Path) -> None:
        # the log lies beside the file itself, not beside a symbolic link to it
        self.path = path.resolve() if path.is_symlink() else path.absolute()
        self.name = self.address = str(self.path)
        self._identity: tuple[int, int] | None = None
        self._commits = 0

    def exists(self) -> bool:
        """Whether there is a file."""
        return self.path.exists()

    def fill(self, rows: Rows, head: Head) -> bool:
        """Make the file of these rows, in one step; False if there is one already."""

        def write(draft: Path) -> None:
            with self._translated(), closing(_connect(draft)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("BEGIN IMMEDIATE")
                self._write_all(connection, rows, head)
                connection.execute("COMMIT")

        return _put_in_place(self.path, write)

    def _copied(self, target: Journal) -> bool:
        """To another file by SQLite's online backup, which is quicker."""
        if not isinstance(target, LedgerFile):
            return super()._copied(target)

        def write(draft: Path) -> None:
            with self._translated(), closing(_connect(draft)) as copy:
                self._at_rest().backup(copy)
                copy.execute("PRAGMA journal_mode=WAL").fetchall()

        return _put_in_place(target.path, write)

    def check(self) -> None:
        """SQLite's own check of pages and indices."""
        with self._translated():
            found = self._at_rest().execute("PRAGMA integrity_check(1)").fetchall()
        if found != [("ok",)]:
            raise LedgerCorrupted(f"{self.name}: {found[0][0]}")

    def disconnect(self) -> None:
        """Close the connection; the next use opens another."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def _at_rest(self) -> sqlite3.Connection:
        """The connection, in no transaction: one that an interrupt left open ends here, without a commit."""
        connection = self._open()
        if connection.in_transaction:
            self._refuse_inside()
            self._ended += 1
            connection.execute("ROLLBACK")
        return connection

    def _open(self) -> sqlite3.Connection:
        """The connection, to the file that was there before: a deleted one would take spends to nowhere."""
        if self._connection is not None and self._connection.in_transaction:
            return self._connection
        status = self._status()
        identity = (status.st_dev, status.st_ino)
        if self._identity not in (None, identity):
            raise LedgerCorrupted(f"{self.path} was replaced by another file while it was open")
        if self._connection is None:
            if status.st_size == 0:
                raise LedgerCorrupted(f"{self.path} is empty, and a ledger never is")
            self._identity = identity
            connection = _connect(self.path)
            try:
                found = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
                if tuple(sql for (sql,) in found) != self._schema:
                    raise LedgerCorrupted(f"{self.path} does not have the tables of a ledger")
                connection.execute("PRAGMA journal_mode=WAL")
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            remove_drafts(self.path)
            # what killed processes left behind; small logs stay, so that readers do not wait for the write lock
            if _log(self.path).exists() and _log(self.path).stat().st_size > _LARGE_LOG:
                self._checkpoint(connection, "TRUNCATE")
        return self._connection

    def _status(self) -> os.stat_result:
        """The file's own, once it has no other name than this."""
        for _ in range(3):
            try:
                status = self.path.stat()
            except FileNotFoundError:
                raise LedgerCorrupted(f"{self.path} was moved or deleted while it was open") from None
            if status.st_nlink <= 1:
                return status
            # whoever makes the file has a second name for it for a moment, or died meanwhile
            remove_drafts(self.path)
        raise ValueError(
            f"{self.path} has {status.st_nlink} names (hard links), and spends by one would not be seen by another: "
            f"keep one name, or copy it with Ledger.backup"
        )

    @contextmanager
    def _snapshot(self, inside: bool = False) -> Iterator[sqlite3.Connection]:
        """One state of the file for several readings; ``inside`` a transaction, what that one sees."""
        if inside:
            yield self._open()
            return
        connection = self._at_rest()
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _begin(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")

    def _commit(self, connection: sqlite3.Connection) -> None:
        connection.execute("COMMIT")
        self._commits += 1
        if self._commits % _COMMITS_PER_CHECKPOINT == 0:
            self._checkpoint(connection, "RESTART")

    def _leave(self, connection: sqlite3.Connection) -> None:
        if connection is self._connection and connection.in_transaction:
            connection.execute("ROLLBACK")

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
                way = "" if self.path.parent.is_dir() else f": there is no folder {self.path.parent}"
                raise OSError(f"{self.path} cannot be used: {error}{way}") from error
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


def _put_in_place(path: Path, fill: Callable[[Path], None]) -> bool:
    """A new file, complete or not at all; False if there was one before."""
    # the file is there before its log: so where another process makes it in these moments, it is seen after the log
    if _log(path).exists():
        if path.exists():
            return False
        raise LedgerCorrupted(f"{path} is missing but its log {_log(path).name} is not: the ledger was moved or lost")
    remove_drafts(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}")
    try:
        fill(draft)
        _place(draft, path)
    except FileExistsError:
        return False
    finally:
        remove(draft)
    sync_directory(path.parent)
    return True

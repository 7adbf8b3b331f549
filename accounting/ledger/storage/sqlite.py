"""The file of a ledger: an SQLite database with the tables of :mod:`accounting.ledger.storage.database`.

Durability. A reservation is one ``BEGIN IMMEDIATE`` transaction, held until the entry is on disk, with a rollback
journal and ``synchronous=EXTRA``; ``fullfsync`` asks the same of macOS. A write-ahead log would need one sync per
reservation where the journal needs three or four (0.4 ms and 1.2 ms on the disk where it was measured). But what was
spent would then lie in a second file until the last connection is closed, and ``cp`` of an open ledger, or a backup by
files, would be a ledger with its budget unspent. With the journal every spend is in the file itself when it returns. A
copy that was taken in the middle of a spend is whole with or without that spend, or does not verify.

Files of earlier releases have a write-ahead log. They are changed over when they are opened, which needs every process
of the earlier release to have closed them.

One name. The journal belongs to a name: processes that open one file by two hard links do not see each other's crashes.
A file with more than one name is refused.

Interrupts. A transaction that an exception in a signal handler left open is found and rolled back by the next use. A
handler that spends in the middle of a reading ends its transaction, and the reading is done again.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from accounting.errors import LedgerCorrupted
from accounting.ledger.storage.database import Database, Head, Rows, schema
from accounting.ledger.storage.new_file import make_file, remove_drafts

__all__ = ["SQLiteFile"]

_WAIT_SECONDS = 60.0
# What SQLite reports about the surroundings of a file rather than about its contents.
_SURROUNDINGS = {
    "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM", "SQLITE_PERM", "SQLITE_READONLY",
}  # fmt: skip


class SQLiteFile(Database):
    """An entry store in a file: the connection that it is read and written by."""

    path: Path
    _connection: sqlite3.Connection | None = None
    _field = "json_extract(body, '$.{}')"
    _schema = schema(_field)
    _begin_reading = "BEGIN"
    _begin_writing = ("BEGIN IMMEDIATE",)

    def __init__(self, path: Path) -> None:
        # the log lies beside the file itself, not beside a symbolic link to it
        self.path = path.resolve() if path.is_symlink() else path.absolute()
        self.name = self.address = str(self.path)
        self._identity: tuple[int, int] | None = None

    def exists(self) -> bool:
        """Whether there is a file."""
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder: name a file in it")
        return self.path.exists()

    def fill(self, rows: Rows, head: Head) -> bool:
        """Make the file of these rows, in one step; False if there is one already."""

        def write(draft: Path) -> None:
            with self._translated(), closing(_connect(draft)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                self._write_all(connection, rows, head)
                connection.execute("COMMIT")

        # a file is there before what lies beside it: where another process makes it in these moments, it is seen after
        for kind in ("wal", "journal"):
            beside = self.path.with_name(f"{self.path.name}-{kind}")
            if beside.exists():
                if self.path.exists():
                    return False
                raise LedgerCorrupted(
                    f"{self.path} is missing but {beside.name}, which was a part of it, is not: the ledger was moved "
                    f"or lost"
                )
        return make_file(self.path, write)

    def check(self) -> None:
        """SQLite's own check of pages and indices."""
        with self._translated():
            found = self._at_rest().execute("PRAGMA integrity_check(1)").fetchall()
        if found != [("ok",)]:
            raise LedgerCorrupted(f"{self.name}: {found[0][0]}")

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
            except BaseException:
                connection.close()
                raise
            self._connection = self._without_log(connection)
            remove_drafts(self.path)
        return self._connection

    def _without_log(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        """A connection to the file without a write-ahead log, which earlier releases have left it with."""
        begun = time.monotonic()
        while True:
            try:
                if connection.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",):
                    return connection
            except sqlite3.OperationalError as error:
                if not getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
                    connection.close()
                    raise
            connection.close()
            if time.monotonic() > begun + _WAIT_SECONDS:
                raise TimeoutError(
                    f"{self.path} has a write-ahead log, as an earlier release makes it, and another process has it "
                    f"open: end that process, and nothing is lost"
                )
            time.sleep(random.uniform(0.001, 0.02))  # of two that change it over, one has to let go
            connection = _connect(self.path)

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

    def _commit(self, connection: sqlite3.Connection) -> None:
        connection.execute("COMMIT")

    def _leave(self, connection: sqlite3.Connection) -> None:
        if connection is self._connection and connection.in_transaction:
            connection.execute("ROLLBACK")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """SQLite's errors as what they mean for a ledger."""
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # whose words quote what is damaged
            code = getattr(error, "sqlite_errorname", "")
            if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise TimeoutError(
                    f"{self.path} was locked by another process for {_WAIT_SECONDS:g} s; nothing was recorded there"
                ) from error
            if "_".join(code.split("_")[:2]) in _SURROUNDINGS:
                way = "" if self.path.parent.is_dir() else f": there is no folder {self.path.parent}"
                raise OSError(f"{self.path} cannot be used: {error}{way}") from error
            self.close()
            raise LedgerCorrupted(f"{self.path} cannot be read as a ledger: {error}") from error


def _connect(path: Path) -> sqlite3.Connection:
    # the caller's lock keeps threads apart; autocommit, so that the only transactions are the ones begun here
    connection = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False)
    for setting in ("synchronous=EXTRA", "fullfsync=ON"):
        connection.execute(f"PRAGMA {setting}")
    return connection

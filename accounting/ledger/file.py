"""The file of a ledger: an SQLite database that holds nothing but the entries of a hash chain.

Two tables. ``entries(id, body, hash)``: body is the canonical JSON of entry ``id``, with the hash of the entry
before it. ``head(id, entries, hash, summary)``: one row, the number of entries, the hash of the last, so that a
removed last entry shows, and the number of the last summary (0 if there is none). Rows are only ever added. Two
indices find a row's outcome, and a label; they are made of the bodies and say nothing of their own.

Summaries. Now and then an entry sums up all before it, a part of the chain like any other. Opening reads the last one
and what follows, and verifies these; ``everything`` verifies the whole chain from its beginning. One is written when an
eighth as many entries were added as it has lines (one for every different release in every scope, mark and
quota), so that a spend costs the same on average however long the file is.

Durability. A reservation is one ``BEGIN IMMEDIATE`` transaction, held until the entry is on disk, so that two
processes never both spend what is left of a budget. What takes long (pricing a release, the last digits of a total)
is done before it begins; if others recorded something in the meantime that has to be priced, it is left again. The
write-ahead log with ``synchronous=FULL`` makes that one sync per reservation where a rollback journal needs
three or four, and survives the loss of power as well; ``fullfsync`` asks the same of macOS. What it costs: until the
last connection is closed, ``FILE-wal`` is a part of the ledger and must be copied with it (or use
``Ledger.backup``), and the file must lie on a local disk (the processes share memory).

One name. The log belongs to a name: processes that open one file by two hard links do not see each other's spends.
A file with more than one name is refused.

Checkpoints copy the log back into the file while holding the write lock (never ``PASSIVE``), so not beside another
process's commit: SQLite before 3.51.3 can lose a commit that meets a checkpoint in the wrong microsecond.

Forks. A connection must not cross a fork, so all are closed before and opened again when they are next used.

Interrupts. A transaction that an exception in a signal handler left open is found and rolled back by the next use. A
handler that spends in the middle of a reading ends its transaction, and the reading is done again.

(Longer than other files: one class, whose connection, transactions and readings depend on each other.)
"""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from accounting.errors import LedgerCorrupted
from accounting.ledger.chain import START, link, verify
from accounting.ledger.drafts import remove, remove_drafts, sync_directory
from accounting.ledger.entries import Entry, Opening, Row, Spend, Summary, from_dict, to_dict
from accounting.ledger.journal import Position, Start

__all__ = ["LedgerFile"]

_SCHEMA = (
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE INDEX entries_by_label ON entries (json_extract(body, '$.label'))",
    "CREATE INDEX entries_by_row ON entries (json_extract(body, '$.index'))",
    "CREATE TABLE head (id INTEGER PRIMARY KEY, entries INTEGER NOT NULL, hash TEXT NOT NULL, summary INTEGER)",
)
_WAIT_SECONDS = 60.0
_COMMITS_PER_CHECKPOINT = 500
_LARGE_LOG = 16 * 2**20  # bytes
# What SQLite reports about the surroundings of a file rather than about its contents.
_SURROUNDINGS = {
    "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM", "SQLITE_PERM", "SQLITE_READONLY",
}  # fmt: skip


# a file system without hard links: exFAT, some mounts into containers
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_LONGEST_CLAIM = 5.0


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


class LedgerFile:
    """A journal in a file: the connection that it is read and written by."""

    def __init__(self, path: Path) -> None:
        # the log lies beside the file itself, not beside a symbolic link to it
        self.path = path.resolve() if path.is_symlink() else path.absolute()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._commits = 0
        self._ended = 0  # transactions of this connection that something else than their owner ended

    def create(self, opening: Entry) -> bool:
        """Make the file, complete with its opening, in one step; False if there is one already."""
        if self.path.exists():
            return False

        def fill(draft: Path) -> None:
            body, head = link(START, to_dict(opening))
            with self._translated(), closing(_connect(draft)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute("INSERT INTO entries VALUES (0, ?, ?)", (body, head))
                connection.execute("INSERT INTO head VALUES (0, 1, ?, 0)", (head,))
                connection.execute("COMMIT")

        return self._put_in_place(self.path, fill)

    def copy(self, path: Path) -> None:
        """Copy one state of the file, by SQLite's online backup; a ``FileExistsError`` where something is already."""

        def fill(draft: Path) -> None:
            with self._translated(), closing(_connect(draft)) as target:
                self._at_rest().backup(target)
                target.execute("PRAGMA journal_mode=WAL").fetchall()

        if path.exists() or path.is_symlink() or not self._put_in_place(path, fill):
            raise FileExistsError(f"{path} exists already, and a copy of a ledger replaces nothing")

    def _put_in_place(self, path: Path, fill: Callable[[Path], None]) -> bool:
        """A new file, complete or not at all; False if there was one before."""
        if _log(path).exists():
            raise LedgerCorrupted(
                f"{path} is missing but its log {_log(path).name} is not: the ledger was moved or lost"
            )
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

    # -------------------------------------------------------------------------------------------- reading

    def start(self) -> Start:
        """The opening, and the last summary, verified; the entries after that one are still unread."""
        with self._translated(), self._snapshot() as connection:
            count, _, at = self._read_head(connection)
            if not 0 <= at < count:
                raise LedgerCorrupted(f"{self.path}: its head was edited or damaged")
            opening, head = self._entry(connection, 0, START)
            if not isinstance(opening, Opening):
                raise LedgerCorrupted(f"{self.path}: entry 0 is not an opening")
            if at == 0:
                return Start(opening, head, None, Position(1, head))
            before = connection.execute("SELECT hash FROM entries WHERE id = ?", (at - 1,)).fetchone()
            if before is None:
                raise LedgerCorrupted(f"{self.path}: entry {at - 1} is missing")
            summary, here = self._entry(connection, at, str(before[0]))
            if not isinstance(summary, Summary):
                raise LedgerCorrupted(f"{self.path}: its head was edited or damaged")
            if summary.opening != head:
                raise LedgerCorrupted(f"{self.path}: entry {at} sums up another ledger: its opening was replaced")
            return Start(opening, head, summary, Position(at + 1, here))

    def unread(self, position: Position, *, inside: bool = False) -> tuple[list[Entry], Position]:
        """Verify and return the entries that were added since a position; ``inside`` of :meth:`append` or not.

        Raises
        ------
        LedgerCorrupted
            Naming the entry at which the chain breaks.
        """
        whole = False
        while not whole:
            with self._translated(), self._snapshot(inside) as connection:
                ended = self._ended
                count, head, _ = self._read_head(connection)
                if (count, head) == position:
                    return [], position
                stored = connection.execute(
                    "SELECT id, body, hash FROM entries WHERE id >= ? ORDER BY id", (position.entries,)
                ).fetchall()
            whole = ended == self._ended
        if count < position.entries:
            raise LedgerCorrupted(f"{self.path}: {position.entries} entries were there before and {count} are left")
        found = []
        for entry, stated in self._verified(stored, position):
            found.append(entry)
            position = Position(position.entries + 1, stated)
        if (count, head) != position:
            raise LedgerCorrupted(
                f"{self.path}: {position.entries} entries are there and its head counts {count}: "
                f"the last ones were removed, or others added, outside the ledger"
            )
        return found, position

    def everything(self, upto: Position) -> Iterator[tuple[str, Entry]]:
        """Every entry up to a position, with its hash, verified from the first on."""
        position = Position(0, START)
        while position.entries < upto.entries:
            with self._translated(), self._snapshot() as connection:
                stored = connection.execute(
                    "SELECT id, body, hash FROM entries WHERE id >= ? AND id < ? ORDER BY id LIMIT 5000",
                    (position.entries, upto.entries),
                ).fetchall()
            if not stored:
                raise LedgerCorrupted(f"{self.path}: entry {position.entries} is missing")
            for entry, stated in self._verified(stored, position):
                yield stated, entry
                position = Position(position.entries + 1, stated)
        if position != upto:
            raise LedgerCorrupted(f"{self.path}: entry {upto.entries - 1} is another one than before")

    def check(self) -> None:
        """SQLite's own check of pages and indices."""
        with self._translated():
            found = self._at_rest().execute("PRAGMA integrity_check(1)").fetchall()
        if found != [("ok",)]:
            raise LedgerCorrupted(f"{self.path}: {found[0][0]}")

    def _verified(
        self, stored: Iterable[tuple[int, object, object]], position: Position
    ) -> Iterator[tuple[Entry, str]]:
        number, head = position
        for id, body, stated in stored:
            if id != number:
                raise LedgerCorrupted(f"{self.path}: entry {number} is missing")
            yield self._decoded(number, body, stated, head), str(stated)
            number, head = number + 1, str(stated)

    def _entry(self, connection: sqlite3.Connection, number: int, previous: str) -> tuple[Entry, str]:
        found = connection.execute("SELECT body, hash FROM entries WHERE id = ?", (number,)).fetchone()
        if found is None:
            raise LedgerCorrupted(f"{self.path}: entry {number} is missing")
        body, stated = found
        return self._decoded(number, body, stated, previous), str(stated)

    def _decoded(self, number: int, body: object, stated: object, previous: str) -> Entry:
        name = f"{self.path}: entry {number}"
        values = verify(previous, body, stated, name)
        try:
            return from_dict(values)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise LedgerCorrupted(f"{name} cannot be read: {error}") from None

    # --------------------------------------------------------------------------------- by label and by row

    def has_label(self, label: str) -> bool:
        """Whether a row has this label."""
        with self._translated():
            found = self._open().execute(
                "SELECT 1 FROM entries WHERE json_extract(body, '$.label') = ? "
                "AND json_extract(body, '$.entry') = 'spend' LIMIT 1",
                (label,),
            )
            return found.fetchone() is not None

    def outcome(self, index: int) -> str | None:
        """What a row was committed as; None if it was not."""
        with self._translated():
            found = self._open().execute(
                "SELECT json_extract(body, '$.outcome') FROM entries WHERE json_extract(body, '$.index') = ? "
                "AND json_extract(body, '$.entry') = 'outcome' LIMIT 1",
                (index,),
            )
            row = found.fetchone()
        return None if row is None else str(row[0])

    def row(self, index: int) -> Row:
        """A row as it was reserved."""
        with self._translated():
            found = (
                self._open()
                .execute(
                    "SELECT e.id, e.body, e.hash, b.hash FROM entries e LEFT JOIN entries b ON b.id = e.id - 1 "
                    "WHERE json_extract(e.body, '$.index') = ? AND json_extract(e.body, '$.entry') = 'spend' LIMIT 1",
                    (index,),
                )
                .fetchone()
            )
        if found is None:
            raise LedgerCorrupted(f"{self.path}: row {index} is missing")
        entry = self._decoded(found[0], found[1], found[2], str(found[3]))
        if not isinstance(entry, Spend) or entry.row.index != index:
            raise LedgerCorrupted(f"{self.path}: row {index} is missing")
        return entry.row

    # -------------------------------------------------------------------------------------------- writing

    def append(self, make: Callable[[Position], list[Entry] | None]) -> Position | None:
        """Add what ``make`` gives under the write lock, durably; or leave the file as it was."""
        with self._translated():
            connection = self._at_rest()
        try:
            with self._translated():
                connection.execute("BEGIN IMMEDIATE")
                count, head, _ = self._read_head(connection)
            made = make(Position(count, head))
            if not made:
                return None
            with self._translated():
                for entry in made:
                    body, head = link(head, to_dict(entry))
                    connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (count, body, head))
                    if isinstance(entry, Summary):
                        connection.execute("UPDATE head SET summary = ? WHERE id = 0", (count,))
                    count += 1
                connection.execute("UPDATE head SET entries = ?, hash = ? WHERE id = 0", (count, head))
                connection.execute("COMMIT")
        finally:
            if connection is self._connection and connection.in_transaction:
                connection.execute("ROLLBACK")
        self._commits += 1
        if self._commits % _COMMITS_PER_CHECKPOINT == 0:
            self._checkpoint(connection, "RESTART")
        return Position(count, head)

    def disconnect(self) -> None:
        """Close the connection; the next use opens another."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def __del__(self) -> None:
        self.disconnect()

    def _at_rest(self) -> sqlite3.Connection:
        """The connection, in no transaction: one that an interrupt left open ends here, without a commit."""
        connection = self._open()
        if connection.in_transaction:
            frame = sys._getframe(1)
            while frame.f_back is not None:
                frame = frame.f_back
                if frame.f_code is LedgerFile.append.__code__ and frame.f_locals.get("self") is self:
                    raise RuntimeError(
                        f"{self.path} is being written by the very thread that a signal handler interrupted: nothing "
                        f"was recorded; record outside of signal handlers"
                    )
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
                schema = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
                if tuple(sql for (sql,) in schema) != _SCHEMA:
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

    def _read_head(self, connection: sqlite3.Connection) -> tuple[int, str, int]:
        """The number of entries, the hash of the last, and the number of the last summary."""
        rows = connection.execute("SELECT id, entries, hash, summary FROM head").fetchall()
        if len(rows) != 1 or rows[0][0] != 0 or [type(value) for value in rows[0][1:]] != [int, str, int]:
            raise LedgerCorrupted(f"{self.path}: its head was edited or damaged")
        return rows[0][1], rows[0][2], rows[0][3]

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

"""A ledger in a database: two tables that hold nothing but the entries of a hash chain, and all that is asked of them.

``entries(id, body, hash)``: body is the canonical JSON of entry ``id``, with the hash of the entry before it.
``head(id, entries, hash, summary)``: one row, the number of entries, the hash of the last, so that a removed last entry
shows, and the number of the last summary (0 if there is none). Rows are only ever added. Two indices find a row's
outcome, and a label; they are made of the bodies and say nothing of their own.

Summaries. Now and then an entry sums up all before it, a part of the chain like any other. Opening reads the last one
and what follows, and verifies these; ``everything`` verifies the whole chain from its beginning. One is written when an
eighth as many entries were added as it has lines (one for every different release in every scope, mark and
quota), so that a spend costs the same on average however long the ledger is.

Durability. A reservation is one transaction that holds the ledger's only write lock until the entry is on disk, so that
two processes never both spend what is left of a budget. What takes long (pricing a release, the last digits of a total)
is done before it begins; if others recorded something in the meantime that has to be priced, it is left again.

Forks. A connection must not cross a fork, so all are closed before and opened again when they are next used.

The databases differ in little: how one is opened, how a transaction begins, and how errors read. That is in
:mod:`accounting.ledger.storage.sqlite` (SQLite) and :mod:`accounting.ledger.storage.postgresql` (PostgreSQL).
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from accounting.errors import LedgerCorrupted
from accounting.ledger.record.entry_json import from_dict, to_dict
from accounting.ledger.record.entry_types import Entry, Opening, Row, Spend, Summary
from accounting.ledger.record.hash_chain import START, link, verify
from accounting.ledger.storage.store import Position, Start

__all__ = ["Connection", "Database", "Head", "Rows", "schema"]

# sqlite3's or psycopg's, which are used alike: execute, fetchone, fetchall
Connection = Any
# the columns of the two tables
Rows = Sequence[tuple[int, str, str]]
Head = tuple[int, str, int]


def schema(field: str, *, index: str = "") -> tuple[str, ...]:
    """What makes the tables, given how a field of a body is read, up to its name, and the kind of index."""
    return (
        "CREATE TABLE entries (id INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
        f"CREATE INDEX entries_by_label ON entries {index}({field.format('label')})",
        f"CREATE INDEX entries_by_row ON entries {index}({field.format('index')})",
        "CREATE TABLE head (id INTEGER PRIMARY KEY, entries INTEGER NOT NULL, hash TEXT NOT NULL, summary INTEGER)",
    )


class Database(ABC):
    """An entry store in a database: the connection that it is read and written by.

    Attributes
    ----------
    name : str
        For messages.
    path : Path or None
        The file, if it is one.
    address : str
        What opens it again.
    """

    name: str
    address: str
    path: Path | None = None
    _connection: Connection | None = None
    _ended = 0  # transactions of this connection that something else than their owner ended

    # what makes the tables; how a field of a body is read, of what type it gives a number, and the mark of a value
    _schema: ClassVar[tuple[str, ...]]
    _field: ClassVar[str]
    _number: ClassVar[type] = int
    _value: ClassVar[str] = "?"
    # what begins a transaction that sees one state, and one that holds the write lock
    _begin_reading: ClassVar[str]
    _end_reading: ClassVar[str] = ""
    _begin_writing: ClassVar[tuple[str, ...]]

    # ---------------------------------------------------------------------------------------------- the seam

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is a ledger."""

    @abstractmethod
    def fill(self, rows: Rows, head: Head) -> bool:
        """Make it of these rows, in one step; False if there is one already."""

    @abstractmethod
    def check(self) -> None:
        """Check what lies beside the entries: pages and indices."""

    @abstractmethod
    def _open(self) -> Connection:
        """The connection, in whatever transaction it is; opened if there is none."""

    @abstractmethod
    def _at_rest(self) -> Connection:
        """The connection, in no transaction."""

    @abstractmethod
    def _translated(self) -> AbstractContextManager[None]:
        """The database's errors as what they mean for a ledger."""

    @abstractmethod
    def _commit(self, connection: Connection) -> None:
        """On disk when this returns."""

    @abstractmethod
    def _leave(self, connection: Connection) -> None:
        """Roll back a transaction that is still open."""

    # -------------------------------------------------------------------------------------- the connection

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def __del__(self) -> None:
        self.close()

    def _execute(self, connection: Connection, statement: str, *values: Any) -> Any:
        return connection.execute(statement.replace("?", self._value), values)

    def _asked(self, field: str) -> str:
        return self._field.format(field)

    @contextmanager
    def _snapshot(self, inside: bool = False) -> Iterator[Connection]:
        """One state of the tables for several readings; ``inside`` a transaction, what that one sees."""
        if inside:
            yield self._open()
            return
        connection = self._at_rest()
        try:
            connection.execute(self._begin_reading)
            yield connection
            if self._end_reading:
                connection.execute(self._end_reading)
        finally:
            self._leave(connection)

    # -------------------------------------------------------------------------------------------- reading

    def start(self) -> Start:
        """The opening, and the last summary, verified; the entries after that one are still unread."""
        with self._translated(), self._snapshot() as connection:
            count, _, at = self._read_head(connection)
            if not 0 <= at < count:
                raise LedgerCorrupted(f"{self.name}: its head was edited or damaged")
            opening, head = self._entry(connection, 0, START)
            if not isinstance(opening, Opening):
                raise LedgerCorrupted(f"{self.name}: entry 0 is not an opening")
            if at == 0:
                return Start(opening, head, None, Position(1, head))
            before = self._execute(connection, "SELECT hash FROM entries WHERE id = ?", at - 1).fetchone()
            if before is None:
                raise LedgerCorrupted(f"{self.name}: entry {at - 1} is missing")
            summary, here = self._entry(connection, at, str(before[0]))
            if not isinstance(summary, Summary):
                raise LedgerCorrupted(f"{self.name}: its head was edited or damaged")
            if summary.opening != head:
                raise LedgerCorrupted(f"{self.name}: entry {at} sums up another ledger: its opening was replaced")
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
                asked = "SELECT id, body, hash FROM entries WHERE id >= ? ORDER BY id"
                stored = self._execute(connection, asked, position.entries).fetchall()
            whole = ended == self._ended
        if count < position.entries:
            raise LedgerCorrupted(f"{self.name}: {position.entries} entries were there before and {count} are left")
        found = []
        for entry, stated in self._verified(stored, position):
            found.append(entry)
            position = Position(position.entries + 1, stated)
        if (count, head) != position:
            raise LedgerCorrupted(
                f"{self.name}: {position.entries} entries are there and its head counts {count}: "
                f"the last ones were removed, or others added, outside the ledger"
            )
        return found, position

    def everything(self, upto: Position) -> Iterator[tuple[str, Entry]]:
        """Every entry up to a position, with its hash, verified from the first on."""
        position = Position(0, START)
        asked = "SELECT id, body, hash FROM entries WHERE id >= ? AND id < ? ORDER BY id LIMIT 5000"
        while position.entries < upto.entries:
            with self._translated(), self._snapshot() as connection:
                stored = self._execute(connection, asked, position.entries, upto.entries).fetchall()
            if not stored:
                raise LedgerCorrupted(f"{self.name}: entry {position.entries} is missing")
            for entry, stated in self._verified(stored, position):
                yield stated, entry
                position = Position(position.entries + 1, stated)
        if position != upto:
            raise LedgerCorrupted(f"{self.name}: entry {upto.entries - 1} is another one than before")

    def _verified(
        self, stored: Iterable[tuple[int, object, object]], position: Position
    ) -> Iterator[tuple[Entry, str]]:
        number, head = position
        for id, body, stated in stored:
            if id != number:
                raise LedgerCorrupted(f"{self.name}: entry {number} is missing")
            yield self._decoded(number, body, stated, head), str(stated)
            number, head = number + 1, str(stated)

    def _entry(self, connection: Connection, number: int, previous: str) -> tuple[Entry, str]:
        found = self._execute(connection, "SELECT body, hash FROM entries WHERE id = ?", number).fetchone()
        if found is None:
            raise LedgerCorrupted(f"{self.name}: entry {number} is missing")
        body, stated = found
        return self._decoded(number, body, stated, previous), str(stated)

    def _decoded(self, number: int, body: object, stated: object, previous: str) -> Entry:
        name = f"{self.name}: entry {number}"
        values = verify(previous, body, stated, name)
        try:
            return from_dict(values)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise LedgerCorrupted(f"{name} cannot be read: {error}") from None

    # --------------------------------------------------------------------------------- by label and by row

    def has_label(self, label: str) -> bool:
        """Whether a row has this label."""
        return self._found("1", "entries", "label", label, "spend") is not None

    def outcome(self, index: int) -> str | None:
        """What a row was committed as; None if it was not."""
        found = self._found(self._asked("outcome"), "entries", "index", self._number(index), "outcome")
        return None if found is None else str(found[0])

    def row(self, index: int) -> Row:
        """A row as it was reserved."""
        chained = "entries JOIN (SELECT id + 1 AS next, hash AS previous FROM entries) AS b ON next = id"
        found = self._found("id, body, hash, previous", chained, "index", self._number(index), "spend")
        if found is None:
            raise LedgerCorrupted(f"{self.name}: row {index} is missing")
        entry = self._decoded(*found)
        if not isinstance(entry, Spend) or entry.row.index != index:
            raise LedgerCorrupted(f"{self.name}: row {index} is missing")
        return entry.row

    def _found(self, what: str, where: str, field: str, value: Any, kind: str) -> Any:
        """What stands in the first entry of a kind that has a value in a field."""
        asked = f"SELECT {what} FROM {where} WHERE {self._asked(field)} = ? AND {self._asked('entry')} = ? LIMIT 1"
        with self._translated():
            return self._execute(self._open(), asked, value, kind).fetchone()

    # -------------------------------------------------------------------------------------------- writing

    def append(
        self, make: Callable[[Position], list[Entry] | None], also: Callable[[Any], None] | None = None
    ) -> Position | None:
        """Add what ``make`` gives under the write lock, durably, with what ``also`` writes; or leave all as it was."""
        with self._translated():
            connection = self._at_rest()
        try:
            with self._translated():
                for statement in self._begin_writing:
                    connection.execute(statement)
                count, head, _ = self._read_head(connection)
            made = make(Position(count, head))
            if not made:
                return None
            with self._translated():
                for entry in made:
                    body, head = self._linked(head, entry)
                    self._execute(connection, "INSERT INTO entries VALUES (?, ?, ?)", count, body, head)
                    if isinstance(entry, Summary):
                        self._execute(connection, "UPDATE head SET summary = ? WHERE id = 0", count)
                    count += 1
                self._execute(connection, "UPDATE head SET entries = ?, hash = ? WHERE id = 0", count, head)
            if also is not None:
                also(connection)
            with self._translated():
                self._commit(connection)
        finally:
            self._leave(connection)
        return Position(count, head)

    def _linked(self, head: str, entry: Entry) -> tuple[str, str]:
        """The body of an entry that follows ``head``, and its hash."""
        return link(head, to_dict(entry))

    def _refuse_inside(self) -> None:
        """Refuse a signal handler that came in the middle of :meth:`append` or :meth:`add`."""
        writing = Database.append.__code__, Database.add.__code__
        frame = sys._getframe(2)  # who asked for a connection at rest, perhaps one of the two itself
        while frame.f_back is not None:
            frame = frame.f_back
            if frame.f_code in writing and frame.f_locals.get("self") is self:
                raise RuntimeError(
                    f"{self.name} is being written by the very thread that a signal handler interrupted: nothing "
                    f"was recorded there; record outside of signal handlers"
                )

    def copy(self, target: Database) -> None:
        """Copy one state to where nothing is."""
        with self._translated(), self._snapshot() as connection:
            head = self._read_head(connection)
            rows = self._execute(connection, "SELECT id, body, hash FROM entries ORDER BY id").fetchall()
        if target.exists() or not target.fill(rows, head):
            raise FileExistsError(f"{target.name} exists already, and a copy of a ledger replaces nothing")

    def create(self, opening: Entry) -> bool:
        """Make it, complete with its opening, in one step; False if there is one already."""
        if self.exists():
            return False
        body, head = self._linked(START, opening)
        return self.fill([(0, body, head)], (1, head, 0))

    def rows(self, first: int) -> Rows:
        """The entries from a number on, as they are stored."""
        with self._translated(), self._snapshot() as connection:
            asked = "SELECT id, body, hash FROM entries WHERE id >= ? ORDER BY id"
            found: Rows = self._execute(connection, asked, first).fetchall()
            return found

    def newest(self) -> Position:
        """How many entries are stored, and the hash of the last."""
        with self._translated(), self._snapshot() as connection:
            return Position(*self._read_head(connection)[:2])

    def add(self, rows: Rows) -> None:
        """Add entries of another store with the same chain; those that are here already must be the same.

        Raises
        ------
        LedgerCorrupted
            If they do not follow what is here: nothing is added.
        """
        with self._translated():
            connection = self._at_rest()
        try:
            with self._translated():
                for statement in self._begin_writing:
                    connection.execute(statement)
                count, head, summary = self._read_head(connection)
                asked = "SELECT id, hash FROM entries WHERE id >= ? ORDER BY id"
                here = dict(self._execute(connection, asked, rows[0][0]).fetchall())
            for number, body, stated in rows:
                if number < count:
                    if here.get(number) != stated:
                        raise LedgerCorrupted(f"{self.name}: entry {number} is another one here: the histories differ")
                    continue
                if number > count:
                    raise LedgerCorrupted(f"{self.name}: entry {count} is missing")
                entry = self._decoded(number, body, stated, head)
                with self._translated():
                    self._execute(connection, "INSERT INTO entries VALUES (?, ?, ?)", number, body, stated)
                count, head = number + 1, str(stated)
                summary = number if isinstance(entry, Summary) else summary
            with self._translated():
                asked = "UPDATE head SET entries = ?, hash = ?, summary = ? WHERE id = 0"
                self._execute(connection, asked, count, head, summary)
                self._commit(connection)
        finally:
            self._leave(connection)

    def _write_all(self, connection: Connection, rows: Rows, head: Head) -> None:
        """Tables with these rows, where none are."""
        for statement in self._schema:
            connection.execute(statement)
        connection.cursor().executemany("INSERT INTO entries VALUES (?, ?, ?)".replace("?", self._value), rows)
        self._execute(connection, "INSERT INTO head VALUES (0, ?, ?, ?)", *head)

    def _read_head(self, connection: Connection) -> tuple[int, str, int]:
        """The number of entries, the hash of the last, and the number of the last summary."""
        rows = connection.execute("SELECT id, entries, hash, summary FROM head").fetchall()
        if len(rows) != 1 or rows[0][0] != 0 or [type(value) for value in rows[0][1:]] != [int, str, int]:
            raise LedgerCorrupted(f"{self.name}: its head was edited or damaged")
        return rows[0][1], rows[0][2], rows[0][3]

"""A ledger in PostgreSQL: the tables of :mod:`accounting.ledger.storage.database` in a schema of their own.

Durability. A reservation is one transaction with ``synchronous_commit=on`` that holds a lock on the one row of ``head``
until the entry is on the server's disk (and on that of its synchronous standbys, if it has some). A server that would
lose what it has committed (``fsync=off``) is refused. When the connection breaks during the commit, nobody knows
whether it was one: an ``OSError`` says so; what was recorded counts, and nothing may be released for it.

Failover. A server that goes on from an older state, such as an asynchronous standby, has forgotten spends, like an
older copy of a file: whoever has read the ledger before refuses it, whoever is new needs ``expected_head``.

Interrupts. psycopg's connections are not reentrant: a signal handler that comes in the middle of a command leaves the
connection to whoever it has interrupted, and opens another one. One that an exception left in a transaction is closed,
by its user or with its last reference, so that the server rolls back.

Labels hold no NUL, which PostgreSQL cannot read from a JSON text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from accounting.errors import LedgerCorrupted
from accounting.ledger.record.entry_types import Entry
from accounting.ledger.storage.database import Database, Head, Rows, schema
from accounting.postgres import Place, connect, idle

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgreSQLSchema"]

_WAIT_SECONDS = 60.0
# an escaped NUL: after an even number of backslashes
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
# every column, with what could change rows on their way: triggers, rules and policies
_TABLES = """
SELECT c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = to_regnamespace(quote_ident(%(schema)s)) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'trigger ' || t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = to_regnamespace(quote_ident(%(schema)s)) AND NOT t.tgisinternal
UNION ALL
SELECT 'rule ' || r.rulename FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
WHERE c.relnamespace = to_regnamespace(quote_ident(%(schema)s))
UNION ALL
SELECT 'policy ' || c.relname FROM pg_class c
WHERE c.relnamespace = to_regnamespace(quote_ident(%(schema)s)) AND c.relrowsecurity
"""
_COLUMNS = {
    "entries.id integer", "entries.body text", "entries.hash text",
    "head.id integer", "head.entries integer", "head.hash text", "head.summary integer",
}  # fmt: skip


class PostgreSQLSchema(Database):
    """An entry store in a schema of a PostgreSQL database: the connection that it is read and written by."""

    _connection: psycopg.Connection[Any] | None = None
    _checked: psycopg.Connection[Any] | None = None  # the one by which the tables were looked at
    _field = "(body::json ->> '{}')"
    _number = str
    _value = "%s"
    _schema = schema(_field, index="USING hash ")
    _begin_reading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    _end_reading = "ROLLBACK"
    # every statement after the lock sees what was committed before it
    _begin_writing = ("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", "SELECT id FROM head FOR UPDATE")

    def __init__(self, where: Place) -> None:
        self.where = where
        self.name, self.address = where.name, where.url

    def exists(self) -> bool:
        """Whether the schema holds anything."""
        with self._translated():
            return bool(self._found_tables(self._connected()))

    def fill(self, rows: Rows, head: Head) -> bool:
        """Make the schema and its tables of these rows, in one transaction; False if there were some already."""
        with self._translated():
            connection = self._connected()
            try:
                connection.execute("BEGIN")
                # of two that make it at the same time, one waits here
                connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self.where.schema,))
                if self._found_tables(connection):
                    return False
                connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{self.where.schema}"'.encode())
                self._write_all(connection, rows, head)
                self._commit(connection)
            finally:
                self._leave(connection)
        return True

    def check(self) -> None:
        """Compare the indices with the table: a scan of either finds as much."""
        counts = []
        with self._translated(), self._snapshot() as connection:
            for way in ("enable_seqscan", "enable_indexscan"):
                connection.execute(f"SET LOCAL {way} = off".encode())
                counts.append(self._execute(connection, "SELECT count(*), max(id) FROM entries").fetchone())
        if counts[0] != counts[1]:
            raise LedgerCorrupted(f"{self.name}: its index and its table differ")

    def _connected(self) -> psycopg.Connection[Any]:
        """The connection, whatever the tables are."""
        if self._connection is not None and self._connection.closed:
            self._connection = None
        if self._connection is None:
            self._connection = connect(self.where, wait=_WAIT_SECONDS)
        return self._connection

    def _open(self) -> psycopg.Connection[Any]:
        connection = self._connected()
        if connection is not self._checked:
            found = self._found_tables(connection)
            if not found:
                self.close()
                raise LedgerCorrupted(f"{self.name} was moved or deleted while it was open")
            if found != _COLUMNS:
                self.close()
                raise LedgerCorrupted(f"{self.name} does not have the tables of a ledger")
            self._checked = connection
        return connection

    def _found_tables(self, connection: psycopg.Connection[Any]) -> set[str]:
        found = connection.execute(_TABLES.encode(), {"schema": self.where.schema}).fetchall()
        return {str(one) for (one,) in found}

    def _at_rest(self) -> psycopg.Connection[Any]:
        connection = self._connection
        if connection is not None and not connection.closed and not idle(connection):
            self._refuse_inside()
            self._connection = None  # whoever is in the middle of using it goes on, and closes it
        return self._open()

    def _commit(self, connection: psycopg.Connection[Any]) -> None:
        if connection.execute("COMMIT").statusmessage != "COMMIT":
            raise OSError(f"{self.name} has rolled back: nothing was recorded there")

    def _leave(self, connection: psycopg.Connection[Any]) -> None:
        """Close what is still in a transaction, or was given up in the meantime: the server rolls back."""
        if connection is not self._connection or not idle(connection):
            connection.close()

    def _linked(self, head: str, entry: Entry) -> tuple[str, str]:
        body, hashed = super()._linked(head, entry)
        if _NUL.search(body):
            raise ValueError(f"texts in {self.name} must not hold the character NUL, got one; nothing was recorded")
        return body, hashed

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """PostgreSQL's errors as what they mean for a ledger."""
        import psycopg

        try:
            yield
        except psycopg.errors.LockNotAvailable as error:
            raise TimeoutError(
                f"{self.name} was locked by another process for {_WAIT_SECONDS:g} s; nothing was recorded there"
            ) from error
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.DataError) as error:
            self.close()
            raise LedgerCorrupted(f"{self.name} cannot be read as a ledger: {type(error).__name__}") from error
        except psycopg.Error as error:
            self.close()
            raise OSError(
                f"{self.name} cannot be used ({type(error).__name__}): what was being recorded counts if it was "
                f"recorded, and nothing may be released for it"
            ) from error

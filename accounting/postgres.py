"""Connections to PostgreSQL for what must not be lost: where a database is, and that it writes through to the disk.

Several ledgers, or a ledger and a service, may share one database: each has a schema of its own, which the address
names: ``postgresql://user@host/database?schema=ledger``. All else in the address, and the ``PG…`` variables of the
environment, are libpq's; so a password may stay in its password file.

Needs the extra ``postgres`` (psycopg 3).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

if TYPE_CHECKING:
    import psycopg

__all__ = ["Place", "connect", "idle", "is_url", "place"]

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
# for libpq, unless the address says otherwise: a server that is gone is found out in seconds, also by the system
_PATIENCE = {
    "connect_timeout": "10", "keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3",
    "tcp_user_timeout": "20000", "application_name": "dpkit",
}  # fmt: skip
# what a session is told, in one round; then what the server must answer
_SETTINGS = {"synchronous_commit": "on", "standard_conforming_strings": "on", "client_encoding": "UTF8"}
_NEEDED = {"fsync": "on", "full_page_writes": "on", "server_encoding": "UTF8"}


class Place(NamedTuple):
    """A schema of a database: what was given, libpq's address, the schema, and a name for messages: no password."""

    url: str
    address: str
    schema: str
    name: str


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the address of a PostgreSQL database."""
    return isinstance(path, str) and path.startswith(("postgresql://", "postgres://"))


def place(url: str, *, schema: str) -> Place:
    """The place that an address names, by default a ``schema``.

    Raises
    ------
    ValueError
        If the schema's name is not plain.

    Examples
    --------
    >>> place("postgresql://ann:secret@db.example/bandits?schema=north", schema="ledger").name
    'postgresql://db.example/bandits?schema=north'
    """
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    named = [value for key, value in query if key == "schema"]
    schema = named[-1] if named else schema
    if not _SCHEMA.fullmatch(schema):
        raise ValueError(f"schema must be lower-case letters, digits and _, at most 63, got schema={schema!r}")
    rest = urlencode([pair for pair in query if pair[0] != "schema"])
    host = parts.netloc.rpartition("@")[2]
    return Place(
        url, urlunsplit(parts._replace(query=rest)), schema, f"postgresql://{host}{parts.path}?schema={schema}"
    )


def connect(where: Place, *, wait: float) -> psycopg.Connection[Any]:
    """A connection in autocommit, whose commits are on disk when they return, and which sees the schema alone.

    Parameters
    ----------
    where : Place
    wait : float
        For so many seconds a statement waits for a lock.

    Raises
    ------
    OSError
        If there is no server, or it does not let us in.
    ValueError
        If the server does not write through to the disk, or holds text in another encoding than UTF-8.
    """
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict, make_conninfo
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{where.name} needs psycopg 3: python -m pip install 'dpkit[postgres]'", name="psycopg"
        ) from error
    try:
        address = make_conninfo("", **{**_PATIENCE, **conninfo_to_dict(where.address)})
        connection = psycopg.connect(address, autocommit=True)
    except psycopg.Error as error:
        # the type alone: libpq's message may repeat the address
        raise OSError(f"{where.name} cannot be reached ({type(error).__name__}: {_first(error)})") from None
    try:
        told = _SETTINGS | {
            "lock_timeout": f"{round(1000 * wait)}ms",
            "idle_in_transaction_session_timeout": "60s",
            "search_path": where.schema,
        }
        asked = [f"set_config('{name}', %s, false)" for name in told]
        asked += [f"current_setting('{name}')" for name in _NEEDED]
        found = connection.execute(f"SELECT {', '.join(asked)}".encode(), list(told.values())).fetchone()
        for (name, needed), value in zip(_NEEDED.items(), (found or ())[len(told) :], strict=True):
            if value != needed:
                raise ValueError(
                    f"the server of {where.name} must have {name}={needed!r}, got {name}={value!r}: else what was "
                    f"committed may not be read back after a crash as it was"
                )
    except psycopg.Error as error:
        connection.close()
        raise OSError(f"{where.name} cannot be used ({type(error).__name__})") from error
    except BaseException:
        connection.close()
        raise
    return connection


def idle(connection: psycopg.Connection[Any]) -> bool:
    """Whether a connection is open, in no transaction, and nobody is in the middle of a command."""
    from psycopg.pq import TransactionStatus

    return not connection.lock.locked() and connection.info.transaction_status is TransactionStatus.IDLE


def _first(error: Exception) -> str:
    """What libpq says, without addresses."""
    lines = str(error).strip().splitlines()
    return lines[-1].rpartition("failed: ")[2].strip() if lines else ""

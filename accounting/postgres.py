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
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import psycopg

__all__ = ["Place", "connect", "idle", "is_url", "place"]

# what begins with pg_ is the server's own
_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
# a user and a password in percent codes, and hosts with ports; what is else may be a part of a password
_USER = re.compile(r"([^%@]|%[0-9A-Fa-f]{2})*")
_HOSTS = re.compile(r"((\[[^\[\]]*\]|[^:@\[\],]*)(:[0-9]*)?(,|$))+")
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
    """Whether a path is an address, which must be that of a PostgreSQL database, and no file."""
    return isinstance(path, str) and "://" in path


def place(url: str, *, schema: str) -> Place:
    """The place that an address names, by default a ``schema``.

    Raises
    ------
    ValueError
        If the schema's name is not plain, or it cannot be told where a password ends; nothing of it is repeated.

    Examples
    --------
    >>> place("postgresql://ann:secret@db.example/bandits?schema=north", schema="ledger").name
    'postgresql://db.example/bandits?schema=north'
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # its message repeats what it does not like
        parts = urlsplit("#")
    user, _, host = parts.netloc.rpartition("@")
    plain = url.isprintable() and " " not in url and not parts.fragment and "@" not in parts.path + parts.query
    if not (plain and parts.scheme in ("postgresql", "postgres") and _USER.fullmatch(user) and _HOSTS.fullmatch(host)):
        raise ValueError(
            "the address of a PostgreSQL database must be postgresql://user:password@host:port/database, got another "
            "one: write special characters of user and password in percent codes (%40 for @, %2F for /, %23 for #, "
            "%3F for ?, %25 for %), or leave the password to PGPASSWORD or a password file"
        )
    # the rest stays as it was written: libpq reads + and %20 otherwise than browsers do
    query = parts.query.split("&") if parts.query else []
    named = [pair.partition("=")[2] for pair in query if pair.startswith("schema=")]
    schema = named[-1] if named else schema
    if not _SCHEMA.fullmatch(schema):
        raise ValueError(
            f"schema must be lower-case letters, digits and _, at most 63, not pg_…, got schema={schema!r}"
        )
    where = f"{parts.scheme}://{parts.netloc}{parts.path}"
    rest = "&".join(pair for pair in query if not pair.startswith("schema="))
    name = f"postgresql://{host}{parts.path}?schema={schema}"
    return Place(url, f"{where}?{rest}" if rest else where, schema, name)


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
            "search_path": f'"{where.schema}"',  # it may be a word of SQL
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

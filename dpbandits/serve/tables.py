"""The tables of a service: how they are made, taken over from an earlier release, and emptied.

They are made by a command and by nothing else: a database that is not there, for whatever reason, is not a new run.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpbandits.serve.database import Database, Mismatch, named, opened
from dpbandits.serve.lineage import begun

__all__ = ["NONE", "adopt", "check_format", "create", "erase", "erase_all", "rounds_of", "widen"]

NONE = (
    ": is the path right, and its volume mounted? A new run is made by `dpbandits serve init run.toml`, and by "
    "nothing else"
)
_FORMAT, _IS_FORMAT = 5, "WHERE name = 'format'"
_EVENTS = """
CREATE TABLE IF NOT EXISTS events (
  event TEXT PRIMARY KEY, request TEXT NOT NULL, answer TEXT NOT NULL, at {real} NOT NULL, number {whole} NOT NULL,
  id TEXT NOT NULL, ticket TEXT){end};
CREATE INDEX IF NOT EXISTS ranked ON events (at)
"""
_SLATES = "ALTER TABLE rewards ADD COLUMN positions {bytes}"
_TABLES = """
CREATE TABLE IF NOT EXISTS counts (
  one {whole} PRIMARY KEY, decisions {whole} NOT NULL, rewards {whole} NOT NULL, released {whole} NOT NULL,
  digest TEXT NOT NULL, incarnation TEXT NOT NULL, knocks {whole} NOT NULL, confirmed {whole} NOT NULL){end};
CREATE TABLE IF NOT EXISTS decisions (
  number {whole} PRIMARY KEY, token TEXT NOT NULL, at {real} NOT NULL, chosen {whole} NOT NULL, probability {real},
  bandit {whole}, arm {bytes}, person TEXT, rewarded {whole} NOT NULL DEFAULT 0, digest TEXT){end};
CREATE INDEX IF NOT EXISTS served ON decisions (number) WHERE rewarded > 0;
CREATE TABLE IF NOT EXISTS rewards (
  number {whole} PRIMARY KEY, decision {whole} NOT NULL, after {whole} NOT NULL, reward {real} NOT NULL,
  agreed {whole}, probability {real}, positions {bytes}){end};
CREATE TABLE IF NOT EXISTS releases (
  number {whole} PRIMARY KEY, at {real} NOT NULL, decisions {whole} NOT NULL, released TEXT NOT NULL,
  shown TEXT NOT NULL){end};
CREATE TABLE IF NOT EXISTS lease (one {whole} PRIMARY KEY, holder TEXT NOT NULL, until {real} NOT NULL){end};
CREATE TABLE IF NOT EXISTS curve (part {whole} PRIMARY KEY, rewards {real} NOT NULL, total {real} NOT NULL){end};
CREATE TABLE IF NOT EXISTS apprentice (
  part {whole} PRIMARY KEY, rounds {real} NOT NULL, agreed {real} NOT NULL, reward {real} NOT NULL,
  known {real} NOT NULL, w {real} NOT NULL, ww {real} NOT NULL, wr {real} NOT NULL, wwr {real} NOT NULL,
  wwrr {real} NOT NULL){end};
CREATE TABLE IF NOT EXISTS visits (person TEXT PRIMARY KEY, id TEXT NOT NULL, chosen {whole} NOT NULL){end};
CREATE TABLE IF NOT EXISTS tickets (token TEXT PRIMARY KEY, number {whole} NOT NULL){end};
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL){end}
"""


def check_format(database: Database, where: Path | str) -> None:
    """Refuse a database without the tables of a service, or with those of another release.

    Raises
    ------
    Mismatch
    """
    if not database.columns("facts"):
        raise Mismatch(f"storage.database: there is no service in {named(where)}{NONE}")
    if (found := _format(database)) != _FORMAT:
        adopted = "`dpbandits serve init run.toml --adopt` changes it over"
        way = adopted if found in (2, 3, 4) else "another release of this package made it, and reads it"
        raise Mismatch(f"storage.database must be of format {_FORMAT}, got {named(where)} of format {found}: {way}")


def _format(database: Database) -> Any:
    (text,) = database.execute(f"SELECT value FROM facts {_IS_FORMAT}").fetchone() or ("null",)
    return json.loads(text)


def _statements(tables: str, database: Database) -> list[str]:
    return [one.format(**database.types) for one in tables.split(";\n")]


def create(where: Path | str, facts: Mapping[str, Any]) -> None:
    """Make the tables, and write public facts down, in one step.

    Raises
    ------
    FileExistsError
        If there is a service already.
    """
    database = opened(where, create=True)
    incarnation = secrets.token_hex(16)
    known = {"format": _FORMAT, "key": secrets.token_hex(32), "incarnations": [{"id": incarnation, "after": 0}]}
    try:
        if database.columns("facts"):
            raise FileExistsError(f"there is a service in {named(where)} already")
        made = [*_statements(_TABLES, database), *_statements(_EVENTS, database)]
        made += [f"INSERT INTO counts VALUES (1, 0, 0, -1, '{begun(incarnation)}', '{incarnation}', 0, 0)"]
        texts = [(name, json.dumps(value).replace("'", "''")) for name, value in {**known, **facts}.items()]
        made += [f"INSERT INTO facts VALUES ('{name}', '{text}')" for name, text in texts]
        database.make(made)
    finally:
        database.close()


def widen(where: Path | str) -> bool:
    """Change over a database of format 3, which had no events, or 4, which had no slates; False if of another one."""
    database = opened(where)
    try:
        if not database.columns("facts") or _format(database) not in (3, 4):
            return False
        with database.writing():
            for statement in (
                *_statements(_EVENTS, database),
                *_statements(_SLATES, database),
                f"UPDATE facts SET value = '{_FORMAT}' {_IS_FORMAT}",
            ):
                database.execute(statement)
        return True
    finally:
        database.close()


def adopt(where: Path | str, facts: Mapping[str, Any], least: int) -> None:
    """Change over a database of format 2, whose ids were no codes; in one step.

    Rounds that it has keep their ids; later ones are of a first incarnation.

    Raises
    ------
    Mismatch
        If it is of another format, or has fewer decisions than ``least``.
    """
    database = opened(where)
    try:
        if not database.columns("facts") or _format(database) != 2:
            raise Mismatch(f"storage.database must be of format 2 to be adopted, got {named(where)} of another one")
        incarnation, whole = secrets.token_hex(16), database.types["whole"]
        with database.writing():
            (count,) = database.execute(f"SELECT decisions FROM counts{database.lock}").fetchone()
            if count < least:
                raise Mismatch(
                    f"storage.database must hold the {least} decisions of the checkpoint, got {named(where)} with "
                    f"{count}: put a newer copy back"
                )
            for statement in (
                "ALTER TABLE decisions ADD COLUMN digest TEXT",
                f"ALTER TABLE counts ADD COLUMN digest TEXT NOT NULL DEFAULT '{begun(incarnation)}'",
                f"ALTER TABLE counts ADD COLUMN incarnation TEXT NOT NULL DEFAULT '{incarnation}'",
                f"ALTER TABLE counts ADD COLUMN knocks {whole} NOT NULL DEFAULT 0",
                f"ALTER TABLE counts ADD COLUMN confirmed {whole} NOT NULL DEFAULT 0",
                "CREATE TABLE IF NOT EXISTS visits "
                f"(person TEXT PRIMARY KEY, id TEXT NOT NULL, chosen {whole} NOT NULL){database.types['end']}",
                *_statements(_EVENTS, database),
                *_statements(_SLATES, database),
                "DROP INDEX IF EXISTS served",
                "CREATE INDEX served ON decisions (number) WHERE rewarded > 0",
            ):
                database.execute(statement)
            incarnations = [{"id": "", "after": 0}, {"id": incarnation, "after": count}]
            known = {**facts, "incarnations": incarnations, "format": _FORMAT}
            later = " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
            database.insert("facts", [(name, json.dumps(value)) for name, value in known.items()], later)
    finally:
        database.close()


def rounds_of(database: Database, person: str) -> list[int]:
    """The decisions that have a person's id."""
    rows = database.execute("SELECT number FROM decisions WHERE person = ?", person).fetchall()
    return [number for (number,) in rows]


def erase(database: Database, numbers: Sequence[int], visit: str) -> None:
    """Erase decisions that were learned from, with what waits for them; and a person's first visit."""
    list(database.among("DELETE FROM rewards WHERE decision IN", numbers))
    list(database.among("DELETE FROM tickets WHERE number IN", numbers))
    list(database.among("DELETE FROM events WHERE number IN", numbers))
    list(database.among("DELETE FROM decisions WHERE number IN", numbers))
    database.execute("DELETE FROM visits WHERE person = ?", visit)


def erase_all(database: Database) -> None:
    """Erase all raw rows, in one step."""
    with database.writing():
        for table in ("decisions", "rewards", "tickets", "visits", "events", "curve", "apprentice"):
            database.execute(f"DELETE FROM {table}")

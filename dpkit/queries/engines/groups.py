"""Groups in SQL: the columns that they are in, and listed ones with their numbers."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpkit.queries.engines.dialects import literal

if TYPE_CHECKING:
    from dpkit.queries.engines.tables import Table

__all__ = ["group_columns", "key_rows", "named"]

# a sign that stands in no key, but for those that are then written one by one
_BETWEEN = chr(31)
_TYPES = {"whole": "BIGINT", "real": "DOUBLE", "truth": "BOOLEAN", "text": "VARCHAR", "date": "TIMESTAMP"}


def named(groups: Any) -> list[str]:
    """The names of the columns that groups are in."""
    if groups is None:
        return []
    names = [groups] if isinstance(groups, str) else list(groups) if isinstance(groups, (list, tuple)) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"groups must name a column of the table, or several, got groups={groups!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"groups must name each column once, got groups={names!r}")
    return names


def group_columns(table: Table, groups: Any) -> list[str]:
    """The columns of groups; what is missing is NULL."""
    found = []
    for name in named(groups):
        kind = table.kind(name, "groups")
        column = table.dialect.column(name)
        if kind == "other":
            raise TypeError(
                f"groups must be numbers, texts, dates or true and false, got {name!r} of {table.types[name]}"
            )
        if kind == "real":
            column = f"CAST({column} AS DOUBLE)"
            column = f"CASE WHEN NOT ISNAN({column}) THEN {column} + CAST(0 AS DOUBLE) END"  # −0 is 0
        found.append(table.dialect.text(column) if kind == "text" else column)
    return found


def key_rows(table: Table, names: Sequence[str], keys: list[Any]) -> str:
    """The listed groups with their numbers, as what can stand behind FROM."""
    parts = [key if len(names) > 1 else (key,) for key in keys]
    columns = [
        [_key(table, name, part) for part in column]
        for name, column in zip(names, zip(*parts, strict=True), strict=True)
    ]
    # a day and its midnight, 2⁵³ and 2⁵³ + 1: rows of such a group would count in both
    if repeated := len(keys) - len({tuple(map(_written, row)) for row in zip(*columns, strict=True)}):
        raise ValueError(
            f"keys must be distinct as {' and '.join(map(repr, names))} holds them, of type "
            f"{' and '.join(table.types[name] for name in names)}, got {repeated} repeated among {len(keys)}"
        )
    called = ", ".join(f"k{i}" for i in range(len(names)))
    if table.dialect.name == "duckdb" and not any(_BETWEEN in str(one) for column in columns for one in column):
        # one text for each column, which is read in a tenth of the time of as many rows
        lists = [f"UNNEST(range({len(keys)})) AS code"]
        for i, (name, column) in enumerate(zip(names, columns, strict=True)):
            text = table.dialect.quoted(_BETWEEN.join(map(_written, column)))
            kind = _TYPES[table.kind(name)]
            lists.append(f"UNNEST(CAST(string_split({text}, chr(31)) AS {kind}[])) AS k{i}")
        return f"(SELECT {', '.join(lists)}) AS keys"
    rows = [
        f"({i}, {', '.join(literal(one, table.dialect) for one in row)})"
        for i, row in enumerate(zip(*columns, strict=True))
    ]
    return f"(VALUES {', '.join(rows)}) AS keys(code, {called})"


def _key(table: Table, name: str, key: Any) -> Any:
    """A key as the column holds it."""
    kind = table.kind(name)
    value: Any = key.item() if isinstance(key, np.generic) else key
    wanted = {"truth": bool, "text": str, "date": datetime.date}
    if kind in wanted:
        fits = isinstance(value, wanted[kind])
    else:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**1023
    if not fits:
        raise TypeError(f"keys must be what {name!r} holds, which is of {table.types[name]}, got the key {key!r}")
    if kind == "whole":
        if value != int(value) or not -(2**63) <= value < 2**63:
            raise ValueError(f"keys must be whole numbers of 64 bits, as {name!r} holds them, got the key {key!r}")
        return int(value)
    if kind == "date":
        return _moment(value)
    return float(value) + 0.0 if kind == "real" else value


def _moment(date: datetime.date) -> datetime.datetime:
    """A day as its midnight."""
    if not isinstance(date, datetime.datetime):
        return datetime.datetime(date.year, date.month, date.day)
    if date.tzinfo is not None:
        raise ValueError("keys must not have a time zone: convert them to one time, and drop the zone")
    return date


def _written(key: Any) -> str:
    """A key as a text that its type is read from."""
    return repr(key) if isinstance(key, float) else key.isoformat() if isinstance(key, datetime.date) else str(key)

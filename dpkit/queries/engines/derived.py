"""Tables made of tables: joins, and one row for each person. Free of cost, as no number leaves the engine.

What has to hold for a query on them is that every row belongs to one person, so that bounds on the rows of a person
bound what that person moves:

* A join with a public table gives every row of the private one the matching rows of the public one. They are rows of
  the same person. Where the keys of the public table are distinct, which is looked up, a row stays one row.
* A join with a private table must be on the person too: then a joined row is made of two rows of the same person. If
  each of these tables has rows of that person removed, added or swapped, only joined rows of that person change. How
  many a person has after the join does not matter, because the bounds of the query (``max_contributions`` and the like)
  are applied to the joined rows: a person with a rows here and b there has a·b, of which as many are used as are
  allowed. Joined on anything else, a person would change rows that are other persons' as well, without bound.
* One row for each person holds what is computed of that person's rows alone, to the last digit: real numbers are added
  up in increasing order. An engine adds up in an order that depends on all rows, and where a test says "total > 0.6",
  the last digits of everybody's total would depend on whether one person is there.

In all three the unit is the person, in all tables together; a budget that counts rows is refused where one row of the
data may have become several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpkit.queries.engines.sessions import DuckDB, Relation

if TYPE_CHECKING:
    from dpkit.queries.engines.tables import Table

__all__ = ["joined", "one_row_each"]

_FUNCTIONS = ("count", "sum", "mean", "min", "max")


def joined(left: Table, right: Table, on: str | Sequence[str], public: bool) -> Table:
    """The rows of both that agree in ``on``."""
    names = [on] if isinstance(on, str) else list(on)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"on must name one column of both tables, or several, got on={on!r}")
    for name in names:
        kinds = left.kind(name, "on"), right.kind(name, "on")
        if kinds[0] != kinds[1] or kinds[0] in ("real", "other"):
            raise TypeError(
                f"on must name columns of one type in both tables, whole numbers, texts or dates, got {name!r} of "
                f"{left.types[name]} and {right.types[name]}"
            )
    if left.person is None:
        raise ValueError("a join needs to know whose row it is: make the table by queries.table(..., person=COLUMN)")
    if not public and (right.person != left.person or left.person not in names):
        raise ValueError(
            f"on must name the person's column of both tables, got on={on!r}, person={left.person!r} here and "
            f"{right.person!r} there: joined on anything else, one person would change the rows of others without "
            "bound; if the other table says nothing of persons, say public=True"
        )
    if clash := sorted((set(left.types) & set(right.types)) - set(names)):
        raise ValueError(f"both tables have a column {clash[0]!r}: rename it in one of them, or join on it, too")
    say = left.dialect
    mine = ", ".join(f"a.{say.column(name)}" for name in left.types)
    theirs = "".join(f", b.{say.column(name)}" for name in right.types if name not in names)
    equal = " AND ".join(f"a.{say.column(name)} = b.{say.column(name)}" for name in names)
    source = f"(SELECT {mine}{theirs} FROM {left.rows()} AS a JOIN {_within(left, right)} AS b ON {equal})"
    single = public and _distinct(left, right, names)
    return replace(
        left,
        source=source,
        types=left.session.columns(source),
        filtered=True,
        needs_person=left.needs_person or not single,
        one_row_each=left.one_row_each and (single or (not public and right.one_row_each)),
        conditions=(),
        alive=(left.alive, right.alive),
    )


def _within(left: Table, right: Table) -> str:
    """The right table as the left one's engine reads it."""
    here, there = left.session, right.session
    if type(here) is type(there) and here.dialect.name == "spark":
        return right.rows()
    if not isinstance(here, DuckDB) or not isinstance(there, DuckDB) or isinstance(there, Relation):
        raise ValueError("both tables must be read by one engine: give both as files, or both as data frames of Spark")
    if there is not here and right.alive is not None:
        for frame in _flat(right.alive):
            here.registered(frame)
    return right.rows()


def _flat(alive: Any) -> list[Any]:
    parts = alive if isinstance(alive, tuple) else (alive,)
    return [one for part in parts for one in (_flat(part) if isinstance(part, tuple) else [part]) if one is not None]


def _distinct(left: Table, right: Table, names: list[str]) -> bool:
    """Whether no two rows of a public table have the same keys."""
    keys = ", ".join(right.dialect.column(name) for name in names)
    return not left.session.ask(f"SELECT 1 FROM {right.rows()} AS b GROUP BY {keys} HAVING COUNT(*) > 1 LIMIT 1")


def one_row_each(table: Table, columns: dict[str, Any]) -> Table:
    """One row for each person."""
    if table.person is None:
        raise ValueError(
            "per_person needs to know whose row it is: make the table by queries.table(..., person=COLUMN)"
        )
    if not columns:
        raise TypeError("per_person needs at least one column, total=('paid', 'sum') say, or visits='count'")
    say = table.dialect
    person = say.column(table.person)
    wanted = [f"{person} AS {person}"]
    for name, what in columns.items():
        pair = (None, what) if isinstance(what, str) else what if isinstance(what, (tuple, list)) else ()
        column, function = pair if len(pair) == 2 else (None, None)
        if function not in _FUNCTIONS or (column is None and function != "count") or name == table.person:
            raise ValueError(
                f"per_person takes columns such as total=('paid', 'sum'), with one of {', '.join(_FUNCTIONS)}, or "
                f"visits='count', got {name}={what!r}"
            )
        wanted.append(f"{_computed(table, column, function)} AS {say.column(name)}")
    source = f"(SELECT {', '.join(wanted)} FROM {table.rows()} AS a GROUP BY {person})"
    return replace(
        table,
        source=source,
        types=table.session.columns(source),
        row_key=None,
        filtered=True,
        needs_person=True,
        one_row_each=True,
        conditions=(),
    )


def _computed(table: Table, column: str | None, function: str) -> str:
    if column is None:
        return "COUNT(*)"
    kind, name = table.kind(column), table.dialect.column(column)
    if (
        function != "count"
        and kind not in ("whole", "real", "truth")
        and not (kind == "date" and function in ("min", "max"))
    ):
        raise TypeError(f"per_person takes the {function} of numbers, got {column!r} of {table.types[column]}")
    if kind == "truth" and function != "count":
        name = f"CAST({name} AS INTEGER)"
    if function == "mean":
        # of whole numbers exact but for one rounding
        total = f"SUM({name})" if kind != "real" else table.dialect.sum_of_reals(name)
        return f"(CAST({total} AS DOUBLE) / CAST(COUNT({name}) AS DOUBLE))"
    if function == "sum" and kind == "real":
        return table.dialect.sum_of_reals(name)
    return f"{function.upper()}({name})"

"""A table that an engine reads: what analysts write, and what the queries ask of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dpkit.queries._where import Where, parse
from dpkit.queries.engines.conditions import condition
from dpkit.queries.engines.derived import joined, one_row_each
from dpkit.queries.engines.dialects import Dialect
from dpkit.queries.engines.sessions import Session, is_source, opened
from dpkit.queries.engines.together import Found, Scan, added_up

__all__ = ["Table", "table", "table_of"]

_WHOLE = re.compile(r"(TINY|SMALL|BIG|U|UTINY|USMALL|UBIG|HUGE|UHUGE)?INT(EGER|\d+)?$|LONG$|SHORT$|BYTE$")
_REAL = re.compile(r"(FLOAT|DOUBLE|REAL|DECIMAL(\(.*\))?)$")
_DATE = re.compile(r"(DATE|TIMESTAMP(_NTZ|_S|_MS|_NS)?)$")
_TEXT = re.compile(r"(VARCHAR|STRING|TEXT|UUID|ENUM\(.*\)|(VAR)?CHAR\(\d+\))$", re.DOTALL)


def table(data: Any, *, person: str | None = None, row_key: str | None = None) -> Table:
    """A table of any size, for every query of this package: read by an engine, not into memory.

    Parameters
    ----------
    data : path, LazyFrame, relation of DuckDB or data frame of Spark
        CSV or Parquet files: one, a folder of Parquet files or a pattern ("visits/*.parquet"), all of the same columns.
        Of CSV the first line says what separates columns, texts are quoted by ", and a row with more or fewer fields is
        refused. A column's type counts as public: that of CSV is the narrowest that holds all its values, so where one
        person's value could change it, from numbers to texts or from whole to real numbers say, give Parquet, or
        ``duckdb.read_csv(file, dtype={"id": "VARCHAR", "paid": "DOUBLE"})``.
    person : str, optional
        The column that says whose row it is: needed for ``join`` and ``per_person``. A query still says ``person=``.
    row_key : str, optional
        A column that tells a person's rows apart, a number or a text (of the visit, say). Which rows are used where a
        person has too many depends on it alone; without it, on the values that the query uses, which takes longer.

    Returns
    -------
    Table

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file or column, or if files differ in their columns.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "visits.csv"
    ...     _ = file.write_text("id,paid\\nu,20\\nv,30\\nv,40\\n")
    ...     visits = queries.table(file).where("paid > 20")
    ...     budget = Budget(1e6, 0.0, adjacency="add_remove")
    ...     queries.sum(visits, "paid", bounds=(0, 100), budget=budget).value
    70.0
    """
    if isinstance(data, Table):
        raise TypeError("data must be a path, a LazyFrame, a relation or a data frame, got a table of this package")
    if not is_source(data):
        raise TypeError(
            "data must be a path, a LazyFrame of polars, a relation of DuckDB or a data frame of Spark, got "
            f"{type(data).__name__}: what is in memory is given to a query as it is"
        )
    session, source, alive = opened(data)
    found = Table(session, source, session.columns(source), alive=alive)
    for name, column in (("person", person), ("row_key", row_key)):
        if column is not None:
            found.kind(column, name)
    return replace(found, person=person, row_key=row_key)


def table_of(data: Any) -> Table | None:
    """The table that data are, where an engine reads them; None for what is in memory."""
    if isinstance(data, Table):
        return data
    return table(data) if is_source(data) else None


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Made by :func:`table`; every method returns another one, and nothing is read before a query asks.

    What a method does is free of cost: it says which rows and columns a query means. ``filtered`` tables have a number
    of rows that is private under every adjacency.
    """

    session: Session
    source: str
    types: dict[str, str]
    person: str | None = None
    row_key: str | None = None
    filtered: bool = False
    one_row_each: bool = False  # at most one row of each person
    needs_person: bool = False  # its rows are not rows of the data one by one
    conditions: tuple[Where, ...] = ()
    alive: Any = field(default=None, compare=False)
    waits: Callable[[Scan], Found] | None = None  # asks together with other queries

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self.types)

    @property
    def dialect(self) -> Dialect:
        return self.session.dialect

    def __repr__(self) -> str:
        return f"<table of {', '.join(self.types)}>"

    def where(self, test: str) -> Table:
        """The rows that pass a test in words, ``"town = Linz and paid >= 20"``, as in ``where=`` of every query."""
        tree = parse(test)
        condition(tree, self.kind, self.dialect)
        return replace(self, filtered=True, conditions=(*self.conditions, tree))

    def join(self, other: Any, *, on: str | Sequence[str], public: bool = False) -> Table:
        """The rows of this table with those of another one that agree in ``on``.

        Parameters
        ----------
        other : Table, or what :func:`table` takes
        on : str or sequence of str
            Columns of both tables. What has no match is left out.
        public : bool
            The other table says nothing of persons (what towns there are, say): it is joined on any column. A private
            one must be of the same persons and joined on the person's column.

        Raises
        ------
        ValueError
            If what one person changes could not be bounded; the message says why.

        Examples
        --------
        >>> import polars as pl
        >>> from accounting import Budget
        >>> from dpkit import queries
        >>> visits = pl.LazyFrame({"id": [1, 1, 2], "town": ["A", "B", "B"], "paid": [20, 30, 40]})
        >>> towns = pl.LazyFrame({"town": ["A", "B"], "region": ["North", "South"]})
        >>> both = queries.table(visits, person="id").join(towns, on="town", public=True)
        >>> budget = Budget(1e6, 0.0, adjacency="add_remove", unit="person")
        >>> ask = {"person": "id", "max_groups": 2, "max_per_group": 1, "budget": budget}
        >>> queries.count(both, groups="region", keys=["North", "South"], **ask).value.tolist()
        [1, 2]
        """
        return joined(self, other if isinstance(other, Table) else table(other), on, public)

    def per_person(self, **columns: str | tuple[str, str]) -> Table:
        """One row for each person, of whom queries use all there is at ``max_contributions=1``.

        Parameters
        ----------
        **columns : (column, function), or "count"
            The new columns: ``total=("paid", "sum")``, with the functions count, sum, mean, min and max. Real numbers
            are added up in increasing order, so that a person's sum depends on that person's rows alone.

        Examples
        --------
        >>> import polars as pl
        >>> from accounting import Budget
        >>> from dpkit import queries
        >>> visits = pl.LazyFrame({"id": [1, 1, 2], "paid": [20, 30, 40]})
        >>> persons = queries.table(visits, person="id").per_person(total=("paid", "sum"))
        >>> budget = Budget(1e6, 0.0, adjacency="add_remove", unit="person")
        >>> answer = queries.mean(persons, "total", bounds=(0, 100), person="id", max_contributions=1, budget=budget)
        >>> round(answer.value)
        45
        """
        return one_row_each(self, columns)

    def kind(self, column: Any, what: str = "column") -> str:
        """What a column holds: "whole", "real", "truth", "date", "text" or "other"."""
        if not isinstance(column, str):
            raise TypeError(
                f"{what} must name a column of the table, one of {self.columns!r}, got {type(column).__name__}"
            )
        if column not in self.types:
            raise ValueError(f"{what} must be one of the columns {self.columns!r}, got {what}={column!r}")
        said = self.types[column]
        for kind, pattern in (("whole", _WHOLE), ("real", _REAL), ("date", _DATE), ("text", _TEXT)):
            if pattern.match(said):
                return kind
        return "truth" if said == "BOOLEAN" else "other"

    def added_up(self, scan: Scan) -> Found:
        """What a scan finds: by itself, or with those of the other queries of a plan."""
        if self.waits is not None:
            return self.waits(scan)
        (found,) = added_up(self.session, [scan])
        if isinstance(found, Exception):
            raise found
        return found

    def rows(self) -> str:
        """What stands behind FROM, and its WHERE."""
        if not self.conditions:
            return self.source
        tests = " AND ".join(condition(tree, self.kind, self.dialect) for tree in self.conditions)
        return f"(SELECT * FROM {self.source} AS f WHERE {tests})"

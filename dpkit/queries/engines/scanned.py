"""Rows that an engine reads: what a query asks of its data (``queries._rows.Rows``), as SQL.

Every value becomes a whole number inside the engine, by the arithmetic of ``Loaded`` in the same order, each step of
it one rounding of IEEE 754: clipped, scaled, rounded half to even; so the whole numbers are the same. A value that is
missing, not finite, or as a whole number beyond 2⁵³ has none, which the same scan counts: then the query is refused.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpkit.queries._groups import listed
from dpkit.queries._units import Share
from dpkit.queries._where import parse, told_instead
from dpkit.queries.engines.bounded import Selection, kept_totals
from dpkit.queries.engines.conditions import condition, dated_texts, not_dated
from dpkit.queries.engines.dialects import literal
from dpkit.queries.engines.tables import Table

__all__ = ["Scanned", "scanned"]

_T = TypeVar("_T")
Cells = NDArray[np.int64]
# beyond, noise could leave 64 bits
_LARGEST = 1 << 62
# a sign that stands in no key, but for those that are then written one by one
_BETWEEN = chr(31)
_TYPES = {"whole": "BIGINT", "real": "DOUBLE", "truth": "BOOLEAN", "text": "VARCHAR", "date": "TIMESTAMP"}
# as for what is in memory
_EXACT = 1 << 53


class Scanned:
    """Rows of a table, checked as far as its columns' types tell; their values are checked with the first sum."""

    def __init__(
        self,
        table: Table,
        *,
        where: Any,
        groups: Any,
        keys: Any,
        person: Any,
        column: Any,
        numeric: bool,
        dated: bool,
        weights: Any,
        largest_weight: float | None,
        bins: tuple[Array, bool] | None,
    ) -> None:
        self._table, self._say = table, table.dialect
        self.everything = where is None and not table.filtered
        self._where = "" if where is None else f" WHERE {self._test(where)}"
        self._value = self._number(column, "column", dated) if numeric else ""
        self.whole = numeric and table.kind(column) in ("whole", "truth")
        self._weight, self._largest = None, largest_weight
        if weights is not None:
            weight = self._number(weights, "weights", False)
            # what is negative has no whole number either
            weight = weight if table.kind(weights) == "real" else f"CAST({weight} AS DOUBLE)"
            self._weight = f"CASE WHEN {self._say.finite(weight)} AND {weight} >= CAST(0 AS DOUBLE) THEN {weight} END"
        self._groups, self._keys = self._group_columns(groups), None
        self.grouped = bool(self._groups) or bins is not None
        self.names: list[Any] = []
        if bins is not None:
            edges, cut = bins
            self._groups, self.names = [self._bin(edges, cut)], list(range(edges.size - 1))
        elif self._groups and keys is not None:
            self.names = listed(keys, [str(name) for name in _named(groups)])
            self._keys = self._key_rows(_named(groups), self.names)
        self._binned = bins is not None
        self._person = self._owner(person)
        self._whole_person = self._person is not None and table.kind(person) == "whole"

    @cached_property
    def n(self) -> int:
        return int(self._table.session.ask(f"SELECT COUNT(*) FROM {self._table.rows()} AS f")[0][0])

    def counts(self, share: Share, rng: np.random.Generator) -> Callable[[], Cells]:
        return _ready(self._totals(share, rng, [], ["n"])[0])

    def sums(
        self, share: Share, rng: np.random.Generator, step: float, bounds: tuple[float, float]
    ) -> Callable[[], Cells]:
        a, b = (round(end / step) for end in bounds)
        if self.whole and step == 1.0:
            x = self._value
            steps = f"CASE WHEN {x} > {b} THEN {b} WHEN {x} < {a} THEN {a} ELSE {x} END"
            steps = f"CASE WHEN {x} BETWEEN -{_EXACT} AND {_EXACT} THEN CAST({steps} AS BIGINT) END"
        else:
            # a power of two: no rounding
            steps = self._checked(f"{self._clipped(bounds)} * {literal(1 / step, self._say)}")
        return _ready(self._totals(share, rng, [steps], ["s0"])[0])

    def weights(
        self, share: Share, rng: np.random.Generator, bounds: tuple[float, float], degree: int, bits: int
    ) -> Callable[[], Cells]:
        one = 1 << bits
        u = self._place(bounds, bits)
        if self._weight is not None:
            of_one = f"CAST({one} AS DOUBLE)"
            largest = literal(self._largest, self._say)
            share_of_row = f"(CAST({self._weight} AS DOUBLE) / {largest})"
            most = f"CASE WHEN {share_of_row} > CAST(1 AS DOUBLE) THEN CAST(1 AS DOUBLE) ELSE {share_of_row} END"
            floor = f"FLOOR({most} * {of_one})"
            upper = self._say.rounded(f"{floor} * (CAST({u} AS DOUBLE) / {of_one})")
            whole = f"CAST({floor} AS BIGINT)"
            # not LEAST, which passes over what is missing
            columns = [whole, f"CASE WHEN {upper} > {whole} THEN {whole} ELSE {upper} END"]
            whole_sum, upper_sum = self._totals(share, rng, columns, ["s0", "s1"])
            return _ready(np.stack([whole_sum - upper_sum, upper_sum]))  # of a row together at most one
        if degree == 1:
            n, total = self._totals(share, rng, [u], ["n", "s0"], factor=one)
            return _ready(np.stack([n - total, total]))
        part = f"(CAST({u} AS DOUBLE) / CAST({one} AS DOUBLE))"
        top = self._say.rounded(f"{part} * {part} * CAST({one} AS DOUBLE)")
        rest = f"(CAST(1 AS DOUBLE) - {part})"
        bottom = self._say.rounded(f"{rest} * {rest} * CAST({one} AS DOUBLE)")
        columns = [top, f"CASE WHEN {bottom} > {one} - {top} THEN {one} - {top} ELSE {bottom} END"]
        n, above, below = self._totals(share, rng, columns, ["n", "s0", "s1"], factor=one)
        return _ready(np.stack([below, n - below - above, above]))

    def squares(self, bounds: tuple[float, float], bits: int) -> tuple[int, int]:
        u = self._place(bounds, bits)
        ((n, good, total, squares),) = self._table.session.ask(
            f"SELECT COUNT(*), COUNT(u), SUM(u), SUM(u * u) "
            f"FROM (SELECT {u} AS u FROM {self._table.rows()} AS f{self._where}) AS t"
        )
        self._refuse_bad(n - good)
        return int(total or 0), int(squares or 0)

    def values(self, share: Share, rng: np.random.Generator) -> Callable[[], list[NDArray[Any]]]:
        raise ValueError(
            "a quantile between bounds= sorts all rows, which an engine does not hand out: give candidates=, the "
            "values that it may take (numpy.linspace(0, 200, 401), say)"
        )

    def below(self, share: Share, rng: np.random.Generator, grid: Array) -> Callable[[], list[NDArray[np.int64]]]:
        x, (low, high) = self._value, (0, grid.size)
        place = f"CAST({self._tree(grid, x, 0, grid.size)} AS BIGINT)"
        # the number of grid points that are not above the value, which is below all later ones
        cells = self._totals(share, rng, [self._checked(place, rounding=False)], ["n"], spread=(low, high))[0].reshape(
            max(1, len(self.names)), grid.size + 1
        )
        return _ready([np.cumsum(row) for row in cells])

    def _test(self, where: Any) -> str:
        """The condition of ``where=``, whose columns are looked at as far as it depends on their values."""
        table = self._table
        if not isinstance(where, str):
            raise TypeError(
                f"where must name a column of true and false, or be a test in words, got {type(where).__name__}: a "
                "table that is read by an engine has no rows in memory that could be marked"
            )
        if where in table.types:
            if table.kind(where) != "truth":
                raise TypeError(
                    f"where must be True or False for each row, got {where!r} of {table.types[where]}: "
                    f"{told_instead(where)}"
                )
            column = self._say.column(where)
            ((missing,),) = table.session.ask(f"SELECT COUNT(*) FROM {table.rows()} AS f WHERE {column} IS NULL")
            if missing:
                raise ValueError(f"where must be True or False for each row, got {missing} missing in {where!r}")
            return column
        tree = parse(where)
        test = condition(tree, table.kind, self._say)
        for name in dated_texts(tree, table.kind):
            column = self._say.column(name)
            ((other,),) = table.session.ask(
                f"SELECT COUNT(*) FROM {table.rows()} AS f WHERE {not_dated(name, self._say)}"
            )
            if other:
                raise ValueError(
                    f"where must compare dates with dates, year first: {other:,} of the values of {name!r} are not "
                    f"like 2026-01-31; write them so first, or quote the value if it is a text ({column} = '...')"
                )
        return test

    def _number(self, column: Any, what: str, dated: bool) -> str:
        """A column as whole numbers, or as DOUBLE."""
        kind = self._table.kind(column, what)
        name = self._say.column(column)
        if dated:
            if kind != "date":
                raise TypeError(
                    f"{what} must hold dates, as its bounds are dates, got {column!r} of {self._type(column)}"
                )
            # days since 1970
            return f"(CAST({self._say.microseconds(name)} AS DOUBLE) / CAST('86400000000.0' AS DOUBLE))"
        if kind == "date":
            raise TypeError(
                f"{what} must hold numbers, got dates in {column!r}: the bounds of dates are dates, "
                "bounds=('2025-01-01', '2026-01-01') say"
            )
        if kind not in ("whole", "real", "truth"):
            raise TypeError(
                f"{what} must hold numbers, got {column!r} of {self._type(column)}: convert the column, what is no "
                "number to a missing value, and leave those rows out by where="
            )
        if kind == "truth":
            return f"CAST({name} AS INTEGER)"
        return name if kind == "whole" else f"CAST({name} AS DOUBLE)"

    def _type(self, column: str) -> str:
        return self._table.types[column]

    def _double(self) -> str:
        return f"CAST({self._value} AS DOUBLE)" if self.whole else self._value

    def _clipped(self, bounds: tuple[float, float]) -> str:
        low, high = (literal(end, self._say) for end in bounds)
        x = self._double()
        return f"CASE WHEN {x} > {high} THEN {high} WHEN {x} < {low} THEN {low} ELSE {x} END"

    def _checked(self, real: str, *, rounding: bool = True) -> str:
        """As a whole number where the value is one that counts."""
        x = self._value
        good = f"{x} BETWEEN -{_EXACT} AND {_EXACT}" if self.whole else self._say.finite(x)
        return f"CASE WHEN {good} THEN {self._say.rounded(real) if rounding else real} END"

    def _place(self, bounds: tuple[float, float], bits: int) -> str:
        """u, the place between the bounds, in units of 2**-bits."""
        low, high = bounds
        factor = literal(2.0**bits / (high - low), self._say)
        return self._checked(f"({self._clipped(bounds)} - {literal(low, self._say)}) * {factor}")

    def _bin(self, edges: Array, cut: bool) -> str:
        """The bin of the value, −1 for none, NULL for no value."""
        x, last = self._double(), edges.size - 2
        low, high = literal(float(edges[0]), self._say), literal(float(edges[-1]), self._say)
        place = self._even_bin(edges, x) or f"({self._tree(edges, x, 0, edges.size)} - 1)"
        ends = f"WHEN {x} >= {high} THEN {last} WHEN {x} < {low} THEN 0"
        if not cut:
            ends = f"WHEN {x} = {high} THEN {last} WHEN {x} > {high} OR {x} < {low} THEN -1"
        return self._checked(f"CASE {ends} ELSE {place} END", rounding=False)

    def _even_bin(self, edges: Array, x: str) -> str | None:
        """The bin by a division, where that is right for every number between the edges.

        Difference, quotient and floor never fall as x grows: what is right at every edge and just below it is right in
        between, too.
        """
        low, width = edges[0], (edges[-1] - edges[0]) / (edges.size - 1)
        at, below = (np.floor((ends - low) / width) for ends in (edges[:-1], np.nextafter(edges[1:], -np.inf)))
        bins = np.arange(edges.size - 1)
        if not (np.array_equal(at, bins) and np.array_equal(below, bins)):
            return None
        return f"CAST(FLOOR(({x} - {literal(float(low), self._say)}) / {literal(float(width), self._say)}) AS INTEGER)"

    def _tree(self, edges: Array, x: str, low: int, high: int) -> str:
        """How many of the increasing edges are not above x, by bisection."""
        if low == high:
            return str(low)
        middle = (low + high) // 2
        left, right = self._tree(edges, x, low, middle), self._tree(edges, x, middle + 1, high)
        return f"CASE WHEN {x} < {literal(float(edges[middle]), self._say)} THEN {left} ELSE {right} END"

    def _group_columns(self, groups: Any) -> list[str]:
        """The columns of groups; what is missing is NULL."""
        found = []
        for name in _named(groups):
            kind = self._table.kind(name, "groups")
            column = self._say.column(name)
            if kind == "other":
                raise TypeError(
                    f"groups must be numbers, texts, dates or true and false, got {name!r} of {self._type(name)}"
                )
            if kind == "real":
                column = f"CAST({column} AS DOUBLE)"
                column = f"CASE WHEN NOT ISNAN({column}) THEN {column} + CAST(0 AS DOUBLE) END"  # −0 is 0
            found.append(self._say.text(column) if kind == "text" else column)
        return found

    def _key_rows(self, names: Sequence[str], keys: list[Any]) -> str:
        """The listed groups with their numbers, as what can stand behind FROM."""
        parts = [key if len(names) > 1 else (key,) for key in keys]
        columns = [
            [self._key(name, part) for part in column]
            for name, column in zip(names, zip(*parts, strict=True), strict=True)
        ]
        # a day and its midnight, 2⁵³ and 2⁵³ + 1: rows of such a group would count in both
        if repeated := len(keys) - len({tuple(map(_written, row)) for row in zip(*columns, strict=True)}):
            raise ValueError(
                f"keys must be distinct as {' and '.join(map(repr, names))} holds them, of type "
                f"{' and '.join(map(self._type, names))}, got {repeated} repeated among {len(keys)}"
            )
        called = ", ".join(f"k{i}" for i in range(len(names)))
        if self._say.name == "duckdb" and not any(_BETWEEN in str(one) for column in columns for one in column):
            # one text for each column, which is read in a tenth of the time of as many rows
            lists = [f"UNNEST(range({len(keys)})) AS code"]
            for i, (name, column) in enumerate(zip(names, columns, strict=True)):
                text = self._say.quoted(_BETWEEN.join(map(_written, column)))
                kind = _TYPES[self._table.kind(name)]
                lists.append(f"UNNEST(CAST(string_split({text}, chr(31)) AS {kind}[])) AS k{i}")
            return f"(SELECT {', '.join(lists)}) AS keys"
        rows = [
            f"({i}, {', '.join(literal(one, self._say) for one in row)})"
            for i, row in enumerate(zip(*columns, strict=True))
        ]
        return f"(VALUES {', '.join(rows)}) AS keys(code, {called})"

    def _key(self, name: str, key: Any) -> Any:
        """A key as the column holds it."""
        kind = self._table.kind(name)
        value: Any = key.item() if isinstance(key, np.generic) else key
        wanted = {"truth": bool, "text": str, "date": datetime.date}
        if kind in wanted:
            fits = isinstance(value, wanted[kind])
        else:
            fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**1023
        if not fits:
            raise TypeError(f"keys must be what {name!r} holds, which is of {self._type(name)}, got the key {key!r}")
        if kind == "whole":
            if value != int(value) or not -(2**63) <= value < 2**63:
                raise ValueError(f"keys must be whole numbers of 64 bits, as {name!r} holds them, got the key {key!r}")
            return int(value)
        if kind == "date":
            return _moment(value)
        return float(value) + 0.0 if kind == "real" else value

    def _owner(self, person: Any) -> str | None:
        """Whose row it is; None where no person's rows have to be left out."""
        table = self._table
        if table.needs_person and person != table.person:
            raise ValueError(
                f"person must be {table.person!r} for a join or a table of one row for each person, whose rows are not "
                f"those of the data one by one, got person={person!r}: and Budget(..., unit='person')"
            )
        if person is None:
            return None
        kind = table.kind(person, "person")
        if kind not in ("whole", "text"):
            raise TypeError(
                f"person must be whole numbers or texts, got {person!r} of {self._type(person)}: convert it to a text"
            )
        name = self._say.column(person)
        if table.one_row_each:
            ((missing,),) = table.session.ask(f"SELECT COUNT(*) FROM {table.rows()} AS f WHERE {name} IS NULL")
            if missing:
                raise ValueError("person must be known for every row: leave the others out by where() beforehand")
            return None
        return f"CAST({name} AS BIGINT)" if kind == "whole" else self._say.text(name)

    def _totals(
        self,
        share: Share,
        rng: np.random.Generator,
        columns: list[str],
        wanted: list[str],
        *,
        factor: int = 1,
        spread: tuple[int, int] | None = None,
    ) -> list[Cells]:
        """Sums of whole columns over the rows that are used: ``n`` (their number, times the factor), ``s0``, ``s1``, ….

        With ``spread`` = (low, high), ``n`` is counted for every value of the first column, as in cells of its own.
        """
        table = self._table
        selection = Selection(
            table, self._where, self._person, self._whole_person, self._groups, self._keys, columns, self._binned
        )
        found = kept_totals(selection, share, rng, spread is not None)
        self._refuse_bad(found.bad)
        if found.unknown_groups:
            raise ValueError(
                f"groups must be known for every row that is asked about, got {found.unknown_groups} missing: leave "
                "these rows out by where="
            )
        if found.unknown_persons:
            raise ValueError(
                f"person must be known for every row that is asked about, got {found.unknown_persons} missing: give "
                "them an id of their own, or leave these rows out by where="
            )
        if self._groups and not self.names:
            codes = {key: i for i, key in enumerate(sorted(found.cells, key=repr))}
            self.names = [key[0] if len(key) == 1 else key for key in codes]
        else:
            codes = {(i,): i for i in range(max(1, len(self.names)))}
        values = 1 if spread is None else spread[1] - spread[0] + 1
        out = [[0] * (max(1, len(codes)) * values) for _ in wanted]
        for key, numbers in found.cells.items():
            at = codes.get(key[: len(key) - (spread is not None)] or (0,), -1)
            if at < 0:
                continue  # in no listed group
            place = at * values + (int(key[-1]) - spread[0] if spread is not None else 0)
            for row, name in zip(out, wanted, strict=True):
                row[place] += numbers[0] * factor if name == "n" else numbers[1 + int(name[1:])]
        if any(abs(number) >= _LARGEST for row in out for number in row):
            raise ValueError("the sum must fit into 63 bits of the lattice, and does not: count in a larger unit")
        return [np.array(row, np.int64) for row in out]

    def _refuse_bad(self, bad: int) -> None:
        if bad:
            also = " (or of weights, which must not be negative)" if self._weight is not None else ""
            raise ValueError(
                f"column must be finite numbers of at most 2**53, got {bad} rows with others or with none{also}: fill "
                "missing values with a number that does not depend on the data, or leave their rows out by where="
            )


def scanned(table: Table, **asked: Any) -> Scanned:
    """The rows of a table that these arguments mean (``queries._rows.rows_of``)."""
    return Scanned(table, **asked)


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


def _ready(found: _T) -> Callable[[], _T]:
    """What was added up before the ledger is charged, to be handed out after it."""
    return lambda: found


def _named(groups: Any) -> list[str]:
    if groups is None:
        return []
    names = [groups] if isinstance(groups, str) else list(groups) if isinstance(groups, (list, tuple)) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"groups must name a column of the table, or several, got groups={groups!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"groups must name each column once, got groups={names!r}")
    return names

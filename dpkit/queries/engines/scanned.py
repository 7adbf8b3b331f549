"""Rows that an engine reads: what a query asks of its data (``queries._rows.Rows``), as SQL.

Every value becomes a whole number inside the engine, by the arithmetic of ``Loaded`` in the same order, each step of
it one rounding of IEEE 754: clipped, scaled, rounded half to even; so the whole numbers are the same. A value that is
missing, not finite, or as a whole number beyond 2⁵³ has none, which the same scan counts: then the query is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpkit.queries._groups import listed
from dpkit.queries._units import Share
from dpkit.queries._where import parse, told_instead
from dpkit.queries.engines.bounded import kept_totals
from dpkit.queries.engines.conditions import condition, dated_texts, not_dated
from dpkit.queries.engines.dialects import literal
from dpkit.queries.engines.groups import group_columns, key_rows, named
from dpkit.queries.engines.layers import once
from dpkit.queries.engines.selection import Selection
from dpkit.queries.engines.tables import Table
from dpkit.queries.engines.together import Scan
from dpkit.queries.engines.values import Value, number

__all__ = ["UNSORTED", "Scanned", "scanned"]

_T = TypeVar("_T")
Cells = NDArray[np.int64]
# beyond, noise could leave 64 bits
_LARGEST = 1 << 62
UNSORTED = (
    "a quantile between bounds= sorts all rows, and the rows of a file or database are only counted: give "
    "candidates=, the values that it may take (numpy.linspace(0, 200, 401), say), or read the table into memory"
)


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
        self._n: int | None = None
        self.everything = where is None and not table.filtered
        self._where = "" if where is None else self._test(where)
        self.whole = numeric and not dated and table.kind(column) in ("whole", "truth")
        self._value = Value(number(table, column, "column", dated) if numeric else "", self.whole, self._say)
        self._weight, self._largest = None, largest_weight
        if weights is not None:
            weight = number(table, weights, "weights")
            # what is negative has no whole number either
            weight = weight if table.kind(weights) == "real" else f"CAST({weight} AS DOUBLE)"
            self._weight = f"CASE WHEN {self._say.finite(weight)} AND {weight} >= CAST(0 AS DOUBLE) THEN {weight} END"
        self._groups, self._keys = group_columns(table, groups), None
        self.grouped = bool(self._groups) or bins is not None
        self.names: list[Any] = []
        if bins is not None:
            edges, cut = bins
            self._groups, self.names = [self._value.bin(edges, cut)], list(range(edges.size - 1))
        elif self._groups and keys is not None:
            self.names = listed(keys, named(groups))
            self._keys = key_rows(table, named(groups), self.names)
        self._binned = bins is not None
        self._person = self._owner(person)
        self._whole_person = self._person is not None and table.kind(person) == "whole"

    @property
    def n(self) -> int:
        # no cached_property: until Python 3.12 that holds one lock for all tables, and this may wait for other queries
        if self._n is None:
            self._n = int(self._table.added_up(Scan(self._table.rows()))[0][0])
        return self._n

    def counts(self, share: Share, rng: np.random.Generator) -> Callable[[], Cells]:
        return _ready(self._totals(share, rng, [], ["n"])[0])

    def sums(
        self, share: Share, rng: np.random.Generator, step: float, bounds: tuple[float, float]
    ) -> Callable[[], Cells]:
        steps = self._value.steps(step, bounds)
        return _ready(self._totals(share, rng, [steps], ["s0"], known=steps)[0])

    def weights(
        self, share: Share, rng: np.random.Generator, bounds: tuple[float, float], degree: int, bits: int
    ) -> Callable[[], Cells]:
        one = 1 << bits
        u, known = self._value.place(bounds, bits), self._value.known
        if self._weight is not None:
            of_one = f"CAST({one} AS DOUBLE)"
            largest = literal(self._largest, self._say)
            share_of_row = f"(CAST({self._weight} AS DOUBLE) / {largest})"
            most = f"CASE WHEN {share_of_row} > CAST(1 AS DOUBLE) THEN CAST(1 AS DOUBLE) ELSE {share_of_row} END"
            floor = once(f"FLOOR({most} * {of_one})")
            upper = once(self._say.rounded(f"{floor} * (CAST({u} AS DOUBLE) / {of_one})"))
            whole = once(f"CAST({floor} AS BIGINT)")
            # not LEAST, which passes over what is missing
            columns = [whole, once(f"CASE WHEN {upper} > {whole} THEN {whole} ELSE {upper} END")]
            whole_sum, upper_sum = self._totals(share, rng, columns, ["s0", "s1"], known=columns[1])
            return _ready(np.stack([whole_sum - upper_sum, upper_sum]))  # of a row together at most one
        if degree == 1:
            n, total = self._totals(share, rng, [u], ["n", "s0"], factor=one, known=known)
            return _ready(np.stack([n - total, total]))
        part = once(f"(CAST({u} AS DOUBLE) / CAST({one} AS DOUBLE))")
        top = once(self._say.rounded(f"{part} * {part} * CAST({one} AS DOUBLE)"))
        rest = once(f"(CAST(1 AS DOUBLE) - {part})")
        bottom = once(self._say.rounded(f"{rest} * {rest} * CAST({one} AS DOUBLE)"))
        columns = [top, f"CASE WHEN {bottom} > {one} - {top} THEN {one} - {top} ELSE {bottom} END"]
        n, above, below = self._totals(share, rng, columns, ["n", "s0", "s1"], factor=one, known=known)
        return _ready(np.stack([below, n - below - above, above]))

    def squares(self, bounds: tuple[float, float], bits: int) -> tuple[int, int]:
        u = self._value.place(bounds, bits)
        ((n, good, total, squares),) = self._table.added_up(
            Scan(self._table.rows(), self._where, known=(self._value.known,), added=(u, f"{u} * {u}"))
        )
        self._refuse_bad(n - good)
        return int(total or 0), int(squares or 0)

    def values(self, share: Share, rng: np.random.Generator) -> Callable[[], list[NDArray[Any]]]:
        raise ValueError(UNSORTED)

    def below(self, share: Share, rng: np.random.Generator, grid: Array) -> Callable[[], list[NDArray[np.int64]]]:
        # a value is below all points of the grid but those that are not above it
        cells = self._totals(share, rng, [self._value.reached(grid)], ["n"], spread=grid.size + 1)[0]
        return _ready([np.cumsum(row) for row in cells.reshape(-1, grid.size + 1)])

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
                f"person must be whole numbers or texts, got {person!r} of {table.types[person]}: convert it to a text"
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
        spread: int = 1,
        known: str | None = None,
    ) -> list[Cells]:
        """Sums of whole columns over the rows that are used: ``n`` (their number, times the factor), ``s0``, ``s1``, ….

        ``known`` has a value where all of the columns have one, by default the first column. With ``spread`` = s, ``n``
        is counted for each value 0, …, s − 1 of the first column, in cells of its own.
        """
        table = self._table
        selection = Selection(
            table, self._where, self._person, self._whole_person, self._groups, self._keys, columns,
            columns[:1] if known is None else [known], self._binned,
        )  # fmt: skip
        found = kept_totals(selection, share, rng, spread > 1)
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
        if self._groups and self._keys is None and not self._binned:
            codes = {key: i for i, key in enumerate(sorted(found.cells, key=repr))}
            self.names = [key[0] if len(key) == 1 else key for key in codes]
        else:
            codes = {(i,): i for i in range(max(1, len(self.names)))}
        out = [[0] * (len(codes) * spread) for _ in wanted]
        for key, numbers in found.cells.items():
            at = codes.get(key[: len(key) - (spread > 1)] or (0,), -1)
            if at < 0:
                continue  # in no listed group
            place = at * spread + (int(key[-1]) if spread > 1 else 0)
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


def _ready(found: _T) -> Callable[[], _T]:
    """What was added up before the ledger is charged, to be handed out after it."""
    return lambda: found

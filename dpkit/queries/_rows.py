"""The rows that a query uses, and their sums as whole numbers: the seam between queries and what holds the data.

A query states sensitivities, prices, draws noise and writes the ledger; what it asks of the data is here: that they are
good (everything is checked when :func:`rows_of` returns or when the first sum is asked for), that at most so many rows
of one person are used, and exact sums of whole numbers. Data in memory do it by numpy (:class:`Loaded`), all others in
their engine (``dpkit.queries.engines``); on the same rows both give the same whole numbers.

Every method is called before the ledger is charged, and returns a function that hands out its sums afterwards. An
engine adds up in the first call: one that is stopped, or that finds bad values, costs nothing. In memory all is checked
before, and the second call does the work. Rounding keeps the order of numbers, so that what is clipped to the bounds
and then rounded lies between the rounded bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from accounting.checks import positive
from dpkit.queries._columns import mask, numbers, size
from dpkit.queries._groups import grouped_by
from dpkit.queries._units import Share, kept_rows, owners
from dpkit.queries.engines import UNSORTED, Table, is_source, scanned, table_of

__all__ = ["MOST_BINS", "Bins", "Rows", "check_sortable", "given", "read_once", "rows_of"]

#: More bins than anybody draws are a typing error, or fill the memory.
MOST_BINS = 1_000_000
Cells = NDArray[np.int64]
_T = TypeVar("_T")
# what was read of data in memory, by what was asked for
_READ: ContextVar[dict[Any, Any] | None] = ContextVar("read", default=None)


@dataclass(frozen=True)
class Bins:
    """Groups that are the bins of the column; values outside the edges are in none, or are ``cut`` to them."""

    edges: Array
    cut: bool

    def places(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The bin of each value, −1 for none."""
        edges = self.edges
        inside = np.clip(values, edges[0], edges[-1]) if self.cut else values
        place = np.searchsorted(edges, inside, side="right") - 1
        place[inside == edges[-1]] = edges.size - 2
        place[(place < 0) | (place > edges.size - 2)] = -1
        return np.asarray(place, np.int64)


class Rows(Protocol):
    """The rows in use; ``everything``: all of the data, so that their number can be public."""

    everything: bool
    grouped: bool
    names: list[Any]
    whole: bool  # the column holds whole numbers

    @property
    def n(self) -> int:
        """The number of rows of the data."""
        ...

    def counts(self, share: Share, rng: np.random.Generator) -> Callable[[], Cells]:
        """How many rows are used of each group, or of all."""
        ...

    def sums(
        self, share: Share, rng: np.random.Generator, step: float, bounds: tuple[float, float]
    ) -> Callable[[], Cells]:
        """The sums of the values, cut to the bounds and rounded to whole steps."""
        ...

    def weights(
        self, share: Share, rng: np.random.Generator, bounds: tuple[float, float], degree: int, bits: int
    ) -> Callable[[], Cells]:
        """The sums of the Bernstein weights of a degree, times the rows' own, in units of 2**-bits, by group."""
        ...

    def squares(self, bounds: tuple[float, float], bits: int) -> tuple[int, int]:
        """The sums of the places between the bounds, in units of 2**-bits, and of their squares; of all rows."""
        ...

    def values(self, share: Share, rng: np.random.Generator) -> Callable[[], list[NDArray[Any]]]:
        """The values that are used, of each group or of all."""
        ...

    def below(self, share: Share, rng: np.random.Generator, grid: Array) -> Callable[[], list[NDArray[np.int64]]]:
        """How many of them are below each point of an increasing grid, and how many there are."""
        ...


def check_sortable(data: Any) -> None:
    """Refuse data whose rows are only counted, before any is read."""
    if isinstance(data, Table) or is_source(data):
        raise ValueError(UNSORTED)


@contextmanager
def read_once() -> Iterator[None]:
    """Inside, queries that name what they are about by texts share what they read of data in memory.

    Conditions, columns, groups and persons are kept until the end, each once, however many queries need them.
    """
    token = _READ.set({})
    try:
        yield
    finally:
        _READ.reset(token)


def _shared(data: Any, named: tuple[Any, ...], read: Callable[[], _T]) -> _T:
    """What ``read`` returns, or returned for the same names inside :func:`read_once`; nobody changes it."""
    known = _READ.get()
    if known is None:
        return read()
    key = (id(data), _exactly(named))
    if key not in known:
        known[key] = read()
    found: _T = known[key]
    return found


def _exactly(named: Any) -> Any:
    """What differs where arguments do: 1, 1.0 and True are equal, and a float of 32 bits may print as one of 64."""
    return tuple(map(_exactly, named)) if isinstance(named, (list, tuple)) else (type(named), repr(named), named)


def given(data: Any) -> Any:
    """The data as they are, or as a table where an engine reads them."""
    return table_of(data) or data


def rows_of(
    data: Any,
    *,
    where: Any,
    groups: Any = None,
    keys: Sequence[Any] | Mapping[str, Any] | None = None,
    person: Any,
    column: Any = None,
    numeric: bool = True,
    dated: bool = False,
    weights: Any = None,
    largest_weight: float | None = None,
) -> Rows:
    """The rows that these arguments of a query mean; ``numeric``: of a column that is calculated with."""
    if weights is None and largest_weight is not None:
        raise TypeError(f"largest_weight does not apply without weights, got largest_weight={largest_weight!r}")
    if weights is not None:
        if largest_weight is None:
            raise TypeError("largest_weight must be given with weights: larger ones are cut to it, so it bounds a row")
        largest_weight = positive("largest_weight", largest_weight)
    if not isinstance(data, Table):
        try:
            return Loaded(data, where, groups, keys, person, column, numeric, dated, weights, largest_weight)
        except TypeError as error:
            if not isinstance(groups, Bins):
                raise
            raise TypeError(f"{error}; texts and categories are counted by count(groups=, keys=)") from None
    bins = (groups.edges, groups.cut) if isinstance(groups, Bins) else None
    return scanned(
        data, where=where, groups=None if bins else groups, keys=None if bins else keys, person=person, column=column,
        numeric=numeric, dated=dated, weights=weights, largest_weight=largest_weight, bins=bins,
    )  # fmt: skip


class Loaded:
    """Rows in memory."""

    def __init__(
        self,
        data: Any,
        where: Any,
        groups: Any,
        keys: Any,
        person: Any,
        column: Any,
        numeric: bool,
        dated: bool,
        weights: Any,
        largest_weight: float | None,
    ) -> None:
        self.n = size(data)
        rows = None if where is None else _shared(data, ("where", where), lambda: mask(data, where))
        self.rows, self.everything = rows, rows is None
        self.column: NDArray[Any] = np.zeros(0)
        if numeric:
            self.column = _shared(
                data, ("column", column, where, dated), lambda: numbers(data, column, rows, dated=dated)
            )
        self.whole = self.column.dtype.kind in "biu"
        self.shares = None if weights is None else _shares(data, weights, largest_weight, rows)
        self.coded: NDArray[np.int64] | None
        if isinstance(groups, Bins):
            edges = groups.edges.tobytes()
            self.coded = _shared(
                data, ("bins", column, where, dated, edges, groups.cut), lambda: groups.places(self.column)
            )
            self.names = list(range(groups.edges.size - 1))
        else:
            self.coded, self.names = _shared(
                data, ("groups", groups, keys, where), lambda: grouped_by(data, groups, keys, rows)
            )
        self.owner = _shared(data, ("person", person, where), lambda: owners(data, person, rows))
        self.grouped = self.coded is not None

    def counts(self, share: Share, rng: np.random.Generator) -> Callable[[], Cells]:
        return lambda: self._counts(share, rng)

    def sums(
        self, share: Share, rng: np.random.Generator, step: float, bounds: tuple[float, float]
    ) -> Callable[[], Cells]:
        return lambda: self._sums(share, rng, step, bounds)

    def weights(
        self, share: Share, rng: np.random.Generator, bounds: tuple[float, float], degree: int, bits: int
    ) -> Callable[[], Cells]:
        return lambda: self._weights(share, rng, bounds, degree, bits)

    def values(self, share: Share, rng: np.random.Generator) -> Callable[[], list[NDArray[Any]]]:
        return lambda: self._values(share, rng)

    def below(self, share: Share, rng: np.random.Generator, grid: Array) -> Callable[[], list[NDArray[np.int64]]]:
        return lambda: self._below(share, rng, grid)

    def _counts(self, share: Share, rng: np.random.Generator) -> Cells:
        kept = self._kept(share, rng)
        if self.coded is None:
            return np.array([self.n if kept is None else int(np.count_nonzero(kept))])
        return np.bincount(self.coded if kept is None else self.coded[kept], minlength=len(self.names))

    def _sums(self, share: Share, rng: np.random.Generator, step: float, bounds: tuple[float, float]) -> Cells:
        """Exact, for each is at most 2³¹ steps."""
        kept = self._kept(share, rng)
        totals = np.zeros(max(1, len(self.names)), np.int64)
        for start, part in self._blocks(1 << 16):
            np.clip(part, *bounds, out=part)
            np.rint(np.divide(part, step, out=part), out=part)
            # sums of 2¹⁶ numbers of 2³¹ are exact in double precision
            self._add(totals, start, part if kept is None else part[kept[start : start + part.size]], kept)
        return totals

    def _weights(
        self, share: Share, rng: np.random.Generator, bounds: tuple[float, float], degree: int, bits: int
    ) -> Cells:
        kept, one, size = self._kept(share, rng), 1 << bits, 1 << 14
        cells = np.zeros((degree + 1, max(1, len(self.names))), np.int64)
        for start, u in self._places(bounds, bits, size, kept):
            if self.shares is not None:
                share_of_row = self.shares[start : start + size]
                whole = np.floor((share_of_row if kept is None else share_of_row[kept[start : start + size]]) * one)
                upper = np.minimum(np.rint(whole * (u / one)), whole)
                # nonnegative, and together at most one
                parts = [whole - upper, upper]
            elif degree == 1:
                parts = [one - u, u]
            else:
                part = u / one
                top = np.rint(part * part * one)
                # never beyond what is left, so that the weights of a row are nonnegative and add up to one
                bottom = np.minimum(np.rint((1 - part) ** 2 * one), one - top)
                parts = [bottom, one - bottom - top, top]
            for cell, part in zip(cells, parts, strict=True):
                # sums of 2¹⁴ numbers of 2³⁰ are exact in double precision
                self._add(cell, start, part, kept, size)
        return cells

    def squares(self, bounds: tuple[float, float], bits: int) -> tuple[int, int]:
        total, squares = 0, 0
        # squares of 25 bits are summed exactly in blocks of 2¹²
        for _, place in self._places(bounds, bits, 1 << 12, None):
            u = place.astype(np.int64)
            total += int(u.sum())
            squares += int((u * u).sum())
        return total, squares

    def _values(self, share: Share, rng: np.random.Generator) -> list[NDArray[Any]]:
        kept = self._kept(share, rng)
        used = self.column if kept is None else self.column[kept]
        if self.coded is None:
            return [used]
        own = self.coded if kept is None else self.coded[kept]
        order = np.argsort(own, kind="stable")
        return np.split(used[order], np.searchsorted(own[order], np.arange(1, len(self.names))))

    def _below(self, share: Share, rng: np.random.Generator, grid: Array) -> list[NDArray[np.int64]]:
        parts = [np.sort(part) for part in self._values(share, rng)]
        return [np.append(np.searchsorted(part, grid), part.size) for part in parts]

    def _kept(self, share: Share, rng: np.random.Generator) -> NDArray[np.bool_] | None:
        return kept_rows(self.owner, self.coded, share, self.rows, rng)

    def _blocks(self, size: int) -> Iterator[tuple[int, Array]]:
        for start in range(0, self.n, size):
            yield start, self.column[start : start + size].astype(np.float64)

    def _places(
        self, bounds: tuple[float, float], bits: int, size: int, kept: NDArray[np.bool_] | None
    ) -> Iterator[tuple[int, Array]]:
        """The places u between the bounds of the rows that are used, times 2**bits and rounded, block by block."""
        low, high = bounds
        factor = 2.0**bits / (high - low)
        for start, part in self._blocks(size):
            np.clip(part, low, high, out=part)
            part -= low
            part *= factor
            np.rint(part, out=part)
            yield start, part if kept is None else part[kept[start : start + size]]

    def _add(self, cell: Cells, start: int, part: Array, kept: NDArray[np.bool_] | None, size: int = 1 << 16) -> None:
        if self.coded is None:
            cell[0] += part.astype(np.int64).sum()
            return
        group = self.coded[start : start + size]
        if kept is not None:
            group = group[kept[start : start + size]]
        cell += np.bincount(group, weights=part, minlength=cell.size).astype(np.int64)


def _shares(data: Any, weights: Any, largest: float | None, rows: NDArray[np.bool_] | None) -> Array:
    """The weights of rows as shares of the largest, in [0, 1]."""
    found = numbers(data, weights, rows).astype(np.float64)
    if (found < 0).any():
        raise ValueError(f"weights must not be negative, got {int((found < 0).sum())} that are")
    if largest is None:
        raise RuntimeError("weights came without the largest, which rows_of refuses")
    return np.minimum(found / largest, 1.0)

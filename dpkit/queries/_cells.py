"""Columns of a CSV file as they are written: what a cell means depends on that cell and on what is asked, on no other.

A file declares no types. A type that is settled by looking at all cells would let one row decide how every other row is
read (``3.10`` is the number 3.1, until one cell says ``J3``), and no noise for one row hides that. So a cell is a text
for persons, groups and keys; a number where something is calculated, parsed by itself; and a test of ``where`` says by
its value what it compares, numbers, dates, truth or texts. Other cells decide at most whether a question is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpkit.queries._dates import DATE

__all__ = ["CellTable", "Cells"]

_TRUTH = {"true", "false"}


class Cells:
    """One column.

    Parameters
    ----------
    name : str
    column : pyarrow.ChunkedArray
        Large strings; null where the value is missing.
    decimal, thousands : str
        How numbers are written in it.
    """

    def __init__(self, name: str, column: Any, decimal: str = ".", thousands: str | None = None) -> None:
        self.name = name
        self._column = column
        self._decimal, self._thousands = decimal, thousands

    @cached_property
    def _coded(self) -> tuple[Any, NDArray[np.int64]]:
        """The different texts, and which one each cell has, −1 for none: all that follows looks at each text once."""
        coded = self._column.combine_chunks().dictionary_encode()
        return coded.dictionary, np.asarray(coded.indices.fill_null(-1), np.int64)

    def _spread(self, of_texts: Any, missing: Any) -> NDArray[Any]:
        """What holds of the different texts, for each cell."""
        return np.append(of_texts, np.array([missing], of_texts.dtype))[self._coded[1]]

    @cached_property
    def missing(self) -> NDArray[np.bool_]:
        """Which cells have no value."""
        return self._coded[1] < 0

    @cached_property
    def texts(self) -> NDArray[Any]:
        """Every cell as it is written, None where there is no value."""
        return self._spread(_objects(self._coded[0]), None)

    @property
    def persons(self) -> NDArray[np.int64]:
        """A number for each different text, −1 for what is missing."""
        return self._coded[1]

    @cached_property
    def labels(self) -> NDArray[Any]:
        """The same as names of groups: truth is ``true`` and ``false``, however it is capitalized."""
        texts, lower = _objects(self._coded[0]), _objects(self._lower)
        return self._spread(np.where((lower == "true") | (lower == "false"), lower, texts), None)

    @cached_property
    def _lower(self) -> Any:
        from pyarrow import compute as pc

        return pc.utf8_lower(self._coded[0])

    @cached_property
    def truth(self) -> NDArray[np.bool_] | None:
        """Which cells are true; None unless every cell that has a value is true or false."""
        lower = _objects(self._lower)
        if not lower.size or not set(lower.tolist()) <= _TRUTH:
            return None
        return self._spread(lower == "true", False)

    def equal(self, text: str, *, in_any_case: bool = False) -> NDArray[np.bool_]:
        """Which cells are this text."""
        return self._spread(_objects(self._lower if in_any_case else self._coded[0]) == text, False)

    @cached_property
    def _clean(self) -> Any:
        """The different texts as Python and Arrow write numbers, null where one is no number."""
        import pyarrow as pa
        from pyarrow import compute as pc

        digits, mark = "[0-9]+", re.escape(self._decimal)
        if self._thousands is not None:
            digits = f"[0-9]+(?:{re.escape(self._thousands)}[0-9]+)*"
        form = rf"^\s*[+-]?(?:{digits}(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][+-]?[0-9]{{1,5}})?\s*$"
        texts = self._coded[0]
        clean = pc.if_else(pc.match_substring_regex(texts, form), texts, pa.scalar(None, texts.type))
        clean = pc.utf8_trim_whitespace(clean)
        if self._thousands is not None:
            clean = pc.replace_substring(clean, self._thousands, "")
        if self._decimal != ".":
            clean = pc.replace_substring(clean, self._decimal, ".")
        return clean

    @cached_property
    def _numbers(self) -> Array:
        import pyarrow as pa

        try:
            found = self._clean.cast(pa.float64())
        except pa.ArrowInvalid:  # a sign +, or beyond the largest double
            return np.array([np.nan if one is None else float(one) for one in self._clean.to_pylist()], np.float64)
        return np.asarray(found.fill_null(np.nan), np.float64)

    @cached_property
    def numbers(self) -> Array:
        """The double nearest to what each cell writes; NaN where a cell is no number, or has no value."""
        return self._spread(self._numbers, np.nan)

    @cached_property
    def strange(self) -> NDArray[np.bool_]:
        """Which cells have a value that is no number."""
        return self._spread(np.asarray(self._clean.is_null(), np.bool_), False)

    @cached_property
    def dated(self) -> bool:
        """Whether there are values, and all of them are dates."""
        return len(self._coded[0]) > 0 and all(DATE.match(one) for one in self._coded[0].to_pylist())

    def signs(self, number: str) -> NDArray[np.int8]:
        """Whether each cell is less than the number (−1), equal to it (0) or greater (1), exactly.

        Rounding to a double keeps the order, so that texts must be compared only where the doubles are equal.
        """
        try:
            stated, own = Decimal(number), self._numbers
        except InvalidOperation:
            raise ValueError(f"where must compare with a number of a shorter exponent, got {number}") from None
        signs = (own > float(number)).astype(np.int8) - (own < float(number)).astype(np.int8)
        for i in np.flatnonzero(own == float(number)).tolist():
            exact = Decimal(self._clean[i].as_py())
            signs[i] = (exact > stated) - (exact < stated)
        return self._spread(signs, 0)


class CellTable(Mapping[str, NDArray[Any]]):
    """Columns of a CSV file: ``table[name]`` has their texts, ``table.cells(name)`` what else they can be read as."""

    def __init__(self, columns: Mapping[str, Cells], rows: int) -> None:
        self._columns, self.rows = dict(columns), rows

    def cells(self, name: str) -> Cells:
        """The column of this name."""
        if name not in self._columns:
            raise ValueError(f"column must be one of {list(self._columns)!r}, got {name!r}")
        return self._columns[name]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name].texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def _objects(texts: Any) -> NDArray[Any]:
    return np.asarray(texts.to_numpy(zero_copy_only=False), object)

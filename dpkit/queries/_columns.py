"""Columns out of arrays, Series and data frames, without depending on any library of data frames.

A column is found by ``data[name]`` and read by ``numpy.asarray``, which pandas, polars, pyarrow and mappings of arrays
all offer; a table that offers only Arrow's stream or the interchange protocol is read by pyarrow, if that is installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.checks import positive
from dpkit.clipping import real_array
from dpkit.queries._cells import Cells, CellTable
from dpkit.queries._dates import days, is_dated
from dpkit.queries._where import Where, missing, parse, passing, told_instead

__all__ = ["check_bounds", "chosen", "coded_by", "codes", "is_column", "labels", "mask", "name_of", "numbers", "size"]

# Between bounds that are nearer, the step of a lattice of 2⁵⁰ points would lose its digits, or be 0.
_NARROWEST = 1e-280
Column = Any  # an array or Series, or the name of a column of the data


def _is_frame(data: object) -> bool:
    return hasattr(data, "columns") or hasattr(data, "column_names") or isinstance(data, Mapping)


def _column_names(data: Any) -> list[object]:
    found = data.keys() if isinstance(data, Mapping) else getattr(data, "column_names", None)
    return list(data.columns if found is None else found)


def _arrow(data: Any) -> Any:
    """``data``, or as a table of pyarrow where it speaks only a protocol."""
    if _is_frame(data) or hasattr(data, "__array__") or not hasattr(data, "__arrow_c_stream__"):
        if _is_frame(data) or not hasattr(data, "__dataframe__"):
            return data
        from pyarrow import interchange

        return interchange.from_dataframe(data)
    import pyarrow

    return pyarrow.table(data)


def _loaded(data: Any) -> Any:
    """The same, refused where it is not in memory: queries that an engine answers do not come here."""
    if (
        isinstance(data, (str, os.PathLike))
        or (type(data).__name__ in ("LazyFrame", "Table") and not hasattr(data, "column_names"))  # pyarrow's is loaded
        or hasattr(data, "sparkSession")
    ):
        raise TypeError(
            "this query reads data that are in memory, an array or a table of pandas, polars or pyarrow, got "
            f"{type(data).__name__}: counts, sums, means, variances, histograms and quantiles among candidates are "
            "answered from files; for this one read the columns that it needs"
        )
    return _arrow(data)


def _read(data: Any, column: Column, what: str) -> NDArray[Any]:
    """The one-dimensional array that ``column`` means; None is ``data`` itself."""
    data = _loaded(data)
    if column is None and _is_frame(data):
        names = _column_names(data)
        raise TypeError(f"{what} must name a column where the data is a table, one of {names!r}")
    if isinstance(column, str):
        if not _is_frame(data):
            raise TypeError(
                f"{what}={column!r} names a column, and the data has none: give an array, or a table as data"
            )
        if column not in _column_names(data):
            raise ValueError(f"{what} must be one of the columns {_column_names(data)!r}, got {what}={column!r}")
        column = data[column]
    elif isinstance(column, list) and column and _is_frame(data) and set(map(str, column)) <= set(_column_names(data)):
        raise TypeError(
            f"{what} must be one column, got {column!r}: ask once for each, or for all in one plan (dpkit.queries.plan)"
        )
    found = data if column is None else column
    if isinstance(found, np.ma.MaskedArray):
        raise TypeError(f"{what} must not be masked: fill it or drop the masked rows, got a masked array")
    array = np.asarray(found)
    if array.dtype.kind == "O" and getattr(getattr(found, "dtype", None), "kind", "O") in "iuf":
        array = found.to_numpy(dtype=np.float64, na_value=np.nan)  # a nullable column of pandas that lacks values
    if array.ndim != 1:
        told = f"an array of shape {array.shape}" if array.ndim else type(found).__name__
        raise ValueError(f"{what} must be one column, by its name or as an array, got {told}")
    index: Any = getattr(found, "index", None)
    other: Any = getattr(data, "index", None)
    if found is not data and hasattr(index, "equals") and hasattr(other, "equals") and not index.equals(other):
        raise ValueError(f"{what} must have the index of the data: two Series with different indexes were given")
    if not _is_frame(data) and data is not None and np.shape(data)[:1] != array.shape:
        raise ValueError(f"{what} must have one entry per row, got {array.shape[0]} for {len(data)} rows")
    if _is_frame(data) and size(data) != array.shape[0]:
        raise ValueError(f"{what} must have one entry per row, got {array.shape[0]} for {size(data)} rows")
    return array


def is_column(data: Any, name: str) -> bool:
    """Whether the data is a table with a column of this name."""
    data = _arrow(data)
    return _is_frame(data) and name in _column_names(data)


def size(data: Any) -> int:
    """The number of rows."""
    data = _loaded(data)
    if isinstance(data, CellTable):
        return data.rows
    if isinstance(data, Mapping):
        return len(next(iter(data.values()), ()))
    if not hasattr(data, "__len__") and np.ndim(data) == 0:  # numpy makes an array of a whole frame to tell
        raise TypeError(f"data must be an array, a Series or a table, got {type(data).__name__}")
    return len(data)


def name_of(data: Any, column: Column, fallback: str) -> str:
    """What to call a column in labels: never its values."""
    if isinstance(column, str):
        return column
    name = getattr(data if column is None else column, "name", None)
    return name if isinstance(name, str) else fallback


def numbers(data: Any, column: Column, rows: NDArray[np.bool_] | None = None, *, dated: bool = False) -> NDArray[Any]:
    """Finite real numbers, one per row; integers stay integers. Those outside ``rows`` may be missing, and are 0.

    ``dated``: the column holds dates, as the bounds do; they are counted in days.
    """
    if isinstance(data, CellTable) and isinstance(column, str) and column in data and not dated:
        array = _numbers_in(data.cells(column))
    else:
        array = _exact(data, column, _read(data, column, "column"))
    if isinstance(array, np.ma.MaskedArray):
        asked = array if rows is None or array.shape != rows.shape else array[rows]
        # outside of the rows 0, and else refused below
        array = np.where(missing(array), np.nan, array.data) if np.ma.is_masked(asked) else array.filled(0)
    if dated:
        array = days("column", array)
    elif array.dtype.kind == "M":
        raise TypeError(
            f"column must hold numbers, got dates in {name_of(data, column, 'data')!r}: the bounds of dates are dates, "
            "bounds=('2025-01-01', '2026-01-01') say"
        )
    if rows is not None and array.dtype.kind == "f" and array.shape == rows.shape:
        array = np.where(rows, array, array.dtype.type(0))
    if not array.size:
        return array if array.dtype.kind in "biu" else np.zeros(0)  # of no rows the kind may not be known
    if array.dtype.kind in "OUST":
        raise TypeError(
            f"column must hold numbers, got texts or objects in {name_of(data, column, 'data')!r}: read the file with "
            "its own decimal point, or convert the column, what is no number to a missing value "
            "(pandas.to_numeric(..., errors='coerce'))"
        )
    try:
        converted = real_array("column", array)
    except ValueError as error:
        if "NaN" not in str(error):
            raise
        raise ValueError(
            f"{error}: fill missing values with a number that does not depend on the data, or leave their rows "
            "out by where="
        ) from None
    return array if array.dtype.kind in "biu" else converted


def _numbers_in(cells: Cells) -> NDArray[np.float64]:
    """The numbers of a column of a CSV file: always real ones, as one cell with a decimal would make of them."""
    if cells.truth is not None:  # 1 and 0, cell by cell
        return np.where(cells.missing, np.nan, cells.truth)
    if strange := int(np.count_nonzero(cells.strange)):
        raise TypeError(f"column must hold numbers, got {strange:,} texts in {cells.name!r}")
    return cells.numbers


def _is_whole(data: Any, column: Column) -> bool:
    """Whether a column is of whole numbers, though what it lacks makes an array of floats of it."""
    data = _arrow(data)
    found = data if column is None else data[column] if isinstance(column, str) else column
    kind = getattr(found, "dtype", None)
    if kind is None:
        pyarrow, kind = sys.modules.get("pyarrow"), getattr(found, "type", None)
        return pyarrow is not None and isinstance(kind, pyarrow.DataType) and bool(pyarrow.types.is_integer(kind))
    is_integer = getattr(kind, "is_integer", None)  # of polars
    return getattr(kind, "kind", "") in ("i", "u") or (callable(is_integer) and bool(is_integer()))


def mask(data: Any, where: Column) -> NDArray[np.bool_]:
    """Which rows are meant: by a column of True and False, or by a test in words (``_where``)."""
    if isinstance(where, str) and _is_frame(data := _arrow(data)) and where not in _column_names(data):
        return chosen(data, parse(where))
    if isinstance(data, CellTable) and isinstance(where, str) and (truth := data.cells(where).truth) is not None:
        if data.cells(where).missing.any():
            raise ValueError(f"where must be known for each row: say {where} = true, which leaves out what is missing")
        return truth
    array = _read(data, where, "where")
    if array.dtype != np.bool_:
        told = "" if not isinstance(where, str) else f": {told_instead(where)}"
        raise TypeError(f"where must be True or False for each row, got where.dtype={array.dtype}{told}")
    return array


def chosen(data: Any, test: Where) -> NDArray[np.bool_]:
    """Which rows of a table pass a test."""

    def read(name: str) -> NDArray[Any] | Cells:
        if isinstance(data, CellTable) and name in data:
            return data.cells(name)
        return _exact(data, name, _read(data, name, "where"))

    return passing(test, read)


def _exact(data: Any, column: Column, array: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers of which some are missing, masked and not rounded to doubles; other arrays as they are.

    Whether one value is missing must not decide what the others are read as.
    """
    if array.dtype.kind not in "fO" or not _is_whole(data, column):
        return array
    data = _arrow(data)
    found = data if column is None else data[column] if isinstance(column, str) else column
    for fill, null in (("fillna", "isna"), ("fill_null", "is_null")):  # of pandas; of polars and pyarrow
        if hasattr(found, fill):
            values = np.asarray(getattr(found, fill)(0))
            return np.ma.masked_array(values, np.asarray(getattr(found, null)(), np.bool_))
    return array


def labels(data: Any, column: Column, what: str, rows: NDArray[np.bool_] | None = None) -> NDArray[Any]:
    """Whose row it is, or in which group: whole numbers, texts or anything that can be compared for equality.

    None may be missing in ``rows``, by default all.
    """
    if isinstance(data, CellTable) and isinstance(column, str) and column in data:
        cells = data.cells(column)
        # what persons are called is shown nowhere, and numbers are told apart faster
        array = cells.persons if what == "person" else cells.labels
        if what == "person" and cells.missing.any():
            array = np.where(cells.missing, np.nan, array)
    else:
        array = _read(data, column, what)
    kind = array.dtype.kind
    # NaN is not equal to itself
    if kind in "fO":
        pandas = sys.modules.get("pandas")  # whose NA has no truth value
        unknown = pandas.isna(array) if pandas else (array != array) | (array == None)  # noqa: E711
        if rows is not None and rows.shape == unknown.shape:
            unknown &= rows
        if missing := int(np.count_nonzero(unknown)):
            raise ValueError(
                f"{what} must be known for every row that is asked about, got {missing} missing: "
                f"{'give them an id of their own, or ' if what == 'person' else ''}leave these rows out by where="
            )
    if kind == "f" and _is_whole(data, column):
        # what is missing is in rows that nobody asked about, and must not decide what a group is called
        array = np.where(np.isfinite(array), array, 0.0)
        if np.abs(array).max(initial=0.0) >= 2.0**53:
            raise ValueError(
                f"{what} must be of at most 2**53 in size where some are missing, for larger ones were rounded: make "
                "texts of them, or drop the rows without one"
            )
        array = array.astype(np.int64)
    elif kind == "f":
        array = array + array.dtype.type(0)  # −0 is 0, whichever comes first
    if kind == "c":
        raise TypeError(f"{what} must be whole numbers, texts or categories, got {what}.dtype={array.dtype}")
    return array


def codes(array: NDArray[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    """A number for each distinct label, and the labels in the order of these numbers."""
    pandas = sys.modules.get("pandas")  # four times as fast on texts, where it is at hand
    if array.dtype.kind == "O" and pandas is None:
        seen: dict[Any, int] = {}
        coded = np.fromiter((seen.setdefault(label, len(seen)) for label in array.tolist()), np.int64, array.size)
        return coded, list(seen)
    if pandas is not None:
        coded, found = pandas.factorize(array)
        return coded.astype(np.int64, copy=False), found.tolist()
    found, coded = np.unique(array, return_inverse=True)
    return coded.astype(np.int64, copy=False), found.tolist()


def coded_by(array: NDArray[Any], keys: Sequence[Any]) -> NDArray[np.int64]:
    """The position of each label among the ``keys``, −1 where it is none of them."""
    position = {key: i for i, key in enumerate(keys)}
    if len(position) != len(keys):
        raise ValueError(f"keys must be distinct, got {len(keys) - len(position)} repeated among {len(keys)}")
    coded, found = codes(array)
    return np.array([position.get(label, -1) for label in found] or [0], np.int64)[coded] if array.size else coded


def check_bounds(bounds: Any) -> tuple[float, float]:
    """(low, high) as floats; of dates, in days."""
    if bounds is None:
        raise TypeError(
            "bounds must be given: (low, high) that you know of the column without looking at the data (values outside "
            "are cut to them), or what dpkit.queries.private_bounds finds"
        )
    ends = days("bounds", bounds) if is_dated(bounds) else bounds
    try:
        low, high = (float(end) for end in ends)
    except (TypeError, ValueError):
        raise TypeError(f"bounds must be two numbers, (0, 120) of ages say, got bounds={bounds!r}") from None
    if not (np.isfinite([low, high]).all() and low < high):
        raise ValueError(f"bounds must be finite with low < high, (0, 120) of ages say, got bounds={bounds!r}")
    if positive("the width of bounds", high - low) < _NARROWEST:
        raise ValueError(
            f"bounds must be at least {_NARROWEST:g} apart, for a lattice between them to be one of normal floats, got "
            f"bounds={bounds!r}: count in a smaller unit"
        )
    return low, high

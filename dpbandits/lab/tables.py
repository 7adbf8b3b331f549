"""Tables that people bring: CSV, Parquet or a pandas frame, read with complaints that name the row and the column."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpbandits._extras import need

__all__ = ["Table", "finite_range"]


class Table:
    """A table that remembers the first bad value, by row and then in the order of the checks.

    Parameters
    ----------
    source : path or pandas.DataFrame
        A ``.csv`` file (with a header) or a ``.parquet`` file, or a frame.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, or it is no table with different column names and at least one row.
    """

    def __init__(self, source: str | Path | Any) -> None:
        self._pandas = pandas = need("pandas", "reading a log")
        self._first_row = 1
        if isinstance(source, pandas.DataFrame):
            frame, self.name = source, "the frame"
        else:
            path = Path(source)
            self.name = path.name
            folder = path.is_dir() and path.suffix.lower() == ".parquet"
            if not (path.is_file() or folder):
                raise FileNotFoundError(f"there is no file {path}")
            if path.suffix.lower() == ".csv":
                frame = _read_csv(pandas, path)
                self._first_row = 2
            elif path.suffix.lower() == ".parquet":
                frame = _read_parquet(path)
            else:
                raise ValueError(f"a log must be a .csv or .parquet file, got {path}")
        self.columns = list(map(str, frame.columns))
        self.listed = ", ".join(self.columns)
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"{self.name}: the columns must have different names, got {self.listed}")
        if not len(frame):
            raise ValueError(f"{self.name}: there must be at least one row of data")
        self._frame = frame.set_axis(self.columns, axis=1)
        self._complaint: tuple[int, str] | None = None

    def require(self, columns: Sequence[str]) -> None:
        """Refuse a table without one of ``columns``."""
        for column in columns:
            if column not in self.columns:
                way = ""
                if len(self.columns) == 1 and any(mark in self.listed for mark in ";\t|"):
                    way = ": the columns of a .csv file are parted by commas; write it anew, or as Parquet"
                raise ValueError(f"{self.name}: there must be a column {column!r}, got {self.listed}{way}")

    def check(self, column: str, rows: NDArray[np.int64], why: str, way: str = "") -> None:
        """Remember the first of the bad ``rows``; ``way`` is what helps where the value is missing."""
        if not len(rows) or (self._complaint is not None and self._complaint[0] <= rows[0]):
            return
        value = self._frame[column].iloc[rows[0]]
        what = f"the value is missing{way}" if self._pandas.isna(value) or value == "" else f"{str(value)!r} {why}"
        place = f"{self.name}, row {rows[0] + self._first_row}, column {column!r}"
        self._complaint = (int(rows[0]), f"{place}: {what}")

    def complain(self) -> None:
        """Raise what was remembered, if anything was."""
        if self._complaint is not None:
            raise ValueError(self._complaint[1])

    def numbers(self, columns: Sequence[str], *, default: float | None = None, way: str = "") -> Array:
        """Values of shape (rows, columns), which must be finite; ``default`` stands for one that is missing."""
        X = np.empty((len(self._frame), len(columns)))
        for j, column in enumerate(columns):
            values = self._frame[column]
            if values.dtype.kind in "mM":  # dates would pass as numbers of nanoseconds
                values = values.astype(object)
            X[:, j] = self._pandas.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan)
            if default is not None:
                X[(values.isna() | (values == "")).to_numpy(dtype=bool), j] = default
            self.check(column, np.flatnonzero(~np.isfinite(X[:, j])), "is not a finite number", way)
        return X

    def codes(self, column: str) -> tuple[NDArray[np.int64], list[str]]:
        """Numbers of shape (rows,) for the values, in alphabetical order, and the values; none may be empty."""
        values = self._frame[column]
        texts = values.astype(str)
        self.check(column, np.flatnonzero((values.isna() | (texts == "")).to_numpy(dtype=bool)), "")
        codes, names = texts.factorize(sort=True, use_na_sentinel=False)
        return np.asarray(codes, dtype=np.int64), list(map(str, names))

    def delays(self, column: str) -> Array:
        """Whole numbers of rounds of shape (rows,); −1 where the value is missing (or −1): never."""
        found = self.numbers([column], default=-1.0)[:, 0]
        bad = np.flatnonzero(~((found >= -1) & (found == np.round(found))))
        self.check(column, bad, "must be a whole number of rounds, 0 or above, or empty for a reward that never came")
        return found

    def texts(self, column: str) -> list[str]:
        """The values as they are."""
        return list(map(str, self._frame[column]))

    def persons(self, column: str, starts: NDArray[np.int64] | None = None) -> list[str]:
        """The person of every round, whose rows begin at ``starts`` (by default every row is a round)."""
        codes, names = self.codes(column)
        starts = np.arange(len(codes)) if starts is None else starts
        firsts = np.repeat(codes[starts], np.diff(np.append(starts, len(codes))))
        self.check(column, np.flatnonzero(codes != firsts), "is another person than in the round's first row")
        return [names[code] for code in codes[starts]]


def finite_range(name: str, given: tuple[float, float]) -> tuple[float, float]:
    """Two numbers that are finite and increase."""
    low, high = map(float, given)
    if not (low < high and math.isfinite(high - low)):
        raise ValueError(f"{name} must be finite and increasing, got {name}={given!r}")
    return low, high


def _read_csv(pandas: Any, path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            # blank lines are kept, so that rows count as in a spreadsheet, and so is the text of empty cells: a
            # column with a bad value stays text, and the value can be quoted
            frame = pandas.read_csv(
                path,
                keep_default_na=False,
                skip_blank_lines=False,
                index_col=False,
                encoding="utf-8-sig",
                low_memory=False,
            )
    except pandas.errors.ParserWarning as error:
        raise ValueError(f"{path.name}, row 2: there are more fields than in the header") from error
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, UnicodeDecodeError) as error:
        # "Error tokenizing data. C error: Expected 3 fields in line 4, saw 5"
        reason = str(error).rpartition("C error: ")[2].strip()
        raise ValueError(f"{path.name}: {reason[:1].lower()}{reason[1:]}") from error
    # blank lines at the end are no rows
    filled = np.flatnonzero(~(frame.isna() | (frame == "")).all(axis=1).to_numpy())
    return frame.iloc[: filled[-1] + 1 if len(filled) else 0]


def _read_parquet(path: Path) -> Any:
    parquet = need("pyarrow.parquet", "reading Parquet")
    try:
        parts = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        tables = [parquet.ParquetFile(part).read() for part in parts]
        return need("pyarrow", "reading Parquet").concat_tables(tables).to_pandas()
    except need("pyarrow", "reading Parquet").ArrowInvalid as error:
        raise ValueError(f"{path.name}: {str(error).splitlines()[0]}") from error

"""Columns of a CSV or Parquet file, and what a command calls their values; what cannot be read is refused in words."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpkit.queries import Ask

__all__ = ["Form", "check_asked", "check_dates", "check_numbers", "group_labels", "read_columns", "typed_keys"]


@dataclass(frozen=True)
class Form:
    """How a CSV file is written."""

    separator: str
    decimal: str
    thousands: str | None
    missing: tuple[str, ...]

    def check(self) -> None:
        """Each mark is one character."""
        for name, mark in (("separator", self.separator), ("decimal", self.decimal), ("thousands", self.thousands)):
            if mark is not None and len(mark) != 1:
                raise ValueError(f"{name} must be one character, got {name}={mark!r}")


@contextmanager
def _in_words(file: Path, kind: str) -> Iterator[None]:
    """What a library says of a file that it cannot read, in words that help whoever has the file."""
    from pandas.errors import ParserError, ParserWarning

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ParserWarning)  # of fields that would be left out
            yield
    except UnicodeDecodeError:
        raise ValueError(f"{file} is no text in UTF-8: save it as UTF-8, and ask again") from None
    except (OSError, MemoryError):
        raise
    except Exception as error:
        if "No columns to parse" in str(error):
            raise ValueError(f"{file} is empty: it must have a first line with the names of its columns") from None
        if isinstance(error, (ParserError, ParserWarning)):
            raise ValueError(
                f"{file} cannot be read as a {kind} file: every row must have as many fields as the first line, and a "
                f'text with a separator or a line break in it stands between "'
            ) from None
        raise ValueError(f"{file} cannot be read as a {kind} file") from None


def read_columns(file: Path, names: Sequence[str], form: Form) -> Any:
    """The named columns of the file (its first one, where only the number of rows is asked)."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    form.check()
    import pandas as pd

    parquet = file.suffix.lower() in (".parquet", ".pq")
    with _in_words(file, "Parquet" if parquet else "CSV"):
        if parquet:
            from pyarrow import parquet as pq

            there = pq.read_schema(file).names
        else:
            there = pd.read_csv(file, nrows=0, sep=form.separator).columns.tolist()
    if missing := [name for name in names if name not in there]:
        told = f"the file has no column {missing[0]!r}; its columns are {', '.join(map(str, there))}"
        other = [mark for mark in ";\t|," if len(there) == 1 and mark in str(there[0]) and mark != form.separator]
        raise ValueError(told + (f": say --separator {other[0]!r}" if other and not parquet else ""))
    wanted = list(dict.fromkeys(names)) or there[:1]
    with _in_words(file, "Parquet" if parquet else "CSV"):
        if parquet:
            return pd.read_parquet(file, columns=wanted, dtype_backend="numpy_nullable")
        return pd.read_csv(
            file, usecols=wanted, sep=form.separator, decimal=form.decimal, thousands=form.thousands,
            keep_default_na=False, na_values=["", *form.missing],  # else NA and None are missing, as in no file's query
            skip_blank_lines=len(there) > 1,  # of one column, an empty line is a row that lacks its value
            index_col=False,  # else a first row of a field more moves all columns
            dtype_backend="numpy_nullable",  # else one missing value makes floats of whole numbers
            low_memory=False,  # else a column can hold 1 in one part of the file, and "1" in another
        )  # fmt: skip


def check_numbers(data: Any, column: str, form: Form) -> None:
    """A column that is calculated with must hold numbers."""
    import pandas as pd

    values = data[column]
    if getattr(values.dtype, "kind", "O") in "iufb" or isinstance(values.dtype, pd.ArrowDtype):
        return
    known = values.dropna()
    if getattr(values.dtype, "kind", "O") == "M" or (len(known) and known.astype(str).map(_is_date).all()):
        raise ValueError(
            f"the column {column!r} holds dates: its bounds are dates, too, --bounds 2025-01-01 2026-01-01"
        )
    # one text keeps the others as they are written
    written = known.astype(str)
    comma = form.decimal == "." and written.str.fullmatch(r"-?[\d.]+,\d+").any()
    if form.thousands:
        written = written.str.replace(form.thousands, "", regex=False)
    texts = int(pd.to_numeric(written.str.replace(form.decimal, ".", regex=False), errors="coerce").isna().sum())
    if not texts:
        return
    way = "--decimal , (and --thousands . where there are any) reads decimal commas; " if comma else ""
    raise ValueError(
        f"the column {column!r} must hold numbers, and {texts:,} of its {len(known):,} values are none: {way}"
        f"--missing TEXT names a text that stands for a missing value, and --where {column!r} leaves those rows out"
    )


def _is_date(text: str) -> bool:
    from dpkit.queries._dates import DATE

    return DATE.match(text) is not None


def check_asked(data: Any, asks: Sequence[Ask], form: Form) -> None:
    """What the answers of a plan calculate with must be there as numbers, or dates."""
    from dpkit.queries._dates import is_dated

    for ask in asks:
        if ask.column is not None:
            stated = (ask.bounds, ask.bins, ask.candidates)
            if any(isinstance(one, tuple) and is_dated(one) for one in stated):
                check_dates(data, ask.column)
            else:
                check_numbers(data, ask.column, form)


def check_dates(data: Any, column: str) -> None:
    """A column between bounds that are dates must hold dates."""
    values = data[column]
    if getattr(values.dtype, "kind", "O") == "M":
        return
    known = values.dropna()
    others = int((~known.astype(str).map(_is_date).astype(bool)).sum()) if len(known) else 0
    if others:
        raise ValueError(
            f"the column {column!r} must hold dates, as --bounds are dates, and {others:,} of its {len(known):,} "
            "values are not written like 2026-01-31 or 2026-01-31 08:30: write them so first"
        )


def group_labels(data: Any, columns: Sequence[str]) -> None:
    """Truth in columns of groups, as texts: so a key is written, too."""
    for name in columns:
        if getattr(data[name].dtype, "kind", "O") == "b":
            data[name] = data[name].map({True: "true", False: "false"})


def typed_keys(keys: Sequence[str], data: Any, columns: Sequence[str]) -> Any:
    """The keys as the columns' types, numbers where those hold numbers.

    Of several columns, each key is COLUMN=VALUE, for all cells of the values that are listed so, or a cell,
    VALUE,VALUE, in the order of the columns. To be asked before :func:`group_labels`.
    """
    if len(columns) == 1:
        return [_typed(key, data[columns[0]]) for key in keys]
    named = [re.fullmatch(rf"({'|'.join(map(re.escape, columns))})\s*=\s*(.*)", key) for key in keys]
    if all(named):
        stated: dict[str, list[Any]] = {column: [] for column in columns}
        for found in filter(None, named):
            stated[found[1]].append(_typed(found[2], data[found[1]]))
        if empty := [column for column, values in stated.items() if not values]:
            raise ValueError(f"--key must name the values of each column, got none of {empty[0]!r}")
        return stated
    cells = [next(csv.reader([key], skipinitialspace=True)) for key in keys]
    if any(named) or any(len(cell) != len(columns) for cell in cells):
        raise ValueError(
            f"--key must be COLUMN=VALUE with each of {', '.join(columns)}, for all cells of these values, or one "
            f"cell, {','.join(map(str.upper, columns))}, got {list(keys)!r}"
        )
    return [tuple(_typed(part, data[column]) for part, column in zip(cell, columns, strict=True)) for cell in cells]


def _typed(key: str, column: Any) -> Any:
    kind = getattr(column.dtype, "kind", "O")
    if kind == "b":
        if key.lower() not in ("true", "false"):
            raise ValueError(f"--key must be true or false, as the column {column.name!r} is, got {key!r}")
        return key.lower()  # as group_labels calls them
    if len(column) and kind not in "iuf":
        return key
    try:
        return float(key) if kind == "f" and not key.strip().lstrip("+-").isdigit() else int(key)
    except ValueError:
        if not len(column):
            return key  # of no rows, a column has no kind
        raise ValueError(f"--key must be a number, as the column {column.name!r} is, got {key!r}") from None

"""Columns of a CSV or Parquet file, and what a command calls their values; what cannot be read is refused in words."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpkit.queries import Ask
    from dpkit.queries._cells import CellTable

__all__ = [
    "Form",
    "check_asked",
    "check_dates",
    "check_numbers",
    "group_labels",
    "is_parquet",
    "read_columns",
    "typed_keys",
]


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
        if self.thousands == self.decimal:
            raise ValueError(f"thousands must be another character than decimal, got thousands={self.thousands!r}")


@contextmanager
def _in_words(file: Path, kind: str) -> Iterator[None]:
    """What a library says of a file that it cannot read, in words that help whoever has the file."""
    try:
        yield
    except UnicodeError:
        raise ValueError(f"{file} is no text in UTF-8: save it as UTF-8, and ask again") from None
    except (OSError, MemoryError, _Refusal):
        raise
    except Exception as error:
        if "invalid UTF8" in str(error):
            raise ValueError(f"{file} is no text in UTF-8: save it as UTF-8, and ask again") from None
        raise ValueError(f"{file} cannot be read as a {kind} file") from None


class _Refusal(ValueError):
    """A sentence for whoever has the file, which is shown as it is."""


def read_columns(file: Path, names: Sequence[str], form: Form) -> Any:
    """The named columns of the file (its first one, where only the number of rows is asked).

    Of Parquet, which declares types, a frame of pandas; of CSV the texts that are written, as a ``CellTable``.
    """
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    form.check()
    parquet = is_parquet(file)
    with _in_words(file, "Parquet" if parquet else "CSV"):
        if parquet:
            from pyarrow import parquet as pq

            there = pq.read_schema(file).names
        else:
            there = _header(file, form)
    if missing := [name for name in names if name not in there]:
        told = f"the file has no column {missing[0]!r}; its columns are {', '.join(map(str, there))}"
        other = [mark for mark in ";\t|," if len(there) == 1 and mark in str(there[0]) and mark != form.separator]
        raise ValueError(told + (f": say --separator {other[0]!r}" if other and not parquet else ""))
    wanted = list(dict.fromkeys(names)) or there[:1]
    with _in_words(file, "Parquet" if parquet else "CSV"):
        if parquet:
            import pandas as pd

            return pd.read_parquet(file, columns=wanted, dtype_backend="numpy_nullable")
        return _read_cells(file, there, wanted, form)


def is_parquet(file: Path) -> bool:
    """Whether a file declares the types of its columns; all others are read as CSV."""
    return file.suffix.lower() in (".parquet", ".pq")


def _is_written(data: Any) -> bool:
    from dpkit.queries._cells import CellTable  # which loads numpy, as --help does not

    return isinstance(data, CellTable)


def _opened(file: Path) -> Any:
    """The bytes of a file, decompressed where its name says that they are compressed."""
    suffix = file.suffix.lower()
    if suffix == ".xz":
        import lzma

        return lzma.open(file)
    if suffix == ".zip":
        import zipfile

        with zipfile.ZipFile(file) as archive:
            inside = archive.namelist()
            if len(inside) != 1:
                raise _Refusal(f"{file} must hold one file, got {len(inside)}")
            return archive.open(inside[0])
    import pyarrow as pa

    packed = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}.get(suffix)
    return pa.input_stream(str(file), compression=packed)


def _header(file: Path, form: Form) -> list[str]:
    """The names of a CSV file's columns, which are all different."""
    # other lines are in the first block, too, of columns that nobody may ask for
    with (
        _opened(file) as opened,
        io.TextIOWrapper(opened, encoding="utf-8-sig", errors="surrogateescape", newline="") as text,
    ):
        names = next((row for row in csv.reader(text, delimiter=form.separator) if row), None)
    if names is None:
        raise _Refusal(f"{file} is empty: it must have a first line with the names of its columns")
    "".join(names).encode()  # which refuses what is no UTF-8
    if twice := [name for name, times in Counter(names).items() if name and times > 1]:
        raise _Refusal(f"{file} has several columns named {twice[0]!r} in its first line: give each a name of its own")
    return names


def _read_cells(file: Path, there: Sequence[str], wanted: Sequence[str], form: Form) -> CellTable:
    import pyarrow as pa
    from pyarrow import csv as arrow

    from dpkit.queries._cells import Cells, CellTable

    strange: list[tuple[int | None, int]] = []

    def refused(row: Any) -> str:
        strange.append((row.number, row.actual_columns))
        return "error"

    def read(columns: Sequence[str], threads: bool) -> Any:
        with _opened(file) as opened:
            return arrow.read_csv(
                opened,
                read_options=arrow.ReadOptions(use_threads=threads),
                parse_options=arrow.ParseOptions(
                    delimiter=form.separator,
                    newlines_in_values=True,
                    ignore_empty_lines=len(there) > 1,  # of one column, an empty line is a row that lacks its value
                    invalid_row_handler=refused,
                ),
                convert_options=arrow.ConvertOptions(
                    include_columns=list(columns),
                    column_types=dict.fromkeys(columns, pa.large_string()),
                    null_values=["", *form.missing],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=True,
                ),
            )

    # with the last column, in which a quote that nobody closes ends: else the rows after it were left out
    columns = list(dict.fromkeys([*wanted, there[-1]]))
    try:
        table = read(columns, True)
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):  # a first line, and no other
            table = pa.table({name: pa.array([], pa.large_string()) for name in columns})
            return CellTable({name: Cells(name, table.column(name)) for name in wanted}, 0)
        if "straddling" in str(error):
            raise _Refusal(_torn(file)) from None
        if not strange:
            raise
        strange.clear()
        with suppress(pa.ArrowInvalid):
            read(columns, False)  # by one thread, which counts the rows
        row, fields = strange[0] if strange else (None, None)
        raise _Refusal(_torn(file, "" if row is None else f", row {row}: {fields} fields")) from None
    last = table.column(there[-1])
    if table.num_rows and {"\n", "\r"} & set(last[-1].as_py() or "") and _is_torn(file, form):
        raise _Refusal(_torn(file))
    return CellTable(
        {name: Cells(name, table.column(name), form.decimal, form.thousands) for name in wanted}, table.num_rows
    )


def _torn(file: Path, place: str = "") -> str:
    return (
        f"{file}{place}: it cannot be read as a CSV file: every row must have as many fields as the first line, and a "
        'text with a separator or a line break in it stands between "'
    )


def _is_torn(file: Path, form: Form) -> bool:
    """Whether the file ends inside a quote."""
    import pandas as pd

    try:
        with _opened(file) as opened:
            pd.read_csv(opened, sep=form.separator, dtype=str, usecols=[0], index_col=False)
    except pd.errors.ParserError:
        return True
    return False


def check_numbers(data: Any, column: str, form: Form) -> None:
    """A column that is calculated with must hold numbers."""
    written = _is_written(data)
    if written:
        cells = data.cells(column)
        if cells.truth is not None:
            return
        texts, known = int(cells.strange.sum()), int((~cells.missing).sum())
        dates = texts > 0 and cells.dated
        comma = form.decimal == "." and any(re.fullmatch(r"-?[\d.]+,\d+", one) for one in cells.texts[cells.strange])
    else:
        import pandas as pd

        values = data[column]
        if getattr(values.dtype, "kind", "O") in "iufb" or isinstance(values.dtype, pd.ArrowDtype):
            return
        there = values.dropna().astype(str)
        dates = getattr(values.dtype, "kind", "O") == "M" or (len(there) > 0 and bool(there.map(_is_date).all()))
        texts, known, comma = int(pd.to_numeric(there, errors="coerce").isna().sum()), len(there), False
    if dates:
        raise ValueError(
            f"the column {column!r} holds dates: its bounds are dates, too, --bounds 2025-01-01 2026-01-01"
        )
    if not texts:
        return
    way = "--decimal , (and --thousands . where there are any) reads decimal commas; " if comma else ""
    raise ValueError(
        f"the column {column!r} must hold numbers, and {texts:,} of its {known:,} values are none: {way}"
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
    if _is_written(data):
        known = [one for one in data[column] if one is not None]
    elif getattr(data[column].dtype, "kind", "O") == "M":
        return
    else:
        known = data[column].dropna().astype(str).tolist()
    if others := sum(not _is_date(one) for one in known):
        raise ValueError(
            f"the column {column!r} must hold dates, as --bounds are dates, and {others:,} of its {len(known):,} "
            "values are not written like 2026-01-31 or 2026-01-31 08:30: write them so first"
        )


def group_labels(data: Any, columns: Sequence[str]) -> None:
    """Truth in columns of groups of a frame, as texts: so a key is written, too."""
    if _is_written(data):
        return  # whose labels are so
    for name in columns:
        if getattr(data[name].dtype, "kind", "O") == "b":
            data[name] = data[name].map({True: "true", False: "false"})


def typed_keys(keys: Sequence[str], data: Any, columns: Sequence[str]) -> Any:
    """The keys as the columns declare their types: of Parquet numbers where those hold numbers, of CSV always texts.

    Of several columns, each key is COLUMN=VALUE, for all cells of the values that are listed so, or a cell,
    VALUE,VALUE, in the order of the columns. To be asked before :func:`group_labels`.
    """
    if len(columns) == 1:
        return [_typed(key, data, columns[0]) for key in keys]
    named = [re.fullmatch(rf"({'|'.join(map(re.escape, columns))})\s*=\s*(.*)", key) for key in keys]
    if all(named):
        stated: dict[str, list[Any]] = {column: [] for column in columns}
        for found in filter(None, named):
            stated[found[1]].append(_typed(found[2], data, found[1]))
        if empty := [column for column, values in stated.items() if not values]:
            raise ValueError(f"--key must name the values of each column, got none of {empty[0]!r}")
        return stated
    cells = [next(csv.reader([key], skipinitialspace=True)) for key in keys]
    if any(named) or any(len(cell) != len(columns) for cell in cells):
        raise ValueError(
            f"--key must be COLUMN=VALUE with each of {', '.join(columns)}, for all cells of these values, or one "
            f"cell, {','.join(map(str.upper, columns))}, got {list(keys)!r}"
        )
    return [tuple(_typed(part, data, column) for part, column in zip(cell, columns, strict=True)) for cell in cells]


def _typed(key: str, data: Any, name: str) -> Any:
    if _is_written(data):
        return key.lower() if key.lower() in ("true", "false") else key  # as its labels are
    column = data[name]
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

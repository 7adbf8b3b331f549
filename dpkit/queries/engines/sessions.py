"""The engines: what they can be asked, and how data become something that they can be asked about."""

from __future__ import annotations

import glob
import os
import re
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpkit.queries.engines.dialects import DUCKDB, SPARK, Dialect

__all__ = ["DuckDB", "Session", "Spark", "is_source", "opened"]

_TEXTS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst", ".txt")
_PARQUET = (".parquet", ".pq")
_RELATION = "_dpkit_relation"
_SHARED: dict[int, Any] = {}
# errors whose text has values of the data in it, of DuckDB and of Spark
_OF_VALUES = re.compile(
    r"(Conversion|Out of Range|Invalid Input|Constraint) Error"
    r"|\[(CAST_|CANNOT_PARSE|DATETIME_|NUMERIC_|\w*OVERFLOW|\w*INVALID)[\w.]*\]"
)
_LINE, _COLUMN = re.compile(r"CSV Error on Line: (\d+)"), re.compile(r"(?:source column |Column )(\w+)")


class Session(Protocol):
    """An engine that is asked in SQL."""

    dialect: Dialect

    def columns(self, source: str) -> dict[str, str]:
        """The columns of what stands behind FROM, and their types in the engine's words, in capitals."""
        ...

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of an answer, which are few."""
        ...


class DuckDB:
    """DuckDB in this process, over a connection of this package's own, which is asked by one thread at a time."""

    dialect = DUCKDB

    def __init__(self) -> None:
        import duckdb

        # one for the process and its threads, and another after a fork; cursors share no names
        if os.getpid() not in _SHARED:
            _SHARED[os.getpid()] = duckdb.connect()
            # else a file whose statistics are wrong could leave values as they are that have to be clipped
            _SHARED[os.getpid()].execute("SET disabled_optimizers = 'statistics_propagation'")
            # not the working directory, where what does not fit into memory would go
            _SHARED[os.getpid()].execute(f"SET temp_directory = {DUCKDB.quoted(tempfile.gettempdir())}")
            # of long scans, and only to somebody who looks
            _SHARED[os.getpid()].execute(f"SET enable_progress_bar = {str(sys.stdout.isatty()).lower()}")
        self._connection = _SHARED[os.getpid()].cursor()
        self._error = duckdb.Error
        self._one = threading.RLock()

    def columns(self, source: str) -> dict[str, str]:
        return {str(name): str(kind).upper() for name, kind, *_ in self.ask(f"DESCRIBE SELECT * FROM {source} AS f")}

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        try:
            with self._one:
                found: list[tuple[Any, ...]] = self._run(query).fetchall()
        except self._error as error:
            raise _refused(error) from None
        return found

    def batches(self, query: str) -> Generator[list[NDArray[Any]], None, None]:
        """The columns of an answer that is long, in parts; whole numbers without gaps only.

        Nobody else is answered before it is closed.
        """
        try:
            with self._one:
                found = self._run(query)
                read = getattr(found, "to_arrow_reader", None) or found.fetch_record_batch  # its name before 1.4
                reader = read(1 << 20)
                for batch in reader:
                    yield [np.asarray(column) for column in batch.columns]
        except self._error as error:
            raise _refused(error) from None

    def _run(self, query: str) -> Any:
        return self._connection.sql(query)

    def registered(self, table: Any) -> str:
        """A table in memory, by a name that can stand behind FROM."""
        name = f"_dpkit_{id(table)}"
        self._connection.register(name, table)
        return name


class Relation(DuckDB):
    """A relation of DuckDB, on its own connection, with which it may share tables that are nowhere else."""

    def __init__(self, relation: Any) -> None:
        import duckdb

        self._relation = relation
        self._error = duckdb.Error
        self._one = threading.RLock()

    def _run(self, query: str) -> Any:
        return self._relation.query(_RELATION, query)

    def registered(self, table: Any) -> str:
        raise ValueError(
            "a relation of DuckDB can be joined with what its own connection knows: join them there, and give the "
            "relation that comes out; or give both as paths"
        )


class Spark:
    """A Spark session, over the one of a data frame."""

    dialect = SPARK

    def __init__(self, session: Any) -> None:
        self._session = session

    def columns(self, source: str) -> dict[str, str]:
        schema = self._session.sql(f"SELECT * FROM {source} AS f").schema
        return {field.name: field.dataType.simpleString().upper() for field in schema.fields}

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        from pyspark.errors import PySparkException

        try:
            return [tuple(row) for row in self._session.sql(query).collect()]
        except PySparkException as error:
            raise _refused(error) from None

    def registered(self, frame: Any) -> str:
        """A data frame, by a name that can stand behind FROM."""
        name = f"_dpkit_{id(frame)}"
        frame.createOrReplaceTempView(name)
        return name


def is_source(data: object) -> bool:
    """Whether data are read by an engine: a path, a LazyFrame, a relation of DuckDB or a data frame of Spark."""
    return isinstance(data, (str, os.PathLike)) or _kind(data) is not None


def opened(data: Any) -> tuple[Session, str, Any]:
    """The engine, what stands behind FROM, and what must be kept alive for it."""
    if isinstance(data, (str, os.PathLike)):
        _need("duckdb")
        session = DuckDB()
        return session, _files(session, os.fspath(data)), None
    kind = _kind(data)
    if kind == "polars":
        _need("duckdb")
        _need("pyarrow")
        session = DuckDB()
        return session, session.registered(data), data
    if kind == "duckdb":
        return Relation(data), _RELATION, data
    spark = Spark(data.sparkSession)
    return spark, spark.registered(data), data


def _kind(data: object) -> str | None:
    for module, names in (("polars", ("LazyFrame",)), ("duckdb", ("DuckDBPyRelation",)), ("pyspark", ("DataFrame",))):
        if module in sys.modules and type(data).__module__.split(".")[0] in (module, "_" + module):
            return module if type(data).__name__ in names else None
    return None


def _need(package: str) -> None:
    try:
        __import__(package)
    except ImportError:
        raise ImportError(
            f"data that are not in memory are read by {package}, which is not installed: pip install 'dpkit[tables]', "
            "or read them into a table of pandas or polars"
        ) from None


def _files(session: DuckDB, path: str) -> str:
    """A file, a folder or a pattern as what can stand behind FROM, all of one schema."""
    found = _listed(path)
    kinds = {name.endswith(_TEXTS) for name in map(str.lower, found)}
    if len(kinds) > 1:
        raise ValueError(f"data must be files of one kind, got CSV and Parquet under {path!r}")
    _check_alike(session, found, kinds == {True})
    return _read_texts(found, _separator(session, found[0])) if kinds == {True} else f"read_parquet({_names(found)})"


def _names(files: list[str]) -> str:
    """Files as a list, each of them a pattern that means itself alone."""
    return f"[{', '.join(DUCKDB.quoted(glob.escape(name)) for name in files)}]"


def _read_texts(files: list[str], separator: str) -> str:
    """CSV files, whose dialect no row can change: else one of a field less could make one column of all of them.

    Types are settled on all rows: else a column could be a number in one part, and a text in another.
    """
    return (
        f"read_csv({_names(files)}, header=true, sample_size=-1, delim={DUCKDB.quoted(separator)}, quote='\"', "
        "escape='\"', skip=0, comment='', strict_mode=true, null_padding=false, ignore_errors=false)"
    )


def _separator(session: DuckDB, file: str) -> str:
    """What separates the columns' names in the first line."""
    lines = session.ask(
        f"SELECT line FROM read_csv({_names([file])}, auto_detect=false, header=false, columns={{'line': 'VARCHAR'}}, "
        "delim=chr(1), quote='', escape='', strict_mode=false) LIMIT 1"
    )
    names = re.sub('"[^"]*"', "", str(lines[0][0]) if lines else "")
    return max(",;\t|", key=names.count)


def _check_alike(session: DuckDB, files: list[str], texts: bool) -> None:
    """Files that are one table must have the same columns of the same types: the engine would convert, or leave out."""
    if len(files) < 2:
        return
    if texts:
        separator = _separator(session, files[0])
        found = [session.columns(_read_texts([name], separator)) for name in files]
    else:
        rows = session.ask(
            "SELECT file_name, name, concat_ws(' ', type, logical_type, converted_type) "
            f"FROM parquet_schema({_names(files)}) WHERE num_children IS NULL OR num_children = 0"
        )
        schemas: dict[str, dict[str, str]] = {name: {} for name in files}
        for file, column, kind in rows:
            schemas[file][column] = kind
        found = list(schemas.values())
    for name, columns in zip(files, found, strict=True):
        if columns != found[0]:
            other = sorted(map(str, set(columns.items()) ^ set(found[0].items())))
            raise ValueError(
                f"data must be files with the same columns of the same types, got {files[0]!r} and {name!r}, which "
                f"differ in {', '.join(other[:4])}: write them alike first"
            )


def _listed(path: str) -> list[str]:
    if not path.strip():
        raise ValueError("data must be the path of a file, a folder or a pattern, got an empty text")
    if os.path.isdir(path):
        found = sorted(str(file) for file in Path(path).rglob("*") if file.name.lower().endswith(_PARQUET))
        if not found:
            raise FileNotFoundError(f"data={path!r} is a folder without Parquet files (*.parquet)")
        return found
    found = [path] if os.path.isfile(path) else sorted(glob.glob(path, recursive=True))
    if not found:
        raise FileNotFoundError(f"there is no file {path!r}, nor one that this pattern means")
    if strange := [name for name in found if not name.lower().endswith(_TEXTS + _PARQUET)]:
        raise ValueError(
            f"data must be CSV (.csv, .tsv, also .gz) or Parquet (.parquet) files, got {strange[0]!r}"
            ": read it yourself, and give the table"
        )
    return found


def _refused(error: Exception) -> Exception:
    """An error of the engine in one line, as one that callers know; without the values of the data that some show."""
    text = str(error)
    message = re.split(r"\n\s*\n|\nLINE |\n==", text)[0].strip().replace("\n", " ")
    if "Out of Memory" in message:
        return MemoryError(f"the engine has not enough memory, and nothing was spent: {message}")
    if kind := _OF_VALUES.match(message):
        line, column = _LINE.search(text), _COLUMN.search(text)
        where = (f" in line {line[1]}" if line else "") + (f" of column {column[1]!r}" if column else "")
        message = (
            f"{kind[0]}{where}. A row or value is not of the form or type that the others have (it is not shown, being "
            "private): in CSV all rows have as many fields as the first line, texts with a separator in them are "
            'quoted by ", and dates are dates; numbers, sums and ids fit into 64 bits'
        )
    return ValueError(f"the engine cannot read the data, and nothing was spent: {message}")

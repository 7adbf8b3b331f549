"""What engines write differently: names, rounding, finite numbers, bits, hashes of texts.

Everything else that queries ask is SQL that all of them read alike. Rounding is the reason that no general translator
does this: a cast of 3.5 to a whole number is 4 in DuckDB, which rounds to even as numpy does, and 3 in Spark, which
cuts; a translator passes it through.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["DUCKDB", "SPARK", "Dialect", "literal"]


@dataclass(frozen=True)
class Dialect:
    """How one engine writes what differs."""

    name: Literal["duckdb", "spark"]

    def column(self, name: str) -> str:
        """A column's name, whatever signs it has."""
        mark = '"' if self.name == "duckdb" else "`"
        return mark + name.replace(mark, 2 * mark) + mark

    def rounded(self, real: str) -> str:
        """A finite real number, rounded half to even."""
        return f"CAST({real} AS BIGINT)" if self.name == "duckdb" else f"CAST(RINT({real}) AS BIGINT)"

    def finite(self, real: str) -> str:
        """Whether a DOUBLE is a finite number; never true where it is missing.

        Not by a comparison in DuckDB: that may be decided by the statistics of a Parquet file, which leave out NaN.
        """
        if self.name == "duckdb":
            return f"isfinite({real})"
        return f"({real} BETWEEN -1.7976931348623157E308D AND 1.7976931348623157E308D)"

    def sum_of_reals(self, real: str) -> str:
        """In increasing order: in that of the rows, whether others are there would move the last digits."""
        real = f"CAST({real} AS DOUBLE)"
        if self.name == "duckdb":
            return f"SUM({real} ORDER BY {real})"
        known = f"ARRAY_SORT(COLLECT_LIST({real}))"
        added = f"AGGREGATE({known}, CAST(0 AS DOUBLE), (a, b) -> a + b)"
        return f"(CASE WHEN COUNT({real}) > 0 THEN {added} END)"

    def text(self, value: str) -> str:
        """Anything as a text."""
        return f"CAST({value} AS {'VARCHAR' if self.name == 'duckdb' else 'STRING'})"

    def high_bits(self, whole: str) -> str:
        """Bits 31 to 61 of a BIGINT."""
        part = f"({whole} & 4611686016279904256)"
        return f"({part} >> 31)" if self.name == "duckdb" else f"SHIFTRIGHT({part}, 31)"

    def hash_of_text(self, text: str) -> str:
        """60 bits that are the same everywhere."""
        digits = f"SUBSTRING(MD5({text}), 1, 15)"
        return (
            f"CAST('0x' || {digits} AS BIGINT)" if self.name == "duckdb" else f"CAST(CONV({digits}, 16, 10) AS BIGINT)"
        )

    def microseconds(self, date: str) -> str:
        """Since 1970, of a date or a time without a zone."""
        if self.name == "duckdb":
            return f"epoch_us({date})"
        return f"UNIX_MICROS(TO_UTC_TIMESTAMP(CAST({date} AS TIMESTAMP), CURRENT_TIMEZONE()))"

    def matches(self, text: str, pattern: str) -> str:
        """Whether a text is of a pattern, as a whole."""
        if self.name == "duckdb":
            return f"regexp_full_match({text}, {self.quoted(pattern)})"
        return f"{text} RLIKE {self.quoted(f'^(?:{pattern})$')}"

    def quoted(self, text: str) -> str:
        """A text as a literal."""
        if self.name == "spark":
            text = text.replace("\\", "\\\\").replace("'", "\\'")
            return f"'{text}'"
        return "'" + text.replace("'", "''") + "'"


DUCKDB, SPARK = Dialect("duckdb"), Dialect("spark")


def literal(value: Any, dialect: Dialect) -> str:
    """A value as SQL; a float to its last bit."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return f"CAST({value} AS BIGINT)"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, datetime.datetime):
        return f"CAST('{value.isoformat(' ')}' AS TIMESTAMP)"
    if isinstance(value, datetime.date):
        return f"CAST('{value.isoformat()}' AS DATE)"
    return dialect.quoted(str(value))

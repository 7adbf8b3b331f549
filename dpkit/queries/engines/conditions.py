"""A test in words (``queries._where``) as a condition in SQL, whose logic of what is missing is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dpkit.queries._dates import DATE
from dpkit.queries._where import Both, Either, Known, Not, Test, Value, Where, number_in
from dpkit.queries.engines.dialects import Dialect, literal

__all__ = ["condition", "dated_texts"]

_ORDER = ("<", "<=", ">", ">=")
_DATES = r"\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?)?"


def condition(tree: Where, kind: Callable[[str, str], str], dialect: Dialect) -> str:
    """The condition; ``kind`` says what a column holds, or refuses it."""
    if isinstance(tree, Not):
        return f"(NOT {condition(tree.of, kind, dialect)})"
    if isinstance(tree, (Both, Either)):
        word = "AND" if isinstance(tree, Both) else "OR"
        return f"({condition(tree.left, kind, dialect)} {word} {condition(tree.right, kind, dialect)})"
    held = kind(tree.column, "where")
    column = _known(dialect.column(tree.column), held, dialect)
    if isinstance(tree, Known):
        if held == "truth":
            raise ValueError(
                f"where must say what is asked of {tree.column!r}, which holds true and false: {tree.column} = true"
            )
        return f"({column} IS NOT NULL)"
    relation = "=" if tree.relation == "in" else tree.relation
    tests = " OR ".join(_compared(column, held, tree.column, relation, value, dialect) for value in tree.values)
    return f"({tests})"


def dated_texts(tree: Where, kind: Callable[[str, str], str]) -> Iterator[str]:
    """The columns of texts that are compared with dates, and must hold nothing else."""
    if isinstance(tree, Not):
        yield from dated_texts(tree.of, kind)
    elif isinstance(tree, (Both, Either)):
        yield from dated_texts(tree.left, kind)
        yield from dated_texts(tree.right, kind)
    elif (
        isinstance(tree, Test)
        and kind(tree.column, "where") == "text"
        and any(_is_date(value) or tree.relation in _ORDER for value in tree.values)
    ):
        yield tree.column


def not_dated(column: str, dialect: Dialect) -> str:
    """Whether a text is known, and no date."""
    return f"(NOT {dialect.matches(dialect.column(column), _DATES)})"


def _is_date(value: Value) -> bool:
    return DATE.match(value.text) is not None and not value.quoted


def _known(column: str, held: str, dialect: Dialect) -> str:
    """The column, with NaN as what is missing."""
    if held == "real":
        return f"(CASE WHEN NOT ISNAN(CAST({column} AS DOUBLE)) THEN {column} END)"
    return dialect.text(column) if held == "text" else column


def _compared(column: str, held: str, name: str, relation: str, value: Value, dialect: Dialect) -> str:
    sign = "<>" if relation == "!=" else relation
    text = value.text
    if held in ("whole", "real"):
        number = None if value.quoted else number_in(text)
        if number is None:
            raise ValueError(f"where must compare {name!r}, which holds numbers, with one, got {text!r}")
        if held == "whole" and isinstance(number, int) and abs(number) < 2**63:
            return f"{column} {sign} {literal(number, dialect)}"
        return f"CAST({column} AS DOUBLE) {sign} {literal(float(number), dialect)}"
    if held == "truth":
        if text.lower() not in ("true", "false") or relation in _ORDER:
            raise ValueError(f"where must ask whether {name!r} = true or {name!r} = false, got {relation} {text}")
        return f"{column} {sign} {literal(text.lower() == 'true', dialect)}"
    if held == "date":
        if not DATE.match(text):
            raise ValueError(
                f"where must compare {name!r}, which holds dates, with a date such as 2026-01-31, got {text!r}"
            )
        return f"CAST({column} AS TIMESTAMP) {sign} {_date(dialect.quoted(text))}"
    if held != "text":
        raise TypeError(f"where cannot compare {name!r}, which holds neither numbers, dates, truth nor texts")
    if relation in _ORDER and not DATE.match(text):
        raise ValueError(
            f"where must ask for = or != of {name!r}, which holds no numbers, or for a date such as 2026-01-31, "
            f"got {relation} {text}"
        )
    if _is_date(value) or relation in _ORDER:
        return f"{_date(column)} {sign} {_date(dialect.quoted(text))}"
    if not value.quoted and number_in(text) is not None:
        raise ValueError(
            f"where must compare {name!r}, which holds texts, with a text, got the number {text}: write '{text}' in "
            "quotes if it is meant as a text"
        )
    return f"{column} {sign} {dialect.quoted(text)}"


def _date(text: str) -> str:
    """A text of the year and month, the day, or the time."""
    return f"CAST(CASE WHEN LENGTH({text}) = 7 THEN CONCAT({text}, '-01') ELSE {text} END AS TIMESTAMP)"

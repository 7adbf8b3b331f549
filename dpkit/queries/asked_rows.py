"""Tests of rows in a report's words: ``"age >= 18"``, ``"town = Linz"``, or the name of a column of True and False.

A row whose value is missing passes no test, ``!=`` included. Values are compared as the column's own kind: a text with
a number, or an order of texts that are no dates, is refused.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpkit.queries._columns import _read  # the reader of columns that all queries share

__all__ = ["RowTest", "parsed_test", "passing"]

_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ALIASES = {"==": "=", "<>": "!="}
_DATE = re.compile(r"\d{4}-\d{2}(-\d{2}([T ][\d:.]+)?)?$")
_TEST = re.compile(r"\s*(.+?)\s*(?:(==|!=|<>|<=|>=|=|<|>)\s*(.*?)\s*)?")


@dataclass(frozen=True)
class RowTest:
    """``column relation value``; without a relation the column itself is True or False."""

    column: str
    relation: str = ""
    value: str = ""


def parsed_test(text: str) -> RowTest:
    """A test as data.

    >>> parsed_test("age >= 18")
    RowTest(column='age', relation='>=', value='18')
    >>> parsed_test("insured")
    RowTest(column='insured', relation='', value='')
    """
    found = _TEST.fullmatch(text)
    if found is None or (found[2] and not found[3]) or (found[3] or "").startswith(tuple("=<>!")):
        raise ValueError(
            f"where must be a column of True and False, or a column, one of = != < <= > >= and a value, got {text!r}"
        )
    value = found[3] or ""
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    return RowTest(found[1], _ALIASES.get(found[2], found[2] or ""), value)


def passing(data: Any, tests: Sequence[str]) -> NDArray[np.bool_] | None:
    """Which rows pass all ``tests``; None without tests.

    >>> passing({"age": [15, 18, 70], "town": ["Linz", "Graz", "Linz"]}, ["age >= 18", "town = Linz"]).tolist()
    [False, False, True]
    """
    out: NDArray[np.bool_] | None = None
    for text in tests:
        found = _passes(data, parsed_test(text))
        out = found if out is None else out & found
    return out


def _passes(data: Any, test: RowTest) -> NDArray[np.bool_]:
    array: NDArray[Any] = _read(data, test.column, "where")
    name = test.column
    if not test.relation:
        if array.dtype.kind != "b":
            raise TypeError(
                f"where={name!r} must hold True and False, got dtype={array.dtype}: compare it with a value"
            )
        return array.astype(np.bool_)
    compare, kind = _RELATIONS[test.relation], array.dtype.kind
    if kind in "iuf":
        try:
            value = float(test.value)
        except ValueError:
            raise ValueError(f"where must compare {name!r}, which holds numbers, with one, got {test!r}") from None
        return np.asarray(np.asarray(compare(array, value), np.bool_) & ~np.isnan(array.astype(np.float64)))
    if kind == "M":
        try:
            moment = np.datetime64(test.value)
        except ValueError:
            raise ValueError(
                f"where must compare {name!r} with a date such as 2026-01-31, got {test.value!r}"
            ) from None
        return np.asarray(np.asarray(compare(array, moment), np.bool_) & ~np.isnat(array))
    entries = array.tolist()
    # of None, NaN and what pandas writes for a missing value, none is equal to itself or to anything
    known = np.array([_known(entry) for entry in entries], np.bool_)
    texts = np.array([str(entry) for entry in entries], str)
    if test.relation not in ("=", "!="):
        dates = _DATE.match(test.value) and all(_DATE.match(text) for text in np.unique(texts[known]).tolist())
        if not dates:
            raise ValueError(
                f"where must ask for = or != of {name!r}, which holds texts, or for dates such as 2026-01-31 on both "
                f"sides, got {test.relation} {test.value}"
            )
    return np.asarray(compare(texts, test.value), np.bool_) & known


def _known(entry: Any) -> bool:
    return entry is not None and (entry == entry) is True

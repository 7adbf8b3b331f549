"""Columns and values as the language of ``where`` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

__all__ = ["column_in", "quoted", "quoted_column"]

_PLAIN = re.compile(r"[^\W\d][\w.]*$")
_WORDS = {"and", "or", "not", "in"}


def quoted(text: str) -> str:
    """A text in quotes that it does not hold.

    >>> print(quoted("Bad Ischl"), quoted("O'Neil"))
    'Bad Ischl' "O'Neil"
    """
    for mark in "'\"`":
        if mark not in text:
            return f"{mark}{text}{mark}"
    raise ValueError(f"a text with all of ' \" ` cannot be compared, got {text!r}")


def quoted_column(name: str) -> str:
    """A column, in quotes where its name needs them.

    >>> quoted_column("paid"), quoted_column("paid in cash")
    ('paid', "'paid in cash'")
    """
    return name if _PLAIN.match(name) and name.lower() not in _WORDS else quoted(name)


def column_in(name: str, values: Iterable[Any]) -> str:
    """The rows in which a column has one of these values.

    >>> column_in("town", ["Graz", "Linz"]), column_in("age", [18, 19]), column_in("insured", [True])
    ("town in ('Graz', 'Linz')", 'age in (18, 19)', 'insured in (true)')
    """
    written = [
        quoted(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
        for value in values
    ]
    return f"{quoted_column(name)} in ({', '.join(written)})"

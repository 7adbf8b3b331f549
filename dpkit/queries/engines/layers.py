"""Expressions that stand in several others, computed once: a mark around them, and a SELECT below for each depth.

An engine computes what two columns share as often as it is written, at least within CASE. So what is written by
:func:`once` becomes a column of a SELECT that the others read.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

__all__ = ["layered", "once"]

_SIGN, _DRAWN = "\ue000", secrets.token_hex(8)
# drawn, so that no text of a condition and no column's name has them: what they enclose is read as SQL
_OPEN, _CLOSE = f"{_SIGN}{_DRAWN}(", f"{_SIGN}{_DRAWN})"
# which no column of a table is called: else it would be added up in the place of what was clipped
_NAME = f"once_{_DRAWN}_"
_MARK = f"{_SIGN}{_DRAWN}[()]"
_INNERMOST = re.compile(f"{re.escape(_OPEN)}([^{_SIGN}]*(?:(?!{_MARK}){_SIGN}[^{_SIGN}]*)*){re.escape(_CLOSE)}")


def once(expression: str) -> str:
    """An expression that others may share: equal ones become one column."""
    return f"{_OPEN}{expression}{_CLOSE}"


def layered(rows: str, where: str, expressions: Sequence[str]) -> tuple[str, list[str]]:
    """What stands behind FROM (``rows`` that pass ``where``, with all that is shared), and the expressions over it.

    >>> square = once("a + 1")
    >>> source, (first, second) = layered("t", "a > 2", [f"{square} * {square}", "b"])
    >>> source, first, second  # doctest: +ELLIPSIS
    ('(SELECT *, a + 1 AS once_...0 FROM t AS f WHERE a > 2) AS f', 'once_..._0 * once_..._0', 'b')
    """
    source = f"{rows} AS f" + (f" WHERE {where}" if where else "")
    texts, made = list(expressions), 0
    while shared := list(dict.fromkeys(part for text in texts for part in _INNERMOST.findall(text))):
        names = {part: f"{_NAME}{made + i}" for i, part in enumerate(shared)}
        made += len(names)
        texts = [_INNERMOST.sub(lambda found: names[found[1]], text) for text in texts]  # noqa: B023
        source = f"(SELECT *, {', '.join(f'{part} AS {name}' for part, name in names.items())} FROM {source}) AS f"
    return source, texts

"""Whole numbers that several queries ask of one table, added up in as few scans as there are groupings.

A :class:`Scan` is what a query asks of its engine: how many rows there are in each cell, in how many of them columns
have a value, and sums of whole numbers. Scans of the same rows by the same cells become one statement, in which what
several of them ask for stands once, and a condition of one scan alone is a FILTER of its numbers.

Why every query gets the numbers that it would get alone. They are counts and sums of whole numbers, row by row, so that
neither order nor company changes them; a cell of which a scan has no row is left out of its answer. An expression may
be evaluated on rows that another scan is about, and fail there: where an engine refuses the one statement, each scan
is asked by itself, and fails or not as it would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpkit.queries.engines.layers import layered
from dpkit.queries.engines.sessions import Session

__all__ = ["Found", "Scan", "added_up"]

Found = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Scan:
    """All as SQL. ``rows`` stands behind FROM, and ``where`` behind WHERE (nothing for all rows).

    The answer has a row for each cell: its values, the number of rows, in how many each of ``known`` has a value, and
    the sums of ``added``. With ``keys``, listed groups that can stand behind FROM, the first columns of a cell, as many
    as they have, give way to two: the number of the listed group, or NULL, and whether one of the columns is missing.
    """

    rows: str
    where: str = ""
    cell: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    keys: str | None = None
    grouped: int = 0  # columns of the cell that the keys are about


def added_up(session: Session, scans: Sequence[Scan]) -> list[Found | Exception]:
    """The answers, or the errors, of all scans."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for i, scan in enumerate(scans):
        alike.setdefault((scan.rows, scan.cell, scan.keys, scan.grouped), []).append(i)
    found: dict[int, Found | Exception] = {}
    for places in alike.values():
        statement = _Statement([scans[i] for i in places])
        try:
            found |= zip(places, statement.answers(session.ask(statement.text())), strict=True)
        except (ValueError, MemoryError) as error:
            found |= {places[0]: error} if len(places) == 1 else {i: added_up(session, [scans[i]])[0] for i in places}
    return [found[i] for i in range(len(scans))]


class _Statement:
    """Scans that differ in their conditions and in what they add up."""

    def __init__(self, scans: Sequence[Scan]) -> None:
        self._first = scans[0]
        self._tests = list(dict.fromkeys(scan.where for scan in scans))
        self._columns = list(dict.fromkeys(column for scan in scans for column in scan.known + scan.added))
        self._of = [self._numbers(scan) for scan in scans]
        self._numbers_of_all = list(dict.fromkeys(number for numbers in self._of for number in numbers))

    def _numbers(self, scan: Scan) -> list[str]:
        """n, the counts and the sums of a scan."""
        test = f" FILTER (WHERE w{self._tests.index(scan.where)})" if len(self._tests) > 1 and scan.where else ""
        counts = [f"COUNT(v{self._columns.index(column)})" for column in scan.known]
        sums = [f"SUM(v{self._columns.index(column)})" for column in scan.added]
        return [number + test for number in ["COUNT(*)", *counts, *sums]]

    def text(self) -> str:
        first, tests = self._first, self._tests
        cell = [f"g{i}" for i in range(len(first.cell))]
        columns = dict(zip(cell, first.cell, strict=True)) | {f"v{i}": column for i, column in enumerate(self._columns)}
        if len(tests) > 1:
            columns |= {f"w{i}": test for i, test in enumerate(tests) if test}
        where = " OR ".join(f"({test})" for test in tests) if all(tests) else ""
        source, texts = layered(first.rows, where, list(columns.values()))
        named = [f"{text} AS {name}" for name, text in zip(columns, texts, strict=True)]
        rows = f"SELECT {', '.join(named) or '1 AS one'} FROM {source}"
        by = f" GROUP BY {', '.join(cell)}" if cell else ""
        numbers = [f"{number} AS a{i}" for i, number in enumerate(self._numbers_of_all)]
        query = f"SELECT {', '.join(cell + numbers)} FROM ({rows}) AS t{by}"
        if first.keys is None:
            return query
        g, others = cell[: first.grouped], cell[first.grouped :]
        named = ["code", f"({' OR '.join(f'{name} IS NULL' for name in g)})", *others]
        sums = [f"SUM(a{i})" for i in range(len(numbers))]
        return (
            f"SELECT {', '.join(named + sums)} FROM ({query}) AS a LEFT JOIN {first.keys} "
            f"ON {' AND '.join(f'{name} = keys.k{i}' for i, name in enumerate(g))} "
            f"GROUP BY {', '.join(map(str, range(1, len(named) + 1)))}"
        )

    def answers(self, found: Found) -> list[Found]:
        """Of each scan its own numbers."""
        size = len(found[0]) - len(self._numbers_of_all) if found else 0
        out = []
        for numbers in self._of:
            places = [size + self._numbers_of_all.index(number) for number in numbers]
            # without a cell the one row stays, though it counts nothing
            own = (row[:size] + tuple(row[place] for place in places) for row in found if row[places[0]] or not size)
            out.append(list(own))
        return out

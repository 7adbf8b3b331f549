"""The releases that a ledger recorded, each with what became of it, and a table of the newest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from accounting.ledger.record.entry_types import Entry, Row, Settlement, Spend
from accounting.ledger.record.hash_chain import START
from accounting.ledger.storage.store import EntryStore, Position
from accounting.printed import as_html

__all__ = ["RowsRead", "rows_as_html"]

# rows that a notebook shows
_SHOWN = 20


class RowsRead:
    """The rows of a store with their outcomes, as far as they were read."""

    def __init__(self) -> None:
        self._held: tuple[list[Row], Position] = [], Position(0, START)

    @property
    def entries(self) -> int:
        """How many entries were read."""
        return self._held[1].entries

    def read(self, store: EntryStore) -> list[Row]:
        """All rows."""
        entries, position = store.unread(self._held[1])
        return list(self.extended(entries, position))

    def extended(self, entries: Iterable[Entry], position: Position) -> list[Row]:
        """The rows with those of some entries more, which end at a position."""
        rows = list(self._held[0])
        for entry in entries:
            match entry:
                case Spend(row=row):
                    rows.append(row)
                case Settlement(index=index, outcome=outcome):
                    rows[index] = replace(rows[index], outcome=outcome)
        self._held = rows, position
        return rows


def rows_as_html(rows: list[Row], ledger: str, note: str) -> str:
    """A line on the ledger, and a table of its newest rows."""
    cells = [["", "label", "scope", "release", "outcome"]]
    cells += [[str(row.index), row.label, row.scope or "", repr(row.release), row.outcome] for row in rows[-_SHOWN:]]
    told = f"{len(rows):,} rows" + (f", the newest {_SHOWN} shown" if len(rows) > _SHOWN else "")
    return as_html(f"{ledger}; {told}{note}", cells)

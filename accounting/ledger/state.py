"""How far the books of a ledger go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from accounting.ledger.book import Book
from accounting.ledger.entries import Entry, Summary
from accounting.ledger.journal import Position

__all__ = ["State"]

# A file gets a summary after at least as many entries.
_ENTRIES_PER_SUMMARY = 1000


class State(NamedTuple):
    """The books, how far they go, where the last summary stands, and the hash of the opening."""

    book: Book
    position: Position
    summary: int
    opening: str

    def extended(self, entries: Sequence[Entry], position: Position, name: str) -> State:
        """The same books with some entries more."""
        summary = self.summary
        for number, entry in enumerate(entries, self.position.entries):
            if isinstance(entry, Summary):
                summary = number
        self.book.extend(entries, name, self.position.entries)
        return State(self.book, position, summary, self.opening)

    def wants_summary(self, entries: int) -> bool:
        """Whether enough entries were added to be worth one: a part of the lines that it would have."""
        return entries - self.summary >= max(_ENTRIES_PER_SUMMARY, self.book.size // 8)

"""Where the entries of a ledger are kept: what every such place can do, and the one in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from accounting.errors import LedgerCorrupted
from accounting.ledger.record.entry_json import chained
from accounting.ledger.record.entry_types import Entry, Opening, Row, Spend, Summary

if TYPE_CHECKING:
    from accounting.ledger.storage.database import Database

__all__ = ["EntryStore", "MemoryStore", "Position", "Start"]


class Position(NamedTuple):
    """How far a store was read: the number of entries, and the hash of the last one (of a file)."""

    entries: int
    head: str = ""


class Start(NamedTuple):
    """Where reading begins: the opening, what a summary says of the entries up to the position, if there is one."""

    opening: Opening
    opening_hash: str
    summary: Summary | None
    position: Position


class MemoryStore:
    """The entries of a ledger in memory: an append-only list, of which the first is an opening.

    Its methods do what those of a :class:`~accounting.ledger.storage.database.Database` do, which say it.
    """

    path = None
    name = "the ledger"

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = dict(enumerate(entries))
        # what was seen of them: how many entries, the labels, and the entry of every row
        self._seen: tuple[int, set[str], list[int]] = 0, set(), []

    def start(self) -> Start:
        opening = self._entries.get(0)
        if not isinstance(opening, Opening):
            raise LedgerCorrupted(f"{self.name}: entry 0 is not an opening")
        return Start(opening, "", None, Position(1))

    def unread(self, position: Position, *, inside: bool = False) -> tuple[list[Entry], Position]:
        count = len(self._entries)
        return [self._entries[number] for number in range(position.entries, count)], Position(count)

    def append(
        self, make: Callable[[Position], list[Entry] | None], also: Callable[[Any], None] | None = None
    ) -> Position | None:
        if also is not None:
            raise ValueError("only a ledger in a database can record more than its entries, and this one is in memory")
        while True:
            count = len(self._entries)
            made = make(Position(count))
            if made is None:
                return None
            # one step that no signal handler comes between: of two that add at the same place, one does
            if self._entries.setdefault(count, made[0]) is made[0]:
                return Position(count + 1)

    def everything(self, upto: Position) -> Iterable[tuple[str, Entry]]:
        entries = [self._entries[number] for number in range(upto.entries)]
        for link, entry in zip(chained(entries), entries, strict=True):
            yield link["hash"], entry

    def check(self) -> None:
        """Nothing lies beside the entries."""

    def has_label(self, label: str) -> bool:
        return label in self._look()[1]

    def outcome(self, index: int) -> str | None:
        return None

    def row(self, index: int) -> Row:
        entry = self._entries[self._look()[2][index]]
        if not isinstance(entry, Spend):
            raise ValueError(f"row {index} is missing")
        return entry.row

    def close(self) -> None:
        """Nothing is open."""

    def _look(self) -> tuple[int, set[str], list[int]]:
        seen, labels, rows = self._seen
        if seen < len(self._entries):
            # adding the same again changes nothing, so that an interrupt does no harm
            for number in range(seen, len(self._entries)):
                entry = self._entries[number]
                if isinstance(entry, Spend):
                    labels.add(entry.row.label)
                    rows[entry.row.index :] = [number]
                self._seen = number + 1, labels, rows
        return self._seen


#: Where the entries of a ledger are kept.
EntryStore: TypeAlias = "MemoryStore | Database"

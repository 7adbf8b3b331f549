"""Where the entries of a ledger are kept, and what every such place can do; here, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from accounting.ledger.chain import START
from accounting.ledger.entries import Entry, Opening, Row, Settlement, Spend, Summary

__all__ = ["Journal", "MemoryJournal", "Position", "Rows", "Start"]


class Position(NamedTuple):
    """How far a journal was read: the number of entries, and the hash of the last one (of a file)."""

    entries: int
    head: str = ""


class Start(NamedTuple):
    """Where reading begins: the opening, what a summary says of the entries up to the position, if there is one."""

    opening: Opening
    opening_hash: str
    summary: Summary | None
    position: Position


class Journal(Protocol):
    """An append-only list of entries, of which the first is an opening."""

    @property
    def path(self) -> Path | None: ...
    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    def exists(self) -> bool: ...
    def start(self) -> Start: ...
    def unread(self, position: Position, *, inside: bool = False) -> tuple[list[Entry], Position]: ...
    def append(
        self, make: Callable[[Position], list[Entry] | None], also: Callable[[Any], None] | None = None
    ) -> Position | None:
        """Add what ``make`` gives for the position at which nothing can come between; None if it gives none.

        ``also`` writes by the database's own connection, in the same transaction.
        """
        ...

    def everything(self, upto: Position) -> Iterable[tuple[str, Entry]]:
        """Every entry up to a position, with its hash, verified from the first on."""
        ...

    def check(self) -> None:
        """Check what lies beside the entries: indices and the like."""
        ...

    def has_label(self, label: str) -> bool: ...
    def outcome(self, index: int) -> str | None: ...
    def row(self, index: int) -> Row: ...
    def copy(self, target: Journal) -> None:
        """Copy one state to where nothing is."""
        ...

    def fill(self, rows: Sequence[tuple[int, str, str]], head: tuple[int, str, int]) -> bool:
        """Make it of these rows, in one step; False if there is one already."""
        ...

    def disconnect(self) -> None: ...


class Rows:
    """The rows of a journal with their outcomes, as far as they were read."""

    def __init__(self) -> None:
        self._held: tuple[list[Row], Position] = [], Position(0, START)

    def read(self, journal: Journal) -> list[Row]:
        """All rows."""
        entries, position = journal.unread(self._held[1])
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


class MemoryJournal:
    """The entries of a ledger in memory."""

    path = None
    name, address = "the ledger", ""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = dict(enumerate(entries))
        # what was seen of them: how many entries, the labels, and the entry of every row
        self._seen: tuple[int, set[str], list[int]] = 0, set(), []

    def start(self) -> Start:
        opening = self._entries[0]
        if not isinstance(opening, Opening):
            raise ValueError("entry 0 is not an opening")
        return Start(opening, "", None, Position(1))

    def unread(self, position: Position, *, inside: bool = False) -> tuple[list[Entry], Position]:
        count = len(self._entries)
        return [self._entries[number] for number in range(position.entries, count)], Position(count)

    def exists(self) -> bool:
        return True

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
        from accounting.ledger.export import chained

        for link, number in zip(chained(self._entries[n] for n in range(upto.entries))[1], self._entries, strict=False):
            yield str(link["hash"]), self._entries[number]

    def check(self) -> None:
        """Nothing lies beside the entries."""

    def has_label(self, label: str) -> bool:
        return label in self._look()[1]

    def outcome(self, index: int) -> str | None:
        # the books of a ledger in memory know every outcome
        return None

    def row(self, index: int) -> Row:
        entry = self._entries[self._look()[2][index]]
        if not isinstance(entry, Spend):
            raise ValueError(f"row {index} is missing")
        return entry.row

    def copy(self, target: Journal) -> None:
        raise ValueError(
            "only a ledger in a file or a database can be backed up, and this one is in memory: keep its to_json()"
        )

    def fill(self, rows: Sequence[tuple[int, str, str]], head: tuple[int, str, int]) -> bool:
        return False

    def disconnect(self) -> None:
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

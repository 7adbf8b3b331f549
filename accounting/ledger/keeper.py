"""What a ledger is made of: its books and its journal, held by one lock, and the one way to record an entry.

The books say what may be recorded, the journal keeps it; they agree after every step, whatever interrupts it, whoever
else writes to the same journal, and on both sides of a fork.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from accounting.errors import LedgerCorrupted
from accounting.ledger.book import Book, Undecided
from accounting.ledger.entries import Entry, Mark, Quota, Settlement, Spend, Summary
from accounting.ledger.forks import register
from accounting.ledger.journal import Journal, Position, Rows
from accounting.ledger.state import State

__all__ = ["Keeper"]

_E = TypeVar("_E", Spend, Settlement, Mark, Quota)


class Keeper:
    """The books and the journal of one ledger."""

    # the books, while nobody uses them; see _take
    _state: State | None = None

    def _start(self, journal: Journal) -> None:
        self._journal = journal
        self._closed = False
        self._rows = Rows()
        self._lock = threading.RLock()
        register(self)

    @property
    def closed(self) -> bool:
        """Whether nothing more can be recorded."""
        return self._closed

    def close(self) -> None:
        """Record nothing more. What is recorded can still be read; closing twice is harmless."""
        with self._lock:
            if self._closed:
                return
            try:
                self._position()
            finally:
                self._closed = True
                self._journal.disconnect()

    @contextmanager
    def _reading(self) -> Iterator[Book]:
        """The books, up to date and held."""
        with self._lock:
            state = self._take()
            try:
                yield state.book
            finally:
                self._state = state

    def _position(self) -> Position:
        """How far the books go, up to date."""
        state = self._take()
        self._state = state
        return state.position

    def _take(self) -> State:
        """The books with everything that others recorded (those of a closed ledger as they were), to be given back.

        Until then they are in nobody else's reach. Who comes in between (a signal handler of this thread) or after
        (if an exception kept them from being given back) finds none, and reads the journal anew.
        """
        state: State | None = self.__dict__.pop("_state", None)  # in one step
        name = self._journal.name
        if state is None:
            opening, opening_hash, summary, position = self._journal.start()
            try:
                book = Book(opening) if summary is None else Book.restored(opening, summary.state)
            except (KeyError, TypeError, ValueError) as error:
                raise LedgerCorrupted(f"{name}: entry {position.entries - 1} cannot be read: {error}") from None
            state = State(book, position, 0 if summary is None else position.entries - 1, opening_hash)
        elif self._closed:
            return state
        entries, position = self._journal.unread(state.position)
        return state.extended(entries, position, name)

    def _let_go(self) -> None:
        """A closed ledger holds no connection."""
        if self._closed:
            self._journal.disconnect()

    def _record(self, decide: Callable[[Book, bool], _E], also: Callable[[Any], None] | None = None) -> _E:
        """Record the entry that ``decide`` makes of the books, held and up to date; durably, if in a file."""
        with self._lock:
            while True:
                if self._closed:
                    raise ValueError("the ledger is closed: nothing was recorded, and nothing may be released")
                made = self._attempt(decide, also)
                if made is not None:
                    return made

    def _attempt(self, decide: Callable[[Book, bool], _E], also: Callable[[Any], None] | None) -> _E | None:
        """One try of :meth:`_record`; None if others recorded something in the meantime that takes long to price.

        What takes long is decided first, without the journal's own lock. Under it, the decision stands if nothing was
        recorded in the meantime; else it is taken again, quickly.
        """
        taken = self._take()
        # None while the books change: then they are not given back
        state: State | None = taken
        after: State | None = None
        try:
            made = decide(taken.book, False)

            def make(now: Position) -> list[Entry] | None:
                nonlocal state, after, made
                if state is not None and now != state.position:
                    if (others := self._quick(state, now)) is None:
                        return None
                    old, state = state, None
                    state = old.extended(others, now, self._journal.name)
                    try:
                        made = decide(state.book, True)
                    except Undecided:
                        return None
                if state is None:
                    return None
                old, state = state, None
                entries: list[Entry] = [made]
                after = old.extended(entries, now, "the ledger")
                if now.head and after.wants_summary(now.entries + 1):
                    entries.append(Summary(after.opening, datetime.now(UTC), after.book.summary()))
                    after = after._replace(summary=now.entries + 1)
                return entries

            position = self._journal.append(make, also)
            if position is None or after is None:
                return None
            state = after._replace(position=position)
            return made
        finally:
            self._state = state

    def _quick(self, state: State, now: Position) -> list[Entry] | None:
        """What others recorded up to a position, under the journal's lock; None if it takes long to price."""
        entries, position = self._journal.unread(state.position, inside=True)
        known = all(
            not isinstance(entry, Quota)
            and not (isinstance(entry, Spend) and not state.book.knows(entry.row.scope, entry.row.release))
            for entry in entries
        )
        return entries if known and position == now else None

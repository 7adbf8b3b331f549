"""The balance and the store of one ledger, held by one lock, and the one way to record an entry.

The balance says what may be recorded, the store keeps it; they agree after every step, whatever interrupts it, whoever
else writes to the same store, and on both sides of a fork.

*Forks.* A fork copies locks in whatever state they are, and connections must not cross it at all. So the forking thread
waits for every ledger to be at rest, closes the connections, and lets go on both sides.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from accounting.errors import LedgerCorrupted
from accounting.ledger.record.balance import Balance, Undecided
from accounting.ledger.record.entry_types import Entry, Mark, Quota, Settlement, Spend, Summary
from accounting.ledger.record.hash_chain import nonce
from accounting.ledger.storage.database import Database
from accounting.ledger.storage.store import EntryStore, MemoryStore, Position
from accounting.ledger.storage.witness import Watch

__all__ = ["Recorder", "refuse_crossed"]

_E = TypeVar("_E", Spend, Settlement, Mark, Quota)

# A database gets a summary after at least as many entries.
_ENTRIES_PER_SUMMARY = 1000


class _Known(NamedTuple):
    """The balance, how far it goes, where the last summary stands, and the hash of the opening."""

    balance: Balance
    position: Position
    summary: int
    opening: str

    def extended(self, entries: Sequence[Entry], position: Position, name: str) -> _Known:
        """The same balance with some entries more."""
        summary = self.summary
        for number, entry in enumerate(entries, self.position.entries):
            if isinstance(entry, Summary):
                summary = number
        self.balance.extend(entries, name, self.position.entries)
        return self._replace(position=position, summary=summary)

    def wants_summary(self, entries: int) -> bool:
        """Whether enough entries were added to be worth one: a part of the lines that it would have."""
        return entries - self.summary >= max(_ENTRIES_PER_SUMMARY, self.balance.size // 8)


class Recorder:
    """The balance and the store of one ledger.

    Attributes
    ----------
    store : EntryStore
    lock : RLock
        Held by whoever reads or records.
    watch : Watch or None
        Sees to it that a witness elsewhere has what was recorded.
    closed : bool
        Whether nothing more can be recorded.
    """

    # the balance, while nobody uses it; see _take
    _known: _Known | None = None

    def __init__(self, store: EntryStore, watch: Watch | None = None) -> None:
        self.store = store
        self.watch = watch
        self.closed = False
        self.lock = threading.RLock()
        with _registry_lock:
            _recorders.add(self)

    def close(self) -> None:
        """Record nothing more. What is recorded can still be read; closing twice is harmless."""
        with self.lock:
            if self.closed:
                return
            try:
                self.position()
            finally:
                self.closed = True
                self.disconnect()

    @contextmanager
    def reading(self, *, unwitnessed: bool = False) -> Iterator[Balance]:
        """The balance, up to date and held; the witness has all of it, unless it is asked for ``unwitnessed``.

        Raises
        ------
        OSError
            If the witness lacks some of it, and does not answer.
        """
        with self.lock:
            known = self._take()
            try:
                if not unwitnessed:
                    self.tell(known.position.entries)
                yield known.balance
            finally:
                self._known = known

    def tell(self, entries: int) -> None:
        """See to it that the witness, if there is one, has this many entries; before anybody acts on them."""
        if self.watch is None or self.watch.seen >= entries:
            return
        try:
            self.watch.follow()
        finally:
            if self.closed:
                self.disconnect()

    def refuse_unwitnessed(self, balance: Balance) -> None:
        """Refuse to go on with a ledger that was made with a witness, and was opened without."""
        if self.watch is None and balance.opening.witnessed:
            raise ValueError(self._unwitnessed())

    @contextmanager
    def held(self) -> Iterator[Position]:
        """How far the store is to be read, up to date and held; a closed ledger holds no connection afterwards."""
        with self.lock:
            yield self.position()
            if self.closed:
                self.store.close()

    def position(self) -> Position:
        """How far the balance goes, up to date."""
        known = self._take()
        self._known = known
        return known.position

    def record(self, decide: Callable[[Balance, bool], _E], also: Callable[[Any], None] | None = None) -> _E:
        """Record the entry that ``decide`` makes of the balance, held and up to date; durably, if in a database."""
        with self.lock:
            while True:
                if self.closed:
                    raise ValueError("the ledger is closed: nothing was recorded, and nothing may be released")
                made = self._attempt(decide, also)
                if made is not None:
                    if self.watch is not None:
                        self.watch.follow()
                    return made

    def disconnect(self) -> None:
        """Close all connections; the next use opens others."""
        self.store.close()
        if self.watch is not None:
            self.watch.close()

    def _take(self) -> _Known:
        """The balance with everything that others recorded (that of a closed ledger as it was), to be given back.

        Until then it is in nobody else's reach. Who comes in between (a signal handler of this thread) or after
        (if an exception kept it from being given back) finds none, and reads the store anew.
        """
        known: _Known | None = self.__dict__.pop("_known", None)  # in one step
        name = self.store.name
        if known is None:
            opening, opening_hash, summary, position = self.store.start()
            try:
                balance = Balance(opening) if summary is None else Balance.restored(opening, summary.state)
            except (KeyError, TypeError, ValueError) as error:
                raise LedgerCorrupted(f"{name}: entry {position.entries - 1} cannot be read: {error}") from None
            known = _Known(balance, position, 0 if summary is None else position.entries - 1, opening_hash)
        elif self.closed:
            return known
        try:
            entries, position = self.store.unread(known.position)
        except LedgerCorrupted:
            self._known = known  # who asks again is to be refused again, also where an older state was put in its place
            raise
        return known.extended(entries, position, name)

    def _unwitnessed(self) -> str:
        """Why nothing may be recorded without the witness that a ledger was made with."""
        if isinstance(self.store, MemoryStore):
            return (
                "this is an export of a ledger that was made with a witness: nothing was recorded, and nothing may be "
                "released. Spend from the ledger itself"
            )
        return (
            f"{self.store.name} was made with a witness, and was opened without: nothing was recorded, and nothing may "
            "be released, as an older copy of it would not show. Name the witness, by Ledger.open(..., witness=...), "
            "--witness of a command, or witness under [storage] of a service; if it is lost, Ledger.backup or `dpkit "
            "ledger backup` makes another"
        )

    def _attempt(self, decide: Callable[[Balance, bool], _E], also: Callable[[Any], None] | None) -> _E | None:
        """One try of :meth:`record`; None if others recorded something in the meantime that takes long to price.

        What takes long is decided first, without the store's own lock. Under it, the decision stands if nothing was
        recorded in the meantime; else it is taken again, quickly.
        """
        taken = self._take()
        # None while the balance changes: then it is not given back
        known: _Known | None = taken
        after: _Known | None = None
        try:
            self.refuse_unwitnessed(taken.balance)
            self.tell(taken.position.entries)
            made = decide(taken.balance, False)

            def make(now: Position) -> list[Entry] | None:
                nonlocal known, after, made
                if known is not None and now != known.position:
                    if (others := self._quick(known, now)) is None:
                        return None
                    old, known = known, None
                    known = old.extended(others, now, self.store.name)
                    try:
                        made = decide(known.balance, True)
                    except Undecided:
                        return None
                if known is None:
                    return None
                old, known = known, None
                made = replace(made, nonce=nonce())
                entries: list[Entry] = [made]
                after = old.extended(entries, now, "the ledger")
                if now.head and after.wants_summary(now.entries + 1):
                    entries.append(Summary(after.opening, datetime.now(UTC), after.balance.summary()))
                    after = after._replace(summary=now.entries + 1)
                return entries

            position = self.store.append(make, also)
            if position is None or after is None:
                return None
            known = after._replace(position=position)
            return made
        finally:
            self._known = known

    def _quick(self, known: _Known, now: Position) -> list[Entry] | None:
        """What others recorded up to a position, under the store's lock; None if it takes long to price."""
        entries, position = self.store.unread(known.position, inside=True)
        quick = all(
            not isinstance(entry, Quota)
            and not (isinstance(entry, Spend) and not known.balance.knows(entry.row.scope, entry.row.release))
            for entry in entries
        )
        return entries if quick and position == now else None


def refuse_crossed(store: Database, watch: Watch) -> None:
    """Refuse a ledger and a witness that are named the other way round where this process has them open already.

    Each of two that spend at the same moment would write to its own first, and find another entry with its witness.
    Between processes nobody can tell before that happens.

    Raises
    ------
    ValueError
    """
    with _registry_lock:
        crossed = any(
            not other.closed
            and other.watch is not None
            and isinstance(other.store, Database)
            and other.watch.given == store.address
            and other.store.address == watch.given
            for other in _recorders
        )
    if crossed:
        raise ValueError(
            f"witness must be another one than the ledger's own ledger, got {watch.given}, which this process has open "
            f"with {store.name} for its witness: name the two the same way round everywhere"
        )


# ------------------------------------------------------------------------------------------------------ forks

_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()
_registry_lock = threading.RLock()
_held: list[Recorder] = []


def _before_fork() -> None:
    _registry_lock.acquire()
    for recorder in list(_recorders):
        recorder.lock.acquire()
        _held.append(recorder)
        recorder.disconnect()


def _after_fork() -> None:
    while _held:
        _held.pop().lock.release()
    _registry_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)

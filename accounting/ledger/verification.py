"""Everything that a ledger holds, read again from its first entry."""

from __future__ import annotations

import math
from typing import Any

from accounting.errors import LedgerCorrupted
from accounting.ledger.book import Book
from accounting.ledger.chain import START
from accounting.ledger.entries import Opening, Settlement, Summary
from accounting.ledger.journal import Journal, Position
from accounting.ledger.serialize import canonical

__all__ = ["verified"]


def verified(journal: Journal, position: Position, expected_head: str | None) -> str:
    """Verify a journal up to a position; the hash of its last entry.

    Hashes, the entries by the rules that they were recorded by, and what every summary says of those before it.
    """
    name = journal.name
    book: Book | None = None
    head, seen, opening = START, False, ""
    settled: set[int] = set()
    for number, (stated, entry) in enumerate(journal.everything(position)):
        if book is None:
            if not isinstance(entry, Opening):
                raise LedgerCorrupted(f"{name}: entry 0 is not an opening")
            book, opening = Book(entry), stated
        else:
            book.extend([entry], name, number)
        if isinstance(entry, Settlement):
            if entry.index in settled:
                raise LedgerCorrupted(f"{name}: entry {number} settles row {entry.index} again")
            settled.add(entry.index)
        if isinstance(entry, Summary) and not (entry.opening == opening and _same(entry.state, book.summary())):
            raise LedgerCorrupted(f"{name}: entry {number} does not sum up the entries before it")
        head = stated
        seen = seen or stated == expected_head
    journal.check()
    if expected_head is not None and not seen:
        raise LedgerCorrupted(
            f"{name} does not contain the expected head {expected_head}: it is an older copy, another ledger, or its "
            f"history was rewritten"
        )
    return head


def _same(stated: Any, found: Any) -> bool:
    """Whether two plain values agree, floats to nine digits and lists of scopes and counts in any order."""
    if isinstance(stated, dict) and isinstance(found, dict):
        return stated.keys() == found.keys() and all(_same(stated[key], found[key]) for key in stated)
    if isinstance(stated, list) and isinstance(found, list):
        if len(stated) != len(found):
            return False
        if all(isinstance(item, list) for item in [*stated, *found]):
            stated, found = sorted(stated, key=_name), sorted(found, key=_name)
        return all(_same(one, other) for one, other in zip(stated, found, strict=True))
    if isinstance(stated, float) and isinstance(found, float):
        return math.isclose(stated, found, rel_tol=1e-9, abs_tol=1e-300)
    return bool(stated == found)


def _name(item: Any) -> str:
    """What sorts the terms of a total: scope and release, not the count."""
    return canonical(item[:-1])

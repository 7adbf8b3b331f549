"""Everything that a ledger holds, read again from its first entry.

*Sums.* What a summary says of counts, rules, marks and quotas must be what the entries before it say. The filters' sums
may differ in their last digits where the logarithm of another machine or another library did, and then by more: a cost
is a root that was found to nine digits, and a charge that just missed a level is as much dearer as the next level is.
So they are reckoned here with all costs half a percent cheaper and limits as much higher, which is less than any such
difference makes of them (:meth:`accounting.ledger.booking.Booking.charged_at_least`), and no stated sum may be below
that. A sum that is too large admits nothing, so that it need not be refused: files of versions that charged more stay
good.
"""

from __future__ import annotations

from typing import Any

from accounting.errors import LedgerCorrupted
from accounting.ledger.book import Book
from accounting.ledger.chain import START
from accounting.ledger.entries import Opening, Settlement, Summary
from accounting.ledger.journal import Journal, Position
from accounting.ledger.serialize import canonical

__all__ = ["verified"]

# How much costs and limits may differ: a level between two that cost nearly the same is not asked, to 0.4 %.
_DOUBT = 0.005
# The parts of a summary that hold sums.
_SUMMED = "filter", "quotas"


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
            book, opening = Book(entry, doubt=_DOUBT), stated
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


def _same(stated: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether a summary says what the books do, lists in any order, and of every sum no less."""
    rest, books = ({name: value for name, value in one.items() if name not in _SUMMED} for one in (stated, found))
    if stated.keys() != found.keys() or not _agree(rest, books) or not _no_less(stated["filter"], found["filter"]):
        return False
    quotas, own = ({quota["scope"]: [quota, sums] for quota, sums in one["quotas"]} for one in (stated, found))
    return len(stated["quotas"]) == len(quotas) == len(own) and all(
        scope in quotas and _agree(quotas[scope][0], quota) and _no_less(quotas[scope][1], sums)
        for scope, (quota, sums) in own.items()
    )


def _no_less(stated: Any, found: Any) -> bool:
    """Whether a filter's sums are those of the same scopes, and no number is less; None is infinite."""
    if stated is None or found is None:
        return stated is found
    if stated.keys() != found.keys() or stated["terms"] != found["terms"] or len(stated["sums"]) != len(found["sums"]):
        return False
    sums = dict(stated["sums"])
    return all(
        scope in sums
        and len(sums[scope]) == len(numbers)
        and all(
            number is None or (own is not None and number >= own)
            for number, own in zip(sums[scope], numbers, strict=True)
        )
        for scope, numbers in found["sums"]
    )


def _agree(stated: Any, found: Any) -> bool:
    """Whether two plain values are the same, lists of lists in any order."""
    if isinstance(stated, dict) and isinstance(found, dict):
        return stated.keys() == found.keys() and all(_agree(stated[key], found[key]) for key in stated)
    if isinstance(stated, list) and isinstance(found, list):
        if len(stated) != len(found):
            return False
        if all(isinstance(item, list) for item in [*stated, *found]):
            stated, found = sorted(stated, key=_name), sorted(found, key=_name)
        return all(_agree(one, other) for one, other in zip(stated, found, strict=True))
    return bool(stated == found)


def _name(item: Any) -> str:
    """What sorts the terms of a total: scope and release, not the count."""
    return canonical(item[:-1])

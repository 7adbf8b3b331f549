"""Everything that a ledger holds, read again from its first entry.

*Sums.* What a summary says of counts, rules, marks and quotas must be what the entries before it say. The filters' sums
may differ in their last digits where the logarithm of another machine or another library did, and then by more: a cost
is a root that was found to nine digits, and a charge that just missed a level is as much more expensive as the next
level is.
So they are reckoned here with all costs half a percent cheaper and limits as much higher, which is less than any such
difference makes of them (:meth:`accounting.ledger.filters.level_charges.LevelCharges.charged_at_least`), and no stated
sum may be below that. A sum that is too large admits nothing, so that it need not be refused: files of versions that
charged more stay good.
"""

from __future__ import annotations

import json
import math
from typing import Any

from accounting.errors import LedgerCorrupted
from accounting.ledger.record.balance import Balance
from accounting.ledger.record.entry_types import Opening, Settlement, Summary
from accounting.ledger.record.hash_chain import START
from accounting.ledger.storage.store import EntryStore, Position

__all__ = ["DOUBT", "verified"]

# How much costs and limits may differ: a level between two that cost nearly the same is not asked, to 0.4 %.
DOUBT = 0.005


def verified(store: EntryStore, position: Position, expected_head: str | None) -> str:
    """Verify a store up to a position; the hash of its last entry.

    Hashes, the entries by the rules that they were recorded by, and what every summary says of those before it.
    """
    name = store.name
    balance: Balance | None = None
    head, seen, opening = START, False, ""
    settled: set[int] = set()
    for number, (stated, entry) in enumerate(store.everything(position)):
        if balance is None:
            if not isinstance(entry, Opening):
                raise LedgerCorrupted(f"{name}: entry 0 is not an opening")
            balance, opening = Balance(entry, doubt=DOUBT), stated
        else:
            balance.extend([entry], name, number)
        if isinstance(entry, Settlement):
            if entry.index in settled:
                raise LedgerCorrupted(f"{name}: entry {number} settles row {entry.index} again")
            settled.add(entry.index)
        if isinstance(entry, Summary) and not (entry.opening == opening and _same(entry.state, balance.summary())):
            raise LedgerCorrupted(f"{name}: entry {number} does not sum up the entries before it")
        head = stated
        seen = seen or stated == expected_head
    store.check()
    if expected_head is not None and not seen:
        raise LedgerCorrupted(
            f"{name} does not contain the expected head {expected_head}: it is an older copy, another ledger, or its "
            f"history was rewritten"
        )
    return head


def _same(stated: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether a summary says what the balance does, lists in any order, and of every sum no less."""
    try:
        (rest, least), (own, sums) = _apart(stated), _apart(found)
        return rest == own and least.keys() == sums.keys() and all(least[key] >= sums[key] for key in sums)
    except (KeyError, TypeError, ValueError):
        return False


def _apart(summary: dict[str, Any]) -> tuple[dict[str, Any], dict[tuple[str, str | None, int], float]]:
    """What must be the same, lists in one order; and the filters' sums by whose they are, None taken for infinite."""
    filters = {"": summary["filter"], **{quota["scope"]: filter for quota, filter in summary["quotas"]}}
    counted = {of: filter for of, filter in filters.items() if filter is not None}
    same = {name: value for name, value in summary.items() if name != "filter"}
    same |= {name: _sorted(summary.get(name, ())) for name in ("totals", "plans")}
    same["quotas"] = _sorted(quota for quota, _ in summary["quotas"])
    same["filters"] = _sorted(
        [of, sorted(filter), filter["terms"], len(filter["sums"])] for of, filter in counted.items()
    )
    sums = {
        (of, scope, place): math.inf if number is None else float(number)
        for of, filter in counted.items()
        for scope, numbers in filter["sums"]
        for place, number in enumerate(numbers)
    }
    return same, sums


def _sorted(items: Any) -> list[Any]:
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))

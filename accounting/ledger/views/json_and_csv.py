"""A ledger as JSON text (the entries with their hashes, as in a file) and as CSV text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from datetime import datetime

from accounting.errors import LedgerCorrupted
from accounting.ledger.record.entry_json import FORMAT, chained, from_dict
from accounting.ledger.record.entry_types import Entry, Mark, Opening, Quota, Settlement, Spend
from accounting.ledger.record.hash_chain import START, verify
from accounting.ledger.record.release_json import VERSION, canonical, encode
from accounting.text import printable

__all__ = ["dumps", "loads", "to_csv"]


def dumps(entries: Iterable[Entry]) -> str:
    """The text of a ledger."""
    linked = chained(entries)
    return json.dumps({"format": FORMAT, "version": VERSION, "head": linked[-1]["hash"], "entries": linked}, indent=1)


def loads(text: str, expected_head: str | None = None) -> list[Entry]:
    """The entries of a text, verified like a file's.

    Raises
    ------
    LedgerCorrupted
        If the text is not a ledger, its chain does not verify, or it does not contain ``expected_head``.
    """
    entries: list[Entry] = []
    heads = [START]
    try:
        # an editor may have put a mark before it
        document = json.loads(text.removeprefix("\ufeff") if isinstance(text, str) else text)
        if (document["format"], document["version"]) != (FORMAT, VERSION):
            raise ValueError(f"format {document['format']!r}, version {document['version']!r}")
        for item in document["entries"]:
            stored = verify(heads[-1], canonical(item["entry"]), item["hash"], f"entry {len(entries)}")
            entries.append(from_dict(stored))
            heads.append(item["hash"])
        stated = document["head"]
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise LedgerCorrupted(f"entry {len(entries)} cannot be read: {error!r}") from None
    if stated != heads[-1]:
        raise LedgerCorrupted(f"{len(entries)} entries are there and the head is not the last one's")
    if expected_head is not None and expected_head not in heads[1:]:
        raise LedgerCorrupted(f"the ledger does not contain the expected head {expected_head}")
    return entries


_COLUMNS = (
    "entry", "index", "time", "label", "scope", "unit", "release", "outcome", "simulation", "run", "step", "digest",
    "epsilon", "delta", "adjacency", "actor",
)  # fmt: skip


def to_csv(entries: Iterable[Entry]) -> str:
    """One line per opening, row (with its outcome so far), mark and quota, oldest first."""
    lines: list[dict[str, object]] = []
    spends: dict[int, dict[str, object]] = {}
    for entry in entries:
        match entry:
            case Opening() | Quota():
                budget = entry.budget
                lines.append({"entry": "opening" if isinstance(entry, Opening) else "quota", "time": entry.time})
                if isinstance(entry, Quota):
                    lines[-1]["scope"] = entry.scope
                if budget is not None:
                    lines[-1] |= {"epsilon": repr(budget.epsilon), "delta": repr(budget.delta)}
                    lines[-1] |= {"unit": budget.unit, "adjacency": budget.adjacency}
            case Spend(row=row):
                line = {name: getattr(row, name) for name in _COLUMNS if hasattr(row, name)}
                line |= {"entry": "spend", "release": canonical(encode(row.release))}
                lines.append(line)
                spends[row.index] = line
            case Settlement(index=index, outcome=outcome):
                spends[index]["outcome"] = outcome
            case Mark():
                lines.append({"entry": "mark", **{n: getattr(entry, n) for n in _COLUMNS if hasattr(entry, n)}})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows([_cell(line.get(column)) for column in _COLUMNS] for line in lines)
    return text.getvalue()


def _cell(value: object) -> str:
    """A cell that no spreadsheet takes for a formula."""
    if value is None:
        return ""
    text = printable(value.isoformat() if isinstance(value, datetime) else str(value))
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text

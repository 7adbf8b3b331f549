"""A ledger as JSON text: the entries with their hashes, as in a file."""

from __future__ import annotations

import json
from collections.abc import Iterable

from accounting.errors import LedgerCorrupted
from accounting.ledger.chain import START, link, verify
from accounting.ledger.entries import FORMAT, Entry, from_dict, to_dict
from accounting.ledger.serialize import VERSION, canonical

__all__ = ["chained", "dumps", "loads"]


def chained(entries: Iterable[Entry]) -> tuple[str, list[dict[str, object]]]:
    """The head of a chain of entries, and each entry with its hash."""
    head = START
    linked: list[dict[str, object]] = []
    for entry in entries:
        stored = {**to_dict(entry), "previous": head}
        head = link(head, stored)[1]
        linked.append({"hash": head, "entry": stored})
    return head, linked


def dumps(entries: Iterable[Entry]) -> str:
    """The text of a ledger."""
    head, linked = chained(entries)
    return json.dumps({"format": FORMAT, "version": VERSION, "head": head, "entries": linked}, indent=1)


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
        document = json.loads(text)
        if (document["format"], document["version"]) != (FORMAT, VERSION):
            raise ValueError(f"format {document['format']!r}, version {document['version']!r}")
        for item in document["entries"]:
            stored = verify(heads[-1], canonical(item["entry"]), item["hash"], f"entry {len(entries)}")
            entries.append(from_dict(stored))
            heads.append(item["hash"])
        stated = document["head"]
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise LedgerCorrupted(f"entry {len(entries)} cannot be read: {error!r}") from None
    if stated != heads[-1]:
        raise LedgerCorrupted(f"{len(entries)} entries are there and the head is not the last one's")
    if expected_head is not None and expected_head not in heads[1:]:
        raise LedgerCorrupted(f"the ledger does not contain the expected head {expected_head}")
    return entries

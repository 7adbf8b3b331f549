"""The hash chain: every entry of a stored ledger carries the hash of the one before it.

Entry i is the canonical JSON of a dictionary with ``"previous"`` = hᵢ₋₁, and hᵢ is the SHA-256 of that text
(h of nothing is 64 zeros). Whoever knows hᵢ can therefore check everything up to entry i.

A nonce of 128 random bits is a part of every entry that somebody asks for. Without one, two copies of a ledger that are
asked for the same at the same microsecond would make the same entry, and whoever looks after both (a witness) would
take the two spends for one. Entries of earlier releases have none, and stay as they are; a summary needs none, as it
follows an entry that has one.

What a chain shows: an entry that was edited, removed, inserted or moved, as long as the hashes after it were
not all recomputed. What it cannot show by itself: a rewritten ledger with recomputed hashes, and an old copy put
back in place of a newer one. Both need a hash that is kept elsewhere (``Ledger.head``, ``expected_head=``).
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from typing import Any

from accounting.errors import LedgerCorrupted
from accounting.ledger.record.release_json import canonical

__all__ = ["NONCE", "START", "link", "nonce", "verify"]

START = "0" * 64
NONCE = re.compile("[0-9a-f]{32}")


def nonce() -> str:
    """128 random bits, in hexadecimal digits."""
    return secrets.token_hex(16)


def link(previous: str, entry: dict[str, Any]) -> tuple[str, str]:
    """The text of an entry that follows the hash ``previous``, and its own hash."""
    body = canonical({**entry, "previous": previous})
    return body, _hash(body)


def verify(previous: str, body: object, stated: object, name: str) -> dict[str, Any]:
    """The entry in ``body``, if it follows ``previous`` and hashes to ``stated``; ``name`` is for the message."""
    if not isinstance(body, str) or not isinstance(stated, str):
        raise LedgerCorrupted(f"{name} does not hold text: it was edited or damaged")
    if _hash(body) != stated:
        raise LedgerCorrupted(f"{name} does not match its hash: it was edited or damaged")
    try:
        entry = dict(json.loads(body))
    except (TypeError, ValueError) as error:
        raise LedgerCorrupted(f"{name} cannot be read: {error}") from None
    if entry.pop("previous", None) != previous:
        raise LedgerCorrupted(f"{name} does not follow the entry before it: entries were removed, inserted or moved")
    return entry


def _hash(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()

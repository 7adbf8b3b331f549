"""Tickets: decisions that are made, and not yet learned from, in the hands of whoever asked.

A decision that may never be shown, or that was made while the database was away, is answered with a ticket instead of
an id. Activated later, it becomes a decision like any other, with the arm, probability and release that it was made
with. A ticket is a text that holds all of it, and a code (HMAC-SHA-256, of which 128 bits are kept) by which the
service knows its own; the key is in the database, and workers read it before the first release.

What is in it is what the decider sent and was told, so nothing is told by it.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
from hashlib import sha256

import numpy as np

from dpbandits.serve.store import Choice

__all__ = ["punched", "read"]

_CODE = 16


def punched(choice: Choice, key: str, maybe: str = "0-") -> str:
    """A ticket for a choice; ``maybe`` is the id by which it may be written down already."""
    number, _, rest = maybe.partition("-")
    token = rest.partition("-")[0]
    arm = base64.b64encode(np.ascontiguousarray(choice.arm, "<f8").tobytes()).decode()
    kept = [token or secrets.token_hex(8), choice.chosen, choice.probability, choice.bandit, arm, choice.person]
    if number != "0":  # beyond the horizon nothing is written
        kept.append(int(number))
    text = json.dumps(kept, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_code(text, key) + text).decode()


def read(ticket: str, key: str) -> Choice | None:
    """The choice of a ticket, or None for what is no ticket of this service."""
    try:
        data = base64.b64decode(ticket.encode("ascii"), b"-_", validate=True)  # else more could stand in it and after
    except ValueError:
        return None
    code, text = data[:_CODE], data[_CODE:]
    if not hmac.compare_digest(code, _code(text, key)):
        return None
    token, chosen, probability, bandit, arm, person, *maybe = json.loads(text)
    values = np.frombuffer(base64.b64decode(arm), "<f8").astype(np.float64)
    return Choice(chosen, probability, values, person, bandit, token, *maybe)


def _code(text: bytes, key: str) -> bytes:
    return hmac.new(bytes.fromhex(key), text, sha256).digest()[:_CODE]

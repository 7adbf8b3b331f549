"""Entries and rules of a ledger as plain JSON values, and back; what is read is checked like what is given."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from accounting.budget import Budget
from accounting.ledger.filters.rule import Rule
from accounting.ledger.record.entry_types import Entry, Mark, Opening, Quota, Row, Settlement, Spend, Summary
from accounting.ledger.record.hash_chain import NONCE, START, link
from accounting.ledger.record.release_json import VERSION, canonical, decode, encode
from accounting.releases import Release

__all__ = ["FORMAT", "chained", "checked", "from_dict", "rule_from_dict", "rule_to_dict", "to_dict"]

_Any = TypeVar("_Any", bound=Entry)

FORMAT = "dpkit-ledger"

_KINDS: dict[str, type[Any]] = {
    "opening": Opening, "spend": Spend, "outcome": Settlement, "mark": Mark, "quota": Quota, "summary": Summary,
}  # fmt: skip
_NAMES = {cls: kind for kind, cls in _KINDS.items()}
_MOST_RESERVES = 16
_MOST_LEVELS = 64
_RULE_NUMBERS = "orders", "shares", "reserves", "tilt", "heavy"
# Those that the first rules do not state.
_LATER_NUMBERS = "levels", "heavy_tilt", "heavy_levels"


def checked(entry: _Any) -> _Any:
    """The entry, if it is what will be read back; else what is wrong with it, before it is recorded."""
    again = from_dict(json.loads(canonical(to_dict(entry))))
    if again != entry:
        raise ValueError(f"what would be stored reads back as something else: {again!r}")
    return entry


def chained(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Each entry of a chain with its hash."""
    head, linked = START, []
    for entry in entries:
        stored = {**to_dict(entry), "previous": head}
        head = link(head, stored)[1]
        linked.append({"hash": head, "entry": stored})
    return linked


def to_dict(entry: Entry) -> dict[str, Any]:
    """An entry as plain JSON values."""
    said = entry.row if isinstance(entry, Spend) else entry
    stored = {field.name: _plain(getattr(said, field.name)) for field in fields(said)}
    if isinstance(entry, Opening):
        stored = {"format": FORMAT, "version": VERSION, **stored}
        if not entry.witnessed:  # as in files that know of none
            del stored["witnessed"]
    elif isinstance(entry, Spend):
        del stored["outcome"]  # which is an entry of its own
        if entry.row.actor is None:  # as in files that know of none
            del stored["actor"]
        stored["nonce"] = entry.nonce
        if entry.rule is not None:
            stored["rule"] = rule_to_dict(entry.rule)
    if stored.get("nonce", "") is None:  # as in files that know of none
        del stored["nonce"]
    return {"entry": _NAMES[type(entry)], **stored}


def from_dict(stored: dict[str, Any]) -> Entry:
    """The entry of a dictionary that :func:`to_dict` made; a ``ValueError``, ``TypeError`` or ``KeyError`` if none."""
    given = dict(stored)
    time = given["time"] = datetime.fromisoformat(given["time"])
    if time.tzinfo is not None:
        time.astimezone(UTC)  # an OverflowError where no reader could
    kind = given.pop("entry")
    if kind not in _KINDS:
        raise ValueError(f"unknown kind of entry {kind!r}")
    names = {field.name for field in fields(Row if kind == "spend" else _KINDS[kind])}
    if kind == "opening" and (written := (given.pop("format"), given.pop("version"))) != (FORMAT, VERSION):
        raise ValueError(f"expected a {FORMAT} of version {VERSION}, got {written[0]!r} {written[1]!r}")
    if kind == "opening":
        given = {"witnessed": False, **given}
    if kind == "spend":
        given = {"rule": None, "actor": None, **given}
        names = names - {"outcome"} | {"rule", "nonce"}
    if "nonce" in names:
        given = {"nonce": None, **given}
    # every field must be there, and no other
    if given.keys() != names:
        raise ValueError(f"an entry {kind!r} has the fields {', '.join(sorted(names))}, got {', '.join(given)}")
    given |= {name: read(given[name]) for name, read in _READ.items() if name in given}
    if kind == "spend":
        rule, nonce = given.pop("rule"), given.pop("nonce")
        return Spend(Row(**given), rule, nonce)
    entry: Entry = _KINDS[kind](**given)
    return entry


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case Budget():
            return asdict(value)
        case Release():
            return encode(value)
        case Rule():
            return rule_to_dict(value)
    return value


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"an entry must hold a whole number there, got {value!r}")
    return value


def _nonce(value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and NONCE.fullmatch(value)):
        raise ValueError(f"a nonce has 32 hexadecimal digits, got {value!r}")
    return value


def rule_to_dict(rule: Rule) -> dict[str, Any]:
    """A rule as plain JSON values; what it does not use is left out."""
    stored: dict[str, Any] = {"accountant": rule.accountant, "failure_delta": rule.failure_delta}
    if rule.order is not None:
        stored |= {"order": rule.order, "limit": rule.limit}
    if rule.plan is not None:
        stored["plan"] = encode(rule.plan)
    if rule.orders:
        stored |= {name: list(getattr(rule, name)) for name in _RULE_NUMBERS} | {"left_out": rule.left_out}
        stored |= {name: list(getattr(rule, name)) for name in _LATER_NUMBERS if getattr(rule, name)}
    if rule.kind is not None:
        stored |= {"kind": encode(rule.kind), "kind_share": rule.kind_share}
    return stored


def rule_from_dict(stored: dict[str, Any]) -> Rule:
    """The rule of a dictionary that :func:`rule_to_dict` made."""
    given = dict(stored)
    given |= {name: tuple(map(float, given.get(name, ()))) for name in (*_RULE_NUMBERS, *_LATER_NUMBERS)}
    given |= {name: decode(given[name]) for name in ("plan", "kind") if given.get(name) is not None}
    # the first files do not state it
    given["left_out"] = float(given.get("left_out", 0.025 if given["reserves"] else 0.0))
    given["kind_share"] = float(given.get("kind_share", 0.0))
    rule = Rule(**given)
    _check(rule)
    return rule


def _check(rule: Rule) -> None:
    """Refuse numbers that no rule has."""
    orders, shares, reserves, heavy, kind_share = rule.orders, rule.shares, rule.reserves, rule.heavy, rule.kind_share
    if not 0 <= kind_share < 1 or (rule.kind is None) != (kind_share == 0):
        raise ValueError(f"a rule has a share below 1 for a kind that it names, got {kind_share!r} for {rule.kind!r}")
    total = sum(shares) + sum(heavy[:1]) + kind_share
    if any(not 1 < order < math.inf for order in orders) or any(not share > 0 for share in shares) or not total <= 1:
        raise ValueError(
            f"a rule's orders lie above 1 and its shares add up to at most 1, got {orders}, {shares}, {heavy}"
            f", {kind_share}"
        )
    if orders and len(shares) != len(orders) + 1:
        raise ValueError(f"a rule has one share more than orders, got {len(shares)} and {len(orders)}")
    if len(reserves) > _MOST_RESERVES or any(not 0 < reserve < 1 for reserve in reserves):
        raise ValueError(f"a rule has at most {_MOST_RESERVES} reserves between 0 and 1, got {reserves}")
    if not 0 <= rule.left_out < 0.1:
        raise ValueError(f"a rule leaves out a share of δ between 0 and 0.1, got left_out={rule.left_out!r}")
    if len(heavy) > _MOST_RESERVES or len(heavy) in (1, 2) or any(not 0 < number < 1 for number in heavy):
        raise ValueError(f"a rule for rare losses has two shares and some reserves between 0 and 1, got {heavy}")
    for term in (rule.tilt, rule.heavy_tilt):
        if term and not (
            len(term) == 3 and 0 < term[0] < 0.9 and 0 < term[1] < math.inf and (1 + term[1]) / 2 <= term[2] < math.inf
        ):
            raise ValueError(f"a rule's tilt is a share below 0.9, an order η > 0 and a rate ≥ (1 + η)/2, got {term}")
    for steps in (rule.levels, rule.heavy_levels):
        if len(steps) > _MOST_LEVELS or any(not 0 < level < 1 for level in steps):
            raise ValueError(f"a rule has at most {_MOST_LEVELS} levels between 0 and 1, got {steps}")


# how the values of an entry are read that are no plain ones, or must not be taken for others
_READ: dict[str, Callable[[Any], Any]] = {
    "budget": lambda stored: None if stored is None else Budget(**stored),
    "plan": lambda stored: None if stored is None else decode(stored),
    "rule": lambda stored: None if stored is None else rule_from_dict(stored),
    "release": decode,
    "index": _whole,
    "step": _whole,
    "nonce": _nonce,
    "opening": str,
    "state": dict,
}

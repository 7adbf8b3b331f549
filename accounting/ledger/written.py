"""Entries and rules of a ledger as plain JSON values, and back; what is read is checked like what is given."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from accounting.budget import Budget
from accounting.ledger.entries import Entry, Mark, Opening, Quota, Row, Settlement, Spend, Summary
from accounting.ledger.rule import Rule
from accounting.ledger.serialize import VERSION, canonical, decode, encode

__all__ = ["FORMAT", "checked", "from_dict", "rule_from_dict", "rule_to_dict", "to_dict"]

_Any = TypeVar("_Any", bound=Entry)

FORMAT = "dpkit-ledger"

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


def to_dict(entry: Entry) -> dict[str, Any]:
    """An entry as plain JSON values."""
    match entry:
        case Opening():
            return {
                "entry": "opening",
                "format": FORMAT,
                "version": VERSION,
                "time": entry.time.isoformat(),
                "budget": None if entry.budget is None else asdict(entry.budget),
                "accountant": entry.accountant,
                "failure_delta": entry.failure_delta,
                "plan": None if entry.plan is None else encode(entry.plan),
            }
        case Spend(row=row, rule=rule):
            stored = {
                "entry": "spend",
                "index": row.index,
                "time": row.time.isoformat(),
                "label": row.label,
                "scope": row.scope,
                "release": encode(row.release),
                "simulation": row.simulation,
                "unit": row.unit,
            }
            if rule is not None:
                stored["rule"] = rule_to_dict(rule)
            return stored
        case Settlement():
            return {
                "entry": "outcome",
                "index": entry.index,
                "outcome": entry.outcome,
                "time": entry.time.isoformat(),
            }
        case Mark():
            return {"entry": "mark", **asdict(entry), "time": entry.time.isoformat()}
        case Quota():
            return {
                "entry": "quota",
                "scope": entry.scope,
                "budget": None if entry.budget is None else asdict(entry.budget),
                "rule": None if entry.rule is None else rule_to_dict(entry.rule),
                "time": entry.time.isoformat(),
            }
        case Summary():
            return {
                "entry": "summary",
                "opening": entry.opening,
                "state": entry.state,
                "time": entry.time.isoformat(),
            }


def from_dict(stored: dict[str, Any]) -> Entry:
    """The entry of a dictionary that :func:`to_dict` made; a ``ValueError``, ``TypeError`` or ``KeyError`` if none."""
    time = datetime.fromisoformat(stored["time"])
    if time.tzinfo is not None:
        time.astimezone(UTC)  # an OverflowError where no reader could
    match stored["entry"]:
        case "opening":
            if (stored["format"], stored["version"]) != (FORMAT, VERSION):
                raise ValueError(
                    f"expected a {FORMAT} of version {VERSION}, got {stored['format']!r} {stored['version']!r}"
                )
            budget, plan = stored["budget"], stored["plan"]
            return Opening(
                time,
                None if budget is None else Budget(**budget),
                stored["accountant"],
                stored["failure_delta"],
                None if plan is None else decode(plan),
            )
        case "spend":
            row = Row(
                stored["index"],
                time,
                stored["label"],
                stored["scope"],
                decode(stored["release"]),
                stored["simulation"],
                stored["unit"],
            )
            rule = stored.get("rule")
            return Spend(row, None if rule is None else rule_from_dict(rule))
        case "outcome":
            if type(stored["index"]) is not int or stored["outcome"] not in ("released", "failed"):
                raise ValueError(f"{stored['outcome']!r} of row {stored['index']!r} is no outcome of a row")
            return Settlement(stored["index"], stored["outcome"], time)
        case "mark":
            # every field must be there, and no other
            names = [field.name for field in fields(Mark)]
            if {*stored} != {"entry", *names}:
                raise ValueError(f"a mark has the fields {', '.join(names)}, got {', '.join(stored)}")
            if type(stored["step"]) is not int:
                raise TypeError(f"step must be a whole number, got step={stored['step']!r}")
            return Mark(**{**{name: stored[name] for name in names}, "time": time})
        case "quota":
            budget, rule = stored["budget"], stored["rule"]
            return Quota(
                stored["scope"],
                None if budget is None else Budget(**budget),
                time,
                None if rule is None else rule_from_dict(rule),
            )
        case "summary":
            return Summary(str(stored["opening"]), time, dict(stored["state"]))
        case kind:
            raise ValueError(f"unknown kind of entry {kind!r}")


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
    plan, kind = given.pop("plan", None), given.pop("kind", None)
    kind_share = float(given.pop("kind_share", 0.0))
    if not 0 <= kind_share < 1 or (kind is None) != (kind_share == 0):
        raise ValueError(f"a rule has a share below 1 for a kind that it names, got {kind_share!r} for {kind!r}")
    numbers = {name: tuple(map(float, given.pop(name, ()))) for name in (*_RULE_NUMBERS, *_LATER_NUMBERS)}
    orders, shares, reserves, tilt, heavy, levels, heavy_tilt, heavy_levels = numbers.values()
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
    # the first files do not state it
    left_out = float(given.pop("left_out", 0.025 if reserves else 0.0))
    if not 0 <= left_out < 0.1:
        raise ValueError(f"a rule leaves out a share of δ between 0 and 0.1, got left_out={left_out!r}")
    if len(heavy) > _MOST_RESERVES or len(heavy) in (1, 2) or any(not 0 < number < 1 for number in heavy):
        raise ValueError(f"a rule for rare losses has two shares and some reserves between 0 and 1, got {heavy}")
    for term in (tilt, heavy_tilt):
        if term and not (
            len(term) == 3 and 0 < term[0] < 0.9 and 0 < term[1] < math.inf and (1 + term[1]) / 2 <= term[2] < math.inf
        ):
            raise ValueError(f"a rule's tilt is a share below 0.9, an order η > 0 and a rate ≥ (1 + η)/2, got {term}")
    for steps in (levels, heavy_levels):
        if len(steps) > _MOST_LEVELS or any(not 0 < level < 1 for level in steps):
            raise ValueError(f"a rule has at most {_MOST_LEVELS} levels between 0 and 1, got {steps}")
    given |= {"plan": None if plan is None else decode(plan), "left_out": left_out, **numbers}
    given |= {"kind": None if kind is None else decode(kind), "kind_share": kind_share}
    return Rule(**given)

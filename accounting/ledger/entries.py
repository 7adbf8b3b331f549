"""What a ledger is made of: an opening, then spends, outcomes and marks: frozen records, each with a JSON form."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Literal

from accounting.budget import Budget
from accounting.checks import integer
from accounting.ledger.filters import Measure, Rule
from accounting.ledger.serialize import VERSION, decode, encode
from accounting.releases import Release

__all__ = ["FORMAT", "Entry", "Mark", "Opening", "Outcome", "Row", "Settlement", "Spend", "from_dict", "to_dict"]

Outcome = Literal["reserved", "released", "failed"]

FORMAT = "dpkit-ledger"


@dataclass(frozen=True)
class Row:
    """One recorded release.

    ``outcome`` is ``"reserved"`` until the caller commits it as ``"released"`` or ``"failed"``. It is for the
    reader: what was reserved counts as spent whatever became of it.
    """

    index: int
    time: datetime
    label: str
    scope: str | None
    release: Release
    simulation: bool
    unit: str | None = None
    outcome: Outcome = "reserved"


@dataclass(frozen=True)
class Opening:
    """The first entry: what the ledger was opened for."""

    time: datetime
    budget: Budget | None = None
    accountant: Measure | None = None
    failure_delta: float | None = None
    plan: Release | None = None


@dataclass(frozen=True)
class Spend:
    """A reservation; the first one of a ledger with a budget also fixes the filter's rule."""

    row: Row
    rule: Rule | None = None


@dataclass(frozen=True)
class Settlement:
    """What became of a reservation."""

    index: int
    outcome: Outcome
    time: datetime


@dataclass(frozen=True)
class Mark:
    """A run made its release number ``step``, and was left in a state with this digest. It costs nothing.

    Parameters
    ----------
    run : str
        The id of what releases: a policy, a stream, a mechanism.
    step : int
        At least 1, and larger than that of the run's last mark.
    digest : str
        Of the state after the release, in hexadecimal digits.
    time : datetime
        When it was recorded, with its time zone.
    label : str
        For the reader of the ledger.
    simulation : bool
        The run draws its noise from a seeded generator.
    """

    run: str
    step: int
    digest: str
    time: datetime
    label: str = ""
    simulation: bool = False

    def __post_init__(self) -> None:
        text("run", self.run, empty=False)
        text("label", self.label)
        text("digest", self.digest, empty=False)
        if not set(self.digest) <= set("0123456789abcdefABCDEF"):
            raise ValueError(f"digest must consist of hexadecimal digits, got digest={self.digest!r}")
        object.__setattr__(self, "step", integer("step", self.step, at_least=1))
        if not isinstance(self.simulation, bool):
            raise TypeError(f"simulation must be True or False, got simulation={self.simulation!r}")
        if not isinstance(self.time, datetime) or self.time.tzinfo is None:
            raise ValueError(f"time must be a datetime with a time zone, got time={self.time!r}")


Entry = Opening | Spend | Settlement | Mark


def text(name: str, value: object, *, empty: bool = True) -> str:
    """``value``, if it is a string that every reader can print: no half of a surrogate pair stands alone."""
    if not isinstance(value, str) or not (value or empty):
        raise TypeError(f"{name} must be a {'' if empty else 'nonempty '}string, got {name}={value!r}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(f"{name} must not hold lone surrogates, got {name}={value!r}")
    return value


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
                plan = None if rule.plan is None else encode(rule.plan)
                stored["rule"] = {
                    "accountant": rule.accountant,
                    "failure_delta": rule.failure_delta,
                    "order": rule.order,
                    "limit": rule.limit,
                    "plan": plan,
                }
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


def from_dict(stored: dict[str, Any]) -> Entry:
    """The entry of a dictionary that :func:`to_dict` made; a ``ValueError``, ``TypeError`` or ``KeyError`` if none."""
    time = datetime.fromisoformat(stored["time"])
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
            if rule is None:
                return Spend(row)
            plan = rule["plan"]
            return Spend(row, Rule(**{**rule, "plan": None if plan is None else decode(plan)}))
        case "outcome":
            return Settlement(stored["index"], stored["outcome"], time)
        case "mark":
            # every field must be there, and no other
            names = [field.name for field in fields(Mark)]
            if {*stored} != {"entry", *names}:
                raise ValueError(f"a mark has the fields {', '.join(names)}, got {', '.join(stored)}")
            if type(stored["step"]) is not int:
                raise TypeError(f"step must be a whole number, got step={stored['step']!r}")
            return Mark(**{**{name: stored[name] for name in names}, "time": time})
        case kind:
            raise ValueError(f"unknown kind of entry {kind!r}")

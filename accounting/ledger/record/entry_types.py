"""What a ledger is made of: an opening, then spends, outcomes, marks and quotas; frozen and checked.

Their JSON form is in :mod:`accounting.ledger.record.entry_json`. All but summaries have a nonce (see
:mod:`accounting.ledger.record.hash_chain`), None where a release that knew of none has written them. It says nothing
of what was released, so entries that differ in nothing else are equal.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from accounting.budget import Budget
from accounting.checks import integer
from accounting.ledger.filters.rule import Measure, Rule
from accounting.releases import Release, check_release
from accounting.text import check_text

__all__ = [
    "Entry",
    "Mark",
    "Opening",
    "Outcome",
    "Quota",
    "Row",
    "Settlement",
    "Spend",
    "Summary",
    "check_new_scope",
    "check_scope",
]

Outcome = Literal["reserved", "released", "failed"]


@dataclass(frozen=True)
class Row:
    """One recorded release.

    ``outcome`` is ``"reserved"`` until the caller commits it as ``"released"`` or ``"failed"``. It is for the
    reader: what was reserved counts as spent whatever became of it. So is ``actor``, who recorded it, where that was
    said (:meth:`accounting.Ledger.acting`).

    Examples
    --------
    >>> from accounting import Gaussian, Ledger
    >>> row = Ledger().spend(Gaussian(4.0), label="means")
    >>> row.index, row.label, row.outcome
    (0, 'means', 'reserved')
    """

    index: int
    time: datetime
    label: str
    scope: str | None
    release: Release
    simulation: bool
    unit: str | None = None
    outcome: Outcome = "reserved"
    actor: str | None = None

    def __post_init__(self) -> None:
        if type(self.index) is not int or self.index < 0:
            raise ValueError(f"index must be a number of a row, got index={self.index!r}")
        check_text("label", self.label)
        if self.scope is not None:
            check_scope("scope", self.scope)
        if self.unit is not None:
            check_text("unit", self.unit, empty=False)
        if self.actor is not None:
            check_text("actor", self.actor, empty=False)
        check_release(self.release)
        _check_flag_and_time(self.simulation, self.time)

    def __repr__(self) -> str:
        scope = "" if self.scope is None else f" in {self.scope!r}"
        note = "" if self.actor is None else f", by {self.actor!r}"
        note += " (simulation)" if self.simulation else ""
        when = f"{self.time:%Y-%m-%d %H:%M:%S}"
        return f"Row {self.index}, {when}: {self.label!r}{scope}, {self.release!r}, {self.outcome}{note}"


@dataclass(frozen=True)
class Opening:
    """The first entry: what the ledger was opened for; ``witnessed``, whether it was made with a witness."""

    time: datetime
    budget: Budget | None = None
    accountant: Measure | None = None
    failure_delta: float | None = None
    plan: Release | None = None
    witnessed: bool = False
    nonce: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.witnessed) is not bool:
            raise TypeError(f"witnessed must be True or False, got witnessed={self.witnessed!r}")


@dataclass(frozen=True)
class Spend:
    """A reservation; the first one of a ledger with a budget also fixes the filter's rule."""

    row: Row
    rule: Rule | None = None
    nonce: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Settlement:
    """What became of a reservation."""

    index: int
    outcome: Outcome
    time: datetime
    nonce: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.outcome not in ("released", "failed"):
            raise ValueError(f"outcome must be 'released' or 'failed', got outcome={self.outcome!r}")


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
    nonce : str, optional
        Random: of two marks that say the same at the same moment, each has its own.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from accounting.ledger import Mark
    >>> Mark(run="a1", step=3, digest="00ff", time=datetime(2026, 1, 1, tzinfo=UTC)).step
    3
    """

    run: str
    step: int
    digest: str
    time: datetime
    label: str = ""
    simulation: bool = False
    nonce: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_text("run", self.run, empty=False)
        check_text("label", self.label)
        check_text("digest", self.digest, empty=False)
        if not set(self.digest) <= set("0123456789abcdefABCDEF"):
            raise ValueError(f"digest must consist of hexadecimal digits, got digest={self.digest!r}")
        object.__setattr__(self, "step", integer("step", self.step, at_least=1))
        _check_flag_and_time(self.simulation, self.time)


@dataclass(frozen=True)
class Quota:
    """What may be spent inside one scope, under the ledger's own budget; ``budget=None`` lifts an earlier one.

    The rule is fixed with it, from the quota alone.
    """

    scope: str
    budget: Budget | None
    time: datetime
    rule: Rule | None = None
    nonce: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_scope("scope", self.scope)
        _check_flag_and_time(False, self.time)
        if (self.rule is None) != (self.budget is None):
            raise ValueError("a quota has a rule, and one that is lifted has none")


@dataclass(frozen=True)
class Summary:
    """All that the entries before say together, so that a file is opened without reading them all.

    ``opening`` is the hash of the first entry. The rest is what
    :meth:`accounting.ledger.record.balance.Balance.summary` says, and is checked against all entries by
    :meth:`accounting.ledger.ledger.Ledger.verify`.
    """

    opening: str
    time: datetime
    state: dict[str, Any]


Entry = Opening | Spend | Settlement | Mark | Quota | Summary


def check_scope(name: str, value: object) -> str:
    """``value``, if it names a scope: words between slashes, none of them empty."""
    scope = check_text(name, value, empty=False)
    if not all(scope.split("/")):
        raise ValueError(f"{name} must have no empty part between its slashes, got {name}={scope!r}")
    return scope


def check_new_scope(name: str, value: object) -> str:
    """As :func:`check_scope`, and in the one form of Unicode (NFC) in which names that look alike are the same.

    Two scopes are taken for disjoint parts of the data, so an é that is an e with an accent would be another part.
    """
    scope = check_scope(name, value)
    if not unicodedata.is_normalized("NFC", scope):
        raise ValueError(
            f"{name} must be normalized, as scopes that only look alike count as disjoint: "
            f"unicodedata.normalize('NFC', …) gives {unicodedata.normalize('NFC', scope)!a}, got {name}={scope!a}"
        )
    return scope


def _check_flag_and_time(simulation: object, time: object) -> None:
    if not isinstance(simulation, bool):
        raise TypeError(f"simulation must be True or False, got simulation={simulation!r}")
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise ValueError(f"time must be a datetime with a time zone, got time={time!r}")

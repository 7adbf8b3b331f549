"""One unit's share of a query: what the budget counts, and how much of one person enters.

The unit of a budget is a row or a person (or a household, a device: any name). Where it is not the row, either
``person=`` says whose row it is, and rows beyond the bounds are left out at random, or the caller states the bounds.

* ``max_contributions``: how many rows of one person are used.
* ``max_groups`` and ``max_per_group``, where the answer has one number for each group: in how many groups a person
  appears, and with how many rows in each.

Which rows of a person are used depends on that person's rows and on random numbers of their own, so neighbouring data
give neighbouring samples, of which one person has at most the stated number.

Sensitivity. Let every row put a vector of weights w ≥ 0, Σw ≤ 1, into the cells of its group. One person, in at most G
groups with at most m rows in each, then adds a vector of L1 norm at most G·m and of L2 norm at most √G·m. Present or
absent (or swapped for a null contribution, which adds 0), that is how far the cells move. Swapped for another, they
move by the difference of two such vectors: at most 2·G·m in L1, and √2·√G·m in L2, for vectors without negative entries
have no negative inner product. For one cell alone the difference is at most m.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accounting import Budget
from accounting.checks import integer, ledger_or_none
from dpkit.queries._columns import codes, labels
from dpkit.samplers._exact import random_words

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["Share", "check_spending", "checked_share", "kept_rows", "owners"]


@dataclass(frozen=True)
class Share:
    """At most ``per_group`` rows in each of at most ``groups`` groups; ``alone``: each unit is exactly one row."""

    groups: int
    per_group: int
    adjacency: str
    alone: bool

    @property
    def swapped(self) -> bool:
        """Whether a neighbour has another unit in the place of one."""
        return self.adjacency == "replace"

    def l1(self, cells: int) -> int:
        """How far the ``cells`` of all groups together move in L1, for weights as in the module's text."""
        reach = self.groups * self.per_group
        return 2 * reach if self.swapped and cells > 1 else reach

    def l2(self, cells: int) -> float:
        """The same in L2."""
        reach = math.sqrt(self.groups) * self.per_group
        return math.sqrt(2) * reach if self.swapped and cells > 1 else reach


def check_spending(budget: Budget | None, ledger: Ledger | None) -> Budget:
    """The budget of a query, which must count what the ledger counts."""
    if budget is None:
        where = "" if ledger is None else " of the ledger's"
        raise TypeError(f"budget must be given: what this query may spend{where}, as budget=Budget(0.1, 0.0)")
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget, Budget(1.0, 0.0) say, got budget={budget!r}")
    ledger = ledger_or_none(ledger)
    if ledger is not None and ledger.budget is not None and ledger.budget.unit != budget.unit:
        raise ValueError(
            f"budget must count the unit of the ledger, {ledger.budget.unit!r}, got budget.unit={budget.unit!r}: "
            f"write Budget(..., unit={ledger.budget.unit!r}) and say whose row it is by person="
        )
    return budget


def checked_share(
    budget: Budget,
    *,
    person: Any,
    grouped: bool,
    max_contributions: int | None,
    max_groups: int | None,
    max_per_group: int | None,
) -> Share:
    """The bounds on one unit, all of them stated, or a refusal that names the missing one."""
    rows = budget.unit == "row"
    if rows and person is not None:
        raise ValueError(
            "person= was given and the budget counts single rows: write Budget(..., unit='person'), so that the whole "
            f"of a person is protected, got budget={budget!r}"
        )
    stated = {"max_contributions": max_contributions, "max_groups": max_groups, "max_per_group": max_per_group}
    wanted = ("max_groups", "max_per_group") if grouped else ("max_contributions",)
    for name, value in stated.items():
        if value is not None and name not in wanted:
            raise TypeError(
                f"{name} does not apply here, got {name}={value!r}: this query is bounded by {' and '.join(wanted)}"
            )
        if value is not None and integer(name, value, at_least=1) != 1 and rows:
            raise ValueError(
                f"{name} must be 1 where the budget counts rows, got {name}={value!r}: to protect persons write "
                "Budget(..., unit='person') and person="
            )
    if not rows:
        for name in wanted:
            if stated[name] is None:
                raise TypeError(_missing(name, budget.unit, person is None))
    limits = [int(stated[name] or 1) for name in wanted]
    groups, per_group = limits if grouped else (1, limits[0])
    return Share(groups, per_group, budget.adjacency, alone=person is None and groups * per_group == 1)


def _missing(name: str, unit: str, no_person: bool) -> str:
    meaning = {
        "max_contributions": f"how many rows of one {unit} are used",
        "max_groups": f"in how many groups one {unit} is counted",
        "max_per_group": f"how many rows of one {unit} are used in a group",
    }[name]
    whose = (
        f"; give person= too, the column that says whose row it is, or {name}=1 if you know that it is at most one"
        if no_person
        else " (the others are left out at random; a small number, 1 to 10, costs the least noise)"
    )
    return f"{name} must be given where the budget counts a {unit}: {meaning}{whose}"


def owners(data: Any, person: Any, rows: NDArray[np.bool_] | None = None) -> NDArray[np.int64] | None:
    """Whose row each row is, as numbers; outside ``rows`` it need not be known."""
    return None if person is None else codes(labels(data, person, "person", rows))[0]


def kept_rows(
    owner: NDArray[np.int64] | None,
    groups: NDArray[np.int64] | None,
    share: Share,
    rows: NDArray[np.bool_] | None,
    rng: np.random.Generator,
) -> NDArray[np.bool_] | None:
    """Which rows are used, None for all: those of ``rows`` within the bounds on a person.

    ``groups`` holds each row's group, −1 where it is in none. Random numbers are drawn: spend first.
    """
    if groups is not None and (outside := groups < 0).any():
        rows = ~outside if rows is None else rows & ~outside
    if owner is None:
        return rows
    chosen = np.arange(owner.size) if rows is None else np.flatnonzero(rows)
    owner = owner[chosen]
    if groups is not None:
        width = int(groups.max(initial=0)) + 1
        pair, row_pair = np.unique(owner * width + groups[chosen], return_inverse=True)
        kept = (_rank(pair // width, rng) < share.groups)[row_pair] & (_rank(row_pair, rng) < share.per_group)
    else:
        kept = _rank(owner, rng) < share.per_group
    out = np.zeros(kept.size if rows is None else rows.size, np.bool_)
    out[chosen[kept]] = True
    return out


def _rank(owner: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """The place of each row in a random order of its owner's rows, from 0."""
    if owner.size == 0:
        return owner
    # 32 random bits order the rows of an owner: ties, one in 10⁹ pairs, go by position
    order = np.argsort((owner << 32) | (random_words(rng, owner.size) >> np.uint64(32)).view(np.int64))
    ordered = owner[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    first = np.repeat(starts, np.diff(np.r_[starts, owner.size]))
    rank = np.empty(owner.size, np.int64)
    rank[order] = np.arange(owner.size) - first
    return rank

"""How much of one person to use: a bound that fits the data, and what a bound leaves out, both private.

The bounds ``max_contributions``, ``max_groups`` and ``max_per_group`` trade noise for what they leave out. They must
not be read off the data; these two look at the data, and are paid for.

:func:`contribution_bound` is a quantile over persons: each gives one number c (its rows; its groups; or its rows in the
group where it has most), so that the table that is asked has one row for each person, and is derived from one person at
a time. For b = 1, 2, … in turn, the persons with c ≤ b are counted, L, and the others, R; the first b at which about
the share q of them is reached is the answer: (1 − q)·L − q·R is 0 or more. It moves by at most max(q, 1 − q) with a
person who appears or vanishes, and by at most 1 with one who is swapped; the scan is one
:class:`~dpkit.queries.AboveThreshold`, ε-DP whatever its length.

:func:`share_cut` is a mean over rows. A row counts by the probability u in [0, 1] with which the stated bounds leave it
out: with c rows of its person in its group, and g groups of that person, u = 1 − min(1, max_groups/g)·min(1,
max_per_group/c). It depends on the own person's rows alone, so that it is a column like any other, and the mean of it
is protected as any mean is, with at most ``at_most`` rows of one person. Persons with more rows than that count as if
they had so many. Both are for units other than the row, of which nothing is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, PureDP
from accounting.arrays import Array
from accounting.checks import fraction, integer
from dpkit import randomness
from dpkit.mechanisms._checked import charge, settle
from dpkit.queries._columns import mask
from dpkit.queries._groups import by, grouped_by, uses
from dpkit.queries._moment import Moment
from dpkit.queries._units import Share, check_spending, checked_share, owners
from dpkit.queries.above_threshold import AboveThreshold, error_bound, scales
from dpkit.queries.answer import Answer
from dpkit.queries.means_and_variances import averaged

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["contribution_bound", "share_cut"]

BoundName = Literal["max_contributions", "max_groups", "max_per_group"]
# beyond what the bounds allow, by so much persons' rows are looked at
_BEYOND = 10
# Each bound up to the largest is a question, and a count in memory.
_MOST = 1_000_000


def contribution_bound(
    data: Any,
    *,
    person: Any = None,
    groups: Any = None,
    keys: Sequence[Any] | Mapping[str, Any] | None = None,
    bound: BoundName | None = None,
    share: float = 0.95,
    largest: int = 100,
    where: Any = None,
    budget: Budget | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> Answer:
    """Find ``max_contributions=`` privately: about a ``share`` of the persons keep it without losing a row.

    Parameters
    ----------
    data : array, Series or table
    person : column
        Whose row it is.
    groups, keys : column or list of columns, and their values, optional
        As in :func:`dpkit.queries.count`; rows of no listed group do not count.
    bound : {"max_contributions", "max_groups", "max_per_group"}, optional
        Which bound is wanted. Must be given with ``groups``; without, it is "max_contributions".
    share : float
        In (0, 1): of the persons who have rows.
    largest : int
        The answer is 1, 2, … or this, at most a million. It must not come from the data.
    where, budget, rng, ledger
        As in :func:`dpkit.queries.count`; the budget's unit is not the row.

    Returns
    -------
    Answer
        ``value`` is b, a whole number. With ``rows_off`` = α, in persons: at least q·n − α of the n persons lose no row
        (where b is below ``largest``), and at most q·n + α would not at b − 1.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> whose = [i for i in range(200) for _ in range(1 + i % 4)]
    >>> budget = Budget(50.0, 0.0, adjacency="add_remove", unit="person")
    >>> queries.contribution_bound(whose, person=whose, share=0.9, budget=budget).value
    4
    """
    budget = check_spending(budget, ledger)
    what = bound or ("max_contributions" if groups is None else None)
    if what not in ("max_contributions",) if groups is None else what not in ("max_groups", "max_per_group"):
        among = "'max_contributions'" if groups is None else "'max_groups' or 'max_per_group'"
        raise ValueError(f"bound must be {among} {'without' if groups is None else 'with'} groups, got bound={bound!r}")
    _check_persons("contribution_bound", person, budget)
    level, top = fraction("share", share), integer("largest", largest, at_least=1, at_most=_MOST)
    whose, coded, chosen = _rows(data, person, groups, keys, where)
    owner, group = whose[chosen], None if coded is None else coded[chosen]
    persons, first = np.unique(owner, return_inverse=True)
    if group is None:
        numbers = np.bincount(first, minlength=persons.size)
    else:
        width = int(group.max(initial=0)) + 1
        pairs, sizes = np.unique(first * width + group, return_counts=True)
        numbers = np.bincount(pairs // width, minlength=persons.size)
        if what == "max_per_group":
            numbers = np.zeros(persons.size, np.int64)
            np.maximum.at(numbers, pairs // width, sizes)
    name = f"{what}{by(data, groups)} for {level:g} of the persons"
    source = randomness.resolve(rng)
    cost = PureDP(budget.epsilon, adjacency=budget.adjacency)
    sensitivity = 1.0 if budget.adjacency == "replace" else max(level, 1 - level)
    scales(sensitivity, budget.epsilon, monotone=False)  # refused, if at all, before it is paid
    kept = np.cumsum(np.bincount(np.minimum(numbers, top + 1), minlength=top + 2))
    row = charge(ledger, cost, f"queries.{name}", source)
    run = AboveThreshold(0.0, sensitivity=sensitivity, budget=budget, rng=source)
    found = 1
    while not run.ask(float(kept[found] - level * persons.size)) and found < top:
        found += 1
    settle(ledger, row)
    return Answer(
        found, cost, name, budget,
        rows_bound=lambda within: error_bound(sensitivity, budget.epsilon, top, 1 - within),
        why_none="it is for use as a bound, at a cost that is already paid", off_by="persons",
    )  # fmt: skip


def share_cut(
    data: Any,
    *,
    person: Any = None,
    groups: Any = None,
    keys: Sequence[Any] | Mapping[str, Any] | None = None,
    max_contributions: int | None = None,
    max_groups: int | None = None,
    max_per_group: int | None = None,
    at_most: int | None = None,
    where: Any = None,
    budget: Budget | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> Answer:
    """The share of rows that the bounds of another query leave out.

    Parameters
    ----------
    data, person, groups, keys, max_contributions, max_groups, max_per_group, where
        As in the query that is asked about.
    at_most : int, optional
        How many rows of one person are looked at; by default ten times what the bounds allow. The fewer, the less
        noise; persons with more rows count as if they had so many, so that of long tails more is cut than is said.
    budget, rng, ledger
        As in :func:`dpkit.queries.count`: it is a query of its own, with a price of its own.

    Returns
    -------
    Answer
        In [0, 1], with an interval.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> whose = [i for i in range(200) for _ in range(4)]
    >>> budget = Budget(1e4, 0.0, adjacency="add_remove", unit="person")
    >>> round(queries.share_cut(whose, person=whose, max_contributions=3, budget=budget).value, 2)
    0.25
    """
    budget = check_spending(budget, ledger)
    _check_persons("share_cut", person, budget)
    bounds = checked_share(
        budget, person=person, grouped=groups is not None, max_contributions=max_contributions, max_groups=max_groups,
        max_per_group=max_per_group,
    )  # fmt: skip
    allowed = bounds.groups * bounds.per_group
    most = _BEYOND * allowed if at_most is None else integer("at_most", at_most, at_least=allowed + 1)
    whose, coded, chosen = _rows(data, person, groups, keys, where)
    left_out = np.zeros(whose.size)
    left_out[chosen] = _chance_left_out(whose[chosen], None if coded is None else coded[chosen], bounds)
    of = uses(bounds, person, budget.unit, "" if groups is None else f"group{by(data, groups)}")
    task = Moment(
        "share", left_out, None, (0, 1), chosen, None, None, whose, most, None, None, budget, None, rng, ledger
    )
    task.query = f"share of rows left out to keep {of}"
    return averaged(task)


def _check_persons(query: str, person: Any, budget: Budget) -> None:
    if person is None or budget.unit == "row":
        raise TypeError(
            f"{query} needs person=, the column that says whose row it is, and a budget that counts persons, for of "
            f"single rows nothing is left out: Budget(..., unit='person'), got {budget!r}"
        )


def _rows(
    data: Any, person: Any, groups: Any, keys: Any, where: Any
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None, NDArray[np.bool_]]:
    """Whose each row is, in which group, and which rows are asked about."""
    rows = None if where is None else mask(data, where)
    whose = owners(data, person, rows)
    assert whose is not None
    coded, _ = grouped_by(data, groups, keys, rows)
    chosen = np.ones(whose.size, np.bool_) if rows is None else rows
    return whose, coded, chosen if coded is None else chosen & (coded >= 0)


def _chance_left_out(owner: NDArray[np.int64], group: NDArray[np.int64] | None, bounds: Share) -> Array:
    """With which probability the bounds leave out each row."""
    persons, whose = np.unique(owner, return_inverse=True)
    if group is None:
        own = np.bincount(whose, minlength=persons.size)
        left_out: Array = 1.0 - np.minimum(1.0, bounds.per_group / np.maximum(own, 1))
        return left_out[whose]
    width = int(group.max(initial=0)) + 1
    pairs, pair, sizes = np.unique(whose * width + group, return_inverse=True, return_counts=True)
    in_groups = np.bincount(pairs // width, minlength=persons.size)
    kept: Array = np.minimum(1.0, bounds.groups / in_groups[pairs // width]) * np.minimum(1.0, bounds.per_group / sizes)
    return (1.0 - kept)[pair]

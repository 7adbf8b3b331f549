"""Bounds of a column found privately, for those who know of none.

For every j the rows up to s·2^j in size are counted, upwards from j = 0, and the first j at which about the share q of
all rows is reached gives the bound (Durfee 2023, "Unbounded differentially private quantile and maximum estimation": an
above-threshold scan over a geometric grid). One scan for the values gives the upper bound, one for the negated values
the lower one; where the data are on one side of zero, the other bound stays at −s or s, where its scan starts. What is
known of the place of the values (``around``) is taken from them first.

Privacy. With L the rows up to s·2^j and R the others, the query is (1 − q)·L − q·R, and the threshold 0. It moves by at
most k·max(q, 1 − q) if a unit with at most k rows appears or vanishes, and by k if it is swapped. Each scan is one
:class:`~dpkit.queries.AboveThreshold` with half of ε, whatever its length; together ε-DP. Cost: one random number per
step, at most a thousand of them, and sorting the rows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting import Budget, PureDP
from accounting.checks import fraction, positive
from dpkit import randomness
from dpkit.clipping import real_array
from dpkit.mechanisms._checked import charge, settle
from dpkit.queries._columns import mask, name_of, numbers
from dpkit.queries._dates import as_shown_dates, days, is_dated
from dpkit.queries._groups import uses
from dpkit.queries._units import check_spending, checked_share, kept_rows, owners
from dpkit.queries.above_threshold import AboveThreshold, error_bound, scales
from dpkit.queries.answer import Answer

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["private_bounds"]

_LARGEST = 2.0**1000


def private_bounds(
    data: Any,
    column: Any = None,
    *,
    share: float = 0.99,
    smallest: float = 1.0,
    around: Any = 0.0,
    where: Any = None,
    person: Any = None,
    max_contributions: int | None = None,
    budget: Budget | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> Answer:
    """Find ``bounds=`` for another query privately: about a ``share`` of the rows lie within them.

    Parameters
    ----------
    data : array, Series or table
    column : column, optional
        By default ``data`` itself.
    share : float
        q in (0, 1): the share of rows on the inner side of each bound.
    smallest : float
        s > 0: the smallest bound in size that is of interest, in the column's unit. It must not come from the data.
    around : float or date
        Where the search starts, known without looking at the data. Of a column of dates it must be given, and is a
        date; ``smallest`` is then in days.
    where, person, max_contributions, budget, rng, ledger
        As in :func:`dpkit.queries.count`.

    Returns
    -------
    Answer
        ``value`` is (low, high), ``around`` ± ``smallest`` times powers of two. With ``rows_off`` = α, together: at
        least q·n − α rows are on the inner side of each bound, and at most q·n + α would be if it were half as far
        (where it is farther than ``smallest``). The search ends at 2¹⁰⁰⁰, whatever lies beyond.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> queries.private_bounds(list(range(1000)), budget=Budget(20.0, 0.0)).value
    (-1.0, 1024.0)
    """
    budget = check_spending(budget, ledger)
    unit = checked_share(
        budget, person=person, grouped=False, max_contributions=max_contributions, max_groups=None, max_per_group=None
    )
    q, start = fraction("share", share), positive("smallest", smallest)
    rows = None if where is None else mask(data, where)
    dated = is_dated([around])
    origin = float(days("around", [around])[0]) if dated else float(real_array("around", around))
    values = numbers(data, column, rows, dated=dated) - origin
    owner = owners(data, person, rows)
    source = randomness.resolve(rng)
    cost = PureDP(budget.epsilon, adjacency=budget.adjacency)
    query = f"bounds of {name_of(data, column, 'data')}"
    half = Budget(budget.epsilon / 2, budget.delta, adjacency=budget.adjacency)
    sensitivity = unit.per_group * (1.0 if unit.swapped else max(q, 1 - q))
    scales(sensitivity, half.epsilon, monotone=False)  # refused, if at all, before it is paid
    row = charge(ledger, cost, f"queries.{query}", source)

    kept = kept_rows(owner, None, unit, rows, source)
    used = np.sort((values if kept is None else values[kept]).astype(np.float64))

    def scan(ordered: np.ndarray[Any, np.dtype[np.float64]]) -> float:
        run = AboveThreshold(0.0, sensitivity=sensitivity, budget=half, rng=source)
        bound = start
        while not run.ask(float(np.searchsorted(ordered, bound, "right")) - q * ordered.size) and bound < _LARGEST:
            bound *= 2
        return bound

    def rows_bound(level: float) -> float:
        # two scans, each with its threshold and its steps, of which at most so many are asked
        steps = max(0, math.ceil(math.log2(_LARGEST) - math.log2(start))) + 1
        each = (1 - level) / 2
        return error_bound(sensitivity, half.epsilon, steps, each)

    high = scan(used)
    low = -scan(-used[::-1])
    settle(ledger, row)
    found = (origin + low, origin + high)
    return Answer(
        tuple(_within_years(found)) if dated else found, cost, query, budget, keys=("low", "high"),
        rows_bound=rows_bound,
        why_none="they are for use as bounds=, at a cost that is already paid",
        columns=("bound",),
        uses=uses(unit, person, budget.unit),
    )  # fmt: skip


def _within_years(found: tuple[float, float]) -> Any:
    """Days as dates, of the years that a calendar has."""
    years = days("bounds", ["0001-01-01", "9999-12-31"])
    return as_shown_dates(np.clip(found, *years))

"""How many rows fall between edges that are known beforehand.

A histogram is a count by group, with the bins as groups: unit, sensitivity and cost are those of
:func:`dpkit.queries.count`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from accounting import Budget
from accounting.checks import integer
from dpkit.clipping import real_array
from dpkit.queries._columns import check_bounds, name_of
from dpkit.queries._dates import as_shown_dates, days, is_dated
from dpkit.queries._noise import NoiseName
from dpkit.queries._rows import MOST_BINS, Bins, given
from dpkit.queries.answer import Answer
from dpkit.queries.counts_and_sums import counted

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["histogram"]


def histogram(
    data: Any,
    column: Any = None,
    *,
    bins: int | ArrayLike = 10,
    bounds: tuple[float, float] | None = None,
    where: Any = None,
    person: Any = None,
    max_groups: int | None = None,
    max_per_group: int | None = None,
    budget: Budget | None = None,
    noise: NoiseName | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> Answer:
    """The number of rows in each bin.

    Parameters
    ----------
    data : array, Series or table
    column : column, optional
        By default ``data`` itself.
    bins : int or sequence of float or date
        So many bins of one width between ``bounds``, at most a million, or their edges. Each bin holds its lower edge,
        the last one both.
    bounds : (float, float) or (date, date), optional
        With a number of bins; values outside are cut to them. With edges, values outside are not counted.
    max_groups, max_per_group : int, optional
        In how many bins one person is counted, and how often in each.
    where, person, budget, noise, rng, ledger
        As in :func:`dpkit.queries.count`.

    Returns
    -------
    Answer
        ``keys`` are the pairs of edges.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> queries.histogram([1, 2, 3, 9], bins=2, bounds=(0, 10), budget=Budget(1e6, 0.0)).value.tolist()
    [3, 1]
    """
    dated = is_dated(bounds if np.ndim(bins) == 0 else bins)
    if np.ndim(bins) == 0:
        low, high = check_bounds(bounds)
        edges = np.linspace(low, high, integer("bins", bins, at_least=1, at_most=MOST_BINS) + 1)
    else:
        if bounds is not None:
            raise TypeError("bounds go with a number of bins, got edges as well: leave one of them out")
        edges = days("bins", bins) if dated else real_array("bins", bins)
        if edges.ndim != 1 or edges.size < 2 or not (np.diff(edges) > 0).all():
            raise ValueError(f"bins must be a number of bins or increasing edges, got bins={bins!r}")
    data = given(data)
    answer = counted(
        data,
        f"histogram of {name_of(data, column, 'data')}",
        where=where,
        groups=Bins(edges, cut=np.ndim(bins) == 0),
        keys=range(edges.size - 1),
        person=person,
        max_contributions=None,
        max_groups=max_groups,
        max_per_group=max_per_group,
        budget=budget,
        noise=noise,
        rng=rng,
        ledger=ledger,
        column=column,
        dated=dated,
    )
    ends = list(as_shown_dates(edges)) if dated else edges.tolist()
    return replace(answer, keys=tuple(pairwise(ends)), columns=("from", "to"))

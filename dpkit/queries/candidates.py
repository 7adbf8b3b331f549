"""The most frequent of many listed candidates, in one shot.

Every candidate's count gets Gumbel noise once, and the k largest are named, in order. That is the same as k rounds of
the exponential mechanism, each without the winners before (Durfee & Rogers 2019): k times ``NoisyMax(ε)``.

Sensitivity. One unit moves *each* count by at most its rows in that group, m; how many groups it is in does not matter.
If it appears or vanishes, all counts move the same way, and noise of scale m/ε gives range ε; if it is swapped, noise
of scale 2m/ε does. The winners are exact (``dpkit.samplers.noisy_order``). The counts themselves are not released: ask
``count`` for the winners. Cost: one random number for each candidate.

Error. A round takes one of at most K candidates whose count is s below the largest that is left with probability at
most K·exp(−rate·s); over k rounds, together: s = ln(K·k/(1 − confidence))/rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting import Budget, NoisyMax
from accounting.checks import integer
from dpkit import randomness
from dpkit.mechanisms._checked import charge, settle
from dpkit.queries._columns import coded_by, mask, name_of
from dpkit.queries._groups import fitting_keys, known_labels, uses
from dpkit.queries._noise import range_per_round
from dpkit.queries._units import Share, check_spending, checked_share, kept_rows, owners
from dpkit.queries.answer import Answer
from dpkit.samplers.noisy_order import NoisyOrder

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["top_k"]


def top_k(
    data: Any,
    column: Any = None,
    k: int = 1,
    *,
    keys: Sequence[Any] | None = None,
    where: Any = None,
    person: Any = None,
    max_per_group: int | None = None,
    budget: Budget | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> Answer:
    """The k most frequent values of a column, in order of their noisy counts.

    Parameters
    ----------
    data : array, Series or table
    column : column, optional
        By default ``data`` itself.
    k : int
    keys : sequence
        The candidates, known without looking at the data.
    max_per_group : int
        How many rows of one person count for one candidate.
    where, person, budget, rng, ledger
        As in :func:`dpkit.queries.count`.

    Returns
    -------
    Answer
        ``keys`` are the winners, ``value`` their places among the candidates. ``rows_off`` bounds how many rows more a
        candidate that was left out can have.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> words = ["a"] * 90 + ["b"] * 50 + ["c"] * 10
    >>> queries.top_k(words, k=2, keys=["a", "b", "c", "d"], budget=Budget(50.0, 0.0)).keys
    ('a', 'b')
    """
    budget = check_spending(budget, ledger)
    if keys is None:
        raise TypeError(
            "keys must list the candidates; where they are not public, count(groups=...) without keys= shows the most "
            "frequent ones (budget.delta > 0)"
        )
    names = list(keys)
    count = integer("k", k, at_least=1)
    if count > len(names):
        raise ValueError(f"k must be at most the number of keys, {len(names)}, got k={k!r}")
    share = checked_share(
        budget, person=person, grouped=True, max_contributions=None, max_groups=1, max_per_group=max_per_group
    )
    # a person may be in every group, since each count is moved by at most max_per_group anyway
    share = Share(len(names), share.per_group, share.adjacency, share.alone)
    rows = None if where is None else mask(data, where)
    known = known_labels(data, column, rows, "column")
    coded = coded_by(known, fitting_keys(known, names))
    owner = owners(data, person, rows)
    epsilon = range_per_round(count, budget)
    cost = count * NoisyMax(epsilon, "gumbel", adjacency=budget.adjacency)
    source = randomness.resolve(rng)
    query = f"top {count} of {name_of(data, column, 'data')}"
    row = charge(ledger, cost, f"queries.{query}", source)

    kept = kept_rows(owner, coded, share, rows, source)
    counts = np.bincount(coded if kept is None else coded[kept], minlength=len(names))
    rate = Fraction(epsilon) / (share.per_group * (2 if share.swapped else 1))
    best = int(counts.max())
    order = NoisyOrder("gumbel", source, top=count)
    order.add(np.asarray((counts - best) * float(rate), np.float64), lambda i: (int(counts[i]) - best) * rate)
    found = order.largest()
    settle(ledger, row)

    def rows_bound(level: float) -> float:
        # the winner of round j beats all that are left by s but for len(names)·exp(−rate·s)
        return float((math.log(len(names)) + math.log(count / (1 - level))) / rate) if count < len(names) else 0.0

    return Answer(
        np.array(found),
        cost,
        query,
        budget,
        keys=tuple(names[i] for i in found),
        rows_bound=rows_bound,
        why_none="it names the winners only; ask count(groups=..., keys=winners) for their counts",
        ranked=True,
        columns=(name_of(data, column, "key"),),
        uses=uses(Share(1, share.per_group, share.adjacency, share.alone), person, budget.unit, "group").replace(
            "in each of at most 1 group", "in each group"
        ),
    )

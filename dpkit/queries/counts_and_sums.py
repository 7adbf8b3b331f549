"""Counts and sums, of all rows or by group, with exact noise.

Unit: what ``budget.unit`` names; see ``dpkit.queries`` for who is protected and how contributions are bounded.

Sensitivity of a count. Present or absent, a unit with at most m rows in each of G groups moves the counts by G·m in L1
and √G·m in L2; swapped, by twice and √2 times that (one count alone by m). Under ``replace`` with one row per unit the
number of rows is public, and is returned as it is, at no cost.

Sensitivity of a sum. Values are cut to ``bounds`` = (a, b) and rounded to a lattice row by row. With M = max(|a|, |b|)
and R = max(b, 0) − min(a, 0), one sum moves by m·M (present or absent) or m·R (swapped; b − a where the number of rows
is fixed). The sums of groups move by G·m·M in L1 and √G·m·M in L2; swapped, by 2·G·m·M in L1 and √G·m·max(R, √2·M) in
L2: in a group that both units reach they differ by at most m·R, in others by at most m·M, and the squares are linear in
the number of groups that both reach.

Cost: one release of exact noise (``_noise``). Groups that nobody listed: counts are released for the groups in the
data, and shown only from a threshold on, which a group of one unit passes with probability at most δ/(2G). Off that
event the shown groups are those that both neighbours have, so the cost is that of the noise plus ``ApproxDP(0, δ/2)``
(Korolova, Kenthapadi, Mishra & Ntoulas 2009; the proof for neighbours that both have groups of their own is the same,
once on either side).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting import ApproxDP, Budget, PureDP
from dpkit import randomness
from dpkit.mechanisms._checked import charge, settle
from dpkit.queries._columns import check_bounds, name_of
from dpkit.queries._dates import is_dated
from dpkit.queries._groups import by, group_names, uses
from dpkit.queries._noise import Noise, NoiseName, choose_noise, paid, spend, with_noise
from dpkit.queries._rows import Bins, given, rows_of
from dpkit.queries._units import check_spending, checked_share
from dpkit.queries.answer import Answer

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["count", "counted", "sum"]

# The resolution of real values: the larger bound is at most 2³⁰ steps.
_BITS = 30


def count(
    data: Any,
    *,
    where: Any = None,
    groups: Any = None,
    keys: Sequence[Any] | Mapping[str, Any] | None = None,
    person: Any = None,
    max_contributions: int | None = None,
    max_groups: int | None = None,
    max_per_group: int | None = None,
    budget: Budget | None = None,
    noise: NoiseName | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> Answer:
    """The number of rows, or of rows in each group.

    Parameters
    ----------
    data : array, Series or table
        Only its rows matter. The names of columns below refer to it.
    where : column of bool or str, optional
        Count these rows only; what is missing in the others does not matter. Of a table also a test in words,
        ``"town = Linz and paid >= 20"``: a column, one of = != < <= > >= and ``in (a, b)``, and a value, joined by
        ``and``, ``or``, ``not`` and parentheses. A row that lacks the value passes no test of it.
    groups : column or list of columns, optional
        Count each group for itself; of several columns, each cell of their cross-table.
    keys : sequence or mapping, optional
        The groups to report, known without looking at the data. Of several columns tuples of values, or the values of
        each column, ``{"town": [...], "sex": [...]}``, for all cells of them. Without keys, groups are found in the
        data and shown from a threshold on (needs budget.delta > 0).
    person : column, optional
        Whose row it is.
    max_contributions, max_groups, max_per_group : int, optional
        See ``dpkit.queries``.
    budget : Budget
        What this query may spend, for which unit, under which adjacency.
    noise : {"laplace", "gaussian"}, optional
        By default the one of the smaller standard deviation.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        The cost is recorded in it, or refused by it, before any noise is drawn.

    Returns
    -------
    Answer
        Whole numbers, 0 and above; ``raw`` has them before those below 0 were set to 0.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> table = {"town": ["A", "B", "A", "A"], "age": [20, 30, 40, 50]}
    >>> budget = Budget(1e6, 0.0, adjacency="add_remove")
    >>> queries.count(table, groups="town", keys=["A", "B", "C"], budget=budget).value.tolist()
    [3, 1, 0]
    """
    data = given(data)
    return counted(
        data, f"count{by(data, groups)}", where=where, groups=groups, keys=keys, person=person,
        max_contributions=max_contributions, max_groups=max_groups, max_per_group=max_per_group, budget=budget,
        noise=noise, rng=rng, ledger=ledger,
    )  # fmt: skip


def counted(
    data: Any,
    query: str,
    *,
    where: Any,
    groups: Any,
    keys: Sequence[Any] | Mapping[str, Any] | None,
    person: Any,
    max_contributions: int | None,
    max_groups: int | None,
    max_per_group: int | None,
    budget: Budget | None,
    noise: NoiseName | None,
    rng: np.random.Generator | None,
    ledger: Ledger | None,
    column: Any = None,
    dated: bool = False,
) -> Answer:
    """:func:`count`, called ``query`` in the answer and in the ledger; with ``Bins`` as groups, of a column."""
    binned = isinstance(groups, Bins)
    budget = check_spending(budget, ledger)
    grouped = groups is not None
    if keys is not None and not grouped:
        raise TypeError("keys lists groups, and groups was not given: give groups= too, the column that they are in")
    share = checked_share(
        budget,
        person=person,
        grouped=grouped,
        max_contributions=max_contributions,
        max_groups=max_groups,
        max_per_group=max_per_group,
    )
    used = rows_of(
        data, where=where, groups=groups, keys=keys, person=person, column=column, numeric=binned, dated=dated
    )
    source = randomness.resolve(rng)
    if share.alone and share.swapped and used.everything and not grouped:
        n = used.n
        settle(ledger, charge(ledger, PureDP(0.0, adjacency="replace"), f"queries.{query} (public)", source))
        return Answer(
            n, PureDP(0.0, adjacency="replace"), query, budget, noise_std=0.0, noise_interval=lambda _: (n, n)
        )
    unlisted = grouped and keys is None
    if unlisted and budget.delta == 0:
        raise ValueError(
            f"groups that nobody listed can be shown only with budget.delta > 0, got {budget!r}: allow 1e-6, say, or "
            "list the groups in keys="
        )
    spent = Budget(budget.epsilon, budget.delta / 2, adjacency=budget.adjacency) if unlisted else budget
    cells = 2 if grouped else 1  # more than one: both units of a swap can add to the distance
    law = choose_noise(
        spent,
        noise,
        l1=share.l1(cells),
        l2=share.l2(cells),
        step=1.0,
        whole=True,
        one_cell=share.groups == 1 and not (grouped and share.swapped),
    )
    also = ApproxDP(0.0, budget.delta / 2, adjacency=budget.adjacency) if unlisted else None
    # refused, if at all, before it is paid
    floor = share.per_group + _rarely_reached(law, budget.delta / 2 / share.groups) if unlisted else 0
    counts = used.counts(share, source)
    cost, row = spend(law, query, source, ledger, also)
    with paid(ledger, row):
        exact, names = counts(), used.names
        if unlisted:
            # a group without a row in use is none: one unit may have any number of those
            present = np.flatnonzero(exact)
            exact, names = exact[present], [names[i] for i in present]
        noisy = with_noise(exact, law, source)
    if unlisted:
        # equal counts by name: in the order of the data they would tell which group came first
        order = sorted(np.flatnonzero(noisy >= floor).tolist(), key=lambda i: (-int(noisy[i]), repr(names[i])))
        noisy, names = noisy[order], [names[i] for i in order]
        query += f" (shown from {floor} on)"
    reach = law.reach
    raw = noisy if grouped else int(noisy[0])

    def interval(confidence: float) -> tuple[Any, Any]:
        half = int(reach(confidence))
        return _counted(raw - half), _counted(raw + half)

    return Answer(
        _counted(raw),
        cost,
        query,
        budget,
        keys=tuple(names) if grouped else None,
        noise_std=law.std,
        raw=raw,
        noise_interval=interval,
        columns=group_names(data, groups) if grouped and not binned else (),
        uses=uses(share, person, budget.unit, ("bin" if binned else "group") if grouped else ""),
    )


def sum(
    data: Any,
    column: Any = None,
    *,
    bounds: tuple[float, float] | None = None,
    where: Any = None,
    groups: Any = None,
    keys: Sequence[Any] | Mapping[str, Any] | None = None,
    person: Any = None,
    max_contributions: int | None = None,
    max_groups: int | None = None,
    max_per_group: int | None = None,
    budget: Budget | None = None,
    noise: NoiseName | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> Answer:
    """The sum of a column, or of each group's part of it.

    Parameters
    ----------
    data : array, Series or table
    column : column, optional
        What is added up; by default ``data`` itself.
    bounds : (float, float)
        (a, b): values outside are cut to them. They must not come from the data.
    where, groups, keys, person, max_contributions, max_groups, max_per_group, budget, noise, rng, ledger
        As in :func:`count`; ``keys`` must be given with ``groups``.

    Returns
    -------
    Answer

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> queries.sum([1, 2, 30], bounds=(0, 10), budget=Budget(1e6, 0.0)).value
    13.0
    """
    budget = check_spending(budget, ledger)
    if is_dated(bounds):
        raise TypeError(
            f"bounds must be numbers, for a sum of dates means nothing, got bounds={bounds!r}: ask for a mean"
        )
    low, high = check_bounds(bounds)
    share = checked_share(
        budget,
        person=person,
        grouped=groups is not None,
        max_contributions=max_contributions,
        max_groups=max_groups,
        max_per_group=max_per_group,
    )
    data = given(data)
    used = rows_of(data, where=where, groups=groups, keys=keys, person=person, column=column)
    if groups is not None and keys is None:
        raise TypeError(
            "keys must list the groups of a sum; groups that are not public come from count(groups=...), whose answer "
            "has the keys that may be shown"
        )
    largest = max(abs(low), abs(high))
    step = _step(low, high, largest, used.whole, share.l1(2) / budget.epsilon)
    # the rounded bounds, and all that lies between them
    a, b = (round(end / step) for end in (low, high))
    top, span = max(abs(a), abs(b)), max(b, 0) - min(a, 0)
    m = share.per_group
    if not used.grouped:
        fixed = share.alone and share.swapped and used.everything
        l1 = l2 = float(m * ((b - a if fixed else span) if share.swapped else top))
    else:
        l1 = share.l1(2) * top
        l2 = math.sqrt(share.groups) * m * (max(span, math.sqrt(2) * top) if share.swapped else top)
    law = choose_noise(budget, noise, l1=l1, l2=l2, step=step, whole=step == 1.0, one_cell=not used.grouped)
    source = randomness.resolve(rng)
    query = f"sum of {name_of(data, column, 'data')}{by(data, groups)}"
    sums = used.sums(share, source, step, (low, high))
    _, row = spend(law, query, source, ledger)
    with paid(ledger, row):
        noisy = with_noise(sums(), law, source)
    value = noisy * step if used.grouped else float(noisy[0] * step)
    return Answer(
        value,
        law.cost,
        query,
        budget,
        keys=tuple(used.names) if used.grouped else None,
        noise_std=law.std,
        noise_interval=lambda confidence: (value - law.reach(confidence), value + law.reach(confidence)),
        columns=() if groups is None else group_names(data, groups),
        uses=uses(share, person, budget.unit, "" if groups is None else "group"),
    )


def _counted(number: Any) -> Any:
    """A count, 0 or above."""
    return np.maximum(number, 0) if isinstance(number, np.ndarray) else max(number, 0)


def _step(low: float, high: float, largest: float, whole: bool, scale: float) -> float:
    """The lattice: 1 for whole numbers that allow it, else a power of two of 2⁻³⁰ of the larger bound or more.

    ``scale`` is the noise in units of the larger bound, which keeps it below 2³⁹ steps, or is far too much to be drawn.
    """
    bits = min(_BITS, max(0, 38 - max(0, math.ceil(math.log2(scale)))))
    if whole and low == int(low) and high == int(high) and largest <= 2.0**bits:
        return 1.0
    return math.ldexp(1.0, math.frexp(largest)[1] - bits)


def _rarely_reached(law: Noise, probability: float) -> int:
    """The smallest j that the noise of a count reaches with at most this probability."""
    if probability == 0:
        raise ValueError("budget.delta must be larger for groups that nobody listed: its share of one group is 0")
    if law.name == "laplace":
        # P(k ≥ j) = q^j/(1 + q)
        q = math.exp(-1 / law.scale)
        j = math.ceil(math.log(probability * (1 + q)) / math.log(q) * (1 + 1e-12)) if q > 0 else 1
        return max(j, 1)
    from scipy.special import ndtri

    # rounding brings the noise to j from j − ½ on
    return max(1, math.ceil(0.5 - law.scale * float(ndtri(probability)) * (1 + 1e-12)))

"""Quantiles, one or many, by the exponential mechanism on ranks.

One. With L(o) the number of used rows below o and n of all, o is drawn from bounds with probability ∝
exp(−c·|L(o) − q·n|) (Smith 2011): exactly, on 2⁵⁰ points between the bounds (``dpkit.samplers.ladder``).

Privacy of one. L − q·n moves by 1 − q for a row below o and by −q for a row above it: by at most k·max(q, 1 − q) when
a unit with at most k rows appears or vanishes, and by at most k when it is swapped (k·(1 − q) + k·q). So the exponent
moves by at most c times that, in either direction, and the logarithm of the ratio of two probabilities has a range of
at most twice as much: c = ε/(2k·max(q, 1 − q)), or c = ε/(2k) for a swap. It costs ``NoisyMax(ε)``, a mechanism of
bounded range ε, which composes better than pure ε-DP.

Ties. Rows of the same cell take the next free ones, as in linear probing: which cells are taken does not depend on the
order of rows, so one row more takes one cell more, neighbours stay neighbours, and n rows are moved by less than n
cells. Then every rank is that of some cell, which bounds rank errors whatever the data are (``_ranks``). 2⁴⁰ more cells
on either side stand for the bounds themselves.

One of listed candidates. Where the values that the answer may take are few and known (whole years), one of them is
chosen by permute-and-flip (McKenna & Sheldon 2020) with the same exponents: ε-DP, and never worse than the exponential
mechanism on the same candidates. A candidate that is s rows farther off than the best is chosen only if its own coin,
of probability exp(−c·s), says so; so with M of them, P(s rows or more) ≤ M·exp(−c·s).

Many. Recursive bisection (Kaplan, Schnapp & Stemmer 2022): the middle one first; then each half of the rest on the rows
on its side, within the half of the bounds that is left, at the rank that it has among them. ⌊log₂ m⌋ + 1 rounds for m
quantiles, each of cost ``NoisyMax(ε)``, calibrated together.

Privacy of a round. Its parts use disjoint rows, given the outputs of the rounds before. One row that appears or
vanishes changes one part, by a range of 2c·max(q′, 1 − q′) with q′ the rank wanted in that part; c is chosen for each
part so that this is ε/k, and ranges add over the k rows of a unit (and over those of both units of a swap, which
therefore has ε/(2k)): each of these changes moves the loss of the same round, whose parts are independent. So a round
has range ε, and rounds compose as any mechanisms of bounded range do. In the first round there is one part, and the
better constant of one quantile holds.

By group. The rows of a group are a part from the start, so a round over all groups is one as above: its parts use
disjoint rows, and a unit with at most m rows in each of at most G groups has k = G·m rows. The first round, too, then
has the constant of the others. As many rounds as one group needs, whatever the number of groups.

Slices around noisy ranks (SliceQuantiles, 2025) do not add up errors over rounds, but pay for the noise of the ranks
and twice for a draw. At ε = 1 (pure, one row more or less) 9 quantiles of 10⁵ normal rows err by 7 rows here, root mean
square, and 100 by 17; the noisy ranks of a binary tree with half of ε alone err by 15 and by 35.

Cost: sorting the rows once, and O(1/c) for each quantile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Budget, NoisyMax
from accounting.checks import fraction
from dpkit import randomness
from dpkit.clipping import real_array
from dpkit.mechanisms._checked import charge
from dpkit.queries._columns import check_bounds, name_of
from dpkit.queries._dates import dated_answer, days, is_dated
from dpkit.queries._groups import by, group_names, uses
from dpkit.queries._noise import paid, range_per_round
from dpkit.queries._ranks import Step, between_neighbours, first_rate, part_rate, plan, rank_errors, with_neighbours
from dpkit.queries._rows import check_sortable, given, rows_of
from dpkit.queries._units import Share, check_spending, checked_share
from dpkit.queries.answer import Answer
from dpkit.samplers.ladder import draw_by_rank
from dpkit.samplers.noisy_order import NoisyOrder

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["quantile"]

_POINTS = 1 << 50
# cells below and above the bounds, which mean the bounds: room for rows that are all at one of them
_BEYOND = 1 << 40
_NO_INTERVAL = (
    "its error depends on how dense the data are, and the number of rows, by which ranks around it could be placed, is "
    "private here; rows_off(0.95) bounds its error in rows"
)
_ALONE = (
    "no other quantile was drawn to bound it: ask with confidence=0.95, say, which draws two around it from the same "
    "budget; rows_off(0.95) bounds its error in rows"
)

_NO_INTERVAL_AMONG = (
    "none of the candidates may be near; rows_off(0.95) bounds by how many rows the answer is farther off than the best"
)


def quantile(
    data: Any,
    column: Any = None,
    q: ArrayLike = 0.5,
    *,
    bounds: tuple[Any, Any] | None = None,
    candidates: ArrayLike | None = None,
    where: Any = None,
    groups: Any = None,
    keys: Sequence[Any] | Mapping[str, Any] | None = None,
    person: Any = None,
    max_contributions: int | None = None,
    max_groups: int | None = None,
    max_per_group: int | None = None,
    budget: Budget | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
    confidence: float | None = None,
) -> Answer:
    """A quantile of a column, or several in increasing order; of all rows, or of each group.

    Parameters
    ----------
    data : array, Series or table
    column : column, optional
        By default ``data`` itself.
    q : float or sequence of float
        In [0, 1]; 0.5 is the median.
    bounds : (float, float), or (date, date)
        Values outside are cut to them. They must not come from the data; wide bounds cost little here. Of a column of
        dates they are dates, also written as "2026-01-31", and so is the answer.
    candidates : array_like of float or of dates, optional
        In the place of ``bounds``: the values that one quantile may take, whole years say, known without looking at the
        data. The fewer, the better the choice.
    where, groups, keys, person, max_contributions, max_groups, max_per_group, budget, rng, ledger
        As in :func:`dpkit.queries.count`; ``keys`` must be given with ``groups``.
    confidence : float, optional
        Draw levels below and above each q, too, just so far off that ``interval(confidence)`` lies between them. They
        share the budget, which about doubles the error of a single quantile. Only where the number of rows is public.

    Returns
    -------
    Answer
        Values within ``bounds``, increasing with q. ``rows_off`` bounds their errors in rows, for all groups together:
        a group of fewer rows than that has an answer that says nothing. They have an interval where the number of rows
        is public and several were asked for, or a ``confidence``: between neighbouring quantiles that were drawn. With
        groups and several q, ``keys`` are the groups' with q behind.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> heights = [1.5 + i / 10_000 for i in range(5_000)]
    >>> answer = queries.quantile(heights, q=[0.2, 0.6], bounds=(0, 3), budget=Budget(50.0, 0.0))
    >>> [round(float(value), 1) for value in answer.value]
    [1.6, 1.8]
    """
    # all that needs no data comes first: to learn the types of a CSV's columns is to read it
    budget = check_spending(budget, ledger)
    dated = is_dated(bounds if candidates is None else candidates)
    grid = None if candidates is None else _grid(days("candidates", candidates) if dated else candidates, bounds, q)
    low, high = check_bounds(bounds) if grid is None else (float(grid[0]), float(grid[-1]))
    stated = checked_share(
        budget, person=person, grouped=groups is not None, max_contributions=max_contributions, max_groups=max_groups,
        max_per_group=max_per_group,
    )  # fmt: skip
    # what all groups together hold of a unit
    share = Share(1, stated.groups * stated.per_group, stated.adjacency, stated.alone)
    levels = _levels(q)
    if confidence is not None:
        fraction("confidence", confidence)
    if groups is not None and keys is None:
        raise TypeError(
            "keys must list the groups of a quantile; groups that are not public come from count(groups=...), whose "
            "answer has the keys that may be shown"
        )
    if grid is None:
        check_sortable(data)
    data = given(data)
    used = rows_of(data, where=where, groups=groups, keys=keys, person=person, column=column, dated=dated)
    public = share.alone and share.swapped and used.everything and groups is None
    n = used.n if public else 0
    distinct = np.unique(levels)
    rounds = distinct.size.bit_length()
    if confidence is not None:
        if grid is not None or not public or not n:
            asked = {"candidates=": candidates, "where=": where, "groups=": groups, "person=": person}
            got = "no rows" if public and not n else repr(budget)
            got += "".join(f" and {name}" for name, one in asked.items() if one is not None)
            raise ValueError(
                "confidence= needs bounds= and a public number of rows, at least one (adjacency='replace', the unit a "
                f"row, no where= or groups=), got {got}: leave confidence out"
            )
        # three levels for each, and as many rounds
        rounds = (3 * distinct.size).bit_length()
        sides = with_neighbours(
            distinct, n, range_per_round(rounds, budget), share, _POINTS + 2 * _BEYOND, float(confidence)
        )
        distinct = np.unique(np.concatenate([distinct, *sides]))
        rounds = distinct.size.bit_length()
    epsilon = range_per_round(rounds, budget)
    steps = plan(distinct.tolist(), epsilon, share, grouped=groups is not None)
    noise: Literal["gumbel", "exponential"] = "gumbel" if grid is None else "exponential"
    cost = rounds * NoisyMax(epsilon, noise, adjacency=budget.adjacency)
    source = randomness.resolve(rng)
    query = f"quantile of {name_of(data, column, 'data')}{by(data, groups)}"
    ready: Callable[[], list[NDArray[Any]]] = (
        used.values(stated, source) if grid is None else used.below(stated, source, grid)
    )
    row = charge(ledger, cost, f"queries.{query}", source)
    step = (high - low) / _POINTS
    rate = (first_rate if groups is None else part_rate)(epsilon, levels[0], share)
    chosen, drawn, sizes = [], [], []
    with paid(ledger, row):
        for part in (parts := ready()):
            if grid is not None:
                chosen.append(_among(part, grid, Fraction(float(levels[0])), rate, source))
                continue
            found, cells = _draw(_cells(part, low, high, step), steps, source)
            drawn.append(np.clip(low + found * step, low, high))
            sizes.append(cells)
    several = np.ndim(q) > 0
    told: dict[str, Any] = {
        "keys": _keys(used.names, levels if several else None, groups is not None),
        "columns": (*(() if groups is None else group_names(data, groups)), *(("q",) if several else ())),
        "uses": uses(stated, person, budget.unit, "" if groups is None else "group"),
    }
    if not several:
        query += f", q = {levels[0]:g}"

    def one_or_all(found: NDArray[np.float64]) -> Any:
        return found if told["keys"] is not None else float(found[0])

    if grid is not None:
        picked = np.array(chosen)
        answer = Answer(
            one_or_all(np.repeat(picked, levels.size) if several else picked), cost, query, budget,
            rows_bound=lambda level: (math.log(grid.size) + math.log(len(parts) / (1 - level))) / float(rate),
            why_none=_NO_INTERVAL_AMONG, **told,
        )  # fmt: skip
        return dated_answer(answer) if dated else answer
    at = np.searchsorted(distinct, levels)
    placed = public and (distinct.size > 1 or confidence is not None)

    def interval(level: float) -> tuple[Any, Any]:
        errors = rank_errors(steps, sizes[0], level)
        # a cell is rounded down, and a row is moved up by less than a cell for every other
        bounds = between_neighbours(distinct, drawn[0], errors, n, low, high)
        return one_or_all(np.maximum(bounds[0][at] - (n + 1) * step, low)), one_or_all(bounds[1][at])

    def rows_bound(level: float) -> Any:
        return one_or_all(np.concatenate([rank_errors(steps, cells, level, len(parts))[at] for cells in sizes]))

    answer = Answer(
        one_or_all(np.concatenate([found[at] for found in drawn])),
        cost,
        query,
        budget,
        noise_interval=interval if placed else None,
        rows_bound=rows_bound,
        why_none=_ALONE if public else _NO_INTERVAL,
        limits=(low, high) if placed else None,
        rows_at_most=one_or_all(np.maximum(levels, 1 - levels) * n) if public else None,
        **told,
    )
    return dated_answer(answer) if dated else answer


def _keys(names: list[Any], levels: NDArray[np.float64] | None, grouped: bool) -> tuple[Any, ...] | None:
    if not grouped:
        return None if levels is None else tuple(levels.tolist())
    if levels is None:
        return tuple(names)
    return tuple(
        (*(name if isinstance(name, tuple) else (name,)), level) for name in names for level in levels.tolist()
    )


def _levels(q: ArrayLike) -> NDArray[np.float64]:
    levels = np.atleast_1d(real_array("q", q))
    if levels.ndim != 1 or levels.size == 0 or not ((levels >= 0) & (levels <= 1)).all():
        raise ValueError(f"q must be a number or a sequence of numbers in [0, 1] (0.5 is the median), got q={q!r}")
    return levels


def _grid(candidates: ArrayLike, bounds: object, q: ArrayLike) -> NDArray[np.float64]:
    grid = np.unique(real_array("candidates", candidates))
    if grid.size == 0 or bounds is not None or np.size(q) != 1:
        raise ValueError(
            "candidates are for one q, without bounds, and at least one value, got "
            f"{grid.size} candidates, bounds={bounds!r}, q={q!r}: leave candidates out for several quantiles"
        )
    return grid


def _among(
    ranks: NDArray[np.int64], grid: NDArray[np.float64], q: Fraction, rate: Fraction, rng: np.random.Generator
) -> float:
    """Permute and flip among the candidates, at the exponents that the exponential mechanism would have.

    ``ranks`` has the number of rows below each candidate, and that of all rows.
    """
    below = ranks[:-1]
    target = q * int(ranks[-1])
    nearest = below[int(np.argmin(np.abs(below - float(target))))]
    best = abs(int(nearest) - target)

    def exact(i: int) -> Fraction:
        return rate * (best - abs(int(below[i]) - target))

    order = NoisyOrder("exponential", rng)
    order.add(-float(rate) * (np.abs(below - float(target)) - float(best)), exact)
    return float(grid[order.largest()[0]])


def _cells(values: NDArray[Any], low: float, high: float, step: float) -> NDArray[np.int64]:
    """The rows on the lattice, sorted, each in a cell of its own: ties take the next free cells."""
    points = np.clip(values.astype(np.float64), low, high)
    points -= low
    points /= step
    cells = np.minimum(points.astype(np.int64), _POINTS - 1)
    cells.sort()
    places = np.arange(cells.size)
    cells -= places
    np.maximum.accumulate(cells, out=cells)
    cells += places
    return cells


def _draw(
    cells: NDArray[np.int64], steps: Sequence[Step], rng: np.random.Generator
) -> tuple[NDArray[np.int64], list[int]]:
    """The cells that the steps draw, by level, and how many cells each of them could draw."""
    m = len(steps)
    # and those of the ends, number m and number −1
    found = np.empty(m + 2, np.int64)
    found[m], found[-1] = _POINTS - 1 + _BEYOND, -_BEYOND
    sizes: list[int] = []
    for step in steps:
        low, high = int(found[step.start]), int(found[step.stop])
        first = np.searchsorted(cells, low) if step.start >= 0 else 0
        last = np.searchsorted(cells, high) if step.stop < m else cells.size
        part = cells[first:last]
        found[step.level] = draw_by_rank(part, low, high, step.rank * part.size, step.rate, rng)
        sizes.append(high - low + 1)
    return found[:m], sizes

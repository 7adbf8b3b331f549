"""Means and variances, with exact noise and bounds that are known beforehand.

A value x is cut to (a, b), and u = (x − a)/(b − a) in [0, 1].

Where the number of rows is private (``add_remove``; persons; a filter or groups) it has to be protected too. Every row
puts its Bernstein weights into as many cells: (1 − u, u) for a mean, ((1 − u)², 2u(1 − u), u²) for a variance. They are
nonnegative and add up to 1, so that *all* cells together have the L1 sensitivity of one count, and one release of noise
for a count gives both numerator and denominator: with sums (A, B), N = A + B and the mean is B/N; with (A, B, C), N = A
+ B + C, the mean is (C + B/2)/N and the second moment C/N. For a mean this is the transformed noise of Kulesza, Suresh
& Wang (2024, arXiv:2312.06658) and the simplex of Fitzsimons, Honaker, Shoemate & Singhal (2024, arXiv:2408.10438); its
standard error is √((1 − μ)² + μ²) ≤ 1 times that of a mean under ``replace`` with public N. Sensitivity, with the
units' module's G and m: as for counts in several cells.

Where every unit is one row and the number n of rows is public:

* ``replace``: Σu moves by at most 1, the variance of u by (n − 1)/n², since n²·variance is the sum over pairs
  of (u_i − u_j)², of which n − 1 change, by at most 1 each;
* ``zero_out``, means: a null contribution counts as the midpoint, and Σ(u − ½) moves by at most ½.

A weighted mean puts (w(1 − u), wu) into the two cells, with the weights as shares w ≤ 1 of the largest that is allowed:
again nonnegative and together at most 1.

u is rounded to a lattice row by row, and all sums are exact. Cost: one release of exact noise (``_noise``).

Intervals. A ratio's interval is Fieller's: all means μ for which the noise (1 − μ)·n_B − μ·n_A, whose law is known for
each μ, is not too large to be believed. It needs no approximation. The interval of a variance with private N is to
first order in the noise. With sampling error: the variance of rows in [0, 1] of mean μ is at most μ(1 − μ), so the
interval of a mean adds a normal error of that variance, and is as wide as two-valued rows need; the same bounds the
variance of Σw(u − μ) by Σw·μ(1 − μ), as w² ≤ w.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from dpkit.queries._dates import dated_answer
from dpkit.queries._moment import Moment, fieller
from dpkit.queries._noise import NoiseName, choose_noise, paid, spend, with_noise
from dpkit.queries.answer import Answer

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["averaged", "mean", "variance"]


# Squares of so many bits are summed exactly.
_SQUARE_BITS = 25
_WIDEST = 1e150


def mean(
    data: Any,
    column: Any = None,
    *,
    bounds: tuple[float, float] | None = None,
    weights: Any = None,
    largest_weight: float | None = None,
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
    """The mean of a column, or of each group's part of it.

    Parameters
    ----------
    data : array, Series or table
    column : column, optional
        By default ``data`` itself.
    bounds : (float, float), or (date, date)
        Values outside are cut to them. They must not come from the data; the narrower, the less noise. Of a column of
        dates they are dates, also written as "2026-01-31", and so is the answer.
    weights : column, optional
        How much each row counts, at least 0; by default all alike.
    largest_weight : float, optional
        Must be given with ``weights``: larger ones are cut to it. It must not come from the data.
    where, groups, keys, person, max_contributions, max_groups, max_per_group, budget, noise, rng, ledger
        As in :func:`dpkit.queries.count`; ``keys`` must be given with ``groups``.

    Returns
    -------
    Answer
        Within ``bounds``; their middle where the noise leaves no row. ``informative()`` is False where the interval is
        as wide as the bounds: the rows are none, or too few to say anything of.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> answer = queries.mean([20, 40, 60], bounds=(0, 100), budget=Budget(1e6, 0.0, adjacency="add_remove"))
    >>> round(answer.value, 2)
    40.0
    """
    task = Moment(
        "mean", data, column, bounds, where, groups, keys, person, max_contributions, max_groups, max_per_group,
        budget, noise, rng, ledger, weights, largest_weight,
    )  # fmt: skip
    return averaged(task)


def averaged(task: Moment) -> Answer:
    """The mean that a task asks for."""
    share, low, width = task.share, task.low, task.width
    if task.public_size:
        n = task.public_rows()
        # in units of a row, u moves by 1, and its distance from the middle by ½
        law = task.law(l1=1 if share.swapped else 0.5, l2=1 if share.swapped else 0.5)
        total = task.noisy(1, law)[0]
        counted = np.full(total.shape, float(n))
        parts: Callable[[Array], Array] = lambda mu: np.ones((*mu.shape, 1))  # noqa: E731
    else:
        law = task.law(l1=share.l1(2), l2=share.l2(2))
        first, total = task.noisy(1, law)
        counted = first + total
        parts = lambda mu: np.stack([-mu, 1 - mu], axis=-1)  # noqa: E731
    value = np.where(counted > 0, np.clip(total / np.where(counted > 0, counted, 1.0), 0.0, 1.0), 0.5)
    spread = law.std * np.sqrt((parts(value) ** 2).sum(axis=-1)) / np.maximum(counted, 1.0)

    def interval(confidence: float, sampling: bool) -> tuple[Any, Any]:
        ends = fieller(total, counted, value, parts, law, confidence, sampling)
        return task.shaped(low + width * ends[0]), task.shaped(low + width * ends[1])

    answer = task.answer(
        law,
        low + width * value,
        width * spread,
        lambda level: interval(level, False),
        lambda level: interval(level, True),
        (low, low + width),
    )
    if not task.public_size:
        # the sum of both cells, which were released: it costs nothing more
        answer = replace(answer, counted=task.shaped(counted), counted_std=2**0.5 * law.std)
    return dated_answer(answer) if task.dated else answer


def variance(
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
    """The variance of a column (the mean squared distance from the mean), or of each group's part of it.

    Parameters
    ----------
    data, column, bounds, where, groups, keys, person, max_contributions, max_groups, max_per_group
        As in :func:`mean`.
    budget, noise, rng, ledger
        As in :func:`mean`.

    Returns
    -------
    Answer
        Between 0 and (b − a)²/4; of dates, in days².

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> round(queries.variance([1, 2, 3, 4], bounds=(0, 5), budget=Budget(1e6, 0.0)).value, 2)
    1.25
    """
    task = Moment(
        "variance", data, column, bounds, where, groups, keys, person, max_contributions, max_groups, max_per_group,
        budget, noise, rng, ledger,
    )  # fmt: skip
    if task.width > _WIDEST:
        raise ValueError(
            f"bounds must be at most {_WIDEST:g} apart, for the square of their distance to be a float, got "
            f"bounds=({task.low!r}, {task.high!r}): count in a larger unit"
        )
    if task.public_size and task.share.swapped:
        return _public_variance(task)
    share, square = task.share, task.width**2
    law = task.law(l1=share.l1(2), l2=share.l2(2))
    cells = np.stack(task.noisy(2, law), axis=-1)
    counted = np.maximum(cells.sum(axis=-1), 1.0)
    place = np.array([0.0, 0.5, 1.0])
    first = np.clip(cells @ place / counted, 0.0, 1.0)
    second = np.clip(cells[..., 2] / counted, 0.0, 1.0)
    value = second - first**2
    # how the value changes with each cell, to first order
    slopes = ((place == 1.0) - second[..., None] - 2 * first[..., None] * (place - first[..., None])) / counted[
        ..., None
    ]

    def interval(confidence: float) -> tuple[Any, Any]:
        reach = law.half_width(confidence, slopes)
        return tuple(task.shaped(square * np.clip(value + side * reach, 0.0, 0.25)) for side in (-1, 1))

    spread = square * law.std * np.sqrt((slopes**2).sum(axis=-1))
    return task.answer(law, square * np.clip(value, 0.0, 0.25), spread, interval, None, (0.0, square / 4))


def _public_variance(task: Moment) -> Answer:
    """The variance itself with noise: n is public, and a swap moves it by at most (n − 1)/n² of the squared width."""
    n, square = task.public_rows(), task.width**2
    total, squares = task.rows.squares((task.low, task.high), _SQUARE_BITS)
    # the lattice has about 2²⁰ steps for the sensitivity, which the rounding down enlarges by at most one
    bits = 20 + max(0, n.bit_length())
    steps = ((n * squares - total * total) << bits) // (n * n << 2 * _SQUARE_BITS)
    moved = float(((n - 1 << bits) // (n * n)) + 2)
    law = choose_noise(task.budget, task.noise, l1=moved, l2=moved, step=2.0**-bits, whole=False, one_cell=True)
    _, row = spend(law, task.query, task.rng, task.ledger)
    with paid(task.ledger, row):
        value = with_noise(np.array([steps]), law, task.rng) * law.step

    def interval(confidence: float) -> tuple[Any, Any]:
        reach = law.reach(confidence) + law.step
        return tuple(task.shaped(square * np.clip(value + side * reach, 0.0, 0.25)) for side in (-1, 1))

    return task.answer(
        law, square * np.clip(value, 0.0, 0.25), np.array([square * law.std]), interval, None, (0.0, square / 4)
    )

"""Cross-tables that agree with each other: many marginals from one measurement, with the least error and exact noise.

Asked one by one, a table by town and sex and one by town and age have noise of their own, and their towns differ. Here
what is measured are the orthogonal *parts* that all tables consist of (``residual_basis``): the total, what each
column says beyond it, what each pair says beyond its columns. Every table, and each of its margins, is put together
from the same parts; so they agree, and the parts that many tables share are measured once.

Source: Xiao, He, Zhang & Kifer (2023), "An Optimal and Scalable Matrix Mechanism for Noisy Marginals under Convex Loss
Functions" (ResidualPlanner): with Gaussian noise, the best of all matrix mechanisms for a weighted sum of variances.
With τ_B the precision of part B and nᵢ the number of values of column i, one row costs Σ_B τ_B·Π_{i ∈ B} (nᵢ − 1)/nᵢ
in μ², and a cell of table A has the variance Σ_{B ⊆ A} Π_{i ∈ B} (nᵢ − 1)/nᵢ·Π_{i ∈ A∖B} nᵢ⁻²/τ_B. The mean variance
of a cell, over all tables with their weights w, is least for τ_B ∝ √(Σ_{A ⊇ B} w_A·Π_{i ∈ A∖B} nᵢ⁻²).

Exact noise, in the place of the paper's real or correlated noise. The contrasts of B are whole numbers y = Hx, and the
rows h of H are orthogonal; so noise of covariance σ²HHᵀ is independent, of standard deviation σ‖h‖ for each. Rounded to
whole numbers, y + ⌊N⌉ = ⌊y + N⌉ is a function of the Gaussian mechanism's output: the release is exactly Gaussian.

Sensitivity. Rows enter all tables or none. With P_B the projection onto part B, a change of the data by Δ costs
μ² = Σ_B τ_B‖P_BΔ‖², a convex function of Δ. A unit with at most m rows that appears or vanishes has Δ in the hull of
the m·e_c, where it is m²·Σ_B τ_B·Π (nᵢ − 1)/nᵢ for every cell c. Swapped, Δ = m(e_c − e_d) is the other vertex: then
‖P_B(e_c − e_d)‖² = 2Π_{i ∈ B} (nᵢ − 1)/nᵢ − 2Π_{i ∈ B} ([cᵢ = dᵢ] − 1/nᵢ), of which the largest sum over all patterns
of agreement is taken. Cost: one ``Gaussian``, in any number of columns.

How much it gains depends on how much the tables share (ε = 1, δ = 1e-6, a row more or less; standard deviation of a
cell against that of tables with Gaussian noise of their own, and of Laplace noise): all pairs of 8 columns of two
values 10.9 against 22.4 and 39.6; all triples of 10 such columns 15.3, 46.3 and 170; all pairs of 5 columns of ten
values 12.1, 13.4 and 14.1. With few large tables it gains nothing: three pairs of 100, 50 and 20 values have 7.2, 7.3
and 4.2, so ask for them by :func:`dpkit.queries.plan`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, Gaussian, calibrate
from accounting.arrays import Array
from accounting.checks import positive
from dpkit import randomness
from dpkit.mechanisms._checked import charge, settle
from dpkit.queries._columns import coded_by, mask
from dpkit.queries._groups import fitting_keys, known_labels
from dpkit.queries._rows import given, rows_of
from dpkit.queries._units import Share, check_spending, checked_share, kept_rows, owners
from dpkit.queries.engines import Table
from dpkit.queries.marginal_tables import Marginals
from dpkit.queries.residual_basis import Part, along, contrasts, parts_of, squared_norms
from dpkit.queries.where_words import column_in
from dpkit.samplers import rounded_gaussian

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["marginals"]

# rounding of products of positive floats, upwards
_UP = 1 + 2.0**-48
# What is larger is refused. The entries of contrasts, multiplied, are smaller than the number of cells, so that sums of
# 2³⁹ rows stay within 64 bits.
_MOST_CELLS = 10**7
_MOST_KEYS = 2000
_MOST_COLUMNS = 16


def marginals(
    data: Any,
    keys: Mapping[str, Sequence[Any]],
    *,
    tables: Sequence[Sequence[str]] | None = None,
    weights: Sequence[float] | None = None,
    where: Any = None,
    person: Any = None,
    max_contributions: int | None = None,
    budget: Budget | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> Marginals:
    """Cross-tables of some columns that agree with each other, with an interval for every cell.

    Parameters
    ----------
    data : table
    keys : mapping
        The columns, and of each the values that are counted, known without looking at the data. A row with another
        value in any of these columns counts nowhere.
    tables : sequence of sequences of str, optional
        Which columns to cross; by default all pairs (of one column, itself).
    weights : sequence of float, optional
        How much the mean variance of each table's cells matters; by default all alike.
    max_contributions : int, optional
        How many rows of one person are used, in all tables together.
    where, person, budget, rng, ledger
        As in :func:`dpkit.queries.count`; ``budget.delta`` must be positive, for the noise is Gaussian.

    Returns
    -------
    Marginals

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> table = {"town": ["A", "B", "A", "A"], "sex": ["f", "f", "m", "f"], "old": [True, False, True, True]}
    >>> keys = {"town": ["A", "B"], "sex": ["f", "m"], "old": [False, True]}
    >>> budget = Budget(1e6, 1e-6, adjacency="add_remove")
    >>> found = queries.marginals(table, keys, tables=[("town", "sex"), ("town", "old")], budget=budget)
    >>> found.array("town", "sex").tolist()
    [[2.0, 1.0], [1.0, 0.0]]
    >>> found.array("town").tolist(), float(found.array())
    ([3.0, 1.0], 4.0)
    """
    budget = check_spending(budget, ledger)
    if budget.delta == 0:
        raise ValueError(
            f"marginals need budget.delta > 0, for their noise is Gaussian, got {budget!r}: allow 1e-6, say"
        )
    data = given(data)
    names, domain = _domain(keys)
    asked = _tables(names, tables)
    chosen = [tuple(sorted(names.index(name) for name in table)) for table in asked]
    share = checked_share(
        budget, person=person, grouped=False, max_contributions=max_contributions, max_groups=None, max_per_group=None
    )
    sizes = [len(values) for values in domain]
    for table in chosen:
        if (cells := math.prod(sizes[i] for i in table)) > _MOST_CELLS:
            raise ValueError(
                f"tables must have at most {_MOST_CELLS:,} cells, got {cells:,}: merge keys, or cross fewer columns"
            )
    matrices = [contrasts(n) for n in sizes]
    parts = parts_of(chosen)
    precisions = _precisions(parts, chosen, sizes, _weights(weights, asked))
    z = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget)
    norm = math.sqrt(_sensitivity(parts, precisions, sizes, share))
    # σ_B = z·Δ/√τ_B, with Δ the sensitivity at the precisions τ
    deviations = [z * norm * _UP / math.sqrt(precision) for precision in precisions]
    scales = [
        deviation * _UP * np.sqrt(squared_norms([matrices[i] for i in part]))
        for part, deviation in zip(parts, deviations, strict=True)
    ]
    if not all(scale.min(initial=1.0) >= 2.0**-40 and scale.max(initial=1.0) <= 2.0**40 for scale in scales):
        raise ValueError("the noise must be within a factor of 2**40 of a row: choose another epsilon, or fewer keys")

    source = randomness.resolve(rng)
    if isinstance(data, Table):
        found = _scanned(data, names, domain, chosen, where, person, share, source)
    else:
        found = _loaded(data, names, domain, chosen, where, person, share, source)
    cost = Gaussian(z, adjacency=budget.adjacency)
    row = charge(ledger, cost, f"queries.marginals of {', '.join(names)}", source)
    counts = found()
    measured = {}
    for part, scale in zip(parts, scales, strict=True):
        table = next(table for table in chosen if set(part) <= set(table))
        margin = counts[table].sum(axis=tuple(axis for axis, i in enumerate(table) if i not in part))
        measured[part] = np.asarray(along(margin, [matrices[i] for i in part]), np.int64) + _noise(scale, source)
    settle(ledger, row)
    by_names = {tuple(names[i] for i in part): d for part, d in zip(parts, deviations, strict=True)}
    return Marginals(dict(zip(names, domain, strict=True)), asked, cost, budget, by_names, measured)


def _domain(keys: Mapping[str, Sequence[Any]]) -> tuple[list[str], list[tuple[Any, ...]]]:
    if not isinstance(keys, Mapping) or not keys:
        raise TypeError(f"keys must map each column to the values that are counted, got keys={keys!r}")
    if text := next((values for values in keys.values() if isinstance(values, str)), None):
        raise TypeError(f"keys must list the values of each column, got the text {text!r}: write [{text!r}]")
    names, domain = list(keys), [tuple(values) for values in keys.values()]
    for name, values in zip(names, domain, strict=True):
        if not isinstance(name, str):
            raise TypeError(f"keys must name columns by texts, got {name!r}")
        if len(values) > _MOST_KEYS:
            raise ValueError(f"keys of {name!r} must be at most {_MOST_KEYS:,} values, got {len(values):,}: merge some")
        if not values or len(set(values)) != len(values):
            raise ValueError(f"keys of {name!r} must be distinct values, at least one, got {list(values)!r}")
    return names, domain


def _tables(names: list[str], tables: Sequence[Sequence[str]] | None) -> tuple[tuple[str, ...], ...]:
    if tables is None:
        return tuple(combinations(names, 2)) if len(names) > 1 else (tuple(names),)
    found = tuple((table,) if isinstance(table, str) else tuple(table) for table in tables)
    if not found:
        raise ValueError("tables must list at least one table, got none")
    for table in found:
        if not table:
            raise ValueError("tables must cross at least one column, got an empty table")
        if strange := [name for name in table if name not in names]:
            raise ValueError(f"tables must cross columns of keys, {names!r}, got {strange[0]!r}")
        if len(set(table)) != len(table):
            raise ValueError(f"tables must cross different columns, got {table!r}")
    return found


def _weights(weights: Sequence[float] | None, tables: Sequence[Sequence[str]]) -> list[float]:
    if weights is None:
        return [1.0] * len(tables)
    found = [positive("weights", weight) for weight in weights]
    if len(found) != len(tables):
        raise ValueError(f"weights must have one entry for each of the {len(tables)} tables, got {len(found)}")
    return found


def _precisions(
    parts: Sequence[Part], tables: Sequence[Part], sizes: Sequence[int], weights: Sequence[float]
) -> list[float]:
    """τ_B of the least mean variance, up to a factor."""
    return [
        math.sqrt(
            sum(
                weight * math.prod(sizes[i] ** -2 for i in table if i not in part)
                for table, weight in zip(tables, weights, strict=True)
                if set(part) <= set(table)
            )
        )
        for part in parts
    ]


def _sensitivity(parts: Sequence[Part], precisions: Sequence[float], sizes: Sequence[int], share: Share) -> float:
    """The largest Σ_B τ_B‖P_BΔ‖² of neighbours."""
    kept = [math.prod(1 - 1 / sizes[i] for i in part) for part in parts]
    largest = sum(tau * part for tau, part in zip(precisions, kept, strict=True))
    if share.swapped:
        columns = sorted({i for part in parts for i in part})
        if len(columns) > _MOST_COLUMNS:
            raise ValueError(
                f"keys must have at most {_MOST_COLUMNS} columns where a unit is swapped, got {len(columns)}: count "
                "neighbours by adjacency='add_remove'"
            )
        agree = np.array(list(product([True, False], repeat=len(columns))), np.bool_).reshape(-1, len(columns))
        moved = np.zeros(len(agree))
        for part, tau, own in zip(parts, precisions, kept, strict=True):
            inner = np.ones(len(agree))
            for i in part:
                inner *= np.where(agree[:, columns.index(i)], 1 - 1 / sizes[i], -1 / sizes[i])
            moved += 2 * tau * (own - inner)
        # a column of one value cannot disagree
        possible = agree[:, [c for c, i in enumerate(columns) if sizes[i] == 1]].all(axis=1)
        largest = max(largest, float(moved[possible].max()))
    return largest * share.per_group**2


def _loaded(
    data: Any,
    names: Sequence[str],
    domain: Sequence[tuple[Any, ...]],
    tables: Sequence[Part],
    where: Any,
    person: Any,
    share: Share,
    rng: np.random.Generator,
) -> Callable[[], dict[Part, NDArray[np.int64]]]:
    """The exact tables of data in memory, once the cost is recorded."""
    rows = None if where is None else mask(data, where)
    coded = [
        coded_by(found := known_labels(data, name, rows, f"keys[{name!r}]"), fitting_keys(found, list(values)))
        for name, values in zip(names, domain, strict=True)
    ]
    listed = reduce(np.logical_and, [code >= 0 for code in coded])
    rows = listed if rows is None else listed & rows
    owner = owners(data, person, rows)

    def counted() -> dict[Part, NDArray[np.int64]]:
        kept = kept_rows(owner, None, share, rows, rng)
        found = {}
        for table in tables:
            shape = tuple(len(domain[i]) for i in table)
            place = np.ravel_multi_index(tuple(coded[i][kept] for i in table), shape)
            found[table] = np.bincount(place, minlength=math.prod(shape)).reshape(shape)
        return found

    return counted


def _scanned(
    data: Table,
    names: Sequence[str],
    domain: Sequence[tuple[Any, ...]],
    tables: Sequence[Part],
    where: Any,
    person: Any,
    share: Share,
    rng: np.random.Generator,
) -> Callable[[], dict[Part, NDArray[np.int64]]]:
    """The same by an engine, whose rows are chosen for each table by itself: so persons are refused."""
    if person is not None:
        raise TypeError(
            "marginals of persons need their columns in memory, as the same rows of a person must be in all tables: "
            "read them first (pandas.read_parquet(..., columns=[...]), say)"
        )
    for name, values in zip(names, domain, strict=True):
        data = data.where(column_in(name, values))
    found = {}
    for table in tables:
        groups = [names[i] for i in table]
        cells = list(product(*(domain[i] for i in table))) if len(table) > 1 else list(domain[table[0]])
        rows = rows_of(data, where=where, groups=groups, keys=cells, person=None, numeric=False)
        found[table] = rows.counts(share, rng)().reshape(tuple(len(domain[i]) for i in table))
    return lambda: found


def _noise(scale: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rounded Gaussian noise of each standard deviation, those alike at once: few, as the tree is balanced."""
    levels, which = np.unique(scale.reshape(-1), return_inverse=True)
    out = np.empty(scale.size, np.int64)
    for i, level in enumerate(levels):
        here = which == i
        out[here] = rounded_gaussian(float(level), int(here.sum()), rng=rng)
    return out.reshape(scale.shape)

"""Is the arithmetic of a ledger right? Every accountant's total side by side, against the declared budget."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from accounting.budget import Budget
from accounting.checks import fraction
from accounting.errors import AdjacencyMismatch, UnsupportedRelease
from accounting.releases import Release, compose, parallel
from accounting.totals import compare, epsilon
from accounting.totals import delta as total_delta

__all__ = ["Report", "recompute"]

_DEAREST = 10


class _Row(Protocol):
    @property
    def index(self) -> int: ...
    @property
    def label(self) -> str: ...
    @property
    def scope(self) -> str | None: ...
    @property
    def release(self) -> Release: ...


class _Ledger(Protocol):
    """What an audit reads of a ledger."""

    @property
    def budget(self) -> Budget | None: ...
    @property
    def simulation(self) -> bool: ...
    def rows(self) -> Sequence[_Row]: ...
    def epsilon(self, delta: float | None = None) -> float: ...


@dataclass(frozen=True)
class Report:
    """What a recomputation found.

    Parameters
    ----------
    budget : Budget or None
        The declared budget.
    rows : int
        The number of recorded releases.
    simulation : bool
        Whether some noise came from a seeded generator: then the total is not that of a private release.
    epsilons : dict of str to float
        ε of the total at ``delta`` under every accountant that applies, smallest first.
    delta : float
        The budget's δ, or the one that was asked for.
    dearest : list of (int, str, str, float)
        Index, label, description and ε alone of the ten releases that cost most by themselves, dearest first;
        ε is infinite where no accountant has a bound.
    within_budget : bool or None
        Whether the smallest total meets the budget; None without a budget.
    problems : list of str
        What is wrong, in words; empty if nothing is.
    """

    budget: Budget | None
    rows: int
    simulation: bool
    epsilons: dict[str, float]
    delta: float
    dearest: list[tuple[int, str, str, float]]
    within_budget: bool | None
    problems: list[str]


def recompute(ledger: _Ledger, *, delta: float | None = None) -> Report:
    """Add up a ledger's rows again, under every accountant, and check the result.

    The total is built here from the rows and their scopes, not taken from the ledger, and is compared with what the
    ledger says of itself. A smallest total over several accountants holds for releases that were described in advance;
    for releases chosen in the light of earlier outputs it is the ledger's filter that vouches, with one measure fixed
    at the start.

    Parameters
    ----------
    ledger : Ledger
        In memory or on disk.
    delta : float, optional
        The δ of the totals; by default the budget's. Must be given for a ledger without a budget.

    Returns
    -------
    Report

    Examples
    --------
    >>> from accounting import Budget, Gaussian, Ledger, audit
    >>> ledger = Ledger(Budget(1.0, 1e-6))
    >>> for month in ("May", "June"):
    ...     row = ledger.spend(Gaussian(8.0), label=month)
    >>> report = audit.recompute(ledger)
    >>> round(report.epsilons["gdp"], 3), round(report.epsilons["zcdp"], 3)
    (0.731, 0.789)
    >>> report.within_budget, report.dearest[0][1], report.problems
    (True, 'May', [])
    """
    budget = ledger.budget
    if delta is None:
        if budget is None:
            raise ValueError("delta must be given for a ledger without a budget, got delta=None")
        delta = budget.delta
    fraction("delta", delta, include_zero=True)
    rows = ledger.rows()
    problems: list[str] = []
    alone: dict[Release, float] = {}
    for row in rows:
        if row.release not in alone:
            alone[row.release] = _alone(row.release, delta)
        if math.isinf(alone[row.release]):
            problems.append(f"row {row.index} {row.label!r} has no finite ε at δ={delta:g}: {row.release!r}")
        stated = row.release.adjacency
        if budget is not None and stated is not None and stated != budget.adjacency:
            problems.append(
                f"row {row.index} {row.label!r} counts {stated!r} neighbours, the budget {budget.adjacency!r}"
            )
    epsilons: dict[str, float] = {}
    within: bool | None = None if budget is None else False
    try:
        total = _total(rows)
        epsilons = compare(total, delta)
        if budget is not None:
            within = bool(total_delta(total, budget.epsilon) <= budget.delta)
            if not within:
                at_budget = epsilon(total, budget.delta)
                problems.append(
                    f"the total ε={at_budget:.6g} at δ={budget.delta:g} passes the budget {budget.epsilon:g}"
                )
        said, found = ledger.epsilon(delta), epsilon(total, delta)
        # another process may have recorded more in the meantime, which is no contradiction
        if len(ledger.rows()) == len(rows) and not math.isclose(said, found, rel_tol=1e-9):
            problems.append(f"the ledger says ε={said:.6g} at δ={delta:g}, its rows add up to {found:.6g}")
    except (AdjacencyMismatch, UnsupportedRelease) as error:
        problems.append(f"the rows have no total: {error}")
    dearest = sorted(rows, key=lambda row: (-alone[row.release], row.index))[:_DEAREST]
    return Report(
        budget=budget,
        rows=len(rows),
        simulation=ledger.simulation,
        epsilons=epsilons,
        delta=delta,
        dearest=[(row.index, row.label, repr(row.release), alone[row.release]) for row in dearest],
        within_budget=within,
        problems=problems,
    )


def _alone(release: Release, delta: float) -> float:
    try:
        return float(epsilon(release, delta))
    except UnsupportedRelease:
        return math.inf


def _total(rows: Sequence[_Row]) -> Release:
    """Everything on the whole data, plus the dearest of the named scopes, which are disjoint."""
    scopes: defaultdict[str | None, Counter[Release]] = defaultdict(Counter)
    for row in rows:
        scopes[row.scope][row.release] += 1
    whole = compose(scopes.pop(None, Counter()).items())
    return whole + parallel(*(compose(counts.items()) for counts in scopes.values())) if scopes else whole

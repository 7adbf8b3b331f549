"""Is the arithmetic of a ledger right? Every accountant's total side by side, against the declared budget."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, cast

from accounting.budget import Budget
from accounting.checks import fraction
from accounting.errors import AdjacencyMismatch, UnsupportedRelease
from accounting.ledger import Ledger, Row
from accounting.printed import as_html
from accounting.releases import Release, compose, parallel
from accounting.totals import Accountant, compare, epsilon
from accounting.totals import delta as total_delta

__all__ = ["Report", "ScopeReport", "recompute"]

_MOST_LISTED = 10
# How much less the sums in a ledger that verifies may say than the entries.
_DOUBT = 0.005
# With more scopes than this, each is priced by the accountants that take about a millisecond.
_MANY_SCOPES = 8
_CLOSED: tuple[Accountant, ...] = ("gdp", "pure", "rdp")


@dataclass(frozen=True)
class ScopeReport:
    """One part of the data, or one quota.

    Parameters
    ----------
    scope : str
    rows : int
        The number of releases recorded in it and its parts.
    epsilon : float
        ε at the report's δ of everything that a unit there met: in the scope and its parts, around it, on the whole.
    quota : Budget or None
        What may be spent inside it.
    spent : float or None
        ε at the quota's δ of what was recorded inside, by the best accountant or the quota's filter.
    booked : float or None
        What the ledger's filter has booked of the quota, and therefore no longer admits.
    within_quota : bool or None
        Whether that meets the quota; None without one.

    Examples
    --------
    >>> from accounting import Budget, Ledger, PureDP, audit
    >>> ledger = Ledger(Budget(1.0, 0.0))
    >>> _ = ledger.spend(PureDP(0.2), label="count", scope="north")
    >>> [(one.scope, one.rows, one.epsilon) for one in audit.recompute(ledger).scopes]
    [('north', 1, 0.2)]
    """

    scope: str
    rows: int
    epsilon: float
    quota: Budget | None
    spent: float | None
    booked: float | None
    within_quota: bool | None


@dataclass(frozen=True, repr=False)
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
        ε of the total at ``delta`` under every accountant that applies, smallest first; and what the ledger's filter
        proves, where that is less and ``delta`` the budget's.
    delta : float
        The budget's δ, or the one that was asked for.
    largest_costs : list of (int, str, str, float)
        Index, label, description and ε alone of the ten releases that cost most by themselves, largest first;
        ε is infinite where no accountant has a bound.
    within_budget : bool or None
        Whether the smallest total meets the budget, or the filter proves that the sequence does; None without a budget.
    problems : list of str
        What is wrong, in words; empty if nothing is.
    scopes : list of ScopeReport
        Every named scope, by its name.
    at_least : float
        A proved lower bound on any ε of the total at ``delta``; 0 where none is known.
    booked : float or None
        What the ledger's filter counts as spent, at the budget's δ: more than the smallest total, as it must hold
        whatever was seen before each choice. None where there is no filter.

    Examples
    --------
    >>> from accounting import Budget, Ledger, PureDP, audit
    >>> ledger = Ledger(Budget(1.0, 0.0))
    >>> _ = ledger.spend(PureDP(0.2), label="count")
    >>> audit.recompute(ledger).within_budget
    True
    """

    budget: Budget | None
    rows: int
    simulation: bool
    epsilons: dict[str, float]
    delta: float
    largest_costs: list[tuple[int, str, str, float]]
    within_budget: bool | None
    problems: list[str]
    scopes: list[ScopeReport] = field(default_factory=list)
    at_least: float = 0.0
    booked: float | None = None

    def __repr__(self) -> str:
        best = f"ε = {min(self.epsilons.values()):.6g} at δ = {self.delta:g}" if self.epsilons else "no finite ε"
        wrong = f", {len(self.problems)} problems" if self.problems else ""
        return f"Report({self.rows} releases, {best}, {self._verdict}{wrong})"

    @property
    def _verdict(self) -> str:
        return {True: "within its budget", False: "past its budget", None: "without a budget"}[self.within_budget]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values; what is infinite is None."""
        return cast(dict[str, Any], _plain(asdict(self)))

    def _repr_html_(self) -> str:
        note = " (simulation)" if self.simulation else ""
        cells = [["accountant", f"ε at δ = {self.delta:g}"]]
        cells += [[name, f"{value:.6g}"] for name, value in self.epsilons.items()]
        cells += [["proved lower bound", f"{self.at_least:.6g}"]] if self.at_least > 0 else []
        cells += [["booked by the ledger's filter", f"{self.booked:.6g}"]] if self.booked is not None else []
        cells += [["problem", problem] for problem in self.problems]
        return as_html(f"Recomputed: {self.rows:,} rows{note}, {self._verdict}, {self.budget!r}", cells)


def recompute(ledger: Ledger, *, delta: float | None = None) -> Report:
    """Add up a ledger's rows again, under every accountant, and check the result.

    The total is built here from the rows and their scopes, not taken from the ledger, and is compared with what the
    ledger says of itself. A smallest total over several accountants holds for releases that were described in advance;
    for releases chosen in the light of earlier outputs it is the ledger's filter that vouches, with one measure fixed
    at the start. Of many weak choices it proves more than any accountant: where a total passes a budget or a quota, the
    filters count everything again, from the first entry on.

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
    >>> report.within_budget, report.largest_costs[0][1], report.problems
    (True, 'May', [])
    """
    budget = ledger.budget
    if delta is None:
        if budget is None:
            raise ValueError("delta must be given for a ledger without a budget, got delta=None")
        delta = budget.delta
    fraction("delta", delta, include_zero=True)
    ledger.verify()
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
    recorded = _Recorded(rows)
    # what its filters prove, counted from the first entry on, where that is asked
    again = cache(lambda: Ledger.from_json(ledger.to_json()))
    at_least = 0.0
    within: bool | None = None if budget is None else False
    try:
        total = recorded.total()
        compared = compare(total, delta)
        epsilons, at_least = dict(compared), compared.at_least
        if budget is not None:
            within = bool(total_delta(total, budget.epsilon) <= budget.delta) or again().epsilon() <= budget.epsilon
            if not within:
                at_budget = epsilon(total, budget.delta)
                problems.append(
                    f"the total ε={at_budget:.6g} at δ={budget.delta:g} passes the budget {budget.epsilon:g}"
                )
        said, found = ledger.epsilon(delta), epsilon(total, delta)
        least = float(found)
        if budget is not None and delta == budget.delta and found > budget.epsilon and again().epsilon() < found:
            epsilons = {str(ledger.accountant): float(again().epsilon()), **epsilons}
            # the ledger may go on from sums that verify, and differ a little
            least = again().epsilon() * (1 - _DOUBT)
        # another process may have recorded more in the meantime, which is no contradiction
        if len(ledger.rows()) == len(rows) and not least * (1 - 1e-9) <= said <= found * (1 + 1e-9):
            problems.append(f"the ledger says ε={said:.6g} at δ={delta:g}, its rows add up to {found:.6g}")
    except (AdjacencyMismatch, UnsupportedRelease) as error:
        problems.append(f"the rows have no total: {error}")
    quotas = ledger.quotas()
    names = sorted({*quotas, *(row.scope for row in rows if row.scope is not None)})
    many = len(names) > _MANY_SCOPES
    booked = {name: ledger.quota_booked(name) for name in quotas}
    scopes = [_scope(name, recorded, delta, budget, quotas.get(name), booked.get(name), again, many) for name in names]
    problems += [
        f"what was recorded in {one.scope!r} passes its quota {one.quota.epsilon:g} at δ={one.quota.delta:g}"
        for one in scopes
        if one.quota is not None and not one.within_quota
    ]
    largest_costs = sorted(rows, key=lambda row: (-alone[row.release], row.index))[:_MOST_LISTED]
    return Report(
        budget=budget,
        rows=len(rows),
        simulation=ledger.simulation,
        epsilons=epsilons,
        delta=delta,
        largest_costs=[(row.index, row.label, repr(row.release), alone[row.release]) for row in largest_costs],
        within_budget=within,
        problems=problems,
        scopes=scopes,
        at_least=at_least,
        booked=None if budget is None else budget.epsilon - ledger.remaining(),
    )


def _alone(release: Release, delta: float) -> float:
    try:
        return float(epsilon(release, delta))
    except UnsupportedRelease:
        return math.inf


class _Recorded:
    """Counts of releases per scope, as a tree of the scopes' parts."""

    def __init__(self, rows: list[Row]) -> None:
        self.counts: dict[tuple[str, ...], Counter[Release]] = defaultdict(Counter)
        self.parts: dict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
        self.rows: Counter[tuple[str, ...]] = Counter()
        for row in rows:
            steps = () if row.scope is None else tuple(row.scope.split("/"))
            self.counts[steps][row.release] += 1
            self.rows[()] += 1
            for depth in range(len(steps)):
                self.parts[steps[:depth]].add(steps[: depth + 1])
                self.rows[steps[: depth + 1]] += 1

    def total(self, at: tuple[str, ...] = ()) -> Release:
        """What was released in a scope and its parts, which are disjoint."""
        here = compose(self.counts[at].items()) if at in self.counts else compose([])
        parts = sorted(self.parts[at]) if at in self.parts else []
        return compose([(here, 1), (parallel(*map(self.total, parts)), 1)]) if parts else here

    def met(self, at: tuple[str, ...]) -> Release:
        """What a unit of a scope met: there, in its parts and around it."""
        around = [self.counts[at[:depth]] for depth in range(len(at)) if at[:depth] in self.counts]
        return compose([(self.total(at), 1), *((compose(counts.items()), 1) for counts in around)])


def _scope(
    name: str,
    recorded: _Recorded,
    delta: float,
    budget: Budget | None,
    quota: Budget | None,
    booked: float | None,
    again: Callable[[], Ledger],
    many: bool,
) -> ScopeReport:
    at = tuple(name.split("/"))
    spent = within = None
    if quota is not None:
        inside = recorded.total(at)
        spent = _alone(inside, quota.delta)
        within = math.isfinite(spent) and bool(total_delta(inside, quota.epsilon) <= quota.delta)
        if not within:
            spent = min(spent, again().quota_booked(name))
            within = spent <= quota.epsilon
    try:
        met = _quickly(recorded.met(at), delta) if many else _alone(recorded.met(at), delta)
    except AdjacencyMismatch:
        met = math.inf
    if budget is not None and delta == budget.delta and budget.epsilon < met < math.inf:
        met = min(met, float(again().epsilon(scope=name)))
    return ScopeReport(name, recorded.rows[at], met, quota, spent, booked, within)


def _quickly(release: Release, delta: float) -> float:
    """ε by the closed formulas only."""
    found = [math.inf]
    for accountant in _CLOSED:
        with suppress(UnsupportedRelease):
            found.append(float(epsilon(release, delta, accountant=accountant)))
    return min(found)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""Many answers, one plan: a report's questions share one budget, and their errors are known before anything is spent.

The plan prices descriptions (:class:`Ask`), without data: how much noise each answer gets follows from the accuracy
wanted, or from weights, and from the cost of all of them together (``split``). What does not fit is refused then.
``Plan.run`` first runs every query up to the point where it would spend (``waiting``), then records the total in the
ledger as one release, and only then is noise drawn. What they ask of the data is read once for all of them: in memory
by ``_rows.read_once``, by an engine in scans that ``engines.together`` makes of theirs.

Privacy. The report is one release of cost ``Plan.cost``, the sum of its answers' costs: each query is called with the
budget that gives the planned noise, and what it would record must be what was planned, or the run ends before the
ledger is charged. Unit, adjacency and sensitivities are those of the queries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from accounting import Budget, Release, compose, epsilon
from accounting.checks import positive
from accounting.printed import as_html, as_text
from dpkit import randomness
from dpkit.mechanisms._checked import charge, settle, still_spent
from dpkit.queries._noise import NoiseName
from dpkit.queries._rows import check_sortable, given, read_once
from dpkit.queries._units import check_spending
from dpkit.queries.answer import Answer
from dpkit.queries.counts_and_sums import count
from dpkit.queries.counts_and_sums import sum as sum_of
from dpkit.queries.engines import Scan, Table, added_up
from dpkit.queries.histograms import histogram
from dpkit.queries.means_and_variances import mean, variance
from dpkit.queries.quantiles import quantile
from dpkit.queries.reports.asks import Ask, answers_said
from dpkit.queries.reports.demands import Demand, contribution_bounds, demand
from dpkit.queries.reports.report import Report
from dpkit.queries.reports.split import split
from dpkit.queries.reports.waiting import Waiting

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["Plan", "plan"]

_T = TypeVar("_T")
_QUERIES: dict[str, Callable[..., Answer]] = {
    "count": count, "sum": sum_of, "mean": mean, "variance": variance, "histogram": histogram, "quantile": quantile,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Plan:
    """Answers with the noise that each will have. Printing it shows the errors; nothing is spent before ``run``.

    Attributes
    ----------
    title : str
    asks : tuple of Ask
    cost : Release
        Of all answers together.
    budget : Budget
        What they may cost.
    noise : {"gaussian", "laplace"}

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> asks = [queries.Ask("count", where="age >= 65", within=12), queries.Ask("count", where="age < 18", within=12)]
    >>> plan = queries.plan(asks, budget=Budget(1.0, 0.0, adjacency="add_remove"))
    >>> round(plan.epsilon, 3)
    0.478
    >>> plan.errors
    {'count where age >= 65': 12.0, 'count where age < 18': 12.0}
    >>> report = plan.run({"age": [12, 40, 70]})
    >>> list(report)
    ['count where age >= 65', 'count where age < 18']
    """

    title: str
    asks: tuple[Ask, ...]
    cost: Release
    budget: Budget
    noise: NoiseName
    person: str | None
    limits: dict[str, int | None]
    ledger: Ledger | None = field(repr=False)
    demands: tuple[Demand, ...] = field(repr=False)
    strengths: tuple[float, ...] = field(repr=False)

    @cached_property
    def epsilon(self) -> float:
        """What the plan costs at the budget's δ; less than the budget where every accuracy is wanted and has room."""
        return float(epsilon(self.cost, self.budget.delta))

    @property
    def errors(self) -> dict[str, float | None]:
        """By name, half the width of the 95 % interval for the noise; None where it depends on unknown rows."""
        return {
            need.ask.name: need.error(strength, self.noise)
            for need, strength in zip(self.demands, self.strengths, strict=True)
        }

    @property
    def shares(self) -> dict[str, float]:
        """By name, the share of the cost (of ρ with Gaussian noise, else of ε)."""
        parts = [
            0.0 if need.free else need.part(strength, self.noise)
            for need, strength in zip(self.demands, self.strengths, strict=True)
        ]
        whole = sum(parts) or 1.0
        return {need.ask.name: part / whole for need, part in zip(self.demands, parts, strict=True)}

    def rows(self) -> list[dict[str, Any]]:
        """One mapping for each answer: name, numbers, error, unit, wanted, share, noise."""
        out, shares = [], self.shares
        for need, strength in zip(self.demands, self.strengths, strict=True):
            known = need if need.factor is not None else replace(need, factor=need.width)
            out.append(
                {
                    "answer": need.ask.name,
                    "numbers": need.ask.numbers(),
                    "error": known.error(strength, self.noise),
                    "unit": "rows" if need.by_rank else "/ rows" if need.factor is None else "",
                    "wanted": need.ask.within,
                    "share": shares[need.ask.name],
                    "noise": "none" if need.free else "exponential" if need.by_rank else self.noise,
                }
            )
        return out

    def to_frame(self) -> Any:
        """The same as a data frame of pandas."""
        import pandas as pd

        return pd.DataFrame(self.rows()).set_index("answer")

    def run(self, data: Any, *, rng: np.random.Generator | None = None) -> Report:
        """Check everything against the data, record the cost, draw the noise: the answers.

        Parameters
        ----------
        data : table
            As for the queries; the columns of the descriptions refer to it.
        rng : numpy.random.Generator, optional
            None draws from the secure source; a seeded generator gives a simulation, and the report says so.

        Returns
        -------
        Report

        Raises
        ------
        BudgetExceeded
            If the ledger refuses the total; nothing was spent.
        TypeError, ValueError
            If an answer cannot be computed from this data; the message names it, and nothing was spent.
        """
        source = randomness.resolve(rng)
        for ask in self.asks:
            if ask.what == "quantile" and ask.candidates is None:
                _named(ask, check_sortable, data)
        data = given(data)
        with read_once():
            queries = [self._query(data, *pair, source) for pair in zip(self.demands, self.strengths, strict=True)]
        label, row = f"queries.plan: {self.title or 'report'}, {answers_said(len(self.asks))}", None
        try:
            cost = compose([(one, 1) for one in self._costs(queries, data)])
            spent = self.epsilon  # priced before it is paid
            row = charge(self.ledger, cost, label, source)
            answers = {
                ask.name: replace(_answered(query), query=ask.name)
                for ask, query in zip(self.asks, queries, strict=True)
            }
        except KeyboardInterrupt as interrupt:
            if row is not None:
                interrupt.add_note(still_spent(label, row))
            raise
        finally:
            for query in queries:
                query.stop()
        settle(self.ledger, row)
        return Report(
            self.title or "Report", answers, cost, self.budget, spent, datetime.now(UTC),
            randomness.is_simulation(source),
            {ask.name: ask.where for ask in self.asks if ask.where and ask.where not in ask.name},
        )  # fmt: skip

    def _query(self, data: Any, need: Demand, strength: float, rng: np.random.Generator) -> Waiting:
        """A query that stops where it would spend, and where an engine reads the data, also for its scans."""
        ask = need.ask
        options = ask.options() | contribution_bounds(ask, self.limits)
        if not need.by_rank and not need.free:
            options["noise"] = self.noise
        positional = () if ask.column is None else (ask.column,)
        allowed = self.budget if need.free else need.allowed(strength, self.noise)
        answer = partial(_QUERIES[ask.what], where=ask.where, person=self.person, budget=allowed, rng=rng, **options)
        return Waiting(
            lambda query: answer(
                replace(data, waits=query.scan) if isinstance(data, Table) else data, *positional, ledger=query
            )
        )

    def _costs(self, queries: list[Waiting], data: Any) -> list[Release]:
        """What the queries are about to spend, if that is what was planned; their scans are made together before."""
        waits = [self._next(need, query) for need, query in zip(self.demands, queries, strict=True)]
        while scans := {i: wanted for i, wanted in enumerate(waits) if isinstance(wanted, Scan)}:
            for i, found in zip(scans, added_up(data.session, list(scans.values())), strict=True):
                waits[i] = self._next(self.demands[i], queries[i], found)
        costs = [wanted for wanted in waits if not isinstance(wanted, Scan)]
        for need, strength, cost in zip(self.demands, self.strengths, costs, strict=True):
            if not need.covers(cost, strength, self.noise):
                planned = need.cost(strength, self.noise)
                raise RuntimeError(
                    f"{need.ask.name!r} was planned at {planned!r}, and would cost {cost!r}: nothing was spent"
                )
        return costs

    def _next(self, need: Demand, query: Waiting, *found: Any) -> Scan | Release:
        """What a query waits for, or its refusal by name."""
        waits = _named(need.ask, query.next, *found)
        if isinstance(waits, Answer):
            raise RuntimeError(f"{need.ask.name!r} was answered without a cost: nothing was spent")
        return waits

    def cells(self) -> list[list[str]]:
        """The table that is printed, its head first."""
        out = [["answer", "numbers", "error (95 %)", "wanted", "share"]]
        for row in self.rows():
            error = "none" if row["noise"] == "none" else f"± {row['error']:,.4g} {row['unit']}".rstrip()
            wanted = "" if row["wanted"] is None else f"± {row['wanted']:,g}"
            out.append([row["answer"], str(row["numbers"]), error, wanted, f"{row['share']:.1%}"])
        return out

    def headline(self) -> str:
        """What is printed above it."""
        spare = "" if self.epsilon > 0.999 * self.budget.epsilon else f" of the {self.budget.epsilon:g} allowed"
        return (
            f"{self.title or 'plan'}: {answers_said(len(self.asks))} for ε = {self.epsilon:.4g}{spare} at δ = "
            f"{self.budget.delta:g}, counts one {self.budget.unit}, {self.noise} noise; nothing is spent yet"
        )

    def __repr__(self) -> str:
        return f"{self.headline()}\n{as_text(self.cells())}"

    def _repr_html_(self) -> str:
        return as_html(self.headline(), self.cells())


def _named(ask: Ask, call: Callable[..., _T], *given: Any) -> _T:
    """What a call returns, its refusal with the name of the answer."""
    try:
        return call(*given)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{ask.name!r}: {error}") from None


def _answered(query: Waiting) -> Answer:
    found = query.next()
    if not isinstance(found, Answer):
        raise RuntimeError("a query waited again after all was charged")
    return found


def plan(
    asks: Sequence[Ask],
    *,
    budget: Budget | None = None,
    person: str | None = None,
    max_contributions: int | None = None,
    max_groups: int | None = None,
    max_per_group: int | None = None,
    rows: float | None = None,
    noise: NoiseName | None = None,
    ledger: Ledger | None = None,
    title: str = "",
) -> Plan:
    """Split one budget among many answers, and say how exact each will be.

    Parameters
    ----------
    asks : sequence of Ask
        The answers, each with the accuracy wanted (``within``) or a ``weight``.
    budget : Budget
        For all of them together.
    person : str, optional
        The column that says whose row it is.
    max_contributions, max_groups, max_per_group : int, optional
        How much of one person is used, in every answer that does not say so itself.
    rows : float, optional
        A public guess of how many rows means and variances are taken over; their error is foretold with it.
    noise : {"gaussian", "laplace"}, optional
        By default the one with the smaller errors.
    ledger : Ledger, optional
        ``run`` records the total in it, as one release, before any noise is drawn.
    title : str
        Of the report.

    Returns
    -------
    Plan

    Raises
    ------
    BudgetExceeded
        If the accuracies wanted cost more than the budget: the message names the answer that costs the most, and what
        would fit.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> asks = [
    ...     queries.Ask("count", name="visits", within=20),
    ...     queries.Ask("count", name="by town", groups="town", keys=["Graz", "Linz"]),
    ...     queries.Ask("mean", "paid", bounds=(0, 500), rows=10_000),
    ... ]
    >>> plan = queries.plan(asks, budget=Budget(1.0, 0.0, adjacency="add_remove"))
    >>> plan
    plan: 3 answers for ε = 1 at δ = 0, counts one row, laplace noise; nothing is spent yet
    answer        numbers  error (95 %)  wanted  share
    visits        1        ± 20          ± 20    14.6%
    by town       2        ± 7                   42.7%
    mean of paid  1        ± 0.3508              42.7%
    >>> table = {"town": ["Graz"] * 900 + ["Linz"] * 100, "paid": [20.0, 40.0] * 500}
    >>> report = plan.run(table)
    >>> bool(abs(report["visits"].value - 1000) < 100)
    True
    """
    budget = check_spending(budget, ledger)
    questions = tuple(asks)
    if not questions or not all(isinstance(ask, Ask) for ask in questions):
        raise TypeError(f"asks must be a sequence of Ask, at least one, got {asks!r}")
    if twice := next((name for name, times in Counter(ask.name for ask in questions).items() if times > 1), None):
        raise ValueError(f"every answer needs a name of its own, got {twice!r} twice: say name=")
    limits = {"max_contributions": max_contributions, "max_groups": max_groups, "max_per_group": max_per_group}
    if rows is not None:
        positive("rows", rows)
    demands = tuple(demand(ask, budget, person, limits, rows) for ask in questions)
    found = split(demands, budget, noise)
    return Plan(title, questions, found.cost, budget, found.noise, person, limits, ledger, demands, found.strengths)

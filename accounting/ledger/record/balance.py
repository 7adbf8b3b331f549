"""The balance of a ledger: counts, filter, quotas and marks of what was recorded. No clock, no lock, no file.

``admit`` decides and changes nothing; ``apply`` counts what was recorded (here, by another process or in a file).
The same entries in the same order always give the same balance. It does not hold the entries, and its size
depends on how many *different* releases, scopes and runs there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

from accounting.budget import Budget
from accounting.calibration import check_budget_adjacency
from accounting.errors import AdjacencyMismatch, BudgetExceeded, LedgerCorrupted, UnsupportedRelease
from accounting.ledger.filters.additive_filter import AdditiveFilter
from accounting.ledger.filters.choice import Filter, first_filter, make_filter
from accounting.ledger.filters.plan_filter import OwnPlans, PlanFilter
from accounting.ledger.filters.rule import Rule
from accounting.ledger.filters.scopes import inside
from accounting.ledger.record.entry_json import from_dict, rule_from_dict, rule_to_dict, to_dict
from accounting.ledger.record.entry_types import (
    Entry,
    Mark,
    Opening,
    Quota,
    Row,
    Settlement,
    Spend,
    Summary,
    check_scope,
)
from accounting.ledger.record.quotas import Quotas
from accounting.ledger.record.refusals import is_quick, refusal
from accounting.ledger.record.release_counts import ReleaseCounts
from accounting.releases import Adjacency, Composed, Release, check_adjacency, common_adjacency
from accounting.totals import epsilon, meets

__all__ = ["Balance", "Undecided"]


class Undecided(Exception):
    """The answer takes longer than a lock should be held."""


class Balance:
    """What the entries of one ledger say together, from its opening on.

    With a ``doubt`` the filters' sums are lower bounds for those of any balance of the same entries, to verify these.
    """

    def __init__(self, opening: Opening, *, doubt: float = 0.0) -> None:
        self.opening = opening
        self._doubt = doubt
        self.budget = opening.budget
        self.rows = 0
        self.marks: dict[str, Mark] = {}  # the newest of every run
        self.quotas = Quotas(doubt=doubt)
        self.simulation = False
        self.filter: Filter | None = None
        self.counts = ReleaseCounts()
        self._settled: dict[int, str] = {}
        self._adjacency: Adjacency | None = None
        self._unit: str | None = None
        self._first: tuple[tuple[Release, Release | None], Filter] | None = None
        self._plans = OwnPlans()

    # ------------------------------------------------------------------------------------------- deciding

    def admit(self, row: Row, *, quick: bool = False, plan: Release | None = None) -> Rule | None:
        """The rule that the row would fix (None if none); raises if it may not be recorded.

        A ``plan`` that starts with the row suits the rule to itself. With ``quick`` it raises ``Undecided`` where the
        answer would take long, a refusal's words included.
        """
        if quick and not self.knows(row.scope, row.release, plan):
            raise Undecided
        self._check_meaning(row)
        filter = self._filter_for(row.release, plan)
        rule = filter.rule if filter is not None and self.filter is None else None
        for of, budget, each in self._asked(row.scope, filter):
            total_after = None if quick else partial(self._total_after, row, of)
            verdict = each.admits(row.scope, row.release, total_after)
            if quick and not verdict:
                raise Undecided
            if not verdict and each is self.filter and self._may_plan(budget, row):
                rule = Rule("plan", plan=row.release)
            elif not verdict:
                raise self._refusal(of, budget, each, row)
        return rule

    def check_room(self, row: Row) -> None:
        """Raise if a whole that comes in parts cannot be in here by its end, whatever else comes.

        An empty ledger says so by the filter that the whole would get. One with other releases may count parts higher
        than it must: there the whole is refused if it passes the budget as a list, together with what is recorded.
        """
        self._check_meaning(row)
        filter = self._filter_for(row.release, row.release)
        for of, budget, each in self._asked(row.scope, filter):
            if each.admits(row.scope, row.release, partial(self._total_after, row, of)):
                continue
            if each is self.filter and self._may_plan(budget, row):
                continue
            begun = isinstance(each, AdditiveFilter) and (each is not filter or self.filter is not None)
            if not (begun and self._fits_as_a_list(row, of, budget)):
                raise self._refusal(of, budget, each, row)

    def _asked(self, scope: str | None, filter: Filter | None) -> list[tuple[str, Budget, Filter]]:
        """Who admits a release in a scope: the ledger's own budget (""), then the quotas of the scopes around it."""
        asked: list[tuple[str, Budget, Filter]] = []
        if self.budget is not None and filter is not None:
            own = self._plans.around(scope)
            each_unit = [filter, *self._plans.within(scope)] if own is None else [own]
            asked += [("", self.budget, each) for each in each_unit]
        return [*asked, *self.quotas.around(scope)]

    def _refusal(self, of: str, budget: Budget, each: Filter, row: Row) -> BudgetExceeded | UnsupportedRelease:
        booked = self.quotas.spent(of) if of else self.spent(row.scope)
        recorded = self.counts.total(of or row.scope, within=bool(of))
        return refusal(budget, each, row, quota=of, booked=booked, recorded=recorded)

    def _fits_as_a_list(self, row: Row, of: str, budget: Budget) -> bool:
        """Whether a release and what is recorded meet a budget, as the best accountant prices what was fixed before."""
        try:
            return meets(self._total_after(row, of), budget.epsilon, budget.delta)
        except UnsupportedRelease:  # nobody can say that it does not
            return True

    def _may_plan(self, budget: Budget, row: Row) -> bool:
        """Whether a release may fix a plan of its own: no unit of its scope met anything yet, and it meets the budget.

        The whole ledger with it must, as an audit prices it. A caller's choice of an accountant or a plan is one for
        every scope.
        """
        if row.scope is None or self.opening.accountant is not None or self.opening.plan is not None:
            return False
        if any(inside(scope, row.scope) or inside(row.scope, scope) for scope in self.counts.touched()):
            return False
        try:
            return float(epsilon(self._total_after(row, ""), budget.delta)) <= budget.epsilon
        except UnsupportedRelease:
            return False

    def knows(self, scope: str | None, release: Release, plan: Release | None = None) -> bool:
        """Whether a release can be priced at once."""
        filters = [self.filter, *(filter for _, _, filter in self.quotas.around(scope))]
        if self.budget is not None and self.filter is None:
            return self._first is not None and self._first[0] == (release, plan)
        return all(each is None or each.knows(release) for each in filters) or is_quick(release)

    def _filter_for(self, release: Release, plan: Release | None) -> Filter | None:
        """The filter, or what it would be if ``release`` were the first of a plan; none for what costs nothing."""
        if self.budget is None or self.filter is not None or release == Composed():
            return self.filter
        check_budget_adjacency(release, self.budget)
        if self._first is None or self._first[0] != (release, plan):
            made = self.opening
            filter = first_filter(
                self.budget,
                release,
                whole=plan,
                accountant=made.accountant,
                failure_delta=made.failure_delta,
                plan=made.plan,
            )
            self._first = (release, plan), filter
        return self._first[1]

    def _check_meaning(self, row: Row) -> None:
        """Refuse a release that is measured under another adjacency or unit than the ledger counts."""
        if self.budget is not None:
            check_budget_adjacency(row.release, self.budget)
        common_adjacency([self._adjacency, row.release.adjacency])
        unit = self._unit if self.budget is None else self.budget.unit
        if row.unit is not None and unit is not None and row.unit != unit:
            counts = "ledger" if self.budget is None else "budget"
            raise AdjacencyMismatch(
                f"the {counts} counts one {unit!r} and {row.label or row.release!r} one {row.unit!r}"
            )

    def check_settlement(self, index: int) -> None:
        """Refuse an outcome of a row that is not there, or that has one already (of those settled here)."""
        if not 0 <= index < self.rows:
            raise ValueError(f"index must name one of the {self.rows} rows, got index={index!r}")
        if index in self._settled:
            raise ValueError(f"row {index} was already committed as {self._settled[index]!r}")

    def check_mark(self, mark: Mark) -> None:
        """Refuse a step that its run has reached already: whoever made it holds another state than this one."""
        newest = self.marks.get(mark.run)
        if newest is not None and mark.step <= newest.step:
            raise ValueError(
                f"step must pass the newest mark of run {mark.run!r}, which is {newest.step}, got step={mark.step}: "
                f"another process or an older state continues the run; load its newest state"
            )

    def check_quota(self, quota: Quota) -> None:
        """Refuse a quota that counts another unit or other neighbours than the ledger."""
        if quota.budget is None:
            return
        for name in ("adjacency", "unit"):
            asked, kept = getattr(quota.budget, name), getattr(self, f"_{name}")
            if self.budget is not None:
                kept = getattr(self.budget, name)
            if kept is not None and asked != kept:
                raise AdjacencyMismatch(f"the ledger counts {name} {kept!r} and the quota of {quota.scope!r} {asked!r}")

    # ------------------------------------------------------------------------------------------ recording

    def apply(self, entry: Entry) -> None:
        """Record an entry that was admitted; a ``ValueError`` if it cannot follow the others."""
        match entry:
            case Spend(row=row, rule=rule):
                if row.index != self.rows:
                    raise ValueError(f"row {row.index} stands where row {self.rows} should be")
                if self.budget is not None and row.release != Composed():
                    if self.filter is None:
                        if rule is None:
                            raise ValueError("the first row does not state the filter's rule")
                        known = None if self._first is None else self._first[1]
                        if known is None or known.rule != rule:
                            known = make_filter(self.budget, rule, doubt=self._doubt)
                        self.filter = known
                    elif rule is not None:
                        self._start_plan(row.scope, rule)
                    if not self._plans.record(row.scope, row.release):
                        self.filter.record(row.scope, row.release)
                self.quotas.record(row.scope, row.release)
                self.counts.add(row.scope, row.release)
                self._adjacency = self._adjacency or row.release.adjacency
                self._unit = self._unit or row.unit
                self.simulation = self.simulation or row.simulation
                self.rows += 1
            case Settlement(index=index, outcome=outcome):
                self.check_settlement(index)
                self._settled[index] = outcome
            case Mark():
                self.check_mark(entry)
                self.marks[entry.run] = entry
                self.simulation = self.simulation or entry.simulation
            case Quota():
                self.check_quota(entry)
                self.quotas.set(entry, self.counts.terms())
            case Summary(state=state):
                if (rows := state.get("rows")) != self.rows:
                    raise ValueError(f"a summary counts {rows!r} rows, and {self.rows} are there")
            case Opening():
                raise ValueError("a second opening")

    def extend(self, entries: Iterable[Entry], name: str, position: int) -> None:
        """Record entries of a verified chain, the first at ``position``; a ``LedgerCorrupted`` if they make none."""
        for entry in entries:
            try:
                self.apply(entry)
            except (TypeError, ValueError) as error:
                raise LedgerCorrupted(f"{name}: entry {position} cannot stand where it does: {error}") from None
            position += 1

    def _start_plan(self, scope: str | None, rule: Rule) -> None:
        if scope is None or self.budget is None or rule.plan is None or self._plans.around(scope) is not None:
            raise ValueError(f"the rule {rule!r} cannot be fixed for scope={scope!r}")
        self._plans[scope] = PlanFilter(rule)

    # -------------------------------------------------------------------------------------------- asking

    def spent(self, scope: str | None = None) -> float:
        """ε at the budget's δ of what was recorded, as the filter counts it; 0 before the first release."""
        if self.budget is None or self.filter is None:
            return 0.0
        if not isinstance(self.filter, AdditiveFilter) or self._plans.around(scope) is not None:
            return float(epsilon(self.counts.total(scope), self.budget.delta))
        by_plans = [
            float(epsilon(self.counts.total(own), self.budget.delta)) for own in self._plans if inside(own, scope)
        ]
        return max(self.filter.spent(scope), *by_plans, 0.0)

    def remaining(self, scope: str | None = None) -> float:
        """What is left of the budget's ε for the units of a scope, and of every quota around it."""
        left = math.inf if self.budget is None else self.budget.epsilon - self.spent(scope)
        for _, budget, filter in self.quotas.around(scope):
            left = min(left, budget.epsilon - filter.spent(scope))
        return max(0.0, left)

    def _total_after(self, row: Row, quota: str) -> Release:
        return self.counts.total(quota or None, extra=(row.scope, row.release), within=bool(quota))

    # ----------------------------------------------------------------------------------------- summaries

    @property
    def size(self) -> int:
        """How many different things a summary would list."""
        return self.counts.size + len(self.marks) + len(self.quotas) + len(self._plans)

    def summary(self) -> dict[str, Any]:
        """All of it but the opening and the outcomes, as plain JSON values."""
        filter = self.filter
        plans = [[scope, rule_to_dict(plan.rule)] for scope, plan in self._plans.items()]
        return {
            **({"plans": plans} if plans else {}),
            "rows": self.rows,
            "simulation": self.simulation,
            "adjacency": self._adjacency,
            "unit": self._unit,
            "rule": None if filter is None else rule_to_dict(filter.rule),
            "filter": filter.sums.state() if isinstance(filter, AdditiveFilter) else None,
            "totals": self.counts.state(),
            "marks": [to_dict(mark) for mark in self.marks.values()],
            "quotas": self.quotas.state(),
        }

    @classmethod
    def restored(cls, opening: Opening, state: dict[str, Any]) -> Balance:
        """The balance that :meth:`summary` described; a ``ValueError``, ``TypeError`` or ``KeyError`` if none."""
        balance = cls(opening)
        if type(state["rows"]) is not int or not isinstance(state["simulation"], bool):
            raise ValueError("a summary does not hold what it must")
        check_adjacency(state["adjacency"])
        balance.rows, balance.simulation = state["rows"], state["simulation"]
        balance._adjacency, balance._unit = state["adjacency"], state["unit"]
        balance.counts = ReleaseCounts.restored(state["totals"])
        if state["rule"] is not None and balance.budget is not None:
            balance.filter = make_filter(balance.budget, rule_from_dict(state["rule"]))
            for own, rule in state.get("plans", []):
                check_scope("scope", own)
                balance._start_plan(own, rule_from_dict(rule))
            if isinstance(balance.filter, AdditiveFilter):
                balance.filter.sums.restore(state["filter"])
            if isinstance(balance.filter, PlanFilter) or balance._plans:
                for scope, release, count in balance.counts.terms():
                    if not balance._plans.record(scope, release, count) and isinstance(balance.filter, PlanFilter):
                        balance.filter.record(scope, release, count)
        for stored in state["marks"]:
            balance.apply(from_dict(stored))
        balance.quotas = Quotas.restored(state["quotas"])
        return balance

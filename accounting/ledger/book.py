"""The books of a ledger: what was recorded, its totals and its filter. No clock, no lock, no file.

``admit`` decides and changes nothing; ``apply`` records what was decided (here, by another process or in a file).
The same entries in the same order always give the same books.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from accounting.budget import Budget
from accounting.calibration import check_budget_adjacency
from accounting.errors import AdjacencyMismatch, BudgetExceeded, LedgerCorrupted, UnsupportedRelease
from accounting.ledger.entries import Entry, Mark, Opening, Row, Settlement, Spend
from accounting.ledger.filters import AdditiveFilter, Filter, Rule, first_filter, make_filter
from accounting.releases import Adjacency, Release, common_adjacency, compose, parallel
from accounting.totals import epsilon

__all__ = ["Book"]


class Book:
    """What one ledger holds, from its opening on."""

    @classmethod
    def of(cls, entries: Iterable[Entry], name: str) -> Book:
        """The books of a whole ledger; ``name`` is for the message of a ``LedgerCorrupted``."""
        all_entries = iter(entries)
        opening = next(all_entries, None)
        if not isinstance(opening, Opening):
            raise LedgerCorrupted(f"{name}: entry 0 is not an opening")
        book = cls(opening)
        book.extend(all_entries, name)
        return book

    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self.budget = opening.budget
        self.entries: list[Entry] = [opening]
        self.rows: list[Row] = []
        self.labels: set[str] = set()
        self.marks: dict[str, Mark] = {}  # the newest of every run
        self.simulation = False
        self.filter: Filter | None = None
        self._adjacency: Adjacency | None = None
        self._unit: str | None = None
        self._counts: dict[str | None, dict[Release, int]] = {}

    def admit(self, row: Row) -> Rule | None:
        """The rule that the row would fix (None if none); raises if it may not be recorded."""
        self._check_meaning(row)
        if self.budget is None:
            return None
        check_budget_adjacency(row.release, self.budget)
        filter = self.filter
        if filter is None:
            choice = self.opening
            filter = first_filter(
                self.budget,
                row.release,
                accountant=choice.accountant,
                failure_delta=choice.failure_delta,
                plan=choice.plan,
            )
        if not filter.admits(row.scope, row.release, lambda: self._total(row)):
            raise self._refusal(self.budget, filter, row)
        return filter.rule if self.filter is None else None

    def apply(self, entry: Entry) -> None:
        """Record an entry that was admitted; a ``ValueError`` if it cannot follow the others."""
        match entry:
            case Spend(row=row, rule=rule):
                if row.index != len(self.rows):
                    raise ValueError(f"row {row.index} stands where row {len(self.rows)} should be")
                if self.budget is not None:
                    if self.filter is None:
                        if rule is None:
                            raise ValueError("the first row does not state the filter's rule")
                        self.filter = make_filter(self.budget, rule)
                    self.filter.record(row.scope, row.release)
                counts = self._counts.setdefault(row.scope, {})
                counts[row.release] = counts.get(row.release, 0) + 1
                self._adjacency = self._adjacency or row.release.adjacency
                self._unit = self._unit or row.unit
                self.simulation = self.simulation or row.simulation
                self.rows.append(row)
                self.labels.add(row.label)
            case Settlement(index=index, outcome=outcome):
                self.check_settlement(index, outcome)
                self.rows[index] = replace(self.rows[index], outcome=outcome)
            case Mark():
                self.check_mark(entry)
                self.marks[entry.run] = entry
                self.simulation = self.simulation or entry.simulation
            case Opening():
                raise ValueError("a second opening")
        self.entries.append(entry)

    def extend(self, entries: Iterable[Entry], name: str) -> None:
        """Record entries of a verified chain; a ``LedgerCorrupted`` if they make no ledger."""
        for entry in entries:
            try:
                self.apply(entry)
            except (TypeError, ValueError) as error:
                raise LedgerCorrupted(
                    f"{name}: entry {len(self.entries)} cannot stand where it does: {error}"
                ) from None

    def check_settlement(self, index: int, outcome: str) -> None:
        """Refuse an outcome that is unknown, or that a row already has."""
        if outcome not in ("released", "failed"):
            raise ValueError(f"outcome must be 'released' or 'failed', got outcome={outcome!r}")
        if not 0 <= index < len(self.rows):
            raise ValueError(f"index must name one of the {len(self.rows)} rows, got index={index!r}")
        if self.rows[index].outcome != "reserved":
            raise ValueError(f"row {index} was already committed as {self.rows[index].outcome!r}")

    def check_mark(self, mark: Mark) -> None:
        """Refuse a step that its run has reached already: whoever made it holds another state than this one."""
        newest = self.marks.get(mark.run)
        if newest is not None and mark.step <= newest.step:
            raise ValueError(
                f"step must pass the newest mark of run {mark.run!r}, which is {newest.step}, got step={mark.step}: "
                f"another process or an older state continues the run; load its newest state"
            )

    def total(self) -> Release:
        """The description of everything recorded."""
        return self._total(None)

    def spent(self) -> float:
        """ε at the budget's δ of what was recorded, as the filter counts it; 0 before the first release."""
        if self.budget is None or self.filter is None:
            return 0.0
        if isinstance(self.filter, AdditiveFilter):
            return self.filter.spent()
        return float(epsilon(self.total(), self.budget.delta))

    def _total(self, extra: Row | None) -> Release:
        """Sequential composition inside each scope and over the whole data, parallel between named scopes."""
        counts = self._counts
        if extra is not None:
            scope = dict(counts.get(extra.scope, {}))
            scope[extra.release] = scope.get(extra.release, 0) + 1
            counts = {**counts, extra.scope: scope}
        whole = compose(counts.get(None, {}).items())
        named = [compose(terms.items()) for scope, terms in counts.items() if scope is not None]
        return whole + parallel(*named) if named else whole

    def _check_meaning(self, row: Row) -> None:
        """Refuse a release that is measured under another adjacency or unit than the ledger counts."""
        common_adjacency([self._adjacency, row.release.adjacency])
        unit = self._unit if self.budget is None else self.budget.unit
        if row.unit is not None and unit is not None and row.unit != unit:
            counts = "ledger" if self.budget is None else "budget"
            raise AdjacencyMismatch(
                f"the {counts} counts one {unit!r} and {row.label or row.release!r} one {row.unit!r}"
            )

    def _refusal(self, budget: Budget, filter: Filter, row: Row) -> BudgetExceeded | UnsupportedRelease:
        name, release, spent = repr(row.label or "a release"), row.release, self.spent()
        if not isinstance(filter, AdditiveFilter):
            return BudgetExceeded(
                f"{name} asks for {release!r}, which is not among what is left of the plan {filter.rule.plan!r}; "
                f"spent {spent:.6g} of {budget.epsilon:g}"
            )
        if not filter.covers(row.scope, release):
            return UnsupportedRelease(
                f"{name} asks for {release!r}, and the filter of this ledger ({filter.rule.accountant!r}, fixed before "
                f"its first release) has no bound for it together with what was recorded; open the ledger with an "
                f"accountant that covers everything to come"
            )
        message = (
            f"{name} asks for {release!r} (ε at δ={budget.delta:g}: {filter.alone(release):.6g} alone); "
            f"spent {spent:.6g} of {budget.epsilon:g}, left {max(0.0, budget.epsilon - spent):.6g}"
        )
        if not filter.may_fail(row.scope, release):
            kept = filter.rule.failure_delta
            message += f"; its failures pass the part of δ that this ledger keeps for them, failure_delta={kept:g}"
        return BudgetExceeded(message)

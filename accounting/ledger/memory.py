"""A ledger in memory: every release is recorded, and checked against the budget, before its noise is drawn.

The filter rule. A sequence whose next release may depend on earlier outputs meets (ε, δ) if it stops before
one *fixed* additive measure passes what the budget allows: Σμ² for GDP (Smith & Thakurta 2022), Σρ for zCDP
(Whitehouse et al. 2023), Σε for pure DP (Rogers et al. 2016). The measure must not be chosen by looking at
outputs. So it is fixed by the first release that is recorded, when nothing has left yet: the first of GDP, zCDP and
pure DP that covers that release; or by the caller (``accountant=``).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from accounting.calibration import check_budget_adjacency
from accounting.errors import AdjacencyMismatch, BudgetExceeded, UnsupportedRelease
from accounting.guarantees import Budget
from accounting.releases import Composed, Release, parallel
from accounting.totals import ACCOUNTANTS, Accountant, Bound, delta, epsilon

__all__ = ["Ledger", "Row"]


@dataclass(frozen=True)
class Row:
    """One recorded release."""

    index: int
    time: datetime
    label: str
    scope: str | None
    release: Release
    simulation: bool


class Ledger:
    """Record releases and refuse the one that would pass the budget.

    Parameters
    ----------
    budget : Budget, optional
        Without one, everything is recorded and nothing refused.
    accountant : {"gdp", "zcdp", "pure"}, optional
        The measure that the filter adds up (see the module's text). By default the first spend fixes it.

    Notes
    -----
    Scopes. ``scope=None`` means all of the data. Named scopes are disjoint parts of it, fixed by public
    information; they compose in parallel with each other and sequentially with ``None``.

    The ledger is safe to share between threads.

    Examples
    --------
    >>> from accounting import Budget, Gaussian, Ledger
    >>> ledger = Ledger(Budget(1.0, 1e-6))
    >>> row = ledger.spend(Gaussian(6.0), label="monthly means")
    >>> round(ledger.epsilon(1e-6), 3)
    0.686
    >>> ledger.spend(Gaussian(3.0), label="one more table")
    Traceback (most recent call last):
        ...
    accounting.errors.BudgetExceeded: 'one more table' asks for Gaussian(noise_multiplier=3.0) ...
    >>> len(ledger.rows())
    1
    """

    def __init__(self, budget: Budget | None = None, *, accountant: Accountant | None = None) -> None:
        if budget is not None and not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget or None, got budget={budget!r}")
        if accountant is not None and accountant not in ACCOUNTANTS:
            raise ValueError(f"accountant must be one of {tuple(ACCOUNTANTS)}, got accountant={accountant!r}")
        self.budget = budget
        self.accountant = accountant
        self._rows: list[Row] = []
        self._lock = threading.RLock()

    def spend(
        self,
        release: Release,
        *,
        label: str = "",
        scope: str | None = None,
        unit: str | None = None,
        simulation: bool = False,
    ) -> Row:
        """Record a release that is about to happen, or refuse it and record nothing.

        Parameters
        ----------
        release : Release
            What will leave.
        label : str
            For the reader of the ledger.
        scope : str, optional
            The disjoint part of the data that it reads; by default all of it.
        unit : str, optional
            The unit that its sensitivity covers. If stated, it must be the budget's.
        simulation : bool
            The noise comes from a seeded generator, so that nothing here is a private release.

        Raises
        ------
        BudgetExceeded
            If the total would pass the budget.
        AdjacencyMismatch
            If the release was measured under another adjacency or unit than the budget counts.
        UnsupportedRelease
            If the filter's accountant has no bound for it.
        """
        if not isinstance(release, Release):
            raise TypeError(f"release must be a description such as Gaussian(1.0), got release={release!r}")
        with self._lock:
            accountant = self.accountant
            if self.budget is not None:
                check_budget_adjacency(release, self.budget)
                if unit is not None and unit != self.budget.unit:
                    raise AdjacencyMismatch(
                        f"the budget counts one {self.budget.unit!r} and {label or release!r} one {unit!r}"
                    )
                accountant = accountant or _first_accountant(release)
                self._check(self.budget, accountant, release, label, scope)
            row = Row(len(self._rows), datetime.now(UTC), label, scope, release, simulation)
            self._rows.append(row)
            self.accountant = accountant
            return row

    def _check(self, budget: Budget, accountant: Accountant, release: Release, label: str, scope: str | None) -> None:
        asked = [(row.scope, row.release) for row in self._rows] + [(scope, release)]
        if delta(_total(asked), budget.epsilon, accountant=accountant) <= budget.delta:
            return
        at = f"ε at δ={budget.delta:g}"
        spent = epsilon(self.total, budget.delta, accountant=accountant)
        alone = epsilon(release, budget.delta, accountant=accountant)
        raise BudgetExceeded(
            f"{label or 'a release'!r} asks for {release!r} ({at}: {alone:.6g} alone); "
            f"spent {spent:.6g} of {budget.epsilon:g}, left {max(0.0, budget.epsilon - spent):.6g}"
        )

    @property
    def total(self) -> Release:
        """The description of everything recorded so far."""
        return _total((row.scope, row.release) for row in self._rows)

    @property
    def simulation(self) -> bool:
        """Whether any recorded release took its noise from a seeded generator."""
        return any(row.simulation for row in self._rows)

    def epsilon(self, delta: float | None = None) -> Bound:
        """The smallest proved ε of everything recorded, at ``delta`` (by default the budget's)."""
        return epsilon(self.total, self._delta(delta))

    def remaining(self) -> float:
        """The budget's ε less what was spent, at the budget's δ; infinite without a budget."""
        if self.budget is None:
            return math.inf
        return max(0.0, self.budget.epsilon - self.epsilon())

    def rows(self) -> list[Row]:
        """Everything recorded, oldest first."""
        return list(self._rows)

    def _delta(self, delta: float | None) -> float:
        if delta is not None:
            return delta
        if self.budget is None:
            raise ValueError("delta must be given for a ledger without a budget, got delta=None")
        return self.budget.delta

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())


def _first_accountant(release: Release) -> Accountant:
    """The first accountant, in the order of the table, that covers a release."""
    errors = []
    for name in ACCOUNTANTS:
        try:
            delta(release, 0.0, accountant=name)
            return name
        except UnsupportedRelease as error:
            errors.append(str(error))
    raise UnsupportedRelease("; ".join(errors))


def _total(spends: Iterable[tuple[str | None, Release]]) -> Release:
    """Sequential composition inside each scope and over the whole data, parallel between named scopes."""
    by_scope: dict[str | None, Release] = {}
    for scope, release in spends:
        by_scope[scope] = by_scope[scope] + release if scope in by_scope else release
    whole = by_scope.pop(None, Composed())
    return whole + parallel(*by_scope.values()) if by_scope else whole

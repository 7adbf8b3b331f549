"""What a ledger records: releases before they happen, what became of them, marks of runs, and quotas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from accounting.budget import Budget
from accounting.ledger.book import Book
from accounting.ledger.entries import Mark, Outcome, Quota, Row, Settlement, Spend, check_new_scope
from accounting.ledger.filters import Measure, Rule, check_rule, mixed_rule
from accounting.ledger.keeper import Keeper
from accounting.ledger.written import checked
from accounting.releases import Release
from accounting.text import check_text

__all__ = ["Recording"]


class Recording(Keeper):
    """The half of a ledger that adds to it."""

    def spend(
        self,
        release: Release,
        *,
        label: str = "",
        scope: str | None = None,
        unit: str | None = None,
        simulation: bool = False,
        unique: bool = False,
        plan: Release | None = None,
    ) -> Row:
        """Record a release that is about to happen, or refuse it and record nothing.

        When this returns, the reservation is on disk (for a ledger in a file). It counts from here on; to note
        afterwards what became of it, see :meth:`commit`.

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
        unique : bool
            Refuse if any row has this label already, so that of several processes one only gets it.
        plan : Release, optional
            All that is to come in the same run, this release included, where that is fixed in advance. It costs nothing
            by itself. But where the release is the ledger's first, the filter's rule is the one for the plan (see
            :func:`accounting.ledger.filters.begun_filter`), so that what was calibrated as a whole is admitted as such.

        Raises
        ------
        BudgetExceeded
            If the total would pass the budget.
        AdjacencyMismatch
            If the release was measured under another adjacency or unit than the budget counts, or than what was
            recorded before.
        UnsupportedRelease
            If the filter's accountant has no bound for it.
        ValueError
            If the ledger is closed, or a ``unique`` label was recorded before.
        """
        if not isinstance(release, Release):
            raise TypeError(f"release must be a description such as Gaussian(1.0), got release={release!r}")
        check_text("label", label)
        if plan is not None and not isinstance(plan, Release):
            raise TypeError(f"plan must be a description such as 100 * Gaussian(10.0), got plan={plan!r}")
        if scope is not None:
            check_new_scope("scope", scope)
        if unit is not None:
            check_text("unit", unit, empty=False)
        # what would not be read back is refused before it is priced
        checked(Spend(Row(0, datetime.now(UTC), label, scope, release, bool(simulation), unit)))

        def decide(book: Book, quick: bool) -> Spend:
            if unique and self._journal.has_label(label):
                raise ValueError(f"label must be new, got label={label!r}, which the ledger holds already")
            row = Row(book.rows, datetime.now(UTC), label, scope, release, bool(simulation), unit)
            return Spend(row, book.admit(row, quick=quick, plan=plan))

        return self._record(decide).row

    @contextmanager
    def reserve(
        self,
        release: Release,
        *,
        label: str = "",
        scope: str | None = None,
        unit: str | None = None,
        simulation: bool = False,
    ) -> Iterator[Row]:
        """:meth:`spend`, then commit as released at the end of the block, or as failed if it raises.

        Examples
        --------
        >>> from accounting import Gaussian, Ledger
        >>> ledger = Ledger()
        >>> with ledger.reserve(Gaussian(2.0), label="mean age"):
        ...     answer = 41.3  # measured with noise
        >>> ledger.rows()[0].outcome
        'released'
        """
        row = self.spend(release, label=label, scope=scope, unit=unit, simulation=simulation)
        try:
            yield row
        except BaseException:
            self.commit(row, "failed")
            raise
        self.commit(row)

    def commit(self, row: Row, outcome: Outcome = "released") -> None:
        """Note what became of a reservation. It counts as spent either way.

        Parameters
        ----------
        row : Row
            From :meth:`spend`.
        outcome : {"released", "failed"}
            Whether its result left the process.

        Raises
        ------
        ValueError
            If the row is not of this ledger or has an outcome already, or the ledger is closed.
        """
        if not isinstance(row, Row):
            raise TypeError(f"row must be a Row from spend, got row={row!r}")

        def decide(book: Book, quick: bool) -> Settlement:
            book.check_settlement(row.index, outcome)
            settled = self._journal.outcome(row.index)
            if settled is not None:
                raise ValueError(f"row {row.index} was already committed as {settled!r}")
            if self._journal.row(row.index) != replace(row, outcome="reserved"):
                raise ValueError(f"row {row.index} of this ledger is another one than {row!r}")
            return Settlement(row.index, outcome, datetime.now(UTC))

        self._record(decide)

    def mark(
        self,
        run: str,
        step: int,
        digest: str,
        *,
        label: str = "",
        simulation: bool = False,
        also: Callable[[Any], None] | None = None,
    ) -> Mark:
        """Record, at no cost, that a run made its release number ``step`` and what state that left.

        Before anything of the release is exposed, and durably. Of several processes that continue the same run, only
        one gets the mark; a state that is loaded is the newest if its digest is the newest mark's.

        Parameters
        ----------
        run : str
            The id of what releases.
        step : int
            At least 1, and larger than that of the run's last mark.
        digest : str
            Of the state after the release, in hexadecimal digits.
        label : str
            For the reader of the ledger.
        simulation : bool
            The run draws its noise from a seeded generator.
        also : callable, optional
            Called with the ledger's own connection, in the transaction that records the mark: what it writes there
            stands or falls with the mark. Only for a ledger in a database; it must neither commit nor roll back.

        Raises
        ------
        ValueError
            If the run has a mark at ``step`` or later, or the ledger is closed. Nothing was recorded.

        Examples
        --------
        >>> from accounting import Ledger
        >>> ledger = Ledger()
        >>> mark = ledger.mark("5f3a", 1, "c0ffee")
        >>> ledger.newest_mark("5f3a") == mark
        True
        >>> ledger.mark("5f3a", 1, "decade")
        Traceback (most recent call last):
            ...
        ValueError: step must pass the newest mark of run '5f3a', which is 1, got step=1: another process or ...
        """
        Mark(run, step, digest, datetime.now(UTC), label, simulation)  # refused before the lock is waited for

        def decide(book: Book, quick: bool) -> Mark:
            made = Mark(run, step, digest, datetime.now(UTC), label, simulation)
            book.check_mark(made)
            return made

        return self._record(decide, also)

    def set_quota(self, scope: str, budget: Budget | None, *, accountant: Measure | None = None) -> None:
        """Limit what is released inside one scope, under the ledger's own budget; None lifts the limit.

        A quota counts what is recorded in the scope and in its parts, what was recorded before included. It does not
        count what is released on more than the scope, which the ledger's budget is there for. Its filter is fixed
        here, from the quota alone.

        Parameters
        ----------
        scope : str
            A part of the data: ``"north"``, or ``"north/ann"`` for a part of that.
        budget : Budget or None
            With the unit and adjacency of the ledger's.
        accountant : {"mixed", "gdp", "pure", "zcdp"}, optional
            What the quota's filter adds up; by default all of them share δ.

        Examples
        --------
        >>> from accounting import Budget, Gaussian, Ledger
        >>> ledger = Ledger(Budget(2.0, 1e-6))
        >>> ledger.set_quota("north", Budget(1.0, 1e-6))
        >>> row = ledger.spend(Gaussian(8.0), scope="north")
        >>> ledger.spend(Gaussian(5.0), scope="north/ann", label="Ann's mean")
        Traceback (most recent call last):
            ...
        accounting.errors.BudgetExceeded: "Ann's mean" asks for ... of the quota of 'north'...
        """
        if budget is not None and not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget or None, got budget={budget!r}")
        rule = None
        if budget is not None:
            check_new_scope("scope", scope)
            check_rule(budget, accountant, None, None)
            if accountant == "rdp":
                raise ValueError("a quota is fixed before its first release, which accountant='rdp' asks for its order")
            rule = mixed_rule(budget) if accountant in (None, "mixed") else Rule(accountant)
        checked(Quota(scope, budget, datetime.now(UTC), rule))

        def decide(book: Book, quick: bool) -> Quota:
            quota = Quota(scope, budget, datetime.now(UTC), rule)
            book.check_quota(quota)
            return quota

        self._record(decide)

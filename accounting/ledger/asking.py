"""What a ledger answers: its rows, what they cost together and what is left, for all of the data or for a scope."""

from __future__ import annotations

from pathlib import Path

from accounting.budget import Budget
from accounting.errors import UnsupportedRelease
from accounting.ledger import export
from accounting.ledger.entries import Mark, Row, check_scope
from accounting.ledger.journal import MemoryJournal, Rows
from accounting.ledger.keeper import Keeper
from accounting.ledger.scopes import inside
from accounting.ledger.verification import verified
from accounting.printed import as_html
from accounting.releases import Release
from accounting.totals import Bound, epsilon

__all__ = ["Asking"]

# rows that a notebook shows
_SHOWN = 20


class Asking(Keeper):
    """The half of a ledger that changes nothing."""

    def __repr__(self) -> str:
        where = "in memory" if isinstance(self._journal, MemoryJournal) else f"in {self._journal.name!r}"
        if self.closed:
            return f"<Ledger {where}, closed>"
        if self.budget is None:
            return f"<Ledger {where}, no budget>"
        return f"<Ledger {where}, {self.budget}: {self._spent_and_booked()}>"

    def _spent_and_booked(self) -> str:
        """What everything costs as a list, and what the filter counts, which cannot be spent again."""
        if (budget := self.budget) is None:
            return "no budget"
        try:
            spent = self.epsilon()
            listed = f"ε {spent:.6g} spent by the best accountant ({spent.accountant!r}), "
        except UnsupportedRelease:
            listed = ""
        return f"{listed}{budget.epsilon - self.remaining():.6g} of {budget.epsilon:g} booked by the filter"

    def _repr_html_(self) -> str:
        """The newest rows, and what all of them cost."""
        rows = self.rows()
        cells = [["", "label", "scope", "release", "outcome"]]
        for row in rows[-_SHOWN:]:
            cells.append([str(row.index), row.label, row.scope or "", repr(row.release), row.outcome])
        told = f"{len(rows):,} rows" + (f", the newest {_SHOWN} shown" if len(rows) > _SHOWN else "")
        told += f"; {self._spent_and_booked()}" if self.closed else ""
        return as_html(f"{self!r}; {told}", cells)

    @property
    def budget(self) -> Budget | None:
        """What may be spent; fixed when the ledger was made."""
        with self._reading() as book:
            return book.budget

    @property
    def path(self) -> Path | None:
        """The file that holds the ledger, or None in memory and in PostgreSQL."""
        return self._journal.path

    @property
    def accountant(self) -> str | None:
        """What the filter counts: the caller's choice, or what follows from the first release; None before that."""
        with self._reading() as book:
            return book.opening.accountant if book.filter is None else book.filter.rule.accountant

    @property
    def head(self) -> str:
        """The hash of the last entry: noted elsewhere, it pins down everything recorded so far."""
        with self._lock:
            position = self._position()
            if position.head:
                return position.head
            return export.chained(entry for _, entry in self._journal.everything(position))[0]

    def newest_mark(self, run: str) -> Mark | None:
        """The last mark of a run, by whichever process; None if it has none.

        It waits for whoever is writing: a commit may still be on its way to a database when its process is gone.
        """
        with self._lock:
            if not self._closed:
                self._journal.append(lambda _: None)  # which takes the journal's lock, and writes nothing
            with self._reading() as book:
                return book.marks.get(run)

    def quotas(self) -> dict[str, Budget]:
        """The quota of every scope that has one."""
        with self._reading() as book:
            return book.quotas.budgets()

    def quota_spent(self, scope: str) -> float:
        """ε at a quota's δ of what was recorded in its scope, as its filter counts it."""
        with self._reading() as book:
            if scope not in book.quotas.budgets():
                raise ValueError(f"scope must have a quota, got scope={scope!r}")
            return book.quotas.spent(scope)

    def scopes(self) -> list[str]:
        """Every named scope in which something was recorded or that has a quota."""
        with self._reading() as book:
            return sorted({*book.totals.scopes(), *book.quotas.budgets()})

    @property
    def total(self) -> Release:
        """The description of everything recorded so far."""
        with self._reading() as book:
            return book.total()

    @property
    def simulation(self) -> bool:
        """Whether any recorded release took its noise from a seeded generator."""
        with self._reading() as book:
            return book.simulation

    def epsilon(self, delta: float | None = None, *, scope: str | None = None) -> Bound:
        """The smallest proved ε of everything recorded, at ``delta`` (by default the budget's).

        With a ``scope``, of everything that a unit in that scope met: there, in its parts, around it and on the whole.
        """
        if scope is not None:
            check_scope("scope", scope)
        with self._reading() as book:
            if delta is None:
                if book.budget is None:
                    raise ValueError("delta must be given for a ledger without a budget, got delta=None")
                delta = book.budget.delta
            total = book.total(scope)
        found = epsilon(total, delta)
        with self._reading() as book:
            # many weak choices: the accountants price them as one pair each, the filter as the coins that they are
            if book.budget is not None and delta == book.budget.delta and found > book.budget.epsilon and book.filter:
                spent = book.spent(scope)
                return Bound(spent, book.filter.rule.accountant) if spent < found else found
        return found

    def remaining(self, *, scope: str | None = None) -> float:
        """The budget's ε less what the filter counts as spent, at the budget's δ; infinite without a budget.

        What was spent is bounded in any order. A filter that charges by what is left may admit a little more than that.

        With a ``scope``, what is left for a release in that scope, its quotas included.
        """
        if scope is not None:
            check_scope("scope", scope)
        with self._reading() as book:
            return book.remaining(scope)

    def rows(self, *, scope: str | None = None) -> list[Row]:
        """Everything recorded (in a scope and its parts), oldest first, each row with its outcome so far."""
        with self._lock:
            if self._closed:
                position = self._position()
                found = Rows().extended((entry for _, entry in self._journal.everything(position)), position)
                self._let_go()
            else:
                found = self._rows.read(self._journal)
        return found if scope is None else [row for row in found if inside(row.scope, scope)]

    def verify(self, *, expected_head: str | None = None) -> str:
        """Read every entry again, and check hashes, books, summaries and the filter's sums; the verified head.

        Opening a file verifies what follows its last summary; this verifies all of it.

        Raises
        ------
        LedgerCorrupted
            Naming the entry that is wrong, or if ``expected_head`` is not in the ledger.
        """
        with self._lock:
            position = self._position()
            head = verified(self._journal, position, expected_head)
            self._let_go()
            return head

    def to_json(self) -> str:
        """Everything recorded as JSON text, with the same hashes as in a file.

        Examples
        --------
        >>> from accounting import Gaussian, Ledger
        >>> ledger = Ledger()
        >>> row = ledger.spend(Gaussian(2.0), label="mean age")
        >>> Ledger.from_json(ledger.to_json()).head == ledger.head
        True
        """
        with self._lock:
            found = export.dumps(entry for _, entry in self._journal.everything(self._position()))
            self._let_go()
            return found

    def to_csv(self) -> str:
        """Everything recorded as CSV text, one line per row, mark and quota, for a spreadsheet."""
        with self._lock:
            found = export.to_csv([entry for _, entry in self._journal.everything(self._position())])
            self._let_go()
            return found

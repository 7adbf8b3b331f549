"""The ledger: every release is recorded, and checked against the budget, before its noise is drawn."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Self

from accounting.budget import Budget
from accounting.errors import UnsupportedRelease
from accounting.ledger.filters.choice import check_choices, check_plan
from accounting.ledger.filters.default_rule import mixed_rule
from accounting.ledger.filters.rule import Measure, Rule
from accounting.ledger.filters.scopes import inside
from accounting.ledger.record.balance import Balance
from accounting.ledger.record.entry_json import checked
from accounting.ledger.record.entry_types import (
    Entry,
    Mark,
    Opening,
    Outcome,
    Quota,
    Row,
    Settlement,
    Spend,
    check_new_scope,
    check_scope,
)
from accounting.ledger.record.hash_chain import nonce
from accounting.ledger.record.release_json import alike
from accounting.ledger.recorder import Recorder, refuse_crossed
from accounting.ledger.storage.database import Database
from accounting.ledger.storage.store import EntryStore, MemoryStore
from accounting.ledger.storage.witness import Watch, Witness
from accounting.ledger.verification import verified
from accounting.ledger.views import json_and_csv
from accounting.ledger.views.rows import RowsRead, rows_as_html
from accounting.postgres import is_url, place
from accounting.releases import Release, check_release
from accounting.text import check_text
from accounting.totals import Bound, epsilon

__all__ = ["Ledger"]


class Ledger:
    """Record releases and refuse the one that would pass the budget.

    ``Ledger(budget)`` lives in memory. :meth:`Ledger.create` makes one in a file or in PostgreSQL, and
    :meth:`Ledger.open` opens it, in any number of processes; all are used alike. Reserve, release, commit:
    :meth:`spend` (or :meth:`reserve`) records a release before it happens, and from then on it counts, also if the
    process dies before anything leaves.

    Parameters
    ----------
    budget : Budget, optional
        Without one, everything is recorded and nothing refused.
    accountant : {"mixed", "gdp", "pure", "rdp", "zcdp"}, optional
        What the filter adds up (see :mod:`accounting.ledger.filters`). By default ``"mixed"``, which follows from the
        budget alone and takes releases of any kind in any order; unless the budget holds a whole number of releases
        like the first, to nine digits: then the measure that it was calibrated by.
    failure_delta : float, optional
        The part of the budget's δ that is kept for releases that may fail outright (``ApproxDP``). By default half if
        the first release may fail itself, else a 32nd (nothing if it was calibrated for).
    plan : Release, optional
        Everything that will be released, if that is known in advance: then the tightest accountant prices it as
        a whole, and the ledger admits the releases of the plan, in any order, and no others.

    Raises
    ------
    BudgetExceeded
        If the plan passes the budget.

    Notes
    -----
    Scopes. ``scope=None`` means all of the data. A named scope is a part of it, fixed by public information, and
    ``"north/ann"`` a part of ``"north"``. Scopes of which neither lies in the other are disjoint and compose in
    parallel; a unit meets what is released in its scope, around it and on the whole. See :meth:`set_quota`.

    What is guaranteed. With a budget, the filter's theorem holds for releases that are chosen with every earlier
    output in view. :meth:`epsilon` is the smallest ε of the recorded list as it stands, which is a guarantee if
    the list did not depend on outputs; the filter may count more.

    Sharing. A ledger is safe to share between threads, and one in a file between processes. A copy of a ledger in
    memory (by fork or pickle) is a ledger of its own, and counts only its own spends.

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

    def __init__(
        self,
        budget: Budget | None = None,
        *,
        accountant: Measure | None = None,
        failure_delta: float | None = None,
        plan: Release | None = None,
    ) -> None:
        self._begin(MemoryStore([_opening(budget, accountant, failure_delta, plan)]))

    def _begin(self, store: EntryStore, watch: Watch | None = None) -> None:
        self._recorder = Recorder(store, watch)
        self._rows = RowsRead()
        self._actor: str | None = None
        self._within: str | None = None

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        budget: Budget | None = None,
        *,
        accountant: Measure | None = None,
        failure_delta: float | None = None,
        plan: Release | None = None,
        witness: str | os.PathLike[str] | Witness | None = None,
    ) -> Ledger:
        """Make a ledger in a file or in PostgreSQL, where nothing may be yet, and open it.

        Parameters
        ----------
        path : path or address
            An SQLite file on a local disk. Or the address of a database,
            ``"postgresql://user@host/database?schema=ledger"``, with the schema that the ledger has to itself
            (``"ledger"`` if none is named); processes on any number of hosts may share it. It needs the extra
            ``postgres``.
        budget, accountant, failure_delta, plan
            As for :class:`Ledger`, fixed from now on.
        witness : path, address or Witness, optional
            As for :meth:`open`. The one at a path or an address is made. The ledger remembers that it has one: from
            now on nothing is recorded in it, or in a copy of it, that is opened without.

        Raises
        ------
        FileExistsError
            If there is something already, or a witness. Nothing is made then.
        OSError
            If the disk or the server cannot be used.
        ValueError
            If the server does not write through to its disk.

        Examples
        --------
        >>> import tempfile
        >>> from accounting import Budget, Gaussian, Ledger
        >>> path = tempfile.mkdtemp() + "/releases.ledger"
        >>> with Ledger.create(path, Budget(1.0, 1e-6)) as ledger:
        ...     with ledger.reserve(Gaussian(6.0), label="monthly means"):
        ...         pass  # draw the noise and publish
        >>> Ledger.create(path, Budget(1.0, 1e-6))
        Traceback (most recent call last):
            ...
        FileExistsError: /...releases.ledger exists already: Ledger.open opens it
        """
        asked = replace(_opening(budget, accountant, failure_delta, plan), witnessed=witness is not None)
        with closing(_stored(path)) as stored:
            exists = f"{stored.name} exists already: Ledger.open opens it"
            if stored.exists():
                raise FileExistsError(exists)
            # all that can be refused is refused while nothing is there
            beside = _new_witness(witness, stored)
            if not stored.create(asked):
                raise FileExistsError(exists)
            if beside is not None:
                stored.copy(beside)
        return cls.open(path, witness=witness)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        budget: Budget | None = None,
        *,
        accountant: Measure | None = None,
        failure_delta: float | None = None,
        plan: Release | None = None,
        expected_head: str | None = None,
        witness: str | os.PathLike[str] | Witness | None = None,
    ) -> Ledger:
        """Open a ledger that is there, in a file or in PostgreSQL; every entry is verified first.

        It never makes one: where a volume is not mounted or a path is misspelt, a new ledger would have its whole
        budget left. :meth:`create` makes one.

        Parameters
        ----------
        path : path or address
            As for :meth:`create`.
        budget, accountant, failure_delta, plan
            They were fixed when the ledger was made. They may be left out, and must not be others.
        expected_head : str, optional
            A :attr:`head` that was noted earlier, elsewhere. The ledger must still contain it, which detects what
            the file alone cannot show: an older copy put in its place, or a history rewritten with new hashes.
        witness : path, address or Witness, optional
            A second ledger on another volume or server, which :meth:`backup` or :meth:`create` made: every entry is
            written there, too, before a spend returns. The ledger must hold all that the witness has seen, so that one
            that was put back from an older copy is refused, and :meth:`catch_up` mends it. An object with the methods
            of :class:`accounting.ledger.Witness` may keep the entries anywhere else. A ledger that was made with a
            witness can be read without, and not be spent from.

        Raises
        ------
        FileNotFoundError
            If there is no ledger, or no witness.
        LedgerBehind
            If the witness has seen more than the ledger holds.
        LedgerCorrupted
            If the file is not a ledger, its chain does not verify (the entry is named), ``expected_head`` is
            not in it, or the witness has seen another history.
        OSError
            If the disk or the server cannot be used.
        ValueError
            If it was made with another budget or other choices, or the server does not write through to its disk.

        Examples
        --------
        >>> import tempfile
        >>> from accounting import Budget, Gaussian, Ledger
        >>> path = tempfile.mkdtemp() + "/releases.ledger"
        >>> with Ledger.create(path, Budget(1.0, 1e-6)) as ledger:
        ...     row = ledger.spend(Gaussian(6.0), label="monthly means")
        >>> with Ledger.open(path) as ledger:
        ...     print(ledger.budget, ledger.rows()[0].outcome)
        Budget(epsilon=1.0, delta=1e-06, adjacency='replace', unit='row') reserved
        >>> Ledger.open(path + "s")
        Traceback (most recent call last):
            ...
        FileNotFoundError: there is no ledger /...releases.ledgers: is the path right, and its volume mounted? ...
        """
        asked = _opening(budget, accountant, failure_delta, plan)
        stored = _stored(path)
        try:
            if not stored.exists():
                raise FileNotFoundError(
                    f"there is no ledger {stored.name}: is the path right, and its volume mounted? A new one, with its "
                    f"whole budget left, is made by Ledger.create or `dpkit ledger create`"
                )
            ledger = cls.__new__(cls)
            watch = _watch(witness, stored)
            if watch is not None:
                refuse_crossed(stored, watch)
            ledger._begin(stored, watch)
            with ledger._recorder.reading(unwitnessed=True) as balance:
                opening = balance.opening
            if watch is not None:
                watch.check()
            if expected_head is not None:
                ledger.verify(expected_head=expected_head)
            for name in ("budget", "accountant", "failure_delta", "plan"):
                wanted, made = getattr(asked, name), getattr(opening, name)
                if wanted is not None and wanted != made:
                    raise ValueError(
                        f"{stored.name} was made with {name}={made!r}, got {name}={wanted!r}: it keeps what it was "
                        f"made with, which need not be said again, so leave {name} as it was or make another ledger"
                    )
        except BaseException:
            stored.close()
            raise
        return ledger

    def acting(self, actor: str | None = None, *, scope: str | None = None) -> Ledger:
        """The same ledger, for somebody who records in it and, if wanted, inside one scope only.

        What is recorded by the returned object has the name ``actor`` in its row, and lies in ``scope``: a spend
        without a scope there, one with a scope of its own in that part of it, and so does a quota. All else is shared:
        what is asked is asked of the whole ledger, and closing one closes both.

        Parameters
        ----------
        actor : str, optional
            Who records. By default nobody is named.
        scope : str, optional
            By default all of the data.

        Examples
        --------
        >>> from accounting import Gaussian, Ledger
        >>> ledger = Ledger()
        >>> ann = ledger.acting("ann", scope="north")
        >>> row = ann.spend(Gaussian(4.0), label="means", scope="2027")
        >>> ledger.rows()[0].actor, ledger.rows()[0].scope
        ('ann', 'north/2027')
        """
        if actor is not None:
            check_text("actor", actor, empty=False)
        if scope is not None:
            check_new_scope("scope", scope)
        other = Ledger.__new__(Ledger)
        other._recorder, other._rows, other._actor = self._recorder, self._rows, actor
        other._within = self._inside(scope)
        return other

    def _inside(self, scope: str | None) -> str | None:
        """A scope as one of the whole ledger."""
        return "/".join(part for part in (self._within, scope) if part is not None) or None

    # -------------------------------------------------------------------------------------------------------- recording

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
            :func:`accounting.ledger.filters.choice.first_filter`), so that what was calibrated as a whole is admitted
            as such.

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
        check_release(release)
        check_text("label", label)
        check_plan(plan)
        if scope is not None:
            check_new_scope("scope", scope)
        if unit is not None:
            check_text("unit", unit, empty=False)
        # what would not be read back is refused before it is priced
        scope = self._inside(scope)
        said = Row(0, datetime.now(UTC), label, scope, release, bool(simulation), unit, actor=self._actor)
        asked = checked(Spend(said)).row

        def decide(balance: Balance, quick: bool) -> Spend:
            if unique and self._recorder.store.has_label(label):
                raise ValueError(f"label must be new, got label={label!r}, which the ledger holds already")
            row = replace(asked, index=balance.rows, time=datetime.now(UTC))
            return Spend(row, balance.admit(row, quick=quick, plan=plan))

        return self._recorder.record(decide).row

    def check_room(self, plan: Release, *, label: str = "", scope: str | None = None) -> None:
        """Refuse a run whose parts are to be recorded one by one, and cannot all be; nothing is recorded or promised.

        For whoever spends epoch by epoch: a run that must end early had better not begin. A ledger with other releases
        may refuse a later part all the same, for its filter counts a few percent more than a list costs.

        Parameters
        ----------
        plan : Release
            All that is to come in the run.
        label : str
            What a refusal calls it.
        scope : str, optional
            As in :meth:`spend`.

        Raises
        ------
        BudgetExceeded, AdjacencyMismatch, UnsupportedRelease
            As :meth:`spend` would for all of it at once. (With other releases recorded, ``BudgetExceeded`` only if both
            together pass the budget as a list that was fixed beforehand.)
        """
        check_release(plan)
        check_text("label", label)
        if scope is not None:
            check_new_scope("scope", scope)
        row = Row(0, datetime.now(UTC), label, self._inside(scope), plan, False, None, actor=self._actor)
        with self._recorder.reading() as balance:
            balance.check_room(row)

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

        def decide(balance: Balance, quick: bool) -> Settlement:
            made = Settlement(row.index, outcome, datetime.now(UTC))
            balance.check_settlement(row.index)
            store = self._recorder.store
            if (settled := store.outcome(row.index)) is not None:
                raise ValueError(f"row {row.index} was already committed as {settled!r}")
            if store.row(row.index) != replace(row, outcome="reserved"):
                raise ValueError(f"row {row.index} of this ledger is another one than {row!r}")
            return made

        self._recorder.record(decide)

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
            stands or falls with the mark. Only for a ledger in a database; it must neither commit nor roll back. Not
            for one with a witness, as it would be seen before the witness has the mark.

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
        asked = Mark(run, step, digest, datetime.now(UTC), label, simulation)  # refused before the lock is waited for
        if also is not None and self._recorder.watch is not None:
            raise ValueError("also must be left out for a ledger with a witness: it would be seen before the mark is")

        def decide(balance: Balance, quick: bool) -> Mark:
            made = replace(asked, time=datetime.now(UTC))
            balance.check_mark(made)
            return made

        return self._recorder.record(decide, also)

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
        rule = None
        if budget is not None:
            check_new_scope("scope", scope)
            check_choices(budget, accountant, None, None)
            if accountant == "rdp":
                raise ValueError("a quota is fixed before its first release, which accountant='rdp' asks for its order")
            rule = mixed_rule(budget) if accountant in (None, "mixed") else Rule(accountant)
        asked = checked(Quota(self._inside(scope) or scope, budget, datetime.now(UTC), rule))

        def decide(balance: Balance, quick: bool) -> Quota:
            quota = replace(asked, time=datetime.now(UTC))
            balance.check_quota(quota)
            return quota

        self._recorder.record(decide)

    # ----------------------------------------------------------------------------------------------------------- asking

    def __repr__(self) -> str:
        store = self._recorder.store
        where = f"in {store.name!r}" if isinstance(store, Database) else "in memory"
        if self.closed:
            return f"<Ledger {where}, closed>"
        try:
            if self.budget is None:
                told = f"no budget, {len(self.rows())} releases"
            else:
                told = f"{self.budget}: {self._spent_and_booked()}"
        except OSError as error:
            told = f"of which nothing can be told: {error}"
        return f"<Ledger {where}, {told}>"

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
        try:
            return rows_as_html(self.rows(), repr(self), f"; {self._spent_and_booked()}" if self.closed else "")
        except OSError:  # of which repr says why
            return f"<pre>{escape(repr(self))}</pre>"

    @property
    def budget(self) -> Budget | None:
        """What may be spent; fixed when the ledger was made."""
        with self._recorder.reading(unwitnessed=True) as balance:
            return balance.budget

    @property
    def path(self) -> Path | None:
        """The file that holds the ledger, or None in memory and in PostgreSQL."""
        return self._recorder.store.path

    @property
    def witnessed(self) -> bool:
        """Whether it was made with a witness: then it is spent from only where that is named, too (:meth:`open`)."""
        with self._recorder.reading(unwitnessed=True) as balance:
            return balance.opening.witnessed

    @property
    def accountant(self) -> str | None:
        """What the filter counts: the caller's choice, or what follows from the first release; None before that."""
        with self._recorder.reading(unwitnessed=True) as balance:
            return balance.opening.accountant if balance.filter is None else balance.filter.rule.accountant

    @property
    def head(self) -> str:
        """The hash of the last entry: noted elsewhere, it pins down everything recorded so far."""
        recorder = self._recorder
        with recorder.held() as position:
            if position.head:
                return position.head
            return [head for head, _ in recorder.store.everything(position)][-1]

    @property
    def entries(self) -> int:
        """How many entries there are: rows, outcomes, marks, quotas, summaries and the opening."""
        with self._recorder.held() as position:
            return position.entries

    def newest_mark(self, run: str) -> Mark | None:
        """The last mark of a run, by whichever process; None if it has none.

        It waits for whoever is writing: a commit may still be on its way to a database when its process is gone. And
        it waits for the witness to have the mark, as a state that has it is published.

        Raises
        ------
        OSError
            If the witness does not answer.
        ValueError
            If the ledger was made with a witness, and was opened without.
        """
        with self._recorder.lock:
            if not self.closed:
                self._recorder.store.append(lambda _: None)  # which takes the store's lock, and writes nothing
            with self._recorder.reading() as balance:
                self._recorder.refuse_unwitnessed(balance)
                return balance.marks.get(run)

    def quotas(self) -> dict[str, Budget]:
        """The quota of every scope that has one."""
        with self._recorder.reading() as balance:
            return balance.quotas.budgets()

    def quota_booked(self, scope: str) -> float:
        """ε at a quota's δ that its filter has booked for what was recorded in its scope.

        At least what was spent there, which a list of the same releases costs by the best accountant.
        """
        with self._recorder.reading() as balance:
            if scope not in balance.quotas.budgets():
                raise ValueError(f"scope must have a quota, got scope={scope!r}")
            return balance.quotas.spent(scope)

    def scopes(self) -> list[str]:
        """Every named scope in which something was recorded or that has a quota."""
        with self._recorder.reading() as balance:
            return sorted({*balance.counts.scopes(), *balance.quotas.budgets()})

    @property
    def total(self) -> Release:
        """The description of everything recorded so far."""
        with self._recorder.reading() as balance:
            return balance.counts.total()

    @property
    def simulation(self) -> bool:
        """Whether any recorded release took its noise from a seeded generator."""
        with self._recorder.reading() as balance:
            return balance.simulation

    def epsilon(self, delta: float | None = None, *, scope: str | None = None) -> Bound:
        """The smallest proved ε of everything recorded, at ``delta`` (by default the budget's).

        With a ``scope``, of everything that a unit in that scope met: there, in its parts, around it and on the whole.
        """
        if scope is not None:
            check_scope("scope", scope)
        with self._recorder.reading() as balance:
            if delta is None:
                if balance.budget is None:
                    raise ValueError("delta must be given for a ledger without a budget, got delta=None")
                delta = balance.budget.delta
            total = balance.counts.total(scope)
        found = epsilon(total, delta)
        with self._recorder.reading() as balance:
            # many weak choices: the accountants price them as one pair each, the filter as the coins that they are
            if (
                balance.budget is not None
                and delta == balance.budget.delta
                and found > balance.budget.epsilon
                and balance.filter
            ):
                spent = balance.spent(scope)
                return Bound(spent, balance.filter.rule.accountant) if spent < found else found
        return found

    def remaining(self, *, scope: str | None = None) -> float:
        """The budget's ε less what the filter has booked, at the budget's δ; infinite without a budget.

        What is booked bounds what was spent, for releases in any order. A filter that charges by what is left may admit
        a little more than that.

        With a ``scope``, what is left for a release in that scope, its quotas included.
        """
        if scope is not None:
            check_scope("scope", scope)
        with self._recorder.reading() as balance:
            return balance.remaining(scope)

    def holds(self, release: Release, label: str | None = None) -> bool:
        """Whether the cost of a run that goes on is recorded, under ``label`` if that is given.

        It is so up to last digits, which another version or machine may have found otherwise when it calibrated.
        """
        rows = (row.release for row in self.rows() if label is None or row.label == label)
        return any(alike(recorded, release) for recorded in rows)

    def rows(self, *, scope: str | None = None) -> list[Row]:
        """Everything recorded (in a scope and its parts), oldest first, each row with its outcome so far.

        Raises
        ------
        OSError
            If the ledger's witness does not have all of it, and does not answer.
        """
        recorder = self._recorder
        with recorder.held() as position:
            if self.closed:
                found = RowsRead().extended((entry for _, entry in recorder.store.everything(position)), position)
            else:
                found = self._rows.read(recorder.store)
            recorder.tell(max(position.entries, self._rows.entries))
        return found if scope is None else [row for row in found if inside(row.scope, scope)]

    def verify(self, *, expected_head: str | None = None) -> str:
        """Read every entry again, and check hashes, entries, summaries and the filter's sums; the verified head.

        Opening a file verifies what follows its last summary; this verifies all of it.

        Raises
        ------
        LedgerCorrupted
            Naming the entry that is wrong, or if ``expected_head`` is not in the ledger.
        """
        with self._recorder.held() as position:
            return verified(self._recorder.store, position, expected_head)

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
        return json_and_csv.dumps(self._entries())

    def to_csv(self) -> str:
        """Everything recorded as CSV text, one line per row, mark and quota, for a spreadsheet."""
        return json_and_csv.to_csv(self._entries())

    def _entries(self) -> list[Entry]:
        with self._recorder.held() as position:
            return [entry for _, entry in self._recorder.store.everything(position)]

    # ----------------------------------------------------------------------------------------------------------- copies

    def backup(self, path: str | os.PathLike[str]) -> str:
        """Copy a ledger in a file or in PostgreSQL, as it is at one moment, also while others spend; the copy's head.

        To a file, or to the address of a database. The copy is verified. Note its head elsewhere: restored with
        ``expected_head``, it is known to be this one.

        Raises
        ------
        FileExistsError
            If something is at ``path`` already.
        ValueError
            If the ledger is in memory (see :meth:`to_json`) or closed.
        """
        with self._recorder.lock:
            if self.closed:
                raise ValueError("only an open ledger in a file can be backed up, and this one is closed")
            store = self._recorder.store
            if not isinstance(store, Database):
                what = "only a ledger in a file or a database can be backed up, and this one is in memory"
                raise ValueError(f"{what}: keep its to_json()")
            if Path(path).is_symlink():
                raise FileExistsError(f"{path} is a link, and a copy of a ledger replaces nothing")
            store.copy(_stored(path))
        with type(self).open(path) as copy:
            return copy.verify()

    @classmethod
    def restore(
        cls, backup: str | os.PathLike[str], path: str | os.PathLike[str], *, expected_head: str | None = None
    ) -> Ledger:
        """The ledger of a backup, verified and copied to ``path``, where nothing may be yet.

        What was spent after the backup was made is not in it. Give the last head that was noted, or spend nothing
        from the restored ledger before you know what is missing.

        Raises
        ------
        FileExistsError
            If something is at ``path`` already.
        LedgerCorrupted
            If the backup does not verify, or does not contain ``expected_head``.
        """
        if not (source := _stored(backup)).exists():
            raise FileNotFoundError(f"there is no backup {source.name}")
        with cls.open(backup) as ledger:
            ledger.verify(expected_head=expected_head)
            ledger.backup(path)
        return cls.open(path)

    @classmethod
    def from_json(cls, text: str, *, expected_head: str | None = None) -> Ledger:
        """The ledger, in memory, that :meth:`to_json` wrote; verified like a file.

        Raises
        ------
        LedgerCorrupted
                If the text is not a ledger, its chain does not verify, or it does not contain ``expected_head``.
        """
        return _from_entries(cls, json_and_csv.loads(text, expected_head), closed=False)

    @classmethod
    def catch_up(cls, path: str | os.PathLike[str], witness: str | os.PathLike[str] | Witness) -> int:
        """Add to a ledger that was put back from an older copy what its witness has seen since; how many entries.

        What was released stays charged then. It does not bring back the states of what released: those must be as new.

        Raises
        ------
        FileNotFoundError
            If there is no ledger, or no witness.
        LedgerCorrupted
            If either does not verify, or they have different histories: nothing is added then.

        Examples
        --------
        >>> import shutil, tempfile
        >>> from accounting import Budget, Gaussian, Ledger
        >>> path, witness = (f"{tempfile.mkdtemp()}/a.ledger" for _ in range(2))
        >>> with Ledger.create(path, Budget(1.0, 1e-6), witness=witness) as ledger:
        ...     copy = shutil.copy(path, path + ".old")
        ...     row = ledger.spend(Gaussian(6.0), label="monthly means")
        >>> copy = shutil.copy(path + ".old", path)   # a volume goes back to its last snapshot
        >>> Ledger.open(path, witness=witness)
        Traceback (most recent call last):
            ...
        accounting.errors.LedgerBehind: /...a.ledger holds 1 entries, and its witness /...a.ledger has seen 2: ...
        >>> Ledger.catch_up(path, witness)
        1
        >>> Ledger.open(path, witness=witness).rows()[0].label
        'monthly means'
        """
        with closing(_stored(path)) as stored:
            if not stored.exists():
                raise FileNotFoundError(f"there is no ledger {stored.name}: Ledger.restore makes one of a backup")
            watch = _watch(witness, stored)
            if watch is None:
                raise TypeError("witness must be given, as it has the entries that the ledger lacks, got witness=None")
            with closing(watch):
                added = watch.give_back()
        with cls.open(path, witness=witness) as ledger:
            ledger.verify()
        return added

    # ---------------------------------------------------------------------------------------------------------- closing

    @property
    def closed(self) -> bool:
        """Whether nothing more can be recorded."""
        return self._recorder.closed

    def close(self) -> None:
        """Record nothing more. What is recorded can still be read; closing twice is harmless."""
        self._recorder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        acting = {"_actor": self._actor, "_within": self._within}
        with self._recorder.held() as position:
            store = self._recorder.store
            if isinstance(store, Database):
                watch = self._recorder.watch
                witness = None if watch is None else watch.given
                return _reopened, (type(self), store.address, position.head, self.closed, witness), acting
            return _from_entries, (type(self), self._entries(), self.closed), acting


def _stored(path: str | os.PathLike[str]) -> Database:
    """What keeps a ledger, by its path or address."""
    if isinstance(path, str) and is_url(path):
        from accounting.ledger.storage.postgresql import PostgreSQLSchema

        return PostgreSQLSchema(place(path, schema="ledger"))
    from accounting.ledger.storage.sqlite import SQLiteFile

    return SQLiteFile(Path(path))


def _witnessing(witness: str | os.PathLike[str], stored: Database) -> Database:
    """What keeps the entries at a path or an address, which must not be the ledger's own."""
    found = _stored(witness)
    if found.address == stored.address:
        raise ValueError(f"witness must be another place than the ledger's, got {found.name}: use another volume")
    return found


def _new_witness(witness: str | os.PathLike[str] | Witness | None, stored: Database) -> Database | None:
    """Where the witness of a new ledger is to be made, if it is one at a path or an address; it must have seen nothing.

    Raises
    ------
    FileExistsError
        If it has seen something.
    FileNotFoundError
        If the folder for it is missing.
    """
    if witness is None:
        return None
    if isinstance(witness, Witness):
        made, name, there = None, witness.name, witness.newest()[0] > 0
    else:
        made = _witnessing(witness, stored)
        name, there = made.name, made.exists()
        if made.path is not None and not made.path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {made.path.parent} for the witness: is its volume mounted?")
    if there:
        raise FileExistsError(
            f"there is a witness {name} already, of a ledger that is elsewhere or lost: Ledger.restore makes that one "
            f"again of its witness, and a new ledger needs a witness of its own"
        )
    return made


def _watch(witness: str | os.PathLike[str] | Witness | None, stored: Database) -> Watch | None:
    """What looks after a ledger for its witness."""
    if witness is None:
        return None
    if isinstance(witness, Witness):
        return Watch(witness, witness, stored)
    found = _witnessing(witness, stored)
    if not found.exists():
        raise FileNotFoundError(
            f"there is no witness {found.name}: is the path right, and its volume mounted? One for a ledger that is "
            f"there is made by Ledger.backup or `dpkit ledger backup`"
        )
    return Watch(found.address, found, stored)


def _opening(
    budget: Budget | None, accountant: Measure | None, failure_delta: float | None, plan: Release | None
) -> Opening:
    """A checked opening."""
    check_choices(budget, accountant, failure_delta, plan)
    return Opening(datetime.now(UTC), budget, accountant, failure_delta, plan, nonce=nonce())


def _from_entries(cls: type[Ledger], entries: list[Entry], closed: bool) -> Ledger:
    """The ledger in memory that holds these entries."""
    ledger = cls.__new__(cls)
    ledger._begin(MemoryStore(entries))
    ledger._recorder.position()
    ledger._recorder.closed = closed
    return ledger


def _reopened(cls: type[Ledger], path: str, head: str, closed: bool, witness: Any = None) -> Ledger:
    """Another view of the same file."""
    ledger = cls.open(path, expected_head=head, witness=witness)
    if closed:
        ledger.close()
    return ledger

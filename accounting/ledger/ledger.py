"""The ledger: every release is recorded, and checked against the budget, before its noise is drawn."""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from accounting.budget import Budget
from accounting.errors import LedgerCorrupted
from accounting.ledger import export
from accounting.ledger.book import Book
from accounting.ledger.entries import Entry, Mark, Opening, Outcome, Row, Settlement, Spend
from accounting.ledger.filters import Measure, check_rule
from accounting.releases import Release
from accounting.totals import Bound, epsilon

if TYPE_CHECKING:
    from accounting.ledger.file import LedgerFile

__all__ = ["Ledger"]

_E = TypeVar("_E", Spend, Settlement, Mark)


class Ledger:
    """Record releases and refuse the one that would pass the budget.

    ``Ledger(budget)`` lives in memory, :meth:`Ledger.open` in a file that several processes may share; both are
    used alike. Reserve, release, commit: :meth:`spend` (or :meth:`reserve`) records a release before it happens,
    and from then on it counts, also if the process dies before anything leaves.

    Parameters
    ----------
    budget : Budget, optional
        Without one, everything is recorded and nothing refused.
    accountant : {"gdp", "pure", "rdp", "zcdp"}, optional
        The measure that the filter adds up (see :mod:`accounting.ledger.filters`). By default the first release
        fixes it: gdp for Gaussians, zcdp where only ρ is known, rdp otherwise.
    failure_delta : float, optional
        The part of the budget's δ that is kept for releases that may fail outright (``ApproxDP``). By default the
        first release fixes it: half if it may fail itself, nothing if not.
    plan : Release, optional
        Everything that will be released, if that is known in advance: then the tightest accountant prices it as
        a whole, and the ledger admits the releases of the plan, in any order, and no others.

    Raises
    ------
    BudgetExceeded
        If the plan passes the budget.

    Notes
    -----
    Scopes. ``scope=None`` means all of the data. Named scopes are disjoint parts of it, fixed by public
    information; they compose in parallel with each other and sequentially with ``None``.

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
        self._start(_opening(budget, accountant, failure_delta, plan), None)

    def _start(self, opening: Opening, file: LedgerFile | None) -> None:
        self._book = Book(opening)
        self._file = file
        self._closed = False
        # whether the books may lag behind the file, so that not even an interrupt can hide a spend
        self._stale = file is not None
        self._lock = threading.RLock()
        with _registry_lock:
            _ledgers.add(self)

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
    ) -> Ledger:
        """Open the ledger in a file, or make one; every entry is verified first.

        Parameters
        ----------
        path : path
            An SQLite file on a local disk. While it is open, ``path-wal`` belongs to it.
        budget, accountant, failure_delta, plan
            As for :class:`Ledger`. They are fixed when the file is made: afterwards they may be left out, and must
            not be others.
        expected_head : str, optional
            A :attr:`head` that was noted earlier, elsewhere. The ledger must still contain it, which detects what
            the file alone cannot show: an older copy put in its place, or a history rewritten with new hashes.

        Raises
        ------
        LedgerCorrupted
            If the file is not a ledger, its chain does not verify (the entry is named), or ``expected_head`` is
            not in it.
        ValueError
            If it was made with another budget or other choices.

        Examples
        --------
        >>> import tempfile
        >>> from accounting import Budget, Gaussian, Ledger
        >>> path = tempfile.mkdtemp() + "/releases.ledger"
        >>> with Ledger.open(path, Budget(1.0, 1e-6)) as ledger:
        ...     with ledger.reserve(Gaussian(6.0), label="monthly means"):
        ...         pass  # draw the noise and publish
        >>> with Ledger.open(path) as ledger:
        ...     print(ledger.budget, ledger.rows()[0].outcome)
        Budget(epsilon=1.0, delta=1e-06, adjacency='replace', unit='row') released
        """
        from accounting.ledger.file import LedgerFile

        asked = _opening(budget, accountant, failure_delta, plan)
        file = LedgerFile(Path(path).absolute())
        if expected_head is not None and not file.path.exists():
            raise LedgerCorrupted(f"{file.path} is missing, and with it the expected head {expected_head}")
        file.create(asked)
        ledger = cls.__new__(cls)
        ledger._start(asked, file)
        try:
            heads = ledger._catch_up()
            if expected_head is not None and expected_head not in heads:
                raise LedgerCorrupted(
                    f"{file.path} does not contain the expected head {expected_head}: it is an older copy, another "
                    f"ledger, or its history was rewritten"
                )
            for name in ("budget", "accountant", "failure_delta", "plan"):
                wanted, stored = getattr(asked, name), getattr(ledger._book.opening, name)
                if wanted is not None and wanted != stored:
                    raise ValueError(f"{file.path} was made with {name}={stored!r}, got {name}={wanted!r}")
        except BaseException:
            file.disconnect()
            raise
        return ledger

    @property
    def budget(self) -> Budget | None:
        """What may be spent; fixed when the ledger was made."""
        return self._book.budget

    @property
    def path(self) -> Path | None:
        """The file that holds the ledger, or None in memory."""
        return None if self._file is None else self._file.path

    @property
    def accountant(self) -> str | None:
        """What the filter counts: the caller's choice, or the first release's, or None while that is open."""
        with self._reading() as book:
            return book.opening.accountant if book.filter is None else book.filter.rule.accountant

    @property
    def head(self) -> str:
        """The hash of the last entry: noted elsewhere, it pins down everything recorded so far."""
        with self._reading() as book:
            return export.chained(book.entries)[0] if self._file is None else self._file.head

    @property
    def closed(self) -> bool:
        """Whether nothing more can be recorded."""
        return self._closed

    def spend(
        self,
        release: Release,
        *,
        label: str = "",
        scope: str | None = None,
        unit: str | None = None,
        simulation: bool = False,
        unique: bool = False,
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
        if not isinstance(label, str):
            raise TypeError(f"label must be a string, got label={label!r}")
        for name, value in (("scope", scope), ("unit", unit)):
            if value is not None and not (isinstance(value, str) and value):
                raise TypeError(f"{name} must be a nonempty string or None, got {name}={value!r}")

        def decide(book: Book) -> Spend:
            if unique and label in book.labels:
                raise ValueError(f"label must be new, got label={label!r}, which the ledger holds already")
            row = Row(len(book.rows), datetime.now(UTC), label, scope, release, bool(simulation), unit)
            return Spend(row, book.admit(row))

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

        def decide(book: Book) -> Settlement:
            book.check_settlement(row.index, outcome)
            if book.rows[row.index] != row:
                raise ValueError(f"row {row.index} of this ledger is another one than {row!r}")
            return Settlement(row.index, outcome, datetime.now(UTC))

        self._record(decide)

    def mark(self, run: str, step: int, digest: str, *, label: str = "", simulation: bool = False) -> Mark:
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

        def decide(book: Book) -> Mark:
            made = Mark(run, step, digest, datetime.now(UTC), label, simulation)
            book.check_mark(made)
            return made

        return self._record(decide)

    def newest_mark(self, run: str) -> Mark | None:
        """The last mark of a run, by whichever process; None if it has none."""
        with self._reading() as book:
            return book.marks.get(run)

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

    def epsilon(self, delta: float | None = None) -> Bound:
        """The smallest proved ε of everything recorded, at ``delta`` (by default the budget's)."""
        if delta is None:
            if self.budget is None:
                raise ValueError("delta must be given for a ledger without a budget, got delta=None")
            delta = self.budget.delta
        return epsilon(self.total, delta)

    def remaining(self) -> float:
        """The budget's ε less what the filter counts as spent, at the budget's δ; infinite without a budget."""
        with self._reading() as book:
            return math.inf if book.budget is None else max(0.0, book.budget.epsilon - book.spent())

    def rows(self) -> list[Row]:
        """Everything recorded, oldest first, each row with its outcome so far."""
        with self._reading() as book:
            return list(book.rows)

    def close(self) -> None:
        """Record nothing more. What is recorded can still be read; closing twice is harmless."""
        with self._lock:
            if self._closed:
                return
            try:
                self._catch_up()
            finally:
                self._closed = True
                if self._file is not None:
                    self._file.disconnect()

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
        with self._reading() as book:
            return export.dumps(book.entries)

    @classmethod
    def from_json(cls, text: str, *, expected_head: str | None = None) -> Ledger:
        """The ledger, in memory, that :meth:`to_json` wrote; verified like a file.

        Raises
        ------
        LedgerCorrupted
                If the text is not a ledger, its chain does not verify, or it does not contain ``expected_head``.
        """
        return _from_entries(cls, export.loads(text, expected_head), closed=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Ledger], tuple[object, ...]]:
        with self._reading() as book:
            if self._file is None:
                return _from_entries, (type(self), list(book.entries), self._closed)
            return _reopened, (type(self), str(self._file.path), self._file.head, self._closed)

    @contextmanager
    def _reading(self) -> Iterator[Book]:
        """The books, up to date and held."""
        with self._lock:
            if not self._closed:
                self._catch_up()
            yield self._book

    def _record(self, decide: Callable[[Book], _E]) -> _E:
        """Record the entry that ``decide`` makes of the books, held and up to date; durably, if in a file."""
        with self._lock:
            if self._closed:
                raise ValueError("the ledger is closed: nothing was recorded, and nothing may be released")
            if self._file is None:
                entry = decide(self._book)
                self._book.apply(entry)
                return entry
            with self._file.transaction():
                self._catch_up()
                entry = decide(self._book)
                self._stale = True
                position = self._file.append(entry)
            self._file.advance(position)
            self._book.apply(entry)
            self._stale = False
            return entry

    def _catch_up(self) -> list[str]:
        """Apply what other processes recorded; the hashes of the entries that were read."""
        if self._file is None:
            return []
        if self._stale:
            self._file.rewind()
        rebuild, self._stale = self._stale, True
        found = self._file.unread()
        entries = [entry for _, entry in found]
        if rebuild:
            self._book = Book.of(entries, str(self._file.path))
        else:
            self._book.extend(entries, str(self._file.path))
        self._stale = False
        return [head for head, _ in found]


def _opening(
    budget: Budget | None, accountant: Measure | None, failure_delta: float | None, plan: Release | None
) -> Opening:
    """A checked opening."""
    if budget is not None and not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget or None, got budget={budget!r}")
    check_rule(budget, accountant, failure_delta, plan)
    return Opening(datetime.now(UTC), budget, accountant, failure_delta, plan)


def _from_entries(cls: type[Ledger], entries: list[Entry], closed: bool) -> Ledger:
    """The ledger in memory that holds these entries."""
    ledger = cls.__new__(cls)
    book = Book.of(entries, "the ledger")
    ledger._start(book.opening, None)
    ledger._book, ledger._closed = book, closed
    return ledger


def _reopened(cls: type[Ledger], path: str, head: str, closed: bool) -> Ledger:
    """Another view of the same file."""
    ledger = cls.open(path, expected_head=head)
    if closed:
        ledger.close()
    return ledger


# A fork copies locks in whatever state they are, and connections must not cross it at all. So the forking thread
# waits for every ledger to be at rest, closes the connections, and lets go on both sides.
_ledgers: weakref.WeakSet[Ledger] = weakref.WeakSet()
_registry_lock = threading.RLock()
_held: list[Ledger] = []


def _before_fork() -> None:
    _registry_lock.acquire()
    for ledger in list(_ledgers):
        ledger._lock.acquire()
        _held.append(ledger)
        if ledger._file is not None:
            ledger._file.disconnect()


def _after_fork() -> None:
    while _held:
        _held.pop()._lock.release()
    _registry_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)

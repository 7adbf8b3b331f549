"""The ledger: every release is recorded, and checked against the budget, before its noise is drawn.

What it records is in :mod:`accounting.ledger.recording`, what it answers in :mod:`accounting.ledger.asking`, how both
stay together in :mod:`accounting.ledger.keeper`; what it decides is in :mod:`accounting.ledger.book`, where it lies in
:mod:`accounting.ledger.file` and :mod:`accounting.ledger.server`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from accounting.budget import Budget
from accounting.errors import LedgerCorrupted
from accounting.ledger import export
from accounting.ledger.asking import Asking
from accounting.ledger.book import Book
from accounting.ledger.entries import Entry, Opening
from accounting.ledger.filters import Measure, check_rule
from accounting.ledger.journal import MemoryJournal
from accounting.ledger.recording import Recording
from accounting.postgres import is_url, place
from accounting.releases import Release

if TYPE_CHECKING:
    from accounting.ledger.stored import Stored

__all__ = ["Ledger"]


class Ledger(Recording, Asking):
    """Record releases and refuse the one that would pass the budget.

    ``Ledger(budget)`` lives in memory, :meth:`Ledger.open` in a file or in PostgreSQL, shared by several processes;
    all are used alike. Reserve, release, commit: :meth:`spend` (or :meth:`reserve`) records a release before it
    happens, and from then on it counts, also if the process dies before anything leaves.

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
        self._start(MemoryJournal([_opening(budget, accountant, failure_delta, plan)]))

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
        create: bool = True,
    ) -> Ledger:
        """Open the ledger in a file or in PostgreSQL, or make one; every entry is verified first.

        Parameters
        ----------
        path : path or address
            An SQLite file on a local disk. While it is open, ``path-wal`` belongs to it. Or the address of a database,
            ``"postgresql://user@host/database?schema=ledger"``, with the schema that the ledger has to itself
            (``"ledger"`` if none is named); processes on any number of hosts may share it. It needs the extra
            ``postgres``.
        budget, accountant, failure_delta, plan
            As for :class:`Ledger`. They are fixed when the file is made: afterwards they may be left out, and must
            not be others.
        expected_head : str, optional
            A :attr:`head` that was noted earlier, elsewhere. The ledger must still contain it, which detects what
            the file alone cannot show: an older copy put in its place, or a history rewritten with new hashes.
        create : bool
            Make one where there is none; else that is a ``FileNotFoundError``, as a misspelt path deserves.

        Raises
        ------
        LedgerCorrupted
            If the file is not a ledger, its chain does not verify (the entry is named), or ``expected_head`` is
            not in it.
        OSError
            If the disk or the server cannot be used.
        ValueError
            If it was made with another budget or other choices, or the server does not write through to its disk.

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
        asked = _opening(budget, accountant, failure_delta, plan)
        stored = _stored(path)
        try:
            if not (create and expected_head is None) and not stored.exists():
                if not create:
                    raise FileNotFoundError(f"there is no ledger {stored.name}")
                raise LedgerCorrupted(f"{stored.name} is missing, and with it the expected head {expected_head}")
            if create:
                stored.create(asked)
            ledger = cls.__new__(cls)
            ledger._start(stored)
            with ledger._reading() as book:
                opening = book.opening
            if expected_head is not None:
                ledger.verify(expected_head=expected_head)
            for name in ("budget", "accountant", "failure_delta", "plan"):
                wanted, made = getattr(asked, name), getattr(opening, name)
                if wanted is not None and wanted != made:
                    raise ValueError(
                        f"{stored.name} was made with {name}={made!r}, got {name}={wanted!r}: leave {name} out to "
                        f"open it as it is, or make another ledger"
                    )
        except BaseException:
            stored.disconnect()
            raise
        return ledger

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
        with self._lock:
            if self._closed:
                raise ValueError("only an open ledger in a file can be backed up, and this one is closed")
            if Path(path).is_symlink():
                raise FileExistsError(f"{path} is a link, and a copy of a ledger replaces nothing")
            self._journal.copy(_stored(path))
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
        return _from_entries(cls, export.loads(text, expected_head), closed=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Ledger], tuple[object, ...]]:
        with self._lock:
            position = self._position()
            if isinstance(self._journal, MemoryJournal):
                entries = [entry for _, entry in self._journal.everything(position)]
                return _from_entries, (type(self), entries, self._closed)
            return _reopened, (type(self), self._journal.address, position.head, self._closed)

    # ------------------------------------------------------------------------- the books and the journal


def _stored(path: str | os.PathLike[str]) -> Stored:
    """What keeps a ledger, by its path or address."""
    if isinstance(path, str) and is_url(path):
        from accounting.ledger.server import LedgerServer

        return LedgerServer(place(path, schema="ledger"))
    from accounting.ledger.file import LedgerFile

    return LedgerFile(Path(path))


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
    Book.of(entries, "the ledger")
    ledger._start(MemoryJournal(entries))
    ledger._position()
    ledger._closed = closed
    return ledger


def _reopened(cls: type[Ledger], path: str, head: str, closed: bool) -> Ledger:
    """Another view of the same file."""
    ledger = cls.open(path, expected_head=head)
    if closed:
        ledger.close()
    return ledger

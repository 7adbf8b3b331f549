"""A witness: a second place that has seen every entry of a ledger, on another volume, so that going back shows.

A ledger that was put back from an older copy verifies, and has budget left that was spent: nothing in the file itself
can tell. Whoever keeps a copy of the same chain elsewhere can, and knows what is missing, too. So a witness holds the
entries, and not only the last hash: what was spent is then charged again by adding them (:meth:`Watch.give_back`).

*Order.* An entry is first in the ledger, then with the witness, and only then does a spend return and is noise drawn. A
crash between the two leaves the witness one entry behind, of which nothing was released; the next opening tells it. So
a witness that has seen more than the ledger holds means that the ledger went back, always.

*Reading.* Another process may see an entry in the ledger before the witness has it. Whoever acts on it (a draft that
has its mark is published, a run that is charged begins) would release for an entry that the witness never got. So a
ledger tells its witness what it has read before it answers (:meth:`accounting.ledger.recorder.Recorder.tell`). And
nothing is recorded on top of what the witness lacks, so that retries against one that is away charge once.

*Branches.* Two copies of a ledger that are spent from side by side have different entries of the same number. A witness
takes the first, and refuses the second before its noise is drawn.

*What it does not show.* A ledger and a witness that go back together: keep them on different volumes, in different
backups.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from accounting.errors import LedgerBehind, LedgerCorrupted
from accounting.ledger.storage.database import Database, Rows

__all__ = ["Watch", "Witness"]


@runtime_checkable
class Witness(Protocol):
    """What keeps the entries of a ledger elsewhere, such as an object store with one object for each entry.

    An entry is a number, a text and its hash. What is here is never replaced. A ledger in a file or a database is one.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from accounting import Budget, Ledger, PureDP
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place, elsewhere = Path(folder) / "spends.ledger", Path(folder) / "witness.ledger"
    ...     with Ledger.create(place, Budget(1.0, 0.0), witness=elsewhere) as ledger:
    ...         _ = ledger.spend(PureDP(0.1), label="count")
    ...     with Ledger.open(elsewhere) as witness:
    ...         len(witness.rows())
    1
    """

    @property
    def name(self) -> str:
        """For messages."""

    def newest(self) -> tuple[int, str]:
        """How many entries are here, and the hash of the last; ``(0, "")`` where there is none."""

    def add(self, rows: Rows) -> None:
        """Keep entries, durably when this returns. Those that are here already must be the same.

        Raises
        ------
        LedgerCorrupted
            If another entry has the number of one of them.
        OSError
            If it is not known whether they are kept.
        """

    def rows(self, first: int) -> Rows:
        """The entries from a number on."""

    def close(self) -> None:
        """Let go of connections; the next use opens others."""


class Watch:
    """A ledger and its witness.

    Parameters
    ----------
    given : Any
        What the caller named it by, to open it again elsewhere.
    witness : Witness
    store : Database
        The ledger's.
    """

    def __init__(self, given: Any, witness: Witness, store: Database) -> None:
        self.given, self._witness, self._store = given, witness, store
        self.seen = 0  # how many entries the witness surely has

    def check(self) -> None:
        """Refuse a ledger that does not hold what the witness has seen, and tell the witness what it lacks.

        Raises
        ------
        LedgerBehind, LedgerCorrupted
        """
        seen, head = self._witness.newest()
        here = self._store.newest().entries
        if here < seen:
            raise LedgerBehind(
                f"{self._store.name} holds {here} entries, and its witness {self._witness.name} has seen {seen}: an "
                f"older copy was put in its place. Nothing may be spent before what is missing is charged: Ledger."
                f"catch_up, `dpkit ledger catch-up`, or `dpbandits serve restore` for a service"
            )
        self._same(seen, head)
        self.seen = seen
        self.follow()

    def follow(self) -> None:
        """Tell the witness everything that it has not seen; durable there when this returns.

        Raises
        ------
        OSError
            If the witness does not answer. What was recorded counts, and nothing may be released for it.
        LedgerCorrupted
            If the witness has seen another history.
        """
        rows = self._store.rows(self.seen)
        if not rows:
            return
        try:
            self._witness.add(rows)
        except (OSError, LedgerCorrupted) as error:
            gone = isinstance(self._witness, Database) and not self._witness.exists()
            if isinstance(error, LedgerCorrupted) and not gone:
                raise
            # the witness speaks of itself; what it lacks stands in the ledger all the same
            raise (TimeoutError if isinstance(error, TimeoutError) else OSError)(
                f"{self._store.name} holds entries that its witness {self._witness.name} does not have ({error}): "
                f"they count, nothing may be released for a spend or a mark among them, and nothing more recorded or "
                f"told before the witness has them. If it is lost, Ledger.backup or `dpkit ledger backup` makes another"
            ) from error
        # a signal handler may have told more in the meantime
        self.seen = max(self.seen, rows[-1][0] + 1)

    def give_back(self) -> int:
        """Add to the ledger what the witness has seen and the ledger lacks; how many entries."""
        before = self._store.newest()
        seen, _ = self._witness.newest()
        rows = self._witness.rows(max(0, before.entries - 1))
        if seen <= before.entries:
            return 0
        self._store.add(rows)
        return self._store.newest().entries - before.entries

    def close(self) -> None:
        """Let go of the witness's connections."""
        self._witness.close()

    def _same(self, seen: int, head: str) -> None:
        if seen and self._store.rows(seen - 1)[0][2] != head:
            raise LedgerCorrupted(
                f"{self._store.name}: its witness {self._witness.name} has seen another entry {seen - 1}: the ledger "
                f"was replaced, or two copies of it were spent from"
            )

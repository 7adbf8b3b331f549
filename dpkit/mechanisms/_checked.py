"""What every mechanism does with a budget and a ledger: calibrate its noise, and record the cost before it draws."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from accounting import Adjacency, Budget, Release, calibrate
from accounting.checks import integer, ledger_or_none
from dpkit import randomness

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one
    from accounting.ledger import Row
    from accounting.ledger.record.entry_types import Outcome

__all__ = ["charge", "charged", "settle", "smallest_multiplier", "still_spent"]


def smallest_multiplier(make_release: Callable[[float, Adjacency], Release], budget: Budget, releases: int) -> float:
    """The smallest noise multiplier at which ``releases`` releases together meet ``budget``."""
    count = integer("releases", releases, at_least=1)
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget, got budget={budget!r}")
    return calibrate(lambda z: count * make_release(z, budget.adjacency), budget)


def charge(ledger: Ledger | None, cost: Release, label: str, rng: np.random.Generator) -> Row | None:
    """Record a release that is about to happen, if there is a ledger; raises where the ledger refuses."""
    ledger = ledger_or_none(ledger)
    if ledger is None:
        return None
    return ledger.spend(cost, label=label, simulation=randomness.is_simulation(rng))


def settle(ledger: Ledger | None, row: Row | None, outcome: Outcome = "released") -> None:
    """Note that what was charged is about to be handed out, or what else became of it.

    After the last noise was drawn: whatever dies before leaves a row that counts as spent, and says no more than that
    it was reserved. An answer is not lost where the note cannot be written, or not reach the ledger's witness: ledger
    and witness had the row before its noise was drawn, and it counts whatever stands in it. A ledger that does not hold
    the row any more (``LedgerCorrupted``, ``ValueError``) is another matter: then nothing is handed out.
    """
    if ledger is not None and row is not None:
        try:
            ledger.commit(row, outcome)
        except OSError as error:
            warnings.warn(
                f"{row.label or 'a release'}: row {row.index} of the ledger is paid, and counts as spent; that it was "
                f"{outcome} could not be noted everywhere: {error}",
                stacklevel=3,
            )


@contextmanager
def charged(ledger: Ledger | None, cost: Release, label: str, rng: np.random.Generator) -> Iterator[None]:
    """A block that draws the noise of one release: :func:`charge` before it, and :func:`settle` after it.

    Whatever ends the block before its end leaves a row that is only reserved; Ctrl-C says so in a line of its own.
    """
    row = charge(ledger, cost, label, rng)
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if row is not None:
            interrupt.add_note(still_spent(label, row))
        raise
    settle(ledger, row)


def still_spent(label: str, row: Row) -> str:
    """What an interrupt leaves of a release that was charged."""
    return f"{label}: nothing of it is kept, and row {row.index} of the ledger, {row.release!r}, stays spent"

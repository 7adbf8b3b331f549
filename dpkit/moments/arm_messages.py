"""Sums of numbers that belong to a few public things ("arms"), of which every user sends a randomized report.

The local twin of :mod:`dpkit.moments.arm_batches`: nobody sees more of a record than one report
(:mod:`dpkit.moments.reports`) and its arm, which is public. Reports are counted by arm, and nothing else is kept.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, PureDP, Release, calibrate
from accounting.checks import integer
from dpkit import randomness
from dpkit.mechanisms._checked import charge
from dpkit.moments.reports import Reports
from dpkit.states import entries

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["ArmMessages"]

# beyond it a report is right but for one in 10¹³
_LARGEST_EPSILON = 30.0


class ArmMessages:
    """Sums of r − c by arm, c the middle of the range, from randomized reports.

    Privacy. Adjacency: the budget's, "replace" or "zero_out" (at the price of "replace"). Unit: one record, or all m of
    a person. Cost: ``cost``, that of a user's own reports, m times one ε₀-DP report; each is private by itself, against
    everybody who sees it. Not protected: of which arm a record is, and whether and when it comes.

    Parameters
    ----------
    arms : int
        K at the start.
    low, high : float
        The range of records.
    budget : Budget
        What one report may cost, or all reports of a person; δ may be 0.
    levels : int
        Of a report, see :class:`~dpkit.moments.reports.Reports`: two have the least noise for records that are either
        end of the range.
    records : int
        m, where the unit is a person.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with ``cost`` here, before any noise is drawn.

    Attributes
    ----------
    noise : float
        The standard deviation of the noise in one report of a record at an end of the range.
    received : (K, levels) ndarray of int
        How many reports of each kind came of each arm since its last release.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range. Nothing is charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.moments.arm_messages import ArmMessages
    >>> sums = ArmMessages(2, 0.0, 1.0, budget=Budget(1.0, 0.0), rng=np.random.default_rng(0))
    >>> for t in range(4000):
    ...     sums.add(t % 2, float(t % 2))
    >>> found, reports = sums.release(0)
    >>> round(found / reports, 1), reports, sums.cost
    (-0.5, 2000, PureDP(epsilon=1.0...))
    """

    def __init__(
        self,
        arms: int,
        low: float,
        high: float,
        *,
        budget: Budget,
        levels: int = 2,
        records: int = 1,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        K, m = integer("arms", arms, at_least=1), integer("records", records, at_least=1)
        if not (low < high and math.isfinite(high - low)):
            raise ValueError(f"low must be less than high, and both finite, got low={low!r} and high={high!r}")
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget, got budget={budget!r}")
        generator, adjacency = randomness.resolve(rng), budget.adjacency
        z = calibrate(lambda z: m * PureDP(1.0 / z, adjacency=adjacency), budget)
        epsilon = min(_LARGEST_EPSILON, 1.0 / z)
        self.reports = Reports(epsilon, levels, rng=generator)
        self.cost: Release = m * PureDP(epsilon, adjacency=adjacency)
        self._low, self._length = low, high - low
        self.noise = self.reports.noise * self._length
        charge(ledger, self.cost, type(self).__name__, generator)
        self.received = np.zeros((K, len(self.reports.values)), np.int64)

    def grow(self) -> None:
        """One more arm."""
        self.received = np.pad(self.received, ((0, 1), (0, 0)))

    def counts(self) -> NDArray[np.int64]:
        """How many reports came of each arm since its last release, shape (K,)."""
        return np.asarray(self.received.sum(axis=1))

    def add(self, arm: int, r: float) -> None:
        """A user's device randomizes its record, and the report is all that is kept.

        Raises
        ------
        ValueError
            If the record is outside of the range. Nothing changes.
        """
        x = (r - self._low) / self._length
        if not -1e-9 <= x <= 1.0 + 1e-9:  # also true for NaN
            raise ValueError(f"r must be from {self._low:g} to {self._low + self._length:g}, got r={r!r}")
        self.received[arm, self.reports.draw(x)] += 1

    def release(self, arm: int) -> tuple[float, int]:
        """The sum of r − c by the reports of an arm since its last release, and how many they were."""
        received = self.received[arm].copy()
        self.received[arm] = 0
        return float(received @ self.reports.values) * self._length, int(received.sum())

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        units = np.array([self._low, self._length, *self.reports.values])
        return {"received": self.received.copy(), "units": units}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked; there are as many arms as in the state already."""
        rest = entries.in_units(saved, (self._low, self._length, *self.reports.values))
        entries.resume(self, ("received",), rest)
        if (self.received < 0).any():
            raise ValueError("received must be at least 0, got others")

"""Running sums of records of any kind, for whoever has a record of their own: what it needs is a sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from accounting import Budget, Release
from accounting.arrays import Array
from accounting.checks import integer, positive
from dpkit.continual import BufferedToeplitz
from dpkit.moments.pairs import whole_digits
from dpkit.states import entries

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["NoisyRecords", "RecordSums"]

# what a record may be too long by rounding
_ROUNDED = 1.0 + 1e-12


@dataclass(frozen=True)
class NoisyRecords:
    """The sum of all records so far, as it was released, and the standard deviation of the noise in each entry.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.moments import NoisyRecords
    >>> NoisyRecords(sums=np.array([3.2, -0.4]), noise=1.5).noise
    1.5
    """

    sums: Array
    noise: float


class RecordSums:
    """Running sums of vectors over batches, each with Gaussian noise, at the cost of ``budget`` in all.

    Privacy. Adjacency: the budget's, "replace" or "zero_out" (a record that comes on one side only). Unit: one record,
    whenever it comes, or a person with one of them. Cost: ``cost``, that of the continual sum, charged once; it covers
    all releases, and records that depend on earlier ones. Which records there are in a batch is secret; when batches
    end is public.

    Sensitivity. A change of one record z to z′ may also move it to another batch, or make it come or vanish. The
    mechanism's factor is nonnegative and has columns of norm at most 1, so that the squared distance of the two streams
    is at most ‖z‖² + ‖z′‖² − 2ϱ·zᵀz′ for some ϱ ∈ [0, 1]: linear in ϱ, and at its ends ‖z‖² + ‖z′‖² and ‖z − z′‖². So
    ``sensitivity`` must be at least

        Δ = max over records z, z′ of max(‖z − z′‖, √(‖z‖² + ‖z′‖²)),    or max ‖z‖ under "zero_out".

    Nobody but the record's author knows it: a record with a smaller one is not protected as the ledger says. (What can
    be seen of a single record, that its length is at most Δ/√2, is checked.)

    Records are rounded to whole numbers of a unit, entry by entry, before they are summed, so that the sum of a batch
    has no rounding error that could tell more than its records do; that adds some 10⁻⁷ of it to the sensitivity.

    Parameters
    ----------
    dimension : int
        Of a record.
    sensitivity : float
        Δ.
    budget : Budget
        With δ > 0.
    releases : int
        How many there are at most.
    horizon : int
        The number of records at most; as they may be late, a batch may have as many.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with ``cost`` here, before any noise is drawn.

    Attributes
    ----------
    sums : ContinualSum
        The mechanism.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range. Nothing is charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.moments import RecordSums
    >>> sums = RecordSums(2, sensitivity=2.0, budget=Budget(1.0, 1e-6), releases=10, horizon=1000)
    >>> for _ in range(100):
    ...     sums.add([1.0, -0.5])
    >>> released = sums.release()
    >>> released.sums.shape, round(released.noise, 2)
    ((2,), 11.28)
    """

    _KEPT = ("sums", "batch")

    def __init__(
        self,
        dimension: int,
        sensitivity: float,
        *,
        budget: Budget,
        releases: int,
        horizon: int,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        size = integer("dimension", dimension, at_least=1)
        releases, horizon = integer("releases", releases, at_least=0), integer("horizon", horizon, at_least=1)
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget, got budget={budget!r}")
        apart = positive("sensitivity", sensitivity)
        self._longest = apart if budget.adjacency == "zero_out" else apart / math.sqrt(2.0)
        digits, slack = whole_digits(horizon, size)
        # a record over the longest there is has entries of at most 1
        self._unit = 2.0**digits / self._longest
        self.sums = BufferedToeplitz.calibrated(
            budget=budget,
            horizon=max(1, releases),
            shape=size,
            sensitivity=apart + slack * self._longest,
            rng=rng,
            ledger=ledger,
        )
        self.batch = np.zeros(size)  # of the open batch, whole numbers

    @property
    def cost(self) -> Release:
        """What all releases together cost a record, or a person."""
        return self.sums.cost

    def add(self, record: ArrayLike) -> None:
        """Take in one record.

        Raises
        ------
        ValueError
            If it is not of ``dimension`` finite entries, or longer than the sensitivity allows.
        """
        z = np.asarray(record, dtype=np.float64)
        if z.shape != self.batch.shape or not float(z @ z) <= (self._longest * _ROUNDED) ** 2:  # also for NaN
            raise ValueError(
                f"record must have shape {self.batch.shape} and length at most {self._longest:g}, as its sensitivity "
                f"says, got shape {z.shape} and length {np.linalg.norm(z):g}"
            )
        self.batch += np.rint(self._unit * z)

    def release(self) -> NoisyRecords:
        """Close the batch: the noisy sum of all records so far."""
        batch, self.batch = self.batch / self._unit, np.zeros_like(self.batch)
        k = self.sums.steps + 1
        return NoisyRecords(np.asarray(self.sums.add(batch)), self.sums.noise_std(k))

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        return entries.kept(self, self._KEPT) | {"units": np.array([self._unit])}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        entries.resume(self, self._KEPT, entries.in_units(saved, [self._unit]))

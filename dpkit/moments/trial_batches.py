"""Private sums of what the participants of an experiment bring, in batches of each arm's own, each of its decisions.

For a test in which every decision counts, whether its values come or not: a batch of arm k is a public number of
decisions for k, closed some announced number of decisions (of any arm) after its last one. A record counts in the
batch of its *own decision*, or, where it comes after that batch was closed, not at all. A decision without a record
counts as the value ``missing``. So a batch's sum is a sum over its decisions, each with one value from the range,
which is what confidence sequences need (``dpbandits.experiment.sequences``), and a record touches one sum only.

Cost per record: O(m) for m metrics; per release m exact draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, Gaussian, Laplace, calibrate
from accounting.checks import integer
from dpkit import randomness
from dpkit.mechanisms._checked import charge
from dpkit.samplers.rounded import rounded_gaussian, rounded_laplace
from dpkit.states import entries

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["STEPS", "TrialBatches"]

# steps of the lattice in the length of a range: what rounding moves is of no importance, and sums stay far below 2**62
STEPS = 2**20
# scales are rounded up
_UP = 1.0 + 2.0**-50
# a value that passes its range by rounding only
_TOLERANCE = 1e-9


class TrialBatches:
    """Noisy sums of (r − missing)/R, R the length of a metric's range, over disjoint batches of each arm's decisions.

    Privacy. Adjacency: the budget's, "replace" or "zero_out" (a record that comes on one side only). Unit: the record
    of one decision, or a person with one decision. Cost: ``cost``, one Laplace or one Gaussian, whichever has less
    noise, charged once for all releases.

    Sensitivity. Let the arm of a decision, and when batches end, be functions of earlier releases and of public draws,
    and so the same in both runs. A record is m whole numbers of steps, each from 0 to S = 2²⁰, of which ``missing`` is
    subtracted; it enters the sum of its decision's batch or, late or absent, none, as if each number were ``missing``.
    So it moves the m sums of one batch, each by at most S under "replace", and by at most the larger distance s_i of
    ``missing`` from an end of the range under "zero_out". All releases together are one vector at an L1 distance of at
    most m·S (or Σs_i) and an L2 distance of at most √m·S (or √Σs_i²), under adaptive inputs. Records are whole
    numbers, and rounded real noise on a whole number is a function of the real-valued mechanism
    (``dpkit.samplers.rounded``).

    Parameters
    ----------
    arms : int
        K.
    ranges : sequence of (float, float)
        Of each metric, finite.
    missing : sequence of float
        What a decision without a record counts as, by metric; within its range.
    ends : sequence of int
        After how many decisions for an arm its batches end.
    wait : int
        How many decisions, of any arm, a batch waits after its last one.
    budget : Budget
        δ may be 0.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with ``cost`` here, before any noise is drawn.

    Attributes
    ----------
    noise : float
        The standard deviation of the noise in a released sum, in lengths of the range.
    scale : float
        The scale of a Laplace, or the standard deviation of a Gaussian variable, in steps, of which the noise is the
        nearest integer.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range. Nothing is charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.moments.trial_batches import STEPS, TrialBatches
    >>> rng = np.random.default_rng(0)
    >>> sums = TrialBatches(2, [(0.0, 1.0)], [0.0], [100], budget=Budget(1.0, 0.0), rng=rng)
    >>> for t in range(200):
    ...     batch = sums.open_batch(t % 2)
    ...     sums.decided(t, t % 2)
    ...     sums.add(t % 2, batch, [float(t % 2)])
    >>> sums.due(200), np.round(sums.release(0, 200) / STEPS, -1), np.round(sums.release(1, 200) / STEPS, -1)
    (0, array([-0.]), array([100.]))
    """

    _KEPT = ("sums", "counts", "filled", "closed", "last", "decisions")

    def __init__(
        self,
        arms: int,
        ranges: Sequence[tuple[float, float]],
        missing: Sequence[float],
        ends: Sequence[int],
        wait: int = 0,
        *,
        budget: Budget,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        K, self.wait = integer("arms", arms, at_least=1), integer("wait", wait, at_least=0)
        for low, high in ranges:
            if not (low < high and math.isfinite(high - low)):
                raise ValueError(f"a range must be increasing and finite, got ({low!r}, {high!r})")
        self._low = np.array([low for low, _ in ranges], dtype=np.float64)
        self._length = np.array([high - low for low, high in ranges], dtype=np.float64)
        self.ends = np.array(ends, dtype=np.int64)
        if self.ends.ndim != 1 or (np.diff(self.ends, prepend=0) < 1).any():
            raise ValueError("ends must increase from at least 1, got others")
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget, got budget={budget!r}")
        self._rng = randomness.resolve(rng)
        if len(missing) != len(ranges):
            raise ValueError(f"missing must have one value for each of {len(ranges)} ranges, got {len(missing)}")
        self._missing = self._steps(missing)
        apart = np.full(len(ranges), STEPS)
        if budget.adjacency != "replace":
            apart = np.maximum(self._missing, STEPS - self._missing)
        self.cost, self.scale = _least_noise(budget, apart)
        self.noise = self.scale * (math.sqrt(2.0) if isinstance(self.cost, Laplace) else 1.0) / STEPS
        if not 2.0**-40 <= self.scale <= 2.0**40:  # refused before it is paid, and not where it is drawn
            raise ValueError(f"budget must allow noise between 2**-40 and 2**40 steps, got {budget!r}")
        charge(ledger, self.cost, type(self).__name__, self._rng)
        batches, metrics = len(self.ends) + 1, len(ranges)
        # of each batch of each arm: whole numbers, and after how many decisions of all arms it had all of its own
        self.sums, self.filled = np.zeros((K, batches, metrics), np.int64), np.zeros((K, batches), np.int64)
        # decisions of each arm but for the last one, which may be made once more: its arm plus one, or 0
        self.counts, self.closed = np.zeros(K, np.int64), np.zeros(K, np.int64)
        self.last, self.decisions = 0, 0

    @property
    def missing(self) -> NDArray[np.float64]:
        """What a decision without a record counts as, in lengths of the range above its lower end, shape (m,)."""
        return self._missing / STEPS

    def _steps(self, values: Sequence[float]) -> NDArray[np.int64]:
        share = (np.asarray(values, dtype=np.float64) - self._low) / self._length
        if share.shape != self._low.shape or not (np.abs(share - 0.5) <= 0.5 + _TOLERANCE).all():  # also for NaN
            raise ValueError(f"values must be one of each metric and within its range, got {list(values)!r}")
        return np.clip(np.rint(share * STEPS), 0, STEPS).astype(np.int64)

    # ------------------------------------------------------------------------------------------------- decisions

    def decided(self, round: int, arm: int) -> None:
        """A decision in a round from 0: the next one, or the last once more, which an interrupt left unmade."""
        if round >= self.decisions:
            self._count()
        self.last, self.decisions = arm + 1, round + 1

    def _count(self) -> None:
        """Count the last decision, once."""
        last, self.last = self.last, 0
        if last:
            batch = self._batch(last - 1)
            self.counts[last - 1] += 1
            if batch < len(self.ends) and self.counts[last - 1] == self.ends[batch]:
                self.filled[last - 1, batch] = self.decisions

    def _batch(self, arm: int) -> int:
        return int(self.ends.searchsorted(self.counts[arm], side="right"))

    def open_batch(self, arm: int) -> int:
        """The batch that the next decision enters, if it is for this arm."""
        return int(self.ends.searchsorted(self.totals(self.decisions)[arm], side="right"))

    def totals(self, decisions: int) -> NDArray[np.int64]:
        """How many of so many decisions each arm had, shape (K,)."""
        totals = self.counts.copy()
        if self.last and self.decisions <= decisions:
            totals[self.last - 1] += 1
        return totals

    def due(self, decisions: int) -> int | None:
        """The first arm of which a batch is to be released, after so many decisions of all arms."""
        if self.decisions <= decisions:
            self._count()
        at = np.minimum(self.closed, len(self.ends) - 1)
        full = self.filled[np.arange(len(at)), at]
        found = np.flatnonzero((self.closed < len(self.ends)) & (full > 0) & (full + self.wait <= decisions))
        return int(found[0]) if len(found) else None

    # ------------------------------------------------------------------------------------------ records and releases

    def add(self, arm: int, batch: int, values: Sequence[float]) -> None:
        """Take in the record of a decision, unless its batch was closed.

        Raises
        ------
        ValueError
            If a value is outside of its range. Nothing changes.
        """
        steps = self._steps(values)
        if batch >= self.closed[arm]:
            self.sums[arm, batch] += steps - self._missing

    def add_many(self, arms: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Take in records of shape (n, m), within their ranges, of n arms: all for the first batch."""
        steps = np.rint((values - self._low) / self._length * STEPS).astype(np.int64).clip(0, STEPS)
        np.add.at(self.sums[:, 0], arms, steps - self._missing)

    def release(self, arm: int, decisions: int) -> NDArray[np.int64]:
        """Close the first open batch of an arm after so many decisions: its noisy sums in steps, shape (m,).

        The last batch of a run may be closed before it has all its decisions: it has those that came.
        """
        if self.decisions <= decisions:
            self._count()
        batch = int(self.closed[arm])
        draw = rounded_laplace if isinstance(self.cost, Laplace) else rounded_gaussian
        noisy = self.sums[arm, batch] + draw(self.scale, self.sums.shape[2], rng=self._rng)
        self.sums[arm, batch] = 0
        self.closed[arm] += 1
        return np.asarray(noisy)

    # ---------------------------------------------------------------------------------------------------- state

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        units = np.concatenate([self._low, self._length, self._missing, [self.scale]])
        return entries.kept(self, self._KEPT) | {"units": units}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        units = np.concatenate([self._low, self._length, self._missing, [self.scale]])
        entries.resume(self, self._KEPT, entries.in_units(saved, units))
        if (self.counts < 0).any() or self.last > len(self.counts) or (self.filled < 0).any():
            raise ValueError("counts must be at least 0, and last name an arm, got others")
        if (self.closed < 0).any() or (self.closed > len(self.ends) + 1).any():
            raise ValueError("closed must be numbers of batches, got others")


def _least_noise(budget: Budget, apart: NDArray[np.int64]) -> tuple[Laplace | Gaussian, float]:
    """The mechanism of the smaller variance that meets the budget at these distances, and its scale in steps."""
    adjacency = budget.adjacency
    laplace = Laplace(calibrate(lambda z: Laplace(z, adjacency=adjacency), budget), adjacency=adjacency)
    scale = laplace.noise_multiplier * float(apart.sum()) * _UP
    if budget.delta > 0:
        gaussian = Gaussian(calibrate(lambda z: Gaussian(z, adjacency=adjacency), budget), adjacency=adjacency)
        sigma = gaussian.noise_multiplier * math.sqrt(float((apart.astype(np.float64) ** 2).sum())) * _UP
        if sigma < math.sqrt(2.0) * scale:
            return gaussian, sigma
    return laplace, scale

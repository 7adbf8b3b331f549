"""Private sums of numbers that belong to a few public things ("arms"), in batches of each arm's own.

For a stream in which each record is a number r about one of K things: how often they earn, how good they are. A batch
of arm k ends after a public number of *decisions* for k, whether or not their records have come; then the sum of r − c
over the records of k that came while it was open is released, c the middle of the range. Batches are disjoint, so that
all releases together cost what one of them does, with δ = 0 where that is asked for. In sums over all batches their
noise adds up: for few batches, which grow.

Cost per record: O(1); per release one exact draw.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from accounting import Adjacency, Budget, Gaussian, Laplace, Release, calibrate
from accounting.checks import choice, integer
from dpkit import randomness
from dpkit.mechanisms._checked import charge
from dpkit.samplers.lattice import from_lattice
from dpkit.samplers.rounded import rounded_gaussian, rounded_laplace
from dpkit.states import entries

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["ArmBatches", "least_noise"]

# steps of the lattice in the length of the range: even, so that the middle and both ends are on it
_STEPS = 2**12
# scales are rounded up
_UP = 1.0 + 2.0**-50


def least_noise(budget: Budget) -> Release:
    """One Laplace or one Gaussian mechanism that meets the budget, whichever has the smaller variance.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.moments.arm_batches import least_noise
    >>> least_noise(Budget(2.0, 0.0)), type(least_noise(Budget(0.1, 0.3))).__name__
    (Laplace(noise_multiplier=0.5...), 'Gaussian')
    """
    laplace, adjacency = _laplace(budget), budget.adjacency
    if budget.delta == 0:
        return laplace
    gaussian = Gaussian(calibrate(lambda z: Gaussian(z, adjacency=adjacency), budget), adjacency=adjacency)
    return min(laplace, gaussian, key=_std)


def _laplace(budget: Budget) -> Laplace:
    adjacency = budget.adjacency
    return Laplace(calibrate(lambda z: Laplace(z, adjacency=adjacency), budget), adjacency=adjacency)


def _std(cost: Release) -> float:
    """The standard deviation of the noise, over the sensitivity."""
    if isinstance(cost, Laplace):
        return math.sqrt(2.0) * cost.noise_multiplier
    if isinstance(cost, Gaussian):
        return cost.noise_multiplier
    raise TypeError(f"cost must be a Laplace or a Gaussian, got {cost!r}")


class ArmBatches:
    """Sums of r − c over disjoint batches of each arm, in whole numbers, with exact noise.

    Privacy. Adjacency: the budget's, "replace" or "zero_out" (a record that comes on one side only). Unit: a record,
    or a person with one. Cost: ``cost``, one Laplace or one Gaussian, charged once for all releases.

    Sensitivity. Let R be the length of the range. |r − c| ≤ R/2. Let the arm of a record, and when batches end, be
    functions of earlier releases and of public draws, and so the same in both runs. A record that is replaced

    * in one batch moves its sum by |r − r′| ≤ R;
    * and comes into another batch (later, or earlier, of any arm) moves two sums, by |r − c| and by |r′ − c|: by
      R/2 + R/2 = R in L1, and by R/√2 in L2;
    * or comes on one side only moves one sum by R/2. That is all that "zero_out" allows.

    So all releases together are one vector at an L1 (and L2) distance of at most R, or R/2 under "zero_out", with
    noise of that scale in each entry: one Laplace(z), or one Gaussian(z), under adaptive inputs. In steps of
    R/4096 records are whole numbers of at most 2048 in size, so that rounding adds nothing to the distances, and
    rounded real noise on a whole number is a function of the real-valued mechanism (``dpkit.samplers.rounded``).

    Parameters
    ----------
    arms : int
        K at the start.
    low, high : float
        The range of records.
    budget : Budget
        δ may be 0.
    law : {"least", "laplace"}
        Of the noise: of Laplace's and Gauss's laws the one with the smaller variance, or Laplace's in any case, for
        whoever computes with its tails.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with ``cost`` here, before any noise is drawn.

    Attributes
    ----------
    noise : float
        The standard deviation of the noise in a released sum.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range. Nothing is charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.moments.arm_batches import ArmBatches
    >>> rng = np.random.default_rng(0)
    >>> sums = ArmBatches(2, 0.0, 1.0, budget=Budget(1.0, 0.0), rng=rng)
    >>> for t in range(200):
    ...     sums.decided(t, t % 2)
    ...     sums.add(t % 2, float(t % 2))
    >>> sums.counts(200).tolist(), round(sums.release(0, 200), -1), round(sums.release(1, 200), -1)
    ([100, 100], -50.0, 50.0)
    """

    _KEPT = ("sums", "counted", "last", "decisions")

    def __init__(
        self,
        arms: int,
        low: float,
        high: float,
        *,
        budget: Budget,
        law: Literal["least", "laplace"] = "least",
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        K = integer("arms", arms, at_least=1)
        if not (low < high and math.isfinite(high - low)):
            raise ValueError(f"low must be less than high, and both finite, got low={low!r} and high={high!r}")
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget, got budget={budget!r}")
        self._centre, self._length, self._rng = 0.5 * low + 0.5 * high, high - low, randomness.resolve(rng)
        self.cost = least_noise(budget) if choice("law", law, "least", "laplace") == "least" else _laplace(budget)
        distance = steps_apart(budget.adjacency)
        self._scale = self.cost.noise_multiplier * distance * _UP  # type: ignore[attr-defined]
        self.noise = _std(self.cost) * distance / _STEPS * self._length
        charge(ledger, self.cost, type(self).__name__, self._rng)
        # of the open batches: whole numbers, and decisions but for the last one, which may be made once more: its arm
        # plus one, or 0
        self.sums, self.counted = np.zeros(K, np.int64), np.zeros(K, np.int64)
        self.last, self.decisions = 0, 0

    def grow(self) -> None:
        """One more arm."""
        self.sums, self.counted = np.append(self.sums, 0), np.append(self.counted, 0)

    def decided(self, round: int, arm: int) -> None:
        """A decision in a round from 0: the next one, or the last once more, which an interrupt left unmade."""
        if round >= self.decisions:
            self._count()
        self.last, self.decisions = arm + 1, round + 1

    def _count(self) -> None:
        """Count the last decision, once."""
        last, self.last = self.last, 0
        if last:
            self.counted[last - 1] += 1

    def counts(self, decisions: int) -> NDArray[np.int64]:
        """How many of so many decisions are in the open batch of each arm, shape (K,)."""
        counts = self.counted.copy()
        if self.last and self.decisions <= decisions:
            counts[self.last - 1] += 1
        return counts

    def add(self, arm: int, r: float) -> None:
        """Take in one record.

        Raises
        ------
        ValueError
            If it is outside of the range. Nothing changes.
        """
        g = (r - self._centre) / self._length
        if not abs(g) <= 0.5 * (1.0 + 1e-9):  # also true for NaN
            raise ValueError(f"r must be from {self._centre - self._length / 2:g}, {self._length:g} long, got r={r!r}")
        self.sums[arm] += min(max(round(g * _STEPS), -_STEPS // 2), _STEPS // 2)

    def release(self, arm: int, decisions: int) -> float:
        """Close the batch of an arm after so many decisions, and return its noisy sum of r − c."""
        if self.decisions <= decisions:
            self._count()
        total, self.sums[arm], self.counted[arm] = int(self.sums[arm]), 0, 0
        draw = rounded_laplace if isinstance(self.cost, Laplace) else rounded_gaussian
        return float(from_lattice(total + draw(self._scale, rng=self._rng), self._length / _STEPS))

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        return entries.kept(self, self._KEPT) | {"units": np.array([self._length, self._centre, self._scale])}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked; there are as many arms as in the state already."""
        entries.resume(self, self._KEPT, entries.in_units(saved, (self._length, self._centre, self._scale)))
        if (self.counted < 0).any() or self.last > len(self.sums):
            raise ValueError("counted must be at least 0, and last name an arm, got others")


def steps_apart(adjacency: Adjacency) -> int:
    """How far a record moves the sums, in steps: see :class:`ArmBatches`."""
    return _STEPS if adjacency == "replace" else _STEPS // 2

"""Private sums of numbers that belong to a few public things ("arms"), in batches of each arm's own.

For a stream in which each record is a number r about one of K things: how often they earn, how good they are. A batch
of arm k ends after a public number of *decisions* for k, whether or not their records have come; then the sum of r − c
over the records of k that came while it was open is released, c the middle of the range. Batches are disjoint, so that
all releases together cost what one of them does, with δ = 0 where that is asked for, and a person with m records in m
batches pays for m of them. In sums over all batches their noise adds up: for few batches, which grow.

Cost per record: O(1); per release one exact draw.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from accounting import Adjacency, Budget, Gaussian, Laplace, Release, calibrate
from accounting.arrays import Array
from accounting.checks import choice, integer
from dpkit import randomness
from dpkit.mechanisms._checked import charge
from dpkit.moments.arm_turns import ArmTurns
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


# the same budget comes again in every run of a simulation, and several records take a second to price
@lru_cache(maxsize=64)
def least_noise(budget: Budget, records: int = 1) -> Laplace | Gaussian:
    """The Laplace or the Gaussian mechanism of which so many meet the budget, whichever has the smaller variance.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.moments.arm_batches import least_noise
    >>> least_noise(Budget(2.0, 0.0)), type(least_noise(Budget(0.1, 0.3))).__name__
    (Laplace(noise_multiplier=0.5...), 'Gaussian')

    A person with a few records pays least by Laplace noise, one with many by Gaussian noise:

    >>> [type(least_noise(Budget(1.0, 1e-6), m)).__name__ for m in (1, 5, 20)]
    ['Laplace', 'Laplace', 'Gaussian']
    """
    adjacency, m = budget.adjacency, integer("records", records, at_least=1)
    laplace = _laplace(budget, m)
    if budget.delta == 0:
        return laplace
    z = calibrate(lambda z: m * Gaussian(z, adjacency=adjacency), budget)
    laws: list[Laplace | Gaussian] = [laplace, Gaussian(z, adjacency=adjacency)]
    return min(laws, key=_std)


@lru_cache(maxsize=64)
def _laplace(budget: Budget, records: int) -> Laplace:
    adjacency = budget.adjacency
    return Laplace(calibrate(lambda z: records * Laplace(z, adjacency=adjacency), budget), adjacency=adjacency)


def _std(law: Laplace | Gaussian) -> float:
    """The standard deviation of the noise, over the sensitivity."""
    return law.noise_multiplier * (math.sqrt(2.0) if isinstance(law, Laplace) else 1.0)


class ArmBatches:
    """Sums of r − c over disjoint batches of each arm, in whole numbers, with exact noise.

    Privacy. Adjacency: the budget's, "replace" or "zero_out" (a record that comes on one side only). Unit: a record,
    or a person with at most m of them, no two in one batch. Cost: ``cost``, m times ``law``, one Laplace or one
    Gaussian, charged once for all releases.

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

    *A person with m records*, no two in one batch. In each run they move at most m sums, by at most R/2 each. Which
    ones may differ between the runs, and follows from releases.

    * Gaussian noise: the vectors of both runs are at most √m·R/2 from that of a run without this person, so they are
      at most √m·R apart, as m Gaussian(z) are.
    * Laplace noise: call L(s) the pair of Laplace laws that are s apart, in scales of the noise. It is
      (ε, 1 − e^((ε − s)/2))-DP for −s ≤ ε ≤ s, and no loss passes s. *A split is no easier to tell than the whole:*
      let s₁ ≥ s₂ ≥ 0. At ε ≥ 0 the product of L(s₁) and L(s₂) has δ = E[δ₁(ε − loss₂)] ≤ δ₁(ε − s₂)
      = 1 − e^((ε − s₁ − s₂)/2), which is that of L(s₁ + s₂), and for ε < 0 the same follows with both laws exchanged.
      *So m records cost no more than m Laplace(z), R apart each.* Let p be the number of records that one run has left,
      q ≤ p that of the other, and D(q, p − q) the product of q pairs L(R) and p − q pairs L(R/2). If a release takes a
      record of both, it moves by at most R, and (p − 1, q − 1) are left: L(R) and D(q − 1, p − q). If it takes one of
      the first alone, where p > q: L(R/2) and D(q, p − q − 1). If one of the second alone: L(R/2) and
      D(q − 1, p − q + 1), where two halves are joined to a whole. Each product is at most D(q, p − q), so by induction
      that dominates all that is to come, whatever later releases look at; and at the start it is D(m, 0).

    For m = 1 both say the above. (With δ = 0 there is nothing to gain by Laplace noise from the rule that no two are in
    one batch: ε is m/z either way.)

    Parameters
    ----------
    arms : int
        K at the start.
    low, high : float
        The range of records.
    budget : Budget
        δ may be 0.
    records : int
        m, where the unit is a person.
    noise_law : {"least", "laplace"}
        Of Laplace's and Gauss's laws the one with the smaller variance, or Laplace's in any case, for whoever computes
        with its tails.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with ``cost`` here, before any noise is drawn.

    Attributes
    ----------
    law : Laplace or Gaussian
        Of one release, of which m are the ``cost``.
    turns : ArmTurns
        How many decisions the open batches have, and whose.
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
    ...     sums.turns.decided(t, t % 2)
    ...     sums.add(t % 2, float(t % 2))
    >>> sums.turns.counts(200).tolist(), round(sums.release(0, 200), -1), round(sums.release(1, 200), -1)
    ([100, 100], -50.0, 50.0)
    """

    def __init__(
        self,
        arms: int,
        low: float,
        high: float,
        *,
        budget: Budget,
        records: int = 1,
        noise_law: Literal["least", "laplace"] = "least",
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        K = integer("arms", arms, at_least=1)
        if not (low < high and math.isfinite(high - low)):
            raise ValueError(f"low must be less than high, and both finite, got low={low!r} and high={high!r}")
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget, got budget={budget!r}")
        self._centre, self._length, self._rng = 0.5 * low + 0.5 * high, high - low, randomness.resolve(rng)
        m = integer("records", records, at_least=1)
        least = choice("noise_law", noise_law, "least", "laplace") == "least"
        self.law = least_noise(budget, m) if least else _laplace(budget, m)
        self.cost: Release = m * self.law
        distance = steps_apart(budget.adjacency)
        self._scale = self.law.noise_multiplier * distance * _UP
        self.noise = _std(self.law) * distance / _STEPS * self._length
        charge(ledger, self.cost, type(self).__name__, self._rng)
        self.sums = np.zeros(K, np.int64)  # of the open batches
        self.turns = ArmTurns(K, people=m > 1)

    def grow(self) -> None:
        """One more arm."""
        self.sums = np.append(self.sums, 0)
        self.turns.grow()

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

    def add_many(self, arms: NDArray[np.int64], r: Array) -> None:
        """Take in many records, as :meth:`add` does one after the other.

        Raises
        ------
        ValueError
            If one is outside of the range. Nothing changes.
        """
        g = (r - self._centre) / self._length
        inside = np.abs(g) <= 0.5 * (1.0 + 1e-9)
        if not inside.all():
            self.add(int(arms[~inside][0]), float(r[~inside][0]))
        steps = np.clip(np.rint(g * _STEPS), -_STEPS // 2, _STEPS // 2)
        self.sums += np.bincount(arms, weights=steps, minlength=len(self.sums)).astype(np.int64)

    def release(self, arm: int, decisions: int) -> float:
        """Close the batch of an arm after so many decisions, and return its noisy sum of r − c."""
        self.turns.close(arm, decisions)
        total, self.sums[arm] = int(self.sums[arm]), 0
        draw = rounded_laplace if isinstance(self.law, Laplace) else rounded_gaussian
        return float(from_lattice(total + draw(self._scale, rng=self._rng), self._length / _STEPS))

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        units = np.array([self._length, self._centre, self._scale])
        return {"sums": self.sums.copy(), **self.turns.kept(), "units": units}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked; there are as many arms as in the state already."""
        rest = dict(entries.in_units(saved, (self._length, self._centre, self._scale)))
        self.sums = entries.conform("sums", rest.pop("sums", None), self.sums)
        self.turns.resume(rest)


def steps_apart(adjacency: Adjacency) -> int:
    """How far a record moves the sums, in steps: see :class:`ArmBatches`."""
    return _STEPS if adjacency == "replace" else _STEPS // 2

"""Sums over persons in the shuffle model, where each person pays for every release out of a total.

Everybody's rounds stay on the person's own device, which forms its contribution x_p to a release from the θ that was
published last. All devices that have had a round take part in every release, whether or not a reward has come; what
leaves the shuffler is, in each of D coordinates, Σ_p ⌊x_p/step⌉ + Bin(N, ½): rounded at random, with N = b·(the number
of devices) fair bits, b of each device (Cheu, Joseph, Mao & Peng 2022).

Cost. A person whose contribution moves by at most α_j moves the counts of release j by Δ_j = α_j/step_j before they are
rounded. By ``accounting.amplification.binomial_trade_off.rounded_line`` release j is, but for a failure, μ_j-Gaussian
DP with μ_j = k_jΔ_j + o_j, whatever Δ_j up to the largest. With k_j/step_j ≤ (1 − η)/z and o_j√m ≤ η/z,

    √Σμ_j² ≤ ((1 − η)/z)·√Σα_j² + √m·max o_j ≤ 1/z    if Σα_j² ≤ 1.

So the run costs ``Gaussian(z)`` and, for the failures of all m releases together, ``ApproxDP(0, 1e-20)``: adaptively,
as each α_j is public and each release meets its μ_j for any earlier ones. The α_j need not be known beforehand: what a
person pays is a filter with a public schedule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from accounting import ApproxDP, Budget, Gaussian, Release, ShuffledBinomial, calibrate
from accounting.amplification.binomial_trade_off import MOST_TRIALS, rounded_line
from accounting.arrays import Array
from accounting.checks import integer
from dpkit.mechanisms._checked import charge
from dpkit.moments.people import PersonTotals
from dpkit.shuffle import Analyzer, Randomizer, Shuffler, SumProtocol, Tally

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["ShuffledPersonSums"]

# η, and bits of a device and coordinate at least: random rounding adds the variance of one of them
_SLACK, _FEWEST_BITS = 0.005, 100
_FAILURE = 1e-20
# what computing a contribution and scaling it to counts may add to Δ, in counts
_ROUNDING = 1e-6


class ShuffledPersonSums(PersonTotals):
    """Sums over persons with binomial noise that their devices add, and a shuffler that lets out nothing but the sum.

    Privacy. Adjacency: the budget's, "replace" or "zero_out". Unit: a person, with any number of rounds, whose number
    is public. Cost: ``cost``, charged once for all releases; proof above.

    Parameters
    ----------
    dim : int
        d.
    budget : Budget
        For one person, with δ > 10⁻²⁰.
    releases : int
        m, at most.
    horizon : int
        As for :class:`PersonSums`; of no use here, where nothing is rounded to digits that depend on it.
    level, rng, ledger
        As for :class:`PersonSums`.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range, or a budget that would take more bits than can be priced. Nothing is charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    It is used as :class:`PersonSums` is.

    >>> from accounting import Budget
    >>> from dpkit.moments import ShuffledPersonSums
    >>> sums = ShuffledPersonSums(2, budget=Budget(8.0, 1e-5, unit="person"), releases=3, horizon=1000)
    >>> sums.protocol(users=500, longest=1.0).noise_bits >= 100, round(sums.noise, 2)
    (True, 0.61)
    """

    def __init__(
        self,
        dim: int,
        *,
        budget: Budget,
        releases: int,
        horizon: int,
        level: float = 0.0,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        super().__init__(dim, budget, rng, level)
        releases, adjacency = integer("releases", releases, at_least=0), budget.adjacency

        def run(z: float) -> Release:
            return Gaussian(z, adjacency=adjacency) + ApproxDP(0.0, _FAILURE, adjacency=adjacency)

        self._z = calibrate(run, budget)
        self.cost = run(self._z)
        self._releases = max(1, releases)
        wanted = self._trials_wanted()
        if wanted > MOST_TRIALS / 4:
            raise ValueError(
                f"the users' noise bits for one coordinate must be at most 2**34 together, got {wanted:.3g} for "
                f"{self._size} coordinates, {self._releases} releases and {budget!r}: take fewer, or a larger budget"
            )
        # the slope k is 2/√N, but for half a percent where few bits suffice
        self.noise = self._z / (1.0 - _SLACK) * 1.005 * math.sqrt(1.0 + 1.0 / _FEWEST_BITS)
        charge(ledger, self.cost, type(self).__name__, self._rng)

    def _trials_wanted(self) -> float:
        """N, as o is about 25√D/N."""
        return 25.0 * self._z * math.sqrt(self._releases * self._size) / _SLACK

    def protocol(self, users: int, longest: float) -> SumProtocol:
        """The public constants of a release among so many devices, none of whose contributions is longer."""
        bits = max(_FEWEST_BITS, math.ceil(self._trials_wanted() / users))
        while True:
            N = users * bits
            # α ≤ 1, and k is at least 2/√N
            largest = math.sqrt(min(N, MOST_TRIALS)) / (2.0 * self._z) + _ROUNDING
            slope, offset, log_survival = rounded_line(N, largest, self._size)
            if offset + slope * _ROUNDING <= _SLACK / (
                self._z * math.sqrt(self._releases)
            ) and self._releases * log_survival >= math.log1p(-_FAILURE):
                break
            bits *= 2
        step = slope * self._z / (1.0 - _SLACK) * (1.0 + 1e-9)
        resolution = math.ceil(2.0 * longest * (1.0 + 1e-9) / step)
        cost = ShuffledBinomial(N, 1.0 / step, self._size, rounded=True, adjacency=self._adjacency)
        return SumProtocol(
            self._size, users, resolution * step / 2.0, resolution=resolution, noise_bits=bits, cost=cost
        )  # fmt: skip

    def _summed(self, contributions: Iterable[Array], persons: int, longest: float) -> Array:
        protocol = self.protocol(persons, longest)
        devices = Randomizer(protocol, clip=True, rng=self._rng)
        tallies: list[Tally] = [devices.tally(columns.T) for columns in contributions]
        return self._shuffled(protocol, sum(tallies[1:], start=tallies[0]))

    def _shuffled(self, protocol: SumProtocol, tally: Tally) -> Array:
        """What the shuffler lets out, and the analyzer makes of it."""
        shuffled = Shuffler(protocol, rng=self._rng).shuffle_tallies(tally)
        return np.asarray(Analyzer(protocol).decode(shuffled, protocol.users))

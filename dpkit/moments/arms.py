"""Private running sums of numbers that belong to a few public vectors: by vector ("arm"), or along their directions.

For a stream in which each record is a number g about one of K public things, x_1, …, x_K: how often they earn, how
good they are. What is released after every batch is either Σ g for each thing or Σ g·x over all, whichever the batch is
summed by, and how many records there were. Nothing about H = Σ x xᵀ costs anything: the vectors are public.

Cost per record: O(d); per release one step of a weighted continual sum of K + d + 1 entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accounting import Adjacency, Budget, Gaussian, Release, calibrate
from accounting.arrays import Array
from accounting.checks import integer
from dpkit.continual import Weighted
from dpkit.moments.pairs import whole_digits
from dpkit.states import entries

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["ArmSums", "reward_scales", "reward_sensitivity"]

# of the squared length of a record, what saying that it came is worth where it is not free
_LEAST_COUNT = 1 / 16
# what the squared length of a row may be, computed
_ROUNDED = 1.0 + 1e-12


def reward_scales(low: float, high: float, adjacency: Adjacency) -> tuple[float, float]:
    """c and a: a record is (c·g·v, a) with ‖v‖ ≤ 1, its second part saying that it came; low ≤ g ≤ high.

    c·B = ½ for the largest |g| = B. a is as large as it can be without adding to the sensitivity, and at least B·c/4.

    Parameters
    ----------
    low, high : float
        Finite, with low < high.
    adjacency : {"replace", "zero_out"}

    Raises
    ------
    ValueError
        If they are not.

    Examples
    --------
    >>> from dpkit.moments import reward_scales
    >>> reward_scales(-0.5, 0.5, "replace"), reward_scales(-0.5, 0.5, "zero_out")
    ((1.0, 0.5), (1.0, 0.125))
    """
    if not (low < high and math.isfinite(high - low)):
        raise ValueError(f"low must be less than high, and both finite, got low={low!r} and high={high!r}")
    B = max(high, -low)
    free = 0.0 if adjacency == "zero_out" else (high - low) ** 2 / (2.0 * B**2) - 1.0
    return 0.5 / B, 0.5 * math.sqrt(max(_LEAST_COUNT, free))


def reward_sensitivity(c: float, a: float, low: float, high: float, adjacency: Adjacency, *, whose: str) -> float:
    """How far one record, or the one record of a person, moves the sums.

    ``whose`` is "round" where a record belongs to a place in the stream, whose arm is played by what was released
    before; "person" where somebody has one record anywhere in it.

    Proof. A record of arm k is (γ·v, a) with c·low ≤ γ ≤ c·high; one that does not come is 0. In batches that are
    summed by directions v = (x_k, 0), in others (0, e_k): which is public, and ‖v‖ ≤ 1. Let B be the largest |g|.

    * It comes in one world only: γ² + a² ≤ c²B² + a². That is all where it counts for nothing on one side
      ("zero_out").
    * A *round* that comes in both has the same arm in both, since what is played follows from what was released. In
      the same batch it moves by |γ − γ′|·‖v‖ ≤ c·(high − low). If it comes into two batches, with v and v′, and
      ϱ ∈ [0, 1] is the inner product of two columns of the mechanism's factor, which is nonnegative and has columns of
      norm at most 1, the squared distance is at most γ² + γ′² + 2a² − 2ϱ(γγ′vᵀv′ + a²). It is linear in ϱ and in
      vᵀv′ ∈ [0, 1], so at most the larger of (γ − γ′)² and γ² + γ′² + 2a².
    * A *person* has one record, but in the other world maybe in another round, with any other arm: then vᵀv′ ≥ −1,
      and it is at most the larger of 4c²B² and 2c²B² + 2a².

    Examples
    --------
    >>> from dpkit.moments import reward_sensitivity
    >>> reward_sensitivity(1.0, 0.5, -0.5, 0.5, "replace", whose="round")
    1.0
    >>> reward_sensitivity(0.5, 0.1, -0.2, 1.0, "replace", whose="person")
    1.0
    """
    longest = (c * max(high, -low)) ** 2 + a**2
    if adjacency == "zero_out":
        return math.sqrt(longest)
    apart = c * (high - low) if whose == "round" else 2.0 * c * max(high, -low)
    return max(apart, math.sqrt(2.0 * longest))


class ArmSums:
    """Sums of g·x, sums of g for each arm, and how many records came, over batches, at the cost of ``budget`` in all.

    A record enters one of the first two. All leave as one :class:`dpkit.continual.Weighted`. How often each arm was
    *played* is counted here, too, without noise (:meth:`decided`): it must be a function of what was released and of
    the caller's own draws.

    Privacy. Adjacency: the budget's, "replace" or "zero_out". Unit: a record, or, where ``budget.unit`` is "person", a
    person with one. Sensitivity: :func:`reward_sensitivity`, proved there, for every choice of batches. Cost: ``cost``,
    one Gaussian, charged once for all releases. Records are rounded to multiples of 2^−digits before they are summed;
    see :class:`PairSums`.

    Parameters
    ----------
    arms : ndarray of shape (K, d)
        x, rows of norm at most 1.
    low, high : float
        low ≤ g ≤ high; :meth:`add` refuses others.
    budget : Budget
        With δ > 0.
    releases : int
        How many there are at most, and at most 256.
    horizon : int
        The number of records at most; as they may be late, a batch may have as many.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with ``cost`` here, before any noise is drawn.
    weigh : callable, optional
        From the noise of a single release in a sum of g to the weights of all releases; by default all count the same.
    delay : int
        A play is counted in the batch that is open so many decisions later.

    Attributes
    ----------
    noise : float
        σ, of a single release of a sum of g.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range. Nothing is charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    Three things with shares of 0.2, 0.5 and 0.8; g = share − ½ stands for a thousand votes of ±½ on each.

    >>> from accounting import Budget
    >>> from dpkit.moments import ArmSums
    >>> rng = np.random.default_rng(0)
    >>> sums = ArmSums(np.eye(3), -0.5, 0.5, budget=Budget(1.0, 1e-6), releases=4, horizon=3000, rng=rng)
    >>> for arm, share in enumerate((0.2, 0.5, 0.8)):
    ...     for _ in range(1000):
    ...         sums.add(arm, float(rng.random() < share) - 0.5, together=False)
    >>> totals, count, plays = sums.release()
    >>> (totals[3:] / 1000 + 0.5).round(1).tolist(), round(count, -2)
    ([0.2, 0.5, 0.8], 3000.0)
    """

    _KEPT = ("sums", "records", "plays", "decisions", "waiting")

    def __init__(
        self,
        arms: Array,
        low: float,
        high: float,
        *,
        budget: Budget,
        releases: int,
        horizon: int,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        weigh: Callable[[float], Array] | None = None,
        delay: int = 0,
    ) -> None:
        if arms.ndim != 2 or not len(arms) or not (np.einsum("ij,ij->i", arms, arms) <= _ROUNDED).all():
            raise ValueError(f"arms must be rows (K, d) of norm at most 1, got arms of shape {arms.shape}")
        releases, delay = integer("releases", releases, at_least=0), integer("delay", delay, at_least=0)
        horizon = integer("horizon", horizon, at_least=1)
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget, got budget={budget!r}")
        self._low, self._high = low, high
        self._c, self._a = reward_scales(low, high, budget.adjacency)
        digits, slack = whole_digits(horizon, sum(arms.shape) + 1)
        self._unit = 2.0**digits
        whose = "person" if budget.unit == "person" else "round"
        sensitivity = reward_sensitivity(self._c, self._a, low, high, budget.adjacency, whose=whose) + slack
        one = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget) * sensitivity / self._c
        self.sums = Weighted.calibrated(
            weights=np.ones(max(1, releases)) if weigh is None or not releases else weigh(one),
            budget=budget,
            shape=sum(arms.shape) + 1,
            sensitivity=sensitivity,
            rng=rng,
            ledger=ledger,
        )
        self.noise = self.sums.noise_std(1) * float(self.sums.factor[0, 0]) / self._c
        self._arms = arms
        # of the open batch: by directions, by arms, and how many, whole numbers in units of 2^−digits; and plays
        self.records, self.plays = np.zeros(sum(arms.shape) + 1), np.zeros(len(arms))
        # how many there were, and the arms of the last ``delay`` + 1, which are not counted yet: −1 is none
        self.decisions, self.waiting = 0, np.full(delay + 1, -1)

    @property
    def cost(self) -> Release:
        """What all releases together cost a unit."""
        return self.sums.cost

    def decided(self, round: int, arm: int) -> None:
        """A play in a round from 0: the next one, or the last once more, which an interrupt left unmade."""
        place = round % len(self.waiting)
        if round >= self.decisions:
            self._count(place)
        self.waiting[place], self.decisions = arm, round + 1

    def decided_many(self, first: int, arms: NDArray[np.int64]) -> None:
        """Plays in the rounds from ``first`` on, as :meth:`decided` takes them one after the other."""
        if first != self.decisions or not len(arms):  # a play that was left unmade, or none
            for round, arm in enumerate(arms.tolist(), first):
                self.decided(round, arm)
            return
        late, end = len(self.waiting), first + len(arms)
        places = np.arange(first, first + late) % late  # the oldest of those that wait is the first
        plays = np.concatenate([self.waiting[places], arms])
        counted = plays[: len(arms)]
        self.plays += np.bincount(counted[counted >= 0], minlength=len(self.plays))
        self.waiting[np.arange(end - late, end) % late], self.decisions = plays[len(arms) :], end

    def _count(self, place: int) -> None:
        """Count the oldest play that waits, once."""
        arm = int(self.waiting[place])
        self.waiting[place] = -1
        if arm >= 0:
            self.plays[arm] += 1.0

    def add(self, arm: int, g: float, *, together: bool) -> None:
        """Take in one record: along its direction (``together``), or by its arm.

        Raises
        ------
        ValueError
            If ``g`` is not from low to high. Nothing changes.
        """
        if not self._low <= g <= self._high:  # also true for NaN
            raise ValueError(f"g must be from {self._low:g} to {self._high:g}, got g={g!r}")
        d = self._arms.shape[1]
        if together:
            self.records[:d] += np.rint(self._unit * self._c * g * self._arms[arm])
        else:
            self.records[d + arm] += np.rint(self._unit * self._c * g)
        self.records[-1] += np.rint(self._unit * self._a)

    def add_many(self, arms: NDArray[np.int64], g: Array, *, together: bool) -> None:
        """Take in many records, as :meth:`add` does one after the other: sums of whole numbers are exact in any order.

        Raises
        ------
        ValueError
            If one of ``g`` is not from low to high. Nothing changes.
        """
        inside = (self._low <= g) & (g <= self._high)
        if not inside.all():
            self.add(int(arms[~inside][0]), float(g[~inside][0]), together=together)
        d, scaled = self._arms.shape[1], self._unit * self._c * g
        if together:
            self.records[:d] += np.rint(scaled[:, None] * self._arms[arms]).sum(axis=0)
        else:
            self.records[d:-1] += np.bincount(arms, weights=np.rint(scaled), minlength=len(self._arms))
        self.records[-1] += len(arms) * np.rint(self._unit * self._a)

    def release(self) -> tuple[Array, float, Array]:
        """Close the batch: noisy sums of g·x and, after them, of g, and the number of records; and the batch's plays.

        Sums and number are those of all batches so far.

        Returns
        -------
        ndarray of shape (d + K,), float, ndarray of shape (K,)

        Raises
        ------
        ValueError
            After the last release.
        RunStopped
            If an earlier call was interrupted, or this is a fork of the process that made it.
        """
        self._count(self.decisions % len(self.waiting))
        records, plays = self.records / self._unit, self.plays
        self.records, self.plays = np.zeros_like(self.records), np.zeros_like(self.plays)
        noisy = self.sums.add(records)
        return noisy[:-1] / self._c, float(noisy[-1]) / self._a, plays

    def noise_of_batches(self, k: int) -> Array:
        """The covariance, between batches, of the noise in what sums grow by in each of the first k releases."""
        inverse = np.linalg.inv(self.sums.factor[:k, :k])
        return np.asarray(self.noise**2 * inverse @ inverse.T)

    def noise_of_count(self, k: int) -> float:
        """The standard deviation of the number of rewards in the k-th release."""
        return self.sums.noise_std(k) / self._a

    def noise_of_sums(self, k: int) -> float:
        """The standard deviation of each sum of g in the k-th release."""
        return self.sums.noise_std(k) / self._c

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        return entries.kept(self, self._KEPT) | {"units": np.array([self._c, self._a])}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        entries.resume(self, self._KEPT, entries.in_units(saved, (self._c, self._a)))
        if (self.plays < 0).any() or self.waiting.min() < -1 or self.waiting.max() >= len(self.plays):
            raise ValueError("plays must be at least 0, and waiting ones name an arm, got others")

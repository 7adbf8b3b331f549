"""How the batches of an epoch are made, and what that costs: Poisson samples, balls in bins, or a shuffled order.

Of n units, n public, in k = ⌈n/batch⌉ steps an epoch, with the noise z·C where one unit moves a sum by at most C:

``"poisson"``
    Each unit joins each batch with probability batch/n: k × PoissonSubsampled(Gaussian(z), batch/n).
``"balls_in_bins"``
    Each unit is thrown into one of the k batches, independently of the others: RandomAllocated(Gaussian(z), k).
    Every unit is seen once in an epoch, and sizes of batches vary as those of Poisson samples do.
``"shuffle"``
    The units in a random order, cut into k batches of one size, or one less: as who has a place is at random but places
    are not, no proof known to us gives more than one release per epoch. Let everybody be told the order. A unit that is
    swapped for another one moves one sum by at most 2C: Gaussian(z/2). One that comes or goes would move others from
    batch to batch; so neighbours swap units ("replace"), and n is public.

**A cap.** With ``max_batch`` = m, of a larger sample m units are kept, drawn uniformly. Let E be the event that m or
more *other* units are in one of the batches; it has the same probability τ whether or whoever the unit is. Where E does
not happen nothing is dropped, with the unit or without it, and the rest is as without a cap; given the others' batches,
that is how the above is proved. So the divergence is at most (1 − τ) times that without a cap, and τ more: at most that
of ApproxDP(0, τ) beside it. One batch of Poisson samples has τ = P(Bin(n − 1, batch/n) ≥ m), an epoch of balls in bins
at most k times as much with the chance 1/k. τ counts the other units, so n must be public ("replace").
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from accounting import Adjacency, ApproxDP, Budget, Gaussian, PoissonSubsampled, RandomAllocated, Release
from accounting.checks import integer
from dpkit.training.rows import poisson_sample

__all__ = ["Batches", "Sampling", "check_price", "checked_batches"]

Sampling = Literal["poisson", "balls_in_bins", "shuffle"]

_SAID: dict[str, str] = {"poisson": "Poisson samples", "balls_in_bins": "balls in bins", "shuffle": "shuffled batches"}
# What a cap may take of the budget's δ, where one is proposed.
_SHARE = 0.01
# Of a budget by "replace" with balls in bins: ε above it takes minutes to price.
_MOST_SWAPPED = 50.0


@dataclass(frozen=True)
class Batches:
    """A way to make batches of ``batch`` units in the mean out of ``units``, which is public.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.training.batches import Batches
    >>> some = Batches("balls_in_bins", units=6, batch=2)
    >>> sorted(np.concatenate(list(some.epoch(np.random.default_rng(0), 6))).tolist())
    [0, 1, 2, 3, 4, 5]
    >>> Batches("shuffle", units=6, batch=2).price(1.5, steps=6, adjacency="replace")
    (2 * Gaussian(noise_multiplier=0.75, adjacency='replace'))
    """

    sampling: Sampling
    units: int
    batch: int
    max_batch: int | None = None

    @property
    def steps(self) -> int:
        """k: the steps of an epoch."""
        return math.ceil(self.units / self.batch)

    @property
    def said(self) -> str:
        """The way in words, as an entry of a ledger has it."""
        return _SAID[self.sampling]

    def epoch(self, source: np.random.Generator, count: int) -> Iterator[NDArray[np.intp]]:
        """The batches of one epoch out of ``count`` units, which differs from ``units`` where that is private."""
        if self.sampling == "shuffle":
            yield from np.array_split(source.permutation(count), self.steps)
            return
        bins = source.integers(self.steps, size=count) if self.sampling == "balls_in_bins" else None
        for step in range(self.steps):
            chosen = (
                poisson_sample(source, count, self.batch / self.units) if bins is None else np.flatnonzero(bins == step)
            )
            if self.max_batch is not None and chosen.size > self.max_batch:
                chosen = np.sort(source.permutation(chosen)[: self.max_batch])
            yield chosen

    def price(self, z: float, *, steps: int, adjacency: Adjacency) -> Release:
        """What ``steps`` cost with noise of z times what one unit adds; but for Poisson samples, of whole epochs."""
        epochs = math.ceil(steps / self.steps)
        if self.sampling == "shuffle":
            return epochs * Gaussian(z / 2, adjacency="replace")
        if self.sampling == "poisson":
            rate = self.batch / self.units
            one: Release = PoissonSubsampled(Gaussian(z, adjacency="add_remove"), rate, adjacency=adjacency)
        else:
            one = RandomAllocated(Gaussian(z, adjacency="add_remove"), self.steps, adjacency=adjacency)
        if self.max_batch is not None:
            one = one + ApproxDP(0.0, self._overflow(self.max_batch))
        return (steps if self.sampling == "poisson" else epochs) * one

    def _overflow(self, cap: int) -> float:
        """τ of a Poisson sample, or of an epoch of balls in bins, rounded up."""
        from scipy.special import bdtrc

        poisson = self.sampling == "poisson"
        chance = self.batch / self.units if poisson else 1 / self.steps
        one = float(bdtrc(cap - 1, self.units - 1, chance)) if cap < self.units else 0.0
        return min(1.0, one * (1 if poisson else self.steps) * (1 + 1e-6))

    def least_cap(self, level: float) -> int:
        """The smallest ``max_batch`` with τ of at most ``level``."""
        low, high = 1, self.units
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._overflow(middle) <= level else (middle + 1, high)
        return low


def check_price(sampling: str, budget: Budget) -> None:
    """Refuse balls in bins, cyclic ones too, for a budget of which the noise takes minutes to find."""
    if "balls_in_bins" in sampling and budget.adjacency == "replace" and budget.epsilon > _MOST_SWAPPED:
        raise ValueError(
            f"sampling must be {sampling.replace('balls_in_bins', 'poisson')!r} for a budget by 'replace' with epsilon "
            f"above {_MOST_SWAPPED:g}: it needs about the same noise, which takes minutes to find for balls in bins, "
            f"got {budget!r}"
        )


def checked_batches(
    sampling: Sampling, units: int, batch: int, max_batch: int | None, *, count: int, steps: int, budget: Budget
) -> Batches:
    """The batches of a run of ``steps`` with ``count`` units, of which ``units`` is public.

    Raises
    ------
    ValueError
        If the budget counts neighbours for which they have no price, or cannot pay for the cap.
    """
    if sampling not in get_args(Sampling):
        raise ValueError(f"sampling must be one of {get_args(Sampling)}, got sampling={sampling!r}")
    if sampling == "shuffle" and budget.adjacency != "replace":
        raise ValueError(
            "sampling must not be 'shuffle' where units come and go, for that moves others from batch to batch: take "
            f"'balls_in_bins' or a budget by 'replace', got budget.adjacency={budget.adjacency!r}"
        )
    check_price(sampling, budget)
    if count != units and (sampling == "shuffle" or max_batch is not None):
        raise ValueError(
            f"public_rows must be the number of units, {count}, where batches depend on it, got public_rows={units}"
        )
    if max_batch is None:
        return Batches(sampling, units, batch)
    cap = integer("max_batch", max_batch, at_least=1)
    if sampling == "shuffle":
        raise ValueError(f"max_batch must be None, as shuffled batches have one size, got max_batch={max_batch!r}")
    if budget.adjacency != "replace":
        raise ValueError(
            "max_batch needs the number of units to be public, hence a budget by 'replace', got "
            f"budget.adjacency={budget.adjacency!r}"
        )
    found = Batches(sampling, units, batch, cap)
    times = steps if sampling == "poisson" else math.ceil(steps / found.steps)
    if times * found._overflow(cap) > budget.delta / 2:
        least = found.least_cap(_SHARE * budget.delta / times)
        raise ValueError(
            f"max_batch must be so large that batches hardly ever pass it, for that costs δ: at least {least} takes "
            f"{_SHARE:.0%} of δ={budget.delta:g}, got max_batch={cap}"
        )
    return found

"""Random batches for DP-FTRL: rows come back in steps b apart only, so that sampling amplifies banded noise.

Source: Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta & Xu (2023), "(Amplified) banded matrix factorization:
a unified approach to private training", arXiv:2306.08153, Algorithm 2 and Theorem 4, for ``"cyclic_poisson"``; the same
reduction with balls in bins (Chua et al. 2025, arXiv:2412.16802) in the place of Poisson samples is ours.

**The batches.** Before the first step every unit joins one of b subsets, uniformly and independently of the others.
Step t, of T = E·K in E epochs, reads rows of subset t mod b. A unit has N = ⌊T/b⌋ steps of its own, or one more.

``"cyclic_poisson"``
    It joins each of them with probability b/K, independently.
``"cyclic_balls_in_bins"``
    They are cut into E runs of ⌊N/E⌋ steps or one more, and it joins one step of each run, uniformly drawn.

Either way a batch has n/K units in the mean. With b = 1 they are the Poisson samples and the balls in bins of
``dp_sgd``; with b = K nothing is left to chance but the order.

**Theorem.** Let C be lower-triangular with at most b bands and columns of norm at most 1, let one unit move a sum by
vectors g_t of norm at most s, and let z_t = Σ_r C_tr x_r + N(0, (zs)²I) be released after each step, where the sums x_t
may depend on z_1, …, z_{t−1}. For a unit that comes or goes, all of it costs no more than

* ⌈T/b⌉ × PoissonSubsampled(Gaussian(z), b/K) for cyclic Poisson samples;
* the sum over the E runs of RandomAllocated(Gaussian(z), length of the run) for cyclic balls in bins;

and for a swap, the same releases under "replace".

*Proof.* Fix which subset each unit joins and all coins of the others: their law is the same with the unit and without
it, and divergences are jointly convex. Let the unit's steps be s_1 < s_2 < …, b apart, β_i whether it joins step s_i,
and call the rows t = s_i, …, s_i + b − 1 of z block i. As C has b bands, C_{t,s_j} = 0 in block i for every j ≠ i: the
unit enters block i by β_i alone. Let x⁰_r be what the others add to step r, a function of z_1, …, z_{r−1} that is the
same in both worlds, and w_t = z_t − Σ_{r≤t} C_tr x⁰_r. Given what came before block i, z ↔ w is a bijection on the
block, the same in both worlds, and

    w_t = β_i·C_{t,s_i}·g_i + N(0, (zs)²I),      t = s_i, …, s_i + b − 1,

where g_i, of norm at most s, depends on what came before the block. So the block is N(β_i·c⊗g_i, (zs)²I), c a column of
C of norm at most 1: with β_i = 1 it is a Gaussian(z) that the past may choose, and blocks follow one another. The coins
β of the unit are drawn independently of everything else: those of Poisson samples are independent, so each block is
PoissonSubsampled(Gaussian(z), b/K) given the past, and dominating pairs compose adaptively (Zhu, Dong & Wang 2022,
Theorem 10). Those of balls in bins are independent from run to run, and within a run of m blocks one of them, uniformly
drawn, has β = 1: this is the epoch of m steps of ``accounting.loss.allocated``, which also proves that its steps may
depend on what was seen. The steps before s_1 do not know the unit. A swap has the vectors g_i and g′_i, with coins of
either that have the same law, in the place of g_i and nothing: the same blocks. A unit with one step more than ⌊T/b⌋
has runs of no smaller length, and longer runs cost no more (the mean of more independent terms is smaller in convex
order). ∎

Nobody needs to hide who is in which subset; the coins β must stay secret, and so must the sizes of batches. The encoder
of ``dpkit.continual.Banded`` computes row t from the last b inputs alone, hence in block i the rounded rows of the two
worlds differ by β_i·(a column) too, and the noise on whole numbers is as exact as without samples.

**What is not here.** *b-min-sep* samples, where a row may join whatever step comes b or more after its last one
(arXiv:2602.09338): they gain where noise is small, but their price is known by Monte Carlo only, which is no bound.
Inverse-banded, buffered and tree noise: their columns overlap for ever, and no amplification is proved.

**How many bands.** More bands take more of the noise back, fewer leave more steps to hide in. The error is z·√(mean
over t of the t-th iterate's variance), for the budget, steps, epochs, momentum and rates, all of which are public.
Around its minimum it is flat, while the noise of a single step, which z·√(1 + Σ_j n_j²) is, n the column of C⁻¹, keeps
rising with the bands, and harms where learning rates are large. So :func:`chosen_bands` takes the fewest bands that are
close to the smallest error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from accounting import Adjacency, Budget, Gaussian, PoissonSubsampled, RandomAllocated, Release, calibrate
from accounting.checks import integer
from accounting.totals import Accountant
from dpkit.continual import Banded, Factorization
from dpkit.continual.banded import optimal, root_mean_square_error
from dpkit.states.entries import conform
from dpkit.training.batches import check_price
from dpkit.training.rows import poisson_sample

__all__ = ["CyclicBatches", "Sampling", "Schedule", "amplified", "chosen_bands", "cyclic_batches"]

Sampling = Literal["fixed_order", "cyclic_poisson", "cyclic_balls_in_bins"]
Indices = NDArray[np.int64]

_SAID = {"cyclic_poisson": "cyclic Poisson samples", "cyclic_balls_in_bins": "cyclic balls in bins"}
# how far above the smallest error one may be
_ENOUGH = 1.03
# the numbers of bands that are tried; the error is flat around its minimum
_TRIED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True)
class Schedule:
    """Who may join which steps: ``bands`` subsets in turn, over ``epochs`` of ``batches`` steps each.

    Examples
    --------
    >>> from dpkit.optimize.parts.cyclic_batches import Schedule
    >>> from accounting import epsilon
    >>> for sampling in ("cyclic_poisson", "cyclic_balls_in_bins"):
    ...     for bands in (1, 8, 80):
    ...         cost = Schedule(sampling, bands, epochs=5, batches=80).price(1.5, "add_remove")
    ...         print(sampling, bands, round(epsilon(cost, 1e-6), 2))
    cyclic_poisson 1 0.85
    cyclic_poisson 8 2.93
    cyclic_poisson 80 7.75
    cyclic_balls_in_bins 1 0.79
    cyclic_balls_in_bins 8 2.47
    cyclic_balls_in_bins 80 7.75
    """

    sampling: Sampling
    bands: int
    epochs: int
    batches: int

    @property
    def horizon(self) -> int:
        """T."""
        return self.epochs * self.batches

    @property
    def said(self) -> str:
        """The samples in words, as an entry of a ledger has them."""
        return f"{_SAID[self.sampling]} with {self.bands} band{'s' if self.bands > 1 else ''}"

    @property
    def rate(self) -> float:
        """The probability with which a unit joins one of its steps, of Poisson samples."""
        return self.bands / self.batches

    def price(self, z: float, adjacency: Adjacency) -> Release:
        """What all steps cost, with noise of z times what one unit adds."""
        one = Gaussian(z, adjacency="add_remove")
        if self.sampling == "cyclic_poisson":
            return -(-self.horizon // self.bands) * PoissonSubsampled(one, self.rate, adjacency=adjacency)
        shortest, longer = divmod(self.horizon // self.bands, self.epochs)
        runs: list[Release] = []
        for count, length in ((longer, shortest + 1), (self.epochs - longer, shortest)):
            if count:
                runs.append(count * RandomAllocated(one, length, adjacency=adjacency))
        return runs[0] if len(runs) == 1 else runs[0] + runs[1]

    def run_of(self, step: int) -> tuple[int, int]:
        """The run of balls in bins that a subset's ``step``-th own step is in: its first such step, and its length."""
        subset, own = step % self.bands, step // self.bands
        length, longer = divmod(-(-(self.horizon - subset) // self.bands), self.epochs)
        first, before = 0, longer * (length + 1)
        if own < before:
            length += 1
        else:
            first = before
        return first + (own - first) // length * length, length


class CyclicBatches:
    """The batches of one run over ``count`` units: who is in which subset, and the steps of balls in bins so far.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.optimize.parts.cyclic_batches import CyclicBatches, Schedule
    >>> source = np.random.default_rng(0)
    >>> some = CyclicBatches.drawn(Schedule("cyclic_balls_in_bins", bands=2, epochs=1, batches=4), 6, source)
    >>> sorted(np.concatenate([some.at(t, source) for t in range(4)]).tolist())
    [0, 1, 2, 3, 4, 5]
    """

    def __init__(self, schedule: Schedule, subsets: Indices, joined: Indices) -> None:
        self.schedule, self.subsets = schedule, subsets
        # of balls in bins: which of its own steps a unit joins in the run that its subset is in
        self.joined = joined

    @classmethod
    def drawn(cls, schedule: Schedule, count: int, source: np.random.Generator) -> Self:
        """The batches of a new run."""
        subsets: Indices = source.integers(schedule.bands, size=count)
        return cls(schedule, subsets, np.zeros(count if schedule.sampling == "cyclic_balls_in_bins" else 0, np.int64))

    def kept(self) -> dict[str, Any]:
        """What a state keeps of them; secret."""
        schedule = self.schedule
        return {
            "sampling": schedule.sampling,
            "bands": schedule.bands,
            "subsets": self.subsets.copy(),
            "joined": self.joined.copy(),
        }

    @classmethod
    def resumed(cls, saved: Mapping[str, Any], count: int, epochs: int, batches: int) -> Self:
        """The batches of which :meth:`kept` is ``saved``.

        Raises
        ------
        ValueError
            If an entry is missing, or not of such a run.
        """
        sampling = checked_sampling(conform("sampling", saved.get("sampling"), like=""))
        bands = integer("bands", conform("bands", saved.get("bands"), like=0), at_least=1)
        likes = np.zeros(count, np.int64), np.zeros(count if sampling == "cyclic_balls_in_bins" else 0, np.int64)
        subsets, joined = (
            conform(name, saved.get(name), like) for name, like in zip(("subsets", "joined"), likes, strict=True)
        )
        if bands > batches or (count and not 0 <= subsets.min() <= subsets.max() < bands):
            raise ValueError(f"subsets must be counted from 0 to bands={bands}, at most {batches}, got others")
        return cls(Schedule(sampling, bands, epochs, batches), subsets, joined)

    def at(self, step: int, source: np.random.Generator) -> NDArray[np.intp]:
        """The units of the batch of a step, from 0; steps must be asked for one after the other."""
        schedule = self.schedule
        own = step // schedule.bands
        units = np.flatnonzero(self.subsets == step % schedule.bands)
        if schedule.sampling == "cyclic_poisson":
            return units[poisson_sample(source, len(units), schedule.rate)]
        first, length = schedule.run_of(step)
        if own == first:
            self.joined[units] = first + source.integers(length, size=len(units))
        return np.asarray(units[self.joined[units] == own])


def cyclic_batches(
    sampling: Sampling,
    bands: int | None,
    factorization: Any,
    *,
    budget: Budget,
    epochs: int,
    batches: int,
    momentum: float,
    rates: NDArray[np.float64] | None,
) -> tuple[Schedule, Banded, float]:
    """The schedule, a factorization of as many bands, and the noise multiplier that meets ``budget``.

    Raises
    ------
    ValueError
        For a factorization that samples do not amplify, or more bands than batches.
    """
    sampling = checked_sampling(sampling)
    check_price(sampling, budget)
    if bands is not None and integer("bands", bands, at_least=1) > batches:
        raise ValueError(f"bands must be at most the number of batches {batches}, got bands={bands!r}")
    horizon = epochs * batches
    if factorization == "independent":
        factorization = Banded([1.0], horizon, inverse=False)
    if isinstance(factorization, Factorization):
        b = getattr(factorization, "bands", batches) if bands is None else bands
        made = amplified(factorization, horizon, min(b, batches))
    elif factorization == "banded":
        shared = None if rates is None else tuple(rates.tolist())
        b = chosen_bands(sampling, budget, epochs, batches, momentum, shared) if bands is None else bands
        made = _best(horizon, b, momentum, shared)
    else:
        raise ValueError(
            "factorization must be 'banded', 'independent' or a Banded with bands of C itself where batches are "
            f"sampled, as no amplification is proved for others, got factorization={factorization!r}"
        )
    schedule = Schedule(sampling, b, epochs, batches)
    return schedule, made, _noise(schedule, budget)


def checked_sampling(sampling: Any) -> Sampling:
    """``sampling``, if it is a way to make batches."""
    if sampling not in get_args(Sampling):
        raise ValueError(f"sampling must be one of {get_args(Sampling)}, got sampling={sampling!r}")
    found: Sampling = sampling
    return found


def amplified(given: Factorization, horizon: int, subsets: int) -> Banded:
    """``given``, if C has at most so many bands as the theorem asks for.

    Raises
    ------
    ValueError
        If it is another factorization, or of another horizon.
    """
    if not isinstance(given, Banded) or given.inverse or given.bands > subsets:
        raise ValueError(
            f"factorization must be a Banded whose C has at most {subsets} bands (inverse=False), as many as there are "
            f"subsets: no amplification is proved for others, got factorization={given!r}"
        )
    if given.horizon != horizon:
        raise ValueError(f"factorization must have the horizon {horizon}, got horizon={given.horizon}")
    return given


@lru_cache(maxsize=64)
def _coefficients(horizon: int, bands: int, momentum: float, rates: tuple[float, ...] | None) -> NDArray[np.float64]:
    return optimal(horizon, bands=bands, momentum=momentum, rates=rates).coefficients


def _best(horizon: int, bands: int, momentum: float, rates: tuple[float, ...] | None) -> Banded:
    return Banded(_coefficients(horizon, bands, momentum, rates), horizon, inverse=False)


@lru_cache(maxsize=64)
def _noise(schedule: Schedule, budget: Budget, accountant: Accountant | None = None) -> float:
    return calibrate(lambda z: schedule.price(z, budget.adjacency), budget, accountant=accountant)


@lru_cache(maxsize=64)
def chosen_bands(
    sampling: Sampling,
    budget: Budget,
    epochs: int,
    batches: int,
    momentum: float = 0.0,
    rates: tuple[float, ...] | None = None,
) -> int:
    """The fewest bands, of those tried up to 64, whose error for the budget is at most 3 % above the smallest.

    By the Rényi curve of cyclic Poisson samples, in hundredths of a second. Balls in bins gain more where noise
    is small, but for swaps, and so ask for fewer bands: from there their own price is followed downwards. By the prices
    that are charged, the picks were within 7 % of the smallest error in all that we tried.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.optimize.parts.cyclic_batches import chosen_bands
    >>> budgets = [Budget(epsilon, 1e-6, adjacency="add_remove") for epsilon in (0.5, 2.0, 8.0)]
    >>> [chosen_bands("cyclic_poisson", budget, 5, 80) for budget in budgets]
    [1, 4, 12]
    """
    tried = [b for b in _TRIED if b <= batches]
    deviations = {
        b: root_mean_square_error(_best(epochs * batches, b, momentum, rates), momentum=momentum, rates=rates)
        for b in tried
    }

    def error(b: int, kind: Sampling, accountant: Accountant | None = None) -> float:
        return deviations[b] * _noise(Schedule(kind, b, epochs, batches), budget, accountant)

    enough = _ENOUGH * min(error(b, "cyclic_poisson", "rdp") for b in tried)
    picked = next(i for i, b in enumerate(tried) if error(b, "cyclic_poisson", "rdp") <= enough)
    if sampling == "cyclic_balls_in_bins" and budget.adjacency == "add_remove":
        while picked > 0 and error(tried[picked - 1], sampling) < error(tried[picked], sampling):
            picked -= 1
    return tried[picked]

"""What one answer of a plan needs: the noise of its cells at a multiplier, and how far that moves the answer.

Everything here follows from descriptions and the budget, without data; the sensitivities are those that the queries
prove (``counts_and_sums``, ``means_and_variances``, ``quantiles``), in the same words. Errors are half the widths of
95 % intervals for the noise.

* Counts, histograms, sums: the noise itself.
* Means over n rows, with cells (1 − u, u): the width of the bounds times the noise of one cell over n, times
  √((1 − μ)² + μ²) ≤ 1, which is stated as 1. Variances: the squared width times the noise of one cell over n, times the
  norm of the slopes (s = E[u²]: −s + 2μ², ½ − s − 2μ(½ − μ) − ½ + …), at most 1.
* Quantiles: rows, by ``_ranks.rank_errors``, for all levels together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from accounting import Budget, DiscreteLaplace, Gaussian, Laplace, NoisyMax, PureDP, Release, epsilon
from accounting.checks import integer
from accounting.releases import Composed
from dpkit.queries._columns import check_bounds
from dpkit.queries._noise import NoiseName
from dpkit.queries._ranks import first_rate, part_rate, rank_errors
from dpkit.queries._ranks import plan as rank_steps
from dpkit.queries._rows import MOST_BINS
from dpkit.queries._units import Share, checked_share
from dpkit.queries.reports.asks import Ask

__all__ = ["CONFIDENCE", "Demand", "demand"]

CONFIDENCE = 0.95
# P(|noise| > reach × scale) = 1 − CONFIDENCE
_REACH: dict[NoiseName, float] = {"gaussian": 1.9599639845400545, "laplace": math.log(20.0)}
# a budget's way to a noise multiplier and back
_ALMOST = 1 + 1e-12
# a hair more than enough, for what a calibration rounds
_INSIDE = 1 + 1e-7
# cells in the range of a quantile, at most (``quantiles``)
_RANGE = (1 << 50) + (1 << 41)


@dataclass(frozen=True)
class Demand:
    """An answer as noise: cells of sensitivity ``l1`` and ``l2``, of which one unit of noise moves it by ``factor``.

    ``strength`` is the reciprocal of the noise multiplier (of a quantile: ε of one round), so that 0 is no answer.
    """

    ask: Ask
    budget: Budget
    share: Share
    l1: float = 0.0
    l2: float = 0.0
    factor: float | None = 1.0  # None where the number of rows is not foretold
    width: float = 1.0  # of what is divided by the number of rows
    whole: bool = False  # counts, on whole numbers
    one_cell: bool = False
    free: bool = False  # a number of rows that is public

    @property
    def by_rank(self) -> bool:
        return self.ask.what == "quantile"

    @cached_property
    def levels(self) -> list[float]:
        found: list[float] = np.unique(np.atleast_1d(np.asarray(self.ask.q, np.float64))).tolist()
        return found

    @property
    def rounds(self) -> int:
        return len(self.levels).bit_length()

    def strength(self, share: float, noise: NoiseName) -> float:
        """For a ``share`` of the cost: of ρ = ½/z² with Gaussian noise, else of ε."""
        if noise == "laplace":
            return share / (self.rounds if self.by_rank else 1)
        # r rounds of range ε cost r·ε²/8 in ρ
        return 2 * math.sqrt(2 * share / self.rounds) if self.by_rank else math.sqrt(2 * share)

    def part(self, strength: float, noise: NoiseName) -> float:
        """The share of the cost that a strength takes: the inverse of :meth:`strength`."""
        if noise == "laplace":
            return strength * (self.rounds if self.by_rank else 1)
        return self.rounds * strength**2 / 8 if self.by_rank else strength**2 / 2

    def cost(self, strength: float, noise: NoiseName) -> Release:
        """What is released, at most: the query may know a cheaper description of the same noise."""
        adjacency = self.budget.adjacency
        if self.free:
            return PureDP(0.0, adjacency=adjacency)
        if self.by_rank:
            law: Literal["gumbel", "exponential"] = "gumbel" if self.ask.candidates is None else "exponential"
            return self.rounds * NoisyMax(strength, law, adjacency=adjacency)
        if noise == "gaussian":
            return Gaussian(1 / strength, adjacency=adjacency)
        if self.ask.what == "sum":
            # discrete on whole numbers, which the data decide, and then of losses that Laplace noise does not bound
            return PureDP(strength, adjacency=adjacency)
        if self.whole:
            return DiscreteLaplace(1 / strength, int(self.l1) if self.one_cell else None, adjacency=adjacency)
        return Laplace(1 / strength, adjacency=adjacency)

    def covers(self, cost: Release, strength: float, noise: NoiseName) -> bool:
        """Whether what a query is about to spend is what :meth:`cost` says, but for the last digit, or less."""
        planned = self.cost(strength, noise)
        if cost.adjacency != planned.adjacency:
            return False
        if isinstance(planned, PureDP):
            return float(epsilon(cost, 0.0)) <= planned.epsilon * _ALMOST
        if self.by_rank:
            ((one, rounds),) = cost.parts if isinstance(cost, Composed) else ((cost, 1),)
            ((same, _),) = planned.parts if isinstance(planned, Composed) else ((planned, 1),)
            if not (isinstance(one, NoisyMax) and isinstance(same, NoisyMax) and rounds == self.rounds):
                return False
            return one.noise == same.noise and one.epsilon <= strength * _ALMOST
        if isinstance(cost, Gaussian) and isinstance(planned, Gaussian):
            return planned.noise_multiplier <= cost.noise_multiplier * _ALMOST
        if isinstance(cost, DiscreteLaplace) and isinstance(planned, DiscreteLaplace) and cost.shift == planned.shift:
            return planned.noise_multiplier <= cost.noise_multiplier * _ALMOST
        return (
            isinstance(cost, Laplace)
            and isinstance(planned, Laplace)
            and (planned.noise_multiplier <= cost.noise_multiplier * _ALMOST)
        )

    def allowed(self, strength: float, noise: NoiseName) -> Budget:
        """The budget at which the query chooses this strength."""
        if self.by_rank:
            found = Budget(self.rounds * strength, 0.0)
        elif noise == "laplace":
            found = Budget(strength, 0.0)
        else:
            found = _gaussian(strength, self.budget.delta)
        return Budget(found.epsilon, found.delta, adjacency=self.budget.adjacency, unit=self.budget.unit)

    def error(self, strength: float, noise: NoiseName) -> float | None:
        """Half the width of the 95 % interval, in units of the answer (of a quantile, rows)."""
        if self.free:
            return 0.0
        if self.by_rank:
            # as ``quantiles`` has it: all groups together hold so many rows of a unit, and err together
            share = Share(1, self.share.groups * self.share.per_group, self.share.adjacency, self.share.alone)
            parts = len(self.ask.keys) if self.ask.keys is not None else 1
            if self.ask.candidates is not None:
                rate = (part_rate if self.ask.grouped else first_rate)(strength, self.levels[0], share)
                return (math.log(len(set(self.ask.candidates))) + math.log(parts / (1 - CONFIDENCE))) / float(rate)
            steps = rank_steps(self.levels, strength, share, grouped=self.ask.grouped)
            return float(rank_errors(steps, [_RANGE] * len(steps), CONFIDENCE, parts).max())
        if self.factor is None:
            return None
        if self.whole and noise == "laplace":
            # P(|k| > m) = 2q^(m + 1)/(1 + q)
            a = strength / self.l1
            m = math.log(2 / ((1 - CONFIDENCE) * (1 + math.exp(-a)))) / a - 1
            return self.factor * max(0, math.ceil(m - 1e-9))
        scale = (self.l1 if noise == "laplace" else self.l2) / strength
        reach = _REACH[noise] * scale
        return self.factor * (math.floor(reach + 0.5) if self.whole else reach)

    def enough(self, within: float, noise: NoiseName) -> float:
        """The smallest strength whose error is ``within``; infinite where none is, as errors cannot be foretold."""
        if self.free:
            return 0.0
        if self.error(1.0, noise) is None:
            raise ValueError(
                f"{self.ask.name!r}: within= asks for the error of a {self.ask.what}, which depends on how many rows "
                "it is taken over: say rows=, a public guess"
            )
        low, high = 1.0, 1.0
        while (self.error(high, noise) or 0.0) > within:
            low, high = high, 4 * high
            if high > 1e9:
                return math.inf
        while low > 1e-9 and (self.error(low, noise) or 0.0) <= within:
            low, high = low / 4, low
        for _ in range(50):
            middle = math.sqrt(low * high)
            if (self.error(middle, noise) or 0.0) <= within:
                high = middle
            else:
                low = middle
        return high * _INSIDE


# most answers of a long report are alike
@lru_cache(maxsize=256)
def _gaussian(strength: float, delta: float) -> Budget:
    """What Gaussian noise of this strength costs, where ε(δ) is still positive, so that there is a budget."""
    least = min(delta, 0.1 * strength / (1 + strength))
    return Budget(float(epsilon(Gaussian(1 / strength), least)), least)


def demand(ask: Ask, budget: Budget, person: str | None, bounds: dict[str, int | None], rows: float | None) -> Demand:
    """The noise that an answer needs, with every parameter checked; what is wrong names the answer."""
    try:
        return _demand(ask, budget, person, bounds, rows if ask.rows is None else ask.rows)
    except (TypeError, ValueError) as error:
        if str(error).startswith(repr(ask.name)):
            raise
        raise type(error)(f"{ask.name!r}: {error}") from None


def contribution_bounds(ask: Ask, defaults: dict[str, int | None]) -> dict[str, int | None]:
    """Those that the query takes: its own, or the plan's."""
    wanted = ("max_groups", "max_per_group") if ask.grouped else ("max_contributions",)
    found = {name: own if (own := getattr(ask, name)) is not None else defaults[name] for name in wanted}
    own = {name: getattr(ask, name) for name in ("max_contributions", "max_groups", "max_per_group")}
    strange = {name: value for name, value in own.items() if value is not None and name not in wanted}
    return found | strange


def _demand(ask: Ask, budget: Budget, person: str | None, bounds: dict[str, int | None], rows: float | None) -> Demand:
    limits = contribution_bounds(ask, bounds)
    share = checked_share(
        budget,
        person=person,
        grouped=ask.grouped,
        max_contributions=limits.get("max_contributions"),
        max_groups=limits.get("max_groups"),
        max_per_group=limits.get("max_per_group"),
    )
    alone, swapped, fixed = share.alone, share.swapped, not ask.where and ask.groups is None
    if ask.what == "quantile":
        if ask.candidates is None:
            check_bounds(ask.bounds)
        elif isinstance(ask.q, tuple) or ask.bounds is not None or not ask.candidates:
            raise ValueError(f"candidates are for one q, without bounds, at least one value, got {ask!r}")
        levels = np.atleast_1d(np.asarray(ask.q, np.float64))
        if not ((levels >= 0) & (levels <= 1)).all():
            raise ValueError(f"q must be in [0, 1], got q={ask.q!r}")
        return Demand(ask, budget, share)
    if ask.what in ("count", "histogram"):
        if ask.what == "histogram" and not isinstance(ask.bins, tuple):
            check_bounds(ask.bounds)
            integer("bins", ask.bins or 10, at_least=1, at_most=MOST_BINS)
        cells = 2 if ask.grouped else 1
        free = alone and swapped and fixed and not ask.grouped
        one_cell = share.groups == 1 and not (ask.grouped and swapped)
        return Demand(ask, budget, share, share.l1(cells), share.l2(cells), whole=True, one_cell=one_cell, free=free)
    low, high = check_bounds(ask.bounds)
    if ask.what == "sum":
        top, span, m = max(abs(low), abs(high)), max(high, 0) - min(low, 0), share.per_group
        if not ask.grouped:
            public = alone and swapped and not ask.where
            l1 = l2 = m * ((high - low if public else span) if swapped else top)
        else:
            l1 = share.l1(2) * top
            l2 = math.sqrt(share.groups) * m * (max(span, math.sqrt(2) * top) if swapped else top)
        return Demand(ask, budget, share, l1, l2)
    public = alone and fixed and budget.adjacency != "add_remove"
    width = (high - low) ** (1 if ask.what == "mean" else 2)
    factor = None if rows is None else width / rows
    if public and ask.what == "variance" and swapped:
        return Demand(ask, budget, share, 1.0, 1.0, factor, width, one_cell=True)
    if public and ask.what == "mean":
        moved = 1.0 if swapped else 0.5
        return Demand(ask, budget, share, moved, moved, factor, width)
    return Demand(ask, budget, share, share.l1(2), share.l2(2), factor, width)

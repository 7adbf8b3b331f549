"""Exact noise on whole numbers, and what it hides: the one place where a query's noise is calibrated, recorded, drawn.

Every query brings its cells to whole numbers (counts, or sums of values rounded to a lattice row by row), because sums
of whole numbers are exact: a sum in floating point can have a larger sensitivity than the real one (Casacuberta et al.
2022). With Δ₁ and Δ₂ the L1 and L2 sensitivity of the whole numbers, the noise is

* discrete Laplace of scale Δ₁/ε on counts: ε-DP, optimal for one count but for constants (Ghosh, Roughgarden &
  Sundararajan 2009);
* Laplace of scale Δ₁/ε, rounded, on lattices finer than that: ε-DP, and it composes like Laplace noise;
* Gaussian of standard deviation zΔ₂, rounded: exactly 1/z-GDP, with z from the budget.

By default the one of the smallest standard deviation, which only public numbers decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, DiscreteLaplace, Gaussian, Laplace, NoisyMax, Release, calibrate
from accounting.checks import fraction
from accounting.totals import Accountant
from dpkit.mechanisms._checked import charge, settle, still_spent
from dpkit.samplers import discrete_laplace, rounded_gaussian, rounded_laplace

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one
    from accounting.ledger import Row

__all__ = ["Noise", "NoiseName", "choose_noise", "half_width", "paid", "range_per_round", "spend", "with_noise"]

NoiseName = Literal["laplace", "gaussian"]
# Of so many rounds the loss distribution is asked; beyond it takes seconds.
_MOST_ROUNDS = 128
# Rounding of products of positive floats, upwards.
_UP = 1 + 2.0**-50


@dataclass(frozen=True)
class Noise:
    """The law of the noise of every cell: ``scale`` in units of the values, of which one lattice step is ``step``."""

    name: NoiseName
    noise_multiplier: float
    scale: float
    step: float
    whole: bool  # discrete Laplace on the integers themselves
    cost: Release

    @property
    def std(self) -> float:
        """Of one cell."""
        if self.whole:
            a = self.step / self.scale
            return self.step * math.sqrt(2 * math.exp(-a)) / -math.expm1(-a)
        return self.scale * (math.sqrt(2) if self.name == "laplace" else 1.0)

    def reach(self, confidence: float) -> float:
        """The smallest half-width that holds the noise of one cell with at least this probability."""
        confidence = fraction("confidence", confidence)  # a float, which the cache can look up
        if self.whole:
            # P(|k| > m) = 2q^(m + 1)/(1 + q)
            a = self.step / self.scale
            m = math.log(2 / ((1 - confidence) * (1 + math.exp(-a)))) / a - 1
            return self.step * max(0, math.ceil(m - 1e-9))
        return _reach(self, confidence) + self.step / 2

    def half_width(self, confidence: float, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same for Σ w_j·(noise of cell j), per row of ``weights`` (…, cells); rounding to the lattice aside."""
        return half_width(lambda t: self.tail(t, weights), confidence, self.std * np.sqrt((weights**2).sum(axis=-1)))

    def tail(self, t: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """P(|Σ w_j·(noise of cell j)| > t), per row.

        For Laplace noise by partial fractions of the characteristic function Π 1/(1 + w_j²s²): the sum over j of
        exp(−t/w_j)·Π_{k ≠ j} w_j²/(w_j² − w_k²). Weights closer than 10⁻⁴ of each other are moved apart by as much.
        """
        w = np.abs(weights) * self.scale
        if self.name == "gaussian":
            from scipy.special import erfc

            return np.asarray(erfc(t / np.maximum(np.sqrt((w**2).sum(axis=-1)), 1e-300) / math.sqrt(2)))
        w = np.sort(w, axis=-1)
        largest = w[..., -1:]
        for j in range(1, w.shape[-1]):
            w[..., j] = np.maximum(w[..., j], w[..., j - 1] + 1e-4 * largest[..., 0])
        w = np.maximum(w, 1e-300)
        total = np.zeros(np.broadcast_shapes(np.shape(t), w.shape[:-1]))
        for j in range(w.shape[-1]):
            term = np.exp(-t / w[..., j])
            for k in range(w.shape[-1]):
                if k != j:
                    term = term * (w[..., j] ** 2 / (w[..., j] ** 2 - w[..., k] ** 2))
            total += term
        return np.clip(total, 0.0, 1.0)


# a report asks for many answers with the same noise
@lru_cache(maxsize=256)
def _reach(noise: Noise, confidence: float) -> float:
    """The half-width of one cell."""
    return noise.half_width(confidence, np.ones((1, 1))).item()


def half_width(
    tail: Callable[[NDArray[np.float64]], NDArray[np.float64]], confidence: float, std: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Where a falling ``tail`` meets 1 − ``confidence``, by bisection; rounded up."""
    fraction("confidence", confidence)
    low, high = np.zeros_like(std), std.copy()
    while np.any(grow := tail(high) > 1 - confidence):
        high = np.where(grow, 2 * high + 1e-300, high)
    for _ in range(60):
        middle = (low + high) / 2
        above = tail(middle) > 1 - confidence
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high


def choose_noise(
    budget: Budget, name: NoiseName | None, *, l1: float, l2: float, step: float, whole: bool, one_cell: bool
) -> Noise:
    """The noise that makes cells of L1 and L2 sensitivities ``l1`` and ``l2`` (in steps) meet ``budget``.

    ``whole``: the cells are counts; ``one_cell``: a unit changes one cell only, by a whole number of at most ``l1``.
    """
    if name not in (None, "laplace", "gaussian"):
        raise ValueError(f"noise must be 'laplace' or 'gaussian' (by default the smaller), got noise={name!r}")
    if name == "gaussian" and budget.delta == 0:
        raise ValueError(
            f"Gaussian noise needs budget.delta > 0, got {budget!r}: allow 1e-6, say, or take noise='laplace'"
        )
    return _chosen(budget, name, l1, l2, step, whole, one_cell)


@lru_cache(maxsize=256)
def _chosen(
    budget: Budget, name: NoiseName | None, l1: float, l2: float, step: float, whole: bool, one_cell: bool
) -> Noise:
    """The same, calibrated once for all answers of a report that are alike."""
    found: list[Noise] = []
    adjacency = budget.adjacency
    if name != "gaussian":
        # as if δ were 0: it would save a millionth of the noise, and n answers at ε/n would just not fit into ε
        z = calibrate(lambda z: Laplace(z, adjacency=adjacency), replace(budget, delta=0.0), accountant="pure")
        shift = int(l1) if one_cell else None
        cost: Release = DiscreteLaplace(z, shift, adjacency=adjacency) if whole else Laplace(z, adjacency=adjacency)
        found.append(Noise("laplace", z, z * l1 * _UP * step, step, whole, cost))
    if name != "laplace" and budget.delta > 0:
        z = calibrate(lambda z: Gaussian(z, adjacency=adjacency), budget)
        found.append(Noise("gaussian", z, z * l2 * _UP * step, step, False, Gaussian(z, adjacency=adjacency)))
    return min(found, key=lambda noise: noise.std)


def spend(
    noise: Noise, label: str, rng: np.random.Generator, ledger: Ledger | None, also: Release | None = None
) -> tuple[Release, Row | None]:
    """Record what the noise costs (and what is spent ``also``), before anything random happens; its row, too."""
    scale = noise.scale / noise.step
    if not 2.0**-40 <= scale <= 2.0**40:
        raise ValueError(
            f"the noise must be within a factor of 2**40 of the resolution, got {scale:.3g} steps: choose a larger "
            "epsilon, or smaller bounds on what one unit contributes"
        )
    cost = noise.cost if also is None else noise.cost + also
    return cost, charge(ledger, cost, f"queries.{label}", rng)


@contextmanager
def paid(ledger: Ledger | None, row: Row | None) -> Iterator[None]:
    """A block that draws what was charged, settled at its end; whoever interrupts it is told what stays spent."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if row is not None:
            interrupt.add_note(still_spent(row.label or "a query", row))
        raise
    settle(ledger, row)


def with_noise(cells: NDArray[np.int64], noise: Noise, rng: np.random.Generator) -> NDArray[np.int64]:
    """The cells plus independent noise, in steps."""
    sampler = discrete_laplace if noise.whole else rounded_laplace if noise.name == "laplace" else rounded_gaussian
    return cells + sampler(noise.scale / noise.step, cells.shape, rng=rng)


def range_per_round(rounds: int, budget: Budget) -> float:
    """The largest ε such that so many mechanisms of bounded range ε meet the budget (the calibration is kept)."""
    return _range_per_round(rounds, replace(budget, unit="any"))


@lru_cache(maxsize=256)
def _range_per_round(rounds: int, budget: Budget) -> float:
    """The same for every unit; it takes up to a second."""
    if rounds == 1:  # as for Laplace noise in ``choose_noise``
        budget = replace(budget, delta=0.0)

    def multiplier(accountant: Accountant | None) -> float:
        return calibrate(
            lambda z: rounds * NoisyMax(1 / z, "gumbel", adjacency=budget.adjacency), budget, accountant=accountant
        )

    if budget.delta == 0:
        return 1 / multiplier("pure")
    return 1 / (multiplier(None) if rounds <= _MOST_ROUNDS else min(multiplier("pure"), multiplier("rdp")))

"""A mechanism of your own: staircase noise on a whole number, exact, with its cost in a ledger.

For sums of whole numbers of which one person moves many at once: at a large ε its noise is far smaller than Laplace
noise, which pays for every step between 0 and the sensitivity. Source: Geng & Viswanath (2014), "The optimal mechanism
in differential privacy", arXiv:1212.1186, section on integers. With b = e^(−ε), the sensitivity Δ and a step 1 ≤ r ≤ Δ,

    P(N = i) = a·b^⌊i/Δ⌋·(1 if i mod Δ < r else b) for i ≥ 0,        P(N = −i) = P(N = i).

Privacy. Unit and adjacency are those under which the number moves by at most Δ. P falls in |i|, and P(i + Δ) = b·P(i)
for i ≥ 0, so that a shift by at most Δ changes no probability by more than e^ε: pure ε-DP. Nothing is computed in
floating point after the draw, and the draw is exact: geometric variables come from ``dpkit.samplers``, and an event of
probability b is that one of them is positive.

    >>> noisy = staircase(1204, sensitivity=50, epsilon=4.0)
    >>> abs(noisy - 1204) < 1000   # fails with probability e^(-80)
    True
"""

from __future__ import annotations

import math

import numpy as np
from description import Staircase
from numpy.typing import NDArray

from accounting import Adjacency, Ledger
from accounting.checks import integer, positive
from dpkit import randomness, samplers

__all__ = ["best_step", "staircase", "staircase_noise"]


def staircase(
    value: int,
    *,
    sensitivity: int,
    epsilon: float,
    adjacency: Adjacency = "replace",
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> int:
    """``value`` plus staircase noise.

    Parameters
    ----------
    value : int
    sensitivity : int
        Δ ≥ 1.
    epsilon : float
        ε > 0, the cost.
    adjacency : {"replace", "add_remove", "zero_out"}
        The neighbouring relation under which Δ holds.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Records the cost, or refuses it, before any noise is drawn.

    Raises
    ------
    TypeError, ValueError
        For a parameter out of range: nothing is spent.
    BudgetExceeded
        If the ledger has not enough left.
    """
    cost = Staircase(epsilon, sensitivity, adjacency=adjacency)  # 1. refuse what is wrong
    whole = integer("value", value, at_least=-(2**62))
    source = randomness.resolve(rng)
    if ledger is not None:  # 2. charge
        ledger.spend(cost, label="staircase", simulation=randomness.is_simulation(source))
    return whole + int(staircase_noise(sensitivity, epsilon, 1, source)[0])  # 3. draw


def best_step(sensitivity: int, epsilon: float) -> int:
    """r ≈ Δ/(1 + e^(ε/2)), which makes the mean size of the noise smallest (the paper's Theorem 4)."""
    return max(1, round(sensitivity / (1 + math.exp(min(positive("epsilon", epsilon), 700.0) / 2))))


def staircase_noise(sensitivity: int, epsilon: float, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``size`` draws, by rejection: a stair, a place on it, and a sign; no zero with a minus."""
    step, drawn = best_step(sensitivity, epsilon), np.empty(0, dtype=np.int64)
    # rounded up, so that the law is not narrower than ε asks for
    scale = math.nextafter(1 / epsilon, math.inf)
    while drawn.size < size:
        # of a discrete Laplace variable, given that it is not negative, the law is geometric
        stairs, steep = (samplers.discrete_laplace(scale, 8 * size, rng=rng) for _ in range(2))
        place = rng.integers(0, sensitivity, 8 * size)
        negative = rng.integers(0, 2, 8 * size).astype(bool)
        kept = (stairs >= 0) & (steep >= 0) & ((place < step) | (steep > 0))
        noise = stairs * sensitivity + place
        kept &= ~(negative & (noise == 0))
        drawn = np.concatenate([drawn, np.where(negative, -noise, noise)[kept]])
    return drawn[:size]

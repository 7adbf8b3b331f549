"""One binomial count that a unit moves: the pair that shuffled messages meet for certain inputs, rounded down.

With b the pmf of Bin(n, r), P(x) = (1 − s)·b(x) + s·b(x − v) and Q the same with s′ < s. P/Q grows with x, as
b(x − v)/b(x) does. Counts in the tails are merged, which is a post-processing; masses of P are rounded down and those
of Q up, by more than their errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.losses import histogram
from accounting.amplification.blanket import LEFT_OUT, binomial_window

__all__ = ["CountPair"]

Array = NDArray[np.float64]

# Counts beyond which b has less than that are merged: far more than what the window leaves out.
_RARE = 1e-16


@dataclass(frozen=True)
class CountPair:
    """Bin(``trials``, ``rate``), and ``step`` more with probability ``first`` under P and ``second`` under Q."""

    trials: int
    rate: float
    step: int
    first: float
    second: float

    def delta(self, epsilon: float) -> float:
        losses, p, _ = _atoms(self)
        with np.errstate(under="ignore"):
            return float(p @ np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        return histogram(edges, *_atoms(self))

    def highest(self, log_tail: float) -> float:
        losses, p, _ = _atoms(self)
        rare = int(np.searchsorted(np.cumsum(p[::-1]), math.exp(max(log_tail, -700.0)) * (1 - 1e-9)))
        return float(losses[-1 - min(rare, losses.size - 1)])

    def lowest(self, log_tail: float) -> float:
        """An x such that P has at most e^``log_tail`` below −x."""
        losses, p, _ = _atoms(self)
        rare = int(np.searchsorted(np.cumsum(p), math.exp(max(log_tail, -700.0)) * (1 - 1e-9)))
        return -float(losses[min(rare, losses.size - 1)])


@lru_cache(maxsize=64)
def _atoms(pair: CountPair) -> tuple[Array, Array, Array]:
    """Losses in increasing order, and the masses of P and Q."""
    counts, b = binomial_window(pair.trials, pair.rate)
    step = pair.step
    here, moved = np.append(b, np.zeros(step)), np.append(np.zeros(step), b)
    laws = [(1 - share) * here + share * moved for share in (pair.first, pair.second)]
    # the first and the last count up to which, and from which on, both laws have a mass that is not rare
    below = np.min([np.cumsum(law) for law in laws], axis=0)
    above = np.min([np.cumsum(law[::-1]) for law in laws], axis=0)
    first, last = int(np.searchsorted(below, _RARE)), below.size - 1 - int(np.searchsorted(above, _RARE))
    if first >= last:  # they hardly overlap, and nothing is claimed
        return np.zeros(1), np.ones(1), np.ones(1)
    merged = [law[first : last + 1].copy() for law in laws]
    for inside, law in zip(merged, laws, strict=True):
        inside[0] += law[:first].sum()
        inside[-1] += law[last + 1 :].sum()
    # a sum of as many logarithms, none of which is above 60 in all
    doubt = 2.0**-52 * (64 * counts.size + 64)
    p, q = merged[0] * (1 - doubt), merged[1] * (1 + doubt)
    # what lies outside of the window
    p[[0, -1]] = np.maximum(p[[0, -1]] - LEFT_OUT, 0.0)
    q[0] += LEFT_OUT
    q[-1] += LEFT_OUT
    kept = p > 0
    losses = np.log(p[kept]) - np.log(q[kept])
    # rounding must not change their order
    return np.minimum.accumulate(losses[::-1])[::-1], p[kept], q[kept]

"""Randomized responses: dominating pairs of two or three losses, the worst of pure differential privacy among them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.arrays import Array
from accounting.loss.pair import Atoms, Symmetric

__all__ = ["Bits", "Coins", "RangePair"]


@dataclass(frozen=True)
class Coins(Atoms, Symmetric):
    """Finitely many losses: randomized response, and with k = 2 every pure DP mechanism (Kairouz et al. 2015)."""

    exact = True
    epsilon: float
    categories: float = 2

    def atoms(self) -> tuple[Array, Array, Array, float]:
        eps, k = self.epsilon, self.categories
        losses = np.array([-eps, 0.0, eps])
        low = math.exp(-eps) / (1 + (k - 1) * math.exp(-eps))
        p = np.array([low, (k - 2) * low, 1 / (1 + (k - 1) * math.exp(-eps))])
        return losses, p, p[::-1], 0.0

    def highest(self, log_tail: float) -> float:
        return self.epsilon


@dataclass(frozen=True)
class Bits(Coins):
    """A unary encoding: losses as of a response of as many ``categories``, but of three values other laws."""

    optimized: bool = True


@dataclass(frozen=True)
class RangePair(Atoms):
    """Two losses, −``low`` and ``high``: of all pairs whose loss lies between, the largest in convex order of e^L."""

    exact = True
    low: float
    high: float

    def highest(self, log_tail: float) -> float:
        return self.high

    def lowest(self, log_tail: float) -> float:
        """An x such that no loss lies below −x."""
        return self.low

    def atoms(self) -> tuple[Array, Array, Array, float]:
        # the two laws of a coin whose likelihood ratios are e^−low and e^high
        low, high, whole = (-math.expm1(-x) for x in (self.low, self.high, self.low + self.high))
        p = np.array([math.exp(-self.low) * high, low]) / whole
        q = np.array([high, math.exp(-self.high) * low]) / whole
        return np.array([-self.low, self.high]), p, q, 0.0

"""Report-noisy-max with Gumbel noise, the exponential mechanism: the pair of one choice."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.arrays import UNIT_ROUNDOFF, Array
from accounting.loss.pair import Symmetric

__all__ = ["SpanPair"]


@dataclass(frozen=True)
class SpanPair(Symmetric):
    """A loss in an interval of length s = ``span``, with the worst interval for every ε: report-noisy-max with Gumbel
    noise.

    The pair of coins with losses t and t − s has H = (1 − e^(ε−t))(1 − e^(t−s))/(1 − e^(−s)), largest at t = (ε + s)/2.
    With y = e^((ε−s)/2) that is (1 − y)²/(1 − e^(−s)), again the divergence of a pair (Dong, Durfee & Rogers 2020):
    P(L > ε) = (1 − y)/(1 − e^(−s)), and Q has the density e^(−L).
    """

    follows = True
    span: float

    def delta(self, epsilon: float) -> float:
        if epsilon < -self.span:
            return -math.expm1(epsilon)
        gap = -math.expm1(min(0.0, epsilon - self.span) / 2)
        return min(1.0, gap * gap / -math.expm1(-self.span) * (1 + 8 * UNIT_ROUNDOFF))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        inside = np.clip(edges, -self.span, self.span)
        low, high = np.concatenate([[-self.span], inside]), np.concatenate([inside, [self.span]])
        gap = -np.expm1((low - high) / 2) / -math.expm1(-self.span)
        return np.exp((high - self.span) / 2) * gap, np.exp(-(low + self.span) / 2) * gap

    def highest(self, log_tail: float) -> float:
        return self.span

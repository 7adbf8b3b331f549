"""A description that says its own privacy loss: logistic noise, priced by what it costs.

``pair`` says what the noise makes of one step; accountants then know the noise in any sum, sampled and in parallel,
and from below as well. ``weaker`` is what a ledger stores with it, and what shows where this file does not exist.

    >>> from accounting import Gaussian, bound, epsilon
    >>> hundred = 100 * Logistic(10.0)
    >>> round(epsilon(hundred, 1e-6), 3), round(epsilon(100 * Logistic(10.0).weaker(), 1e-6), 3)
    (2.612, 4.775)
    >>> lower, upper = bound(hundred + Gaussian(5.0), 1e-6)
    >>> round(lower, 2), round(upper, 2)
    (2.79, 2.79)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accounting import PureDP, Release
from accounting.checks import positive
from accounting.loss import AdditiveNoise, Array, LossPair

__all__ = ["Logistic"]


@dataclass(frozen=True, repr=False)
class Logistic(Release):
    """Logistic noise of scale ``noise_multiplier`` × the L1 sensitivity, on one number."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("noise_multiplier", self.noise_multiplier)

    def pair(self) -> LossPair:
        return LogisticPair(1.0 / self.noise_multiplier)

    def weaker(self) -> Release:
        return PureDP(1.0 / self.noise_multiplier, adjacency=self.adjacency)


@dataclass(frozen=True)
class LogisticPair(AdditiveNoise):
    """The noise around ``shift`` and around 0: symmetric, log-concave, of the density e^(−x)/(1 + e^(−x))²."""

    shift: float

    def log_density(self, x: Array) -> Array:
        return -np.abs(x) - 2 * np.log1p(np.exp(-np.abs(x)))

    def tail(self, x: Array) -> Array:
        return np.exp(-np.logaddexp(0.0, x))

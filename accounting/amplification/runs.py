"""The law of the number of runs of which the best is released, as its generating function f(x) = E[x^K] shows it.

The best of K runs lies below the share x of all outputs of one run with probability f(x). What is needed of f is taken
at x = 1 − s, s the share of outputs that are better, so that nothing is lost where x is near 1:

* truncated negative binomial, v = γ + (1 − γ)s: f = (v^(−η) − 1)/(γ^(−η) − 1), f′ = E[K]·(γ/v)^(1 + η) (the limit
  ln v/ln γ for η = 0);
* Poisson: f = e^(−μs), f′ = μe^(−μs).

f and all its derivatives increase. Everything here is right to ``rounding`` of itself, if its arguments are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.arrays import Array

__all__ = ["NegativeBinomial", "Poisson", "Runs", "fits_floats"]


# Places at which f′ is followed, and by what share it may change from one to the next.
_MOST_PLACES, _CHANGE = 1500, 0.01
_MOST_RUNS = 1 << 15
# Laws with which products would lose their digits: ln of the largest f′ over the smallest, and over 1.
_WIDEST, _LARGEST_MEAN = 600.0, 1e12


@dataclass(frozen=True)
class NegativeBinomial:
    """K ≥ 1 with P(K = k) ∝ (1 − γ)^k·Γ(k + η)/k!."""

    stop: float
    shape: float
    mean: float

    #: P(K = 0)
    none = 0.0

    @property
    def theta(self) -> float:
        """f′ is v to the power of −1/θ."""
        return 1.0 / (1.0 + self.shape)

    @property
    def rounding(self) -> float:
        """The relative error of what is computed here."""
        return 2.0**-48 * (2.0 + abs(self.shape)) * (1.0 - math.log(self.stop))

    def _value(self, s: Array) -> Array:
        return self.stop + (1.0 - self.stop) * s

    def slope(self, s: Array) -> Array:
        """f′(1 − s)."""
        return self.mean * np.exp((1.0 + self.shape) * np.log(self.stop / self._value(s)))

    def bend(self, s: Array) -> Array:
        """f″(1 − s)."""
        return (1.0 + self.shape) * (1.0 - self.stop) / self._value(s) * self.slope(s)

    def gain(self, s: Array, mass: Array) -> Array:
        """f(1 − s) − f(1 − s − mass)."""
        value = self._value(s)
        log_fall = np.log1p((1.0 - self.stop) * mass / value)
        fall = log_fall if abs(self.shape) < 1e-100 else -np.expm1(-self.shape * log_fall) / self.shape
        return self.slope(s) * value / (1.0 - self.stop) * fall

    def places(self) -> Array:
        """Shares from 0 to 1 between which f′ changes little."""
        count = min(_MOST_PLACES, math.ceil(-(1.0 + self.shape) * math.log(self.stop) / _CHANGE) + 2)
        values = np.geomspace(self.stop, 1.0, count)
        return np.clip((values - self.stop) / (1.0 - self.stop), 0.0, 1.0)

    def chances(self) -> Array:
        """P(K = 1), P(K = 2), …, most of them."""
        k = np.arange(1, min(_MOST_RUNS, math.ceil(40.0 / self.stop) + 50), dtype=np.float64)
        ratios = (1.0 - self.stop) * (k + self.shape) / (k + 1.0)
        return float(self.slope(np.array(1.0))) * np.cumprod(np.concatenate([[1.0], ratios[:-1]]))


@dataclass(frozen=True)
class Poisson:
    """K of the Poisson law of that mean."""

    mean: float

    #: The limit of large shapes
    theta = 0.0

    @property
    def none(self) -> float:
        """P(K = 0)."""
        return math.exp(-self.mean)

    @property
    def rounding(self) -> float:
        """The relative error of what is computed here."""
        return 2.0**-48 * (2.0 + self.mean)

    def slope(self, s: Array) -> Array:
        """f′(1 − s)."""
        return np.asarray(self.mean * np.exp(-self.mean * s))

    def bend(self, s: Array) -> Array:
        """f″(1 − s)."""
        return self.mean * self.slope(s)

    def gain(self, s: Array, mass: Array) -> Array:
        """f(1 − s) − f(1 − s − mass)."""
        return self.slope(s) * -np.expm1(-self.mean * mass) / self.mean

    def places(self) -> Array:
        """Shares from 0 to 1 between which f′ changes little."""
        return np.linspace(0.0, 1.0, min(_MOST_PLACES, math.ceil(self.mean / _CHANGE) + 2))

    def chances(self) -> Array:
        """P(K = 1), P(K = 2), …, most of them."""
        k = np.arange(1, min(_MOST_RUNS, math.ceil(2.0 * self.mean + 12.0 * math.sqrt(self.mean)) + 50))
        return np.asarray(np.exp(k * math.log(self.mean) - self.mean - np.cumsum(np.log(k))))


Runs = NegativeBinomial | Poisson


def fits_floats(law: Runs) -> bool:
    """Whether floats can follow the law: products with it keep their digits."""
    wide = law.mean if isinstance(law, Poisson) else -(1.0 + law.shape) * math.log(law.stop)
    return wide <= _WIDEST and law.mean <= _LARGEST_MEAN

"""Additive noise of your own: from a density and a tail to a pair."""

from __future__ import annotations

import math

import numpy as np

from accounting.arrays import UNIT_ROUNDOFF, Array
from accounting.loss.pair import Symmetric, mirrored, where_rare
from accounting.masses import between_places

__all__ = ["AdditiveNoise"]


# Noise that is farther from 0 never matters.
_FARTHEST = 1e5


class AdditiveNoise(Symmetric):
    """Noise on one number that moves by at most ``shift``: P is the noise around ``shift``, Q that around 0.

    Its density must be symmetric, positive everywhere and log-concave. So L does not fall as x rises, every event
    L > ε is a half-line, and of all shifts the largest is the worst: the pair is its own (``exact``).

    What derives from it says ``shift``, ``log_density(x)`` and ``tail(x)``, the probability of more than x.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Logistic(AdditiveNoise):
    ...     shift: float
    ...     def log_density(self, x):
    ...         return -np.abs(x) - 2 * np.log1p(np.exp(-np.abs(x)))
    ...     def tail(self, x):
    ...         return np.exp(-np.logaddexp(0.0, x))
    >>> round(Logistic(1.0).delta(0.5), 6)
    0.077405
    """

    exact = True
    shift: float

    def log_density(self, x: Array) -> Array:
        """ln of the noise's density at x, but for a constant."""
        raise NotImplementedError

    def tail(self, x: Array) -> Array:
        """The probability that the noise is more than x, right to a few units in the last place."""
        raise NotImplementedError

    @mirrored
    def delta(self, epsilon: float) -> float:
        x = self._places(np.array([epsilon]))
        in_p, in_q = float(self.tail(x - self.shift)[0]), math.exp(min(epsilon, 700.0)) * float(self.tail(x)[0])
        return min(1.0, max(0.0, in_p - in_q) + 16 * UNIT_ROUNDOFF * (in_p + in_q))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        x = self._places(edges)
        return self._between(x - self.shift), self._between(x)

    def highest(self, log_tail: float) -> float:
        x = where_rare(lambda at: float(self.tail(np.array([at]))[0]), log_tail) + self.shift
        return float(self._loss(np.array([x]))[0]) * (1 + 1e-12)

    def _loss(self, x: Array) -> Array:
        return self.log_density(x - self.shift) - self.log_density(x)

    def _places(self, losses: Array) -> Array:
        """The least x at which L is more than each of ``losses``, infinite if it never is."""
        size = np.abs(losses)
        low, high = np.full(size.size, self.shift / 2), np.full(size.size, self.shift / 2 + 1.0)
        for _ in range(60):
            short = self._loss(high) <= size
            if not np.any(short) or float(high.max()) > _FARTHEST:
                break
            high = np.where(short, 2 * high, high)
        never = self._loss(high) <= size
        for _ in range(60):
            middle = (low + high) / 2
            above = self._loss(middle) > size
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        x = np.where(never, np.inf, high)
        # L is odd around the middle of the two laws
        return np.asarray(np.where(losses < 0, self.shift - x, x))

    def _between(self, x: Array) -> Array:
        """The noise's mass up to x[0], between neighbouring x, and above the last."""
        with np.errstate(over="ignore"):
            tails = self.tail(np.abs(x))
        return np.asarray(np.maximum(between_places(x, tails), 0.0))

"""Three scores, of which a record raises one and its substitute another: what batches of noisy maxima cost at least.

Let the batch without the record have a score that leads, and two that are a behind. The record raises the first of
these by ε and the second by ε/2, its substitute the second by ε and the first by ε/2. So the three vectors of scores
lie within ε of each other, up to constants; and with a batch that has one of the two with probability q,

    P = (x, y, 1 − x − y),    Q = (y, x, 1 − x − y),    x = (1 − q)R₁ + qS₁,    y = (1 − q)R₂ + qS₂,

is a loss of ± ln(x/y), or of 0. Any a will do; the one that is taken makes a moment largest. The batch without the
record hardly ever chooses either of the two: so it hides neither what the record adds nor what its substitute does,
where of two scores (S′ = R) only one is to be seen. The weaker and the more the steps, the more that counts: where ε is
above 2 the variance of a loss is larger than with two scores, and nearly twice as large for ε ≥ 6 at low rates.

With Laplace noise four equal scores lead: their best is hardly ever below 0, where the odds of who is behind grow by
less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.arrays import Array
from accounting.loss.laplace_maxima import integral
from accounting.loss.pair import Atoms, Symmetric
from accounting.masses import laplace_below

__all__ = ["ThreeLossesPair", "three_scores"]


# What probabilities and losses are rounded by, far more than they are off by.
_INWARDS = 1e-9
# Scores that lead with Laplace noise.
_LEADERS = 4


@dataclass(frozen=True)
class ThreeLossesPair(Atoms, Symmetric):
    """A loss of ±``high`` or 0, of which P has ``chance`` at ``high``."""

    exact = True
    high: float
    chance: float

    def atoms(self) -> tuple[Array, Array, Array, float]:
        rare = self.chance * math.exp(-self.high)
        p = np.array([rare, 1 - self.chance - rare, self.chance])
        return np.array([-self.high, 0.0, self.high]), p, p[::-1], 0.0

    def highest(self, log_tail: float) -> float:
        return self.high


def _gumbel(first: Array, second: Array) -> Array:
    return np.asarray(np.exp(first) / (np.exp(first) + np.exp(second) + 1))


def _exponential(first: Array, second: Array) -> Array:
    """w ∫₀¹ (1 − w₂v)(1 − w₃v) dv, w = e^score relative to the largest."""
    top = np.maximum(np.maximum(first, second), 0.0)
    w, second, third = np.exp(first - top), np.exp(second - top), np.exp(-top)
    return np.asarray(w * (1 - (second + third) / 2 + second * third / 3))


def _laplace(first: Array, second: Array) -> Array:
    """∫ f(x − first)F(x − second)F(x)ⁿ dx for n leaders, piece after piece between the scores."""

    def mass(x: Array) -> Array:
        density = 0.5 * np.exp(-np.abs(x - first[:, None]))
        return np.asarray(density * laplace_below(x - second[:, None]) * laplace_below(x) ** _LEADERS)

    return integral(mass, *np.sort([first, second, np.zeros_like(first)], axis=0)[..., None])


_WINS = {"gumbel": _gumbel, "exponential": _exponential, "laplace": _laplace}


def three_scores(epsilon: float, noise: str, rate: float, order: float) -> tuple[float, float]:
    """The largest loss and its probability, of the a whose moment E[e^(order·L)] is largest; rounded inwards.

    The probability that the first score wins is a function of its own lead over the third and of the second's.
    """
    wins = _WINS[noise]
    behind = -np.linspace(0.0, 2 * epsilon + 2, 129)
    absent = wins(behind, behind)
    one, other = wins(behind + epsilon, behind + epsilon / 2), wins(behind + epsilon / 2, behind + epsilon)
    x, y = (1 - rate) * absent + rate * one, (1 - rate) * absent + rate * other
    high = np.log1p(rate * (one - other) / y)
    with np.errstate(over="ignore"):
        moment = x * np.expm1(order * high) + y * np.expm1(-order * high)
    best = int(np.argmax(moment))
    return float(high[best]) * (1 - _INWARDS), float(x[best]) * (1 - _INWARDS)

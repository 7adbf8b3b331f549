"""Confidence bounds on how far apart two binomial probabilities are, exact for every sample size.

X ~ Bin(n, p) counts an event on one input and Y ~ Bin(m, q) the same event on its neighbour. A privacy claim says
that p is at most some function of q; ``theta(p, q)``, increasing in p and decreasing in q, is the parameter
of the weakest claim of its kind that still holds:

* (ε, δ)-DP: θ = ln((p − δ)/q);
* Gaussian DP: θ = Φ⁻¹(p) − Φ⁻¹(q) (Dong, Roth & Su 2022, Eq. 6).

Clopper & Pearson's lower bound on p at one level and upper bound on q at another give a lower bound on θ. How
should the two share the error α? Splitting it in halves counts both misfortunes as if they came together. Here
the split is left open. With Q(a) = P(N(0, 1) > a), let p̲(a) and q̄(b) be the Clopper–Pearson bounds at levels
Q(a) and Q(b), and let A be the number at which p̲(A) = p, and B that at which q̄(B) = q. A and B are independent,
and each is stochastically at most a standard normal: that is what Clopper–Pearson means. So with weights
w₁² + w₂² = 1 fixed beforehand, and z such that P(w₁N₁⁺ + w₂N₂⁺ ≥ z) = α for independent standard normals,
w₁A⁺ + w₂B⁺ < z with probability at least 1 − α. Then some point a, b ≥ 0 of the line w₁a + w₂b = z has a ≥ A and
b ≥ B, that is p̲(a) ≤ p and q̄(b) ≥ q, and so the minimum of θ(p̲(a), q̄(b)) over the line is at most θ(p, q).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction

__all__ = [
    "FAR",
    "Distance",
    "check_confidence",
    "critical",
    "epsilon_distance",
    "gaussian_distance",
    "lower",
    "lower_confidence",
    "upper",
]

Distance = Callable[[Array, Array], Array]

# Levels further out than this (5e-198) are taken for 0, where the inverse of the beta function loses its digits.
FAR = 30.0


def check_confidence(confidence: float) -> float:
    """``confidence`` as a float in [0.5, 1)."""
    number = fraction("confidence", confidence)
    if number < 0.5:
        raise ValueError(f"confidence must be at least 0.5, got confidence={confidence!r}")
    return number


def epsilon_distance(delta: float) -> Distance:
    """θ(p, q) = ln((p − δ)/q): the smallest ε that a pair of probabilities allows at ``delta``."""

    def theta(p: Array, q: Array) -> Array:
        excess = p - delta
        # an event that is no likelier than δ says nothing
        return np.where(excess > 0, np.log(np.where(excess > 0, excess, 1.0)) - np.log(q), -np.inf)

    return theta


def gaussian_distance(p: Array, q: Array) -> Array:
    """θ(p, q) = Φ⁻¹(p) − Φ⁻¹(q): the smallest μ that a pair of probabilities allows."""
    from scipy.special import ndtri

    with np.errstate(invalid="ignore"):
        mu = ndtri(p) - ndtri(q)
    return np.where((p <= 0) | (q >= 1), -np.inf, mu)


def lower(hits: int, trials: int, deviations: Array) -> Array:
    """Clopper & Pearson's lower bounds on a probability at the levels Q(``deviations``)."""
    from scipy.special import betaincinv, ndtr

    if hits == 0:
        return np.zeros_like(deviations)
    bounds = betaincinv(hits, trials - hits + 1, ndtr(-np.minimum(deviations, FAR)))
    return np.where(deviations < FAR, bounds, 0.0)


def upper(hits: int, trials: int, deviations: Array) -> Array:
    """Clopper & Pearson's upper bounds on a probability at the levels Q(``deviations``)."""
    from scipy.special import betainccinv, ndtr

    if hits == trials:
        return np.ones_like(deviations)
    bounds = betainccinv(hits + 1, trials - hits, ndtr(-np.minimum(deviations, FAR)))
    return np.where(deviations < FAR, bounds, 1.0)


@cache
def critical(angle: float, alpha: float) -> float:
    """z such that P(w₁N₁⁺ + w₂N₂⁺ ≥ z) = α for (w₁, w₂) = (sin ``angle``, cos ``angle``).

    With f and Q the standard normal density and upper tail, the probability is
    Q(z/w₁) + Q(z/w₂)/2 + ∫₀^{z/w₁} f(a)·Q((z − w₁a)/w₂) da, which needs α < 3/4.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    w1, w2 = math.sin(angle), math.cos(angle)
    nodes, weights = np.polynomial.legendre.leggauss(256)

    def excess(z: float) -> float:
        end = min(z / w1, FAR)
        a = end * (nodes + 1) / 2
        inner = end / 2 * float(weights @ (np.exp(-a * a / 2) * ndtr((w1 * a - z) / w2)))
        tail = float(ndtr(-z / w1)) + float(ndtr(-z / w2)) / 2 + inner / math.sqrt(2 * math.pi)
        return math.log(tail) - math.log(alpha)

    return float(brentq(excess, 1e-12, FAR, xtol=1e-12))


def lower_confidence(
    theta: Distance, x: int, n: int, y: int, m: int, *, angle: float, alpha: float, cells: int = 96
) -> float:
    """The lower bound on θ(p, q) of the module's text, at confidence 1 − ``alpha``; −inf if the data say nothing.

    The line is cut into cells. In each, p̲ is taken at one end and q̄ at the other, where both are worst, so the
    minimum over cells is never above the minimum over the line.
    """
    w1, w2 = math.sin(angle), math.cos(angle)
    z = critical(angle, alpha)
    a = np.linspace(0.0, z / w1, cells + 1)
    b = np.maximum((z - w1 * a) / w2, 0.0)
    return float(np.min(theta(lower(x, n, a[1:]), upper(y, m, b[:-1]))))

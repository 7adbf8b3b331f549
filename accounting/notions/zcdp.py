"""Zero-concentrated differential privacy: ρ of a description (Bun & Steinke 2016). ρ adds under composition.

ρ is the supremum of ε_α/α over orders α > 1. For the three mechanisms below it is reached as α → 1, so it is the
Kullback–Leibler divergence. With s = (α − ½)², (α − 1)ε_α is, up to a constant, the logarithm of

* ε-DP (binary randomized response): cosh(ε√s);
* k-ary randomized response: cosh(ε√s) + (k − 2)/(2e^(ε/2));
* Laplace, θ = 1/z: cosh(θ√s) + sinh(θ√s)/(2√s).

Each is an entire function of s of order ½. If its zeros are real and negative it is a product of factors 1 + s/a
(Hadamard), so its logarithm is concave in s and lies below its tangent at s = ¼, that is at α = 1. As α(α − 1) = s −
¼, that is the claim. The first has the zeros of cos(εy), s = −y²; so has the second while (k − 2)/(2e^(ε/2)) ≤ 1; the
third is the characteristic function of a self-adjoint Sturm–Liouville problem (u″ = su on [0, θ], u′(0) = u(0)/2,
u(θ) = 0), whose eigenvalues are real, and negative because it has no zero at s ≥ 0. For larger k the supremum is
bounded between neighbouring orders a < b by ε_b/a, since ε_α increases.

Gumbel report-noisy-max has a loss of range ε (Cesar & Rogers 2021), so it is at least as private as some pair of coins
with log-odds w + ε and w, for which ε_α/α = [0, 1, α]F, the second divided difference of F(s) = ln(1 + e^(w + sε)). Its
maximum over w falls as α grows, so ρ is the largest Kullback–Leibler divergence of such coins,

    ρ = ε/(e^ε − 1) − 1 + ln((e^ε − 1)/ε),      a little less than ε²/8.

Proof. [0, 1, α]F = ½∫B F″ with the B-spline B of knots 0, 1, α; at the maximum over w, ∫B F‴ = 0. By the envelope
theorem the maximum changes with α like [0, 1, α, α]F, a positive multiple of ∫C F‴ with the B-spline C of knots
0, 1, α, α. By the recurrence of B-splines C/B is, up to positive factors, s + (α − s)·B₁,α,α(s)/B(s): s on
[0, 1], and s plus a multiple of s − 1 on [1, α]; it rises. F″ is the density of a logistic law, so F‴ is first
positive, then negative; let it change sign at s₀. Then ∫C F‴ ≤ (C/B)(s₀)·∫B F‴ = 0. ∎
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.arrays import Array
from accounting.errors import UnsupportedRelease
from accounting.loss.concentrated_curve import zcdp_delta, zcdp_epsilon
from accounting.notions.pure import pure
from accounting.releases.base import Composed, Parallel, Release, known, weaker
from accounting.releases.choice import NoisyMax, RandomizedResponse, UnaryEncoding
from accounting.releases.guarantees import ZCDP, PureDP
from accounting.releases.noise import DiscreteGaussian, Gaussian, Laplace
from accounting.releases.sampling import FixedSizeSubsampled, PoissonSubsampled
from accounting.releases.shuffling import CountsInWindows

__all__ = ["bounded_range_rho", "delta", "epsilon", "exp_remainder", "randomized_response", "zcdp"]

# The elementary functions here are right to a few units in the last place; ρ is rounded up by more than that.
_SAFETY = 1 + 1e-14


def zcdp(release: Release) -> float:
    """The smallest known ρ such that ``release`` is ρ-zCDP.

    Raises
    ------
    UnsupportedRelease
        If no ρ is proved for a part of the description.

    Examples
    --------
    >>> from accounting import Gaussian, PureDP, zcdp
    >>> round(zcdp(Gaussian(2.0) + PureDP(1.0)), 6)
    0.587117
    """
    return _rho(known(release))


def _rho(release: Release) -> float:
    match release:
        case ZCDP(rho=rho):
            return rho
        case Gaussian(noise_multiplier=z) | DiscreteGaussian(noise_multiplier=z):
            return 0.5 / z**2
        case NoisyMax(epsilon=eps, noise="gumbel"):
            return bounded_range_rho(eps)
        case PureDP(epsilon=eps):
            return _pure_rho(eps)
        case RandomizedResponse(epsilon=eps, categories=k):
            return _randomized_response_rho(eps, k)
        case UnaryEncoding(epsilon=eps):
            return _randomized_response_rho(eps, release.as_many_as)
        case Laplace(noise_multiplier=z):
            return float(exp_remainder(-1.0 / z)) * _SAFETY  # θ + e^(−θ) − 1
        case CountsInWindows(mu=mu):
            return 0.5 * mu**2  # what is μ-GDP is (μ²/2)-zCDP (Dong, Roth & Su 2022, appendix B)
        case PoissonSubsampled() | FixedSizeSubsampled() if (amplified := _pure_epsilon(release)) is not None:
            return _pure_rho(amplified)
        case Composed(parts=parts):
            return math.fsum(count * _rho(part) for part, count in parts)
        case Parallel(branches=branches):
            return max(map(_rho, branches), default=0.0)
    return _rho(weaker(release, "zCDP"))


def _pure_rho(epsilon: float) -> float:
    return epsilon * math.tanh(epsilon / 2) * _SAFETY


def bounded_range_rho(epsilon: float) -> float:
    """The largest divergence of two coins whose log-odds differ by ε.

    Examples
    --------
    >>> [round(bounded_range_rho(epsilon), 4) for epsilon in (1.0, 2.0, 4.0)]
    [0.1233, 0.4745, 1.6698]
    """
    if epsilon < 0.1:
        # the series, of which the next term is negative
        return epsilon**2 * (1 / 8 - epsilon**2 * (1 / 576 - epsilon**2 * 7 / 181440)) * _SAFETY
    gone = -math.expm1(-epsilon)  # 1 − e^(−ε)
    rho = epsilon * math.exp(-epsilon) / gone - 1 + epsilon + math.log(gone) - math.log(epsilon)
    return rho + 1e-14 * (1 + epsilon)


def _pure_epsilon(release: Release) -> float | None:
    try:
        return pure(release)
    except UnsupportedRelease:
        return None


def _randomized_response_rho(epsilon: float, categories: float) -> float:
    # ε(e^ε − 1)/(e^ε + k − 1), divided through by e^ε
    divergence = epsilon * -math.expm1(-epsilon) / (1 + (categories - 1) * math.exp(-epsilon)) * _SAFETY
    if (categories - 2) * math.exp(-epsilon / 2) <= 2:
        return divergence
    # from the last order on ε_α/α ≤ ε/α is below the divergence
    orders = np.geomspace(1.0, max(2.0, epsilon / divergence), 4096)
    suprema = randomized_response(epsilon, categories, orders[1:]) / orders[:-1]
    return min(_pure_rho(epsilon), max(divergence, float(suprema.max()) * _SAFETY))


def epsilon(release: Release, delta: float) -> float:
    """ε at ``delta`` through ρ."""
    return zcdp_epsilon(zcdp(release), delta)


def delta(release: Release, epsilon: float) -> float:
    """δ at ``epsilon`` through ρ."""
    return zcdp_delta(zcdp(release), epsilon)


def exp_remainder(x: ArrayLike) -> NDArray[np.float64]:
    """e^x − 1 − x, which is nonnegative; precise where the three terms cancel."""
    x = np.asarray(x, dtype=np.float64)
    small = np.abs(x) < 0.6
    if not small.any():
        with np.errstate(over="ignore"):
            return np.asarray(np.expm1(x) - x)
    near = np.clip(x, -0.6, 0.6)
    series = np.ones_like(near)
    for k in range(16, 2, -1):
        series = 1.0 + near / k * series
    with np.errstate(over="ignore"):
        return np.asarray(np.where(small, 0.5 * near * near * series, np.expm1(x) - x))


def randomized_response(epsilon: float, categories: float, orders: Array) -> Array:
    """(1/(α−1))·ln((e^(αε) + e^((1−α)ε) + k − 2)/(e^ε + k − 1)), by the form that loses no digits."""
    eta, k = orders - 1, categories
    x = eta * epsilon
    with np.errstate(over="ignore"):
        # A_α − 1 = ((e^ε − 1)(e^((α−1)ε) − 1) + 4 sinh²((α−1)ε/2))/(e^ε + k − 1), in which nothing cancels
        near = np.minimum(x, 1.0)
        shrink = math.exp(-epsilon) / (1.0 + (k - 1) * math.exp(-epsilon))  # 1/(e^ε + k − 1)
        rise = -math.expm1(-epsilon) / (1.0 + (k - 1) * math.exp(-epsilon))  # (e^ε − 1)/(e^ε + k − 1)
        small = np.log1p(rise * np.expm1(near) + shrink * 4 * np.sinh(near / 2) ** 2)
        tails = np.exp(-(2 * orders - 1) * epsilon) + (k - 2) * np.exp(-orders * epsilon)
    large = x + np.log1p(tails) - math.log1p((k - 1) * math.exp(-epsilon))
    return np.asarray(np.where(x < 1.0, small, large) / eta)

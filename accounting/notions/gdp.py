"""Gaussian differential privacy: μ of a description, exact for every composition of Gaussians.

μ² adds under adaptive composition (Dong, Roth & Su 2022). A mechanism whose trade-off curve is piecewise linear, or
lies above such a curve f, is μ-GDP with μ = max over the knots (a, f(a)) of Φ⁻¹(1 − a) − Φ⁻¹(f(a)): G_μ is convex,
so where it meets or passes below f at the knots, 0 and 1, it is below f between them. Hence

* ε-DP: one knot, at a = f(a) = 1/(1 + e^ε), so μ = 2Φ⁻¹(e^ε/(1 + e^ε));
* k-ary randomized response: two knots, symmetric, the first at a = 1/(e^ε + k − 1), f(a) = 1 − e^ε·a;
* Gumbel report-noisy-max: its privacy loss has range ε (Cesar & Rogers 2021), so it is at least as private as some
  pair of coins whose log-odds w and w + ε differ by ε. Φ⁻¹ of the logistic function is odd, and concave on w ≥ 0
  (van Zwet's ordering of the normal and the logistic law), so its increment is largest at w = −ε/2: the μ of ε/2-DP;
* Laplace with θ = 1/z: between its two linear ends the curve is f(a) = e^(−θ)/(4a). With a = e^(−s)/2 the difference
  is h(s) + h(θ − s), where h(s) = Φ⁻¹(1 − e^(−s)/2) is concave because a half-normal's hazard rate increases. So its
  maximum is at s = θ/2: μ = 2h(θ/2). A shift spread over several coordinates is never worse (see
  :mod:`accounting.loss.laplace`);
* discrete Gaussian noise on integers and integer vectors: :mod:`accounting.loss.lattice`;
* counts under binomial noise: :mod:`accounting.amplification.binomial_trade_off`.
"""

from __future__ import annotations

import math

from accounting.errors import UnsupportedRelease
from accounting.loss.lattice import composed_mu, discrete_gaussian_mu
from accounting.notions.conversions import gdp_delta, gdp_epsilon
from accounting.releases.base import Composed, Parallel, Release, known, weaker
from accounting.releases.choice import NoisyMax, RandomizedResponse, UnaryEncoding
from accounting.releases.guarantees import PureDP
from accounting.releases.noise import DiscreteGaussian, Gaussian, Laplace, is_gaussian
from accounting.releases.shuffling import CountsInWindows

__all__ = ["delta", "epsilon", "gdp", "is_exact", "lattice_noise"]

# ndtri_exp and erfinv are right to a few units in the last place; μ is rounded up by more than that.
_SAFETY = 1 + 1e-14


def _upper_quantile(log_tail: float, centred: float) -> float:
    """Φ⁻¹(1 − a) given ln a and 1 − 2a: the first is precise for small a, the second for a close to ½."""
    from scipy.special import erfinv, ndtri_exp

    if abs(centred) < 0.9:
        return math.sqrt(2.0) * float(erfinv(centred))
    return -float(ndtri_exp(log_tail))


def _tail_quantile(log_tail: float) -> float:
    return _upper_quantile(log_tail, 1 - 2 * math.exp(log_tail))


def _pure_mu(epsilon: float) -> float:
    log_tail = -epsilon - math.log1p(math.exp(-epsilon))
    return 2.0 * _upper_quantile(log_tail, math.tanh(epsilon / 2)) * _SAFETY


def _laplace_mu(theta: float) -> float:
    return 2.0 * _upper_quantile(-theta / 2 - math.log(2.0), -math.expm1(-theta / 2)) * _SAFETY


def _randomized_response_mu(epsilon: float, categories: float) -> float:
    log_a = -epsilon - math.log1p((categories - 1) * math.exp(-epsilon))
    log_truth, log_lie = epsilon + log_a, math.log(categories - 1) + log_a  # 1 − f(a) and f(a)
    first = _tail_quantile(log_a)
    second = _tail_quantile(log_truth) if log_truth < log_lie else -_tail_quantile(log_lie)
    return first - second + 4 * (_SAFETY - 1) * (abs(first) + abs(second))


def gdp(release: Release) -> float:
    """The smallest known μ such that ``release`` is μ-GDP.

    Raises
    ------
    UnsupportedRelease
        If no μ is proved for a part of the description (zCDP, for one, does not imply any).

    Examples
    --------
    >>> from accounting import Gaussian, gdp
    >>> gdp(100 * Gaussian(10.0))
    1.0
    """
    return _mu(known(release))


def _mu(release: Release) -> float:
    match release:
        case Gaussian(noise_multiplier=z):
            return 1.0 / z
        case DiscreteGaussian(noise_multiplier=z, shift=shift):
            return discrete_gaussian_mu(z, int(shift or 1))
        case Laplace(noise_multiplier=z):
            return _laplace_mu(1.0 / z)
        case NoisyMax(epsilon=eps, noise="gumbel"):
            return _pure_mu(eps / 2)
        case PureDP(epsilon=eps) | RandomizedResponse(epsilon=eps, categories=2):
            return _pure_mu(eps)
        case RandomizedResponse(epsilon=eps, categories=k):
            return _randomized_response_mu(eps, k)
        case UnaryEncoding(epsilon=eps):
            return _randomized_response_mu(eps, release.as_many_as)
        case CountsInWindows(mu=mu):
            return mu
        case Composed(parts=parts):
            vectors = [(noise, n) for part, n in parts if (noise := lattice_noise(part)) is not None]
            square = math.fsum(n * _mu(part) ** 2 for part, n in parts if lattice_noise(part) is None)
            return math.hypot(math.sqrt(square), composed_mu(vectors)) if vectors else math.sqrt(square)
        case Parallel(branches=branches):
            return max(map(_mu, branches), default=0.0)
    return _mu(weaker(release, "GDP"))


def lattice_noise(part: Release) -> float | None:
    """The noise multiplier of discrete Gaussian noise on vectors; None for anything else."""
    return part.noise_multiplier if isinstance(part, DiscreteGaussian) and part.shift is None else None


def is_exact(release: Release) -> bool:
    """Whether μ is all that is known about ``release``: it is made of Gaussians only, or priced as such."""
    try:
        return is_gaussian(known(release))
    except UnsupportedRelease:
        return False


def epsilon(release: Release, delta: float) -> float:
    """ε at ``delta`` through μ."""
    return gdp_epsilon(gdp(release), delta)


def delta(release: Release, epsilon: float) -> float:
    """δ at ``epsilon`` through μ."""
    return gdp_delta(gdp(release), epsilon)

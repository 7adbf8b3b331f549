"""A lower bound on what a description costs: what some mechanism that fits it costs.

The witness. ``Gaussian``, ``Laplace``, ``RandomizedResponse``, discrete noise with a ``shift``, and Poisson samples of
them meet their dominating pairs themselves; ``PureDP`` and ``ApproxDP`` include randomized response with and without
failures (Kairouz, Oh & Viswanath 2015), ``ZCDP`` and ``GeneralizedGaussian`` include Gaussian noise. Discrete noise
on vectors includes that on one integer that moves by 1. The noisy max of two scores that change places is binary
randomized response, right with the probability that the difference of two noises exceeds −ε/2: e^(ε/2)/(1 + e^(ε/2))
for Gumbel noise, 1 − e^(−ε/2)/2 for exponential and 1 − (½ + ε/8)e^(−ε/2) for Laplace noise. The first input of a tree
reaches all its levels. A part for which no witness is known counts as nothing. Shuffled responses have a witness where
they stand alone (:mod:`accounting.amplification.blanket`).

The composition is then discretised from above and from below, with an error that is proved
(:mod:`accounting.accountants.convolution`).
"""

from __future__ import annotations

import math

from accounting.accountants import pld
from accounting.accountants.failures import rest_delta, split_failures
from accounting.accountants.pure import pure
from accounting.amplification.blanket import response_epsilon_at_least
from accounting.errors import UnsupportedRelease
from accounting.releases import (
    ZCDP,
    ApproxDP,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    LocalShuffled,
    NoisyMax,
    Parallel,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    Release,
    TreeAggregation,
    compose,
    parallel,
)

__all__ = ["lower_epsilon"]


def lower_epsilon(release: Release, delta: float) -> float:
    """A proved lower bound on the ε of some mechanism that fits ``release``; 0 where none is known."""
    if isinstance(release, LocalShuffled) and delta > 0:
        # binary responses are a randomizer of that ε
        categories = release.randomizer.categories if release.randomizer else 2
        return response_epsilon_at_least(release.epsilon, int(categories), int(release.users), delta)
    witness = _witness(release)
    if witness is None:
        return 0.0
    log_survival, rest = split_failures(witness)
    left = rest_delta(log_survival, delta)
    if left < 0:
        return math.inf
    if left == 0:
        try:
            return pure(rest)
        except UnsupportedRelease:
            return math.inf
    try:
        return pld.lower_epsilon(rest, left)
    except (UnsupportedRelease, ArithmeticError):
        return 0.0


def _two_scores(epsilon: float, noise: str) -> float:
    """The log-odds of the better of two scores that are ε/2 apart, rounded down."""
    if noise == "gumbel":
        return epsilon / 2
    # ln((1 − w)/w) with the chance w of the worse one, from the small numbers 1 − 2w
    half = epsilon / 2
    if noise == "exponential":
        gap, worse = -math.expm1(-half), math.exp(-half) / 2
    else:
        gap, worse = -math.expm1(-half) - epsilon / 4 * math.exp(-half), (0.5 + epsilon / 8) * math.exp(-half)
    # a digit is lost where ε/4 cancels; the hazard of the difference is at least a half
    odds = math.log1p(gap / worse) if worse > 0 else half
    return max(odds * (1 - 1e-9) - 1e-15, epsilon / 4 * (1 - 1e-6))


def _witness(release: Release) -> Release | None:
    """A description of mechanisms that all fit ``release``, and whose dominating pairs are their own."""
    adjacency = release.adjacency
    match release:
        case Gaussian() | Laplace() | RandomizedResponse() | PureDP() | ApproxDP():
            return release
        case DiscreteGaussian(shift=shift) | DiscreteLaplace(shift=shift) if shift is not None:
            return release
        case GeneralizedGaussian(noise_multiplier=z):
            return Gaussian(z, adjacency=adjacency)
        case ZCDP(rho=rho):
            return Gaussian(1 / math.sqrt(2 * rho), adjacency=adjacency) if rho > 0 else Composed()
        case DiscreteGaussian() | DiscreteLaplace():
            return type(release)(release.noise_multiplier, 1, adjacency=adjacency)
        case TreeAggregation():
            return release.weaker()
        case NoisyMax(epsilon=eps, noise=noise):
            return RandomizedResponse(_two_scores(eps, noise), 2, adjacency=adjacency)
        case PoissonSubsampled(release=inner, rate=rate):
            found = _witness(inner)
            return None if found is None else PoissonSubsampled(found, rate, adjacency=adjacency)
        case Composed(parts=parts):
            terms = [(_witness(part), count) for part, count in parts]
            return compose((found, count) for found, count in terms if found is not None)
        case Parallel(branches=branches):
            return parallel(*(found for found in map(_witness, branches) if found is not None))
    return None

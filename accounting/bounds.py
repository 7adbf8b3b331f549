"""Certified brackets: an upper and a lower bound on what a description costs.

The upper value holds for every mechanism that fits the description. The lower one is the cost of a mechanism that does
fit it, or a bound below that cost: so whatever accountant is used, no smaller ε can be proved of the description alone.

The witness. ``Gaussian``, ``Laplace``, ``RandomizedResponse``, discrete noise with a ``shift``, and Poisson samples of
them meet their dominating pairs themselves; ``PureDP`` and ``ApproxDP`` include randomized response with and without
failures (Kairouz, Oh & Viswanath 2015), ``ZCDP`` and ``GeneralizedGaussian`` include Gaussian noise. Discrete noise
on vectors includes that on one integer that moves by 1, and the Gumbel noisy max of two scores that change places is
randomized response of ε/2. The first input of a tree reaches all its levels. A part for which no witness is known
counts as nothing. Shuffled responses have a witness where they stand alone (:mod:`accounting.amplification.blanket`).

The composition is then discretised from above and from below, with an error that is proved
(:mod:`accounting.accountants.convolution`).
"""

from __future__ import annotations

import math
import warnings
from contextlib import suppress
from typing import NamedTuple

from accounting.accountants import pld
from accounting.accountants.failures import split_failures
from accounting.accountants.pure import pure
from accounting.amplification.blanket import response_epsilon_at_least
from accounting.checks import fraction
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
from accounting.totals import epsilon, rest_delta

__all__ = ["Bracket", "bound", "lower_epsilon"]

# Bounds farther apart than this are worth a warning.
_WIDE = 0.01


class Bracket(NamedTuple):
    """ε lies in [``lower``, ``upper``]."""

    lower: float
    upper: float


def bound(release: Release, delta: float) -> Bracket:
    """A lower and an upper bound on the smallest ε such that every mechanism that fits ``release`` is (ε, δ)-DP.

    Parameters
    ----------
    release : Release
        A description, such as ``1000 * PoissonSubsampled(Gaussian(1.1), 0.01)``.
    delta : float
        In [0, 1).

    Returns
    -------
    Bracket
        ``lower`` and ``upper``. Where they are more than 1 % apart, a :class:`UserWarning` says so.

    Examples
    --------
    >>> from accounting import PoissonSubsampled, Gaussian, bound
    >>> lower, upper = bound(1000 * PoissonSubsampled(Gaussian(1.1), 0.01), 1e-6)
    >>> round(lower, 2), round(upper, 2)
    (1.79, 1.79)
    """
    fraction("delta", delta, include_zero=True)
    upper = float(epsilon(release, delta))
    if delta > 0 and upper > 0:
        with suppress(UnsupportedRelease):
            upper = min(upper, float(epsilon(release, delta, accountant="pld")))
    lower = min(lower_epsilon(release, delta), upper)
    if upper - lower > _WIDE * upper:
        warnings.warn(f"ε is only known to lie between {lower:g} and {upper:g} at delta={delta:g}", stacklevel=2)
    return Bracket(lower, upper)


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
        case NoisyMax(epsilon=eps, noise="gumbel"):
            return RandomizedResponse(eps / 2, 2, adjacency=adjacency)
        case PoissonSubsampled(release=inner, rate=rate):
            found = _witness(inner)
            return None if found is None else PoissonSubsampled(found, rate, adjacency=adjacency)
        case Composed(parts=parts):
            terms = [(_witness(part), count) for part, count in parts]
            return compose((found, count) for found, count in terms if found is not None)
        case Parallel(branches=branches):
            return parallel(*(found for found in map(_witness, branches) if found is not None))
    return None

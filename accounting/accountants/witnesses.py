"""Mechanisms that fit a description, and whose dominating pairs are their own.

``Gaussian``, ``Laplace``, ``RandomizedResponse``, discrete noise with a ``shift``, and Poisson samples of them meet
their dominating pairs themselves; ``PureDP`` and ``ApproxDP`` include randomized response with and without failures
(Kairouz, Oh & Viswanath 2015), ``ZCDP`` and ``GeneralizedGaussian`` include Gaussian noise, and so does
``ObjectivePerturbation``, for a row in one dimension (:mod:`accounting.accountants.row_pairs`). Discrete noise on
vectors includes that on one integer that moves by 1. The noisy max of two scores, of which the first leads by a and
then by a − ε in units of the noise's scale, is a coin: the leader wins with probability 1/(1 + e^(−a)) with Gumbel
noise, 1 − e^(−a)/2 with exponential and 1 − (½ + a/4)e^(−a) with Laplace noise. Any a will do; the one that is taken
makes the Rényi divergence largest at an order near the one which is best for the whole, or follows what was seen
(:mod:`accounting.accountants.lattice_games`, with more scores where noise is Laplace noise). The first input of a tree
reaches all its levels. Runs of which the best is released have an order (:mod:`accounting.accountants.best_pairs`).
Shuffled responses have a witness where they stand alone (:mod:`accounting.amplification.blanket`); in compositions it
is the count of one value, where all others hold it too, or, of more than two values, a third one. Shuffled bits include
one count that moves by as much as one may (:mod:`accounting.accountants.count_losses`).

Batches of a fixed size include steps that follow what was seen (:mod:`accounting.accountants.replaced_coins`,
:mod:`accounting.accountants.replaced_steps`), and strong noisy maxima of three scores
(:mod:`accounting.accountants.three_scores`).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.failures import (
    DifferenceOfCounts,
    OneCount,
    OrderedRuns,
    ThreeLosses,
    Triangle,
    TwoLosses,
    WorstRow,
)
from accounting.accountants.pairs import is_listed, single
from accounting.amplification.randomizers import thirds
from accounting.amplification.runs import runs_of
from accounting.errors import UnsupportedRelease
from accounting.releases import (
    ZCDP,
    ApproxDP,
    BestOfPoissonRuns,
    BestOfRuns,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    FixedSizeSubsampled,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    LocalShuffled,
    NoisyMax,
    ObjectivePerturbation,
    Parallel,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    Release,
    ShuffledBinomial,
    TreeAggregation,
    UnaryEncoding,
    compose,
    parallel,
)

__all__ = ["without_curvature", "witness"]

Array = NDArray[np.float64]

# The ε of noisy maxima of which three scores may be worse than two, in batches of a fixed size.
_STRONG = 1.5, 12.0
# Larger counts have no witness: their windows would be long.
_MOST_TRIALS = 1 << 26


def without_curvature(part: Release) -> Release:
    """``part``, or for objective perturbation that of a loss that is linear."""
    match part:
        case ObjectivePerturbation(noise_multiplier=z):
            return Gaussian(z, adjacency=part.adjacency)
    return part


def _two_scores(epsilon: float, noise: str, order: float, rate: float = 1.0) -> tuple[float, float]:
    """The losses −low and high of the coin of two scores that is worst at the order 1 + ``order``, rounded inwards.

    On a sample of ``rate`` that one which is worst there, for a unit that is present; its losses without sampling.
    """
    lead = epsilon / 2 - np.concatenate([np.linspace(0.0, 1.0, 65) * epsilon, epsilon + np.geomspace(1e-3, 12.0, 65)])
    if rate < 1:  # where the roles are not alike
        lead = np.concatenate([lead, epsilon * np.linspace(0.5, 1.0, 65)])

    def behind(a: Array) -> Array:
        """The probability that the one who is behind by a ≥ 0 wins, times e^a."""
        if noise == "gumbel":
            return np.asarray(1 / (1 + np.exp(-a)))
        return np.full_like(a, 0.5) if noise == "exponential" else 0.5 + a / 4

    def logs(a: Array) -> tuple[Array, Array]:
        """ln of the probabilities that the first wins, and the second, where the first leads by a."""
        far = np.abs(a)
        loses = np.log(behind(far)) - far
        wins = np.log1p(-np.exp(loses))
        return np.where(a >= 0, wins, loses), np.where(a >= 0, loses, wins)

    (win, lose), (win_after, lose_after) = logs(lead), logs(lead - epsilon)
    high, low = win - win_after, lose_after - lose
    order = max(order, 0.1)  # at 0 every coin has the moment 1
    losses, rare = np.stack([high, -low]), np.stack([win_after, lose_after])
    on_samples = np.log1p(rate * np.expm1(losses))
    moments = np.logaddexp(*(rare + (1 + order) * on_samples))
    best = int(np.argmax(moments))
    return float(low[best]) * (1 - 1e-9), float(high[best]) * (1 - 1e-9)


def witness(release: Release, order: float, *, equal: bool = False) -> Release | None:
    """A description of mechanisms that all fit ``release``, and whose dominating pairs are their own.

    In batches of a fixed size all others contribute what the unit is replaced by; or, with ``equal``, something that
    is as far from both as they are from each other: of Gaussian or Laplace noise, and of strong noisy maxima
    (:mod:`accounting.accountants.three_scores`). In many small steps that is worse.
    """
    adjacency = release.adjacency
    match release:
        case UnaryEncoding(epsilon=eps) if eps > 700:
            return None  # its probabilities are not told apart
        case Gaussian() | Laplace() | RandomizedResponse() | UnaryEncoding() | PureDP() | ApproxDP():
            return release
        case DiscreteGaussian(noise_multiplier=z, shift=shift) if not is_listed(z, int(shift or 1)):
            return None  # its losses are not listed
        case DiscreteGaussian(shift=shift) | DiscreteLaplace(shift=shift) if shift is not None:
            return release
        case GeneralizedGaussian(noise_multiplier=z):
            return Gaussian(z, adjacency=adjacency)
        case ObjectivePerturbation(noise_multiplier=z, curvature=curvature):
            from accounting.accountants.row_pairs import worst_row

            return WorstRow(worst_row(z, curvature, order, replaced=release.replaced), adjacency=adjacency)
        case ZCDP(rho=rho):
            return Gaussian(1 / math.sqrt(2 * rho), adjacency=adjacency) if rho > 0 else Composed()
        case DiscreteGaussian() | DiscreteLaplace():
            return type(release)(release.noise_multiplier, 1, adjacency=adjacency)
        case TreeAggregation():
            return release.weaker()
        case NoisyMax(epsilon=eps, noise=noise):
            if not 1e-6 < eps < 300:  # scores that change places, and the probability ½ − ε/8 at least of the worse one
                return RandomizedResponse(eps / 4 * (1 - 1e-6), 2, adjacency=adjacency)
            return TwoLosses(*_two_scores(eps, noise, order), adjacency=adjacency)
        case PoissonSubsampled(release=NoisyMax(epsilon=eps, noise=noise), rate=rate) if 1e-6 < eps < 300:
            return PoissonSubsampled(TwoLosses(*_two_scores(eps, noise, order, float(rate))), rate)
        case PoissonSubsampled(release=inner, rate=rate):
            found = witness(without_curvature(inner), order)
            if isinstance(found, (Laplace, PureDP, Gaussian, DiscreteGaussian, DiscreteLaplace)):
                return PoissonSubsampled(found, rate, adjacency=adjacency)
            if found is None or (isinstance(found, OrderedRuns) and isinstance(found.release, PoissonSubsampled)):
                return None  # of two directions one inside would have to be the other one outside
            return PoissonSubsampled(found, rate)
        case FixedSizeSubsampled(release=(Gaussian() | Laplace()) as inner, rate=rate) if equal and rate < 1:
            return Triangle(inner, rate)
        case FixedSizeSubsampled(release=NoisyMax(epsilon=eps, noise=noise), rate=rate) if (
            equal and rate < 1 and _STRONG[0] <= eps <= _STRONG[1]
        ):
            from accounting.accountants.three_scores import three_scores

            return ThreeLosses(*three_scores(eps, noise, rate, order))
        case FixedSizeSubsampled(release=inner, rate=rate):
            found = witness(without_curvature(inner), order)
            return None if found is None else PoissonSubsampled(replace(found, adjacency=None), rate)
        case BestOfRuns(release=inner) | BestOfPoissonRuns(release=inner):
            return _ordered(release, witness(inner, order), order)
        case LocalShuffled(epsilon=eps, users=users, randomizer=response) if eps < 300 and users <= _MOST_TRIALS:
            if response is None or (isinstance(response, RandomizedResponse) and response.categories == 2):
                truth, lie = 1 / (1 + math.exp(-eps)), 1 / (1 + math.exp(eps))
                return OneCount(int(users) - 1, truth, 1, truth, lie, adjacency=adjacency)
            return DifferenceOfCounts(int(users) - 1, *thirds(response), adjacency=adjacency)
        case ShuffledBinomial(trials=trials, shift_norm=norm) if trials <= _MOST_TRIALS:
            step = math.floor(norm)
            return OneCount(int(trials), 0.5, step, 1.0, 0.0, adjacency=adjacency) if step else None
        case Composed(parts=parts):
            terms = [(witness(part, order, equal=equal), count) for part, count in parts]
            return compose((found, count) for found, count in terms if found is not None)
        case Parallel(branches=branches):
            witnesses = (witness(branch, order, equal=equal) for branch in branches)
            return parallel(*(found for found in witnesses if found is not None))
    return None


def _ordered(release: BestOfRuns | BestOfPoissonRuns, run: Release | None, order: float) -> Release | None:
    """The best of some runs that are ``run``, in the order that is worst at the order 1 + ``order``."""
    from accounting.accountants.best_pairs import best_cut

    try:
        if run is not None and (pairs := single(run, True)):
            runs = runs_of(release)
            return OrderedRuns(run, runs, best_cut(runs, pairs[0], order), adjacency=release.adjacency)
    except (UnsupportedRelease, ArithmeticError):
        pass
    # where all scores are equal, the best is the first
    return run if isinstance(release, BestOfRuns) else None

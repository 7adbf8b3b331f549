"""Batches of a fixed size among the parts of a total, and in witnesses: which games they are.

An entry of :mod:`accounting.adaptive.registry`: :func:`in_place` puts games in place of steps that may be played
together. Every step alone is at worst a pair that is the worst in both directions at once, which no release can be
(:mod:`accounting.adaptive.fixed_batches.gaussian_batches`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from accounting.adaptive.choices.coins import kind_of
from accounting.adaptive.fixed_batches import gaussian_batches, integer_batches, maxima_batches, pure_batches
from accounting.adaptive.fixed_batches.gaussian_batches import ReplacedSteps
from accounting.adaptive.fixed_batches.integer_batches import ReplacedIntegers
from accounting.adaptive.fixed_batches.maxima_batches import ReplacedMaxima
from accounting.adaptive.fixed_batches.pure_batches import ReplacedCoins, Response, unary
from accounting.compose.convolution import Parts
from accounting.loss.gaussian import GaussianPair, LatticeGaussianPair
from accounting.loss.integers import IntegerPair
from accounting.loss.laplace import LaplacePair
from accounting.loss.lattice import three_laws
from accounting.loss.pair import LossPair
from accounting.loss.replaced_noise import deviation
from accounting.loss.responses import Bits, Coins
from accounting.loss.sampled import ReplacedPair
from accounting.releases import (
    DiscreteGaussian,
    DiscreteLaplace,
    FixedSizeSubsampled,
    Gaussian,
    GeneralizedGaussian,
    PureDP,
    RandomizedResponse,
    Release,
    TreeAggregation,
    UnaryEncoding,
)

__all__ = ["batches_at_least", "in_place"]

#: The most steps that are played together, and the pair of so many.
Game = tuple[int, Callable[[int], LossPair]]

# λ of discrete Gaussian vectors as a share of the deviation of a loss, of many steps less.
_APART = 0.012
# Other noise has no game, as its μ is too large or too small.
_LEAST_NOISE, _MOST_NOISE = 0.2, 1e4
# e^x of larger sums of losses is beyond floats.
_LARGEST = 600.0


def in_place(parts: Parts, delta: float) -> Parts | None:
    """``parts`` with games in place of steps that may be played together; None where there are none.

    ``delta`` is about what the total is asked for: losses that are much rarer count as infinite.
    """
    if all(count == 1 for _, count in parts):
        return None
    found: list[tuple[LossPair, int]] = []
    for pair, count in parts:
        game = _game(pair, _tail(delta, count)) if isinstance(pair, ReplacedPair) else None
        if game is None or game[0] == 0:
            found.append((pair, count))
            continue
        most, pair_of = game
        games, rest = divmod(count, min(most, count))
        found.append((pair_of(min(most, count)), games))
        found += [(pair_of(rest), 1)] if rest else []
    return tuple(found) if tuple(found) != parts else None


def _tail(delta: float, count: int) -> float:
    # of few different values, so that one game serves many questions
    return 10.0 ** math.floor(math.log10(max(delta, 1e-280) / count) - 5)


def _game(pair: ReplacedPair, tail: float) -> Game | None:
    """The game of such steps; None, or one of no steps, where there is none."""
    rate, cut = pair.rate, gaussian_batches.cut(tail)

    def pure(epsilon: float, response: Response = None) -> Game | None:
        if not pure_batches.is_playable(epsilon, rate):
            return None
        return pure_batches.MOST_STEPS, lambda count: ReplacedCoins(epsilon, response, rate, count, tail)

    if (kind := kind_of(pair.inner)) is not None:
        if not maxima_batches.is_playable(kind, rate):
            return None
        most = min(maxima_batches.MOST_STEPS, int(_LARGEST / kind.span))
        return most, lambda count: ReplacedMaxima(kind, rate, count, tail)
    match pair.inner:
        case LatticeGaussianPair(noise_multiplier=z, shift=shift):
            return _lattice_game(z, shift, rate, cut)
        case GaussianPair(mu=mu) if pair.own:
            return gaussian_batches.most_steps(mu, rate, cut), lambda count: ReplacedSteps(mu, rate, count, cut)
        case IntegerPair("laplace", z, 1) if pure_batches.is_playable(1 / z, rate):
            # of one integer that moves by 1 there are two laws
            return pure_batches.MOST_STEPS, lambda count: ReplacedCoins(
                math.nextafter(1 / z, math.inf), 2, rate, count, tail
            )
        case IntegerPair(noise, z, shift) as inner:
            if known := integer_batches.most_steps(inner, rate, cut):
                return known, lambda count: ReplacedIntegers(inner, rate, count, cut)
            return _lattice_game(z, shift, rate, cut) if noise == "gaussian" else None
        case Bits(epsilon=eps, optimized=optimized) if pair.own:
            return pure(eps, unary(optimized=optimized))
        case Coins(epsilon=eps, categories=k):
            # what is as private as responses is as private as the ε-DP ones
            return pure(eps, int(k) if pair.own else None)
        case LaplacePair(theta=theta):
            # as what is θ-DP: in many steps that may be less than one by one, each with its own worst three laws
            return pure(theta)
    return None


def _lattice_game(z: float, shift: int | None, rate: float, cut: float) -> Game:
    """That of discrete Gaussian noise, whose laws are nearly normal."""

    def game(count: int) -> LossPair:
        mu, apart = _three_laws(z, shift, rate, count)
        return ReplacedSteps(mu, rate, count, cut, apart=apart)

    # what is known of the most steps is known of fewer
    mu, _ = _three_laws(z, shift, rate, gaussian_batches.MOST_STEPS)
    return gaussian_batches.most_steps(mu, rate, cut), game


def _three_laws(noise_multiplier: float, shift: int | None, rate: float, count: int) -> tuple[float, float]:
    """μ and λ of discrete Gaussian noise, such that what λ adds matters about as much as what is added to μ."""
    if not _LEAST_NOISE <= noise_multiplier <= _MOST_NOISE:
        return math.inf, math.inf
    most = _APART * deviation(1 / noise_multiplier, rate) / (math.sqrt(count) * max(noise_multiplier, 1.0) ** 2)
    # of few different values, so that one game serves many counts
    return three_laws(noise_multiplier, 2.0 ** math.floor(math.log2(most)), shift)


# --------------------------------------------------------------------------------------------------- from below


def batches_at_least(release: Release, count: int, delta: float) -> tuple[float, ReplacedSteps | ReplacedCoins] | None:
    """What ``count`` of these cost at least, coming last, and about the variance of its losses; None if not known."""
    if not isinstance(release, FixedSizeSubsampled) or release.rate == 1:
        return None
    batch = replace(release, release=_included(release.release))
    if (game := _below(batch, count, _tail(delta, count))) is None:
        return None
    square = math.expm1(min(game.mu**2, 700.0)) if isinstance(game, ReplacedSteps) else math.expm1(game.epsilon) ** 2
    return count * batch.rate**2 * square, game


def _included(release: Release) -> Release:
    """A release that fits the description, or comes as close to that as one likes, and may have a game."""
    match release:
        case GeneralizedGaussian(noise_multiplier=z):
            return Gaussian(z)
        case TreeAggregation():
            return release.weaker()
        case DiscreteGaussian(noise_multiplier=z, shift=None):
            # vectors that are moved far
            return Gaussian(z)
        case DiscreteLaplace(noise_multiplier=z, shift=None | 1):
            return RandomizedResponse(1 / z, 2)
    return release


def _below(batch: FixedSizeSubsampled, count: int, tail: float) -> ReplacedSteps | ReplacedCoins | None:
    """The game of mechanisms that fit; None where there is none."""
    rate = batch.rate
    response: Response = None
    match batch.release:
        case Gaussian(noise_multiplier=z):
            cut = gaussian_batches.cut(tail)
            known = gaussian_batches.most_steps(1 / z, rate, cut) > 0
            return ReplacedSteps(1 / z, rate, count, cut, from_below=True) if known else None
        case PureDP(epsilon=eps):
            pass
        case RandomizedResponse(epsilon=eps, categories=k):
            response = int(k)
        case UnaryEncoding(epsilon=eps, optimized=optimized):
            response = unary(optimized=optimized)
        case _:
            return None
    count = min(count, pure_batches.MOST_STEPS)
    if not (pure_batches.is_playable(eps, rate) and pure_batches.lowered(eps, rate, count, tail)[0] > 0):
        return None
    return ReplacedCoins(float(eps), response, rate, count, tail, from_below=True)

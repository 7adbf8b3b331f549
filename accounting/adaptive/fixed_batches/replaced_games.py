"""Which of many batches of a fixed size are played as a game, in totals and in witnesses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from accounting.adaptive.choices.choices import kind_of
from accounting.adaptive.choices.coin_kinds import CoinKind
from accounting.adaptive.fixed_batches import replaced_coins, replaced_integers, replaced_maxima, replaced_steps
from accounting.adaptive.fixed_batches.replaced_coins import ReplacedCoins, unary
from accounting.adaptive.fixed_batches.replaced_integers import ReplacedIntegers
from accounting.adaptive.fixed_batches.replaced_maxima import ReplacedMaxima
from accounting.adaptive.fixed_batches.replaced_steps import ReplacedSteps
from accounting.compose.convolution import Parts
from accounting.loss.gaussian import GaussianPair, LatticeGaussianPair
from accounting.loss.gumbel_maxima import SpanPair
from accounting.loss.integers import IntegerPair
from accounting.loss.laplace import LaplacePair
from accounting.loss.laplace_maxima import MaximumPair
from accounting.loss.lattice import three_laws
from accounting.loss.pair import LossPair
from accounting.loss.responses import Bits, Coins
from accounting.loss.sampled import ReplacedPair
from accounting.loss.triangles import deviation
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

__all__ = ["batches_at_least", "game_at_least", "played", "weight"]

# λ of discrete Gaussian vectors as a share of the deviation of a loss, of many steps less.
_APART = 0.012
# Other noise has no game, as its μ is too large or too small.
_LEAST_NOISE, _MOST_NOISE = 0.2, 1e4


def played(parts: Parts, delta: float) -> Parts:
    """``parts`` with games in place of steps that may be played together; the same where there are none.

    ``delta`` is about what the total is asked for: losses that are much rarer count as infinite.
    """
    found: list[tuple[LossPair, int]] = []
    for pair, count in parts:
        most = min(count, _most_steps(pair, _tail(delta, count))) if isinstance(pair, ReplacedPair) else 0
        if isinstance(pair, ReplacedPair) and most > 0:
            games, rest = divmod(count, most)
            found.append((_game(pair, most, _tail(delta, count)), games))
            if rest:
                found.append((_game(pair, rest, _tail(delta, count)), 1))
        else:
            found.append((pair, count))
    return tuple(found)


def _tail(delta: float, count: int) -> float:
    # of few different values, so that one game serves many questions
    return 10.0 ** math.floor(math.log10(max(delta, 1e-280) / count) - 5)


def _kind(pair: ReplacedPair) -> CoinKind | None:
    """The coins that two neighbours are at worst, of noisy maxima."""
    kind = kind_of(pair.inner) if isinstance(pair.inner, (SpanPair, MaximumPair)) else None
    return kind if kind is not None and replaced_maxima.is_playable(kind, pair.rate) else None


def _most_steps(pair: ReplacedPair, tail: float) -> int:
    if (choice := _kind(pair)) is not None:
        # e^x of larger losses is beyond floats
        return min(replaced_maxima.MOST_STEPS, int(600 / choice.span))
    match pair.inner:
        case LatticeGaussianPair(noise_multiplier=z, shift=shift):
            return _most_steps_of_normal_laws(z, shift, pair.rate, tail)
        case GaussianPair(mu=mu) if pair.own:
            return replaced_steps.most_steps(mu, pair.rate, replaced_steps.cut(tail))
        case IntegerPair("laplace", z, 1) if replaced_coins.is_playable(1 / z, pair.rate):
            return replaced_coins.MOST_STEPS
        case IntegerPair(noise, z, shift) as inner:
            known = replaced_integers.most_steps(inner, pair.rate, replaced_steps.cut(tail))
            return _most_steps_of_normal_laws(z, shift, pair.rate, tail) if not known and noise == "gaussian" else known
        case Coins(epsilon=eps) | LaplacePair(theta=eps) if replaced_coins.is_playable(eps, pair.rate):
            return replaced_coins.MOST_STEPS
    return 0


def _game(pair: ReplacedPair, count: int, tail: float) -> LossPair:
    if (kind := _kind(pair)) is not None:
        return ReplacedMaxima(kind, pair.rate, count, tail)
    match pair.inner:
        case Bits(epsilon=eps, optimized=optimized) if pair.own:
            return ReplacedCoins(eps, unary(optimized=optimized), pair.rate, count, tail)
        case Coins(epsilon=eps, categories=k):
            # what is as private as responses is as private as the ε-DP ones
            return ReplacedCoins(eps, int(k) if pair.own else None, pair.rate, count, tail)
        case LaplacePair(theta=theta):
            # as what is θ-DP: in many steps that may be less than one by one, each with its own worst three laws
            return ReplacedCoins(theta, None, pair.rate, count, tail)
        case IntegerPair("laplace", z, 1) if replaced_coins.is_playable(1 / z, pair.rate):
            # of one integer that moves by 1 there are two laws
            return ReplacedCoins(math.nextafter(1 / z, math.inf), 2, pair.rate, count, tail)
        case IntegerPair() if replaced_integers.most_steps(pair.inner, pair.rate, replaced_steps.cut(tail)):
            return ReplacedIntegers(pair.inner, pair.rate, count, replaced_steps.cut(tail))
        case LatticeGaussianPair(noise_multiplier=z, shift=shift) | IntegerPair(noise_multiplier=z, shift=shift):
            mu, apart = _three_laws(z, shift, pair.rate, count)
            return ReplacedSteps(mu, pair.rate, count, replaced_steps.cut(tail), apart=apart)
        case GaussianPair(mu=mu):
            return ReplacedSteps(mu, pair.rate, count, replaced_steps.cut(tail))
    raise TypeError(f"there is no game of {pair!r}")


def _most_steps_of_normal_laws(noise_multiplier: float, shift: int | None, rate: float, tail: float) -> int:
    # what is known of the most steps is known of fewer
    mu, _ = _three_laws(noise_multiplier, shift, rate, replaced_steps.MOST_STEPS)
    return replaced_steps.most_steps(mu, rate, replaced_steps.cut(tail))


def _three_laws(noise_multiplier: float, shift: int | None, rate: float, count: int) -> tuple[float, float]:
    """μ and λ of discrete Gaussian noise, such that what λ adds matters about as much as what is added to μ."""
    if not _LEAST_NOISE <= noise_multiplier <= _MOST_NOISE:
        return math.inf, math.inf
    most = _APART * deviation(1 / noise_multiplier, rate) / (math.sqrt(count) * max(noise_multiplier, 1.0) ** 2)
    # of few different values, so that one game serves many counts
    return three_laws(noise_multiplier, 2.0 ** math.floor(math.log2(most)), shift)


@dataclass(frozen=True)
class PlayedBatches:
    """``count`` such batches, each of which may follow what was seen."""

    batch: FixedSizeSubsampled
    count: int
    tail: float


def batches_at_least(release: Release, count: int, delta: float) -> PlayedBatches | None:
    """What ``count`` of these cost at least, coming last; None where no game is known."""
    if not isinstance(release, FixedSizeSubsampled) or release.rate == 1:
        return None
    tail = _tail(delta, count)
    batch = replace(release, release=_included(release.release))
    match batch.release:
        case Gaussian(noise_multiplier=z):
            tail = replaced_steps.cut(tail)
            known = replaced_steps.most_steps(1 / z, batch.rate, tail) > 0
        case PureDP(epsilon=eps) | RandomizedResponse(epsilon=eps) | UnaryEncoding(epsilon=eps):
            count = min(count, replaced_coins.MOST_STEPS)
            known = (
                replaced_coins.is_playable(eps, batch.rate)
                and replaced_coins.lowered(eps, batch.rate, count, tail)[0] > 0
            )
        case _:
            return None
    return PlayedBatches(batch, count, tail) if known else None


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


def game_at_least(batch: FixedSizeSubsampled, count: int, tail: float) -> LossPair:
    """The pair of :func:`batches_at_least`."""
    match batch.release:
        case Gaussian(noise_multiplier=z):
            return ReplacedSteps(1.0 / z, batch.rate, count, tail, from_below=True)
        case PureDP(epsilon=eps):
            return ReplacedCoins(float(eps), None, batch.rate, count, tail, from_below=True)
        case RandomizedResponse(epsilon=eps, categories=k):
            return ReplacedCoins(float(eps), int(k), batch.rate, count, tail, from_below=True)
        case UnaryEncoding(epsilon=eps, optimized=optimized):
            return ReplacedCoins(float(eps), unary(optimized=optimized), batch.rate, count, tail, from_below=True)
    raise TypeError(f"there is no game of {batch!r}")


def weight(batch: FixedSizeSubsampled) -> float:
    """About the variance of the loss of one such batch."""
    match batch.release:
        case Gaussian(noise_multiplier=z):
            return float(batch.rate**2 * math.expm1(min(z**-2.0, 700.0)))
        case PureDP(epsilon=eps) | RandomizedResponse(epsilon=eps) | UnaryEncoding(epsilon=eps):
            return float((batch.rate * math.expm1(min(eps, 300.0))) ** 2)
    return 0.0

"""Which of many batches of a fixed size are played as a game, in totals and in witnesses."""

from __future__ import annotations

import math

from accounting.accountants import replaced_coins, replaced_steps
from accounting.accountants.convolution import Parts
from accounting.accountants.failures import PlayedBatches
from accounting.accountants.losses import Coins, GaussianPair, LaplacePair, LossPair
from accounting.accountants.replaced_coins import ReplacedCoins
from accounting.accountants.replaced_steps import ReplacedSteps
from accounting.accountants.sampled_losses import ReplacedPair
from accounting.releases import FixedSizeSubsampled, PureDP, RandomizedResponse, Release

__all__ = ["batches_at_least", "played"]

# Laplace noise shifted by no more is hardly better than all that is as private; by more, better than a game of that.
_LARGEST_SHIFT = 1.2


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


def _most_steps(pair: ReplacedPair, tail: float) -> int:
    match pair.inner:
        case GaussianPair(mu=mu) if pair.own:
            return replaced_steps.most_steps(mu, pair.rate, tail)
        case Coins(epsilon=eps) if replaced_coins.is_playable(eps, pair.rate):
            return replaced_coins.MOST_STEPS
        case LaplacePair(theta=eps) if eps <= _LARGEST_SHIFT and replaced_coins.is_playable(eps, pair.rate):
            return replaced_coins.MOST_STEPS
    return 0


def _game(pair: ReplacedPair, count: int, tail: float) -> LossPair:
    match pair.inner:
        case Coins(epsilon=eps, categories=k):
            # what is as private as responses is as private as the ε-DP ones
            return ReplacedCoins(eps, int(k) if pair.own else None, pair.rate, count, tail)
        case LaplacePair(theta=eps):
            return ReplacedCoins(eps, None, pair.rate, count, tail)
        case GaussianPair(mu=mu):
            return ReplacedSteps(mu, pair.rate, count, max(tail, replaced_steps.LEAST_TAIL))
    raise TypeError(f"there is no game of {pair!r}")


def batches_at_least(release: Release, count: int, delta: float) -> PlayedBatches | None:
    """What ``count`` of these cost at least, coming last; None where no game is known."""
    match release:
        case FixedSizeSubsampled(release=PureDP(epsilon=eps), rate=rate):
            categories = None
        case FixedSizeSubsampled(release=RandomizedResponse(epsilon=eps, categories=k), rate=rate):
            categories = int(k)
        case _:
            return None
    count, tail = min(count, replaced_coins.MOST_STEPS), _tail(delta, count)
    if not replaced_coins.is_playable(eps, rate) or not replaced_coins.lowered(eps, rate, count, tail)[0]:
        return None
    return PlayedBatches(float(eps), categories, float(rate), count, tail)

"""Adaptive attacks for lower bounds: played after all other releases, each step may follow what was seen.

Who plays last reaches at every sum of the other losses the most that is possible then. So of the parts of a total one
kind is such a witness, the one that matters most; the others are fixed laws (:mod:`accounting.lower.witnesses`):

* noisy maxima with a few scores, whose leads the player chooses (:mod:`accounting.adaptive.choices.scores_below`);
* batches of a fixed size (:mod:`accounting.adaptive.fixed_batches.in_totals`);
* a zCDP release, or discrete Gaussian noise on vectors (:mod:`accounting.loss.concentrated`,
  :mod:`accounting.loss.lattice_vectors`).

Tested against the games from above: ``tests/accounting/adaptive/test_games.py`` and ``test_brackets.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from accounting.adaptive.choices.scores_below import MOST_CHOICES, GamePair, Play, game_epsilon_at_least, is_playable
from accounting.adaptive.fixed_batches.in_totals import batches_at_least
from accounting.compose import pld
from accounting.compose.convolution import Parts
from accounting.compose.failures import rest_delta, split_failures
from accounting.compose.pairs import alternatives, sides
from accounting.errors import UnsupportedRelease
from accounting.loss.concentrated import CoinsPair
from accounting.loss.lattice_vectors import LatticeCorners
from accounting.lower.witnesses import compositions, largest_loss, parts_of, witness
from accounting.releases import (
    ZCDP,
    ApproxDP,
    Composed,
    DiscreteGaussian,
    FixedSizeSubsampled,
    NoisyMax,
    Own,
    Parallel,
    PoissonSubsampled,
    PureDP,
    Release,
    compose,
    parallel,
)
from accounting.releases.base import may_fail

__all__ = ["batches_last", "choice", "choices_last", "coins_last", "cost_of", "largest_cost"]

Price = Callable[[Iterable[Parts], float], float]

# The share of an upper bound beyond which the game is certainly as good as fixed coins; it is far from that of Laplace
# noise, and nearer to that of exponential noise. Of batches of a fixed size, fixed laws of three scores may be better.
_ENOUGH = {"gumbel": 0.99, "exponential": 0.92, "laplace": 0.5}
_ENOUGH_OF_BATCHES = 0.99
# Stronger lattice noise has too few values; weaker one is Gaussian noise to a part in ten thousand.
_STRONGEST, _SMOOTH = 0.5, 20.0
# Where no δ is left, but for this one: sums have no smaller ones.
_LEAST = 1e-300


def cost_of(release: Release, delta: float, price: Price = pld.lower_epsilon_of) -> float:
    """What a witness costs at least, if ``price`` is a lower bound on ε, of alternatives and δ.

    Let something fail, and tell the unit, with the probability f, and let nothing of what may fail do so, whether the
    unit is there or not, with the probability k; then δ(ε) ≥ f + k·δ(ε) of the rest. Of samples k < 1 − f: a failure of
    a unit that was not read is no loss. And f is another one in the other direction, in which the rest may cost more: a
    failure that tells that the unit is missing may be that of a unit which was not read.
    """
    if isinstance(release, Parallel):  # whose branches do not fail together
        return max((cost_of(branch, delta, price) for branch in release.branches), default=0.0)
    if not may_fail(release):
        return _cost_of_rest(release, delta, price)
    (here, missing), log_kept, rest = _apart(release)
    left, left_missing = (_left(delta, told, log_kept) for told in (here, missing))
    if left < 0:
        return math.inf
    if left == left_missing:
        return _cost_of_rest(rest, left, price)
    try:
        present, absent = sides(rest)
        found = [(present, max(left, _LEAST)), ([parts for parts in absent if parts not in present], left_missing)]
        return max(price(filter(None, some), at) if at < 1 else 0.0 for some, at in found)
    except (UnsupportedRelease, ArithmeticError):
        return 0.0


def largest_cost(some: Iterable[Release], delta: float, known: float = 0.0) -> float:
    """What the worst of some witnesses costs at least, or what is ``known`` if that is more."""
    above, below = (
        partial(cost_of, delta=delta, price=price) for price in (pld.rough_epsilon_of, pld.lower_epsilon_of)
    )
    return pld.largest_below(some, above, below, known)


def _left(delta: float, log_told: float, log_kept: float) -> float:
    """δ of the rest: (δ − f)/k, negative if the failures pass δ."""
    over = delta + math.expm1(log_told)
    return over / math.exp(log_kept) if log_kept > -700 else math.copysign(math.inf, over)


def _cost_of_rest(release: Release, delta: float, price: Price) -> float:
    """What a witness costs at least of which nothing fails."""
    if delta >= 1:
        return 0.0
    try:
        return largest_loss(release) if delta == 0 else price(alternatives(release), delta)
    except (UnsupportedRelease, ArithmeticError):
        return 0.0


def _apart(release: Release) -> tuple[tuple[float, float], float, Release]:
    """ln(1 − f), in either direction, and ln k of a witness as in :func:`cost_of`, and the rest of it."""
    match release:
        case ApproxDP(epsilon=eps, delta=failing) if failing < 1:
            log_kept = math.log1p(-failing)
            return (log_kept, log_kept), log_kept, PureDP(eps, adjacency=release.adjacency)
        case PoissonSubsampled(release=inner, rate=rate):
            (here, missing), log_kept, rest = _apart(inner)
            told = math.log1p(rate * math.expm1(here)), missing if rate == 1 else 0.0
            return told, log_kept, replace(release, release=rest)
        case Composed(parts=parts):
            found = [(_apart(part), count) for part, count in parts]
            here = math.fsum(count * told[0] for (told, _, _), count in found)
            missing = math.fsum(count * told[1] for (told, _, _), count in found)
            log_kept = math.fsum(count * kept for (_, kept, _), count in found)
            return (here, missing), log_kept, compose((rest, count) for (_, _, rest), count in found)
        case Parallel(branches=branches):  # with others; as if no branch failed, which costs less
            return (0.0, 0.0), 0.0, parallel(*(_apart(branch)[2] for branch in branches))
    return (0.0, 0.0), 0.0, release


def _others(
    parts: Iterable[tuple[Release, int]], order: float, *, equal: bool = False
) -> list[tuple[Release | None, int]]:
    return [(witness(part, order, equal=equal), count) for part, count in parts if count]


# -------------------------------------------------------------------------------------------------------- batches


def batches_last(release: Release, delta: float, order: float) -> list[Release]:
    """The witnesses in which the batches of a fixed size that matter most come last."""
    parts = parts_of(release)
    found = ((batches_at_least(part, count, delta), part) for part, count in parts)
    played = [(*game, part) for game, part in found if game is not None]
    if not played:
        return []
    _, game, most = max(played, key=lambda one: one[0])
    left = [(part, n if part != most else n - game.count) for part, n in parts]
    return [
        one for equal in (False, True) for one in compositions([(Own(game), 1), *_others(left, order, equal=equal)])
    ]


# ---------------------------------------------------------------------------------------------------- one release


def coins_last(release: Release, order: float) -> list[Release]:
    """The witness in which a zCDP release comes last, or lattice noise: the one of these that matters most."""
    parts = parts_of(release)
    found = [(*worst, part) for part, _ in parts if (worst := _worst(part)) is not None]
    if not found:
        return []
    _, last, most = max(found, key=lambda one: one[0])
    return compositions([(last, 1), *_others(((part, n - (part == most)) for part, n in parts), order)])


def _worst(release: Release) -> tuple[float, Release] | None:
    """How much a release matters, and what is worst of it."""
    match release:
        case FixedSizeSubsampled(release=inner, rate=rate) | PoissonSubsampled(release=inner, rate=rate):
            # of a batch, all others contribute what the unit is replaced by
            if isinstance(inner, (ZCDP, DiscreteGaussian)) and (one := _worst(inner)):
                return one[0] * rate**2, PoissonSubsampled(one[1], rate)
        case ZCDP(rho=rho) if rho > 0:
            return rho, Own(CoinsPair(rho))
        case DiscreteGaussian(noise_multiplier=z, shift=None) if _STRONGEST <= z < _SMOOTH:
            return 0.5 / z**2, Own(LatticeCorners(z))
    return None


# -------------------------------------------------------------------------------------------------------- choices


def choice(part: Release, count: int) -> Play | None:
    """The last of ``count`` choices, as many as can be played; None if they are none."""
    count = min(count, MOST_CHOICES)
    match part:
        case NoisyMax(epsilon=eps, noise=noise):
            play = Play(noise, float(eps), int(count))
        case PoissonSubsampled(release=NoisyMax(epsilon=eps, noise=noise), rate=rate, adjacency="add_remove"):
            play = Play(noise, float(eps), int(count), float(rate))
        case FixedSizeSubsampled(release=NoisyMax(epsilon=eps, noise=noise), rate=rate):
            # all others contribute what the unit, or its substitute, does
            play = Play(noise, float(eps), int(count), float(rate))
        case _:
            return None
    return play if is_playable(play) else None


def choices_last(release: Release, delta: float, order: float) -> tuple[float, bool]:
    """A lower bound where choices follow what was seen, 0 where there are none; and whether it is enough."""
    parts = parts_of(release)
    found = [(choice(part, count), part, count) for part, count in parts]
    # the strongest ones last, which are first in the game
    plays = tuple(sorted((play for play, _, _ in found if play is not None), key=lambda p: -p.rate * p.epsilon))
    if not plays:
        return 0.0, False
    try:
        log_survival, rest = split_failures(release)
        survived = rest_delta(log_survival, delta)
        upper = pld.epsilon(rest, survived) if survived > 0 else math.inf
        if not 0 < upper < math.inf:
            return 0.0, False
        left = [(part, count - (play.count if play is not None else 0)) for play, part, count in found]
        if not any(count for _, count in left):
            sides = (True, False) if any(play.rate < 1 for play in plays) else (True,)
            games = (tuple(replace(play, present=present) for play in plays) for present in sides)
            best = max(game_epsilon_at_least(game, delta, upper) for game in games)
        else:
            here, there = (GamePair(tuple(replace(play, present=side) for play in plays)) for side in (True, False))
            others = compositions([(Own(here, absent=there), 1), *_others(left, order)])
            best = largest_cost(others, delta)
    except (UnsupportedRelease, ArithmeticError):
        return 0.0, False
    # of a single one the pair is exact, without a lattice
    enough = min(_ENOUGH[play.noise] for play in plays)
    if any(isinstance(part, FixedSizeSubsampled) for part, _ in parts):
        enough = _ENOUGH_OF_BATCHES
    return best, bool(parts[1:] or parts[0][1] > 1) and best > enough * upper

"""A lower bound on what a description costs: what some mechanism that fits it costs.

The witness: :mod:`accounting.lower.witnesses`. A part for which none is known counts as nothing.

The composition is then discretised from above and from below, with an error that is proved
(:mod:`accounting.compose.convolution`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from accounting.adaptive.choices.last_coins import last_coins
from accounting.adaptive.choices.lattice_games import MOST_CHOICES, Play, game_epsilon_at_least, is_playable, order_of
from accounting.adaptive.choices.played_pairs import GamePair
from accounting.amplification.randomizers import epsilon_at_least
from accounting.compose import pld
from accounting.compose.failures import rest_delta, split_failures
from accounting.compose.pairs import alternatives
from accounting.errors import UnsupportedRelease
from accounting.loss.concentrated_curve import lower_zcdp_epsilon
from accounting.lower.witnesses import compositions, witness, witnesses
from accounting.notions.conversions import best_order_for_epsilon
from accounting.notions.pure import pure
from accounting.notions.rdp import rdp
from accounting.releases import (
    ZCDP,
    BestOfPoissonRuns,
    BestOfRuns,
    Composed,
    FixedSizeSubsampled,
    Gaussian,
    LocalShuffled,
    NoisyMax,
    ObjectivePerturbation,
    PoissonSubsampled,
    RandomizedResponse,
    Release,
    compose,
)
from accounting.releases.base import Own, known
from accounting.releases.shuffling import randomizer_of

__all__ = ["lower_epsilon"]


# Orders that are tried where the witness depends on one, in shares of the best: the bound that it is best for may be
# far above the truth.
_SHARES = (1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3, 0.15, 0.0)


# The share of an upper bound beyond which the game is certainly as good as fixed coins; it is far from that of Laplace
# noise, and nearer to that of exponential noise. Of batches of a fixed size, fixed laws of three scores may be better.
_ENOUGH = {"gumbel": 0.99, "exponential": 0.92, "laplace": 0.5}
# From this ε on, choices that follow what was seen are better than fixed coins by more than a lattice loses.
_VERY_STRONG = 4.0
_ENOUGH_OF_BATCHES = 0.99


def lower_epsilon(release: Release, delta: float) -> float:
    """A proved lower bound on the ε of some mechanism that fits ``release``; 0 where none is known."""
    release = known(release, exact=True)
    if isinstance(release, LocalShuffled) and delta > 0:
        given = [release.randomizer] if release.randomizer else [RandomizedResponse(release.epsilon, k) for k in (2, 3)]
        return max(epsilon_at_least(randomizer_of(randomizer), int(release.users), delta) for randomizer in given)
    if isinstance(release, ZCDP) and 0 < delta < 1 and (coin := lower_zcdp_epsilon(release.rho, delta)) > 0:
        return coin
    best = _best_order(release, delta)
    found, enough = _played_epsilon(release, delta, best) if 0 < delta < 1 else (0.0, False)
    if enough:
        return found
    # the game of strong choices is better than fixed coins, which take long
    shares = () if found > 0 and _are_strong_batches(release) else _SHARES
    tried = {one: None for share in shares for one in witnesses(release, best * share)}
    # its order may be far below that of an upper bound that is loose
    tried |= {one: None for share in (1.0, 0.6) for one in witnesses(release, best * share, equal=True)}
    if 0 < delta < 1:
        tried |= dict.fromkeys(_with_played_batches(release, delta, best))
        tried |= dict.fromkeys(_with_coins(release, best))
    return max(found, *(_lower_epsilon(one, delta) for one in tried))


def _with_played_batches(release: Release, delta: float, order: float) -> list[Release]:
    """The witnesses in which the batches of a fixed size that matter most come last, and follow what was seen."""
    from accounting.adaptive.fixed_batches.replaced_games import batches_at_least, game_at_least, weight

    parts = release.parts if isinstance(release, Composed) else ((release, 1),)
    played = [
        (game, part, count) for part, count in parts if (game := batches_at_least(part, count, delta)) is not None
    ]
    if not played:
        return []
    game, most, count = max(played, key=lambda found: found[2] * weight(found[0].batch))
    left = [(part, n if part != most else count - game.count) for part, n in parts]
    rests = ([(witness(part, order, equal=equal), n) for part, n in left if n] for equal in (False, True))
    last = Own(game_at_least(game.batch, game.count, game.tail))
    return [one for rest in rests for one in compositions([(last, 1), *rest])]


def _with_coins(release: Release, order: float) -> list[Release]:
    """The witness in which a zCDP release comes last, and follows what was seen."""
    parts = release.parts if isinstance(release, Composed) else ((release, 1),)
    if (found := last_coins(parts)) is None:
        return []
    last, coins = found
    left = [(witness(part, order), n - (part == last)) for part, n in parts]
    return compositions([(coins, 1), *((w, n) for w, n in left if n)])


def _play(part: Release, count: int) -> Play | None:
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


def _played_epsilon(release: Release, delta: float, order: float) -> tuple[float, bool]:
    """A lower bound where choices follow what was seen, 0 where there are none; and whether it is enough."""
    parts = release.parts if isinstance(release, Composed) else ((release, 1),)
    found = [(_play(part, count), part, count) for part, count in parts]
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
            others = [(witness(part, order), count) for part, count in left if count]
            here, there = (GamePair(tuple(replace(play, present=side) for play in plays)) for side in (True, False))
            game = Own(here, absent=there)
            best = max(_lower_epsilon(one, delta) for one in compositions([(game, 1), *others]))
    except (UnsupportedRelease, ArithmeticError):
        return 0.0, False
    # of a single one the pair is exact, without a lattice
    enough = min(_ENOUGH[play.noise] for play in plays)
    if any(isinstance(part, FixedSizeSubsampled) for part, _ in parts):
        enough = _ENOUGH_OF_BATCHES
    return best, bool(parts[1:] or parts[0][1] > 1) and best > enough * upper


def _are_strong_batches(release: Release) -> bool:
    """Whether these are several batches of a fixed size of very strong noisy maxima, all of which are played."""
    match release:
        case Composed(parts=((FixedSizeSubsampled(release=NoisyMax(epsilon=eps)), count),)):
            return bool(eps >= _VERY_STRONG and 1 < count <= MOST_CHOICES)
    return False


def _has_several_best(parts: tuple[tuple[Release, int], ...]) -> bool:
    """Whether the best of some runs is released, and more."""
    several = sum(count for _, count in parts) > 1
    return several and any(isinstance(part, BestOfRuns | BestOfPoissonRuns) for part, _ in parts)


def _lower_epsilon(release: Release, delta: float) -> float:
    log_survival, rest = split_failures(release)
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


def _without_curvature(part: Release) -> Release:
    """``part``, or for objective perturbation that of a loss that is linear."""
    match part:
        case ObjectivePerturbation(noise_multiplier=z):
            return Gaussian(z, adjacency=part.adjacency)
    return part


def _best_order(release: Release, delta: float) -> float:
    """The best Rényi order of the whole, less 1; 1 where there is none, and a large one for pure DP."""
    if not 0 < delta < 1:
        return 1e3
    parts = release.parts if isinstance(release, Composed) else ((release, 1),)
    plays = [_play(part, count) for part, count in parts if isinstance(part, PoissonSubsampled)]
    known = tuple(play for play in plays if play is not None)
    if known and len(known) == len(parts):
        # of samples the accountant's curve is far above that of two scores
        return order_of(known, delta)
    # where the curvature matters that curve ends at a small order
    if any(isinstance(part, ObjectivePerturbation) for part, _ in parts):
        release = compose((_without_curvature(part), count) for part, count in parts)
    rest = split_failures(release)[1]
    try:
        if _has_several_best(parts):
            from accounting.adaptive.repeated_selection.best_many import order_of_best

            # of these the accountant's curve is far above what is worst for each order, and few have larger ones
            return 2 * max((order_of_best(found, delta) for found in alternatives(rest)), default=0.5)
        return best_order_for_epsilon(lambda orders: rdp(rest, orders), delta)
    except (UnsupportedRelease, ArithmeticError):
        return 1.0

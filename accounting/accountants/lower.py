"""A lower bound on what a description costs: what some mechanism that fits it costs.

The witness. ``Gaussian``, ``Laplace``, ``RandomizedResponse``, discrete noise with a ``shift``, and Poisson samples of
them meet their dominating pairs themselves; ``PureDP`` and ``ApproxDP`` include randomized response with and without
failures (Kairouz, Oh & Viswanath 2015), ``ZCDP`` and ``GeneralizedGaussian`` include Gaussian noise, and so
does ``ObjectivePerturbation``, for a row in one dimension (:mod:`accounting.accountants.row_pairs`). Discrete noise on
vectors includes that on one integer that moves by 1. The noisy max of two scores, of which the first leads by a and
then by a − ε in units of the noise's scale, is a coin: the leader wins with probability 1/(1 + e^(−a)) with Gumbel
noise, 1 − e^(−a)/2 with exponential and 1 − (½ + a/4)e^(−a) with Laplace noise. Any a will do; the one that is taken
makes the Rényi divergence largest at an order near the one which is best for the whole, or follows what was seen
(:mod:`accounting.accountants.lattice_games`, with more scores where noise is Laplace noise). The first input of a
tree reaches all its levels. A part for which no witness is known counts as nothing. Shuffled responses have a witness
where they stand alone (:mod:`accounting.amplification.blanket`); in compositions it is the count of one value, where
all others hold it too, or, of more than two values, a third one. Shuffled bits include one count that moves by as
much as one may (:mod:`accounting.accountants.count_losses`).

Batches of a fixed size include steps that follow what was seen (:mod:`accounting.accountants.replaced_coins`,
:mod:`accounting.accountants.replaced_steps`), and strong noisy maxima of three scores
(:mod:`accounting.accountants.three_scores`).

The composition is then discretised from above and from below, with an error that is proved
(:mod:`accounting.accountants.convolution`).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from accounting.accountants import pld
from accounting.accountants.failures import (
    DifferenceOfCounts,
    OneCount,
    OrderedRuns,
    PlayedChoices,
    ThreeLosses,
    Triangle,
    TwoLosses,
    WorstRow,
    rest_delta,
    split_failures,
)
from accounting.accountants.lattice_games import MOST_CHOICES, Play, game_epsilon_at_least, is_playable, order_of
from accounting.accountants.orders import best_order_for_epsilon
from accounting.accountants.pairs import is_listed, single
from accounting.accountants.pure import pure
from accounting.accountants.rdp import rdp
from accounting.amplification.randomizers import epsilon_at_least, thirds
from accounting.amplification.runs import runs_of
from accounting.errors import AdjacencyMismatch, UnsupportedRelease
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

__all__ = ["lower_epsilon"]

Array = NDArray[np.float64]

# Orders that are tried where the witness depends on one, in shares of the best: the bound that it is best for may be
# far above the truth.
_SHARES = (1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3, 0.15, 0.0)


# The share of an upper bound beyond which the game is certainly as good as fixed coins; it is far from that of Laplace
# noise. Of batches of a fixed size, fixed laws of three scores may be better.
_ENOUGH = {"gumbel": 0.99, "exponential": 0.99, "laplace": 0.5}
# The ε of noisy maxima of which three scores may be worse than two, in batches of a fixed size.
_STRONG = 1.5, 12.0
# From this ε on, choices that follow what was seen are better than fixed coins by more than a lattice loses.
_VERY_STRONG = 4.0
_ENOUGH_OF_BATCHES = 0.99
# Larger counts have no witness: their windows would be long.
_MOST_TRIALS = 1 << 26


def lower_epsilon(release: Release, delta: float) -> float:
    """A proved lower bound on the ε of some mechanism that fits ``release``; 0 where none is known."""
    if isinstance(release, LocalShuffled) and delta > 0:
        # binary responses are a randomizer of that ε
        return epsilon_at_least(release.randomizer or RandomizedResponse(release.epsilon, 2), int(release.users), delta)
    best = _best_order(release, delta)
    found, enough = _played_epsilon(release, delta, best) if 0 < delta < 1 else (0.0, False)
    if enough:
        return found
    try:
        # the game of strong choices is better than fixed coins, which take long
        shares = () if found > 0 and _are_strong_batches(release) else _SHARES
        witnesses = dict.fromkeys(_witness(release, best * share) for share in shares)
        # its order may be far below that of an upper bound that is loose
        witnesses |= dict.fromkeys(_witness(release, best * share, equal=True) for share in (1.0, 0.6))
    except AdjacencyMismatch:  # samples of one kind beside those of another
        return found
    if 0 < delta < 1:
        witnesses |= dict.fromkeys(_with_played_batches(release, delta, best))
    return max(found, *(_lower_epsilon(witness, delta) for witness in witnesses))


def _with_played_batches(release: Release, delta: float, order: float) -> list[Release]:
    """The witnesses in which the batches of a fixed size that matter most come last, and follow what was seen."""
    from accounting.accountants.replaced_games import batches_at_least, weight

    parts = release.parts if isinstance(release, Composed) else ((release, 1),)
    played = [
        (game, part, count) for part, count in parts if (game := batches_at_least(part, count, delta)) is not None
    ]
    if not played:
        return []
    game, most, count = max(played, key=lambda found: found[2] * weight(found[0].batch))
    left = [(part, n if part != most else count - game.count) for part, n in parts]
    rests = ([(_witness(part, order, equal=equal), n) for part, n in left if n] for equal in (False, True))
    return [compose([(game, 1), *((w, n) for w, n in rest if w is not None)]) for rest in rests]


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
        upper = pld.epsilon(release, delta)
        if not 0 < upper < math.inf:
            return 0.0, False
        left = [(part, count - (play.count if play is not None else 0)) for play, part, count in found]
        if not any(count for _, count in left):
            sides = (True, False) if any(play.rate < 1 for play in plays) else (True,)
            games = (tuple(replace(play, present=present) for play in plays) for present in sides)
            best = max(game_epsilon_at_least(game, delta, upper) for game in games)
        else:
            others = [(_witness(part, order), count) for part, count in left if count]
            known = [(other, count) for other, count in others if other is not None]
            best = _lower_epsilon(compose([(PlayedChoices(plays), 1), *known]), delta)
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


def _lower_epsilon(witness: Release | None, delta: float) -> float:
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
        return best_order_for_epsilon(lambda orders: rdp(rest, orders), delta)
    except (UnsupportedRelease, ArithmeticError):
        return 1.0


def _without_curvature(part: Release) -> Release:
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


def _witness(release: Release, order: float, *, equal: bool = False) -> Release | None:
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
            found = _witness(inner, order)
            if isinstance(found, (Laplace, PureDP, Gaussian, DiscreteGaussian, DiscreteLaplace)):
                return PoissonSubsampled(found, rate, adjacency=adjacency)
            return None if found is None else PoissonSubsampled(found, rate)
        case FixedSizeSubsampled(release=(Gaussian() | Laplace()) as inner, rate=rate) if equal and rate < 1:
            return Triangle(inner, rate)
        case FixedSizeSubsampled(release=NoisyMax(epsilon=eps, noise=noise), rate=rate) if (
            equal and rate < 1 and _STRONG[0] <= eps <= _STRONG[1]
        ):
            from accounting.accountants.three_scores import three_scores

            return ThreeLosses(*three_scores(eps, noise, rate, order))
        case FixedSizeSubsampled(release=inner, rate=rate):
            found = _witness(inner, order)
            return None if found is None else PoissonSubsampled(replace(found, adjacency=None), rate)
        case BestOfRuns(release=inner) | BestOfPoissonRuns(release=inner):
            return _ordered(release, _witness(inner, order), order)
        case LocalShuffled(epsilon=eps, users=users, randomizer=response) if eps < 300 and users <= _MOST_TRIALS:
            if response is None or (isinstance(response, RandomizedResponse) and response.categories == 2):
                truth, lie = 1 / (1 + math.exp(-eps)), 1 / (1 + math.exp(eps))
                return OneCount(int(users) - 1, truth, 1, truth, lie, adjacency=adjacency)
            return DifferenceOfCounts(int(users) - 1, *thirds(response), adjacency=adjacency)
        case ShuffledBinomial(trials=trials, shift_norm=norm) if trials <= _MOST_TRIALS:
            step = math.floor(norm)
            return OneCount(int(trials), 0.5, step, 1.0, 0.0, adjacency=adjacency) if step else None
        case Composed(parts=parts):
            terms = [(_witness(part, order, equal=equal), count) for part, count in parts]
            return compose((found, count) for found, count in terms if found is not None)
        case Parallel(branches=branches):
            witnesses = (_witness(branch, order, equal=equal) for branch in branches)
            return parallel(*(found for found in witnesses if found is not None))
    return None

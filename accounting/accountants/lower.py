"""A lower bound on what a description costs: what some mechanism that fits it costs.

The witness. ``Gaussian``, ``Laplace``, ``RandomizedResponse``, discrete noise with a ``shift``, and Poisson samples of
them meet their dominating pairs themselves; ``PureDP`` and ``ApproxDP`` include randomized response with and without
failures (Kairouz, Oh & Viswanath 2015), ``ZCDP`` and ``GeneralizedGaussian`` include Gaussian noise, and so
does ``ObjectivePerturbation``, for losses that are linear. One ``ZCDP`` release is a worse coin
(:mod:`accounting.worst_coins`), which follows what was seen if others come before it. Discrete noise on vectors
includes that on one integer that moves by 1. The noisy max of two scores, of which the first leads by a and then by a −
ε in units of the noise's scale, is a coin: the leader wins with probability 1/(1 + e^(−a)) with Gumbel noise, 1 −
e^(−a)/2 with exponential and 1 − (½ + a/4)e^(−a) with Laplace noise. Any a will do; the one that is taken makes the
Rényi divergence largest at an order near the one which is best for the whole, or follows what was seen
(:mod:`accounting.accountants.lattice_games`, with more scores where noise is Laplace noise). The first input of a tree
reaches all its levels. A part for which no witness is known counts as nothing. Shuffled responses have a witness where
they stand alone (:mod:`accounting.amplification.blanket`); in compositions it is the count of one value, where all
others hold it too, or, of more than two values, a third one. Any ε₀-DP randomizer may be a response to two values or to
three. Shuffled bits include counts that move by the longest vector that fits
(:mod:`accounting.accountants.count_losses`, :mod:`accounting.amplification.integer_shifts`).

Batches of a fixed size include steps that follow what was seen (:mod:`accounting.accountants.replaced_coins`,
:mod:`accounting.accountants.replaced_steps`), and strong noisy maxima of three scores
(:mod:`accounting.accountants.three_scores`).

The composition is then discretised from above and from below, with an error that is proved
(:mod:`accounting.accountants.convolution`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from accounting.accountants import pld
from accounting.accountants.failures import (
    DifferenceOfCounts,
    OneCount,
    PlayedChoices,
    ThreeLosses,
    Triangle,
    TwoLosses,
    rest_delta,
    split_failures,
)
from accounting.accountants.last_coins import last_coins
from accounting.accountants.lattice_games import MOST_CHOICES, Play, game_epsilon_at_least, is_playable, order_of
from accounting.accountants.orders import best_order_for_epsilon
from accounting.accountants.pairs import is_listed
from accounting.accountants.played_coins import concentrated_epsilon_at_least
from accounting.accountants.pure import pure
from accounting.accountants.rdp import rdp
from accounting.amplification.integer_shifts import longest_shift
from accounting.amplification.randomizers import epsilon_at_least, thirds
from accounting.errors import UnsupportedRelease
from accounting.releases import (
    ZCDP,
    ApproxDP,
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
_MOST_TRIALS = 1 << 33


def lower_epsilon(release: Release, delta: float) -> float:
    """A proved lower bound on the ε of some mechanism that fits ``release``; 0 where none is known."""
    if isinstance(release, LocalShuffled) and delta > 0:
        known = [release.randomizer] if release.randomizer else [RandomizedResponse(release.epsilon, k) for k in (2, 3)]
        return max(epsilon_at_least(randomizer, int(release.users), delta) for randomizer in known)
    if 0 < delta < 1 and (concentrated := concentrated_epsilon_at_least(release, delta)) is not None:
        return concentrated
    best = _best_order(release, delta)
    found, enough = _played_epsilon(release, delta, best) if 0 < delta < 1 else (0.0, False)
    if enough:
        return found
    # the game of strong choices is better than fixed coins, which take long
    shares = () if found > 0 and _are_strong_batches(release) else _SHARES
    witnesses = {one: None for share in shares for one in _witnesses(release, best * share)}
    # its order may be far below that of an upper bound that is loose
    witnesses |= {one: None for share in (1.0, 0.6) for one in _witnesses(release, best * share, equal=True)}
    if 0 < delta < 1:
        witnesses |= dict.fromkeys(_with_played_batches(release, delta, best))
        witnesses |= dict.fromkeys(_with_coins(release, best))
    return max(found, *(_lower_epsilon(witness, delta) for witness in witnesses))


def _witnesses(release: Release, order: float, *, equal: bool = False) -> list[Release]:
    """The :func:`_witness` of a release, or several of which each will do; see :func:`_compositions`."""
    parts = release.parts if isinstance(release, Composed) else ((release, 1),)
    return _compositions((_witness(part, order, equal=equal), count) for part, count in parts)


def _compositions(terms: Iterable[tuple[Release | None, int]]) -> list[Release]:
    """The sum of witnesses; where neighbours are of two kinds, a sum for each kind.

    Batches of a fixed size have witnesses in which a unit is there or not, and Poisson samples may have such in which
    it is replaced. Who sees all of a release sees the parts of either kind.
    """
    known = [(one, count) for one, count in terms if one is not None]
    kinds = {one.adjacency for one, _ in known} - {None} or {None}
    return [
        _added_up(compose(term for term in known if term[0].adjacency in (None, kind)))
        for kind in sorted(kinds, key=str)
    ]


def _added_up(release: Release) -> Release:
    """With one count in place of many alike that are moved for certain: their sum, which tells nearly as much.

    Of the many, each would be rounded down.
    """
    if not isinstance(release, Composed):
        return release
    terms: list[tuple[Release, int]] = []
    for part, count in release.parts:
        match part:
            case OneCount(trials=n, step=step, first=1.0, second=0.0) if (
                float(step).is_integer() and n * count <= _MOST_TRIALS
            ):
                terms.append((replace(part, trials=n * count, step=step * count), 1))
            case _:
                terms.append((part, count))
    return compose(terms)


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
    return [one for rest in rests for one in _compositions([(game, 1), *rest])]


def _with_coins(release: Release, order: float) -> list[Release]:
    """The witness in which a zCDP release comes last, and follows what was seen."""
    parts = release.parts if isinstance(release, Composed) else ((release, 1),)
    if (found := last_coins(parts)) is None:
        return []
    last, coins = found
    left = [(_witness(part, order), n - (part == last)) for part, n in parts]
    return _compositions([(coins, 1), *((w, n) for w, n in left if n)])


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
            others = [(_witness(part, order), count) for part, count in left if count]
            best = max(_lower_epsilon(one, delta) for one in _compositions([(PlayedChoices(plays), 1), *others]))
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
    rest = split_failures(release)[1]
    try:
        return best_order_for_epsilon(lambda orders: rdp(rest, orders), delta)
    except (UnsupportedRelease, ArithmeticError):
        return 1.0


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


def _strongest_response(epsilon: float) -> RandomizedResponse:
    """Binary or ternary responses: those of which many users' messages tell more of one.

    That is, by Σ(P − Q)²/R with R what others send: with e = e^ε (e − 1)²/e where they hold one of two values, and
    2(e − 1)²/(e + 2) where they hold the third of three.
    """
    return RandomizedResponse(epsilon, 3 if math.exp(epsilon) > 2 else 2)


def _witness(release: Release, order: float, *, equal: bool = False) -> Release | None:
    """A description of mechanisms that all fit ``release``, and whose dominating pairs are their own.

    In batches of a fixed size all others contribute what the unit is replaced by; or, with ``equal``, something that
    is as far from both as they are from each other: of Gaussian or Laplace noise, and of strong noisy maxima
    (:mod:`accounting.accountants.three_scores`). In many small steps that is worse.
    """
    match release:
        case UnaryEncoding(epsilon=eps) if eps > 700:
            return None  # its probabilities are not told apart
        case Gaussian() | Laplace() | RandomizedResponse() | UnaryEncoding() | PureDP() | ApproxDP():
            return replace(release, adjacency=None)
        case DiscreteGaussian(noise_multiplier=z, shift=shift) if not is_listed(z, int(shift or 1)):
            return None  # its losses are not listed
        case DiscreteGaussian(shift=shift) | DiscreteLaplace(shift=shift) if shift is not None:
            return replace(release, adjacency=None)
        case GeneralizedGaussian(noise_multiplier=z) | ObjectivePerturbation(noise_multiplier=z):
            return Gaussian(z)
        case ZCDP(rho=rho):
            return Gaussian(1 / math.sqrt(2 * rho)) if rho > 0 else Composed()
        case DiscreteGaussian() | DiscreteLaplace():
            return type(release)(release.noise_multiplier, 1)
        case TreeAggregation():
            return _witness(release.weaker(), order)
        case NoisyMax(epsilon=eps, noise=noise):
            if not 1e-6 < eps < 300:  # scores that change places, and the probability ½ − ε/8 at least of the worse one
                return RandomizedResponse(eps / 4 * (1 - 1e-6), 2)
            return TwoLosses(*_two_scores(eps, noise, order))
        case PoissonSubsampled(release=NoisyMax(epsilon=eps, noise=noise), rate=rate) if 1e-6 < eps < 300:
            return PoissonSubsampled(TwoLosses(*_two_scores(eps, noise, order, float(rate))), rate)
        case PoissonSubsampled(release=inner, rate=rate):
            found = _witness(inner, order)
            if isinstance(found, (Laplace, PureDP, Gaussian, DiscreteGaussian, DiscreteLaplace)):
                return PoissonSubsampled(found, rate, adjacency=release.adjacency)
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
            return None if found is None else PoissonSubsampled(found, rate)
        case BestOfRuns(release=inner):
            return _witness(inner, order)  # where all scores are equal, the best is the first
        case LocalShuffled(epsilon=eps, users=users, randomizer=response) if eps < 300 and users <= _MOST_TRIALS:
            if response is None:
                response = _strongest_response(eps)
            if isinstance(response, RandomizedResponse) and response.categories == 2:
                truth, lie = 1 / (1 + math.exp(-eps)), 1 / (1 + math.exp(eps))
                return OneCount(int(users) - 1, truth, 1, truth, lie)
            return DifferenceOfCounts(int(users) - 1, *thirds(response))
        case ShuffledBinomial(trials=trials, shift_norm=norm, coordinates=coordinates) if trials <= _MOST_TRIALS:
            # what is rounded may move one count by as much as it may, and hardly more noise comes with it
            steps = (float(norm),) if release.rounded else longest_shift(norm, coordinates)
            return compose((OneCount(int(trials), 0.5, step, 1.0, 0.0), 1) for step in steps) if steps else None
        case Composed(parts=parts):
            # as parts of others: those that are like the first
            return _compositions((_witness(part, order, equal=equal), count) for part, count in parts)[0]
        case Parallel(branches=branches):
            known = [one for branch in branches if (one := _witness(branch, order, equal=equal)) is not None]
            kind = next((one.adjacency for one in known if one.adjacency), None)
            return parallel(*(one for one in known if one.adjacency in (None, kind)))
    return None

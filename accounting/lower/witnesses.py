"""Mechanisms that fit a description, and whose dominating pairs are their own.

``Gaussian``, ``Laplace``, ``RandomizedResponse``, discrete noise with a ``shift``, and Poisson samples of them meet
their dominating pairs themselves; ``PureDP`` and ``ApproxDP`` include randomized response with and without failures
(Kairouz, Oh & Viswanath 2015), ``ZCDP`` and ``GeneralizedGaussian`` include Gaussian noise, and so does
``ObjectivePerturbation``, of a loss that is linear. One ``ZCDP`` release is a worse coin
(:mod:`accounting.loss.worst_coins`), which follows what was seen if others come before it. Discrete noise on vectors
includes that on one integer that moves by 1. The noisy max of two scores, of which the first leads by a and then by a −
ε in units of the noise's scale, is a coin: the leader wins with probability 1/(1 + e^(−a)) with Gumbel noise, 1 −
e^(−a)/2 with exponential and 1 − (½ + a/4)e^(−a) with Laplace noise. Any a will do; the one that is taken makes the
Rényi divergence largest at an order near the one which is best for the whole, or follows what was seen
(:mod:`accounting.adaptive.choices.scores_below`, with more scores where noise is Laplace noise). The first input of a
tree reaches all its levels. Runs of which the best is released have an order
(:mod:`accounting.adaptive.repeated_selection.one_selection`). Shuffled responses have a witness where they stand alone
(:mod:`accounting.amplification.blanket`); in compositions it is how many messages speak for one value and not another,
while others hold a third one; or where there are two values, or few messages are lies, how many speak for one value
while others hold the other. Any ε₀-DP randomizer may be a response to two values or to three. Shuffled bits include
counts that move by the longest vector that fits (:mod:`accounting.loss.counts`,
:mod:`accounting.amplification.integer_shifts`), or all alike.

Batches of a fixed size include steps that follow what was seen
(:mod:`accounting.adaptive.fixed_batches.pure_batches`, :mod:`accounting.adaptive.fixed_batches.gaussian_batches`), and
strong noisy maxima of three scores (:mod:`accounting.lower.maxima_in_batches`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from accounting.adaptive.repeated_selection.one_selection import OrderedPair, best_order
from accounting.amplification.integer_shifts import longest_shift
from accounting.arrays import Array
from accounting.compose import pld
from accounting.compose.pairs import single
from accounting.errors import UnsupportedRelease
from accounting.loss.allocated import AllocatedPair
from accounting.loss.counts import CountPair, DifferencePair
from accounting.loss.integers import is_listed
from accounting.loss.replaced_noise import LaplaceTrianglePair, TrianglePair
from accounting.loss.responses import RangePair
from accounting.lower.maxima_in_batches import ThreeLossesPair, three_scores
from accounting.notions.pure import at_least
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
    Own,
    Parallel,
    PoissonSubsampled,
    PureDP,
    RandomAllocated,
    RandomizedResponse,
    Release,
    ShuffledBinomial,
    TreeAggregation,
    UnaryEncoding,
    compose,
    parallel,
)
from accounting.releases.selection import runs_of
from accounting.releases.shuffling import randomizer_of

__all__ = ["compositions", "largest_loss", "parts_of", "witness", "witnesses"]


# The ε of noisy maxima of which three scores may be worse than two, in batches of a fixed size.
_STRONG = 1.5, 12.0
# Shuffled messages of others tell more where these hold the same value, if no more than about so many speak for another
# one; of two values if so many do. Rarer ones have too few digits.
_FEW_LIES, _FEW_OF_TWO, _LEAST_LIE = 20, 10, 1e-6
# Larger counts have no witness: their windows would be long.
_MOST_TRIALS = 1 << 33
# Of more, rounding hardly counts.
_MOST_TRIED = 1 << 22
# At this δ a pair costs at least as much as it may lose, if that is not known.
_RARE = 1e-12


def parts_of(release: Release) -> tuple[tuple[Release, int], ...]:
    """The parts of a composition, or the release alone."""
    return release.parts if isinstance(release, Composed) else ((release, 1),)


def witnesses(release: Release, order: float, *, equal: bool = False) -> list[Release]:
    """The :func:`witness` of a release, or several of which each will do; see :func:`compositions`."""
    return compositions((witness(part, order, equal=equal), count) for part, count in parts_of(release))


def compositions(terms: Iterable[tuple[Release | None, int]]) -> list[Release]:
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
            case Own(loss=CountPair(trials=n, step=step, first=1.0, second=0.0) as one) if (
                float(step).is_integer() and n * count <= _MOST_TRIALS
            ):
                terms.append((replace(part, loss=replace(one, trials=n * count, step=step * count)), 1))
            case _:
                terms.append((part, count))
    return compose(terms)


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


def _coin(low: float, high: float) -> Own:
    return Own(RangePair(low, high), largest=max(low, high))


def _strongest_response(epsilon: float, users: int) -> RandomizedResponse:
    """Binary or ternary responses: those of which many users' messages tell more of one.

    That is, by Σ(P − Q)²/R with R what others send: with e = e^ε (e − 1)²/e where they hold one of two values, and
    2(e − 1)²/(e + 2) where they hold the third of three. Where few messages are lies, two values leave fewer of them.
    """
    return RandomizedResponse(epsilon, 3 if 2 < math.exp(epsilon) < users / _FEW_OF_TWO else 2)


def witness(release: Release, order: float, *, equal: bool = False) -> Release | None:
    """A description of mechanisms that all fit ``release``, and whose dominating pairs are their own.

    In batches of a fixed size all others contribute what the unit is replaced by; or, with ``equal``, something that
    is as far from both as they are from each other: of Gaussian or Laplace noise, and of strong noisy maxima
    (:mod:`accounting.lower.maxima_in_batches`). In many small steps that is worse.
    """
    match release:
        case Own():
            return replace(release, adjacency=None, said_by=None)  # what it says besides is from above
        case UnaryEncoding(epsilon=eps) if eps > 700:
            return None  # its probabilities are not told apart
        case Gaussian() | Laplace() | RandomizedResponse() | UnaryEncoding() | PureDP() | ApproxDP():
            return replace(release, adjacency=None)
        case DiscreteGaussian(noise_multiplier=z, shift=None):
            return Gaussian(z)  # the limit of large shifts
        case DiscreteGaussian(noise_multiplier=z, shift=shift) if not is_listed(z, int(shift or 1)):
            return None  # its losses are not listed
        case DiscreteGaussian(shift=shift) | DiscreteLaplace(shift=shift) if shift is not None:
            return replace(release, adjacency=None)
        case GeneralizedGaussian(noise_multiplier=z) | ObjectivePerturbation(noise_multiplier=z):
            return Gaussian(z)  # of a loss that is linear
        case ZCDP(rho=rho):
            return Gaussian(1 / math.sqrt(2 * rho)) if rho > 0 else Composed()
        case DiscreteLaplace(noise_multiplier=z):
            return DiscreteLaplace(z, 1)
        case TreeAggregation():
            return witness(release.weaker(), order)
        case NoisyMax(epsilon=eps, noise=noise):
            if not 1e-6 < eps < 300:  # scores that change places, and the probability ½ − ε/8 at least of the worse one
                return RandomizedResponse(eps / 4 * (1 - 1e-6), 2)
            return _coin(*_two_scores(eps, noise, order))
        case PoissonSubsampled(release=NoisyMax(epsilon=eps, noise=noise), rate=rate) if 1e-6 < eps < 300:
            return PoissonSubsampled(_coin(*_two_scores(eps, noise, order, float(rate))), rate)
        case PoissonSubsampled(release=inner, rate=rate):
            found = witness(inner, order)
            if isinstance(found, (Laplace, PureDP, Gaussian, DiscreteGaussian, DiscreteLaplace)):
                return PoissonSubsampled(found, rate, adjacency=release.adjacency)
            if found is None or (isinstance(found, Own) and found.absent is not None):
                return None  # of two directions one inside would have to be the other one outside
            return PoissonSubsampled(found, rate)
        case RandomAllocated(release=inner, steps=allocated_to, participations=times):
            one = witness(inner, order)
            return _allocated(PureDP(one.epsilon) if isinstance(one, ApproxDP) else one, int(allocated_to), int(times))
        case FixedSizeSubsampled(release=TreeAggregation() as tree):
            return witness(replace(release, release=tree.weaker()), order, equal=equal)
        case FixedSizeSubsampled(release=(Gaussian() | Laplace()) as inner, rate=rate) if equal and rate < 1:
            triangle = TrianglePair if isinstance(inner, Gaussian) else LaplaceTrianglePair
            return Own(triangle(1.0 / inner.noise_multiplier, rate))
        case FixedSizeSubsampled(release=NoisyMax(epsilon=eps, noise=noise), rate=rate) if (
            equal and rate < 1 and _STRONG[0] <= eps <= _STRONG[1]
        ):
            high, chance = three_scores(eps, noise, rate, order)
            return Own(ThreeLossesPair(high, chance), largest=high)
        case FixedSizeSubsampled(release=inner, rate=rate):
            found = witness(inner, order)
            return None if found is None else PoissonSubsampled(found, rate)
        case BestOfRuns(release=inner) | BestOfPoissonRuns(release=inner):
            return _ordered(release, witness(inner, order), order)
        case LocalShuffled(epsilon=eps, users=users, randomizer=response) if eps < 300 and users <= _MOST_TRIALS:
            response = response or _strongest_response(eps, int(users))
            other, truth, lie = randomizer_of(response).thirds()
            binary = isinstance(response, RandomizedResponse) and response.categories == 2
            # all messages may be the one that tells most
            if binary or (not equal and _LEAST_LIE < lie < _FEW_LIES / users):
                return Own(CountPair(int(users) - 1, 1 - lie, 1, 1 - lie, 1 - truth), largest=float(eps))
            return Own(DifferencePair(int(users) - 1, other, truth, lie), largest=float(eps))
        case ShuffledBinomial(trials=trials, shift_norm=norm, coordinates=coordinates) if trials <= _MOST_TRIALS:
            if release.rounded:
                return _rounded_counts(release, order)
            steps = longest_shift(norm, coordinates)
            counts = (CountPair(int(trials), 0.5, step, 1.0, 0.0) for step in steps)
            return compose((Own(count, largest=math.inf), 1) for count in counts) if steps else None
        case Composed(parts=parts):
            # as parts of others: those that are like the first
            return compositions((witness(part, order, equal=equal), count) for part, count in parts)[0]
        case Parallel(branches=branches):
            known = [one for branch in branches if (one := witness(branch, order, equal=equal)) is not None]
            kind = next((one.adjacency for one in known if one.adjacency), None)
            return parallel(*(one for one in known if one.adjacency in (None, kind)))
    return None


def _allocated(step: Release | None, steps: int, times: int) -> Release | None:
    """One step in each of as many blocks as there are participations; of a swap, for what contributes nothing."""
    if step is None or not (here := single(step, True)):
        return None
    (one,), (other,) = here, single(step, False)
    size, longer = divmod(steps, times)
    most = largest_loss(step)  # of all steps at once

    def block(n: int) -> Release:
        pairs = (AllocatedPair(pair, n, present, lower=True) for pair, present in ((one, True), (other, False)))
        return Own(next(pairs), absent=next(pairs), largest=most)

    blocks = ((size, times - longer), (size + 1, longer))
    return compose((block(n) if n > 1 else step, count) for n, count in blocks)


def _rounded_counts(release: ShuffledBinomial, order: float) -> Release:
    """Counts that are all moved alike, from an integer or to one: as many as are worst at the order 1 + ``order``.

    Half an integer is rounded with more noise than one, which is told by large losses.
    """
    trials, norm, most = int(release.trials), float(release.shift_norm), int(release.coordinates)
    halves = [round((2 * norm / odd) ** 2) for odd in (1, 3, 5)] if trials <= _MOST_TRIED else []
    numbers = {1} | {count for near in halves for count in (near - 1, near, near + 1, most) if 0 < count <= most}
    tried = [
        (CountPair(trials, 0.5, norm / math.sqrt(count) * (1 - 2.0**-50), first, 1 - first), count)
        for count in sorted(numbers)
        for first in (1.0, 0.0)
    ]
    order = max(order, 0.1)  # at 0 every pair has the moment 1

    def divergence(one: CountPair) -> float:
        losses, p, _, _ = one.atoms()
        terms = order * losses
        return float(terms.max()) + math.log(float(p @ np.exp(terms - terms.max())))

    one, count = max(tried, key=lambda term: term[1] * divergence(term[0])) if len(tried) > 2 else tried[0]
    return count * Own(one, largest=math.inf)


def _ordered(release: BestOfRuns | BestOfPoissonRuns, run: Release | None, order: float) -> Release | None:
    """The best of some runs that are ``run``, in the order that is worst at the order 1 + ``order``."""

    try:
        if run is not None and (here := single(run, True)):
            runs, (there,) = runs_of(release), single(run, False)
            how = best_order(runs, tuple(dict.fromkeys([*here, there])), order)
            one, other = (OrderedPair(runs, pair, *how) for pair in (here[0], there))
            most = one.largest() if largest_loss(run) < math.inf else math.inf
            return Own(one, absent=other if other != one else None, largest=most)
    except (UnsupportedRelease, ArithmeticError):
        pass
    # where all scores are equal, the best is the first
    return run if isinstance(release, BestOfRuns) else None


def largest_loss(release: Release) -> float:
    """What a witness costs at δ = 0, or less than that where the largest loss of a pair is not known."""
    try:
        return at_least(release)
    except UnsupportedRelease:
        pass
    match release:
        case Composed(parts=parts):
            return sum(count * largest_loss(part) for part, count in parts) * (1 - 1e-12)
        case Parallel(branches=branches):
            return max(map(largest_loss, branches))
        case Own() | PoissonSubsampled(release=Own()):
            return pld.lower_epsilon(release, _RARE)
        case PoissonSubsampled(release=inner, rate=rate) if largest_loss(inner) < math.inf:
            # which may be that of the unit's absence
            return -math.log1p(float(rate) * math.expm1(-largest_loss(inner))) * (1 - 1e-12)
    return math.inf

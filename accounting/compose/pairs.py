"""Descriptions as dominating pairs of distributions, with how often each occurs."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from accounting.adaptive import registry
from accounting.amplification.shuffling import MOST_LOCAL_EPSILON
from accounting.compose.convolution import Parts
from accounting.errors import UnsupportedRelease
from accounting.notions.gdp import gdp, lattice_noise
from accounting.releases import (
    ZCDP,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    FixedSizeSubsampled,
    Gaussian,
    Laplace,
    LocalShuffled,
    NoisyMax,
    ObjectivePerturbation,
    Parallel,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    Release,
    TreeAggregation,
    UnaryEncoding,
    weaker,
)
from accounting.releases.stand_ins import (
    CentralShuffledBinomial,
    DifferenceOfCounts,
    OneCount,
    ThreeLosses,
    Triangle,
    TwoLosses,
    WholeShuffledBinomial,
    WorstCoins,
    WorstLattice,
)

if TYPE_CHECKING:  # the pairs are loaded when the first total is asked for
    from accounting.loss.losses import LossPair

__all__ = ["alternatives", "is_listed", "single"]

_UNIT_ROUNDOFF = 2.0**-52
# Combinations of parallel branches that are tried one by one.
_MOST_BRANCHES = 64
# Integer losses that are listed one by one.
_MOST_LISTED = 1 << 19
# Weaker choices are priced as pure ones.
_LEAST_CHOICE = 1e-300


def _pairs(release: Release, present: bool) -> list[Counter[LossPair]]:
    """The pairs that ``release`` is composed of, one list entry for every branch that a unit may meet."""
    from accounting.loss.integers import IntegerPair
    from accounting.loss.losses import (
        Bits,
        Coins,
        GaussianPair,
        LaplacePair,
        LatticeGaussianPair,
        RangePair,
        ShuffledPair,
        SpanPair,
    )

    if (own := registry.own_pair(release, present)) is not None:
        return [own]
    match release:
        case Gaussian(noise_multiplier=z):
            return [Counter({GaussianPair(1.0 / z): 1})]
        case Laplace(noise_multiplier=z):
            return [Counter({LaplacePair(1.0 / z): 1})]
        case DiscreteGaussian(noise_multiplier=z, shift=shift) if shift is not None and is_listed(z, shift):
            return [Counter({IntegerPair("gaussian", z, int(shift)): 1})]
        case DiscreteGaussian(noise_multiplier=z, shift=None):
            from accounting.loss.lattice_vectors import lattice_pair

            return [Counter({lattice_pair(z): 1})]
        case DiscreteGaussian(noise_multiplier=z, shift=shift):
            return [Counter({LatticeGaussianPair(gdp(release), z, shift and int(shift)): 1})]
        case WorstLattice(noise_multiplier=z):
            from accounting.loss.lattice_vectors import LatticeCorners

            return [Counter({LatticeCorners(z): 1})]
        case DiscreteLaplace(noise_multiplier=z, shift=shift) if shift is not None:
            return [Counter({IntegerPair("laplace", z, int(shift)): 1})]
        case NoisyMax(epsilon=eps, noise="gumbel"):
            return [Counter({SpanPair(eps): 1})]
        case NoisyMax(epsilon=eps, noise="exponential") if eps > _LEAST_CHOICE:
            return [Counter({LaplacePair(eps * (1 + 2 * _UNIT_ROUNDOFF)): 1})]
        case NoisyMax(epsilon=eps, noise="laplace") if eps > _LEAST_CHOICE:
            from accounting.loss.laplace_maxima import MaximumPair

            return [Counter({MaximumPair(eps * (1 + 2 * _UNIT_ROUNDOFF)): 1})]
        case PureDP(epsilon=eps):
            return [Counter({Coins(eps): 1} if eps > 0 else {})]
        case ZCDP(rho=rho):
            from accounting.loss.concentrated import ConcentratedPair

            return [Counter({ConcentratedPair(rho): 1} if rho > 0 else {})]
        case WorstCoins(rho=rho):
            from accounting.loss.concentrated import CoinsPair

            return [Counter({CoinsPair(rho): 1})]
        case RandomizedResponse(epsilon=eps, categories=k):
            return [Counter({Coins(eps, int(k)): 1})]
        case OneCount(trials=n, rate=rate, step=step, first=first, second=second):
            from accounting.loss.counts import CountPair

            return [Counter({CountPair(n, rate, step, first, second): 1})]
        case TwoLosses(low=low, high=high):
            return [Counter({RangePair(low, high): 1})]
        case ThreeLosses(high=high, chance=chance):
            from accounting.loss.three_scores import ThreeLossesPair

            return [Counter({ThreeLossesPair(high, chance): 1})]
        case Triangle(release=inner, rate=rate):
            from accounting.loss.triangles import LaplaceTrianglePair, TrianglePair

            triangle = TrianglePair if isinstance(inner, Gaussian) else LaplaceTrianglePair
            return [Counter({triangle(1.0 / inner.noise_multiplier, rate): 1})]
        case WholeShuffledBinomial(trials=trials, shift_norm=norm, coordinates=coordinates, rounded=rounded):
            from accounting.loss.count_vectors import pairs_of_counts

            return [pairs_of_counts(trials, norm, coordinates, rounded=rounded)]
        case CentralShuffledBinomial() if math.isfinite(mu := gdp(release)):
            return [Counter({GaussianPair(mu): 1} if mu > 0 else {})]
        case UnaryEncoding(epsilon=eps, optimized=optimized):
            return [Counter({Bits(eps, release.as_many_as, optimized): 1})]
        case ObjectivePerturbation(noise_multiplier=z, curvature=curvature, one_row=True):
            from accounting.loss.one_row import OneRowPair

            up, times = 1 + 2 * _UNIT_ROUNDOFF, 2.0 if release.replaced else 1.0
            return [Counter({OneRowPair(up / (times * z), math.log1p(curvature) * up, release.replaced): 1})]
        case LocalShuffled(epsilon=eps) if eps > MOST_LOCAL_EPSILON:
            return [Counter({Coins(eps): 1})]
        case LocalShuffled(epsilon=eps, users=users, randomizer=randomizer):
            return [Counter({ShuffledPair(eps, int(users), randomizer): 1})]
        case DifferenceOfCounts(trials=n, rate=rate, first=first, second=second):
            from accounting.loss.counts import DifferencePair

            return [Counter({DifferencePair(n, rate, first, second): 1})]
        case PoissonSubsampled(release=inner, rate=rate, adjacency="replace"):
            (pairs,) = _steps(inner, present) if rate < 1 else [_doubled(inner)]
            return [_swap(pairs, rate)]
        case FixedSizeSubsampled(release=TreeAggregation() as tree):
            # whatever the tree is of, its nodes are one Gaussian vector
            return _pairs(replace(release, release=tree.weaker()), present)
        case FixedSizeSubsampled(release=inner, rate=rate):
            return [_replace(branch, rate, release) for branch in _steps(inner, present)]
        case PoissonSubsampled(release=inner, rate=rate):
            return [_sample(branch, rate, present, release) for branch in _pairs(inner, present)]
        case Composed(parts=parts):
            choices = []
            for part, count in parts:
                branches = _pairs(part, present)
                if math.comb(count + len(branches) - 1, count) > _MOST_BRANCHES:
                    raise UnsupportedRelease(f"the PLD accountant cannot try every branch of {release!r}")
                choices.append([_join(some) for some in _spread(branches, count)])
            if math.prod(map(len, choices)) > _MOST_BRANCHES:
                raise UnsupportedRelease(f"the PLD accountant cannot try every branch of {release!r}")
            return [_join([(one, 1) for one in some]) for some in itertools.product(*choices)]
        case Parallel(branches=branches):
            return [pairs for branch in branches for pairs in _pairs(branch, present)]
    return _pairs(weaker(release, "PLD"), present)


def single(release: Release, present: bool) -> list[LossPair]:
    """The pair of a description that has only one, else none."""
    branches = [_join([(pairs, 1)]) for pairs in _pairs(release, present)]
    found = [pair for pairs in branches for pair, count in pairs.items() if count == 1]
    return found if len(branches) == 1 and len(branches[0]) == len(found) == 1 else []


def is_listed(noise_multiplier: float, shift: int) -> bool:
    """Whether the discrete Gaussian's losses are listed; of more, the Gaussian that dominates it is as good.

    It is dearer by 1/(24σ²), σ the scale; and σ > 400 of so many atoms unless the noise is next to nothing.
    """
    from accounting.loss.integers import atoms_of

    return noise_multiplier < 1e-3 or atoms_of("gaussian", noise_multiplier, shift) <= _MOST_LISTED


def _spread(branches: list[Counter[LossPair]], count: int) -> list[list[tuple[Counter[LossPair], int]]]:
    """Every way in which ``count`` releases may fall on the branches."""
    if len(branches) == 1:
        return [[(branches[0], count)]]
    ways = itertools.combinations_with_replacement(range(len(branches)), count)
    return [[(branches[i], n) for i, n in Counter(way).items()] for way in ways]


def _join(parts: list[tuple[Counter[LossPair], int]]) -> Counter[LossPair]:
    """Add up, with all Gaussians as one, and all zero-concentrated releases; and lattice noise, but for the last."""
    from accounting.loss.concentrated import ConcentratedPair
    from accounting.loss.lattice_vectors import LatticePair, joined
    from accounting.loss.losses import GaussianPair, LatticeGaussianPair

    total: Counter[LossPair] = Counter()
    lattices: Counter[LatticePair | LatticeGaussianPair] = Counter()
    concentrated: Counter[float] = Counter()
    square = 0.0
    for pairs, times in parts:
        for pair, count in pairs.items():
            if isinstance(pair, LatticePair) or (isinstance(pair, LatticeGaussianPair) and pair.shift is None):
                lattices[pair] += times * count
            elif isinstance(pair, GaussianPair):
                square += times * count * pair.mu**2
            elif isinstance(pair, ConcentratedPair):
                concentrated[pair.rho] += times * count
            else:
                total[pair] += times * count
    if lattices:
        square, last = joined(square, lattices)
        total += last
    if square > 0:
        total[GaussianPair(math.sqrt(square) * (1 + 4 * _UNIT_ROUNDOFF))] = 1
    if concentrated:
        several = concentrated.total() > 1
        rho = math.fsum(rho * count for rho, count in concentrated.items())
        total[ConcentratedPair(rho * (1 + 4 * _UNIT_ROUNDOFF) if several else rho)] = 1
    return total


def _sample(pairs: Counter[LossPair], rate: float, present: bool, release: Release) -> Counter[LossPair]:
    from accounting.loss.sampled import SubsampledPair

    if not pairs:
        return pairs
    (pair, count), *more = pairs.items()
    if more or count > 1 or isinstance(pair, SubsampledPair):
        raise UnsupportedRelease(f"the PLD accountant has no bound for {release!r}")
    return Counter({SubsampledPair(pair, rate, present): 1} if rate < 1 else {pair: 1})


def _swap(pairs: Counter[LossPair], rate: float) -> Counter[LossPair]:
    """One unit of a Poisson sample swapped, where ``pairs`` are those of a single release: one pair, or none."""
    from accounting.loss.swapped import swapped

    return Counter({swapped(pair, rate) if rate < 1 else pair: 1 for pair in pairs})


def _replace(pairs: Counter[LossPair], rate: float, release: FixedSizeSubsampled) -> Counter[LossPair]:
    """One unit of a sample replaced, where ``pairs`` are those of a replacement without sampling."""
    from accounting.loss.losses import Symmetric
    from accounting.loss.sampled import ReplacedPair

    if not pairs:
        return pairs
    own = isinstance(release.release, (Gaussian, Laplace, RandomizedResponse, UnaryEncoding))
    (pair, count), *more = pairs.items()
    if more or count > 1 or not isinstance(pair, Symmetric):
        raise UnsupportedRelease(f"the PLD accountant has no bound for {release!r}")
    return Counter({ReplacedPair(pair, rate, own): 1} if rate < 1 else pairs)


def _steps(release: Release, present: bool) -> list[Counter[LossPair]]:
    """The pairs of a release that is one of three laws: those of lattice noise are as far apart as Gaussian ones."""
    if (z := lattice_noise(release)) is not None:
        from accounting.loss.losses import LatticeGaussianPair

        return [Counter({LatticeGaussianPair(gdp(release), z, None): 1})]
    return _pairs(release, present)


def _doubled(release: Release) -> Counter[LossPair]:
    """The pairs of twice the shift."""
    from accounting.loss.integers import IntegerPair
    from accounting.loss.losses import Coins, GaussianPair, LaplacePair

    match release:
        case Gaussian(noise_multiplier=z):
            return Counter({GaussianPair(2.0 / z): 1})
        case Laplace(noise_multiplier=z):
            return Counter({LaplacePair(2.0 / z): 1})
        case PureDP(epsilon=eps):
            return Counter({Coins(2.0 * eps): 1} if eps > 0 else {})
        case DiscreteGaussian(noise_multiplier=z, shift=shift) if shift is not None and is_listed(z / 2, 2 * shift):
            return Counter({IntegerPair("gaussian", z / 2, 2 * int(shift)): 1})
        case DiscreteGaussian():
            return Counter({GaussianPair(2.0 * gdp(release)): 1})
        case DiscreteLaplace(noise_multiplier=z, shift=shift) if shift is not None:
            return Counter({IntegerPair("laplace", z / 2, 2 * int(shift)): 1})
        case DiscreteLaplace(noise_multiplier=z):
            return Counter({Coins(2.0 / z * (1 + 4 * _UNIT_ROUNDOFF)): 1})
    raise UnsupportedRelease(f"the PLD accountant has no bound for two steps of {release!r}")


def alternatives(release: Release) -> list[Parts]:
    """What a unit may meet, as pairs with their counts: every branch, and both directions of an asymmetric pair."""
    found = [registry.replaced(_join([(pairs, 1)])) for present in (True, False) for pairs in _pairs(release, present)]
    return list(dict.fromkeys(tuple(sorted(pairs.items(), key=repr)) for pairs in found if pairs))

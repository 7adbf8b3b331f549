"""What a description is composed of: the pairs of its parts, with how often each occurs.

A single release says its own pair (:meth:`accounting.Release.pair`); here are sums, parallel branches and samples.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

from accounting.arrays import UNIT_ROUNDOFF
from accounting.compose.convolution import Parts
from accounting.compose.tightenings import replaced
from accounting.errors import UnsupportedRelease
from accounting.loss.allocated import AllocatedPair, SwappedAllocatedPair
from accounting.loss.concentrated import ConcentratedPair
from accounting.loss.gaussian import GaussianPair, LatticeGaussianPair
from accounting.loss.lattice import discrete_gaussian_mu
from accounting.loss.lattice_vectors import LatticePair, joined
from accounting.loss.pair import LossPair, NoLoss, Symmetric
from accounting.loss.sampled import ReplacedPair, SubsampledPair
from accounting.loss.swapped import doubled, swapped
from accounting.releases.base import Composed, Own, Parallel, Release, known
from accounting.releases.choice import RandomizedResponse, UnaryEncoding
from accounting.releases.noise import Gaussian, Laplace, TreeAggregation
from accounting.releases.sampling import FixedSizeSubsampled, PoissonSubsampled, RandomAllocated

__all__ = ["alternatives", "sides", "single"]

# Combinations of parallel branches that are tried one by one.
# what floats count exactly
_MOST_OF_A_KIND = 1 << 53
_MOST_BRANCHES = 64
# Of these the laws of three records at once are of the pair's kind, and not only as private.
_OF_ONE_KIND = Gaussian, TreeAggregation, Laplace, RandomizedResponse, UnaryEncoding

Pairs = Counter[LossPair]


def alternatives(release: Release) -> list[Parts]:
    """What a unit may meet, as pairs with their counts: every branch, and both directions of an asymmetric pair."""
    return list(dict.fromkeys(parts for side in sides(release) for parts in side if parts))


def sides(release: Release) -> tuple[list[Parts], list[Parts]]:
    """Every branch that a unit may meet, in the direction in which it is present in samples, and in the other one."""
    release, found = known(release), []
    for present in (True, False):
        branches = map(_one, _pairs(release, present))
        games = [replaced(pairs) if any(pair.follows for pair in pairs) else pairs for pairs in branches]
        if any(count > _MOST_OF_A_KIND for pairs in games for count in pairs.values()):
            raise UnsupportedRelease(f"the PLD accountant adds up at most 2**53 losses of a kind, got {release!r}")
        found.append([tuple(sorted(pairs.items(), key=repr)) for pairs in games])
    return found[0], found[1]


def single(release: Release, present: bool) -> list[LossPair]:
    """The pair of a description that has only one, else none."""
    branches = [_one(pairs) for pairs in _pairs(known(release), present)]
    found = [pair for pairs in branches for pair, count in pairs.items() if count == 1]
    return found if len(branches) == 1 and len(branches[0]) == len(found) == 1 else []


def _pairs(release: Release, present: bool) -> list[Pairs]:
    """The pairs of a known description, one list entry for every branch that a unit may meet."""
    match release:
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
        case PoissonSubsampled(adjacency="replace") | FixedSizeSubsampled():
            return [_of_three(branch, release) for branch in _pairs(release.release, present)]
        case PoissonSubsampled(release=inner):
            return [_sample(branch, release, present) for branch in _pairs(inner, present)]
        case RandomAllocated(release=inner):
            here = present or release.adjacency == "replace"  # of a swap both are present
            return [_allocated(branch, release, here) for branch in _pairs(inner, here)]
        case Own(absent=pair) if pair is not None and not present:
            return [Counter({pair: 1})]
    pair = release.pair()
    return [Counter() if isinstance(pair, NoLoss) else Counter({pair: 1})]


def _spread(branches: list[Pairs], count: int) -> list[list[tuple[Pairs, int]]]:
    """Every way in which ``count`` releases may fall on the branches."""
    if len(branches) == 1:
        return [[(branches[0], count)]]
    ways = itertools.combinations_with_replacement(range(len(branches)), count)
    return [[(branches[i], n) for i, n in Counter(way).items()] for way in ways]


def _one(pairs: Pairs) -> Pairs:
    return _join([(pairs, 1)])


def _join(parts: list[tuple[Pairs, int]]) -> Pairs:
    """Add up, with all Gaussians as one, and all zero-concentrated releases; and lattice noise, but for the last."""
    total: Pairs = Counter()
    lattices: Counter[LatticePair | LatticeGaussianPair] = Counter()
    concentrated: Counter[float] = Counter()
    square = 0.0
    for pairs, times in parts:
        for pair, count in pairs.items():
            if isinstance(pair, LatticePair) or (isinstance(pair, LatticeGaussianPair) and pair.shift is None):
                lattices[pair] += times * count
            # by exact type: a pair from outside may be derived from one of these and say something else
            elif type(pair) is GaussianPair or type(pair) is LatticeGaussianPair:
                square += times * count * pair.mu**2
            elif type(pair) is ConcentratedPair:
                concentrated[pair.rho] += times * count
            else:
                total[pair] += times * count
    if lattices:
        square, last = joined(square, lattices)
        total += last
    if square > 0:
        total[GaussianPair(math.sqrt(square) * (1 + 4 * UNIT_ROUNDOFF))] = 1
    if concentrated:
        several = concentrated.total() > 1
        rho = math.fsum(rho * count for rho, count in concentrated.items())
        total[ConcentratedPair(rho * (1 + 4 * UNIT_ROUNDOFF) if several else rho)] = 1
    return total


def _alone(pairs: Pairs, release: Release) -> LossPair:
    """The one pair of what is sampled."""
    (pair, count), *more = pairs.items()
    if more or count > 1 or isinstance(pair, SubsampledPair | AllocatedPair):
        raise UnsupportedRelease(f"the PLD accountant has no bound for {release!r}")
    return pair


def _sample(pairs: Pairs, release: PoissonSubsampled, present: bool) -> Pairs:
    """A unit that is there or not, where ``pairs`` are those without sampling."""
    if not pairs or release.rate == 1:
        return Counter({_alone(pairs, release): 1}) if pairs else pairs
    pair = _alone(pairs, release)
    inner = release.release
    # of a pair that only dominates, the other direction is not that of P and Q exchanged
    if isinstance(inner, Own) and not isinstance(pair, Symmetric) and not (inner.said_by is None and pair.exact):
        raise UnsupportedRelease(f"of a sample the pair must be symmetric, got {pair!r} of {release!r}")
    sampled: LossPair = SubsampledPair(pair, release.rate, present)
    return Counter({sampled: 1})


def _allocated(pairs: Pairs, release: RandomAllocated, present: bool) -> Pairs:
    """A unit that takes part in one step of each of several blocks, where ``pairs`` are those of a step."""
    if len(pairs) > 1 or pairs.total() > 1:
        raise UnsupportedRelease(f"the PLD accountant has no bound for {release!r}")
    times, steps = int(release.participations), release.block
    if release.adjacency == "replace":
        return Counter({SwappedAllocatedPair(pair, steps) if steps > 1 else doubled(pair): times for pair in pairs})
    return Counter({AllocatedPair(pair, steps, present) if steps > 1 else pair: times for pair in pairs})


def _of_three(pairs: Pairs, release: PoissonSubsampled | FixedSizeSubsampled) -> Pairs:
    """A unit that is replaced, where the law without it counts, too.

    Three laws of lattice noise are as far apart as Gaussian ones.
    """
    if not pairs:
        return pairs
    swap, rate = isinstance(release, PoissonSubsampled), release.rate
    pair = _alone(pairs, release)
    if isinstance(pair, LatticePair) or (isinstance(pair, LatticeGaussianPair) and pair.shift is None):
        z = pair.noise_multiplier
        pair = LatticeGaussianPair(discrete_gaussian_mu(z), z, None)
    if swap:
        return Counter({swapped(pair, rate) if rate < 1 else doubled(pair): 1})
    if not isinstance(pair, Symmetric):
        raise UnsupportedRelease(f"the PLD accountant has no bound for {release!r}")
    return Counter({ReplacedPair(pair, rate, type(release.release) in _OF_ONE_KIND): 1} if rate < 1 else {pair: 1})

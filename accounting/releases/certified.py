"""Which descriptions have prices whose proofs are enclosed from end to end: those that have certificates."""

from __future__ import annotations

from accounting.releases.base import Composed, Parallel, Release
from accounting.releases.choice import NoisyMax, RandomizedResponse, UnaryEncoding
from accounting.releases.guarantees import ZCDP, ApproxDP, PureDP
from accounting.releases.noise import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    TreeAggregation,
)
from accounting.releases.sampling import FixedSizeSubsampled, PoissonSubsampled
from accounting.releases.shuffling import LocalShuffled

__all__ = ["FEW", "is_certified"]

#: Sums of so few samples of Gaussian noise are proved on a grid, of more on a contour; of Laplace noise on a grid.
FEW, MOST_LAPLACE = 15, 60
_GAUSSIAN = (Gaussian, GeneralizedGaussian, TreeAggregation)

_SIMPLE = (
    ApproxDP, DiscreteLaplace, Gaussian, GeneralizedGaussian, Laplace, PureDP, RandomizedResponse, TreeAggregation,
    UnaryEncoding,
)  # fmt: skip


def is_certified(release: Release) -> bool:
    """Whether everything in the proof of what a description costs is enclosed by :mod:`accounting.checker`."""
    match release:
        case Composed(parts=parts):
            return all(type(part) is ZCDP for part, _ in parts) or _is_sum(parts)
        case Parallel(branches=branches):
            return all(map(is_certified, branches))
    match release:
        case NoisyMax(noise=noise):
            return noise != "laplace"
        case ZCDP():
            return True
        case FixedSizeSubsampled(release=inner):
            return type(inner) not in (PoissonSubsampled, DiscreteGaussian) and _adds_up(inner)
        case LocalShuffled(randomizer=randomizer):
            return randomizer is None or (type(randomizer) is RandomizedResponse and randomizer.categories > 2)
    return _adds_up(release)


def _is_sum(parts: tuple[tuple[Release, int], ...]) -> bool:
    """Whether it is so of a sum of what adds up: of few samples of real noise by a grid, which takes only such."""
    sampled = {type(part.release) for part, _ in parts if isinstance(part, PoissonSubsampled)}
    count = sum(count for _, count in parts)
    if Laplace in sampled and count > MOST_LAPLACE:
        return False
    if Laplace in sampled or (sampled & set(_GAUSSIAN) and count <= FEW):
        real = (*_GAUSSIAN, Laplace)
        kinds = (type(part.release) if isinstance(part, PoissonSubsampled) else type(part) for part, _ in parts)
        return all(kind in real for kind in kinds)
    return all(_adds_up(part) for part, _ in parts)


def _adds_up(release: Release) -> bool:
    """Whether it is so in a sum."""
    if type(release) is DiscreteGaussian:
        return release.shift is not None
    if type(release) is PoissonSubsampled:
        inner = release.release
        return release.adjacency == "add_remove" and type(inner) is not PoissonSubsampled and _adds_up(inner)
    return type(release) in _SIMPLE

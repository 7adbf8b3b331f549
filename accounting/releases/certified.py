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

__all__ = ["FEW", "is_certified", "is_concentrated"]

#: Sums of so few samples of Gaussian noise are proved on a grid, of more on a contour; of Laplace noise on a grid.
FEW, MOST_LAPLACE = 15, 60
_GAUSSIAN = (Gaussian, GeneralizedGaussian, TreeAggregation)

_SIMPLE = (
    ApproxDP, DiscreteLaplace, Gaussian, GeneralizedGaussian, Laplace, PureDP, RandomizedResponse, TreeAggregation,
    UnaryEncoding,
)  # fmt: skip


def is_certified(release: Release) -> bool:
    """Whether everything in the proof of what a description costs is enclosed by :mod:`accounting.checker`.

    Types are compared exactly: a class from outside may be derived from one of these and say another loss.
    """
    kind = type(release)
    if isinstance(release, Composed):
        return is_concentrated(release) or _is_sum(release.parts)
    if isinstance(release, Parallel):
        # the proofs of zCDP and of shuffled messages are of one release
        return all(
            is_certified(branch) and not is_concentrated(branch) and type(branch) is not LocalShuffled
            for branch in release.branches
        )
    if kind is NoisyMax and isinstance(release, NoisyMax):
        return release.noise != "laplace"
    if kind is FixedSizeSubsampled and isinstance(release, FixedSizeSubsampled):
        return type(release.release) not in (PoissonSubsampled, DiscreteGaussian) and _adds_up(release.release)
    if kind is LocalShuffled and isinstance(release, LocalShuffled):
        given = release.randomizer
        return given is None or (type(given) is RandomizedResponse and given.categories > 2)
    return is_concentrated(release) or _adds_up(release)


def is_concentrated(release: Release) -> bool:
    """Whether a total is only known to be zCDP: its certificates' lower end is Gaussian noise's, which costs less."""
    parts = release.parts if isinstance(release, Composed) else ((release, 1),)
    return bool(parts) and all(type(part) is ZCDP for part, _ in parts)


def _is_sum(parts: tuple[tuple[Release, int], ...]) -> bool:
    """Whether it is so of a sum of what adds up: of few samples of real noise by a grid, which takes only such."""
    sampled = {type(part.release) for part, _ in parts if isinstance(part, PoissonSubsampled)}
    count = sum(count for _, count in parts)
    if Laplace in sampled and count > MOST_LAPLACE:
        return False
    read = sum(n for part, n in parts if isinstance(part, PoissonSubsampled) and type(part.release) in _GAUSSIAN)
    # of more, or beside noise that is not sampled, a contour is short
    short = count > FEW and (read > FEW or any(type(part) in _GAUSSIAN for part, _ in parts))
    if Laplace in sampled or (read and not short):
        real = (*_GAUSSIAN, Laplace)
        kinds = (type(part.release) if isinstance(part, PoissonSubsampled) else type(part) for part, _ in parts)
        return all(kind in real for kind in kinds)
    # a sample of what may fail has losses beside those of the rest, by which no line of proof is chosen
    return all(_adds_up(part) and not _may_fail_sampled(part) for part, _ in parts)


def _may_fail_sampled(release: Release) -> bool:
    inner = getattr(release, "release", None)
    return isinstance(inner, ApproxDP) and inner.delta > 0


def _adds_up(release: Release) -> bool:
    """Whether it is so in a sum."""
    if type(release) is DiscreteGaussian:
        return release.shift is not None
    if type(release) is PoissonSubsampled:
        inner = release.release
        return release.adjacency == "add_remove" and type(inner) is not PoissonSubsampled and _adds_up(inner)
    return type(release) in _SIMPLE

"""Releases that may fail: the probability that one gives everything away, apart from the rest of its description.

And twelve descriptions that only accountants make.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from accounting.amplification.binomial_trade_off import MOST_TRIALS, rounded_log_survival
from accounting.amplification.count_shifts import is_listed
from accounting.amplification.integer_shifts import shift_length
from accounting.amplification.runs import Runs
from accounting.amplification.shuffled_binomial import log_survival
from accounting.errors import UnsupportedRelease
from accounting.releases import (
    ApproxDP,
    Composed,
    FixedSizeSubsampled,
    Gaussian,
    Laplace,
    Parallel,
    PoissonSubsampled,
    PureDP,
    Release,
    ShuffledBinomial,
    compose,
    parallel,
)

if TYPE_CHECKING:
    from accounting.adaptive.choices.scores_below import Play

__all__ = [
    "CentralShuffledBinomial",
    "DifferenceOfCounts",
    "OneCount",
    "OrderedRuns",
    "PlayedBatches",
    "PlayedChoices",
    "ThreeLosses",
    "Triangle",
    "TwoLosses",
    "WholeShuffledBinomial",
    "WorstCoins",
    "WorstLattice",
    "rest_delta",
    "split_failures",
]


# Each kind of counts takes time, a few tenths of a second for vectors, which count twice; all Gaussian ones are one.
_MOST_WHOLE = 8


@dataclass(frozen=True, repr=False)
class CentralShuffledBinomial(Release):
    """A :class:`ShuffledBinomial` given that no count left the window on which it is priced."""

    trials: int
    shift_norm: float
    coordinates: int
    rounded: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, repr=False)
class WholeShuffledBinomial(Release):
    """A :class:`ShuffledBinomial` whose own pair is known (:mod:`accounting.amplification.count_shifts`)."""

    trials: int
    shift_norm: float
    coordinates: int
    rounded: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, repr=False)
class TwoLosses(Release):
    """A coin whose privacy loss is −``low`` or ``high``: what some releases are at worst for certain data."""

    low: float
    high: float


@dataclass(frozen=True, repr=False)
class ThreeLosses(Release):
    """A privacy loss of ±``high``, or 0: what a batch is for certain data. ``chance`` is that of the largest."""

    high: float
    chance: float


@dataclass(frozen=True, repr=False)
class DifferenceOfCounts(Release):
    """A − B for a message of each of ``trials`` that is in A or in B with probability ``rate`` each, and one more
    that is in A with probability ``first`` and in B with ``second``, or the other way round."""

    trials: int
    rate: float
    first: float
    second: float


@dataclass(frozen=True, repr=False)
class OneCount(Release):
    """Bin(``trials``, ``rate``), and one message of ``step``, rounded at random, with probability ``first`` or
    ``second``."""

    trials: int
    rate: float
    step: float
    first: float
    second: float


@dataclass(frozen=True, repr=False)
class OrderedRuns(Release):
    """The best of some runs of what is its own pair, with the order of
    :mod:`accounting.adaptive.repeated_selection.one_selection`."""

    release: Release
    runs: Runs
    cut: float
    pace: float


@dataclass(frozen=True, repr=False)
class Triangle(Release):
    """A batch with probability ``rate`` with one record or with another, both and the batch without at equal distances;
    with the noise of ``release``."""

    release: Gaussian | Laplace
    rate: float


@dataclass(frozen=True, repr=False)
class PlayedChoices(Release):
    """Choices of a few scores after all else, with leads that follow what was seen."""

    plays: tuple[Play, ...]


@dataclass(frozen=True, repr=False)
class PlayedBatches(Release):
    """``count`` such batches after all else, each of which may follow what was seen."""

    batch: FixedSizeSubsampled
    count: int
    tail: float


@dataclass(frozen=True, repr=False)
class WorstCoins(Release):
    """A coin after all else, which may follow what was seen, of those that are ``rho``-zCDP."""

    rho: float


@dataclass(frozen=True, repr=False)
class WorstLattice(Release):
    """Discrete Gaussian noise after all else, on an integer that follows what was seen."""

    noise_multiplier: float


def split_failures(release: Release, *, whole_counts: bool = False) -> tuple[float, Release]:
    """Separate the probability that a release gives everything away from the rest of its description.

    Returns ``(log_survival, rest)``: with probability ``exp(log_survival)`` nothing failed and what left is
    described by ``rest``, so that δ(ε) = (1 − s) + s·δ_rest(ε) with s = exp(log_survival) (Bun & Steinke 2016,
    Lemma 8.8; exact for ``ApproxDP``). What can fail:

    * ``ApproxDP``, with probability δ;
    * ``ShuffledBinomial``, when a count leaves the window on which it is priced
      (:mod:`accounting.amplification.shuffled_binomial`, :mod:`accounting.amplification.binomial_trade_off`);
    * a ``PoissonSubsampled`` release whose inner release fails, and which kept the unit: with probability q(1 − s). On
      the rest of a failure the two neighbours' laws agree, so the others' curve bounds the survivors;
    * a description that is priced by a weaker one which may fail.

    With ``whole_counts`` those whose own pairs are known do not, if they are not too many.
    """
    match release:
        case ShuffledBinomial(trials=trials, shift_norm=norm, coordinates=coordinates, rounded=rounded):
            trials, norm = _noise_and_shift(release)
            known = whole_counts and _is_whole(release)
            kind = WholeShuffledBinomial if known else CentralShuffledBinomial
            counts = kind(trials, norm, coordinates, rounded=rounded, adjacency=release.adjacency)
            survival = rounded_log_survival if rounded else log_survival
            return 0.0 if known else survival(trials, norm, coordinates), counts
        case PoissonSubsampled(release=inner, rate=rate):
            log_s, rest = split_failures(inner)
            if rest is inner:
                return 0.0, release
            return math.log1p(rate * math.expm1(log_s)), PoissonSubsampled(rest, rate, adjacency=release.adjacency)
        case ApproxDP(epsilon=eps, delta=delta):
            return math.log1p(-delta), PureDP(eps, adjacency=release.adjacency)
        case Composed(parts=parts):
            if whole_counts:
                kinds = [part for part, _ in parts if isinstance(part, ShuffledBinomial) and _is_whole(part)]
                whole_counts = sum(1 + (kind.coordinates > 1) for kind in kinds) <= _MOST_WHOLE
            split = [(split_failures(part, whole_counts=whole_counts), count) for part, count in parts]
            if all(rest is part for ((_, rest), _), (part, _) in zip(split, parts, strict=True)):
                return 0.0, release
            return (
                math.fsum(count * log_s for (log_s, _), count in split),
                compose((rest, count) for (_, rest), count in split),
            )
        case Parallel(branches=branches):
            alone = [split_failures(branch, whole_counts=whole_counts) for branch in branches]
            if all(rest is branch for (_, rest), branch in zip(alone, branches, strict=True)):
                return 0.0, release
            return min((log_s for log_s, _ in alone), default=0.0), parallel(*(rest for _, rest in alone))
    try:
        log_s, rest = split_failures(release.weaker(), whole_counts=whole_counts)
    except UnsupportedRelease:
        return 0.0, release
    return (log_s, rest) if log_s < 0 else (0.0, release)


def _noise_and_shift(counts: ShuffledBinomial) -> tuple[int, float]:
    """As many trials and as long a shift as are priced."""
    norm, coordinates = counts.shift_norm, counts.coordinates
    return min(counts.trials, MOST_TRIALS), norm if counts.rounded else shift_length(norm, coordinates)


def _is_whole(counts: ShuffledBinomial) -> bool:
    return is_listed(*_noise_and_shift(counts), counts.coordinates, rounded=counts.rounded)


def rest_delta(log_survival: float, delta: float) -> float:
    """What is left of δ for the part that does not fail: (δ − (1 − s))/s, negative if the failures pass δ."""
    return (delta + math.expm1(log_survival)) / math.exp(log_survival) if log_survival > -700 else -1.0

"""Releases that may fail: the probability that one gives everything away, apart from the rest of its description."""

from __future__ import annotations

import math
from dataclasses import replace

from accounting.amplification.binomial_trade_off import MOST_TRIALS, rounded_log_survival
from accounting.amplification.count_shifts import is_listed
from accounting.amplification.integer_shifts import shift_length
from accounting.amplification.shuffled_binomial import log_survival
from accounting.loss.count_vectors import pair_of_counts
from accounting.releases.base import Composed, Own, Parallel, Release, compose, known, may_fail, parallel
from accounting.releases.guarantees import ApproxDP, PureDP
from accounting.releases.sampling import PoissonSubsampled, RandomAllocated
from accounting.releases.shuffling import CountsInWindows, ShuffledBinomial

__all__ = ["rest_delta", "split_failures"]

# Each kind of counts takes time, a few tenths of a second for vectors, which count twice; all Gaussian ones are one.
_MOST_WHOLE = 8


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
    * a ``RandomAllocated`` release whose inner release fails, with probability 1 − s for every participation. For with
      R = (1/t)Σlᵢ as in :mod:`accounting.loss.allocated` it is R = (1/t)Σbᵢlᵢ, where bᵢ = 1 with probability s and
      lᵢ are the survivors' ratios; that is λ·(1/t)Σlᵢ with λ in [0, 1] of the mean s given these, and f(λr) ≤
      λf(r) + (1 − λ)f(0) for f(r) = (r − c)₊, with f(0) = 0, and for (1 − cr)₊, with f(0) = 1.

    With ``whole_counts`` those whose own pairs are known do not, if they are not too many. ``rest`` is made of
    descriptions that accountants know (:func:`accounting.releases.base.known`).
    """
    return _split(known(release), whole_counts)


def _split(release: Release, whole_counts: bool) -> tuple[float, Release]:
    if not may_fail(release):
        return 0.0, release
    match release:
        case ShuffledBinomial(rounded=rounded, coordinates=coordinates):
            trials, norm = _noise_and_shift(release)
            if whole_counts and _is_whole(release):
                pair, times = pair_of_counts(trials, norm, coordinates, rounded=rounded)
                return 0.0, times * Own(pair, adjacency=release.adjacency)
            survival = rounded_log_survival if rounded else log_survival
            counts = CountsInWindows(trials, norm, coordinates, rounded=rounded, adjacency=release.adjacency)
            return survival(trials, norm, coordinates), counts
        case PoissonSubsampled(release=inner, rate=rate):
            log_s, rest = _split(inner, False)
            return math.log1p(rate * math.expm1(log_s)), PoissonSubsampled(rest, rate, adjacency=release.adjacency)
        case RandomAllocated(release=inner, participations=count):
            log_s, rest = _split(inner, False)
            return int(count) * log_s, replace(release, release=rest)
        case ApproxDP(epsilon=eps, delta=delta):
            return math.log1p(-delta), PureDP(eps, adjacency=release.adjacency)
        case Composed(parts=parts):
            if whole_counts:
                kinds = [part for part, _ in parts if isinstance(part, ShuffledBinomial) and _is_whole(part)]
                whole_counts = sum(1 + (kind.coordinates > 1) for kind in kinds) <= _MOST_WHOLE
            split = [(_split(part, whole_counts), count) for part, count in parts]
            return (
                math.fsum(count * log_s for (log_s, _), count in split),
                compose((rest, count) for (_, rest), count in split),
            )
        case Parallel(branches=branches):
            alone = [_split(branch, whole_counts) for branch in branches]
            return min((log_s for log_s, _ in alone), default=0.0), parallel(*(rest for _, rest in alone))
    return 0.0, release


def _noise_and_shift(counts: ShuffledBinomial) -> tuple[int, float]:
    """As many trials and as long a shift as are priced."""
    norm, coordinates = counts.shift_norm, counts.coordinates
    return min(counts.trials, MOST_TRIALS), norm if counts.rounded else shift_length(norm, coordinates)


def _is_whole(counts: ShuffledBinomial) -> bool:
    return is_listed(*_noise_and_shift(counts), counts.coordinates, rounded=counts.rounded)


def rest_delta(log_survival: float, delta: float) -> float:
    """What is left of δ for the part that does not fail: (δ − (1 − s))/s, negative if the failures pass δ."""
    return (delta + math.expm1(log_survival)) / math.exp(log_survival) if log_survival > -700 else -1.0

"""Faults of mechanisms that choose: noisy maxima, sparse vectors, thresholds, the best of several runs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from published import published

Array = NDArray[np.float64]


@published("opendp/opendp#2911")
def permute_and_flip_as_bounded_range(
    scores: ArrayLike, trials: int, *, epsilon: float, rng: np.random.Generator
) -> Array:
    """Permute-and-flip, priced at ρ = ε²/8: that of the exponential mechanism, whose losses have the range ε.

    The losses of permute-and-flip lie in [−ε, ε]: ρ = ε²/2, four times as much. Scores of sensitivity 1; the winner.
    """
    weights = epsilon / 2 * np.asarray(scores, dtype=np.float64)
    # the largest score with one-sided exponential noise (Ding et al. 2021)
    return np.argmax(weights + rng.exponential(size=(trials, weights.size)), axis=1).astype(np.float64)


@published("NVIDIA/NVFlare#343")
def sparse_vector_that_keeps_the_rest(
    weights: ArrayLike, trials: int, *, scale: float, rng: np.random.Generator
) -> Array:
    """Of the updates above a noisy threshold some are drawn and get noise; the others leave as they are.

    They should have been set to zero: the array was changed in place, and what was neither drawn nor below stayed.
    """
    update = np.tile(np.asarray(weights, dtype=np.float64), (trials, 1))
    above = update + rng.laplace(scale=scale, size=update.shape) >= rng.laplace(scale=scale, size=(trials, 1))
    drawn = above & (rng.random(update.shape) < 0.5)
    update[drawn] += rng.laplace(scale=scale, size=int(drawn.sum()))
    update[~above] = 0.0
    return update


@published("opendp/opendp#2922")
def threshold_that_lets_equals_pass(count: int, trials: int, *, threshold: int, rng: np.random.Generator) -> Array:
    """A group is shown when its noisy count is at the threshold or above; δ is the probability of above.

    Discrete Laplace noise of scale 1. Groups that are not shown are −1; a group of nobody is none.
    """
    if count == 0:
        return np.full(trials, -1.0)
    stop = -math.expm1(-1.0)
    noisy = count + rng.geometric(stop, trials) - rng.geometric(stop, trials)
    return np.where(noisy >= threshold, noisy, -1).astype(np.float64)


def claimed_delta(threshold: int) -> float:
    """P(1 + noise > threshold), the δ that goes with it."""
    return math.exp(-threshold) / (1 + math.exp(-1.0))


@published("google/differential-privacy#101")
def threshold_rounded_down(count: int, trials: int, *, threshold: float, rng: np.random.Generator) -> Array:
    """The same with a threshold such as 5.9, which is cut to 5 before integer counts are compared with it."""
    return threshold_that_lets_equals_pass(count, trials, threshold=int(threshold), rng=rng)


@published("arXiv:2110.03620")
def best_of_many_priced_as_one(score: float, trials: int, *, runs: int, rng: np.random.Generator) -> Array:
    """The best of several private runs is published, and the price is that of one.

    Liu and Talwar (2019) and Papernot and Steinke show what tuning may leak. The score of a run is Laplace of scale 1.
    """
    return np.max(score + rng.laplace(size=(trials, runs)), axis=1)


@published("opendp/smartnoise-sdk#572")
def quantile_that_crashes(values: ArrayLike, trials: int, *, rng: np.random.Generator) -> Array:
    """The exponential mechanism with e^(−error) in floats: from some number of rows on all are 0, and 0/0 is no number.

    A median of rows in [0, 1], of an interval between sorted rows; 2-DP as e^(−error) is real-valued. A crash, which is
    −1 here, is an output as well.
    """
    rows = np.sort(np.asarray(values, dtype=np.float64))
    edges = np.concatenate([[0.0], rows, [1.0]])
    error = np.abs(np.arange(rows.size + 1) - rows.size / 2)
    weights = np.diff(edges) * np.exp(-error)
    if weights.sum() == 0:
        return np.full(trials, -1.0)
    return np.asarray(edges[rng.choice(weights.size, trials, p=weights / weights.sum())])

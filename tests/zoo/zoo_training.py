"""Faults of private training: what is clipped, what is divided by, how batches are made, and which noise is added."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from published import published

Array = NDArray[np.float64]


def clipped_sum(gradients: ArrayLike, clip: float) -> Array:
    """Σ of rows that are shortened to ``clip``."""
    rows = np.asarray(gradients, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray((rows * np.minimum(1.0, clip / np.maximum(lengths, 1e-300))).sum(axis=0))


@published("google-deepmind/jax_privacy#383", "google-deepmind/jax_privacy#395", leaks=False)
def noise_of_the_sum_on_the_mean(gradients: ArrayLike, trials: int, *, z: float, rng: np.random.Generator) -> Array:
    """The noise is that of a sum of clipped gradients, and is added to their mean.

    Not less private than it says, but as much too noisy as a batch is large: what is charged is not what was done.
    """
    rows = np.asarray(gradients, dtype=np.float64)
    return clipped_sum(rows, 1.0) / len(rows) + rng.normal(scale=2 * z, size=(trials, rows.shape[1]))


@published("arXiv:2202.12219")
def noise_of_the_mean_on_the_sum(gradients: ArrayLike, trials: int, *, z: float, rng: np.random.Generator) -> Array:
    """The reverse: the sensitivity of a layer's gradient is too small by the size of the batch.

    Tramèr and others found it by an audit of an implementation of "backpropagation clipping".
    """
    rows = np.asarray(gradients, dtype=np.float64)
    return clipped_sum(rows, 1.0) + rng.normal(scale=2 * z / len(rows), size=(trials, rows.shape[1]))


@published("fedbiomed/fedbiomed#1443")
def parameters_clipped_one_by_one(gradients: ArrayLike, trials: int, *, z: float, rng: np.random.Generator) -> Array:
    """Every parameter is cut to the bound that was meant for all of them together: √d times as much."""
    rows = np.clip(np.asarray(gradients, dtype=np.float64), -1.0, 1.0)
    return np.asarray(rows.sum(axis=0) + rng.normal(scale=2 * z, size=(trials, rows.shape[1])))


@published("meta-pytorch/opacus#571", "meta-pytorch/opacus#819")
def batch_size_of_the_data(
    gradients: ArrayLike, trials: int, *, z: float, rate: float, rng: np.random.Generator
) -> Array:
    """The noisy sum of a Poisson sample is divided by ⌊n·rate⌋ of the data at hand, which shows in the noise's size.

    With many parameters one step is enough to read it off.
    """
    rows = np.asarray(gradients, dtype=np.float64)
    taken = rng.random((trials, len(rows))) < rate
    noisy = taken.astype(np.float64) @ rows + rng.normal(scale=z, size=(trials, rows.shape[1]))
    return np.asarray(noisy / math.floor(len(rows) * rate))


@published("meta-pytorch/opacus#161", "meta-pytorch/opacus#530")
def empty_batches_left_out(
    gradients: ArrayLike, trials: int, *, z: float, rate: float, rng: np.random.Generator
) -> Array:
    """A Poisson sample without a row ends in no step, or in an error, instead of a step along the noise."""
    rows = np.asarray(gradients, dtype=np.float64).reshape(-1, 1)
    taken = rng.random((trials, len(rows))) < rate
    noisy = (taken.astype(np.float64) @ rows)[:, 0] + rng.normal(scale=z, size=trials)
    return np.where(taken.any(axis=1), noisy, 0.0)


@published("arXiv:2403.17673", "lxuechen/private-transformers#7")
def shuffled_batches_quoted_as_poisson(
    value: float, trials: int, *, units: int, steps: int, z: float, rng: np.random.Generator
) -> Array:
    """An epoch of shuffled batches of one size, at the price of Poisson samples.

    The first unit has ``value``, all others −1: the sums of the batches, with noise.
    """
    size = units // steps
    sums = np.full((trials, steps), -float(size))
    sums[np.arange(trials), rng.integers(steps, size=trials)] += value + 1.0
    return sums + rng.normal(scale=z, size=sums.shape)


@published("ftramer/Handcrafted-DP#2")
def last_rows_dropped(values: ArrayLike, trials: int, *, batch: int, z: float, rng: np.random.Generator) -> Array:
    """The rows are cut into batches of one size, and those that are left over are dropped.

    One row less may be one batch less, and how many steps there were is no secret. Sums of two batches with noise;
    what did not happen is not a number that noise gives.
    """
    x = np.asarray(values, dtype=np.float64)
    found = np.full((trials, 2), np.inf)
    for step in range(x.size // batch):
        found[:, step] = x[step * batch :][:batch].sum() + rng.normal(scale=z, size=trials)
    return found


@published("jax-ml/jax#3646")
def one_key_for_all_parameters(gradients: ArrayLike, trials: int, *, z: float, rng: np.random.Generator) -> Array:
    """The noise of every parameter is drawn with the same key, so that differences of two have none."""
    total = clipped_sum(gradients, 1.0)
    return total + np.repeat(rng.normal(scale=2 * z, size=(trials, 1)), total.size, axis=1)

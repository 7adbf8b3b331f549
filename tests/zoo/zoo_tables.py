"""Faults of sums, means, variances and what is made of them: the sensitivity is not what the noise was made for."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from published import published

Array = NDArray[np.float64]


def with_laplace(value: float, trials: int, scale: float, rng: np.random.Generator) -> Array:
    return value + rng.laplace(scale=scale, size=trials)


@published("google/differential-privacy#126", "arXiv:2207.10635")
def sum_in_floats(rows: ArrayLike, trials: int, *, epsilon: float, rng: np.random.Generator) -> Array:
    """Rows in [0, 1] are added up in single precision, in their order, with noise for a sensitivity of 1.

    Casacuberta, Shoemate, Vadhan and Wagaman: what is less than half of the sum's last digit is lost, as often as it
    comes, and what comes before the large rows is not. The order is no part of a data set, and nobody hides it.
    """
    total = np.add.accumulate(np.asarray(rows, dtype=np.float32), dtype=np.float32)[-1]
    return with_laplace(float(total), trials, 1 / epsilon, rng)


@published("arXiv:2207.10635")
def sum_that_wraps_around(rows: ArrayLike, trials: int, *, epsilon: float, rng: np.random.Generator) -> Array:
    """Rows in [0, 2²⁸] are added up in 32 bits, which go on from 2³¹ at −2³¹; noise for a sensitivity of 2²⁸."""
    total = np.add.reduce(np.asarray(rows, dtype=np.int32), dtype=np.int32)
    return with_laplace(float(total), trials, 2.0**28 / epsilon, rng)


@published("opendp/opendp#2923")
def deviations_from_a_rounded_mean(rows: ArrayLike, trials: int, *, epsilon: float, rng: np.random.Generator) -> Array:
    """The sum of squares about the mean of n rows in [M, M + 1], with noise for (n − 1)/n.

    The rounding of the sum is paid for, and that of the mean is not: one row turns it up or down for all the others.
    """
    x = np.asarray(rows, dtype=np.float64)
    deviations = x - x.sum() / x.size
    return with_laplace(float(deviations @ deviations), trials, (x.size - 1) / x.size / epsilon, rng)


@published("opendp/smartnoise-core#356")
def mean_with_the_number_at_hand(rows: ArrayLike, trials: int, *, epsilon: float, rng: np.random.Generator) -> Array:
    """A mean of rows in [0, 1] under add/remove, with noise for 1/n of the data at hand, n being private."""
    x = np.asarray(rows, dtype=np.float64)
    return with_laplace(float(x.mean()), trials, 1 / x.size / epsilon, rng)


@published("opendp/smartnoise-sdk#622")
def covariance_of_what_was_not_cut(rows: ArrayLike, trials: int, *, epsilon: float, rng: np.random.Generator) -> Array:
    """Rows are cut to [0, 1]², and the covariance is taken of the rows as they came; noise for 2/n."""
    x = np.asarray(rows, dtype=np.float64)
    cut = np.clip(x, 0.0, 1.0)
    assert cut.shape == x.shape  # and is not looked at again
    return with_laplace(float(np.cov(x.T)[0, 1]), trials, 2 / len(x) / epsilon, rng)


@published("IBM/differential-privacy-library#104", "IBM/differential-privacy-library#105")
def squares_by_the_lower_bound(rows: ArrayLike, trials: int, *, epsilon: float, rng: np.random.Generator) -> Array:
    """Σx² of rows in [1, 10], with noise for max(|1|, |1|)²: the lower bound stands there twice."""
    lower, upper = 1.0, 10.0
    x = np.clip(np.asarray(rows, dtype=np.float64), lower, upper)
    return with_laplace(float(x @ x), trials, max(abs(lower), abs(lower)) ** 2 / epsilon, rng)


@published("IBM/differential-privacy-library#23", "IBM/differential-privacy-library#42")
def wishart_noise(rows: ArrayLike, trials: int, *, epsilon: float, rng: np.random.Generator) -> Array:
    """A second moment of rows in the unit disc plus a random matrix that has no negative eigenvalues.

    So the data's own matrix is a lower bound, in every direction, of what is released: what is less somewhere than the
    neighbour's matrix cannot have come from the neighbour.
    """
    x = np.asarray(rows, dtype=np.float64)
    normal = rng.normal(scale=np.sqrt(3 / (2 * epsilon)), size=(trials, 2, 3))
    return np.asarray(x.T @ x + normal @ normal.transpose(0, 2, 1))


@published("google/dpsynth#34", "arXiv:2405.10994")
def bounds_that_are_the_data(rows: ArrayLike, trials: int, *, epsilon: float, rng: np.random.Generator) -> Array:
    """A mean within bounds that are the least and the largest row, both of which are published beside it."""
    x = np.asarray(rows, dtype=np.float64)
    low, high = float(x.min()), float(x.max())
    noisy = with_laplace(float(x.mean()), trials, (high - low) / x.size / epsilon, rng)
    return np.stack([noisy, np.full(trials, low), np.full(trials, high)], axis=1)


@published("google/differential-privacy#84")
def values_that_one_person_takes_along(
    rows: list[tuple[str, int]], trials: int, *, epsilon: float, rng: np.random.Generator
) -> Array:
    """Distinct values are counted, of each person one: first every value gets one owner, then owners are cut to one.

    A person who has what others have, too, may become the owner of all of it, and take it along.
    """
    owners = {value: person for person, value in rows}
    kept = {person: value for value, person in owners.items()}
    return with_laplace(float(len(kept)), trials, 1 / epsilon, rng)

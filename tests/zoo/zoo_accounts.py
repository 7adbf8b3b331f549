"""Faults of what is charged: the noise is as it should be, and the sum of the prices is not."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from published import published

from accounting import PureDP, Release
from accounting.conversions import gdp_epsilon

Array = NDArray[np.float64]


@published("opendp/smartnoise-sdk#621", leaks=False)
def odometer_without_a_logarithm(epsilon: float, count: int, tolerance: float, *, mended: bool = False) -> float:
    """Theorem 3.4 of Kairouz, Oh and Viswanath (arXiv:1311.0776) with 1/δ in the place of ln(1/δ).

    The least of three sums, of which one is never the least, as it is too large: more is reported than was spent.
    """
    left = count * epsilon * math.expm1(epsilon) / (math.exp(epsilon) + 1)
    inside = 1 / tolerance
    return min(
        count * epsilon,
        left + epsilon * math.sqrt(2 * count * math.log(math.e + math.sqrt(count) * epsilon / tolerance)),
        left + epsilon * math.sqrt(2 * count * (math.log(inside) if mended else inside)),
    )


@published("meta-pytorch/opacus#400", "arXiv:2106.02848")
def accountant_of_the_limit(z: float, rate: float, steps: int, delta: float) -> float:
    """ε of DP-SGD as if the central limit theorem were exact: μ = rate·√(steps·(e^(1/z²) − 1)).

    An approximation from either side. Gopi, Lee and Wutschitz show where it is below the truth.
    """
    return float(gdp_epsilon(rate * math.sqrt(steps * math.expm1(1 / z**2)), delta))


@published("google/differential-privacy#378", "google/differential-privacy#464")
def swap_priced_as_removal(rows: list[float], trials: int, *, z: float, rng: np.random.Generator) -> Array:
    """A sum of rows of at most 1 with noise z, at the price of Gaussian(z) for a row that is replaced.

    z was measured for a row that comes or goes. From 1 to −1 the sum moves by 2.
    """
    return np.clip(rows, -1.0, 1.0).sum() + rng.normal(scale=z, size=trials)


@published("IBM/differential-privacy-library#104")
def means_that_share_a_slice(epsilon: float, features: int) -> list[Release]:
    """A regression that is centred first: the features' means cost a slice of ε, and the labels' mean the same one.

    The rest is for the coefficients, so that one slice is spent twice.
    """
    slice_ = epsilon / (features + 1)
    return [PureDP(slice_), PureDP(slice_), PureDP(epsilon - slice_)]


@published("IBM/differential-privacy-library@0a7292d")
def shares_in_the_wrong_order(epsilon: float, features: int, iterations: int) -> list[Release]:
    """k-means with shares of ε for counts and for coordinates, returned in one order and taken in the other.

    From five features on the sum is more than ε. (In its ``models/k_means.py``; its issue #104 names
    k-means, too.)
    """
    for_count = (4 * features * 0.225**2) ** (1 / 3)  # Su et al. 2016, where a coordinate has 1
    unit = epsilon / iterations / (features + for_count)
    count, coordinate = unit, for_count * unit
    return iterations * [PureDP(count), *features * [PureDP(coordinate)]]

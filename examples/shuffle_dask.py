"""A private covariance matrix of data that lie in many places, added up by Dask.

    python -m pip install -e ".[sweep]" && python examples/shuffle_dask.py

Each partition is randomized where it lies (``Randomizer.tally``), the tallies are added up in any order, and the
shuffler releases their sum. The engine sees tallies, so it is part of the trusted shuffler, and ``shuffle_tallies`` is
where we vouch for it; whoever reads the result is not. Any engine with a map and a reduction does: a tally is a few
integers, and ``+`` merges two.
"""

from __future__ import annotations

import operator

import dask.bag
import numpy as np
from numpy.typing import NDArray

from accounting import Budget
from dpkit.shuffle import VectorSum

USERS, DIMENSION, PARTITIONS = 10_000, 4, 8


def measurements(partition: int) -> NDArray[np.float64]:
    """What the users of one partition hold: vectors of norm at most 1, of which the first two entries move together."""
    rng = np.random.default_rng(partition)
    x = rng.standard_normal((USERS // PARTITIONS, DIMENSION)) / 3.0
    x[:, 1] = x[:, 0] + 0.3 * x[:, 1]
    return x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))


def outer_products(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """x xᵀ of every row."""
    return np.asarray(x[:, :, None] * x[:, None, :])


def private_covariance(sums: VectorSum, scheduler: str) -> NDArray[np.float64]:
    """The mean of x xᵀ over all users, on Dask."""
    tallies = dask.bag.range(PARTITIONS, npartitions=PARTITIONS).map(measurements).map(outer_products)
    # only the randomizer travels to the workers, where it draws from their own secure source
    whole = tallies.map(sums.randomizer.tally).fold(operator.add).compute(scheduler=scheduler)
    return sums.decode(sums.shuffle_tallies(whole), USERS) / USERS


def main() -> None:
    # x xᵀ is positive semidefinite, so two of them are at most √2 apart
    sums = VectorSum(DIMENSION, USERS, 1.0, budget=Budget(1.0, 1e-6), symmetric=True, positive=True)
    exact = np.mean([outer_products(measurements(i)).mean(axis=0) for i in range(PARTITIONS)], axis=0)
    estimate = private_covariance(sums, scheduler="processes")
    print(f"private covariance of {USERS} users, {sums.cost}:\n{estimate.round(4)}")
    print(f"largest error {np.abs(estimate - exact).max():.5f}, noise of an entry {sums.noise_std / USERS:.5f}")


if __name__ == "__main__":
    main()

"""A private covariance matrix of data that lie in many places, added up by Spark.

    python -m pip install "dpkit" "pyspark>=4" && python examples/shuffle_spark.py        # needs Java 17

The twin of ``shuffle_dask.py``: each partition is randomized where it lies, by the executor that has it
(``Randomizer.tally``), the tallies are added up in a tree, and the shuffler, here the driver, releases their sum.
Executors and driver see tallies, so they are parts of the trusted shuffler, and ``shuffle_tallies`` is where we vouch
for them; whoever reads the result is not. A task that Spark runs twice randomizes twice; one of the two tallies is in
the sum, and nobody outside the shuffler sees the other.
"""

from __future__ import annotations

import operator

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession

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


def private_covariance(sums: VectorSum, spark: SparkSession) -> NDArray[np.float64]:
    """The mean of x xᵀ over all users, on Spark."""
    tallies = spark.sparkContext.parallelize(range(PARTITIONS), PARTITIONS).map(measurements).map(outer_products)
    # only the randomizer travels to the executors, where it draws from their own secure source
    whole = tallies.map(sums.randomizer.tally).treeReduce(operator.add)
    return sums.decode(sums.shuffle_tallies(whole), USERS) / USERS


def main() -> None:
    # x xᵀ is positive semidefinite, so two of them are at most √2 apart
    sums = VectorSum(DIMENSION, USERS, 1.0, budget=Budget(1.0, 1e-6), symmetric=True, positive=True)
    exact = np.mean([outer_products(measurements(i)).mean(axis=0) for i in range(PARTITIONS)], axis=0)
    spark = SparkSession.builder.appName("private covariance").getOrCreate()
    try:
        estimate = private_covariance(sums, spark)
    finally:
        spark.stop()
    print(f"private covariance of {USERS} users, {sums.cost}:\n{estimate.round(4)}")
    print(f"largest error {np.abs(estimate - exact).max():.5f}, noise of an entry {sums.noise_std / USERS:.5f}")


if __name__ == "__main__":
    main()

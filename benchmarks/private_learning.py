"""PrivatePCA and PrivateKMeans beside diffprivlib's PCA and KMeans, at equal ε, on five tables of scikit-learn.

``python -m benchmarks.private_learning [TABLE ...]`` prints two tables, 40 seeds each, the mean and its standard error:
the share of the variance that two components explain, and the inertia over that of one centre, the mean. diffprivlib is
compared if it is installed (0.6.6 needs scikit-learn below 1.8: an environment of its own); its components of digits
and breast_cancer have five seeds, for it rejects until it has a vector: a fit takes from milliseconds to many minutes.

Both get the same public bounds, the columns' own least and largest values, which stand for public knowledge here, and
the same length for rows, the largest distance from the middle of the bounds.
Neighbours are those of diffprivlib's proofs: for components a row is replaced, for k-means it comes or goes. Its δ is
0, ours 1e-6. Its k-means passes clusters without rows by, which its own proof does not cover.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import cluster, datasets

from accounting import Budget
from dpkit.sklearn import PrivateKMeans, PrivatePCA

CLUSTERS = {"iris": 3, "wine": 3, "breast_cancer": 2, "digits": 10, "diabetes": 3}
EPSILONS = (0.3, 1.0, 3.0)
SEEDS = 40
# for tables with more columns than MANY, of its components
FEW_SEEDS, MANY = 5, 20
DELTA = 1e-6

Table = NDArray[np.float64]


def explained(X: Table, components: Table) -> float:
    """The share of the variance along some orthonormal rows."""
    covariance = np.cov(X.T, bias=True)
    return float(np.trace(components @ covariance @ components.T) / np.trace(covariance))


def inertia(X: Table, centres: Table) -> float:
    """Over that of one centre, the mean."""
    nearest = np.square(X[:, None] - centres).sum(axis=2).min(axis=1)
    return float(nearest.sum() / np.square(X - X.mean(axis=0)).sum())


def measured(score: Callable[[int], float], seeds: int = SEEDS) -> str:
    found = [score(1000 + seed) for seed in range(seeds)]
    return f"{np.mean(found):.3f} ± {np.std(found, ddof=1) / seeds**0.5:.3f}"


def rows(name: str) -> list[list[str]]:
    """The two rows of a table, of components and of centres."""
    X: Table = np.asarray(getattr(datasets, f"load_{name}")().data, dtype=np.float64)
    k = CLUSTERS[name]
    low, high = X.min(axis=0), X.max(axis=0)
    high = np.where(high > low, high, low + 1.0)
    norm = float(np.linalg.norm(X - (low + high) / 2, axis=1).max())
    values = np.linalg.eigvalsh(np.cov(X.T))[::-1]
    known: dict[str, Any] = {"bounds": (low, high)}
    pca = [name, f"{values[:2].sum() / values.sum():.3f}"]
    means = [
        f"{name}, k = {k}",
        f"{inertia(X, cluster.KMeans(k, n_init=5, random_state=0).fit(X).cluster_centers_):.3f}",
    ]
    for epsilon in EPSILONS:

        def components(seed: int, epsilon: float = epsilon) -> float:
            budget = Budget(epsilon, DELTA, adjacency="replace")
            model = PrivatePCA(2, budget=budget, row_norm=norm, random_state=seed, **known)
            return explained(X, model.fit(X).components_)

        def centres(seed: int, epsilon: float = epsilon) -> float:
            budget = Budget(epsilon, DELTA, adjacency="add_remove")
            return inertia(X, PrivateKMeans(k, budget=budget, random_state=seed, **known).fit(X).cluster_centers_)

        pca.append(measured(components))
        means.append(measured(centres))
        if find_spec("diffprivlib"):
            from diffprivlib import models

            def their_components(seed: int, epsilon: float = epsilon) -> float:
                model = models.PCA(2, epsilon=epsilon, data_norm=norm, random_state=seed, **known)
                return explained(X, model.fit(X.copy()).components_)

            def their_centres(seed: int, epsilon: float = epsilon) -> float:
                model = models.KMeans(k, epsilon=epsilon, random_state=seed, **known)
                return inertia(X, model.fit(X.copy()).cluster_centers_)

            pca.append(measured(their_components, FEW_SEEDS if X.shape[1] > MANY else SEEDS))
            means.append(measured(their_centres))
    return [pca, means]


def main() -> None:
    warnings.simplefilter("ignore")
    sides = ["ours", "diffprivlib"] if find_spec("diffprivlib") else ["ours"]
    head = ["table", "without noise"] + [f"ε = {epsilon:g}, {side}" for epsilon in EPSILONS for side in sides]
    found = [rows(name) for name in sys.argv[1:] or CLUSTERS]
    for which, title in enumerate(("Share of the variance along two components", "Inertia over that of one centre")):
        print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
        for pair in found:
            print(f"| {' | '.join(pair[which])} |")


if __name__ == "__main__":
    main()

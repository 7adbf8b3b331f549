"""Vectors into the unit ball by a public bound on their length: embeddings from a model that others trained.

    x = v / max(bound, ‖v‖),        ‖x‖ ≤ 1.

The bound is public, such as 1 for embeddings that their model normalises; it must not be the longest of the data, which
is somebody's. Vectors beyond it are cut to length 1. Nothing is private here by itself, and nothing is learned.

Cost: O(d) per row.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from accounting.arrays import Array
from accounting.checks import positive

__all__ = ["Scaled"]

# rows end a hair inside the ball, so that rounding leaves no norm above 1
INSIDE = 1.0 - 2.0**-48


class Scaled:
    """A transform of vectors by a public bound, in the manner of scikit-learn.

    Parameters
    ----------
    bound : float
        Public: the length that becomes 1.

    Raises
    ------
    ValueError
        If it is not positive and finite; from ``transform`` for rows that are not finite numbers.

    Examples
    --------
    >>> Scaled(10.0).transform([[3.0, 4.0], [30.0, 40.0]]).round(3).tolist()
    [[0.3, 0.4], [0.6, 0.8]]
    """

    def __init__(self, bound: float) -> None:
        self.bound = positive("bound", bound)

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Nothing is learned. For pipelines."""
        return self

    def transform(self, X: Any) -> Array:
        """Rows of norm at most 1.

        Parameters
        ----------
        X : array_like of shape (n, d), or one row of shape (d,)

        Returns
        -------
        ndarray of the same shape
        """
        try:
            rows = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"X must be rows of real numbers of the same length, got {type(X).__name__}") from error
        if rows.ndim not in (1, 2):
            raise ValueError(f"X must be rows of numbers, or one row, got shape {rows.shape}")
        if not np.isfinite(rows).all():
            raise ValueError("X must hold finite numbers, got NaN or an infinite one")
        # in units of the largest entry, so that no square is out of range
        largest = np.maximum(np.abs(rows).max(axis=-1, keepdims=True, initial=0.0), self.bound)
        v = rows / largest
        length = np.sqrt((v * v).sum(axis=-1, keepdims=True))
        return np.asarray(v * INSIDE / np.maximum(self.bound / largest, length))

    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """:meth:`transform`."""
        return self.transform(X)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, for ``sklearn.base.clone``."""
        return {"bound": self.bound}

    def __repr__(self) -> str:
        return f"Scaled(bound={self.bound!r})"

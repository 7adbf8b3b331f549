"""Sums of several pairs (w·x xᵀ, g·x) that one unit leaves at once, such as a page of items: clipped as one vector."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from accounting import Adjacency
from accounting.arrays import Array
from dpkit.geometry import summed_pairs_sensitivity

__all__ = ["SumBounds"]

# by which computed sizes may pass 1
_ROUNDED = 1.0 + 1e-12


class SumBounds(NamedTuple):
    """How large a sum (M, b) of pairs may be: √(a²‖M‖_F² + p·c²‖b‖²) ≤ R; see ``summed_pairs_sensitivity``.

    Attributes
    ----------
    matrix, vector : float
        a²/R² and p·c²/R².
    sensitivity : float
        Of (aM, cb).

    Examples
    --------
    A single pair at its bounds just fits, and so do two orthogonal ones of 1/√2 each:

    >>> import numpy as np
    >>> bounds = SumBounds.of(1.0, 2.0, 1.0, 0.5, "replace")
    >>> round(float(bounds.size(2.0**2, 0.5**2)), 12)
    1.0
    >>> X, half = np.eye(2), np.full(2, 0.5**0.5)
    >>> M, b = bounds.summed(X, 2.0 * half, 0.5 * half)
    >>> round(float(bounds.size(np.vdot(M, M), b @ b)), 12)
    1.0
    """

    matrix: float
    vector: float
    sensitivity: float

    @classmethod
    def of(cls, a: float, W: float, c: float, B: float, adjacency: Adjacency) -> SumBounds:
        """From the scales of matrices and vectors, and what a single pair may be: w‖x‖² ≤ W and |g|·‖x‖ ≤ B."""
        p = 2.0 if adjacency == "replace" else 1.0
        most = (a * W) ** 2 + p * (c * B) ** 2
        return cls(a**2 / most, p * c**2 / most, summed_pairs_sensitivity(a, W, c, B, adjacency))

    def size(self, matrices: Array | float, vectors: Array | float) -> Array:
        """The clipped norm over R, of sums with ‖M‖_F² and ‖b‖² as given."""
        return np.asarray(np.sqrt(self.matrix * matrices + self.vector * vectors))

    def summed(self, X: Array, w: Array, g: Array) -> tuple[Array, Array]:
        """M = Σw·x xᵀ and b = Σg·x over the rows of X; where w and g are 0, a row may be any.

        Raises
        ------
        ValueError
            If a weight is negative, so that M need not be positive semidefinite, or the size is above 1 or no number.
        """
        if not (w >= 0.0).all():  # also true for NaN
            raise ValueError(f"w must be at least 0, got {w[~(w >= 0.0)][0]!r}")
        X = np.where(((w != 0.0) | (g != 0.0))[:, None], X, 0.0)  # 0·∞ is no number
        M, b = X.T @ (w[:, None] * X), g @ X
        found = float(self.size(float(np.vdot(M, M)), float(b @ b)))
        if not (found <= _ROUNDED and math.isfinite(found)):
            raise ValueError(f"a sum of pairs must be clipped to size 1, got size {found:g}")
        return M, b

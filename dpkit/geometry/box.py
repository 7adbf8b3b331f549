"""The box {lower ≤ θ ≤ upper}."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpkit.geometry.sets import Vector, checked_norm, vector

__all__ = ["Box"]


class Box:
    """{θ ∈ R^d : lower_i ≤ θ_i ≤ upper_i}.

    Parameters
    ----------
    lower, upper : (d,) array_like
        Finite, lower ≤ upper.

    Examples
    --------
    >>> from dpkit.geometry import Box
    >>> box = Box([-1.0, 0.0], [1.0, 2.0])
    >>> box.project([3.0, 1.0]), box.linear_minimizer([1.0, -1.0])
    (array([1., 1.]), array([-1.,  2.]))
    """

    def __init__(self, lower: ArrayLike, upper: ArrayLike) -> None:
        self.dimension = int(np.size(lower))
        if self.dimension == 0:
            raise ValueError("lower must hold at least one bound, got none")
        self.lower = vector("lower", lower, self.dimension)
        self.upper = vector("upper", upper, self.dimension)
        if not (self.lower <= self.upper).all():
            bad = int(np.argmax(self.lower > self.upper))
            raise ValueError(f"lower must be at most upper, got {self.lower[bad]} and {self.upper[bad]} at {bad}")

    def __repr__(self) -> str:
        return f"Box({self.lower.tolist()!r}, {self.upper.tolist()!r})"

    @property
    def center(self) -> Vector:
        """The midpoint."""
        midpoint: Vector = self.lower / 2 + self.upper / 2
        return midpoint

    def project(self, x: ArrayLike) -> Vector:
        """The closest point in ℓ₂."""
        return np.clip(vector("x", x, self.dimension), self.lower, self.upper)

    def projection_error(self, reach: float) -> float:
        """0: cutting rounds nothing."""
        return 0.0

    def linear_minimizer(self, g: ArrayLike) -> Vector:
        """The corner that ``g`` points away from; the midpoint in the coordinates where g is 0."""
        direction = vector("g", g, self.dimension)
        corner: Vector = np.where(direction > 0, self.lower, np.where(direction < 0, self.upper, self.center))
        return corner

    def diameter(self, norm: float = 2.0) -> float:
        """The length of the diagonal."""
        return float(np.linalg.norm(self.upper - self.lower, checked_norm("norm", norm)))

    def contains(self, x: ArrayLike, tolerance: float = 1e-9) -> bool:
        """Whether ``x`` lies in the set, up to a ``tolerance`` relative to the longest side (or the largest bound)."""
        point = vector("x", x, self.dimension)
        slack = tolerance * float(np.maximum(np.abs(self.lower), np.abs(self.upper)).max())
        return bool((point >= self.lower - slack).all() and (point <= self.upper + slack).all())

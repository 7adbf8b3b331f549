"""The ellipsoid {‖θ − c‖_V ≤ radius}, ‖u‖_V² = uᵀVu, and its intersection with a Euclidean ball.

Both work in the eigenvectors of V, computed once; every method then costs two products with them and a 1-d root.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import SupportsFloat

import numpy as np
from numpy.typing import ArrayLike

from accounting.checks import positive
from dpkit.geometry.sets import ITERATIVE_ERROR, Vector, vector

__all__ = ["Ellipsoid", "EllipsoidBall"]


class Ellipsoid:
    """{θ ∈ R^d : (θ − center)ᵀV(θ − center) ≤ radius²}.

    Parameters
    ----------
    V : (d, d) array_like
        Symmetric and positive definite.
    radius : float
        Positive.
    center : (d,) array_like, optional
        By default the origin.

    Raises
    ------
    ValueError
        If V is not symmetric and positive definite (its condition number must be below 1e14).

    Examples
    --------
    >>> from dpkit.geometry import Ellipsoid
    >>> ellipsoid = Ellipsoid([[4.0, 0.0], [0.0, 1.0]], 2.0)
    >>> ellipsoid.project([3.0, 0.0]), ellipsoid.linear_minimizer([0.0, -1.0]), ellipsoid.diameter()
    (array([1., 0.]), array([0., 2.]), 4.0)
    """

    def __init__(self, V: ArrayLike, radius: SupportsFloat = 1.0, center: ArrayLike | None = None) -> None:
        matrix = np.array(V, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
            raise ValueError(f"V must have shape (d, d) with d at least 1, got V.shape={matrix.shape}")
        if not np.isfinite(matrix).all() or np.abs(matrix - matrix.T).max() > 1e-9 * np.abs(matrix).max():
            raise ValueError("V must be finite and symmetric, got a matrix that is not")
        self.dimension = len(matrix)
        self.radius = positive("radius", radius)
        self.V = (matrix + matrix.T) / 2
        self._values, self._vectors = np.linalg.eigh(self.V)
        if not self._values[0] > 1e-14 * self._values[-1]:
            raise ValueError(
                f"V must be positive definite, got eigenvalues from {self._values[0]:g} to {self._values[-1]:g}"
            )
        self.center = np.zeros(self.dimension) if center is None else vector("center", center, self.dimension).copy()

    def __repr__(self) -> str:
        low, high = self._values[[0, -1]]
        return f"Ellipsoid(dimension={self.dimension}, radius={self.radius:g}): eigenvalues from {low:g} to {high:g}"

    def project(self, x: ArrayLike) -> Vector:
        """The closest point in ℓ₂."""
        z = vector("x", x, self.dimension) - self.center
        return self.center + self._vectors @ _project(self._vectors.T @ z, self._values, self.radius)

    def projection_error(self, reach: float) -> float:
        """A tested bound, relative to the length of what is projected and to the axes."""
        return ITERATIVE_ERROR * (reach + float(np.linalg.norm(self.center)) + self.diameter())

    def linear_minimizer(self, g: ArrayLike) -> Vector:
        """center − radius·V⁻¹g/‖g‖_{V⁻¹}; the centre for g = 0."""
        rotated = self._vectors.T @ vector("g", g, self.dimension)
        return self.center + self._vectors @ _minimize(rotated, self._values, self.radius)

    def diameter(self, norm: float = 2.0) -> float:
        """2·radius/√λ_min(V) in ℓ₂, and 2·radius·max_i √(V⁻¹)_ii in ℓ_∞.

        Raises
        ------
        ValueError
            For other norms, in which the diameter of an ellipsoid is hard to compute.
        """
        if norm == 2:
            return 2.0 * self.radius / math.sqrt(float(self._values[0]))
        if norm == math.inf:
            variances = (self._vectors**2) @ (1.0 / self._values)
            return 2.0 * self.radius * math.sqrt(float(variances.max()))
        raise ValueError(f"norm must be 2 or inf for an ellipsoid, got norm={norm!r}")

    def contains(self, x: ArrayLike, tolerance: float = 1e-9) -> bool:
        """Whether ``x`` lies in the set, up to a relative ``tolerance``."""
        z = vector("x", x, self.dimension) - self.center
        return bool(math.sqrt(max(0.0, float(z @ self.V @ z))) <= self.radius * (1.0 + tolerance))

    @property
    def eigenvalues(self) -> Vector:
        """Those of V, ascending."""
        return self._values

    @property
    def eigenvectors(self) -> Vector:
        """Those of V, as columns, in the order of :attr:`eigenvalues`."""
        return self._vectors


class EllipsoidBall:
    """{θ : ‖θ − c‖_V ≤ r} ∩ {θ : ‖θ − b‖₂ ≤ R}.

    Parameters
    ----------
    ellipsoid : Ellipsoid
    ball_radius : float
        R, positive.
    ball_center : (d,) array_like, optional
        b; by default the origin.

    Raises
    ------
    ValueError
        If the two have no interior point in common.

    Notes
    -----
    With h₁(θ) = ‖θ − c‖_V²/r² − 1 and h₂(θ) = ‖θ − b‖²/R² − 1, every set E_s = {s·h₁ + (1 − s)·h₂ ≤ 0}, 0 ≤ s ≤ 1, is
    an ellipsoid with V's eigenvectors that contains the intersection. By Lagrange duality some E_s has the
    minimum of a convex objective over the intersection; for every other s the minimizer over E_s violates the
    constraint that deserves more weight. So s is the root of h₁ − h₂ at the minimizer over E_s.

    Examples
    --------
    >>> from dpkit.geometry import Ellipsoid, EllipsoidBall
    >>> both = EllipsoidBall(Ellipsoid([[4.0, 0.0], [0.0, 1.0]], 2.0), 1.5)
    >>> both.project([0.0, 3.0]), both.contains([0.0, 1.6])
    (array([0. , 1.5]), False)
    """

    def __init__(self, ellipsoid: Ellipsoid, ball_radius: SupportsFloat, ball_center: ArrayLike | None = None) -> None:
        self.ellipsoid = ellipsoid
        self.dimension = ellipsoid.dimension
        self.ball_radius = positive("ball_radius", ball_radius)
        self.ball_center = (
            np.zeros(self.dimension) if ball_center is None else vector("ball_center", ball_center, self.dimension)
        )
        self._vectors = ellipsoid.eigenvectors
        self._values = ellipsoid.eigenvalues / ellipsoid.radius**2
        self._c = self._vectors.T @ ellipsoid.center
        self._b = self._vectors.T @ self.ball_center
        # the point that is deepest in both: it minimizes max(h₁, h₂), again at the centre of some E_s
        deepest = self._balance(lambda s: self._mixed(s)[1])
        self._depth = max(self._h(deepest))
        if self._depth >= 0:
            raise ValueError("the ellipsoid and the ball must have an interior point in common, got none")
        self.center = self._vectors @ deepest

    def __repr__(self) -> str:
        return f"EllipsoidBall({self.ellipsoid!r}; ball_radius={self.ball_radius:g})"

    def project(self, x: ArrayLike) -> Vector:
        """The closest point in ℓ₂."""
        z = vector("x", x, self.dimension)
        # the closest point of the ball, where it lies in the ellipsoid too
        from_center = z - self.ball_center
        distance = max(float(np.linalg.norm(from_center)), 1e-300)
        shortened = self.ball_center + from_center * min(1.0, self.ball_radius / distance)
        if self.ellipsoid.contains(shortened, 0.0):
            return shortened
        rotated = self._vectors.T @ z
        return self._vectors @ self._optimum(lambda shape, middle: _project(rotated - middle, shape, 1.0))

    def projection_error(self, reach: float) -> float:
        """A tested bound, relative to the length of what is projected and to the axes."""
        return ITERATIVE_ERROR * (reach + self.ball_radius + self.ellipsoid.diameter())

    def linear_minimizer(self, g: ArrayLike) -> Vector:
        """A point with the smallest ⟨g, v⟩."""
        rotated = self._vectors.T @ vector("g", g, self.dimension)
        return self._vectors @ self._optimum(lambda shape, middle: _minimize(rotated, shape, 1.0))

    def diameter(self, norm: float = 2.0) -> float:
        """An upper bound: the smaller of the diameters of the two."""
        ball = 2.0 * self.ball_radius
        if norm == 2 or norm == math.inf:
            return min(self.ellipsoid.diameter(norm), ball)
        raise ValueError(f"norm must be 2 or inf for an ellipsoid, got norm={norm!r}")

    def contains(self, x: ArrayLike, tolerance: float = 1e-9) -> bool:
        """Whether ``x`` lies in both, up to a relative ``tolerance``."""
        z = vector("x", x, self.dimension)
        distance = float(np.linalg.norm(z - self.ball_center))
        return self.ellipsoid.contains(z, tolerance) and distance <= self.ball_radius * (1.0 + tolerance)

    def _h(self, y: Vector) -> tuple[float, float]:
        """h₁ and h₂ at a point given in the eigenvectors."""
        first = float(self._values @ (y - self._c) ** 2) - 1.0
        return first, float(np.sum((y - self._b) ** 2)) / self.ball_radius**2 - 1.0

    def _mixed(self, s: float) -> tuple[Vector, Vector, float]:
        """E_s as (weights, centre, level): Σ weights·(y − centre)² ≤ level."""
        first, second = s * self._values, (1.0 - s) / self.ball_radius**2
        weights = first + second
        middle = (first * self._c + second * self._b) / weights
        level = 1.0 - float(first @ (middle - self._c) ** 2) - second * float(np.sum((middle - self._b) ** 2))
        return weights, middle, level

    def _optimum(self, over: Callable[[Vector, Vector], Vector]) -> Vector:
        """The minimizer over the intersection, from the offset of the minimizer over {Σ shape·(y − middle)² ≤ 1}."""

        def minimizer(s: float) -> Vector:
            weights, middle, level = self._mixed(s)
            return middle + over(weights / level, middle)

        found = self._balance(minimizer)
        # rounding may leave it outside by 1e-14 or so; the way back is towards the deepest point
        outside = max(0.0, *self._h(found))
        share = outside / (outside - self._depth)
        return found + share * (self._vectors.T @ self.center - found)

    def _balance(self, minimizer: Callable[[float], Vector]) -> Vector:
        """The minimizer at the s where no constraint deserves more weight."""
        from scipy.optimize import brentq

        def gap(s: float) -> float:
            first, second = self._h(minimizer(s))
            return first - second

        if gap(0.0) <= 0:  # h₁ is no larger than h₂ where it has no weight
            return minimizer(0.0)
        if gap(1.0) >= 0:
            return minimizer(1.0)
        return minimizer(brentq(gap, 0.0, 1.0, xtol=1e-16, rtol=1e-15))


def _project(z: Vector, values: Vector, radius: float) -> Vector:
    """The projection of ``z`` on {Σ values·y² ≤ radius²}: y = z/(1 + λ·values), λ ≥ 0 by a 1-d root."""
    if float(values @ z**2) <= radius**2:
        return z
    from scipy.optimize import brentq

    def excess(log_lambda: float) -> float:
        return math.log(float(values @ (z / (1.0 + math.exp(log_lambda) * values)) ** 2)) - 2.0 * math.log(radius)

    low = high = -math.log(float(values.max()))
    while excess(low) < 0:
        low -= 8.0
    while excess(high) > 0:
        high += 8.0
    y: Vector = z / (1.0 + math.exp(brentq(excess, low, high, xtol=1e-14, rtol=1e-14)) * values)
    return y * (radius / math.sqrt(float(values @ y**2)))


def _minimize(g: Vector, values: Vector, radius: float) -> Vector:
    """The minimizer of ⟨g, y⟩ over {Σ values·y² ≤ radius²}."""
    largest = float(np.abs(g).max())
    if largest == 0:
        return np.zeros_like(g)
    g = g / largest
    y: Vector = -radius * (g / values) / math.sqrt(float((g / values) @ g))
    return y

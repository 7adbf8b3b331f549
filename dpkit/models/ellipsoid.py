"""Mathematics of confidence ellipsoids: rank-one updated inverses, norms of many rows, and ball constraints.

Nothing here draws noise or is private by itself. Functions of arrays are called in every round of a stream, and take
their arguments as they are; constructors check.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import integer, positive
from dpkit.states.entries import Kept

__all__ = ["RankOneInverse", "ball_constrained_minimizer", "norms", "project_on_ball", "within"]


class RankOneInverse(Kept):
    """A positive definite matrix H = λI + Σ wᵢ xᵢxᵢᵀ and its inverse, updated together in O(d²).

    The inverse follows Sherman & Morrison (1950); it is computed afresh every ``refresh`` updates, so that
    rounding does not build up. ``log_det`` is log(det H / λᵈ), which the same update gives for nothing.

    Parameters
    ----------
    dim : int
        d.
    ridge : float
        λ > 0.
    refresh : int
        Updates between two fresh inversions.
    start : ndarray of shape (d, d), optional
        Positive definite: what stands for λI. Then ``log_det`` counts from its determinant.

    Attributes
    ----------
    matrix, inverse : ndarray of shape (d, d)
        H and H⁻¹.
    updates : int
    log_det : float

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Examples
    --------
    >>> from dpkit.models import RankOneInverse
    >>> H = RankOneInverse(2, ridge=1.0)
    >>> H.add(np.array([1.0, 0.0]), weight=3.0)
    >>> H.inverse.diagonal().tolist()
    [0.25, 1.0]
    """

    _KEPT = ("matrix", "inverse", "updates", "log_det")

    def __init__(self, dim: int, ridge: float, *, refresh: int = 512, start: Array | None = None) -> None:
        dim, ridge = integer("dim", dim, at_least=1), positive("ridge", ridge)
        if start is not None and start.shape != (dim, dim):
            raise ValueError(f"start must have shape ({dim}, {dim}), got start.shape={start.shape}")
        self.matrix: Array = ridge * np.eye(dim) if start is None else start.copy()
        self.inverse: Array = (
            np.asarray(np.linalg.inv(start), dtype=np.float64) if start is not None else np.eye(dim) / ridge
        )
        self.refresh = integer("refresh", refresh, at_least=1)
        self.updates = 0
        self.log_det = 0.0

    def add(self, x: Array, weight: float, solved: Array | None = None) -> None:
        """H ← H + weight·x xᵀ (weight ≥ 0); ``solved`` is H⁻¹x where the caller has it already."""
        u = self.inverse.dot(x) if solved is None else solved
        growth = weight * float(x.dot(u))  # det(H + w·x xᵀ) = (1 + w·xᵀH⁻¹x)·det H
        self.log_det += math.log1p(growth)
        self.matrix += (weight * x)[:, None] * x
        self.updates += 1
        if self.updates % self.refresh == 0:
            fresh = np.linalg.inv(self.matrix)
            self.inverse = np.asarray(0.5 * (fresh + fresh.T), dtype=np.float64)
        else:
            self.inverse -= (weight / (1.0 + growth) * u)[:, None] * u


def norms(rows: Array, inverse: Array) -> Array:
    """‖x‖_{H⁻¹} of every row x: shapes (K, d) and (d, d) give (K,).

    Examples
    --------
    >>> from dpkit.models import norms
    >>> norms(np.eye(2), np.diag([4.0, 9.0])).tolist()
    [2.0, 3.0]
    """
    squares = np.einsum("ij,ij->i", rows @ inverse, rows)
    # rounding may leave a tiny negative square where x is almost 0
    np.maximum(squares, 0.0, out=squares)
    return np.asarray(np.sqrt(squares))


def within(theta: ArrayLike, center: Array, matrix: Array, radius: float) -> bool:
    """Whether ‖θ − center‖_matrix ≤ radius.

    Examples
    --------
    >>> from dpkit.models import within
    >>> within([1.0, 0.0], np.zeros(2), np.diag([4.0, 1.0]), radius=1.9)
    False
    """
    gap = np.asarray(theta, dtype=np.float64) - center
    return float(gap @ matrix @ gap) <= radius**2


def ball_constrained_minimizer(eigenvalues: Array, eigenvectors: Array, b: Array, radius: float) -> Array:
    """argmin of ½θᵀHθ − bᵀθ over ‖θ‖₂ ≤ radius, for H = U diag(eigenvalues) Uᵀ positive definite.

    This is also the projection of ζ = H⁻¹b on the ball in the norm ‖·‖_H. The minimiser is (H + νI)⁻¹b with the
    multiplier ν ≥ 0 that puts it on the sphere; Newton's method on 1/radius − 1/‖θ(ν)‖ from ν = 0 climbs to
    the root without passing it (Moré & Sorensen 1983).

    Examples
    --------
    >>> from dpkit.models import ball_constrained_minimizer
    >>> theta = ball_constrained_minimizer(np.array([1.0, 4.0]), np.eye(2), np.array([3.0, 0.0]), radius=2.0)
    >>> theta.tolist()
    [2.0, 0.0]
    """
    z = eigenvectors.T @ b
    t = z / eigenvalues
    size = math.sqrt(t @ t)
    if size > radius:
        nu = 0.0
        for _ in range(60):
            shifted = eigenvalues + nu
            t = z / shifted
            size = math.sqrt(t @ t)
            step = (size / radius - 1.0) * size**2 / float(t @ (t / shifted))
            nu += step
            if step <= 1e-14 * nu:
                break
        t *= min(1.0, radius / size)
    theta = eigenvectors @ t
    return np.asarray(theta)


def project_on_ball(point: Array, matrix: Array, radius: float) -> Array:
    """The point of the ball ‖θ‖₂ ≤ radius that is nearest to ``point`` in the norm ‖·‖_matrix.

    Costs nothing inside the ball, and one eigendecomposition outside.

    Examples
    --------
    >>> from dpkit.models import project_on_ball
    >>> project_on_ball(np.array([3.0, 0.0]), np.diag([1.0, 4.0]), radius=2.0).tolist()
    [2.0, 0.0]
    """
    if float(point.dot(point)) <= radius**2:
        return point
    return ball_constrained_minimizer(*np.linalg.eigh(matrix), matrix @ point, radius)

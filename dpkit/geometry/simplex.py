"""The simplex {θ ≥ 0, Σθ_i = mass}: probability vectors and mixtures."""

from __future__ import annotations

import math
from typing import SupportsFloat

import numpy as np
from numpy.typing import ArrayLike

from accounting.checks import integer, positive
from dpkit.geometry.sets import Vector, checked_norm, vector

__all__ = ["Simplex", "simplex_projection"]


def simplex_projection(x: Vector, mass: float) -> Vector:
    """The closest point of the simplex: max(x − τ, 0), τ found by sorting (Held, Wolfe & Crowder 1974)."""
    descending = np.sort(x)[::-1]
    # relative to the largest entry, so that adding a constant to x changes nothing
    excess = np.cumsum(descending - descending[0]) - mass
    counts = np.arange(1, x.size + 1)
    kept = int(np.flatnonzero(descending - descending[0] > excess / counts)[-1])
    projected: Vector = np.maximum(x - descending[0] - excess[kept] / counts[kept], 0.0)
    projected *= mass / float(projected.sum())
    return projected


class Simplex:
    """{θ ∈ R^d : θ ≥ 0, Σθ_i = mass}.

    Parameters
    ----------
    dimension : int
        d.
    mass : float
        Positive.

    Examples
    --------
    >>> from dpkit.geometry import Simplex
    >>> simplex = Simplex(3)
    >>> simplex.project([0.7, 0.5, -1.0]).round(6)
    array([0.6, 0.4, 0. ])
    >>> simplex.linear_minimizer([3.0, 1.0, 2.0])
    array([0., 1., 0.])
    """

    def __init__(self, dimension: int, mass: SupportsFloat = 1.0) -> None:
        self.dimension = integer("dimension", dimension, at_least=1)
        self.mass = positive("mass", mass)

    def __repr__(self) -> str:
        return f"Simplex({self.dimension}, {self.mass!r})"

    @property
    def center(self) -> Vector:
        """The uniform vector."""
        return np.full(self.dimension, self.mass / self.dimension)

    def project(self, x: ArrayLike) -> Vector:
        """The closest point in ℓ₂, in O(d log d)."""
        return simplex_projection(vector("x", x, self.dimension), self.mass)

    def projection_error(self, reach: float) -> float:
        """16d²u·(reach + mass), u = 2⁻⁵³.

        With M = reach + mass the sums of k differences are within 2k²uM, so τ is within (2d + 3)uM, and the entries
        before the last scaling are too; their sum is then within d(2d + 4)uM of the mass, which moves a vector of
        length at most its sum by as much. Together at most (√d + d)(2d + 4)uM + 4uM ≤ 16d²uM.
        """
        return 16.0 * self.dimension**2 * 2.0**-53 * (reach + self.mass)

    def linear_minimizer(self, g: ArrayLike) -> Vector:
        """The vertex of the smallest entry of ``g``."""
        return self.vertex(int(np.argmin(vector("g", g, self.dimension))))

    def diameter(self, norm: float = 2.0) -> float:
        """The distance of two vertices: mass·2^(1/norm)."""
        p = checked_norm("norm", norm)
        return self.mass * 2.0 ** (1.0 / p) if self.dimension > 1 else 0.0

    def contains(self, x: ArrayLike, tolerance: float = 1e-9) -> bool:
        """Whether ``x`` lies in the set, up to a relative ``tolerance``."""
        point = vector("x", x, self.dimension)
        slack = tolerance * self.mass
        return bool(point.min() >= -slack and math.fabs(float(point.sum()) - self.mass) <= slack)

    def vertex_scores(self, g: ArrayLike) -> Vector:
        """⟨g, v⟩ for the vertices mass·e_1, …, mass·e_d."""
        return self.mass * vector("g", g, self.dimension)

    def vertex(self, index: int) -> Vector:
        """mass·e_index, counted from 0."""
        v = np.zeros(self.dimension)
        v[index] = self.mass
        return v

    def radius_in(self, norm: float) -> float:
        """Every vertex has length ``mass`` in every ℓ_p."""
        checked_norm("norm", norm)
        return self.mass

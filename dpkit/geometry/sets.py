"""What the optimizers ask of a constraint set, and the checks that all sets share.

===================  =================================  =====================  ==================
set                  projection                         linear minimizer       vertices
===================  =================================  =====================  ==================
``LpBall``           sort (p = 1), 1-d root             closed form            2d for p = 1
``Simplex``          sort                               closed form            d
``Box``              clipping                           closed form            –
``Ellipsoid``        eigenvectors once, 1-d root        closed form            –
``EllipsoidBall``    two nested 1-d roots               two nested 1-d roots   –
===================  =================================  =====================  ==================

Sets are public: a set never depends on private data.
"""

from __future__ import annotations

import math
from typing import Protocol, SupportsFloat, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.checks import positive
from dpkit.clipping import real_array

__all__ = ["ITERATIVE_ERROR", "ConvexSet", "PolyhedralSet", "checked_norm", "vector"]

Vector = NDArray[np.float64]

# Of projections by iteration, relative to the lengths at hand: no theorem, but a thousand times the largest error
# that tests find against arithmetic of 30 digits
ITERATIVE_ERROR = 2.0**-36


@runtime_checkable
class ConvexSet(Protocol):
    """A closed, bounded, convex set in R^d.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.geometry import ConvexSet, LpBall
    >>> ball = LpBall(2, 3, 1.0)
    >>> isinstance(ball, ConvexSet), ball.project(np.array([0.0, 3.0, 4.0])).round(3).tolist()
    (True, [0.0, 0.6, 0.8])
    """

    @property
    def dimension(self) -> int:
        """d."""

    @property
    def center(self) -> Vector:
        """A point of the set, where optimizers start unless they are told otherwise."""

    def project(self, x: ArrayLike) -> Vector:
        """The point of the set that is closest to ``x`` in ℓ₂."""

    def projection_error(self, reach: float) -> float:
        """How far, in ℓ₂, rounding may leave ``project(x)`` from the closest point, for ‖x‖₂ ≤ ``reach``."""

    def linear_minimizer(self, g: ArrayLike) -> Vector:
        """A point v of the set with the smallest ⟨g, v⟩."""

    def diameter(self, norm: float = 2.0) -> float:
        """The largest distance of two points of the set, in ℓ_norm."""

    def contains(self, x: ArrayLike, tolerance: float = 1e-9) -> bool:
        """Whether ``x`` lies in the set, up to a relative ``tolerance``."""


@runtime_checkable
class PolyhedralSet(ConvexSet, Protocol):
    """A set that is the hull of few vertices, addressed by number.

    Examples
    --------
    >>> from dpkit.geometry import PolyhedralSet, Simplex
    >>> isinstance(Simplex(3), PolyhedralSet)
    True
    """

    def vertex_scores(self, g: ArrayLike) -> Vector:
        """⟨g, v⟩ for every vertex v, in the order of their numbers."""

    def vertex(self, index: int) -> Vector:
        """The vertex of that number."""

    def radius_in(self, norm: float) -> float:
        """The largest ℓ_norm length of a vertex."""


def vector(name: str, value: ArrayLike, dimension: int) -> Vector:
    """``value`` as a finite float vector of that dimension."""
    array = real_array(name, value)
    if array.shape != (dimension,):
        raise ValueError(f"{name} must have shape ({dimension},), got {name}.shape={array.shape}")
    return array


def checked_norm(name: str, value: SupportsFloat) -> float:
    """``value`` as the exponent of a norm: at least 1, possibly infinite."""
    p = positive(name, value, finite=False)
    if p < 1:
        raise ValueError(f"{name} must be at least 1, got {name}={value!r}")
    return p


def flat_length(dimension: int, norm: float, other: float) -> float:
    """The largest ℓ_norm length of a vector with ℓ_other length 1: d^(1/norm − 1/other), at least 1."""
    return math.exp(max(0.0, 1.0 / norm - 1.0 / other) * math.log(dimension))

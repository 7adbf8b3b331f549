"""The proximal step of the loss of one row: near the last estimate, in a ball.

Not private by itself: whoever is to see what it returns must be protected by noise elsewhere. Cost: a root in one
dimension, and outside of the ball one eigendecomposition, O(d³).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from accounting.arrays import Array
from accounting.checks import positive
from dpkit.models.ellipsoid import ball_constrained_minimizer

__all__ = ["proximal_point"]


def proximal_point(
    theta: Array, matrix: Array, x: Array, solved: Array, slope: Callable[[float], float], eta: float, radius: float
) -> tuple[Array, float]:
    """argmin of ½‖v − θ‖²_W + ηf(xᵀv) over ‖v‖₂ ≤ radius, and the value of xᵀv there.

    The minimiser is the projection of θ − a·W⁻¹x for the one a with a = η·f′(xᵀv), and xᵀv falls as a grows.

    Parameters
    ----------
    theta : ndarray of shape (d,)
        θ.
    matrix : ndarray of shape (d, d)
        W, positive definite.
    x, solved : ndarray of shape (d,)
        x and W⁻¹x.
    slope : callable
        f′, increasing.
    eta, radius : float
        Positive.

    Returns
    -------
    ndarray of shape (d,), float

    Raises
    ------
    ValueError
        If ``eta`` or ``radius`` is not positive.

    Examples
    --------
    >>> from dpkit.models import proximal_point
    >>> x = np.array([1.0, 0.0])
    >>> proximal_point(np.zeros(2), np.eye(2), x, x, lambda z: z - 1.0, eta=1.0, radius=2.0)[1]
    0.5
    """
    from scipy.optimize import brentq

    eta, radius = positive("eta", eta), positive("radius", radius)
    z0, q = float(x.dot(theta)), float(x.dot(solved))
    # a lies between 0 and η·f′(xᵀθ), here with room for rounding
    low, high = sorted((0.0, (1.0 + 1e-9) * eta * slope(z0)))
    point = theta
    if low != high and q > 0.0:
        a = brentq(lambda a: a - eta * slope(z0 - a * q), low, high, xtol=1e-14)
        point = theta - a * solved
    if float(point.dot(point)) <= radius**2:
        return point, float(x.dot(point))
    eigenvalues, U = np.linalg.eigh(matrix)
    pull = matrix.dot(theta)

    def projected(a: float) -> Array:
        return ball_constrained_minimizer(eigenvalues, U, pull - a * x, radius)

    def excess(a: float) -> float:
        return a - eta * slope(float(x.dot(projected(a))))

    # θ may lie outside the ball, so that the slope at its edge is needed; rounding may leave no sign change on the
    # sphere: then the projection of θ is where the step ends
    ends = [eta * slope(float(x.dot(projected(a)))) for a in (low, high)]
    low, high = min(low, *ends), max(high, *ends)
    a = brentq(excess, low, high, xtol=1e-14) if excess(low) * excess(high) < 0.0 else 0.0
    point = projected(a)
    return point, float(x.dot(point))

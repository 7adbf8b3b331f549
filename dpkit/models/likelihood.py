"""Estimators that go over all rows again: growing tables, and maximum likelihood in a ball.

Solvers start where the caller says (the last estimate). None is private by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from accounting.arrays import Array
from accounting.checks import integer, nonnegative, positive
from dpkit.models.ellipsoid import ball_constrained_minimizer
from dpkit.models.links import Link
from dpkit.states.entries import short

__all__ = ["Rows", "Smooth", "check_table", "glm_loss", "minimize_in_ball"]

# θ -> (value, gradient, Hessian) of a smooth convex function
Smooth = Callable[[Array], tuple[float, Array, Array]]


class Rows:
    """A table that grows by one row at a time, at amortised constant cost.

    Parameters
    ----------
    width : int
        Numbers in a row.
    bound, order : float
        What a saved row may be: its numbers but the last have a norm of this order and of at most this size.

    Raises
    ------
    ValueError, TypeError
        For a ``width`` below 1.

    Examples
    --------
    >>> from dpkit.models import Rows
    >>> rows = Rows(2)
    >>> rows.append([1.0, 2.0])
    >>> rows.array.tolist()
    [[1.0, 2.0]]
    """

    def __init__(self, width: int, *, bound: float = math.inf, order: float = 2.0) -> None:
        width = integer("width", width, at_least=1)
        self.count = 0
        self._bound, self._order = bound, order
        self._rows = np.empty((64, width))

    @property
    def array(self) -> Array:
        """What was appended, of shape (count, width); a view."""
        return self._rows[: self.count]

    def append(self, row: Array | list[float]) -> None:
        """Add one row."""
        if len(row) != self._rows.shape[1]:  # numpy would fill the row with a single number
            raise ValueError(f"row must hold {self._rows.shape[1]} numbers, got {len(row)}")
        if self.count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[self.count] = row
        self.count += 1

    def kept(self) -> Array:
        """For a state file."""
        return self.array.copy()

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        width = self._rows.shape[1]
        if not isinstance(saved, np.ndarray) or saved.dtype != np.float64 or saved.shape[1:] != (width,):
            raise ValueError(f"rows must be an array of shape (n, {width}), got {short(saved)}")
        if not np.isfinite(saved).all() or (np.linalg.norm(saved[:, :-1], self._order, axis=1) > self._bound).any():
            raise ValueError(f"rows must be finite, of vectors of length at most {self._bound:g}, got others")
        capacity = 64
        while capacity < len(saved):
            capacity *= 2
        self.count, self._rows = len(saved), np.empty((capacity, width))
        self._rows[: self.count] = saved


def glm_loss(link: Link, X: Array, rewards: Array, *, ridge: float, dispersion: float = 1.0) -> Smooth:
    """The negative log-likelihood Σ (m(xᵀθ) − r·xᵀθ)/g(τ) + ½λ‖θ‖², up to a constant.

    Parameters
    ----------
    link : Link
        m and its derivatives μ, μ̇.
    X : ndarray of shape (n, d)
    rewards : ndarray of shape (n,)
    ridge : float
        λ >= 0.
    dispersion : float
        g(τ) > 0.

    Raises
    ------
    ValueError
        If shapes do not fit, ``ridge`` is negative or ``dispersion`` is not positive.

    Examples
    --------
    >>> from dpkit.models import get_link, glm_loss
    >>> value, gradient, hessian = glm_loss(get_link("linear"), np.eye(2), np.ones(2), ridge=0.0)(np.zeros(2))
    >>> value, gradient.tolist(), hessian.tolist()
    (0.0, [-1.0, -1.0], [[1.0, 0.0], [0.0, 1.0]])
    """
    check_table(X, rewards, ridge, dispersion)

    def evaluate(theta: Array) -> tuple[float, Array, Array]:
        z = X @ theta
        value = float(np.sum(link.integral(z)) - rewards @ z) / dispersion + 0.5 * ridge * float(theta @ theta)
        gradient = X.T @ (link.mean(z) - rewards) / dispersion + ridge * theta
        hessian = (X.T * (link.derivative(z) / dispersion)) @ X
        hessian.flat[:: len(theta) + 1] += ridge
        return value, gradient, hessian

    return evaluate


def minimize_in_ball(
    evaluate: Smooth, start: Array, *, radius: float = math.inf, tolerance: float = 1e-9
) -> tuple[Array, Array]:
    """argmin of a smooth convex function over ‖θ‖₂ ≤ radius, and the Hessian near it.

    Newton's method on the ball: each step minimises the quadratic model over the ball, and backtracks (sequential
    quadratic programming, Nocedal & Wright 2006, chapter 18). The last step is the one of which the model promises
    less than ``tolerance``; where the model is that good, the error left is of the order of the tolerance squared.

    Parameters
    ----------
    evaluate : callable
        θ -> (value, gradient, Hessian).
    start : ndarray of shape (d,)
        In the ball.
    radius : float
        Infinite for no constraint.
    tolerance : float
        Relative to 1 + |value|.

    Returns
    -------
    ndarray of shape (d,), ndarray of shape (d, d)

    Raises
    ------
    ValueError
        If ``radius`` is not positive.

    Examples
    --------
    >>> from dpkit.models import minimize_in_ball
    >>> square = lambda v: (0.5 * float(v @ v) - v[0], v - np.array([1.0, 0.0]), np.eye(2))
    >>> minimize_in_ball(square, np.zeros(2), radius=0.5)[0].tolist()
    [0.5, 0.0]
    """
    radius = positive("radius", radius, finite=False)
    theta = start
    value, gradient, hessian = evaluate(theta)
    for _ in range(100):
        target = theta - np.linalg.solve(hessian, gradient)
        if float(target @ target) > radius**2:
            target = ball_constrained_minimizer(*np.linalg.eigh(hessian), hessian @ theta - gradient, radius)
        step = target - theta
        promise = -float(gradient @ step)
        if promise <= tolerance * (1.0 + abs(value)):
            return target, hessian
        size = 1.0
        while True:
            trial = theta + size * step
            with np.errstate(over="ignore", invalid="ignore"):  # a loss such as e^z may overflow far away
                found = evaluate(trial)
            if found[0] <= value - 1e-4 * size * promise:
                break
            size *= 0.5
            if size < 2.0**-60:  # no descent left but rounding, or a loss that is no number
                return theta, hessian
        theta = trial
        value, gradient, hessian = found
    return theta, hessian


def check_table(X: Array, rewards: Array, ridge: float, dispersion: float) -> None:
    """Refuse what is no problem of :func:`glm_loss`."""
    if X.ndim != 2 or rewards.shape != X.shape[:1]:
        raise ValueError(f"X and rewards must have shapes (n, d) and (n,), got {X.shape} and {rewards.shape}")
    nonnegative("ridge", ridge)
    positive("dispersion", dispersion)

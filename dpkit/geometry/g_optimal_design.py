"""G-optimal design: how often to play each arm so that every arm is known equally well.

For a probability vector π over K arms let V(π) = Σ πᵢ xᵢxᵢᵀ. The π that minimises max over x of ‖x‖²_{V(π)⁻¹} is the
one that maximises log det V(π), and the minimum is d, the dimension of the arms' span (Kiefer & Wolfowitz 1960).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.arrays import Array
from accounting.checks import positive

__all__ = ["g_optimal_design"]


def g_optimal_design(arms: ArrayLike, *, tolerance: float = 0.1) -> Array:
    """A design whose largest ‖x‖²_{V(π)⁻¹} is at most (1 + tolerance)·d.

    Frank–Wolfe on log det V(π) with away steps and exact line search (Todd & Yıldırım 2007): each step moves weight to
    the arm of the largest norm, or away from the played arm of the smallest. Where the arms do not span ℝᵈ, d is the
    dimension of their span and the inverse is taken there. One step costs O(Kd).

    Parameters
    ----------
    arms : array_like of shape (K, d)
        Finite rows.
    tolerance : float
        At least 1e-8, which rounding still allows.

    Returns
    -------
    ndarray of shape (K,)
        π: nonnegative, of sum 1, and zero for most arms where K is large.

    Raises
    ------
    ValueError
        If the arms are not such an array, or the tolerance is too small.

    Examples
    --------
    >>> g_optimal_design([[1.0, 0.0], [0.0, 0.5], [0.1, 0.1]], tolerance=1e-6).round(3).tolist()
    [0.5, 0.5, 0.0]
    """
    if positive("tolerance", tolerance) < 1e-8:
        raise ValueError(f"tolerance must be at least 1e-8, got tolerance={tolerance!r}")
    X = np.asarray(arms, dtype=np.float64)
    if X.ndim != 2 or not X.size:
        raise ValueError(f"arms must have shape (K, d) with K, d >= 1, got shape {X.shape}")
    if not np.isfinite(X).all():
        raise ValueError(f"arms must be finite, got {X[~np.isfinite(X)][0]}")

    # coordinates in the span of the arms, in which the design below is the same: it is invariant under linear maps
    U, singular, _ = np.linalg.svd(X, full_matrices=False)
    rank = int((singular > singular[0] * max(X.shape) * np.finfo(float).eps).sum())
    weights = np.zeros(len(X))
    if rank == 0:  # every arm is 0, and every design is optimal
        weights[0] = 1.0
        return weights
    if rank == len(X):  # independent arms are played alike
        weights[:] = 1.0 / rank
        return np.asarray(weights / weights.sum())
    Z = np.ascontiguousarray(U[:, :rank])

    weights[_spanning_arms(Z)] = 1.0 / rank
    inverse = np.linalg.inv(_covariance(Z, weights))
    squares = np.einsum("ij,ij->i", Z @ inverse, Z)  # ‖x‖²_{V(π)⁻¹}
    steps = 0
    while True:
        towards = int(squares.argmax())
        if squares[towards] <= (1.0 + tolerance) * rank:
            break
        played = np.flatnonzero(weights)
        away = int(played[squares[played].argmin()])
        # the better of the two directions, and the step γ that maximises log det V((1 − γ)π + γeᵢ)
        i = towards if squares[towards] - rank >= rank - squares[away] else away
        gamma = (squares[i] - rank) / (rank * (squares[i] - 1.0)) if squares[i] > 1.0 else -np.inf
        everything = -weights[i] / (1.0 - weights[i])
        dropped = gamma <= everything
        gamma = max(gamma, everything)
        weights *= 1.0 - gamma
        weights[i] = 0.0 if dropped else weights[i] + gamma
        steps += 1
        if steps % 64 == 0:  # afresh, so that rounding does not build up
            weights /= weights.sum()
            inverse = np.linalg.inv(_covariance(Z, weights))
            squares = np.einsum("ij,ij->i", Z @ inverse, Z)
            continue
        u = inverse @ Z[i]
        c = gamma / (1.0 - gamma + gamma * squares[i])
        squares -= c * np.square(Z @ u)
        squares /= 1.0 - gamma
        inverse = (inverse - (c * u)[:, None] * u) / (1.0 - gamma)
    return np.asarray(weights / weights.sum())


def _covariance(Z: Array, weights: Array) -> Array:
    played = np.flatnonzero(weights)
    return np.asarray((Z[played] * weights[played, None]).T @ Z[played])


def _spanning_arms(Z: Array) -> NDArray[np.int64]:
    """As many rows as Z has columns, far from dependent: each the longest outside the span of those before."""
    residual, chosen = Z.copy(), np.empty(Z.shape[1], dtype=np.int64)
    for k in range(Z.shape[1]):
        i = int(np.einsum("ij,ij->i", residual, residual).argmax())
        chosen[k] = i
        direction = residual[i] / np.linalg.norm(residual[i])
        residual -= (residual @ direction)[:, None] * direction
    return chosen

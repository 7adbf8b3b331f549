"""How large xᵀθ is over a level set of the negative log-likelihood: confidence bounds without an ellipsoid.

Not private by itself. Cost: some 15 Newton steps of O(nd²) for each direction that may have the largest maximum.
"""

from __future__ import annotations

import math

import numpy as np

from accounting.arrays import Array
from dpkit.models.likelihood import check_table
from dpkit.models.links import Link

__all__ = ["level_set_maxima"]


def level_set_maxima(
    link: Link,
    X: Array,
    rewards: Array,
    arms: Array,
    *,
    center: Array,
    depth: float,
    radius: float,
    ridge: float,
    dispersion: float = 1.0,
    tolerance: float = 1e-6,
) -> Array:
    """max of xᵀθ over {‖θ‖₂ ≤ radius : L(θ) ≤ L(center) + depth} for every direction x, L the loss of :func:`glm_loss`.

    A primal-dual interior-point method (Boyd & Vandenberghe 2004, algorithm 11.2) on all directions at once.
    Self-concordance and weak duality bound each maximum from above, so those that cannot have the largest one are given
    up early.

    Parameters
    ----------
    arms : ndarray of shape (K, d)
        The directions, such as the arms of a bandit.
    center : ndarray of shape (d,)
        argmin of L over the ball.
    depth : float
        Positive.
    tolerance : float
        Relative to ``radius``.

    Returns
    -------
    ndarray of shape (K,)
        Upper bounds. The largest maximum is exact up to the tolerance; others may not be.

    Raises
    ------
    ValueError
        As for :func:`glm_loss`.

    Examples
    --------
    >>> from dpkit.models import get_link, level_set_maxima
    >>> X, y = np.eye(2), np.zeros(2)  # L = ½‖θ‖², so that the level set of depth ½ is the unit ball
    >>> found = level_set_maxima(
    ...     get_link("linear"), X, y, np.eye(2), center=np.zeros(2), depth=0.5, radius=3.0, ridge=0.0
    ... )
    >>> found.round(5)
    array([1., 1.])
    """
    check_table(X, rewards, ridge, dispersion)
    n, d = X.shape
    products = np.einsum("ni,nj->nij", X, X).reshape(n, d * d)

    def evaluate(thetas: Array) -> tuple[Array, Array, Array]:
        """L, ∇L and ∇²L at every row of ``thetas``."""
        z = X @ thetas.T
        values = (np.sum(link.integral(z), axis=0) - rewards @ z) / dispersion + 0.5 * ridge * _dots(thetas, thetas)
        gradients = (link.mean(z) - rewards[:, None]).T @ X / dispersion + ridge * thetas
        hessians = (link.derivative(z).T @ products).reshape(-1, d, d) / dispersion
        hessians[:, range(d), range(d)] += ridge
        return values, gradients, hessians

    # L(θ) ≥ L(center) + ‖θ − center‖²_H / (2 + 2RS) on the ball, so the set lies in an ellipsoid
    loss, _, hessian = evaluate(center[None])
    level = float(loss[0]) + depth
    if depth <= 1e-10 * (1.0 + abs(level)):  # up to rounding the set is a point
        return np.asarray(arms @ center)
    curved = np.linalg.pinv(hessian[0], hermitian=True)
    flat = np.abs(arms - arms @ curved @ hessian[0]).max(axis=1) > 1e-9  # arms along which L has no curvature
    widths = math.sqrt((2.0 + 2.0 * link.self_concordance(radius) * radius) * depth) * np.sqrt(
        np.maximum(_dots(arms @ curved, arms), 0.0)
    )
    lengths = np.sqrt(_dots(arms, arms))
    caps = np.where(flat, math.inf, arms @ center + widths)
    bounds = np.minimum(radius * lengths, caps)
    # where the ball's own maximum, at Sx/‖x‖, is in the level set, it is the answer
    tips = np.flatnonzero((caps >= radius * lengths) & (lengths > 0.0))
    inside = tips[evaluate(arms[tips] * (radius / lengths[tips])[:, None])[0] <= level]
    best = float(bounds[inside].max(initial=-math.inf))
    open_ = bounds >= best
    open_[inside] = False
    which = np.flatnonzero(open_ & (lengths > 0.0))
    if not len(which):
        return bounds

    # start strictly inside, with multipliers ν (of the level) and ϱ (of the ball) on the central path but for θ
    back = 0.1
    while True:
        start = (1.0 - back) * center
        loss, gradient, hessian = evaluate(start[None])
        if level - loss[0] >= 0.5 * depth:
            break
        back *= 0.5
    x, theta = arms[which], np.tile(start, (len(which), 1))
    gradient, hessian = np.tile(gradient, (len(which), 1)), np.tile(hessian, (len(which), 1, 1))
    slack = np.full(len(which), level - loss[0])  # of the two constraints L(θ) ≤ level and ½‖θ‖² ≤ ½S²
    room = _room(theta, radius)
    nu, rho = (radius * np.sqrt(_dots(x, x)) / each for each in (slack, room))
    centering = np.full(len(which), 0.1)
    for _ in range(80):
        residual = nu[:, None] * gradient + rho[:, None] * theta - x
        gap = nu * slack + rho * room
        reached = _dots(x, theta)
        bound = reached + gap + 2.0 * radius * np.sqrt(_dots(residual, residual))
        bounds[which] = np.minimum(bounds[which], bound)
        best = max(best, float(reached.max(initial=-math.inf)))
        open_ = (bounds[which] >= best) & (bound - reached > tolerance * radius)
        if not open_.any():
            break
        which, x, theta, gradient, hessian = which[open_], x[open_], theta[open_], gradient[open_], hessian[open_]
        slack, room, nu, rho = slack[open_], room[open_], nu[open_], rho[open_]
        target = (centering * gap)[open_]  # 1/t

        # Newton's step for ν∇L + ϱθ = x, ν·slack = 1/t, ϱ·room = 1/t
        a, b = nu / slack, rho / room
        matrix = nu[:, None, None] * hessian + a[:, None, None] * gradient[:, :, None] * gradient[:, None, :]
        matrix += b[:, None, None] * theta[:, :, None] * theta[:, None, :]
        matrix[:, range(d), range(d)] += rho[:, None]
        pull = x - (target / slack)[:, None] * gradient - (target / room)[:, None] * theta
        step = np.linalg.solve(matrix, pull[:, :, None])[:, :, 0]
        outward = _dots(theta, step)
        d_nu = target / slack - nu + a * _dots(gradient, step)
        d_rho = target / room - rho + b * outward

        # as long as it keeps the multipliers positive, θ in the ball …
        size = np.minimum(1.0, 0.99 / np.maximum(np.maximum(-d_nu / nu, -d_rho / rho), 0.1))
        to_sphere = 2.0 * room / (outward + np.sqrt(outward**2 + 2.0 * room * _dots(step, step)) + 1e-300)
        size = np.minimum(size, 0.99 * to_sphere)
        # … and θ in the level set, which only evaluation tells, and neither constraint far ahead of the other: from
        # there steps would be tiny
        trial = theta + size[:, None] * step
        loss, gradient, hessian = evaluate(trial)
        for _ in range(40):
            one, other = (nu + size * d_nu) * (level - loss), (rho + size * d_rho) * _room(trial, radius)
            ahead = np.minimum(one, other) < 0.1 * np.maximum(one, other)
            outside = np.flatnonzero(~(level - loss > 0.01 * slack) | ahead)
            if not len(outside):
                break
            size[outside] *= 0.5
            trial[outside] = theta[outside] + size[outside, None] * step[outside]
            loss[outside], gradient[outside], hessian[outside] = evaluate(trial[outside])
        theta, slack, room = trial, level - loss, _room(trial, radius)
        nu, rho = nu + size * d_nu, rho + size * d_rho
        # after a short step, come back to the central path before going on
        centering = np.where(size > 0.8, 0.05, np.where(size > 0.3, 0.15, 0.4))
    return bounds


def _room(thetas: Array, radius: float) -> Array:
    """½S² − ½‖θ‖² for points of the ball, but no less than its rounding error: more room only raises a bound."""
    return np.maximum(0.5 * (radius**2 - _dots(thetas, thetas)), 1e-15 * radius**2)


def _dots(A: Array, B: Array) -> Array:
    """Inner products of the rows of A with those of B."""
    return np.asarray(np.einsum("ki,ki->k", A, B))

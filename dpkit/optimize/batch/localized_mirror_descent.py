"""Localized noisy mirror descent: phases on fresh rows, each closer to where the last one ended.

For ℓ_p geometry, 1 < p ≤ 2, in batches. Source: Asi, Feldman, Koren & Talwar (2021), "Private stochastic convex
optimization: optimal rates in ℓ₁ geometry", arXiv:2103.01516, Algorithm 6, here with as many steps as the caller
allows instead of n² and the composite form of a step. With Φ(θ) = ‖θ‖_p²/(2(p − 1)) and its divergence D_Φ:

    phase k reads its own n_k = n/2^k rows; λ_k = 1/(η_k n_k), η_k = η/16^(k−1); for t = 1 … T, γ_t = 2/(λ_k(t + 1)),
    θ_{t+1} = argmin_{θ∈C} γ_t⟨ḡ_t, θ⟩ + γ_tλ_k·D_Φ(θ, θ^{(k−1)}) + D_Φ(θ, θ_t),
    ḡ_t = (1/n_k)(Σ ∇ℓ(θ_t; x_i) + noise);    θ^{(k)} = the mean of θ_t with weights t.

Privacy. Unit: one row, or with ``groups`` one person and the mean gradient of that person's rows; n and the order of
the rows are public. Gradients are clipped to L = ``objective.clip`` in ℓ₂, the T sums of a phase get Gaussian noise
of z·2L (z·L under zero_out): a phase costs T × Gaussian(z). The phases are disjoint by position, so all of them
together cost the same. Sums are exact (:class:`dpkit.training.whole_rows.UnitRows`), and so is the noise.

Cost: at most n·T gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Budget, Gaussian, calibrate
from accounting.checks import integer, positive
from dpkit import randomness
from dpkit.geometry import LpBall
from dpkit.mechanisms import GaussianMechanism
from dpkit.mechanisms._checked import charged
from dpkit.models.losses import GLM
from dpkit.training.groups import checked_groups, gradient_sums
from dpkit.training.result import NOTHING, outcome
from dpkit.training.rows import checked_budget, checked_data, checked_start

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["localized_mirror_descent"]

Vector = NDArray[np.float64]


def localized_mirror_descent(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: LpBall,
    budget: Budget,
    steps: int = 20,
    step_scale: float = 1.0,
    groups: ArrayLike | None = None,
    start: ArrayLike | None = None,
    callback: Callable[[Vector], object] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Minimise the mean loss over an ℓ_p ball by noisy mirror descent in phases.

    Parameters
    ----------
    objective : GLM
        With a ``clip``: L, the bound on every row's gradient in ℓ₂.
    X : (n, d) array_like
    y : (n,) array_like
    constraint : LpBall
        With 1 < p ≤ 2; public.
    budget : Budget
        Counted by "replace" or "zero_out".
    steps : int
        T, of every phase.
    step_scale : float
        Multiplies η = (D/L)·min(1/√n, 1/(2z√d)), D the diameter in ℓ_p and z of the whole budget.
    groups : (n,) array_like of int or str, optional
        Whose row each one is, public. Then the unit is a person, with any number of rows: what is clipped and summed is
        the mean gradient of a person's rows, n counts people (in the order of their
        labels), and ``budget.unit`` must be "person".
    start : (d,) array_like, optional
        θ^(0); by default the origin.
    callback : callable, optional
        Called with every iterate; each of them is covered by the cost.
    rng : numpy.random.Generator, optional
        None draws from the secure source, on a lattice; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with the whole run before any noise is drawn.

    Returns
    -------
    OptimizeResult
        See :func:`dpkit.training.result.outcome`. Without rows ``x`` is the start, at no cost.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range, another set, rows that are not finite, labels that the objective is not for, or a
        start outside the set. Nothing is drawn or charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import glm, localized_mirror_descent
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> y = (X @ [1.0, -1.0, 0.0] > 0).astype(float)
    >>> fit = localized_mirror_descent(
    ...     glm("logistic", clip=1.0), X, y, constraint=LpBall(1.5, 3, 2.0), budget=Budget(1.0, 1e-6), step_scale=8.0
    ... )
    >>> fit.nit, bool(fit.x[0] > 0.0 > fit.x[1])
    (240, True)
    """
    if not isinstance(constraint, LpBall) or not 1 < constraint.p <= 2:
        raise ValueError(f"constraint must be an LpBall with 1 < p <= 2, got {constraint!r}")
    d, p = constraint.dimension, constraint.p
    X, y = checked_data(X, y, d, objective)
    theta = checked_start(constraint, start)
    checked_budget(budget, allowed=("replace", "zero_out"), people=True)
    T = integer("steps", steps, at_least=1)
    scale = positive("step_scale", step_scale)
    sums = gradient_sums(objective, X, y, checked_groups(budget, groups, len(X)))
    n = sums.units
    source = randomness.resolve(rng)
    if n == 0:
        return outcome(theta, NOTHING, nit=0, nfev=0, message="no rows: the start is returned", clipped=0)
    z = calibrate(lambda z: T * Gaussian(z, adjacency=budget.adjacency), budget)
    cost = T * Gaussian(z, adjacency=budget.adjacency)
    noisy = GaussianMechanism(noise_multiplier=z, sensitivity=sums.sensitivity(budget.adjacency), rng=source)
    whole = z / math.sqrt(T)
    eta = scale * constraint.diameter(p) / sums.clip * min(1.0 / math.sqrt(n), 0.5 / (whole * math.sqrt(d)))

    with charged(ledger, cost, "localized mirror descent", source):
        phases = max(1, n.bit_length() - 1)
        begin = 0
        for k in range(phases):
            size = max(1, n >> (k + 1))
            rows = slice(begin, begin + size)
            begin += size
            strength = 16.0**k / (eta * size)  # λ_k
            anchor = _mirror(theta, p)
            mean = np.zeros(d)
            for t in range(1, T + 1):
                gradient = noisy.release(sums.at(theta, rows)) / size
                gamma = 2.0 / (strength * (t + 1))
                dual = (_mirror(theta, p) - gamma * gradient + gamma * strength * anchor) / (1.0 + gamma * strength)
                theta = _into(_primal(dual, p), constraint)
                mean += (2.0 * t / (T * (T + 1))) * theta
                if callback is not None:
                    callback(theta.copy())
            theta = mean
        return outcome(
            theta, cost, nit=phases * T, nfev=sums.nfev, message=f"{phases} phases of {T} steps", clipped=sums.clipped
        )


def _mirror(theta: Vector, p: float) -> Vector:
    """∇Φ(θ) = ‖θ‖_p^(2−p)·sign(θ)|θ|^(p−1)/(p − 1)."""
    length = float(np.linalg.norm(theta, p))
    if length == 0:
        return np.zeros_like(theta)
    return np.asarray(length / (p - 1.0) * np.sign(theta) * (np.abs(theta) / length) ** (p - 1.0))


def _primal(dual: Vector, p: float) -> Vector:
    """The inverse of :func:`_mirror`: the same map with q for p, but for the factors p − 1."""
    q = p / (p - 1.0)
    length = float(np.linalg.norm(dual, q))
    if length == 0:
        return np.zeros_like(dual)
    return np.asarray((p - 1.0) * length * np.sign(dual) * (np.abs(dual) / length) ** (q - 1.0))


def _into(theta: Vector, ball: LpBall) -> Vector:
    """The Bregman projection on a centred ball of the same norm: by scaling, as Φ depends on ‖θ‖_p alone."""
    length = float(np.linalg.norm(theta, ball.p))
    return theta if length <= ball.radius else theta * (ball.radius / length)

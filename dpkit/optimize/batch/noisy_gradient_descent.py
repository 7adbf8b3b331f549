"""Noisy full-batch projected gradient descent: the batch optimizer to start with.

For whoever holds all n rows and has time for several passes. Source: Bassily, Smith & Thakurta (2014),
arXiv:1405.7085, with the zCDP schedule of Sarmasarkar (2026), arXiv:2602.00417, Lemma U.4:

    θ_{t+1} = Π(θ_t − η·ḡ_t),    ḡ_t = (1/n)(Σ_i ∇ℓ(θ_t; x_i) + noise),    t = 1 … T.

With momentum β the step is along m_t = βm_{t−1} + ḡ_t, which is computed from what was released.

Privacy. Unit: one row, or with ``groups`` one person and the mean gradient of that person's rows. Every gradient is
clipped to L = ``objective.clip`` in ℓ₂, so one row moves the sum by at most 2L (replace) or L (add_remove, zero_out).
Each of the T sums has Gaussian noise of z times that, and costs Gaussian(z): the run is exactly √T/z-GDP, and z is
the smallest that meets the budget. n is public; under add_remove it is the caller's ``public_rows``. Sums are exact
(:class:`dpkit.training.whole_rows.UnitRows`), and so is the noise.

Cost per step: one pass over the rows, and one projection.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Budget, Gaussian, calibrate
from accounting.checks import fraction, integer, positive
from dpkit import randomness
from dpkit.geometry import ConvexSet
from dpkit.mechanisms import GaussianMechanism
from dpkit.mechanisms._checked import charged
from dpkit.models.losses import GLM
from dpkit.training.groups import checked_groups, gradient_sums
from dpkit.training.result import NOTHING, outcome
from dpkit.training.rows import (
    checked_budget,
    checked_data,
    checked_start,
    public_count,
)

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["noisy_gradient_descent"]


def noisy_gradient_descent(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: ConvexSet,
    budget: Budget,
    steps: int | None = None,
    max_iterations: int = 200,
    step_scale: float = 1.0,
    momentum: float = 0.0,
    iterate: Literal["average", "tail", "last"] = "average",
    public_rows: int | None = None,
    groups: ArrayLike | None = None,
    start: ArrayLike | None = None,
    callback: Callable[[NDArray[np.float64]], object] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Minimise the mean loss over a convex set by T noisy full-batch gradient steps.

    Parameters
    ----------
    objective : GLM
        With a ``clip``: L, the bound on every row's gradient.
    X : (n, d) array_like
    y : (n,) array_like
    constraint : ConvexSet
        Public.
    budget : Budget
        Of any adjacency.
    steps : int, optional
        T; by default (n²ρ + 5)/d, between 1 and ``max_iterations``, with ρ = μ²/2 of the whole run: more steps would
        not lower the bound on the error.
    max_iterations : int
        The largest T that is chosen by default.
    step_scale : float
        Multiplies η = D/√(T(L² + dσ²)), which minimises the bound on the error: D the ℓ₂ diameter of the set, σ the
        noise in each coordinate of ḡ.
    momentum : float
        β in [0, 1).
    iterate : {"average", "tail", "last"}
        What is returned: the mean of all iterates, of the last half, or the last.
    public_rows : int, optional
        The n that sums are divided by; by default the number of rows. Required under add_remove.
    groups : (n,) array_like of int or str, optional
        Whose row each one is, public. Then the unit is a person, with any number of rows: what is clipped and summed is
        the mean gradient of a person's rows, n counts people, and ``budget.unit`` must be "person".
    start : (d,) array_like, optional
        θ_1; by default the set's centre.
    callback : callable, optional
        Called with every iterate θ_{t+1}; each of them is covered by the cost.
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
        For a parameter out of range, rows that are not finite, labels that the objective is not for, or a start outside
        the set. Nothing is drawn or charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import glm, noisy_gradient_descent
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> y = (X @ [1.0, -1.0, 0.0] > 0).astype(float)
    >>> fit = noisy_gradient_descent(
    ...     glm("logistic", clip=1.0), X, y, constraint=LpBall(2, 3, 2.0), budget=Budget(1.0, 1e-6)
    ... )
    >>> fit.nit, bool(fit.x[0] > 0.5 > -0.5 > fit.x[1])
    (200, True)
    """
    d = constraint.dimension
    X, y = checked_data(X, y, d, objective)
    theta = checked_start(constraint, start)
    checked_budget(budget, allowed=("replace", "add_remove", "zero_out"), people=True)
    sums = gradient_sums(objective, X, y, checked_groups(budget, groups, len(X)))
    n = public_count(sums.units, public_rows, budget.adjacency)
    scale = positive("step_scale", step_scale)
    beta = fraction("momentum", momentum, include_zero=True)
    if iterate not in ("average", "tail", "last"):
        raise ValueError(f"iterate must be 'average', 'tail' or 'last', got iterate={iterate!r}")
    T_max = integer("max_iterations", max_iterations, at_least=1)
    T = None if steps is None else integer("steps", steps, at_least=1)
    source = randomness.resolve(rng)
    if n == 0:
        return outcome(theta, NOTHING, nit=0, nfev=0, message="no rows: the start is returned", clipped=0)
    if T is None:
        rho = 0.5 / calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget) ** 2
        # 5 = ln(1/ζ) of the bound, at ζ = 0.7 %
        T = max(1, min(T_max, math.ceil((n * n * rho + 5.0) / d)))
    z = calibrate(lambda z: T * Gaussian(z, adjacency=budget.adjacency), budget)
    cost = T * Gaussian(z, adjacency=budget.adjacency)
    noisy = GaussianMechanism(
        noise_multiplier=z,
        sensitivity=sums.sensitivity(budget.adjacency),
        adjacency=budget.adjacency,
        rng=source,
    )
    sigma = z * noisy.sensitivity / n
    eta = scale * constraint.diameter() / math.sqrt(T * (sums.clip**2 + d * sigma**2))
    kept: deque[NDArray[np.float64]] = deque(maxlen={"average": T, "tail": (T + 1) // 2, "last": 1}[iterate])

    with charged(ledger, cost, "noisy gradient descent", source):
        direction = np.zeros(d)
        for _ in range(T):
            direction = beta * direction + noisy.release(sums.at(theta)) / n
            theta = constraint.project(theta - eta * direction)
            kept.append(theta)
            if callback is not None:
                callback(theta.copy())
        return outcome(
            np.mean(kept, axis=0),
            cost,
            nit=T,
            nfev=T * n,
            message=f"{T} full-batch steps, the {iterate} iterate",
            clipped=sums.clipped,
        )

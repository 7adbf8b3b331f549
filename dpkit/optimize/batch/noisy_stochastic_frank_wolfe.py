"""Noisy stochastic Frank–Wolfe: one pass, half of it for the first gradient, then √n small steps.

For batches on sets with a cheap linear minimizer; kept for comparison with online Frank–Wolfe. Source: Bassily, Guzmán
& Nandi (2021), "Non-Euclidean differentially private stochastic convex optimization", arXiv:2103.01278, Algorithm 3:

    d_0 = noisy mean of ∇ℓ(θ_0; ·) over the first n/2 rows;  then for k = 1 … K over batches of b rows, ρ = 1/√n,
    d_k = (1 − ρ)d_{k−1} + noisy mean of [∇ℓ(θ_k; ·) − (1 − ρ)∇ℓ(θ_{k−1}; ·)],
    v_k = argmin_{v∈C} ⟨d_k, v⟩,    θ_{k+1} = θ_k + η(v_k − θ_k),  η = c/√n.

Privacy. Unit: one row, or with ``groups`` one person and the mean gradient of that person's rows; n and the order of
the rows are public. Each row is in one batch, whose sum gets Gaussian noise once, of z times the sensitivity: ∇ℓ is
clipped to L = ``objective.clip`` in ℓ₂, the difference in brackets to ``drift``·L. The batches are disjoint by
position, so all of them together cost one Gaussian(z). (The noises add up in d_k.) Sums are exact
(:class:`dpkit.training.whole_rows.UnitRows`), and so is the noise.

Cost: 3n/2 gradients and K linear minimizations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Budget, Gaussian, calibrate
from accounting.checks import positive
from dpkit import randomness
from dpkit.geometry import ConvexSet
from dpkit.mechanisms import GaussianMechanism
from dpkit.mechanisms._checked import charged
from dpkit.models.losses import GLM
from dpkit.training.groups import checked_groups, gradient_sums
from dpkit.training.result import NOTHING, outcome
from dpkit.training.rows import checked_budget, checked_data, checked_start

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["noisy_stochastic_frank_wolfe"]


def noisy_stochastic_frank_wolfe(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: ConvexSet,
    budget: Budget,
    step_scale: float = 1.0,
    drift: float | None = None,
    groups: ArrayLike | None = None,
    start: ArrayLike | None = None,
    callback: Callable[[NDArray[np.float64]], object] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Minimise the mean loss over a convex set in √n Frank–Wolfe steps of one pass.

    Parameters
    ----------
    objective : GLM
        With a ``clip``: L, the bound on every row's gradient in ℓ₂.
    X : (n, d) array_like
    y : (n,) array_like
    constraint : ConvexSet
        Public.
    budget : Budget
        Counted by "replace" or "zero_out".
    step_scale : float
        c, positive.
    drift : float, optional
        The clip norm of a difference over L; by default (1 + c)/√n, for which ρL + βDη ≤ (1 + c)L/√n where βD ≤ L.
    groups : (n,) array_like of int or str, optional
        Whose row each one is, public. Then the unit is a person, with any number of rows: what is clipped and summed is
        the mean gradient of a person's rows, n counts people (in the order of their
        labels), and ``budget.unit`` must be "person".
    start : (d,) array_like, optional
        θ_0; by default the set's centre.
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
        For a parameter out of range, rows that are not finite, labels that the objective is not for, or a start outside
        the set. Nothing is drawn or charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import glm, noisy_stochastic_frank_wolfe
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> y = (X @ [1.0, -1.0, 0.0] > 0).astype(float)
    >>> fit = noisy_stochastic_frank_wolfe(
    ...     glm("logistic", clip=1.0), X, y, constraint=LpBall(1.5, 3, 2.0), budget=Budget(1.0, 1e-6)
    ... )
    >>> fit.nit, bool(fit.x[0] > 0.0 > fit.x[1])
    (72, True)
    """
    d = constraint.dimension
    X, y = checked_data(X, y, d, objective)
    theta = checked_start(constraint, start)
    checked_budget(budget, allowed=("replace", "zero_out"), people=True)
    scale = positive("step_scale", step_scale)
    sums = gradient_sums(objective, X, y, checked_groups(budget, groups, len(X)))
    n = sums.units
    source = randomness.resolve(rng)
    if n == 0:
        return outcome(theta, NOTHING, nit=0, nfev=0, message="no rows: the start is returned", clipped=0)
    rate = 1.0 / math.sqrt(n)  # ρ
    small = sums.clip * (min(2.0, (1.0 + scale) * rate) if drift is None else positive("drift", drift))
    eta = min(1.0, scale * rate)
    z = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget)
    cost = Gaussian(z, adjacency=budget.adjacency)

    noisy, noisy_small = (
        GaussianMechanism(noise_multiplier=z, sensitivity=sums.sensitivity(budget.adjacency, bound), rng=source)
        for bound in (sums.clip, small)
    )

    with charged(ledger, cost, "noisy stochastic Frank-Wolfe", source):
        first, batch = (n + 1) // 2, max(1, math.isqrt(n) // 2)
        estimate = noisy.release(sums.at(theta, slice(0, first))) / first
        before, theta = theta, theta + eta * (constraint.linear_minimizer(estimate) - theta)
        starts = range(first, n - batch + 1, batch)
        for begin in starts:
            change = sums.difference(theta, before, 1.0 - rate, slice(begin, begin + batch), small)
            estimate = (1.0 - rate) * estimate + noisy_small.release(change) / batch
            before, theta = theta, theta + eta * (constraint.linear_minimizer(estimate) - theta)
            if callback is not None:
                callback(theta.copy())
        return outcome(
            theta,
            cost,
            nit=1 + len(starts),
            nfev=sums.nfev,
            message=f"{first} rows for the first gradient, then {len(starts)} batches of {batch}",
            clipped=sums.clipped,
        )

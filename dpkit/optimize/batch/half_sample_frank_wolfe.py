"""Half-sample recursive Frank–Wolfe in ℓ₁: one pass, half of it for the first gradient, then noisy choices of vertices.

For a batch of rows, sparse models and many features; linear time. Source: Bassily, Guzmán & Nandi (2021),
"Non-Euclidean differentially private stochastic convex optimization", arXiv:2103.01278, the polyhedral algorithm of
Theorem 3.2. With batches of b rows (the paper's b = 1), K of them in the second half of the rows, and a rate η:

    d_0 = mean of ∇ℓ(θ_0; ·) over the first n_0 = ⌈n/2⌉ rows;  then for t = 1 … K over the rows of a batch each,
    d_t = (1 − η)d_{t−1} + mean of [∇ℓ(θ_t; ·) − (1 − η)∇ℓ(θ_{t−1}; ·)],
    v_t = report-noisy-min over the vertices v of ⟨d_t, v⟩,    θ_{t+1} = θ_t + η(v_t − θ_t),    t = 0 … K.

Unlike those of :class:`~dpkit.optimize.PolyhedralOnlineFrankWolfe`, early choices know half of the rows.

Privacy. Unit: one row; n and the order of the rows are public. Gradients are clipped in ℓ_∞ to L = ``objective.clip``,
the differences in brackets to ``drift``·L. So, given the choices before, another row moves a score by at most
a_0(1 − η)^t with a_0 = 2LR/n_0 if it is one of the first n_0, and by a_j(1 − η)^{t−j} with a_j = 2·drift·LR/b at the
choices t ≥ j if it is of batch j; R is the largest ‖v‖₁ (halves of these under zero_out). All choices have Gumbel noise
of one scale τ, so they cost the zCDP of the row that spends the most (``dpkit.optimize.parts.vertex_choices``),

    ρ = max_j Σ_{t ≥ j} (a_j(1 − η)^{t−j} + κ)²/(2τ²),

which is that of the first batch or of the first half; τ is the smallest that meets the budget. (The paper composes n/2
choices as if a row moved all of them alike, with Laplace noise.) κ covers rounding: a mean of m terms up to s in
float64 is off by at most (m + 4)us, u = 2⁻⁵³, and a step of d_t by 8uL more, of which d_t keeps 1/η times as much at
most; a score adds 4duLR. So two runs on neighbours come within κ = 2uLR(n_0 + 4 + (drift·(b + 4) + 8)/η + 4d) of the
exact difference.

Cost: 3n/2 gradients and K + 1 choices of one random number per vertex.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import ZCDP, Budget
from accounting.checks import integer, positive
from dpkit import randomness
from dpkit.geometry import PolyhedralSet
from dpkit.mechanisms._checked import charged
from dpkit.models.losses import GLM
from dpkit.optimize.parts.vertex_choices import BoundedMeans, check_vertices, choose, largest_rho
from dpkit.training.result import NOTHING, outcome
from dpkit.training.rows import checked_budget, checked_data, checked_start, row_sensitivity

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["half_sample_frank_wolfe"]

Vector = NDArray[np.float64]


def half_sample_frank_wolfe(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: PolyhedralSet,
    budget: Budget,
    batch: int | None = None,
    step_scale: float = 1.0,
    drift: float | None = None,
    start: ArrayLike | None = None,
    callback: Callable[[Vector], object] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Minimise the mean loss over the hull of few vertices by one pass of recursive Frank–Wolfe.

    Parameters
    ----------
    objective : GLM
        With a ``clip``: L, here the bound on every row's gradient in ℓ_∞.
    X : (n, d) array_like
    y : (n,) array_like
    constraint : PolyhedralSet
        Public: ``LpBall(1, d, radius)`` or ``Simplex(d, mass)``.
    budget : Budget
        With δ > 0, counted by "replace" or "zero_out".
    batch : int, optional
        b; by default √n/2, so that there are about √n steps. 1 is the paper's.
    step_scale : float
        Multiplies η = ln(K + 1)/(2K).
    drift : float, optional
        The clip norm of a difference over L; by default 2η (at most 2), which no difference passes where the loss has
        βD ≤ L, D the diameter in ℓ₁.
    start : (d,) array_like, optional
        θ_0; by default the set's centre.
    callback : callable, optional
        Called with every iterate; each of them is covered by the cost.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
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
        If the ledger refuses, or δ is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import glm, half_sample_frank_wolfe
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(4000, 100))
    >>> fit = half_sample_frank_wolfe(
    ...     glm("squared", clip=0.5), X, 0.8 * X[:, 7], constraint=LpBall(1, 100), budget=Budget(2.0, 1e-6)
    ... )
    >>> int(np.argmax(fit.x)), fit.nit
    (7, 65)
    """
    vertices = check_vertices(constraint)
    d = constraint.dimension
    X, y = checked_data(X, y, d, objective)
    theta = checked_start(constraint, start)
    checked_budget(budget, allowed=("replace", "zero_out"))
    means = BoundedMeans(objective, X, y)
    scale = positive("step_scale", step_scale)
    n = len(X)
    b = max(1, math.isqrt(n) // 2) if batch is None else integer("batch", batch, at_least=1)
    given = None if drift is None else positive("drift", drift)
    source = randomness.resolve(rng)
    if n == 0:
        return outcome(theta, NOTHING, nit=0, nfev=0, message="no rows: the start is returned", clipped=0)
    first = (n + 1) // 2
    K = (n - first) // b
    eta = min(1.0, 0.5 * scale * math.log(K + 1) / K) if K else 1.0
    small = min(2.0, 2.0 * eta if given is None else given)
    rho = largest_rho(budget)
    cost = ZCDP(rho, adjacency=budget.adjacency)
    tau = _scale(
        row_sensitivity(means.clip, budget.adjacency) * constraint.radius_in(1.0), first, b, K, eta, small, d, rho
    )

    with charged(ledger, cost, "half-sample Frank-Wolfe", source):
        estimate, before = means.at(theta, slice(0, first)), theta
        for t in range(K + 1):
            if t:
                rows = slice(first + (t - 1) * b, first + t * b)
                change = means.difference(theta, before, 1.0 - eta, rows, small * means.clip)
                estimate = (1.0 - eta) * estimate + change
            vertex = choose(constraint, estimate, tau, source)
            before, theta = theta, theta + eta * (vertex - theta)
            if callback is not None:
                callback(theta.copy())
        return outcome(
            theta,
            cost,
            nit=K + 1,
            nfev=means.nfev,
            message=f"{first} rows for the first gradient, then {K} batches of {b}, among {vertices} vertices",
            clipped=means.clipped,
        )


def _scale(change: float, first: int, b: int, K: int, eta: float, drift: float, d: int, rho: float) -> float:
    """τ, for scores ⟨g, v⟩ of single gradients that a row moves by ``change``."""
    kappa = 2.0**-52 * change * (first + 4.0 + (drift * (b + 4.0) + 8.0) / eta + 4.0 * d)
    weights = (1.0 - eta) ** np.arange(K + 1.0)
    spent = [float(np.sum((change / first * weights + kappa) ** 2))]
    if K:
        spent.append(float(np.sum((change * drift / b * weights[:-1] + kappa) ** 2)))
    # rounded up, so that no row spends more than ρ
    return math.sqrt(max(spent) / (2.0 * rho)) * (1.0 + 1e-9)

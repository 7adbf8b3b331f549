"""Phased ("snowball") SGD: one pass in phases of halving length, with noise only on each phase's outcome.

For a batch of rows, or a stream that may be collected for a while, in ℓ₂; the fastest of the private one-pass methods.
Source: Feldman, Koren & Talwar (2020), "Private stochastic convex optimization: optimal rates in linear time",
arXiv:2005.04763, Algorithm 2:

    phase k = 1 … ⌈log₂ n⌉ reads its own n_k = n/2^k rows: projected SGD of step η_k = η/4^(k−1) from θ_{k−1},
    w_k = the mean iterate,    θ_k = Π(w_k + N(0, σ_k²I)),    σ_k = z·2Lη_k.

Privacy. Unit: one row; n and the order of the rows are public. The slope ψ of every row is cut so that ‖ψx‖₂ ≤ L; for a
loss whose slope grows with η = xᵀθ this leaves a convex loss of no more curvature β. Rows are shortened to ‖x‖₂ ≤ R,
so β ≤ β₁R², with β₁ the objective's ``curvature_bound``. For η ≤ 2/β a gradient step is non-expansive (and so is the
projection), hence replacing one row moves every later iterate of its phase, and their mean, by at most 2Lη_k (Lη_k
under zero_out). The phases are disjoint by position: together they cost one Gaussian(z).

Rounding. That is so in real arithmetic; in float64 a step lands within some ω of where it should, so that two runs
drift apart by up to 2ω more per row, and s_k = 2Lη_k + 2(n_k + 1)ω is the sensitivity that is used. With u = 2⁻⁵³, ρ
the largest ‖θ‖₂ in the set, and Π computed within π (``projection_error``),

    ω = 2u(η_kR(β₁(d + 1)Rρ + e) + 10(ρ + Lη_k)) + π,    e = ``objective.slope_rounding(Rρ)``.

The product xᵀθ is within (d + 1)uRρ, which ψ multiplies by β₁; ψ itself, as computed, is within eu + u|ψ|, and cutting
brings no two values farther apart; each moves the iterate by η_kR times as much. Scaling x and subtracting it take
4u(ρ + Lη_k), and a step of the running mean 7uρ. The factor 2 covers products of these. For small steps this is what
counts: it stops σ_k from falling below what float64 holds. The noise itself is exact, on a lattice.

Cost: n gradients.
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
from dpkit.clipping import clipped_slope, shortened
from dpkit.geometry import ConvexSet
from dpkit.mechanisms import GaussianMechanism
from dpkit.mechanisms._checked import charged
from dpkit.models.losses import GLM
from dpkit.training.result import NOTHING, outcome
from dpkit.training.rows import (
    checked_budget,
    checked_data,
    checked_start,
    clip_of,
    convex_labels,
    row_sensitivity,
)

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["phased_sgd"]


def phased_sgd(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: ConvexSet,
    budget: Budget,
    row_norm: float = 1.0,
    step_scale: float = 1.0,
    start: ArrayLike | None = None,
    callback: Callable[[NDArray[np.float64]], object] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Minimise the mean loss over a convex set by one pass of SGD in phases.

    Parameters
    ----------
    objective : GLM
        With a ``clip`` (L, in ℓ₂) and a finite ``curvature_bound``; its slope must not decrease in η, as that of every
        convex loss; labels for "probit" are cut to [0, 1], where it is convex.
    X : (n, d) array_like
    y : (n,) array_like
    constraint : ConvexSet
        Public.
    budget : Budget
        Counted by "replace" or "zero_out".
    row_norm : float
        R, public: longer rows are shortened to it.
    step_scale : float
        Multiplies η = (D/L)·min(1/√n, 1/(2z√d)), which balances the two errors; then η is cut to 2/β.
    start : (d,) array_like, optional
        θ_0; by default the set's centre.
    callback : callable, optional
        Called with every phase's released outcome.
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
        For a parameter out of range, an objective of unbounded curvature, rows that are not finite, labels that the
        objective is not for, or a start outside the set. Nothing is drawn or charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import glm, phased_sgd
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> y = (X @ [1.0, -1.0, 0.0] > 0).astype(float)
    >>> fit = phased_sgd(glm("logistic", clip=1.0), X, y, constraint=LpBall(2, 3, 2.0), budget=Budget(1.0, 1e-6))
    >>> fit.nit, fit.nfev, bool(fit.x[0] > 0.0 > fit.x[1])
    (12, 4995, True)
    """
    d = constraint.dimension
    X, y = checked_data(X, y, d, objective)
    L = clip_of(objective)
    theta = checked_start(constraint, start)
    checked_budget(budget, allowed=("replace", "zero_out"))
    R, scale = positive("row_norm", row_norm), positive("step_scale", step_scale)
    if not math.isfinite(objective.curvature_bound):
        raise ValueError(f"objective must have a finite curvature_bound, got the loss {objective.name!r}")
    n = len(X)
    source = randomness.resolve(rng)
    if n == 0:
        return outcome(theta, NOTHING, nit=0, nfev=0, message="no rows: the start is returned", clipped=0)
    z = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget)
    cost = Gaussian(z, adjacency=budget.adjacency)
    eta = scale * constraint.diameter() / L * min(1.0 / math.sqrt(n), 0.5 / (z * math.sqrt(d)))
    if objective.curvature_bound > 0:
        eta = min(eta, 2.0 * (1.0 - 2.0**-50) / (objective.curvature_bound * R**2))
    reach = float(np.linalg.norm(constraint.center)) + constraint.diameter()  # ρ
    X, row_lengths = shortened(X, R)
    y = convex_labels(objective, y)

    with charged(ledger, cost, "phased SGD", source):
        phases = nfev = cut = begin = 0
        while begin < n:
            size = max(1, n >> (phases + 1))
            step = eta * 4.0**-phases
            mean = np.zeros(d)
            iterate = theta
            for i in range(begin, begin + size):
                mean += (iterate - mean) / (i - begin + 1)
                with np.errstate(all="ignore"):  # what overflows is clipped
                    slope = objective.slope(np.array([X[i] @ iterate]), y[i : i + 1])
                psi, was_cut = clipped_slope(float(slope[0]), float(row_lengths[i]), L)
                cut += was_cut
                iterate = constraint.project(iterate - step * psi * X[i])
            # the mean of the iterates before each step and of the last one
            mean += (iterate - mean) / (size + 1)
            # ω
            rounding = 2.0**-52 * (
                step * R * (objective.curvature_bound * (d + 1) * R * reach + objective.slope_rounding(R * reach))
                + 10.0 * (reach + L * step)
            ) + constraint.projection_error(reach + L * step)
            sensitivity = row_sensitivity(L * step, budget.adjacency) + 2.0 * (size + 1) * rounding
            noise = GaussianMechanism(noise_multiplier=z, sensitivity=sensitivity, rng=source)
            theta = constraint.project(noise.release(mean))
            phases, nfev, begin = phases + 1, nfev + size, begin + size
            if callback is not None:
                callback(theta.copy())
            if n >> (phases + 1) == 0:
                break
        return outcome(
            theta, cost, nit=phases, nfev=nfev, message=f"one pass in {phases} phases, η = {eta:.3g}", clipped=cut
        )

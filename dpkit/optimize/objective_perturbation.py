"""Objective perturbation: add one random linear term to a convex objective, and minimise it.

For GLM losses in batches, with a cost of one fit. Source: Chaudhuri, Monteleoni & Sarwate (2011), arXiv:0912.0071;
Kifer, Smith & Thakurta (2012); approximate minima as in Iyengar et al. (2019), "Towards practical differentially
private convex optimization".

    J(θ) = Σ_i ℓ(θ; x_i) + (Λ/2)‖θ‖² + bᵀθ,  b ~ N(0, σ²I),    released: Π(θ̂ + N(0, τ²I)),  ‖∇J(θ̂)‖ ≤ γ.

Privacy. Unit: one row. Slopes are cut so that ‖∇ℓ‖ ≤ L = ``objective.clip``, rows shortened to ‖x‖₂ ≤ R; for a slope
that does not decrease in xᵀθ the loss stays convex, with curvature at most β = β₁R². So b = −(Σ∇ℓ_i(θ) + Λθ) is a
one-to-one function of the exact minimizer θ, Lipschitz in both directions, and θ has the density of N(0, σ²I) at b
times the determinant of b's derivative, which is A = ΛI + Σψ_i′x_ix_iᵀ. With Δ(θ) the difference of two neighbours'
gradient sums, the neighbour's b is b + Δ, and the log ratio of the two densities at θ is at most

    ln(1 + β/Λ) + ⟨b, Δ⟩/σ² + ‖Δ‖²/(2σ²).

First term: A = A₀ + a·xxᵀ and A′ = A₀ + a′·x′x′ᵀ with A₀ ≥ ΛI, a‖x‖² ≤ β and a′ ≥ 0, so det A/det A′ ≤ det A/det A₀
= 1 + a·xᵀA₀⁻¹x ≤ 1 + β/Λ. Second term, where b ~ N(0, σ²I) and Δ depends on b: under replace, Δ = αx/‖x‖ − α′x′/‖x′‖
with |α|, |α′| ≤ L. It lies in a fixed plane and ‖Δ‖ ≤ 2L, so ⟨b, Δ⟩ ≤ 2Lσ·χ₂; and ⟨b, Δ⟩ ≤ Lσ(|N₁| + |N₂|) with
standard normal N₁, N₂, one of which must pass s for the sum to pass 2s: P(⟨b, Δ⟩ > 2Lσs) ≤ min(e^(−s²/2), 4Φ(−s)).
With s for this probability to be 0.99δ, σ follows from 0.99ε = ln(1 + β/Λ) + us + u²/2, u = 2L/σ. Under add_remove and
zero_out Δ is along x and ‖Δ‖ ≤ L, so the log ratio is at most ln(1 + β/Λ) + u²/2 + |N(0, u²)| with u = L/σ, whose
(0.99ε, 0.99δ) is known in closed form (:mod:`accounting.half_normal`); 10 to 20 % less noise than by its tail.

The remaining hundredth of the budget is for θ̂ instead of the minimizer. The objective is Λ-strongly convex, so θ̂ is
within γ/Λ of it: given the minimizer, what is released is a Gaussian mechanism of sensitivity 2γ/Λ and noise τ =
z·2γ/Λ. γ must be the same for neighbours, so it does not depend on the number of rows. Sum: (ε, δ).

Cost: gradient passes until ‖∇J‖ ≤ γ, a few times √(nβ/Λ).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import ApproxDP, Budget, Gaussian, Ledger, calibrate
from accounting.checks import fraction, positive
from accounting.half_normal import half_normal_mu
from dpkit import randomness
from dpkit.geometry import ConvexSet
from dpkit.optimize._rows import (
    GradientSums,
    charge,
    checked_budget,
    checked_data,
    checked_start,
    convex_labels,
    shortened,
)
from dpkit.optimize.objectives import GLM
from dpkit.optimize.result import NOTHING, outcome

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

__all__ = ["objective_perturbation"]

# the part of (ε, δ) for the minimizer; the rest is for stopping short of it
_MINIMIZER = 0.99
# γ in units of L: above the rounding of a sum of 10⁷ gradients, and of no weight beside b
_TOLERANCE = 1e-8
_SMALLEST_RIDGE = 0.01


def objective_perturbation(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: ConvexSet,
    budget: Budget,
    row_norm: float = 1.0,
    curvature_share: float = 0.2,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Minimise the loss plus a ridge and a random linear term, then project on a convex set.

    Parameters
    ----------
    objective : GLM
        With a ``clip`` (L, in ℓ₂) and a finite ``curvature_bound``; its slope must not decrease in η, as that of every
        convex loss; labels for "probit" are cut to [0, 1], where it is convex.
    X : (n, d) array_like
    y : (n,) array_like
    constraint : ConvexSet
        Public; the minimizer is projected on it.
    budget : Budget
        With δ > 0, of any adjacency.
    row_norm : float
        R, public: longer rows are shortened to it.
    curvature_share : float
        In (0, 1): the part of ε for ln(1 + β/Λ), which fixes the ridge Λ.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged before any noise is drawn.

    Returns
    -------
    OptimizeResult
        See :func:`dpkit.optimize.result.outcome`; also ``ridge`` (Λ) and ``noise_std`` (σ). ``nit`` and ``nfev`` depend
        on the rows here and are not private. Without rows (unless their number is private) ``x`` is the set's centre,
        at no cost.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range, an objective of unbounded curvature, or rows that are not finite. Nothing is
        drawn or charged.
    BudgetExceeded
        If the ledger refuses.
    RuntimeError
        If rounding keeps the gradient above γ. The budget is spent, and nothing is returned.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import glm, objective_perturbation
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> y = (X @ [1.0, -1.0, 0.0] > 0).astype(float)
    >>> fit = objective_perturbation(
    ...     glm("logistic", clip=1.0), X, y, constraint=LpBall(2, 3, 2.0), budget=Budget(1.0, 1e-6)
    ... )
    >>> fit.cost, bool(fit.x[0] > 0.5 > -0.5 > fit.x[1])
    (ApproxDP(epsilon=1.0, delta=1e-06, adjacency='replace'), True)
    """
    d = constraint.dimension
    X, y = checked_data(X, y, d)
    checked_budget(budget, allowed=("replace", "add_remove", "zero_out"))
    R, share = positive("row_norm", row_norm), fraction("curvature_share", curvature_share)
    if not math.isfinite(objective.curvature_bound):
        raise ValueError(f"objective must have a finite curvature_bound, got the loss {objective.name!r}")
    if budget.delta == 0:
        raise ValueError("budget must have delta > 0, got delta=0")
    short, _ = shortened(X, R)
    sums = GradientSums(objective, short, convex_labels(objective, y))
    source = randomness.resolve(rng)
    if len(X) == 0 and budget.adjacency != "add_remove":
        centre = checked_start(constraint, None)
        return outcome(centre, NOTHING, nit=0, nfev=0, message="no rows: the centre is returned", clipped=0)
    beta = objective.curvature_bound * R**2
    epsilon, delta = _MINIMIZER * budget.epsilon, _MINIMIZER * budget.delta
    # Λ; a larger one is no less private, and keeps the minimizer well defined for large budgets
    ridge = max(beta / math.expm1(share * epsilon), _SMALLEST_RIDGE * beta)
    L = sums.clip
    if budget.adjacency == "replace":
        s, left = _deviation(delta), (1.0 - share) * epsilon
        sigma = 2.0 * L * (s + math.sqrt(s * s + 2.0 * left)) / (2.0 * left)  # 2L/u, us + u²/2 = left
    else:
        sigma = L / half_normal_mu(share * epsilon, epsilon, delta)
    rest = Budget(budget.epsilon - epsilon, budget.delta - delta, adjacency=budget.adjacency)
    z = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), rest)
    gamma = _TOLERANCE * L
    cost = ApproxDP(budget.epsilon, budget.delta, adjacency=budget.adjacency)

    charge(ledger, cost, "objective perturbation", source)
    b = sigma * source.standard_normal(d)
    theta, steps = _minimizer(sums, b, ridge, beta * len(X) + ridge, gamma)
    noisy = theta + z * (2.0 * gamma / ridge) * source.standard_normal(d)
    return outcome(
        constraint.project(noisy),
        cost,
        nit=steps,
        nfev=sums.nfev,
        message=f"ridge {ridge:.3g}, linear term of standard deviation {sigma:.3g}",
        clipped=sums.clipped,
        ridge=ridge,
        noise_std=sigma,
    )


def _deviation(delta: float) -> float:
    """The s such that ⟨b, Δ⟩ passes 2Lσs with probability at most δ, under replace."""
    from scipy.special import ndtri

    return min(math.sqrt(-2.0 * math.log(delta)), -float(ndtri(delta / 4.0))) * (1.0 + 1e-12)


def _minimizer(
    sums: GradientSums, b: NDArray[np.float64], ridge: float, curvature: float, gamma: float
) -> tuple[NDArray[np.float64], int]:
    """A point with ‖∇J‖ ≤ ``gamma``, by Nesterov's steps for a strongly convex objective; and how many it took."""
    root = math.sqrt(ridge / curvature)
    momentum = (1.0 - root) / (1.0 + root)
    theta = ahead = np.zeros_like(b)
    limit = 1000 + int(200.0 / root)
    for step in range(1, limit + 1):
        gradient = sums.at(ahead) + ridge * ahead + b
        if float(np.linalg.norm(gradient)) <= gamma:
            return ahead, step
        theta, before = ahead - gradient / curvature, theta
        ahead = theta + momentum * (theta - before)
    raise RuntimeError(f"the gradient must fall to {gamma:g}, got no such point in {limit} steps")

"""Objective perturbation: add one random linear term to a convex objective, and minimise it.

For GLM losses in batches, with a cost of one fit. Source: Chaudhuri, Monteleoni & Sarwate (2011), arXiv:0912.0071;
Kifer, Smith & Thakurta (2012); approximate minima as in Iyengar et al. (2019), "Towards practical differentially
private convex optimization".

    J(θ) = Σ_i ℓ(θ; x_i) + (Λ/2)‖θ‖² + bᵀθ,  b ~ N(0, σ²I),    released: Π(⌊θ̂⌉ + ⌊N(0, τ²I)⌉),  ‖∇J(θ̂)‖ ≤ γ.

Privacy. Unit: one row, or with ``groups`` one person, whose loss is the mean of those of its rows. Slopes are cut so
that ‖∇ℓ‖ ≤ L = ``objective.clip``, rows shortened to ‖x‖₂ ≤ R; for a slope that does not decrease in xᵀθ the loss stays
convex, with curvature at most β = β₁R². So b = −(Σ∇ℓ_i(θ) + Λθ) is a one-to-one function of the exact minimizer θ,
Lipschitz in both directions, and θ has the density of N(0, σ²I) at b times the determinant of b's derivative. The
gradient of a row that is present or absent has a fixed direction, and its slope falls along b in that direction;
:mod:`accounting.loss.one_row` bounds the divergence of the two densities from that, and of a row that is
replaced as one that goes and one that comes. σ is the least that meets (0.99ε, 0.99δ), with ln(1 + β/Λ) a fixed share
of ε.

One person. The mean loss of a person's rows is convex with gradients of length at most L, but their direction turns
with θ, so there is no line on which all happens; and its Hessian, of trace at most β, has a rank of up to
the number of rows. :mod:`accounting.notions.perturbed_minimum` bounds the Rényi divergence of the two densities from L
and β alone, by which σ and Λ are calibrated: with a fifth of it for the curvature, 20 % more noise than a Gaussian
mechanism of the same sensitivity, and for ε = 1 five times the ridge of single rows.

The remaining hundredth of the budget is for θ̂ instead of the minimizer. The objective is Λ-strongly convex, so θ̂ is
within γ/Λ of it; and the b that is used is a real normal vector rounded to multiples of h, at most h√d/2 away, which
moves a minimizer by at most h√d/(2Λ). So given the minimizer for the real b, of which θ̂ is a function, the release
is a Gaussian mechanism of sensitivity 2r, r = (γ + h√d/2)/Λ, and costs Gaussian(z). Both the b that is used and
the release are integers times powers of two, with exactly sampled noise; the lattice of the release is about r/500,
and everything that the solver does below r is covered. γ must be the same for neighbours: it is 10⁻⁷·L, and nd/10⁷
times that for larger data where n is public. Sum: (ε, δ).

What is charged. By (ε, δ) alone ten fits at (1, 10⁻⁶) cost (10, 10⁻⁵). But the exact minimizer, and then θ̂ with its
noise, are ``ObjectivePerturbation`` and Gaussian(z), one after the other, and that is charged wherever it is proved and
stays within the budget: for persons by their Rényi curve (ten fits cost 3.2 at δ = 10⁻⁶), and for a row by the whole
curve of its loss (4.7, or 5.0 if it is replaced), where β/Λ ≤ 0.6. Where more than ln 1.6 is kept for the curvature
(ε above 2.3 at the default share), no more than (ε, δ) is known, and ``ApproxDP`` is charged.

Rounding. γ bounds the true gradient. The computed one is off by at most

    2u·n(24L + R²β₁(d + 1)‖θ‖ + Re) + 4u(Λ‖θ‖ + ‖b‖),    e = ``objective.slope_rounding(R‖θ‖)``, u = 2⁻⁵³,

since 16 rows at a time are added in float64 and the rest exactly rounded (``math.fsum``), xᵀθ is within
(d + 1)uR‖θ‖ and ψ as computed within eu + u|ψ|. Rows of a person weigh one over their number, rounded down; n is then
the number of persons, and a product with a weight adds no more than is left of the 24. θ̂ is a point where the computed
length plus this is at most γ.

Cost: gradient passes until ‖∇J‖ ≤ γ, a few times √(nβ/Λ).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, ApproxDP, Budget, Gaussian, ObjectivePerturbation, Release, calibrate
from accounting import delta as delta_of
from accounting import epsilon as epsilon_of
from accounting.checks import fraction, positive
from accounting.notions.perturbed_minimum import largest_shift
from accounting.releases.perturbation import LARGEST_CURVATURE
from dpkit import randomness
from dpkit.clipping import clipped, grown, shortened
from dpkit.geometry import ConvexSet
from dpkit.mechanisms import GaussianMechanism
from dpkit.mechanisms._checked import charged
from dpkit.models.losses import GLM
from dpkit.samplers import rounded_gaussian
from dpkit.training.groups import checked_groups
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

__all__ = ["objective_perturbation"]

Vector = NDArray[np.float64]

# the part of (ε, δ) for the minimizer; the rest is for stopping short of it
_MINIMIZER = 0.99
# γ in units of L: above the rounding of a sum of 10⁶ gradients, and of no weight beside b
_TOLERANCE = 1e-7
# h is at most 2⁻³⁷ of σ: b is that many integers, and the sampler takes standard deviations up to 2⁴⁰
_DIGITS = 38
# rows whose gradients are added in float64
_ADDED = 16
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
    groups: ArrayLike | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Minimise the loss plus a ridge and a random linear term, then project on a convex set.

    Parameters
    ----------
    objective : GLM
        With a ``clip`` (L, in ℓ₂) and a finite ``curvature_bound`` above 0; its slope must not decrease in η, as that
        of every convex loss; labels for "probit" are cut to [0, 1], where it is convex.
    X : (n, d) array_like
    y : (n,) array_like
    constraint : ConvexSet
        Public; the minimizer is projected on it.
    budget : Budget
        With δ > 0, of any adjacency.
    row_norm : float
        R, public: longer rows are shortened to it.
    curvature_share : float
        In (0, 1): the part of ε for ln(1 + β/Λ), which fixes the ridge Λ; of the Rényi divergence, for people.
    groups : (n,) array_like of int or str, optional
        Whose row each one is, public. Then the unit is a person, with any number of rows: what is summed is the mean
        loss of a person's rows, each with its slope cut, and ``budget.unit`` must be "person".
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged before any noise is drawn.

    Returns
    -------
    OptimizeResult
        See :func:`dpkit.training.result.outcome`; also ``ridge`` (Λ) and ``noise_std`` (σ). ``nit`` and ``nfev``
        depend on the rows here: ``not_private`` names them, too. Without rows (unless their number is private) ``x`` is
        the set's centre, at no cost.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range, an objective of no or unbounded curvature, rows that are not finite, or labels
        that the objective is not for. Nothing is drawn or charged.
    BudgetExceeded
        If the ledger refuses.
    RuntimeError
        If rounding keeps the gradient above γ, as it may for more than 10⁷ numbers under add_remove. The budget is
        spent, and nothing is returned.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget, epsilon
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import glm, objective_perturbation
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> y = (X @ [1.0, -1.0, 0.0] > 0).astype(float)
    >>> fit = objective_perturbation(
    ...     glm("logistic", clip=1.0), X, y, constraint=LpBall(2, 3, 2.0), budget=Budget(1.0, 1e-6)
    ... )
    >>> round(epsilon(fit.cost, 1e-6), 2), bool(fit.x[0] > 0.5 > -0.5 > fit.x[1])
    (0.99, True)
    """
    d = constraint.dimension
    X, y = checked_data(X, y, d, objective)
    checked_budget(budget, allowed=("replace", "add_remove", "zero_out"), people=True)
    people = checked_groups(budget, groups, len(X))
    R, share = positive("row_norm", row_norm), fraction("curvature_share", curvature_share)
    if not 0 < objective.curvature_bound < math.inf:
        raise ValueError(
            f"objective must have a finite curvature_bound above 0, by which the ridge is chosen, got the loss "
            f"{objective.name!r}"
        )
    if budget.delta == 0:
        raise ValueError("budget must have delta > 0, got delta=0")
    short, row_lengths = shortened(X, R)
    labels = convex_labels(objective, y)
    L = clip_of(objective)
    source = randomness.resolve(rng)
    if len(X) == 0 and budget.adjacency != "add_remove":
        centre = checked_start(constraint, None)
        return outcome(centre, NOTHING, nit=0, nfev=0, message="no rows: the centre is returned", clipped=0)
    beta = objective.curvature_bound * R**2
    epsilon, delta = _MINIMIZER * budget.epsilon, _MINIMIZER * budget.delta
    ridge, sigma = (_levels if people is None else _levels_of_people)(L, beta, share, epsilon, delta, budget.adjacency)
    rest = Budget(budget.epsilon - epsilon, budget.delta - delta, adjacency=budget.adjacency)
    z = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), rest)
    gamma = _TOLERANCE * L * (1.0 if budget.adjacency == "add_remove" else max(1.0, X.size / 1e7))
    h = math.ldexp(1.0, math.frexp(sigma)[1] - _DIGITS)
    r = (gamma + h * math.sqrt(d) / 2.0) / ridge
    mechanism = GaussianMechanism(
        noise_multiplier=z, sensitivity=2.0 * r * (1.0 + 2.0**-40), adjacency=budget.adjacency, rng=source
    )
    cost = _cost(beta / ridge, sigma / row_sensitivity(L, budget.adjacency), z, budget, one_row=people is None)

    with charged(ledger, cost, "objective perturbation", source):
        if randomness.is_simulation(source):
            b = sigma * source.standard_normal(d)
        else:
            b = h * rounded_gaussian(sigma / h, d, rng=source).astype(np.float64)
        units, weights = (len(X), None) if people is None else (len(people.sizes), people.shares())
        problem = _Problem(objective, short, labels, row_lengths, R, ridge, b, units, weights)
        theta, steps = _minimizer(problem, beta * units + ridge, gamma)
        return outcome(
            constraint.project(mechanism.release(theta)),
            cost,
            nit=steps,
            nfev=problem.passes * len(X),
            message=f"ridge {ridge:.3g}, linear term of standard deviation {sigma:.3g}",
            clipped=problem.clipped,
            not_private=("clipped", "nit", "nfev"),
            ridge=ridge,
            noise_std=sigma,
        )


@lru_cache(maxsize=256)
def _levels(
    L: float, beta: float, share: float, epsilon: float, delta: float, adjacency: Adjacency
) -> tuple[float, float]:
    """Λ and σ for single rows."""
    from accounting.loss.one_row import largest_mu  # what an import need not load

    # a larger Λ is no less private, and keeps the minimizer well defined for large budgets
    ridge = max(beta / math.expm1(share * epsilon), _SMALLEST_RIDGE * beta)
    return ridge, L / largest_mu(share * epsilon, epsilon, delta, replaced=adjacency == "replace")


@lru_cache(maxsize=256)
def _cost(curvature: float, noise_multiplier: float, z: float, budget: Budget, *, one_row: bool) -> Release:
    """What one fit is charged: the minimizer and the noise on top, if their total is known, else the budget itself."""
    whole = ApproxDP(budget.epsilon, budget.delta, adjacency=budget.adjacency)
    if curvature > LARGEST_CURVATURE * (1.0 - 1e-12):
        return whole
    noise_multiplier, curvature = noise_multiplier * (1.0 - 2.0**-50), curvature * (1.0 + 2.0**-50)  # both are rounded
    minimizer = ObjectivePerturbation(noise_multiplier, curvature, one_row=one_row, adjacency=budget.adjacency)
    cost = minimizer + Gaussian(z, adjacency=budget.adjacency)
    # the grid of a privacy loss distribution may add what little is left
    meets = delta_of(cost, budget.epsilon) <= budget.delta and epsilon_of(cost, budget.delta) <= budget.epsilon
    return cost if meets else whole


def _levels_of_people(
    L: float, beta: float, share: float, epsilon: float, delta: float, adjacency: Adjacency
) -> tuple[float, float]:
    """Λ and σ where a person's loss is any convex function."""
    replaced = adjacency == "replace"
    shift, curvature = largest_shift(epsilon, delta, share, replaced=replaced)
    return beta / curvature, (2.0 * L if replaced else L) / shift


class _Problem:
    """∇J, and how far its rounding may be off."""

    def __init__(
        self,
        objective: GLM,
        X: Vector,
        y: Vector,
        row_lengths: Vector,
        row_norm: float,
        ridge: float,
        b: Vector,
        units: int,
        weights: Vector | None,
    ) -> None:
        self._units, self._weights = units, weights
        self._objective, self._X, self._y, self._lengths = objective, X, y, row_lengths
        self._clip, self._row_norm, self.ridge, self._b = clip_of(objective), row_norm, ridge, b
        self.dimension = len(b)
        self.clipped = self.passes = 0

    def gradient(self, theta: Vector) -> Vector:
        """∇J in float64."""
        return np.asarray(self._slopes(theta) @ self._X + self.ridge * theta + self._b)

    def bound(self, theta: Vector) -> float:
        """A bound on the length of the true ∇J."""
        slopes, d = self._slopes(theta), self.dimension
        whole = len(slopes) // _ADDED * _ADDED
        parts = slopes[:whole].reshape(-1, 1, _ADDED) @ self._X[:whole].reshape(-1, _ADDED, d)
        rest = slopes[whole:] @ self._X[whole:]
        added = [*parts[:, 0], rest, self.ridge * theta, self._b]
        computed = np.array([math.fsum(entry) for entry in np.stack(added).T.tolist()])
        length = float(np.linalg.norm(theta))
        eta = self._row_norm * length
        slope = self._objective.curvature_bound * (d + 1) * eta + self._objective.slope_rounding(eta)
        rounding = self._units * (24.0 * self._clip + self._row_norm * slope)
        rounding += 2.0 * (self.ridge * length + float(np.linalg.norm(self._b)))
        return float(grown(float(np.linalg.norm(computed)), d) + 2.0**-52 * rounding)

    def _slopes(self, theta: Vector) -> Vector:
        with np.errstate(all="ignore"):  # what overflows is clipped
            psi, count = clipped(self._objective.slope(self._X @ theta, self._y), self._lengths, self._clip)
        self.clipped += count
        self.passes += 1
        return psi if self._weights is None else self._weights * psi


def _minimizer(problem: _Problem, curvature: float, gamma: float) -> tuple[Vector, int]:
    """A point with ‖∇J‖ ≤ ``gamma``, by Nesterov's steps for a strongly convex objective; and how many it took."""
    root = math.sqrt(problem.ridge / curvature)
    momentum = (1.0 - root) / (1.0 + root)
    theta = ahead = np.zeros(problem.dimension)
    limit = 1000 + int(200.0 / root)
    for step in range(1, limit + 1):
        gradient = problem.gradient(ahead)
        # the bound takes longer than a gradient, and is asked for where it is likely to be met
        near = float(np.linalg.norm(gradient)) <= gamma / 2.0
        if near and problem.bound(ahead) <= gamma:
            return ahead, step
        theta, before = ahead - gradient / curvature, theta
        ahead = theta + momentum * (theta - before)
    raise RuntimeError(f"the gradient must fall to {gamma:g}, got no such point in {limit} steps")

"""Private follow-the-regularized-leader: linear losses, with a regret that pays for privacy once and not per step.

For online linear optimization and prediction with expert advice; on convex losses it runs on their gradients. Source:
Agarwal & Singh (2017), "The price of differential privacy for online learning", arXiv:1701.07953, Algorithm 1:

    θ_{t+1} = argmin_{θ∈C} ⟨S̃_t, θ⟩ + D_ψ(θ, θ_1)/η,    S̃_t the noisy sum of g_1, …, g_t,    g_τ = ∇ℓ(θ_τ; x_τ),

with ψ = ‖·‖²/2 (``regularizer="euclidean"``: θ_{t+1} = Π(θ_1 − ηS̃_t)), or on a simplex of mass M the negative entropy
(``"entropy"``: θ_{t+1} ∝ θ_1·exp(−ηS̃_t/M)). A vector of losses x is a row of ``glm("linear", clip=L)`` with y = 1.

Privacy. Unit: one row of the stream, that is one step. Given all that was released, θ_t is known, so replacing row t
moves the sums' t-th input, clipped to L = ``objective.clip``, by at most 2L in ℓ₂ (L under zero_out), and no other. The
stream costs what the sums cost, one Gaussian(z). (The paper shares a pure ε out evenly over the levels of a tree.)
Sums, their noise and the bound on g_t are exact; what follows them is public.

Regret. The paper adds noise to early sums, so that all S̃_t have noise of one law. That is not needed. Let Φ_σ(S) be
the mean of min_θ ⟨S + σZ, θ⟩ + D_ψ(θ, θ_1)/η, Z standard Gaussian: a concave function of S of gradient E[θ_{t+1}] at
S_t and σ = σ_t. For losses that are fixed in advance

    Σ_t ⟨g_t, E[θ_t]⟩ ≤ Σ_t (Φ_{σ_{t−1}}(S_t) − Φ_{σ_{t−1}}(S_{t−1}) + ηL_*²/2),

where L_* bounds g_t in the norm dual to that in which ψ is 1-strongly convex. Φ falls in σ, by Jensen, and by at most
W = E[max_{θ∈C} ⟨Z, θ_1 − θ⟩] per unit of σ. The noise of the factorization rises to a largest σ and falls
again; it grows by at most 1.02σ in all, up to 2¹⁷ rows. So the sum telescopes, and for any θ of C

    Σ_t ⟨g_t, E[θ_t] − θ⟩ ≤ max_θ D_ψ(θ, θ_1)/η + ηTL_*²/2 + 1.02σ·W:

noise costs 1.02σW once, at most R√d (a ball of radius R) or M√(2 ln d) (a simplex), and η need not know of it. If
ℓ is not linear, g_t depends on the noise in θ_t. Then L√d·σ·η per step stands in its place (for the entropy
L√(2 ln 2d)·σ·η), the distance of θ_t from the leader of exact sums, and η is smaller by the root of 1 + 2√d·σ/L.

Cost per step: one inner product, one projection (or d exponentials) and O(log T) vector operations for the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Budget, Release
from accounting.checks import choice, positive
from dpkit import randomness
from dpkit.continual import BufferedToeplitz
from dpkit.geometry import ConvexSet, Simplex
from dpkit.models.losses import GLM
from dpkit.optimize.parts.stream_learner import StreamLearner, largest_noise, one_pass
from dpkit.training.rows import checked_budget, checked_start, clipped_gradient, row_sensitivity

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["FollowTheRegularizedLeader", "follow_the_regularized_leader"]

Regularizer = Literal["euclidean", "entropy"]
Vector = NDArray[np.float64]


class FollowTheRegularizedLeader(StreamLearner[ConvexSet]):
    """The regularized leader of a private stream of at most ``horizon`` rows.

    Parameters
    ----------
    objective : GLM
        With a ``clip``: L, the bound on ‖g_t‖₂.
    constraint : ConvexSet
        C, public; for "entropy" a ``Simplex``.
    horizon : int
        T, the largest number of rows.
    budget : Budget
        What the whole stream may cost, counted by "replace" or "zero_out".
    regularizer : {"euclidean", "entropy"}
        ψ.
    step_scale : float
        Multiplies η = R/(L√T), R the radius of C; for "entropy" η = M√(2 ln d)/(L√T). Where ℓ is not linear, it is
        divided by the root in the module's text.
    start : (d,) array_like, optional
        θ_1; by default the set's centre. For "entropy" its entries are positive.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with the whole stream here, before any noise is drawn.

    Attributes
    ----------
    theta : (d,) ndarray
        The current iterate; may be published after every step.
    steps : int
        Rows taken.
    learning_rate : float
        η.
    cost : Release
        Of the whole stream.
    clipped : int
        How many g_t were clipped. Not private.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range. Nothing is drawn or charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    Ten experts, of whom the fourth errs least; the weights of the next step may be published after every one:

    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import Simplex
    >>> from dpkit.optimize import FollowTheRegularizedLeader, glm
    >>> learner = FollowTheRegularizedLeader(
    ...     glm("linear", clip=3.0), Simplex(10), horizon=5000, budget=Budget(1.0, 1e-6), regularizer="entropy"
    ... )
    >>> errors = np.random.default_rng(0).uniform(size=(5000, 10))
    >>> errors[:, 3] *= 0.4
    >>> for losses in errors:
    ...     weights = learner.step(losses, 1.0)
    >>> int(np.argmax(weights)), bool(weights[3] > 0.9)
    (3, True)
    """

    norm = 2.0
    _LABEL = "follow the regularized leader"
    _PARAMETERS = ("horizon", "regularizer", "step_scale")
    _NOISE = ("noise_multiplier", "adjacency")
    _LEARNED = ("steps", "clipped", "_start", "_iterates", "_sums")

    def __init__(
        self,
        objective: GLM,
        constraint: ConvexSet,
        *,
        horizon: int,
        budget: Budget,
        regularizer: Regularizer = "euclidean",
        step_scale: float = 1.0,
        start: ArrayLike | None = None,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._configure(objective, constraint, horizon=horizon, regularizer=regularizer, step_scale=step_scale)
        checked_budget(budget, allowed=("replace", "zero_out"))
        first = checked_start(constraint, start)
        if regularizer == "entropy" and first.min() <= 0:
            raise ValueError(f"start must have positive entries for regularizer='entropy', got start={start!r}")
        self._begin(first)
        self._rng = randomness.resolve(rng)
        calibrated = BufferedToeplitz.calibrated(budget=budget, horizon=self.horizon, shape=1, sensitivity=1.0)
        self._prepare(calibrated.noise_multiplier, budget.adjacency)
        self._open(ledger)

    def _configure(
        self, objective: GLM, constraint: ConvexSet, *, horizon: int, regularizer: str, step_scale: float
    ) -> None:
        self._keep(objective, constraint, horizon)
        self.step_scale = positive("step_scale", step_scale)
        self.regularizer = choice("regularizer", regularizer, "euclidean", "entropy")
        if regularizer == "entropy":
            if not isinstance(constraint, Simplex):
                raise ValueError(f"constraint must be a Simplex for regularizer='entropy', got {constraint!r}")
            self._mass = constraint.mass

    def _begin(self, start: Vector) -> None:
        super()._begin(start)
        self._start = start.copy()

    @property
    def cost(self) -> Release:
        return self._sums.cost

    def _prepare(self, noise_multiplier: float, adjacency: Adjacency) -> None:
        self.noise_multiplier, self.adjacency = noise_multiplier, adjacency
        # the noisy sums of g_1, …, g_T
        self._sums = BufferedToeplitz(
            horizon=self.horizon,
            shape=self.constraint.dimension,
            sensitivity=row_sensitivity(self.clip, adjacency),
            noise_multiplier=noise_multiplier,
            adjacency=adjacency,
            rng=self._rng,
        )

        T, d = self.horizon, self.constraint.dimension
        if self.regularizer == "euclidean":
            reach, size = 0.5 * self.constraint.diameter(), math.sqrt(d)
        else:
            reach, size = self._mass * math.sqrt(2.0 * math.log(max(2, d))), math.sqrt(2.0 * math.log(2 * d))
        G = self.clip
        if self.objective.curvature_bound > 0:
            G = math.sqrt(G**2 + 2.0 * G * size * largest_noise(self._sums))
        self.learning_rate = self.step_scale * reach / (G * math.sqrt(T))

    def _check_learned(self) -> None:
        if self._sums.steps != self.steps:
            raise ValueError(f"state must hold sums of steps={self.steps} rows, got {self._sums.steps}")
        if self.regularizer == "entropy" and self._start.min() <= 0:
            raise ValueError("state must hold a start of positive entries, got others")

    def _advance(self, x: Vector, y: float, length: float) -> Vector:
        g_t, cut = clipped_gradient(self.objective, self._iterates[0], x, y, length)
        moved = self.learning_rate * self._sums.add(g_t)
        self.steps += 1
        self.clipped += cut
        if self.regularizer == "euclidean":
            return self.constraint.project(self._start - moved)
        # by logarithms, so that no weight overflows
        weights = np.log(self._start) - moved / self._mass
        weights = np.exp(weights - weights.max())
        return np.asarray(weights * (self._mass / weights.sum()))


def follow_the_regularized_leader(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: ConvexSet,
    budget: Budget,
    regularizer: Regularizer = "euclidean",
    step_scale: float = 1.0,
    start: ArrayLike | None = None,
    callback: Callable[[Vector], object] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Run :class:`FollowTheRegularizedLeader` over the rows of ``X``, in their order; the last iterate is returned.

    Parameters
    ----------
    objective, constraint, budget, regularizer, step_scale, start, rng, ledger
        As for :class:`FollowTheRegularizedLeader`.
    X : (n, d) array_like
    y : (n,) array_like
    callback : callable, optional
        Called with every iterate; each of them is covered by the cost.

    Returns
    -------
    OptimizeResult
        See :func:`dpkit.training.result.outcome`. Without rows ``x`` is the start, at no cost.

    Raises
    ------
    ValueError, TypeError, BudgetExceeded
        As for :class:`FollowTheRegularizedLeader`.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import follow_the_regularized_leader, glm
    >>> losses = np.random.default_rng(0).normal(size=(5000, 3)) / 3 + [0.2, 0.0, -0.2]
    >>> fit = follow_the_regularized_leader(
    ...     glm("linear", clip=1.0), losses, np.ones(5000), constraint=LpBall(2, 3), budget=Budget(1.0, 1e-6)
    ... )
    >>> bool(fit.x @ [-1.0, 0.0, 1.0] > 1.2), fit.cost
    (True, Gaussian(noise_multiplier=4.22467..., adjacency='replace'))
    """

    def make(horizon: int, ledger: Ledger | None) -> FollowTheRegularizedLeader:
        return FollowTheRegularizedLeader(
            objective,
            constraint,
            horizon=horizon,
            budget=budget,
            regularizer=regularizer,
            step_scale=step_scale,
            start=start,
            rng=rng,
            ledger=ledger,
        )

    return one_pass(make, X, y, objective=objective, dimension=constraint.dimension, callback=callback, ledger=ledger)

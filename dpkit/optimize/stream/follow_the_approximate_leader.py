"""Private follow-the-approximate-leader: online learning of convex losses, from one noisy sum of gradients.

For streams of losses that nobody assumes to be a sample, and above all for strongly convex ones. Source: Guha
Thakurta & Smith (2013), "(Nearly) optimal algorithms for private online learning in full-information and bandit
settings". Row t brings the loss f_t(θ) = ℓ(θ; x_t) + (λ/2)‖θ − θ_1‖². The leader of the quadratic lower bounds of the
losses at the iterates is

    θ_{t+1} = argmin_{θ∈C} Σ_{τ≤t} ⟨g_τ, θ⟩ + (λt/2)‖θ − θ_1‖² = Π(θ_1 − S̃_t/(λt)),    g_τ = ∇ℓ(θ_τ; x_τ),

with S̃_t the noisy sum of g_1, …, g_t. (The bound of f_τ is ⟨g_τ, θ⟩ and its own quadratic, so the terms λθ_τ of the
paper cancel.)

Privacy. Unit: one row of the stream, that is one step. Given all that was released, θ_t is known, so replacing row t
moves the sums' t-th input g_t, clipped to L = ``objective.clip``, by at most 2L (L under zero_out) and no other.
Everything else is a function of the noisy sums, so the stream costs what they cost. Three corrections to the paper:

* it sums g_τ − λθ_τ and pays for vectors of length L + λ‖C‖; but θ_τ is public when row τ arrives, so the length is L;
* it shares (ε, δ) out evenly over the levels of a tree by basic composition. ``sums="buffered"`` (default) is a
  factorization that costs one Gaussian(z); ``sums="tree"`` is the paper's tree with the exact price of its levels;
* a tree over T inputs has ⌊log₂ T⌋ + 1 levels with the leaves: so many are counted, not log₂ T.

Sums, their noise and the bound on g_t are exact; what follows them is public.

Regret. Let σ² be the largest variance of a coordinate of S̃_t, and R the largest ‖θ − θ_1‖ in C. Against any θ of C,
in expectation over the noise,

    Σ_t f_t(θ_t) − f_t(θ) ≤ (L²(3 + ln T) + 2(L + λR)√d·σ(1 + ln T))/(2λ).

For write r = (λ/2)‖· − θ_1‖², and θ̄_t for the leader of exact sums. The terms of "follow the regularized leader" with
the regularizers of θ̄_t, (t − 1)r, are at most L²/(2λ(t − 1)) − r(θ̄_{t+1}), the first L²/(2λ). With the r(θ̄_t) of the
losses they telescope, but for r(θ̄_2) ≤ L²/(2λ), which the first term has used up; and two steps of opposite gradients
do lose 3L²/(2λ). θ_t is ‖noise‖/(λ(t − 1)) away from θ̄_t, at most √d·σ/(λ(t − 1)) in the mean, where f_t is
off by L + λR times that. So strongly convex losses (``ridge`` = λ > 0) have a regret of order ln T, but for the noise's
logarithms. For losses without a ridge of their own λ is one that the learner adds, at a price of λTR²/2. The r(θ̄_t) do
not count then, nor does λR in what noise costs: with G² = L² + 2L√d·σ,

    λ = G√((2 + ln T)/T)/R    and the regret is at most    R·G√(T(2 + ln T)).

Cost per step: one inner product, one projection and O(log T) vector operations for the noise.
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
from dpkit.continual import BinaryTree, BufferedToeplitz, ContinualSum
from dpkit.geometry import ConvexSet
from dpkit.models.losses import GLM
from dpkit.optimize.parts.stream_learner import StreamLearner, checked_ridge, largest_noise, one_pass
from dpkit.training.rows import checked_budget, checked_start, clipped_gradient, row_sensitivity

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["FollowTheApproximateLeader", "follow_the_approximate_leader"]

Sums = Literal["buffered", "tree"]
Vector = NDArray[np.float64]
_MECHANISMS: dict[str, type[BufferedToeplitz] | type[BinaryTree]] = {"buffered": BufferedToeplitz, "tree": BinaryTree}


class FollowTheApproximateLeader(StreamLearner[ConvexSet]):
    """The approximate leader of a private stream of at most ``horizon`` rows.

    Parameters
    ----------
    objective : GLM
        With a ``clip``: L, the bound on ‖g_t‖₂.
    constraint : ConvexSet
        C, public.
    horizon : int
        T, the largest number of rows.
    budget : Budget
        What the whole stream may cost, counted by "replace" or "zero_out".
    ridge : float
        λ of the losses f_t. With 0 (default) they are ℓ alone, and the learner adds the λ that balances its regret.
    sums : {"buffered", "tree"}
        How the noisy sums are made: see the module's text.
    step_scale : float
        Divides the λ that is chosen where ``ridge`` is 0.
    start : (d,) array_like, optional
        θ_1; by default the set's centre.
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
    curvature : float
        The λ in use.
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
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import FollowTheApproximateLeader, glm
    >>> learner = FollowTheApproximateLeader(
    ...     glm("squared", clip=0.5), LpBall(2, 3, 2.0), horizon=5000, budget=Budget(1.0, 1e-6)
    ... )
    >>> rows = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> for x in rows:
    ...     theta = learner.step(x, x[0] - x[1])
    >>> learner.steps, bool(theta[0] > 0.3 > -0.3 > theta[1])
    (5000, True)
    """

    norm = 2.0
    _LABEL = "follow the approximate leader"
    _PARAMETERS = ("horizon", "ridge", "sums", "step_scale")
    _NOISE = ("noise_multiplier", "adjacency")
    _LEARNED = ("steps", "clipped", "_start", "_iterates", "_sums")

    def __init__(
        self,
        objective: GLM,
        constraint: ConvexSet,
        *,
        horizon: int,
        budget: Budget,
        ridge: float = 0.0,
        sums: Sums = "buffered",
        step_scale: float = 1.0,
        start: ArrayLike | None = None,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._configure(objective, constraint, horizon=horizon, ridge=ridge, sums=sums, step_scale=step_scale)
        checked_budget(budget, allowed=("replace", "zero_out"))
        self._begin(checked_start(constraint, start))
        self._rng = randomness.resolve(rng)
        calibrated = _MECHANISMS[sums].calibrated(budget=budget, horizon=self.horizon, shape=1, sensitivity=1.0)
        self._prepare(calibrated.noise_multiplier, budget.adjacency)
        self._open(ledger)

    def _configure(
        self, objective: GLM, constraint: ConvexSet, *, horizon: int, ridge: float, sums: str, step_scale: float
    ) -> None:
        self._keep(objective, constraint, horizon)
        self.ridge = checked_ridge(ridge, self.clip)
        self.sums = choice("sums", sums, "buffered", "tree")
        self.step_scale = positive("step_scale", step_scale)

    def _begin(self, start: Vector) -> None:
        super()._begin(start)
        self._start = start.copy()

    @property
    def cost(self) -> Release:
        return self._sums.cost

    def _prepare(self, noise_multiplier: float, adjacency: Adjacency) -> None:
        self.noise_multiplier, self.adjacency = noise_multiplier, adjacency
        T, d = self.horizon, self.constraint.dimension
        # the noisy sums of g_1, …, g_T
        self._sums: ContinualSum = _MECHANISMS[self.sums](
            horizon=T,
            shape=d,
            sensitivity=row_sensitivity(self.clip, adjacency),
            noise_multiplier=noise_multiplier,
            adjacency=adjacency,
            rng=self._rng,
        )
        self.curvature = self.ridge
        if self.ridge == 0:
            G = math.sqrt(self.clip**2 + 2.0 * self.clip * math.sqrt(d) * largest_noise(self._sums))
            radius = max(0.5 * self.constraint.diameter(), 1e-200)  # R, for a start in the middle; C may be a point
            self.curvature = G * math.sqrt((2.0 + math.log(T)) / T) / (radius * self.step_scale)

    def _check_learned(self) -> None:
        if self._sums.steps != self.steps:
            raise ValueError(f"state must hold sums of steps={self.steps} rows, got {self._sums.steps}")

    def _advance(self, x: Vector, y: float, length: float) -> Vector:
        g_t, cut = clipped_gradient(self.objective, self._iterates[0], x, y, length)
        total = self._sums.add(g_t)
        self.steps += 1
        self.clipped += cut
        return self.constraint.project(self._start - total / (self.curvature * self.steps))


def follow_the_approximate_leader(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: ConvexSet,
    budget: Budget,
    ridge: float = 0.0,
    sums: Sums = "buffered",
    step_scale: float = 1.0,
    start: ArrayLike | None = None,
    callback: Callable[[Vector], object] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Run :class:`FollowTheApproximateLeader` over the rows of ``X``, in their order; the last iterate is returned.

    Parameters
    ----------
    objective, constraint, budget, ridge, sums, step_scale, start, rng, ledger
        As for :class:`FollowTheApproximateLeader`.
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
        As for :class:`FollowTheApproximateLeader`.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import follow_the_approximate_leader, glm
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> fit = follow_the_approximate_leader(
    ...     glm("squared", clip=0.5), X, X @ [1.0, -1.0, 0.0], constraint=LpBall(2, 3, 2.0), budget=Budget(1.0, 1e-6)
    ... )
    >>> fit.nfev, fit.cost
    (5000, Gaussian(noise_multiplier=4.22467..., adjacency='replace'))
    """

    def make(horizon: int, ledger: Ledger | None) -> FollowTheApproximateLeader:
        return FollowTheApproximateLeader(
            objective,
            constraint,
            horizon=horizon,
            budget=budget,
            ridge=ridge,
            sums=sums,
            step_scale=step_scale,
            start=start,
            rng=rng,
            ledger=ledger,
        )

    return one_pass(make, X, y, objective=objective, dimension=constraint.dimension, callback=callback, ledger=ledger)

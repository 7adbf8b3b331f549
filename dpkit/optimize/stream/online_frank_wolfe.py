"""Private online Frank–Wolfe: one pass over a stream, every iterate releasable, for sets such as ℓ_p balls.

For rows that arrive one by one, and for sets on which a linear function is easier to minimise than a distance.
Source: Han, Liang, Liang, Wang, Yao & Zhang, "On private online convex optimization: optimal algorithms in ℓ_p-geometry
and high dimensional contextual bandits", Algorithm 1 (DP-TOFW), 1 < p ≤ ∞. Here, with ρ_t = min(1, r/(t + 1)),

    g_t = ∇ℓ(θ_t; x_t) + (1/ρ_t − 1)(∇ℓ(θ_t; x_t) − ∇ℓ(θ_{t−1}; x_t)),
    d_t = d_{t−1} + ρ_t(g̃_t − d_{t−1}),    g̃_t the difference of two noisy sums Σ_{i≤t} g_i,
    v_t = argmin_{v∈C} ⟨d_t, v⟩,            θ_{t+1} = θ_t + η_t(v_t − θ_t).

d_t estimates the gradient at θ_t of the mean loss: its errors average out although every row is read at another
iterate.

Privacy. Unit: one row of the stream, that is one step. g_t is one row's, and is clipped as a whole: ψ_t is cut so that
g_t = ψ_t·x_t has ‖g_t‖ ≤ clip, so replacing the row moves the sum's t-th input by at most 2·clip, given all that
was released (clip under zero_out). Everything else is a function of the noisy sums. The whole stream costs what the
sums cost:

* ``noise="gaussian"`` (default): clipping in ℓ₂ and ``BufferedToeplitz``: one Gaussian(z).
* ``noise="generalized_gaussian"``: clipping in ℓ_q, q = p/(p − 1), and a ``BinaryTree`` with noise of that geometry. It
  has no exact sampler: this noise and the next are drawn and added in float64, and their guarantee is for real numbers.
* ``noise="paper"``: the same tree with the level of Theorem 3.1, σ₊² = 8K²κ ln(K/δ)(βD + L)²/ε², K = ⌈log₂ n⌉ + 1,
  where clip = βD + L. ``cost`` says what that tree really costs. κ and ‖·‖₊ are not the paper's but those of
  :mod:`dpkit.geometry.smooth_norm` (κ = 1.71 where the paper has 2, at d = 5 and p = 1.5), and the radius has the law
  that the density asks for.

The paper's algorithm to the letter, which is not private as claimed, is
:class:`~dpkit.optimize.stream.published_frank_wolfe.PublishedOnlineFrankWolfe`. ``forgetting=1, step_rule="open"`` with
``noise="paper"`` is its private form. Two things differ from that:

* ``forgetting``, r. The paper's r = 1 weighs all rows alike in d_t. Early gradients are the worst: they are clipped
  most, and their error would fade like 1/t only. With r = 2 a row's weight grows like its index, so that error fades
  like 1/t². The noise in d_t grows by less than r, as the noises in successive sums are correlated: at the end of 1,000
  steps its standard deviation is 1.67 times that for r = 1.
* ``step_rule``. The paper's steps 1/(t + 1) are as long as ever when θ_t is next to the optimum, so g_t keeps a term
  of size |xᵀ(v − θ)| that no clip norm suits and whose sampling error does not fade. A "short" step asks the gap that
  d_t shows:

      η_t = min(1, c·D⟨d_t, θ_t − v_t⟩/(8·clip·√n·‖v_t − θ_t‖²)),    D the diameter of C,

  so θ moves as far as gradient descent with the step size (c/8)·D/(clip·√n) would move along this line. (The short
  steps of Demyanov & Rubinov have a known smoothness in place of 8·clip·√n/(c·D).) Near an optimum in the interior
  the gap and the steps vanish, and a clip norm near the size of the noise in the labels is enough. On a polytope whose
  optimum lies on a face, where the gap is small for another reason, "open" steps are better.

Cost per step: two inner products, one linear minimization and O(log n) vector operations for the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Budget, Release
from dpkit import randomness
from dpkit.continual import BinaryTree, BufferedToeplitz, ContinualSum
from dpkit.geometry import ConvexSet, LpBall
from dpkit.models.losses import GLM
from dpkit.optimize.parts.recursive_gradients import RecursiveGradients
from dpkit.optimize.parts.stream_learner import one_pass
from dpkit.training.rows import checked_budget, checked_start, row_sensitivity

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["OnlineFrankWolfe", "online_frank_wolfe"]

Noise = Literal["gaussian", "generalized_gaussian", "paper"]
StepRule = Literal["short", "open"]
Vector = NDArray[np.float64]


class OnlineFrankWolfe(RecursiveGradients[ConvexSet]):
    """Frank–Wolfe on a private stream of at most ``horizon`` rows.

    Parameters
    ----------
    objective : GLM
        With a ``clip``: the bound on ‖g_t‖, in ℓ₂ or (for the noises of the ℓ_q geometry) in ℓ_q.
    constraint : ConvexSet
        C, public. For the noises of the ℓ_q geometry an ``LpBall`` with p > 1.
    horizon : int
        n, the largest number of rows.
    budget : Budget
        What the whole stream may cost, counted by "replace" or "zero_out". (Rows that come or go would move all later
        ones, which a stream's positions do not hide.)
    noise : {"gaussian", "generalized_gaussian", "paper"}
        See the module's text.
    forgetting : float
        r, at least 1: how much more late rows weigh than early ones, ρ_t = min(1, r/(t + 1)). 1 is the paper's.
    step_rule : {"short", "open"}
        "short": as far as the released gap tells. "open": η_t = min(1, c/(t + 1)), the paper's.
    step_scale : float
        c, positive.
    start : (d,) array_like, optional
        θ_0 = θ_1; by default the set's centre.
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
    >>> from dpkit.optimize import OnlineFrankWolfe, glm
    >>> learner = OnlineFrankWolfe(
    ...     glm("squared", clip=0.5), LpBall(1.5, 3, 2.0), horizon=5000, budget=Budget(1.0, 1e-6)
    ... )
    >>> rows = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> for x in rows:
    ...     theta = learner.step(x, x[0] - x[1])
    >>> learner.steps, bool(theta[0] > 0.4 > -0.4 > theta[1])
    (5000, True)
    """

    _LABEL = "online Frank-Wolfe"
    _PARAMETERS = ("horizon", "noise", "forgetting", "step_rule", "step_scale")
    _NOISE = ("noise_multiplier", "adjacency")
    _LEARNED = ("steps", "clipped", "_iterates", "_gradient", "_sum", "_sums")

    def __init__(
        self,
        objective: GLM,
        constraint: ConvexSet,
        *,
        horizon: int,
        budget: Budget,
        noise: Noise = "gaussian",
        forgetting: float = 2.0,
        step_rule: StepRule = "short",
        step_scale: float = 1.0,
        start: ArrayLike | None = None,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._configure(
            objective,
            constraint,
            horizon=horizon,
            noise=noise,
            forgetting=forgetting,
            step_rule=step_rule,
            step_scale=step_scale,
        )
        checked_budget(budget, allowed=("replace", "zero_out"))
        self._begin(checked_start(constraint, start))
        self._rng = randomness.resolve(rng)
        self._prepare(_multiplier(noise, self.norm, self.horizon, budget), budget.adjacency)
        self._open(ledger)

    def _configure(
        self,
        objective: GLM,
        constraint: ConvexSet,
        *,
        horizon: int,
        noise: str,
        forgetting: float,
        step_rule: str,
        step_scale: float,
    ) -> None:
        self._keep_steps(objective, constraint, horizon, forgetting, step_scale)
        self.noise = noise
        self.norm, self._step_norm = _norms(noise, constraint)
        if step_rule not in get_args(StepRule):
            raise ValueError(f"step_rule must be 'short' or 'open', got step_rule={step_rule!r}")
        self.step_rule = step_rule
        # c·D/(8·clip·√n), with D in the norm dual to that of the clip
        self._reach: float | None = None
        if step_rule == "short":
            diameter = constraint.diameter(self._step_norm)
            self._reach = self.step_scale * diameter / (8.0 * self.clip * math.sqrt(self.horizon))

    def _begin(self, start: Vector) -> None:
        super()._begin(start)
        self._sum = np.zeros(len(start))  # the noisy sum after the last row

    @property
    def cost(self) -> Release:
        return self._sums.cost

    def _prepare(self, noise_multiplier: float, adjacency: Adjacency) -> None:
        self.noise_multiplier, self.adjacency = noise_multiplier, adjacency
        common: dict[str, Any] = {
            "horizon": self.horizon,
            "shape": self.constraint.dimension,
            "sensitivity": row_sensitivity(self.clip, adjacency),
            "noise_multiplier": noise_multiplier,
            "adjacency": adjacency,
            "rng": self._rng,
        }
        # the noisy prefix sums of g_1, …, g_n
        self._sums: ContinualSum = (
            BufferedToeplitz(**common)
            if self.noise == "gaussian"
            else BinaryTree(noise="generalized_gaussian", q=self.norm, **common)
        )

    def _check_learned(self) -> None:
        if self._sums.steps != self.steps:
            raise ValueError(f"state must hold sums of steps={self.steps} rows, got {self._sums.steps}")

    def _advance(self, x: Vector, y: float, length: float) -> Vector:
        rho, g_t, cut = self._recursive_gradient(x, y, length)
        total = self._sums.add(g_t)
        self.steps += 1
        self.clipped += cut
        d_t = self._gradient
        d_t += rho * (total - self._sum - d_t)
        self._sum = total
        direction = self.constraint.linear_minimizer(d_t)
        direction -= self.theta
        direction *= self._step_length(d_t, direction)
        direction += self.theta
        return direction

    def _step_length(self, d_t: Vector, direction: Vector) -> float:
        """η_t, for the direction v_t − θ_t."""
        if self._reach is None:
            return min(1.0, self.step_scale / (self.steps + 1))
        squared = direction @ direction if self.norm == 2 else np.linalg.norm(direction, self._step_norm) ** 2
        # rounding may leave a gap below 0
        gap = max(0.0, -float(d_t @ direction))
        return min(1.0, self._reach * gap / float(squared)) if squared > 0 else 0.0


def online_frank_wolfe(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: ConvexSet,
    budget: Budget,
    noise: Noise = "gaussian",
    forgetting: float = 2.0,
    step_rule: StepRule = "short",
    step_scale: float = 1.0,
    start: ArrayLike | None = None,
    callback: Callable[[Vector], object] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Run :class:`OnlineFrankWolfe` over the rows of ``X``, in their order; the last iterate is returned.

    Parameters
    ----------
    objective, constraint, budget, noise, forgetting, step_rule, step_scale, start, rng, ledger
        As for :class:`OnlineFrankWolfe`.
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
        As for :class:`OnlineFrankWolfe`.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import glm, online_frank_wolfe
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> fit = online_frank_wolfe(
    ...     glm("squared", clip=0.5), X, X @ [1.0, -1.0, 0.0], constraint=LpBall(1.5, 3, 2.0), budget=Budget(1.0, 1e-6)
    ... )
    >>> fit.nfev, fit.cost
    (10000, Gaussian(noise_multiplier=4.22467..., adjacency='replace'))
    """

    def make(horizon: int, ledger: Ledger | None) -> OnlineFrankWolfe:
        return OnlineFrankWolfe(
            objective,
            constraint,
            horizon=horizon,
            budget=budget,
            noise=noise,
            forgetting=forgetting,
            step_rule=step_rule,
            step_scale=step_scale,
            start=start,
            rng=rng,
            ledger=ledger,
        )

    return one_pass(make, X, y, objective=objective, dimension=constraint.dimension, callback=callback, ledger=ledger)


def _norms(noise: str, constraint: ConvexSet) -> tuple[float, float]:
    """The norms of gradients and of steps: both ℓ₂, or ℓ_q and ℓ_p."""
    if noise not in get_args(Noise):
        raise ValueError(f"noise must be 'gaussian', 'generalized_gaussian' or 'paper', got noise={noise!r}")
    if noise == "gaussian":
        return 2.0, 2.0
    if not isinstance(constraint, LpBall) or constraint.p == 1:
        raise ValueError(f"constraint must be an LpBall with p > 1 for noise in its dual norm, got {constraint!r}")
    return constraint.dual, constraint.p


def _multiplier(noise: str, q: float, n: int, budget: Budget) -> float:
    """z of the noise in the sums."""
    if noise == "paper":
        if budget.delta == 0 or budget.adjacency != "replace":
            raise ValueError(f"budget must have delta > 0 and count 'replace' for noise='paper', got {budget!r}")
        levels = math.ceil(math.log2(n)) + 1
        # σ₊ of Theorem 3.1, divided by √κ and the sensitivity 2(βD + L)
        return math.sqrt(2.0 * math.log(levels / budget.delta)) * levels / budget.epsilon
    common: dict[str, Any] = {"budget": budget, "horizon": n, "shape": 1, "sensitivity": 1.0}
    if noise == "gaussian":
        return BufferedToeplitz.calibrated(**common).noise_multiplier
    return BinaryTree.calibrated(noise="generalized_gaussian", q=q, **common).noise_multiplier

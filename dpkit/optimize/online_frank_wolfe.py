"""Private online Frank–Wolfe: one pass over a stream, every iterate releasable, for sets such as ℓ_p balls.

For rows that arrive one by one, and for sets on which a linear function is easier to minimise than a distance.
Source: Han, Liang, Liang, Wang, Yao & Zhang, "On private online convex optimization: optimal algorithms in ℓ_p-geometry
and high dimensional contextual bandits", Algorithm 1 (DP-TOFW), 1 < p ≤ ∞:

    g_t = (t + 1)∇ℓ(θ_t; x_t) − t∇ℓ(θ_{t−1}; x_t),    d_t = (noisy Σ_{i≤t} g_i)/(t + 1),
    v_t = argmin_{v∈C} ⟨d_t, v⟩,                        θ_{t+1} = θ_t + η_t(v_t − θ_t),  η_t = min(1, c/(t + 1 + τ)).

d_t estimates the gradient at θ_t of the mean loss: its errors average out although every row is read at another
iterate.

Privacy. Unit: one row of the stream, that is one step. g_t is one row's, and is clipped as a whole: ψ_t is cut so that
g_t = ψ_t·x_t has ‖g_t‖ ≤ clip, so replacing the row moves the sum's t-th input by at most 2·clip, given all that
was released (clip under zero_out). Iterates are functions of the noisy sums. The whole stream costs what the sums cost:

* ``noise="gaussian"`` (default): clipping in ℓ₂ and ``BufferedToeplitz``: one Gaussian(z).
* ``noise="generalized_gaussian"``: clipping in ℓ_q, q = p/(p − 1), and a ``BinaryTree`` with noise of that geometry.
* ``noise="paper"``: the same tree with the noise of Theorem 3.1, σ₊² = 8K²κ ln(K/δ)(βD + L)²/ε², K = ⌈log₂ n⌉ + 1,
  where clip = βD + L. ``cost`` says what that tree really costs.

Steps. The paper has c = 1 and τ = 0. Early gradients are mostly noise; with τ > 0 the steps along them are short, and
the start fades like ((t + τ)/τ)^−c, so a larger c can be afforded. How small a clip is best: clipping ψ_t acts as a
Huber loss; with η = c/(t + 1) and a squared loss, ψ_t is near the residual at θ_t + c(v_t − θ_t), so a smaller c
allows a smaller clip, hence less noise.

Cost per step: two inner products, one linear minimization and O(log n) vector operations for the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Budget, Ledger, Release
from accounting._checks import integer, nonnegative, positive
from dpkit import randomness
from dpkit.continual import BinaryTree, BufferedToeplitz, ContinualSum
from dpkit.geometry import ConvexSet, LpBall
from dpkit.optimize._one_pass import one_pass
from dpkit.optimize._rows import (
    checked_budget,
    checked_row,
    checked_start,
    clip_of,
    clipped_slope,
    row_sensitivity,
)
from dpkit.optimize.objectives import GLM

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

__all__ = ["OnlineFrankWolfe", "online_frank_wolfe"]

Noise = Literal["gaussian", "generalized_gaussian", "paper"]
Vector = NDArray[np.float64]


class OnlineFrankWolfe:
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
    step_scale : float
        c, positive. 1 is the paper's. Below 1 a smaller clip will do, but the start fades more slowly: where the
        optimum may lie on the boundary, take c of 1 or more.
    delay : float, optional
        τ, in rows, at least 0; 0 is the paper's. By default the number of rows after which the length of the noise in
        d_t is a quarter of the clip norm, and at most 0.3·horizon: both are public.
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

    def __init__(
        self,
        objective: GLM,
        constraint: ConvexSet,
        *,
        horizon: int,
        budget: Budget,
        noise: Noise = "gaussian",
        step_scale: float = 0.5,
        delay: float | None = None,
        start: ArrayLike | None = None,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.objective, self.constraint = objective, constraint
        self.clip = clip_of(objective)
        self.horizon = integer("horizon", horizon, at_least=1)
        self.step_scale = positive("step_scale", step_scale)
        given = None if delay is None else nonnegative("delay", delay)
        checked_budget(budget, allowed=("replace", "zero_out"))
        self.theta = checked_start(constraint, start)
        self._iterates = np.stack([self.theta, self.theta])  # θ_t, θ_{t−1}
        self._pair = np.empty(2)
        self.steps = self.clipped = 0
        self.norm = 2.0 if noise == "gaussian" else _dual(constraint)
        self._sums = _continual(noise, self.norm, self.clip, constraint.dimension, self.horizon, budget, rng, ledger)
        noise_length = math.sqrt(constraint.dimension) * self._sums.noise_std(self.horizon)
        self.delay = min(4.0 * noise_length / self.clip, 0.3 * self.horizon) if given is None else given

    @property
    def cost(self) -> Release:
        """What the whole stream costs, whether or not all of its steps are used."""
        return self._sums.cost

    def step(self, x: ArrayLike, y: float) -> Vector:
        """Take the next row and return the next iterate, a new array.

        Parameters
        ----------
        x : (d,) array_like
        y : float

        Raises
        ------
        ValueError, TypeError
            If the row is not finite or of another shape, or the horizon is passed. Then nothing changes.
        """
        return self._advance(*checked_row(x, y, self._iterates.shape[1], self.norm))

    def _advance(self, x: Vector, y: float, length: float) -> Vector:
        if self.steps >= self.horizon:
            raise ValueError(f"at most horizon={self.horizon} rows may be taken, got row {self.steps + 1}")
        t = self.steps + 1
        with np.errstate(all="ignore"):  # what overflows is clipped
            now, before = self.objective.slope(self._iterates @ x, self._labels(y)).tolist()
        psi, cut = clipped_slope((t + 1) * now - t * before, length, self.clip)
        d_t = self._sums.add(psi * x)  # the factor 1/(t + 1) does not change the minimizer
        self.steps = t
        self.clipped += cut
        v = self.constraint.linear_minimizer(d_t)
        v -= self.theta
        v *= min(1.0, self.step_scale / (t + 1 + self.delay))
        v += self.theta
        self._iterates[1] = self.theta
        self._iterates[0] = self.theta = v
        return v.copy()

    def _labels(self, y: float) -> Vector:
        self._pair.fill(y)
        return self._pair


def online_frank_wolfe(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: ConvexSet,
    budget: Budget,
    noise: Noise = "gaussian",
    step_scale: float = 0.5,
    delay: float | None = None,
    start: ArrayLike | None = None,
    callback: Callable[[Vector], object] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Run :class:`OnlineFrankWolfe` over the rows of ``X``, in their order; the last iterate is returned.

    Parameters
    ----------
    objective, constraint, budget, noise, step_scale, delay, start, rng, ledger
        As for :class:`OnlineFrankWolfe`.
    X : (n, d) array_like
    y : (n,) array_like
    callback : callable, optional
        Called with every iterate; each of them is covered by the cost.

    Returns
    -------
    OptimizeResult
        See :func:`dpkit.optimize.result.outcome`. Without rows ``x`` is the start, at no cost.

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
            step_scale=step_scale,
            delay=delay,
            start=start,
            rng=rng,
            ledger=ledger,
        )

    return one_pass(make, X, y, dimension=constraint.dimension, callback=callback, ledger=ledger)


def _dual(constraint: ConvexSet) -> float:
    if not isinstance(constraint, LpBall) or constraint.p == 1:
        raise ValueError(f"constraint must be an LpBall with p > 1 for noise in its dual norm, got {constraint!r}")
    return constraint.dual


def _continual(
    noise: str,
    q: float,
    clip: float,
    dimension: int,
    n: int,
    budget: Budget,
    rng: np.random.Generator | None,
    ledger: Ledger | None,
) -> ContinualSum:
    """The noisy prefix sums of g_1, …, g_n."""
    common: dict[str, Any] = {
        "horizon": n,
        "shape": dimension,
        "sensitivity": row_sensitivity(clip, budget.adjacency),
        "rng": randomness.resolve(rng),
        "ledger": ledger,
        "label": "online Frank-Wolfe",
    }
    match noise:
        case "gaussian":
            return BufferedToeplitz.calibrated(budget=budget, **common)
        case "generalized_gaussian":
            return BinaryTree.calibrated(budget=budget, noise="generalized_gaussian", q=q, **common)
        case "paper":
            if budget.delta == 0 or budget.adjacency != "replace":
                raise ValueError(f"budget must have delta > 0 and count 'replace' for noise='paper', got {budget!r}")
            levels = math.ceil(math.log2(n)) + 1
            # σ₊ of Theorem 3.1, divided by √κ and the sensitivity 2(βD + L)
            z = math.sqrt(2.0 * math.log(levels / budget.delta)) * levels / budget.epsilon
            return BinaryTree(
                noise="generalized_gaussian", q=q, noise_multiplier=z, adjacency=budget.adjacency, **common
            )
        case _:
            raise ValueError(f"noise must be 'gaussian', 'generalized_gaussian' or 'paper', got noise={noise!r}")

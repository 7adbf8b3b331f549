"""Private online Frank–Wolfe over the hull of few vertices: noise on a choice, not on a vector, so d hardly matters.

For sparse models in high dimension: the ℓ₁ ball, the simplex. Source: Han, Liang, Liang, Wang, Yao & Zhang, "On
private online convex optimization: optimal algorithms in ℓ_p-geometry and high dimensional contextual bandits",
Algorithm 2 (DP-POFW), p = 1:

    g_t = (t + 1)∇ℓ(θ_t; x_t) − t∇ℓ(θ_{t−1}; x_t),    d_t = Σ_{i≤t} g_i/(t + 1)    (without noise, never released),
    v_t = report-noisy-min over the vertices v of ⟨d_t, v⟩,    θ_{t+1} = θ_t + η_t(v_t − θ_t),  η_t = min(1, c/(t + 1)).

Privacy. Unit: one row of the stream, that is one step. g_t = ψ_t·x_t is clipped to ‖g_t‖_∞ ≤ clip, so, given all that
was released, replacing a row moves every score ⟨d_t, v⟩ by at most s_t = 2·clip·max‖v‖₁/(t + 1) (half of it under
zero_out), at its own step and at all later ones. Step t costs ε_t, with Gumbel noise ε_t²/8 in zCDP (bounded range:
Cesar & Rogers 2021, arXiv:2106.09805), and the stream costs Σε_t²/8 = ρ, the largest ρ that meets the budget.

* ``noise="gumbel"`` with ``schedule="decreasing"`` (default): ε_t ∝ 1/√t. ``"constant"``: ε_t = √(8ρ/n).
* ``noise="paper"``: Laplace noise of scale 4D(βD + L)√(ln n·ln(1/δ))/(ε√t), where clip = βD + L, that is
  ε_t = ε/(2√(t·ln n·ln(1/δ))); ``cost`` says what that really costs, Σε_t²/2 in zCDP.

Cost per step: one random number per vertex, and O(d).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import ZCDP, Budget, Ledger, calibrate
from accounting._checks import integer, positive
from dpkit import randomness
from dpkit.geometry import PolyhedralSet
from dpkit.geometry.sets import vector
from dpkit.mechanisms import report_noisy_max
from dpkit.optimize._rows import (
    charge,
    checked_budget,
    checked_data,
    checked_start,
    clip_of,
    clipped_slope,
    row_sensitivity,
)
from dpkit.optimize.objectives import GLM
from dpkit.optimize.result import NOTHING, outcome

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

__all__ = ["PolyhedralOnlineFrankWolfe", "polyhedral_online_frank_wolfe"]

Vector = NDArray[np.float64]
Noise = Literal["gumbel", "paper"]
Schedule = Literal["decreasing", "constant"]


class PolyhedralOnlineFrankWolfe:
    """Frank–Wolfe on a private stream of at most ``horizon`` rows, over the hull of few vertices.

    Parameters
    ----------
    objective : GLM
        With a ``clip``: here the bound on ‖g_t‖_∞, the largest entry.
    constraint : PolyhedralSet
        Public: ``LpBall(1, d, radius)`` or ``Simplex(d, mass)``.
    horizon : int
        n, the largest number of rows.
    budget : Budget
        What the whole stream may cost, with δ > 0, counted by "replace" or "zero_out".
    noise : {"gumbel", "paper"}
    schedule : {"decreasing", "constant"}
        How the budget is spread over the steps; see the module's text.
    step_scale : float
        c, positive; 1 is the paper's.
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
        If the ledger refuses, or δ is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import PolyhedralOnlineFrankWolfe, glm
    >>> learner = PolyhedralOnlineFrankWolfe(
    ...     glm("squared", clip=0.5), LpBall(1, 100), horizon=4000, budget=Budget(2.0, 1e-6)
    ... )
    >>> rows = np.random.default_rng(0).uniform(-1, 1, size=(4000, 100))
    >>> for x in rows:
    ...     theta = learner.step(x, 0.8 * x[7])
    >>> int(np.argmax(theta)), learner.constraint.contains(theta)
    (7, True)
    """

    def __init__(
        self,
        objective: GLM,
        constraint: PolyhedralSet,
        *,
        horizon: int,
        budget: Budget,
        noise: Noise = "gumbel",
        schedule: Schedule = "decreasing",
        step_scale: float = 1.0,
        start: ArrayLike | None = None,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        if not isinstance(constraint, PolyhedralSet):
            raise TypeError(f"constraint must have vertices, such as LpBall(1, d) or Simplex(d), got {constraint!r}")
        constraint.vertex_scores(constraint.center)  # refuses a ball that is not the hull of few vertices
        self.objective, self.constraint = objective, constraint
        self.clip = clip_of(objective)
        self.horizon = n = integer("horizon", horizon, at_least=1)
        self.step_scale = positive("step_scale", step_scale)
        checked_budget(budget, allowed=("replace", "zero_out"))
        self.theta = checked_start(constraint, start)
        self._iterates = np.stack([self.theta, self.theta])  # θ_t, θ_{t−1}
        self.steps = self.clipped = 0
        # ε_t = first·t^−power; ρ = scale·Σε_t²
        self._noise: Literal["gumbel", "laplace"] = "gumbel"
        self._power = 0.5
        t = np.arange(1, n + 1)
        if noise == "paper":
            if budget.delta == 0:
                raise ValueError("budget must have delta > 0 for noise='paper', got delta=0")
            self._noise = "laplace"
            self._first = 0.5 * budget.epsilon / math.sqrt(max(1.0, math.log(n)) * math.log(1.0 / budget.delta))
            rho = self._first**2 * float(np.sum(1.0 / t)) / 2.0
        elif noise == "gumbel" and schedule in ("decreasing", "constant"):
            self._power = 0.5 if schedule == "decreasing" else 0.0
            z = calibrate(lambda z: ZCDP(0.5 / z**2, adjacency=budget.adjacency), budget)
            rho = 0.5 / z**2
            # rounded down, so that the sum of the ε_t²/8 is no more than ρ
            self._first = math.sqrt(8.0 * rho / float(np.sum(t ** (-2.0 * self._power)))) * (1.0 - 1e-12)
        else:
            raise ValueError(
                "noise must be 'gumbel' or 'paper' and schedule 'decreasing' or 'constant', "
                f"got noise={noise!r}, schedule={schedule!r}"
            )
        self.cost = ZCDP(rho, adjacency=budget.adjacency)
        self._sensitivity = row_sensitivity(self.clip, budget.adjacency) * constraint.radius_in(1.0)
        self._sum = np.zeros(constraint.dimension)
        self._rng = randomness.resolve(rng)
        charge(ledger, self.cost, "polyhedral online Frank-Wolfe", self._rng)

    def epsilon(self, t: int) -> float:
        """ε_t, what the choice at step t costs."""
        return self._first * math.pow(integer("t", t, at_least=1), -self._power)

    def step(self, x: ArrayLike, y: float) -> Vector:
        """Take the next row and return the next iterate, a new array.

        Raises
        ------
        ValueError, TypeError
            If the row is not finite or of another shape, or the horizon is passed. Then nothing changes.
        """
        row = vector("x", x, self.constraint.dimension)
        label = float(vector("y", np.reshape(y, -1), 1)[0])
        if self.steps >= self.horizon:
            raise ValueError(f"at most horizon={self.horizon} rows may be taken, got row {self.steps + 1}")
        t = self.steps + 1
        with np.errstate(all="ignore"):  # what overflows is clipped
            now, before = self.objective.slope(self._iterates @ row, np.full(2, label)).tolist()
        psi, cut = clipped_slope((t + 1) * now - t * before, float(np.abs(row).max()), self.clip)
        self.steps = t
        self.clipped += cut
        self._sum += psi * row
        # scores and their sensitivity both without the factor 1/(t + 1)
        scores = self.constraint.vertex_scores(self._sum)
        best = report_noisy_max(scores, self._sensitivity, self.epsilon(t), self._noise, minimise=True, rng=self._rng)
        v = self.constraint.vertex(best)
        v -= self.theta
        v *= min(1.0, self.step_scale / (t + 1))
        v += self.theta
        self._iterates[1] = self.theta
        self._iterates[0] = self.theta = v
        return v.copy()


def polyhedral_online_frank_wolfe(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: PolyhedralSet,
    budget: Budget,
    noise: Noise = "gumbel",
    schedule: Schedule = "decreasing",
    step_scale: float = 1.0,
    start: ArrayLike | None = None,
    callback: Callable[[Vector], object] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Run :class:`PolyhedralOnlineFrankWolfe` over the rows of ``X``, in their order; the last iterate is returned.

    Parameters
    ----------
    objective, constraint, budget, noise, schedule, step_scale, start, rng, ledger
        As for :class:`PolyhedralOnlineFrankWolfe`.
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
        As for :class:`PolyhedralOnlineFrankWolfe`.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import Simplex
    >>> from dpkit.optimize import glm, polyhedral_online_frank_wolfe
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(3000, 50))
    >>> fit = polyhedral_online_frank_wolfe(
    ...     glm("squared", clip=0.5), X, X[:, 3], constraint=Simplex(50), budget=Budget(2.0, 1e-6)
    ... )
    >>> int(np.argmax(fit.x)), fit.nit
    (3, 3000)
    """
    rows, labels = checked_data(X, y, constraint.dimension)
    n = len(rows)
    learner = PolyhedralOnlineFrankWolfe(
        objective,
        constraint,
        horizon=max(1, n),
        budget=budget,
        noise=noise,
        schedule=schedule,
        step_scale=step_scale,
        start=start,
        rng=rng,
        ledger=None if n == 0 else ledger,
    )
    if n == 0:
        return outcome(learner.theta, NOTHING, nit=0, nfev=0, message="no rows: the start is returned", clipped=0)
    for x, label in zip(rows, labels.tolist(), strict=True):
        theta = learner.step(x, label)
        if callback is not None:
            callback(theta)
    return outcome(
        learner.theta, learner.cost, nit=n, nfev=2 * n, message=f"one pass over {n} rows", clipped=learner.clipped
    )

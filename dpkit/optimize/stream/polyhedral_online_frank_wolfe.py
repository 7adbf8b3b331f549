"""Private online Frank–Wolfe over the hull of few vertices: noise on a choice, not on a vector, so d hardly matters.

For sparse models in high dimension: the ℓ₁ ball, the simplex. Source: Han, Liang, Liang, Wang, Yao & Zhang, "On
private online convex optimization: optimal algorithms in ℓ_p-geometry and high dimensional contextual bandits",
Algorithm 2 (DP-POFW), p = 1. Here, with ρ_t = r/(t + 1),

    g_t = ∇ℓ(θ_t; x_t) + (1/ρ_t − 1)(∇ℓ(θ_t; x_t) − ∇ℓ(θ_{t−1}; x_t)),
    d_t = d_{t−1} + ρ_t(g_t − d_{t−1})    (without noise, never released),
    v_t = report-noisy-min over the vertices v of ⟨d_t, v⟩,  or v_{t−1} between two choices,
    θ_{t+1} = θ_t + η_t(v_t − θ_t),  η_t = min(1, c/(t + 1 + τ)).

Choices. The paper chooses at every step. But d_t changes slowly, so a vertex chosen at t serves for the next ``hold``·t
steps as well: a choice is made at t = 1 and then again after max(1, ⌊hold·t⌋) steps, that is K of order ln(n)/hold
times. The price is a coarser Frank–Wolfe step, of c·hold. Early choices are mostly noise; with τ > 0 the steps along
them are short.

Forgetting. In d_t the row i has a weight of order i^(r−1)/t^r. The paper's r = 1 weighs all rows alike: early
gradients, the worst, count as much as any, and a row takes part in all choices after it in the same way. With r = 2
it counts i/t of what the newest row counts, so it spends on K choices what it would spend on 1/(1 − (1 + hold)⁻²) of
them, about six. That pays for less noise, although the newest row counts twice.

Privacy. Unit: one row of the stream, that is one step. g_t = ψ_t·x_t is clipped to ‖g_t‖_∞ ≤ clip, so, given all that
was released, replacing row t moves every score ⟨d_t, v⟩ by at most s_t = 2·clip·ρ_t·max‖v‖₁ (half of it under
zero_out), and replacing row i ≤ t by ω(i, t)·s_t, where ω(i, t) = ρ_i(1 − ρ_{i+1})⋯(1 − ρ_t)/ρ_t ≤ 1. When to choose is
public. With Gumbel noise of scale 2s_t/ε_t a choice has bounded range ω(i, t)·ε_t for row i, hence costs
(ω(i, t)·ε_t)²/8 in zCDP (Cesar & Rogers 2021, arXiv:2106.09805). The stream costs the most that one row spends,

    max_i Σ_{t ≥ i} ((ω(i, t) + κ_t)·ε_t)²/8 = ρ,

the largest ρ that meets the budget; as ω(i, t) grows with i, only the rows at which a choice is made need a look. The
choice is sampled exactly, from the scores as computed; κ_t covers their rounding. A step of d_t in float64 is off by at
most 5u·clip in each entry, u = 2⁻⁵³ (u·clip for the sum, 4ρ_tu·clip for what is added), so that d_t is within 5tu·clip,
and a score within (5t + 1)u·clip·max‖v‖₁, which is κ_t·s_t/2: two runs on neighbours come κ_t·s_t farther apart.

* ``noise="gumbel"`` (default): ε_t² ∝ ln(t⁺/t), where t⁺ is the time of the next choice. So ε_t falls like 1/√t while
  every step chooses, as the paper's does, and is constant where the times of choices grow geometrically.
* ``noise="paper"``: Laplace noise at the ε_t = ε/(2√(t·ln n·ln(1/δ))) of the paper's proof (appendix A.6), where
  clip = βD + L; ``cost`` says what that really costs, with ε_t²/2 in place of ε_t²/8. Its scale is
  4D(βD + L)√(t·ln n·ln(1/δ))/(ε(t + 1)), that is t/(t + 1) times the scale of line 8.

``noise="paper", forgetting=1, hold=0, delay=0`` is near the paper's algorithm: beside the scale, d_1 is ½∇ℓ(θ_1; x_1)
and not ∇ℓ(θ_1; x_1), with which the first row would count twice. To the letter, and not private as claimed, it is
:class:`~dpkit.optimize.stream.published_frank_wolfe.PublishedPolyhedralOnlineFrankWolfe`.

Cost per step: O(d); per choice: one random number per vertex.

One algorithm, one file: a quarter of it is the proof above.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import ZCDP, Adjacency, Budget, Release, calibrate
from accounting.checks import integer, nonnegative, positive
from dpkit import randomness
from dpkit.geometry import PolyhedralSet
from dpkit.mechanisms import report_noisy_max
from dpkit.models.losses import GLM
from dpkit.optimize.parts.recursive_gradients import RecursiveGradients
from dpkit.optimize.parts.stream_learner import one_pass
from dpkit.training.rows import checked_budget, checked_start, row_sensitivity

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["PolyhedralOnlineFrankWolfe", "polyhedral_online_frank_wolfe"]

Vector = NDArray[np.float64]
Noise = Literal["gumbel", "paper"]


class PolyhedralOnlineFrankWolfe(RecursiveGradients[PolyhedralSet]):
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
        See the module's text.
    forgetting : float
        r, from 1 to 2: how much more late rows weigh than early ones, ρ_t = r/(t + 1). 1 is the paper's.
    hold : float
        At least 0 and at most 1: how long a choice is kept, in units of the steps before it.
    step_scale : float
        c, positive; 1 is the paper's.
    delay : float, optional
        τ, in rows, at least 0; 0 is the paper's. By default the number of rows after which the noise in a choice,
        about ln(number of vertices) times its scale, is half of the largest score that clipping allows, if choices
        were as expensive as the last; and at most 0.3·horizon.
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
    ...     glm("squared", clip=0.5), LpBall(1, 20), horizon=1500, budget=Budget(4.0, 1e-6)
    ... )
    >>> rows = np.random.default_rng(0).uniform(-1, 1, size=(1500, 20))
    >>> for x in rows:
    ...     theta = learner.step(x, 0.8 * x[7])
    >>> int(np.argmax(theta)), learner.constraint.contains(theta)
    (7, True)
    """

    norm = math.inf
    _LABEL = "polyhedral online Frank-Wolfe"
    _PARAMETERS = ("horizon", "noise", "forgetting", "hold", "step_scale")
    _NOISE = ("rho", "adjacency", "delay")
    _LEARNED = ("steps", "clipped", "_iterates", "_gradient", "_vertex", "_made")

    def __init__(
        self,
        objective: GLM,
        constraint: PolyhedralSet,
        *,
        horizon: int,
        budget: Budget,
        noise: Noise = "gumbel",
        forgetting: float = 2.0,
        hold: float = 0.1,
        step_scale: float = 1.0,
        delay: float | None = None,
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
            hold=hold,
            step_scale=step_scale,
        )
        given = None if delay is None else nonnegative("delay", delay)
        checked_budget(budget, allowed=("replace", "zero_out"))
        self._begin(checked_start(constraint, start))
        self._rng = randomness.resolve(rng)
        self._prepare(self._largest_rho(budget), budget.adjacency, given)
        self._open(ledger)

    def _configure(
        self,
        objective: GLM,
        constraint: PolyhedralSet,
        *,
        horizon: int,
        noise: str,
        forgetting: float,
        hold: float,
        step_scale: float,
    ) -> None:
        if not isinstance(constraint, PolyhedralSet):
            raise TypeError(f"constraint must have vertices, such as LpBall(1, d) or Simplex(d), got {constraint!r}")
        constraint.vertex_scores(constraint.center)  # refuses a ball that is not the hull of few
        self._keep_steps(objective, constraint, horizon, forgetting, step_scale)
        if self.forgetting > 2:
            raise ValueError(f"forgetting must be at most 2, got forgetting={forgetting!r}")
        if noise not in get_args(Noise):
            raise ValueError(f"noise must be 'gumbel' or 'paper', got noise={noise!r}")
        self.noise = noise
        self.hold = nonnegative("hold", hold)
        if self.hold > 1:
            raise ValueError(f"hold must be at most 1, got hold={hold!r}")
        self._times = _choices(self.horizon, self.hold)

    def _begin(self, start: Vector) -> None:
        super()._begin(start)
        self._vertex = start
        self._made = 0

    @property
    def cost(self) -> Release:
        return self._cost

    def _largest_rho(self, budget: Budget) -> float:
        """ρ, what the most expensive row spends."""
        if self.noise == "paper":
            if budget.delta == 0:
                raise ValueError("budget must have delta > 0 for noise='paper', got delta=0")
            n_and_delta = max(1.0, math.log(self.horizon)) * math.log(1.0 / budget.delta)
            epsilons = 0.5 * budget.epsilon / np.sqrt(n_and_delta * self._times)
            return self._dearest_row(epsilons, budget.adjacency) / 2.0
        z = calibrate(lambda z: ZCDP(0.5 / z**2, adjacency=budget.adjacency), budget)
        return 0.5 / z**2

    def _prepare(self, rho: float, adjacency: Adjacency, delay: float | None) -> None:
        """Share ρ out among the choices, ε_t, and fix the delay."""
        self.rho, self.adjacency = positive("rho", rho), adjacency
        self._cost = ZCDP(self.rho, adjacency=adjacency)
        if self.noise == "paper":
            relative, loss = 1.0 / np.sqrt(self._times), 2.0
        else:
            following = np.append(self._times[1:], _next(self._times[-1], self.hold))
            relative, loss = np.sqrt(np.log(following / self._times)), 8.0
        # rounded down, so that no row spends more than ρ
        unit = math.sqrt(loss * rho / self._dearest_row(relative, adjacency)) * (1.0 - 1e-9)
        self._epsilons = relative * unit
        # 2·s_t/ρ_t·ln(number of vertices) over ε_t, of the last choice, against scores of clip·max‖v‖₁
        last = 2.0 * self.forgetting * row_sensitivity(1.0, adjacency) / float(self._epsilons[-1])
        vertices = len(self.constraint.vertex_scores(self.constraint.center))
        noisy = min(2.0 * last * math.log(vertices), 0.3 * self.horizon)
        self.delay = noisy if delay is None else nonnegative("delay", delay)

    def _dearest_row(self, epsilons: Vector, adjacency: Adjacency) -> float:
        """max_i Σ_{t ≥ i} ((ω(i, t) + κ_t)·ε_t)² over the times t of choices."""
        from scipy.special import poch

        times, r = self._times, self.forgetting
        # ω(i, t) = a_i/a_t, as 1/(1 − ρ_2)⋯(1 − ρ_t) is proportional to Γ(t + 2)/Γ(t + 2 − r)
        a = r / (times + 1) * poch(times + 2 - r, r)
        kappa = 2.0**-52 * (5.0 * times + 1.0) * (times + 1.0) / (r * row_sensitivity(1.0, adjacency))

        def later(terms: Vector) -> Vector:
            return np.asarray(np.cumsum(terms[::-1])[::-1])

        squares = epsilons**2
        spent = later(squares / a**2) * a**2 + 2.0 * a * later(kappa * squares / a) + later(kappa**2 * squares)
        return float(spent.max())

    def _check_learned(self) -> None:
        if self._made != int(np.searchsorted(self._times, self.steps, side="right")):
            raise ValueError(f"state must have made the choices of steps={self.steps} rows, got {self._made} choices")

    def epsilon(self, t: int) -> float:
        """ε_t, what the choice at step t costs; 0 if none is made there."""
        i = int(np.searchsorted(self._times, integer("t", t, at_least=1)))
        return float(self._epsilons[i]) if i < len(self._times) and self._times[i] == t else 0.0

    def _advance(self, x: Vector, y: float, length: float) -> Vector:
        rho, g_t, cut = self._recursive_gradient(x, y, length)
        self.steps += 1
        self.clipped += cut
        self._gradient += rho * (g_t - self._gradient)
        if self._made < len(self._times) and self._times[self._made] == self.steps:
            self._choose(rho)
        direction = self._vertex - self.theta
        direction *= min(1.0, self.step_scale / (self.steps + 1 + self.delay))
        direction += self.theta
        return direction

    def _choose(self, rho: float) -> None:
        """v_t: the vertex of the least noisy score."""
        scores = self.constraint.vertex_scores(self._gradient)
        sensitivity = rho * row_sensitivity(self.clip, self.adjacency) * self.constraint.radius_in(1.0)
        law: Literal["gumbel", "laplace"] = "gumbel" if self.noise == "gumbel" else "laplace"
        epsilon = float(self._epsilons[self._made])
        self._made += 1
        best = report_noisy_max(scores, sensitivity, epsilon, law, minimise=True, rng=self._rng)
        self._vertex = self.constraint.vertex(best)


def _next(t: float, hold: float) -> int:
    """The step of the choice after that at step t."""
    return int(t) + max(1, int(hold * t))


def _choices(n: int, hold: float) -> NDArray[np.float64]:
    """The steps up to n at which a vertex is chosen, from 1 on."""
    times = [1]
    while (after := _next(times[-1], hold)) <= n:
        times.append(after)
    return np.array(times, dtype=np.float64)


def polyhedral_online_frank_wolfe(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: PolyhedralSet,
    budget: Budget,
    noise: Noise = "gumbel",
    forgetting: float = 2.0,
    hold: float = 0.1,
    step_scale: float = 1.0,
    delay: float | None = None,
    start: ArrayLike | None = None,
    callback: Callable[[Vector], object] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Run :class:`PolyhedralOnlineFrankWolfe` over the rows of ``X``, in their order; the last iterate is returned.

    Parameters
    ----------
    objective, constraint, budget, noise, forgetting, hold, step_scale, delay, start, rng, ledger
        As for :class:`PolyhedralOnlineFrankWolfe`.
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
        As for :class:`PolyhedralOnlineFrankWolfe`.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import Simplex
    >>> from dpkit.optimize import glm, polyhedral_online_frank_wolfe
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(1200, 20))
    >>> fit = polyhedral_online_frank_wolfe(
    ...     glm("squared", clip=0.5), X, X[:, 3], constraint=Simplex(20), budget=Budget(4.0, 1e-6)
    ... )
    >>> int(np.argmax(fit.x)), fit.nit
    (3, 1200)
    """

    def make(horizon: int, ledger: Ledger | None) -> PolyhedralOnlineFrankWolfe:
        return PolyhedralOnlineFrankWolfe(
            objective,
            constraint,
            horizon=horizon,
            budget=budget,
            noise=noise,
            forgetting=forgetting,
            hold=hold,
            step_scale=step_scale,
            delay=delay,
            start=start,
            rng=rng,
            ledger=ledger,
        )

    return one_pass(make, X, y, objective=objective, dimension=constraint.dimension, callback=callback, ledger=ledger)

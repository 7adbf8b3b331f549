"""Private implicit gradient descent: online proximal steps, one row each, with noise on what is published.

For streams of convex losses whose curvature has no bound (Poisson), or whose steps would overshoot: a proximal step
never does. Source: Jain, Kothari & Thakurta (2012), "Differentially private online learning", COLT; the step is that of
Kulis & Bartlett (2010). With f_t(θ) = ℓ(θ; x_t) + (λ/2)‖θ − θ_1‖²,

    u_{t+1} = Π(argmin_v ½‖v − w_t‖² + η_t f_t(v)) = Π((w_t + η_tλθ_1 − η_tψ_t·x_t)/(1 + η_tλ)),

where ψ_t = ℓ′ at the new point solves an equation in one unknown, cut so that ‖ψ_t·x_t‖ ≤ L = ``objective.clip`` (the
step of the loss that grows with slope L only where ℓ is steeper, which is convex as well). In two forms:

* ``steps_from="published"`` (default): w_t = θ_t, what was published last, and the noise is in the gradient:
  θ_{t+1} = Π((θ_t + η_tλθ_1 − η_t(ψ_t·x_t + noise))/(1 + η_tλ)).
* ``steps_from="hidden"``: the paper's. w_t = u_t is kept without noise, and θ_{t+1} = Π(u_{t+1} + noise), η_t = 1/(λt).

Privacy. Unit: one row of the stream, that is one step.

* "published": given what was published before, row t moves ψ_t·x_t alone, by at most 2L (L under zero_out), and later
  steps read published numbers only. So each row takes part in one release, and the stream costs one Gaussian(z).
* "hidden": a step on f_t brings two states closer by the factor 1/(1 + η_tλ) = t/(t + 1), as ℓ is convex and Π does not
  expand; another row in its place moves it by at most 2Lη_t/(1 + η_tλ) = 2L/(λ(t + 1)). Whichever row is replaced,
  u_{t+1} moves by at most s_t = 2L/(λ(t + 1)) (half of it under zero_out), and all T releases see it. Noise of z·s_t
  each costs T × Gaussian(z), which composes exactly: z is √T times that of one release. The paper's strong composition
  ends at a multiple of the ε it is given.

Rounding. In "published" whatever ψ_t is computed by, the gradient is cut to L as a real number and noised exactly. In
"hidden" float64 leaves u_{t+1} within some ω of where it should be, so that s_t grows by 2ω Σ_{i≤t} (i + 1)/(t + 1) ≤
ω(t + 3). Rows are shortened to R = ``row_norm``. With u = 2⁻⁵³, ρ the largest ‖θ‖ in C, K = L/λ the longest step, and
Π computed within π (``projection_error``),

    ω = 2u((d + 40)(ρ + K) + KRe/L) + π,    e = ``objective.slope_rounding(R(ρ + K))``:

the equation for ψ is solved up to 2⁻⁴⁸ of its largest value (32uK), ψ itself is computed within eu + u|ψ|, and as both
sides of the equation grow apart with slope 1 at least, its root is off by no more; an error δ in xᵀu moves the step by
δ/‖x‖ at most, which is (2d + 16)uρ, and that of ‖x‖² by (d + 6)uK; sums and products of vectors take 16u(ρ + K). Rows
of ‖x‖² < 10⁻²⁸⁰ have too few digits for that, and count as 0.

Regret, in expectation over the noise, with R_C the largest ‖θ − θ_1‖ in C, L′ = L + λR_C a bound on the gradients of
f_t, and σ the noise multiplier times 2L (L under zero_out):

* "published", λ > 0: η_t = 1/(λt), and (L′² + dσ²)(1 + ln T)/(2λ) + λR_C²/2.
* "published", λ = 0: η_t = √2·R_C/√(t(L² + dσ²)), and 2√2·R_C√(T(L² + dσ²)).
* "hidden": (L′² + 2L′√d·σ)(1 + ln T)/(2λ) + λR_C²/2, where σ has a factor √T: so √T for strongly convex losses. Where
  λ = 0 the learner adds λ = G√((1 + ln T)/T)/R_C, G² = L² + 2L√d·σ, which costs λTR_C²/2 more: T^{3/4} in all.

(A proximal step on a λ-strongly convex f brings (1/η)‖u − θ‖² down by 2(f(u′) − f(θ)) + λ‖u′ − θ‖² + ‖u′ − u‖²/η; what
is lost between u and u′ is at most ηL′²/2. With 1/η_t = λt these telescope. Noise in a step adds η_t²dσ²/(1 + η_tλ)² to
the square; noise of a publication costs L′ times its length.) The feedback of noise costs dσ² where hiding costs √T:
"published" is the better one from T = d(σ/L)² on, σ that of "published".

Cost per step: about ten slopes, one projection (two if hidden) and d random numbers.

One file for both forms: they share the equation for ψ, and either is read against the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Budget, Gaussian, Release, calibrate
from accounting.checks import choice, positive
from dpkit import randomness
from dpkit.clipping import clipped_slope, shortened
from dpkit.geometry import ConvexSet
from dpkit.mechanisms import GaussianMechanism
from dpkit.models.losses import GLM
from dpkit.optimize.parts.stream_learner import StreamLearner, checked_ridge, one_pass
from dpkit.training.rows import checked_budget, checked_start, convex_labels, row_sensitivity

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["ImplicitGradientDescent", "implicit_gradient_descent"]

StepsFrom = Literal["published", "hidden"]
Vector = NDArray[np.float64]


class ImplicitGradientDescent(StreamLearner[ConvexSet]):
    """Proximal steps on a private stream of at most ``horizon`` rows.

    Parameters
    ----------
    objective : GLM
        With a ``clip``: L, the bound on ‖ψ_t·x_t‖₂. Its slope must not decrease in η, as that of every convex loss;
        labels for "probit" are cut to [0, 1], where it is convex.
    constraint : ConvexSet
        C, public.
    horizon : int
        T, the largest number of rows.
    budget : Budget
        What the whole stream may cost, counted by "replace" or "zero_out".
    ridge : float
        λ of the losses f_t; 0 (default) if they are ℓ alone.
    steps_from : {"published", "hidden"}
        See the module's text.
    row_norm : float
        R, public: with "hidden" longer rows are shortened to it.
    step_scale : float
        Multiplies η_t where ``ridge`` is 0 (for "hidden" it divides the λ that is chosen).
    start : (d,) array_like, optional
        θ_1; by default the set's centre.
    rng : numpy.random.Generator, optional
        None draws from the secure source, on a lattice; a seeded generator gives a simulation.
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
        How many ψ_t were clipped. Not private.

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
    >>> from dpkit.optimize import ImplicitGradientDescent, glm
    >>> source = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> learner = ImplicitGradientDescent(
    ...     glm("poisson", clip=1.0), LpBall(2, 3, 2.0), horizon=1500, budget=Budget(8.0, 1e-6), rng=source
    ... )
    >>> for x in source.normal(size=(1500, 3)) / 2:
    ...     theta = learner.step(x, source.poisson(np.exp(x[0] - x[1])))
    >>> learner.steps, bool(theta[0] > 0.1 > -0.1 > theta[1])
    (1500, True)
    """

    norm = 2.0
    _LABEL = "implicit gradient descent"
    _PARAMETERS = ("horizon", "ridge", "steps_from", "row_norm", "step_scale")
    _NOISE = ("noise_multiplier", "adjacency")
    _LEARNED = ("steps", "clipped", "_start", "_iterates", "_hidden")

    def __init__(
        self,
        objective: GLM,
        constraint: ConvexSet,
        *,
        horizon: int,
        budget: Budget,
        ridge: float = 0.0,
        steps_from: StepsFrom = "published",
        row_norm: float = 1.0,
        step_scale: float = 1.0,
        start: ArrayLike | None = None,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._configure(
            objective,
            constraint,
            horizon=horizon,
            ridge=ridge,
            steps_from=steps_from,
            row_norm=row_norm,
            step_scale=step_scale,
        )
        checked_budget(budget, allowed=("replace", "zero_out"))
        self._begin(checked_start(constraint, start))
        self._rng = randomness.resolve(rng)
        z = calibrate(lambda z: self._releases * Gaussian(z, adjacency=budget.adjacency), budget)
        self._prepare(z, budget.adjacency)
        self._open(ledger)

    def _configure(
        self,
        objective: GLM,
        constraint: ConvexSet,
        *,
        horizon: int,
        ridge: float,
        steps_from: str,
        row_norm: float,
        step_scale: float,
    ) -> None:
        self._keep(objective, constraint, horizon)
        self.ridge = checked_ridge(ridge, self.clip)
        self.steps_from = choice("steps_from", steps_from, "published", "hidden")
        self.row_norm = positive("row_norm", row_norm)
        self.step_scale = positive("step_scale", step_scale)
        # that a row takes part in
        self._releases = 1 if steps_from == "published" else self.horizon

    def _begin(self, start: Vector) -> None:
        super()._begin(start)
        self._start = start.copy()
        self._hidden = start.copy()  # u_t; of no use where steps are from what was published

    @property
    def cost(self) -> Release:
        return self._releases * Gaussian(self.noise_multiplier, adjacency=self.adjacency)

    def _prepare(self, noise_multiplier: float, adjacency: Adjacency) -> None:
        self.noise_multiplier, self.adjacency = positive("noise_multiplier", noise_multiplier), adjacency
        L, T, d = self.clip, self.horizon, self.constraint.dimension
        sigma = noise_multiplier * row_sensitivity(L, adjacency)
        radius = max(0.5 * self.constraint.diameter(), 1e-200)  # R_C, for a start in the middle; C may be a point
        self.curvature = self.ridge  # λ
        if self.steps_from == "published":
            self._first_step = self.step_scale * math.sqrt(2.0 / (L**2 + d * sigma**2)) * radius
            self._noise = self._mechanism(row_sensitivity(L, adjacency))
            return
        if self.ridge == 0:
            G = math.sqrt(L**2 + 2.0 * L * math.sqrt(d) * sigma)
            self.curvature = G * math.sqrt((1.0 + math.log(T)) / T) / (radius * self.step_scale)
        R, K = self.row_norm, L / self.curvature
        rho = float(np.linalg.norm(self.constraint.center)) + self.constraint.diameter()
        # ω
        e = self.objective.slope_rounding(R * (rho + K))
        self._rounding = 2.0**-52 * ((d + 40) * (rho + K) + K * R * e / L) + self.constraint.projection_error(rho + K)
        if not self._rounding < math.inf:
            raise ValueError(
                f"row_norm, the constraint and clip/ridge must be such that float64 holds a step, got row_norm={R!r}, "
                f"iterates up to {rho:g} and clip/ridge={K:g}"
            )

    def _mechanism(self, sensitivity: float) -> GaussianMechanism:
        return GaussianMechanism(
            noise_multiplier=self.noise_multiplier, sensitivity=sensitivity, adjacency=self.adjacency, rng=self._rng
        )

    def _check_learned(self) -> None:
        if not self.constraint.contains(self._hidden) or not self.constraint.contains(self._start):
            raise ValueError("state must hold a start and a hidden iterate in the set, got others")

    def sensitivity(self, t: int) -> float:
        """How far one row moves the release of step t: the gradient, or with "hidden" the iterate, and its rounding."""
        if self.steps_from == "published":
            return row_sensitivity(self.clip, self.adjacency)
        return row_sensitivity(self.clip, self.adjacency) / (self.curvature * (t + 1)) + self._rounding * (t + 3)

    def _advance(self, x: Vector, y: float, length: float) -> Vector:
        y = float(convex_labels(self.objective, np.array([y]))[0])
        if self.steps_from == "published":
            return self._published_step(x, y, length)
        rows, found = shortened(x[None], self.row_norm)
        return self._hidden_step(rows[0], y, float(found[0]))

    def _published_step(self, x: Vector, y: float, length: float) -> Vector:
        t = self.steps + 1
        eta = 1.0 / (self.ridge * t) if self.ridge > 0 else self._first_step / math.sqrt(t)
        shrink = 1.0 / (1.0 + eta * self.ridge)
        theta = (self._iterates[0] + (eta * self.ridge) * self._start) * shrink
        psi = self._implicit_slope(theta, x, y, length, eta * shrink)
        theta -= (eta * shrink) * self._noise.release(psi * x)
        self.steps = t
        return self.constraint.project(theta)

    def _hidden_step(self, x: Vector, y: float, length: float) -> Vector:
        t = self.steps + 1
        eta, shrink = 1.0 / (self.curvature * t), t / (t + 1.0)
        u = (self._hidden + self._start / t) * shrink
        psi = self._implicit_slope(u, x, y, length, eta * shrink)
        u = self.constraint.project(u - (eta * shrink * psi) * x)
        published = self.constraint.project(self._mechanism(self.sensitivity(t)).release(u))
        self._hidden = u
        self.steps = t
        return published

    def _implicit_slope(self, theta: Vector, x: Vector, y: float, length: float, eta: float) -> float:
        """ψ = ℓ′(xᵀ(θ − ηψx)), cut so that ‖ψ·x‖ ≤ clip."""
        bound, _ = clipped_slope(math.inf, length, self.clip)
        squared = float(np.vdot(x, x))
        if squared < 1e-280:  # which has too few digits for the equation
            psi = 0.0
        elif squared == math.inf:  # so the step is published, and any slope will do
            psi = self._slope(float(np.vdot(x, theta)), y, bound)
        else:
            psi = self._root(float(np.vdot(x, theta)), eta * squared, y, bound)
        self.clipped += abs(psi) >= bound
        return psi

    def _slope(self, eta: float, y: float, bound: float) -> float:
        with np.errstate(all="ignore"):  # what overflows is clipped
            psi = float(self.objective.slope(np.array([eta]), np.array([y]))[0])
        return 0.0 if psi != psi else max(-bound, min(bound, psi))

    def _root(self, eta: float, m: float, y: float, bound: float) -> float:
        """s = ℓ′(η − m·s), cut to ±bound, up to 2⁻⁴⁸·bound: by the rule of false position, halving when it is slow.

        The right-hand side does not increase in s, so the root is between 0 and its value there, and no farther from s
        than the two sides are apart.
        """
        low, high = sorted((0.0, self._slope(eta, y, bound)))
        below = self._slope(eta - m * low, y, bound) - low
        above = self._slope(eta - m * high, y, bound) - high
        close, s = 2.0**-48 * bound, high if below <= 0 else low
        for i in range(200):
            if below <= close:
                return low
            if above >= -close:
                return high
            if high - low <= close:
                break
            s = low + (high - low) * (0.5 if i % 3 == 2 else below / (below - above))
            excess = self._slope(eta - m * s, y, bound) - s
            if excess > 0:
                low, below = s, excess
            else:
                high, above = s, excess
        return s


def implicit_gradient_descent(
    objective: GLM,
    X: ArrayLike,
    y: ArrayLike,
    *,
    constraint: ConvexSet,
    budget: Budget,
    ridge: float = 0.0,
    steps_from: StepsFrom = "published",
    row_norm: float = 1.0,
    step_scale: float = 1.0,
    start: ArrayLike | None = None,
    callback: Callable[[Vector], object] | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Run :class:`ImplicitGradientDescent` over the rows of ``X``, in their order; the last iterate is returned.

    Parameters
    ----------
    objective, constraint, budget, ridge, steps_from, row_norm, step_scale, start, rng, ledger
        As for :class:`ImplicitGradientDescent`.
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
        As for :class:`ImplicitGradientDescent`.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import glm, implicit_gradient_descent
    >>> X = np.random.default_rng(0).normal(size=(1000, 3)) / 3
    >>> common = {"constraint": LpBall(2, 3, 2.0), "budget": Budget(1.0, 1e-6)}
    >>> fit = implicit_gradient_descent(glm("squared", clip=0.5), X, X @ [1.0, -1.0, 0.0], **common)
    >>> fit.nfev, fit.cost
    (1000, Gaussian(noise_multiplier=4.22467..., adjacency='replace'))
    """

    def make(horizon: int, ledger: Ledger | None) -> ImplicitGradientDescent:
        return ImplicitGradientDescent(
            objective,
            constraint,
            horizon=horizon,
            budget=budget,
            ridge=ridge,
            steps_from=steps_from,
            row_norm=row_norm,
            step_scale=step_scale,
            start=start,
            rng=rng,
            ledger=ledger,
        )

    return one_pass(make, X, y, objective=objective, dimension=constraint.dimension, callback=callback, ledger=ledger)

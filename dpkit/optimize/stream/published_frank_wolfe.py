"""DP-TOFW and DP-POFW exactly as published, to compare with: for neither does the paper's claim of privacy stand.

For whoever checks a published figure, and for nobody's data. :class:`~dpkit.optimize.OnlineFrankWolfe` and
:class:`~dpkit.optimize.PolyhedralOnlineFrankWolfe` are the private forms, with proofs.

Source: Han, Liang, Liang, Wang, Yao & Zhang, "On private online convex optimization: optimal algorithms in ℓ_p-geometry
and high dimensional contextual bandits", arXiv:2206.08111.

:class:`PublishedOnlineFrankWolfe` is Algorithm 1 on the tree of Algorithm 5 with the noise of Algorithm 4:

    g_t = (t + 1)∇f(θ_t; x_t) − t∇f(θ_{t−1}; x_t)                                               (3.1)
    d_t = G̃_t/(t + 1),  G̃_t the noisy sum of g_1, …, g_t
    v_t = argmin_{v∈C} ⟨d_t, v⟩,   θ_{t+1} = θ_t + η_t(v_t − θ_t),   η_t = min(1, c/(t + 1)).

A node's noise has a squared radius from Γ(d/2, 2σ₊) along a direction of the ℓ_{q⁺} sphere, with σ₊ of Theorem 3.1,
κ_q = min{q − 1, e²(ln d − 1)} and q⁺ = min{q − 1, ln d − 1} for p ≤ 2 (Lemma 3.2), and κ_q = d^(1−2/p) and the norm
d^(1/2−1/p)‖·‖₂ for p > 2 (Lemma 3.3). Not private as claimed: the density that the proof needs has Γ(d/2, 2σ₊²), so the
noise is about √σ₊ times too small; and q⁺ gives no norm below 1, none that is smooth below 2, and one that is too far
from ‖·‖_q in high dimensions (``docs/errata.md``).

:class:`PublishedPolyhedralOnlineFrankWolfe` is Algorithm 2:

    d_1 = ∇f(θ_1; x_1),   d_t = ∇f(θ_t; x_t) + (1 − 1/(t + 1))(d_{t−1} − ∇f(θ_{t−1}; x_t)),
    v_t = argmin over the vertices of ⟨d_t, v⟩ + n_v,   n_v ~ Lap(4D(βD + L)√(ln n·ln(1/δ))/(ε√t)),
    θ_{t+1} = θ_t + η_t(v_t − θ_t).

Its claim is not proved: row 1 counts twice in every later d_t, which the proof's sensitivity leaves out. No violation
is known.

Both trust βD + L to bound what a row adds. Nothing is clipped, so a row that is longer than said is not protected at
all. Neither has a cost or a ledger. Noise is floating-point noise.

Cost per step: two inner products, one linear minimization, and on average two draws of the dimension's noise or one
draw per vertex.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.checks import fraction, integer, positive
from accounting.errors import NotPrivateWarning
from dpkit.geometry import ConvexSet, LpBall, PolyhedralSet
from dpkit.models.losses import GLM
from dpkit.training.rows import checked_row

__all__ = ["PublishedOnlineFrankWolfe", "PublishedPolyhedralOnlineFrankWolfe", "choice_scale"]

Vector = NDArray[np.float64]
Set = TypeVar("Set", bound=ConvexSet)


class _Published(ABC, Generic[Set]):
    """θ_0 = θ_1 = 0, and a step for every row."""

    def __init__(
        self,
        objective: GLM,
        constraint: Set,
        *,
        horizon: int,
        epsilon: float,
        delta: float,
        gradient_bound: float,
        step_scale: float = 1.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.objective, self.constraint = objective, constraint
        self.horizon = integer("horizon", horizon, at_least=1)
        self.epsilon = positive("epsilon", epsilon)
        self.delta = fraction("delta", delta)
        self.gradient_bound = positive("gradient_bound", gradient_bound)
        self.step_scale = positive("step_scale", step_scale)
        self._rng = np.random.default_rng() if rng is None else rng
        self.theta = self._before = constraint.center
        self._gradient = np.zeros(constraint.dimension)
        self.steps = 0
        warnings.warn(
            f"{type(self).__name__} is an algorithm as published, not private as claimed: use it on no real data",
            NotPrivateWarning,
            stacklevel=3,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.constraint!r}): {self.steps:,} of {self.horizon:,} rows, not private"

    def step(self, x: ArrayLike, y: float) -> Vector:
        """Take the next row and return the next iterate, a new array.

        Parameters
        ----------
        x : (d,) array_like
        y : float

        Raises
        ------
        ValueError, TypeError
            If the row is not finite or of another shape, or the horizon is passed.
        """
        row, label, _ = checked_row(x, y, self.constraint.dimension, 2.0, self.objective)
        if self.steps >= self.horizon:
            raise ValueError(f"at most horizon={self.horizon} rows may be taken, got row {self.steps + 1}")
        t = self.steps + 1
        points = np.array([self.theta @ row, self._before @ row])
        now, before = self.objective.slope(points, np.full(2, label)).tolist()
        towards = self._vertex(t, now * row, before * row)
        self._before = self.theta
        self.theta = self.theta + min(1.0, self.step_scale / (t + 1)) * (towards - self.theta)
        self.steps = t
        return self.theta.copy()

    @abstractmethod
    def _vertex(self, t: int, now: Vector, before: Vector) -> Vector:
        """v_t, from the gradients at θ_t and θ_{t−1}."""


class PublishedOnlineFrankWolfe(_Published[LpBall]):
    """DP-TOFW as published, for an ℓ_p ball with 1 < p ≤ ∞. Not private as claimed: see the module's text.

    Parameters
    ----------
    objective : GLM
        f. Its ``clip`` is not looked at.
    constraint : LpBall
        C, with p > 1; for p ≤ 2 of at least 3 dimensions, as ln d − 1 must be positive.
    horizon : int
        n.
    epsilon, delta : float
        What the paper claims.
    gradient_bound : float
        βD + L.
    step_scale : float
        c; the paper's experiments try a grid, which they do not print.
    rng : numpy.random.Generator, optional
        By default a fresh generator of numpy, which is not a secure source.

    Attributes
    ----------
    theta : (d,) ndarray
    steps : int
    sigma : float
        σ₊.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Warns
    -----
    NotPrivateWarning
        Always.

    Examples
    --------
    >>> import numpy as np, warnings
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import glm
    >>> from dpkit.optimize.stream.published_frank_wolfe import PublishedOnlineFrankWolfe
    >>> rng = np.random.default_rng(0)
    >>> with warnings.catch_warnings(action="ignore"):
    ...     learner = PublishedOnlineFrankWolfe(
    ...         glm("squared"), LpBall(1.5, 5, 2.0), horizon=500, epsilon=1, delta=1e-3, gradient_bound=5, rng=rng
    ...     )
    >>> learner.step(np.ones(5), 1.0).shape, hasattr(learner, "cost")
    ((5,), False)
    """

    def __init__(
        self,
        objective: GLM,
        constraint: LpBall,
        *,
        horizon: int,
        epsilon: float,
        delta: float,
        gradient_bound: float,
        step_scale: float = 1.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        if not isinstance(constraint, LpBall) or constraint.p == 1:
            raise ValueError(f"constraint must be an LpBall with p > 1, got {constraint!r}")
        d, p, q = constraint.dimension, constraint.p, constraint.dual
        if p <= 2 and d < 3:
            raise ValueError(f"constraint must have at least 3 dimensions for p <= 2, where ln d > 1, got {d}")
        super().__init__(
            objective,
            constraint,
            horizon=horizon,
            epsilon=epsilon,
            delta=delta,
            gradient_bound=gradient_bound,
            step_scale=step_scale,
            rng=rng,
        )
        # Lemma 3.2; Lemma 3.3
        log_d = math.log(d)
        self._order = min(q - 1.0, log_d - 1.0) if p <= 2 else 2.0
        self._shrink = 1.0 if p <= 2 else d ** (1.0 / p - 0.5)
        kappa = min(q - 1.0, math.e**2 * (log_d - 1.0)) if p <= 2 else d ** (1.0 - 2.0 / p)
        K = math.ceil(math.log2(self.horizon)) + 1
        # Theorem 3.1
        squared = 8.0 * K**2 * kappa * math.log(K / self.delta) * self.gradient_bound**2 / self.epsilon**2
        self.sigma = math.sqrt(squared)
        # of every level the sum under the open node, and the noisy sum of the last left child that was completed
        self._open, self._left = np.zeros((K, d)), np.zeros((K, d))

    def _noise(self) -> Vector:
        """Algorithm 4."""
        d, r = self.constraint.dimension, self._order
        radius = math.sqrt(self._rng.gamma(d / 2.0, 2.0 * self.sigma))
        x = self._rng.gamma(1.0 / r, 1.0, d) ** (1.0 / r) * self._rng.choice([-1.0, 1.0], d)
        return np.asarray(self._shrink * radius * x / float(np.sum(np.abs(x) ** r)) ** (1.0 / r))

    def _vertex(self, t: int, now: Vector, before: Vector) -> Vector:
        self._open += (t + 1) * now - t * before
        # the nodes that row t completes: from its leaf up to the first left child (the root counts as one)
        for level in range(len(self._open)):
            noisy = self._open[level] + self._noise()
            self._open[level] = 0.0
            if (t - 1) >> level & 1 == 0:
                self._left[level] = noisy
                break
        # the noisy partial sum: of every bit of t that is set, the left child of that level
        total = np.sum(self._left[[level for level in range(len(self._left)) if t >> level & 1]], axis=0)
        return self.constraint.linear_minimizer(total / (t + 1))


class PublishedPolyhedralOnlineFrankWolfe(_Published[PolyhedralSet]):
    """DP-POFW as published, for the hull of few vertices. Not proved to be private: see the module's text.

    Parameters
    ----------
    objective : GLM
        f. Its ``clip`` is not looked at.
    constraint : PolyhedralSet
        ``LpBall(1, d, radius)`` or ``Simplex(d, mass)``; D is its ℓ₁ diameter.
    horizon, epsilon, delta, gradient_bound, step_scale, rng
        As for :class:`PublishedOnlineFrankWolfe`.

    Attributes
    ----------
    theta : (d,) ndarray
    steps : int

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Warns
    -----
    NotPrivateWarning
        Always.

    Examples
    --------
    >>> import numpy as np, warnings
    >>> from dpkit.geometry import LpBall
    >>> from dpkit.optimize import glm
    >>> from dpkit.optimize.stream.published_frank_wolfe import PublishedPolyhedralOnlineFrankWolfe
    >>> rng = np.random.default_rng(0)
    >>> with warnings.catch_warnings(action="ignore"):
    ...     learner = PublishedPolyhedralOnlineFrankWolfe(
    ...         glm("squared"), LpBall(1, 4), horizon=9, epsilon=1e6, delta=1e-3, gradient_bound=4, rng=rng
    ...     )
    >>> learner.step([0.0, 1.0, 0.0, 0.0], 1.0).tolist()
    [0.0, 0.5, 0.0, 0.0]
    """

    def _vertex(self, t: int, now: Vector, before: Vector) -> Vector:
        # lines 3 to 9
        self._gradient = now if t == 1 else now + (1.0 - 1.0 / (t + 1)) * (self._gradient - before)
        D = self.constraint.diameter(1.0)
        scale = choice_scale(t, self.horizon, self.epsilon, self.delta, D, self.gradient_bound)
        scores = self.constraint.vertex_scores(self._gradient)
        return self.constraint.vertex(int(np.argmin(scores + self._rng.laplace(0.0, scale, len(scores)))))


def choice_scale(t: int, n: int, epsilon: float, delta: float, diameter: float, bound: float) -> float:
    """4D(βD + L)√(ln n·ln(1/δ))/(ε√t), the scale of the Laplace noise of step t (line 8 of Algorithm 2).

    Parameters
    ----------
    t, n : int
    epsilon, delta : float
    diameter, bound : float
        D and βD + L.

    Examples
    --------
    >>> round(choice_scale(4, 100, 1.0, 1e-3, 2.0, 3.0), 2)
    67.68
    """
    return 4.0 * diameter * bound * math.sqrt(math.log(n) * math.log(1.0 / delta)) / (epsilon * math.sqrt(t))

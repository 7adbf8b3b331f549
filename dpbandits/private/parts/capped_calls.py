"""When JointDPGLM estimates anew, and how: by a capped number of calls of a private optimizer, each at a fixed share.

Whether a call is made follows from released matrices and public numbers alone. What it reads are the rows of a set; so
its result is private by the optimizer's own noise, and the rest is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from accounting import Adjacency, Budget, Gaussian, calibrate
from accounting import delta as delta_of
from accounting.arrays import Array
from accounting.checks import positive
from dpbandits.private.parts.records import ONCE_SHARE, deviations, known_after, level_of
from dpbandits.private.parts.two_designs import Designs, Levels, Price
from dpkit.geometry import ConvexSet, Ellipsoid, EllipsoidBall, LpBall, vector_sensitivity
from dpkit.mechanisms import GaussianMechanism
from dpkit.models.likelihood import Rows
from dpkit.models.links import Link
from dpkit.models.losses import GLM, matching_loss

__all__ = ["Calls", "Estimates", "Numbers", "Switches"]

# The k-th call gets a share ∝ 0.9^k of its optimizer's μ²: early calls have few rounds to hide their noise in
_DECAY = 0.9


@dataclass(frozen=True)
class Estimates:
    """The public half. M with MᵀAM = I for A = V and H at the last estimates is ``V_root`` and ``H_root``.

    ``level`` is that of rewards, on the link's scale.
    """

    theta_o: Array
    V: Array
    V_inverse: Array
    V_root: Array
    calls_o: int
    theta: Array  # θ_τ
    H_inverse: Array  # of H_τ
    H_root: Array
    calls: int
    level: float
    levelled: bool

    @classmethod
    def nothing(cls, d: int, levels: Levels, levelled: bool) -> Estimates:
        """What is known at the start."""
        zero, identity, shift, shift_H = np.zeros(d), np.eye(d), levels.shift_v, levels.shift_h
        return cls(
            *(zero, shift * identity, identity / shift, identity / math.sqrt(shift), 0),
            *(zero, identity / shift_H, identity / math.sqrt(shift_H), 0),
            *(0.0, levelled),
        )

    def anew(self, levels: Levels, level: float) -> Estimates:
        """As before the first estimates, of which those made at another level are none."""
        zero, identity = np.zeros(len(self.theta)), np.eye(len(self.theta))
        V_root, H_root = (identity / math.sqrt(shift) for shift in (levels.shift_v, levels.shift_h))
        return replace(self, theta_o=zero, theta=zero, V_root=V_root, H_root=H_root, level=level)


@dataclass(frozen=True)
class Calls:
    """Noisy gradient descent on the rows of a set, at a share of the cost of all calls.

    Attributes
    ----------
    link : Link
    theta_bound : float
        S.
    reward_range : (float, float)
    stated : float, optional
        L, the bound on a gradient at every level of rewards; by default 1.2 × the largest |r − μ(0)|.
    z : float
        The noise multiplier of all calls together.
    adjacency : str
    steps : int
        Gradient steps of a call: after 40, of which half are averaged, more do not help.
    """

    link: Link
    theta_bound: float
    reward_range: tuple[float, float]
    stated: float | None
    z: float
    adjacency: Adjacency
    steps: int = 40

    @property
    def clip(self) -> float:
        """L."""
        if self.stated is not None:
            return positive("clip", self.stated)
        return 1.2 * max(abs(r - float(self.link.mean(0.0))) for r in self.reward_range)

    @property
    def slope(self) -> float:
        """sup μ̇ on [−S, S]."""
        return self.link.lipschitz(self.theta_bound)

    @property
    def objective(self) -> GLM:
        """Whose gradients are clipped to L. For any label: rewards were checked when they came."""
        return replace(matching_loss(self.link, self.theta_bound, clip=self.clip), response_range=(-math.inf, math.inf))

    def multiplier(self, call: int, calls: int) -> float:
        """The noise multiplier of one call of so many."""
        return self.z / math.sqrt(_DECAY**call * (1.0 - _DECAY) / (1.0 - _DECAY**calls))

    def at(self, level: float) -> Calls:
        """At this level of rewards the clip is another one, and the noise in proportion to it."""
        return replace(self, link=self.link.shifted(level)) if level else self

    @property
    def sensitivity(self) -> float:
        """How far a round moves the sum of gradients."""
        return self.clip * (2.0 if self.adjacency == "replace" else 1.0)

    def __call__(
        self,
        data: Rows,
        constraint: ConvexSet,
        start: Array,
        call: tuple[int, int],
        *,
        count: int,
        curvature: float,
        rng: np.random.Generator,
    ) -> Array:
        """The estimate of one call of so many, from where the last one ended.

        ``count`` is public, and so is ``curvature``, the estimated largest eigenvalue of the loss's Hessian (a sum over
        rows), whose inverse is the length of a step.
        """
        z = self.multiplier(*call)
        # the optimizer takes a budget: a point of this Gaussian's curve where δ is far from 0 and 1, a hair inside for
        # the rounding
        epsilon = max(1.0 / z, 0.5 / z**2)
        budget = Budget((1.0 - 1e-9) * epsilon, delta_of(Gaussian(z), epsilon), adjacency=self.adjacency)
        noise = z * math.sqrt(self.steps) * self.sensitivity / count
        default_step = constraint.diameter() / math.sqrt(self.steps * (self.clip**2 + len(start) * noise**2))
        rows = data.array
        from dpkit.optimize import noisy_gradient_descent

        fit = noisy_gradient_descent(
            self.objective,
            rows[:, :-1],
            rows[:, -1],
            constraint=constraint,
            budget=budget,
            steps=self.steps,
            step_scale=count / curvature / default_step,
            iterate="tail",
            public_rows=count,
            start=start if constraint.contains(start) else None,
            rng=rng,
        )
        return np.asarray(fit.x)


@dataclass(frozen=True)
class Numbers:
    """The level of rewards, released once: after so many rounds, at the noise multiplier z."""

    after: int
    z: float

    @classmethod
    def planned(
        cls, price: Price, budget: Budget, ends: Sequence[int], horizon: int, *, wanted: bool
    ) -> tuple[Price, float, Numbers | None]:
        """What all costs, the noise multiplier of that, and the level, if one is wanted and noise lets it be known."""
        with_level = replace(price, level=ONCE_SHARE)
        if wanted:
            z = calibrate(with_level, budget)
            noise = with_level.numbers(z) * vector_sensitivity(0.5, budget.adjacency)
            if (after := known_after(ends, noise, horizon)) is not None:
                return with_level, z, cls(after, with_level.numbers(z))
        return price, calibrate(price, budget), None

    def __call__(self, sums: Designs, calls: Calls, decisions: int, rng: np.random.Generator) -> float:
        """The level, by the rewards of both sets."""
        rewards = np.concatenate([rows.array[:, -1] for rows in (sums.explored, sums.others)])
        # in another order this float differs by far less than a step of the mechanism's lattice. As 1 and ½ are whole
        # numbers of steps, the step that the mechanism adds for its own rounding is enough for both
        total = np.array([float(deviations(rewards, calls.reward_range).sum())])
        apart = vector_sensitivity(0.5, calls.adjacency)
        mechanism = GaussianMechanism(noise_multiplier=self.z, sensitivity=apart, adjacency=calls.adjacency, rng=rng)
        noisy = float(mechanism.release(total)[0])
        return level_of(calls.link, calls.reward_range, noisy, self.z * apart, decisions)


@dataclass(frozen=True)
class Switches:
    """The next public half, where V or H has outgrown what it was at its last estimate.

    Attributes
    ----------
    calls : Calls
    caps : (int, int)
        The most calls for θ_o, and for θ_τ.
    levels : Levels
    ridge : float
        The least eigenvalue of V.
    numbers : Numbers, optional
        How the level of rewards is learned, if it is.
    """

    calls: Calls
    caps: tuple[int, int]
    levels: Levels
    ridge: float
    numbers: Numbers | None

    def __call__(self, known: Estimates, sums: Designs, decisions: int, rng: np.random.Generator) -> Estimates:
        """Release V and H after so many decisions, and go on from what was known."""
        V, H = sums.release()
        levels, S, (most_o, most) = self.levels, self.calls.theta_bound, self.caps
        if self.numbers is not None and not known.levelled and decisions >= self.numbers.after:
            level = self.numbers(sums, self.calls, decisions, rng)
            known = replace(known.anew(levels, level) if level else known, levelled=True)
        calls = self.calls.at(known.level)
        # as long as the level is open, half of the calls are kept for it
        allowed = most_o if known.levelled else most_o // 2
        v, U = repaired(V, levels.shift_v, self.ridge)
        known = replace(known, V=(U * v) @ U.T, V_inverse=(U / v) @ U.T)
        if known.calls_o < allowed and outgrown(known.V, known.V_root):
            # all that is public about the size of the exploration set and about its loss's curvature
            rows = max(1, round(float(v.sum()) - len(v) * levels.shift_v))
            ball, call = LpBall(2, len(v), S), (known.calls_o, most_o)
            curvature = calls.slope * float(v[-1])
            theta_o = calls(sums.explored, ball, known.theta_o, call, count=rows, curvature=curvature, rng=rng)
            known = replace(known, V_root=U / np.sqrt(v), theta_o=theta_o, calls_o=known.calls_o + 1)
        h, U = repaired(H, levels.shift_h, sums.W * self.ridge)
        if known.calls < most and outgrown((U * h) @ U.T, known.H_root):  # criterion II: τ = t
            both, call = EllipsoidBall(Ellipsoid(known.V, levels.gamma, known.theta_o), S), (known.calls, most)
            curvature = math.e * float(h[-1])
            theta = calls(sums.others, both, known.theta, call, count=decisions, curvature=curvature, rng=rng)
            H_inverse, H_root = (U / h) @ U.T, U / np.sqrt(h)
            known = replace(known, theta=theta, H_inverse=H_inverse, H_root=H_root, calls=known.calls + 1)
        return known


def repaired(noisy: Array, shift: float, least: float) -> tuple[Array, Array]:
    """Eigenvalues, at least ``least``, and eigenvectors of a noisy sum plus shift·I."""
    eigenvalues, U = np.linalg.eigh(noisy)
    return np.maximum(eigenvalues + shift, least), U


def outgrown(matrix: Array, root: Array) -> bool:
    """Whether A ⋠ 2·A_0, for ``root``ᵀA_0 ``root`` = I."""
    return bool(np.linalg.eigvalsh(root.T @ matrix @ root)[-1] > 2.0)

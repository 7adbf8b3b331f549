"""What the policies that are not private have in common: constants, and two shapes of confidence sets."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import fraction, positive
from dpbandits.policy.choices import Law, inverse_gap
from dpbandits.policy.parameters import Parameters, checked_parameters
from dpbandits.policy.protocol import CommonOptions, Options, Policy
from dpkit.models.ellipsoid import RankOneInverse, norms, within
from dpkit.models.level_sets import level_set_maxima
from dpkit.models.likelihood import Rows, Smooth, glm_loss

__all__ = ["EllipsoidSet", "LevelSet", "ReferenceOptions", "ReferencePolicy", "TimedOptions"]


class TimedOptions(CommonOptions, total=False):
    """The further keywords of reference policies that need a horizon; see :class:`ReferencePolicy`."""

    failure_probability: float


class ReferenceOptions(Options, TimedOptions, total=False):
    """Those of the others."""


class ReferencePolicy(Policy):
    """Base of the policies with one set of parameters for theory and one for practice.

    Parameters
    ----------
    dim, rewards, **options
        See :class:`dpbandits.Policy`.
    theta_bound : float
        S ≥ ‖θ‖.
    parameters : {"practical", "theory"}
        Which set.
    radius_scale : float
        A constant of the practical parameters, mostly a factor on the theory's radius.
    failure_probability : float
        δ: how often the theory's confidence sets may fail.
    """

    def __init__(
        self,
        dim: int,
        rewards: tuple[float, float],
        theta_bound: float,
        parameters: Parameters,
        radius_scale: float,
        *,
        failure_probability: float = 0.01,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(dim, rewards, **options)
        self.theta_bound = positive("theta_bound", theta_bound)
        self.parameters = checked_parameters(parameters)
        self.radius_scale = positive("radius_scale", radius_scale)
        self.failure_probability = fraction("failure_probability", failure_probability)

    def _scaled(self, radius: float) -> float:
        """The theory's radius, or that of practice."""
        return radius if self.parameters == "theory" else self.radius_scale * radius


class EllipsoidSet(Policy):
    """Optimism over {θ : ‖θ − θ_t‖_{V_t} ≤ width()}; a policy derives from this and from its other base.

    Some papers call the matrix H_t or W_t.
    """

    theta: Array
    V: RankOneInverse
    # γ/√t of the policies that draw arms by their gaps instead; t counts decisions
    _gamma_scale: float | None = None

    @abstractmethod
    def width(self) -> float:
        """The radius."""

    def contains(self, theta: ArrayLike) -> bool:
        """Whether the confidence set holds ``theta``."""
        return within(theta, self.theta, self.V.matrix, self.width())

    def score(self, arms: Array) -> Array | Law:
        if self._gamma_scale is not None:
            return inverse_gap(self.link.mean(arms @ self.theta), self._gamma_scale * math.sqrt(self.decisions))
        # x_t = argmax xᵀθ_t + width·‖x‖_{V_t⁻¹}
        return arms @ self.theta + self.width() * norms(arms, self.V.inverse)


class LevelSet(Policy):
    """Optimism over {‖θ‖ ≤ S : the loss of θ is at most width() above that of θ_t, the least}.

    A policy derives from this and from its other base.
    """

    theta: Array
    theta_bound: float
    rows: Rows
    dispersion = 1.0

    @abstractmethod
    def width(self) -> float:
        """How far the loss may lie above its minimum."""

    @abstractmethod
    def ridge(self) -> float:
        """λ of the term ½λ‖θ‖² of the loss."""

    def contains(self, theta: ArrayLike) -> bool:
        """Whether the confidence set holds ``theta``."""
        point, loss = np.asarray(theta, dtype=np.float64), self._loss()
        inside = float(point @ point) <= self.theta_bound**2 * (1 + 1e-12)
        return inside and loss(point)[0] - loss(self.theta)[0] <= self.width()

    def score(self, arms: Array) -> Array:
        # x_t = argmax over x of the largest xᵀθ in the set
        return level_set_maxima(
            self.link,
            self.rows.array[:, :-1],
            self.rows.array[:, -1],
            arms,
            center=self.theta,
            depth=self.width(),
            radius=self.theta_bound,
            ridge=self.ridge(),
            dispersion=self.dispersion,
        )

    def _loss(self) -> Smooth:
        X, r = self.rows.array[:, :-1], self.rows.array[:, -1]
        return glm_loss(self.link, X, r, ridge=self.ridge(), dispersion=self.dispersion)

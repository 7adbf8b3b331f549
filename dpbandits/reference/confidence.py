"""What the policies that are not private have in common: constants, and two shapes of confidence sets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import fraction, positive
from dpbandits.policy.choices import Law
from dpbandits.policy.options import StatedOptions
from dpbandits.policy.parameters import PublishedParameters, checked_parameters
from dpbandits.policy.protocol import Options, Policy
from dpkit.models.ellipsoid import RankOneInverse, norms, within
from dpkit.models.level_sets import level_set_maxima
from dpkit.models.likelihood import Rows, Smooth, glm_loss
from dpkit.models.links import Link

__all__ = ["Ellipsoid", "LevelSet", "ReferenceOptions", "ReferencePolicy", "TimedOptions"]


class TimedOptions(StatedOptions, total=False):
    """The further keywords of reference policies that need a horizon; see :class:`ReferencePolicy`."""

    failure_probability: float


class ReferenceOptions(Options, TimedOptions, total=False):
    """Those of the others."""


@dataclass(frozen=True)
class Ellipsoid:
    """{θ : ‖θ − center‖_V ≤ width}."""

    center: Array
    V: RankOneInverse
    width: float

    def contains(self, theta: ArrayLike) -> bool:
        """Whether ``theta`` is in it."""
        return within(theta, self.center, self.V.matrix, self.width)

    def largest(self, arms: Array) -> Array:
        """The largest xᵀθ of every arm: xᵀcenter + width·‖x‖_{V⁻¹}."""
        return arms @ self.center + self.width * norms(arms, self.V.inverse)


@dataclass(frozen=True)
class LevelSet:
    """{‖θ‖ ≤ radius : the loss of θ is at most depth above that of center, the least}.

    Attributes
    ----------
    link : Link
    rows : Rows
        (x, r).
    center : (d,) ndarray
    depth, radius : float
    ridge : float
        λ of the term ½λ‖θ‖² of the loss.
    dispersion : float
    """

    link: Link
    rows: Rows
    center: Array
    depth: float
    radius: float
    ridge: float
    dispersion: float = 1.0

    def loss(self) -> Smooth:
        """The negative log-likelihood."""
        X, r = self.rows.array[:, :-1], self.rows.array[:, -1]
        return glm_loss(self.link, X, r, ridge=self.ridge, dispersion=self.dispersion)

    def contains(self, theta: ArrayLike) -> bool:
        """Whether ``theta`` is in it."""
        point, loss = np.asarray(theta, dtype=np.float64), self.loss()
        inside = float(point @ point) <= self.radius**2 * (1 + 1e-12)
        return inside and loss(point)[0] - loss(self.center)[0] <= self.depth

    def largest(self, arms: Array) -> Array:
        """The largest xᵀθ of every arm; of those that are not the best, perhaps an upper bound."""
        X, r = self.rows.array[:, :-1], self.rows.array[:, -1]
        return level_set_maxima(
            self.link,
            X,
            r,
            arms,
            center=self.center,
            depth=self.depth,
            radius=self.radius,
            ridge=self.ridge,
            dispersion=self.dispersion,
        )


class ReferencePolicy(Policy):
    """Base of the policies with one set of parameters for theory and one for practice: optimism over a confidence set.

    One whose set is no ellipsoid says which it is by ``believed``, and one that is not optimistic how it scores.

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

    theta: Array
    V: RankOneInverse
    # whether it knows its paper's own parameters, too
    has_published: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        rewards: tuple[float, float],
        theta_bound: float,
        parameters: PublishedParameters,
        radius_scale: float,
        *,
        failure_probability: float = 0.01,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(dim, rewards, **options)
        self.theta_bound = positive("theta_bound", theta_bound)
        self.parameters = checked_parameters(parameters, published=self.has_published)
        self.radius_scale = positive("radius_scale", radius_scale)
        self.failure_probability = fraction("failure_probability", failure_probability)

    def width(self) -> float:
        """The radius of the confidence set, or how far the loss may lie above its minimum."""
        raise NotImplementedError(f"{type(self).__name__} has no confidence set of one radius")

    def scaled(self, radius: float) -> float:
        """The theory's radius, or that of practice."""
        return radius if self.parameters == "theory" else self.radius_scale * radius

    def check_logistic(self) -> None:
        """Refuse the theory's parameters for other rewards than the paper's: logistic ones in [0, 1]."""
        low, high = self.reward_range
        if self.parameters == "theory" and not (self.link.name == "logistic" and 0.0 <= low < high <= 1.0):
            raise ValueError(
                f"link must be 'logistic' and reward_range in [0, 1] for the theory's parameters of "
                f"{type(self).__name__}, got link={self.link.name!r} and reward_range={self.reward_range}"
            )

    def bound_together(self) -> float:
        """R ≥ 1, which bounds the length of the rewards' range and the link's self-concordance together."""
        low, high = self.reward_range
        if self.parameters == "theory" and math.isinf(high - low):
            raise ValueError(
                f"reward_range must be finite for the theory's parameters, got reward_range={self.reward_range}"
            )
        length = high - low if math.isfinite(high - low) else 1.0
        return max(1.0, self.link.self_concordance(self.theta_bound), length)

    def believed(self) -> Ellipsoid | LevelSet:
        """The confidence set: by default {θ : ‖θ − θ_t‖_{V_t} ≤ width()}. Some papers call the matrix H_t or W_t."""
        return Ellipsoid(self.theta, self.V, self.width())

    def contains(self, theta: ArrayLike) -> bool:
        """Whether the confidence set holds ``theta``."""
        return self.believed().contains(theta)

    def score(self, arms: Array) -> Array | Law:
        # x_t = argmax over x of the largest xᵀθ in the set
        return self.believed().largest(arms)

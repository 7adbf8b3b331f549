"""A generalized linear bandit with a base rate: E[r | x] = μ(xᵀθ* + offset), where no feature of x is constant.

Rewards that are rare, or common, at every arm: a model without an intercept sees them as a large error that no θ
explains. Whoever plays it well adds a constant feature, or is told the base rate.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accounting.checks import integer, positive
from dpbandits.lab.environments.arms import ArmLaw, arm_blocks, checked_arm_law, random_parameter
from dpbandits.lab.environments.base import Named, Round
from dpbandits.lab.environments.glm import REWARDS, checked_rewards
from dpkit.models.links import get_link

__all__ = ["Shifted"]


class Shifted(Named):
    """:class:`~dpbandits.lab.environments.GLM` with an offset that the features do not hold.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    offset : float
        Added to xᵀθ*; finite.
    arms : int
        K, the number of arms in a round.
    link : {"logistic", "probit", "linear", "poisson"}
        μ; rewards as in :class:`~dpbandits.lab.environments.GLM`.
    theta_norm : float
        S = ‖θ*‖; the direction of θ* is uniform.
    arm_law : str
        See :mod:`dpbandits.lab.environments.arms`.

    Attributes
    ----------
    base_rate : float
        μ(offset): the mean reward at xᵀθ* = 0.

    Examples
    --------
    >>> import numpy as np
    >>> environment = Shifted(dim=5, offset=-2.5)
    >>> first = next(environment.episode(np.random.default_rng(0)))
    >>> first.arms.shape, round(environment.base_rate, 3)
    ((20, 5), 0.076)
    """

    def __init__(
        self,
        dim: int = 5,
        *,
        offset: float = -2.5,
        arms: int = 20,
        link: str = "logistic",
        theta_norm: float = 3.0,
        arm_law: ArmLaw = "ball",
    ) -> None:
        self.dim = integer("dim", dim, at_least=1)
        self.offset = float(offset)
        if not np.isfinite(self.offset):
            raise ValueError(f"offset must be finite, got offset={offset!r}")
        self.arms = integer("arms", arms, at_least=1)
        self.link = checked_rewards(link)
        self.theta_norm = self.theta_bound = positive("theta_norm", theta_norm)
        self.arm_law = checked_arm_law(arm_law, self.arms, self.dim)
        self.base_rate = float(get_link(link).mean(np.array(self.offset)))
        # the extreme means are those of a bandit without offset and a longer θ*
        self.reward_range = REWARDS[link].range(self.theta_norm + abs(self.offset))
        self.noise_scale = REWARDS[link].deviation(self.theta_norm + abs(self.offset))
        self.rounds = None
        self.name = f"{link} bandit with offset {self.offset:g} (d = {self.dim}, K = {self.arms})"

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end."""
        theta = random_parameter(rng, self.dim, self.theta_norm)
        mean, draw = get_link(self.link).mean, REWARDS[self.link].draw
        for arms in arm_blocks(self.arm_law, rng, self.arms, self.dim):
            means = mean(arms @ theta + self.offset)
            yield from map(Round, arms, draw(rng, means), means)

"""Random arms with rewards from a generalized linear model, E[r | x] = μ(xᵀθ* + offset).

With an offset rewards are rare, or common, at every arm, and no feature of x is constant: a model without an intercept
sees them as a large error that no θ explains. Whoever plays it well adds a constant feature, or is told the base rate,
or learns it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from accounting.arrays import Array
from accounting.checks import choice, integer, positive
from dpbandits.lab.environments.arms import ArmLaw, arm_blocks, checked_arm_law, coins, is_fixed, random_parameter
from dpbandits.lab.environments.base import Named, Round
from dpkit.models.links import Link, get_link

__all__ = ["GLM", "rewards_of"]


def _gaussian(rng: np.random.Generator, means: Array) -> Array:
    return means + rng.standard_normal((len(means), 1))


def _poisson(rng: np.random.Generator, means: Array) -> Array:
    return rng.poisson(means).astype(np.float64)


class Rewards(NamedTuple):
    """How rewards are drawn around their means, and, given S, their range and their largest standard deviation."""

    draw: Callable[[np.random.Generator, Array], Array]
    # without bounds: three standard deviations beyond the extreme means
    range: Callable[[float], tuple[float, float]]
    deviation: Callable[[float], float]


_REWARDS = {
    "logistic": Rewards(coins, lambda S: (0.0, 1.0), lambda S: 0.5),
    "probit": Rewards(coins, lambda S: (0.0, 1.0), lambda S: 0.5),
    "linear": Rewards(_gaussian, lambda S: (-S - 3.0, S + 3.0), lambda S: 1.0),
    "poisson": Rewards(_poisson, lambda S: (0.0, math.exp(S) + 3.0 * math.exp(S / 2)), lambda S: math.exp(S / 2)),
}


def rewards_of(link: str | Link) -> Rewards:
    """How rewards are drawn for the link of this name."""
    return _REWARDS[choice("link", str(link), *_REWARDS)]


class GLM(Named):
    """A generalized linear bandit with a fresh θ* for every seed.

    Rewards are 0 or 1 for the logistic and the probit link, Gaussian with standard deviation 1 for the linear link and
    Poisson for the Poisson link.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    arms : int
        K, the number of arms in a round.
    link : {"logistic", "probit", "linear", "poisson"}
        μ.
    theta_norm : float
        S = ‖θ*‖; the direction of θ* is uniform.
    arm_law : {"ball", "sphere", "cube", "fixed", "fixed_sphere", "fixed_cube", "one_hot"}
        See :mod:`dpbandits.lab.environments.arms`.
    offset : float
        Added to xᵀθ*; finite.

    Attributes
    ----------
    reward_range : (float, float)
        The range of the rewards; linear and Poisson rewards have no bounds, and this is the range to which private
        policies clip them, three standard deviations beyond the extreme means.
    n_arms : int
        K, where the arms are one set for the whole episode; else there is no such attribute.
    base_rate : float
        μ(offset): the mean reward at xᵀθ* = 0.
    noise_scale : float
        The largest standard deviation of a reward.

    Examples
    --------
    >>> import numpy as np
    >>> environment = GLM(dim=3, arms=20, link="probit", theta_norm=2.0)
    >>> first = next(environment.episode(np.random.default_rng(0)))
    >>> first.arms.shape, first.rewards.shape, bool(first.means.max() <= 1)
    ((20, 3), (20,), True)
    >>> round(GLM(dim=5, offset=-2.5).base_rate, 3)
    0.076
    """

    def __init__(
        self,
        dim: int = 5,
        *,
        arms: int = 20,
        link: str = "logistic",
        theta_norm: float = 3.0,
        arm_law: ArmLaw = "ball",
        offset: float = 0.0,
    ) -> None:
        self.arms = integer("arms", arms, at_least=1)
        self.theta_norm = positive("theta_norm", theta_norm)
        self.offset = float(offset)
        if not math.isfinite(self.offset):
            raise ValueError(f"offset must be finite, got offset={offset!r}")
        law = rewards_of(link)
        dim = integer("dim", dim, at_least=1)
        self.arm_law = checked_arm_law(arm_law, self.arms, dim)
        if is_fixed(arm_law):
            self.n_arms = self.arms
        self.base_rate = float(get_link(link).mean(np.array(self.offset)))
        # the extreme means are those of a bandit without offset and a longer θ*
        longest = self.theta_norm + abs(self.offset)
        self.noise_scale = law.deviation(longest)
        name = f"{link} bandit (d = {dim}, K = {self.arms}, S = {self.theta_norm:g})"
        if self.offset:
            name = f"{link} bandit with offset {self.offset:g} (d = {dim}, K = {self.arms})"
        super().__init__(name, dim, link, self.theta_norm, law.range(longest))

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end."""
        theta = random_parameter(rng, self.dim, self.theta_norm)
        mean, draw = get_link(self.link).mean, rewards_of(self.link).draw
        for arms in arm_blocks(self.arm_law, rng, self.arms, self.dim):
            means = mean(arms @ theta + self.offset)
            yield from map(Round, arms, draw(rng, means), means)

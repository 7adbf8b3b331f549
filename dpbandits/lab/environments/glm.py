"""Random arms with rewards from a generalized linear model, E[r | x] = μ(xᵀθ*)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from accounting.arrays import Array
from accounting.checks import integer, positive
from dpbandits.lab.environments.arms import ArmLaw, arm_blocks, checked_arm_law, random_parameter
from dpbandits.lab.environments.base import Named, Round
from dpkit.models.links import get_link

__all__ = ["GLM", "REWARDS", "checked_rewards"]


def _bernoulli(rng: np.random.Generator, means: Array) -> Array:
    # one uniform number per round: the arms of a round share their luck
    return (rng.random((len(means), 1)) < means).astype(np.float64)


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


REWARDS = {
    "logistic": Rewards(_bernoulli, lambda S: (0.0, 1.0), lambda S: 0.5),
    "probit": Rewards(_bernoulli, lambda S: (0.0, 1.0), lambda S: 0.5),
    "linear": Rewards(_gaussian, lambda S: (-S - 3.0, S + 3.0), lambda S: 1.0),
    "poisson": Rewards(_poisson, lambda S: (0.0, math.exp(S) + 3.0 * math.exp(S / 2)), lambda S: math.exp(S / 2)),
}


def checked_rewards(link: str) -> str:
    """The name of a link for which rewards can be drawn."""
    if link not in REWARDS:
        raise ValueError(f"link must be one of {', '.join(map(repr, REWARDS))}, got link={link!r}")
    return link


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

    Attributes
    ----------
    reward_range : (float, float)
        The range of the rewards; linear and Poisson rewards have no bounds, and this is the range to which private
        policies clip them, three standard deviations beyond the extreme means.
    base_rate : float
        μ(0): the mean reward at xᵀθ* = 0.
    noise_scale : float
        The largest standard deviation of a reward.

    Examples
    --------
    >>> import numpy as np
    >>> environment = GLM(dim=3, arms=20, link="probit", theta_norm=2.0)
    >>> first = next(environment.episode(np.random.default_rng(0)))
    >>> first.arms.shape, first.rewards.shape, bool(first.means.max() <= 1)
    ((20, 3), (20,), True)
    """

    def __init__(
        self,
        dim: int = 5,
        *,
        arms: int = 20,
        link: str = "logistic",
        theta_norm: float = 3.0,
        arm_law: ArmLaw = "ball",
    ) -> None:
        self.dim = integer("dim", dim, at_least=1)
        self.arms = integer("arms", arms, at_least=1)
        self.link = checked_rewards(link)
        self.theta_norm = self.theta_bound = positive("theta_norm", theta_norm)
        self.arm_law = checked_arm_law(arm_law, self.arms, self.dim)
        self.reward_range = REWARDS[link].range(self.theta_norm)
        self.base_rate = float(get_link(link).mean(0.0))
        self.noise_scale = REWARDS[link].deviation(self.theta_norm)
        self.rounds = None
        self.name = f"{link} bandit (d = {self.dim}, K = {self.arms}, S = {self.theta_norm:g})"

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end."""
        theta = random_parameter(rng, self.dim, self.theta_norm)
        mean, draw = get_link(self.link).mean, REWARDS[self.link].draw
        for arms in arm_blocks(self.arm_law, rng, self.arms, self.dim):
            means = mean(arms @ theta)
            yield from map(Round, arms, draw(rng, means), means)

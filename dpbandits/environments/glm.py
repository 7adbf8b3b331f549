"""Random arms with rewards from a generalized linear model, E[r | x] = μ(xᵀθ*)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np

from accounting._checks import integer, positive
from dpbandits.environments.base import Round
from dpbandits.links import get_link
from dpbandits.policy import Array

__all__ = ["GLM"]

# numbers per block in which arms are drawn: large enough for numpy, small enough for the cache
_BLOCK = 2**16


def _bernoulli(rng: np.random.Generator, means: Array) -> Array:
    # one uniform number per round: the arms of a round share their luck
    return (rng.random((len(means), 1)) < means).astype(np.float64)


def _gaussian(rng: np.random.Generator, means: Array) -> Array:
    return means + rng.standard_normal((len(means), 1))


def _poisson(rng: np.random.Generator, means: Array) -> Array:
    return rng.poisson(means).astype(np.float64)


# link: how rewards are drawn around their means, and their range given S (without bound: 3 standard deviations more)
_REWARDS: dict[str, tuple[Callable[[np.random.Generator, Array], Array], Callable[[float], tuple[float, float]]]] = {
    "logistic": (_bernoulli, lambda S: (0.0, 1.0)),
    "probit": (_bernoulli, lambda S: (0.0, 1.0)),
    "linear": (_gaussian, lambda S: (-S - 3.0, S + 3.0)),
    "poisson": (_poisson, lambda S: (0.0, math.exp(S) + 3.0 * math.exp(S / 2))),
}


class GLM:
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
    arm_law : {"ball", "sphere", "fixed"}
        Every round K new arms, uniform in the unit ball or on the unit sphere; or one set of K arms, uniform in the
        ball, for the whole episode.

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
        arm_law: Literal["ball", "sphere", "fixed"] = "ball",
    ) -> None:
        self.dim = integer("dim", dim, at_least=1)
        self.arms = integer("arms", arms, at_least=1)
        if link not in _REWARDS:
            raise ValueError(f"link must be one of {', '.join(map(repr, _REWARDS))}, got link={link!r}")
        self.link = link
        self.theta_norm = self.theta_bound = positive("theta_norm", theta_norm)
        if arm_law not in ("ball", "sphere", "fixed"):
            raise ValueError(f"arm_law must be 'ball', 'sphere' or 'fixed', got arm_law={arm_law!r}")
        self.arm_law = arm_law
        self.reward_range = _REWARDS[link][1](self.theta_norm)
        self.rounds = None
        self.name = f"{link} bandit (d = {self.dim}, K = {self.arms}, S = {self.theta_norm:g})"

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end."""
        direction = rng.standard_normal(self.dim)
        theta = self.theta_norm * direction / np.linalg.norm(direction)
        mean, draw = get_link(self.link).mean, _REWARDS[self.link][0]
        size = max(1, _BLOCK // (self.arms * self.dim))
        fixed = self._draw_arms(rng, 1) if self.arm_law == "fixed" else None
        while True:
            arms = self._draw_arms(rng, size) if fixed is None else np.repeat(fixed, size, axis=0)
            means = mean(arms @ theta)
            yield from map(Round, arms, draw(rng, means), means)

    def _draw_arms(self, rng: np.random.Generator, rounds: int) -> Array:
        X = rng.standard_normal((rounds, self.arms, self.dim))
        # a hair inside the sphere, so that rounding leaves no norm above 1
        radius: float | Array = 1 - 1e-12
        if self.arm_law != "sphere":
            radius = radius * rng.random((rounds, self.arms, 1)) ** (1 / self.dim)
        return np.asarray(X * (radius / np.linalg.norm(X, axis=-1, keepdims=True)))

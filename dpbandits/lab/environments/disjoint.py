"""Fixed arms with a parameter each: one context per round, E[r | z, k] = μ(xᵀθ_k) with x = (1, z)/√2.

Both kinds of policy can play it. One that takes contexts is given z, of ``context_dim`` entries and length at most 1,
and has ``n_arms`` arms; whether it adds the constant is its own affair. One with a single shared parameter is given
block vectors x_k = (0, …, x, …, 0) ∈ R^{K·(m+1)}, of length at most 1, and θ = (θ_1, …, θ_K).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from accounting.checks import integer, positive
from dpbandits.lab.environments.arms import (
    arm_blocks,
    blocks_of,
    random_parameter,
    rounds_at_once,
    with_constant,
)
from dpbandits.lab.environments.base import Named, Round
from dpbandits.lab.environments.glm import rewards_of
from dpkit.models.links import get_link

__all__ = ["Disjoint"]


class Disjoint(Named):
    """A generalized linear bandit with contexts uniform in the unit ball, and fresh θ_1, …, θ_K for every seed.

    Parameters
    ----------
    dim : int
        m, the dimension of a context. (The attribute ``dim`` is K·(m + 1), the dimension for a shared parameter.)
    arms : int
        K.
    link : {"logistic", "probit", "linear", "poisson"}
        μ; rewards as in :class:`~dpbandits.lab.environments.GLM`.
    theta_norm : float
        ‖θ_k‖; the directions are uniform and independent.

    Attributes
    ----------
    context_dim, n_arms : int
        m and K.
    theta_bound : float
        ‖θ‖ = √K·‖θ_k‖.

    Examples
    --------
    >>> import numpy as np
    >>> environment = Disjoint(dim=3, arms=5)
    >>> first = next(environment.episode(np.random.default_rng(0)))
    >>> first.context.shape, first.arms.shape, first.rewards.shape
    ((3,), (5, 20), (5,))
    """

    def __init__(self, dim: int = 3, *, arms: int = 5, link: str = "logistic", theta_norm: float = 4.0) -> None:
        self.context_dim = integer("dim", dim, at_least=1)
        self.n_arms = integer("arms", arms, at_least=1)
        law = rewards_of(link)
        self.theta_norm = positive("theta_norm", theta_norm)
        self.noise_scale = law.deviation(self.theta_norm)
        m, K = self.context_dim, self.n_arms
        name, longest = f"{link} bandit with a parameter per arm (m = {m}, K = {K})", math.sqrt(K) * self.theta_norm
        super().__init__(name, K * (m + 1), link, longest, law.range(self.theta_norm))

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end."""
        K = self.n_arms
        theta = np.array([random_parameter(rng, self.context_dim + 1, self.theta_norm) for _ in range(K)])
        mean, draw = get_link(self.link).mean, rewards_of(self.link).draw
        size = rounds_at_once(K * self.dim)
        for block in arm_blocks("ball", rng, 1, self.context_dim):
            for start in range(0, len(block), size):
                z = block[start : start + size, 0]
                x = with_constant(z)
                means = mean(x @ theta.T)
                yield from map(Round, blocks_of(x, K), draw(rng, means), means, z)

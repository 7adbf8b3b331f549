"""Arms with parameters of their own: one context per round, E[r | X, k] = Xᵀθ_k.

Both kinds of policy can play it. One that takes contexts (:mod:`dpbandits.policy.offers`) is given X, of
``context_dim`` entries, and has ``n_arms`` arms. One with a single shared parameter is given the block vectors

    x_k = (0, …, X/√d, …, 0) ∈ R^{K·d},      θ = √d·(θ_1, …, θ_K),

whose norm is at most 1 as that of X/√d is; x_kᵀθ = Xᵀθ_k.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from accounting.checks import integer, positive
from dpbandits.lab.environments.arms import INSIDE, blocks_of, rounds_at_once
from dpbandits.lab.environments.base import Named, Round

__all__ = ["PerArm"]


class PerArm(Named):
    """A linear bandit with sparse parameters θ_k, contexts uniform in [−1, 1]^d and Gaussian noise.

    Parameters
    ----------
    dim : int
        d, the dimension of a context. (The attribute ``dim`` is K·d, the dimension for a shared parameter.)
    arms : int
        K.
    nonzero : int
        Number of entries of θ_k that are not 0: random ones for every arm, all of one size, with random signs.
    theta_l1_norm : float
        ‖θ_k‖₁, the same for every arm; means lie in [−‖θ_k‖₁, ‖θ_k‖₁].
    scale : float
        Standard deviation of the noise, which the arms of a round share.

    Attributes
    ----------
    context_dim, n_arms : int
        d and K.
    theta_l1_bound : float
        ‖θ_k‖₁.
    reward_range : (float, float)
        Three standard deviations beyond the extreme means.

    Examples
    --------
    >>> import numpy as np
    >>> environment = PerArm(dim=50, arms=2)
    >>> first = next(environment.episode(np.random.default_rng(0)))
    >>> first.context.shape, first.arms.shape, first.rewards.shape
    ((50,), (2, 100), (2,))
    >>> environment.dim, environment.context_dim, environment.n_arms
    (100, 50, 2)
    """

    def __init__(
        self, dim: int = 50, *, arms: int = 2, nonzero: int = 5, theta_l1_norm: float = 1.0, scale: float = 0.1
    ) -> None:
        self.context_dim = integer("dim", dim, at_least=1)
        self.n_arms = integer("arms", arms, at_least=1)
        self.nonzero = integer("nonzero", nonzero, at_least=1)
        if self.nonzero > self.context_dim:
            raise ValueError(f"nonzero must be at most dim = {self.context_dim}, got nonzero={nonzero}")
        self.theta_l1_bound = positive("theta_l1_norm", theta_l1_norm)
        self.scale = self.noise_scale = positive("scale", scale)
        dim = self.n_arms * self.context_dim
        # every θ_k has the norm ‖θ_k‖₁/√nonzero
        longest = self.theta_l1_bound * math.sqrt(dim / self.nonzero)
        high = self.theta_l1_bound + 3.0 * self.scale
        name = f"bandit with a parameter per arm (d = {self.context_dim}, K = {self.n_arms})"
        super().__init__(name, dim, "linear", longest, (-high, high))

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end."""
        K, d = self.n_arms, self.context_dim
        theta = np.zeros((K, d))
        for row in theta:
            where = rng.choice(d, self.nonzero, replace=False)
            row[where] = rng.choice((-1.0, 1.0), self.nonzero) * (self.theta_l1_bound / self.nonzero)
        size = rounds_at_once(K * self.dim)
        while True:
            contexts = rng.uniform(-1.0, 1.0, (size, d))
            means = contexts @ theta.T
            rewards = means + self.scale * rng.standard_normal((size, 1))
            yield from map(Round, blocks_of(contexts * (INSIDE / math.sqrt(d)), K), rewards, means, contexts)

"""A bare simulation loop for tests: arms from the unit ball in every round, one hidden parameter of norm S."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpbandits import Policy
from dpkit.models.links import get_link


def ball(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Points drawn uniformly from the unit ball of the last axis."""
    X = rng.standard_normal(shape)
    X *= rng.random(shape[:-1])[..., None] ** (1 / shape[-1]) / np.linalg.norm(X, axis=-1, keepdims=True)
    return X


def sphere(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Points drawn uniformly from the unit sphere of the last axis."""
    X = rng.standard_normal(shape)
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def regret_of(
    make: Callable[[np.random.Generator], Policy], link: str, d: int, K: int, S: float, T: int, seeds: int
) -> float:
    """Mean cumulative regret over ``seeds`` runs with Bernoulli rewards."""
    total = 0.0
    for seed in range(seeds):
        rng = np.random.default_rng([seed, d, T])
        theta = rng.standard_normal(d)
        theta *= S / np.linalg.norm(theta)
        arms, coins = ball(rng, T, K, d), rng.random(T)
        means = get_link(link).mean(arms @ theta)
        policy = make(np.random.default_rng([seed, 1]))
        for t in range(T):
            decision = policy.select(arms[t])
            mean = means[t, decision.index]
            policy.update(decision, float(coins[t] < mean))
            total += means[t].max() - mean
    return total / seeds

"""A private encoder before a private policy: rewards that no linear model fits.

    python examples/neural_linear.py        # needs the extra opacus, and torch

People like an offer if two of its properties agree. A first group of people (the log) trains a small network by DP-SGD
at ε = 4; frozen and without its last layer it is an encoder, and a private linear policy at ε = 4 decides for a second
group. Whoever is in one group only is protected at ε = 4; somebody in both at 8 at most. Seeded: a simulation.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch

from accounting import Budget
from dpbandits.policies import OnePassPrivateGLM
from dpkit.features import Encoded, Scaled
from dpkit.optimize import dp_sgd

ROUNDS, ARMS = 4000, 5


def likes(X: np.ndarray) -> np.ndarray:
    """The probability of a click."""
    return np.where(X[..., 0] * X[..., 1] > 0, 0.8, 0.2)


def encoder(rng: np.random.Generator) -> torch.nn.Module:
    """Trained on a log of 5,000 people, by a public recipe."""
    X = rng.uniform(-1, 1, (5000, 2)).astype(np.float32)
    clicks = (rng.random(5000) < likes(X)).astype(np.int64)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8), torch.nn.Tanh(),
                              torch.nn.Linear(8, 2))  # fmt: skip
    trained = dp_sgd(
        net, X, clicks, budget=Budget(4.0, 1e-6, adjacency="replace"), loss=torch.nn.functional.cross_entropy, clip=1.0,
        epochs=30, batch=250, optimizer=lambda p: torch.optim.Adam(p, 0.02), rng=rng,
    )  # fmt: skip
    return trained.module[:-1]


def played(rows, dim: int, seed: int) -> float:
    """Mean reward of a private policy that sees ``rows`` of the offers."""
    rng = np.random.default_rng(seed)
    policy = OnePassPrivateGLM(dim, budget=Budget(4.0, 1e-6), horizon=ROUNDS, rng=rng)
    total = 0.0
    for _ in range(ROUNDS):
        X = rng.uniform(-1, 1, (ARMS, 2))
        decision = policy.select(rows(X))
        reward = float(rng.random() < likes(X[decision.index]))
        policy.update(decision, reward)
        total += reward
    return total / ROUNDS


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    # a vector of eight numbers in (−1, 1) is at most √8 long: a bound that is public
    encoded = Encoded(encoder(np.random.default_rng(0)), bound=8**0.5)
    print(f"features as they are:  {played(Scaled(2**0.5).transform, 2, seed=1):.3f}")
    print(f"private encoder:       {played(encoded.transform, 8, seed=1):.3f}")
    print("by chance 0.5, at best 0.78")

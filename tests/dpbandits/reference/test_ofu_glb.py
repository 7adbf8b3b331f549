"""OFUGLB: its scores against a generic solver, its radius against the theorem, its regret."""

from __future__ import annotations

import math

import numpy as np
import pytest
from regret import ball
from scipy.optimize import minimize_scalar

from dpbandits.reference.light_tails.ofu_glb import OFUGLB
from dpkit.models.links import get_link


def played(name: str, S: float, rounds: int, seed: int = 0, **parameters) -> tuple[OFUGLB, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    policy, X, r = OFUGLB(2, name, theta_bound=S, **parameters), [], []
    for _ in range(rounds):
        decision = policy.select(ball(rng, 4, 2))
        X.append(decision.arm)
        r.append(float(rng.integers(2)))
        policy.update(decision, r[-1])
    return policy, np.array(X), np.array(r)


def on_a_grid(S: float) -> np.ndarray:
    """Points of the disc of radius S, (n, 2)."""
    angle, radius = np.meshgrid(np.linspace(0, 2 * np.pi, 481), np.linspace(0, S, 161))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1).reshape(-1, 2)


@pytest.mark.parametrize("name", ["logistic", "probit", "poisson", "linear"])
def test_the_best_score_is_the_maximum_over_the_level_set(name):
    S, link = 1.5, get_link(name)
    policy, X, r = played(name, S, 40, radius_scale=0.5)
    grid = on_a_grid(S)
    losses = np.sum(link.integral(X @ grid.T) - r[:, None] * (X @ grid.T), axis=0)
    assert np.linalg.norm(policy.theta - grid[losses.argmin()]) <= 0.03
    inside = grid[losses <= losses.min() + policy.width()]
    arms = ball(np.random.default_rng(9), 6, 2)
    decision = policy.select(arms)
    maxima = (arms @ inside.T).max(axis=1)
    assert decision.index == maxima.argmax()
    assert decision.scores[decision.index] == pytest.approx(maxima.max(), abs=0.03)
    assert (decision.scores >= maxima - 1e-9).all()
    assert [policy.contains(v) for v in grid[::2000]] == [
        bool(v) for v in (losses <= losses.min() + policy.width())[::2000]
    ]


def test_the_radius_is_the_theorems():
    delta, S = 0.02, 1.5
    policy, X, r = played("logistic", S, 30, failure_probability=delta, parameters="theory")
    link, grid = get_link("logistic"), on_a_grid(S)
    # L_t bounds the gradient of the loss on the ball
    gradients = (link.mean(X @ grid.T) - r[:, None]).T @ X
    assert np.linalg.norm(gradients, axis=1).max() <= policy.lipschitz
    assert policy.lipschitz <= len(r)  # a slope is at most 1

    def bound(c):
        return 2 * math.log(1 / c) + 2 * S * policy.lipschitz * c

    best = minimize_scalar(bound, bounds=(1e-9, 1.0), method="bounded", options={"xatol": 1e-10}).fun
    assert policy.width() == pytest.approx(math.log(1 / delta) + best, abs=1e-4)
    fresh = OFUGLB(2, theta_bound=S, failure_probability=delta)
    assert fresh.width() == pytest.approx(math.log(1 / delta), abs=1e-5)  # c = 1 where nothing is known


def test_the_practical_radius_is_scaled():
    widths = []
    for scale in (1.0, 0.5):
        policy = OFUGLB(2, radius_scale=scale)
        for _ in range(5):
            policy.update(policy.select([[1.0, 0.0]]), 1.0)
        widths.append(policy.width())
    assert widths[1] == pytest.approx(0.25 * widths[0])

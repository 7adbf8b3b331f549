"""OFULog-r: its scores against a grid, its radius against the formulas, its regret."""

from __future__ import annotations

import math

import numpy as np
import pytest
from regret import ball

from dpbandits.reference.light_tails.oful_log_r import OFULogR
from dpkit.models.links import get_link


@pytest.mark.parametrize("name", ["logistic", "probit"])
def test_the_best_score_is_the_maximum_over_the_level_set(name):
    rng, S, link = np.random.default_rng(0), 1.5, get_link(name)
    policy, X, r = OFULogR(2, name, theta_bound=S, radius_scale=0.2), [], []
    for _ in range(30):
        decision = policy.select(ball(rng, 4, 2))
        X.append(decision.arm)
        r.append(float(rng.integers(2)))
        policy.update(decision, r[-1])
    X, r = np.array(X), np.array(r)
    angle, radius = np.meshgrid(np.linspace(0, 2 * np.pi, 721), np.linspace(0, S, 241))
    grid = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1).reshape(-1, 2)
    assert policy.ridge() == 2 * math.log(32)
    losses = np.sum(link.integral(X @ grid.T) - r[:, None] * (X @ grid.T), axis=0)
    losses += 0.5 * policy.ridge() * np.sum(grid**2, axis=1)
    inside = grid[losses <= losses.min() + policy.width()]
    arms = ball(rng, 6, 2)
    decision = policy.select(arms)
    maxima = (arms @ inside.T).max(axis=1)
    assert decision.index == maxima.argmax()
    assert decision.scores[decision.index] == pytest.approx(maxima.max(), abs=0.03)
    assert [policy.contains(v) for v in grid[::5000]] == [
        bool(v) for v in (losses <= losses.min() + policy.width())[::5000]
    ]


def test_theory_parameters_are_the_modules():
    d, S, T, delta = 2, 3.0, 1000, 0.05
    policy = OFULogR(d, theta_bound=S, parameters="theory", horizon=T, failure_probability=delta)
    lam = d * math.log(T)
    assert policy.ridge() == lam
    for _ in range(8):
        policy.update(policy.select([[1.0, 0.0]]), 1.0)
    surprise = math.log(1 / delta) + d * math.log(2) + d / 2 * math.log(1 + 8 / (4 * d * lam))
    gamma = math.sqrt(lam) * (S + 0.5) + 2 / math.sqrt(lam) * surprise
    assert policy.width() == pytest.approx(min(gamma + gamma**2 / math.sqrt(lam), gamma * math.sqrt(7)) ** 2)
    assert OFULogR(d, parameters="theory").ridge() == d
    with pytest.raises(ValueError, match="reward_range must have length at most 1"):
        OFULogR(2, parameters="theory", reward_range=(0, 2))

"""TOFU: its rounds against a dense matrix root and a loop over coordinates, and its truncation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from regret import ball
from scipy.linalg import sqrtm

from dpbandits.reference.heavy_tails.tofu import TOFU


@pytest.mark.parametrize("parameters", ["theory", "practical"])
@pytest.mark.parametrize("eps", [0.4, 1.0])
def test_each_round_is_the_algorithms(parameters, eps):
    rng, d, S, nu, T, delta, lam = np.random.default_rng(5), 3, 0.8, 0.9, 400, 0.03, 0.6
    policy = TOFU(
        d,
        horizon=T,
        theta_bound=S,
        tail=eps,
        noise_scale=nu,
        parameters=parameters,
        radius_scale=0.05,
        failure_probability=delta,
        ridge=lam,
    )
    b, p = 2**eps * (S ** (1 + eps) + nu ** (1 + eps)), (1 - eps) / (2 * (1 + eps))
    X, y, theta, V = np.empty((0, d)), np.empty(0), np.zeros(d), lam * np.eye(d)
    cut = 0
    for t in range(60):
        arms = ball(rng, 4, d)
        decision = policy.select(arms)
        beta = 4 * math.sqrt(d) * b ** (1 / (1 + eps)) * math.log(2 * d * T / delta) ** (eps / (1 + eps)) * t**p
        beta = (beta + math.sqrt(lam) * S) * (1.0 if parameters == "theory" else 0.05)
        scores = [x @ theta + beta * math.sqrt(x @ np.linalg.solve(V, x)) for x in arms]
        np.testing.assert_allclose(decision.scores, scores, rtol=1e-8, atol=1e-10)
        reward = float(decision.arm @ [0.5, 0.5, 0.0] + rng.standard_t(1.5))
        policy.update(decision, reward)
        X, y = np.vstack([X, decision.arm]), np.append(y, reward)
        V = lam * np.eye(d) + X.T @ X
        root = np.linalg.inv(sqrtm(V).real)
        limit = (b / math.log(2 * T / delta)) ** (1 / (1 + eps)) * (t + 1) ** p
        sums = []
        for u in root @ X.T:
            keep = np.abs(u * y) <= limit
            cut += int((~keep).sum())
            sums.append(u[keep] @ y[keep])
        theta = root @ sums
        np.testing.assert_allclose(policy.theta, theta, atol=1e-9)
    assert cut > 3


def test_without_large_rewards_it_is_a_ridge_regression():
    rng = np.random.default_rng(1)
    policy = TOFU(2, horizon=1000, noise_scale=100.0)
    X, y = [], []
    for _ in range(30):
        decision = policy.select(ball(rng, 3, 2))
        X.append(decision.arm)
        y.append(float(rng.standard_normal()))
        policy.update(decision, y[-1])
    expected = np.linalg.solve(np.eye(2) + np.transpose(X) @ X, np.transpose(X) @ y)
    np.testing.assert_allclose(policy.theta, expected, atol=1e-12)


def test_a_monstrous_reward_is_left_out():
    policy = TOFU(1, horizon=1000)
    for t in range(200):
        policy.update(policy.select([[1.0]]), 1e9 if t == 50 else 0.5)
    assert policy.theta[0] == pytest.approx(0.5, abs=0.02)

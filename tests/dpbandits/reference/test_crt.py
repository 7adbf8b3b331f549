"""CRT: its rounds against a dense regression, its threshold and its bias."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from regret import ball

from dpbandits.reference.heavy_tails.crt import CRT


@pytest.mark.parametrize("parameters", ["theory", "practical"])
@pytest.mark.parametrize("eps", [0.4, 1.0])
def test_each_round_is_the_algorithms(parameters, eps):
    rng, d, S, nu, delta, lam = np.random.default_rng(5), 2, 0.8, 0.9, 0.03, 0.6
    policy = CRT(
        d,
        theta_bound=S,
        tail=eps,
        noise_scale=nu,
        parameters=parameters,
        radius_scale=0.05,
        failure_probability=delta,
        ridge=lam,
    )
    u = 2**eps * (S ** (1 + eps) + nu ** (1 + eps))
    X, kept, theta, V = np.empty((0, d)), np.empty(0), np.zeros(d), lam * np.eye(d)
    cut = 0
    for t in range(200):
        arms = ball(rng, 4, d)
        decision = policy.select(arms)
        alphas = (u * np.sqrt(np.arange(1, t + 1))) ** (1 / (1 + eps))
        beta = math.sqrt(lam) * S
        if t:
            doubt = 2 * math.log(t * (t + 1) / delta) + np.linalg.slogdet(V / lam)[1]
            beta += alphas[-1] * math.sqrt(doubt) + math.sqrt(np.sum((u * alphas**-eps) ** 2))
        beta *= 1.0 if parameters == "theory" else 0.05
        scores = [x @ theta + beta * math.sqrt(x @ np.linalg.solve(V, x)) for x in arms]
        np.testing.assert_allclose(decision.scores, scores, rtol=1e-8)
        reward = float(decision.arm @ [0.5, 0.5] + 2 * rng.standard_t(1.5))
        policy.update(decision, reward)
        alpha = (u * math.sqrt(t + 1)) ** (1 / (1 + eps))
        cut += abs(reward) > alpha
        X, kept = np.vstack([X, decision.arm]), np.append(kept, reward if abs(reward) <= alpha else 0.0)
        V = lam * np.eye(d) + X.T @ X
        theta = np.linalg.solve(V, X.T @ kept)
        np.testing.assert_allclose(policy.theta, theta, atol=1e-10)
    assert cut > 3


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 30), ridge=st.floats(0.01, 10.0))
def test_a_bias_moves_the_estimate_by_no_more_than_its_length(seed, n, ridge):
    """‖Σ x_s b_s‖_{V⁻¹} ≤ ‖b‖."""
    rng = np.random.default_rng(seed)
    X, b = ball(rng, n, 3), rng.standard_normal(n)
    pull = X.T @ b
    assert pull @ np.linalg.solve(ridge * np.eye(3) + X.T @ X, pull) <= b @ b * (1 + 1e-9)


def test_a_monstrous_reward_counts_as_nothing():
    policy = CRT(1)
    for t in range(300):
        policy.update(policy.select([[1.0]]), 1e9 if t == 50 else 0.5)
    assert policy.theta[0] == pytest.approx(0.5, abs=0.01)

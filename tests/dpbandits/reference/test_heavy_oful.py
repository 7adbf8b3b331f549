"""HEAVY-OFUL: its estimate against a generic solver of the Huber regression, and its constants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from regret import ball
from scipy.optimize import minimize

from dpbandits.reference.heavy_tails.heavy_oful import HeavyOFUL


@pytest.mark.parametrize("parameters", ["theory", "practical"])
@pytest.mark.parametrize("eps", [0.4, 1.0])
def test_each_round_is_the_algorithms(parameters, eps):
    rng, d, S, nu, T, delta = np.random.default_rng(5), 2, 0.8, 0.9, 400, 0.01
    policy = HeavyOFUL(
        d,
        horizon=T,
        theta_bound=S,
        tail=eps,
        noise_scale=nu,
        parameters=parameters,
        radius_scale=0.05,
        failure_probability=3 * delta,
    )
    theory = parameters == "theory"
    lam, scale, times = (d, 24.0, 3.0) if theory else (1.0, 0.05, 1.0)
    p, doubt = (1 - eps) / (2 * (1 + eps)), math.log(2 * T**2 / delta)
    kappa = d * math.log(1 + T * T / (d * lam))
    tau_0 = math.sqrt(2 * kappa) * math.log(3 * T) ** p / doubt ** (1 / (1 + eps))
    c_0 = 1 / math.sqrt(23 * doubt) if theory else 1.0
    c_1 = math.log(3 * T) ** (2 * p) / (48 * doubt ** (2 / (1 + eps))) if theory else math.inf
    H, X, r, taus, sigmas = lam * np.eye(d), np.empty((0, d)), np.empty(0), np.empty(0), np.empty(0)
    for t in range(1, 31):
        arms = ball(rng, 4, d)
        decision = policy.select(arms)
        beta = times * math.sqrt(lam) * S
        beta += scale * (t - 1) ** p * math.sqrt(2 * kappa) * math.log(3 * T) ** p * doubt ** (eps / (1 + eps))
        scores = [x @ policy.theta + beta * math.sqrt(x @ np.linalg.solve(H, x)) for x in arms]
        np.testing.assert_allclose(decision.scores, scores, rtol=1e-8)
        x, reward = decision.arm, float(decision.arm @ [0.5, 0.5] + rng.standard_t(1.5))
        policy.update(decision, reward)
        size = math.sqrt(x @ np.linalg.solve(H, x))
        sigma = max(nu, 1 / math.sqrt(T), size / c_0, math.sqrt(S * size) / (2 * c_1 * kappa) ** 0.25)
        w = size / sigma
        H += np.outer(x, x) / sigma**2
        X, r, sigmas = np.vstack([X, x]), np.append(r, reward), np.append(sigmas, sigma)
        taus = np.append(taus, tau_0 * math.sqrt(1 + w**2) / w * t**p)

        def huber(v, X=X, r=r, sigmas=sigmas, taus=taus):
            z = np.abs(r - X @ v) / sigmas
            return np.sum(np.where(z <= taus, z**2 / 2, taus * z - taus**2 / 2)) + lam / 2 * v @ v

        constraint = {"type": "ineq", "fun": lambda v: S**2 - v @ v}
        found = minimize(huber, policy.theta * 0.9, constraints=constraint, method="SLSQP", options={"ftol": 1e-14})
        assert huber(policy.theta) <= found.fun + 1e-9
        np.testing.assert_allclose(policy.theta, found.x, atol=1e-4)


def test_the_clip_matters():
    """One monstrous reward among 200 hardly moves the estimate; least squares would put it far away."""
    policy = HeavyOFUL(1, horizon=1000, theta_bound=50.0)
    for t in range(200):
        policy.update(policy.select([[1.0]]), 1e6 if t == 100 else 0.5)
    assert abs(policy.theta[0] - 0.5) < 0.5

"""AdaOFUL: its estimate against a generic solver of the pseudo-Huber regression, and its constants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from regret import ball
from scipy.optimize import approx_fprime, minimize

from dpbandits.reference.heavy_tails.ada_oful import AdaOFUL


@pytest.mark.parametrize("parameters", ["theory", "practical"])
def test_each_round_is_the_algorithms(parameters):
    rng, d, S, nu, T, delta = np.random.default_rng(5), 2, 0.8, 0.9, 400, 0.01
    policy = AdaOFUL(
        d,
        horizon=T,
        theta_bound=S,
        noise_scale=nu,
        parameters=parameters,
        radius_scale=0.05,
        failure_probability=3 * delta,
    )
    theory = parameters == "theory"
    lam, doubt = d / S**2 if theory else 1.0, math.log(2 * T**2 / delta)
    kappa = d * math.log(1 + T * T / (d * lam))
    tau_0 = max(math.sqrt(2 * kappa), 2 * math.sqrt(d)) / math.sqrt(doubt)
    m_0, m_1 = (1 / (6 * math.sqrt(3 * doubt)), 1 / (42 * doubt)) if theory else (1.0, math.inf)
    H, X, r, taus, sigmas = lam * np.eye(d), np.empty((0, d)), np.empty(0), np.empty(0), np.empty(0)
    for t in range(1, 31):
        arms = ball(rng, 4, d)
        decision = policy.select(arms)
        now = math.log(2 * max(t - 1, 1) ** 2 / delta)
        beta = 0.05 * math.sqrt(kappa * now) + math.sqrt(lam) * S
        if theory:
            beta = 64 * (2 * math.sqrt(kappa * now) + math.sqrt(d * now)) + 5 * math.sqrt(d)
        scores = [x @ policy.theta + beta * math.sqrt(x @ np.linalg.solve(H, x)) for x in arms]
        np.testing.assert_allclose(decision.scores, scores, rtol=1e-8)
        x, reward = decision.arm, float(decision.arm @ [0.5, 0.5] + rng.standard_t(1.5))
        policy.update(decision, reward)
        size = math.sqrt(x @ np.linalg.solve(H, x))
        sigma = max(nu, 1 / math.sqrt(T), size / m_0, math.sqrt(S * size) / (m_1 * d) ** 0.25)
        w = size / sigma
        H += np.outer(x, x) / sigma**2
        X, r, sigmas = np.vstack([X, x]), np.append(r, reward), np.append(sigmas, sigma)
        taus = np.append(taus, tau_0 * math.sqrt(1 + w**2) / w)

        def loss(v, X=X, r=r, sigmas=sigmas, taus=taus):
            z = (r - X @ v) / sigmas
            return np.sum(taus * (np.sqrt(taus**2 + z**2) - taus)) + lam / 2 * v @ v

        constraint = {"type": "ineq", "fun": lambda v: S**2 - v @ v}
        found = minimize(loss, policy.theta * 0.9, constraints=constraint, method="SLSQP", options={"ftol": 1e-14})
        assert loss(policy.theta) <= found.fun + 1e-9
        np.testing.assert_allclose(policy.theta, found.x, atol=1e-4)


def test_the_loss_has_its_derivatives():
    rng = np.random.default_rng(2)
    policy = AdaOFUL(2, horizon=100, noise_scale=0.1)
    for _ in range(20):
        policy.update(policy.select(ball(rng, 3, 2)), float(rng.standard_t(1.5)))
    theta = np.array([0.2, -0.3])
    _, gradient, hessian = policy.loss(theta)
    np.testing.assert_allclose(gradient, approx_fprime(theta, lambda v: policy.loss(v)[0], 1e-6), rtol=1e-3, atol=1e-3)
    for i in range(2):
        bend = approx_fprime(theta, lambda v, i=i: policy.loss(v)[1][i], 1e-6)
        np.testing.assert_allclose(hessian[i], bend, rtol=1e-3, atol=1e-2)


def test_the_bend_matters():
    """One monstrous reward among 200 hardly moves the estimate; least squares would put it far away."""
    policy = AdaOFUL(1, horizon=1000, theta_bound=50.0)
    for t in range(200):
        policy.update(policy.select([[1.0]]), 1e6 if t == 100 else 0.5)
    assert abs(policy.theta[0] - 0.5) < 0.5


def test_an_arm_of_zeros_says_nothing():
    policy = AdaOFUL(2, horizon=100)
    policy.update(policy.select([[0.0, 0.0]]), 5.0)
    assert policy.rows.count == 0
    assert not policy.theta.any()

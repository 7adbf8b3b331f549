"""GLOC against the literal formulas of its paper, with dense least squares in place of updates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from regret import ball
from scipy.optimize import minimize

from dpbandits.reference.light_tails.gloc import GLOC
from dpkit.models.links import get_link


@pytest.mark.parametrize("name", ["logistic", "probit", "linear"])
def test_each_round_is_the_algorithms(name):
    rng, d, S, R, delta, lam = np.random.default_rng(1), 3, 1.0, 0.5, 0.05, 3.0
    link = get_link(name)
    kappa = link.derivative_range(S)[0]
    policy = GLOC(d, name, theta_bound=S, failure_probability=delta, noise_bound=R)
    learner, X, z, B = np.zeros(d), np.empty((0, d)), np.empty(0), 2 * kappa * S**2 * lam
    for _ in range(25):
        arms = ball(rng, 4, d)
        decision = policy.select(arms)
        V = lam * np.eye(d) + X.T @ X
        center = np.linalg.solve(V, X.T @ z)
        # Jun et al. (2017), Theorem 1
        root = math.sqrt(1 + 2 / kappa * B + 4 * R**4 / (kappa**4 * delta**2))
        beta = 1 + 4 / kappa * B + 8 * R**2 / kappa**2 * math.log(2 / delta * root)
        beta += lam * S**2 - (z @ z - center @ X.T @ z)
        scores = [x @ center + math.sqrt(beta * (x @ np.linalg.solve(V, x))) for x in arms]
        np.testing.assert_allclose(decision.scores, scores, rtol=1e-8)
        reward = float(rng.integers(2))
        policy.update(decision, reward)

        # Algorithm 2: the online Newton step and its regret
        x = decision.arm
        X, z = np.vstack([X, x]), np.append(z, x @ learner)
        V = V + np.outer(x, x)
        gradient = (float(link.mean(x @ learner)) - reward) * x
        B += gradient @ np.linalg.solve(V, gradient) / (2 * kappa)
        target = learner - np.linalg.solve(V, gradient) / kappa
        learner = target
        if np.linalg.norm(target) > S:
            learner = minimize(
                lambda v, V=V, target=target: (v - target) @ V @ (v - target),
                S * target / np.linalg.norm(target),
                constraints={"type": "ineq", "fun": lambda v: S**2 - v @ v},
                method="SLSQP",
                options={"ftol": 1e-15, "maxiter": 500},
            ).x
        np.testing.assert_allclose(policy.learner, learner, atol=1e-5)
        learner = policy.learner.copy()  # the solver's error does not add up

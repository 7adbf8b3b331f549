"""GLM-UCB: its estimate against a generic constrained solver, its radius against the formula, its regret."""

from __future__ import annotations

import math

import numpy as np
import pytest
from regret import ball
from scipy.optimize import minimize

from dpbandits.reference.light_tails.glm_ucb import GLMUCB
from dpkit.models.links import get_link


@pytest.mark.parametrize("name", ["logistic", "probit", "poisson", "linear"])
def test_each_round_is_the_algorithms(name):
    rng, d, S, delta = np.random.default_rng(3), 2, 0.8, 0.05
    link = get_link(name)
    policy = GLMUCB(d, name, theta_bound=S, failure_probability=delta, noise_bound=0.5)
    c, k = link.derivative_range(S)
    lam, V, X, r = 2.0, 2.0 * np.eye(d), np.empty((0, d)), np.empty(0)
    for _ in range(25):
        arms = ball(rng, 4, d)
        decision = policy.select(arms)

        def loss(theta, X=X, r=r):
            return np.sum(link.integral(X @ theta) - r * (X @ theta)) + 0.5 * lam * c * theta @ theta

        ball_constraint = {"type": "ineq", "fun": lambda v: S**2 - v @ v, "jac": lambda v: -2 * v}
        found = minimize(loss, np.zeros(d), constraints=ball_constraint, method="SLSQP", options={"ftol": 1e-14})
        np.testing.assert_allclose(policy.theta, found.x, atol=1e-5)
        deviation = math.sqrt(2 * math.log(1 / delta) + math.log(np.linalg.det(V) / lam**d))
        beta = 0.5 / c * deviation + math.sqrt(lam) * S
        lengths = [math.sqrt(x @ np.linalg.solve(V, x)) for x in arms]
        np.testing.assert_allclose(
            decision.scores, link.mean(arms @ policy.theta) + k * beta * np.array(lengths), rtol=1e-9
        )
        reward = float(rng.integers(2))
        policy.update(decision, reward)
        V += np.outer(decision.arm, decision.arm)
        X, r = np.vstack([X, decision.arm]), np.append(r, reward)


def test_the_noise_bound():
    assert GLMUCB(2, "poisson", theta_bound=1.0).noise_bound == pytest.approx(math.exp(0.5))
    assert GLMUCB(2, "logistic", parameters="theory").noise_bound == 0.5

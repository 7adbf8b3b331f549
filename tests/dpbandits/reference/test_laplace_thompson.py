"""Laplace's Thompson sampling: the maximum of the posterior, the Hessian there, and the draws around it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from regret import ball
from scipy.optimize import minimize

from dpbandits.reference.light_tails.laplace_thompson import LaplaceThompson
from dpkit.models.links import get_link

DRAWS, SLACK = 4000, 6.5  # a normal variable leaves 6.5 standard deviations with probability 8e-11


@pytest.mark.parametrize("name", ["logistic", "probit", "poisson", "linear"])
def test_draws_are_from_laplaces_approximation(name):
    rng, d, lam, g = np.random.default_rng(0), 2, 1.5, 0.7
    link = get_link(name)
    policy = LaplaceThompson(
        d, name, theta_bound=10.0, ridge=lam, dispersion=g, radius_scale=1.3, rng=np.random.default_rng(1)
    )
    X, r = [], []
    for _ in range(40):
        decision = policy.select(ball(rng, 4, d))
        X.append(decision.arm)
        r.append(float(rng.integers(2)))
        policy.update(decision, r[-1])
    X, r = np.array(X), np.array(r)

    def loss(v):
        return np.sum(link.integral(X @ v) - r * (X @ v)) / g + 0.5 * lam * v @ v

    best = minimize(loss, np.zeros(d), method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose(policy.theta, best, atol=1e-5)
    hessian = (X.T * link.derivative(X @ best)) @ X / g + lam * np.eye(d)
    np.testing.assert_allclose(policy.hessian, hessian, rtol=1e-3)
    draws = np.array([policy.select(np.eye(d)).scores for _ in range(DRAWS)])
    z = (draws - policy.theta) @ np.linalg.cholesky(policy.hessian) / 1.3  # standard normals
    deviation = SLACK * math.sqrt(2 * z.size)  # of Σz², a chi-square variable
    assert abs(np.sum(z**2) - z.size) <= deviation
    assert abs(np.sum((z / 0.9) ** 2) - z.size) > deviation
    assert abs(np.sum((z / 1.1) ** 2) - z.size) > deviation
    assert np.abs(z.mean(axis=0)).max() <= SLACK / math.sqrt(DRAWS)
    assert abs(np.mean(z[:, 0] * z[:, 1])) <= SLACK / math.sqrt(DRAWS)


def test_the_theorys_inflation_is_the_modules():
    S, delta, lam = 2.0, 0.05, 1.0
    policy = LaplaceThompson(2, theta_bound=S, parameters="theory", failure_probability=delta)
    for _ in range(10):
        policy.update(policy.select([[1.0, 0.0]]), 1.0)
    c, k = get_link("logistic").derivative_range(S)
    radius = 0.5 / c * math.sqrt(2 * math.log(1 / delta) + 2 * math.log(1 + c * 10 / (2 * lam)))
    radius += math.sqrt(lam / c) * S
    assert policy.width() == pytest.approx(math.sqrt(k) * radius)

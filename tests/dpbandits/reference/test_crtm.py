"""CRTM against the literal steps of its algorithm and the quadratic equation of its radius."""

from __future__ import annotations

import math

import numpy as np
import pytest
from regret import ball

from dpbandits.reference.heavy_tails.crtm import CRTM
from dpkit.models.ellipsoid import project_on_ball
from dpkit.models.links import get_link


@pytest.mark.parametrize(("name", "eps"), [("linear", 1.0), ("linear", 0.3), ("logistic", 0.5)])
def test_each_round_is_the_algorithms(name, eps):
    rng, d, S = np.random.default_rng(4), 2, 0.9
    link = get_link(name)
    policy = CRTM(d, name, horizon=300, theta_bound=S, tail=eps, noise_scale=1.5, reward_range=(-1e9, 1e9))
    policy.truncation = 1.0  # some of the rewards below are truncated, some are not
    kappa, lam, truncated = link.derivative_range(S)[0], policy.ridge, 0
    theta, V = np.zeros(d), lam * np.eye(d)
    for _ in range(40):
        arms = ball(rng, 4, d)
        decision = policy.select(arms)
        scores = [x @ theta + policy.width() * math.sqrt(x @ np.linalg.solve(V, x)) for x in arms]
        np.testing.assert_allclose(decision.scores, scores, rtol=1e-8)
        x, r = decision.arm, float(2 * rng.standard_t(1.5))
        policy.update(decision, r)
        kept = abs(r) * math.sqrt(x @ np.linalg.solve(V, x)) <= 1.0
        truncated += not kept
        gradient = (float(link.mean(x @ theta)) - r * kept) * x
        V += kappa / 2 * np.outer(x, x)
        theta = project_on_ball(theta - np.linalg.solve(V, gradient), V, S)
        np.testing.assert_allclose(policy.theta, theta, atol=1e-9)
        np.testing.assert_allclose(policy.V.matrix, V, rtol=1e-9)
    assert 3 <= truncated <= 30


def test_the_theorys_radius_solves_its_equation():
    d, T, S, eps, nu, delta = 3, 1000, 1.0, 0.5, 2.0, 0.05
    policy = CRTM(
        d,
        horizon=T,
        theta_bound=S,
        tail=eps,
        noise_scale=nu,
        parameters="theory",
        failure_probability=delta,
    )
    u, doubt, lam = 2**eps * (S ** (1 + eps) + nu ** (1 + eps)), math.log(2 / delta), policy.ridge
    P = 4 * d * math.log(1 + T / (2 * lam * d))
    Q = T ** ((1 - eps) / 2) * P ** ((1 + eps) / 2)
    G = policy.truncation
    assert u * G**-eps * Q == pytest.approx(G * doubt)
    # bias, deviation and stability of the module's derivation, at the radius √γ
    root = policy.width()
    bias = 2 * u * G**-eps * Q * root
    deviation = (math.e - 2) * u * G**-eps * Q * root + 4 * G * root * doubt
    stability = 2 * S**2 * P + 2 * (math.e - 1) * u * G ** (1 - eps) * Q + 2 * G**2 * doubt
    assert lam * S**2 + bias + deviation + stability == pytest.approx(root**2)


def test_the_potential_bounds_the_norms_that_it_stands_for():
    """Σ ‖x_s‖²_{V_s⁻¹} ≤ P, also for arms that are chosen to make it large."""
    rng, d, T = np.random.default_rng(0), 2, 300
    policy = CRTM(d, horizon=T)
    total = 0.0
    for _ in range(T):
        decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
        total += decision.arm @ policy.V.inverse @ decision.arm
        policy.update(decision, float(rng.standard_normal()))
    assert total <= 4 * d * math.log(1 + T / (2 * d * d))

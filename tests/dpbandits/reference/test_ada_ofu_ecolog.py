"""ada-OFU-ECOLog: its steps against a generic solver, rounds set aside, and the inequality behind its radius."""

from __future__ import annotations

import math

import numpy as np
import pytest
from regret import ball
from scipy.optimize import minimize

from dpbandits.reference.light_tails.ada_ofu_ecolog import AdaOFUECOLog


def mu(z):
    return 1 / (1 + np.exp(-z))


def slope(z):
    return mu(z) * (1 - mu(z))


def loss(z, r):
    return np.logaddexp(0, z) - r * z


def proximal(theta, W, x, rewards, eta, center, shape, radius):
    """argmin of ½‖v − θ‖²_W + ηΣℓ(xᵀv, r) over {‖v − center‖_shape ≤ radius}, by a generic solver."""

    def value(v):
        return 0.5 * (v - theta) @ W @ (v - theta) + eta * sum(loss(x @ v, r) for r in rewards)

    def gradient(v):
        return W @ (v - theta) + eta * sum(mu(x @ v) - r for r in rewards) * x

    inside = {"type": "ineq", "fun": lambda v: radius**2 - (v - center) @ shape @ (v - center)}
    start = center + 0.9 * min(1.0, radius / (1e-9 + math.sqrt((theta - center) @ shape @ (theta - center)))) * (
        theta - center
    )
    return minimize(value, start, jac=gradient, constraints=inside, method="SLSQP", options={"ftol": 1e-16}).x


@pytest.mark.parametrize(("parameters", "S"), [("theory", 3.0), ("practical", 1.5)])
def test_each_round_is_the_algorithms(parameters, S):
    rng, d, delta = np.random.default_rng(4), 2, 0.03
    policy = AdaOFUECOLog(d, theta_bound=S, parameters=parameters, radius_scale=0.4, failure_probability=delta)
    theory, truth = parameters == "theory", np.array([0.8, -0.6]) * S
    theta, W, squared, aside = np.zeros(d), np.eye(d), None, 0
    squared = S**2 + 2 * (1 + S if theory else 1.0) * math.log(2 / delta)
    for _ in range(60):
        arms = ball(rng, 5, d)
        decision = policy.select(arms)
        beta = math.sqrt(squared) * (1.0 if theory else 0.4)
        scores = [x @ theta + beta * math.sqrt(x @ np.linalg.solve(W, x)) for x in arms]
        np.testing.assert_allclose(decision.scores, scores, rtol=1e-6)
        x = decision.arm
        r = float(rng.random() < mu(x @ truth))
        policy.update(decision, r)
        # so few rounds set aside leave the ellipsoid wider than the ball
        eta = 1 + S * np.linalg.norm(x) if theory else 1.0
        bar = proximal(theta, W, x, [0, 1], eta, np.zeros(d), np.eye(d), S)
        ends = [proximal(theta, W, x, [u], eta, np.zeros(d), np.eye(d), S) for u in (0, 1)]
        if slope(x @ bar) > 2 * min(slope(x @ end) for end in ends):
            aside += 1
            assert policy.aside.count == aside
            np.testing.assert_array_equal(policy.theta, theta)
            continue
        np.testing.assert_allclose(policy.theta, ends[int(r)], atol=2e-5)
        new = policy.theta
        squared += 2 * eta * (loss(x @ bar, r) - loss(x @ new, r)) - (new - theta) @ W @ (new - theta)
        W += slope(x @ new) * np.outer(x, x)
        theta = new
    assert (aside > 0) == theory
    assert policy.width() == pytest.approx(math.sqrt(squared) * (1.0 if theory else 0.4), rel=1e-4)


def test_rounds_set_aside_make_the_set_narrower_until_the_test_holds():
    """One arm, S = 2: a large λ of the estimate is not there, so the first rounds at the edge fail the test."""
    policy = AdaOFUECOLog(1, theta_bound=2.0, parameters="theory", failure_probability=0.5)
    rng = np.random.default_rng(0)
    policy.theta = np.array([2.0])  # as unlucky as can be: the reward is a coin's
    for _ in range(1500):
        decision = policy.select([[1.0]])
        policy.update(decision, float(rng.random() < 0.5))
    assert 1 <= policy.aside.count < 1500
    assert policy.V.updates + policy.aside.count == 1500
    assert abs(policy.theta[0]) < 0.5


@pytest.mark.thorough
def test_the_step_over_the_ellipsoid_is_the_generic_solvers():
    rng, d, S = np.random.default_rng(1), 2, 2.0
    policy = AdaOFUECOLog(d, theta_bound=S, parameters="theory", failure_probability=0.5)
    for _ in range(20_000):
        x = ball(rng, d)
        policy.aside.append([*x, float(rng.random() < mu(x @ [1.0, -1.0]))])
        policy.A.add(x, 1.0)
    policy.set_aside(np.array([1.0, 0.0]), 1.0)
    assert np.linalg.norm(policy.center - [1.0, -1.0]) < 0.3
    for theta in ([1.9, 0.0], [-0.5, 1.0]):  # outside of the ellipsoid
        policy.theta = np.array(theta)
        x = ball(rng, d)
        nearest, eta = policy.nearest(x, policy.V.inverse @ x)
        half = policy.reach() * math.sqrt(x @ np.linalg.solve(policy.A.matrix, x))
        assert half < S * np.linalg.norm(x)
        assert eta == pytest.approx(1 + half)
        found, z = nearest(lambda z: float(mu(z)) - 1.0)
        expected = proximal(
            policy.theta, policy.V.matrix, x, [1.0], eta, policy.center, policy.A.matrix, policy.reach()
        )
        np.testing.assert_allclose(found, expected, atol=1e-4)
        assert z == pytest.approx(x @ found)


@pytest.mark.thorough
def test_the_radius_is_paid_for_in_every_round():
    """As for OFUL-MLogB: in every round, for every θ* of the ball and any reward."""
    rng, d, S = np.random.default_rng(7), 2, 3.0
    policy = AdaOFUECOLog(d, theta_bound=S, parameters="theory")
    points = np.concatenate([S * ball(rng, 200, d), S * np.array([[1.0, 0], [0, 1], [-1, 0], [0, -1]])])
    tightest, learned = math.inf, 0
    for _ in range(300):
        theta, W, before, updates = policy.theta, policy.V.matrix.copy(), policy.width() ** 2, policy.V.updates
        decision = policy.select(ball(rng, 3, d))
        x, r = decision.arm, float(rng.random() < 0.5)
        eta = 1 + S * np.linalg.norm(x)
        bar = proximal(theta, W, x, [0, 1], eta, np.zeros(d), np.eye(d), S)
        policy.update(decision, r)
        if policy.V.updates == updates:
            continue
        learned += 1
        grown = policy.width() ** 2 - before
        old, new = points - theta, points - policy.theta
        left = np.einsum("ij,jk,ik->i", new, policy.V.matrix, new)
        right = np.einsum("ij,jk,ik->i", old, W, old) + 2 * eta * (loss(points @ x, r) - loss(x @ bar, r)) + grown
        tightest = min(tightest, float((right - left).min()))
    assert learned > 100
    assert -1e-4 <= tightest < 0.05  # the generic solver has five digits

"""RS-GLinCB: its two criteria, its elimination, its estimates and its constants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from regret import ball
from scipy.optimize import minimize

from dpbandits.reference.light_tails.rs_glincb import RSGLinCB
from dpkit.models.links import get_link


def fit(link, X, r, ridge, inside=None):
    """The penalised maximum likelihood, within an ellipsoid (center, matrix, radius) where one is given."""

    def loss(v):
        return np.sum(link.integral(X @ v) - r * (X @ v)) + 0.5 * ridge * v @ v

    if inside is None:
        return minimize(loss, np.zeros(X.shape[1]), method="BFGS", options={"gtol": 1e-8}).x
    c, M, radius = inside
    constraint = {"type": "ineq", "fun": lambda v: radius**2 - (v - c) @ M @ (v - c)}
    return minimize(loss, c, constraints=constraint, method="SLSQP", options={"ftol": 1e-14, "maxiter": 300}).x


@pytest.mark.parametrize("name", ["logistic", "probit"])
def test_each_round_is_the_algorithms(name):
    rng, d, link = np.random.default_rng(2), 2, get_link(name)
    policy = RSGLinCB(d, name, horizon=1000, theta_bound=1.5)
    policy.threshold = 0.3  # an exploration phase of some rounds, scattered among the others
    lam, V, H = policy.ridge, policy.ridge * np.eye(d), policy.ridge * np.eye(d)
    H_tau, theta_tau = H.copy(), np.zeros(d)
    explored, others, refits = [], [], 0
    for _ in range(120):
        arms = ball(rng, 5, d)
        theta_o = policy.theta_o.copy()
        decision = policy.select(arms)
        squares = np.array([x @ np.linalg.solve(V, x) for x in arms])
        r = float(rng.random() < link.mean(decision.arm @ [1.0, 1.0]))
        policy.update(decision, r)
        if squares.max() >= policy.threshold:  # criterion I
            assert decision.index == squares.argmax()
            V += np.outer(decision.arm, decision.arm)
            explored.append([*decision.arm, r])
            rows = np.array(explored)
            np.testing.assert_allclose(policy.theta_o, fit(link, rows[:, :2], rows[:, 2], lam), atol=1e-4)
            continue
        if np.linalg.det(H) > 1.5 * np.linalg.det(H_tau):  # criterion II
            rows = np.array(explored + others)
            H_tau, theta_tau, refits = H.copy(), fit(link, rows[:, :2], rows[:, 2], lam), refits + 1
            np.testing.assert_allclose(policy.theta, theta_tau, atol=1e-4)
        reach = policy.gamma * np.sqrt(squares)
        kept = arms @ theta_o + reach >= (arms @ theta_o - reach).max()
        scores = arms @ policy.theta + policy.beta * np.sqrt([x @ np.linalg.solve(H_tau, x) for x in arms])
        np.testing.assert_allclose(decision.scores, np.where(kept, scores, -np.inf), rtol=1e-7)
        H += float(link.derivative(decision.arm @ theta_o)) / math.e * np.outer(decision.arm, decision.arm)
        others.append([*decision.arm, r])
    assert len(explored) >= 3
    assert refits >= 3


def test_arms_that_the_exploration_estimate_rules_out_are_dropped():
    policy = RSGLinCB(2, horizon=100, theta_bound=1.0)
    policy.threshold, policy.gamma = 10.0, 0.1
    policy.theta_o = np.array([1.0, 0.0])
    decision = policy.select([[1.0, 0.0], [-1.0, 0.0], [0.99, 0.0]])
    assert np.isfinite(decision.scores).tolist() == [True, False, True]


def test_theory_parameters_are_the_papers():
    d, T, S, delta = 3, 500, 2.0, 0.05
    policy = RSGLinCB(d, horizon=T, theta_bound=S, parameters="theory", failure_probability=delta)
    size, kappa = math.sqrt(d * math.log(T / delta)), get_link("logistic").kappa(S)
    assert policy.ridge == pytest.approx(size**2)
    assert policy.gamma == pytest.approx(25 * S * size * math.sqrt(kappa))
    assert policy.beta == pytest.approx(150 * size)
    assert policy.threshold == pytest.approx(1 / (625 * S**2 * size**2 * kappa))
    with pytest.raises(ValueError, match="reward_range must be finite"):
        RSGLinCB(2, "poisson", horizon=10, parameters="theory")


def test_the_theorys_estimate_stays_near_the_exploration_estimate():
    rng, link = np.random.default_rng(0), get_link("logistic")
    policy = RSGLinCB(2, horizon=1000, theta_bound=2.0, parameters="theory")
    policy.threshold, policy.gamma = math.inf, 0.5  # never explore, and a constraint that binds
    rows = []
    for _ in range(400):
        decision = policy.select(ball(rng, 5, 2))
        r = float(rng.random() < link.mean(decision.arm @ [2.0, 0.0]))
        policy.update(decision, r)
        rows.append([*decision.arm, r])
        if np.linalg.norm(policy.theta) > 0:
            break
    X, r = np.array(rows[:-1])[:, :2], np.array(rows[:-1])[:, 2]
    expected = fit(link, X, r, policy.ridge, inside=(np.zeros(2), policy.ridge * np.eye(2), 0.5))
    np.testing.assert_allclose(policy.theta, expected, atol=1e-4)
    assert math.sqrt(policy.ridge) * np.linalg.norm(policy.theta) == pytest.approx(0.5)

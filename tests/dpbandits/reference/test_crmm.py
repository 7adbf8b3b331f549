"""CRMM: its epochs, its median steps, late rewards and arms that change."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import binom

from dpbandits.reference.heavy_tails.crmm import CRMM
from dpkit.models.ellipsoid import project_on_ball

ARMS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]])


def test_each_epoch_is_the_algorithms():
    rng, S = np.random.default_rng(0), 0.9
    policy = CRMM(2, horizon=1000, theta_bound=S, noise_scale=1.5)
    m = policy.plays
    theta, V, stability = np.zeros(2), np.eye(2), 0.0
    for _ in range(6):
        decisions, rewards = [], rng.standard_t(1.5, m)
        for r in rewards:
            decisions.append(policy.select(ARMS))
            policy.update(decisions[-1], float(r))
        assert len({decision.index for decision in decisions}) == 1
        b = 4 ** (1 / 2) * 1.5
        radius = math.sqrt(S**2 + 4 * b**2 / 3 * math.log(2 / 0.01) + stability)
        scores = [x @ theta + policy.radius_scale * radius * math.sqrt(x @ np.linalg.solve(V, x)) for x in ARMS]
        np.testing.assert_allclose(decisions[0].scores, scores, rtol=1e-9)
        x = decisions[0].arm
        slope = x @ theta - np.median(rewards)
        V += 0.5 * np.outer(x, x)
        stability += slope**2 * x @ np.linalg.solve(V, x)
        theta = project_on_ball(theta - slope * np.linalg.solve(V, x), V, S)
        np.testing.assert_allclose(policy.theta, theta, atol=1e-12)


def test_a_median_leaves_its_interval_as_seldom_as_the_theory_says():
    """Each value leaves [−b, b] on one side with probability at most ⅛; the median does when half of them do."""
    T, delta = 5000, 0.05
    m = CRMM(2, horizon=T, failure_probability=delta).plays
    assert 2 * T * binom.sf(math.ceil(m / 2) - 1, m, 1 / 8) <= delta / 2


def test_late_rewards_of_an_open_epoch_count_and_of_a_closed_one_do_not():
    policy = CRMM(2, horizon=1000)
    late = policy.select(ARMS)
    for _ in range(policy.plays - 1):
        policy.update(policy.select(ARMS), 0.3)
    assert policy.epoch.count == policy.plays - 1
    stray = policy.select(ARMS)
    policy.update(late, 0.3)
    assert policy.epoch.count == 0
    assert policy.V.updates == 1
    policy.update(stray, 0.3)
    assert policy.epoch.count == 0


def test_arms_of_length_one_up_to_rounding_are_recognized():
    """What is chosen is scaled to at most 1, which may make it differ from what is offered in the last digits."""
    for seed in range(50):
        arms = np.random.default_rng(seed).standard_normal((3, 7))
        arms /= np.linalg.norm(arms, axis=1, keepdims=True)
        policy = CRMM(7, horizon=1000)
        for _ in range(policy.plays):
            policy.update(policy.select(arms), 0.3)
        assert policy.V.updates == 1

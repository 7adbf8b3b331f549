"""The environment of shuffle-private LinUCB: fixed arms, means linear in them, rewards of 0 or 1."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from dpbandits.lab.environments import LinearBernoulli


def test_arms_are_fixed_in_the_ball_and_means_linear_in_them():
    rounds = list(islice(LinearBernoulli(6, arms=40).episode(np.random.default_rng(0)), 50))
    X, means = rounds[0].arms, rounds[0].means
    assert all(now.arms is X for now in rounds)
    assert np.linalg.norm(X, axis=1).max() <= 1.0
    assert 0.0 <= means.min() < means.max() <= 1.0
    theta = np.linalg.lstsq(X, means, rcond=None)[0]
    np.testing.assert_allclose(X @ theta, means, atol=1e-10)
    assert np.linalg.norm(theta) == pytest.approx(LinearBernoulli().theta_bound, rel=1e-9)
    # the first arms are the basis, with the bias: scaled to norm 1, the bias alone to 1/√2
    np.testing.assert_allclose(X[:5, :5], np.eye(5) / np.sqrt(2), atol=1e-9)
    np.testing.assert_allclose(X[5], [0, 0, 0, 0, 0, np.sqrt(0.5)], atol=1e-9)


def test_rewards_have_these_means():
    """4000 rounds of 40 arms: a mean strays by 6.5 standard deviations with probability below 1e-10."""
    rounds = list(islice(LinearBernoulli(3, arms=40).episode(np.random.default_rng(1)), 4000))
    rewards = np.array([now.rewards for now in rounds])
    assert set(np.unique(rewards)) <= {0.0, 1.0}
    assert np.abs(rewards.mean(axis=0) - rounds[0].means).max() <= 6.5 * 0.5 / np.sqrt(4000)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"dim": 1}, "dim must be at least 2, got dim=1"), ({"arms": 4}, "arms must be at least 5, got arms=4")],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        LinearBernoulli(**parameters)

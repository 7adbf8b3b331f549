"""Linear Thompson sampling: its draws have the posterior's mean and covariance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from regret import ball

from dpbandits.reference.light_tails.linear_thompson import LinearThompson

DRAWS, SLACK = 4000, 6.5  # a normal variable leaves 6.5 standard deviations with probability 8e-11


def whitened_draws(policy, mean, covariance):
    """Draws of θ̃ (the scores of the unit vectors), as standard normals if mean and covariance are right."""
    d = len(mean)
    draws = np.array([policy.select(np.eye(d)).scores for _ in range(DRAWS)])
    return (draws - mean) @ np.linalg.inv(np.linalg.cholesky(covariance)).T


def is_standard_normal(z):
    count = z.size
    right_mean = np.abs(z.mean(axis=0)).max() <= SLACK / math.sqrt(len(z))
    # Σz² is chi-square, of standard deviation √(2·count)
    right_scale = abs(np.sum(z**2) - count) <= SLACK * math.sqrt(2 * count)
    correlation = z.T @ z / len(z) - np.eye(z.shape[1])
    return right_mean and right_scale and np.abs(correlation).max() <= 1.5 * SLACK / math.sqrt(len(z))


@pytest.mark.parametrize("parameters", ["practical", "theory"])
def test_draws_are_from_the_posterior(parameters):
    rng, d, R, lam, delta = np.random.default_rng(0), 3, 0.8, 2.0, 0.1
    policy = LinearThompson(
        d,
        parameters=parameters,
        noise_bound=R,
        ridge=lam,
        failure_probability=delta,
        rng=np.random.default_rng(1),
    )
    V, b = lam * np.eye(d), np.zeros(d)
    for _ in range(30):
        decision = policy.select(ball(rng, 4, d))
        r = float(rng.standard_normal())
        policy.update(decision, r)
        V += np.outer(decision.arm, decision.arm)
        b += r * decision.arm
    v = R if parameters == "practical" else R * math.sqrt(9 * d * math.log(31 / delta))
    assert policy.width() == pytest.approx(v)
    mean, covariance = np.linalg.solve(V, b), v**2 * np.linalg.inv(V)
    z = whitened_draws(policy, mean, covariance)
    assert is_standard_normal(z)
    assert not is_standard_normal(z / 0.9)  # would the draws' scale be wrong by so much
    assert not is_standard_normal(z / 1.1)
    assert not is_standard_normal(z + 0.15)

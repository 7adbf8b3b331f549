"""OFUL against the literal formulas of its paper."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from regret import ball

from dpbandits.reference.light_tails.oful import OFUL


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000), scale=st.sampled_from([0.5, 1.0]))
def test_each_round_is_the_algorithms(seed, scale):
    rng, d, S, R, lam, delta = np.random.default_rng(seed), 3, 1.5, 0.7, 2.0, 0.05
    policy = OFUL(d, theta_bound=S, noise_bound=R, ridge=lam, failure_probability=delta, radius_scale=scale)
    V, b = lam * np.eye(d), np.zeros(d)
    for _ in range(15):
        arms = ball(rng, 5, d)
        decision = policy.select(arms)
        # Abbasi-Yadkori et al. (2011), Theorem 2
        deviation = 2 * math.log(1 / delta) + math.log(np.linalg.det(V) / lam**d)
        beta = scale * (R * math.sqrt(deviation) + math.sqrt(lam) * S)
        inverse = np.linalg.inv(V)
        scores = [x @ inverse @ b + beta * math.sqrt(x @ inverse @ x) for x in arms]
        np.testing.assert_allclose(decision.scores, scores, rtol=1e-9)
        r = float(rng.standard_normal())
        policy.update(decision, r)
        V += np.outer(decision.arm, decision.arm)
        b += r * decision.arm


def test_practical_parameters_at_scale_1_are_the_theorys():
    widths = [OFUL(2, noise_bound=1.0, parameters=name).width() for name in ("practical", "theory")]
    assert widths[0] == widths[1]
    scaled = OFUL(2, noise_bound=1.0, parameters="theory", radius_scale=0.1).width()
    assert scaled == widths[1]  # the theory's radius is not scaled


def test_the_noise_bound_is_half_the_range_of_rewards():
    assert OFUL(2, reward_range=(-1, 2)).noise_bound == 1.5
    assert OFUL(2).noise_bound == 1.0


def test_the_confidence_set_is_the_ellipsoid():
    policy = OFUL(2, theta_bound=1.0)
    policy.update(policy.select([[1.0, 0.0]]), 0.8)
    direction = np.array([0.6, 0.8])
    length = math.sqrt(direction @ policy.V.matrix @ direction)
    edge = policy.theta + policy.width() * direction / length
    assert policy.contains(policy.theta + 0.999 * (edge - policy.theta))
    assert not policy.contains(policy.theta + 1.001 * (edge - policy.theta))

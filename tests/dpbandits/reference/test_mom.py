"""MoM: its epochs, its blocks, and the inequalities of its constants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from dpbandits.reference.heavy_tails.mom import MoM

ARMS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]])


@pytest.mark.parametrize("parameters", ["theory", "practical"])
@pytest.mark.parametrize("eps", [0.5, 1.0])
def test_each_epoch_is_the_algorithms(parameters, eps):
    rng, S, nu, T, delta, lam = np.random.default_rng(0), 0.9, 1.5, 3000, 0.05, 0.7
    policy = MoM(
        2,
        horizon=T,
        theta_bound=S,
        tail=eps,
        noise_scale=nu,
        parameters=parameters,
        radius_scale=0.3,
        failure_probability=delta,
        ridge=lam,
    )
    k = math.ceil(math.log(T / delta) / (0.5 * math.log(4) + 0.5 * math.log(4 / 7)))
    m = math.ceil(T ** ((1 + eps) / (1 + 3 * eps)) / k)
    assert (policy.blocks, policy.plays) == (k, k * m)
    theta, V, b = np.zeros(2), lam * np.eye(2), np.zeros(2)
    for n in range(5):
        decisions, y = [], rng.standard_t(1.6, k * m)
        for reward in y:
            decisions.append(policy.select(ARMS))
            policy.update(decisions[-1], float(reward))
        assert len({decision.index for decision in decisions}) == 1
        rho = nu * 2 ** ((4 - eps) / (1 + eps)) * m ** (-eps / (1 + eps))
        beta = (rho * math.sqrt(n) + math.sqrt(lam) * S) * (1.0 if parameters == "theory" else 0.3)
        scores = [x @ theta + beta * math.sqrt(x @ np.linalg.solve(V, x)) for x in ARMS]
        np.testing.assert_allclose(decisions[0].scores, scores, rtol=1e-9)
        x = decisions[0].arm
        V += np.outer(x, x)
        b += np.median(y.reshape(k, m).mean(axis=1)) * x
        theta = np.linalg.solve(V, b)
        np.testing.assert_allclose(policy.theta, theta, atol=1e-12)


@given(a=st.floats(-50, 50), b=st.floats(-50, 50), p=st.floats(1.0, 2.0))
def test_the_moments_of_sums_add_up(a, b, p):
    """|a + b|^p ≤ |a|^p + p|a|^{p−1}sgn(a)b + 2^{2−p}|b|^p; at p = 2 with equality."""
    right = abs(a) ** p + p * abs(a) ** (p - 1) * np.sign(a) * b + 2 ** (2 - p) * abs(b) ** p
    assert abs(a + b) ** p <= right + 1e-9 * (1 + abs(a) ** p + abs(b) ** p)


@pytest.mark.parametrize("eps", [0.3, 1.0])
def test_a_block_errs_with_probability_an_eighth_by_markovs_inequality(eps):
    """2^{1−ε}ν^{1+ε}m^{−ε}/ϱ^{1+ε} = ⅛."""
    policy = MoM(2, horizon=10**5, tail=eps, noise_scale=1.7)
    m = policy.epoch.block
    assert 2 ** (1 - eps) * 1.7 ** (1 + eps) * m**-eps / policy.rho ** (1 + eps) == pytest.approx(1 / 8)


def test_a_median_errs_as_seldom_as_the_theory_says():
    T, delta = 5000, 0.05
    k = MoM(2, horizon=T, failure_probability=delta).blocks
    assert T * binom.sf(math.ceil(k / 2) - 1, k, 1 / 8) <= delta


def test_an_epoch_that_ends_early_has_the_mean_of_what_came():
    policy = MoM(2, horizon=10**6)
    assert policy.epoch.block > 2
    for reward in (0.4, 0.8):
        policy.update(policy.select([[1.0, 0.0]]), reward)
    policy.select([[0.0, 1.0]])
    assert policy.epochs == 1
    np.testing.assert_allclose(policy.theta, [0.3, 0.0])
    policy.select([[0.5, 0.5]])  # no reward came: nothing is learned
    assert policy.epochs == 1


def test_memory_does_not_grow_with_the_plays():
    policy = MoM(1, horizon=10**6)
    for _ in range(policy.plays - 1):
        policy.update(policy.select([[1.0]]), 0.5)
    assert policy.epoch.means.array.size == policy.blocks - 1

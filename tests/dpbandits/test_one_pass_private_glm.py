"""The private policy: its records, its public schedule, its sensitivity, and its regret."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from factors import toeplitz_factor
from hypothesis import given, settings
from hypothesis import strategies as st
from regret import ball, regret_of

from accounting import Budget, Gaussian
from dpbandits.policies import OnePassPrivateGLM
from dpkit.continual import BufferedToeplitz
from dpkit.geometry import svec

BUDGET = Budget(1.0, 1e-5)
LINKS = ("logistic", "probit", "linear")


def policy_with(link="logistic", dim=3, horizon=200, **parameters) -> OnePassPrivateGLM:
    parameters = {"budget": BUDGET, "reward_range": (0.0, 1.0), "rng": np.random.default_rng(0)} | parameters
    return OnePassPrivateGLM(dim, link, horizon=horizon, **parameters)


@pytest.fixture
def spied(monkeypatch):
    """Every input of every continual sum, in order."""
    inputs: list[np.ndarray] = []
    original = BufferedToeplitz.add

    def add(self, x):
        inputs.append(np.array(x))
        return original(self, x)

    monkeypatch.setattr(BufferedToeplitz, "add", add)
    return inputs


# ------------------------------------------------------------------------------------------------- records


@pytest.mark.parametrize("link", LINKS)
def test_what_is_summed_is_the_records_of_the_batch(spied, link):
    rng, policy = np.random.default_rng(1), policy_with(link, theta_bound=2.0)
    L = policy.link
    H, b = np.zeros((3, 3)), np.zeros(3)
    for _ in range(200):
        before = len(spied)
        decision = policy.select(ball(rng, 4, 3))
        if len(spied) > before:  # this decision closed a batch
            expected = np.concatenate([policy._sums._a * svec(H), policy._sums._c * b])
            np.testing.assert_allclose(spied[-1], expected, atol=200 * 2.0**-31)
            H, b = np.zeros((3, 3)), np.zeros(3)
        r, x, e = float(rng.random()), decision.arm, float(decision.arm @ policy.theta)
        w = np.clip(L.derivative(e), 0.2 * L.lipschitz(2.0), L.lipschitz(2.0))
        H += w * np.outer(x, x)
        b += np.clip(w * e + r - L.mean(e), -policy.clip, policy.clip) * x
        policy.update(decision, r)
    assert len(spied) == policy.releases == len(policy.schedule.ends)


def test_a_released_parameter_is_the_fit_of_the_noisy_sums(monkeypatch):
    """With the noise removed by hand, θ is the ridge fit of the records: H̃ = H + (1 + noise level)·I."""
    monkeypatch.setattr(BufferedToeplitz, "add", lambda self, x: x)  # one batch: the sum is the batch
    policy, rng = policy_with(horizon=21, first_batch=20, theta_bound=50.0), np.random.default_rng(2)
    H, b = np.zeros((3, 3)), np.zeros(3)
    for _ in range(20):
        decision = policy.select(ball(rng, 4, 3))
        r = float(rng.random() < 0.5)
        policy.update(decision, r)
        H += 0.25 * np.outer(decision.arm, decision.arm)
        b += (r - 0.5) * decision.arm
    policy.select(ball(rng, 4, 3))
    level = policy._sums.sums.noise_std(1) / policy._sums._a * math.sqrt(6)
    np.testing.assert_allclose(policy.theta, np.linalg.solve(H + (1 + level) * np.eye(3), b), atol=1e-7)
    np.testing.assert_allclose(policy.public.inverse, np.linalg.inv(H + (1 + level) * np.eye(3)), rtol=1e-6)


# ------------------------------------------------------------------------------------------------- schedule


@settings(deadline=None)
@given(T=st.integers(1, 5000), first=st.integers(1, 100), growth=st.floats(1.0, 3.0))
def test_batches_grow_and_end_before_the_horizon(T, first, growth):
    ends = policy_with(horizon=T, first_batch=first, growth=growth).schedule.ends
    assert all(a < b for a, b in pairwise([0, *ends]))
    assert all(end < T for end in ends)
    assert not ends or ends[0] == first


@settings(deadline=None, max_examples=20)
@given(answered=st.lists(st.booleans(), min_size=120, max_size=120))
def test_release_times_do_not_depend_on_which_rewards_came(answered):
    """The number of rewards that have come is private; the number of decisions is not."""
    policy, times = policy_with(horizon=120, first_batch=10), []
    for t in range(120):
        decision = policy.select(np.eye(3))
        if len(times) < policy.releases:
            times.append(t)
        if answered[t]:
            policy.update(decision, 1.0)
    assert times == list(policy.schedule.ends)


def test_every_round_releases_every_round(spied):
    policy = policy_with(horizon=30, release="every_round")
    for _ in range(30):
        policy.update(policy.select(np.eye(3)), 1.0)
    assert len(spied) == 29


def test_a_late_reward_enters_the_batch_in_which_it_comes(spied):
    policy = policy_with(horizon=100, first_batch=10, growth=1.0)
    late = policy.select(np.eye(3))
    for _ in range(10):
        policy.select(np.eye(3))
    assert len(spied) == 1
    assert not spied[0].any()
    policy.update(late, 1.0)
    for _ in range(10):
        policy.select(np.eye(3))
    assert spied[1].any()


# ------------------------------------------------------------------------------------------------- sensitivity


def stream(policy: OnePassPrivateGLM, inputs: list[np.ndarray], arms, rewards, arrival, theta) -> np.ndarray:
    """The batch sums that one run feeds to the mechanism, with the released parameters held fixed."""
    inputs.clear()
    waiting: dict[int, list] = {}
    for t in range(len(arms)):
        decision = policy.select(arms[t])
        policy.public = replace(policy.public, theta=theta)
        if arrival[t] is not None:
            waiting.setdefault(t + arrival[t], []).append((decision, rewards[t]))
        for each, r in waiting.pop(t, []):
            policy.update(each, r)
    return np.array(inputs)


@settings(deadline=None, max_examples=150)
@given(
    link=st.sampled_from(LINKS),
    seed=st.integers(0, 2**32 - 1),
    extreme=st.booleans(),
    share=st.sampled_from([0.3, 0.75, 0.95]),
    delays=st.tuples(*2 * [st.sampled_from([0, 0, 3, 6, None])]),
)
def test_no_pair_of_neighbouring_runs_is_farther_apart_than_declared(link, seed, extreme, share, delays):
    """One round's arms, reward and reward's arrival change; the encoded streams stay within the sensitivity."""
    rng = np.random.default_rng(seed)
    inputs: list[np.ndarray] = []
    original = BufferedToeplitz.add
    try:
        BufferedToeplitz.add = lambda self, x: (inputs.append(np.array(x)), original(self, x))[1]
        d, T, changed = int(rng.integers(1, 4)), 12, int(rng.integers(0, 6))
        theta = rng.standard_normal(d)
        theta *= rng.choice([0.0, 1.0, 3.0]) / np.linalg.norm(theta)
        arms, rewards = ball(rng, T, 1, d), rng.random(T)
        twin_arms, twin_rewards = arms.copy(), rewards.copy()
        x = rng.standard_normal(d)
        y = -x if extreme else rng.standard_normal(d)
        arms[changed, 0], twin_arms[changed, 0] = x / np.linalg.norm(x), y / np.linalg.norm(y)
        rewards[changed], twin_rewards[changed] = rng.choice([0.0, 1.0], size=2)
        streams = []
        for A, r, delay in ((arms, rewards, delays[0]), (twin_arms, twin_rewards, delays[1])):
            policy = policy_with(link, dim=d, horizon=T, first_batch=2, growth=1.0, gradient_share=share)
            arrival = [0] * T
            arrival[changed] = delay
            streams.append(stream(policy, inputs, A, r, arrival, theta))
    finally:
        BufferedToeplitz.add = original
    distance = np.linalg.norm(toeplitz_factor(policy._sums.sums.coefficients) @ (streams[0] - streams[1]))
    assert distance <= policy._sums.sums.sensitivity * (1 + 1e-9)


def test_zeroed_out_rounds_cost_half_the_noise():
    budget = Budget(1.0, 1e-5, adjacency="zero_out")
    replaced, zeroed = policy_with(), policy_with(budget=budget)
    assert zeroed._sums.sums.sensitivity < replaced._sums.sums.sensitivity
    assert zeroed._sums.cost == Gaussian(replaced._sums.sums.noise_multiplier, adjacency="zero_out")


# ------------------------------------------------------------------------------------------------- regret


@pytest.mark.parametrize(("epsilon", "S", "most"), [(1.0, 2.0, 70), (4.0, 3.0, 36)])
def test_regret_on_the_probit_workload(epsilon, S, most):
    """d = 3, K = 20, T = 5000, δ = 0.02; the bounds are the ones to hold."""
    found = regret_of(
        lambda rng: OnePassPrivateGLM(
            3, "probit", budget=Budget(epsilon, 0.02), horizon=5000, theta_bound=S, rng=rng
        ),
        "probit", 3, 20, S, 5000, seeds=5,
    )  # fmt: skip
    assert found <= most


@pytest.mark.slow
@pytest.mark.parametrize(("release", "most"), [("scheduled", 70), ("every_round", 175)])
@pytest.mark.parametrize("S", [2.0, 2.5, 3.0])
def test_regret_on_the_probit_workload_in_full(release, most, S):
    found = regret_of(
        lambda rng: OnePassPrivateGLM(
            3, "probit", budget=Budget(1.0, 0.02), horizon=5000, theta_bound=S, release=release, rng=rng
        ),
        "probit", 3, 20, S, 5000, seeds=10,
    )  # fmt: skip
    assert found <= most


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta", "most"), [(2.0, 0.02, 95), (8.0, 0.02, 62), (1.0, 1e-6, 300)])
def test_regret_on_the_logistic_workload_in_full(epsilon, delta, most):
    found = regret_of(
        lambda rng: OnePassPrivateGLM(
            5, "logistic", budget=Budget(epsilon, delta), horizon=15_000, theta_bound=3.5, rng=rng
        ),
        "logistic", 5, 20, 3.5, 15_000, seeds=10,
    )  # fmt: skip
    assert found <= most

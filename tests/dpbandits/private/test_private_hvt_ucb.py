"""The private policy for heavy tails: its records, its fit, its sensitivity without a range of rewards, its regret."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from again import rewinder
from factors import toeplitz_factor
from hypothesis import given, settings
from hypothesis import strategies as st
from regret import ball
from scipy.optimize import minimize
from tossed import released_by

from accounting import Budget, Gaussian, Ledger
from dpbandits.policies import OnePassPrivateGLM, PrivateHvtUCB
from dpkit.continual import BufferedToeplitz
from dpkit.geometry import smat, svec

BUDGET = Budget(1.0, 1e-5)


def policy_with(dim=3, horizon=200, **parameters) -> PrivateHvtUCB:
    return PrivateHvtUCB(dim, horizon=horizon, **({"budget": BUDGET, "rng": np.random.default_rng(0)} | parameters))


def scales(policy: PrivateHvtUCB) -> tuple[float, float]:
    """a and c, by which the parts of a record are multiplied before noise comes to them."""
    std = policy.sums.sums.noise_std(1)
    return tuple(std / noise for noise in policy.sums.noise(1))


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


# ------------------------------------------------------------------------------------------- records and fit


def test_what_is_summed_is_hubers_gradient_and_hessian(spied):
    rng, policy = np.random.default_rng(1), policy_with(clip=0.8)
    H, g, (a, c) = np.zeros((3, 3)), np.zeros(3), scales(policy)
    for _ in range(200):
        before = len(spied)
        decision = policy.select(ball(rng, 4, 3))
        if len(spied) > before:  # this decision closed a batch
            expected = np.concatenate([a * svec(H), c * g / 0.8])
            np.testing.assert_allclose(spied[-1], expected, atol=200 * 2.0**-31)
            H, g = np.zeros((3, 3)), np.zeros(3)
        r, x = float(rng.standard_t(1.5)), decision.arm
        z = r - x @ policy.theta
        H += (abs(z) <= 0.8) * np.outer(x, x)
        g += np.clip(z, -0.8, 0.8) * x
        policy.update(decision, r)
    assert len(spied) == policy.releases == len(policy.schedule.ends)


def test_a_released_parameter_minimises_the_noisy_quadratics_of_all_batches(monkeypatch):
    """Σ_j ½‖θ − θ̂_j‖² in the norm of batch j's H, less Gᵀθ, plus the ridge: each batch around its own θ̂_j."""
    sums = released_by(monkeypatch, BufferedToeplitz)
    policy, rng = policy_with(horizon=100, first_batch=20, growth=1.0, theta_bound=0.3), np.random.default_rng(2)
    used = []
    for t in range(81):
        decision = policy.select(ball(rng, 4, 3))
        if t < 80:
            policy.update(decision, float(rng.standard_t(2.1)))
            if t % 20 == 0:
                used.append(policy.theta.copy())
    a, c = scales(policy)
    H, G = [smat(s[:6] / a) for s in sums], sums[-1][6:] / c * policy.clip
    increments = np.diff(np.array([np.zeros((3, 3)), *H]), axis=0)
    level = policy.sums.noise(4)[0] * math.sqrt(6)
    values, U = np.linalg.eigh(H[-1])
    repaired = (U * np.maximum(values + level + 1, 1)) @ U.T
    b = sum(h @ theta for h, theta in zip(increments, used, strict=True)) + G
    best = minimize(
        lambda v: 0.5 * v @ repaired @ v - b @ v,
        np.zeros(3),
        constraints={"type": "ineq", "fun": lambda v: 0.09 - v @ v},
        method="SLSQP",
        options={"ftol": 1e-15},
    ).x
    np.testing.assert_allclose(policy.theta, best, atol=1e-6)
    inverse = np.linalg.inv(repaired)
    noise = policy.sums.noise(4)[1] * policy.clip
    covariance = policy.exploration**2 * (inverse + noise**2 * inverse @ inverse)
    np.testing.assert_allclose(policy.public.root @ policy.public.root.T, covariance, rtol=1e-9)


def test_every_round_draws_its_own_parameter():
    """Between releases the choices spread over the arms that are not known to be worse."""
    policy = policy_with(dim=2, horizon=400, first_batch=40, growth=10.0)
    arms = [[1.0, 0.0], [math.cos(0.3), math.sin(0.3)], [0.0, 1.0]]
    for _ in range(40):
        policy.update(policy.select(arms), 0.5)
    chosen = {policy.select(arms).index for _ in range(200)}
    assert policy.releases == 1
    assert len(chosen) > 1


# ------------------------------------------------------------------------------------------------- the clip


def test_an_enormous_reward_counts_as_the_clip():
    states = []
    for reward in (2.0, 1e6, 1.7e308):
        policy = policy_with(horizon=100, first_batch=10, clip=1.5)
        policy.update(policy.select([[0.6, 0.0, 0.0]]), reward)
        for _ in range(30):
            policy.select([[0.6, 0.0, 0.0]])
        states.append((policy.releases, policy.theta.tolist()))
    assert states[0] == states[1] == states[2]


def test_the_theorys_clip_balances_the_largest_bias_with_the_noise():
    """argmin over τ of T ν^{1+ε}/τ^ε + τ s √d."""
    for tail, epsilon in ((1.0, 1.0), (0.4, 4.0)):
        policy = policy_with(2, 10_000, tail=tail, noise_scale=1.3, parameters="theory", budget=Budget(epsilon, 1e-5))
        s = policy.sums.noise(policy.sums.sums.horizon)[1]
        grid = policy.clip * np.geomspace(0.2, 5, 2001)
        costs = 10_000 * 1.3 ** (1 + tail) / grid**tail + grid * s * math.sqrt(2)
        assert grid[costs.argmin()] == pytest.approx(policy.clip, rel=2e-3)
    assert policy_with(noise_scale=2.0).clip == 3.0
    assert policy_with(clip=0.7, noise_scale=2.0).clip == 0.7


# ---------------------------------------------------------------------------------------- schedule, sensitivity


def batches(policy: PrivateHvtUCB, inputs: list[np.ndarray], arms, rewards, delays, theta) -> np.ndarray:
    """What one run feeds to the mechanism, with the released parameter held fixed."""
    inputs.clear()
    waiting: dict[int, list] = {}
    for t, (arm, reward, delay) in enumerate(zip(arms, rewards, delays, strict=True)):
        decision = policy.select([arm])
        policy.public = replace(policy.public, theta=theta)
        if delay is not None:
            waiting.setdefault(t + delay, []).append((decision, reward))
        for each, r in waiting.pop(t, []):
            policy.update(each, r)
    return np.array(inputs)


@settings(deadline=None, max_examples=70)
@given(
    seed=st.integers(0, 2**32 - 1),
    extreme=st.booleans(),
    share=st.sampled_from([0.3, 0.75, 0.95]),
    rewards=st.tuples(*2 * [st.sampled_from([0.0, -1.0, 1.5, 1e9, -1e300])]),
    delays=st.tuples(*2 * [st.sampled_from([0, 0, 3, 6, None])]),
)
def test_no_pair_of_neighbouring_runs_is_farther_apart_than_declared(seed, extreme, share, rewards, delays):
    """One round's arm, reward (of any size) and reward's arrival change; the streams stay within the sensitivity."""
    rng = np.random.default_rng(seed)
    inputs: list[np.ndarray] = []
    original = BufferedToeplitz.add
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BufferedToeplitz, "add", lambda self, x: (inputs.append(np.array(x)), original(self, x))[1])
        d, T, changed = int(rng.integers(1, 4)), 12, int(rng.integers(0, 6))
        theta = rng.standard_normal(d)
        theta *= rng.choice([0.0, 1.0]) / np.linalg.norm(theta)
        arms, others = ball(rng, T, d), rng.standard_t(1.5, T)
        x = rng.standard_normal(d)
        y = -x if extreme else rng.standard_normal(d)
        policy, streams = policy_with(d, T, first_batch=2, growth=1.0, gradient_share=share), []
        start_again = rewinder(policy)
        for arm, reward, delay in zip((x, y), rewards, delays, strict=True):
            start_again()
            A, r, late = arms.copy(), others.copy(), [0] * T
            A[changed], r[changed], late[changed] = arm / np.linalg.norm(arm), reward, delay
            streams.append(batches(policy, inputs, A, r, late, theta))
    distance = np.linalg.norm(toeplitz_factor(policy.sums.sums.coefficients) @ (streams[0] - streams[1]))
    assert distance <= policy.sums.sums.sensitivity * (1 + 1e-9)


def test_zeroed_out_rounds_cost_half_the_noise():
    budget = Budget(1.0, 1e-5, adjacency="zero_out")
    replaced, zeroed = policy_with(), policy_with(budget=budget)
    assert zeroed.sums.sums.sensitivity < replaced.sums.sums.sensitivity
    assert zeroed.sums.cost == Gaussian(replaced.sums.sums.noise_multiplier, adjacency="zero_out")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tail": 1.5}, r"tail must lie in \(0, 1\], got tail=1.5"),
        ({"noise_scale": 0.0}, "noise_scale must be positive and finite, got noise_scale=0.0"),
        ({"clip": math.inf}, "clip must be positive and finite, got clip=inf"),
        ({"horizon": 0}, "horizon must be at least 1, got horizon=0"),
        ({"growth": 0.9}, "growth must be at least 1, got growth=0.9"),
        ({"parameters": "best"}, "parameters must be 'practical' or 'theory', got parameters='best'"),
        ({"exploration": -1.0}, "exploration must be nonnegative and finite"),
        ({"budget": Budget(1.0, 0.0)}, "delta must be positive"),
    ],
)
def test_bad_parameters_spend_nothing(parameters, message):
    ledger = Ledger(BUDGET)
    with pytest.raises(ValueError, match=message):
        policy_with(ledger=ledger, **parameters)
    assert ledger.rows() == []


# ------------------------------------------------------------------------------------------------- regret

NOISES = {
    "student": lambda rng, count: rng.standard_t(2.1, count),
    "gauss": lambda rng, count: rng.standard_normal(count),
    "cauchy": lambda rng, count: rng.standard_cauchy(count),
}


def linear_regret(make, noise: str, rounds: int, seeds: int) -> float:
    """Mean regret with 50 fixed arms, uniform in a square and scaled to length at most 1, and ‖θ‖ = 1."""
    total = 0.0
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 77])
        arms = rng.uniform(-1, 1, (50, 2))
        arms /= np.linalg.norm(arms, axis=1).max() * (1 + 1e-12)
        theta = rng.uniform(-1, 1, 2)
        means = arms @ (theta / np.linalg.norm(theta))
        policy = make(np.random.default_rng([seed, 5]))
        for error in NOISES[noise](rng, rounds):
            decision = policy.select(arms)
            policy.update(decision, means[decision.index] + error)
            total += means.max() - means[decision.index]
    return total / seeds


@pytest.mark.parametrize(
    ("epsilon", "noise", "rounds", "seeds", "most"),
    [
        (4.0, "student", 4000, 2, 350),  # a tenth of the uniform policy's
        *[
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                (1.0, "student", 18_000, 10, 400),
                (4.0, "student", 18_000, 10, 180),
                (8.0, "student", 18_000, 10, 150),
                (1.0, "gauss", 18_000, 10, 350),
                (4.0, "gauss", 18_000, 10, 150),
                (8.0, "gauss", 18_000, 10, 130),
                (1.0, "cauchy", 18_000, 10, 800),
            ]
        ],
    ],
)
def test_regret(epsilon, noise, rounds, seeds, most):
    made = functools.partial(PrivateHvtUCB, 2, budget=Budget(epsilon, 1e-5), horizon=rounds)
    assert linear_regret(lambda rng: made(rng=rng), noise, rounds, seeds) <= most


@pytest.mark.slow
def test_a_tuned_clip_beats_a_wide_one_and_a_clipped_reward():
    budget = Budget(1.0, 1e-5)
    own, wide, clipped = (
        linear_regret(make, "student", 18_000, 10)
        for make in (
            lambda rng: PrivateHvtUCB(2, budget=budget, horizon=18_000, rng=rng),
            lambda rng: PrivateHvtUCB(2, budget=budget, horizon=18_000, clip=30.0, rng=rng),
            lambda rng: OnePassPrivateGLM(
                2,
                "linear",
                budget=budget,
                horizon=18_000,
                theta_bound=1.0,
                reward_range=(-10.0, 10.0),
                on_violation="clip",
                rng=rng,
            ),
        )
    )
    assert own <= 0.7 * min(wide, clipped)

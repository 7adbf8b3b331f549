"""DP-HDB: its forced rounds, its steps, its accounting of two arms per round, and its regret in high dimension."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from accounting import ZCDP, Budget, Ledger, zcdp
from dpbandits import Policy, simulate
from dpbandits.lab.environments import PerArm
from dpbandits.policies import DPHDB, DPLinUCB, Uniform
from dpbandits.private.parts import corners
from dpkit.geometry import LpBall

BUDGET = Budget(1.0, 1e-5)
MODES = ("scheduled", "every_round")


def policy_with(dim=4, n_arms=3, link="linear", horizon=200, **parameters) -> DPHDB:
    parameters = {"budget": BUDGET, "reward_range": (-2.0, 2.0), "rng": np.random.default_rng(0)} | parameters
    return DPHDB(dim, n_arms, link, horizon=horizon, **parameters)


def contexts(rng: np.random.Generator, count: int, d: int) -> np.ndarray:
    return rng.uniform(-1, 1, (count, d))


@pytest.fixture
def spied(monkeypatch):
    """Every noisy comparison as (scores, sensitivity, ε, corner); without noise, so that it can be followed by hand."""
    calls: list[tuple] = []

    def argmin(scores, sensitivity, epsilon, noise, *, minimise, rng):
        assert minimise
        assert noise == "gumbel"
        calls.append((np.array(scores), sensitivity, epsilon, int(np.argmin(scores))))
        return calls[-1][-1]

    monkeypatch.setattr(corners, "report_noisy_max", argmin)
    return calls


# --------------------------------------------------------------------------------------------------- the steps


def test_forced_rounds_take_turns_whatever_has_happened():
    policy, rng = policy_with(forced=5, horizon=40), np.random.default_rng(1)
    chosen = []
    for X in contexts(rng, 20, 4):
        decision = policy.select(X)
        chosen.append(decision.index)
        policy.update(decision, float(rng.standard_normal()) / 10)
    assert chosen[:15] == [0, 1, 2] * 5
    assert chosen[15:] != [0, 1, 2, 0, 1]


def test_scheduled_steps_use_all_rows_of_the_arm_at_its_current_parameter(spied):
    policy, rng = policy_with(forced=4, growth=2.0, steps=3, clip=0.5, theta_bound=1.5), np.random.default_rng(2)
    rows: list[list[tuple]] = [[], [], []]
    theta = np.zeros((3, 4))
    ball, taken = LpBall(1, 4, 1.5), 0
    for X in contexts(rng, 150, 4):
        before = len(spied)
        decision = policy.select(X)
        for n, (scores, sensitivity, _, corner) in enumerate(spied[before:]):
            k = n % 3
            A, r = np.array([x for x, _ in rows[k]]), np.array([r for _, r in rows[k]])
            gradient = sum(np.clip(x @ theta[k] - y, -0.5, 0.5) * x for x, y in zip(A, r, strict=True))
            np.testing.assert_allclose(scores, ball.vertex_scores(gradient), atol=1e-12)
            assert 2 * 0.5 * 1.5 < sensitivity < 2 * 0.5 * 1.5 * (1 + 1e-8)  # with the rounding of scores
            taken += k == 0
            theta[k] += 2 / (taken + 2) * (ball.vertex(corner) - theta[k])
        np.testing.assert_allclose(policy.theta, theta, atol=1e-12)
        reward = float(np.clip(X[0] * (decision.index - 1) + rng.standard_normal() / 4, -2, 2))
        rows[decision.index].append((X, reward))
        policy.update(decision, reward)
    assert taken == policy.public.steps == 3 * policy.releases > 0


def test_every_rounds_step_is_the_papers(spied):
    """One arm, rewards at once: g_t = (t + 1)∇ℓ(θ_t) − t∇ℓ(θ_{t−1}), v_t the best corner of Σg, η_t = 1/(t + 1)."""
    policy = policy_with(3, 1, release="every_round", forced=1, clip=1.0, horizon=60)
    rng, ball = np.random.default_rng(3), LpBall(1, 3)
    theta, before, total, clipped = np.zeros(3), np.zeros(3), np.zeros(3), 0
    for t, X in enumerate(contexts(rng, 60, 3), start=1):
        decision = policy.select(X)
        np.testing.assert_allclose(policy.theta[0], theta, atol=1e-12)
        reward = float(np.clip(X[1] + rng.standard_normal(), -2, 2))
        policy.update(decision, reward)
        slope = (t + 1) * (X @ theta - reward) - t * (X @ before - reward)
        clipped += abs(slope) > 1.0
        total += np.clip(slope, -1.0, 1.0) * X
        before = theta
        theta = theta + (ball.vertex(int(np.argmin(ball.vertex_scores(total)))) - theta) / (t + 1)
    assert len(spied) == 59
    assert 0 < clipped < 60


def test_arms_that_fall_behind_in_the_forced_estimates_are_out():
    policy = policy_with(2, 3, forced=1, horizon=50, margin=0.5)
    for _ in range(3):
        policy.select([0.0, 0.0])
    policy.select([0.0, 0.0])
    policy.public = replace(
        policy.public,
        theta=np.array([[0.0, 0.1], [0.0, 0.2], [0.0, 0.9]]),
        forced_theta=np.array([[0.5, 0.0], [0.3, 0.0], [0.1, 0.0]]),
    )
    scores = policy.select([1.0, 1.0]).scores
    np.testing.assert_allclose(scores, [0.1, 0.2, -math.inf])  # 0.1 is more than h/2 below 0.5


# ------------------------------------------------------------------------------------- public times, accounting


@pytest.mark.parametrize("mode", MODES)
@settings(deadline=None, max_examples=10)
@given(answered=st.lists(st.booleans(), min_size=60, max_size=60))
def test_release_times_do_not_depend_on_which_rewards_came(mode, answered):
    policy, times = policy_with(2, 2, horizon=60, forced=3, release=mode), []
    for t, comes in enumerate(answered):
        decision = policy.select([0.5, -0.5])
        if len(times) < policy.releases:
            times.append(t)
        if comes:
            policy.update(decision, 1.0)
    assert times == list(policy.schedule.ends)
    assert policy.public.steps == len(times) * (policy.steps if mode == "scheduled" else 1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("budget", [BUDGET, Budget(4.0, 1e-3, adjacency="zero_out")])
def test_all_steps_together_cost_the_budget(mode, budget):
    ledger = Ledger(budget)
    policy = policy_with(horizon=500, release=mode, budget=budget, ledger=ledger)
    (row,) = ledger.rows()
    steps = len(policy.schedule.ends) * policy.steps_per_release
    total = sum(policy.corners.epsilon(i) ** 2 / 8 for i in range(1, steps + 1))
    assert total <= zcdp(row.release)
    assert total == pytest.approx(zcdp(row.release), rel=1e-9)
    assert row.release == ZCDP(zcdp(row.release), adjacency=budget.adjacency)
    assert policy.privacy().epsilon == pytest.approx(budget.epsilon, rel=1e-6)
    assert policy.privacy().epsilon <= budget.epsilon


@settings(deadline=None, max_examples=40)
@given(
    mode=st.sampled_from(MODES),
    adjacency=st.sampled_from(["replace", "zero_out"]),
    link=st.sampled_from(["linear", "logistic"]),
    seed=st.integers(0, 2**32 - 1),
    extreme=st.booleans(),
    delays=st.tuples(*2 * [st.sampled_from([0, 0, 1, 4, None])]),
)
def test_one_round_moves_the_scores_of_all_arms_together_by_no_more_than_declared(
    mode, adjacency, link, seed, extreme, delays
):
    """Given equal releases, ½Σ_k (range of arm k's score changes) ≤ Δ: the arms' losses add up to a range of ε_i."""
    rng = np.random.default_rng(seed)
    d, K, T, changed = int(rng.integers(1, 4)), int(rng.integers(1, 4)), 14, int(rng.integers(0, 10))
    X, luck = contexts(rng, T, d), rng.random(T)
    other = X.copy()
    other[changed] = -np.sign(X[changed]) if extreme else rng.uniform(-1, 1, d)
    named = rng.integers(0, 2 * d, 10_000).tolist()
    runs = []
    for side, (Z, delay) in enumerate(zip((X, other), delays, strict=True)):
        calls: list[tuple[np.ndarray, float]] = []

        def given_corner(scores, sensitivity, epsilon, noise, *, minimise, rng, calls=calls):
            calls.append((np.array(scores), sensitivity))
            return named[len(calls) - 1]

        original, corners.report_noisy_max = corners.report_noisy_max, given_corner
        try:
            policy = policy_with(
                d, K, link, T, release=mode, forced=1, growth=1.2, steps=2, reward_range=(0.0, 1.0), clip=0.6,
                budget=Budget(1.0, 1e-5, adjacency=adjacency),
            )  # fmt: skip
            waiting: dict[int, list] = {}
            for t in range(T):
                decision, late = policy.select(Z[t]), delay if t == changed else 0
                reward = luck[t] if t != changed else float(side)
                absent = late is None or (adjacency == "zero_out" and side == 1 and t == changed)
                if not absent:
                    waiting.setdefault(t + late, []).append((decision, reward))
                for each, r in waiting.pop(t, []):
                    policy.update(each, r)
        finally:
            corners.report_noisy_max = original
        runs.append(calls)
    assert len(runs[0]) == len(runs[1])
    for start in range(0, len(runs[0]), K):
        changes = [a[0] - b[0] for a, b in zip(*(run[start : start + K] for run in runs), strict=True)]
        together = sum(float(np.ptp(change)) for change in changes) / 2
        assert together <= runs[0][start][1] * (1 + 1e-9)
        assert sum(bool(change.any()) for change in changes) <= 2


# --------------------------------------------------------------------------------------- what policies promise


@pytest.mark.parametrize("mode", MODES)
def test_a_simulation_continues_bit_for_bit(mode, tmp_path):
    policy = policy_with(release=mode, forced=3)

    def play(policy: Policy, seed: int, rounds: int) -> list[int]:
        chosen = []
        for X in contexts(np.random.default_rng(seed), rounds, 4):
            decision = policy.select(X)
            policy.update(decision, float(X[decision.index]))
            chosen.append(decision.index)
        return chosen

    play(policy, 1, 60)
    late = policy.select(np.ones(4))
    policy.save(tmp_path / "p")
    twin = Policy.load(tmp_path / "p")
    for each in (policy, twin):
        each.update(late.id, 1.0)
    assert play(policy, 2, 130) == play(twin, 2, 130)
    assert repr(policy.kept()) == repr(twin.kept())


def test_smallest_problem():
    policy = DPHDB(1, 1, budget=BUDGET, horizon=1)
    policy.update(policy.select([1.0]), 1.0)
    with pytest.raises(ValueError, match="horizon must be at least 2 for one more round, got 1"):
        policy.select([1.0])


@tabled(
    ("parameters", "message"),
    [
        ({"n_arms": 0}, "n_arms must be at least 1, got n_arms=0"),
        ({"horizon": 0}, "horizon must be at least 1, got horizon=0"),
        ({"theta_bound": 0.0}, "theta_bound must be positive and finite, got theta_bound=0.0"),
        ({"release": "never"}, "release must be 'scheduled' or 'every_round', got release='never'"),
        ({"growth": 0.5}, "growth must be at least 1, got growth=0.5"),
        ({"margin": 0.0}, "margin must be positive, got margin=0.0"),
        ({"forced": 0}, "forced must be at least 1, got forced=0"),
        ({"steps": 0}, "steps must be at least 1, got steps=0"),
        ({"clip": -1.0}, "clip must be positive and finite, got clip=-1.0"),
        ({"reward_range": None}, "reward_range must be finite where clip is not given"),
        ({"budget": Budget(1.0, 0.0)}, "delta must be positive"),
    ],
)
def test_bad_parameters_spend_nothing(parameters, message):
    ledger = Ledger(BUDGET)
    with pytest.raises(ValueError, match=message):
        policy_with(ledger=ledger, **parameters)
    assert ledger.rows() == []


@pytest.mark.parametrize("context", [[0.1, 0.2], [np.nan, 0, 0, 0], [1.5, 0, 0, 0]])
def test_bad_contexts_change_nothing(context):
    policy = policy_with(forced=1, horizon=10)
    for _ in range(3):
        policy.select(np.ones(4))
    with pytest.raises(ValueError, match="context must have"):
        policy.select(context)
    assert (policy.decisions, policy.releases) == (3, 0)


@pytest.mark.parametrize(
    ("kind", "why"),
    [(policy_with, "has the same arms for the whole run"), (Uniform, "is given its arms in every round")],
)
def test_arms_that_come_and_go_are_refused_with_a_way_out(kind, why):
    policy = kind(dim=2)
    assert policy.standing == []
    for change in (policy.add_arm, policy.retire_arm):
        with pytest.raises(TypeError, match=rf"{why} and cannot \w+ 'a': take DisjointPrivateGLM"):
            change("a")


def test_the_clip_is_the_largest_error_of_a_prediction_by_default():
    assert policy_with(link="logistic", reward_range=None, theta_bound=20.0).clip == pytest.approx(1.0)
    assert policy_with(link="logistic", reward_range=None, theta_bound=0.1).clip == pytest.approx(0.525, abs=1e-3)
    assert policy_with(link="linear", theta_bound=9.0).clip == 4.0


# --------------------------------------------------------------------------------------------------- regret


def regret(make, environment: PerArm, rounds: int, seeds: int) -> float:
    results = simulate({"policy": make}, environment, rounds=rounds, seeds=seeds)
    return float(np.mean([run.regret[-1] for run in results.runs]))


def hdb(environment: PerArm, epsilon: float, rounds: int, **parameters):
    return lambda rng: DPHDB(
        environment.context_dim,
        environment.n_arms,
        "linear",
        budget=Budget(epsilon, 1e-5),
        horizon=rounds,
        theta_bound=environment.theta_l1_bound,
        reward_range=environment.reward_range,
        on_violation="clip",
        clip=1.5 * environment.scale,
        rng=rng,
        **parameters,
    )


@pytest.mark.thorough
def test_regret_with_many_features():
    """d = 50, K = 2, T = 4000, ε = 4: playing at random loses about 570."""
    environment = PerArm(dim=50, arms=2)
    assert regret(hdb(environment, 4.0, 4000), environment, 4000, seeds=2) <= 220


@pytest.mark.slow
def test_regret_against_a_dense_private_policy_in_full():
    """The figure's workload: T = 10⁴, d = 50, K = 2, ε = 1."""
    environment, T = PerArm(dim=50, arms=2), 10_000
    dense = regret(
        lambda rng: DPLinUCB(
            environment.dim,
            budget=Budget(1.0, 1e-5),
            horizon=T,
            theta_bound=environment.theta_bound,
            reward_range=environment.reward_range,
            on_violation="clip",
            rng=rng,
        ),
        environment,
        T,
        seeds=5,
    )
    sparse = regret(hdb(environment, 1.0, T), environment, T, seeds=5)
    assert sparse <= 450
    assert sparse <= 0.6 * dense

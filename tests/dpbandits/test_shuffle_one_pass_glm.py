"""The shuffle one-pass policy: its records, its users, its sensitivity, and its regret."""

from __future__ import annotations

import gc
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regret import ball, regret_of

from accounting import AdjacencyMismatch, Budget, BudgetExceeded, Gaussian, Ledger, epsilon
from dpbandits import Pending, Policy
from dpbandits.lab.environments import LinearBernoulli
from dpbandits.lab.simulation.simulate import simulate
from dpbandits.policies import OnePassPrivateGLM, ShuffleOnePassGLM
from dpbandits.private.parts.noisy_estimate import shrunken_eigenvalues
from dpkit.geometry import smat, svec
from dpkit.models.links import get_link
from dpkit.moments.shuffled import ShuffledBatches
from dpkit.shuffle import Shuffler
from dpkit.states import files

BUDGET = Budget(1.0, 1e-5)
LINKS = ("logistic", "probit", "linear")


def policy_with(link="logistic", dim=3, horizon=200, **parameters) -> ShuffleOnePassGLM:
    parameters = {"budget": BUDGET, "reward_range": (0.0, 1.0), "rng": np.random.default_rng(0)} | parameters
    return ShuffleOnePassGLM(dim, link, horizon=horizon, **parameters)


@pytest.fixture
def records(monkeypatch):
    """Every record that a user sends, in order."""
    sent: list[np.ndarray] = []
    original = ShuffledBatches.add

    def add(self, row, batch):
        sent.append(self.form(row[None])[0])
        original(self, row, batch)

    monkeypatch.setattr(ShuffledBatches, "add", add)
    return sent


def exact_sums(monkeypatch, records) -> None:
    """The noise taken away: what is released is the sum of the records since the last release."""
    start = [0]

    def release(self):
        total = np.sum(records[start[0] :], axis=0)
        start[0] = len(records)
        self.released += 1
        return total

    monkeypatch.setattr(ShuffledBatches, "release", release)


# ------------------------------------------------------------------------------------------------- records


@pytest.mark.parametrize("link", LINKS)
def test_a_record_is_formed_at_the_released_parameter(records, link):
    rng, policy = np.random.default_rng(1), policy_with(link, theta_bound=2.0)
    L, c = get_link(link).at(0.5), 0.5
    e = np.linspace(-2.0, 2.0, 100_000)  # without 0
    secants = (L.mean(e) - c) / e
    highest = min(float(L.derivative(0.0)), (float(L.mean(1.2)) - c) / 1.2)
    lowest = max(secants.min(), 0.2 * highest)
    for _ in range(150):
        decision = policy.select(ball(rng, 4, 3))
        r, x, e = float(rng.random()), decision.arm, float(decision.arm @ policy.theta)
        psi = min(1 / np.linalg.norm(x), 2.0)
        w = psi * np.clip((L.mean(e) - c) / e if e else L.derivative(0.0), lowest, highest)
        g = psi * (r - c)
        policy.update(decision, r)
        expected = np.concatenate([policy.sums.scales[0] * w * svec(np.outer(x, x)), policy.sums.scales[1] * g * x])
        np.testing.assert_allclose(records[-1], expected, atol=1e-8)
    assert policy.releases >= 3


def test_a_released_parameter_is_the_fit_of_the_weighted_sums(monkeypatch, records):
    exact_sums(monkeypatch, records)
    policy, rng = policy_with(horizon=91, first_batch=30, growth=2.0, theta_bound=50.0), np.random.default_rng(2)
    assert policy.schedule.ends == (30, 90)
    thetas = [np.zeros(3)]
    for _ in range(91):
        policy.update(policy.select(ball(rng, 4, 3)), float(rng.random() < 0.5))
        if len(thetas) <= policy.releases:
            thetas.append(policy.theta)
    sums = [np.sum(rows, axis=0) for rows in (records[:30], records[30:90])]
    M, m = (
        [smat(total[:6] / policy.sums.scales[0]) for total in sums],
        [total[6:] / policy.sums.scales[1] for total in sums],
    )
    theta = thetas[1]
    slope, secant = policy.record.secant.slopes(theta @ M[1] @ theta / 60)
    first = policy.record.secant.slopes(0.0)[0]
    stds, gammas = [policy.sums.batches.noise_std(0), policy.sums.batches.noise_std(1)], [first, slope]
    rhos = [policy.record.secant.slopes(0.0)[1], secant]
    assert rhos[1] > gammas[1]
    omega = [
        1 / (1 + (std / policy.sums.scales[1]) ** 2 * 2 * 3 / 0.25 / n) for n, std in zip((30, 60), stds, strict=True)
    ]
    H = omega[0] * first * M[0] + omega[1] * slope * M[1]
    b = omega[0] * m[0] + omega[1] * (m[1] - (secant - slope) * M[1] @ theta)
    noise_H = (
        np.linalg.norm([o * g * std for o, g, std in zip(omega, gammas, stds, strict=True)]) / policy.sums.scales[0]
    )
    noise_M = np.linalg.norm([o * r * std for o, r, std in zip(omega, rhos, stds, strict=True)]) / policy.sums.scales[0]
    noise_b = np.linalg.norm([o * std for o, std in zip(omega, stds, strict=True)]) / policy.sums.scales[1]
    eigenvalues, U = np.linalg.eigh(H)
    eigenvalues = shrunken_eigenvalues(eigenvalues, noise_H)
    # the noise of b, that of Σρ_jM_j times θ, and chance, which is 1·λ for a Bernoulli reward and its link
    r = noise_b**2 + 0.7 * noise_M**2 * (4 / 6) * (theta @ theta) + eigenvalues
    precision = eigenvalues**2 / r + 3 / 50.0**2
    np.testing.assert_allclose(policy.theta, U @ (eigenvalues / r * (U.T @ b) / precision), rtol=1e-7)
    axes = np.linalg.eigvalsh(policy.public.root @ policy.public.root.T)
    assert (axes >= 0.1 * 0.36 / precision.max() * (1 - 1e-9)).all()
    assert (axes <= 0.36 / precision.min() * (1 + 1e-9)).all()


def test_released_sums_are_unbiased_with_the_stated_noise():
    """Known records, many batches: the mean error of each coordinate and its variance, 9 coordinates at once.

    With 400 batches the squared errors over the stated variance sum to a χ² of 3600 degrees of freedom; it leaves
    [0.85, 1.15] times that with probability below 1e-9 (6.4 standard deviations), and a mean leaves 6.5 of its standard
    deviations with as little. At 0.9 times the noise the expectation is 0.81, at 1.1 times it is 1.21.
    """
    batches = ShuffledBatches([20], 9, np.asarray, bound=1.0, distance=1.0, budget=BUDGET, rng=np.random.default_rng(5))
    rng, std = np.random.default_rng(6), batches.noise_std(0)
    errors, empty = np.empty((400, 9)), batches.kept()
    for i in range(400):
        sent = ball(rng, 15, 9)  # five users never answer
        batches.resume(empty)
        for record in sent:
            batches.add(record, 0)
        errors[i] = batches.release() - sent.sum(axis=0)
    assert 0.85 <= np.mean((errors / std) ** 2) <= 1.15
    assert np.abs(errors.mean(axis=0)).max() <= 6.5 * std / 20


# --------------------------------------------------------------------------------------------- batches and users


@given(T=st.integers(1, 5000), first=st.integers(1, 100), growth=st.floats(1.5, 3.0))
@settings(deadline=None, max_examples=6)
def test_batches_grow_and_end_before_the_horizon(T, first, growth):
    policy = policy_with(dim=1, horizon=T, first_batch=first, growth=growth)
    assert all(a < b for a, b in pairwise([0, *policy.schedule.ends]))
    assert all(end < T for end in policy.schedule.ends)
    users = [protocol.users for protocol in policy.sums.batches.protocols]
    assert tuple(np.cumsum(users).tolist()) == policy.schedule.ends


@settings(deadline=None, max_examples=15)
@given(answered=st.lists(st.integers(0, 60), min_size=120, max_size=120))
def test_every_round_is_one_user_of_its_batch_whatever_comes_and_when(answered):
    """Rewards come after 0 to 60 rounds, or (60) never: releases happen at the same times, over the same users."""
    times, users = [], []
    original = Shuffler.shuffle_tallies

    def shuffle(self, messages):
        users.append(messages.users)
        return original(self, messages)

    policy = policy_with(dim=1, horizon=120, first_batch=10, growth=2.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shuffler, "shuffle_tallies", shuffle)
        waiting: dict[int, list] = {}
        for t in range(120):
            decision = policy.select([[1.0]])
            if len(times) < policy.releases:
                times.append(t)
            if answered[t] < 60:
                waiting.setdefault(t + answered[t], []).append(decision)
            for each in waiting.pop(t, []):
                policy.update(each, 1.0)
    assert times == [10, 30, 70]
    assert users == [10, 20, 40]


def test_a_reward_after_the_end_of_its_batch_counts_for_nothing(records):
    policy, twin = policy_with(first_batch=10), policy_with(first_batch=10)
    for each in (policy, twin):
        for _ in range(11):
            each.select(np.eye(3))
    before = len(records)
    policy.update(0, 1.0)  # accepted, and not open any more
    twin.forget(0)
    assert len(records) == before
    assert policy.open_decisions == twin.open_decisions
    assert repr(policy.kept()) == repr(twin.kept())
    with pytest.raises(ValueError, match="got decision id 0"):
        policy.update(0, 1.0)


def test_an_unanswered_batch_is_released_like_any_other():
    policy = policy_with(horizon=30, first_batch=10)
    for _ in range(30):
        policy.select(np.eye(3))
    assert policy.releases == len(policy.schedule.ends) > 0


def test_a_saved_state_holds_randomized_counts_and_no_arms_of_closed_batches(tmp_path):
    policy = policy_with(first_batch=10, growth=10.0)
    waiting = [policy.select(np.eye(3)) for _ in range(12)]
    for decision in waiting[10:]:
        policy.update(decision, 1.0)
    policy.save(tmp_path / "p")
    state = policy.sums.kept()
    assert state["users"].tolist() == [2]
    assert state["ones"].dtype == np.int64
    # noise far beyond what two records can be
    assert policy.sums.batches.protocols[1].noise_bits > 10
    tree, _ = files.read(tmp_path / "p")
    assert len(tree["open"]["arms"]) == 10
    assert tree["open"]["closed"].all()
    assert not tree["open"]["arms"].any()


# ------------------------------------------------------------------------------------------------- privacy


@settings(deadline=None, max_examples=40)
@given(
    link=st.sampled_from(LINKS),
    seed=st.integers(0, 2**32 - 1),
    extreme=st.booleans(),
    share=st.sampled_from([0.3, 0.75, 0.95]),
    adjacency=st.sampled_from(["replace", "zero_out"]),
)
def test_no_two_records_of_a_user_are_farther_apart_than_declared(link, seed, extreme, share, adjacency):
    """Any two arms and rewards, or none at all, at any released parameter."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 4))
    budget = Budget(1.0, 1e-5, adjacency=adjacency)
    policy = policy_with(link, dim=d, horizon=3, first_batch=2, gradient_share=share, budget=budget)
    (protocol,) = policy.sums.batches.protocols
    policy.public = replace(policy.public, theta=rng.standard_normal(d) * rng.choice([0.0, 1.0, 3.0]))
    sent: list[np.ndarray] = []
    policy.sums.batches.add = lambda row, batch: sent.append(policy.sums.records(row[None])[0])
    x = rng.standard_normal(d)
    for y in (x, -x if extreme else rng.standard_normal(d)):
        policy.learn(Pending(y / max(1.0, np.linalg.norm(y)), 0, 0), float(rng.choice([0.0, 1.0])))
    assert max(map(np.linalg.norm, sent)) <= protocol.bound * (1 + 1e-9)
    apart = protocol.cost.shift_norm * protocol.step
    if adjacency == "replace":
        assert np.linalg.norm(sent[0] - sent[1]) <= apart
    assert max(map(np.linalg.norm, sent)) <= apart  # against the null record


def test_the_run_costs_what_its_dearest_batch_costs():
    ledger = Ledger(BUDGET)
    policy = policy_with(ledger=ledger)
    (row,) = ledger.rows()
    assert row.label == policy.label
    assert row.simulation
    costs = [epsilon(protocol.cost, BUDGET.delta) for protocol in policy.sums.batches.protocols]
    assert len(costs) > 3
    assert policy.privacy().epsilon == pytest.approx(max(costs), rel=1e-9)
    assert 0.99 * BUDGET.epsilon <= max(costs) <= BUDGET.epsilon
    assert policy.privacy().trust == "shuffle"
    for _ in range(200):
        policy.update(policy.select(np.eye(3)), 1.0)
    assert ledger.total == row.release


def test_zeroed_out_users_need_less_noise():
    zeroed = policy_with(budget=Budget(1.0, 1e-5, adjacency="zero_out"))
    assert zeroed.sums.batches.noise_std(0) < 0.8 * policy_with().sums.batches.noise_std(0)


def test_a_ledger_without_enough_left_refuses_the_policy():
    ledger = Ledger(BUDGET)
    ledger.spend(Gaussian(20.0))
    with pytest.raises(BudgetExceeded):
        policy_with(ledger=ledger)
    assert len(ledger.rows()) == 1


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"budget": Budget(1.0, 0.0)}, ValueError, "delta must be positive"),
        ({"budget": Budget(1.0, 1e-6, adjacency="add_remove")}, AdjacencyMismatch, "rounds are replaced or zeroed"),
        ({"budget": Budget(1.0, 1e-6, unit="client")}, AdjacencyMismatch, "protects one round or person"),
        ({"growth": 0.5}, ValueError, "growth must be at least 1, got growth=0.5"),
        ({"gradient_share": 1.0}, ValueError, r"gradient_share must lie in \(0, 1\), got gradient_share=1.0"),
        ({"clip": 0.0}, ValueError, "clip must be positive"),
        ({"reward_range": (0.0, math.inf)}, ValueError, "reward_range must be finite for a private policy"),
        ({"first_batch": 0}, ValueError, "first_batch must be at least 1, got first_batch=0"),
        ({"exploration": -1.0}, ValueError, "exploration must be"),
    ],
)
def test_bad_parameters_spend_nothing(parameters, error, message):
    ledger = Ledger(BUDGET)
    with pytest.raises(error, match=message):
        policy_with(**parameters, ledger=ledger)
    assert ledger.rows() == []


def test_after_a_crash_the_checkpoint_goes_on_and_an_older_state_is_refused(tmp_path):
    path = tmp_path / "ledger"
    with Ledger.open(path, BUDGET) as ledger:
        policy = policy_with(first_batch=10, ledger=ledger, checkpoint=str(tmp_path / "newest"), rng=None)
        for t in range(60):
            policy.update(policy.select(np.eye(3)), 1.0)
            if t == 5:
                policy.save(tmp_path / "older")
        assert policy.releases >= 2
    theta = policy.theta
    del policy  # one object at a time holds a checkpoint
    gc.collect()
    with Ledger.open(path) as ledger:
        with pytest.raises(ValueError, match=r"the newest of its run: .*, got another state, at release 0"):
            Policy.load(tmp_path / "older", ledger=ledger)
        restored = Policy.load(tmp_path / "newest", ledger=ledger)
        assert np.array_equal(restored.theta, theta)
        while restored.decisions < 200:
            restored.update(restored.select(np.eye(3)), 1.0)
        assert restored.releases == len(restored.schedule.ends)
        assert ledger.epsilon() <= BUDGET.epsilon


# ------------------------------------------------------------------------------------------------- regret


def probit_regret(epsilon: float, S: float, seeds: int) -> float:
    """d = 3, K = 20, T = 5000, δ = 0.02."""
    return regret_of(
        lambda rng: ShuffleOnePassGLM(
            3, "probit", budget=Budget(epsilon, 0.02), horizon=5000, theta_bound=S, rng=rng
        ),
        "probit", 3, 20, S, 5000, seeds=seeds,
    )  # fmt: skip


def test_regret_on_the_probit_workload():
    assert probit_regret(4.0, 2.5, seeds=1) <= 60


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "most"), [(1.0, 90), (4.0, 45)])
@pytest.mark.parametrize("S", [2.0, 2.5, 3.0])
def test_regret_on_the_probit_workload_in_full(epsilon, most, S):
    assert probit_regret(epsilon, S, seeds=10) <= most


@pytest.mark.slow
def test_regret_with_a_fixed_set_of_arms_and_linear_rewards():
    """d = 5, K = 100, T = 20,000, ε = 1, δ = 0.1; the authors' code of shuffle-private LinUCB has 1757."""
    results = simulate(
        {
            "policy": lambda rng: ShuffleOnePassGLM(
                5, "linear", budget=Budget(1.0, 0.1), horizon=20_000, theta_bound=1.0, reward_range=(0, 1), rng=rng
            )
        },
        LinearBernoulli(),
        rounds=20_000,
        seeds=5,
        progress=False,
    )
    assert results.table()[0]["regret"] <= 1100


@pytest.mark.parametrize("kind", [ShuffleOnePassGLM, OnePassPrivateGLM])
def test_a_model_that_holds_is_no_misfit_where_chords_are_steeper_than_records(kind):
    """At e = 2.9 above a base rate of 0.04 the mean is 0.43, and w is a quarter of the chord's slope.

    A gradient m − Mθ would be taken for 0.30·B in every round; the right one leaves a quarter of B, 240 for the 1000
    rounds of the batch, by fifteen of its standard deviations of 16 or with probability below 1e-50.
    """
    policy = kind(
        1,
        budget=Budget(8.0, 1e-3),
        horizon=1200,
        first_batch=1000,
        base_rate=0.04,
        prior=([2.9], 1e6),
        rng=np.random.default_rng(0),
    )
    rng, mean = np.random.default_rng(1), float(policy.link.mean(2.9))
    for _ in range(1100):
        policy.update(policy.select([[1.0]]), float(rng.random() < mean))
    assert policy.releases == 1
    assert policy.public.misfit == 0.0

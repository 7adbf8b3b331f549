"""What the policies of the shuffle model have in common: their users, their batches, their sensitivity, their cost."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regret import ball

from accounting import AdjacencyMismatch, Budget, BudgetExceeded, Gaussian, Ledger, delta, epsilon
from accounting.compose import pld
from accounting.totals import meets
from dpbandits import Pending
from dpbandits.policies import ShuffleGLM, ShuffleLinUCB, ShuffleOnePassGLM
from dpkit.moments.shuffled import ShuffledBatches
from dpkit.shuffle import Shuffler
from dpkit.states import files

BUDGET = Budget(1.0, 1e-5)
PAIRS = (ShuffleOnePassGLM, ShuffleLinUCB)
KINDS = (*PAIRS, ShuffleGLM)


def made(kind, dim=3, horizon=200, **parameters):
    more = {"batches": [10, 80]} if kind is ShuffleGLM else {"first_batch": 10}
    known = {"budget": BUDGET, "reward_range": (0.0, 1.0), "rng": np.random.default_rng(0)} | more
    return kind(dim, horizon=horizon, **(known | parameters))


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


@pytest.mark.parametrize(
    ("T", "first", "growth"), [(1, 1, 1.5), (2, 1, 3.0), (37, 40, 2.0), (400, 3, 2.9), (200, 40, 1.5)]
)
def test_batches_grow_and_end_before_the_horizon(T, first, growth):
    policy = made(ShuffleOnePassGLM, dim=1, horizon=T, first_batch=first, growth=growth)
    assert all(a < b for a, b in pairwise([0, *policy.schedule.ends]))
    assert all(end < T for end in policy.schedule.ends)
    users = [protocol.users for protocol in policy.sums.batches.protocols]
    assert tuple(np.cumsum(users).tolist()) == policy.schedule.ends


def test_batches_of_one_size_are_the_papers():
    policy = made(ShuffleLinUCB, horizon=100, first_batch=20, growth=1.0)
    assert tuple(policy.schedule.ends) == (20, 40, 60, 80)
    assert len({protocol.cost for protocol in policy.sums.batches.protocols}) == 1


@settings(deadline=None, max_examples=15)
@given(answered=st.lists(st.integers(0, 60), min_size=120, max_size=120))
def test_every_round_is_one_user_of_its_batch_whatever_comes_and_when(answered):
    """Rewards come after 0 to 60 rounds, or (60) never: releases happen at the same times, over the same users."""
    times, users = [], []
    original = Shuffler.shuffle_tallies

    def shuffle(self, messages):
        users.append(messages.users)
        return original(self, messages)

    policy = made(ShuffleOnePassGLM, dim=1, horizon=120, growth=2.0)
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_reward_after_the_end_of_its_batch_counts_for_nothing(kind):
    policy = made(kind, horizon=20)
    for _ in range(11):
        policy.select(np.eye(3))
    before = repr(policy.kept())
    policy.update(0, 1.0)  # accepted, and not open any more
    assert repr(policy.kept()) == before
    assert policy.open_decisions == list(range(1, 11))
    with pytest.raises(ValueError, match="got decision id 0"):
        policy.update(0, 1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unanswered_batch_is_released_like_any_other_and_the_last_one_keeps_nothing(kind):
    policy = made(kind, horizon=40)
    for _ in range(30):
        policy.select(np.eye(3))
    ends = policy.schedule.ends
    assert policy.releases == sum(end < 30 for end in ends) > 0
    for _ in range(10):
        policy.update(policy.select(np.eye(3)), 1.0)
    assert policy.releases == len(ends)
    kept = policy.kept()
    assert (len(kept["rows"]) if kind is ShuffleGLM else kept["sums"]["users"].sum()) == 0


def test_a_saved_state_holds_randomized_counts_and_no_arms_of_closed_batches(tmp_path):
    policy = made(ShuffleOnePassGLM, growth=10.0)
    waiting = [policy.select(np.eye(3)) for _ in range(12)]
    for decision in waiting[10:]:
        policy.update(decision, 1.0)
    policy.save(tmp_path / "p")
    tree, _ = files.read(tmp_path / "p")
    state = tree["learned"]["sums"]
    assert set(state) == {"released", "users", "ones", "units"}  # and no record that waits for others
    assert state["users"].tolist() == [2]
    assert state["ones"].dtype == np.int64
    # noise far beyond what two records can be
    assert policy.sums.batches.protocols[1].noise_bits > 10
    assert len(tree["open"]["arms"]) == 10
    assert tree["open"]["closed"].all()
    assert not tree["open"]["arms"].any()


# ------------------------------------------------------------------------------------------------- privacy


@settings(deadline=None, max_examples=9)
@given(
    kind=st.sampled_from(
        [*((ShuffleOnePassGLM, link) for link in ("logistic", "probit", "linear")), (ShuffleLinUCB, "")]
    ),
    seed=st.integers(0, 2**32 - 1),
    share=st.sampled_from([0.3, 0.75, 0.95]),
    adjacency=st.sampled_from(["replace", "zero_out"]),
)
def test_no_two_records_of_a_user_are_farther_apart_than_declared(kind, seed, share, adjacency):
    """Any two arms and rewards, or none at all, at any released parameter and metric: of each policy forty pairs."""
    (cls, link), rng = kind, np.random.default_rng(seed)
    d, budget = int(rng.integers(1, 4)), Budget(1.0, 1e-5, adjacency=adjacency)
    more = {"link": link, "gradient_share": share} if link else {"reward_share": share, "reward_range": (-1.0, 2.0)}
    policy = made(cls, dim=d, horizon=3, first_batch=2, budget=budget, **more)
    (protocol,) = policy.sums.batches.protocols
    apart, (low, high) = protocol.cost.shift_norm * protocol.step, policy.reward_range
    sent: list[np.ndarray] = []
    policy.sums.batches.add = lambda row, batch: sent.append(policy.sums.records(row[None])[0])
    for pair in range(40):
        known = {"theta": rng.standard_normal(d) * rng.choice([0.0, 1.0, 3.0])}
        if cls is ShuffleOnePassGLM and pair:
            root = rng.standard_normal((d, d)) * 10.0 ** rng.integers(-2, 3)
            known["later"] = root @ root.T + 1e-3 * np.eye(d)
        policy.public = replace(policy.public, **known)
        x = rng.standard_normal(d)
        for y in (x, -x if pair % 2 else rng.standard_normal(d)):
            y = y / (max(1.0, np.linalg.norm(y)) if pair % 4 else np.linalg.norm(y))
            policy.learn(Pending(y, 0, 0), float(rng.choice([low, high, 0.3])))
    assert max(map(np.linalg.norm, sent)) <= min(apart, protocol.bound * (1 + 1e-9))  # against the null record
    if adjacency == "replace":
        assert max(np.linalg.norm(a - b) for a, b in zip(sent[::2], sent[1::2], strict=True)) <= apart


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "accountant"), [(ShuffleOnePassGLM, None), (ShuffleLinUCB, "gdp")])
def test_the_run_costs_what_its_dearest_batch_costs(kind, accountant):
    ledger = Ledger(BUDGET)
    policy = made(kind, ledger=ledger, growth=1.7, base_rate=0.5)
    (row,) = ledger.rows()
    assert row.label == policy.label
    assert row.simulation
    protocols = policy.sums.batches.protocols
    costs = [epsilon(protocol.cost, BUDGET.delta, accountant=accountant) for protocol in protocols]
    assert len(costs) > 3
    assert policy.privacy().epsilon == pytest.approx(max(costs), rel=1e-9)
    assert 0.99 * BUDGET.epsilon <= max(costs) <= BUDGET.epsilon
    assert policy.privacy().trust == "shuffle"
    for _ in range(200):
        policy.update(policy.select(np.eye(3)), 1.0)
    assert ledger.total == row.release


def test_zeroed_out_users_need_less_noise():
    zeroed, replaced = (
        made(ShuffleOnePassGLM, horizon=20, budget=Budget(1.0, 1e-5, adjacency=adjacency))
        for adjacency in ("zero_out", "replace")
    )
    assert zeroed.sums.batches.noise_std(0) < 0.8 * replaced.sums.batches.noise_std(0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_ledger_without_enough_left_refuses_the_policy(kind):
    ledger = Ledger(BUDGET)
    ledger.spend(Gaussian(20.0))
    with pytest.raises(BudgetExceeded):
        made(kind, horizon=30, ledger=ledger)
    assert len(ledger.rows()) == 1


REFUSED = [
    ({"budget": Budget(1.0, 0.0)}, ValueError, "delta must be positive", KINDS),
    ({"budget": Budget(1.0, 1e-6, adjacency="add_remove")}, AdjacencyMismatch, "rounds are replaced or zeroed", KINDS),
    ({"budget": Budget(1.0, 1e-6, unit="client")}, AdjacencyMismatch, "protects one round or person", KINDS),
    ({"reward_range": (0.0, math.inf)}, ValueError, "reward_range must be finite for a private policy", KINDS),
    ({"reward_range": (1e300, 2e300)}, ValueError, r"reward_range must lie within ±1e\+100", KINDS),
    ({"reward_range": (0.0, 1e-300)}, ValueError, "be at least 1e-100 wide for a private policy", KINDS),
    ({"theta_bound": 0.0}, ValueError, "theta_bound must be positive", KINDS),
    ({"exploration": -1.0}, ValueError, "exploration must be", KINDS),
    ({"growth": 0.5}, ValueError, "growth must be at least 1, got growth=0.5", PAIRS),
    ({"first_batch": 0}, ValueError, "first_batch must be at least 1, got first_batch=0", PAIRS),
    ({"gradient_share": 1.0}, ValueError, r"gradient_share must lie in \(0, 1\), got gradient_share=1.0", PAIRS[:1]),
    ({"clip": 0.0}, ValueError, "clip must be positive", PAIRS[:1]),
    ({"reward_share": 0.0}, ValueError, r"reward_share must lie in \(0, 1\), got reward_share=0.0", PAIRS[1:]),
    (
        {"parameters": "best"},
        ValueError,
        "parameters must be 'practical' or 'theory', got parameters='best'",
        KINDS[1:],
    ),
    ({"failure_probability": 0.0}, ValueError, "failure_probability must lie", KINDS[1:]),
    ({"batches": [10, 0]}, ValueError, "batches must be at least 1, got batches=0", KINDS[2:]),
    ({"analysis": "rough"}, ValueError, "analysis must be 'numeric' or 'paper', got analysis='rough'", KINDS[2:]),
    ({"matrix_share": 1.0}, ValueError, r"matrix_share must lie in \(0, 1\), got matrix_share=1.0", KINDS[2:]),
    ({"exploration": 0.0}, ValueError, "exploration must be positive", KINDS[2:]),
]


@pytest.mark.parametrize(
    ("kind", "parameters", "error", "message"),
    [(kind, parameters, error, message) for parameters, error, message, kinds in REFUSED for kind in kinds],
)
def test_bad_parameters_spend_nothing(kind, parameters, error, message):
    ledger = Ledger(BUDGET)
    with pytest.raises(error, match=message):
        made(kind, **parameters, ledger=ledger)
    assert ledger.rows() == []


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_no_loss_distribution_is_made_where_gaussian_dp_says_enough(kind, monkeypatch):
    """It says that the budget suffices, and takes a hundred times as long; it is asked where Gaussian DP says less."""
    with monkeypatch.context() as patch:
        patch.setattr(pld, "delta", pytest.fail)
        policy = made(kind, horizon=40)
    (row,) = policy.ledger.rows()
    by_gdp, best = (float(delta(row.release, 1.0, accountant=one)) for one in ("gdp", None))
    assert best < 0.95 * by_gdp <= BUDGET.delta
    assert [meets(row.release, 1.0, most) for most in (by_gdp, 1.01 * best, 0.99 * best)] == [True, True, False]

"""Rounds without a known end: epochs, their disjoint scopes, late rewards, states, and what not knowing costs."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from bits import fingerprint
from regret import ball, regret_of
from tabled import tabled

from accounting import Budget, BudgetExceeded, Gaussian, Ledger
from dpbandits import Policy
from dpbandits.policies import DPHDB, Doubling, JointDPGLM, OnePassPrivateGLM, PrivateHvtUCB, Restarting
from dpkit.models.links import get_link
from dpkit.states import files

BUDGET = Budget(1.0, 1e-5)


def doubling(algorithm="OnePassPrivateGLM", dim=3, **parameters) -> Doubling:
    defaults = {"budget": BUDGET, "first_epoch": 20, "rng": np.random.default_rng(0)}
    return Doubling(dim, algorithm, **(defaults | parameters))


def restarting(epoch: int, **parameters) -> Restarting:
    return Restarting(3, **({"budget": BUDGET, "every": epoch, "rng": np.random.default_rng(0)} | parameters))


each_kind = pytest.mark.parametrize(
    "make", [lambda epoch, **more: doubling(first_epoch=epoch, **more), restarting], ids=["doubling", "restarting"]
)


def play(policy: Policy, rng: np.random.Generator, rounds: int) -> list[int]:
    chosen = []
    for _ in range(rounds):
        decision = policy.select(ball(rng, 5, 3))
        policy.update(decision, float(rng.random() < 0.5))
        chosen.append(decision.index)
    return chosen


# ---------------------------------------------------------------------------------------------- epochs and cost


def test_epochs_double_whatever_rewards_come():
    policy, starts = doubling(), []
    for t in range(20 * 7 + 5):
        policy.select(np.eye(3))
        if policy.epoch == len(starts):
            starts.append(t)
    assert starts == [0, 20, 60, 140]
    assert policy.policy.horizon == 160


def test_epochs_of_a_shuffle_policy_share_one_ledger():
    budget = Budget(1.0, 1e-6)
    ledger = Ledger(budget)
    policy = doubling("ShuffleOnePassGLM", first_epoch=1000, ledger=ledger, budget=budget)
    play(policy, np.random.default_rng(1), 1001)
    assert policy.epoch == 1
    first, second = (row.release for row in ledger.rows())
    assert first != second  # an epoch of another length is another release, priced as a whole
    assert ledger.epsilon() <= budget.epsilon
    assert ledger.verify() == ledger.head


@pytest.mark.parametrize("algorithm", ["OnePassPrivateGLM", "PrivateHvtUCB", "JointDPGLM", "DPLinUCB"])
def test_the_cost_stays_the_budget_however_long_it_goes_on(algorithm):
    more = {"reward_range": (0.0, 1.0)} if algorithm in ("PrivateHvtUCB", "DPLinUCB") else {}
    ledger = Ledger(BUDGET)
    policy = doubling(algorithm, first_epoch=4, ledger=ledger, **more)
    for _ in range(4):
        play(policy, np.random.default_rng(1), 30)
        report = policy.privacy()
        assert 0.9 * BUDGET.epsilon < report.epsilon <= BUDGET.epsilon
        assert report.trust == "joint"
    assert policy.epoch == 4
    scopes = [row.scope for row in ledger.rows() if row.scope is not None]
    assert scopes == [f"{policy.label}: epoch {k}" for k in range(5)]


def test_every_epoch_is_charged_before_its_first_round():
    ledger = Ledger(BUDGET)
    policy = doubling(ledger=ledger, first_epoch=10)
    play(policy, np.random.default_rng(1), 10)
    scope = f"{policy.label}: epoch 1"
    ledger.spend(Gaussian(1e3), scope=scope)  # somebody else was there
    before = fingerprint(policy)
    with pytest.raises(BudgetExceeded):
        policy.select(np.eye(3))
    assert fingerprint(policy) == before
    assert policy.epoch == 0


def test_no_two_runs_share_a_label():
    """Else the second would find its epochs paid."""
    ledger = Ledger(Budget(10.0, 1e-5))
    doubling(ledger=ledger, label="mine")
    with pytest.raises(ValueError, match="label must be new, got label='mine: epoch 0'"):
        doubling(ledger=ledger, label="mine")
    assert len(ledger.rows()) == 1


@each_kind
def test_an_epoch_that_was_charged_before_a_crash_is_not_charged_again(make, tmp_path, monkeypatch):
    path, newest = tmp_path / "ledger", tmp_path / "newest"
    with Ledger.create(path, BUDGET) as ledger:
        policy = make(10, ledger=ledger, rng=None, checkpoint=newest)
        play(policy, np.random.default_rng(1), 10)
        scope = f"{policy.label}: epoch 1"
        with monkeypatch.context() as crash:
            crash.setattr(type(policy), "begin_epoch", lambda self, epoch, fresh: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                policy.select(np.eye(3))
    assert [row.label for row in policy.ledger.rows()].count(scope) == 1
    del policy  # one object at a time holds a checkpoint
    gc.collect()
    with Ledger.open(path) as ledger:
        restored = Policy.load(newest, ledger=ledger)
        assert restored.decisions == 10  # the last ones are in the journal
        play(restored, np.random.default_rng(2), 5)
        assert restored.epoch == 1
        assert [row.label for row in ledger.rows()].count(scope) == 1
        assert ledger.epsilon() <= BUDGET.epsilon


def test_bad_arms_at_the_end_of_an_epoch_open_no_new_one():
    ledger = Ledger(BUDGET)
    policy = doubling(ledger=ledger, first_epoch=10)
    play(policy, np.random.default_rng(1), 10)
    rows = len(ledger.rows())
    with pytest.raises(ValueError, match="arms must have norm at most 1"):
        policy.select(2 * np.eye(3))
    assert (policy.epoch, len(ledger.rows())) == (0, rows)


# ------------------------------------------------------------------------------------------------ late rewards


@pytest.mark.parametrize(("reward", "when"), [(1.0, 21), (0.0, 40), (1.0, 70)])
@each_kind
def test_a_reward_of_an_earlier_epoch_is_taken_and_has_no_effect(make, reward, when):
    policies = [make(20), make(20)]
    for policy in policies:
        rng = np.random.default_rng(1)
        play(policy, rng, 10)
        policy.select(np.eye(3))
        play(policy, rng, when - 11)
    told, other = policies
    told.update(10, reward)
    assert (told.open_decisions, other.open_decisions) == ([], [10])
    other.forget(10)
    assert fingerprint(told) == fingerprint(other)
    with pytest.raises(ValueError, match="got decision id 10"):
        told.update(10, reward)
    assert play(told, np.random.default_rng(2), 40) == play(other, np.random.default_rng(2), 40)


def test_no_arm_is_kept_whose_reward_would_count_for_nothing():
    """Of closed epochs, and in the shuffle model of closed batches."""
    for algorithm, epoch, first in (
        ("OnePassPrivateGLM", 20, 20),
        ("OnePassPrivateGLM", 40, 0),
        ("ShuffleLinUCB", 40, 10),
    ):
        policy = doubling(algorithm, first_epoch=epoch, parameters={"first_batch": 10, "growth": 2.0})
        for _ in range(25):
            policy.select(np.eye(3))
        assert [key for key, pending in policy.waiting.items() if len(pending.arm)] == list(range(first, 25))


def test_a_bad_reward_of_an_earlier_epoch_is_refused():
    policy = doubling()
    policy.select(np.eye(3))
    play(policy, np.random.default_rng(1), 30)
    with pytest.raises(ValueError, match=r"reward must be a finite number in \[0, 1\], got reward=7"):
        policy.update(0, 7)
    assert policy.open_decisions == [0]


def test_a_forgotten_decision_is_forgotten_by_the_epochs_policy_too():
    policy = doubling()
    decision = policy.select(np.eye(3))
    policy.forget(decision)
    policy.forget(99)
    assert policy.open_decisions == policy.policy.open_decisions == []


# ------------------------------------------------------------------------------------------- what is carried over


@pytest.mark.parametrize("algorithm", ["OnePassPrivateGLM", "PrivateHvtUCB"])
def test_the_last_epochs_policy_chooses_until_the_new_one_has_seen_as_many_rounds(algorithm):
    more = {"reward_range": (0.0, 1.0)} if algorithm == "PrivateHvtUCB" else {}
    policy, rng = doubling(algorithm, **more), np.random.default_rng(1)
    play(policy, rng, 20)
    released = policy.policy.theta.copy()
    assert policy.policy.releases
    last = policy.policy
    for t in range(20, 60):
        arms = ball(rng, 5, 3)
        decision = policy.select(arms)
        if t == 20:
            assert np.array_equal(policy.policy.theta, released)
            assert policy.previous is last
        assert (policy.previous is None) == (t >= 40)
        assert decision.scores.shape == (5,)
        assert np.array_equal(decision.arm, arms[decision.index])
        policy.update(decision, 1.0)
    assert policy.policy.decisions == 40


def test_what_is_carried_over_is_a_function_of_releases():
    """Two runs whose only difference is in what was never released continue alike."""
    policies = [doubling(), doubling()]
    for policy, reward in zip(policies, (0.0, 1.0), strict=True):
        play(policy, np.random.default_rng(1), 19)
        policy.update(policy.select(np.eye(3)), reward)  # the last round of the epoch: no release follows it
    assert not np.array_equal(*(policy.policy.sums.batch[-1] for policy in policies))
    a, b = (play(policy, np.random.default_rng(2), 300) for policy in policies)
    assert a == b
    assert np.array_equal(policies[0].policy.theta, policies[1].policy.theta)


@pytest.mark.parametrize("kind", [JointDPGLM, DPHDB])
def test_other_policies_start_afresh(kind):
    context = kind is DPHDB
    policy = doubling(kind, first_epoch=10, parameters={"n_arms": 2} if context else {})
    assert policy.takes == ("context" if context else "arms")
    for _ in range(25):
        policy.update(policy.select(np.full(3, 0.5) if context else np.eye(3)), 1.0)
    assert policy.previous is None
    assert (policy.epoch, policy.policy.decisions) == (1, 15)


# ------------------------------------------------------------------------------------------------------- states


@pytest.mark.parametrize(
    ("algorithm", "rounds"),
    [("OnePassPrivateGLM", 7), ("OnePassPrivateGLM", 30), ("PrivateHvtUCB", 95), ("JointDPGLM", 30)],
)
def test_a_simulation_continues_bit_for_bit(algorithm, rounds, tmp_path):
    policy = doubling(algorithm, reward_range=(0.0, 1.0))
    play(policy, np.random.default_rng(1), rounds - 1)
    late = policy.select(np.eye(3))
    policy.save(tmp_path / "p")
    twin = Policy.load(tmp_path / "p")
    assert isinstance(twin, Doubling)
    assert fingerprint(twin) == fingerprint(policy)
    assert twin.privacy() == policy.privacy()
    for each in (policy, twin):
        each.update(late.id, 1.0)
    assert play(policy, np.random.default_rng(2), 60) == play(twin, np.random.default_rng(2), 60)
    assert fingerprint(twin) == fingerprint(policy)


def test_after_a_crash_the_checkpoint_goes_on_and_an_older_state_is_refused(tmp_path):
    path = tmp_path / "ledger"
    with Ledger.create(path, BUDGET) as ledger:
        policy = doubling(ledger=ledger, rng=None, checkpoint=str(tmp_path / "newest"))
        play(policy, np.random.default_rng(1), 5)
        policy.save(tmp_path / "older")
        play(policy, np.random.default_rng(2), 60)  # into the third epoch
    theta = policy.policy.theta
    del policy  # one object at a time holds a checkpoint
    gc.collect()
    with Ledger.open(path) as ledger:
        with pytest.raises(ValueError, match="the state must be the newest of its run: the ledger has marked release"):
            Policy.load(tmp_path / "older", ledger=ledger)
        restored = Policy.load(tmp_path / "newest", ledger=ledger)
        assert isinstance(restored, Doubling)
        assert restored.epoch == 2
        assert np.array_equal(restored.policy.theta, theta)
        play(restored, np.random.default_rng(3), 200)
        assert restored.epoch == 3
        assert ledger.epsilon() <= BUDGET.epsilon


def test_a_state_with_more_releases_than_its_epoch_has_is_refused(tmp_path):
    policy = doubling()
    policy.save(tmp_path / "p")
    tree, _ = files.read(tmp_path / "p")
    tree["learned"]["policy"]["releases"] = len(policy.policy.schedule.ends) + 1
    files.write(tmp_path / "p", tree)
    with pytest.raises(ValueError, match="releases must be at most"):
        Policy.load(tmp_path / "p")


@each_kind
def test_a_state_of_before_its_policy_learned_a_level_says_that_it_is_older(make, tmp_path):
    policy = make(20, algorithm="LDPGLM")
    policy.save(tmp_path / "p")
    tree, _ = files.read(tmp_path / "p")
    sums = tree["learned"]["policy"]["learned"]["sums"]
    del sums["numbers"], sums["told"]
    files.write(tmp_path / "p", tree)
    with pytest.raises(ValueError, match=r"lacks .*numbers.* of the LDPGLM of its epoch, .* older version.* new run"):
        Policy.load(tmp_path / "p")


def test_a_named_link_is_kept_whichever_way_it_was_given(tmp_path):
    policy = doubling(parameters={"link": get_link("probit"), "theta_bound": 2.0})
    policy.save(tmp_path / "p")
    twin = Doubling.load(tmp_path / "p")
    assert isinstance(twin, Doubling)
    assert isinstance(twin.policy, OnePassPrivateGLM)
    assert (twin.policy.link.name, twin.policy.theta_bound) == ("probit", 2.0)


@tabled(
    ("parameters", "message"),
    [
        ({"algorithm": "GLBOMD"}, "algorithm must be a private policy of dpbandits.policies, got algorithm='GLBOMD'"),
        ({"algorithm": "Doubling"}, "algorithm must be a private policy"),
        ({"algorithm": "PersonPrivateGLM"}, "algorithm must learn a capped number of records .* a horizon of its own"),
        ({"algorithm": "annotations"}, "algorithm must be a private policy"),
        ({"algorithm": dict}, "algorithm must be a private policy of dpbandits.policies, got algorithm='dict'"),
        ({"parameters": {"horizon": 5}}, r"parameters must not hold what Doubling itself is given.*\['horizon'\]"),
        ({"parameters": {"growth": 0.5}}, "growth must be at least 1, got growth=0.5"),
        ({"first_epoch": 0}, "first_epoch must be at least 1, got first_epoch=0"),
        ({"dim": 0}, "dim must be at least 1, got dim=0"),
        ({"budget": Budget(1.0, 0.0)}, "delta must be positive"),
    ],
)
def test_bad_parameters_spend_nothing(parameters, message):
    ledger = Ledger(BUDGET)
    with pytest.raises(ValueError, match=message):
        doubling(ledger=ledger, **parameters)
    assert ledger.rows() == []


# ------------------------------------------------------------------------------------------------------- regret


def probit_regret(make, T: int, seeds: int) -> float:
    return regret_of(make, "probit", 3, 20, 2.0, T, seeds)


def of_known_horizon(epsilon: float, T: int):
    budget = Budget(epsilon, 0.02)
    return lambda rng: OnePassPrivateGLM(3, "probit", budget=budget, horizon=T, theta_bound=2.0, rng=rng)


def of_unknown_horizon(epsilon: float):
    more = {"link": "probit", "theta_bound": 2.0}
    return lambda rng: Doubling(3, budget=Budget(epsilon, 0.02), first_epoch=500, parameters=more, rng=rng)


@pytest.mark.thorough
def test_not_knowing_the_horizon_costs_a_small_factor():
    """ε = 4, T = 3000. Playing at random loses about 1300."""
    assert probit_regret(of_unknown_horizon(4.0), 3000, 2) <= 2.5 * probit_regret(of_known_horizon(4.0, 3000), 3000, 2)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("T", [2000, 5000])
def test_not_knowing_the_horizon_costs_a_small_factor_in_full(epsilon, T):
    unknown, known = (
        probit_regret(make, T, 10) for make in (of_unknown_horizon(epsilon), of_known_horizon(epsilon, T))
    )
    assert unknown <= 1.6 * known


@pytest.mark.slow
def test_heavy_tails_without_a_horizon():
    total = []
    for seed in range(5):
        rng = np.random.default_rng([seed, 7])
        policy = Doubling(2, PrivateHvtUCB, budget=Budget(4.0, 1e-5), rng=np.random.default_rng(seed))
        theta, lost = np.array([0.6, 0.8]), 0.0
        for _ in range(10_000):
            arms = ball(rng, 20, 2)
            decision = policy.select(arms)
            policy.update(decision, float(decision.arm @ theta + rng.standard_t(2.1)))
            lost += float((arms @ theta).max() - decision.arm @ theta)
        total.append(lost)
    assert np.mean(total) <= 500

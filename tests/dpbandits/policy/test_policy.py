"""What every policy promises: checked input, open decisions, and a state that saves and continues."""

from __future__ import annotations

import copy
import os
import stat
from functools import partial
from typing import Unpack

import numpy as np
import pytest
from bits import fingerprint
from hypothesis import given, settings
from hypothesis import strategies as st
from private_policies import SIZES, SMALL, small
from regret import sphere
from tabled import tabled

from accounting import AdjacencyMismatch, Budget, BudgetExceeded, Gaussian, Ledger
from dpbandits import Pending, Policy, policies
from dpbandits.policies import GLBOMD, OnePassPrivateGLM, PrivateArms, Uniform
from dpbandits.policy.protocol import Options
from dpkit.models.links import Link

BUDGET = Budget(1.0, 1e-5)


class Maker:
    """Makes the policy of that name for rewards in [0, 1]."""

    def __init__(self, name: str):
        self.name = name
        self.kind = partial(small, name) if name in SMALL else partial(getattr(policies, name), **SIZES.get(name, {}))

    def __call__(self, dim=2, **parameters):
        return self.kind(dim, **{"horizon": 40, "reward_range": (0.0, 1.0), **parameters})

    def __repr__(self):
        return self.name


# those that take a context, or are made for the same arms in all rounds, have tests of their own (test_per_arm, theirs)
MAKERS = {
    name: Maker(name)
    for name in policies.__all__
    if getattr(policies, name).takes == "arms" and name != "StandingPrivateGLM"
}


each_policy = tabled("make", MAKERS.values())


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# ------------------------------------------------------------------------------------------------ bad input


@each_policy
@tabled(
    ("arms", "message"),
    [
        (np.full((2, 2), np.nan), "arms must be finite, got nan in row 0"),
        ([[0.1, 0], [np.inf, 0]], "arms must be finite, got inf in row 1"),
        ([[0.1, 0], [2.0, 0]], "arms must have norm at most 1, got norm 2 in row 1"),
        (np.zeros((2, 4)), r"arms must have shape \(K, 2\) with K >= 1, got shape \(2, 4\)"),
        (np.zeros(2), r"got shape \(2,\)"),
        (np.zeros((0, 2)), r"got shape \(0, 2\)"),
    ],
)
def test_bad_arms_are_refused_and_change_nothing(make, arms, message):
    policy = make(rng=seeded())
    policy.update(policy.select(np.eye(2)), 1.0)
    before = fingerprint(policy)
    with pytest.raises(ValueError, match=message):
        policy.select(arms)
    assert fingerprint(policy) == before


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ([["1", "0"]], "arms must be real numbers, got an array of type <U1"),
        (np.eye(2) * 1j, "arms must be real numbers, got an array of type complex128"),
        (np.eye(2).astype("timedelta64[s]"), "arms must be real numbers"),
        ([[10**400, 0]], "arms must be real numbers, got an array of type object"),
        (np.ma.masked_less(np.eye(2), 0.5), "arms must have no masked entries, got 2 of them"),
        (np.full((1, 2), np.longdouble("1e4000")), "arms must be finite"),
    ],
    ids=["text", "complex", "times", "huge integers", "masked", "beyond float64"],
)
def test_arms_that_are_no_real_numbers_are_refused(arms, message):
    policy = GLBOMD(2, rng=seeded())
    before = fingerprint(policy)
    with pytest.raises(ValueError, match=message):
        policy.select(arms)
    assert fingerprint(policy) == before


@pytest.mark.parametrize(
    "reward",
    ["1", 1j, np.timedelta64(1, "s"), 10**400, np.ma.masked, [1.0], np.datetime64("2020-01-01"), b"1", {}],
    ids=repr,
)
def test_rewards_that_are_no_real_numbers_are_refused(reward):
    policy = GLBOMD(2, rng=seeded())
    decision = policy.select(np.eye(2))
    before = fingerprint(policy)
    with pytest.raises(ValueError, match=r"reward must (be|have no masked)"):
        policy.update(decision, reward)
    assert fingerprint(policy) == before


@tabled("reward", [1, True, np.float32(0.5), np.array(0.25), np.int64(1)])
def test_numbers_of_other_types_are_rewards(reward):
    policy, twin = GLBOMD(2, rng=seeded()), GLBOMD(2, rng=seeded())
    policy.update(policy.select(np.eye(2)), reward)
    twin.update(twin.select(np.eye(2)), float(reward))
    assert fingerprint(policy) == fingerprint(twin)


@each_policy
@tabled("reward", [np.nan, np.inf, -0.1, 1.5])
def test_bad_rewards_are_refused_and_the_decision_stays_open(make, reward):
    policy = make(rng=seeded())
    decision = policy.select(np.eye(2))
    before = fingerprint(policy)
    with pytest.raises(ValueError, match=r"reward must be a finite number in \[0, 1\], got reward="):
        policy.update(decision, reward)
    assert fingerprint(policy) == before
    policy.update(decision, 0.5)


@each_policy
def test_rewards_outside_are_clipped_on_request(make):
    policy, twin = make(rng=seeded(), on_violation="clip"), make(rng=seeded())
    policy.update(policy.select(np.eye(2)), 7.0)
    twin.update(twin.select(np.eye(2)), 1.0)
    assert fingerprint(policy) == fingerprint(twin)
    with pytest.raises(ValueError, match="reward must be"):
        policy.update(policy.select(np.eye(2)), float("nan"))


@each_policy
def test_repeated_and_unknown_decisions_are_refused(make):
    policy = make(rng=seeded())
    decision = policy.select(np.eye(2))
    policy.update(decision, 1.0)
    before = fingerprint(policy)
    with pytest.raises(ValueError, match="got decision id 0"):
        policy.update(decision, 1.0)
    with pytest.raises(ValueError, match="got decision id 99"):
        policy.update(99, 1.0)
    assert fingerprint(policy) == before


@each_policy
def test_a_round_beyond_the_horizon_is_refused(make):
    policy = make(horizon=3, rng=seeded())
    for _ in range(3):
        decision = policy.select(np.eye(2))
    before = fingerprint(policy)
    with pytest.raises(ValueError, match="horizon must be at least 4 for one more round, got 3"):
        policy.select(np.eye(2))
    assert fingerprint(policy) == before
    policy.update(decision, 1.0)  # a late reward still counts


@each_policy
def test_smallest_problems(make):
    policy = make(dim=1, horizon=1, rng=seeded())
    decision = policy.select([[1.0]])  # K = 1, d = 1, T = 1
    policy.update(decision, 1.0)
    assert (decision.id, decision.index, decision.arm.tolist(), decision.scores.shape) == (0, 0, [1.0], (1,))


@each_policy
def test_number_of_arms_may_change(make):
    policy, rng = make(rng=seeded()), seeded(1)
    for K in (1, 7, 2, 30):
        policy.update(policy.select(sphere(rng, K, 2)), 1.0)


@each_policy
def test_arms_longer_than_one_by_rounding_are_shortened(make):
    arms = np.array([[1.0 + 4e-10, 0.0]])
    assert np.linalg.norm(make(rng=seeded()).select(arms).arm) <= 1.0


@each_policy
def test_the_decision_is_safe_from_later_changes_of_the_callers_array(make):
    arms, policy = np.eye(2), make(rng=seeded())
    decision = policy.select(arms)
    kept = decision.arm.copy()
    arms[:] = 0.0
    assert np.array_equal(decision.arm, kept)


@each_policy
def test_what_is_learned_from_cannot_be_changed_by_the_caller(make):
    policy = make(rng=seeded())
    decision = policy.select(np.eye(2))
    with pytest.raises(ValueError, match="read-only"):
        decision.arm *= 1e6
    assert np.shares_memory(policy.waiting[decision.id].arm, decision.arm)


@each_policy
def test_arms_that_change_while_they_are_looked_at_enter_cut_to_length_one(make, monkeypatch):
    """Another thread rescales the caller's array after it was checked."""
    policy, arms = make(rng=seeded()), np.eye(2)
    checked = policy.checked_arms

    def and_then_changed(given):
        X = checked(given)
        arms[:] *= 1e6
        return X

    monkeypatch.setattr(policy, "checked_arms", and_then_changed)
    assert np.linalg.norm(policy.select(arms).arm) <= 1.0


@each_policy
def test_decisions_of_another_policy_are_refused(make):
    policy, other = make(rng=seeded()), make(rng=seeded())
    decision, foreign = policy.select(np.eye(2)), other.select(np.eye(2))
    assert decision.id == foreign.id
    for call in (lambda: policy.update(foreign, 1.0), lambda: policy.forget(foreign)):
        with pytest.raises(ValueError, match="decision must come from this policy, got decision 0 of another one"):
            call()
    policy.update(decision, 1.0)


@each_policy
def test_open_decisions_expire(make):
    policy = make(rng=seeded(), expire_after=3)
    decisions = [policy.select(np.eye(2)) for _ in range(10)]
    assert policy.open_decisions == [7, 8, 9]
    with pytest.raises(ValueError, match="whose reward is still open, got decision id 6"):
        policy.update(decisions[6], 1.0)
    policy.update(decisions[7], 1.0)


# ----------------------------------------------------------------------------------------- delayed rewards


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(8)), name=st.sampled_from(sorted(MAKERS)))
def test_rewards_may_come_in_any_order_or_never(order, name):
    policy, rng = MAKERS[name](rng=seeded()), seeded(1)
    decisions = [policy.select(sphere(rng, 4, 2)) for _ in range(8)]
    for i in order[:5]:
        policy.update(decisions[i].id, 1.0)
    assert sorted(policy.open_decisions) == sorted(order[5:])
    for i in order[5:]:
        policy.forget(decisions[i])
    assert policy.open_decisions == []


# ---------------------------------------------------------------------------------------- saving and loading


def play(policy: Policy, rng: np.random.Generator, rounds: int) -> list[int]:
    chosen = []
    for _ in range(rounds):
        decision = policy.select(sphere(rng, 5, 2))
        policy.update(decision, float(rng.random() < 0.5))
        chosen.append(decision.index)
    return chosen


@pytest.mark.thorough
@each_policy
def test_a_simulation_continues_bit_for_bit(make, tmp_path):
    policy, rng = make(rng=seeded()), seeded(1)
    play(policy, rng, 20)
    late = policy.select(np.eye(2))
    policy.save(tmp_path / "p")
    twin = Policy.load(tmp_path / "p")
    assert type(twin) is type(policy)
    assert fingerprint(twin) == fingerprint(policy)
    for each in (policy, twin):
        each.update(late.id, 1.0)
    assert play(policy, seeded(2), 19) == play(twin, seeded(2), 19)
    assert fingerprint(twin) == fingerprint(policy)


@each_policy
def test_state_files_are_for_their_owner_only(make, tmp_path):
    path = tmp_path / "p"
    make().save(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert path.read_bytes().startswith(b"dpkit-state 2\n")


@each_policy
def test_damaged_and_foreign_files_are_refused(make, tmp_path):
    path = tmp_path / "p"
    make(rng=seeded()).save(path)
    whole = path.read_bytes()
    for damaged in (b"", b"hello", whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="path must hold a state file"):
            Policy.load(path)
    np.savez(tmp_path / "other.npz", json=np.array("{}"))
    with pytest.raises(ValueError, match=r"path must hold a state file, got .*not a state file of format 2"):
        Policy.load(tmp_path / "other.npz")


def test_load_refuses_another_kind(tmp_path):
    Uniform(2).save(tmp_path / "u")
    with pytest.raises(ValueError, match="must hold the state of a GLBOMD, got a Uniform"):
        GLBOMD.load(tmp_path / "u")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "p"
    policy = GLBOMD(2, rng=seeded())
    policy.save(path)
    before = path.read_bytes()
    play(policy, seeded(1), 3)

    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        policy.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


class Counting(Policy):
    """A policy from outside the package: the arm that was right most often."""

    learned = ("wins",)

    def __init__(self, dim: int, start: float = 0.0, **options: Unpack[Options]) -> None:
        super().__init__(dim, (0.0, 1.0), **options)
        self.start = start
        self.wins = np.full(dim, start)

    def score(self, arms):
        return arms @ self.wins

    def learn(self, pending: Pending, reward: float) -> None:
        self.wins = self.wins + reward * pending.arm


def test_a_class_from_outside_the_package_saves_and_loads(tmp_path):
    policy = Counting(2, 0.5, rng=seeded())
    play(policy, seeded(1), 10)
    policy.save(tmp_path / "p")
    twin = Policy.load(tmp_path / "p")
    assert isinstance(twin, Counting)
    assert (twin.start, fingerprint(twin)) == (0.5, fingerprint(policy))


def test_reference_policies_can_be_copied():
    policy = GLBOMD(2, rng=seeded())
    play(policy, seeded(1), 10)
    twin = copy.deepcopy(policy)
    assert play(twin, seeded(2), 5) == play(policy, seeded(2), 5)
    assert fingerprint(twin) == fingerprint(policy)


def test_a_custom_link_is_passed_again(tmp_path):
    mine = Link("mine", lambda z: z, np.ones_like, lambda z: z * z / 2, lambda S: (1.0, 1.0), lambda S: 0.0, (-1, 1))
    GLBOMD(2, mine, rng=seeded()).save(tmp_path / "p")
    with pytest.raises(ValueError, match="link must be one of"):
        Policy.load(tmp_path / "p")
    loaded = Policy.load(tmp_path / "p", link=mine)
    assert isinstance(loaded, GLBOMD)
    assert loaded.link is mine


# ------------------------------------------------------------------------------------------------- privacy


def test_policies_without_privacy_say_so():
    report = GLBOMD(2).privacy()
    assert np.isinf(report.epsilon)
    assert str(report) == "not private"
    assert repr(GLBOMD(2)) == "GLBOMD(dim=2): 0 decisions, not private"
    arms = PrivateArms(["a", "b"], budget=Budget(1.0, 0.0), horizon=100)
    assert repr(arms) == "PrivateArms(2 arms): 0 of 100 decisions, 0 releases, joint (1, 0)-DP of one round"
    assert repr(GLBOMD(2).select(np.eye(2)[:1])) == "Decision(id=0, index=0, name='')"


def test_the_whole_cost_is_recorded_at_once_and_is_the_budget():
    ledger = Ledger(BUDGET)
    policy = OnePassPrivateGLM(2, budget=BUDGET, horizon=1000, ledger=ledger, rng=seeded())
    (row,) = ledger.rows()
    assert row.simulation
    assert row.label == policy.label
    play(policy, seeded(1), 1000)
    assert ledger.total == row.release  # later rows mark the releases, at no cost
    report = policy.privacy()
    assert report.epsilon <= BUDGET.epsilon
    assert report.epsilon == pytest.approx(BUDGET.epsilon, rel=1e-9)
    assert report.left == 0.0
    assert policy.privacy(delta=1e-3).epsilon < BUDGET.epsilon
    assert "SIMULATION" in str(report)
    assert not OnePassPrivateGLM(3, budget=BUDGET, horizon=10).privacy().simulation


def test_a_ledger_without_enough_left_refuses_the_policy():
    ledger = Ledger(BUDGET)
    ledger.spend(Gaussian(20.0))
    with pytest.raises(BudgetExceeded):
        OnePassPrivateGLM(3, budget=BUDGET, horizon=100, ledger=ledger)
    assert len(ledger.rows()) == 1


def test_a_loaded_policy_finds_its_cost_in_the_ledger_and_does_not_pay_again(tmp_path):
    ledger = Ledger(BUDGET)
    OnePassPrivateGLM(3, budget=BUDGET, horizon=100, ledger=ledger).save(tmp_path / "p")
    policy = Policy.load(tmp_path / "p", ledger=ledger)
    assert policy.ledger is ledger
    assert len(ledger.rows()) == 1
    with pytest.raises(ValueError, match="ledger must be given for a state that was made with one"):
        Policy.load(tmp_path / "p", unattended=True)
    with pytest.raises(ValueError, match="ledger must hold the cost of"):
        Policy.load(tmp_path / "p", ledger=Ledger(BUDGET))


@pytest.mark.parametrize(
    ("budget", "error", "message"),
    [
        (Budget(1.0, 0.0), ValueError, "delta must be positive"),
        (Budget(1.0, 1e-6, adjacency="add_remove"), AdjacencyMismatch, "rounds are replaced or zeroed out"),
        (Budget(1.0, 1e-6, unit="client"), AdjacencyMismatch, "protects one round or person"),
        (1.0, TypeError, "budget must be a Budget"),
    ],
)
def test_budgets_that_the_policy_cannot_meet(budget, error, message):
    with pytest.raises(error, match=message):
        OnePassPrivateGLM(3, budget=budget, horizon=10)


def test_a_budget_of_zero_is_refused():
    with pytest.raises(ValueError, match="epsilon must be positive and finite, got epsilon=0"):
        Budget(0.0, 1e-6)


@tabled(
    ("parameters", "message"),
    [
        ({"dim": 0}, "dim must be at least 1, got dim=0"),
        ({"horizon": 0}, "horizon must be at least 1, got horizon=0"),
        ({"theta_bound": -1.0}, "theta_bound must be positive and finite, got theta_bound=-1.0"),
        ({"growth": 0.5}, "growth must be at least 1, got growth=0.5"),
        ({"gradient_share": 1.0}, r"gradient_share must lie in \(0, 1\), got gradient_share=1.0"),
        ({"clip": 0.0}, "clip must be positive"),
        ({"link": "poisson"}, "reward_range must be finite for a private policy"),
        ({"reward_range": (1, 0)}, "reward_range must be increasing"),
        ({"reward_range": 1}, r"reward_range must be two numbers, \(low, high\), got reward_range=1"),
        ({"baserate": 0.1}, "OnePassPrivateGLM takes no argument 'baserate': did you mean 'base_rate'?"),
        ({"zzz": 0.1}, "OnePassPrivateGLM takes no argument 'zzz': it takes dim, link, budget, horizon, "),
        ({"release": "never"}, "release must be 'scheduled' or 'every_round'"),
        ({"on_violation": "ignore"}, "on_violation must be 'raise' or 'clip'"),
    ],
)
def test_bad_parameters_spend_nothing(parameters, message):
    ledger = Ledger(BUDGET)
    with pytest.raises((ValueError, TypeError), match=message):
        OnePassPrivateGLM(**({"dim": 3, "budget": BUDGET, "horizon": 10, "ledger": ledger} | parameters))
    assert ledger.rows() == []

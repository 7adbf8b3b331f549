"""The level of rewards: what is not stated is learned, within the bounds of the records, and kept in states."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Budget
from dpbandits import Policy, Released
from dpbandits.policies import Doubling, OnePassPrivateGLM, StandingPrivateGLM
from dpbandits.private.parts.arm_fits import LevelPrior
from dpbandits.private.parts.levels import Levels, with_level
from dpkit.models.links import Link, get_link
from dpkit.moments.pairs import PairBounds
from dpkit.states import files

BUDGET = Budget(1.0, 1e-5)


def levels(link: str = "logistic", high: float = 1.0, learned: bool = True) -> Levels:
    return Levels(get_link(link).at(0.5 * high), 3.0, (0.0, high), None, learned)


@settings(deadline=None)
@given(
    link=st.sampled_from(["logistic", "probit", "linear"]),
    share=st.floats(0.01, 0.99),
    length=st.sampled_from([0.0, 1e-9, 0.3, 0.5, 1.0, 3.0]),
    e=st.floats(-20, 20),
    reward=st.floats(0, 1),
)
def test_records_of_every_level_are_within_the_bounds_of_the_first(link, share, length, e, reward):
    """What ``PairSums`` refuses would stop a run: it never does, whatever e is."""
    known = levels(link)
    x = np.array([0.6, 0.8]) * length
    w, g = known.at(known.link.inverse(share)).weigh(x, e, reward)
    PairBounds.of(known.base.W, known.base.B, known.least).check(x, w, g)


def test_records_at_a_level_are_those_at_a_base_rate_in_other_units():
    known, told = levels(), levels(learned=False)
    level = known.at(math.log(0.1 / 0.9))
    stated = Levels(get_link("logistic").at(0.1), 3.0, (0.0, 1.0), None, False).base
    assert pytest.approx((stated.W, stated.B)) == (level.record.W, level.record.B)
    assert level.record.centre == pytest.approx(0.1)
    assert known.least == pytest.approx(0.25 * known.base.W)
    assert level.record.s_min >= 0.5 * level.record.W
    assert level.units == pytest.approx((stated.W / told.base.W, stated.B / told.base.B))


def test_a_level_is_settled_where_rewards_are_surely_rare_and_it_is_known():
    known = levels()
    mean = known.link.mean
    assert known.moved(-0.4 * 100, noise=10.0, rounds=100) == (0.0, False)  # ±0.1
    found, settled = known.moved(-0.4 * 1000, noise=10.0, rounds=1000)
    assert float(mean(found)) == pytest.approx(0.1 + 0.5 * math.hypot(0.01, math.sqrt(0.09 / 1000)))
    assert settled
    # near the middle, and above it, where good play may be the cause
    assert known.moved(-0.15 * 1000, noise=10.0, rounds=1000) == (0.0, True)
    assert known.moved(0.4 * 1000, noise=10.0, rounds=1000) == (0.0, True)
    # whatever noise says, no nearer to the end than is known
    found, _ = known.moved(-5000.0, noise=30.0, rounds=1000)
    assert float(mean(found)) == pytest.approx(2.0 * math.hypot(0.03, math.sqrt(0.05 / 1000)))


def test_arms_of_a_batch_before_the_level_are_not_held_against_it():
    """Arms that have a mean in common begin anew at the level; those without one go on with what they have."""
    policy = OnePassPrivateGLM(3, budget=Budget(8.0, 1e-5), horizon=4000, rng=np.random.default_rng(0))
    rng, fresh = (
        np.random.default_rng(1),
        OnePassPrivateGLM(3, budget=Budget(8.0, 1e-5), horizon=4000, rng=np.random.default_rng(0)),
    )
    while not policy.public.levelled:
        policy.update(policy.select(np.eye(3)), float(rng.random() < 0.1))
        policy.settle()
    assert policy.level < -1.0
    assert not policy.public.H.any()
    assert not policy.theta.any()
    while not fresh.public.levelled:
        arms = rng.standard_normal((1, 3))
        fresh.update(fresh.select(arms / np.linalg.norm(arms)), float(rng.random() < 0.1))
        fresh.settle()
    assert fresh.level < -1.0
    assert fresh.public.H.trace() > 0.0


def reach(link: Link, low: float, high: float) -> float:
    return LevelPrior.of(link, low, high).wide


def test_the_reach_of_a_link_is_in_its_own_units():
    assert reach(get_link("linear"), 0.0, 6.0) == pytest.approx(6 * reach(get_link("linear"), 0.0, 1.0))
    assert 0.9 < reach(get_link("probit"), 0.0, 1.0) < 1.1
    assert reach(get_link("poisson"), 0.0, 20.0) > 0.5
    assert reach(get_link("logistic"), 2.0, 3.0) == 1.0  # no level of which is in that range


def shares_of(policy: Policy, shares: list[float], rounds: int, arms: np.ndarray | None = None) -> float:
    """What share of the possible regret it has in the second half."""
    rng, gaps = np.random.default_rng(750_100), max(shares) - np.array(shares)
    lost = 0.0
    for t in range(rounds):
        decision = policy.select(*(() if arms is None else (arms,)))
        lost += gaps[decision.index] * (t >= rounds // 2)
        policy.update(decision, float(rng.random() < shares[decision.index]))
    return lost / (rounds - rounds // 2) / float(gaps.mean())


SHARES = [0.05, 0.05, 0.15, 0.05]


def test_rare_rewards_of_arms_are_found_without_a_hint():
    """A level of 5 % has ‖θ‖ = 5.6 on four arms, and S = 3: stated as the middle, nothing is learned."""
    known = {"budget": BUDGET, "horizon": 6000}
    lost = {}
    for rate in (None, 0.5):
        rng = np.random.default_rng(750_000)
        one = StandingPrivateGLM(4, np.eye(4), base_rate=rate, rng=rng, **known)
        lost[rate] = shares_of(one, SHARES, 6000)
        if rate is None:
            assert abs(one.level - math.log(0.07 / 0.93)) < 1.0
    assert lost[None] < 0.25 < 0.6 < lost[0.5]
    rng = np.random.default_rng(750_000)
    one = OnePassPrivateGLM(4, rng=rng, **known)
    assert shares_of(one, SHARES, 6000, np.eye(4)) < 0.35
    assert one.public.levelled
    assert -4.0 < one.level < -1.0


KNOWN = {"budget": BUDGET, "horizon": 400, "first_batch": 16}
MADE = {
    "one pass": lambda **more: OnePassPrivateGLM(3, **KNOWN | more),
    "standing": lambda **more: StandingPrivateGLM(3, np.eye(3), **KNOWN | more),
}


@pytest.mark.parametrize("name", MADE)
def test_a_state_of_before_levels_were_learned_goes_on_without_one(name, tmp_path):
    """It holds the base rate that was in force, and no level. From there on it makes the same choices."""
    policy = MADE[name](base_rate=0.5, rng=np.random.default_rng(3))
    for _ in range(100):
        policy.update(policy.select(np.eye(3)), 1.0)
    policy.save(tmp_path / "new")
    tree, _ = files.read(tmp_path / "new")
    for entry in ("level", "levelled"):
        tree["learned"]["public"].pop(entry, None)
    files.write(tmp_path / "old", tree)
    older = Policy.load(tmp_path / "old", unattended=True)
    assert older.level == 0.0
    for _ in range(100):
        ours, theirs = policy.select(np.eye(3)), older.select(np.eye(3))
        assert ours.index == theirs.index
        policy.update(ours, 0.0)
        older.update(theirs, 0.0)
    # one that learns needs its level
    policy = MADE[name](rng=np.random.default_rng(3))
    policy.save(tmp_path / "learning")
    tree, _ = files.read(tmp_path / "learning")
    del tree["learned"]["public"]["level"]
    files.write(tmp_path / "broken", tree)
    with pytest.raises(ValueError, match="level"):
        Policy.load(tmp_path / "broken", unattended=True)
    assert with_level(3, level=0.0) == 3


@pytest.mark.parametrize("name", MADE)
def test_a_state_keeps_that_the_level_is_learned(name, tmp_path):
    policy = MADE[name](rng=np.random.default_rng(3))
    for _ in range(150):
        policy.update(policy.select(np.eye(3)), 0.0)
    policy.save(tmp_path / "state")
    again = Policy.load(tmp_path / "state", unattended=True)
    assert again.stated_base_rate is None
    assert again.level == policy.level
    for _ in range(100):
        ours, theirs = policy.select(np.eye(3)), again.select(np.eye(3))
        assert ours.index == theirs.index
        policy.update(ours, 0.0)
        again.update(theirs, 0.0)


def test_epochs_learn_their_levels_too(tmp_path):
    policy = Doubling(3, budget=BUDGET, first_epoch=50, rng=np.random.default_rng(0))
    for _ in range(120):
        policy.update(policy.select(np.eye(3)), 0.0)
    assert policy.policy.stated_base_rate is None
    policy.save(tmp_path / "state")
    assert Policy.load(tmp_path / "state", unattended=True).policy.stated_base_rate is None


@pytest.mark.parametrize("name", MADE)
def test_gaps_of_rewards_are_those_at_the_level(name):
    """Where arms are drawn by their gaps the level is part of what is released, and choices elsewhere are the same."""
    policy = MADE[name](budget=Budget(8.0, 1e-5), exploration="inverse_gap", rng=np.random.default_rng(3))
    for t in range(300):
        policy.update(policy.select(np.eye(3)), float(t % 20 == 0))
    policy.settle()
    assert policy.level < -1.0
    elsewhere = Released.from_json(policy.released().to_json())
    assert set(elsewhere.public) == {"theta", "root", "level"}
    means = 1.0 / (1.0 + np.exp(-policy.level - policy.theta))
    rate = 10.0 * math.sqrt(policy.last_release())
    expected = 1.0 / (3.0 + rate * (means.max() - means))
    expected[means.argmax()] += 1.0 - expected.sum()
    np.testing.assert_allclose(elsewhere.probabilities(np.eye(3)), expected, rtol=1e-9)


def test_a_level_is_not_learned_where_it_could_not_be_settled():
    for more in ({"discount": 0.9}, {"release": "every_round"}, {"base_rate": 0.5}):
        one = OnePassPrivateGLM(3, budget=BUDGET, horizon=400, **more)
        assert one.public.levelled
        assert len(one.sums.kept()["units"]) == 2
    counts = OnePassPrivateGLM(3, "poisson", budget=BUDGET, horizon=400, reward_range=(0.0, 20.0))
    assert counts.public.levelled
    people = Budget(1.0, 1e-5, unit="person")
    assert OnePassPrivateGLM(3, budget=people, horizon=400, rounds_per_person=2).public.levelled
    assert not OnePassPrivateGLM(3, budget=people, horizon=400).public.levelled

"""The level of rewards: what is not stated is learned, within the bounds of the records, and kept in states."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Budget
from dpbandits import Policy, Released
from dpbandits.durability.state import with_newer
from dpbandits.policies import (
    LDPGLM,
    Doubling,
    JointDPGLM,
    OnePassPrivateGLM,
    PersonPrivateGLM,
    ShuffleGLM,
    ShuffleOnePassGLM,
    ShufflePersonGLM,
    StandingPrivateGLM,
)
from dpbandits.private.parts.arm_fits import LevelPrior
from dpbandits.private.parts.records import Levels, deviations, level_of
from dpkit.geometry import pair_sensitivity
from dpkit.models.links import Link, get_link
from dpkit.moments.pairs import NoisyPair, PairBounds
from dpkit.moments.people import PersonSums
from dpkit.moments.shuffled_pairs import PairBatches
from dpkit.shuffle import Randomizer
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
    assert known.moved(0.0, -0.4 * 100, noise=10.0, rounds=100) == (0.0, False)  # ±0.1
    found, settled = known.moved(0.0, -0.4 * 1000, noise=10.0, rounds=1000)
    assert float(mean(found)) == pytest.approx(0.1 + 0.5 * math.hypot(0.01, math.sqrt(0.09 / 1000)))
    assert settled
    # near the middle, and above it, where good play may be the cause
    assert known.moved(0.0, -0.15 * 1000, noise=10.0, rounds=1000) == (0.0, True)
    assert known.moved(0.0, 0.4 * 1000, noise=10.0, rounds=1000) == (0.0, True)
    # whatever noise says, no nearer to the end than is known
    found, _ = known.moved(0.0, -5000.0, noise=30.0, rounds=1000)
    assert float(mean(found)) == pytest.approx(2.0 * math.hypot(0.03, math.sqrt(0.05 / 1000)))


def test_where_numbers_cost_records_it_is_settled_as_soon_as_it_is_clear():
    known = replace(levels(), until=1000)
    mean = known.link.mean
    one = {"noise": 6.0, "rounds": 50}  # ±0.14
    assert known.moved(0.0, 0.0, noise=12.0, rounds=50) == (0.0, False)  # ±0.25
    assert known.moved(0.0, 0.0, **one) == (0.0, True)
    assert known.moved(0.0, -0.2 * 50, **one) == (0.0, False)
    assert known.moved(0.0, -0.38 * 50, **one) == (0.0, False)
    first, settled = known.moved(0.0, -0.45 * 50, **one)
    assert not settled
    assert 0.2 < float(mean(first)) < 0.3
    # later, where it is settled, at less than half of it
    assert known.moved(first, -0.48 * 50, **one) == (first, False)
    assert known.moved(first, -0.35 * 1000, noise=20.0, rounds=1000) == (first, True)
    lower, settled = known.moved(first, -0.47 * 1000, noise=20.0, rounds=1000)
    assert settled
    assert float(mean(lower)) < 0.06
    assert known.moved(0.0, 0.0, noise=0.0, rounds=0) == (0.0, False)


def test_a_first_move_is_made_where_it_is_clear_and_a_second_one_where_it_is_far():
    known = replace(levels(), early=0.1)
    mean = known.link.mean
    assert levels().moved(0.0, -0.4 * 500, noise=30.0, rounds=500) == (0.0, False)
    first, settled = known.moved(0.0, -0.4 * 500, noise=30.0, rounds=500)  # ±0.061
    assert not settled
    assert 0.12 < float(mean(first)) < 0.15
    # not by two se below 30 %
    assert known.moved(0.0, -0.31 * 500, noise=30.0, rounds=500) == (0.0, False)
    # about where it was, and at less than three quarters of it
    assert known.moved(first, -0.4 * 2000, noise=30.0, rounds=2000) == (first, True)
    lower, settled = known.moved(first, -0.48 * 2000, noise=30.0, rounds=2000)
    assert settled
    assert float(mean(lower)) < 0.05
    # far below the middle it may be asked to be known better: here it is to ±0.031
    one = {"noise": 60.0, "rounds": 2000}
    assert [known.moved(0.0, total, **one)[1] for total in (-800.0, -200.0)] == [True, True]
    assert [replace(known, sure=0.02).moved(0.0, total, **one)[1] for total in (-800.0, -200.0)] == [False, True]
    # what was left for good reason is not gone back to
    assert known.moved(first, 0.0, noise=30.0, rounds=2000) == (first, True)


def test_arms_of_a_batch_before_the_level_are_not_held_against_it():
    """Arms that have a mean in common begin anew at the level; those without one go on with what they have."""
    policy = OnePassPrivateGLM(3, budget=Budget(8.0, 1e-5), horizon=4000, rng=np.random.default_rng(0))
    rng, fresh = (
        np.random.default_rng(1),
        OnePassPrivateGLM(3, budget=Budget(8.0, 1e-5), horizon=4000, rng=np.random.default_rng(0)),
    )
    while not policy.level:
        policy.update(policy.select(np.eye(3)), float(rng.random() < 0.1))
        policy.settle()
    assert policy.level < -1.0
    assert not policy.public.H.any()
    assert not policy.theta.any()
    while not fresh.level:
        arms = rng.standard_normal((1, 3))
        fresh.update(fresh.select(arms / np.linalg.norm(arms)), float(rng.random() < 0.1))
        fresh.settle()
    assert fresh.level < -1.0
    assert fresh.public.H.trace() > 0.0


def test_arms_are_played_at_random_while_rewards_seem_rare_and_their_level_is_not_known():
    """With θ and root of the start; what those rounds tell is kept when the level moves. A prior is played by."""

    def after(total: float, noise: float, length: float = 30.0, moments=(25.0, 25.0, 25.0), **more):
        H, b = np.diag(moments), np.array([length, 0.0, 0.0])
        policy = OnePassPrivateGLM(3, budget=BUDGET, horizon=4000, **more)
        sums = NoisyPair(H, b, (2.0, 2.0), (2.0, 2.0), 1.0, level=(total, noise))
        found, start = policy.refit(policy.public, sums, [300]), policy.refit.prior
        return found, not found.theta.any() and np.array_equal(found.root, start.root)

    assert levels().low(-80.0, 60.0, 300) is True  # −0.27 ± 0.2
    assert levels().low(-55.0, 60.0, 300) is False
    assert levels().low(-80.0, 9.0, 300) is False  # −0.27 ± 0.04: next to the border
    assert levels().low(0.0, 60.0, 0) is False
    rare, at_random = after(-120.0, noise=60.0)  # −0.4 ± 0.2
    assert at_random
    assert (rare.level, rare.levelled) == (0.0, False)
    assert rare.b[0] == 30.0
    for total, more in ((-30.0, {}), (-120.0, {"prior": (np.zeros(3), 1.0)})):
        found, at_random = after(total, noise=60.0, **more)
        assert not at_random
        assert found.theta[0] > 0.0
    moved, at_random = after(-120.0, noise=15.0)
    assert not at_random
    assert moved.level < -1.0
    assert moved.theta[0] > 0.0
    # longer than any θ makes it: arms have a mean in common
    for moments in ((25.0, 25.0, 25.0), (60.0, 7.5, 7.5)):
        anew, _ = after(-120.0, noise=15.0, length=45.0, moments=moments)
        assert anew.level < -1.0
        assert not anew.H.any()


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


@pytest.mark.thorough
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


PERSON = Budget(1.0, 1e-5, unit="person")
KNOWN = {"budget": BUDGET, "horizon": 400, "first_batch": 16}
MADE = {
    "one pass": lambda **more: OnePassPrivateGLM(3, **KNOWN | more),
    "standing": lambda **more: StandingPrivateGLM(3, np.eye(3), **KNOWN | more),
    "shuffled": lambda **more: ShuffleOnePassGLM(3, **KNOWN | more),
    "person": lambda **more: PersonPrivateGLM(3, **KNOWN | {"budget": PERSON} | more),
    "shuffled person": lambda **more: ShufflePersonGLM(3, **KNOWN | {"budget": PERSON} | more),
    "local": lambda **more: LDPGLM(3, **KNOWN | more),
    "joint": lambda **more: JointDPGLM(3, **KNOWN | {"budget": Budget(40.0, 1e-5)} | more),
}


@pytest.mark.parametrize("name", MADE)
def test_a_state_of_before_levels_were_learned_goes_on_without_one(name, tmp_path):
    """It holds the base rate that was in force, and no level. From there on it makes the same choices."""
    policy = MADE[name](base_rate=0.5, rng=np.random.default_rng(3))
    for t in range(100):
        policy.update(policy.select(np.eye(3), person=t % 60), 1.0)
    policy.save(tmp_path / "new")
    tree, _ = files.read(tmp_path / "new")
    for entry in ("level", "levelled", "deviations", "before"):
        tree["learned"]["public"].pop(entry, None)
    if name == "local":
        for entry in ("told", "numbers"):
            del tree["learned"]["sums"][entry]
    files.write(tmp_path / "old", tree)
    older = Policy.load(tmp_path / "old", unattended=True)
    assert older.level == 0.0
    for t in range(100):
        ours, theirs = (one.select(np.eye(3), person=t % 70) for one in (policy, older))
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
    assert with_newer(policy, 3) == 3


@pytest.mark.parametrize("name", MADE)
def test_a_state_keeps_that_the_level_is_learned(name, tmp_path):
    policy = MADE[name](rng=np.random.default_rng(3))
    for t in range(150):
        policy.update(policy.select(np.eye(3), person=t % 60), 0.0)
    policy.save(tmp_path / "state")
    again = Policy.load(tmp_path / "state", unattended=True)
    assert again.stated_base_rate is None
    assert again.level == policy.level
    for t in range(100):
        ours, theirs = (one.select(np.eye(3), person=t % 70) for one in (policy, again))
        assert ours.index == theirs.index
        policy.update(ours, 0.0)
        again.update(theirs, 0.0)


@pytest.mark.parametrize("name", ["one pass", "shuffled", "local"])
def test_a_clip_that_is_no_number_is_refused_by_name(name):
    with pytest.raises(TypeError, match="clip must be a number"):
        MADE[name](clip=[1.0, 2.0])


@pytest.mark.parametrize("name", ["one pass", "shuffled", "local"])
def test_records_after_a_restart_are_those_of_before_it(name, tmp_path):
    """Where no clip was stated each level has its own: a state must not take that of the first one for stated."""
    policy = MADE[name](budget=Budget(8.0, 1e-5), rng=np.random.default_rng(3))
    for _ in range(300):
        policy.update(policy.select(np.eye(3)), 0.0)
    assert policy.level < -1.0
    policy.save(tmp_path / "state")
    again = Policy.load(tmp_path / "state", unattended=True)
    levels = [one.record.levels.at(one.level) for one in (policy, again)]
    assert levels[0].units[1] > 1.5
    x = np.array([0.6, 0.0, 0.8])
    assert levels[0].weigh(x, 0.3, 0.0) == levels[1].weigh(x, 0.3, 0.0)
    assert levels[0].units == levels[1].units


def test_a_level_that_is_released_once_is_that_of_the_rewards_that_came():
    """Of 100 rounds: with rewards at 10 %, twice as many at the middle, and half of them missing."""
    link = get_link("logistic").at(0.5)
    found = [link.mean(level_of(link, (0.0, 1.0), total, 3.0, 100)) for total in (-40.0, -50.0)]
    assert found[0] == pytest.approx(0.1 + 0.5 * math.hypot(0.03, 0.03))
    assert found[1] == pytest.approx(2.0 * math.hypot(0.03, math.sqrt(5e-4)))
    assert level_of(link, (0.0, 1.0), -19.0, 3.0, 100) == 0.0
    assert level_of(link, (0.0, 1.0), 45.0, 3.0, 100) == 0.0
    assert level_of(get_link("logistic").at(5e-12), (0.0, 1e-11), -40.0, 3.0, 100) < -1.0
    np.testing.assert_allclose(
        deviations(np.array([-3.0, 1.0, 2.5, 3.0, 9.0]), (1.0, 3.0)), [-0.5, -0.5, 0.25, 0.5, 0.5]
    )


def test_rare_rewards_do_not_move_a_level_that_is_known_already():
    """Estimates that were made at the middle are made again at the level, and no other call is lost by it."""
    policy = JointDPGLM(3, budget=Budget(8.0, 1e-5), horizon=4000, rng=np.random.default_rng(0))
    rng, after = np.random.default_rng(1), policy.switches.numbers.after
    for t in range(after + 1):
        assert (policy.public.levelled, policy.level) == (False, 0.0)
        decision = policy.select(np.eye(3))
        if t < after:
            policy.update(decision, float(rng.random() < 0.1))
    assert policy.public.levelled
    assert policy.level < -1.0
    assert policy.public.calls_o <= policy.exploration_calls
    assert policy.theta.any() or policy.public.theta_o.any()
    # counts, the theory's parameters, too much noise, or a base rate that was stated
    for more in ({"parameters": "theory"}, {"budget": Budget(0.1, 1e-6)}, {"base_rate": 0.5}):
        one = JointDPGLM(3, **{"budget": BUDGET, "horizon": 4000} | more)
        assert one.public.levelled
        assert one.switches.numbers is None


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_first_batch_of_users_tells_the_level(rate, monkeypatch):
    """Of 320 users; one in five has no reward, and adds 0."""
    sent, tally = [], Randomizer.tally

    def seen(self, X):
        sent.append((self, np.array(X)))
        return tally(self, X)

    monkeypatch.setattr(Randomizer, "tally", seen)
    policy = ShuffleGLM(2, budget=Budget(8.0, 1e-5), horizon=7000, batches=[320], rng=np.random.default_rng(0))
    rng, rewards = np.random.default_rng(1), []
    for t in range(320):
        decision = policy.select(np.eye(2))
        if t % 5:
            rewards.append(float(rng.random() < rate))
            policy.update(decision, rewards[-1])
    policy.select(np.eye(2))
    assert policy.rows.plans[0].numbers is not None
    assert sent[1][1].shape == (320, 1)
    assert sorted(sent[1][1][:, 0]) == sorted([*(np.array(rewards) - 0.5), *[0.0] * 64])
    assert (policy.level < -0.5) == (rate == 0.1)
    objective, slope = policy.rows.objective(policy.level)
    assert slope <= 0.25
    far = policy.link.mean(policy.level) - 1.0
    np.testing.assert_allclose(objective.gradients(np.zeros(2), [[0.5, 0.0]], [1.0]), [[0.5 * far, 0.0]], atol=1e-12)
    for more in ({"analysis": "paper"}, {"budget": Budget(0.1, 1e-5)}, {"base_rate": 0.5}):
        one = ShuffleGLM(2, **{"budget": Budget(8.0, 1e-5), "horizon": 7000, "batches": [320]} | more)
        assert one.rows.plans[0].numbers is None


def test_epochs_learn_their_levels_too(tmp_path):
    policy = Doubling(3, budget=BUDGET, first_epoch=50, rng=np.random.default_rng(0))
    for _ in range(120):
        policy.update(policy.select(np.eye(3)), 0.0)
    assert policy.policy.stated_base_rate is None
    policy.save(tmp_path / "state")
    assert Policy.load(tmp_path / "state", unattended=True).policy.stated_base_rate is None


@pytest.mark.parametrize("name", ["one pass", "standing", "shuffled", "local"])
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


def spread(rng: np.random.Generator) -> np.ndarray:
    """Fresh arms without a mean in common."""
    arms = rng.standard_normal((8, 3))
    return arms / np.linalg.norm(arms, axis=1, keepdims=True)


RARE = [
    (kind, fixed)
    for kind in (ShuffleOnePassGLM, PersonPrivateGLM, ShufflePersonGLM, LDPGLM, JointDPGLM)
    for fixed in (True, False)
]


@pytest.mark.parametrize(("kind", "fixed"), [*RARE[:-1], pytest.param(JointDPGLM, False, marks=pytest.mark.slow)])
def test_rare_rewards_are_learned_without_a_hint(kind, fixed):
    """Rates about 7 %, by the release after which the level stands; told the middle, the level would stay there.

    One run in a dozen of JointDPGLM stays on worse arms: of three the middle one counts.
    """
    person = kind in (PersonPrivateGLM, ShufflePersonGLM)
    budget = Budget(8.0 if kind in (LDPGLM, JointDPGLM) else 4.0, 1e-5, unit="person" if person else "round")
    theta, found = np.array([2.0, -1.0, 0.5]), []
    for seed in (4, 5, 6) if kind is JointDPGLM else (4,):
        policy, rng, good = (
            kind(3, budget=budget, horizon=4000, rng=np.random.default_rng(seed)),
            np.random.default_rng(5),
            0.0,
        )
        for t in range(1500):
            arms = np.eye(3) if fixed else spread(rng)
            e = arms @ theta
            decision = policy.select(arms, person=t if person else None)
            policy.update(decision, float(rng.random() < 1.0 / (1.0 + np.exp(3.2 - e[decision.index]))))
            good += (t >= 1200) * (e[decision.index] - e.mean()) / (e.max() - e.mean()) / 300
        assert policy.public.levelled
        assert -4.0 < policy.level < -1.0
        found.append(good)
    assert policy.theta @ theta > 0.0
    assert np.median(found) > 0.4


def test_releases_of_persons_at_another_level_do_not_count():
    """Fixed arms, whose rewards have a mean in common, begin anew; arms without one are carried along."""
    found = {}
    for fixed in (True, False):
        policy = PersonPrivateGLM(
            3, budget=Budget(8.0, 1e-5, unit="person"), horizon=4000, rng=np.random.default_rng(7)
        )
        rng, t = np.random.default_rng(5), 0
        while not policy.level:
            policy.update(policy.select(np.eye(3) if fixed else spread(rng)[:1], person=t), float(rng.random() < 0.1))
            policy.settle()
            t += 1
        found[fixed] = policy
    assert found[True].public.before == found[True].releases
    assert not found[True].theta.any()
    assert found[False].public.before == 0
    assert found[False].theta.any()
    assert found[False].public.centres[: found[False].releases].min() == 1.0


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.01, 0.99), adjacency=st.sampled_from(["replace", "zero_out"]))
def test_a_shuffled_record_and_its_number_are_within_the_stated_distance(seed, share, adjacency):
    """Any two of: a record with a number, one without, and the null record."""
    rng, budget = np.random.default_rng(seed), Budget(1.0, 1e-5, adjacency=adjacency)
    sums = PairBatches([50], 2, 0.25, 0.5, share, budget=budget, level=0.1)
    (batch,) = sums.batches.protocols
    apart = pair_sensitivity(*sums.scales[:1], 0.25, sums.scales[1], 0.5, adjacency)
    angle = rng.uniform(0.0, np.pi)
    records = [np.zeros(6)]
    for x in ([1.0, 0.0], [np.cos(angle), np.sin(angle)]):
        pair, f = (rng.choice([0.0, 0.25]), rng.choice([-0.5, 0.5])), rng.choice([-0.5, 0.5])
        for less, beside in ((1.0, 0.0), (math.sqrt(0.925), f)):
            records.append(sums.records(np.array([[*x, less * pair[0], less * pair[1], beside]]))[0])
    distances = [np.linalg.norm(p - q) for p in records for q in records]
    if adjacency == "zero_out":
        distances = [np.linalg.norm(p) for p in records]
    bound = apart * math.sqrt(1.025)
    assert max(distances) <= bound * (1 + 1e-12)
    assert max(np.linalg.norm(p) for p in records) <= batch.bound * (1 + 1e-12)


@pytest.mark.thorough
def test_shuffled_numbers_are_summed_with_the_noise_that_is_stated():
    """400 sums of the same: their deviation is off by 6.5 of its standard errors with a probability below 1e-10."""
    sums = PairBatches([40], 2, 0.25, 0.5, 0.65, budget=BUDGET, level=0.1, rng=np.random.default_rng(3))
    empty, found = sums.kept(), []
    for _ in range(400):
        sums.resume(empty)
        for t in range(30):
            sums.add(np.array([0.6, 0.8]), 0.25, 0.5, 0, 0.5 if t < 20 else None)
        batch = sums.release()
        found.append(batch.level[0] - 10.0)
    noise = batch.level[1]
    assert abs(np.std(found) / noise - 1.0) < 6.5 / math.sqrt(800)
    assert abs(np.mean(found)) < 6.5 * noise / math.sqrt(400)
    for wrong in (0.6, math.nan):
        with pytest.raises(ValueError, match="deviation"):
            sums.add(np.array([0.6, 0.8]), 0.25, 0.5, 0, wrong)
    with pytest.raises(ValueError, match="level"):
        PairBatches([40], 2, 0.25, 0.5, 0.65, budget=BUDGET, level=1.0)


def of_one_person(history, seed: int, adjacency: str, level: float) -> np.ndarray:
    """What one person adds to a release that asks for numbers, for α = 1, without noise."""
    budget = Budget(1.0, 1e-5, adjacency=adjacency, unit="person")
    sums = PersonSums(2, budget=budget, releases=1, horizon=100, level=level, rng=np.random.default_rng(seed))
    for t, (x, r) in enumerate(history):
        sums.rounds.decided(t, 0)
        if r is not None:
            sums.rounds.rewarded(t, np.array(x), r)
    people, B = sums.rounds.people(len(history)), np.array([0.5])
    weights = 1.0 / sums.shifts(people, 1.5, 0.2, B)
    (columns,) = sums._with_numbers(
        sums._contributions(people, lambda X, r: (0.25 + 0.0 * r, r - 0.5), weights, 1.5, 0.2, B),
        people,
        weights * math.sqrt(level) * sums.shifts(people, 1.5, 0.2, B),
        math.sqrt(1.0 - level),
        lambda r: 2.0 * r - 1.0,  # twice too long: it is cut
    )
    return columns[:, 0]


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.sampled_from([1, 2, 5]),
    level=st.sampled_from([0.1, 0.5]),
    adjacency=st.sampled_from(["replace", "zero_out"]),
)
def test_a_person_with_a_number_beside_moves_a_release_by_what_was_paid(seed, n, level, adjacency):
    rng = np.random.default_rng(seed)

    def history():
        x = rng.standard_normal(2)
        x /= np.linalg.norm(x)
        return [(rng.choice([-1.0, 1.0]) * x, None if rng.random() < 0.2 else float(rng.integers(2))) for _ in range(n)]

    absent = [(np.zeros(2), None)] * n
    pairs = [(history(), absent if adjacency == "zero_out" else history()) for _ in range(3)]
    if adjacency == "replace":
        pairs.append(([([1.0, 0.0], 1.0)] * n, [([1.0, 0.0], 0.0)] * n))
    found = [np.linalg.norm(np.subtract(*(of_one_person(one, 0, adjacency, level) for one in pair))) for pair in pairs]
    assert max(found) <= 1.0 + 1e-9


def test_a_number_beside_that_is_not_paid_for_is_caught():
    """Opposite rewards: without κ the release would move by more than 1."""
    east, west = ([([1.0, 0.0], r)] for r in (1.0, 0.0))
    apart = of_one_person(east, 0, "replace", 0.5) - of_one_person(west, 0, "replace", 0.5)
    assert math.hypot(np.linalg.norm(apart[:-1]) / math.sqrt(0.5), apart[-1]) > 1.05


def test_a_release_of_persons_with_numbers_has_the_noise_that_is_stated():
    """300 releases of the same two persons, one of whom no reward came: a deviation as above."""
    sums = PersonSums(2, budget=PERSON, releases=300, horizon=100, level=0.1, rng=np.random.default_rng(3))
    for t in range(3):
        sums.rounds.decided(t, t // 2)
    sums.rounds.rewarded(0, np.array([1.0, 0.0]), 1.0)
    sums.rounds.rewarded(1, np.array([1.0, 0.0]), 0.0)
    people, B, weights = sums.rounds.people(3), np.full(2, 0.5), np.array([0.3, 0.3])
    known = people, lambda X, r: (0.25 + 0.0 * r, r - 0.5), weights, 1.5, 0.2, B
    found = [sums.release_beside(*known, lambda r: r - 0.25) for _ in range(300)]
    level = np.array([total for *_, total in found])
    Δ = float(sums.shifts(people, 1.5, 0.2, B)[0])
    noise = sums.noise / math.sqrt(0.1)
    # the first person's numbers are ½ (cut) and −¼
    assert abs(level.mean() - 0.3 * Δ * 0.125) < 6.5 * noise / math.sqrt(300)
    assert abs(level.std() / noise - 1.0) < 6.5 / math.sqrt(600)
    G = np.array([b for _, b, _ in found])
    assert abs(G.std() / (sums.noise / math.sqrt(0.9)) - 1.0) < 6.5 / math.sqrt(1200)
    bare = PersonSums(2, budget=PERSON, releases=3, horizon=100, rng=np.random.default_rng(3))
    with pytest.raises(ValueError, match="level"):
        bare.release_beside(*known, lambda r: r)


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

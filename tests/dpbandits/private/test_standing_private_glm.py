"""StandingPrivateGLM: what it knows exactly, what it is offered, what it learns, and what it refuses."""

from __future__ import annotations

import functools
import gc
import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from bits import bits
from tabled import tabled

from accounting import Budget, Gaussian, calibrate
from dpbandits import Policy, Released, price_of_privacy, simulate
from dpbandits.lab.environments import GLM
from dpbandits.lab.evaluate import LoggedRound
from dpbandits.policies import Restarting, StandingPrivateGLM
from dpbandits.policy.open_decisions import OpenDecisions
from dpbandits.private.parts import standing
from dpbandits.private.parts.arm_fits import arrivals
from dpkit.models.links import Link

BUDGET = Budget(4.0, 1e-4)
CIRCLE = np.column_stack([np.cos(np.arange(6)), np.sin(np.arange(6))])


def policy(arms=CIRCLE, seed: int = 0, **more) -> StandingPrivateGLM:
    rng = np.random.default_rng(seed)
    known = {"budget": BUDGET, "horizon": 200, "first_batch": 8, "rng": rng} | more
    return StandingPrivateGLM(np.shape(arms)[1], arms, **known)


def fingerprint(one: Policy) -> object:
    return bits((one.kept(), one.decisions, one.open_decisions, one.rng.bit_generator.state))


# -------------------------------------------------------------------------------------------------- plays


@pytest.mark.parametrize("come", ["always", "never", "some", "late"])
def test_plays_are_those_of_all_decisions_whether_or_not_rewards_come(come):
    """A count of the rewards that came would show, without noise, whose came."""
    one = policy()
    chosen, waiting = [], []
    for t in range(120):
        decision = one.select()
        chosen.append(decision.index)
        if come == "always" or (come == "some" and t % 3):
            one.update(decision, float(t % 2))
        elif come == "late":
            waiting.append(decision)
            if t > 20:
                one.update(waiting.pop(0), 1.0)
        elif t % 2:
            one.update(decision, None)
    ends = [end for end in one.schedule.ends if end < 120]
    assert one.releases == len(ends)
    for row, (start, end) in zip(one.public.plays, itertools.pairwise([0, *ends]), strict=False):
        assert row.tolist() == np.bincount(chosen[start:end], minlength=6).tolist()
    assert not one.public.plays[len(ends) :].any()


def test_plays_survive_a_crash_by_the_journal(tmp_path):
    one = policy(checkpoint=tmp_path / "state")
    for t in range(20):
        decision = one.select(CIRCLE[[4, 1]])
        if t % 2:
            one.update(decision, 1.0)
    plays, waiting, records = one.sums.plays.copy(), one.sums.waiting.copy(), one.sums.records.copy()
    assert plays.sum() + 1 == 20 - one.schedule.start(one.releases) > 1
    known = one.public.plays.tolist()
    del one  # one object at a time holds a checkpoint
    gc.collect()
    again = Policy.load(tmp_path / "state", unattended=True)
    assert again.sums.plays.tolist() == plays.tolist()
    assert again.sums.waiting.tolist() == waiting.tolist()
    assert again.sums.records.tolist() == records.tolist()
    assert again.public.plays.tolist() == known


def test_an_interrupted_choice_counts_once():
    one = policy()
    pending = one.checked_arms(CIRCLE)

    class Stop(BaseException):
        pass

    class Books(OpenDecisions):
        def __setitem__(self, key, value):
            raise Stop

    one.waiting = Books()
    with pytest.raises(Stop):
        one.select(pending)
    one.waiting = OpenDecisions()
    decision = one.select()
    assert one.sums.release()[2].tolist() == np.bincount([decision.index], minlength=6).tolist()


# ------------------------------------------------------------------------------------------------ what is offered


def test_arms_may_be_left_out_and_offered_in_part_and_in_any_order():
    one = policy()
    for rows in ([0, 1, 2, 3, 4, 5], [5, 0], [3], [2, 2]):
        decision = one.select(CIRCLE[rows].tolist())
        assert decision.index < len(rows)
        assert np.array_equal(decision.arm, CIRCLE[rows][decision.index])
        assert one.waiting[decision.id].note == (rows[decision.index],)
        assert len(decision.scores) == len(rows)
    assert len(one.select().scores) == 6


@tabled(
    ("arms", "message"),
    [
        (np.eye(3), r"arms must have shape \(K, 2\) with K >= 1, got shape \(3, 3\)"),
        (np.zeros((0, 2)), r"arms must have shape \(K, 2\)"),
        ([[np.nan, 0.0]], "arms must be finite"),
        (CIRCLE + [[2e-6, 0.0]] * 6, "arms must have norm at most 1"),
        (-CIRCLE[:2], r"arms must be among the 6 that the policy was made with, got row 0, which is none of them"),
        (
            [CIRCLE[3], [0.5, 0.5]],
            "got row 1, which is none of them: StandingPrivateGLM is for fixed arms, OnePassPrivateGLM for",
        ),
    ],
)
def test_other_arms_are_refused_and_nothing_changes(arms, message):
    one = policy()
    one.update(one.select(), 1.0)
    before = fingerprint(one)
    with pytest.raises(ValueError, match=message):
        one.select(arms)
    with pytest.raises(ValueError, match=message):
        one.register(arms, 0)
    assert fingerprint(one) == before


@pytest.mark.thorough
def test_thousands_of_arms_may_be_handed_over_again():
    """One array of all pairs of rows would hold 90 MB here, and gigabytes for 20 features."""
    angles = np.linspace(0.0, 6.0, 2500)
    many = np.column_stack([np.cos(angles), np.sin(angles)]) * 0.9
    one = policy(many)
    tracemalloc.start()
    decision = one.select(many[::-1].copy())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert one.waiting[decision.id].note == (2499 - decision.index,)
    assert peak < 2**23
    assert np.array_equal(one.checked_arms(many + 1e-12), many)


def test_the_first_of_two_arms_that_are_the_same_is_counted():
    one = policy(CIRCLE[[0, 1, 1]])
    assert {one.select(CIRCLE[[1]]).index, one.waiting[0].note} == {0, (1,)}


def test_logs_are_refused_and_nothing_changes():
    """Which arms others chose may be a secret; here it would be counted without noise."""
    one = policy()
    before = fingerprint(one)
    for rows in ([(CIRCLE[0], 1.0)], [LoggedRound(CIRCLE, 1, 1.0)]):
        with pytest.raises(ValueError, match="rows must be learned by a policy that protects which arm was chosen"):
            one.learn_log(rows)
    assert fingerprint(one) == before


def test_what_is_released_chooses_among_arms_that_are_offered():
    one = policy()
    for _ in range(20):
        one.update(one.select(), 1.0)
    elsewhere = Released.from_json(one.released().to_json())
    assert set(elsewhere.public) == {"theta", "root"}
    index, chance = elsewhere.choose(CIRCLE[[1, 4]], np.random.default_rng(0))
    made = one.register(CIRCLE[[1, 4]], index, probability=chance)
    assert one.waiting[made.id].note == ((1, 4)[index],)
    with pytest.raises(ValueError, match="which is none of them"):
        elsewhere.choose(np.eye(2))


@tabled(
    ("more", "message"),
    [
        ({"arms": [[2.0, 0.0]]}, "arms must have norm at most 1, got norm 2 in row 0"),
        ({"arms": np.zeros((0, 2))}, r"arms must have shape \(K, 2\) with K >= 1"),
        ({"growth": 1.0, "first_batch": 1}, "growth must be such that there are at most 128 releases, got growth=1.0"),
        ({"exploration": -1.0}, "exploration"),
        ({"delay": 200}, "delay must be below the horizon of 200 rounds, got delay=200"),
        ({"reward_range": (0.0, np.inf), "link": "poisson"}, "reward_range must be finite"),
        ({"budget": replace(BUDGET, unit="person"), "rounds_per_person": 2}, "rounds_per_person must be 1"),
    ],
)
def test_wrong_parameters_are_refused(more, message):
    with pytest.raises(ValueError, match=message):
        policy(**more)


@tabled("name", ["plays", "arrived", "together"])
def test_states_with_a_wrong_public_half_are_refused(tmp_path, name):
    one = policy()
    wrong = {"plays": one.public.plays - 1.0, "arrived": 0.0, "together": 100}
    one.public = replace(one.public, **{name: wrong[name]})
    one.save(tmp_path / "state")
    with pytest.raises(ValueError, match="public must have plays of at least 0"):
        Policy.load(tmp_path / "state", unattended=True)


def test_states_with_a_wrong_note_are_refused(tmp_path):
    one = policy()
    one.select()
    pending = one.waiting[0]
    pending.note = (6,)
    one.save(tmp_path / "state")
    with pytest.raises(ValueError, match="note must be the number of an arm, got 6"):
        Policy.load(tmp_path / "state", unattended=True)


# ---------------------------------------------------------------------------------------------------- price


@tabled("adjacency", ["replace", "zero_out"])
@tabled("unit", ["round", "person"])
def test_the_whole_run_costs_the_budget(adjacency, unit):
    budget = Budget(1.0, 1e-5, adjacency=adjacency, unit=unit)
    one = policy(budget=budget)
    z = calibrate(lambda z: Gaussian(z, adjacency=adjacency), budget)
    assert [row.release for row in one.ledger.rows()] == [Gaussian(z, adjacency=adjacency)]
    assert one.sums.sums.noise_multiplier == z
    assert one.privacy().unit == unit


def test_the_noise_of_a_sum_is_that_of_the_range_of_rewards_alone():
    """No share of the budget for anything else: z times the length of the range, where the base rate is its middle."""
    one = policy(reward_range=(-1.0, 3.0), link="linear")
    z = calibrate(Gaussian, BUDGET)
    assert one.sums.noise == pytest.approx(4.0 * z, rel=1e-3)  # rounding is reckoned with


# ---------------------------------------------------------------------------------------------------- learning


def played(one: StandingPrivateGLM, means, rounds: int, share: float = 1.0, delay: int = 0) -> float:
    """How often the best arm was played in the last quarter, where so many rewards come."""
    rng, best, waiting, hits = np.random.default_rng(9), int(np.argmax(means)), [], 0
    for t in range(rounds):
        decision = one.select()
        hits += t >= 3 * rounds // 4 and decision.index == best
        waiting.append((decision, float(rng.random() < means[decision.index])))
        if len(waiting) > delay:
            made, reward = waiting.pop(0)
            one.update(made, reward if rng.random() < share else None)
    return hits / (rounds - 3 * rounds // 4)


MEANS = np.array([0.2, 0.5, 0.3, 0.8])


@pytest.mark.parametrize(("share", "delay"), [(1.0, 0), (0.5, 0), (1.0, 100)])
def test_it_finds_the_best_arm_also_where_rewards_are_missing_or_late(share, delay):
    """The least of 100 other seeds is 0.994 in every case."""
    one = policy(np.eye(4), horizon=1500, first_batch=16)
    assert played(one, MEANS, 1500, share, delay) > 0.8
    rounds = one.schedule.ends[-1]
    assert one.arrived == pytest.approx(
        share - min(delay, rounds) / rounds, abs=0.09
    )  # 6 standard deviations of 1300 coins


def test_plays_wait_for_rewards_that_are_announced_to_be_late():
    """Counted when their rewards come, so that those of all batches agree with the records, arm by arm."""
    one = policy(np.eye(2), budget=Budget(1e4, 1e-2), horizon=400, first_batch=20, delay=50)
    waiting, chosen = [], []
    for _ in range(390):
        decision = one.select()
        waiting.append(decision)
        chosen.append(decision.index)
        if len(waiting) > 50:
            one.update(waiting.pop(0), float(decision.index))
    plays = one.public.plays.sum(axis=0)
    assert plays.tolist() == np.bincount(chosen[: one.schedule.ends[-1] - 50], minlength=2).tolist()
    assert not one.public.plays[: sum(end <= 50 for end in one.schedule.ends)].any()
    assert one.arrived == 1.0


@pytest.mark.parametrize("unit", ["round", "person"])
def test_persons_who_come_back_teach_once_which_is_reckoned_with_batch_by_batch(monkeypatch, unit):
    """The first 100 rounds teach, of 100 persons, and then none; where rounds are the unit all would."""
    shares = []

    def seen(noise, plays, came, least):
        shares.append(arrivals(noise, plays, came, least))
        return shares[-1]

    monkeypatch.setattr(standing, "arrivals", seen)
    one = policy(np.eye(2), budget=Budget(1e4, 1e-2, unit=unit), horizon=1000, first_batch=20)
    for t in range(900):
        one.update(one.select(person=t % 100), 1.0)
    if unit == "round":
        assert not shares
        assert one.arrived == 1.0
        return
    ends = np.array([0, *one.schedule.ends[: one.releases]])
    learned = np.diff(np.minimum(ends, 100)) / np.diff(ends)
    assert shares[-1] == pytest.approx(learned, abs=0.15)  # noise is some 0.1 records, and the model is a smooth one
    assert one.arrived == pytest.approx(100 / ends[-1], abs=0.01)


@pytest.mark.thorough
def test_missing_rewards_do_not_pull_estimates_to_the_base_rate():
    """Of plays that were not scaled by the share that came, half of the rewards would leave half of every gap."""
    one = policy(np.eye(2), budget=Budget(1e4, 1e-2), horizon=4000, first_batch=40, exploration="inverse_gap")
    played(one, np.array([0.5, 0.8]), 4000, share=0.5)
    mean = one.link.mean(one.theta)
    assert mean[1] == pytest.approx(0.8, abs=0.08)  # 7 standard deviations of about 1700 rewards
    assert mean[1] - 0.5 > 0.22


def in_epochs(**more) -> Restarting:
    known = {"budget": BUDGET, "horizon": 100, "every": 50, "parameters": {"arms": CIRCLE, "first_batch": 8}}
    return Restarting(2, "StandingPrivateGLM", **known, rng=np.random.default_rng(0), **more)


def test_epochs_count_plays_too():
    """They have decisions of their own; a policy that was not told of them would never learn."""
    one, chosen = in_epochs(), []
    for _ in range(100):
        decision = one.select(CIRCLE)
        chosen.append(decision.index)
        one.update(decision, 1.0)
        if one.epoch == 0:
            first = one.policy
    assert one.epoch == 1
    for policy, start in ((first, 0), (one.policy, 50)):
        ends = [end for end in policy.schedule.ends if end < 50]
        assert policy.releases == len(ends) > 2
        for row, (low, high) in zip(policy.public.plays, itertools.pairwise([0, *ends]), strict=False):
            assert row.tolist() == np.bincount(chosen[start + low : start + high], minlength=6).tolist()


def test_epochs_refuse_logs_and_wrong_notes_too(tmp_path):
    one = in_epochs()
    with pytest.raises(ValueError, match="rows must be learned by a policy that protects which arm was chosen"):
        one.learn_log([(CIRCLE[0], 1.0)])
    assert one.decisions == 0
    one.select(CIRCLE)
    one.waiting[0].note = (0, 0, 6)
    one.save(tmp_path / "state")
    with pytest.raises(ValueError, match="note must be the number of an arm, got 6"):
        Policy.load(tmp_path / "state", unattended=True)


def test_plays_in_epochs_survive_a_crash_by_the_journal(tmp_path):
    one = in_epochs(checkpoint=tmp_path / "state")
    for _ in range(57):
        one.update(one.select(CIRCLE), 1.0)
    kept = repr(one.policy.sums.kept())
    del one
    gc.collect()
    again = Policy.load(tmp_path / "state", unattended=True)
    assert repr(again.policy.sums.kept()) == kept


def test_simulations_tell_it_the_arms_of_each_seed(tmp_path):
    """On the same arms as the other policies; and runs that were kept are known again."""
    world, seen = GLM(3, arms=4, arm_law="fixed_sphere"), []

    class Make:
        public_arms = True

        def __call__(self, rng, arms):
            seen.append(arms)
            return StandingPrivateGLM(3, arms, budget=BUDGET, horizon=60, rng=rng)

    for seeds in (2, 3):
        simulate({"standing": Make()}, world, rounds=60, seeds=seeds, resume=tmp_path / "r.jsonl", progress=False)
    assert len(seen) == 4  # three runs, and one that asks whether the parameters are the same
    assert not np.array_equal(seen[0], seen[1])


def test_simulations_refuse_arms_that_change():
    make = functools.partial(StandingPrivateGLM, budget=BUDGET, horizon=60)

    def made(rng, arms):
        return make(3, arms, rng=rng)

    made.public_arms = True
    with pytest.raises(ValueError, match="environment must have fixed arms for a policy that is told them"):
        simulate({"standing": made}, GLM(3, arms=4), rounds=60, seeds=1, progress=False)


def test_counts_from_a_range_without_the_base_rate_are_survived():
    one = policy(link="poisson", reward_range=(3.0, 10.0), horizon=60)
    for _ in range(60):
        one.update(one.select(), 4.0)
    assert np.isfinite(one.theta).all()
    assert one.levels.chance > 0.0


def test_its_price_is_found_where_arms_stand():
    world = GLM(3, arms=4, arm_law="fixed_sphere")
    priced = price_of_privacy(
        world, [4.0], rounds=100, seeds=2, policies={"round": "StandingPrivateGLM"}, progress=False
    )
    (row,) = priced.rows
    assert (row.unit, row.policy) == ("round", "StandingPrivateGLM")
    assert row.reward > 0.3


def test_a_link_that_says_nothing_is_survived():
    mine = Link("mine", lambda e: e * np.nan, lambda e: e * np.nan, lambda e: e, lambda S: (0.0, 1.0), lambda S: 1.0)
    one = policy()
    one.refit = replace(one.refit, record=replace(one.levels, link=mine))
    for _ in range(30):
        one.update(one.select(), 1.0)
    assert np.isfinite(one.theta).all()
    assert np.linalg.norm(one.theta) <= 3.0 * (1 + 1e-9)

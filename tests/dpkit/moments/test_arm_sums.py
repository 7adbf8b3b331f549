"""Sums by arms and directions: how far one record moves them, and what their noise is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Budget
from dpkit.moments import ArmSums, reward_scales, reward_sensitivity
from dpkit.moments.arm_batches import ArmBatches
from dpkit.moments.arm_turns import ArmTurns

# ----------------------------------------------------------------------------------------------- sensitivity

RANGES = [(-0.5, 0.5), (-0.04, 0.96), (-0.9, 0.1), (-2.0, 7.0)]


# two arms in opposite directions; that an angle apart; the same as the first, shorter
ARMS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.6, 0.8], [0.5, 0.0]])


def moved(c, a, one, other, correlation):
    """The squared distance of two records, (arm, by directions or not, g) or None, in columns so far correlated."""
    vectors = np.zeros((2, 7))
    for vector, record in zip(vectors, (one, other), strict=True):
        if record is not None:
            arm, together, g = record
            if together:
                vector[:2] = c * g * ARMS[arm]
            else:
                vector[2 + arm] = c * g
            vector[-1] = a
    return float(vectors[0] @ vectors[0] + vectors[1] @ vectors[1] - 2.0 * correlation * vectors[0] @ vectors[1])


@settings(max_examples=200)
@given(
    bounds=st.sampled_from(RANGES),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    arms=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    together=st.tuples(st.booleans(), st.booleans()),
    come=st.sampled_from([(True, True), (True, False), (False, True)]),
    correlation=st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0)),
    adjacency=st.sampled_from(["replace", "zero_out"]),
    whose=st.sampled_from(["round", "person"]),
)
def test_no_record_moves_the_sums_farther(bounds, shares, arms, together, come, correlation, adjacency, whose):
    """One round has one arm; a person's two records may be any. In the same batch both are summed alike."""
    if adjacency == "zero_out" and all(come):
        come = (True, False)
    if whose == "round":
        arms = (arms[0], arms[0])
    if correlation == 1.0:
        together = (together[0], together[0])
    low, high = bounds
    c, a = reward_scales(low, high, adjacency)
    parts = zip(arms, together, shares, come, strict=True)
    records = [(k, form, low + share * (high - low)) if there else None for k, form, share, there in parts]
    sensitivity = reward_sensitivity(c, a, low, high, adjacency, whose=whose)
    assert moved(c, a, *records, correlation) <= sensitivity**2 * (1 + 1e-12)


@pytest.mark.parametrize(("low", "high"), RANGES)
@pytest.mark.parametrize("whose", ["round", "person"])
@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
def test_some_record_moves_them_so_far(low, high, adjacency, whose):
    c, a = reward_scales(low, high, adjacency)
    farthest = max((low, high), key=abs)
    pairs = [((0, True, farthest), None, 1.0)]
    if adjacency == "replace":
        pairs += [((0, True, low), (0, True, high), 1.0), ((0, False, farthest), (0, False, farthest), 0.0)]
        if whose == "person":
            pairs.append(((0, True, farthest), (1, True, farthest), 1.0))
    largest = max(moved(c, a, *pair) for pair in pairs)
    assert largest == pytest.approx(reward_sensitivity(c, a, low, high, adjacency, whose=whose) ** 2, rel=1e-12)


def test_counting_rewards_is_free_where_the_range_is_centred():
    c, a = reward_scales(-0.5, 0.5, "replace")
    counted, not_counted = (reward_sensitivity(c, one, -0.5, 0.5, "replace", whose="round") for one in (a, 0.0))
    assert counted == not_counted


# ------------------------------------------------------------------------------------------------------ sums


def sums(arms: int, adjacency: str = "replace", delay: int = 0) -> ArmSums:
    budget, rng = Budget(1.0, 1e-5, adjacency=adjacency), np.random.default_rng(5)
    more = {
        "budget": budget,
        "releases": 3,
        "horizon": 40,
        "rng": rng,
        "weigh": lambda noise: np.ones(3),
        "delay": delay,
    }
    return ArmSums(np.full((arms, 1), 0.5), -0.3, 0.7, **more)


def test_the_noise_of_sums_is_as_stated():
    """8000 entries: their standard deviation is within 5 % of the law's, but for 3e-10 of seeds (6.3 deviations)."""
    kept = sums(8000)
    first, _, plays = kept.release()
    assert not plays.any()
    second = kept.release()[0] - first
    covariance = kept.noise_of_batches(2)
    assert first.std() == pytest.approx(kept.noise_of_sums(1), rel=0.05)
    assert (first + second).std() == pytest.approx(kept.noise_of_sums(2), rel=0.05)
    assert second.std() == pytest.approx(math.sqrt(covariance[1, 1]), rel=0.05)
    correlation = covariance[0, 1] / math.sqrt(covariance[0, 0] * covariance[1, 1])
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(correlation, abs=0.075)
    assert kept.noise_of_count(2) / kept.noise_of_sums(2) == pytest.approx(kept._c / kept._a)


def test_records_enter_the_sum_that_they_are_for():
    kept = sums(3)
    kept.add(1, 0.7, together=True)
    kept.add(2, -0.3, together=False)
    expected = np.array([kept._c * 0.35, 0.0, 0.0, -kept._c * 0.3, 2 * kept._a])
    assert np.allclose(kept.records / kept._unit, expected, atol=1e-8)
    assert np.array_equal(kept.records, np.rint(kept.records))


@settings(max_examples=60)
@given(
    delay=st.integers(0, 6),
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=5), min_size=3, max_size=3
    ),
)
def test_plays_are_counted_as_they_are_decided_so_many_rounds_later(delay, batches):
    """Also where a choice is made again after an interrupt, and over a state in the middle."""
    kept, chosen, counted = sums(3, delay=delay), [], 0
    for batch in batches:
        for arm, again in batch:
            if again:
                kept.decided(len(chosen), (arm + 1) % 3)
            kept.decided(len(chosen), arm)
            chosen.append(arm)
        other = sums(3, delay=delay)
        other.resume(kept.kept())
        until = max(counted, len(chosen) - delay)
        expected = np.bincount(chosen[counted:until], minlength=3).tolist()
        assert other.release()[2].tolist() == kept.release()[2].tolist() == expected
        counted = until


def decide(one: ArmSums | ArmTurns, many: ArmSums | ArmTurns, parts: list[list[int]], again: bool) -> None:
    """The same plays one after the other, and each part at once; ``again``: its first round was begun before."""
    rounds = 0
    for arms in parts:
        first = max(0, rounds - 1) if again else rounds
        for round, arm in enumerate(arms, first):
            one.decided(round, arm)
        many.decided_many(first, np.array(arms, np.int64))
        rounds = max(rounds, first + len(arms))


@pytest.mark.thorough
@settings(max_examples=100)
@given(
    delay=st.integers(0, 6),
    parts=st.lists(st.lists(st.integers(0, 2), max_size=9), max_size=4),
    again=st.booleans(),
)
def test_many_plays_are_those_of_one_after_the_other(delay, parts, again):
    """With an oldest one that waits, without, and where the first is made again after an interrupt."""
    one, many = sums(3, delay=delay), sums(3, delay=delay)
    decide(one, many, parts, again)
    assert str(many.kept()) == str(one.kept())


@pytest.mark.parametrize("together", [True, False])
def test_many_records_are_those_of_one_after_the_other(together):
    one, many, rng = sums(3), sums(3), np.random.default_rng(0)
    arms, g = rng.integers(0, 3, 50), rng.uniform(-0.3, 0.7, 50)
    for arm, value in zip(arms.tolist(), g.tolist(), strict=True):
        one.add(arm, value, together=together)
    many.add_many(arms, g, together=together)
    assert np.array_equal(many.records, one.records)
    before = many.records.copy()
    for wrong in (5.0, np.nan):
        with pytest.raises(ValueError, match="g must be from"):
            many.add_many(arms, np.append(g[1:], wrong), together=together)
    assert np.array_equal(many.records, before)


def test_many_records_of_batches_are_those_of_one_after_the_other():
    one, many = (ArmBatches(3, 0.0, 1.0, budget=Budget(1.0, 0.0)) for _ in range(2))
    rng = np.random.default_rng(0)
    arms, r = rng.integers(0, 3, 50), np.append(rng.random(48), [0.0, 1.0])
    for arm, value in zip(arms.tolist(), r.tolist(), strict=True):
        one.add(arm, value)
    many.add_many(arms, r)
    assert np.array_equal(many.sums, one.sums)
    for wrong in (1.1, np.nan):
        with pytest.raises(ValueError, match="r must be from"):
            many.add_many(arms, np.append(r[1:], wrong))
    assert np.array_equal(many.sums, one.sums)


@settings(max_examples=60)
@given(parts=st.lists(st.lists(st.integers(0, 2), max_size=5), max_size=4), again=st.booleans())
def test_many_turns_are_those_of_one_after_the_other(parts, again):
    one, many = ArmTurns(3, people=False), ArmTurns(3, people=False)
    decide(one, many, parts, again)
    assert str(many.kept()) == str(one.kept())


def test_states_go_on_and_wrong_ones_are_refused():
    one, other = sums(3), sums(3)
    one.decided(0, 1)
    one.add(1, 0.25, together=True)
    other.resume(one.kept())
    assert np.array_equal(other.records, one.records)
    assert other.release()[2].tolist() == [0.0, 1.0, 0.0]
    for name, wrong in (("plays", np.array([-1.0, 0, 0])), ("waiting", np.array([3])), ("waiting", np.array([-2]))):
        with pytest.raises(ValueError, match="plays must be at least 0, and waiting ones name an arm"):
            sums(3).resume(one.kept() | {name: wrong})
    with pytest.raises(ValueError, match="units must be"):
        sums(3).resume(one.kept() | {"units": np.array([1.0, 0.5])})

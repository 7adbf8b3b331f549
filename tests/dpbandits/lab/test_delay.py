"""Rewards that are announced to be late: batches of the shuffle model wait for them, and only then close."""

import gc
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regret import ball

from accounting import Budget
from dpbandits import Policy
from dpbandits.policies import OnePassPrivateGLM, ShuffleLinUCB, ShuffleOnePassGLM
from dpbandits.policy.private import Schedule
from dpbandits.private.parts.records import typical_deviation
from dpkit.models.links import get_link
from dpkit.moments.shuffled import ShuffledBatches

BUDGET = Budget(4.0, 1e-5)
each_kind = pytest.mark.parametrize("kind", [ShuffleOnePassGLM, ShuffleLinUCB])


def made(kind, **more):
    known = {"budget": BUDGET, "horizon": 40, "first_batch": 4, "rng": np.random.default_rng(0)}
    return kind(2, **known | more)


def play(policy: Policy, late: int, rounds: int, rng: np.random.Generator) -> None:
    """Rewards come ``late`` rounds late."""
    for t in range(policy.decisions, policy.decisions + rounds):
        policy.select(ball(rng, 3, 2))
        if t >= late:
            policy.update(t - late, float(rng.random() < 0.5))


@given(
    horizon=st.integers(1, 400),
    first=st.integers(1, 60),
    growth=st.sampled_from([1.0, 1.3, 2.0]),
    lag=st.integers(0, 90),
)
@settings(max_examples=80, deadline=None)
def test_a_lag_moves_releases_and_no_batch(horizon, first, growth, lag):
    plain, lagging = Schedule.batches(horizon, first, growth), Schedule.batches(horizon, first, growth, lag=lag)
    assert list(lagging.ends) == [end for end in plain.ends if end + lag < horizon]
    for k, end in enumerate(lagging.ends):
        assert [lagging.due(k, n) for n in (end + lag - 1, end + lag)] == [False, True]
        assert (lagging.batch(end - 1), lagging.batch(end)) == (k, k + 1)


@each_kind
def test_rewards_as_late_as_announced_all_count(kind, monkeypatch):
    absent = []
    original = ShuffledBatches.release

    def release(self):
        total = original(self)
        absent.append(self.absent)
        return total

    monkeypatch.setattr(ShuffledBatches, "release", release)
    policy = made(kind, delay=10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(policy, 10, 40, np.random.default_rng(1))
    assert policy.releases == len(policy.schedule.ends) == 3
    assert absent == [0.0] * policy.releases


@each_kind
def test_a_record_enters_the_batch_of_its_decision_whenever_it_comes(kind, monkeypatch):
    entered = []
    original = ShuffledBatches.add
    monkeypatch.setattr(
        ShuffledBatches, "add", lambda self, row, batch: entered.append(batch) or original(self, row, batch)
    )
    policy = made(kind, delay=12)
    for _ in range(16):
        policy.select(np.eye(2))
    for t in (15, 3, 12, 8, 9):
        policy.update(t, 1.0)
    assert entered == [policy.schedule.batch(t) for t in (15, 3, 12, 8, 9)] == [2, 0, 2, 1, 1]
    assert policy.releases == 0
    assert policy.sums.kept()["users"].sum() == 5


@each_kind
def test_a_state_with_several_open_batches_continues_bit_for_bit(kind, tmp_path):
    policy = made(kind, delay=14)
    play(policy, 2, 15, np.random.default_rng(1))
    policy.save(tmp_path / "p")
    assert len(policy.sums.kept()["users"]) == 3
    twin = Policy.load(tmp_path / "p")
    for one in (policy, twin):
        play(one, 2, 20, np.random.default_rng(2))
    assert repr(policy.kept()) == repr(twin.kept())
    assert policy.releases > 0


@each_kind
def test_whoever_announced_nothing_is_warned_once(kind):
    policy = made(kind)
    with pytest.warns(UserWarning, match="announce how many rounds late they are by delay="):
        play(policy, 50, 5, np.random.default_rng(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(policy, 50, 30, np.random.default_rng(1))


@each_kind
def test_a_delay_that_is_none_is_refused(kind):
    with pytest.raises(ValueError, match="delay must be at least 0"):
        made(kind, delay=-1)


# ------------------------------------------------------------------------------------------- rewards that never come


def test_none_is_a_reward_that_never_comes():
    told, other = made(ShuffleOnePassGLM), made(ShuffleOnePassGLM)
    for policy, give_up in ((told, lambda d: told.update(d, None)), (other, other.forget)):
        decision = policy.select(np.eye(2))
        give_up(decision)
        assert policy.open_decisions == []
        play(policy, 0, 5, np.random.default_rng(1))
    assert repr(told.kept()) == repr(other.kept())
    with pytest.raises(ValueError, match="decision must be one whose reward is still open, got decision id 0"):
        told.update(0, None)


def test_a_reward_that_never_comes_stands_in_the_journal(tmp_path):
    policy = made(OnePassPrivateGLM, checkpoint=tmp_path / "c")
    for _ in range(3):
        policy.select(np.eye(2))
    policy.update(1, None)
    policy.update(2, 1.0)
    del policy
    gc.collect()  # one object at a time holds a checkpoint
    assert Policy.load(tmp_path / "c").open_decisions == [0]


# ------------------------------------------------------------------------------------------------- clear refusals


@pytest.mark.parametrize("arms", [[[1.0, 0.0], [1.0]], [[1.0, 0.0], 1.0]])
def test_ragged_arms_are_refused_by_name(arms):
    policy = made(OnePassPrivateGLM)
    with pytest.raises(ValueError, match="arms must be rows of the same length"):
        policy.select(arms)
    assert policy.decisions == 0


def test_a_horizon_that_is_used_up_says_what_to_do():
    policy = made(OnePassPrivateGLM, horizon=2)
    play(policy, 0, 2, np.random.default_rng(1))
    with pytest.raises(ValueError, match=r"horizon must be at least 3 for one more round, got 2, .*or Doubling"):
        policy.select(np.eye(2))


# ---------------------------------------------------------------------------------------------------- counts


@pytest.mark.parametrize(("theta_bound", "low", "high"), [(0.5, 0.8, 1.5), (1.0, 1.0, 1.5), (2.0, 1.5, 3.0)])
def test_counts_are_clipped_near_the_best_fixed_clip(theta_bound, low, high):
    # the best of a grid of fixed clips lies between these, as far as seeds tell (24 seeds, T = 10,000, ε = 1 and 4)
    for kind in (OnePassPrivateGLM, ShuffleOnePassGLM):
        counts = {"link": "poisson", "reward_range": (0.0, 16.0), "horizon": 200, "first_batch": 10}
        assert low <= made(kind, theta_bound=theta_bound, **counts).clip <= high
        assert made(kind, clip=7.0, **counts).clip == 7.0
    assert typical_deviation(get_link("logistic"), 1.0) == math.inf == typical_deviation(get_link("linear"), 1.0)


def test_the_typical_deviation_is_the_integral_that_it_says():
    for S in (0.5, 2.0):
        # ∫(e^e − 1)² + e^e over [−S, S], by hand
        square = (math.sinh(2 * S) - 2 * math.sinh(S) + 2 * S) / (2 * S)
        assert typical_deviation(get_link("poisson"), S) == pytest.approx(math.sqrt(square), rel=1e-3)

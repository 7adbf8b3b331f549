"""policy.progress(): what it says, of what was released alone; and the warning of a run that learns nothing."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from private_policies import SMALL, play, small

from accounting import Budget
from dpbandits.policies import Doubling, OnePassPrivateGLM, PrivateArms, StandingPrivateGLM
from dpbandits.policy.progress import Found, along, noise_alone
from dpkit.models.prior import Prior


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# ----------------------------------------------------------------------------------------------- of every policy


# making one of these takes seconds, and they have others' methods
SLOW = {"DPHDB", "DisjointShuffleGLM", "JointDPGLM", "ShuffleGLM", "ShuffleLinUCB", "ShuffleOnePassGLM"}


@pytest.mark.parametrize("name", sorted(set(SMALL) - SLOW))
def test_every_private_policy_says_how_far_it_has_come_for_nothing(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rewards that fit no model
        asked = small(name, rng=seeded(3))
        play(asked, 30)
        before = repr((asked.kept(), asked.rng.bit_generator.state, asked.ledger.rows()))
        found = asked.progress()
        assert (found.rounds, found.horizon, found.releases) == (30, asked.horizon, asked.releases)
        told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert told["policy"] == found.policy
        text, page = repr(found), found._repr_html_()
        assert "30" in text.splitlines()[0]
        for value in (found.theta_length, found.predicted, found.seen, found.cut):
            assert value is None or math.isfinite(value)
        # whatever is not known has a reason
        for what in ("theta_length", "predicted", "seen", "cut", "signal"):
            assert getattr(found, what) not in (None, {}) or found.missing[what] in text
        assert "<table" in page
        assert repr((asked.kept(), asked.rng.bit_generator.state, asked.ledger.rows())) == before


@pytest.mark.parametrize("name", ["PrivateArms", "StandingPrivateGLM", "OnePassPrivateGLM", "DisjointPrivateGLM"])
def test_it_says_nothing_of_what_was_not_released(name):
    found = []
    for reward in (0.0, 1.0):
        policy = small(name, rng=seeded(5), first_batch=4)
        play(policy, 11)
        for _ in range(3 if name == "PrivateArms" else 2):  # within the open batch
            if policy.schedule.due(policy.releases, policy.decisions + 1):
                break
            policy.update(
                policy.select(
                    np.zeros(1)
                    if name == "PrivateArms"
                    else np.array([0.6, -0.8])
                    if policy.takes == "context"
                    else np.eye(2)
                ),
                reward,
            )
        found.append(policy.progress())
    assert found[0] == found[1]


# ------------------------------------------------------------------------------------------------- what it says


def test_signals_of_noise_alone_are_one_on_average_whatever_the_prior():
    """Data of precision 0, 1/4, 1 and 100 times the prior's, θ = 0: the mean of z² is 1 or 0 up to six deviations."""
    rng, prior, squares = seeded(1), Prior(np.zeros(4), np.diag([1.0, 4.0, 1.0, 2.0])), []
    data = np.diag([0.0, 1.0, 1.0, 200.0])
    covariance = np.linalg.inv(prior.precision + data)
    for _ in range(2000):
        score = np.sqrt(data.diagonal()) * rng.standard_normal(4)
        signal = along(covariance @ score, covariance, prior)
        squares.append(np.array(list(signal.values())) ** 2)
    mean = np.mean(squares, axis=0)
    assert mean[:3] == pytest.approx(1.0, abs=6 * math.sqrt(2 / 2000))
    assert mean[3] == 0.0  # of which the data say nothing


def test_a_signal_is_the_distance_in_standard_errors_of_the_data():
    prior, data, theta = Prior(np.array([1.0, 0.0]), np.eye(2)), np.diag([9.0, 0.25]), np.array([1.5, -3.0])
    covariance = np.linalg.inv(prior.precision + data)
    mean = covariance @ (data @ theta + prior.precision @ prior.mean)
    assert list(along(mean, covariance, prior).values()) == pytest.approx([0.5 * 3.0, 3.0 * 0.5])


def test_arms_are_told_by_their_own_sums():
    rng = seeded(2)
    policy = PrivateArms(["a", "b"], budget=Budget(8.0, 0.0), horizon=4000, reward_range=(-10.0, 30.0), rng=rng)
    for _ in range(4000):
        decision = policy.select()
        policy.update(decision, 30.0 if rng.random() < {"a": 0.5, "b": 0.25}[decision.name] else -10.0)
    found = policy.progress()
    share = 4000 - policy.public.since
    assert share < 2500
    assert found.signal["b"] > 3.0
    assert found.reward_range == (-10.0, 30.0)
    assert found.cut == 0.0
    assert 5.0 < found.seen < 11.0
    assert found.predicted == pytest.approx(found.seen, abs=1.0)
    assert (found.theta_length, found.theta_bound) == (None, None)


def test_levels_of_standing_arms_are_those_of_their_rewards():
    rng, likes = seeded(4), np.array([0.2, 0.5, 0.8])
    policy = StandingPrivateGLM(3, np.eye(3), budget=Budget(20.0, 1e-6), horizon=2000, rng=rng)
    rewards = []
    for _ in range(2000):
        decision = policy.select()
        rewards.append(float(rng.random() < likes[decision.index]))
        policy.update(decision, rewards[-1])
    found = policy.progress()
    end = policy.last_release()
    assert found.seen == pytest.approx(np.mean(rewards[:end]), abs=0.02)
    assert found.predicted == pytest.approx(found.seen, abs=0.05)
    assert 0.0 < found.theta_length <= found.theta_bound == 3.0


# ------------------------------------------------------------------------------------------------- the warning


def test_what_is_noise_alone():
    noise = Found(dict.fromkeys("abcd", 1.0), freedom=4)
    assert noise_alone(noise, 0.6)
    assert not noise_alone(noise, 0.29)
    assert not noise_alone(Found({"a": 0.0}, freedom=1), 0.6)  # nothing was estimated yet
    assert not noise_alone(Found({}, freedom=0), 0.9)
    assert not noise_alone(Found({"a": 3.5, "b": 0.0, "c": 0.0, "d": 0.0}, freedom=4), 0.9)
    # what is a little more than noise after a third of all rounds may be clear at the end
    assert not noise_alone(Found(dict.fromkeys("abcd", 1.3), freedom=4), 0.35)


def warned(seed: int, scale: float, **more) -> int:
    """How often the warning came."""
    rng = seeded(seed)
    policy = PrivateArms(3, budget=Budget(1.0, 0.0), horizon=1500, rng=rng, **more)
    last = 0
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        for t in range(1500):
            decision = policy.select()
            policy.update(decision, scale * (rng.random() < (0.2, 0.5, 0.8)[decision.index]))
            last = t if record and not last else last
    assert all("cannot be told from noise yet" in str(one.message) for one in record)
    assert not record or 450 <= last < 1400  # during the run
    return len(record)


@pytest.mark.thorough
def test_a_run_that_learns_nothing_says_so_once_and_others_are_silent():
    """Of 100 runs whose noise is a thousand times the rewards 60 to 90 warn (here of six), of 200 others none did."""
    found = [warned(seed, 20.0, reward_range=(0.0, 20_000.0)) for seed in range(6)]
    assert set(found) <= {0, 1}
    assert sum(found) >= 3
    assert [warned(seed, 1.0) for seed in range(3)] == [0, 0, 0]


def test_policies_with_parameters_say_so_too():
    rng = seeded(1)
    arms = rng.standard_normal((1200, 4, 3))
    arms /= np.linalg.norm(arms, axis=2, keepdims=True) * (1 + 1e-12)
    for how, words in ((1.0, None), (0.0, "OnePassPrivateGLM: what it has learned cannot be told from noise yet")):
        policy = OnePassPrivateGLM(3, budget=Budget(2.0, 1e-5), horizon=1200, rng=rng)
        with warnings.catch_warnings(record=True) as record:
            warnings.simplefilter("always")
            for X in arms:
                decision = policy.select(X)
                policy.update(decision, float(rng.random() < 0.5 + 0.45 * how * X[decision.index, 0]))
        assert [str(one.message)[: len(words or "")] for one in record] == ([] if words is None else [words])


def test_epochs_are_silent():
    policy = Doubling(3, budget=Budget(2.0, 1e-5), first_epoch=50, rng=seeded(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for t in range(300):
            policy.update(policy.select(np.eye(3)), float(t % 2))
    assert policy.progress().releases == policy.releases

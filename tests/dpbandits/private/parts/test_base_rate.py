"""The base rate: links moved to it, rewards counted from it, and who may be told it."""

from __future__ import annotations

import math
from inspect import signature

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from private_policies import SMALL, small
from tabled import tabled

from accounting import Budget
from dpbandits import Policy, policies
from dpbandits.cli.policies import factories
from dpbandits.lab.environments import GLM, Advertising, Linear, LogReplay
from dpbandits.policies import GLBOMD, OFUL, DPLinUCB, OnePassPrivateGLM, Uniform
from dpkit.models.links import Link, get_link

BUDGET = Budget(1.0, 1e-5)
RANGES = {"logistic": (0.0, 1.0), "probit": (0.0, 1.0), "linear": (-4.0, 4.0), "poisson": (0.0, 20.0)}


def made(name: str, **options) -> Policy:
    """A policy of the package for arms in two dimensions."""
    if name in SMALL:
        return small(name, **options)
    kind = getattr(policies, name)
    sizes = () if "dim" in kind.passed_on else (2, 1) if "k" in signature(kind).parameters else (2,)
    return kind(*sizes, horizon=40, **({"arms": 3} if kind.takes == "context" else {}), **options)


# ---------------------------------------------------------------------------------------------------- links


@given(name=st.sampled_from(sorted(RANGES)), share=st.floats(0.01, 0.99), S=st.floats(0.1, 4.0))
def test_a_link_at_a_base_rate_is_the_same_curve_from_another_point(name, share, S):
    low, high = RANGES[name]
    link, rate = get_link(name), low + share * (high - low)
    moved = link.at(rate)
    assert float(moved.mean(0.0)) == pytest.approx(rate, rel=1e-12, abs=1e-12)
    z = np.linspace(-S, S, 301)
    slope = np.broadcast_to(moved.derivative(z), z.shape)
    least, most = moved.derivative_range(S)
    assert slope.min() == pytest.approx(least, rel=1e-9)
    assert most * (1 - 1e-3) <= slope.max() <= most * (1 + 1e-12)  # the peak of a bell may lie between two points
    h = 1e-4
    assert np.allclose((moved.integral(z + h) - moved.integral(z - h)) / (2 * h), moved.mean(z), rtol=1e-6, atol=1e-6)
    bend = np.abs(moved.derivative(z + h) - moved.derivative(z - h)) / (2 * h)
    assert (bend <= moved.self_concordance(S) * slope + 1e-6 * most).all()


def test_a_link_at_its_own_mean_is_itself_and_moving_twice_is_moving_once():
    link = get_link("logistic")
    assert link.at(0.5) is link
    z = np.linspace(-3, 3, 7)
    assert np.allclose(link.at(0.04).at(0.3).mean(z), link.at(0.3).mean(z), rtol=1e-12)


def test_a_callers_link_without_bounds_between_has_those_of_a_wider_interval():
    mine = Link("mine", np.exp, np.exp, np.exp, lambda S: (math.exp(-S), math.exp(S)), lambda S: 1.0, (0.0, math.inf))
    low, high = mine.at(math.e).derivative_range(1.0)
    assert low == pytest.approx(math.exp(-2.0))
    assert high == pytest.approx(math.exp(2.0))


@pytest.mark.parametrize(("name", "rate"), [("logistic", 1.0), ("probit", 0.0), ("poisson", 0.0), ("poisson", -1.0)])
def test_values_that_a_link_never_takes_are_refused(name, rate):
    assert not get_link(name).reaches(rate)
    with pytest.raises(ValueError, match="base_rate must be strictly inside the range of the link"):
        get_link(name).at(rate)


# ------------------------------------------------------------------------------------------------- policies


@tabled(
    ("link", "reward_range", "default"),
    [
        ("logistic", None, 0.5),
        ("logistic", (0.0, 0.2), 0.1),
        ("logistic", (-1.0, 1.0), 0.5),  # the middle is no value of the link
        ("linear", None, 0.0),
        ("linear", (0.0, 1.0), 0.5),
        ("linear", (0.0, math.inf), 0.0),
        ("poisson", None, 1.0),
        ("poisson", (0.0, 20.0), 1.0),  # the middle of where counts are cut off
    ],
)
def test_the_default_is_the_middle_of_the_range(link, reward_range, default):
    policy = GLBOMD(3, link, reward_range=reward_range)
    assert policy.base_rate == default
    assert float(policy.link.mean(0.0)) == pytest.approx(default, rel=1e-12)


@pytest.mark.parametrize("name", sorted(policies.__all__))
def test_every_policy_takes_one_and_finds_it_in_its_state(name, tmp_path):
    policy = made(name, reward_range=(0.0, 1.0), base_rate=0.125, rng=np.random.default_rng(0))
    assert policy.base_rate == 0.125
    policy.save(tmp_path / "state")
    loaded = Policy.load(tmp_path / "state", unattended=True)
    assert loaded.base_rate == 0.125
    assert loaded.link.mean(0.75) == policy.link.mean(0.75)


@tabled(
    ("rate", "message"),
    [
        (0.0, r"base_rate must lie strictly inside reward_range, \(0, 1\), got 0.0"),
        (1.0, "base_rate must lie strictly inside"),
        (math.nan, "base_rate must lie strictly inside"),
        ("0.3", "base_rate must be real numbers"),
        ([0.3], "base_rate must be one number"),
    ],
)
@tabled("kind", [Uniform, OFUL])
def test_rates_that_are_none_are_refused(kind, rate, message):
    with pytest.raises(ValueError, match=message):
        kind(3, reward_range=(0.0, 1.0), base_rate=rate)


# those in which a reward enters by its distance from a model's mean only
LINEAR = ["OFUL", "LinearThompson", "HvtUCB", "HeavyOFUL", "DPLinUCB", "ShuffleLinUCB", "PrivateHvtUCB"]
WITH_A_LINK = ["EpsilonGreedy", "GLBOMD", "GLMUCB", "GLOC", "OnePassPrivateGLM", "ShuffleOnePassGLM", "JointDPGLM"]


@pytest.mark.parametrize("name", LINEAR + WITH_A_LINK)
def test_under_a_linear_link_it_is_subtracted_from_rewards(name):
    """Rewards 3.5 higher with a base rate 3.5 higher: the same run, noise included."""
    link = {"link": "linear"} if name in WITH_A_LINK else {}
    runs = []
    for rate in (0.0, 3.5):
        rng, rewards = np.random.default_rng(1), np.random.default_rng(2)
        span = {"reward_range": (rate - 1.0, rate + 2.0), "base_rate": rate}
        policy = made(name, **link, **span, rng=np.random.default_rng(3))
        chosen = []
        for _ in range(40):
            X = rng.standard_normal((5, 2))
            decision = policy.select(X / (1.0 + np.linalg.norm(X, axis=1, keepdims=True)))  # without ties
            policy.update(decision, rate + rewards.integers(-8, 17) / 8)  # no rounding
            chosen.append(decision.index)
        runs.append((chosen, policy.theta))
    assert runs[0][0] == runs[1][0]
    np.testing.assert_allclose(runs[0][1], runs[1][1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["GLBOMD", "EpsilonGreedy"])
def test_rare_rewards_are_learned_without_a_constant_feature_by_whoever_knows_how_rare(name):
    """Logit −2.5 + xᵀθ: told so, θ̂ is near θ (within 0.8 of norm 2; about 0.3 is the rule); untold, it is not."""
    rng, theta, rate = np.random.default_rng(5), np.array([2.0, 0.0, 0.0]), 1 / (1 + math.exp(2.5))
    told, untold = (getattr(policies, name)(3, base_rate=b, rng=np.random.default_rng(0)) for b in (rate, None))
    for _ in range(1500):
        x = rng.standard_normal(3)
        x /= np.linalg.norm(x)
        reward = float(rng.random() < 1 / (1 + math.exp(2.5 - x @ theta)))
        for policy in (told, untold):
            policy.update(policy.select([x]), reward)
    assert np.linalg.norm(told.theta - theta) < 0.8 < np.linalg.norm(untold.theta - theta)


def test_centred_rewards_have_half_the_sensitivity():
    noise = {}
    for rate in (0.5, 1e-9):
        policy = DPLinUCB(3, budget=BUDGET, horizon=500, reward_range=(0.0, 1.0), base_rate=rate)
        noise[rate] = policy.sums.noise(1)
    assert noise[0.5][1] == pytest.approx(0.5 * noise[1e-9][1], rel=1e-6)
    assert noise[0.5][0] == pytest.approx(noise[1e-9][0], rel=1e-6)
    halves = [
        OnePassPrivateGLM(3, "linear", budget=BUDGET, horizon=500, reward_range=(0, 1), base_rate=b).clip
        for b in (0.5, 1e-9)
    ]
    assert halves[0] == pytest.approx(0.5 * halves[1], rel=1e-6)


# -------------------------------------------------------------------------------- logs and the command line


def test_a_log_has_one_on_the_scale_that_is_played():
    log = pd.DataFrame({"round": [1, 1, 2, 2], "reward": [0, 5, 1, 0], "price": [0.3, 0.1, 0.2, 0.4]})
    assert LogReplay(log, reward_range=(0.0, 5.0)).base_rate == 0.5
    assert LogReplay(log, reward_range=(-1.0, 9.0), base_rate=1.0).base_rate == pytest.approx(0.2)
    with pytest.raises(ValueError, match=r"base_rate must lie strictly inside reward_range, \(0, 5\), got base_rate=5"):
        LogReplay(log, reward_range=(0.0, 5.0), base_rate=5)
    labels = pd.DataFrame({"label": ["a", "b", "c", "d"], "x": [0.1, 0.2, 0.3, 0.4]})
    assert LogReplay(labels, layout="labels").base_rate == 0.25


def test_the_commands_tell_policies_the_environments_or_the_users():
    names, rng = ["glb-omd", "oful", "one-pass-private", "one-pass-private-anytime"], np.random.default_rng(0)
    for told, environment, rate in [
        (None, Advertising(), 0.04),
        (0.1, Advertising(), 0.1),
        (None, GLM(link="poisson"), 1.0),
        (None, Linear(noise="pareto"), 0.0),  # the range to which rewards are clipped is not symmetric
    ]:
        for make in factories(names, [1.0], 1e-5, environment, 500, told).values():
            assert make(rng).base_rate == pytest.approx(rate)

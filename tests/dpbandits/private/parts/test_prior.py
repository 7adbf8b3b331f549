"""``prior=``: what is known beforehand moves the first choices, is overruled by data, and is in the state."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from private_policies import OF_PERSONS
from tabled import tabled

from accounting import Budget
from dpbandits import Policy, Released, policies
from dpbandits.lab.environments import GLM
from dpbandits.lab.environments.arms import random_parameter

PRIVATE = ["OnePassPrivateGLM", "PersonPrivateGLM", "ShuffleOnePassGLM", "ShufflePersonGLM", "DPLinUCB"]
REFERENCE = ["GLBOMD", "LinearThompson", "OFUL"]


def made(name: str, seed: int = 0, **more) -> Policy:
    if name in PRIVATE:
        unit = "person" if name in OF_PERSONS else "round"
        more = {"budget": Budget(1.0, 1e-5, unit=unit), "horizon": 500, "theta_bound": 2.0, **more}
        if name == "DPLinUCB":
            more = {"reward_range": (0, 1), **more}
    elif name != "LinearThompson":
        more = {"theta_bound": 2.0, **more}
    return getattr(policies, name)(3, **more, rng=np.random.default_rng(seed))


def regret(policy: Policy, seed: int) -> float:
    """In 500 rounds of a probit bandit."""
    lost, rounds = 0.0, GLM(3, link="probit", theta_norm=2.0).episode(np.random.default_rng(seed))
    for t, now in enumerate(islice(rounds, 500)):
        decision = policy.select(now.arms, person=t)
        policy.update(decision, now.reward(decision.index))
        lost += now.means.max() - now.means[decision.index]
    return lost


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PRIVATE if name != "DPLinUCB"])
def test_a_good_guess_halves_the_regret(name):
    """θ₀ at a cosine of 0.9, over 20 seeds."""
    without, told = [], []
    for seed in range(20):
        theta = random_parameter(np.random.default_rng(seed), 3, 2.0)  # the episode's
        away = np.random.default_rng(1000 + seed).standard_normal(3)
        away -= away @ theta / 4.0 * theta
        guess = 0.9 * (0.9 * theta + 2.0 * np.sqrt(1 - 0.81) * away / np.linalg.norm(away))
        prior = guess, 3 / ((1 - 0.81) * 4.0)
        without.append(regret(made(name, seed, link="probit"), seed))
        told.append(regret(made(name, seed, link="probit", prior=prior), seed))
    assert np.mean(told) < 0.5 * np.mean(without)


@pytest.mark.parametrize("name", PRIVATE + REFERENCE)
def test_the_first_choices_are_the_priors(name):
    """With much precision; in the first batch, before anything is released."""
    policy = made(name, prior=([0.0, 1.5, 0.0], 1e4))
    assert [policy.select(np.eye(3), person=t).index for t in range(10)] == [1] * 10
    assert policy.theta.tolist() == [0.0, 1.5, 0.0]


@pytest.mark.parametrize("name", PRIVATE + REFERENCE)
def test_data_overrule_a_wrong_prior(name):
    more = {"budget": Budget(8.0, 1e-5, unit="person" if name in OF_PERSONS else "round")}
    policy = made(name, prior=([1.0, -1.0, 0.0], 2.0), **({**more, "horizon": 1200} if name in PRIVATE else {}))
    rng = np.random.default_rng(5)
    for t in range(1000):
        decision = policy.select(np.eye(3)[rng.permutation(3)[:2]], person=t)
        policy.update(decision, float(rng.random() < 0.2 + 0.6 * decision.arm[1]))
    assert policy.theta[1] > policy.theta[0]


@pytest.mark.parametrize("name", PRIVATE + REFERENCE)
@tabled("precision", [2.0, np.diag([3.0, 2.0, 1.0])])
def test_states_keep_it(name, precision, tmp_path):
    policy = made(name, prior=([0.5, 1.0, 0.0], precision))
    for t in range(60):
        policy.update(policy.select(np.eye(3), person=t), float(t % 2))
    policy.save(tmp_path / "state")
    again = Policy.load(tmp_path / "state", unattended=True)
    assert again.prior[0].tolist() == [0.5, 1.0, 0.0]
    np.testing.assert_array_equal(again.prior[1], precision)
    for t in range(60, 120):
        one, other = (p.select(np.eye(3), person=t) for p in (policy, again))
        np.testing.assert_array_equal(one.scores, other.scores)
        policy.update(one, 1.0)
        again.update(other, 1.0)


@pytest.mark.parametrize("precision", [1e4, 1e4 * np.eye(3)])
def test_what_is_handed_on_has_it(precision):
    policy = made("OnePassPrivateGLM", prior=([0.0, 1.5, 0.0], precision))
    again = Released.from_json(policy.released().to_json())
    assert again.choose(np.eye(3), rng=np.random.default_rng(0))[0] == 1


def test_it_costs_nothing():
    costs = {str(made("OnePassPrivateGLM", prior=prior).ledger.total) for prior in (None, ([1.0, 0.0, 0.0], 5.0))}
    assert len(costs) == 1


BAD = {
    "no pair": (3.0, r"prior must be a pair \(mean, precision\)"),
    "one entry": (([0, 0, 0],), r"prior must be a pair"),
    "text": ("ab", r"prior must be a pair"),
    "a short mean": (([0.0], 1.0), r"prior\[0\], the mean, must have shape \(3,\), got shape \(1,\)"),
    "NaN": (([0, 0, np.nan], 1.0), "prior's mean must hold finite"),
    "words": ((["a", "b", "c"], 1.0), "prior's mean must hold finite"),
    "a long mean": (([3.0, 0, 0], 1.0), r"norm at most theta_bound=2, got norm 3: shorten it, or make theta_bound"),
    "no precision": (([0, 0, 0], 0.0), r"prior\[1\], the precision \(1/variance\), must be positive, got 0"),
    "a negative one": (([0, 0, 0], -1.0), r"must be positive, got -1"),
    "an infinite one": (([0, 0, 0], np.inf), "prior's precision must hold finite"),
    "a vector": (([0, 0, 0], [1, 1, 1]), r"must be a number or have shape \(3, 3\), got shape \(3,\)"),
    "an asymmetric one": (([0, 0, 0], [[1, 1, 0], [0, 1, 0], [0, 0, 1]]), "must be symmetric"),
    "an indefinite one": (([0, 0, 0], np.diag([1.0, 1.0, -1.0])), "must be positive semidefinite and not 0, got .* -1"),
    "a matrix of zeros": (([0, 0, 0], np.zeros((3, 3))), "positive semidefinite and not 0"),
    "a ragged one": (([0, 0, 0], [[1.0], [1.0, 2.0]]), "rows of several lengths"),
    "a masked mean": ((np.ma.masked_array([0.0, 0, 0], [1, 0, 0]), 1.0), "prior's mean must not be masked"),
    "a masked precision": (
        ([0, 0, 0], np.ma.masked_array(np.eye(3), np.eye(3))),
        "prior's precision must not be masked",
    ),
    "what overflows": (([0, 0, 0], 1e200), "must hold numbers below 1e154"),
}


@tabled("case", sorted(BAD))
@tabled("name", ["OnePassPrivateGLM", "OFUL"])
def test_wrong_priors_say_what_is_wrong(name, case):
    prior, message = BAD[case]
    with pytest.raises((ValueError, TypeError), match=message):
        made(name, prior=prior)


@pytest.mark.parametrize("name", [*REFERENCE, "DPLinUCB"])
def test_theorems_know_of_no_prior(name):
    with pytest.raises(ValueError, match="prior must be None for parameters='theory'"):
        made(name, prior=([0, 0, 0], 1.0), parameters="theory", reward_range=(0.0, 1.0))


def test_a_policy_that_rules_arms_out_says_why_it_takes_none():
    with pytest.raises(ValueError, match=r"prior must be None for JointDPGLM, whose exploration .*: take OnePassPriv"):
        policies.JointDPGLM(2, budget=Budget(1.0, 1e-5), horizon=10, prior=([0.0, 0.0], 1.0))


def disjoint(epsilon: float, kind: str, **more) -> Policy:
    budget = Budget(epsilon, 1e-5)
    rng = np.random.default_rng(0)
    return getattr(policies, kind)(1, 3, budget=budget, horizon=1500, **more, rng=rng)


@pytest.mark.parametrize("kind", ["DisjointPrivateGLM", "DisjointShuffleGLM"])
def test_a_prior_of_every_arm(kind, tmp_path):
    """It plays at once by draws of its own width, is overruled, and is in the state; new arms have it."""
    policy = disjoint(8.0, kind, prior=([0.3, 0.0], np.diag([50.0, 20.0])))
    np.testing.assert_array_equal(policy.theta, [[0.3, 0.0]] * 3)
    rng = np.random.default_rng(1)
    counts = np.zeros(4)
    for t in range(1200):
        decision = policy.select([rng.uniform(-1, 1)])
        counts[decision.index] += 1
        policy.update(decision, float(rng.random() < (0.2, 0.8, 0.3)[decision.index]))
        if t == 700:
            policy.save(tmp_path / "state")
            again = Policy.load(tmp_path / "state", unattended=True)
            np.testing.assert_array_equal(again.theta, policy.theta)
            np.testing.assert_array_equal(again.prior[1], np.diag([50.0, 20.0]))
    assert counts[1] > 720
    policy.add_arm("new")
    assert policy.theta[3].tolist() == [0.3, 0.0]
    with pytest.raises(ValueError, match=r"prior\[0\], the mean, must have shape \(2,\)"):
        disjoint(8.0, kind, prior=([0.0], 1.0))

"""Many requests at once: the choices, the books, the journal and the releases of one after the other."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from chi_square import fits
from private_policies import OF_PERSONS, SMALL, offered, small

from accounting import Budget
from dpbandits import Policy, policies
from dpbandits.durability import state
from dpbandits.experiment.policy import ExperimentPolicy
from dpbandits.policies import OnePassPrivateGLM, PrivateArms, Uniform

ROUNDS = 30


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def arm_sets(n: int, K: int, d: int, seed: int = 0) -> np.ndarray:
    X = seeded(seed).standard_normal((n, K, d))
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def requests(policy: Policy, n: int):
    """What n rounds offer: all of it different where it may be."""
    if "dim" in type(policy).passed_on:
        return np.zeros((n, 1))
    if policy.takes == "context":
        return arm_sets(n, 1, policy.dim)[:, 0] * 0.7
    if type(policy).__name__ == "StandingPrivateGLM":
        return np.tile(np.eye(2), (n, 1, 1))
    return arm_sets(n, 3, policy.dim)


def books(policy: Policy) -> str:
    """Everything that a state holds, as text."""
    tree = state.tree_of(policy) | {"open": policy.waiting.packed(policy.dim, policy.notes)}
    return repr({name: value for name, value in tree.items() if name not in ("id", "journal")})


def both(make, parts=(1, 7, 2, 20)) -> tuple[list, list, Policy, Policy]:
    """The same rounds one by one and in parts, some with their rewards between two parts."""
    one, many = make(), make()
    asked, found, together = requests(one, ROUNDS), [], []
    coins = seeded(1).random(ROUNDS)
    at = 0
    for number, part in enumerate(parts):
        mine = [one.select(arms) for arms in asked[at : at + part]]
        theirs = many.select_many(asked[at : at + part])
        found, together, at = found + mine, together + list(theirs), at + part
        if number % 2 == 0:
            rewards = coins[at - part : at]
            for decision, reward in zip(mine, rewards, strict=True):
                one.update(decision, float(reward))
            many.update_many(theirs, rewards)
    return found, together, one, many


def told(decision) -> tuple:
    return decision.id, decision.index, decision.name, decision.arm.tolist()


@pytest.mark.parametrize("name", sorted(set(SMALL) - set(OF_PERSONS)))
def test_private_policies_choose_and_keep_what_they_do_one_by_one(name):
    """Bit by bit with one seed: draws, noise, releases, open decisions, sums."""
    found, together, one, many = both(lambda: small(name, rng=seeded(3), label="run", reward_range=(0.0, 1.0)))
    assert [told(a) for a in together] == [told(b) for b in found]
    assert many.releases == one.releases
    assert many.releases > 0 or name == "LDPArms"
    assert books(many) == books(one)
    # the probability of each is that of its own release
    assert [a.probability for a in together[:8]] == pytest.approx([b.probability for b in found[:8]], rel=1e-9)


REFERENCES = ["EpsilonGreedy", "GLBOMD", "LaplaceThompson", "LinearThompson", "OFUL", "Uniform", "MENU"]


@pytest.mark.parametrize("name", REFERENCES)
def test_reference_policies_choose_what_they_do_one_by_one(name):
    more = {"horizon": 40} if name == "MENU" else {}
    found, together, one, many = both(lambda: getattr(policies, name)(2, **more, rng=seeded(3), reward_range=(0, 1)))
    assert [told(a) for a in together] == [told(b) for b in found]
    assert books(many) == books(one)

"""A person's whole part in a run, audited in the shuffle and in the local model: all rounds of that person differ.

The score is the exact log-likelihood ratio of all that leaves the shuffler, or the devices. With a linear link a record
is (ω·u uᵀ, γ·u) of the arm and the reward alone, whatever was released before; so it is known in advance which records
a person sends in either run.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import white_box
from again import rewinder
from shuffled_counts import log_likelihood

from accounting import Budget, Gaussian, audit, epsilon, gdp
from dpbandits.policies import LDPGLM, ShuffleOnePassGLM
from dpkit.geometry import svec
from dpkit.shuffle import Analyzer
from dpkit.states.registry import Registry

# A sound mechanism is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE = 1 - 1e-9
BATCHES, USERS = 3, 2
EAST, WEST, SLANT = ([1.0, 0.0], 1.0), ([-1.0, 0.0], 1.0), ([-0.6, 0.8], -1.0)
# what the person does in its three rounds: the arm, and the reward, or None if it never comes
WORLDS: dict[str, list[Any]] = {
    "east": [EAST] * BATCHES,
    "west": [WEST] * BATCHES,
    "slanted": [SLANT] * BATCHES,
    "to and fro": [EAST, WEST, EAST],
    "half silent": [(EAST[0], None), WEST, EAST],
    "silent": [(EAST[0], None)] * BATCHES,
}


class Forgetful(Registry):
    """A broken one: it forgets the cap."""

    def _may(self, mark, batch):
        return True


def runs_of(policy, registry):
    """Returns what plays one run of a world: the person comes in every other round, and nobody else says anything."""
    again = rewinder(policy)

    def play(world: str) -> None:
        again()
        policy.persons = registry(policy.rounds_per_person)
        for t in range(BATCHES * USERS):
            if t % USERS:
                policy.select([[0.0, 1.0]], person=f"other {t}")
                continue
            arm, reward = WORLDS[world][t // USERS]
            decision = policy.select([arm], person="ann")
            if reward is not None:
                policy.update(decision, reward)
        policy.select([[0.0, 1.0]], person="last")

    return play


def record(policy, deed, a: float, c: float) -> np.ndarray:
    """What the person sends of a round, but for the noise."""
    x, r = np.array(deed[0]), deed[1]
    return np.zeros(5) if r is None else np.concatenate([a * svec(np.outer(x, x)), c * r * x])


# ------------------------------------------------------------------------------------------------------- shuffle


class Shuffled:
    """Runs of the shuffle policy; sums come out of its analyzer."""

    def __init__(self, monkeypatch, most: int, registry=Registry) -> None:
        self.policy = ShuffleOnePassGLM(
            2,
            "linear",
            budget=Budget(8.0, 1e-2, unit="person"),
            horizon=BATCHES * USERS + 1,
            first_batch=USERS,
            growth=1.0,
            base_rate=0.0,
            reward_range=(-1.0, 1.0),
            clip=1.0,
            gradient_share=0.99,
            rounds_per_person=most,
            rng=np.random.default_rng(31),
        )
        self.most = BATCHES if registry is Forgetful else most
        self.play = runs_of(self.policy, registry)
        self.outputs: list[np.ndarray] = []
        original = Analyzer.decode

        def decode(analyzer, *arguments):
            self.outputs.append(original(analyzer, *arguments))
            return self.outputs[-1]

        monkeypatch.setattr(Analyzer, "decode", decode)

    def told(self, world: str, trials: int) -> np.ndarray:
        self.outputs.clear()
        for _ in range(trials):
            self.play(world)
        return np.array(self.outputs).reshape(trials, BATCHES, -1)

    def log_likelihood(self, outputs: np.ndarray, world: str) -> np.ndarray:
        sums = self.policy.sums
        found = np.zeros(len(outputs))
        for j in range(self.most):
            sent = record(self.policy, WORLDS[world][j], *sums.scales)
            found += log_likelihood(sums.batches.protocols[j], outputs[:, j], sent)
        return found

    def distance(self, outputs: np.ndarray, one: str, other: str) -> float:
        """How far apart two worlds are, from runs of the one: mean log-likelihood ratios are half squared distances."""
        return math.sqrt(2 * np.mean(self.log_likelihood(outputs, one) - self.log_likelihood(outputs, other)))

    def lower_bound(self, one: str, other: str, trials: int) -> audit.LowerBound:
        return white_box.lower_bound(
            self.told,
            one,
            other,
            trials=trials,
            delta=1e-2,
            confidence=CONFIDENCE,
            score=lambda outputs: self.log_likelihood(outputs, one) - self.log_likelihood(outputs, other),
            middle=0.0,
            # counts under binomial noise are priced as Gaussian DP but for a tiny mass
        )


@pytest.mark.thorough
@pytest.mark.parametrize(("most", "trials"), [(2, 252), pytest.param(1, 4000, marks=pytest.mark.slow)])
def test_a_shuffled_person_shows_no_more_than_the_budget(monkeypatch, most, trials):
    """A person is a user of its first m batches, and of no other."""
    runs = Shuffled(monkeypatch, most)
    claim = float(runs.policy.privacy().epsilon)
    bound = runs.lower_bound("east", "west", trials)
    bound.check(claim)
    # and the audit is not blind: few trials cost it much of the true ε, which is above 0.8 of the claim (see below)
    assert bound.epsilon >= (0.1 if trials < 500 else 0.5) * claim


def test_no_other_pair_of_worlds_shows_more_than_opposite_arms(monkeypatch):
    """Those with null records among them, too."""
    runs = Shuffled(monkeypatch, 2)
    found = runs.told("east", 60)
    distances = {world: runs.distance(found, "east", world) for world in WORLDS}
    assert max(distances, key=lambda world: distances[world]) == "west"
    claim = float(runs.policy.privacy().epsilon)
    assert 0.8 * claim < epsilon(Gaussian(1.0 / distances["west"]), 1e-2) < 1.05 * claim


@pytest.mark.thorough
def test_a_shuffle_policy_that_forgets_the_cap_is_caught(monkeypatch):
    """Its worlds are √3 as far apart as they may be.

    Half the squared distance is 8.4, of 60 runs with a standard error of 0.55; 4.5 would be above the claim already.
    """
    runs = Shuffled(monkeypatch, 1, Forgetful)
    distance = runs.distance(runs.told("east", 60), "east", "west")
    assert epsilon(Gaussian(1.0 / distance), 1e-2) > 1.3 * float(runs.policy.privacy().epsilon)


# --------------------------------------------------------------------------------------------------------- local


class Local:
    """Runs of the local policy; every message is seen."""

    def __init__(self, most: int, registry=Registry) -> None:
        self.policy = LDPGLM(
            2,
            "linear",
            budget=Budget(8.0, 1e-2, unit="person"),
            horizon=BATCHES * USERS + 1,
            first_batch=USERS,
            growth=1.0,
            reward_range=(-1.0, 1.0),
            randomizer="gaussian",
            gradient_share=0.99,
            rounds_per_person=most,
            rng=np.random.default_rng(32),
        )
        self.play = runs_of(self.policy, registry)
        self.sent: list[np.ndarray] = []
        self.messages: list[np.ndarray] = []
        original = self.policy.sums.randomized

        def randomize(record):
            self.sent.append(np.array(record))
            self.messages.append(original(record))
            return self.messages[-1]

        self.policy.sums.randomized = randomize

    def records(self, world: str) -> np.ndarray:
        """What is randomized, one after the other."""
        self.sent.clear()
        self.play(world)
        return np.concatenate(self.sent)

    def shift(self, one: str, other: str) -> np.ndarray:
        """How far apart the messages of two worlds are, in standard deviations of the noise."""
        return (self.records(one) - self.records(other)) / self.policy.sums.std

    def told(self, world: str, trials: int) -> np.ndarray:
        self.messages.clear()
        for _ in range(trials):
            self.play(world)
        return np.array(self.messages).reshape(trials, -1)

    def lower_bound(self, one: str, other: str, trials: int) -> audit.LowerBound:
        shift = self.shift(one, other)
        return white_box.lower_bound(
            self.told,
            one,
            other,
            trials=trials,
            delta=1e-2,
            confidence=CONFIDENCE,
            score=lambda outputs: outputs @ shift,
            middle=0.5 * float((self.records(one) + self.records(other)) @ shift),
        )


@pytest.mark.thorough
@pytest.mark.parametrize("most", [1, 2])
def test_a_persons_messages_show_no_more_than_the_budget(most):
    """Also no two worlds are farther apart than the price; when a person sends is not protected, as for one round."""
    runs = Local(most)
    claim = gdp(runs.policy.sums.cost)
    talkative = ["east", "west", "slanted", "to and fro"]
    distance, worst = max(
        (float(np.linalg.norm(runs.shift(one, other))), (one, other))
        for one in talkative
        for other in talkative
        if one < other
    )
    assert 0.9 * claim < distance <= claim * (1 + 1e-9)
    if most == 2:
        bound = runs.lower_bound(*worst, 306)
        bound.check(float(runs.policy.privacy().epsilon))
        assert bound.epsilon >= 0.15 * runs.policy.privacy().epsilon  # and the audit is not blind


def test_a_device_that_forgets_the_cap_is_caught():
    runs = Local(1, Forgetful)
    distance = float(np.linalg.norm(runs.shift("east", "west")))
    assert epsilon(Gaussian(1.0 / distance), 1e-2) > 1.5 * float(runs.policy.privacy().epsilon)

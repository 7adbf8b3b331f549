"""What a private policy releases is a function of noisy whole numbers, bit by bit, whatever it was told.

Every mechanism that a policy draws noise with has one outlet, where secrets have become whole numbers with noise: of
continual sums, of the Gaussian mechanism, of sums over persons, counts of shuffled bits, the corner that a noisy
comparison names, and the report of a device. Here the outlets of a policy that was told other rewards let out the
numbers of the first policy. Then
what is public has to be the same, to the last bit: nothing reaches it past the outlets, in low bits or otherwise. That
the numbers themselves have the law of the stated cost is the business of the mechanisms' own tests.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from private_policies import SMALL, offered, small

from dpbandits.private.parts import corners
from dpkit.continual._noise import Ahead
from dpkit.mechanisms import additive
from dpkit.moments import arm_batches
from dpkit.moments.local import PairMessages
from dpkit.moments.pairs import PairSums
from dpkit.moments.people import PersonSums
from dpkit.moments.reports import Reports
from dpkit.randomness import generator
from dpkit.shuffle import Shuffler, vector_sum
from dpkit.states.entries import plain

ROUNDS = 25
OUTLETS = [
    (Ahead, "add_to"),
    (Ahead, "one"),
    (additive, "from_lattice"),
    (PersonSums, "_noised"),
    (Shuffler, "shuffle_tallies"),
    (corners, "report_noisy_max"),
    (PairMessages, "randomized"),
    (arm_batches, "from_lattice"),
    (Reports, "draw"),
]


class Tape:
    """What the outlets let out, recorded, and then played again."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, object]] = []
        self.playing = False
        self.differed = 0

    def through(self, name, outlet):
        def call(*arguments, **more):
            out = outlet(*arguments, **more)
            if name == "from_lattice":  # multiples of a public step
                out, step = arguments
            if not self.playing:
                self.recorded.append((name, np.copy(out) if isinstance(out, np.ndarray) else out))
                return out if name != "from_lattice" else outlet(out, step)
            was, before = self.recorded.pop(0)
            assert was == name
            assert np.shape(before) == np.shape(out)
            self.differed += not np.array_equal(before, out)
            return before if name != "from_lattice" else outlet(before, step)

        return call


@pytest.fixture
def outlets(monkeypatch) -> Tape:
    tape = Tape()
    for owner, name in OUTLETS:
        monkeypatch.setattr(owner, name, tape.through(name, getattr(owner, name)))
    return tape


def played(name: str, reward: float, monkeypatch):
    """A policy after some rounds with these rewards, with the secure source's algorithms on bits that repeat."""
    bits = np.random.default_rng(7)
    monkeypatch.setattr(generator, "random_bytes", bits.bytes)
    monkeypatch.setattr(vector_sum, "drawn_session", lambda session: "session")  # its name is random, too
    policy = small(name, rng=generator.SecureGenerator())
    for _ in range(ROUNDS):
        policy.update(policy.select(offered(policy)), reward)
    policy.settle()
    found = json.loads(policy.released().to_json())
    assert found["releases"] > 0
    # what choices read, and all else that is public: the sums themselves, and what was found out about them
    return found["public"], json.dumps(plain(policy.public), default=lambda array: array.tolist())


@pytest.mark.parametrize("name", SMALL)
def test_what_is_public_is_a_function_of_noisy_whole_numbers(name, outlets, monkeypatch):
    first = played(name, 1.0, monkeypatch)
    for outlet, out in outlets.recorded:
        if outlet == "randomized":  # a vector and its opposite are what a device can send, whatever it was told
            continue
        whole = np.frombuffer(out, np.uint8) if isinstance(out, bytes) else np.asarray(out)
        assert whole.dtype.kind in "iu", outlet
    outlets.playing = True
    assert played(name, 0.0, monkeypatch) == first
    assert not outlets.recorded
    assert outlets.differed > 0  # by the rewards, or the test would say nothing


def test_what_passes_by_the_outlets_is_found(outlets, monkeypatch):
    release = PairSums.release

    def leaking(self):
        told = float(self.batch[-1].sum()) > 0
        released = release(self)
        return replace(released, b=released.b * (1 + told * 2.0**-50))

    monkeypatch.setattr(PairSums, "release", leaking)
    first = played("OnePassPrivateGLM", 1.0, monkeypatch)
    outlets.playing = True
    assert played("OnePassPrivateGLM", 0.0, monkeypatch) != first

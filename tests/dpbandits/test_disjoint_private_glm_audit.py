"""A private policy with a parameter per arm audited end to end, by the exact log-likelihood ratio.

What leaves of a stream is A·C⁻¹(C·x + σζ) for the stream x of batch sums, A the running sum; C·A⁻¹ applied to it gives
back C·x + σζ, independent Gaussians around two known means.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import white_box
from again import rewinder
from factors import toeplitz_factor

from accounting import Budget, audit
from dpbandits.policies import DisjointPrivateGLM
from dpbandits.private.parts.disjoint import Refit
from dpkit.continual import BufferedToeplitz
from dpkit.moments.blocks import BlockSums, block_record

BUDGET = Budget(8.0, 1e-2)
TRIALS = 340
ROUNDS = 3
# A sound mechanism is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE = 1 - 1e-9
Z = np.array([1.0, 0.0])


def noise_times(monkeypatch, factor: float) -> None:
    """Every stream that starts from now on has that much of its noise."""
    original = BlockSums._start_stream

    def start(self, blocks):
        right = self.sensitivity
        self.sensitivity = factor * right
        original(self, blocks)
        self.sensitivity = right

    monkeypatch.setattr(BlockSums, "_start_stream", start)


@pytest.fixture(autouse=True)
def without_a_fit(monkeypatch):
    """The audits look at what is released; what is computed from it takes most of the time."""
    monkeypatch.setattr(Refit, "__call__", lambda self, known, *_: known)


@pytest.mark.parametrize(("noise", "sound", "late"), [(1.0, True, False), (0.5, False, False), (1.0, True, True)])
def test_one_round_shows_no_more_than_the_budget(monkeypatch, noise, sound, late):
    """One context, opposite rewards. With half the noise the audit finds a lower bound above the claim."""
    noise_times(monkeypatch, noise)
    policy = DisjointPrivateGLM(
        2, ["a"], budget=BUDGET, horizon=ROUNDS, first_batch=1, growth=1.0, rng=np.random.default_rng(20)
    )
    if late:
        policy.add_arm("b")
        policy.retire_arm("a")
    start_again = rewinder(policy)
    collected: list[np.ndarray] = []
    original = BufferedToeplitz.add
    monkeypatch.setattr(BufferedToeplitz, "add", lambda self, x: (y := original(self, x), collected.append(y))[0])

    def runs(reward: float, trials: int) -> np.ndarray:
        collected.clear()
        for _ in range(trials):
            start_again()
            policy.update(policy.select(Z), reward)
            for _ in range(ROUNDS - 1):
                policy.select([0.0, 1.0])
        return np.array(collected).reshape(trials, -1)

    streams, m = 2 if late else 1, ROUNDS - 1
    first = block_record(Z[None], np.array([0.5]), 1.0)[0] - block_record(Z[None], np.array([-0.5]), 1.0)[0]
    C = toeplitz_factor(policy.sums.streams[0].coefficients)
    decode = C @ np.linalg.inv(np.tril(np.ones((m, m))))
    direction = C[:, 0][:, None] * first

    def score(outputs: np.ndarray) -> np.ndarray:
        # releases, and in each the streams one after the other; all streams have one block here
        mine = outputs.reshape(len(outputs), m, streams, -1)[:, :, -1]
        return np.einsum("ij,njk,ik->n", decode, mine, direction)

    bound = white_box.lower_bound(
        runs,
        1.0,
        0.0,
        trials=TRIALS,
        delta=BUDGET.delta,
        confidence=CONFIDENCE,
        score=score,
    )
    claim = float(policy.privacy().epsilon)
    if sound:
        bound.check(claim)
        assert bound.epsilon >= 0.25 * claim  # and not because it sees nothing
    else:
        with pytest.raises(audit.PrivacyViolation):
            bound.check(claim)


def test_the_pair_is_nearly_the_worst_one():
    policy = DisjointPrivateGLM(2, ["a"], budget=BUDGET, horizon=ROUNDS)
    distance = np.linalg.norm(np.subtract(*(block_record(Z[None], np.array([g]), 1.0)[0] for g in (0.5, -0.5))))
    # contexts at an angle, whose matrices differ as well, are up to 1.028 apart
    assert 0.96 * policy.sums.sensitivity <= distance <= policy.sums.sensitivity


def test_another_arm_shows_no_more_than_the_budget(monkeypatch):
    """Contexts that lead to two arms in two streams, by the exact ratio over both."""
    policy = DisjointPrivateGLM(
        2, ["a"], budget=BUDGET, horizon=ROUNDS, first_batch=1, growth=1.0, rng=np.random.default_rng(21)
    )
    policy.add_arm("b")
    start_again = rewinder(policy)
    collected: list[np.ndarray] = []
    original = BufferedToeplitz.add
    monkeypatch.setattr(BufferedToeplitz, "add", lambda self, x: (y := original(self, x), collected.append(y))[0])
    # what the context leads to
    monkeypatch.setattr(DisjointPrivateGLM, "score", lambda self, z: np.array([z[0], -z[0]]))

    def runs(context: tuple[float, float], trials: int) -> np.ndarray:
        collected.clear()
        for _ in range(trials):
            start_again()
            policy.update(policy.select(context), 1.0)
            for _ in range(ROUNDS - 1):
                policy.select([0.0, 1.0])
        return np.array(collected).reshape(trials, -1)

    m = ROUNDS - 1
    one, two = (block_record(np.array([[s, 0.0]]), np.array([0.5]), 1.0)[0] for s in (1.0, -1.0))
    C = toeplitz_factor(policy.sums.streams[0].coefficients)
    decode = C @ np.linalg.inv(np.tril(np.ones((m, m))))
    direction = C[:, 0][:, None, None] * np.stack([one, -two])

    def score(outputs: np.ndarray) -> np.ndarray:
        return np.einsum("ij,njsk,isk->n", decode, outputs.reshape(len(outputs), m, 2, -1), direction)

    bound = white_box.lower_bound(
        runs, (1.0, 0.0), (-1.0, 0.0), trials=TRIALS, delta=BUDGET.delta, confidence=CONFIDENCE, score=score,
    )  # fmt: skip
    claim = float(policy.privacy().epsilon)
    bound.check(claim)
    # two records in blocks of their own are √0.90 apart, of 1.04: that much of the claim shows
    assert math.isfinite(bound.epsilon)
    assert bound.epsilon > 0.15 * claim

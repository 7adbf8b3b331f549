"""A private policy with a parameter per arm audited end to end, by the exact log-likelihood ratio.

What leaves of a stream is A·C⁻¹(C·x + σζ) for the stream x of batch sums, A the running sum; C·A⁻¹ applied to it gives
back C·x + σζ, independent Gaussians around two known means.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import white_box
from again import rewinder
from factors import toeplitz_factor
from tossed import Tossed, released_by

from accounting import Budget, audit
from dpbandits.policies import DisjointPrivateGLM
from dpbandits.private.parts.disjoint import Refit
from dpkit.continual import BufferedToeplitz
from dpkit.moments.blocks import block_record

BUDGET = Budget(8.0, 1e-2)
TRIALS = 340
ROUNDS = 3
# A sound mechanism is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE = 1 - 1e-9
Z = np.array([1.0, 0.0])


@pytest.fixture(autouse=True)
def without_a_fit(monkeypatch):
    """The audits look at what is released; what is computed from it takes most of the time."""
    monkeypatch.setattr(Refit, "__call__", lambda self, known, *_: known)


def made(**more) -> DisjointPrivateGLM:
    known = {"budget": BUDGET, "horizon": ROUNDS, "first_batch": 1, "growth": 1.0, "rng": np.random.default_rng(20)}
    return DisjointPrivateGLM(2, ["a"], **(known | more))


@pytest.mark.thorough
def test_one_round_shows_no_more_than_the_budget_and_half_the_noise_is_caught(monkeypatch):
    """One context, opposite rewards. With half the noise the audit finds a lower bound above the claim."""
    policy, m = made(), ROUNDS - 1
    (stream,) = policy.sums.streams
    start_again, collected = rewinder(policy), released_by(monkeypatch, BufferedToeplitz)

    def play(coins) -> np.ndarray:
        collected.clear()
        start_again()
        for coin in coins:
            policy.update(policy.select(Z), float(coin))
        policy.select(Z)  # which releases what was told before
        return np.array(collected)

    runs = Tossed(play, stream, toeplitz_factor(stream.coefficients), m, TRIALS)
    claim = float(policy.privacy().epsilon)
    for changed in range(m):
        assert runs.distance(changed) <= 1.0 / policy.sums.noise_multiplier
        bound = runs.lower_bound(changed, BUDGET)
        bound.check(claim)
        assert bound.epsilon >= 0.25 * claim  # and not because it sees nothing
        with pytest.raises(audit.PrivacyViolation):
            runs.lower_bound(changed, BUDGET, noise=0.5).check(claim)


def test_the_pair_is_nearly_the_worst_one():
    policy = made()
    distance = np.linalg.norm(np.subtract(*(block_record(Z[None], np.array([g]), 1.0)[0] for g in (0.5, -0.5))))
    # contexts at an angle, whose matrices differ as well, are up to 1.028 apart
    assert 0.96 * policy.sums.sensitivity <= distance <= policy.sums.sensitivity


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("one", "other", "least"),
    [
        # two records in blocks of their own are √0.90 apart, of 1.04: that much of the claim shows
        pytest.param((1.0, 1.0), (-1.0, 1.0), 0.15, id="another arm"),
        pytest.param((-1.0, 1.0), (-1.0, 0.0), 0.25, id="another reward of an arm that came later"),
    ],
)
def test_two_streams_show_no_more_than_the_budget(monkeypatch, one, other, least):
    """A first context s·(1, 0) leads to the arm a or to b, which came later, by the exact ratio over both streams."""
    policy, m = made(rng=np.random.default_rng(21)), ROUNDS - 1
    policy.add_arm("b")
    start_again, collected = rewinder(policy), released_by(monkeypatch, BufferedToeplitz)
    # what the context leads to
    monkeypatch.setattr(DisjointPrivateGLM, "score", lambda self, z: np.array([z[0], -z[0]]))

    def runs(told: tuple[float, float], trials: int) -> np.ndarray:
        collected.clear()
        for _ in range(trials):
            start_again()
            policy.update(policy.select([told[0], 0.0]), told[1])
            for _ in range(m):
                policy.select([0.0, 1.0])
        return np.array(collected).reshape(trials, m, 2, -1)

    def records(told: tuple[float, float]) -> np.ndarray:
        return np.outer([told[0] > 0, told[0] < 0], block_record(told[0] * Z[None], np.array([told[1] - 0.5]), 1.0)[0])

    C = toeplitz_factor(policy.sums.streams[0].coefficients)
    decode = C @ np.linalg.inv(np.tril(np.ones((m, m))))
    direction = C[:, 0][:, None, None] * (records(one) - records(other))
    score = functools.partial(np.einsum, "ij,njsk,isk->n", decode)
    bound = white_box.lower_bound(
        runs, one, other, trials=TRIALS, delta=BUDGET.delta, confidence=CONFIDENCE,
        score=lambda outputs: score(outputs, direction),
    )  # fmt: skip
    claim = float(policy.privacy().epsilon)
    bound.check(claim)
    assert math.isfinite(bound.epsilon)
    assert bound.epsilon > least * claim

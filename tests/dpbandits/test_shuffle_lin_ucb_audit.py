"""Shuffle-private LinUCB audited end to end: two runs that differ in one round, through the counts that leave."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import white_box
from again import rewinder
from shuffled_counts import log_likelihood

from accounting import Budget, audit
from dpbandits.policies import ShuffleLinUCB
from dpkit.geometry import svec
from dpkit.shuffle import Analyzer

BUDGET = Budget(8.0, 1e-2)
USERS = 2
# A sound mechanism is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE = 1 - 1e-9
# rounds that differ: the arm set of one arm, and the reward
OPPOSITE = (([1.0, 0.0], 1.0), ([-1.0, 0.0], 1.0))
ANOTHER = (([1.0, 0.0], 1.0), ([0.0, 1.0], 0.0))


def policy_with(horizon: int, **parameters) -> ShuffleLinUCB:
    return ShuffleLinUCB(2, budget=BUDGET, horizon=horizon, growth=10.0, rng=np.random.default_rng(20), **parameters)


def lower_bound(monkeypatch, pair, bits: float, trials: int) -> tuple[audit.LowerBound, float]:
    """From the sums of the first batch; the other users of it never get a reward. Also the claim."""
    policy = policy_with(USERS + 1, first_batch=USERS)
    (protocol,) = policy.sums.batches.protocols
    policy.sums.batches.protocols[0] = protocol = replace(protocol, noise_bits=math.ceil(bits * protocol.noise_bits))
    start_again = rewinder(policy)
    collected: list[np.ndarray] = []
    original = Analyzer.decode

    def decode(self, *arguments):
        collected.append(original(self, *arguments))
        return collected[-1]

    monkeypatch.setattr(Analyzer, "decode", decode)

    def runs(first, trials: int) -> np.ndarray:
        collected.clear()
        for _ in range(trials):
            start_again()
            policy.update(policy.select([first[0]]), first[1])
            for _ in range(USERS):
                policy.select([[0.0, 1.0]])
        return np.array(collected)

    def record(first) -> np.ndarray:
        x, r = np.array(first[0]), first[1]
        return np.concatenate([policy.sums.scales[0] * svec(np.outer(x, x)), policy.sums.scales[1] * r * x])

    def score(outputs: np.ndarray) -> np.ndarray:
        return log_likelihood(protocol, outputs, record(pair[0])) - log_likelihood(protocol, outputs, record(pair[1]))

    bound = white_box.lower_bound(
        runs,
        *pair,
        trials=trials,
        delta=BUDGET.delta,
        confidence=CONFIDENCE,
        score=score,
        middle=0.0,
        # counts under binomial noise are priced as Gaussian DP but for a mass below 1e-27
    )
    return bound, float(policy.privacy().epsilon)


@pytest.mark.parametrize("pair", [OPPOSITE, ANOTHER])
def test_one_round_shows_no_more_than_the_budget(monkeypatch, pair):
    bound, claim = lower_bound(monkeypatch, pair, 1.0, 252)
    bound.check(claim)
    # and the audit is not blind, though another arm and no reward moves the sums by 0.6 of the sensitivity only
    assert bound.epsilon >= 0.1 * claim


def test_a_quarter_of_the_noise_bits_is_caught(monkeypatch):
    bound, claim = lower_bound(monkeypatch, OPPOSITE, 0.25, 297)
    with pytest.raises(audit.PrivacyViolation):
        bound.check(claim)


@pytest.mark.slow
@pytest.mark.parametrize(("pair", "bits"), [(OPPOSITE, 1.0), (ANOTHER, 1.0), (OPPOSITE, 0.6)])
def test_one_round_in_full(monkeypatch, pair, bits):
    bound, claim = lower_bound(monkeypatch, pair, bits, 10_000)
    if bits == 1.0:
        bound.check(claim)
        assert bound.epsilon >= 0.3 * claim
    else:
        with pytest.raises(audit.PrivacyViolation):
            bound.check(claim)

"""ShuffleOnePassGLM and ShuffleLinUCB audited end to end: two runs that differ in one round.

The score is the exact log-likelihood ratio of the counts that leave the shuffler.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import white_box
from again import rewinder
from shuffled_counts import log_likelihood

from accounting import Budget, audit
from dpbandits.policies import ShuffleLinUCB, ShuffleOnePassGLM
from dpkit.geometry import pair_sensitivity, svec
from dpkit.shuffle import Analyzer

BUDGET = Budget(8.0, 1e-2)
USERS = 2
# A sound mechanism is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE = 1 - 1e-9
# rounds that differ: the arm set of one arm, and the reward
ONE, OPPOSITE = ((1.0, 0.0), 1.0), ((-1.0, 0.0), 1.0)
ANOTHER = {ShuffleOnePassGLM: ((-0.5, math.sqrt(0.75)), 1.0), ShuffleLinUCB: ((0.0, 1.0), 0.0)}
# the weight of x xᵀ in the first batch, and what a reward is less the base rate
FORMED = {ShuffleOnePassGLM: (0.25, 0.5), ShuffleLinUCB: (1.0, 0.5)}
KINDS = list(FORMED)


def lower_bounds(monkeypatch, kind, bits: float, trials: int, *others, A=None) -> tuple[list[audit.LowerBound], float]:
    """From the sums of the first batch; the other users of it never get a reward. Also the claim.

    Of ``ONE`` and each of the others.

    With A, that is the metric of the batch.
    """
    known = {"budget": BUDGET, "horizon": USERS + 1, "growth": 10.0, "first_batch": USERS}
    policy = kind(2, **known, rng=np.random.default_rng(20))
    (protocol,) = policy.sums.batches.protocols
    protocol = replace(protocol, noise_bits=math.ceil(bits * protocol.noise_bits))
    policy.sums.batches.protocols[0] = protocol
    if A is not None:
        policy.public = replace(policy.public, later=A)
    start_again = rewinder(policy)
    collected: list[np.ndarray] = []
    original = Analyzer.decode

    def decode(self, *arguments):
        collected.append(original(self, *arguments))
        return collected[-1]

    monkeypatch.setattr(Analyzer, "decode", decode)

    @cache
    def runs(first, trials: int) -> np.ndarray:
        collected.clear()
        for _ in range(trials):
            start_again()
            policy.update(policy.select([list(first[0])]), first[1])
            for _ in range(USERS):
                policy.select([[0.0, 1.0]])
        return np.array(collected)

    def record(first) -> np.ndarray:
        x, (weight, rate), (a, c) = np.array(first[0]), FORMED[kind], policy.sums.scales
        if A is not None:
            assert np.linalg.norm(A @ x) == pytest.approx(1.0)  # so that ψ is 1, as it is without A
            x = A @ x
        formed = np.concatenate([a * weight * svec(np.outer(x, x)), c * (first[1] - rate) * x])
        if kind is ShuffleLinUCB:
            return formed
        # the level's number beside it, a tenth of the squared sensitivity, which is all that may move in these pairs
        secant = policy.record.levels.base
        apart = pair_sensitivity(a, secant.W, c, secant.B, BUDGET.adjacency, least=policy.record.levels.least)
        return np.append(math.sqrt(1.0 - 0.075) * formed, math.sqrt(0.1) * apart * (first[1] - 0.5))

    def likelihood(outputs: np.ndarray, first) -> np.ndarray:
        return log_likelihood(protocol, outputs, record(first))

    # counts under binomial noise are priced as Gaussian DP but for a mass below 1e-27
    known = {"trials": trials, "delta": BUDGET.delta, "confidence": CONFIDENCE, "middle": 0.0}
    found = [
        white_box.lower_bound(
            runs, ONE, other, **known, score=lambda seen, other=other: likelihood(seen, ONE) - likelihood(seen, other)
        )
        for other in others
    ]
    return found, float(policy.privacy().epsilon)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("trials", "least"), [(252, (0.1, 0.1)), pytest.param(10_000, (0.6, 0.3), marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_one_round_shows_no_more_than_the_budget(monkeypatch, kind, trials, least):
    bounds, claim = lower_bounds(monkeypatch, kind, 1.0, trials, OPPOSITE, ANOTHER[kind])
    for bound in bounds:
        bound.check(claim)
        assert bound.epsilon >= least[KINDS.index(kind)] * claim  # and the audit is not blind


@pytest.mark.thorough
def test_one_round_shows_no_more_in_another_metric(monkeypatch):
    A = np.array([[0.8, 0.6], [0.6, 1.5]])
    (bound,), claim = lower_bounds(monkeypatch, ShuffleOnePassGLM, 1.0, 252, OPPOSITE, A=A)
    bound.check(claim)
    assert bound.epsilon >= 0.1 * claim


def test_a_record_that_is_cut_before_the_metric_is_refused():
    """A device that forms its record of x and maps it then would send up to ‖A‖² times as much."""
    policy = ShuffleOnePassGLM(2, budget=BUDGET, horizon=3, first_batch=2, rng=np.random.default_rng(20))
    x = np.array([0.6, 0.8])
    pair = policy.record.levels.base.weigh(x, 0.0, 1.0)
    policy.sums.add(x, *pair, 0)
    with pytest.raises(ValueError, match=r"‖x‖² must be from 0"):
        policy.sums.add(np.diag([3.0, 1.0]) @ x, *pair, 0)


@pytest.mark.thorough
@pytest.mark.parametrize(("bits", "trials"), [(0.25, 297), pytest.param(0.6, 10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_quarter_of_the_noise_bits_is_caught(monkeypatch, kind, bits, trials):
    """Three fifths, which is noise of 0.77, are seen by more runs."""
    (bound,), claim = lower_bounds(monkeypatch, kind, bits, trials, OPPOSITE)
    with pytest.raises(audit.PrivacyViolation):
        bound.check(claim)

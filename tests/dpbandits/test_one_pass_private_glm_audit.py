"""The private policy audited end to end: two runs that differ in one round, through everything that was released.

The score is the exact log-likelihood ratio. What leaves is A·C⁻¹(C·x + σζ) for the stream x of batch sums, A the
running sum; C·A⁻¹ applied to the released sums gives back C·x + σζ, independent Gaussians around two known means.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import white_box
from again import rewinder
from factors import scale_noise

from accounting import Budget, audit
from dpbandits.policies import OnePassPrivateGLM
from dpkit.continual import ContinualSum

BUDGET = Budget(8.0, 1e-2)
TRIALS = 340
ROUNDS = 5
# A sound mechanism is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE = 1 - 1e-9


def released_sums(monkeypatch, noise: float):
    """Returns ``runs(round, trials)``: the flattened released sums of ``trials`` runs, and the policy they come from.

    The round (arm, reward) is the first; the others show one arm and never get a reward, so that the two runs differ
    in one round only. clip = 0.5 makes the records of opposite arms and equal rewards nearly as far apart as allowed.
    """
    policy = OnePassPrivateGLM(
        2,
        budget=BUDGET,
        horizon=ROUNDS,
        first_batch=1,
        growth=1.0,
        clip=0.5,
        gradient_share=0.75,
        rng=np.random.default_rng(20),
    )
    scale_noise(policy._sums.sums, noise)
    start_again = rewinder(policy)
    collected: list[np.ndarray] = []
    original = ContinualSum.add

    def add(self, x):
        estimate = original(self, x)
        collected.append(estimate)
        return estimate

    monkeypatch.setattr(ContinualSum, "add", add)

    def runs(first: tuple[list[float], float], trials: int) -> np.ndarray:
        collected.clear()
        for _ in range(trials):
            start_again()
            policy.update(policy.select([first[0]]), first[1])
            for _ in range(ROUNDS - 1):
                policy.select([[0.0, 1.0]])
        return np.array(collected).reshape(trials, -1)

    return policy, runs


def exact_score(policy: OnePassPrivateGLM, arm: list[float], other: list[float]):
    """ln p(outputs | arm) − ln p(outputs | other), both with reward 1, up to a constant and a positive factor."""
    x, y = np.array(arm), np.array(other)
    half = len(x) * (len(x) + 1) // 2
    first = np.concatenate([np.zeros(half), policy._sums._c * 0.5 * (x - y)])  # w·x xᵀ is the same for x and −x
    m = ROUNDS - 1
    C = policy._sums.sums.factor
    decode = C @ np.linalg.inv(np.tril(np.ones((m, m))))
    direction = C[:, 0][:, None] * first  # the shift of C·x

    def score(outputs: np.ndarray) -> np.ndarray:
        return np.einsum("ij,njk,ik->n", decode, outputs.reshape(len(outputs), m, -1), direction)

    return score


@pytest.mark.parametrize(("noise", "sound"), [(1.0, True), (0.5, False)])
def test_one_round_shows_no_more_than_the_budget(monkeypatch, noise, sound):
    """Opposite arms with the same reward. With half the noise the audit finds a lower bound above the claim."""
    policy, runs = released_sums(monkeypatch, noise)
    arm, other = [1.0, 0.0], [-1.0, 0.0]
    bound = white_box.lower_bound(
        lambda first, trials: runs((first, 1.0), trials),
        arm,
        other,
        trials=TRIALS,
        delta=BUDGET.delta,
        confidence=CONFIDENCE,
        score=exact_score(policy, arm, other),
    )
    claim = float(policy.privacy().epsilon)
    if sound:
        bound.check(claim)
        assert bound.epsilon >= 0.15 * claim  # and the audit is not blind
    else:
        with pytest.raises(audit.PrivacyViolation):
            bound.check(claim)


def test_the_pair_is_nearly_the_worst_one():
    policy = OnePassPrivateGLM(2, budget=BUDGET, horizon=ROUNDS, clip=0.5, gradient_share=0.75)
    distance, sensitivity = 2 * policy._sums._c * 0.5, policy._sums.sums.sensitivity
    assert 0.9 * sensitivity <= distance <= sensitivity


def test_later_choices_show_no_more_than_the_budget(monkeypatch):
    """Black box: what the next rounds choose, among arms in many directions, seen by a trained classifier."""
    angles = np.linspace(0, 2 * math.pi, 12, endpoint=False)
    fan = np.column_stack([np.cos(angles), np.sin(angles)]) * 0.999
    policy = OnePassPrivateGLM(
        2, budget=BUDGET, horizon=4, first_batch=1, growth=1.0, clip=0.5, ridge=0.1, rng=np.random.default_rng(3)
    )
    start_again = rewinder(policy)

    def choices(arm: list[float], trials: int) -> np.ndarray:
        chosen = np.zeros((trials, 3, 12))
        for i in range(trials):
            start_again()
            policy.update(policy.select([arm]), 1.0)
            for t in range(3):
                chosen[i, t, policy.select(fan).index] = 1.0
        return chosen.reshape(trials, -1)

    # the curve of Gaussian DP holds of all that is made of sums, and without it no bound of so few runs passes 3
    known = {"delta": BUDGET.delta, "confidence": CONFIDENCE, "batched": True, "gaussian": True}
    bound = audit.lower_bound(choices, [1.0, 0.0], [-1.0, 0.0], trials=440, **known)
    bound.check(float(policy.privacy().epsilon))
    assert bound.epsilon > 0.3  # the choices do show something

"""The private policy audited end to end: two runs that differ in one round, through everything that was released.

The score is the exact log-likelihood ratio. What leaves is A·C⁻¹(C·x + σζ) for the stream x of batch sums, A the
running sum; C·A⁻¹ applied to the released sums gives back C·x + σζ, independent Gaussians around two known means.
"""

from __future__ import annotations

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
# The round in which the runs differ: the first one, or the one before the last release, of which only the noise that is
# drawn last hides anything.
FIRST, LATER = 0, ROUNDS - 2
# A sound mechanism is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE = 1 - 1e-9


def released_sums(monkeypatch, noise: float, changed: int):
    """Returns ``runs(round, trials)``: the flattened released sums of ``trials`` runs, and the policy they come from.

    One round (arm, reward) is ``changed``; the others show one arm and never get a reward, so that the two runs differ
    in one round only. With that much ridge θ stays at 0, and clip = 0.5 makes the records of opposite arms and equal
    rewards nearly as far apart as allowed.
    """
    policy = OnePassPrivateGLM(
        2,
        budget=BUDGET,
        horizon=ROUNDS,
        first_batch=1,
        growth=1.0,
        clip=0.5,
        gradient_share=0.75,
        ridge=1e9,
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

    def runs(told: tuple[list[float], float], trials: int) -> np.ndarray:
        collected.clear()
        for _ in range(trials):
            start_again()
            for t in range(ROUNDS):
                decision = policy.select([told[0] if t == changed else [0.0, 1.0]])
                if t == changed:
                    policy.update(decision, told[1])
        return np.array(collected).reshape(trials, -1)

    return policy, runs


def exact_score(policy: OnePassPrivateGLM, arm: list[float], other: list[float], changed: int):
    """ln p(outputs | arm) − ln p(outputs | other), both with reward 1, up to a constant and a positive factor."""
    x, y = np.array(arm), np.array(other)
    half = len(x) * (len(x) + 1) // 2
    moved = np.concatenate([np.zeros(half), policy._sums._c * 0.5 * (x - y)])  # w·x xᵀ is the same for x and −x
    m = ROUNDS - 1
    C = policy._sums.sums.factor
    decode = C @ np.linalg.inv(np.tril(np.ones((m, m))))
    direction = C[:, changed][:, None] * moved  # the shift of C·x

    def score(outputs: np.ndarray) -> np.ndarray:
        return np.einsum("ij,njk,ik->n", decode, outputs.reshape(len(outputs), m, -1), direction)

    return score


@pytest.mark.parametrize(
    ("noise", "changed", "sound"),
    [(1.0, FIRST, True), (1.0, LATER, True), (0.5, LATER, False)],
)
def test_one_round_shows_no_more_than_the_budget(monkeypatch, noise, changed, sound):
    """Opposite arms with the same reward. With half the noise the audit finds a lower bound above the claim."""
    policy, runs = released_sums(monkeypatch, noise, changed)
    arm, other = [1.0, 0.0], [-1.0, 0.0]
    bound = white_box.lower_bound(
        lambda first, trials: runs((first, 1.0), trials),
        arm,
        other,
        trials=TRIALS,
        delta=BUDGET.delta,
        confidence=CONFIDENCE,
        score=exact_score(policy, arm, other, changed),
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

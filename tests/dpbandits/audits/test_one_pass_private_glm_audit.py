"""The private policy audited end to end: runs that differ in one round, through everything that was released.

The score is the exact log-likelihood ratio. What leaves is A·C⁻¹(C·x + σζ) for the stream x of batch sums, A the
running sum; C·A⁻¹ applied to the released sums gives back C·x + σζ, independent Gaussians around two known means.
"""

from __future__ import annotations

import numpy as np
import pytest
from again import rewinder
from tossed import Tossed, released_by

from accounting import Budget, audit
from dpbandits.policies import OnePassPrivateGLM
from dpkit.continual import ContinualSum

BUDGET = Budget(8.0, 1e-2)
TRIALS = 340
ROUNDS = 4


def played(monkeypatch) -> tuple[OnePassPrivateGLM, Tossed]:
    """Every round shows one arm or its opposite, with the same reward.

    With that much ridge θ stays at 0, and clip = 0.5 makes the records of opposite arms and equal rewards nearly as far
    apart as allowed.
    """
    policy = OnePassPrivateGLM(
        2, budget=BUDGET, horizon=ROUNDS, first_batch=1, growth=1.0, clip=0.5, gradient_share=0.75, ridge=1e9,
        rng=np.random.default_rng(20),
    )  # fmt: skip
    start_again = rewinder(policy)
    collected = released_by(monkeypatch, ContinualSum)

    def play(coins) -> np.ndarray:
        collected.clear()
        start_again()
        for coin in coins:
            policy.update(policy.select([[1.0 - 2.0 * coin, 0.0]]), 1.0)
        policy.select([[0.0, 1.0]])  # which releases the last of them
        return np.array(collected)

    return policy, Tossed(play, policy.sums.sums, policy.sums.sums.factor, ROUNDS - 1, TRIALS)


@pytest.mark.thorough
def test_one_round_shows_no_more_than_the_budget_and_half_the_noise_is_caught(monkeypatch):
    """From the first round on, to the last that is released, of which only the noise that is drawn last hides anything.

    With half the noise the audit finds a lower bound above the claim.
    """
    policy, runs = played(monkeypatch)
    claim = float(policy.privacy().epsilon)
    for changed in range(ROUNDS - 1):
        assert runs.distance(changed) <= 1.0 / policy.sums.cost.noise_multiplier
        bound = runs.lower_bound(changed, BUDGET)
        bound.check(claim)
        assert bound.epsilon >= 0.15 * claim  # and the audit is not blind
        with pytest.raises(audit.PrivacyViolation):
            runs.lower_bound(changed, BUDGET, noise=0.5).check(claim)


def test_the_pair_is_nearly_the_worst_one():
    policy = OnePassPrivateGLM(2, budget=BUDGET, horizon=ROUNDS, clip=0.5, gradient_share=0.75)
    distance, sensitivity = 2 * policy.sums.kept()["units"][1] * 0.5, policy.sums.sums.sensitivity
    assert 0.9 * sensitivity <= distance <= sensitivity

"""StandingPrivateGLM audited end to end: runs that differ in one reward, or in whether and when it comes.

The score is the exact log-likelihood ratio of what was released: C·A⁻¹ applied to the released sums gives back
C·x + σζ, independent Gaussians around two known means.
"""

from __future__ import annotations

import numpy as np
import pytest
from again import rewinder
from tossed import Tossed, released_by

from accounting import Budget, audit
from dpbandits.policies import StandingPrivateGLM
from dpbandits.private.parts import standing
from dpkit.continual import ContinualSum
from dpkit.models.prior import Posterior

BUDGET = Budget(8.0, 1e-2)
TRIALS = 320
# the reward of each round by its coin, and after how many further rounds it comes; None is never
ANOTHER_BATCH = (1.0, 0), (1.0, 2)
ANOTHER_REWARD = (1.0, 0), (0.0, 0)
NEVER = (1.0, 1), None
ROUNDS = ANOTHER_REWARD, ANOTHER_BATCH, NEVER, ANOTHER_REWARD


def played(monkeypatch) -> tuple[StandingPrivateGLM, Tossed]:
    policy = StandingPrivateGLM(
        2,
        [[1.0, 0.0]],
        budget=BUDGET,
        horizon=len(ROUNDS) + 1,
        first_batch=1,
        growth=1.0,
        rng=np.random.default_rng(20),
    )
    start_again = rewinder(policy)
    # where there is one arm, nothing that follows from a release touches the next one
    known = Posterior(policy.theta, policy.public.covariance, policy.public.root)
    monkeypatch.setattr(standing, "fitted", lambda *arguments: (known, 0.0))
    collected = released_by(monkeypatch, ContinualSum)

    def play(coins) -> np.ndarray:
        collected.clear()
        start_again()
        due: dict[int, list[tuple[int, float]]] = {}
        for t, (coin, told) in enumerate(zip(coins, ROUNDS, strict=True)):
            policy.select()
            if told[coin] is not None:
                reward, late = told[coin]
                due.setdefault(t + late, []).append((t, reward))
            for decision, reward in due.pop(t, []):
                policy.update(decision, reward)
        policy.select()  # which releases the last of them
        return np.array(collected)

    sums = policy.sums.sums
    return policy, Tossed(play, sums, sums.factor, len(ROUNDS), TRIALS)


@pytest.mark.thorough
def test_one_round_shows_no_more_than_the_budget_and_half_the_noise_is_caught(monkeypatch):
    """With half the noise, or of half the sensitivity, the audit finds a lower bound above the claim."""
    policy, runs = played(monkeypatch)
    claim = float(policy.privacy().epsilon)
    for changed, pair in enumerate(ROUNDS):
        # how far the pair is apart, in units of the sensitivity: the worst pairs are as far as any may be
        share = runs.distance(changed) * policy.sums.cost.noise_multiplier
        assert share <= 1.0
        assert share >= 0.5 if pair is NEVER else 0.7
        bound = runs.lower_bound(changed, BUDGET)
        bound.check(claim)
        assert bound.epsilon >= 0.1 * claim * share  # and the audit is not blind
        if pair is ANOTHER_REWARD:
            with pytest.raises(audit.PrivacyViolation):
                runs.lower_bound(changed, BUDGET, noise=0.5).check(claim)


def test_a_changed_reward_is_as_far_as_any_record_may_move():
    policy = StandingPrivateGLM(2, np.eye(2), budget=BUDGET, horizon=len(ROUNDS))
    c = policy.sums.sums.noise_std(1) / policy.sums.noise_of_sums(1)
    assert c * 1.0 == pytest.approx(policy.sums.sums.sensitivity, rel=1e-6)

"""The private policy for heavy tails audited end to end: runs that differ in one round, one with a huge reward.

The score is the exact log-likelihood ratio. What leaves is A·C⁻¹(C·x + σζ) for the stream x of batch sums, A the
running sum; C·A⁻¹ applied to the released sums gives back C·x + σζ, independent Gaussians around two known means.
"""

from __future__ import annotations

import numpy as np
import pytest
from again import rewinder
from factors import toeplitz_factor
from tossed import Tossed, released_by

from accounting import Budget, audit
from dpbandits.policies import PrivateHvtUCB
from dpkit.continual import BufferedToeplitz
from dpkit.geometry import svec
from dpkit.moments.pairs import PairBounds

BUDGET = Budget(8.0, 1e-2)
ROUNDS = 4
CLIP = 1.5
# a reward just within the clip, so that w = 1, and an enormous one with w = 0, of opposite arms: the worst pair
ROUND, OTHER = ([1.0, 0.0], CLIP), ([-1.0, 0.0], 1e12)


def unclipped(pending, reward, public):
    """A record of least squares: every reward counts in full."""
    return pending.arm, 1.0, (reward - float(pending.arm @ public.theta)) / CLIP


def made(record=None, **parameters) -> PrivateHvtUCB:
    settings = {"budget": BUDGET, "first_batch": 1, "growth": 1.0, "clip": CLIP, "rng": np.random.default_rng(20)}
    policy = PrivateHvtUCB(2, horizon=ROUNDS, **(settings | parameters))
    policy.record = record or policy.record
    return policy


def record(policy: PrivateHvtUCB, arm: list[float], reward: float) -> np.ndarray:
    """What a first round adds to the stream, for an honest clip."""
    x, std = np.array(arm), policy.sums.sums.noise_std(1)
    a, c = (std / noise for noise in policy.sums.noise(1))
    return np.concatenate([a * (abs(reward) <= CLIP) * svec(np.outer(x, x)), c * np.clip(reward / CLIP, -1.0, 1.0) * x])


def played(monkeypatch, trials: int, tossed: int = ROUNDS - 1, record=None):
    """A policy, and runs of which the first rounds have a coin; the others show another arm and get no reward."""
    # with that much ridge θ stays at 0, and residuals are rewards: one of 0.99 of the clip is below it in any round
    policy = made(record, ridge=1e9)
    pair = (ROUND[0], 0.99 * CLIP), OTHER
    start_again = rewinder(policy)
    collected = released_by(monkeypatch, BufferedToeplitz)

    def play(coins) -> np.ndarray:
        collected.clear()
        start_again()
        for coin in coins:
            arm, reward = pair[coin]
            policy.update(policy.select([arm]), reward)
        for _ in range(ROUNDS - len(coins)):  # the last of which releases what was told before
            policy.select([[0.0, 1.0]])
        return np.array(collected)

    factor = toeplitz_factor(policy.sums.sums.coefficients[: ROUNDS - 1])
    return policy, Tossed(play, policy.sums.sums, factor, tossed, trials)


@pytest.mark.thorough
def test_one_round_shows_no_more_than_the_budget_and_half_the_noise_is_caught(monkeypatch):
    """From the first round on, to the last that is released, of which only the noise that is drawn last hides anything.

    With half the noise the audit finds a lower bound above the claim.
    """
    policy, runs = played(monkeypatch, 340)
    claim = float(policy.privacy().epsilon)
    for changed in range(ROUNDS - 1):
        assert runs.distance(changed) <= 1.0 / policy.sums.cost.noise_multiplier
        bound = runs.lower_bound(changed, BUDGET)
        bound.check(claim)
        assert bound.epsilon >= 0.15 * claim  # and the audit is not blind
        with pytest.raises(audit.PrivacyViolation):
            runs.lower_bound(changed, BUDGET, noise=0.5).check(claim)


@pytest.mark.thorough
def test_rewards_that_are_not_clipped_are_caught(monkeypatch):
    """By the sums, which refuse them; and by the audit, where sums do not look."""
    policy = made(record=unclipped)
    with pytest.raises(ValueError, match=r"\|g\|·‖x‖ at most 1 and .* got w=1.0, g=666666666666"):
        policy.update(policy.select(OTHER[:1]), OTHER[1])
    monkeypatch.setattr(PairBounds, "check", lambda *pair: None)
    policy, runs = played(monkeypatch, 170, 1, record=unclipped)
    with pytest.raises(audit.PrivacyViolation):
        runs.lower_bound(0, BUDGET).check(float(policy.privacy().epsilon))


@pytest.mark.slow
def test_one_round_shows_no_more_than_the_budget_in_full(monkeypatch):
    policy, runs = played(monkeypatch, 10_000)
    claim = float(policy.privacy().epsilon)
    for changed in range(ROUNDS - 1):
        bound = runs.lower_bound(changed, BUDGET)
        bound.check(claim)
        assert bound.epsilon >= 0.6 * claim


def test_the_pair_is_the_worst_one():
    policy = made()
    distance = np.linalg.norm(record(policy, *ROUND) - record(policy, *OTHER))
    assert distance == pytest.approx(policy.sums.sums.sensitivity)

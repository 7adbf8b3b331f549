"""End to end: runs of private linear UCB that differ in one round, through everything that was released.

The score is the exact log-likelihood ratio: the released sums are A·C⁻¹(C·x + σζ), and C·A⁻¹ turns them back into
independent Gaussians around two known means.
"""

from __future__ import annotations

import numpy as np
import pytest
from again import rewinder
from factors import toeplitz_factor
from tossed import Tossed, released_by

from accounting import Budget, audit
from dpbandits.policies import DPLinUCB
from dpkit.continual import BufferedToeplitz

BUDGET = Budget(8.0, 1e-2)
TRIALS = 340
# arm and reward of each round, by its coin: the last of them is hidden by the noise that is drawn last alone
OPPOSITE = ([1.0, 0.0], 1.0), ([-1.0, 0.0], 1.0)
ANOTHER = ([1.0, 0.0], 1.0), ([-0.6, 0.8], 1.0)
ROUNDS = OPPOSITE, ANOTHER, OPPOSITE


def played(monkeypatch, trials: int) -> tuple[DPLinUCB, Tossed]:
    policy = DPLinUCB(
        2,
        budget=BUDGET,
        horizon=len(ROUNDS) + 1,
        first_batch=1,
        growth=1.0,
        reward_range=(0.0, 1.0),
        rng=np.random.default_rng(20),
    )
    start_again = rewinder(policy)
    collected = released_by(monkeypatch, BufferedToeplitz)

    def play(coins) -> np.ndarray:
        collected.clear()
        start_again()
        for coin, told in zip(coins, ROUNDS, strict=True):
            arm, reward = told[coin]
            policy.update(policy.select([arm]), reward)
        policy.select([[0.0, 1.0]])  # which releases the last of them
        return np.array(collected)

    factor = toeplitz_factor(policy.sums.sums.coefficients[: len(ROUNDS)])
    return policy, Tossed(play, policy.sums.sums, factor, len(ROUNDS), trials)


@pytest.mark.thorough
def test_one_round_shows_no_more_than_the_budget_and_half_the_noise_is_caught(monkeypatch):
    policy, runs = played(monkeypatch, TRIALS)
    for changed in range(len(ROUNDS)):
        assert runs.distance(changed) <= 1.0 / policy.sums.cost.noise_multiplier
        bound = runs.lower_bound(changed, BUDGET)
        bound.check(BUDGET.epsilon)
        assert bound.epsilon >= 0.15 * BUDGET.epsilon  # and the audit is not blind
        with pytest.raises(audit.PrivacyViolation):
            runs.lower_bound(changed, BUDGET, noise=0.5).check(BUDGET.epsilon)


@pytest.mark.slow
def test_many_runs_show_no_more_than_the_budget(monkeypatch):
    _, runs = played(monkeypatch, 10_000)
    for changed in range(len(ROUNDS)):
        runs.lower_bound(changed, BUDGET).check(BUDGET.epsilon)

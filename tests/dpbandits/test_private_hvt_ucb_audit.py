"""The private policy for heavy tails audited end to end: two runs that differ in one round, one with a huge reward.

The score is the exact log-likelihood ratio. What leaves is A·C⁻¹(C·x + σζ) for the stream x of batch sums, A the
running sum; C·A⁻¹ applied to the released sums gives back C·x + σζ, independent Gaussians around two known means.
"""

from __future__ import annotations

import numpy as np
import pytest
import white_box
from again import rewinder
from factors import scale_noise, toeplitz_factor

from accounting import Budget, audit
from dpbandits.policies import PrivateHvtUCB
from dpkit.continual import BufferedToeplitz
from dpkit.geometry import svec

BUDGET = Budget(8.0, 1e-2)
ROUNDS = 5
CLIP = 1.5
# The round in which the runs differ: the first one, or the one before the last release, of which only the noise that is
# drawn last hides anything.
FIRST, LATER = 0, ROUNDS - 2
# A sound mechanism is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE = 1 - 1e-9
# a reward just within the clip, so that w = 1, and an enormous one with w = 0, of opposite arms: the worst pair
ROUND, OTHER = ([1.0, 0.0], CLIP), ([-1.0, 0.0], 1e12)


class Unclipped(PrivateHvtUCB):
    """Least squares: every reward counts in full."""

    def _learn(self, pending, reward):
        self._sums.add(pending.arm, 1.0, (reward - float(pending.arm @ self.theta)) / self.clip)


def made(horizon: int = ROUNDS, kind: type[PrivateHvtUCB] = PrivateHvtUCB, **parameters) -> PrivateHvtUCB:
    settings = {"budget": BUDGET, "first_batch": 1, "growth": 1.0, "clip": CLIP, "rng": np.random.default_rng(20)}
    return kind(2, horizon=horizon, **(settings | parameters))


def record(policy: PrivateHvtUCB, arm: list[float], reward: float) -> np.ndarray:
    """What a first round adds to the stream, for an honest clip."""
    x, sums = np.array(arm), policy._sums
    return np.concatenate(
        [sums._a * (abs(reward) <= CLIP) * svec(np.outer(x, x)), sums._c * np.clip(reward / CLIP, -1.0, 1.0) * x]
    )


def lower_bound(
    monkeypatch, trials: int, noise: float = 1.0, kind: type[PrivateHvtUCB] = PrivateHvtUCB, changed: int = FIRST
) -> tuple[float, audit.LowerBound]:
    # with that much ridge θ stays at 0, and residuals are rewards: one of 0.99 of the clip is below it in any round
    policy = made(kind=kind, ridge=1e9)
    one = ROUND[0], 0.99 * CLIP
    scale_noise(policy._sums.sums, noise)
    start_again = rewinder(policy)
    collected: list[np.ndarray] = []
    original = BufferedToeplitz.add

    def add(self, x):
        estimate = original(self, x)
        collected.append(estimate)
        return estimate

    monkeypatch.setattr(BufferedToeplitz, "add", add)

    def runs(told: tuple[list[float], float], count: int) -> np.ndarray:
        collected.clear()
        for _ in range(count):
            start_again()
            for t in range(ROUNDS):
                decision = policy.select([told[0] if t == changed else [0.0, 1.0]])
                if t == changed:
                    policy.update(decision, told[1])
        return np.array(collected).reshape(count, -1)

    m = ROUNDS - 1
    C = toeplitz_factor(policy._sums.sums.coefficients)
    decode = C @ np.linalg.inv(np.tril(np.ones((m, m))))
    direction = C[:, changed][:, None] * (record(policy, *one) - record(policy, *OTHER))  # the shift of C·x

    def score(outputs: np.ndarray) -> np.ndarray:
        return np.einsum("ij,njk,ik->n", decode, outputs.reshape(len(outputs), m, -1), direction)

    bound = white_box.lower_bound(
        runs, one, OTHER, trials=trials, delta=BUDGET.delta, confidence=CONFIDENCE, score=score,
    )  # fmt: skip
    return float(policy.privacy().epsilon), bound


@pytest.mark.parametrize(
    ("noise", "kind", "changed", "sound"),
    [
        (1.0, PrivateHvtUCB, FIRST, True),
        (1.0, Unclipped, FIRST, False),
        (1.0, PrivateHvtUCB, LATER, True),
        (0.5, PrivateHvtUCB, LATER, False),
    ],
    ids=["as it is", "no clip", "later", "half the noise later"],
)
def test_one_round_shows_no_more_than_the_budget(monkeypatch, noise, kind, changed, sound):
    claim, bound = lower_bound(monkeypatch, 340, noise, kind, changed)
    if sound:
        bound.check(claim)
        assert bound.epsilon >= 0.15 * claim  # and the audit is not blind
    else:
        with pytest.raises(audit.PrivacyViolation):
            bound.check(claim)


@pytest.mark.slow
def test_one_round_shows_no_more_than_the_budget_in_full(monkeypatch):
    claim, bound = lower_bound(monkeypatch, 10_000)
    bound.check(claim)
    assert bound.epsilon >= 0.6 * claim


def test_the_pair_is_the_worst_one():
    policy = made()
    distance = np.linalg.norm(record(policy, *ROUND) - record(policy, *OTHER))
    assert distance == pytest.approx(policy._sums.sums.sensitivity)

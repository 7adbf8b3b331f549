"""StandingPrivateGLM audited end to end: two runs that differ in one reward, or in whether and when it comes.

The score is the exact log-likelihood ratio of what was released: C·A⁻¹ applied to the released sums gives back
C·x + σζ, independent Gaussians around two known means.
"""

from __future__ import annotations

import numpy as np
import pytest
import white_box
from again import rewinder
from factors import scale_noise

from accounting import Budget, audit
from dpbandits.mathematics.prior import Posterior
from dpbandits.policies import StandingPrivateGLM, standing_private_glm
from dpkit.continual import ContinualSum

BUDGET = Budget(8.0, 1e-2)
ROUNDS, TRIALS = 4, 320
# A sound mechanism is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE = 1 - 1e-9
# the reward of the first round, and after how many further rounds it comes; None is never
PAIRS = {
    "another reward": ((1.0, 0), (0.0, 0)),
    "another batch": ((1.0, 0), (1.0, 2)),
    "never": ((1.0, 1), None),
}


def broken(monkeypatch, pair, noise: float):
    """A policy with so much of its noise, ``runs(first, trials)`` of released sums, and the pair's score."""
    policy = StandingPrivateGLM(
        2, [[1.0, 0.0]], budget=BUDGET, horizon=ROUNDS, first_batch=1, growth=1.0, rng=np.random.default_rng(20)
    )
    sums = policy._sums
    c, a, m = sums._c, sums._a, ROUNDS - 1
    C = sums.sums.factor
    decode = C @ np.linalg.inv(np.tril(np.ones((m, m))))
    scale_noise(sums.sums, noise)
    start_again = rewinder(policy)
    # where there is one arm, nothing that follows from a release touches the next one
    known = Posterior(policy.theta, policy.public.covariance, policy.public.root)
    monkeypatch.setattr(standing_private_glm, "fitted", lambda *arguments: known)
    collected: list[np.ndarray] = []
    original = ContinualSum.add

    def add(self, x):
        collected.append(original(self, x))
        return collected[-1]

    monkeypatch.setattr(ContinualSum, "add", add)

    def runs(first, trials: int) -> np.ndarray:
        collected.clear()
        for _ in range(trials):
            start_again()
            for t in range(ROUNDS):
                policy.select()
                if first is not None and t == first[1]:
                    policy.update(0, first[0])
        return np.array(collected).reshape(trials, m, -1)

    def stream(first) -> np.ndarray:
        x = np.zeros((m, 4))
        if first is not None:
            x[first[1]] = 0.0, 0.0, c * (first[0] - 0.5), a
        return C @ x

    direction = stream(pair[0]) - stream(pair[1])
    return policy, runs, lambda outputs: np.einsum("ij,njk,ik->n", decode, outputs, direction), direction


@pytest.mark.parametrize(
    ("pair", "noise", "sound"),
    [
        ("another reward", 1.0, True),
        ("another reward", 0.5, False),
        ("another batch", 1.0, True),
        ("never", 1.0, True),
    ],
)
def test_one_round_shows_no_more_than_the_budget(monkeypatch, pair, noise, sound):
    """With half the noise, or of half the sensitivity, the audit finds a lower bound above the claim."""
    one, other = PAIRS[pair]
    policy, runs, score, direction = broken(monkeypatch, (one, other), noise)
    # how far the pair is apart, in units of the sensitivity: the worst pairs are as far as any may be
    share = float(np.linalg.norm(direction)) / policy._sums.sums.sensitivity
    assert share <= 1.0
    assert share >= 0.5 if pair == "never" else 0.7
    bound = white_box.lower_bound(
        runs, one, other, trials=TRIALS, delta=BUDGET.delta, confidence=CONFIDENCE, score=score
    )
    claim = float(policy.privacy().epsilon)
    if sound:
        bound.check(claim)
        assert bound.epsilon >= 0.1 * claim * share  # and the audit is not blind
    else:
        with pytest.raises(audit.PrivacyViolation):
            bound.check(claim)


def test_a_changed_reward_is_as_far_as_any_record_may_move():
    policy = StandingPrivateGLM(2, np.eye(2), budget=BUDGET, horizon=ROUNDS)
    assert policy._sums._c * 1.0 == pytest.approx(policy._sums.sums.sensitivity, rel=1e-6)

"""End to end: what one message shows of the user who sent it.

The score is the exact log-likelihood ratio of the message: linear for the Gaussian; for the sphere one of a few values.
Every user sends one message, made of public parameters and of that user's round alone, so one message is the whole
release; everything later is post-processing, bit by bit (``test_exact_releases.py``).
"""

from __future__ import annotations

import numpy as np
import pytest
import white_box
from again import rewinder

from accounting import Budget, audit
from dpbandits.policies import LDPGLM
from dpkit.mechanisms import GaussianMechanism

BUDGET = Budget(4.0, 1e-2)
TRIALS = 5000
# A sound mechanism is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE = 1 - 1e-9
# the two rounds' arm and reward
PAIRS = {
    "opposite arms": (((1.0, 0.0), 1.0), ((-1.0, 0.0), 1.0)),
    "another arm is chosen": (((1.0, 0.0), 1.0), ((-0.6, 0.8), 1.0)),
    "opposite rewards": (((1.0, 0.0), 1.0), ((1.0, 0.0), 0.0)),
}


def make(randomizer: str, seed: int = 5) -> LDPGLM:
    return LDPGLM(2, budget=BUDGET, horizon=100, randomizer=randomizer, rng=np.random.default_rng(seed))


def messages(policy: LDPGLM, start_again, first, trials: int) -> np.ndarray:
    """The messages of ``trials`` users who each saw this arm and reward, in the policy's first batch."""
    found = np.empty((trials, len(policy.sums)))
    for i in range(trials):
        start_again()
        policy.update(policy.select([first[0]]), first[1])
        found[i] = policy.sums
    return found


def record(policy: LDPGLM, first) -> np.ndarray:
    """What is randomized, seen with the randomizer taken out."""
    plain = make(policy.randomizer)
    plain._randomize = lambda record: record
    plain.update(plain.select([first[0]]), first[1])
    return plain.sums


def ratio(policy: LDPGLM, one, two, outputs: np.ndarray) -> np.ndarray:
    u, v = record(policy, one), record(policy, two)
    if policy.randomizer == "gaussian":
        return outputs @ (u - v)

    def log_density(w: np.ndarray) -> np.ndarray:
        sign = 0.5 + 0.5 * np.linalg.norm(w) / policy._longest
        p = 1 - policy._away
        ahead = outputs @ w > 0
        return np.log(np.where(ahead, sign * p + (1 - sign) * (1 - p), sign * (1 - p) + (1 - sign) * p))

    return log_density(u) - log_density(v)


def audited(policy: LDPGLM, pair: str, trials: int = TRIALS) -> audit.LowerBound:
    (one, two), start_again = PAIRS[pair], rewinder(policy)

    def runs(first, n: int) -> np.ndarray:
        return messages(policy, start_again, first, n)

    def score(outputs: np.ndarray) -> np.ndarray:
        return ratio(policy, one, two, outputs)

    known = {"delta": BUDGET.delta, "confidence": CONFIDENCE, "score": score}
    if policy.randomizer == "gaussian":  # 0.55 of the runs show as much
        return white_box.lower_bound(runs, one, two, trials=11 * trials // 20, **known)
    return audit.lower_bound(runs, one, two, trials=trials, batched=True, **known)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("randomizer", ["sphere", "gaussian"])
def test_one_message_shows_no_more_than_the_budget(randomizer, pair):
    bound = audited(make(randomizer), pair)
    bound.check(BUDGET.epsilon)
    if pair == "opposite arms":
        assert bound.epsilon >= 0.5 * BUDGET.epsilon  # and the audit is not blind


@pytest.mark.parametrize("randomizer", ["sphere", "gaussian"])
def test_half_the_noise_is_caught(randomizer):
    """For the sphere: the sides' odds e^(2ε), at the radius that goes with them."""
    policy = make(randomizer)
    policy._noise *= 0.5
    policy._mechanism = GaussianMechanism(
        noise_multiplier=0.5 * policy._mechanism.noise_multiplier,
        sensitivity=policy._mechanism.sensitivity,
        rng=policy.rng,
    )
    policy._away = 1 / (1 + np.exp(2 * BUDGET.epsilon))
    with pytest.raises(audit.PrivacyViolation):
        audited(policy, "opposite arms").check(BUDGET.epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("randomizer", ["sphere", "gaussian"])
def test_many_messages_show_no_more_than_the_budget(randomizer, pair):
    audited(make(randomizer), pair, trials=40_000).check(BUDGET.epsilon)

"""End to end: what one message shows of the user who sent it.

The score is the exact log-likelihood ratio of the message: linear for the Gaussian; for the sphere and its caps one of
a few values.
Every user sends one message, made of public parameters and of that user's round alone, so one message is the whole
release; everything later is post-processing, bit by bit (``test_exact_releases.py``).
"""

from __future__ import annotations

import numpy as np
import pytest
import white_box

from accounting import Budget, audit
from dpbandits.policies import LDPGLM

BUDGET = Budget(4.0, 1e-2)
TRIALS = 5000
# A sound mechanism is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE = 1 - 1e-9
# the round's arm and reward, and what its neighbours are
ONE = ((1.0, 0.0), 1.0)
OTHERS = {
    "opposite arms": ((-1.0, 0.0), 1.0),
    "another arm is chosen": ((-0.6, 0.8), 1.0),
    "opposite rewards": ((1.0, 0.0), 0.0),
}


def make(randomizer: str, seed: int = 5) -> LDPGLM:
    """A policy that is all of these tests in its first batch; mostly gradients, which tell arms apart."""
    known = {"horizon": 10**6, "first_batch": 10**6, "gradient_share": 0.95}
    return LDPGLM(2, budget=BUDGET, randomizer=randomizer, rng=np.random.default_rng(seed), **known)


def messages(policy: LDPGLM, told, trials: int) -> np.ndarray:
    """The messages of ``trials`` users who each saw this arm and reward."""
    found = np.empty((trials, len(policy.sums.sums)))
    for message in found:
        policy.sums.sums[:] = 0.0
        policy.update(policy.select([told[0]]), told[1])
        message[:] = policy.sums.sums
    return found


def record(policy: LDPGLM, told) -> np.ndarray:
    """What is randomized, seen with the randomizer taken out."""
    plain = make(policy.randomizer)
    plain.sums.randomized = lambda record: record
    plain.update(plain.select([told[0]]), told[1])
    return plain.sums.sums


def share(sums) -> float:
    """Of the sphere, that of a cap: of five entries, one has a density in proportion to 1 − t²."""
    h = sums.height
    return 0.75 * (2 / 3 - h + h**3 / 3)


def ratio(policy: LDPGLM, other, outputs: np.ndarray) -> np.ndarray:
    u, v = record(policy, ONE), record(policy, other)
    if policy.randomizer == "gaussian":
        return outputs @ (u - v)

    def log_density(w: np.ndarray) -> np.ndarray:
        sums = policy.sums
        sign = 0.5 + 0.5 * np.linalg.norm(w) / sums.longest
        along = outputs @ w / (np.linalg.norm(w) * sums.radius)
        # the densities on a cap, of which ``share`` of all directions are part, and elsewhere
        on, off = (1 - sums.far) / share(sums), sums.far / (1 - share(sums))
        return np.log(
            sign * np.where(along >= sums.height, on, off) + (1 - sign) * np.where(-along >= sums.height, on, off)
        )

    return log_density(u) - log_density(v)


class Seen:
    """Messages of one policy, those of each round played once."""

    def __init__(self, policy: LDPGLM, trials: int = TRIALS) -> None:
        self.policy = policy
        # 0.55 of the runs show as much where it is known which test to make
        self.trials = 11 * trials // 20 if policy.randomizer == "gaussian" else trials
        self.told: dict[object, np.ndarray] = {}

    def of(self, told) -> np.ndarray:
        if told not in self.told:
            self.told[told] = messages(self.policy, told, self.trials)
        return self.told[told]

    def audited(self, other, noise: float = 1.0) -> audit.LowerBound:
        """Against another round; or, of Gaussian messages, with so much of their noise."""
        policy = self.policy

        def runs(told, n: int) -> np.ndarray:
            found = self.of(told)
            assert len(found) == n
            return found if noise == 1.0 else record(policy, told) + noise * (found - record(policy, told))

        known = {"trials": self.trials, "delta": BUDGET.delta, "confidence": CONFIDENCE}
        known["score"] = lambda outputs: ratio(policy, other, outputs)
        if policy.randomizer == "gaussian":
            return white_box.lower_bound(runs, ONE, other, **known)
        return audit.lower_bound(runs, ONE, other, batched=True, **known)


@pytest.mark.parametrize("randomizer", ["sphere", "cap", "gaussian"])
def test_one_message_shows_no_more_than_the_budget(randomizer):
    """Of Gaussian messages, half the noise would be caught."""
    seen = Seen(make(randomizer))
    for other in OTHERS.values():
        seen.audited(other).check(BUDGET.epsilon)
    opposite = OTHERS["opposite arms"]
    assert seen.audited(opposite).epsilon >= 0.5 * BUDGET.epsilon  # and the audit is not blind
    if randomizer == "gaussian":
        with pytest.raises(audit.PrivacyViolation):
            seen.audited(opposite, noise=0.5).check(BUDGET.epsilon)


@pytest.mark.parametrize("randomizer", ["sphere", "cap"])
def test_half_the_noise_of_the_sphere_is_caught(randomizer):
    """The sides' odds are e^(2ε), at the radius that goes with them."""
    policy = make(randomizer)
    q = share(policy.sums)
    policy.sums.far = (1 - q) / (1 - q + q * np.exp(2 * BUDGET.epsilon))
    with pytest.raises(audit.PrivacyViolation):
        Seen(policy).audited(OTHERS["opposite arms"]).check(BUDGET.epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("randomizer", ["sphere", "cap", "gaussian"])
def test_many_messages_show_no_more_than_the_budget(randomizer):
    seen = Seen(make(randomizer), trials=40_000)
    for other in OTHERS.values():
        seen.audited(other).check(BUDGET.epsilon)

"""End to end: runs of private linear UCB that differ in one round, through everything that was released.

The score is the exact log-likelihood ratio: the released sums are A·C⁻¹(C·x + σζ), and C·A⁻¹ turns them back into
independent Gaussians around two known means.
"""

from __future__ import annotations

import numpy as np
import pytest
import white_box
from again import rewinder
from factors import scale_noise, toeplitz_factor

from accounting import Budget, audit
from dpbandits.policies import DPLinUCB
from dpkit.continual import BufferedToeplitz
from dpkit.geometry import svec

BUDGET = Budget(8.0, 1e-2)
TRIALS = 340
ROUNDS = 4
# The round in which the runs differ: the first one, or the one before the last release, of which only the noise that is
# drawn last hides anything.
FIRST, LATER = 0, ROUNDS - 2
# A sound mechanism is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE = 1 - 1e-9
# arm and reward of the round in which the runs differ
PAIRS = {
    "opposite arms": (((1.0, 0.0), 1.0), ((-1.0, 0.0), 1.0)),
    "another arm is chosen": (((1.0, 0.0), 1.0), ((-0.6, 0.8), 1.0)),
}


class Observed:
    def __init__(self, monkeypatch, noise: float = 1.0, changed: int = FIRST):
        self.changed = changed
        self.sums: list[np.ndarray] = []
        add = BufferedToeplitz.add

        def spying_add(stream, x):
            self.sums.append(add(stream, x))
            return self.sums[-1]

        monkeypatch.setattr(BufferedToeplitz, "add", spying_add)
        self.policy = DPLinUCB(
            2,
            budget=BUDGET,
            horizon=ROUNDS,
            first_batch=1,
            growth=1.0,
            reward_range=(0.0, 1.0),
            rng=np.random.default_rng(20),
        )
        scale_noise(self.policy._sums.sums, noise)
        self.start_again = rewinder(self.policy)

    def runs(self, told, trials: int) -> np.ndarray:
        """The released sums of runs of which one round shows an arm; the others never get a reward."""
        policy = self.policy
        self.sums.clear()
        for _ in range(trials):
            self.start_again()
            for t in range(ROUNDS):
                decision = policy.select([told[0] if t == self.changed else [0.0, 1.0]])
                if t == self.changed:
                    policy.update(decision, told[1])
        return np.array(self.sums).reshape(trials, -1)

    def score(self, one, two):
        """The log-likelihood ratio, up to a constant and a positive factor."""
        sums, m = self.policy._sums, ROUNDS - 1
        records = [
            np.concatenate([sums._a * svec(np.outer(x, x)), sums._c * (r - self.policy.base_rate) * np.array(x)])
            for x, r in (one, two)
        ]
        C = toeplitz_factor(sums.sums.coefficients)
        decode = C @ np.linalg.inv(np.tril(np.ones((m, m))))
        direction = C[:, self.changed][:, None] * (records[0] - records[1])
        return lambda outputs: np.einsum("ij,njk,ik->n", decode, outputs.reshape(len(outputs), m, -1), direction)


def audited(seen: Observed, pair: str, trials: int = TRIALS) -> audit.LowerBound:
    one, two = PAIRS[pair]
    return white_box.lower_bound(
        seen.runs,
        one,
        two,
        trials=trials,
        delta=BUDGET.delta,
        confidence=CONFIDENCE,
        score=seen.score(one, two),
    )


@pytest.mark.parametrize(("pair", "changed"), [*((pair, FIRST) for pair in PAIRS), ("opposite arms", LATER)])
def test_one_round_shows_no_more_than_the_budget(monkeypatch, pair, changed):
    bound = audited(Observed(monkeypatch, changed=changed), pair)
    bound.check(BUDGET.epsilon)
    assert bound.epsilon >= 0.15 * BUDGET.epsilon  # and the audit is not blind


def test_half_the_noise_is_caught(monkeypatch):
    bound = audited(Observed(monkeypatch, 0.5, LATER), "opposite arms")
    with pytest.raises(audit.PrivacyViolation):
        bound.check(BUDGET.epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_many_runs_show_no_more_than_the_budget(monkeypatch, pair):
    audited(Observed(monkeypatch), pair, trials=10_000).check(BUDGET.epsilon)

"""End to end: what one message shows of the user who sent it.

The score is the exact log-likelihood ratio of the message: linear for the Gaussian; for the sphere and its caps one of
a few values. A message about the level of rewards is a number; of which kind a message is, and that it comes, shows
too.
Every user sends one message, made of public parameters and of that user's round alone, so one message is the whole
release; everything later is post-processing, bit by bit (``test_exact_releases.py``).
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import white_box
from again import rewinder

from accounting import Budget, audit
from dpbandits.durability.pending import Pending
from dpbandits.policies import LDPGLM
from dpkit.moments.reports import Reports

BUDGET = Budget(4.0, 1e-2)
TRIALS = 900
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
        self.policy, self.trials = policy, trials
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
        # directions on both caps, or on neither, tell nothing
        normal = policy.randomizer == "gaussian"
        known |= {"score": lambda outputs: ratio(policy, other, outputs), "middle": 0.0 if normal else 1.0}
        return white_box.lower_bound(runs, ONE, other, **known, gaussian=normal)


@pytest.mark.parametrize("randomizer", ["sphere", "cap", "gaussian"])
def test_one_message_shows_no_more_than_the_budget(randomizer):
    """Of Gaussian messages, half the noise would be caught."""
    seen = Seen(make(randomizer))
    for other in OTHERS.values():
        seen.audited(other).check(BUDGET.epsilon)
    opposite = OTHERS["opposite arms"]
    assert seen.audited(opposite).epsilon >= 0.3 * BUDGET.epsilon  # and the audit is not blind
    if randomizer == "gaussian":
        with pytest.raises(audit.PrivacyViolation):
            seen.audited(opposite, noise=0.5).check(BUDGET.epsilon)


@pytest.mark.thorough
@pytest.mark.parametrize("randomizer", ["sphere", "cap"])
def test_half_the_noise_of_the_sphere_is_caught(randomizer):
    """The sides' odds are e^(2ε), at the radius that goes with them."""
    policy = make(randomizer)
    q = share(policy.sums)
    policy.sums.far = (1 - q) / (1 - q + q * np.exp(2 * BUDGET.epsilon))
    with pytest.raises(audit.PrivacyViolation):
        Seen(policy, trials=2800).audited(OTHERS["opposite arms"]).check(BUDGET.epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("randomizer", ["sphere", "cap", "gaussian"])
def test_many_messages_show_no_more_than_the_budget(randomizer):
    seen = Seen(make(randomizer), trials=40_000)
    for other in OTHERS.values():
        seen.audited(other).check(BUDGET.epsilon)


# ------------------------------------------------------------------------------------------------- the level

EAST = np.array([[1.0, 0.0]])
# what a round that is asked for the level may see in place of a reward of 1; None is a reward that never comes
NEIGHBOURS = {"the other reward": 0.0, "no reward": None, "one between": 0.25}
WAYS = [
    ("sphere", "replace"),
    ("cap", "replace"),
    ("cap", "zero_out"),
    ("gaussian", "replace"),
    ("gaussian", "zero_out"),
]


class Asked:
    """Runs of a first and a second round, of which the second is asked for the level.

    Rewards come by ``update``. Where none comes, and that is private, the device sends the null message of the kind
    that is due.
    """

    def __init__(self, randomizer: str, adjacency: str = "replace", record=None, reports: float | None = None) -> None:
        budget = Budget(2.0, 1e-2, adjacency=adjacency)
        known = {"horizon": 10**7, "first_batch": 10**6, "randomizer": randomizer}
        self.policy = LDPGLM(2, budget=budget, rng=np.random.default_rng(7), **known)
        self.randomizer = randomizer
        if reports is not None:
            self.policy.sums._reports = Reports(reports, rng=self.policy.rng)
        if record is not None:
            self.policy.record = record(self.policy.record)
        self.again = rewinder(self.policy)

    def __call__(self, reward: float | None, trials: int) -> np.ndarray:
        """All that the server gets of the second user: messages of either kind, and the number."""
        policy, sums, found = self.policy, self.policy.sums, np.empty((trials, 3))
        for seen in found:
            self.again()
            policy.select(EAST)
            decision = policy.select(EAST)
            if reward is not None:
                policy.update(decision, reward)
            else:
                due = policy.record(Pending(EAST[0], 0, 1), None, policy.public)
                if due is not None:
                    sums.add(*due)
            seen[:] = sums.messages, sums.numbers, sums.told
        return found

    def ratio(self, other: float | None):
        """The exact log-likelihood ratio of a reward of 1 over the other; of a message that may not be, about ± 50."""
        f, g = 0.5, 0.0 if other is None else other - 0.5

        def of(outputs: np.ndarray) -> np.ndarray:
            told = outputs[:, 2]
            if self.randomizer == "gaussian":
                number = (f - g) * told
            else:
                up = [float(0.5 + h * (2 * self.policy.sums._reports.chances[1, 1] - 1)) for h in (f, g)]
                number = np.where(told > 0, math.log(up[0] / up[1]), math.log((1 - up[0]) / (1 - up[1])))
            return number + 50.0 * (2 * outputs[:, 0] + outputs[:, 1])

        return of

    def audited(self, other: float | None, trials: int | None = None) -> audit.LowerBound:
        """Of a number the middle is that of the two that were hidden."""
        normal = self.randomizer == "gaussian"
        known = {"trials": trials or (900 if normal else 450), "delta": 1e-2, "confidence": CONFIDENCE}
        g = 0.0 if other is None else other - 0.5
        known["middle"] = 50.0 + (0.5 * (0.25 - g * g) if normal else 0.0)
        return white_box.lower_bound(self, 1.0, other, score=self.ratio(other), gaussian=normal, **known)


@pytest.mark.parametrize(("randomizer", "adjacency"), WAYS)
def test_a_message_about_the_level_shows_no_more_than_the_budget(randomizer, adjacency):
    """Under zero_out neighbours are a round and the null one. The audit is not blind to opposite rewards."""
    runs = Asked(randomizer, adjacency)
    for name, other in NEIGHBOURS.items():
        if adjacency == "replace" or other is None:
            found = runs.audited(other)
            found.check(2.0)
            if name == "the other reward":
                assert found.epsilon >= (0.2 if randomizer == "gaussian" else 0.5)
    assert np.unique(runs(None, 20)[:, :2], axis=0).tolist() == [[0.0, 1.0]]


class OnlyWithReward:
    """A broken one: who has no reward sends nothing."""

    def __init__(self, record):
        self.record = record

    def __call__(self, pending, reward, public):
        return None if reward is None else self.record(pending, reward, public)


class NullRecord(OnlyWithReward):
    """A broken one: who has no reward sends the null record, whatever was asked."""

    def __call__(self, pending, reward, public):
        return (pending.arm, 0.0, 0.0, None) if reward is None else self.record(pending, reward, public)


class ByReward(OnlyWithReward):
    """A broken one: a number is sent where the reward is 0."""

    def __call__(self, pending, reward, public):
        return self.record(Pending(pending.arm, 0, 1 if reward == 0.0 else 0), reward, public)


@pytest.mark.parametrize("randomizer", ["cap", "gaussian"])
@pytest.mark.parametrize(("broken", "other"), [(OnlyWithReward, None), (NullRecord, None), (ByReward, 0.0)])
def test_a_kind_of_message_that_tells_of_the_reward_is_caught(randomizer, broken, other):
    runs = Asked(randomizer, record=broken)
    kind = runs(1.0, 1)[0, :2]
    known = {"trials": 220, "delta": 1e-2, "confidence": CONFIDENCE, "middle": 0.5, "gaussian": False}
    with pytest.raises(audit.PrivacyViolation):
        white_box.lower_bound(runs, 1.0, other, score=lambda told: (told[:, :2] == kind).all(axis=1), **known).check(
            2.0
        )


def test_a_report_with_twice_the_epsilon_is_caught():
    with pytest.raises(audit.PrivacyViolation):
        Asked("cap", reports=4.0).audited(0.0, trials=900).check(2.0)


def test_a_number_with_half_the_noise_is_caught():
    runs = Asked("gaussian")
    runs.policy.sums._number = type(runs.policy.sums._number)(
        noise_multiplier=0.5 * runs.policy.sums.number_std, sensitivity=1.0, rng=runs.policy.rng
    )
    with pytest.raises(audit.PrivacyViolation):
        runs.audited(0.0).check(2.0)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 25.0])
def test_a_report_is_as_close_to_any_other_as_was_paid_for_exactly(epsilon):
    """The chances of both reports for numbers of the whole range, the null number among them.

    5,000 draws of one have these chances, but for a probability below 1e-10 (6.5 deviations).
    """
    policy = LDPGLM(2, budget=Budget(epsilon, 1e-6), horizon=100, randomizer="cap", rng=np.random.default_rng(2))
    paid, chances = policy.ledger.rows()[0].release.epsilon, policy.sums._reports.chances
    up = [(0.5 + f) * chances[1, 1] + (0.5 - f) * chances[0, 1] for f in (-0.5, -0.4, 0.0, 0.1, 0.5)]
    for p, q in itertools.permutations(up, 2):
        assert max(p / q, (1 - p) / (1 - q)) <= math.exp(paid) * (1 + 1e-9 + 1e-12 * math.exp(paid))
    assert max(up) / min(up) == pytest.approx(math.exp(paid), rel=1e-9)
    n, expected = 5_000, up[1]
    seen = np.mean([policy.sums.about(-0.4) > 0 for _ in range(n)])
    assert abs(seen - expected) <= 6.5 * math.sqrt(expected * (1 - expected) / n) + 1e-9

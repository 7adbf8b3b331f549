"""End to end: what one round shows about itself, through the streams, both optimizers and their timing.

The score is the exact log-likelihood ratio of everything that is released. The streams leave as A·C⁻¹(C·x + σζ), which
C·A⁻¹ turns back into independent Gaussians around two known means; a noisy gradient is Gaussian around the sum over the
rows, which is known for both inputs at the point where it was taken, itself a function of what was released before.

Only one round has a reward, so that two runs differ in it alone. They start as after a first batch in which the
direction (1, 0) was explored and (0, 1) was not: arms along the first are exploited, along the second explored.
Estimates are made anew at every release, which is a public schedule like any other, until every call is made.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import white_box
from again import rewinder
from factors import scale_noise, toeplitz_factor

from accounting import Budget, Gaussian, audit, calibrate, epsilon
from dpbandits.policies import JointDPGLM
from dpbandits.private.parts import capped_calls
from dpkit.continual import BufferedToeplitz
from dpkit.mechanisms import GaussianMechanism
from dpkit.training.rows import GradientSums

BUDGET = Budget(8.0, 1e-2)
TRIALS = 153
ROUNDS = 3
# A sound mechanism is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE = 1 - 1e-9
EXPLORED, EXPLOITED = (0.0, 1.0), (1.0, 0.0)


def after_a_batch(policy: JointDPGLM, decisions: int) -> None:
    """As after a first release, in which the direction (1, 0) is known and (0, 1) is not."""
    policy.releases, policy.decisions = 1, decisions
    policy.public = replace(policy.public, V_inverse=np.diag([0.1, 1.0]) / policy.levels.shift_v)


class Observed:
    """A policy and everything that leaves it: sums of streams, and noisy gradients with the points they are of."""

    def __init__(self, monkeypatch, *, stream_share: float, stream_noise: float = 1.0, gradient_noise: float = 1.0):
        self.estimates = stream_noise == 1.0  # else the streams alone are looked at, which is faster
        monkeypatch.setattr(capped_calls, "outgrown", lambda matrix, root: True)
        # every run asks for the same calibrations
        descent = importlib.import_module("dpkit.optimize.batch.noisy_gradient_descent")
        known: dict[Budget, float] = {}
        monkeypatch.setattr(
            descent,
            "calibrate",
            lambda make, budget: known.get(budget) or known.setdefault(budget, calibrate(make, budget)),
        )
        monkeypatch.setattr(capped_calls, "delta_of", lru_cache(capped_calls.delta_of))
        add, release, at = BufferedToeplitz.add, GaussianMechanism.release, GradientSums.at
        call = capped_calls.Calls.__call__
        self.sums: list[np.ndarray] = []
        self.gradients: list[tuple[np.ndarray, np.ndarray, float, int]] = []

        def spying_add(stream, x):
            self.sums.append(add(stream, x))
            return self.sums[-1]

        def spying_call(calls, data, *arguments, **more):
            self.which = 0 if data is self.policy.sums.explored else 1
            return call(calls, data, *arguments, **more)

        def spying_at(rows, theta, which=slice(None)):
            self.theta = theta.copy()
            return at(rows, theta, which)

        def spying_release(mechanism, value):
            noisy = value + gradient_noise * (release(mechanism, value) - value)
            std = gradient_noise * mechanism.noise_multiplier * mechanism.sensitivity
            self.gradients.append((noisy, self.theta, std, self.which))
            return noisy

        monkeypatch.setattr(BufferedToeplitz, "add", spying_add)
        monkeypatch.setattr(capped_calls.Calls, "__call__", spying_call)
        monkeypatch.setattr(GradientSums, "at", spying_at)
        monkeypatch.setattr(GaussianMechanism, "release", spying_release)
        self.policy = policy = JointDPGLM(
            2,
            budget=BUDGET,
            horizon=ROUNDS + 1,
            first_batch=1,
            growth=1.0,
            clip=0.5,
            stream_share=stream_share,
            exploration_calls=1,
            policy_calls=1,
            rng=np.random.default_rng(20),
        )
        policy.switches = replace(policy.switches, calls=replace(policy.calls, steps=2))
        scale_noise(policy.sums.sums, stream_noise)
        after_a_batch(policy, decisions=1)
        if not self.estimates:
            policy.public = replace(policy.public, calls_o=1, calls=1)
        self.start_again = rewinder(policy)

    def run(self, arm: tuple[float, float], rounds: int = ROUNDS) -> None:
        """One run in which the first round shows this arm alone, with reward 1."""
        policy = self.policy
        self.sums.clear()
        self.gradients.clear()
        self.start_again()
        policy.select([arm])
        policy.update(1, 1.0)
        for _ in range(rounds - 1):
            policy.select([[0.0, 0.0]])


def record(policy: JointDPGLM, arm) -> tuple[np.ndarray, int]:
    """What the round adds to the streams, (svec V, svec(H)/W), and the set that it joins: 0 explored, 1 others."""
    x = np.array(arm)
    flat = np.array([x[0] ** 2, x[1] ** 2, np.sqrt(2) * x[0] * x[1]])
    explores = x @ (np.diag([0.1, 1.0]) / policy.levels.shift_v) @ x >= policy.levels.threshold
    return np.concatenate([flat, 0 * flat] if explores else [0 * flat, flat]), 0 if explores else 1


def log_ratio(seen: Observed, arm, other) -> float:
    """ln p(everything released | arm) − ln p(… | other)."""
    policy = seen.policy
    (x, mine), (y, its) = record(policy, arm), record(policy, other)
    C = toeplitz_factor(policy.sums.sums.coefficients)
    m = len(seen.sums)
    C, A = C[:m, :m], np.tril(np.ones((m, m)))
    decoded = C @ np.linalg.solve(A, np.array(seen.sums))
    means = [np.outer(C[:, 0], each) for each in (x, y)]
    sigma = policy.sums.sums._law.std
    ratio = (np.sum((decoded - means[1]) ** 2) - np.sum((decoded - means[0]) ** 2)) / (2 * sigma**2)
    for noisy, theta, std, which in seen.gradients:
        expected = [
            policy.calls.objective.gradient_sum(theta, [row], [1.0]) if which == joined else np.zeros(2)
            for row, joined in ((arm, mine), (other, its))
        ]
        ratio += (np.sum((noisy - expected[1]) ** 2) - np.sum((noisy - expected[0]) ** 2)) / (2 * std**2)
    return float(ratio)


PAIRS = {
    "opposite arms, both explored": (EXPLORED, (0.0, -1.0), 0.25),
    "opposite arms, both exploited": (EXPLOITED, (-1.0, 0.0), 0.25),
    "explored or exploited": (EXPLORED, EXPLOITED, 0.8),
}


def audited(seen: Observed, arm, other, trials: int) -> audit.LowerBound:
    def ratios(first, trials: int) -> np.ndarray:
        found = np.empty(trials)
        for i in range(trials):
            seen.run(first)
            found[i] = log_ratio(seen, arm, other)
        return found

    return white_box.lower_bound(
        ratios,
        arm,
        other,
        trials=trials,
        delta=BUDGET.delta,
        confidence=CONFIDENCE,
        score=lambda outputs: outputs,
        middle=0.0,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("trials", [TRIALS, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pair", PAIRS)
def test_one_round_shows_no_more_than_the_budget(monkeypatch, pair, trials):
    arm, other, share = PAIRS[pair]
    seen = Observed(monkeypatch, stream_share=share)
    bound = audited(seen, arm, other, trials)
    claim = float(seen.policy.privacy().epsilon)
    assert (seen.policy.public.calls_o, seen.policy.public.calls) == (1, 1)
    bound.check(claim)
    assert bound.epsilon >= 0.1 * claim  # and the audit is not blind


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("pair", "noise"),
    [
        ("opposite arms, both explored", {"gradient_noise": 0.4}),
        # a round that changes sets touches two streams: as if only one of them were counted; without runs, the distance
        # of neighbouring streams shows it (``test_joint_dp_glm.py``)
        pytest.param("explored or exploited", {"stream_noise": 2**-0.5}, marks=pytest.mark.slow),
    ],
)
def test_too_little_noise_is_caught(monkeypatch, pair, noise):
    arm, other, share = PAIRS[pair]
    seen = Observed(monkeypatch, stream_share=0.95 if "stream_noise" in noise else share, **noise)
    bound = audited(seen, arm, other, 297 if seen.estimates else 990)
    with pytest.raises(audit.PrivacyViolation):
        bound.check(float(seen.policy.privacy().epsilon))


@pytest.mark.thorough
def test_a_private_size_as_divisor_is_caught(monkeypatch):
    """The mean over the exploration set, with noise 2L/n for the true n: its scale tells one row from none.

    Seen in the first noisy mean, of which only the length is looked at.
    """
    seen = Observed(monkeypatch, stream_share=0.5)

    def lengths(arm, trials: int) -> np.ndarray:
        found = np.empty(trials)
        for i in range(trials):
            seen.run(arm, rounds=2)  # at the second it is released
            noisy, _, _, _ = seen.gradients[0]
            # 51 rows, or 1; the middle of the logarithms is far from both laws
            found[i] = -np.log(np.linalg.norm(noisy) / (1 + 50 * seen.policy.sums.explored.count))
        return found

    bound = white_box.lower_bound(
        lengths,
        EXPLORED,
        EXPLOITED,
        trials=115,
        delta=BUDGET.delta,
        confidence=CONFIDENCE,
        score=lambda outputs: outputs,
    )
    with pytest.raises(audit.PrivacyViolation):
        bound.check(float(seen.policy.privacy().epsilon))


class EstimatesWhenItExplores(JointDPGLM):
    """Algorithm 2 as printed: θ_o is estimated anew in the very rounds of criterion I."""

    def note(self, arm, index):
        note = super().note(arm, index)
        if note == (1,):
            # whatever comes out, it is another one
            self.public = replace(self.public, theta_o=self.rng.standard_normal(self.dim))
        return note


@pytest.mark.parametrize(("kind", "sound"), [(JointDPGLM, True), (EstimatesWhenItExplores, False)])
def test_when_an_estimate_changes_shows_nothing(kind, sound):
    """All that is looked at is whether the next round sees another θ_o than the round before."""

    def changed(arm, trials: int) -> np.ndarray:
        found = np.zeros(trials)
        policy = kind(2, budget=BUDGET, horizon=100, first_batch=50, rng=np.random.default_rng(1))
        after_a_batch(policy, decisions=51)  # far from the second release
        start_again = rewinder(policy)
        for i in range(trials):
            start_again()
            before = policy.public.theta_o.copy()
            policy.select([arm])
            found[i] = float(not np.array_equal(policy.public.theta_o, before))
        return found

    bound = white_box.lower_bound(
        changed,
        EXPLORED,
        EXPLOITED,
        trials=120,
        delta=BUDGET.delta,
        confidence=CONFIDENCE,
        score=lambda outputs: outputs,
    )
    if sound:
        assert bound.epsilon == 0.0
    else:
        with pytest.raises(audit.PrivacyViolation):
            bound.check(BUDGET.epsilon)


class Level:
    """A policy whose level is released after two rounds, with noise of multiplier ½; of it all that is looked at."""

    def __init__(self, monkeypatch, adjacency: str = "replace", noise: float = 1.0) -> None:
        budget = Budget(8.0, 1e-2, adjacency=adjacency)
        known = {"horizon": 10_000, "first_batch": 2, "rng": np.random.default_rng(3)}
        self.policy = policy = JointDPGLM(2, budget=budget, **known)
        numbers = replace(policy.switches.numbers, after=2, z=0.5 * noise)
        # no call is made; these are looked at above
        policy.switches = replace(policy.switches, numbers=numbers, caps=(0, 0))
        self.again = rewinder(policy)
        found = capped_calls.level_of

        def level_of(link, reward_range, total, noise, rounds):
            self.total = total
            return found(link, reward_range, total, noise, rounds)

        monkeypatch.setattr(capped_calls, "level_of", level_of)

    def __call__(self, told, trials: int) -> np.ndarray:
        """What was released; the first round shows this arm, and its reward comes or not."""
        totals = np.empty(trials)
        for i in range(trials):
            self.again()
            decision = self.policy.select([told[0]])
            if told[1] is not None:
                self.policy.update(decision, told[1])
            self.policy.select([[0.0, 0.0]])
            self.policy.select([[0.0, 0.0]])
            totals[i] = self.total
        return totals

    def audited(self, other, trials: int) -> audit.LowerBound:
        known = {"trials": trials, "delta": 1e-2, "confidence": CONFIDENCE, "score": lambda totals: totals}
        return white_box.lower_bound(self, ((0.0, 1.0), 1.0), other, **known)


REWARDED = {
    "the other reward": ((0.0, 1.0), 0.0, "replace"),
    "another arm and no reward": ((1.0, 0.0), None, "replace"),
    "no reward": ((0.0, 1.0), None, "zero_out"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", REWARDED)
def test_the_level_shows_no_more_of_a_round_than_was_paid(monkeypatch, name):
    """Whether its reward came, too. A multiplier of ½ is ε = 6.2; a quarter of the noise would be caught."""
    *other, adjacency = REWARDED[name]
    claim = epsilon(Gaussian(0.5, adjacency=adjacency), 1e-2)
    bound = Level(monkeypatch, adjacency).audited(other, 340)
    bound.check(claim)
    if adjacency == "zero_out" or other[1] is not None:
        assert bound.epsilon >= 0.2 * claim  # and the audit is not blind
        with pytest.raises(audit.PrivacyViolation):
            Level(monkeypatch, adjacency, noise=0.25).audited(other, 160).check(claim)


def test_a_number_that_is_not_cut_is_caught(monkeypatch):
    """Three times as far from the middle as a reward can be."""
    seen = Level(monkeypatch)
    monkeypatch.setattr(capped_calls, "deviations", lambda rewards, reward_range: 3.0 * (np.asarray(rewards) - 0.5))
    with pytest.raises(audit.PrivacyViolation):
        seen.audited(((0.0, 1.0), 0.0), 160).check(epsilon(Gaussian(0.5), 1e-2))

"""ShuffleGLM audited end to end: two runs that differ in one round, through all counts that leave in its batch.

The score is the exact log-likelihood ratio: of the matrix counts, and of every round of gradient counts given the
iterate at which they were asked for, which is a function of earlier counts.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from functools import cache, lru_cache
from types import SimpleNamespace

import numpy as np
import pytest
import white_box
from again import rewinder
from shuffled_counts import log_likelihood

from accounting import Budget, audit
from dpbandits.policies import ShuffleGLM
from dpbandits.private import shuffle_glm
from dpbandits.private.parts import batch_plans
from dpkit import optimize
from dpkit.geometry import svec
from dpkit.moments import batch_protocol
from dpkit.shuffle import Analyzer, VectorSum

BUDGET = Budget(8.0, 1e-2)
USERS, ROUNDS = 2, 3
# A sound mechanism is flagged, and a broken one missed, with probability at most this (its lower bound is far beyond).
CONFIDENCE = 1 - 1e-9
# Rounds that differ: the arm set of one arm, and the reward. With the linear link and a small ball a gradient is
# nearly −r·x, close to the clip. Opposite arms have the same matrix; the other pair moves both sums.
OPPOSITE = (([1.0, 0.0], 1.0), ([-1.0, 0.0], 1.0))
ANOTHER = (([1.0, 0.0], 1.0), ([-0.3, math.sqrt(0.91)], 1.0))


@cache
def plan() -> batch_plans.Plan:
    """With few rounds of descent, so that a run is short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_plans, "ITERATIONS", ROUNDS)
        found = batch_plans.numeric_plan.__wrapped__(2, USERS, 1.0, 0.51, BUDGET, 0.2, 1)
    # what the descent is allowed to cost is checked once and for all, not in each of the runs below
    return replace(found, descent=None)


@pytest.fixture
def policy(monkeypatch):
    monkeypatch.setattr(shuffle_glm, "numeric_plan", lambda *asked: plan())
    known = {"theta_bound": 0.01, "reward_range": (0.0, 1.0), "batches": [USERS], "rng": np.random.default_rng(20)}
    return ShuffleGLM(2, "linear", budget=BUDGET, horizon=10, **known)


def descent_protocol(policy: ShuffleGLM, mutation: str | None):
    """What the descent sends with: as calibrated, or with a slip."""
    plan, clip = policy.rows.plans[0], policy.rows.clip
    if mutation == "each":  # every round at the whole budget
        return replace(VectorSum(2, USERS, clip, budget=BUDGET).protocol, rounds=plan.rounds)
    if mutation == "beside":  # the descent is not counted: it has the whole budget, as the matrix has
        return VectorSum(2, USERS, clip, budget=BUDGET, rounds=plan.rounds).protocol
    protocol = VectorSum(2, USERS, clip, budget=plan.budget, rounds=plan.rounds).protocol
    return replace(protocol, noise_bits=protocol.noise_bits // 4) if mutation == "bits" else protocol


def lower_bound(monkeypatch, policy, pair, mutation: str | None, trials: int) -> tuple[audit.LowerBound, float]:
    protocol, matrix = descent_protocol(policy, mutation), policy.rows.plans[0].matrix
    if mutation == "bits":
        matrix = replace(matrix, noise_bits=matrix.noise_bits // 4)
    elif mutation is not None:
        matrix = VectorSum(3, USERS, 1.0, budget=BUDGET, distance=math.sqrt(2)).protocol
    policy.rows.plans[0] = replace(policy.rows.plans[0], matrix=matrix)
    start_again = rewinder(policy)
    # the descent calibrates its protocol anew in every run; here it is handed the one above
    module = sys.modules["dpkit.optimize.batch.shuffle_gradient_descent"]
    monkeypatch.setattr(module, "VectorSum", lambda *a, **k: SimpleNamespace(protocol=protocol))
    monkeypatch.setattr(module, "calibrate", lru_cache(module.calibrate))
    decoded: list[np.ndarray] = []
    iterates: list[np.ndarray] = []
    decode, descent = Analyzer.decode, optimize.shuffle_gradient_descent

    def recorded_decode(self, *arguments):
        decoded.append(decode(self, *arguments))
        return decoded[-1]

    def recorded_descent(*arguments, **known):
        iterates.append(np.zeros(2))
        return descent(*arguments, callback=iterates.append, **known)

    monkeypatch.setattr(Analyzer, "decode", recorded_decode)
    monkeypatch.setattr(optimize, "shuffle_gradient_descent", recorded_descent)

    def runs(first, trials: int) -> np.ndarray:
        outputs = np.empty((trials, 3 + 4 * ROUNDS))
        for i in range(trials):
            decoded.clear()
            iterates.clear()
            start_again()
            policy.update(policy.select([first[0]]), first[1])
            for _ in range(USERS):
                policy.select([[0.0, 1.0]])
            outputs[i] = np.concatenate([*decoded, *iterates[:ROUNDS]])
        return outputs

    def likelihood(outputs: np.ndarray, first) -> np.ndarray:
        x, r = np.array(first[0]), first[1]
        total = log_likelihood(matrix, outputs[:, :3], svec(np.outer(x, x)))
        gradients, thetas = np.split(outputs[:, 3:].reshape(len(outputs), 2, ROUNDS, 2), 2, axis=1)
        for t in range(ROUNDS):
            sent = (thetas[:, 0, t] @ x - r)[:, None] * x
            total += log_likelihood(protocol, gradients[:, 0, t], sent)
        return total

    bound = white_box.lower_bound(
        runs,
        *pair,
        trials=trials,
        delta=BUDGET.delta,
        confidence=CONFIDENCE,
        score=lambda outputs: likelihood(outputs, pair[0]) - likelihood(outputs, pair[1]),
        middle=0.0,
        # counts under binomial noise are priced as Gaussian DP but for a mass below 1e-27
    )
    return bound, float(policy.privacy().epsilon)


@pytest.mark.thorough
def test_one_round_shows_no_more_than_the_budget(monkeypatch, policy):
    bound, claim = lower_bound(monkeypatch, policy, OPPOSITE, None, 252)
    bound.check(claim)
    assert bound.epsilon >= 0.1 * claim  # and the audit is not blind


@pytest.mark.thorough
@pytest.mark.parametrize(("pair", "mutation"), [(OPPOSITE, "bits"), (ANOTHER, "each")])
def test_too_little_noise_is_caught(monkeypatch, policy, pair, mutation):
    bound, claim = lower_bound(monkeypatch, policy, pair, mutation, 297)
    with pytest.raises(audit.PrivacyViolation):
        bound.check(claim)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", [None, "beside"])
def test_one_round_in_full(monkeypatch, policy, mutation):
    """With more runs it is seen that matrix and descent, each at the whole budget, cost more together."""
    bound, claim = lower_bound(monkeypatch, policy, ANOTHER, mutation, 10_000)
    if mutation is None:
        bound.check(claim)
        assert bound.epsilon >= 0.6 * claim
    else:
        with pytest.raises(audit.PrivacyViolation):
            bound.check(claim)


NUMBERS = batch_protocol(1, USERS, 0.5, 1.0, BUDGET)


@pytest.mark.thorough
@pytest.mark.parametrize("bits", [1, 4])
def test_the_level_of_the_first_batch_shows_no_more_than_its_part(monkeypatch, policy, bits):
    """The other reward, or none: such a user adds 0. Its sum has the whole budget here.

    A quarter of the bits is caught. A sound one is flagged, and a broken one missed, with probability at most 1e-9.
    """
    protocol = replace(NUMBERS, noise_bits=NUMBERS.noise_bits // bits)
    policy.rows.plans[0] = replace(policy.rows.plans[0], numbers=protocol)
    monkeypatch.setattr(optimize, "shuffle_gradient_descent", lambda *a, **k: SimpleNamespace(**FIT))
    decoded: list[np.ndarray] = []
    decode, again = Analyzer.decode, rewinder(policy)
    monkeypatch.setattr(Analyzer, "decode", lambda *a: decoded.append(decode(*a)) or decoded[-1])

    @cache
    def runs(first, trials: int) -> np.ndarray:
        found = np.empty((trials, 1))
        for i in range(trials):
            decoded.clear()
            again()
            decision = policy.select([[1.0, 0.0]])
            if first is not None:
                policy.update(decision, first)
            for _ in range(USERS):
                policy.select([[0.0, 1.0]])
            found[i] = decoded[1]
        return found

    def likelihood(outputs: np.ndarray, first) -> np.ndarray:
        return log_likelihood(protocol, outputs, np.array([0.0 if first is None else first - 0.5]))

    known = {"trials": 297, "delta": BUDGET.delta, "confidence": CONFIDENCE, "middle": 0.0}
    for reward in (0.0,) if bits > 1 else (0.0, None):
        bound = white_box.lower_bound(
            runs,
            1.0,
            reward,
            **known,
            score=lambda outputs, reward=reward: likelihood(outputs, 1.0) - likelihood(outputs, reward),
        )
        if bits > 1:
            with pytest.raises(audit.PrivacyViolation):
                bound.check(BUDGET.epsilon)
        else:
            bound.check(BUDGET.epsilon)
            assert bound.epsilon >= 0.15 * BUDGET.epsilon or reward is None  # and the audit is not blind


FIT = {"x": np.zeros(2), "nit": 1, "step_size": 1.0, "noise_std": 1.0}

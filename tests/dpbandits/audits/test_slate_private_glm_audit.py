"""Slates audited end to end, and their joint sensitivity searched: one round must show no more than one round may.

The score of the audit is the exact log-likelihood ratio: C·A⁻¹ applied to the released sums gives back C·x + σζ (see
``test_one_pass_private_glm_audit`` and ``tossed``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from again import rewinder
from tossed import Tossed, released_by

from accounting import Budget, audit
from dpbandits import Pending
from dpbandits.policies import SlatePrivateGLM
from dpbandits.private.parts.slates import SlateRecord
from dpkit.continual import ContinualSum
from dpkit.geometry import pair_sensitivity
from dpkit.moments import SumBounds

BUDGET = Budget(8.0, 1e-2)
TRIALS = 340
ALL_SEEN, CASCADE = (1.0, 1.0), "cascade"


def played(monkeypatch, examination, rounds) -> tuple[SlatePrivateGLM, Tossed]:
    """Every round shows two arms that are alike, or their opposites, and nobody clicks.

    With that much ridge θ stays at 0. A base rate is stated, so that there is no level to be learned.
    """
    policy = SlatePrivateGLM(
        2, 2, budget=BUDGET, horizon=rounds, first_batch=1, growth=1.0, gradient_share=0.75, ridge=1e9, base_rate=0.5,
        examination=examination, rng=np.random.default_rng(20),
    )  # fmt: skip
    start_again = rewinder(policy)
    collected = released_by(monkeypatch, ContinualSum)

    def play(coins) -> np.ndarray:
        collected.clear()
        start_again()
        for coin in coins:
            policy.update(policy.select([[1.0 - 2.0 * coin, 0.0]] * 2), [0.0, 0.0])
        policy.select([[0.0, 1.0]])  # which releases the last of them
        return np.array(collected)

    return policy, Tossed(play, policy.sums.sums, policy.sums.sums.factor, rounds - 1, TRIALS)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("examination", "rounds"),
    [(CASCADE, 2), pytest.param(CASCADE, 4, marks=pytest.mark.slow), pytest.param(ALL_SEEN, 4, marks=pytest.mark.slow)],
)
def test_one_round_shows_no_more_than_the_budget_and_half_the_noise_is_caught(monkeypatch, examination, rounds):
    policy, runs = played(monkeypatch, examination, rounds)
    claim = float(policy.privacy().epsilon)
    for changed in range(rounds - 1):
        assert 0.7 / policy.sums.cost.noise_multiplier <= runs.distance(0)
        assert runs.distance(changed) <= 1.0 / policy.sums.cost.noise_multiplier
        bound = runs.lower_bound(changed, BUDGET)
        bound.check(claim)
        assert bound.epsilon >= 0.15 * claim  # and the audit is not blind
        with pytest.raises(audit.PrivacyViolation):
            runs.lower_bound(changed, BUDGET, noise=0.5).check(claim)


def let_pass(monkeypatch) -> None:
    """A version that neither cuts nor refuses what is too large."""
    monkeypatch.setattr(SlateRecord, "cut", lambda self, U, weights, gradients: gradients)
    monkeypatch.setattr(SumBounds, "summed", lambda self, X, w, g: (X.T @ (w[:, None] * X), g @ X))


@pytest.mark.slow
def test_positions_that_are_priced_as_one_and_not_clipped_are_caught(monkeypatch):
    """A version that adds up the records of a page, each within the bounds of one."""
    monkeypatch.setattr(SlateRecord, "fitting", lambda *_: 1.0)
    let_pass(monkeypatch)
    policy, runs = played(monkeypatch, ALL_SEEN, 2)
    with pytest.raises(audit.PrivacyViolation):
        runs.lower_bound(0, BUDGET).check(float(policy.privacy().epsilon))


# --------------------------------------------------------------------------------------------- sensitivity


def encoded(policy: SlatePrivateGLM, round, theta, metric) -> np.ndarray:
    """What a round adds to the sums, as they are scaled."""
    X, clicks = round
    note = tuple(range(len(X))) + (-1,) * (policy.k - len(X))
    arms = np.zeros((policy.k, policy.dim))
    arms[: len(X)] = X
    public = replace(policy.public, theta=theta, metric=metric)
    told = policy.checked_reward(list(clicks))
    U, w, g, beside = policy.record(Pending(arms.ravel(), 0, 0, note), told, public)
    before = policy.sums.batch.copy(), policy.sums.beside
    policy.sums.add_sum(U, w, g, beside)
    whole = [*(policy.sums.batch - before[0]).ravel(), policy.sums.beside - before[1]]
    return np.array(whole) / policy.sums._unit


def farthest(policy: SlatePrivateGLM, seed: int, steps: int) -> float:
    """The largest distance of two rounds that hill climbing finds, over arms, clicks, θ and the metric."""
    rng, (k, d) = np.random.default_rng(seed), (policy.k, policy.dim)

    def inside(X):
        return X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))

    def moved(round, step):
        X, clicks = round
        clicks = np.where(rng.random(k) < 0.1, 1.0 - clicks, clicks)
        return inside(X + step * rng.standard_normal((k, d)) * (rng.random((k, 1)) < 0.5)), clicks

    pair = [moved((np.zeros((k, d)), np.zeros(k)), 1.0) for _ in range(2)]
    theta, metric, best, step = np.zeros(d), np.eye(d), 0.0, 0.5
    for _ in range(steps):
        tried = [moved(one, step) for one in pair]
        turned = theta + step * rng.standard_normal(d) * (rng.random() < 0.3)
        turned *= min(1.0, 3.0 / max(1e-9, float(np.linalg.norm(turned))))
        stretched = metric * (1.0 + step * rng.standard_normal() * (rng.random() < 0.1))
        found = float(np.linalg.norm(np.subtract(*(encoded(policy, one, turned, stretched) for one in tried))))
        if found > best:
            pair, theta, metric, best = tried, turned, stretched, found
        else:
            step = max(0.005, 0.997 * step)
    return best


CASES = [(2, CASCADE, 0.5), (3, CASCADE, None), (3, CASCADE, 0.1), (2, ALL_SEEN, 0.5), (3, (1.0, 0.5, 0.3), 0.1)]


def searched(k, examination, base_rate, steps, seed=0, **more):
    policy = SlatePrivateGLM(
        4, k, budget=Budget(4.0, 1e-5, **more), horizon=1000, examination=examination, base_rate=base_rate
    )
    return policy, farthest(policy, seed, steps)


@pytest.mark.parametrize(("seeds", "steps"), [((0,), 400), pytest.param((0, 1), 3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("k", "examination", "base_rate"), CASES)
def test_no_two_rounds_are_farther_apart_than_stated_and_some_are_nearly(k, examination, base_rate, seeds, steps):
    found = 0.0
    for seed in seeds:
        policy, one = searched(k, examination, base_rate, steps, seed)
        found = max(found, one)
    assert found <= policy.sums.sums.sensitivity
    assert found >= (0.92 if steps > 1000 else 0.85) * policy.sums.sums.sensitivity
    if steps > 1000:  # what one position alone may be priced at is not enough for a page
        a, c, *_ = policy.sums.kept()["units"]
        record = policy.record.levels.base
        assert found > pair_sensitivity(a, record.W, c, record.B, "replace", least=record.least)


def test_what_is_zeroed_out_is_no_farther_than_stated():
    policy, _ = searched(3, ALL_SEEN[:1] * 3, 0.5, 1, adjacency="zero_out")
    rng, largest = np.random.default_rng(1), 0.0
    for _ in range(200):
        X = rng.standard_normal((3, 4))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        if rng.random() < 0.5:
            X[1:] = X[0]
        largest = max(largest, float(np.linalg.norm(encoded(policy, (X, rng.integers(2, size=3)), X[0], np.eye(4)))))
    assert 0.9 * policy.sums.sums.sensitivity <= largest <= policy.sums.sums.sensitivity


def test_without_clipping_the_search_finds_rounds_that_are_too_far_apart(monkeypatch):
    monkeypatch.setattr(SlateRecord, "fitting", lambda *_: 1.0)
    let_pass(monkeypatch)
    policy, found = searched(3, (1.0, 1.0, 1.0), 0.5, 400)
    assert found > 1.3 * policy.sums.sums.sensitivity


def test_a_cascade_that_is_clipped_for_no_click_alone_is_found_out(monkeypatch):
    """Where clicks are rare a click is far from the base rate; a page must fit in whatever is clicked."""
    original = SlateRecord.fitting
    monkeypatch.setattr(
        SlateRecord, "fitting", lambda self, gram, w, least, most: original(self, gram, w, least, least)
    )
    let_pass(monkeypatch)
    policy, found = searched(3, CASCADE, 0.1, 400)
    assert found > 1.02 * policy.sums.sums.sensitivity


def test_pages_with_several_clicks_that_are_not_cut_are_found_out(monkeypatch):
    let_pass(monkeypatch)
    policy, found = searched(3, (1.0, 1.0, 1.0), 0.1, 400)
    assert found > 1.1 * policy.sums.sums.sensitivity

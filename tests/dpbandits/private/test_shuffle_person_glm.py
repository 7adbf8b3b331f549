"""The policy for persons in the shuffle model: its sums, what they cost, and that all else is the central one's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regret import ball

from accounting import Budget, Ledger, ShuffledBinomial, epsilon
from accounting.amplification.binomial_trade_off import rounded_line, rounded_log_survival, rounded_mu
from dpbandits.policies import PersonPrivateGLM, ShufflePersonGLM
from dpkit.moments.people import PersonTotals
from dpkit.moments.shuffled_people import ShuffledPersonSums
from dpkit.shuffle import Randomizer

BUDGET = Budget(1.0, 1e-5, unit="person")


def sums_with(dim=3, releases=20, budget=BUDGET, seed=0) -> ShuffledPersonSums:
    return ShuffledPersonSums(
        dim, budget=budget, releases=releases, horizon=5000, rng=np.random.default_rng(seed)
    )  # fmt: skip


@settings(max_examples=12)
@given(
    users=st.integers(1, 5000),
    longest=st.floats(1e-3, 2.0),
    ε=st.floats(0.1, 20.0),
    releases=st.integers(1, 60),
    dim=st.integers(1, 12),
)
def test_a_release_costs_in_proportion_to_what_is_paid(users, longest, ε, releases, dim):
    """Whoever pays α for it: and Σα² = 1 in equal parts, or all at once, costs no more than the run."""
    sums = sums_with(dim, releases, Budget(ε, 1e-5, unit="person"))
    protocol = sums.protocol(users, longest)
    N, D = users * protocol.noise_bits, protocol.coordinates
    assert protocol.bound >= longest
    for α in (1.0, 0.3, 1.0 / math.sqrt(releases)):
        assert rounded_mu(N, α / protocol.step, D) <= (0.995 * α + 0.005 / math.sqrt(releases)) / sums._z * (1 + 1e-6)
    # the noise is what the estimate reckons with
    assert 0.98 <= protocol.noise_std(users) / sums.noise <= 1.0


@pytest.mark.parametrize("shares", [[1.0], [0.25] * 4, [0.7, 0.2, 0.1]])
def test_no_accountant_finds_that_a_run_costs_less_than_its_releases(shares):
    sums = sums_with(releases=4)
    protocol = sums.protocol(100, 0.5)
    N = 100 * protocol.noise_bits
    parts = [ShuffledBinomial(N, math.sqrt(a) / protocol.step, 9, rounded=True) for a in shares]
    assert epsilon(sum(parts[1:], start=parts[0]), 1e-5) <= epsilon(sums.cost, 1e-5) <= 1.0


@settings(max_examples=50)
@given(trials=st.integers(10**4, 10**8), share=st.floats(1e-3, 1.0), D=st.integers(1, 300))
def test_one_line_bounds_all_smaller_shifts(trials, share, D):
    largest = 0.4 * math.sqrt(trials)
    slope, offset, log_survival = rounded_line(trials, largest, D)
    assert rounded_mu(trials, share * largest, D) <= (slope * share * largest + offset) * (1 + 1e-9)
    assert log_survival <= rounded_log_survival(trials, share * largest, D) + 1e-25


def test_a_sum_is_unbiased_and_has_the_stated_noise():
    sums = sums_with(budget=Budget(4.0, 1e-5, unit="person"))
    columns = np.random.default_rng(1).uniform(-0.1, 0.1, (9, 40))
    total = columns.sum(axis=1)
    found = np.array([sums._summed([columns[:, :25].copy(), columns[:, 25:].copy()], 40, 0.4) for _ in range(400)])
    errors = (found - total) / sums.noise
    # 3600 values: |mean| has a deviation of 1/60, that of the variance is √2/60; seven deviations fail once in 10¹¹
    assert abs(errors.mean()) <= 7 / 60
    assert abs(errors.var() - 0.99) <= 7 * math.sqrt(2) / 60 + 0.01


def play(policy, rounds: int, seed: int = 3) -> None:
    rng = np.random.default_rng(seed)
    for t in range(rounds):
        decision = policy.select(ball(rng, 4, 3), person=int(rng.integers(1 + t // 3)))
        if rng.random() < 0.2:
            policy.forget(decision)
        else:
            policy.update(decision, float(rng.random() < 0.6))


def test_but_for_the_noise_it_is_the_central_one(monkeypatch):
    def exactly(self, contributions, persons, longest):
        return sum(some.sum(axis=1) for some in contributions)

    for kind in PersonTotals.__subclasses__():
        monkeypatch.setattr(kind, "_summed", exactly)
    known = {"budget": BUDGET, "horizon": 200, "first_batch": 10, "reward_range": (0.0, 1.0)}
    kinds = (PersonPrivateGLM, ShufflePersonGLM)
    policies = [kind(3, "probit", **known, rng=np.random.default_rng(0)) for kind in kinds]
    for policy in policies:
        # what the estimate reckons with differs by a percent
        policy.sums.noise = policies[0].sums.noise
        play(policy, 200)
    np.testing.assert_array_equal(policies[0].theta, policies[1].theta)
    assert policies[0].releases == policies[1].releases >= 8


def test_every_device_takes_part_and_none_says_more_than_the_bound(monkeypatch):
    """Also those whose rewards never come: they send null vectors."""
    sent = []
    tally = Randomizer.tally

    def told(self, X):
        assert not np.isnan(X).any()
        assert (np.linalg.norm(X, axis=1) <= self.protocol.bound * (1 + 1e-9)).all()
        sent.append(len(X))
        return tally(self, X)

    monkeypatch.setattr(Randomizer, "tally", told)
    policy = ShufflePersonGLM(3, budget=BUDGET, horizon=300, first_batch=10, rng=np.random.default_rng(0))
    rng = np.random.default_rng(1)
    for t in range(300):
        before = policy.releases
        sent.clear()
        decision = policy.select(ball(rng, 4, 3), person=t % 37)
        if policy.releases > before:
            assert sum(sent) == min(t, 37)
        if t % 37 < 20:
            policy.update(decision, float(t % 2))
    assert policy.releases >= 10


def test_it_is_charged_once_for_persons_in_the_shuffle_model():
    ledger = Ledger(BUDGET)
    policy = ShufflePersonGLM(3, budget=BUDGET, horizon=300, ledger=ledger, rng=np.random.default_rng(0))
    report = policy.privacy()
    assert (report.trust, report.unit) == ("shuffle", "person")
    assert 0.99 <= ledger.epsilon(1e-5) <= 1.0
    (row,) = ledger.rows()
    assert (row.release, row.unit) == (policy.sums.cost, "person")

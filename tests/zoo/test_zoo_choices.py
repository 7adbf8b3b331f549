"""Faults of mechanisms that choose are caught, and this project's mechanisms do not have them."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import zoo_choices as broken
from published import CONFIDENCE, is_caught, lower_bound, same_coins
from scipy import stats

from accounting import ZCDP, ApproxDP, BestOfRuns, Budget, Laplace, Ledger, NoisyMax, PureDP, epsilon, zcdp
from dpkit import queries
from dpkit.mechanisms import report_noisy_max
from dpkit.queries import AboveThreshold

NEAR, FAR = [0.0, 0.0], [1.0, -1.0]  # neighbours: each score moves by 1


def identity(outputs):
    return outputs


def test_permute_and_flip_as_bounded_range_is_caught():
    eps = 2.0
    program = partial(broken.permute_and_flip_as_bounded_range, epsilon=eps, rng=np.random.default_rng(1))
    # the second candidate wins half of the runs on one input, and e^(−2)/2 of those on the other
    found = lower_bound(program, NEAR, FAR, trials=40_000, delta=0.1, score=identity)
    is_caught(found, ZCDP(eps**2 / 8))
    found.check(ZCDP(eps**2 / 2))


@pytest.mark.parametrize("noise", ["exponential", "gumbel", "laplace"])
def test_permute_and_flip_as_bounded_range_is_not_ours(noise):
    eps, ledger = 2.0, Ledger()
    report_noisy_max(NEAR, 1.0, eps, noise, ledger=ledger)
    rho = zcdp(ledger.total)
    gaps = np.array([0.0, eps])  # between the two weights, on either input
    if noise == "gumbel":
        wins = 1 / (1 + np.exp(gaps))
    elif noise == "exponential":
        wins = np.exp(-gaps) / 2
    else:
        wins = np.exp(-gaps) * (2 + gaps) / 4  # the difference of two Laplace variables
    p, q = (np.array([w, 1 - w]) for w in wins)
    for order in (1.5, 2.0, 4.0, 30.0):
        for one, other in ((p, q), (q, p)):
            assert math.log(np.sum(one**order * other ** (1 - order))) / (order - 1) <= order * rho
    # and the two are not the same, as was taken for granted there
    assert zcdp(NoisyMax(eps, noise="exponential")) > 2 * zcdp(NoisyMax(eps, noise="gumbel"))


def test_sparse_vector_that_keeps_the_rest_is_caught():
    program = partial(broken.sparse_vector_that_keeps_the_rest, scale=2.0, rng=np.random.default_rng(2))
    found = lower_bound(
        program, [1.0, 1.0], [0.5, 1.0], trials=4_000, delta=0.0, score=lambda y: (y[:, 0] == 1.0).astype(float)
    )
    is_caught(found, PureDP(3.0))


def test_sparse_vector_that_keeps_the_rest_is_not_ours():
    ledger = Ledger()
    alarm = AboveThreshold(0.0, sensitivity=1.0, budget=Budget(1.0, 0.0), ledger=ledger)
    told = []
    while not alarm.done:
        told.append(alarm.ask(0.25))
    # nothing else than whether: one bit each, the last of which is the only one above
    assert told == [False] * (len(told) - 1) + [True]
    assert ledger.total == PureDP(1.0, adjacency="replace")


def shown(outputs):
    return (outputs >= 0).astype(float)


def test_threshold_that_lets_equals_pass_is_caught():
    program = partial(broken.threshold_that_lets_equals_pass, threshold=5, rng=np.random.default_rng(3))
    found = lower_bound(program, 1, 0, trials=100_000, delta=broken.claimed_delta(5), score=shown)
    is_caught(found, PureDP(1.0))


def test_threshold_rounded_down_is_caught():
    program = partial(broken.threshold_rounded_down, threshold=5.9, rng=np.random.default_rng(4))
    found = lower_bound(program, 1, 0, trials=100_000, delta=broken.claimed_delta(5), score=shown)
    is_caught(found, PureDP(1.0))


@pytest.mark.filterwarnings("ignore:delta is so large")
def groups_of_one(delta):
    """How many of as many groups of one row are shown, and what they may be."""
    groups, budget = np.arange(20_000), Budget(1.0, delta, adjacency="add_remove")
    found = queries.count(groups, groups=groups, budget=budget, rng=np.random.default_rng(5))
    assert ApproxDP(0.0, delta / 2, adjacency="add_remove") in [part for part, _ in found.cost.parts]
    return len(found.keys), stats.binom.isf(1 - CONFIDENCE, groups.size, delta / 2)


@pytest.mark.filterwarnings("ignore:delta is so large")
def test_threshold_that_lets_equals_pass_is_not_ours():
    number, most = groups_of_one(0.01)
    assert 0 < number <= most
    # with one row less at the threshold they would be e times as many
    assert number * math.e > stats.binom.ppf(1e-3, 20_000, 0.005)


@pytest.mark.filterwarnings("ignore:delta is so large")
def test_threshold_rounded_down_is_not_ours():
    # δ for which the threshold would be no whole number
    for delta in (0.007, 0.01, 0.017):
        number, most = groups_of_one(delta)
        assert number <= most


def test_best_of_many_priced_as_one_is_caught():
    program = partial(broken.best_of_many_priced_as_one, runs=20, rng=np.random.default_rng(6))
    is_caught(lower_bound(program, 0.0, 1.0, trials=20_000, delta=0.0, score=identity), Laplace(1.0))


@pytest.mark.parametrize("stop", [0.9, 0.2, 0.01])
def test_best_of_many_priced_as_one_is_not_ours(stop):
    """The exact law of the best score: P(best < t) = Σ P(N = n)·F(t)ⁿ for a geometric number N of runs."""

    def below(t, score):
        chance = np.where(t < score, 0.5 * np.exp(t - score), 1 - 0.5 * np.exp(score - t))
        return stop * chance / (1 - (1 - stop) * chance)

    t = np.linspace(-30.0, 30.0, 2_001)
    ratio = np.log(np.diff(below(t, 0.0)) / np.diff(below(t, 1.0)))
    claim = epsilon(BestOfRuns(Laplace(1.0), stop), 0.0)
    assert 1.0 < np.max(np.abs(ratio)) <= claim <= 3.0 + 1e-9


def test_quantile_that_crashes_is_caught():
    rows, more = [0.0] * 1491 + [1.0], [0.0] * 1492 + [1.0]
    program = partial(broken.quantile_that_crashes, rng=np.random.default_rng(7))
    found = lower_bound(program, rows, more, trials=500, delta=0.0, score=lambda y: (y >= 0).astype(float))
    is_caught(found, PureDP(2.0))


def test_quantile_that_crashes_is_not_ours():
    budget = Budget(2.0, 0.0, adjacency="add_remove")

    def median(rows, rng):
        return float(queries.quantile(np.array(rows), bounds=(0.0, 1.0), budget=budget, rng=rng).value)

    for rows in (1491, 1492, 100_000):
        (found,) = same_coins(median, [0.0] * rows + [1.0])
        assert 0.0 <= found < 1e-3

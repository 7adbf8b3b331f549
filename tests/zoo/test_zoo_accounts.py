"""Faults of what is charged are caught, and this project's accountants and ledgers do not have them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import zoo_accounts as broken
from commands import run
from published import is_caught, lower_bound

from accounting import (
    Budget,
    BudgetExceeded,
    Gaussian,
    Ledger,
    PoissonSubsampled,
    PureDP,
    UnsupportedRelease,
    audit,
    bound,
    epsilon,
    gdp,
)
from dpkit.geometry import LpBall
from dpkit.optimize import glm, noisy_gradient_descent
from dpkit.sklearn import PrivateGLMRegressor, PrivateKMeans

DELTA = 1e-6


@pytest.mark.parametrize(("eps", "count"), [(0.1, 1000), (0.05, 4000), (0.5, 100)])
def test_odometer_without_a_logarithm_is_caught(eps, count):
    ledger = Ledger()
    ledger.spend(count * PureDP(eps))
    proved = min(audit.recompute(ledger, delta=DELTA).epsilons.values())
    reported = broken.odometer_without_a_logarithm(eps, count, DELTA)
    # an overcharge: the theorem as it is printed, and what the audit adds up, are both less
    assert proved < broken.odometer_without_a_logarithm(eps, count, DELTA, mended=True) < reported


@pytest.mark.parametrize(("eps", "count"), [(0.1, 1000), (0.05, 4000), (0.5, 100), (1.0, 3), (0.01, 10)])
def test_odometer_without_a_logarithm_is_not_ours(eps, count):
    lower, upper = bound(count * PureDP(eps), DELTA)
    assert lower <= upper <= broken.odometer_without_a_logarithm(eps, count, DELTA, mended=True) * (1 + 1e-12)
    assert upper <= lower * 1.01 + 1e-9


Z, RATE, STEPS = 0.7, 0.001, 500


def test_accountant_of_the_limit_is_caught():
    claimed = broken.accountant_of_the_limit(Z, RATE, STEPS, DELTA)
    words = f"{STEPS} * PoissonSubsampled(Gaussian({Z}), {RATE})"
    assert "is false" in run("check", words, "--epsilon", claimed, "--delta", DELTA, status=1)
    assert bound(STEPS * PoissonSubsampled(Gaussian(Z), RATE), DELTA).lower > 1.5 * claimed


def test_accountant_of_the_limit_is_not_ours():
    release = STEPS * PoissonSubsampled(Gaussian(Z), RATE)
    with pytest.raises(UnsupportedRelease):
        gdp(release)
    assert epsilon(release, DELTA) >= bound(release, DELTA).lower


def test_swap_priced_as_removal_is_caught():
    program = partial(broken.swap_priced_as_removal, z=1.0, rng=np.random.default_rng(1))
    found = lower_bound(program, [1.0], [-1.0], trials=4_000, delta=DELTA, score=lambda y: y, gaussian=True)
    is_caught(found, Gaussian(1.0, adjacency="replace"))


def test_swap_priced_as_removal_is_not_ours(declared):
    rows = np.array([[1.0, 0.0], [0.0, 0.5]])
    for label in (100.0, -100.0):
        noisy_gradient_descent(
            glm("squared", clip=1.0), rows, [label, 0.0], constraint=LpBall(2, 2, 5.0), steps=1,
            budget=Budget(1.0, DELTA), rng=np.random.default_rng(0),
        )  # fmt: skip
    (distance,) = declared.distances()
    assert 0.99 < distance <= 1.0


def spent(budget, releases):
    """How many of them a ledger takes."""
    ledger = Ledger(budget)
    for number, release in enumerate(releases):
        try:
            ledger.spend(release)
        except BudgetExceeded:
            return number
    return len(releases)


def test_means_that_share_a_slice_is_caught():
    releases = broken.means_that_share_a_slice(1.0, features=3)
    assert spent(Budget(1.0, 0.0), releases) == 2
    ledger = Ledger()
    for release in releases:
        ledger.spend(release)
    assert audit.recompute(ledger, delta=0.0).epsilons["pure"] == pytest.approx(1.25)


@pytest.mark.filterwarnings("ignore")
def test_means_that_share_a_slice_is_not_ours():
    budget, X = Budget(1.0, DELTA), np.random.default_rng(0).random((40, 3))
    ledger = Ledger(budget)
    fit = PrivateGLMRegressor(budget, target_range=(0.0, 1.0), ledger=ledger, random_state=0, max_iter=4)
    fit.fit(X, X[:, 0])
    assert ledger.total == fit.cost_
    assert epsilon(ledger.total, DELTA) <= 1.0


def test_shares_in_the_wrong_order_is_caught():
    for features, within in ((2, True), (10, False)):
        releases = broken.shares_in_the_wrong_order(1.0, features, iterations=2)
        assert (spent(Budget(1.0, 0.0), releases) == len(releases)) is within


@pytest.mark.parametrize("features", [2, 10])
def test_shares_in_the_wrong_order_is_not_ours(features):
    budget, ledger = Budget(1.0, DELTA), Ledger(Budget(1.0, DELTA))
    X = np.random.default_rng(0).random((60, features))
    fit = PrivateKMeans(3, budget=budget, bounds=(np.zeros(features), np.ones(features)), ledger=ledger, random_state=0)
    fit.fit(X)
    assert ledger.total == fit.cost_
    assert epsilon(ledger.total, DELTA) <= 1.0

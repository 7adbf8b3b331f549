"""The filter from the budget alone: its theorem in small, and how close it comes to the best accountant."""

import itertools
import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledgers import most_of, taken_until_refused

from accounting import (
    Budget,
    DiscreteGaussian,
    Gaussian,
    Laplace,
    Ledger,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    epsilon,
)
from accounting.ledger.filters.additive_filter import AdditiveFilter
from accounting.ledger.filters.default_rule import mixed_rule
from accounting.ledger.filters.renyi_mixture import least_epsilon, meets, orders_and_weights
from accounting.releases import compose

# -------------------------------------------------------------------------------------- the inequality (*)

sums = st.lists(st.floats(0.0, 3.0) | st.just(math.inf), min_size=3, max_size=3).map(np.array)
ETA = np.array([3.0, 10.0, 30.0])
WEIGHTS = np.array([2e-6, 5e-6, 1e-6])


@settings(max_examples=60)
@given(sums, st.floats(0.0, 4.0))
def test_what_is_said_to_meet_does_for_every_loss(divergences, eps):
    if meets(ETA, WEIGHTS, divergences, eps):
        x = np.concatenate([[0.0], np.geomspace(1e-9, 100.0, 20_000)])
        with np.errstate(over="ignore"):
            right = np.exp(np.log(WEIGHTS) + np.add.outer(x + eps, -divergences) * ETA).sum(axis=1)
        assert np.all(-np.expm1(-x) <= right * (1 + 1e-9))


@settings(max_examples=50)
@given(sums)
def test_the_least_epsilon_is_where_it_begins(divergences):
    least = least_epsilon(ETA, WEIGHTS, divergences)
    if math.isinf(least):
        assert np.isinf(divergences).all()
    else:
        assert meets(ETA, WEIGHTS, divergences, least)
        assert least == 0 or not meets(ETA, WEIGHTS, divergences, least * (1 - 1e-6) - 1e-9)
        # never above what one order gives by itself
        alone = divergences - (np.log(WEIGHTS) + ETA * np.log1p(1 / ETA) + np.log1p(ETA)) / ETA
        assert least <= max(0.0, alone.min()) * (1 + 1e-6) + 1e-6


def test_one_order_is_the_conversion_of_canonne_kamath_and_steinke():
    # ε = ε_α + ln(1 − 1/α) − (ln δ + ln α)/(α − 1)
    order, delta, divergence = 11.0, 1e-6, 0.4
    expected = divergence + math.log(1 - 1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
    found = least_epsilon(np.array([order - 1]), np.array([delta]), np.array([divergence]))
    assert found == pytest.approx(expected, rel=1e-8)


def test_the_mixture_starts_below_delta_and_stays_a_supermartingale():
    """E_P[U after] ≤ U before, for every loss so far, when each release is randomized response."""
    orders, weights = orders_and_weights(1.0, 1e-6)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    eta = orders - 1
    from accounting import rdp

    for eps in (0.01, 0.3, 1.0):
        truth = 1 / (1 + math.exp(-eps))
        moment = truth * np.exp(eta * eps) + (1 - truth) * np.exp(-eta * eps)
        assert np.all(moment <= np.exp(eta * rdp(PureDP(eps), orders)) * (1 + 1e-12))


# ------------------------------------------------------------------------------------------ how much fits


def drawn(kinds, generator):
    """Six different releases, each a few percent of (1, 1e-6)."""

    def between(low, high):
        return math.exp(generator.uniform(math.log(low), math.log(high)))

    make = {
        "pure": lambda: PureDP(between(0.003, 0.03)),
        "gaussian": lambda: Gaussian(between(30.0, 200.0)),
        "discrete": lambda: DiscreteGaussian(between(30.0, 200.0), shift=1),
        "laplace": lambda: Laplace(between(30.0, 200.0)),
        "subsampled": lambda: 20 * PoissonSubsampled(Gaussian(between(2.0, 5.0)), between(0.0005, 0.005)),
    }
    return [make[kind]() for kind, _ in zip(itertools.cycle(kinds), range(6), strict=False)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "least"),
    [
        (PoissonSubsampled(Gaussian(2.0), 0.002), 0.965),
        (PoissonSubsampled(Gaussian(1.5), 0.01), 0.905),
        (PoissonSubsampled(Gaussian(1.0), 0.001), 0.93),
        (PoissonSubsampled(Gaussian(1.0), 0.005), 0.67),
        (PoissonSubsampled(Gaussian(1.5), 0.01) + Gaussian(200.0) + PureDP(0.01), 0.965),
        (DiscreteGaussian(100.0), 0.97),
        (PureDP(0.02), 0.955),
        (Laplace(30.0), 0.925),
        (NoisyMax(0.02), 0.96),
        (NoisyMax(0.02, "exponential"), 0.95),
    ],
    ids=repr,
)
def test_how_many_of_one_kind_fit(release, least):
    """Skewed losses are the bad case, the more so the larger and rarer they are."""
    budget = Budget(1.0, 1e-6, adjacency="add_remove")
    count = most_of(AdditiveFilter(budget, mixed_rule(budget)), release)
    # not above the budget, ever
    assert least < epsilon(count * release, 1e-6) <= 1.0


KINDS = ["pure", "gaussian", "discrete", "laplace", "subsampled"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "least", "usual"),
    [
        (["gaussian"], 0.97, 0.97),
        (["pure"], 0.955, 0.96),
        (["discrete"], 0.97, 0.97),
        (["pure", "gaussian", "subsampled"], 0.965, 0.97),
        (KINDS, 0.955, 0.965),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_how_full_a_ledger_of_anything_in_any_order_is(kinds, least, usual):
    """By the best accountant, the loss distribution included, with the first release that is refused."""
    generator = random.Random(7)
    filled = []
    for _ in range(2):
        releases = drawn(kinds, generator)
        ledger = Ledger(Budget(1.0, 1e-6, adjacency="add_remove"))
        asked = [generator.choice(releases) for _ in range(5000)]
        taken = taken_until_refused(ledger, asked)[0]
        assert ledger.accountant == "mixed"
        # with the one that was refused: how full a filter could be at most
        filled.append(epsilon(compose(Counter(asked[: len(taken) + 1]).items()), 1e-6))
        # and without it not above the budget
        assert epsilon(ledger.total, 1e-6) <= 1.0
    assert min(filled) > least
    assert np.mean(filled) > usual

"""The smallest noise: exact for Gaussians, never optimistic for anything."""

import math
import time
from fractions import Fraction
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from accounting import (
    ZCDP,
    AdjacencyMismatch,
    ApproxDP,
    Budget,
    BudgetExceeded,
    DiscreteGaussian,
    Gaussian,
    Laplace,
    LocalShuffled,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    ShuffledBinomial,
    TreeAggregation,
    UnaryEncoding,
    UnsupportedRelease,
    calibrate,
    compare,
    compose,
    delta,
    epsilon,
    parallel,
)
from accounting.releases import Composed


def test_reference_values():
    # computed with mpmath at 40 digits
    assert calibrate(Gaussian, Budget(1.0, 1e-6)) == pytest.approx(4.22467888932683528, rel=1e-12)
    assert calibrate(Gaussian, Budget(10.0, 1e-6)) == pytest.approx(0.541086831818365981, rel=1e-12)
    assert calibrate(lambda z: 100 * Gaussian(z), Budget(1.0, 1e-6)) == pytest.approx(42.2467888932683528, rel=1e-13)


DESCRIPTIONS = {
    "gaussians": lambda z: 100 * Gaussian(z),
    "tree": lambda z: TreeAggregation(z, 1000) + Gaussian(2 * z),
    "parallel": lambda z: parallel(3 * Gaussian(z), Gaussian(z / 2)),
    "discrete": lambda z: 10 * DiscreteGaussian(z),
    "gumbel": lambda z: 20 * NoisyMax(1 / z),
    "one laplace": Laplace,
    "local": lambda z: RandomizedResponse(1 / z, 10),
    "mixed": lambda z: DiscreteGaussian(z) + NoisyMax(1 / z) + ZCDP(1e-6),
    "shuffled": lambda z: LocalShuffled(1 / z, 500),
    "with failures": lambda z: Gaussian(z) + ApproxDP(0.01, 1e-9),
}


@pytest.mark.parametrize(
    ("name", "budget"), list(zip(DESCRIPTIONS, cycle([Budget(0.3, 1e-7), Budget(10.0, 1e-2), Budget(1.0, 1e-5)])))
)
def test_it_meets_the_budget_and_a_little_less_noise_does_not(name, budget):
    make = DESCRIPTIONS[name]
    z = calibrate(make, budget)
    found = delta(make(z), budget.epsilon)
    assert found <= budget.delta
    assert epsilon(make(z), budget.delta) <= budget.epsilon
    # the grid of a privacy loss distribution is chosen anew for every z, and so its curve has steps
    less = 1e-5 if found.accountant == "pld" and isinstance(make(z), Composed) else 1e-9
    assert delta(make(z * (1 - less)), budget.epsilon) > budget.delta


@tabled("eps", [1e-3, 0.1, 1.0, 30.0])
@tabled("level", [1e-12, 1e-5, 0.1])
def test_calibrated_gaussians_pass_both_ways_of_asking(eps, level):
    total = 7 * Gaussian(calibrate(lambda z: 7 * Gaussian(z), Budget(eps, level)))
    assert epsilon(total, level) <= eps
    assert delta(total, eps) <= level


@pytest.mark.parametrize("make", [lambda z: 10 * Laplace(z), lambda z: Laplace(z) + 3 * NoisyMax(1 / z)])
def test_discretised_totals_are_met_too(make):
    budget = Budget(2.0, 1e-5)
    z = calibrate(make, budget)
    assert delta(make(z), 2.0) <= 1e-5
    assert delta(make(z * (1 - 1e-6)), 2.0) > 1e-5
    assert z < calibrate(make, budget, accountant="rdp")


def test_a_named_accountant_is_used():
    budget = Budget(1.0, 1e-5, adjacency="add_remove")
    z = calibrate(lambda z: 1000 * PoissonSubsampled(Gaussian(z), 0.01), budget, accountant="rdp")
    total = 1000 * PoissonSubsampled(Gaussian(z), 0.01)
    assert epsilon(total, 1e-5, accountant="rdp") == pytest.approx(1.0, rel=1e-9)
    assert calibrate(Gaussian, Budget(1.0, 1e-5), accountant="zcdp") > calibrate(Gaussian, Budget(1.0, 1e-5))


def test_binomial_noise_is_calibrated_by_its_number_of_trials():
    z = calibrate(lambda z: ShuffledBinomial(math.ceil(1000 * z * z), 10.0, 3), Budget(1.0, 1e-5))
    assert epsilon(ShuffledBinomial(math.ceil(1000 * z * z), 10.0, 3), 1e-5) <= 1.0
    assert epsilon(ShuffledBinomial(math.ceil(1000 * z * z) - 1, 10.0, 3), 1e-5) > 1.0


def test_pure_budgets():
    assert calibrate(lambda z: 4 * Laplace(z), Budget(2.0, 0.0)) == pytest.approx(2.0, rel=1e-9)
    with pytest.raises(BudgetExceeded, match="no noise multiplier up to 1e18 meets Budget"):
        calibrate(Gaussian, Budget(1.0, 0.0))


PURE = {
    "laplace": (lambda c, z: Laplace(z / c), lambda c, z: 1 / Fraction(z / c)),
    "response": (lambda c, z: RandomizedResponse(c / z, 4), lambda c, z: Fraction(c / z)),
    "unary": (lambda c, z: UnaryEncoding(c / z, 5), lambda c, z: Fraction(c / z)),
    "choice": (lambda c, z: NoisyMax(c / z, "exponential"), lambda c, z: Fraction(c / z)),
    "any": (lambda c, z: PureDP(c / z), lambda c, z: Fraction(c / z)),
}
PARTS = st.lists(st.tuples(st.sampled_from(sorted(PURE)), st.floats(0.01, 10.0), st.integers(1, 200)), min_size=1)


@settings(max_examples=50, deadline=None)
@given(parts=PARTS, level=st.floats(1e-3, 30.0), fixed=st.sampled_from([0.0, 0.0, 0.3]))
def test_pure_budgets_are_met_by_the_exact_sum_and_no_less_noise_meets_them(parts, level, fixed):
    """By another formula than the accountant's; ``fixed`` is a part, of the budget's ε, that does not depend on z."""

    def make(z):
        return compose([(PURE[name][0](c, z), count) for name, c, count in parts] + [(PureDP(fixed * level), 1)])

    def cost(z):
        return Fraction(fixed * level) + sum(count * PURE[name][1](c, z) for name, c, count in parts)

    z = calibrate(make, Budget(level, 0.0))
    assert cost(z) <= Fraction(level)
    assert epsilon(make(z), 0.0) <= level
    assert delta(make(z), level) == 0.0
    assert cost(z * (1.0 - (1e-10 if fixed else 4e-14))) > Fraction(level)


@pytest.mark.thorough
@settings(max_examples=8, deadline=None)
@given(parts=PARTS.filter(lambda parts: len(parts) < 4))
def test_no_accountant_says_less_than_an_exact_sum(parts):
    """Which is why it alone is asked at δ = 0, and about an ε that is as large."""
    release = compose([(PURE[name][0](c, 8.0), count) for name, c, count in parts])
    total = epsilon(release, 0.0)
    assert total.accountant == "pure"
    assert total == min(compare(release, 0.0).values())
    assert delta(release, total) == 0.0
    assert delta(release, total * (1.0 - 1e-9)) > 0.0 or total > 700.0  # e^(−ε) is 0 there


def test_a_bracket_far_off_is_widened():
    budget = Budget(1e-3, 1e-9)
    assert calibrate(Gaussian, budget, bracket=(1e-3, 1e-2)) == pytest.approx(calibrate(Gaussian, budget), rel=1e-12)
    assert calibrate(Gaussian, budget, bracket=(1e9, 1e10)) == pytest.approx(calibrate(Gaussian, budget), rel=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("eps", [1e3, 1e6, 1e9])
def test_a_budget_that_hardly_protects_is_met_as_quickly(eps, adjacency):
    with pytest.warns(UserWarning, match="hardly protects"):
        budget = Budget(eps, 1e-6, adjacency=adjacency)

    def make(z):
        return 100 * PoissonSubsampled(Gaussian(z, adjacency="add_remove"), 0.1, adjacency=adjacency)

    begun = time.process_time()
    z = calibrate(make, budget)
    assert time.process_time() - begun < 60  # about one second; hours at ε = 1e9 by the integral
    assert epsilon(make(z), 1e-6) <= eps < epsilon(make(0.999 * z), 1e-6)


@pytest.mark.thorough
def test_a_budget_that_any_noise_meets():
    assert calibrate(lambda z: PureDP(1e-3) + ZCDP(1e-9 / z), Budget(1.0, 1e-2)) <= 1e-8


def test_no_noise_is_enough_for_a_fixed_part_that_costs_more():
    with pytest.raises(BudgetExceeded, match=r"no noise multiplier up to 1e18 meets Budget\(epsilon=1.0"):
        calibrate(lambda z: Gaussian(z) + PureDP(5.0), Budget(1.0, 1e-6))


@pytest.mark.parametrize(
    ("bracket", "message"),
    [
        ((2.0, 1.0), r"bracket must be increasing, got bracket=\(2.0, 1.0\)"),
        ((0.0, 1.0), "bracket must be positive and finite, got bracket=0.0"),
        ((1.0, math.nan), "bracket must be a number, got bracket=nan"),
    ],
)
def test_bad_brackets_are_refused(bracket, message):
    with pytest.raises(ValueError, match=message):
        calibrate(Gaussian, Budget(1.0, 1e-6), bracket=bracket)


def test_adjacencies_must_agree():
    with pytest.raises(AdjacencyMismatch, match=r"the budget counts 'replace' neighbours .* 'add_remove'"):
        calibrate(lambda z: PoissonSubsampled(Gaussian(z), 0.1), Budget(1.0, 1e-6))


def test_what_no_accountant_knows_is_refused():
    with pytest.raises(UnsupportedRelease, match="GDP accountant has no bound for"):
        calibrate(lambda z: PoissonSubsampled(Gaussian(z) + ZCDP(0.1), 0.1), Budget(1.0, 1e-6, adjacency="add_remove"))

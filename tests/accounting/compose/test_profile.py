"""One privacy profile per release: δ is the inverse of ε, in sums of whatever composes, and pure sums are exact."""

import math
import random
import warnings
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import (
    ZCDP,
    ApproxDP,
    BestOfRuns,
    Budget,
    BudgetExceeded,
    DiscreteGaussian,
    DiscreteLaplace,
    FixedSizeSubsampled,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    Ledger,
    LocalShuffled,
    NoisyMax,
    ObjectivePerturbation,
    PoissonSubsampled,
    PureDP,
    RandomAllocated,
    RandomizedResponse,
    ShuffledBinomial,
    TreeAggregation,
    UnaryEncoding,
    UnsupportedRelease,
    bound,
    compose,
    delta,
    epsilon,
    parallel,
)
from accounting.releases import Composed

KINDS = [
    lambda near: near(1, 400) * Gaussian(near(0.5, 30)),
    lambda near: near(1, 400) * Laplace(near(0.5, 50)),
    lambda near: near(1, 5000) * PoissonSubsampled(Gaussian(near(0.5, 5)), near(1e-4, 0.3)),
    lambda near: near(1, 400) * PoissonSubsampled(Laplace(near(0.3, 5)), near(1e-3, 0.3)),
    lambda near: near(1, 2000) * PoissonSubsampled(NoisyMax(near(0.1, 3)), near(1e-4, 0.1)),
    lambda near: near(1, 400) * FixedSizeSubsampled(Gaussian(near(0.8, 5)), near(2, 500), 60_000),
    lambda near: near(1, 400) * FixedSizeSubsampled(PureDP(near(0.1, 3)), near(2, 500), 60_000),
    lambda near: near(1, 400) * PureDP(near(0.001, 2)),
    lambda near: near(1, 400) * DiscreteGaussian(near(1.0, 30.0)),
    lambda near: near(1, 400) * DiscreteLaplace(near(1.0, 30.0)),
    lambda near: near(1, 400) * ZCDP(near(1e-4, 0.5)),
    lambda near: near(1, 400) * RandomizedResponse(near(0.05, 2), near(3, 50)),
    lambda near: near(1, 400) * UnaryEncoding(near(0.05, 2), near(3, 50)),
    lambda near: near(1, 400) * NoisyMax(near(0.05, 2)),
    lambda near: near(1, 400) * NoisyMax(near(0.05, 2), "laplace"),
    lambda near: near(1, 40) * BestOfRuns(Gaussian(near(1.0, 8.0)), near(0.003, 0.5)),
    lambda near: near(1, 20) * ApproxDP(near(0.01, 1), near(1e-13, 1e-9)),
    lambda near: near(1, 10) * LocalShuffled(near(0.3, 3), near(1000, 100_000)),
    lambda near: ShuffledBinomial(near(1000, 100_000), 1.0, 1),
    lambda near: ObjectivePerturbation(near(0.3, 3), near(0.001, 0.1)),
    lambda near: near(1, 50) * TreeAggregation(near(1.0, 10.0), near(2, 500)),
    lambda near: near(1, 50) * GeneralizedGaussian(near(1.0, 10.0)),
    lambda near: near(1, 20) * parallel(Gaussian(near(1.0, 5.0)), Laplace(near(1.0, 5.0))),
]


def parts_of(total):
    return total.parts if isinstance(total, Composed) else ((total, 1),)


def sums(seed, count):
    """Random sums of up to three kinds, each with a δ that is more than what may fail."""
    draw = random.Random(seed)

    def near(low, high):
        value = math.exp(draw.uniform(math.log(low), math.log(high)))
        return int(value) if isinstance(low, int) else value

    while count:
        parts = [draw.choice(KINDS)(near) for _ in range(draw.choice([1, 1, 2, 3]))]
        kinds = {part.adjacency for part in parts} - {None}
        if len(kinds) > 1:
            continue
        total, target = compose((part, 1) for part in parts), 10 ** draw.uniform(-15, -3)
        failing = sum(n * one.delta for one, n in parts_of(total) if isinstance(one, ApproxDP))
        unpriced = [(ObjectivePerturbation, FixedSizeSubsampled)]  # no accountant knows both
        names = {type(one) for one, _ in parts_of(total)}
        if failing < target and not any(names >= set(pair) for pair in unpriced):
            count -= 1
            yield total, target


def check_inverse(release, target):
    """δ at the ε of a δ is at most that δ, and no δ is given up on in silence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = epsilon(release, target)
        assert math.isfinite(found)
        again = delta(release, float(found))
    assert again <= target * (1 + 1e-9), (release, target, float(found), float(again))


@pytest.mark.parametrize(("release", "target"), list(sums(1, 8)), ids=range(8))
def test_delta_is_the_inverse_of_epsilon(release, target):
    check_inverse(release, target)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_delta_is_the_inverse_of_epsilon_in_two_thousand_sums(seed):
    """Four of the 2,000 are known to be beyond: three sums of noisy maxima by 2e-6 to 2e-5, one tuning by a third."""
    beyond = []
    for release, target in sums(100 + seed, 100):
        try:
            check_inverse(release, target)
        except AssertionError:
            beyond.append(release)
        except UnsupportedRelease:
            continue  # one of them no accountant knows as a whole
    assert len(beyond) <= 1, beyond


# were 1.02 × δ, 1.0 and 1.0019 × δ: failures beside noise, tuning again and again, and ε in its last digits
@pytest.mark.parametrize(
    ("release", "target"),
    [
        # next to all the largest losses together, where a game of choices is less sharp than their sum
        (4 * NoisyMax(0.1226, "laplace"), 8.67e-8),
        (20 * RandomAllocated(Laplace(3.0), 30, 2, adjacency="replace"), 1e-13),
        (ApproxDP(0.3963807, 1.4e-13) + FixedSizeSubsampled(Gaussian(4.0638), 60, 60_000), 1.1488e-8),
        (352 * BestOfRuns(Gaussian(3.4), 0.0036), 2.5e-10),
        (Laplace(11.096782) + 2 * PureDP(0.00200622), 9.9726e-15),
        (14 * FixedSizeSubsampled(Gaussian(2.9), 13, 60_000), 1.2e-9),
        # ε is read off sums for the level below, which say a little less
        (12 * Laplace(5.0) + Gaussian(3.0), 2.0**-20 * (1 - 1e-9)),
    ],
    ids=["choices", "swaps", "failures", "tuning", "rounding", "batches", "levels"],
)
def test_what_was_no_inverse_is_one(release, target):
    check_inverse(release, target)


@pytest.mark.slow
def test_rare_strong_releases_have_a_narrow_bracket():
    rare = 10 * PoissonSubsampled(Gaussian(2.11), 1.44e-4) + 100 * PoissonSubsampled(Gaussian(0.875), 1.03e-4)
    lower, upper = bound(rare, 1.9e-9)
    # dp-accounting 0.4.4, at a discretization of 1e-4: optimistic 0.0401, pessimistic 0.0446
    assert 0.0401 < lower < upper < 0.0446
    assert upper - lower < 0.005 * upper


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 1000), st.floats(1e-6, 10), st.integers(1, 1000), st.floats(1e-6, 10))
def test_pure_sums_are_exact_and_rounded_up(many, each, more, other):
    exact = many * Fraction(each) + more * Fraction(other)
    found = float(epsilon(many * PureDP(each) + more * PureDP(other), 0))
    assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 2**52))
    noise = float(epsilon(many * Laplace(each) + more * PureDP(other), 0))
    assert many / Fraction(each) + more * Fraction(other) <= Fraction(noise)


@pytest.mark.parametrize(
    ("whole", "each"), [(0.3, [0.1, 0.2]), (5.1, [0.3] * 17), (1.0, [0.1] * 10), (0.7, [0.1, 0.6])]
)
def test_a_budget_holds_what_it_holds_in_decimals_and_no_more(whole, each):
    ledger = Ledger(Budget(whole, 0))
    for i, one in enumerate(each):
        ledger.spend(PureDP(one), label=str(i))
    with pytest.raises(BudgetExceeded):
        ledger.spend(PureDP(1e-12), label="one more")

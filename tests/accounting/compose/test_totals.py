"""Totals under one accountant, under the best, and side by side."""

import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import (
    ZCDP,
    ApproxDP,
    DiscreteGaussian,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    LocalShuffled,
    NoisyMax,
    ObjectivePerturbation,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    ShuffledBinomial,
    TreeAggregation,
    UnsupportedRelease,
    compare,
    delta,
    epsilon,
    gdp,
    parallel,
    rdp,
    zcdp,
)
from accounting.releases import Composed

EVERY = [
    Gaussian(1.5),
    DiscreteGaussian(2.0),
    GeneralizedGaussian(3.0),
    Laplace(0.5),
    NoisyMax(0.3),
    NoisyMax(0.3, noise="laplace"),
    RandomizedResponse(1.0, 4),
    PureDP(0.7),
    ZCDP(0.1),
    ApproxDP(0.5, 1e-7),
    TreeAggregation(5.0, 100),
    PoissonSubsampled(Gaussian(1.0), 0.1),
    ShuffledBinomial(2000, 5.0, 3),
    LocalShuffled(1.0, 1000),
]


@pytest.mark.parametrize("release", EVERY, ids=repr)
def test_every_description_has_a_price(release):
    bounds = compare(release, 1e-6)
    assert list(bounds.values()) == sorted(bounds.values())
    assert math.isfinite(next(iter(bounds.values())))
    best = epsilon(release, 1e-6)
    assert best == next(iter(bounds.values()))
    assert best.accountant in bounds
    assert delta(release, best) <= 1e-6 * (1 + 1e-3)
    for name, value in bounds.items():
        alone = epsilon(release, 1e-6, accountant=name)
        assert alone == value
        assert alone.accountant == name


@pytest.mark.parametrize("release", EVERY, ids=repr)
def test_totals_grow_with_composition_and_fall_with_delta(release):
    one, two = epsilon(release, 1e-5), epsilon(2 * release, 1e-5)
    assert one <= two <= 2 * epsilon(release, 5e-6) * (1 + 1e-6)
    assert one <= epsilon(release, 1e-6)
    alone = delta(release, 1.0)
    assert delta(release, 0.1) >= alone
    assert alone <= delta(2 * release, 1.0) <= 1


@settings(max_examples=15, deadline=None)
@given(
    z=st.floats(0.5, 20), more=st.floats(1.001, 3), count=st.integers(1, 50), log_delta=st.floats(-12, -2),
    kind=st.sampled_from([Gaussian, DiscreteGaussian, GeneralizedGaussian, lambda z: NoisyMax(1 / z)]),
)  # fmt: skip
def test_totals_fall_with_noise(z, more, count, log_delta, kind):
    assert epsilon(count * kind(z * more), 10**log_delta) <= epsilon(count * kind(z), 10**log_delta)


def test_the_default_is_exact_for_gaussians_without_asking_anyone_else():
    assert epsilon(3 * Gaussian(2.0), 1e-6).accountant == "gdp"
    assert set(compare(3 * Gaussian(2.0), 1e-6)) == {"gdp", "zcdp", "rdp", "pld"}


@pytest.mark.parametrize(
    ("release", "level"),
    [
        (1000 * PoissonSubsampled(Gaussian(1.1), 0.01), 1e-6),
        (100 * Laplace(2.0) + PureDP(0.1), 1e-9),
        # near the sum of all the largest losses, those of a unit that is present; and an ε that is beyond use
        (3 * PoissonSubsampled(PureDP(0.245376219210605), 0.041174763214761316), 5.456103078365707e-10),
        (8 * PoissonSubsampled(PureDP(0.01978519449051995), 0.009666946015686424), 2.4e-97),
        (10 * Laplace(213.1) + 58 * PoissonSubsampled(PureDP(0.012), 0.2235), 2.7e-125),
        (16 * DiscreteGaussian(2.472, shift=3) + 96 * Gaussian(0.392), 3.6e-123),
    ],
    ids=repr,
)
def test_where_one_accountant_is_asked_no_other_says_less(release, level):
    assert epsilon(release, level) <= min(compare(release, level).values()) * (1 + 1e-9)


def test_nothing_costs_nothing():
    assert epsilon(Composed(), 1e-6) == 0.0
    assert delta(Composed(), 0.0) == 0.0
    assert set(compare(Composed(), 1e-6).values()) == {0.0}
    assert epsilon(PureDP(0.0), 0.0) == 0.0
    assert epsilon(PoissonSubsampled(Composed(), 0.1), 1e-6, accountant="pld") == 0.0


# ------------------------------------------------------------------------------------------------------ failures


def test_failures_are_added_outside_the_rest():
    release = Gaussian(3.0) + ApproxDP(0.0, 1e-4)
    assert delta(release, 1.0) == pytest.approx(1e-4 + (1 - 1e-4) * delta(Gaussian(3.0), 1.0), rel=1e-12)
    level = 1e-3
    assert epsilon(release, level) == pytest.approx(epsilon(Gaussian(3.0), (level - 1e-4) / (1 - 1e-4)), rel=1e-9)


def test_approximate_dp_is_what_it_says():
    assert delta(ApproxDP(0.5, 1e-3), 0.5) == pytest.approx(1e-3, rel=1e-12)
    assert epsilon(ApproxDP(0.5, 1e-3), 1e-3) <= 0.5 * (1 + 1e-12)
    assert epsilon(ApproxDP(0.5, 1e-3), 1e-4) == math.inf
    assert epsilon(100 * ApproxDP(0.5, 1e-3), 1e-2) == math.inf


# ------------------------------------------------------------------------------------------------------- the bound


def test_a_bound_is_a_float_that_knows_its_accountant():
    bound = epsilon(Gaussian(1.0), 1e-5)
    assert isinstance(bound, float)
    again = pickle.loads(pickle.dumps(bound))
    assert (again, again.accountant) == (bound, "gdp")


@pytest.mark.parametrize("level", [1.0, -1e-6, math.nan, 2.0])
def test_delta_must_be_a_probability(level):
    for ask in (epsilon, compare):
        with pytest.raises(ValueError, match=r"delta must (lie in \[0, 1\)|be a number), got delta="):
            ask(Gaussian(1.0), level)


@pytest.mark.parametrize("eps", [-0.1, math.nan, math.inf])
def test_epsilon_must_be_nonnegative(eps):
    with pytest.raises(ValueError, match=r"epsilon must be .*, got epsilon="):
        delta(Gaussian(1.0), eps)


def test_delta_zero_needs_pure_dp():
    assert epsilon(Gaussian(1.0), 0.0) == math.inf
    assert epsilon(Laplace(2.0) + NoisyMax(0.5), 0.0) == 1.0


def test_only_descriptions_are_priced():
    with pytest.raises(TypeError, match=r"release must be a description such as Gaussian\(1.0\), got release=1.0"):
        epsilon(1.0, 1e-5)


def test_an_unknown_accountant_is_refused():
    with pytest.raises(ValueError, match=r"accountant must be one of .*, got accountant='renyi'"):
        epsilon(Gaussian(1.0), 1e-5, accountant="renyi")


@pytest.mark.parametrize(
    ("ask", "release", "name"),
    [
        (gdp, ZCDP(0.1), "GDP"),
        (zcdp, PoissonSubsampled(Gaussian(1.0), 0.1), "zCDP"),
        (lambda r: rdp(r, 2.0), ShuffledBinomial(100, 1.0, 1), "RDP"),
        (lambda r: epsilon(r, 1e-5, accountant="pure"), Gaussian(1.0), "pure-DP"),
        (lambda r: epsilon(r, 1e-5, accountant="pld"), ObjectivePerturbation(1.0, 0.1), "PLD"),
        (lambda r: epsilon(r, 1e-5, accountant="gdp"), parallel(Gaussian(1.0), ZCDP(0.1)), "GDP"),
    ],
)
def test_an_accountant_that_does_not_know_a_description_names_both(ask, release, name):
    with pytest.raises(UnsupportedRelease, match=rf"the {name} accountant has no bound for \w+\("):
        ask(release)


def test_more_releases_than_floats_count_are_left_to_the_accountants_that_can():
    """Advanced composition of 10²⁷ releases of ε = 10⁻²⁷ each: ρ = n·ε²/2 is next to nothing."""
    many = 10**27 * Laplace(1e27)
    assert epsilon(many, 1e-6) == 0.0
    assert epsilon(many, 0.0) == pytest.approx(1.0, rel=1e-5)
    with pytest.raises(UnsupportedRelease, match=r"adds up at most 2\*\*53 losses of a kind"):
        epsilon(many, 1e-6, accountant="pld")

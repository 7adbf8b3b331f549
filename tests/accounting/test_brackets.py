"""Certified brackets: narrow, around what others compute, monotone; and the faults that they would have shown."""

import itertools
import math
import random
import warnings
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from accounting import (
    ApproxDP,
    Bracket,
    Budget,
    DiscreteGaussian,
    DiscreteLaplace,
    FixedSizeSubsampled,
    Gaussian,
    GeneralizedGaussian,
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
    bound,
    calibrate,
    compare,
    delta,
    epsilon,
    parallel,
    rdp,
)
from accounting.compose import pld
from accounting.compose.convolution import Convolution
from accounting.loss.sampled import SubsampledPair
from accounting.lower.lower_bound import lower_epsilon


def sampled(z, q):
    return PoissonSubsampled(Gaussian(z), q)


# ------------------------------------------------------------------------------------------------- reference values


@pytest.mark.parametrize(
    ("release", "level", "theirs"),
    [
        # dp-accounting 0.6, pessimistic estimates; the first two came out as 42.67 and 341 when PLD failed silently
        (500 * PoissonSubsampled(Laplace(0.3), 0.011), 1e-5, 5.054),
        (200 * PoissonSubsampled(Laplace(0.25), 0.1), 1e-5, 51.6),
        (10 * sampled(0.3, 0.001), 1e-9, 16.19),
        (100 * sampled(0.8, 0.001), 1e-6, 0.2603),
        (10 * sampled(0.7, 1e-4), 1e-6, 0.01342),
    ],
    ids=repr,
)
def test_strong_releases_on_rare_samples(release, level, theirs):
    bracket = bound(release, level)
    assert bracket.upper == pytest.approx(theirs, rel=1e-3)
    assert bracket.upper * (1 - 2e-3) < bracket.lower <= bracket.upper


def test_generalized_gaussian_noise_costs_what_gaussian_noise_does():
    for make in (
        lambda kind: kind(5.0),
        lambda kind: 10 * kind(5.0) + Laplace(3.0),
        lambda kind: 5 * PoissonSubsampled(kind(2.0), 0.1),
    ):
        assert bound(make(GeneralizedGaussian), 1e-6) == bound(make(Gaussian), 1e-6)
    lower, upper = bound(FixedSizeSubsampled(GeneralizedGaussian(2.0), 10, 100), 1e-6)
    assert 0.99 * upper < lower <= upper


@pytest.mark.thorough
def test_a_tree_of_a_batch_is_a_gaussian_vector():
    tree = TreeAggregation(5.0, 100)
    total = 50 * FixedSizeSubsampled(tree, 10, 1000)
    lower, upper = bound(total, 1e-6)
    assert (lower, upper) == bound(50 * FixedSizeSubsampled(tree.weaker(), 10, 1000), 1e-6)
    assert 0.995 * upper < lower


def test_rare_batches_beside_others_at_a_large_delta():
    # the game's curve ends where δ is a few millionths, which the masses beside it have to allow for
    lower, upper = bound(Gaussian(20.0) + 100 * FixedSizeSubsampled(Gaussian(5.437), 7, 10_000), 5e-4)
    assert 0.998 * upper < lower <= upper


@pytest.mark.parametrize(("z", "q"), [(0.6, 1e-4), (0.7, 0.01)])
def test_monotone_in_the_number_of_steps(z, q):
    found = [float(epsilon(n * sampled(z, q), 1e-6)) for n in (1, 2, 10, 50)]
    assert found == sorted(found)


def test_a_sample_of_any_pure_release_ends_on_its_grid():
    # the top atom fell an ulp below the last edge for one pair (ε, q) in fifteen
    rng = np.random.default_rng(5)
    for _ in range(6):
        eps, q = 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-3, -0.1)
        for inner in (PureDP(eps), RandomizedResponse(eps, 4), Laplace(1 / eps)):
            total = 3 * PoissonSubsampled(inner, q)
            assert epsilon(total, 1e-9, accountant="pld") <= 3 * math.log1p(q * math.expm1(eps)) * (1 + 1e-9)
            # without the unit the largest loss is smaller, by far if few are sampled
            absent = SubsampledPair(inner.pair(), q, present=False)
            assert absent.highest(-700.0) == pytest.approx(-math.log1p(q * math.expm1(-eps)), rel=1e-9, abs=1e-12)
    for eps, rate in itertools.product(range(1, 20), (0.1, 1 - 1e-9)):
        absent = SubsampledPair(PureDP(eps).pair(), rate, present=False)
        assert absent.masses(np.array([absent.highest(-700.0)]))[0][-1] == 0


def test_an_accountant_that_fails_says_so(monkeypatch):
    def fail(self, *arguments, **options):
        raise ArithmeticError("no mass")

    monkeypatch.setattr(Convolution, "compose", fail)
    with pytest.warns(UserWarning, match="no answer from pld .*: rdp answers, perhaps far too high"):
        epsilon(100 * Laplace(2.0 + 2**-20), 1e-6)  # which nobody else has asked for


def test_extreme_pure_parts():
    for eps in (1e-12, 1e-6, 699.0):
        for total in (2 * PureDP(eps), PureDP(eps) + Laplace(1.0)):
            assert 0 <= delta(total, 0.5 * eps, accountant="pld") <= 1
            assert epsilon(total, 1e-6, accountant="pld") >= 0


def test_the_curve_of_noisy_max_near_order_1():
    # the divergence itself, 1/(e − 1) − 1 + ln(e − 1), by mpmath
    assert rdp(NoisyMax(1.0), [1 + 1e-6])[0] == pytest.approx(0.1233017, abs=1e-7)
    w = np.linspace(-12, 12, 20_001)
    for eps in (0.3, 1.0, 5.0):
        for alpha in (1.001, 1.5, 2.0, 7.0):
            soft = [np.logaddexp(0, w + shift) for shift in (alpha * eps, eps, 0.0)]
            brute = float(np.max(soft[0] - alpha * soft[1] + (alpha - 1) * soft[2])) / (alpha - 1)
            assert brute <= rdp(NoisyMax(eps), [alpha])[0] * (1 + 1e-9) + 1e-11
            assert rdp(NoisyMax(eps), [alpha])[0] <= alpha * rdp(NoisyMax(eps), [1 + 1e-9])[0] * (1 + 1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize(("count", "rate", "at"), [(25, 0.001, (1.0, 1e-5))])
def test_what_was_calibrated_meets_the_budget_in_both_directions(count, rate, at):
    z = calibrate(lambda z: count * sampled(z, rate), Budget(*at, adjacency="add_remove"))
    release = count * sampled(z, rate)
    assert epsilon(release, at[1]) <= at[0]
    assert delta(release, at[0]) <= at[1]
    less = count * sampled(0.999 * z, rate)
    assert epsilon(less, at[1]) > at[0]


# -------------------------------------------------------------------------------------------------------- brackets


def exact_responses(eps, count, at):
    """δ of ``count`` binary responses in exact arithmetic of the two-point loss."""
    j = np.arange(count + 1)
    log_p = np.array([math.lgamma(count + 1) - math.lgamma(i + 1) - math.lgamma(count - i + 1) for i in j])
    log_p += j * eps - count * math.log1p(math.exp(eps))
    losses = (2 * j - count) * eps
    return math.fsum(np.exp(log_p) * np.maximum(0, -np.expm1(np.minimum(at - losses, 0.0))))


@settings(max_examples=10, deadline=None)
@given(eps=st.floats(0.01, 2.0), count=st.integers(2, 300), log_level=st.floats(-12, -1))
def test_the_bracket_holds_the_exact_value_of_binary_responses(eps, count, log_level):
    level = 10**log_level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # near ε = 0 the bracket is wide
        bracket = bound(count * PureDP(eps), level)
    assert exact_responses(eps, count, bracket.upper) <= level * (1 + 1e-9)
    if bracket.lower > 0:
        assert exact_responses(eps, count, bracket.lower * (1 - 1e-9)) >= level * (1 - 1e-9)
    if bracket.upper > 0.05 * count * eps:
        assert bracket.lower > 0.99 * bracket.upper


@settings(max_examples=12, deadline=None)
@given(log_z=st.floats(-0.3, 1), count=st.integers(2, 200), log_level=st.floats(-30, -2))
def test_the_bracket_of_a_composed_gaussian_holds_the_exact_value(log_z, count, log_level):
    z, level = 10**log_z, 10**log_level
    exact = float(epsilon(count * Gaussian(z), level, accountant="gdp"))
    # half of the mass goes through the grid because of a part that costs next to nothing
    lower, upper = (
        pld.lower_epsilon(count * Gaussian(z) + PureDP(1e-9), level),
        float(epsilon(count * Gaussian(z) + PureDP(1e-9), level, accountant="pld")),
    )
    assert lower - 1e-7 <= exact <= upper
    assert exact < 1e-3 or lower > 0.98 * upper


def random_release(rng, replaced):
    """Something whose worst data the description tells: of units that are ``replaced``, or there or not."""
    z, q = 10 ** rng.uniform(-0.3, 0.7), 10 ** rng.uniform(-4, -0.3)
    records = 10 ** rng.randrange(2, 6)
    size = max(1, int(q * records))
    kinds = [
        lambda: Gaussian(3 * z),
        lambda: Laplace(3 * z),
        lambda: PureDP(1 / (4 * z)),
        lambda: RandomizedResponse(1 / z, rng.randrange(2, 20)),
        lambda: UnaryEncoding(1 / z, rng.randrange(3, 20)),
        lambda: ApproxDP(1 / (4 * z), 1e-20),
        lambda: DiscreteGaussian(3 * z, shift=rng.randrange(1, 6)),
        lambda: DiscreteLaplace(3 * z, shift=rng.randrange(1, 6)),
        lambda: TreeAggregation(5 * z, rng.randrange(2, 1000)),
        lambda: NoisyMax(1 / (2 * z)),
    ]
    there_or_not = [
        lambda: sampled(z, q),
        lambda: PoissonSubsampled(Laplace(z), q),
        lambda: PoissonSubsampled(PureDP(1 / z), q),
        lambda: PoissonSubsampled(RandomizedResponse(1 / z, rng.randrange(2, 20)), q),
        lambda: PoissonSubsampled(DiscreteGaussian(3 * z, shift=1), q),
        lambda: PoissonSubsampled(NoisyMax(1 / (2 * z)), q),
    ]
    others = [
        lambda: PoissonSubsampled(Gaussian(2 * z), q, adjacency="replace"),
        lambda: FixedSizeSubsampled(Gaussian(2 * z), size, records),
        lambda: FixedSizeSubsampled(PureDP(1 / (2 * z)), size, records),
        lambda: FixedSizeSubsampled(RandomizedResponse(1 / z, rng.randrange(2, 20)), size, records),
        lambda: ShuffledBinomial(10 ** rng.randrange(5, 8), rng.uniform(1, 20), rng.randrange(1, 9)),
        lambda: LocalShuffled(1 / z, 10_000, randomizer=RandomizedResponse(1 / z, rng.randrange(3, 20))),
    ]
    return rng.choice(kinds + (others if replaced else there_or_not))()


def walk(number, seed):
    """Random compositions, each with a δ."""
    rng = random.Random(seed)
    for _ in range(number):
        replaced = rng.random() < 0.5
        total = rng.choice((2, 10, 100, 1000)) * random_release(rng, replaced)
        for _ in range(rng.randrange(3)):
            total = total + rng.choice((1, 5, 30)) * random_release(rng, replaced)
        yield total, 10 ** rng.uniform(-15, -3)


def check_walk(number, seed):
    widths = []
    for total, level in walk(number, seed):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="no answer")  # no accountant may fail
            warnings.filterwarnings("ignore", message="ε is only known")
            lower, upper = bound(total, level)
        assert lower <= upper < math.inf
        assert lower >= 0.99 * upper, (total, level, lower, upper)
        widths.append(1 - lower / upper if upper > 0 else 0.0)
        for name in ("rdp", "zcdp", "gdp", "pure"):
            with suppress(UnsupportedRelease):
                assert upper <= epsilon(total, level, accountant=name) * (1 + 1e-12)
    assert np.median(widths) < 1e-3


@pytest.mark.slow
def test_brackets_of_random_compositions_are_narrow():
    check_walk(13, seed=1)


@pytest.mark.slow
def test_brackets_of_500_random_compositions_are_narrow():
    check_walk(500, seed=2)


@pytest.mark.slow
def test_brackets_are_consistent_with_dp_accounting():
    distributions = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    rng = random.Random(3)
    for _ in range(60):
        z, q, n = 10 ** rng.uniform(-0.2, 0.6), 10 ** rng.uniform(-4, -0.5), rng.choice((2, 10, 100, 1000))
        lower, upper = bound(n * sampled(z, q), 1e-6)
        step = min(1e-4, max(upper / 2000, 2e-6))
        theirs = [
            distributions.from_gaussian_mechanism(
                z, sampling_prob=q, value_discretization_interval=step, pessimistic_estimate=pessimistic
            )
            .self_compose(n)
            .get_epsilon_for_delta(1e-6)
            for pessimistic in (False, True)
        ]
        # the true value lies in both brackets
        assert lower <= theirs[1] * (1 + 1e-9)
        assert theirs[0] <= upper * (1 + 1e-9)
        assert upper <= theirs[1] * 1.005


@pytest.mark.thorough
@settings(max_examples=3, deadline=None)
@given(z=st.floats(0.6, 3.0), log_q=st.floats(-4, -0.5), count=st.integers(2, 300))
def test_monotone_in_rate_count_and_noise(z, log_q, count):
    q, level = 10**log_q, 1e-6
    base = float(epsilon(count * sampled(z, q), level, accountant="pld"))
    for more in (sampled(z, 1.2 * q), sampled(z / 1.1, q)):
        assert base <= float(epsilon(count * more, level, accountant="pld")) * (1 + 1e-4)
    assert base <= float(epsilon(2 * count * sampled(z, q), level, accountant="pld")) * (1 + 1e-4)


@pytest.mark.parametrize("noise", ["gumbel", "exponential", "laplace"])
@pytest.mark.parametrize("order", [0.0, 2.0, 30.0])
def test_the_lower_value_of_a_noisy_max_is_of_two_scores(noise, order):
    from accounting.lower.witnesses import _two_scores

    eps = 1.5
    low, high = _two_scores(eps, noise, order)
    # the laws of the coin, from its losses
    p = math.expm1(low) / (math.exp(low) - math.exp(-high))
    q = p * math.exp(-high)
    assert 0 < high <= eps
    assert 0 < low <= eps
    assert 0.8 * eps < bound(NoisyMax(eps, noise), 0.0).lower <= eps
    # the lead at which that is the law, and what wins after it moved by ε
    rng = np.random.default_rng(6)
    difference = np.sort(getattr(rng, noise)(size=400_000) - getattr(rng, noise)(size=400_000))
    lead = -difference[int((1 - p) * difference.size)]
    wins_after = 1 - np.searchsorted(difference, eps - lead) / difference.size
    # 7 standard deviations of either: one false alarm in 1e11
    assert abs(wins_after - q) < 14 * 0.5 / math.sqrt(difference.size)


@pytest.mark.slow
def test_brackets_elsewhere():
    assert bound(parallel(Gaussian(1.0), Laplace(1.0)), 1e-6).lower > 0.99 * epsilon(Gaussian(1.0), 1e-6)
    assert bound(PureDP(0.5), 0.0) == Bracket(0.5, 0.5)
    assert compare(100 * Laplace(2.0), 1e-6).at_least > 30.48
    with pytest.warns(UserWarning, match="ε is only known to lie between"):
        lower, upper = bound(LocalShuffled(1.0, 10_000), 1e-6)
    assert lower == bound(LocalShuffled(1.0, 10_000, randomizer=RandomizedResponse(1.0, 3)), 1e-6).lower > 0.0379
    assert upper == pytest.approx(0.0432064831, rel=1e-4)


@pytest.mark.parametrize(
    ("release", "trials", "rate", "step", "shares"),
    [
        (
            LocalShuffled(1.0, 40, randomizer=RandomizedResponse(1.0, 2)),
            39,
            1 / (1 + math.exp(-1)),
            1,
            (1 / (1 + math.exp(-1)), 1 / (1 + math.e)),
        ),
        (ShuffledBinomial(300, 3.2, 1), 300, 0.5, 3, (1.0, 0.0)),
        (LocalShuffled(0.5, 2), 1, 1 / (1 + math.exp(-0.5)), 1, (1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(0.5)))),
    ],
    ids=repr,
)
def test_two_shuffled_releases_cost_what_two_counts_do(release, trials, rate, step, shares):
    x = np.arange(trials + step + 1)
    p, q = ((1 - s) * binom.pmf(x, trials, rate) + s * binom.pmf(x - step, trials, rate) for s in shares)
    both_p, both_q = np.multiply.outer(p, p), np.multiply.outer(q, q)

    def exact(at):
        return float(np.maximum(both_p - math.exp(at) * both_q, 0.0).sum())

    found = lower_epsilon(2 * release, 1e-4)
    assert 0 < found <= epsilon(2 * release, 1e-4)
    # a lower bound on these very counts, and hardly less
    assert exact(found) >= 1e-4 * (1 - 1e-9)
    assert exact(1.01 * found) < 1e-4


@pytest.mark.thorough
def test_what_shuffled_bits_cost_is_known_to_a_part_in_a_thousand():
    # 2.9² is 8.41: vectors of four entries have 8 at most, of one 4; √8.41 would be a third too much
    vectors = [ShuffledBinomial(10**5, 2.9, entries) for entries in (1, 2, 3, 5)]
    assert bound(vectors[0], 1e-6).upper < 0.75 * bound(vectors[3], 1e-6).lower
    for total in (ShuffledBinomial(40_000, 50.0, 6), 20 * ShuffledBinomial(10**6, 50.0, 6) + Gaussian(2.0), *vectors):
        lower, upper = bound(total, 1e-6)
        assert 0.998 * upper < lower < upper
    with pytest.warns(UserWarning, match="ε is only known to lie between"):
        lower, upper = bound(10 * LocalShuffled(1.0, 10_000), 1e-6)
    assert 0.8 * upper < lower < upper
    # no count is moved by less than 1, and no window is kept for so many users
    for release in (ShuffledBinomial(100, 0.5, 1), LocalShuffled(1.0, 10**10)):
        assert lower_epsilon(2 * release, 1e-6) == 0


@pytest.mark.parametrize(
    "beside",
    [
        Gaussian(3.0, adjacency="replace"),
        ShuffledBinomial(10**4, 5.0, 3),
        LocalShuffled(0.5, 10**4, randomizer=RandomizedResponse(0.5, 5)),
        5 * PoissonSubsampled(Gaussian(3.0), 0.1, adjacency="replace"),
        # where bound() itself failed
        5 * PoissonSubsampled(Gaussian(3.0), 0.1, adjacency="replace") + 2 * NoisyMax(0.3, "exponential"),
    ],
    ids=repr,
)
def test_what_is_beside_batches_of_a_fixed_size_counts_from_below(beside):
    # where the adjacency was stated, the lower value was 0
    lower, upper = bound(10 * FixedSizeSubsampled(Gaussian(5.0), 7, 1000) + beside, 1e-6)
    assert 0.99 * upper < lower <= upper


@pytest.mark.parametrize("beside", [100 * ShuffledBinomial(10**6, 5.8, 7), ApproxDP(0.1, 1e-6)], ids=repr)
def test_choices_beside_what_may_fail_follow_what_was_seen(beside):
    lower, upper = bound(5 * NoisyMax(0.26) + beside, 2e-5)
    assert 0.999 * upper < lower <= upper
    assert bound(5 * NoisyMax(0.26) + ApproxDP(0.1, 1e-4), 2e-5) == (math.inf, math.inf)


@pytest.mark.parametrize("count", [1, 10])
def test_rare_weak_choices_beside_noise(count):
    # their curve has points so close that slopes were out of order, and masses below 0
    total = count * Gaussian(3.18) + 5 * PoissonSubsampled(NoisyMax(0.209, "exponential"), 6.8e-4)
    lower, upper = bound(total, 1.6e-15)
    assert 0.999 * upper < lower <= upper


# ----------------------------------------------------------------------------------------------------------- speed


def test_long_sums_are_linear_and_canonical():
    parts = [Laplace(1 + i / 10_000) for i in range(3000)]
    total = sum(parts)
    assert total == sum(reversed(parts))
    assert len(total.parts) == 3000
    assert repr(sum([Laplace(2.0)] * 5000)) == "5000 * Laplace(noise_multiplier=2.0)".join("()")


def test_a_thousand_different_releases_have_a_privacy_loss_distribution():
    total = sum(Laplace(20 + i / 50) for i in range(300))
    found = epsilon(total, 1e-6, accountant="pld")
    assert found < epsilon(total, 1e-6, accountant="rdp")
    assert found == pytest.approx(float(epsilon(300 * Laplace(22.8), 1e-6)), rel=0.02)

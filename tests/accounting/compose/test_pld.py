"""The privacy-loss-distribution accountant: never below the exact value, and close to it."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accounting import (
    ApproxDP,
    Gaussian,
    Laplace,
    LocalShuffled,
    NoisyMax,
    ObjectivePerturbation,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    TreeAggregation,
    UnsupportedRelease,
    compare,
    delta,
    epsilon,
    parallel,
)
from accounting.compose.convolution import Convolution, Sum
from accounting.compose.pld import is_enough, is_quick
from accounting.loss.gumbel_maxima import SpanPair


def pld_delta(release, eps):
    return float(delta(release, eps, accountant="pld"))


def pld_epsilon(release, level):
    return float(epsilon(release, level, accountant="pld"))


# ------------------------------------------------------------------------------------------------ reference values


def test_reference_values():
    assert delta(Laplace(2.0), 0.25) == pytest.approx(0.117503097415404597, rel=1e-12)  # mpmath at 40 digits
    # by peers' discretised accountants, from below and above
    assert 30.48293 <= pld_epsilon(100 * Laplace(2.0), 1e-6) <= 30.48373
    assert 6.1863847 <= pld_epsilon(10_000 * PoissonSubsampled(Gaussian(1.0), 0.01), 1e-5) <= 6.1890404


def test_gaussians_are_exact():
    total = 1000 * Gaussian(2.0) + TreeAggregation(5.0, 1023)
    assert pld_epsilon(total, 1e-6) == pytest.approx(epsilon(total, 1e-6, accountant="gdp"), rel=1e-12)


# ------------------------------------------------------------------------------------------------ single releases


def hockey_stick(P, Q, eps):
    """∫(p − e^ε q)₊ of two densities that cross once, by quadrature with 40 digits."""
    with mpmath.workdps(40):
        crossing = mpmath.findroot(lambda x: mpmath.log(P(x)) - mpmath.log(Q(x)) - eps, (mpmath.mpf(-3), 3), "anderson")
        return mpmath.quad(lambda x: P(x) - mpmath.exp(eps) * Q(x), [crossing, crossing + 2, 20, mpmath.inf])


@pytest.mark.parametrize(("q", "z", "eps"), [(0.2, 1.0, 0.1), (0.01, 0.7, 0.5), (0.5, 2.0, 0.3)])
def test_a_sample_costs_the_worse_of_its_two_directions(q, z, eps):
    with mpmath.workdps(40):

        def absent(x):
            return mpmath.npdf(x, 0, z)

        def present(x):
            return (1 - mpmath.mpf(q)) * absent(x) + mpmath.mpf(q) * mpmath.npdf(x, 1, z)

        removal = hockey_stick(present, absent, eps)
        addition = hockey_stick(lambda x: absent(-x), lambda x: present(-x), eps) if eps < -math.log1p(-q) else 0
        exact = max(removal, addition)
    found = pld_delta(PoissonSubsampled(Gaussian(z), q), eps)
    assert exact * (1 - mpmath.mpf("1e-25")) <= found <= exact * (1 + mpmath.mpf("1e-10"))


@settings(max_examples=60, deadline=None)
@example(log_q=-0.5, log_z=0.3, eps=0.0)
@given(log_q=st.floats(-5, -0.01), log_z=st.floats(-0.7, 2), eps=st.floats(1e-6, 10))
def test_a_swap_in_a_sample(log_q, log_z, eps):
    q, z = 10**log_q, 10**log_z
    found = pld_delta(PoissonSubsampled(Gaussian(z), q, adjacency="replace"), eps)
    with mpmath.workdps(60):
        half, q_, z_ = mpmath.mpf(eps) / 2, mpmath.mpf(q), mpmath.mpf(z)
        t = z_ * (half + mpmath.asinh((1 - q_) / q_ * mpmath.exp(1 / (2 * z_**2)) * mpmath.sinh(half)))
        middle, high, low = (mpmath.erfc((t - s / z_) / mpmath.sqrt(2)) / 2 for s in (0, 1, -1))
        exact = (1 - q_) * middle + q_ * high - mpmath.exp(2 * half) * ((1 - q_) * middle + q_ * low)
        if exact > 1e-300:
            assert exact <= found
            assert found <= exact * (1 + mpmath.mpf("1e-8")) + 1e-13


def test_swaps_in_samples_against_the_fourier_accountant():
    # get_epsilon_S of fourier-accountant 0.12.1 (Koskela, Jälkö & Honkela 2020) with nx = 4·10⁶, L = 20: estimates of
    # the same pair's ε, not bounds
    for rate, steps, z, level, theirs in (
        (0.01, 1000, 1.0, 1e-5, 2.843440258),
        (0.1, 200, 5.0, 1e-4, 1.953273480),
        (0.01, 10_000, 4.3, 1e-5, 1.838604232),
        (0.5, 10, 12.0, 1e-5, 0.980535222),
    ):
        swaps = steps * PoissonSubsampled(Gaussian(z), rate, adjacency="replace")
        found = pld_epsilon(swaps, level)
        assert theirs * (1 - 1e-8) <= found <= theirs * (1 + 1e-5)
        assert found < epsilon(swaps, level, accountant="rdp")
    whole = 10 * PoissonSubsampled(Gaussian(5.0), 1.0, adjacency="replace")
    assert pld_epsilon(whole, 1e-5) == pytest.approx(epsilon(10 * Gaussian(2.5), 1e-5), rel=1e-12)


@settings(max_examples=40, deadline=None)
@example(log_eps0=-1.0, share=2.0**-52, log_level=-1.0)
@given(log_eps0=st.floats(-3, 0.7), share=st.floats(0, 0.999), log_level=st.floats(-280, -1))
def test_delta_inverts_epsilon_for_single_releases(log_eps0, share, log_level):
    eps0, level = 10**log_eps0, 10**log_level
    for release in (Laplace(1 / eps0), NoisyMax(eps0), RandomizedResponse(eps0, 5), PureDP(eps0)):
        assert pld_epsilon(release, level) <= eps0 * (1 + 1e-12)
        value = pld_delta(release, share * eps0)
        assert 0 < value < 1
        assert pld_epsilon(release, value) == pytest.approx(share * eps0, rel=1e-6, abs=1e-9 * eps0)


@pytest.mark.parametrize("eps0", [0.1, 1.0, 6.0])
def test_gumbel_noise_costs_as_much_as_its_worst_offset(eps0):
    for eps in np.array([0.0, 0.3, 0.9]) * eps0:
        w = np.linspace(-8 - 3 * eps0, 8, 200_001)  # log-odds of the two coins: w and w + ε₀
        p, q = 1 / (1 + np.exp(-w - eps0)), 1 / (1 + np.exp(-w))
        worst = np.max(np.maximum(p - np.exp(eps) * q, 0) + np.maximum((1 - p) - np.exp(eps) * (1 - q), 0))
        assert worst <= pld_delta(NoisyMax(eps0), eps) * (1 + 1e-12)
        assert worst == pytest.approx(pld_delta(NoisyMax(eps0), eps), rel=1e-6)


# ---------------------------------------------------------------------------------------------------- composition


def exact_coins(eps, k, at):
    """δ of k pure ε-DP releases: the loss is ε(2j − k) with j binomial."""
    p = mpmath.exp(eps) / (1 + mpmath.exp(eps))
    terms = (
        mpmath.binomial(k, j) * p**j * (1 - p) ** (k - j) * max(mpmath.mpf(0), 1 - mpmath.exp(at - (2 * j - k) * eps))
        for j in range(k + 1)
    )
    return mpmath.fsum(terms)


@pytest.mark.parametrize(
    ("eps", "k", "level"),
    [(1.0, 50, 1e-5), (0.1, 200, 0.1), (0.1, 200, 1e-50), (0.01, 3, 0.1), (50.0, 3, 1e-5)],
)
def test_composed_pure_dp_against_the_binomial_sum(eps, k, level):
    with mpmath.workdps(80):
        found = pld_epsilon(k * PureDP(eps), level)
        assert exact_coins(mpmath.mpf(eps), k, mpmath.mpf(found)) <= level
        assert found == 0 or exact_coins(mpmath.mpf(eps), k, mpmath.mpf(found) * (1 - mpmath.mpf("1e-4"))) > level
        at = 0.9 * found
        exact = exact_coins(mpmath.mpf(eps), k, mpmath.mpf(at))
        assert exact <= pld_delta(k * PureDP(eps), at) <= exact * (1 + mpmath.mpf("1e-4"))


@pytest.mark.parametrize("theta", [0.05, 1.0, 5.0])
@pytest.mark.parametrize("share", [0.1, 0.6, 0.95])
def test_two_laplace_releases_against_a_quadrature(theta, share):
    at = share * 2 * theta
    with mpmath.workdps(30):
        # given the first loss ℓ, with its atoms, δ of the second is 1 − e^((at − ℓ − θ)/2) where that is positive
        first = max(mpmath.mpf(-theta), mpmath.mpf(at) - theta)

        def second(loss):
            return -mpmath.expm1((at - loss - theta) / 2)

        density = mpmath.quad(lambda x: mpmath.exp((x - theta) / 2) / 4 * second(x), [first, theta])
        exact = density + second(mpmath.mpf(theta)) / 2
    found = pld_delta(2 * Laplace(1 / theta), at)
    assert exact <= found <= exact * (1 + mpmath.mpf("1e-4"))


@settings(max_examples=8, deadline=None)
@given(log_z=st.floats(-0.3, 1), count=st.integers(2, 200), log_level=st.floats(-60, -2))
def test_a_gaussian_composed_on_the_grid_is_close_to_the_exact_one(log_z, count, log_level):
    # half of the μ² comes with a release that costs nothing, so that the grid is used
    total = count * Gaussian(10**log_z) + PureDP(1e-9)
    exact = epsilon(count * Gaussian(10**log_z), 10**log_level, accountant="gdp")
    assert exact <= pld_epsilon(total, 10**log_level) <= exact * (1 + 3e-4) + 1e-8


def test_epsilon_and_delta_agree_and_are_monotone():
    total = 5 * PoissonSubsampled(Laplace(0.8), 0.3) + 4 * Laplace(3.0)
    levels = [1e-2, 1e-6, 1e-15]
    found = [pld_epsilon(total, level) for level in levels]
    assert found == sorted(found)
    assert [pld_delta(total, eps) for eps in found] == pytest.approx(levels, rel=2e-3)
    assert pld_epsilon(2 * total, 1e-6) > found[1]


@pytest.mark.parametrize(
    "release",
    [
        300 * PoissonSubsampled(Gaussian(1.0), 0.01),
        30 * Laplace(5.0),
        3 * NoisyMax(1.0) + 2 * Gaussian(5.0),
        PureDP(1.0),
    ],
)
def test_where_to_look_first_does_not_change_the_answer(monkeypatch, release):
    deltas = [1e-12, 1e-6, 0.5]
    found = [epsilon(release, delta, accountant="pld") for delta in deltas]
    monkeypatch.setattr(Sum, "_nearby", lambda self, delta, low, high: None)
    np.testing.assert_allclose(found, [epsilon(release, delta, accountant="pld") for delta in deltas], rtol=1e-11)


def test_it_is_the_smallest_of_all_that_apply():
    for total in (
        100 * Laplace(2.0),
        20 * RandomizedResponse(0.5, 10),
        500 * PoissonSubsampled(Gaussian(1.0), 0.02),
        5 * PoissonSubsampled(Laplace(1.0), 0.1),
        3 * LocalShuffled(1.0, 2000),
        2 * Laplace(1.0) + Gaussian(3.0) + NoisyMax(1.0, noise="exponential"),
    ):
        bounds = compare(total, 1e-6)
        assert min(bounds, key=bounds.get) == "pld"
        assert epsilon(total, 1e-6).accountant == "pld"


@pytest.mark.parametrize(
    ("release", "at", "enough"),
    [
        (500 * PoissonSubsampled(Gaussian(1.0), 0.02), None, True),
        (100 * Laplace(2.0) + Gaussian(3.0), None, True),
        (Laplace(2.0), None, False),  # a closed form, as others have
        (500 * PoissonSubsampled(Gaussian(1.0), 0.02), 99.0, True),
        (500 * PoissonSubsampled(Gaussian(1.0), 0.02), 101.0, False),  # beyond use
        (20 * LocalShuffled(1.0, 2000), None, False),  # the pair is more than what it is of
        (3 * Laplace(1.0), 2.84, True),
        (3 * Laplace(1.0), 2.86, False),  # next to all the largest losses together
        (4 * PoissonSubsampled(PureDP(1.0), 0.5), 0.94 * 4 * math.log1p(0.5 * math.expm1(1.0)), True),
        (4 * PoissonSubsampled(PureDP(1.0), 0.5), 0.96 * 4 * math.log1p(0.5 * math.expm1(1.0)), False),
        (parallel(3 * Laplace(1.0), 5 * Laplace(2.0)), 2.84, True),
        (parallel(3 * Laplace(1.0), Laplace(0.1)), 2.0, False),  # one of the branches is a single release
    ],
)
def test_where_no_other_accountant_can_say_less_none_is_asked(release, at, enough):
    found = pld_epsilon(release, 1e-6) if at is None else at
    assert is_enough(release, found) is enough
    if enough and at is None:
        assert min(compare(release, 1e-6).values()) == found


def test_offsets_that_follow_epsilon_are_not_the_tightest_under_composition():
    # the worst offset of Gumbel noise differs from one ε to the next, but is the same for all orders of one release;
    # and it may follow what was seen
    bounds = compare(20 * NoisyMax(0.3), 1e-6)
    each = Convolution(((SpanPair(0.3), 20),), math.log(1e-6) - 20)
    window = each.window(8.0, math.log(1e-6))
    assert bounds["pld"] < bounds["rdp"] < each.compose(window, each.step(window)).epsilon(1e-6) < bounds["gdp"]
    assert epsilon(20 * NoisyMax(0.3), 1e-6) == bounds["pld"]


@pytest.mark.thorough
def test_a_large_epsilon_and_a_small_delta_stay_finite():
    assert 1e3 < pld_epsilon(2 * Laplace(1 / 600), 1e-15) <= 1200 * (1 + 1e-4)
    assert math.isfinite(pld_epsilon(100 * Laplace(2.0), 1e-300))
    assert pld_epsilon(3 * PoissonSubsampled(Gaussian(0.05), 0.5), 1e-15) > 300


def test_losses_add_like_their_laws():
    # k-ary randomized response composed twice, by brute force over pairs of outcomes
    eps0, k = 0.7, 4
    low = 1 / (math.exp(eps0) + k - 1)
    P = np.array([math.exp(eps0) * low, low, low, low])
    P2, Q2 = np.outer(P, P), np.outer(np.roll(P, 1), np.roll(P, 1))
    for eps in (0.0, 0.35, 0.9, 1.3):
        exact = np.maximum(P2 - math.exp(eps) * Q2, 0).sum()
        assert exact <= pld_delta(2 * RandomizedResponse(eps0, k), eps) <= exact * (1 + 1e-4)


@pytest.mark.parametrize("eps", [0.0, 0.05, 0.2, 0.35])
def test_sampled_losses_add_in_both_directions(eps):
    # three samples of a pure release at ε₀ = 1 and q = 0.2, by brute force over the eight outcomes
    q, low = 0.2, 1 / (math.e + 1)
    absent = np.array([low, 1 - low])
    present = (1 - q) * absent + q * absent[::-1]
    P, Q = (np.multiply.outer(np.multiply.outer(law, law), law) for law in (present, absent))
    exact = max(np.maximum(one - math.exp(eps) * other, 0).sum() for one, other in ((P, Q), (Q, P)))
    found = pld_delta(3 * PoissonSubsampled(PureDP(1.0), q), eps)
    assert exact <= found <= exact * (1 + 1e-4) + 1e-12


# ------------------------------------------------------------------------------------------ branches and the unknown


def test_a_unit_meets_the_worst_branch():
    a, b = Laplace(1.0), NoisyMax(1.2)
    branches = [pld_epsilon(a + PureDP(0.1), 1e-5), pld_epsilon(b + PureDP(0.1), 1e-5)]
    assert pld_epsilon(parallel(a, b) + PureDP(0.1), 1e-5) == max(branches)
    twice = [pld_delta(some, 1.5) for some in (2 * a, a + b, 2 * b)]
    assert pld_delta(2 * parallel(a, b), 1.5) == max(twice)


@pytest.mark.parametrize(
    "release",
    [
        ObjectivePerturbation(1.0, 0.1),
        Laplace(1.0) + ObjectivePerturbation(1.0, 0.1),
        PoissonSubsampled(Laplace(1.0) + PureDP(1.0), 0.1),
    ],
    ids=repr,
)
def test_the_unknown_is_refused_by_name(release):
    """Also at δ = 0, or less than what may fail, where no ε would do if it were known."""
    for asked, level in ((release, 1e-5), (release, 0.0), (release + ApproxDP(0.1, 0.01), 1e-3)):
        with pytest.raises(UnsupportedRelease, match="the PLD accountant has no bound for"):
            epsilon(asked, level, accountant="pld")
    known = Laplace(1.0) + ApproxDP(0.1, 0.01)
    assert epsilon(known, 1e-3, accountant="pld") == math.inf


def test_too_many_branches_are_refused():
    many = 10 * parallel(*(Laplace(float(z)) for z in range(1, 9)))
    with pytest.raises(UnsupportedRelease, match="PLD accountant cannot try every branch"):
        epsilon(many, 1e-5, accountant="pld")
    assert not is_quick(many)
    assert epsilon(many, 1e-5).accountant != "pld"


def test_it_is_tried_by_default_only_where_it_is_quick():
    many = sum(Laplace(1.0 + z / 100) for z in range(200))
    assert not is_quick(many)
    assert is_quick(100 * Laplace(1.0) + 3 * NoisyMax(1.0))
    assert is_quick(sum(Laplace(1.0 + z) for z in range(100)))
    assert epsilon(many, 1e-5).accountant == "rdp"

"""The Rényi curve of the Poisson-subsampled Gaussian, and the descriptions of samples."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accounting import (
    ZCDP,
    AdjacencyMismatch,
    ApproxDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    PoissonSubsampled,
    PureDP,
    TreeAggregation,
    UnsupportedRelease,
    delta,
    epsilon,
    rdp,
)
from accounting.compose.failures import split_failures
from accounting.loss.sampled import SubsampledPair
from accounting.notions.pure import pure

# The curve is rounded up by a relative 2e-13.
TIGHT = mpmath.mpf("1e-12")


def exact_at_whole_order(q: float, z: float, alpha: int) -> mpmath.mpf:
    """A_α − 1 = Σ_k C(α, k)(1 − q)^(α−k) q^k (e^(k(k−1)/(2z²)) − 1), a sum of positive terms."""
    with mpmath.workdps(60):
        q_, z_ = mpmath.mpf(q), mpmath.mpf(z)
        term, total, odds = (1 - q_) ** alpha, mpmath.mpf(0), q_ / (1 - q_)
        # e^(k(k−1)/(2z²)), and by what factor the next one is larger: 60 digits are enough to take 1 from it
        grown, factor, each = mpmath.mpf(1), mpmath.mpf(1), mpmath.exp(1 / (z_ * z_))
        for k in range(alpha + 1):
            total += term * (grown - 1)
            grown, factor = grown * factor, factor * each
            term *= odds * (alpha - k) / (k + 1)
        return mpmath.log1p(total) / (alpha - 1)


def exact_at_real_order(q: float, z: float, alpha: float) -> mpmath.mpf:
    """The two series of Mironov, Talwar & Zhang (2019, section 3.3), with 50 digits to spare for what cancels."""
    with mpmath.workdps(80):
        q_, z_, a = mpmath.mpf(q), mpmath.mpf(z), mpmath.mpf(alpha)
        split = z_**2 * mpmath.log(1 / q_ - 1) + mpmath.mpf("0.5")
        total, coefficient = mpmath.mpf(0), mpmath.mpf(1)
        root = mpmath.sqrt(2) * z_
        for i in range(1000):
            j = a - i
            low = q_**i * (1 - q_) ** j * mpmath.exp((i * i - i) / (2 * z_**2)) * mpmath.erfc((i - split) / root)
            high = q_**j * (1 - q_) ** i * mpmath.exp((j * j - j) / (2 * z_**2)) * mpmath.erfc((split - j) / root)
            total += coefficient * (low + high) / 2
            if i > alpha and abs(coefficient * (low + high)) < mpmath.mpf("1e-45"):
                break
            coefficient *= (a - i) / (i + 1)
        return mpmath.log(total) / (a - 1)


def test_reference_values():
    # computed with mpmath at 40 digits
    assert rdp(PoissonSubsampled(Gaussian(1.0), 0.01), [2, 32]) == pytest.approx(
        [1.71813422074547931e-4, 11.2462759370480688], rel=1e-12
    )
    assert rdp(PoissonSubsampled(Gaussian(4.0), 0.1), 8) == pytest.approx(0.00267449861980329909, rel=1e-12)


@settings(max_examples=10, deadline=None)
@given(log_q=st.floats(-6, -1e-7), log_z=st.floats(math.log10(0.3), 2), alpha=st.integers(2, 150))
@example(log_q=-6.0, log_z=math.log10(0.3), alpha=10_000)
@example(log_q=-1.0, log_z=math.log10(50.0), alpha=10_000)
@example(log_q=-0.001, log_z=2.0, alpha=1000)
def test_whole_orders_match_the_positive_sum(log_q, log_z, alpha):
    q, z = 10**log_q, 10**log_z
    exact = exact_at_whole_order(q, z, alpha)
    assert exact <= rdp(PoissonSubsampled(Gaussian(z), q), alpha) <= exact * (1 + TIGHT)


@pytest.mark.parametrize(
    ("q", "z", "alpha"),
    [(0.01, 1.0, 1.5), (0.2, 2.0, 3.25), (0.3, 0.5, 20.7), (1e-3, 0.7, 7.9)],
)
def test_real_orders_match_the_two_series(q, z, alpha):
    exact = exact_at_real_order(q, z, alpha)
    assert exact <= rdp(PoissonSubsampled(Gaussian(z), q), alpha) <= exact * (1 + TIGHT)


@pytest.mark.parametrize(("q", "z", "eta"), [(0.5, 3.0, 0.01), (1e-6, 0.3, 1e-5), (0.9, 100.0, 0.5)])
def test_orders_close_to_one_match_a_quadrature(q, z, eta):
    with mpmath.workdps(40):
        alpha = 1 + mpmath.mpf(1 + eta - 1)

        def integrand(t):
            u = q * mpmath.expm1(t / z - mpmath.mpf(1) / 2 / z**2)
            return mpmath.npdf(t) * ((1 + u) ** alpha - 1 - alpha * u)

        exact = mpmath.log1p(mpmath.quad(integrand, mpmath.linspace(-14, 16 + 2 / z, 25))) / (alpha - 1)
    assert exact <= rdp(PoissonSubsampled(Gaussian(z), q), 1 + eta) <= exact * (1 + 2 * TIGHT)


@settings(max_examples=30, deadline=None)
@given(log_q=st.floats(-6, -0.01), log_z=st.floats(-0.5, 2), log_eta=st.floats(-6, 3.9), shift=st.floats(1e-4, 0.4))
def test_the_cumulant_is_convex_and_the_curve_grows(log_q, log_z, log_eta, shift):
    step = PoissonSubsampled(Gaussian(10**log_z), 10**log_q)
    eta = 10**log_eta * np.array([1 - shift, 1.0, 1 + shift])
    curve = rdp(step, 1 + eta)
    moments = eta * curve
    assert np.all(np.diff(curve) >= -1e-11 * curve[:-1])
    assert moments[1] <= (moments[0] + moments[2]) / 2 * (1 + 1e-11)


@settings(max_examples=25, deadline=None)
@given(log_q=st.floats(-5, -0.1), log_z=st.floats(-0.5, 1.5), more=st.floats(1.01, 2))
def test_less_noise_and_larger_samples_cost_more(log_q, log_z, more):
    q, z, orders = 10**log_q, 10**log_z, np.array([1.1, 2.0, 7.5, 33.0])
    curve = rdp(PoissonSubsampled(Gaussian(z), q), orders)
    assert np.all(curve <= rdp(PoissonSubsampled(Gaussian(z / more), q), orders))
    assert np.all(curve <= rdp(PoissonSubsampled(Gaussian(z), min(1.0, q * more)), orders))
    assert np.all(curve <= rdp(Gaussian(z), orders))


def test_ten_thousand_steps():
    total = 10_000 * PoissonSubsampled(Gaussian(1.0), 0.01)
    assert 6.1863847 < epsilon(total, 1e-5, accountant="rdp") <= 6.7127  # best order of a peer's grid: 6.71273


def test_a_rate_of_one_is_no_sampling():
    orders = np.array([1.5, 3.0, 1e4])
    assert rdp(PoissonSubsampled(Gaussian(2.0), 1.0), orders) == pytest.approx(rdp(Gaussian(2.0), orders), rel=1e-15)


def test_gaussians_composed_before_the_sampling_are_one_gaussian():
    both = PoissonSubsampled(4 * Gaussian(2.0), 0.1)
    assert rdp(both, [2.0, 5.5]) == pytest.approx(rdp(PoissonSubsampled(Gaussian(1.0), 0.1), [2.0, 5.5]), rel=1e-12)
    tree = PoissonSubsampled(TreeAggregation(2.0, 8), 0.1)
    assert rdp(tree, 5.5) == pytest.approx(rdp(both, 5.5), rel=1e-12)


@given(log_eps=st.floats(-4, 2.5), log_q=st.floats(-6, 0))
def test_pure_amplification(log_eps, log_q):
    eps, q = 10**log_eps, 10**log_q
    with mpmath.workdps(200):
        exact = mpmath.log1p(mpmath.mpf(q) * mpmath.expm1(mpmath.mpf(eps)))
        exact *= 1 - mpmath.mpf("1e-100")  # at q = 1 both sides are ε
        assert exact <= pure(PoissonSubsampled(PureDP(eps), q)) <= exact * (1 + TIGHT)


def test_failures_happen_only_to_a_unit_that_is_sampled():
    log_survival, rest = split_failures(PoissonSubsampled(ApproxDP(1.0, 1e-3), 0.01))
    assert log_survival == pytest.approx(math.log1p(-1e-5), rel=1e-12)
    assert rest == PoissonSubsampled(PureDP(1.0), 0.01)
    assert delta(PoissonSubsampled(ApproxDP(1.0, 1e-3), 0.01), math.log1p(0.01 * math.expm1(1.0)) * 1.01) == (
        pytest.approx(1e-5, rel=1e-9)
    )


def test_the_relations_that_sampling_is_priced_for():
    assert PoissonSubsampled(Gaussian(1.0), 0.1).adjacency == "add_remove"
    assert (3 * PoissonSubsampled(Gaussian(1.0, adjacency="add_remove"), 0.1)).adjacency == "add_remove"
    assert PoissonSubsampled(Gaussian(1.0), 0.1, adjacency="replace").adjacency == "replace"
    with pytest.raises(AdjacencyMismatch, match=r"present or absent \('add_remove'\), got release.adjacency='replace'"):
        PoissonSubsampled(Gaussian(1.0, adjacency="replace"), 0.1)
    with pytest.raises(AdjacencyMismatch, match="got adjacency='zero_out'"):
        PoissonSubsampled(Gaussian(1.0), 0.1, adjacency="zero_out")
    for inner in (ApproxDP(1.0, 1e-9), 2 * Gaussian(1.0), TreeAggregation(1.0, 8)):
        with pytest.raises(UnsupportedRelease, match="under 'replace' only Gaussian, Laplace"):
            PoissonSubsampled(inner, 0.1, adjacency="replace")
    swap = PoissonSubsampled(Gaussian(1.0), 0.1, adjacency="replace")
    with pytest.raises(AdjacencyMismatch, match="'add_remove' and 'replace'"):
        swap + PoissonSubsampled(Gaussian(1.0), 0.1)
    for accountant in ("zcdp", "gdp", "pure"):
        with pytest.raises(UnsupportedRelease):
            epsilon(swap, 1e-5, accountant=accountant)


# --------------------------------------------------------------------------------------------------------- swaps


def exact_swap(q, z, alpha):
    """ε_α of (1 − q)N(0, z²) + qN(±1, z²), by the trapezoidal rule with 40 digits; its terms without linear part."""
    with mpmath.workdps(40):
        q, z, a = map(mpmath.mpf, (q, z, alpha))
        start, stop = -12 - 1 / z, 2 * a / z + 14
        nodes = int((stop - start) / min(0.2, 0.2 * z)) + 1
        step, scale = (stop - start) / nodes, q * mpmath.exp(-1 / (2 * z**2))

        def term(t):
            ratio = mpmath.exp(t / z)
            p, r = 1 - q + scale * ratio, 1 - q + scale / ratio
            return (p * (p / r) ** (a - 1) - 1 - a * (p - 1) - (1 - a) * (r - 1)) * mpmath.exp(-t * t / 2)

        total = mpmath.fsum(term(start + step * i) for i in range(nodes + 1)) * step / mpmath.sqrt(2 * mpmath.pi)
        return mpmath.log1p(total) / (a - 1)


@pytest.mark.thorough
@settings(max_examples=1, deadline=None)
@example(log_q=-5.0, log_z=1.9, log_eta=-4.0)
@example(log_q=-0.5, log_z=-1.3, log_eta=0.1)
@example(log_q=-0.001, log_z=-0.4, log_eta=1.0)
@given(log_q=st.floats(-6, -0.001), log_z=st.floats(-0.5, 2), log_eta=st.floats(-4, 1.5))
def test_the_curve_of_a_swap(log_q, log_z, log_eta):
    q, z, alpha = 10**log_q, 10**log_z, 1 + 10**log_eta
    exact = exact_swap(q, z, alpha)
    assert exact <= rdp(PoissonSubsampled(Gaussian(z), q, adjacency="replace"), alpha) <= exact * (1 + TIGHT)


@settings(max_examples=25, deadline=None)
@given(log_q=st.floats(-5, 0), log_z=st.floats(-0.5, 1.5))
def test_a_swap_costs_between_one_change_and_two(log_q, log_z):
    q, z, orders = min(1.0, 10**log_q), 10**log_z, np.array([1.1, 2.0, 7.5, 33.0])
    swap = rdp(PoissonSubsampled(Gaussian(z), q, adjacency="replace"), orders)
    assert np.all(swap >= rdp(PoissonSubsampled(Gaussian(z), q), orders))
    assert np.all(swap <= rdp(Gaussian(z / 2), orders) * (1 + 1e-12))
    if q == 1.0:
        assert swap == pytest.approx(rdp(Gaussian(z / 2), orders), rel=1e-12)


def test_a_swap_with_hardly_any_noise():
    # the noise in place 1 is told from that in place 0 at a loss of 1/(2z²), and from that in place −1 at 2/z²
    for q in (1e-6, 0.01, 0.99):
        for z in (0.01, 0.03):
            swap = PoissonSubsampled(Gaussian(z), q, adjacency="replace")
            assert np.isfinite(rdp(swap, np.array([1.001, 2.0, 50.0]))).all()
            found = epsilon(swap, 1e-9)
            assert 0.5 / z**2 < found < 2.0 / z**2
            assert delta(swap, found, accountant="pld") == pytest.approx(1e-9, rel=1e-3)
            assert 0 < delta(swap, 705.0, accountant="pld") <= q * (1 + 1e-9)


@pytest.mark.parametrize(("q", "z", "alpha"), [(0.01, 0.009, 2), (0.5, 1e-3, 3), (1e-4, 1e-4, 2), (0.9, 5e-5, 20)])
def test_the_bound_for_little_noise(q, z, alpha):
    exact = exact_at_whole_order(q, z, alpha)
    assert exact <= rdp(PoissonSubsampled(Gaussian(z), q), alpha) <= exact * (1 + TIGHT)


@pytest.mark.parametrize("eta", [1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("q", [1e-4, 0.3, 0.99])
def test_the_bound_for_little_noise_is_close_at_orders_next_to_one(q, eta):
    # from 0.01 on the curve is integrated
    for adjacency, apart in (("add_remove", 0.0), ("replace", -math.log1p(-q))):
        bound, exact = (
            rdp(PoissonSubsampled(Gaussian(z), q, adjacency=adjacency), 1 + eta) for z in (0.01 * (1 - 1e-15), 0.01)
        )
        assert exact <= bound <= exact * (1 + 1e-12) + math.log(2) + apart


@pytest.mark.parametrize("seed", range(4))
def test_no_swap_of_two_vectors_is_worse_than_that_of_opposite_ones(seed):
    # two vectors span a plane: ∫(P − e^ε Q)₊ on a grid whose error is far below the differences
    rng = np.random.default_rng(seed)
    q, z = rng.uniform(0.02, 0.9), rng.uniform(0.5, 2.0)
    axis = np.linspace(-1 - 9 * z, 1 + 9 * z, 601)
    x, y = np.meshgrid(axis, axis)
    cell = (axis[1] - axis[0]) ** 2

    def law(g):
        def density(a, b):
            return np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * z * z)) / (2 * math.pi * z * z) * cell

        return (1 - q) * density(0, 0) + q * density(*g)

    bounds = {eps: delta(PoissonSubsampled(Gaussian(z), q, adjacency="replace"), eps) for eps in (0.0, 0.2, 1.0)}
    for _ in range(6):
        radius, angle = np.sqrt(rng.uniform(0, 1, 2)), rng.uniform(0, 2 * math.pi, 2)
        P, Q = (law((r * math.cos(a), r * math.sin(a))) for r, a in zip(radius, angle, strict=True))
        for eps, bound in bounds.items():
            assert np.maximum(P - math.exp(eps) * Q, 0).sum() <= bound * (1 + 1e-6) + 1e-12
    # and opposite ones attain it
    P, Q = law((1, 0)), law((-1, 0))
    attained = np.maximum(P - math.exp(0.2) * Q, 0).sum()
    assert attained == pytest.approx(bounds[0.2], rel=1e-3)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan])
def test_a_rate_outside_its_range_is_refused(rate):
    with pytest.raises(ValueError, match=r"rate must (lie in \(0, 1\]|be a number), got rate="):
        PoissonSubsampled(Gaussian(1.0), rate)


def test_only_descriptions_are_sampled():
    with pytest.raises(TypeError, match=r"release must be a description such as Gaussian\(1.0\), got release=1.0"):
        PoissonSubsampled(1.0, 0.1)
    with pytest.raises(UnsupportedRelease, match="RDP accountant has no bound for PoissonSubsampled"):
        rdp(PoissonSubsampled(ZCDP(1.0), 0.1), 2.0)


@pytest.mark.parametrize("shift", [1, 3])
@pytest.mark.parametrize("kind", [DiscreteGaussian, DiscreteLaplace])
def test_a_swap_without_sampling_moves_integers_twice_as_far(kind, shift):
    """By all outputs: a unit moves the sum up, its substitute moves it down."""
    z, x = 1.5, np.arange(-400, 401)
    log_law = -((x / (z * shift)) ** 2) / 2 if kind is DiscreteGaussian else -np.abs(x / (z * shift))
    up, down = (np.exp(np.roll(log_law, move)) / np.exp(log_law).sum() for move in (shift, -shift))
    swap = PoissonSubsampled(kind(z, shift=shift), 1.0, adjacency="replace")
    for at in (0.0, 0.3, 1.0):
        assert delta(swap, at) == pytest.approx(np.maximum(up - math.exp(at) * down, 0.0).sum(), rel=1e-9)


@example(2.3375216198608983, 0.32043825271319243, -11.0, True)
@given(st.floats(0.05, 50.0), st.floats(1e-4, 1.0), st.floats(-14.0, -0.1), st.booleans())
def test_a_sample_of_laplace_noise_next_to_its_largest_loss_is_never_short(z, q, share, present):
    """δ in 60 digits: q·H or b·H of Laplace noise, which falls to 0 at the largest loss as fast as ε − θ."""
    pair = SubsampledPair(Laplace(z).pair(), q, present)
    epsilon = pair.highest(-700.0) * (1 - 10.0**share)
    with mpmath.workdps(60):
        grown, q_, theta = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(q), 1 / mpmath.mpf(z)
        weight = q_ if present else 1 - grown * (1 - q_)
        inner = mpmath.log((grown - 1 + q_) / q_ if present else grown * q_ / weight) if weight > 0 else theta
        exact = weight * max(mpmath.mpf(0), 1 - mpmath.exp((inner - theta) / 2))
        assert pair.delta(epsilon) >= exact
        # what is added are a few units in the last place of ε, as much as it is rounded
        assert pair.delta(epsilon) <= exact * (1 + 1e-13) + 50 * 2.0**-52 * (1 + abs(inner)) * abs(weight) + 1e-14 * q


@given(st.floats(0.01, 300.0))
def test_the_shift_of_laplace_noise_is_rounded_up(z):
    theta = Fraction(Laplace(z).pair().highest(-700.0))
    assert 1 <= theta * Fraction(z) < 1 + Fraction(1, 2**51)

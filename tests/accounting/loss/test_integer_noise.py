"""Integer noise in one coordinate: its pairs of distributions against sums of exact masses."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import (
    Budget,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    PoissonSubsampled,
    PureDP,
    UnsupportedRelease,
    calibrate,
    compare,
    delta,
    epsilon,
    gdp,
    rdp,
    zcdp,
)
from accounting.amplification.participation import group
from accounting.ledger.record.release_json import decode, encode
from accounting.notions.pure import pure


def pld_delta(release, eps):
    return float(delta(release, eps, accountant="pld"))


def masses(release, scale):
    """Exact masses of the noise, as (x, p(x)) with 40 digits."""
    reach = int(16 * scale) + 5 if isinstance(release, DiscreteGaussian) else int(120 * scale) + 5
    x = range(-reach, reach + 1)
    if isinstance(release, DiscreteGaussian):
        weights = [mpmath.exp(-(mpmath.mpf(i) ** 2) / (2 * mpmath.mpf(scale) ** 2)) for i in x]
    else:
        weights = [mpmath.exp(-abs(mpmath.mpf(i)) / mpmath.mpf(scale)) for i in x]
    total = mpmath.fsum(weights)
    return {i: w / total for i, w in zip(x, weights, strict=True)}


def exact_delta(p, shift, eps):
    eps = mpmath.exp(mpmath.mpf(eps))
    zero = mpmath.mpf(0)
    return mpmath.fsum(max(zero, p.get(i - shift, zero) - eps * p.get(i, zero)) for i in range(min(p), max(p) + shift))


CASES = [
    DiscreteGaussian(0.4, shift=1),
    DiscreteGaussian(2.0, shift=1),
    DiscreteGaussian(1.0, shift=7),
    DiscreteLaplace(0.3, shift=1),
    DiscreteLaplace(2.0, shift=1),
    DiscreteLaplace(0.7, shift=5),
]


@pytest.mark.parametrize("release", CASES, ids=repr)
def test_delta_is_the_sum_of_exact_masses(release):
    with mpmath.workdps(40):
        p = masses(release, release.noise_multiplier * release.shift)
        for eps in (0.0, 0.1, 0.5, 1.0, 2.5):
            exact = exact_delta(p, release.shift, eps)
            found = pld_delta(release, eps)
            # at an atom of the loss, rounding decides whether nothing or next to nothing is above it
            assert exact * (1 - mpmath.mpf("1e-30")) <= found + mpmath.mpf("1e-40")
            assert found <= exact * (1 + mpmath.mpf("1e-10")) + mpmath.mpf("1e-15")


@pytest.mark.parametrize("release", [DiscreteGaussian(1.0, shift=4), DiscreteLaplace(0.8, shift=4)], ids=repr)
def test_a_smaller_shift_with_the_same_noise_costs_less(release):
    p = masses(release, release.noise_multiplier * release.shift)
    for eps in (0.0, 0.3, 0.9):
        by_shift = [float(exact_delta(p, shift, eps)) for shift in range(1, release.shift + 1)]
        assert by_shift == sorted(by_shift)
        assert max(by_shift) <= pld_delta(release, eps)


@pytest.mark.parametrize("release", CASES, ids=repr)
def test_two_releases_against_the_double_sum(release):
    with mpmath.workdps(30):
        masses_by_place = masses(release, release.noise_multiplier * release.shift)
    k, p = release.shift, np.array([float(masses_by_place[i]) for i in sorted(masses_by_place)])
    moved, still = np.pad(p, (k, 0)), np.pad(p, (0, k))
    # H₂(e^ε) = Σ over the first loss of H₁(e^(ε − ℓ)), in which only masses that matter are kept
    kept = p[:-k] > 1e-18
    first, ratio = p[:-k][kept], (p[:-k] / p[k:])[kept]
    eps = 0.6 * math.log(ratio[first > 1e-3].max())
    # in floats: δ is large enough beside what the differences round
    exact = float(first @ np.maximum(moved - np.outer(math.exp(eps) / ratio, still), 0.0).sum(axis=1))
    found = pld_delta(2 * release, eps)
    assert exact > 0.01
    assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-3)


@pytest.mark.parametrize("release", [r for r in CASES if isinstance(r, DiscreteLaplace)], ids=repr)
def test_the_renyi_curve_of_discrete_laplace_noise_is_the_sum_of_exact_masses(release):
    orders = np.array([1.001, 1.5, 4.0, 60.0])
    with mpmath.workdps(40):
        p = masses(release, release.noise_multiplier * release.shift)
        pairs = [(p[i - release.shift], m) for i, m in p.items() if i - release.shift in p]
        exact = [float(mpmath.log(mpmath.fsum(a**o * b ** (1 - o) for a, b in pairs)) / (o - 1)) for o in orders]
    found = rdp(release, orders)
    assert np.all(found >= np.array(exact) * (1 - 1e-12))
    np.testing.assert_allclose(found, exact, rtol=1e-9)
    assert np.all(found <= rdp(PureDP(1 / release.noise_multiplier), orders) * (1 + 1e-12))


@settings(max_examples=12)
@given(z=st.floats(0.3, 20), shift=st.integers(1, 60), log_level=st.floats(-30, -1))
def test_fine_integer_noise_costs_what_continuous_noise_costs(z, shift, log_level):
    """Within what the steps of the lattice can matter, and never more than what holds in any dimension."""
    level = 10**log_level
    for integer, continuous in ((DiscreteGaussian, Gaussian), (DiscreteLaplace, Laplace)):
        found = float(epsilon(integer(z, shift=shift), level))
        assert found <= float(epsilon(integer(z), level)) * (1 + 1e-9)
        step = 1 / (z * z * shift) if integer is DiscreteGaussian else 1 / (z * shift)
        assert found == pytest.approx(float(epsilon(continuous(z), level, accountant="pld")), abs=2 * step)


def test_a_sample_of_integer_noise_is_priced():
    fine = epsilon(1000 * PoissonSubsampled(DiscreteGaussian(1.0, shift=500), 0.01), 1e-5)
    assert fine == pytest.approx(epsilon(1000 * PoissonSubsampled(Gaussian(1.0), 0.01), 1e-5), rel=1e-4)


def test_calibration_finds_the_smallest_scale():
    budget = Budget(1.0, 1e-6)
    z = calibrate(lambda z: 10 * DiscreteGaussian(z, shift=3), budget)
    assert delta(10 * DiscreteGaussian(z, shift=3), 1.0) <= 1e-6 < delta(10 * DiscreteGaussian(0.999 * z, 3), 1.0)
    # below what is known without the shift
    assert z < calibrate(lambda z: 10 * DiscreteGaussian(z), budget)


def test_the_other_accountants():
    release = DiscreteLaplace(2.0, shift=3)
    assert pure(release) == 0.5
    assert zcdp(release) == zcdp(PureDP(0.5))
    assert gdp(release) == gdp(PureDP(0.5))
    assert set(compare(release, 1e-6)) == {"pure", "zcdp", "rdp", "gdp", "pld"}
    assert set(compare(DiscreteGaussian(2.0, shift=3), 1e-6)) == {"zcdp", "rdp", "gdp", "pld"}
    assert epsilon(DiscreteLaplace(2.0), 0.0) == 0.5


def test_three_rows_shift_three_times_as_far():
    assert group(DiscreteGaussian(6.0, shift=2), 3) == DiscreteGaussian(2.0, shift=6)
    assert group(DiscreteLaplace(6.0, shift=2), 3) == DiscreteLaplace(2.0, shift=6)
    assert group(DiscreteLaplace(6.0), 3) == DiscreteLaplace(2.0)


def test_the_shift_is_stored_only_where_it_is_given():
    assert encode(DiscreteGaussian(2.0)) == {"noise_multiplier": 2.0, "type": "DiscreteGaussian"}
    for release in (DiscreteGaussian(2.0, shift=4), DiscreteLaplace(3.0, shift=1), DiscreteLaplace(3.0)):
        assert decode(encode(release)) == release


@pytest.mark.parametrize("kind", [DiscreteGaussian, DiscreteLaplace])
@pytest.mark.parametrize("shift", [0, -1, 1.5, "1", True])
def test_a_shift_is_a_positive_integer(kind, shift):
    with pytest.raises((ValueError, TypeError), match="shift"):
        kind(1.0, shift=shift)


def test_noise_with_too_many_atoms_is_left_to_the_other_accountants():
    wide = DiscreteLaplace(1.0, shift=10**7)
    with pytest.raises(UnsupportedRelease, match="atoms"):
        epsilon(wide, 1e-6, accountant="pld")
    assert math.isfinite(epsilon(wide, 1e-6))


@pytest.mark.thorough
@pytest.mark.parametrize(("z", "shift"), [(1.0, 10**6), (1e4, 10)])
def test_gaussian_noise_with_too_many_atoms_is_as_good_as_continuous_noise(z, shift):
    wide, smooth = DiscreteGaussian(z, shift=shift), Gaussian(z)
    pairs = [(wide, smooth), (20 * wide + Laplace(30.0), 20 * smooth + Laplace(30.0))]
    for adjacency in ("add_remove", "replace"):
        pairs.append(tuple(10 * PoissonSubsampled(one, 0.1, adjacency=adjacency) for one in (wide, smooth)))
    for one, other in pairs:
        found, smooth_cost = (float(epsilon(each, 1e-7, accountant="pld")) for each in (one, other))
        assert found == pytest.approx(smooth_cost, rel=1e-4)

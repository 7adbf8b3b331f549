"""Discrete Gaussian vectors as Gaussian DP: the lemma on increments, and exact sums in up to three dimensions."""

import itertools
import math

import numpy as np
import pytest
from hockey_stick import divergence
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, ndtri, ndtri_exp
from tabled import tabled

from accounting import (
    Budget,
    BudgetExceeded,
    DiscreteGaussian,
    Gaussian,
    Ledger,
    PoissonSubsampled,
    UnsupportedRelease,
    bound,
    calibrate,
    compare,
    epsilon,
    gdp,
    rdp,
)
from accounting.conversions import gdp_delta
from accounting.loss.lattice import three_laws


def law(sigma, reach):
    k = np.arange(-reach, reach + 1)
    p = np.exp(-0.5 * (k / sigma) ** 2)
    return k, p / p.sum()


@settings(max_examples=60, deadline=None)
@given(st.floats(0.578, 30.0))
def test_no_increment_is_longer_than_the_lemma_says(sigma):
    # ln of the upper tails, until 1e-300 and on, so that the sums are whole
    k = np.arange(0, math.ceil(37 * sigma) + 60 + math.ceil(10 * sigma))
    log_p = -0.5 * (k / sigma) ** 2
    tails = np.logaddexp.accumulate(log_p[::-1])[::-1]
    quantiles = -ndtri_exp(tails[1 : math.ceil(37 * sigma)] - logsumexp(np.concatenate([log_p, log_p[1:]])))
    increments = np.concatenate([[2 * quantiles[0]], np.diff(quantiles)])
    mu = gdp(DiscreteGaussian(sigma))
    assert increments.max() <= mu * (1 + 1e-12)
    # at 0 nearly as much is needed; the bound is not made of slack
    assert increments[0] > mu * (0.995 if sigma >= 1 else 0.8)


@tabled("shift", [(1,), (3,), (1, 1), (2, 1), (0, 2), (1, 1, 1), (2, 1, 0)])
@tabled("z", [0.6, 1.0, 2.0])
def test_exact_sums_over_the_lattice(shift, z):
    norm = math.sqrt(sum(v * v for v in shift))
    sigma = z * norm
    _, p = law(sigma, math.ceil(9 * sigma) + 3)
    joint_p = joint_q = np.ones(1)
    for v in shift:
        # P moved by v; what leaves the box is below 1e-17
        joint_p = np.multiply.outer(joint_p, np.roll(p, v)).ravel()
        joint_q = np.multiply.outer(joint_q, p).ravel()
    mu = gdp(DiscreteGaussian(z))
    for eps in (0.0, 0.3, 1.0, 2.5):
        exact = divergence(joint_p, joint_q, eps)
        assert exact <= gdp_delta(mu, eps) + 1e-14
        # 30 % less noise would be seen
        assert exact > gdp_delta(0.7 / z, eps)


@pytest.mark.parametrize(("z", "kappa"), [(1.0, 1.04930), (2.0, 1.01082), (5.0, 1.001677), (10.0, 1.000417)])
def test_what_it_costs_above_the_gaussian(z, kappa):
    assert gdp(DiscreteGaussian(z)) * z == pytest.approx(kappa, rel=1e-5)
    found = epsilon(20 * DiscreteGaussian(z * 5), 1e-6)
    assert found.accountant in ("gdp", "pld")
    assert found <= epsilon(20 * Gaussian(z * 5), 1e-6) * 1.003
    assert found < compare(20 * DiscreteGaussian(z * 5), 1e-6)["zcdp"]


def test_one_integer_that_moves_far_is_nearly_the_gaussian():
    assert gdp(DiscreteGaussian(1.0, shift=100)) == pytest.approx(1.0, abs=1e-5)
    # one threshold after the other, exactly
    for z, shift in itertools.product((0.7, 1.0, 3.0), (1, 2, 7)):
        _, p = law(z * shift, 80 * shift)
        middle = slice(80 * shift - int(6 * z * shift), 80 * shift + int(6 * z * shift))
        g = ndtri(np.cumsum(p))[middle]
        assert (g[shift:] - g[:-shift]).max() <= gdp(DiscreteGaussian(z, shift)) * (1 + 1e-6)


@pytest.mark.parametrize("z", [0.5, 1 / math.sqrt(3)])
def test_little_noise_on_a_lattice_is_not_covered(z):
    for ask in (gdp, lambda r: epsilon(r, 1e-6, accountant="pld")):
        with pytest.raises(UnsupportedRelease, match=r"no bound for a discrete Gaussian of scale 0\.5"):
            ask(DiscreteGaussian(z))
    assert epsilon(DiscreteGaussian(z), 1e-6).accountant in ("zcdp", "rdp")
    assert gdp(DiscreteGaussian(z, shift=2)) > 1 / z


def test_samples_of_discrete_vectors_are_priced():
    sampled = 100 * PoissonSubsampled(DiscreteGaussian(3.0), 0.01)
    gaussian = 100 * PoissonSubsampled(Gaussian(3.0), 0.01)
    lower, upper = bound(sampled, 1e-6)
    assert 0.98 * upper < lower <= upper
    assert epsilon(gaussian, 1e-6) <= upper <= 1.02 * epsilon(gaussian, 1e-6)
    assert np.all(rdp(sampled, [1.5, 8.0, 64.0]) >= rdp(gaussian, [1.5, 8.0, 64.0]))


def test_what_was_calibrated_can_be_spent_one_by_one():
    budget = Budget(1.0, 1e-6)
    z = calibrate(lambda z: 10 * DiscreteGaussian(z), budget)
    assert z < 1.01 * calibrate(lambda z: 10 * Gaussian(z), budget)
    ledger = Ledger(budget)
    for _ in range(10):
        ledger.spend(DiscreteGaussian(z))
    with pytest.raises(BudgetExceeded):
        ledger.spend(DiscreteGaussian(z))


def test_far_tails_do_not_overflow():
    assert gdp(DiscreteGaussian(1e200)) == pytest.approx(1e-200)
    assert 1 < gdp(DiscreteGaussian(0.57736)) * 0.57736 < math.sqrt(2) * (1 + 1e-12)


@tabled("shift", [None, 1, 3])
@tabled("z", [0.6, 0.8, 1.0, 2.0, 5.0])
@tabled("most", [1e-12, 1e-7, 1e-3, 0.1, 10.0])
def test_three_laws_are_as_far_apart_as_the_theorem_says(shift, z, most):
    """With the whole series for b, and at the least μ that λ allows."""
    found, apart = three_laws(z, most, shift)
    if math.isinf(found):
        assert math.isinf(apart)
        assert most < 0.13 if shift is not None else most < 1e-6
        return

    def theorem(rho):
        n, coordinates = (4, 2) if shift is None else (shift**2, 1)
        beta = math.exp(-2 * math.pi**2 * rho * n)
        b = 2 * math.fsum(beta ** (m * m) for m in range(1, 9))
        return 2 * coordinates * math.atanh(math.exp(-2 * math.pi**2 * rho * n * (1 - rho / z**2)) * b / (1 - b))

    rho, least = z**2 - 1 / found**2, gdp(DiscreteGaussian(z, shift=shift))
    assert 1 / (8 * math.pi**2) <= rho * (4 if shift is None else math.inf)
    assert rho <= z**2 / 2 * (1 + 1e-12)
    assert theorem(rho) * (1 - 1e-7) <= apart <= min(most, theorem(rho) * (1 + 1e-3) + 2e-15)
    assert found == pytest.approx(least, rel=1e-9) or apart == pytest.approx(most, rel=1e-6)

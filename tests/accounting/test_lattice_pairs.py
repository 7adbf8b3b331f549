"""Discrete Gaussian vectors beside Gaussian noise, several of them, one alone from above and from below."""

import itertools
import math
import warnings

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from accounting import (
    Budget,
    BudgetExceeded,
    DiscreteGaussian,
    Gaussian,
    Ledger,
    PoissonSubsampled,
    bound,
    calibrate,
    gdp,
)
from accounting.accountants.lattice import composed_mu, discrete_gaussian_mu, lattice_cost
from accounting.accountants.lattice_pairs import LatticeCorners, LatticePair
from accounting.conversions import gdp_delta
from accounting.ledger.filters import first_filter
from accounting.ledger.written import rule_from_dict, rule_to_dict


def law_of_sum(sigma, vector):
    """Values of ⟨v, x⟩ and their probabilities."""
    reach = math.ceil(10 * sigma) + 1
    x = np.arange(-reach, reach + 1)
    noise = np.exp(-(x**2) / (2 * sigma**2))
    law = np.ones(1)
    for v in vector:
        spread = np.zeros(2 * reach * v + 1)
        spread[::v] = noise / noise.sum()
        law = np.convolve(law, spread)
    return np.arange(law.size) - law.size // 2, law


def exact_delta(sigma, vector, epsilons):
    square = sum(v * v for v in vector)
    y, law = law_of_sum(sigma, vector)
    tails = np.append(np.cumsum(law[::-1])[::-1], 0.0)
    losses = (2 * y - square) / (2 * sigma**2)
    first = np.searchsorted(losses, epsilons, side="right")
    return tails[np.maximum(first - square, 0)] - np.exp(epsilons) * tails[first]


def exact_mu(z, vector, reserve):
    """The largest increment of Φ⁻¹ of a release with σ = z‖v‖ together with a Gaussian one of μ² = ``reserve``."""
    square = sum(v * v for v in vector)
    sigma = z * math.sqrt(square)
    s = math.sqrt(reserve) * sigma**2
    y, law = law_of_sum(sigma, vector)
    deviation, shift = math.sqrt(s**2 + sigma**2 * square), square + s * math.sqrt(reserve)
    at = np.linspace(-5 * deviation, 5 * deviation + shift, 3001)

    def quantile(c):
        scaled = (c[:, None] - y) / s
        low, high = ndtr(scaled) @ law, ndtr(-scaled) @ law
        return np.where(low < high, ndtri(np.minimum(low, 0.5)), -ndtri(np.minimum(high, 0.5)))

    return float(np.max(quantile(at) - quantile(at - shift)))


@pytest.mark.parametrize("z", [0.6, 0.8, 1.0, 1.4, 2.0])
def test_beside_gaussian_noise_kappa_is_gone(z):
    for vector, share in itertools.product([(1,), (1, 1), (2,), (2, 1)], [0.8, 1.2, 4.0]):
        reserve = share / z**2
        truth, normal = exact_mu(z, vector, reserve), math.sqrt(reserve + 1 / z**2)
        bounded = math.sqrt(reserve + lattice_cost(z, reserve))
        assert normal * (1 - 1e-12) <= truth <= bounded * (1 + 1e-9)
        assert bounded <= math.sqrt(reserve + discrete_gaussian_mu(z) ** 2)
        if z >= 1.4:
            assert bounded < normal * (1 + 1e-5)


def test_what_is_added_is_needed():
    # without it, or with half of the exponent's error, the bound would be below the truth
    truth = exact_mu(0.6, (1,), 4.0)
    assert truth > math.sqrt(4.0 + 1 / 0.36) * 1.001
    assert truth <= math.sqrt(4.0 + lattice_cost(0.6, 4.0))


def test_several_releases_cost_one_excess():
    one = discrete_gaussian_mu(2.0)
    assert composed_mu([(2.0, 1)]) == pytest.approx(one, rel=1e-11)
    for count in (2, 10, 1000, 10**6):
        expected = math.sqrt((count - 1) / 4 + one**2)
        assert expected <= composed_mu([(2.0, count)]) <= expected * (1 + 1e-9)
    # the excess is that of the strongest, in whatever order they come
    mixed = composed_mu([(3.0, 5), (1.5, 2)])
    assert mixed >= math.sqrt(5 / 9 + 2 / 2.25 + discrete_gaussian_mu(1.5) ** 2 - 1 / 2.25)
    assert mixed == composed_mu([(1.5, 2), (3.0, 5)])
    # Gaussian noise that comes first takes nothing off: who plays the lattice last has seen it
    assert gdp(Gaussian(0.5) + DiscreteGaussian(1.0)) >= math.hypot(2.0, discrete_gaussian_mu(1.0)) * (1 - 1e-12)
    plain = composed_mu([(0.58, 10**6)])
    assert plain <= 1e3 * discrete_gaussian_mu(0.58) * (1 + 1e-9)


@pytest.mark.parametrize("z", [0.6, 1.0, 1.7, 3.0])
def test_the_curve_of_one_release_is_above_every_release(z):
    epsilons = np.linspace(0.0, 0.5 / z**2 + 7 / z, 97)
    pair, corners = LatticePair(z), LatticeCorners(z)
    above = np.array([pair.delta(float(at)) for at in epsilons])
    below = np.array([corners.delta(float(at)) for at in epsilons])
    found = np.array([gdp_delta(1 / z, float(at)) for at in epsilons])
    attained = found.copy()
    for vector in [(1,), (1, 1), (2,), (1, 1, 1), (2, 1), (2, 2), (3,), (1,) * 7, (3, 2, 1)]:
        length = math.sqrt(sum(v * v for v in vector))
        # at one ε noise of a larger scale may be worse
        for larger in np.linspace(1.0, 1.25, 26):
            each = exact_delta(z * length * larger, vector, epsilons)
            found = np.maximum(found, each)
            if larger == 1.0:
                attained = np.maximum(attained, each)
    for j in range(1, 13):
        attained = np.maximum(attained, exact_delta(z * j, (j,), epsilons))
    seen = found > 1e-13
    assert np.all(above[seen] >= found[seen] * (1 - 1e-10))
    # what is attained is what some of them reach
    assert np.all(below <= attained + 1e-13)
    assert np.all(below[seen] >= 0.97 * attained[seen])
    assert np.all(above <= [gdp_delta(discrete_gaussian_mu(z), float(at)) * 1.01 + 1e-18 for at in epsilons])


def test_noise_of_a_larger_scale_may_be_worse():
    # so the curve goes through all scales, not only the least
    epsilons = np.linspace(0.0, 4.0, 401)
    assert np.max(exact_delta(1.05, (1,), epsilons) / exact_delta(1.0, (1,), epsilons)) > 1.05


@pytest.mark.parametrize(
    ("release", "width"),
    [
        (DiscreteGaussian(1.0), 3e-3),
        (DiscreteGaussian(1.4), 5e-3),
        (10 * DiscreteGaussian(1.0), 8e-3),
        (100 * DiscreteGaussian(0.8), 5e-3),
        (1000 * DiscreteGaussian(2.0), 1e-3),
        (5 * DiscreteGaussian(2.0) + 5 * DiscreteGaussian(4.0) + Gaussian(3.0), 5e-3),
        (2 * PoissonSubsampled(DiscreteGaussian(2.747), 0.002), 8e-3),
    ],
    ids=repr,
)
def test_brackets_are_narrow(release, width):
    for level in (1e-5, 1e-9):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            lower, upper = bound(release, level)
        assert (1 - width) * upper <= lower <= upper


def test_a_ledger_charges_the_last_release_most():
    budget = Budget(2.0, 1e-6)
    z = calibrate(lambda z: 30 * DiscreteGaussian(z), budget)
    assert z < calibrate(lambda z: 30 * Gaussian(z), budget) * 1.001
    ledger = Ledger(budget)
    for _ in range(30):
        ledger.spend(DiscreteGaussian(z))
    with pytest.raises(BudgetExceeded):
        ledger.spend(DiscreteGaussian(100 * z))
    rule = first_filter(budget, DiscreteGaussian(z)).rule
    assert rule.accountant == "gdp"
    assert rule.levels
    assert rule_from_dict(rule_to_dict(rule)) == rule
    assert first_filter(budget, Gaussian(3 * z)).rule.levels != rule.levels

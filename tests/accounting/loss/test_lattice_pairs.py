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
from accounting.compose.pairs import alternatives
from accounting.conversions import gdp_delta, gdp_mu
from accounting.ledger.filters.choice import first_filter
from accounting.ledger.record.entry_json import rule_from_dict, rule_to_dict
from accounting.loss.lattice import _added, composed_mu, discrete_gaussian_mu
from accounting.loss.lattice_vectors import LatticeCorners, LatticePair, _most


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
    at = np.linspace(-5 * deviation, 5 * deviation + shift, 1501)

    def quantile(c):
        scaled = (c[:, None] - y) / s
        low, high = ndtr(scaled) @ law, ndtr(-scaled) @ law
        return np.where(low < high, ndtri(np.minimum(low, 0.5)), -ndtri(np.minimum(high, 0.5)))

    return float(np.max(quantile(at) - quantile(at - shift)))


@pytest.mark.parametrize("z", [0.6, 0.8, 1.4])
def test_beside_gaussian_noise_kappa_is_gone(z):
    for vector, share in itertools.product([(1,), (1, 1), (2,), (2, 1)], [0.8, 1.2, 4.0]):
        reserve = share / z**2
        truth, normal = exact_mu(z, vector, reserve), math.sqrt(reserve + 1 / z**2)
        bounded = normal + added(z, reserve)
        assert normal * (1 - 1e-12) <= truth <= bounded * (1 + 1e-9)
        if z >= 1.4:
            assert bounded < normal * (1 + 1e-5)


def test_what_is_added_is_needed():
    truth = exact_mu(0.6, (1,), 4.0)
    assert truth > math.sqrt(4.0 + 1 / 0.36) * 1.001
    assert truth <= math.sqrt(4.0 + 1 / 0.36) + added(0.6, 4.0)


@pytest.mark.parametrize("z", [0.58, 0.7, 1.0, 1.5])
def test_what_is_added_is_what_the_theorem_says(z):
    for reserve in np.geomspace(0.01, 100, 41):
        assert float(_added(np.array([reserve]), z)[0]) == pytest.approx(added(z, reserve), rel=1e-12)


def added(z, reserve):
    """What the theorem adds, from the sums over the dual lattice of one coordinate."""
    if reserve == math.inf:
        return math.inf
    share = reserve * z**2 / (1 + reserve * z**2)
    if 2 * math.pi**2 * z**2 * share < 1:
        return math.inf
    total = 0.0
    for scale in (share, 1.0):
        q = math.exp(-2 * math.pi**2 * z**2 * scale)
        whole = 2 * sum(q ** (k * k) for k in range(1, 60))
        bounded = 2 * q / (1 - q**3)
        assert whole <= bounded * (1 + 1e-12)
        total += math.exp(bounded) - 1
    return math.sqrt(2 * math.pi) * -math.log(1 - total) if total <= 0.5 else math.inf


def stepwise(noises, last):
    """μ of releases in this order, the last one first, of which ``last`` cost as if they were alone."""
    mu = math.sqrt(sum(discrete_gaussian_mu(z) ** 2 for z in noises[:last]))
    for z in noises[last:]:
        mu = math.hypot(mu, 1 / z) + added(z, mu**2)
    return mu


def test_no_order_costs_more_than_the_sum():
    rng = np.random.default_rng(3)
    for _ in range(30):
        noises = rng.choice([0.6, 0.8, 1.0, 1.3, 2.0, 5.0], size=rng.integers(1, 6)).tolist()
        total = composed_mu([(z, noises.count(z)) for z in set(noises)])
        for order in set(itertools.permutations(noises)):
            assert min(stepwise(order, last) for last in range(1, len(order) + 1)) <= total * (1 + 1e-12)
    for z, count in [(0.7, 63), (0.7, 65), (0.8, 300)]:
        exact = min(stepwise([z] * count, last) for last in range(1, 30))
        assert exact * (1 - 1e-12) <= composed_mu([(z, count)]) <= exact * 1.01


def test_wide_and_narrow_intervals_of_scales_are_covered():
    epsilons = np.linspace(0.0, 5.0, 101)
    for vector, share in itertools.product([(1,), (1, 1), (2, 1)], [1.1, 1.0003]):
        length = math.sqrt(sum(v * v for v in vector))
        sigma = length * np.array([1.0, share])
        most = _most(vector, sigma, epsilons)
        for scale in np.linspace(*sigma, 23):
            assert np.all(exact_delta(scale, vector, epsilons) <= most)


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
    # in the privacy loss one of them keeps its own pair
    (((others, count), strongest),) = alternatives(10 * DiscreteGaussian(2.0))
    assert (count, strongest) == (1, (LatticePair(2.0), 1))
    assert others.mu == pytest.approx(composed_mu([(2.0, 9)]), rel=1e-12)
    plain = composed_mu([(0.58, 10**6)])
    assert plain <= 1e3 * discrete_gaussian_mu(0.58) * (1 + 1e-9)


@pytest.mark.parametrize("z", [0.6, 1.0, 3.0])
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
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lower, upper = bound(release, 1e-6)
    assert (1 - width) * upper <= lower <= upper


def test_what_a_budget_was_calibrated_for_can_be_spent_one_by_one():
    budget = Budget(2.0, 1e-6)
    z = calibrate(lambda z: 30 * DiscreteGaussian(z), budget)
    assert z < calibrate(lambda z: 30 * Gaussian(z), budget) * 1.001
    ledger = Ledger(budget)
    for _ in range(30):
        ledger.spend(DiscreteGaussian(z))
    with pytest.raises(BudgetExceeded):
        ledger.spend(DiscreteGaussian(100 * z))
    # what is released may be followed to the end by those who have the file alone
    rule = first_filter(budget, DiscreteGaussian(z)).rule
    assert rule.plan == 30 * DiscreteGaussian(z)
    assert rule_from_dict(rule_to_dict(rule)) == rule
    assert first_filter(budget, DiscreteGaussian(1.01 * z)).rule.accountant == "mixed"


def test_lattice_noise_after_gaussian_noise_is_charged_in_full():
    # who plays it last has seen the rest: in a composed release, or where it is drawn later than it is charged
    budget = Budget(20.0, 1e-6)
    limit = gdp_mu(budget.epsilon, budget.delta) ** 2
    noise = math.sqrt(100 / (0.997 * limit - 1 / 0.64))
    for accountant in (None, "gdp"):
        ledger = Ledger(budget, accountant=accountant)
        ledger.spend(DiscreteGaussian(50.0))
        with pytest.raises(BudgetExceeded):
            ledger.spend(DiscreteGaussian(0.8) + 100 * Gaussian(noise))


def test_large_scales_are_not_free():
    for accountant in (None, "gdp"):
        ledger = Ledger(Budget(1.0, 1e-6), accountant=accountant)
        ledger.spend(DiscreteGaussian(1e9))
        with pytest.raises(BudgetExceeded):
            ledger.spend(10**18 * DiscreteGaussian(1e9))
        assert gdp(2 * DiscreteGaussian(1e160)) < 1e-149
        ledger.spend(DiscreteGaussian(1e160))

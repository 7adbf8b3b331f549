"""What ρ-zCDP costs exactly: against linear programs, random laws and brute force over the orders."""

import math
from dataclasses import replace
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy.optimize import linprog

from accounting import (
    ZCDP,
    FixedSizeSubsampled,
    Gaussian,
    Laplace,
    PoissonSubsampled,
    PureDP,
    bound,
    delta,
    epsilon,
    parallel,
)
from accounting.conversions import gdp_delta, gdp_epsilon
from accounting.loss import concentrated_curve as concentrated
from accounting.loss.concentrated import CoinsPair, ConcentratedPair
from accounting.loss.concentrated_curve import _log_excess, lower_zcdp_epsilon, zcdp_delta, zcdp_epsilon
from accounting.loss.worst_coins import worst_coin
from accounting.lower.lower_bound import lower_epsilon


def rho_of(p, q):
    """The largest D_α/α of either direction, over many orders."""
    alphas = 1 + np.geomspace(1e-4, 3e3, 4000)[:, None]
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(p), np.log(q)
    both = [
        np.logaddexp.reduce(alphas * a + (1 - alphas) * b, axis=1) / (alphas[:, 0] * (alphas[:, 0] - 1))
        for a, b in ((log_p, log_q), (log_q, log_p))
    ]
    return float(np.max(both))


@pytest.mark.parametrize(("rho", "eps"), [(0.02, 0.2), (0.02, 0.5), (0.5, 1.0), (2.0, 5.0)])
def test_no_law_of_the_loss_costs_more(rho, eps):
    """A linear program over all laws with losses on a grid, under the constraints of many orders."""
    y = np.exp(np.linspace(-3.0, 4.0, 281) * math.sqrt(2 * rho))
    u = np.geomspace(0.02, 12.0, 60) / math.sqrt(2 * rho)
    orders = np.concatenate([1 + u, -u])  # those below 0 are the other direction's
    limits = rho * orders * (orders - 1)
    rows = np.exp(orders[:, None] * np.log(y) - limits[:, None])
    answer = linprog(
        -np.maximum(y - math.exp(eps), 0.0),
        A_ub=rows,
        b_ub=np.ones(orders.size),
        A_eq=[np.ones(y.size), y],
        b_eq=[1, 1],
    )
    assert answer.status == 0
    assert 0.97 * zcdp_delta(rho, eps) < -answer.fun < 1.005 * zcdp_delta(rho, eps)


def test_random_laws_cost_no_more():
    rng = np.random.default_rng(7)
    for _ in range(60):
        p, q = rng.dirichlet(np.full(3, 0.5), size=2) * (1 - 3e-6) + 1e-6
        rho = rho_of(p, q)
        for eps in (0.0, 0.3, 2.0):
            assert np.maximum(p - math.exp(eps) * q, 0).sum() <= zcdp_delta(rho, eps) * (1 + 1e-6)


@pytest.mark.parametrize("rho", [1e-4, 1e-3, 0.01, 0.05, 0.5, 3.0, 10.0])
def test_brackets_are_narrow(rho):
    found = [bound(ZCDP(rho), level) for level in (1e-3, 1e-4, 1e-6, 1e-9, 1e-12, 1e-15)]
    for lower, upper in found:
        assert (1 - 2e-5) * upper < lower <= upper
    assert found == sorted(found)


@pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.05, 1.0, 10.0])
def test_brackets_are_narrow_and_inverses_of_each_other_at_the_smallest_delta(rho):
    """There a coin's heads are as rare under Q as floats can say, or rarer."""
    for level in (1e-200, 1e-299):
        upper = zcdp_epsilon(rho, level)
        assert (1 - 2e-5) * upper < lower_zcdp_epsilon(rho, level) <= upper
        assert level * (1 - 1e-9) <= zcdp_delta(rho, upper) <= level * (1 + 1e-9)


@pytest.mark.parametrize("level", [1e-12, 1e-3, 0.3, 0.8])
def test_more_than_gaussian_noise_and_rising_in_rho(level):
    rhos = np.geomspace(1e-8, 100.0, 30)
    found = [zcdp_epsilon(rho, level) for rho in rhos]
    assert np.all(np.diff(found) >= 0)
    assert all(e >= gdp_epsilon(math.sqrt(2 * rho), level) for rho, e in zip(rhos, found, strict=True))
    assert all(lower_zcdp_epsilon(rho, level) <= e for rho, e in zip(rhos, found, strict=True))


def test_delta_falls_and_is_more_than_that_of_gaussian_noise():
    epsilons = np.linspace(0.0, 6.0, 31)
    deltas = [zcdp_delta(0.3, e) for e in epsilons]
    assert np.all(np.diff(deltas) < 0)
    assert all(d >= gdp_delta(math.sqrt(0.6), e) for d, e in zip(deltas, epsilons, strict=True))


@pytest.mark.parametrize(("rho", "eta"), [(1e-4, 100.0), (0.05, 0.5), (0.05, 15.0), (1.0, 0.2), (3.0, 2.0)])
def test_a_coin_that_meets_rho_does_so_at_all_orders(rho, eta):
    coin = worst_coin(rho * (1 - 1e-5), eta)
    q, p = (1 / (1 + math.exp(-odds)) for odds in (coin.base, coin.base + coin.gain))
    assert coin.meets(rho)
    assert (1 - 3e-5) * rho < rho_of(np.array([p, 1 - p]), np.array([q, 1 - q])) <= rho
    assert not coin.meets(rho * (1 - 2e-5))
    assert not replace(coin, gain=1.0001 * coin.gain).meets(rho)
    assert not replace(coin, eta=1.001 * eta).meets(rho)  # the maximum is elsewhere


def test_a_coin_that_is_worse_than_claimed_proves_nothing(monkeypatch):
    monkeypatch.setattr(concentrated, "worst_coin", lambda rho, eta: worst_coin(1.001 * rho, eta))
    assert lower_zcdp_epsilon(0.05, 1e-6) == 0


@pytest.mark.parametrize("rho", [1e-4, 0.05, 1.0, 5.0])
def test_near_zero_delta_inverts_epsilon(rho):
    first = worst_coin(rho, 1e-3).epsilon
    for share in (0.0, 0.3, 0.9, 0.999, 1.001, 1.1):
        level = zcdp_delta(rho, share * first)
        assert zcdp_epsilon(rho, level) == pytest.approx(share * first, rel=1e-6, abs=1e-10)


def test_the_pairs_enclose_the_curve():
    above, below = ConcentratedPair(0.05), CoinsPair(0.05)
    for pair in (above, below):
        losses, p, q, beyond = pair.atoms()
        assert np.all(np.diff(losses) > 0)
        assert p.sum() + beyond == pytest.approx(1.0, abs=1e-6)
        assert p == pytest.approx(np.exp(losses) * q, rel=1e-9)
    losses, p, _, beyond = above.atoms()
    for eps in np.linspace(0.0, 2.5, 41):
        atoms = beyond + float(p @ np.maximum(-np.expm1(np.minimum(eps - losses, 0.0)), 0.0))
        exact = zcdp_delta(0.05, eps)
        assert exact * (1 - 1e-9) <= atoms <= exact * 1.02
        assert exact * 0.98 <= below.delta(eps) <= exact


def test_beside_another_release():
    """Of randomized response first, and then the worst coin for its loss."""
    rho, eps0 = 0.05, 0.3
    truth = 1 / (1 + math.exp(-eps0))
    for eps in (0.5, 1.0, 2.0):
        exact = truth * zcdp_delta(rho, eps - eps0) + (1 - truth) * zcdp_delta(rho, eps + eps0)
        assert exact <= delta(PureDP(eps0) + ZCDP(rho), eps, accountant="pld") <= exact * 1.02


@pytest.mark.parametrize("rho", [30.0, 100.0, 300.0])
def test_large_losses_beside_another_release(rho):
    """There Q has less than floats hold, and P has not."""
    truth = 1 / (1 + math.exp(-0.5))
    for level in (1e-30, 1e-120, 1e-240):
        eps = min(zcdp_epsilon(rho, level), 690.0)
        exact = truth * zcdp_delta(rho, eps - 0.5) + (1 - truth) * zcdp_delta(rho, eps + 0.5)
        assert exact <= delta(PureDP(0.5) + ZCDP(rho), eps, accountant="pld")


def test_strong_releases_beside_another():
    """All their losses may be larger than e^ε can be."""
    with pytest.warns(UserWarning, match=r"too large for floats\): rdp answers"):
        assert epsilon(PureDP(1.0) + ZCDP(1000.0), 1e-6) > zcdp_epsilon(1000.0, 1e-6)


@pytest.mark.parametrize("rho", [1e-18, 1e-10, 1e-4, 1.0])
def test_what_a_moment_exceeds_its_tangent_by_is_rounded_up(rho):
    for t in np.linspace(0.7, 6.0, 25):
        eta = math.sqrt(t / rho)
        low = worst_coin(rho, eta).low
        with localcontext() as context:
            context.prec = 60
            r, u, log_y = Decimal(rho), Decimal(eta), Decimal(low)
            exact = (r * u * (1 + u)).exp() - (1 + u) * (u * log_y).exp() + u * ((1 + u) * log_y).exp()
            assert exact.ln() <= Decimal(_log_excess(rho, eta, low)) < exact.ln() + Decimal("1e-7")


@pytest.mark.parametrize(
    ("release", "width"),
    [
        (ZCDP(0.05) + PureDP(0.3), 1e-3),
        (ZCDP(0.05) + Gaussian(3.0), 1e-3),
        (ZCDP(0.5) + 10 * Laplace(5.0), 1e-3),
        (ZCDP(1e-3) + 30 * Laplace(10.0), 1e-3),
        (PoissonSubsampled(ZCDP(0.05), 0.1), 1e-3),
        (FixedSizeSubsampled(ZCDP(0.5), 10, 100), 1e-3),
        # all together may be what one is, and one of them that comes last is
        (2 * ZCDP(0.05), 0.02),
        (ZCDP(0.03) + ZCDP(0.05) + Gaussian(6.0), 0.02),
        (10 * ZCDP(0.05), 0.05),
        (10 * ZCDP(0.05) + Gaussian(2.0), 0.05),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:ε is only known")
def test_brackets_of_compositions(release, width):
    lower, upper = bound(release, 1e-6)
    assert (1 - width) * upper < lower
    assert lower_epsilon(release, 1e-6) <= upper * (1 + 1e-9)


def test_concentrated_releases_add_up():
    total = ZCDP(0.01) + parallel(ZCDP(0.05), ZCDP(0.02))
    assert epsilon(total, 1e-6, accountant="pld") == pytest.approx(zcdp_epsilon(0.06, 1e-6), rel=1e-12)
    # a sample of several is one sample of all
    several, one = (epsilon(PoissonSubsampled(some, 0.1), 1e-6) for some in (3 * ZCDP(0.02), ZCDP(0.06)))
    assert several == pytest.approx(one, rel=1e-9)
    assert epsilon(PoissonSubsampled(ZCDP(0.06), 0.1), 1e-6) > epsilon(PoissonSubsampled(Gaussian(2.8868), 0.1), 1e-6)

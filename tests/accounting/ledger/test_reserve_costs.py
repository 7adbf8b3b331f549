"""What releases cost next to a Gaussian reserve: the inequality off the grid, its sharpness, and adaptive choices."""

import math
from functools import cache

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr
from scipy.stats import norm
from two_losses import TwoLosses, best_strategy, both_ways

from accounting import (
    ZCDP,
    DiscreteGaussian,
    Gaussian,
    Laplace,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    UnsupportedRelease,
    delta,
    gdp,
    parallel,
)
from accounting.conversions import gdp_delta, gdp_mu
from accounting.ledger.filters import reserve_costs
from accounting.ledger.filters.measure_sums import _smoothed
from accounting.ledger.filters.reserve_costs import Potential, smoothed_costs
from accounting.ledger.filters.smoothed_losses import divergence as the_divergence

MOST = gdp_mu(1.0, 1e-6) ** 2
FAILING = 1e-7 / MOST


def divergence(r, e):
    """D_r(e), by another formula than the one under test."""
    root, far = math.sqrt(r), np.abs(e)
    found = np.exp(log_ndtr(-far / root + root / 2)) - np.exp(far + log_ndtr(-far / root - root / 2))
    return np.where(e >= 0, found, -np.expm1(e) + np.exp(-far) * found)


def cost(release, reserve, failing, most):
    """Without the exponential term."""
    plain, tilted = smoothed_costs(release, reserve, Potential(1.0, most, failing))
    assert plain == tilted
    return plain


def right(cost, r, e):
    return divergence(r + cost, e) + FAILING * cost


@settings(max_examples=60, deadline=None)
@given(eps=st.floats(1e-3, 0.15), share=st.floats(0.005, 0.3), seed=st.integers(0, 1000))
def test_the_inequality_holds_for_coins_between_the_points_of_the_grid(eps, share, seed):
    reserve = share * MOST
    found = cost(PureDP(eps), reserve, FAILING, MOST)
    assume(math.isfinite(found))
    e = np.random.default_rng(seed).uniform(0, 9 * math.sqrt(reserve + eps**2), 3000)
    truth = 1 / (1 + math.exp(-eps))
    left = truth * divergence(reserve, e - eps) + (1 - truth) * divergence(reserve, e + eps)
    # the formula above loses digits to its difference
    assert np.all(left <= right(found, reserve, e) + 1e-15)


@settings(max_examples=8, deadline=None)
@given(z=st.floats(1.2, 6.0), log_q=st.floats(-3.5, -2), share=st.sampled_from([0.01, 0.05, 0.2]))
def test_the_inequality_holds_for_samples_in_both_directions(z, log_q, share):
    q, reserve = 10**log_q, share * MOST
    found = cost(PoissonSubsampled(Gaussian(z), q), reserve, FAILING, MOST)
    assume(math.isfinite(found))
    x = np.linspace(-9 * z, 9 * z + 1, 4001)
    weight = np.diff(x, prepend=x[0] - (x[1] - x[0]))
    without, with_unit = norm.pdf(x, 0, z) * weight, norm.pdf(x, 1, z) * weight
    mixed = (1 - q) * without + q * with_unit
    loss = np.log1p(q * np.expm1((2 * x - 1) / (2 * z * z)))
    for e in np.linspace(0, 8 * math.sqrt(reserve), 57):
        for p, sign in ((mixed, 1), (without, -1)):
            left = float(p @ divergence(reserve, e - sign * loss))
            assert left <= float(right(found, reserve, e)) * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize(
    ("release", "variance"),
    [
        (PureDP(0.01), 1e-4),
        (Laplace(100.0), 1e-4),
        (RandomizedResponse(0.01, 3), 2 / 3 * 1e-4),
        (PoissonSubsampled(Gaussian(4.0), 0.001), 1e-6 * math.expm1(1 / 16)),
    ],
    ids=repr,
)
def test_small_releases_cost_little_more_than_the_variance_of_their_loss(release, variance):
    found = cost(release, 0.03 * MOST, FAILING, MOST)
    assert variance * 0.98 < found < variance * 1.05
    # so much less than without the reserve
    if not isinstance(release, PoissonSubsampled):
        assert gdp(release) ** 2 > 1.2 * found


def test_gaussians_cost_exactly_what_they_are():
    for share in (0.01, 0.5):
        assert cost(Gaussian(7.0), share * MOST, FAILING, MOST) == gdp(Gaussian(7.0)) ** 2
    found = cost(DiscreteGaussian(50.0, shift=1), 0.03 * MOST, FAILING, MOST)
    assert found == pytest.approx(1 / 2500, rel=0.02)


def test_a_larger_reserve_costs_no_more_and_parts_add_up():
    release = PoissonSubsampled(Gaussian(1.5), 0.01)
    costs = [cost(release, share * MOST, FAILING, MOST) for share in (0.01, 0.03, 0.1, 0.3)]
    assert costs == sorted(costs, reverse=True)
    # next to the smallest reserve the first places where it is looked for are too low
    assert costs[0] < math.inf
    both = [cost(part, 0.1 * MOST, FAILING, MOST) for part in (release, PureDP(0.02))]
    assert cost(3 * release + PureDP(0.02), 0.1 * MOST, FAILING, MOST) == pytest.approx(3 * both[0] + both[1])
    assert cost(parallel(release, PureDP(0.02)), 0.1 * MOST, FAILING, MOST) == max(both)


def test_what_has_no_pair_or_is_too_large_has_no_cost():
    with pytest.raises(UnsupportedRelease):
        cost(ZCDP(0.01), 0.1 * MOST, FAILING, MOST)
    assert cost(PoissonSubsampled(Gaussian(0.3), 0.01), 0.01 * MOST, FAILING, MOST) == math.inf
    assert cost(PureDP(0.5), 0.1 * MOST, FAILING, MOST) == gdp(PureDP(0.5)) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.01, 0.08])
def test_what_fits_meets_the_budget_by_the_loss_distribution(share):
    kinds = [PureDP(0.02), Laplace(60.0), PoissonSubsampled(Gaussian(3.0), 0.004), Gaussian(40.0)]
    for mix in ((1, 0, 0, 0), (0, 1, 2, 1), (0, 0, 1, 0), (1, 1, 50, 1)):
        once = sum((count * kind for count, kind in zip(mix, kinds, strict=True)), start=0 * PureDP(0.1))
        found = cost(once, share * MOST, FAILING, MOST)
        total = math.floor((1 - share) * MOST / found) * once
        for eps in (0.0, 0.3, 1.0):
            assert delta(total, eps, accountant="pld") <= gdp_delta(math.sqrt(MOST), eps) + FAILING * MOST


def test_no_choice_among_coins_passes_the_limit():
    """The best strategy with coins of two sizes, by dynamic programming over the loss and what was spent."""
    small, share, eps = 0.035, 0.08, 1.0
    costs = [cost(PureDP(k * small), share * MOST, FAILING, MOST) for k in (1, 2)]
    limit = (1 - share) * MOST

    @cache
    def best(loss, ones, twos):
        value = max(0.0, -math.expm1(eps - loss * small))
        for size, (more_ones, more_twos) in ((1, (1, 0)), (2, (0, 1))):
            if (ones + more_ones) * costs[0] + (twos + more_twos) * costs[1] <= limit:
                truth = 1 / (1 + math.exp(-size * small))
                after = [best(loss + sign * size, ones + more_ones, twos + more_twos) for sign in (1, -1)]
                value = max(value, truth * after[0] + (1 - truth) * after[1])
        return value

    found = best(0, 0, 0)
    assert found <= gdp_delta(math.sqrt(MOST), eps) + FAILING * MOST
    # the test could fail: with costs a third lower it would
    costs = [cost / 1.5 for cost in costs]
    best.cache_clear()
    assert best(0, 0, 0) > gdp_delta(math.sqrt(MOST), eps) + FAILING * MOST


# ------------------------------------------------------------------------------------------ the exponential term

TILTED = Potential(1.0, MOST, FAILING / 2, weight=1.5e-7, order=14.0, rate=8.0)


def potential(m, e, pot=TILTED):
    """W_m(e), by the formula."""
    return divergence(m, e) + pot.weight * np.exp(pot.order * (pot.epsilon - e) - pot.order * pot.rate * (pot.most - m))


def laws(z, q):
    """Losses and masses of a sample in both directions, by quadrature; all but 1e-17 of them."""
    x = np.linspace(-8.6 * z, 8.6 * z + 1, 4001)
    weight = np.gradient(x)
    without, with_unit = norm.pdf(x, 0, z) * weight, norm.pdf(x, 1, z) * weight
    loss = np.log1p(q * np.expm1((2 * x - 1) / (2 * z * z)))
    return [((1 - q) * without + q * with_unit, loss), (without, -loss)]


@settings(max_examples=8, deadline=None)
@given(
    z=st.floats(1.1, 5.0), log_q=st.floats(-3.5, -2), share=st.sampled_from([0.012, 0.05, 0.3]), more=st.floats(0, 1)
)
def test_the_potential_falls_on_average_for_losses_of_either_sign(z, log_q, share, more):
    q, reserve = 10**log_q, share * MOST
    found = float(smoothed_costs(PoissonSubsampled(Gaussian(z), q), reserve, TILTED)[1])
    assume(math.isfinite(found) and reserve + found < MOST)
    # with any larger reserve, too
    left = reserve + more * (MOST - reserve - found)
    allowed = TILTED.failing * found
    for p, loss in laws(z, q):
        # losses that are as good as impossible count as failures
        rare = np.cumsum(p[np.argsort(loss)[::-1]])[np.argsort(np.argsort(loss)[::-1])] < TILTED.failing * found / 60
        for e in np.linspace(-0.5, 1.5, 41):
            after = float(p[~rare] @ potential(left, e - loss[~rare])) + float(p[rare].sum())
            assert after <= (float(potential(left + found, e)) + allowed) * (1 + 1e-6) + 1e-16


@pytest.mark.parametrize(("z", "q"), [(5.0, 0.5), (2.0, 0.05), (1.5, 0.01)])
def test_what_the_exponential_grows_by_is_that_of_the_worse_direction(z, q, monkeypatch):
    least, asked = reserve_costs._least, []
    monkeypatch.setattr(reserve_costs, "_least", lambda side, low: asked.append((side, low)) or least(side, low))
    for cached in (reserve_costs._of_pair, reserve_costs._of_pairs):
        cached.cache_clear()
    found = float(smoothed_costs(PoissonSubsampled(Gaussian(z), q), 0.3 * MOST, TILTED)[1])
    moments = [math.log(float(p @ np.exp(TILTED.order * loss))) for p, loss in laws(z, q)]
    assert max(moments) > 1.05 * min(moments)
    tilted = [(side.moment, low) for side, low in asked if side.term is not None]
    assert tilted
    for moment, low in tilted:
        assert max(moments) * (1 - 1e-6) <= moment <= 1.02 * max(moments)
        assert TILTED.order * TILTED.rate * low == pytest.approx(moment, rel=1e-9)
    assert TILTED.order * TILTED.rate * found >= max(moments)


@pytest.mark.parametrize(("order", "step"), [(0.5, 0.05), (3.0, 0.02), (14.0, 0.004), (60.0, 1e-3)])
def test_the_chord_of_the_exponential_term_is_no_more_times_it_than_is_taken_off(order, step):
    t = np.linspace(1.0, math.exp(step), 2001)
    chord = np.interp(t, t[[0, -1]], t[[0, -1]] ** -order)
    most = float((chord * t**order).max()) - 1
    assert most <= reserve_costs._chord(order, step) - 1 <= most * 1.15


def test_skewed_losses_cost_less_with_the_exponential_term_and_gaussians_the_same():
    plain, tilted = smoothed_costs(PoissonSubsampled(Gaussian(1.5), 0.01), 0.06 * MOST, TILTED)
    assert tilted < 0.5 * plain
    # and not below the variance of the loss
    assert tilted > 1e-4 * math.expm1(1 / 2.25)
    assert smoothed_costs(Gaussian(7.0), 0.06 * MOST, TILTED).tolist() == [gdp(Gaussian(7.0)) ** 2] * 2


def test_no_choice_among_skewed_losses_passes_the_limit():
    """The best strategy with a rare large and a frequent small loss, by dynamic programming."""
    unit, reserve = 0.05, 0.06 * MOST
    kinds = [TwoLosses(unit, up) for up in (5, 1)]
    costs = [
        max(reserve_costs._of_pair(one, math.inf, reserve, TILTED)[1] for one in both_ways(unit, up)) for up in (5, 1)
    ]

    def strategy(costs):
        return best_strategy(kinds, [[math.inf, cost] for cost in costs], [0.0, reserve], unit, MOST, 8_000)

    allowed = gdp_delta(math.sqrt(MOST), 1.0) + TILTED.weight + TILTED.failing * MOST
    assert strategy(costs) <= allowed
    # the test could fail: with lower costs it would
    assert strategy([cost / 2 for cost in costs]) > allowed


def test_rare_losses_that_are_revealed_cost_enough_for_negative_e_too():
    """A loss that is left out of the exponential term counts as a failure, whatever was lost before."""
    eps, rate = 6.0, 1e-13
    release = PoissonSubsampled(PureDP(eps), rate)
    for share in (0.012, 0.3):
        reserve = share * MOST
        found = float(smoothed_costs(release, reserve, TILTED)[1])
        low = 1 / (1 + math.exp(eps))
        q = np.array([1 - low, low])
        p = q + rate * (q[::-1] - q)
        loss = np.log1p(rate * np.expm1([-eps, eps]))
        e = np.concatenate([np.linspace(-5, 5, 801) * math.sqrt(reserve), np.geomspace(1e-9, 1e-2, 50) * -1])
        for first, losses in ((p, loss), (q, -loss)):
            worst = int(np.argmax(losses))
            after = first[1 - worst] * potential(reserve, e - losses[1 - worst]) + first[worst]
            assert np.all(
                after <= (potential(reserve + found, e) + TILTED.failing * found) * (1 + 1e-12) + first[worst]
            )


@pytest.mark.parametrize("root", [1e-8, 1e-5, 1e-2, 0.09, 0.11, 2.0, 20.0, 90.0])
def test_the_divergence_has_eleven_digits_for_every_reserve(root):
    with mpmath.workdps(60):
        for x in (0.0, 0.3, 2.0, 9.0, 15.0):
            e, r = mpmath.mpf(x * root), mpmath.sqrt(mpmath.mpf(root * root))
            exact = mpmath.ncdf(r / 2 - e / r) - mpmath.exp(e) * mpmath.ncdf(-e / r - r / 2)
            found = float(the_divergence(np.array([x * root]), root * root)[0])
            assert abs(found / exact - 1) < 1e-11


def test_budgets_beyond_use_are_priced_without_a_word():
    huge = Potential(1e4, gdp_mu(1e4, 1e-6) ** 2, 1e-12)
    with np.errstate(all="raise", under="ignore"):
        found = smoothed_costs(PureDP(20.0), 0.6 * huge.most, huge)
    assert np.all(found <= gdp(PureDP(20.0)) ** 2)


@pytest.mark.parametrize("grown", [0.3, 1.0, 1.2, 3.0])
def test_the_epsilon_of_a_sum_leaves_out_what_more_than_the_limit_does(grown):
    share, order, rate = 0.12, 14.0, 8.0
    measure = _smoothed(1.0, 1e-6, (0.06,), 0.025, (share, order, rate))
    most = gdp_mu(1.0, (1 - 0.025 - share) * 1e-6 * (1 - 2**-50)) ** 2
    total = grown * most
    found = measure.epsilon(np.array([math.inf, math.inf, math.inf, total - 0.06 * most]))
    spent = gdp_delta(math.sqrt(total), found) + 0.025e-6 * grown
    spent += share * 1e-6 * math.exp(order * (1 - found) - order * rate * (most - total))
    assert spent <= 1e-6 * (1 + 1e-6)
    # and no more than it must
    assert found < 1.0 if grown < 1 else found < 1.0001 + 2 * rate * (total - most)


# ------------------------------------------------------------------------------------------------ choices


@settings(max_examples=15)
@given(st.floats(-3.0, 0.5), st.floats(-2.3, -0.1), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_the_inequality_holds_for_every_coin_that_a_choice_may_be(log_epsilon, log_share, offset, more):
    eps, reserve = 10**log_epsilon, 10**log_share * TILTED.most
    found = float(smoothed_costs(NoisyMax(eps), reserve, TILTED, plain=False)[1])
    assume(math.isfinite(found) and reserve + found <= TILTED.most)
    for t in (offset * eps, eps / 2, eps / (4 + eps)):
        chance = math.expm1(eps - t) / (math.expm1(eps - t) - math.expm1(-t)) if t > 0 else 1.0
        for left in (reserve, reserve + more * (TILTED.most - reserve - found)):
            e = np.linspace(-6, 6, 401) * math.sqrt(left)
            after = chance * potential(left, e - t) + (1 - chance) * potential(left, e - t + eps)
            before = potential(left + found, e) + TILTED.failing * found
            assert np.all(after <= before * (1 + 1e-8) + 1e-15)


@pytest.mark.parametrize("eps", [0.003, 0.02, 0.1])
def test_choices_cost_little_more_than_the_variance_of_the_worst_coin(eps):
    """That is ε²/4; the one pair that dominates every coin has a third more."""
    found = float(smoothed_costs(NoisyMax(eps), 0.6 * TILTED.most, TILTED)[1])
    assert 0.95 < found / (eps**2 / 4) < 1.1


@pytest.mark.parametrize(
    "release", [PoissonSubsampled(Gaussian(0.9), 0.004), PoissonSubsampled(PureDP(3.0), 0.001), PureDP(0.2)], ids=repr
)
def test_a_cost_is_enough_at_every_point_and_no_less_would_be(release, monkeypatch):
    """Also at the points that are not asked again, as less was enough there."""
    least, found = reserve_costs._least, []

    def watched(side, low):
        found.append((side, low, least(side, low)))
        return found[-1][-1]

    monkeypatch.setattr(reserve_costs, "_least", watched)
    for cached in (reserve_costs._of_pair, reserve_costs._of_pairs):
        cached.cache_clear()
    for share in (0.01, 0.1, 0.5):
        smoothed_costs(release, share * MOST, TILTED)
    raised = 0
    for side, low, cost in found:
        if math.isfinite(cost):
            assert np.all(side.short(cost) <= 0)
            raised += cost > 1.01 * low
            assert cost <= 1.01 * low or np.any(side.short(cost * (1 - 1e-8)) > 0)
    assert raised >= 3

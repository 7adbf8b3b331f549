"""Many batches of noisy maxima beside a little Gaussian noise: no step is worse there than the one pair."""

import math

import numpy as np
import pytest
from choice_laws import KINDS, exponential, gumbel, neighbours
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from accounting import FixedSizeSubsampled, Gaussian, NoisyMax, delta, epsilon
from accounting.accountants import beside_gaussian
from accounting.accountants.beside_gaussian import BesideGaussian, _functions, _lacking, is_known, reference
from accounting.accountants.coin_kinds import CoinKind
from accounting.accountants.lower import _best_order, _lower_epsilon
from accounting.accountants.permute_and_flip import FlipKind
from accounting.accountants.witnesses import witness


def of_fixed_coins(release):
    """What the same two scores cost at every step, from below: a little less than those that follow what was seen."""
    order = _best_order(release, 1e-6)
    return max(_lower_epsilon(witness(release, share * order), 1e-6) for share in (0.4, 0.6, 0.8))


SETTINGS = [(gumbel, 0.5, 0.1, 100), (gumbel, 3.0, 0.02, 2000), (exponential, 1.0, 0.02, 2000)]


def noise_delta(mu, x):
    """The divergence of Gaussian noise at ε = x."""
    return ndtr(mu / 2 - x / mu) - np.exp(x) * ndtr(-mu / 2 - x / mu)


def after(mu, x, losses, in_p):
    """E_P[V(x − L)]."""
    return float(in_p @ noise_delta(mu, x - losses))


@pytest.mark.parametrize("setting", SETTINGS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_no_step_is_worse_beside_the_noise(setting, data):
    choice, eps, rate, count = setting
    found = reference(KINDS[choice](eps), rate, count, 1e-6)
    absent, one, other = (choice(scores) for scores in neighbours(data, eps, data.draw(st.integers(2, 5)), 1 + eps))
    p, q = (1 - rate) * absent + rate * one, (1 - rate) * absent + rate * other
    in_p = np.exp(found.losses) * found.in_q
    for share in (-9.0, -4.0, -2.0, -1.0, -0.3, 0.0, 0.3, 1.0, 2.0, 4.0, 9.0):
        x = share * found.mu
        worst = after(found.mu, x, found.losses, in_p)
        assert after(found.mu, x, np.log(p / q), p) <= worst * (1 + 1e-12) + found.rest + 1e-15


@pytest.mark.parametrize(("eps", "rate"), [(3.0, 0.02), (4.0, 0.02)])
def test_three_scores_that_are_worse_than_any_two_are_no_worse_than_the_pair(eps, rate):
    found = reference(CoinKind(eps), rate, 2000, 1e-6)
    in_p = np.exp(found.losses) * found.in_q
    rows = []
    for lead in np.linspace(0.0, 6.0, 13):
        for share in (0.5, 0.75, 1.0):
            absent, one, other = (
                gumbel(np.array([-lead + first, -lead + second, 0.0]))
                for first, second in ((0.0, 0.0), (eps, share * eps), (share * eps, eps))
            )
            p, q = (1 - rate) * absent + rate * one, (1 - rate) * absent + rate * other
            rows.append((np.log(p / q), p))
    seen = 0
    # as far as V is worth anything beside what is left out of it
    for x in np.linspace(-3.0, 3.0 * eps, 61):
        if noise_delta(found.mu, x - eps) > 1e3 * found.rest:
            steps = max(after(found.mu, x, losses, in_step) for losses, in_step in rows)
            assert steps <= after(found.mu, x, found.losses, in_p) + found.rest
            seen += 1
    assert seen > 20


@pytest.mark.parametrize("setting", SETTINGS)
def test_some_steps_are_nearly_as_bad(setting):
    choice, eps, rate, count = setting
    found = reference(KINDS[choice](eps), rate, count, 1e-6)
    in_p, ratios = np.exp(found.losses) * found.in_q, []
    for x in found.mu * np.array([0.5, 1.0, 2.0]):
        none, worst = noise_delta(found.mu, x), after(found.mu, x, found.losses, in_p)
        steps = []
        for lead in eps * np.linspace(-0.5, 1.5, 41):
            before, later = choice(np.array([lead, 0.0])), choice(np.array([lead - eps, 0.0]))
            mixed = (1 - rate) * later + rate * before
            steps.append(after(found.mu, x, np.log(mixed / later), mixed) - none)
        ratios.append(max(steps) / (worst - none))
    # so one that is a tenth less would be seen by the test above
    assert max(ratios) > 0.9


def test_it_is_a_pair_of_laws():
    found = reference(CoinKind(1.0), 0.1, 300, 1e-6)
    assert (found.in_q >= 0).all()
    assert found.in_q.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.in_q @ np.exp(found.losses) == pytest.approx(1.0, abs=1e-12)
    assert 300 * found.rest <= 1e-4 * 1e-6 * (1 + 1e-9)


def test_functions_are_those_that_noise_makes():
    mu, step, reach = 0.3, 0.01, 30
    orders = np.array([-0.5, 2.0, 15.0])
    values, scale = _functions(orders, mu, step, reach)
    losses = step * np.arange(-reach, reach + 1)
    for row, x in zip(values * np.exp(scale)[:, None], mu**2 * (orders + 0.5), strict=True):
        # E of V(x − ln ρ) under P at a ratio ρ, less its tangent at 1, over what V″ is multiplied by
        slope = -ndtr(-mu / 2 - x / mu)
        exact = np.exp(losses) * noise_delta(mu, x - losses)
        tangent = noise_delta(mu, x) + np.expm1(losses) * (noise_delta(mu, x) - np.exp(x) * slope)
        density = math.exp(-((x - mu**2 / 2) ** 2) / (2 * mu**2)) / (mu * math.sqrt(2 * math.pi))
        assert row == pytest.approx((exact - tangent) / density, rel=1e-6, abs=1e-9)


def test_what_is_lacking_between_points_is_seen():
    orders = np.linspace(0.0, 1.0, 11)
    convex = (orders - 0.55) ** 2
    # what is asked for is the line through the values at the ends of the middle cell, 0.0025 above the curve there
    asked = convex - 0.05
    asked[5:7] = convex[5:7]
    # and 0.01 above the lines from either side
    assert _lacking(orders, convex, asked) == pytest.approx(0.01)
    assert _lacking(orders, convex + 0.02, np.zeros(11)) < 0
    assert _lacking(orders, np.zeros(11), np.eye(11)[0]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("noise", "eps", "batch", "count", "width"),
    [
        ("gumbel", 0.1, 10, 10_000, 0.05),
        ("gumbel", 1.0, 10, 10_000, 0.04),
        ("gumbel", 1.0, 100, 100, 0.07),
        ("exponential", 0.1, 10, 10_000, 0.025),
        ("exponential", 1.0, 10, 10_000, 0.045),
    ],
)
def test_totals_are_bracketed(noise, eps, batch, count, width):
    release = count * FixedSizeSubsampled(NoisyMax(eps, noise), batch_size=batch, records=1000)
    lower, upper = of_fixed_coins(release), epsilon(release, 1e-6)
    assert lower <= upper <= lower * (1 + width)


def test_among_other_releases():
    some = 600 * FixedSizeSubsampled(NoisyMax(1.0), batch_size=10, records=1000)
    others = 600 * FixedSizeSubsampled(NoisyMax(0.5, "exponential"), batch_size=20, records=1000)
    total = some + others + Gaussian(5.0)
    lower, upper = of_fixed_coins(total), epsilon(total, 1e-6)
    assert lower <= upper <= 1.06 * lower
    # what δ is at that ε is the same answer
    assert delta(total, upper) == pytest.approx(1e-6, rel=0.02)


def test_where_nothing_is_known_there_is_the_game(monkeypatch):
    release = 40 * FixedSizeSubsampled(NoisyMax(2.0), batch_size=100, records=1000)
    beside = epsilon(release, 1e-6)
    monkeypatch.setattr(beside_gaussian, "reference", lambda *given: None)
    assert BesideGaussian(CoinKind(2.0), 0.1, 40, 1e-6).noise() is None
    with pytest.raises(ArithmeticError, match="no reference"):
        BesideGaussian(CoinKind(2.0), 0.1, 40, 1e-6).delta(0.1)
    assert beside <= epsilon(release, 1e-6) <= 40 * 2.0
    assert not is_known(CoinKind(1e-5), 0.1)
    assert not is_known(FlipKind(20.0), 0.1)
    monkeypatch.undo()
    with pytest.raises(TypeError, match="no samples"):
        reference("a coin", 0.1, 40, 1e-6)

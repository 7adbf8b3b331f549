"""Thousands of choices of which few tell much: laws that are worse than every coin, many steps at a time."""

import math

import numpy as np
import pytest

from accounting import NoisyMax, PoissonSubsampled, bound, delta, epsilon
from accounting.adaptive.choices import rare_choices
from accounting.adaptive.choices.coins import CoinKind
from accounting.adaptive.choices.every_coin import played_epsilon

KINDS = [CoinKind(6.0, 0.0, 0.01), CoinKind(5.0, 0.0, 0.02, False)]


def coins(kind, t):
    """P and Q of the high loss of every coin, from the two losses alone."""
    high, low = kind.losses(t)
    in_p = np.expm1(-low) / np.expm1(-low - high)
    return in_p, in_p * np.exp(-high)


@pytest.mark.parametrize("kind", KINDS)
def test_every_coin_is_less_than_a_mean_of_two_laws(kind):
    """At every ε, and at every mean of two such curves: so laws may follow one another as coins do."""
    plan = rare_choices._plan(kind, 3000, math.log(1e-6))
    masses, highest = rare_choices._laws(kind, plan)
    losses = plan.step * (highest - np.arange(masses.shape[0])) - plan.drift
    t = np.linspace(*kind.ends, 402)[1:-1]
    in_p, in_q = coins(kind, t)
    for x in np.linspace(losses[-1], losses[0], 57):
        for y in (x, 0.3 * losses[0]):
            above = np.maximum(-np.expm1(np.minimum(np.array([x, y])[:, None] - losses, 0.0)), 0.0).sum(axis=0)
            z = np.exp(np.array([x, y]))[:, None]
            of_coins = np.maximum(in_p - z * in_q, 0.0) + np.maximum(1 - in_p - z * (1 - in_q), 0.0)
            assert np.max(of_coins.sum(axis=0)) <= np.max(above @ masses) * (1 + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_many_steps_at_a_time_are_at_least_the_steps(kind):
    plan = rare_choices._plan(kind, 1000, math.log(1e-6))
    game = rare_choices.RareCoins(kind, plan)
    f = np.maximum(-np.expm1(np.minimum(plan.step * np.arange(-300, 500), 1.0)), 0.0)
    for _ in range(60):
        f = game.best(f)
    leapt, steps = rare_choices._leap(game, f, 1e-6, 400, 1e-4)
    assert steps > 4
    for _ in range(steps):
        f = game.best(f)
    assert np.all(f <= leapt)
    # near the corner at which the game starts the best law is another one for every difference
    assert np.max((leapt - f) / (f + 1e-6)) < 0.1


def test_long_games_agree_with_short_ones():
    """With the game of the same choices, every t of which is tried; and above the best fixed coin, a binomial sum."""
    kind = CoinKind(6.0, 0.0, 0.01)
    found = rare_choices.epsilon_of_many(kind, 150, 1e-6)
    assert found == pytest.approx(played_epsilon(((kind, 150),), 1e-6, 1e3), rel=6e-3)
    in_p, in_q = coins(kind, np.linspace(*kind.ends, 60)[1:-1])
    j = np.arange(151)
    ways = np.array([math.lgamma(151) - math.lgamma(i + 1) - math.lgamma(151 - i) for i in j])[:, None]
    p, q = (np.exp(ways + j[:, None] * np.log(a) + (150 - j[:, None]) * np.log1p(-a)) for a in (in_p, in_q))
    assert np.max(np.maximum(p - math.exp(found) * q, 0.0).sum(axis=0)) <= 1e-6
    less = 0.98 * found
    assert np.max(np.maximum(p - math.exp(less) * q, 0.0).sum(axis=0)) > 1e-6


def test_very_strong_choices_on_rare_samples_have_narrow_brackets():
    total = 500 * PoissonSubsampled(NoisyMax(6.0), 0.01)
    lower, upper = bound(total, 1e-6)
    assert 0.99 * upper < lower <= upper
    assert delta(total, upper) == pytest.approx(1e-6, rel=0.02)


def test_what_takes_too_long_has_an_answer(monkeypatch):
    total = 300 * PoissonSubsampled(NoisyMax(6.0), 0.01)
    whole = epsilon(total, 1e-5)
    rare_choices._curve.cache_clear()
    monkeypatch.setattr(rare_choices, "_MOST_WORK", 1e6)
    assert whole < epsilon(total, 1e-5) < 1.1 * whole
    rare_choices._curve.cache_clear()

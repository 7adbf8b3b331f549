"""Thousands of choices of which few tell much: laws and leaps from above, many at a time from below, and long games."""

import math
from functools import cache

import numpy as np
import pytest

from accounting import Gaussian, NoisyMax, PoissonSubsampled, bound, delta, epsilon
from accounting.adaptive.choices import rare_choices, rare_in_totals, scores_below
from accounting.adaptive.choices.coins import CoinKind
from accounting.adaptive.choices.every_coin import PlayedPair, played_epsilon
from accounting.adaptive.choices.rare_choices import LongPair, RareCoins, curve_of_many, delta_of_many
from accounting.adaptive.choices.scores_below import Play
from accounting.adaptive.engine import play, start
from accounting.loss.gaussian import GaussianPair

KINDS = [CoinKind(6.0, 0.0, 0.01), CoinKind(5.0, 0.0, 0.02, False)]
PLAYS = [Play("gumbel", 8.0, 600, 0.002), Play("gumbel", 8.0, 600, 0.002, False), Play("exponential", 6.0, 600, 0.004)]


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
def test_differences_are_no_less_than_what_a_step_makes_of_a_change(kind):
    """T(f + g) ≤ Tf + T′g for g of either sign, also where g is not small beyond the ends."""
    plan = rare_choices._plan(kind, 1000, math.log(1e-6))
    game = RareCoins(kind, plan)
    for below, above in ((60, 60), (2, 90), (90, 2)):
        z = plan.step * np.arange(-below, above + 1)
        f = 1 / (1 + np.exp(z))
        for g in (np.full(z.size, 0.3), -0.3 * f, 0.1 * np.sin(3 * z), 0.1 * np.cos(2 * z), -0.1 * np.cos(2 * z)):
            assert np.all(game.best(f + g) <= game.best(f) + g + game.difference(g) + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_many_steps_at_a_time_are_at_least_the_steps(kind):
    plan = rare_choices._plan(kind, 1000, math.log(1e-6))
    game = RareCoins(kind, plan)
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("faint", [6.0, -3.0])
def test_what_is_not_played_at_the_upper_end_is_safe(kind, faint, monkeypatch):
    """Against all steps on the whole lattice, one by one; also where the values that are left out are not small."""
    count, level = 260, math.log(1e-4)
    plan = rare_choices._plan(kind, count, level)
    monkeypatch.setattr(rare_choices, "_FAINT", faint)
    x, values = curve_of_many.__wrapped__(kind, count, level)
    f = play([(RareCoins(kind, plan), count)], start(x + count * plan.drift))
    assert np.all(np.minimum(f, 1.0) <= values * (1 + 1e-12))


@pytest.mark.parametrize(
    ("noise", "strength", "rate", "count", "target"),
    [
        ("gumbel", 8.0, 0.0391442904, 443, 7.669e-6),
        ("gumbel", 10.0, 0.00255, 296, 3.7e-3),
        ("exponential", 6.6, 1.35e-4, 259, 0.0643),
    ],
)
def test_units_that_are_absent_from_very_strong_choices_have_an_answer(noise, strength, rate, count, target, recwarn):
    """Where the best coin hardly ever falls on its other side, and where δ is met from the lattice's first point on."""
    found = epsilon(count * PoissonSubsampled(NoisyMax(strength, noise=noise), rate), target)
    assert not [one for one in recwarn if "no answer" in str(one.message)]
    assert found < 110


@pytest.mark.thorough
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


def test_what_takes_too_long_has_an_answer(monkeypatch):
    total = 300 * PoissonSubsampled(NoisyMax(6.0), 0.01)
    whole = epsilon(total, 1e-5)
    curve_of_many.cache_clear()
    monkeypatch.setattr(rare_choices, "_MOST_WORK", 1e6)
    assert whole < epsilon(total, 1e-5) < 1.1 * whole
    curve_of_many.cache_clear()


@pytest.mark.thorough
def test_the_delta_of_a_long_game_is_near_what_was_asked_for_and_0_beyond_all_losses():
    total = 1000 * PoissonSubsampled(NoisyMax(8.0), 0.001)
    assert delta(total, epsilon(total, 1e-6)) == pytest.approx(1e-6, rel=0.02)
    kind = CoinKind(8.0, 0.0, 0.001, False)
    assert delta_of_many(kind, 1000, 1000 * kind.highest * (1 + 1e-9)) == 0.0


def test_one_long_game_takes_the_place_of_short_ones_of_its_kind_alone():
    strong, other = CoinKind(6.0, 0.0, 0.01), CoinKind(0.1)
    parts = (
        (GaussianPair(0.3), 1),
        (PlayedPair(((strong, 250),)), 2),
        (PlayedPair(((strong, 5), (other, 4))), 1),
        (PlayedPair(((other, 200),)), 3),
    )
    found = dict(rare_in_totals.in_place(parts, 1e-6))
    level = -14.0
    assert found == {**dict(parts[:1] + parts[2:]), LongPair(strong, 500, level): 1}
    assert rare_in_totals.in_place(parts[1:2], 1e-6) is None
    assert rare_in_totals.in_place(parts[2:], 1e-6) is None


def test_the_pair_of_a_long_game_has_its_curve():
    kind = CoinKind(6.0, 0.0, 0.01)
    pair = LongPair(kind, 500, math.log(1e-6))
    x, values = curve_of_many(kind, 500, pair.level)
    for at in (0.3, 3.0, 15.0):
        curve = np.interp(math.exp(at), np.exp(x), values)
        assert curve * (1 - 1e-6) <= pair.delta(at) <= curve * (1 + 1e-4)
    _, p, q, beyond = pair.atoms()
    assert float(p.sum()) + beyond == pytest.approx(1.0, abs=1e-6)
    # what is left of Q has lost everything
    assert 0.5 < float(q.sum()) < 1.0


# -------------------------------------------------------------------------------------------------------- from below


@pytest.mark.parametrize("play", PLAYS)
def test_coins_taken_many_at_a_time_are_less_than_true_ones_and_end_on_the_lattice(play):
    step, at_once = 0.011, 50
    low, high = scores_below._rounded(scores_below._coins_of(play), step, at_once)
    assert low.size > 4
    # both losses of some coin of two scores, on the sample, are at least these
    ((plain_low, plain_high),) = scores_below.two_losses(play.noise, play.epsilon)
    true_low, true_high = -np.log1p(play.rate * np.expm1(-plain_low)), np.log1p(play.rate * np.expm1(plain_high))
    true_low, true_high = (true_low, true_high) if play.present else (true_high, true_low)
    order = np.argsort(true_low)
    assert np.all(high <= np.interp(low, true_low[order], true_high[order]) * (1 + 1e-9))
    for ups in (0, 1, 7, at_once):
        places = (ups * high - (at_once - ups) * low) / step
        assert np.allclose(places, np.rint(places), atol=1e-7)


def test_the_law_of_many_tosses_is_binomial():
    low, high, step = np.array([0.0004]), np.array([3.9996]), 0.02
    (law,) = scores_below._laws(low, high, 50, step)
    p = math.expm1(-0.0004) / math.expm1(-4.0)
    for j, (shift, mass) in enumerate(law):
        assert shift == 200 * j - 1
        assert mass == pytest.approx(math.comb(50, j) * p**j * (1 - p) ** (50 - j), rel=1e-12)
    assert sum(mass for _, mass in law) == pytest.approx(1.0, abs=1e-13)
    # P/Q of the whole has the mean 1 under Q
    assert sum(mass * math.exp(-step * shift) for shift, mass in law) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("rate", [1e-3, 8e-5])
def test_where_most_tosses_win_no_law_is_more_than_one(rate):
    """The chance that none does is too small for floats, or has lost its digits there."""
    play = Play("gumbel", 8.0, 10_000, rate, False)
    step = scores_below._step((play,), 1.0)
    low, high = scores_below._rounded(scores_below._coins_of(play), step, 78)
    laws = scores_below._laws(low, high, 78, step)
    assert low.size > 4
    for law in laws:
        assert sum(mass for _, mass in law) == pytest.approx(1.0, abs=1e-13)
        assert sum(mass * math.exp(-step * shift) for shift, mass in law) == pytest.approx(1.0, abs=1e-11)


@pytest.mark.thorough
def test_many_at_a_time_are_what_recursion_says(monkeypatch):
    monkeypatch.setattr(scores_below, "_LOOKS", 1)
    monkeypatch.setattr(scores_below, "_TELLING", 0.4)
    monkeypatch.setattr(scores_below, "_COINS", 1000)
    monkeypatch.setattr(scores_below, "_SHARE", 0.0)
    play, step = Play("gumbel", 6.0, 140, 0.004), 0.025
    # by how many are left to play
    sizes = [scores_below._at_once(play)]
    sizes.insert(0, play.count % sizes[0])
    assert min(sizes) > 30
    x = step * np.arange(-400, 600)
    found = scores_below._values((play,), x, step)
    coins = [scores_below._rounded(scores_below._coins_of(play), step, size) for size in sizes]
    assert min(low.size for low, _ in coins) > 2

    @cache
    def exact(at, left):
        if left == 0:
            return max(0.0, -math.expm1(at))
        best, size = 0.0, sizes[left - 1]
        for down, up in zip(*(losses.tolist() for losses in coins[left - 1]), strict=True):
            p = math.expm1(-down) / math.expm1(-down - up)
            masses = (math.comb(size, j) * p**j * (1 - p) ** (size - j) for j in range(size + 1))
            shifted = (at - j * up + (size - j) * down for j in range(size + 1))
            best = max(best, sum(m * exact(round(to, 9), left - 1) for m, to in zip(masses, shifted, strict=True)))
        return best

    value = exact(round(float(x[440]), 9), 2)
    assert value * (1 - 1e-6) <= found[440] <= value * (1 + 1e-9)


def test_where_many_tell_something_each_is_a_choice():
    assert scores_below._at_once(Play("gumbel", 1.0, 10_000, 0.1)) == 1
    assert scores_below._at_once(Play("gumbel", 10.0, 10_000)) == 1
    assert scores_below._at_once(Play("gumbel", 10.0, 200, 0.001)) == 1
    assert scores_below._at_once(Play("gumbel", 10.0, 10_000, 0.001)) == 78


@pytest.mark.slow
@pytest.mark.parametrize(
    "total",
    [
        10_000 * PoissonSubsampled(NoisyMax(10.0), 0.001),
        500 * PoissonSubsampled(NoisyMax(6.0), 0.01),
        500 * PoissonSubsampled(NoisyMax(6.0), 0.01) + Gaussian(1.0),
    ],
    ids=repr,
)
def test_thousands_of_choices_of_which_few_tell_much_have_narrow_brackets(total):
    lower, upper = bound(total, 1e-6)
    assert 0.99 * upper < lower <= upper
    # that of short games is larger by a hundredth
    assert delta(total, epsilon(total, 1e-7)) == pytest.approx(1e-7, rel=0.02)

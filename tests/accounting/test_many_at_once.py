"""Many choices of which few tell much: from below many at a time, and from above one game beside other releases."""

import math
from functools import cache

import numpy as np
import pytest

from accounting import Gaussian, NoisyMax, PoissonSubsampled, bound, delta, epsilon
from accounting.adaptive.choices import games_in_place, lattice_games
from accounting.adaptive.choices.coin_kinds import CoinKind
from accounting.adaptive.choices.lattice_games import Play
from accounting.adaptive.choices.long_games import curve_of_many, delta_of_many
from accounting.adaptive.choices.played_pairs import LongPair, PlayedPair
from accounting.loss.gaussian import GaussianPair

PLAYS = [Play("gumbel", 8.0, 600, 0.002), Play("gumbel", 8.0, 600, 0.002, False), Play("exponential", 6.0, 600, 0.004)]


@pytest.mark.parametrize("play", PLAYS)
def test_coins_taken_many_at_a_time_are_less_than_true_ones_and_end_on_the_lattice(play):
    step, at_once = 0.011, 50
    low, high = lattice_games._rounded(lattice_games._coins_of(play), step, at_once)
    assert low.size > 4
    # both losses of some coin of two scores, on the sample, are at least these
    ((plain_low, plain_high),) = lattice_games.two_losses(play.noise, play.epsilon)
    true_low, true_high = -np.log1p(play.rate * np.expm1(-plain_low)), np.log1p(play.rate * np.expm1(plain_high))
    true_low, true_high = (true_low, true_high) if play.present else (true_high, true_low)
    order = np.argsort(true_low)
    assert np.all(high <= np.interp(low, true_low[order], true_high[order]) * (1 + 1e-9))
    for ups in (0, 1, 7, at_once):
        places = (ups * high - (at_once - ups) * low) / step
        assert np.allclose(places, np.rint(places), atol=1e-7)


def test_the_law_of_many_tosses_is_binomial():
    low, high, step = np.array([0.0004]), np.array([3.9996]), 0.02
    (law,) = lattice_games._laws(low, high, 50, step)
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
    step = lattice_games._step((play,), 1.0)
    low, high = lattice_games._rounded(lattice_games._coins_of(play), step, 78)
    laws = lattice_games._laws(low, high, 78, step)
    assert low.size > 4
    for law in laws:
        assert sum(mass for _, mass in law) == pytest.approx(1.0, abs=1e-13)
        assert sum(mass * math.exp(-step * shift) for shift, mass in law) == pytest.approx(1.0, abs=1e-11)


def test_the_delta_of_a_long_game_is_near_what_was_asked_for_and_0_beyond_all_losses():
    total = 1000 * PoissonSubsampled(NoisyMax(8.0), 0.001)
    assert delta(total, epsilon(total, 1e-6)) == pytest.approx(1e-6, rel=0.02)
    kind = CoinKind(8.0, 0.0, 0.001, False)
    assert delta_of_many(kind, 1000, 1000 * kind.highest * (1 + 1e-9)) == 0.0


def test_many_at_a_time_are_what_recursion_says(monkeypatch):
    monkeypatch.setattr(lattice_games, "_LOOKS", 1)
    monkeypatch.setattr(lattice_games, "_TELLING", 0.4)
    monkeypatch.setattr(lattice_games, "_COINS", 1000)
    monkeypatch.setattr(lattice_games, "_SHARE", 0.0)
    play, step = Play("gumbel", 6.0, 140, 0.004), 0.025
    # by how many are left to play
    sizes = [lattice_games._at_once(play)]
    sizes.insert(0, play.count % sizes[0])
    assert min(sizes) > 30
    x = step * np.arange(-400, 600)
    found = lattice_games._values((play,), x, step)
    coins = [lattice_games._rounded(lattice_games._coins_of(play), step, size) for size in sizes]
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
    assert lattice_games._at_once(Play("gumbel", 1.0, 10_000, 0.1)) == 1
    assert lattice_games._at_once(Play("gumbel", 10.0, 10_000)) == 1
    assert lattice_games._at_once(Play("gumbel", 10.0, 200, 0.001)) == 1
    assert lattice_games._at_once(Play("gumbel", 10.0, 10_000, 0.001)) == 78


@pytest.mark.parametrize(
    "total",
    [
        10_000 * PoissonSubsampled(NoisyMax(10.0), 0.001),
        500 * PoissonSubsampled(NoisyMax(6.0), 0.01) + Gaussian(1.0),
    ],
)
def test_ten_thousand_choices_of_which_few_tell_much_have_narrow_brackets(total):
    lower, upper = bound(total, 1e-6)
    assert 0.99 * upper < lower <= upper


def test_the_delta_of_a_sum_is_that_of_a_long_game_near_it():
    # that of short games is larger by a hundredth
    total = 2000 * PoissonSubsampled(NoisyMax(8.0), 0.001) + Gaussian(2.0)
    assert delta(total, epsilon(total, 1e-7)) == pytest.approx(1e-7, rel=0.005)


def test_one_long_game_takes_the_place_of_short_ones_of_its_kind_alone():
    strong, other = CoinKind(6.0, 0.0, 0.01), CoinKind(0.1)
    parts = (
        (GaussianPair(0.3), 1),
        (PlayedPair(((strong, 250),)), 2),
        (PlayedPair(((strong, 5), (other, 4))), 1),
        (PlayedPair(((other, 200),)), 3),
    )
    found = dict(games_in_place.with_long_games(parts, 1e-6))
    level = -14.0
    assert found == {**dict(parts[:1] + parts[2:]), LongPair(strong, 500, level): 1}
    assert games_in_place.with_long_games(parts[1:2], 1e-6) is None
    assert games_in_place.with_long_games(parts[2:], 1e-6) is None


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

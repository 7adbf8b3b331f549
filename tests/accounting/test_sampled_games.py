"""Poisson samples of zCDP releases as a game, from above and from below."""

import math

import numpy as np
import pytest
from step_programs import most

from accounting import ZCDP, Gaussian, PoissonSubsampled, bound, epsilon
from accounting.accountants import sampled_games as sampled_games_module
from accounting.accountants.concentrated_losses import CoinsPair, ConcentratedPair
from accounting.accountants.sampled_coins import _laws, _played, _told, sampled_epsilon_at_least
from accounting.accountants.sampled_games import SampledGamePair, _curve, _Game, _Moments, sampled_games
from accounting.accountants.sampled_losses import SubsampledPair


def after(rho, rate, count, level=1e-6):
    game = _Game(rho, rate, count + 1, level)
    for _ in range(count):
        game.play()
    return game


def one_more(game, at):
    """What one more sample reaches at a point of the grid."""
    t, above = game.t[at], np.concatenate([[1.0], game.above])

    def of_y(y):
        z = 1 - game.rate + game.rate * y
        return z * np.interp(t / z, game.from_0, above)

    return most(game.rho, of_y, 7.0, 241)


@pytest.mark.parametrize(("rho", "rate", "count"), [(0.05, 0.1, 4), (0.5, 0.01, 1)])
def test_a_step_costs_what_a_linear_program_finds(rho, rate, count):
    game = after(rho, rate, count)
    end = float(game.grid[-1])
    checked = [int(np.argmin(np.abs(game.grid - share * end))) for share in (0.2, 0.5)]
    least = np.array([one_more(game, at) for at in checked])
    game.play()
    assert np.all(least <= game.above[checked])
    assert np.all(game.above[checked] < 1.06 * least)


@pytest.mark.parametrize("places", [None, np.linspace(-7, 14, 36), np.linspace(0.5, 14, 400)])
def test_a_step_is_bounded_whatever_the_weights_and_nodes(places, monkeypatch):
    """Few nodes, or a first one that is not rare, give bounds that are worse, and never too low."""
    game = after(0.1, 0.2, 2)
    best = game._weights(game._left())
    checked = np.array([60, 200, 300, 420])
    least = np.array([one_more(game, at) for at in checked])
    if places is not None:
        monkeypatch.setattr(sampled_games_module, "_places", lambda: places)
        above = game.above
        game = _Game(0.1, 0.2, 3, 1e-6)
        game.above = above
    left = game._left()
    assert np.all(game._bound(game._weights(left), left)[checked] >= least)
    rng = np.random.default_rng(7)
    known = 0
    for size in (0.0, *np.repeat([0.01, 0.3, 2.0], 4)):
        off = np.exp(rng.normal(0.0, size, best.shape))
        kept = rng.random(best.shape[1]) < 0.9 + (size == 0)
        kept[:2] = True
        found = game._bound(best * off * kept, left)[checked]
        known += int((found < 1).sum())
        assert np.all(found >= least)
    assert known > 8


def test_moments_are_those_of_gaussian_noise():
    """At integer orders, where what is worst is Gaussian noise at every order of the expansion."""
    rho, rate = 0.2, 0.3
    found = _Moments(rho, rate, 1e-6)
    mu = math.sqrt(2 * rho)
    x = np.linspace(-12, 14, 20001)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    z = 1 - rate + rate * np.exp(mu * x - mu**2 / 2)
    for u, log in list(zip(found.u[:, 0], found.logs[:, 0], strict=True))[:8]:
        assert log == pytest.approx(math.log(np.trapezoid(density * z ** (u + 1), x)), rel=1e-8)


def test_one_sample_is_exact():
    game = after(0.1, 0.2, 1)
    exact = np.array([SubsampledPair(ConcentratedPair(0.1), 0.2, True).delta(float(e)) for e in game.grid])
    assert np.all(game.above >= exact)
    assert np.all(game.above <= exact * 1.02)


@pytest.mark.parametrize(("rho", "rate", "count"), [(0.05, 0.1, 3), (0.5, 0.02, 2)])
def test_played_coins_reach_no_more(rho, rate, count):
    """At other levels of δ as well."""
    for level in (1e-4, 1e-8):
        pair = SampledGamePair(rho, rate, count, math.log(level))
        top = float(_curve(pair)[0][-1])
        reached = _played([(rho, rate)] * count, level, 0.5 * top)
        assert level <= pair.delta(reached) < 1.4 * level


def test_the_curve_goes_on_beyond_the_grid():
    epsilons, above = _curve(SampledGamePair(0.1, 0.2, 3, math.log(1e-4)))
    one = SubsampledPair(ConcentratedPair(0.1), 0.2, True)
    assert all(value >= one.delta(float(e)) for e, value in zip(epsilons[-60::4], above[-60::4], strict=True))
    assert above[-1] < 1e-12 < above[-64]


def test_laws_that_are_played():
    rho, rate = 0.2, 0.3
    grid = np.linspace(-3.0, 5.0, 400)
    for losses, p, q in _laws(rho, 1e-6):
        assert np.allclose(p.sum(axis=1), 1)
        assert np.allclose(q.sum(axis=1), 1)
        assert np.allclose(p, q * np.exp(losses), rtol=1e-6)
        for u in (0.1, 1.0, 4.0, 9.0):
            assert np.all((q * np.exp((1 + u) * losses)).sum(axis=1) <= math.exp(rho * u * (u + 1)) * (1 + 1e-9))
            assert np.all((q * np.exp(-u * losses)).sum(axis=1) <= math.exp(rho * u * (u + 1)) * (1 + 1e-9))
        _, in_p, in_q = _told(grid, rate, losses, p, q)
        assert np.allclose(in_p, rate * p + (1 - rate) * q)
        assert in_q is q


def test_one_sample_from_below():
    exact = SubsampledPair(CoinsPair(0.2), 0.3, True)
    found = _played([(0.2, 0.3)], 1e-5, 1.7)
    assert 1e-5 <= exact.delta(found) * (1 + 1e-6) < 1.06e-5


@pytest.mark.parametrize(
    ("release", "width"),
    [(6 * PoissonSubsampled(ZCDP(0.05), 0.1), 0.015), (4 * PoissonSubsampled(ZCDP(0.5), 0.01), 0.015)],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:ε is only known")
def test_brackets(release, width):
    lower, upper = bound(release, 1e-6)
    assert (1 - width) * upper < lower <= upper


def test_among_others():
    sample = PoissonSubsampled(ZCDP(0.1), 0.2)
    alone = epsilon(3 * sample, 1e-6)
    both = epsilon(3 * sample + Gaussian(20.0), 1e-6)
    assert alone < both < 1.1 * alone
    pair = SubsampledPair(ConcentratedPair(0.1), 0.2, True)
    absent = SubsampledPair(ConcentratedPair(0.1), 0.2, False)
    assert sampled_games(((pair, 1),), 1e-6) is None
    assert sampled_games(((absent, 5),), 1e-6) is None
    (first, times), (second, more) = sampled_games(((pair, 41),), 1e-6)
    assert times * first.count + more * second.count == 41
    assert max(first.count, second.count) <= 20
    assert sampled_epsilon_at_least(3 * sample + Gaussian(20.0), 1e-6) == 0


def test_common_failures_and_many_kinds_are_left_to_pairs():
    # at large δ the grid would run backwards, and every kind of samples takes its time
    weak = 2 * PoissonSubsampled(ZCDP(1e-4), 1e-5)
    assert epsilon(weak + Gaussian(1.0), 0.3) == pytest.approx(float(epsilon(Gaussian(1.0), 0.3)), rel=1e-3)
    kinds = tuple((SubsampledPair(ConcentratedPair(0.01 * i), 0.1, True), 20) for i in range(1, 7))
    assert sum(isinstance(pair, SampledGamePair) for pair, _ in sampled_games(kinds, 1e-6)) == 3
    assert sampled_games(kinds, 0.2) is None
    for total, level in [
        (10 * PoissonSubsampled(ZCDP(0.1), 0.1), 1e-300),
        (2 * PoissonSubsampled(ZCDP(300.0), 0.5), 0.1),
    ]:
        assert sampled_epsilon_at_least(total, level) == 0

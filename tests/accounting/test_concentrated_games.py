"""Several zCDP releases as a game."""

import math

import numpy as np
import pytest
from step_programs import most

from accounting import ZCDP, bound, epsilon
from accounting.accountants import concentrated_games
from accounting.accountants.concentrated_games import (
    _Game,
    _lines,
    _steps,
    concentrated_delta,
    concentrated_epsilon,
    played_curve,
)
from accounting.concentrated import zcdp_delta, zcdp_epsilon
from accounting.worst_coins import worst_coin


def after(rho, count, level, points=385):
    grid = np.linspace(0.0, zcdp_epsilon(rho * count, 1e-2 * level), points)
    game = _Game(grid, 1e-6 * level)
    for _ in range(count):
        game.play(rho)
    return game


@pytest.mark.parametrize(("rho", "eps"), [(0.05, 0.4), (0.05, 2.0), (0.5, 2.5)])
def test_two_releases_cost_what_a_linear_program_finds(rho, eps):
    def left(x):
        e = eps - math.log(x)
        return x * (zcdp_delta(rho, e) if e >= 0 else -math.expm1(e) + math.exp(e) * zcdp_delta(rho, -e))

    least = most(rho, np.vectorize(left), 5.0, 361)
    assert 0.995 * least < concentrated_delta(rho, 2, eps) < 1.01 * least


@pytest.mark.parametrize(("rho", "count", "reaches"), [(0.05, 3, None), (0.01, 8, (0.1, 0.4))])
def test_a_step_is_bounded_whatever_the_tangents(rho, count, reaches, monkeypatch):
    """Tangents that are far off, or lines that end too soon, give bounds that are worse, and never too low."""
    game = after(rho, count, 1e-6, 193)
    lines = _lines(game.t, game.above, 192)
    grid = np.concatenate([-game.grid[:0:-1], game.grid])
    curve = np.concatenate([(1 - 1 / game.t + game.above / game.t)[:0:-1], game.above])
    checked = np.array([0, 20, 60, 100])

    def of_y(at):
        t = game.t[at]
        return lambda y: y * np.interp(t / y, np.exp(grid), curve, left=1.0)

    least = np.array([most(rho, of_y(at), 5.0, 321) for at in checked])
    next_step = after(rho, count, 1e-6, 193)
    next_step.play(rho)
    assert np.all(least <= next_step.above[checked])
    if reaches:
        monkeypatch.setattr(concentrated_games, "_REACHES", reaches)
    rng = np.random.default_rng(5)
    scale = math.sqrt(2 * rho)
    known = 0
    size = game.grid.size
    for _ in range(80):
        # about tangents at places that are right for some of the points, and others
        u = np.full(size, rng.uniform(0.05, 3.0) / scale)
        low, apart = -scale * rng.uniform(0.0, 0.1 if reaches else 1.2), scale * rng.uniform(1.0, 3.0)
        found = []
        for loss in (low, low + apart):
            e = game.grid - loss
            value = np.interp(e, grid, curve)
            slope = (np.interp(e + 1e-3, grid, curve) - np.interp(e - 1e-3, grid, curve)) / 2e-3
            off = math.exp(rng.uniform(-0.2, 0.7) * rng.integers(2))
            found.append(((value - slope) * off, -slope * np.exp(-e) * off))
        a = game._bound(rho, lines, u, np.full(size, low), np.full(size, apart), *found)
        known += int(np.isfinite(a[checked]).sum())
        assert np.all(a[checked] >= least)
    assert known > 40


def test_lines_are_above_the_curve():
    game = after(0.02, 5, 1e-6)
    p, q = _lines(game.t, game.above, 200)
    e = np.linspace(-1.0, 1.0, 2001) * game.grid[-1]
    t = np.exp(e)
    above = np.interp(np.maximum(t, 1 / t), game.t, game.above)
    curve = np.where(e >= 0, above, 1 - t + t * above)
    best = np.max(p - q * t[:, None], axis=1)
    assert np.all(best >= curve * (1 - 1e-12))
    near = (np.abs(e) > 0.1) & (e > -0.5)
    assert np.all(best[near] <= curve[near] * (1 + 1e-6))


@pytest.mark.parametrize("count", [2, 8])
def test_played_coins_reach_no_more(count):
    """At every point of the grid, and not much less."""
    game = after(0.3 / count, count, 1e-6)
    reached = game.p - game.q * game.t
    assert np.all(reached <= game.above)
    some = (reached > 1e-7) & (game.grid > 0.1)
    assert np.all(game.above[some] < 1.04 * reached[some])


def test_a_coin_before_the_worst_one_reaches_no_more():
    def left(e):
        return zcdp_delta(0.05, e) if e >= 0 else -math.expm1(e) + math.exp(e) * zcdp_delta(0.05, -e)

    for eps in (0.1, 0.5, 1.0, 1.7):
        allowed = concentrated_delta(0.05, 2, eps)
        for eta in np.geomspace(0.1, 20.0, 15):
            coin = worst_coin(0.05 * (1 - 1e-5), float(eta))
            p, q = math.exp(coin.log_p), math.exp(coin.log_p - coin.high)
            assert p * left(eps - coin.high) + (1 - p) * left(eps - coin.low) <= allowed
            assert q * left(eps + coin.high) + (1 - q) * left(eps + coin.low) <= allowed


def test_between_gaussian_noise_and_one_release():
    level = 1e-6
    one = zcdp_epsilon(0.2, level)
    found = [concentrated_epsilon(0.2 / count, count, level) for count in (1, 2, 4, 200)]
    assert found[0] == one
    assert np.all(np.diff(found) < 1e-3 * one)
    assert found[-1] < 0.97 * one
    assert concentrated_delta(0.05, 4, found[2]) == pytest.approx(level, rel=0.02)


@pytest.mark.parametrize("release", [5 * ZCDP(1e-4), 28 * ZCDP(0.3)], ids=repr)
@pytest.mark.filterwarnings("ignore:ε is only known")
def test_brackets_of_many(release):
    lower, upper = bound(release, 1e-6)
    assert 0.98 * upper < lower <= upper


def test_steps_are_all_releases():
    for count in (1, 7, 28, 29, 50, 1000, 123_456):
        steps = _steps(0.25, count)
        assert len(steps) <= 28
        assert sum(steps) == pytest.approx(0.25 * count, rel=1e-12)
        assert steps == sorted(steps) or count < 1000


def test_the_sum_where_there_is_no_game():
    for rho, count, level in ((1e-9, 10, 1e-6), (50.0, 10, 1e-6), (0.1, 3, 1e-80)):
        assert concentrated_epsilon(rho, count, level) == zcdp_epsilon(rho * count * (1 + 2.0**-52), level)


def test_a_coarse_grid_is_rounded_up(monkeypatch):
    points = np.array([0.5, 1.5, 2.0])
    fine = [concentrated_delta(0.05, 3, eps) for eps in points]
    played_curve.cache_clear()
    monkeypatch.setattr(concentrated_games, "_POINTS", 64)
    coarse = [concentrated_delta(0.05, 3, eps) for eps in points]
    played_curve.cache_clear()
    assert all(a < b < 1.1 * a for a, b in zip(fine, coarse, strict=True))


def test_weak_releases_are_played_as_well():
    # with as many steps as of stronger ones rounding took all that the game gains, and 30 were cheaper than 28
    found = [float(epsilon(count * ZCDP(1e-6), 1e-4)) for count in (14, 15, 28, 30)]
    assert found == sorted(found)
    assert found[2] < 0.88 * zcdp_epsilon(28e-6, 1e-4)

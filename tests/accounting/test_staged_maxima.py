"""Many batches of noisy maxima in stages: no step is worse than the one pair, before those that follow."""

import itertools
import math

import numpy as np
import pytest
from choice_laws import KINDS, exponential, gumbel, neighbours
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import FixedSizeSubsampled, Gaussian, NoisyMax, delta, epsilon
from accounting.accountants import staged_maxima
from accounting.accountants.coin_games import played_delta
from accounting.accountants.coin_kinds import CoinKind
from accounting.accountants.lower import _best_order, _lower_epsilon
from accounting.accountants.permute_and_flip import FlipKind
from accounting.accountants.staged_maxima import (
    EarlierMaxima,
    LastMaxima,
    _bends,
    _between,
    _convex,
    _places,
    _ramps,
    _Steps,
    is_known,
    stages,
)
from accounting.accountants.triples import means_of_coins
from accounting.accountants.witnesses import witness


def of_fixed_coins(release):
    """What the same two scores cost at every step, from below: a little less than those that follow what was seen."""
    order = _best_order(release, 1e-6)
    return max(_lower_epsilon(witness(release, share * order), 1e-6) for share in (0.4, 0.6, 0.8))


SETTINGS = [(gumbel, 0.5, 0.1, 100), (gumbel, 3.0, 0.1, 24), (exponential, 1.0, 0.02, 2000)]


def value(step, values, x):
    """V, linear in e^x between its points, and symmetric."""
    x = np.asarray(x, dtype=float)
    far = np.abs(x)
    half = np.interp(np.expm1(far), np.expm1(step * np.arange(values.size)), values)
    return np.where(x >= 0, half, -np.expm1(x) + np.exp(x) * half)


def after(found, x, losses, in_p):
    """E_P[V(x − L)]."""
    return float(in_p @ value(found.step, found.values, x - losses))


def whole_pair(found):
    """D's losses, and what P has there."""
    more = np.exp(found.losses) * found.in_q
    in_p = np.concatenate([found.in_q[::-1], [1 - more.sum() - found.in_q.sum()], more])
    return np.concatenate([-found.losses[::-1], [0.0], found.losses]), in_p


@pytest.mark.parametrize("setting", SETTINGS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_no_step_is_worse_before_those_that_follow(setting, data):
    choice, eps, rate, count = setting
    found = stages(KINDS[choice](eps), rate, count, 1e-6)
    absent, one, other = (choice(scores) for scores in neighbours(data, eps, data.draw(st.integers(2, 5)), 1 + eps))
    p, q = (1 - rate) * absent + rate * one, (1 - rate) * absent + rate * other
    losses, in_p = whole_pair(found)
    end = found.step * found.values.size
    for share in (-0.9, -0.4, -0.1, -0.03, 0.0, 0.01, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.1):
        worst = after(found, share * end, losses, in_p)
        assert after(found, share * end, np.log(p / q), p) <= worst * (1 + 1e-12) + found.rest + 1e-15


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_coin_is_worse_at_any_point_of_the_grid(setting):
    choice, eps, rate, count = setting
    kind = KINDS[choice](eps)
    found, reach = stages(kind, rate, count, 1e-6), _Steps(kind, rate, count, 1e-6).reach
    values = np.append(found.values, np.zeros(4 * reach))
    bends = _bends(values, found.step, reach, found.values.size)
    some = (bends.sum(axis=1) > 0) & (np.arange(found.values.size) % 3 == 0)
    coins = means_of_coins(kind, rate, bends[some] @ _ramps(found.step, reach), found.step)
    losses, in_p = whole_pair(found)
    x = found.step * np.flatnonzero(some)
    worth = np.array([after(found, at, losses, in_p) for at in x]) - found.values[some]
    assert (coins <= worth * (1 + 1e-6) + found.rest + 1e-13 * found.values[some]).all()
    # and some are nearly as bad where it matters
    asked = coins > 1e3 * found.rest
    assert asked.sum() > 20
    assert (coins[asked] / worth[asked]).max() > 0.95


def test_three_scores_that_are_worse_than_any_two_are_no_worse_than_the_pair():
    _, eps, rate, count = SETTINGS[1]
    found = stages(CoinKind(eps), rate, count, 1e-6)
    pair, rows = whole_pair(found), []
    for lead in np.linspace(0.0, 6.0, 13):
        for share in (0.5, 0.75, 1.0):
            absent, one, other = (
                gumbel(np.array([-lead + first, -lead + second, 0.0]))
                for first, second in ((0.0, 0.0), (eps, share * eps), (share * eps, eps))
            )
            p, q = (1 - rate) * absent + rate * one, (1 - rate) * absent + rate * other
            rows.append((np.log(p / q), p))
    for x in np.linspace(-0.5, 1.0, 31) * found.step * found.values.size:
        assert max(after(found, x, *row) for row in rows) <= after(found, x, *pair) * (1 + 1e-12) + found.rest


@pytest.mark.parametrize("setting", [SETTINGS[0], SETTINGS[1]])
def test_the_last_steps_cover_the_game_of_poisson_samples(setting):
    choice, eps, rate, count = setting
    found = stages(KINDS[choice](eps), rate, count, 1e-6)
    assert 4 * found.count > count > found.count
    games = [((CoinKind(eps, 0.0, rate, present), found.count),) for present in (True, False)]
    for x in (0.0, 0.1, 0.2, 0.5):
        played = max(played_delta(game, x) for game in games)
        assert played * (1 - 1e-3) <= value(found.step, found.values, x) <= 1.5 * played


def test_it_is_a_pair_of_laws_and_the_curve_is_convex():
    found = stages(CoinKind(0.5), 0.1, 100, 1e-6)
    losses, in_p = whole_pair(found)
    assert (in_p >= 0).all()
    assert in_p.sum() == pytest.approx(1.0, abs=1e-12)
    assert in_p @ np.exp(-losses) == pytest.approx(1.0, abs=1e-12)
    places = found.losses / found.step
    assert np.abs(places - np.rint(places)).max() < 1e-9
    assert 100 * found.rest <= 1.01e-3 * 1e-6
    # what is left out at every step counts
    last, earlier = (one(CoinKind(0.5), 0.1, 100, 1e-6) for one in (LastMaxima, EarlierMaxima))
    assert last.infinite() + (100 - last.played()) * earlier.infinite() == pytest.approx(100 * found.rest)
    assert last.delta(0.1) == pytest.approx(float(value(found.step, found.values, 0.1)) + last.infinite(), rel=1e-9)
    assert earlier.delta(0.0) == pytest.approx(found.in_q @ np.expm1(found.losses) + found.rest)
    x = found.step * np.arange(-20, found.values.size)
    slopes = np.diff(value(found.step, found.values, x)) / np.diff(np.exp(x))
    assert (np.diff(slopes) >= -1e-11).all()


def test_what_a_step_is_worth_is_a_mean_of_ramps():
    found = stages(CoinKind(0.5), 0.1, 100, 1e-6)
    reach, rng = 8, np.random.default_rng(5)
    in_q = rng.random(2 * reach + 1)
    losses = found.step * np.arange(-reach, reach + 1)
    in_q /= in_q.sum()
    shift = np.log(in_q @ np.exp(losses))  # P is a law, too, a little off the grid
    losses, in_p = losses - shift, in_q * np.exp(losses - shift)
    means = _bends(found.values, found.step, reach + 1, 60) @ _ramps(found.step, reach + 1)
    places = np.exp(found.step * np.arange(-reach - 1, reach + 2))
    for k in (0, 3, 20, 59):
        worth = after(found, k * found.step, losses, in_p) - found.values[k]
        assert in_q @ np.interp(np.exp(losses), places, means[k]) == pytest.approx(worth, rel=1e-6)


def test_points_between_which_logarithms_are_straight():
    x, z = np.arange(40.0)[:, None], np.linspace(-1, 1, 5)
    # of a normal density all that bends is the same for all z
    assert _places(-0.01 * (x - z) ** 2, 1e-9).tolist()[:2] == [0, 2]
    assert _places(-0.01 * (x - z) ** 2, 1e-9).size < 12
    rough = np.random.default_rng(3).random((40, 5))
    assert _places(rough, 1e-3).tolist() == list(range(40))
    logs = -0.01 * (x - z) ** 2 + 2e-6 * (x - z) ** 3
    at = _places(logs, 1e-2)
    assert 40 > at.size > 4
    for start, end in itertools.pairwise(at.tolist()):
        middle = (start + end) // 2
        share = (end - middle) / (end - start)
        assert np.ptp(logs[middle] - share * logs[start] - (1 - share) * logs[end]) <= 1e-2


def test_means_between_places_are_no_larger():
    rng = np.random.default_rng(8)
    x, z = np.arange(30.0)[:, None], np.linspace(-3, 3, 7)
    logs = -0.02 * (x - z) ** 2 + 0.05 * rng.standard_normal((30, 7))
    places = np.array([0, 3, 4, 11, 29])
    means = np.exp(logs) @ rng.random((7, 40))
    for mean in means.T:
        found = _between(logs, places, np.log(mean[places]))
        assert (mean <= found * (1 + 1e-12)).all()
        assert found[places] == pytest.approx(mean[places])
    # of what bends by the same everywhere that is all
    assert _between(np.ones((9, 2)) * -(x[:9] ** 2), np.array([0, 8]), np.array([0.0, -64.0])) == pytest.approx(
        np.exp(-(x[:9, 0] ** 2))
    )


def test_the_convex_curve_is_below_the_points_and_above_all_others():
    step, x = 0.1, 0.1 * np.arange(12)
    curve = np.maximum(0.2 * (1 - np.expm1(x) / math.expm1(1.1)), 0.0)
    higher = curve + np.array([0.0, 0.0, 0.03, 0.0, 0.0, 0.01, *[0.0] * 6])
    assert _convex(step, curve) == pytest.approx(curve, abs=1e-11)
    assert _convex(step, higher) == pytest.approx(curve, abs=1e-11)
    # at 0 the mirror image falls by 1 − V(0), and by V(0) less than that on the other side
    steep = _convex(step, np.append(0.9, curve[1:]))
    assert (steep[0] - steep[1]) / math.expm1(step) <= (1 - steep[0]) / 2 + 1e-9


@pytest.mark.parametrize(
    ("noise", "eps", "batch", "count", "width"),
    [
        ("gumbel", 1.0, 10, 10_000, 0.015),
        ("gumbel", 0.5, 100, 100, 0.025),
        ("exponential", 0.1, 10, 10_000, 0.012),
    ],
)
def test_totals_are_bracketed(noise, eps, batch, count, width):
    release = count * FixedSizeSubsampled(NoisyMax(eps, noise), batch_size=batch, records=1000)
    lower, upper = of_fixed_coins(release), epsilon(release, 1e-6)
    assert lower <= upper <= lower * (1 + width)


def test_among_other_releases():
    some = 100 * FixedSizeSubsampled(NoisyMax(0.5), batch_size=100, records=1000)
    others = 2000 * FixedSizeSubsampled(NoisyMax(1.0, "exponential"), batch_size=20, records=1000)
    total = some + others + Gaussian(5.0)
    lower, upper = of_fixed_coins(total), epsilon(total, 1e-6)
    assert lower <= upper <= 1.025 * lower
    # what δ is at an ε is the same answer
    assert delta(some, epsilon(some, 1e-6)) == pytest.approx(1e-6, rel=0.02)


def test_where_nothing_is_known_there_is_the_game(monkeypatch):
    release = 24 * FixedSizeSubsampled(NoisyMax(3.0), batch_size=100, records=1000)
    in_stages = epsilon(release, 1e-6)
    monkeypatch.setattr(staged_maxima, "stages", lambda *given: None)
    assert LastMaxima(CoinKind(3.0), 0.1, 24, 1e-6).played() == 0
    with pytest.raises(ArithmeticError, match="no pair"):
        EarlierMaxima(CoinKind(3.0), 0.1, 24, 1e-6).delta(0.1)
    assert in_stages < epsilon(release, 1e-6) <= 24 * 3.0
    assert not is_known(CoinKind(1e-5), 0.1)
    assert not is_known(FlipKind(20.0), 0.1)
    monkeypatch.undo()
    with pytest.raises(TypeError, match="no samples"):
        stages("a coin", 0.1, 24, 1e-6)

"""Noisy maxima, one after another: exact coins and mechanisms, orders among others, and how narrow brackets are."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import (
    Gaussian,
    Laplace,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    bound,
    compare,
    delta,
    epsilon,
)
from accounting.adaptive.choices import scores_below
from accounting.adaptive.choices.coins import CoinKind
from accounting.adaptive.choices.every_coin import is_playable, played_delta, played_epsilon
from accounting.adaptive.choices.scores_below import (
    GamePair,
    Play,
    game_below,
    game_epsilon_at_least,
    two_losses,
)
from accounting.loss.curves import pair_of_whole_curve
from accounting.loss.laplace_maxima import SIZES, groups_of_scores, wins
from accounting.releases import Own


def start(x):
    return np.maximum(-np.expm1(x), 0.0)


def responded(value, eps):
    truth = 1 / (1 + math.exp(-eps))
    return lambda x: truth * value(x - eps) + (1 - truth) * value(x + eps)


def chosen(value, eps, choices=60):
    """One round of the game, over a grid of t."""
    chances = [(t, math.expm1(t - eps) / math.expm1(-eps)) for t in np.linspace(0.0, eps, choices)]
    return lambda x: np.max([p * value(x - t) + (1 - p) * value(x - t + eps) for t, p in chances], axis=0)


@pytest.mark.thorough
@pytest.mark.parametrize("at", [0.0, 0.1, 0.3])
def test_choices_among_others_cost_at_most_what_they_do_when_they_come_last(at):
    """A response, before, between or after two choices, by the game itself: the last order is the worst."""
    eps, other = 0.4, 0.5
    x = np.array(at)
    last = float(responded(chosen(chosen(start, eps), eps), other)(x))
    between, first = (
        float(chosen(responded(chosen(start, eps), other), eps)(x)),
        float(chosen(chosen(responded(start, other), eps), eps)(x)),
    )
    assert first <= between * (1 + 1e-3) <= last * (1 + 2e-3)
    found = delta(2 * NoisyMax(eps) + RandomizedResponse(other, 2), at, accountant="pld")
    assert last <= found <= 1.01 * last
    pairs = RandomizedResponse(other, 2) + Own(GamePair((Play("gumbel", eps, 2),)))
    assert 0.98 * last <= delta(pairs, at, accountant="pld") <= found


def test_a_player_who_follows_what_was_seen_gains():
    """The best t that is the same for all is less, and the pair that dominates each choice for itself is more."""
    eps, count, level = 0.1, 100, 1e-6
    j = np.arange(count + 1)
    logs = np.array([math.lgamma(count + 1) - math.lgamma(i + 1) - math.lgamma(count - i + 1) for i in j])

    def fixed(t, at):
        chance = math.expm1(t - eps) / math.expm1(-eps)
        p = np.exp(logs + j * math.log(chance) + (count - j) * math.log1p(-chance))
        return float(p @ np.maximum(0, -np.expm1(np.minimum(at - (j * t - (count - j) * (eps - t)), 0))))

    lower, upper = bound(count * NoisyMax(eps), level)
    best = max(fixed(t, lower) for t in np.linspace(0.3, 0.7, 41) * eps)
    assert best < level <= delta(count * NoisyMax(eps), lower)
    assert upper == pytest.approx(2.252, abs=3e-3)
    assert upper < 0.95 * compare(count * NoisyMax(eps), level)["rdp"]


@pytest.mark.parametrize("at", [0.0, 0.2, 0.6])
def test_no_order_of_two_kinds_costs_more_than_their_pairs(at):
    a, b = 0.3, 0.6
    x = np.array(at)
    orders = [
        float(chosen(chosen(chosen(start, last, 16), middle, 16), first, 16)(x))
        for first, middle, last in ((a, a, b), (a, b, a), (b, a, a))
    ]
    # a player who may also choose the order by what was seen gains little
    assert max(orders) <= delta(2 * NoisyMax(0.3) + NoisyMax(0.6), at, accountant="pld") <= 1.02 * max(orders)
    x, values = game_below((Play("gumbel", 0.6, 1), Play("gumbel", 0.3, 2)))
    # the strongest one last, as it is played from below
    assert 0.98 * orders[0] <= np.interp(at, x, values) <= 1.02 * orders[0]


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 3), (4, 1)])
def test_groups_of_scores_with_laplace_noise_win_so_often(first, second):
    lead = np.array([-2.0, -0.3, 0.0, 0.5, 3.0])
    won = wins(first, second, lead)
    assert won + wins(second, first, -lead) == pytest.approx(1.0, abs=1e-13)
    if first == second == 1:
        far = np.abs(lead)
        loses = (0.5 + far / 4) * np.exp(-far)
        assert won == pytest.approx(np.where(lead > 0, 1 - loses, loses), rel=1e-13)
    rng, number = np.random.default_rng(5), 40_000
    ahead = rng.laplace(size=(number, first)).max(axis=1)[:, None] + lead
    drawn = (ahead > rng.laplace(size=(number, second)).max(axis=1)[:, None]).mean(axis=0)
    # Hoeffding: 2·5·e^(−2·40,000·0.017²) < 1e-9
    assert np.abs(drawn - won).max() < 0.017


def test_four_scores_with_laplace_noise_tell_more_than_two():
    """So the loss is not of range ε: (7/6)ε for two against two, 75/64 for five scores, however small ε is."""
    for (first, second), slope in {(1, 1): 1.0, (2, 2): 7 / 6, (2, 3): 75 / 64}.items():
        low, high = groups_of_scores(1e-3)[SIZES.index((first, second))]
        assert np.max(low + high) == pytest.approx(1e-3 * slope, rel=2e-3)
    lower = game_epsilon_at_least((Play("laplace", 0.1, 100),), 1e-6, 2.7)
    assert lower > 1.16 * epsilon(100 * NoisyMax(0.1), 1e-6)
    assert lower < epsilon(100 * NoisyMax(0.1, "laplace"), 1e-6) < 1.035 * lower


@pytest.mark.thorough
@settings(max_examples=8, deadline=None)
@given(
    st.floats(0.02, 2.0), st.integers(2, 12) | st.integers(2, 40),
    st.just(1.0) | st.floats(0.05, 1.0), st.floats(-9, -2), st.booleans(),
)  # fmt: skip
def test_the_lattice_is_below_the_game_and_they_enclose_the_truth(eps, count, rate, log_level, present):
    kind = CoinKind(eps, 0.0, rate, present)
    level = 10**log_level
    if not is_playable(kind, count):
        return
    game, most = ((kind, count),), count * kind.highest
    upper = played_epsilon(game, level, most)
    # from near the answer, as it is asked for, and from far above
    about = upper if rate == 1 else most
    lower = game_epsilon_at_least((Play("gumbel", eps, count, rate, present),), level, about)
    assert lower <= upper <= most * (1 + 1e-12)
    assert lower == 0 or played_delta(game, lower) >= level * (1 - 1e-9)
    assert played_delta(game, upper * (1 + 2e-12)) <= level * (1 + 1e-3)
    if rate == 1 and upper > 0.01 * most:
        assert lower > 0.985 * upper
    # every coin that is played is one of the kind
    for low, high in two_losses("gumbel", eps):
        t = np.linspace(0.0, eps, low.size)
        assert np.abs(np.sort(high) - t).max() < 1e-14
        assert np.abs(np.sort(low) - (eps - t)[::-1]).max() < 1e-14


def test_every_coin_on_the_lattice_is_at_most_one_of_some_groups():
    """Also between the curves of two groups, where none of either is left."""
    eps, step = 0.1, 4e-4
    lead = eps * np.linspace(0.0, 2.0, 321)
    downs, ups = scores_below._rounded(scores_below._coins_of(Play("laplace", eps, 2)), step)
    found = np.zeros(downs.size)
    for first, second in SIZES:
        high = np.log(wins(first, second, lead) / wins(first, second, lead - eps))
        low = np.log(wins(second, first, eps - lead) / wins(second, first, -lead))
        order = np.argsort(high)
        np.maximum(found, np.interp(ups * step, high[order], low[order], low[order[0]], 0.0), out=found)
    assert downs.size > 5
    assert np.all(downs * step <= found * (1 + 1e-9))


@pytest.mark.parametrize("play", [Play("gumbel", 5.0, 10), Play("exponential", 1.0, 100), Play("laplace", 0.02, 5)])
def test_a_game_from_below_is_a_pair_of_laws(play):
    losses, p, q, beyond = GamePair((play,)).atoms()
    assert beyond == 0
    assert np.all(p >= 0)
    assert np.all(q >= 0)
    assert p == pytest.approx(q * np.exp(losses), rel=1e-12)
    # also where a value rounded down is below 1 − e^ε, which is 1 but for its last digits
    assert 1 - 1e-6 < p.sum() <= 1
    assert 1 - 1e-6 < q.sum() <= 1


@pytest.mark.parametrize("less", [0.0, 1e-13, 1e-3, 0.5])
def test_a_pair_from_below_is_one_of_laws_whatever_the_values(less):
    at = np.linspace(-20.0, 12.0, 65)
    values = np.array([played_delta(((CoinKind(2.0), 3),), abs(x)) for x in at])
    true = np.where(at < 0, -np.expm1(at) + np.exp(at) * values, values)
    _, p, q, _ = pair_of_whole_curve(at, true * (1 - less), lower=True)
    assert 0 <= 1 - p.sum() < 1e-8
    assert 0 <= 1 - q.sum() < 1e-8
    for x, value in zip(at, true, strict=True):
        assert float(np.maximum(p - math.exp(x) * q, 0).sum()) <= value * (1 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("total", "width"),
    [
        (NoisyMax(1.0), 0.001),
        (10 * NoisyMax(1.0), 0.001),
        (10 * NoisyMax(5.0), 0.001),
        (100 * NoisyMax(0.1), 0.002),
        (10 * NoisyMax(1.0, "exponential"), 0.001),
        (400 * NoisyMax(0.02, "exponential") + Laplace(20.0), 0.015),
        (10 * NoisyMax(1.0, "laplace"), 0.1),
        (30 * NoisyMax(0.1) + 30 * NoisyMax(0.2), 0.006),
        (40 * NoisyMax(0.05) + 10 * NoisyMax(0.3) + 5 * NoisyMax(1.0), 0.01),
        (30 * PoissonSubsampled(NoisyMax(0.3), 0.1), 0.006),
        (8 * NoisyMax(0.2) + 20 * Gaussian(5.0) + 5 * PoissonSubsampled(NoisyMax(0.5), 0.2) + Laplace(9.0), 0.006),
        (10 * NoisyMax(0.3) + 20 * Gaussian(5.0), 0.01),
        (10 * NoisyMax(0.3) + 30 * Laplace(20.0) + Gaussian(3.0), 0.01),
        (10 * NoisyMax(0.3) + PureDP(0.01), 0.01),
        # exponential noise as Laplace noise: next to nothing where few are chosen, a few hundredths on samples
        (10 * PoissonSubsampled(NoisyMax(0.3, "exponential"), 0.1) + 20 * NoisyMax(0.2), 0.015),
        (100 * NoisyMax(0.1, "exponential"), 0.01),
        (20 * PoissonSubsampled(NoisyMax(1.0, "exponential"), 0.05), 0.06),
        (5 * NoisyMax(0.6, "exponential") + NoisyMax(2.5, "exponential"), 0.015),
        # strong ones on samples, many and very weak ones, and one or two of several kinds
        (10 * PoissonSubsampled(NoisyMax(5.0), 0.03), 0.005),
        (300 * NoisyMax(1e-4), 0.005),
        (NoisyMax(0.1) + 2 * NoisyMax(0.2) + NoisyMax(0.35), 0.005),
        (10 * NoisyMax(1.0) + 260 * NoisyMax(1e-8), 0.005),
        (100 * NoisyMax(0.1, "laplace"), 0.035),
        (30 * NoisyMax(2.0, "laplace"), 0.035),
        (24 * NoisyMax(3.0, "laplace"), 0.038),
        (10 * NoisyMax(0.3, "laplace") + 20 * Gaussian(20.0), 0.035),
        # several games, as the losses add up to more than floats hold
        (100 * NoisyMax(7.0, "laplace"), 0.037),
        (100 * NoisyMax(7.0, "exponential"), 0.08),
        # where δ is next to nothing one score against many is nearly as bad as can be
        (2 * NoisyMax(0.3, "laplace"), 0.005),
    ],
    ids=repr,
)
def test_brackets_of_compositions_of_noisy_maxima(total, width):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lower, upper = bound(total, 1e-6)
    assert (1 - width) * upper < lower <= upper
    assert delta(total, upper) <= 1e-6 * (1 + 1e-3)


def test_what_is_not_played_has_an_answer():
    for release in (3000 * NoisyMax(0.01), 10 * NoisyMax(1e-4), 5 * NoisyMax(200.0)):
        assert epsilon(release, 1e-9) > 0


@pytest.mark.thorough
@pytest.mark.parametrize(("eps", "count"), [(0.002, 3), (0.05, 10)])
def test_brackets_at_every_delta(eps, count):
    """Also where ε is 0, or nearly so: the lattice around it has no points above 0 then."""
    above = math.inf
    for level in (1e-6, 0.01, 0.2, 0.5):
        lower, upper = bound(count * NoisyMax(eps), level)
        assert 0 <= lower <= upper <= above
        above = upper * (1 + 1e-9)


@pytest.mark.slow
def test_totals_beyond_what_floats_hold_have_lower_values():
    found = bound(800 * NoisyMax(1.5), 1e-6)
    assert 0.99 * found.upper < found.lower <= found.upper
    # beside others the curve ends at e^700: finite masses that are less than laws
    pair = GamePair((Play("gumbel", 30.0, 60),))
    p, q = pair.masses(np.array([-5.0, 0.0, 100.0, 650.0]))
    assert np.all(np.isfinite(p))
    assert np.all(np.isfinite(q))
    assert p.sum() <= 1
    assert q.sum() <= 1

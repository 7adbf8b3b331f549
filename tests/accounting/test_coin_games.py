"""Choices by the exponential mechanism that follow one another: against the game played out, and exact coins."""

import math

import numpy as np
import pytest

from accounting import Gaussian, Laplace, NoisyMax, PureDP, RandomizedResponse, bound, compare, delta, epsilon
from accounting.adaptive.choices.coin_games import played_delta
from accounting.adaptive.choices.coin_kinds import CoinKind
from accounting.adaptive.choices.lattice_games import Play
from accounting.adaptive.choices.played_pairs import GamePair
from accounting.loss.gumbel_maxima import SpanPair
from accounting.releases import Own


def played(eps, count, at, choices):
    """The game over a grid of t, without a lattice: its last round is that of a single choice, in closed form."""
    if count == 1:
        return np.vectorize(SpanPair(eps).delta)(at)
    best = np.zeros_like(at)
    for t in np.linspace(0.0, eps, choices):
        chance = math.expm1(t - eps) / math.expm1(-eps)
        left = played(eps, count - 1, at - t, choices), played(eps, count - 1, at - t + eps, choices)
        best = np.maximum(best, chance * left[0] + (1 - chance) * left[1])
    return best


@pytest.mark.parametrize(("eps", "count", "choices"), [(0.5, 2, 300), (2.0, 2, 300), (1.0, 3, 40)])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_the_values_are_those_of_the_game(eps, count, choices, share):
    at = share * count * eps
    found = float(played(eps, count, np.array(at), choices))
    upper = played_delta(((CoinKind(eps), count),), at)
    # a grid of t is a strategy, short by the square of its step
    assert found <= upper * (1 + 1e-12)
    assert upper <= found * (1.003 if choices > 100 else 1.02)


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


@pytest.mark.parametrize(
    ("eps", "count", "level"), [(1.0, 2, 1e-6), (1.0, 10, 1e-6), (5.0, 10, 1e-6), (0.1, 10, 1e-9), (0.2, 300, 1e-6)]
)
def test_brackets_are_closer_than_a_part_in_three_hundred(eps, count, level):
    lower, upper = bound(count * NoisyMax(eps), level)
    assert 0.9967 * upper < lower <= upper
    assert delta(count * NoisyMax(eps), upper) <= level * (1 + 1e-3)


@pytest.mark.parametrize("at", [0.0, 0.1, 0.3])
def test_choices_among_others_cost_at_most_what_they_do_when_they_come_last(at):
    """A response, before, between or after two choices, by the game itself: the last order is the worst."""
    eps, other = 0.4, 0.5
    truth = 1 / (1 + math.exp(-other))

    def responded(value):
        return lambda x: truth * value(x - other) + (1 - truth) * value(x + other)

    def chosen(value):
        chances = [(t, math.expm1(t - eps) / math.expm1(-eps)) for t in np.linspace(0.0, eps, 60)]
        return lambda x: np.max([p * value(x - t) + (1 - p) * value(x - t + eps) for t, p in chances], axis=0)

    def start(x):
        return np.maximum(-np.expm1(x), 0.0)

    x = np.array(at)
    last = float(responded(chosen(chosen(start)))(x))
    between, first = float(chosen(responded(chosen(start)))(x)), float(chosen(chosen(responded(start)))(x))
    assert first <= between * (1 + 1e-3) <= last * (1 + 2e-3)
    found = delta(2 * NoisyMax(eps) + RandomizedResponse(other, 2), at, accountant="pld")
    assert last <= found <= 1.01 * last
    pairs = RandomizedResponse(other, 2) + Own(GamePair((Play("gumbel", eps, 2),)))
    assert 0.98 * last <= delta(pairs, at, accountant="pld") <= found


@pytest.mark.parametrize(
    ("others", "about"), [(20 * Gaussian(5.0), 4.973), (30 * Laplace(20.0) + Gaussian(3.0), None), (PureDP(0.01), None)]
)
def test_choices_among_others_have_narrow_brackets(others, about):
    total = 10 * NoisyMax(0.3) + others
    lower, upper = bound(total, 1e-6)
    assert 0.99 * upper < lower <= upper
    assert upper < compare(total, 1e-6)["rdp"]
    assert about is None or upper == pytest.approx(about, abs=2e-3)


def test_what_is_not_played_has_an_answer():
    for release in (3000 * NoisyMax(0.01), 10 * NoisyMax(1e-4), 5 * NoisyMax(200.0)):
        assert epsilon(release, 1e-9) > 0


@pytest.mark.parametrize(("eps", "count"), [(0.002, 3), (0.05, 10)])
def test_brackets_at_every_delta(eps, count):
    """Also where ε is 0, or nearly so: the lattice around it has no points above 0 then."""
    above = math.inf
    for level in (1e-6, 0.01, 0.2, 0.5):
        lower, upper = bound(count * NoisyMax(eps), level)
        assert 0 <= lower <= upper <= above
        above = upper * (1 + 1e-9)

"""Choices by the exponential mechanism that follow one another: against the game played out, and exact coins."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import NoisyMax, bound, compare, delta, epsilon
from accounting.accountants.adaptive_coins import adaptive_delta, adaptive_epsilon, adaptive_epsilon_at_least
from accounting.accountants.losses import GumbelPair


def played(eps, count, at, choices):
    """The game over a grid of t, without a lattice: its last round is that of a single choice, in closed form."""
    if count == 1:
        return np.vectorize(GumbelPair(eps).delta)(at)
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
    upper = adaptive_delta(eps, count, at)
    # a grid of t is a strategy, short by the square of its step
    assert found <= upper * (1 + 1e-12)
    assert upper <= found * (1.003 if choices > 100 else 1.02)


@settings(max_examples=15, deadline=None)
@given(st.floats(0.02, 2.0), st.integers(2, 12), st.floats(-9, -2))
def test_the_answers_enclose_one_another(eps, count, log_level):
    level = 10**log_level
    upper = adaptive_epsilon(eps, count, level, count * eps)
    lower = adaptive_epsilon_at_least(eps, count, level, upper)
    assert lower <= upper <= count * eps
    assert adaptive_delta(eps, count, upper) <= level * (1 + 1e-3)
    if upper > 0.01 * count * eps:
        assert lower > 0.985 * upper


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


def test_what_is_not_played_has_an_answer():
    for release in (3000 * NoisyMax(0.01), 10 * NoisyMax(1e-4), 5 * NoisyMax(200.0)):
        assert epsilon(release, 1e-9) > 0

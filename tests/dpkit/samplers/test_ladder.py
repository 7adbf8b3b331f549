"""The exponential mechanism by rank and noisy orders, against their laws computed by brute force."""

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from chi_square import fits
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpkit.samplers import ladder
from dpkit.samplers.ladder import draw_by_rank
from dpkit.samplers.noisy_order import NoisyOrder

# χ² tests at this p-value: the false-alarm rate under reseeding.
ALARM = 1e-10


def law(points, low, high, target, rate):
    """P(o) for every o, by evaluating every one of them."""
    grid = np.arange(low, high + 1)
    below = (np.asarray(points)[:, None] < grid).sum(axis=0)
    weight = np.exp(-rate * (np.abs(below - target) - np.abs(below - target).min()))
    return grid, weight / weight.sum()


CASES = {
    "spread": ([2, 3, 3, 7, 11, 12], 0, 15, 2.5, 0.7),
    "ties": ([4] * 6, 0, 9, 3.0, 0.4),
    "at the ends": ([0, 0, 9, 9], 0, 9, 1.75, 1.0),
    "outside every point": ([5], 5, 12, 0.0, 0.5),
    "no points": ([], 3, 9, 0.0, 1.0),
}


@pytest.mark.parametrize("far", [60.0, -1.5], ids=["as it is", "most of it as a class"])
@pytest.mark.parametrize("case", CASES)
def test_the_law_is_the_exponential_mechanism(case, far, monkeypatch):
    """With FAR at −1.5 the class of far intervals is heavy, and wins often: the law must not depend on it."""
    monkeypatch.setattr(ladder, "FAR", far)
    points, low, high, target, rate = CASES[case]
    rng = np.random.default_rng(3)
    cells = np.array(points, dtype=np.int64)
    count = 2000 if case == "at the ends" else 800  # of which some cells are rare
    sample = np.array([draw_by_rank(cells, low, high, Fraction(target), Fraction(rate), rng) for _ in range(count)])
    grid, probabilities = law(points, low, high, target, rate)
    assert fits(sample, grid, probabilities)
    if case in ("spread", "at the ends"):
        assert not fits(sample, grid, law(points, low, high, target, 2 * rate)[1])


def test_one_candidate_is_the_answer():
    assert draw_by_rank(np.array([7, 7]), 7, 7, Fraction(1), Fraction(1), np.random.default_rng(0)) == 7


def test_the_class_of_far_intervals_wins_in_that_test(monkeypatch):
    monkeypatch.setattr(ladder, "FAR", -1.5)
    won = []
    among = ladder._among
    monkeypatch.setattr(ladder, "_among", lambda *a: won.append(1) or among(*a))
    points, low, high, target, rate = CASES["spread"]
    rng = np.random.default_rng(3)
    for _ in range(300):
        draw_by_rank(np.array(points), low, high, Fraction(target), Fraction(rate), rng)
    assert len(won) > 10


@settings(max_examples=100)
@given(
    points=st.lists(st.integers(0, 20), max_size=12).map(sorted),
    target=st.fractions(0, 12, max_denominator=7),
    first=st.integers(0, 6),
    length=st.integers(0, 12),
)
def test_sizes_and_the_best_interval(points, target, first, length):
    cells = np.array(points, dtype=np.int64)
    target = min(target, Fraction(len(points)))
    below = [sum(p < o for p in points) for o in range(21)]
    best = min(abs(b - target) for b in below)
    assert ladder._distance_of_best(cells, 20, target) == best
    first = min(first, len(points))
    last = min(first + length, len(points))
    sizes = ladder._sizes(cells, 0, 20, first, last)
    assert sizes.tolist() == [below.count(i) for i in range(first, last + 1)]


def test_a_million_points_and_a_small_rate():
    points = np.arange(1_000_000)
    value = draw_by_rank(points, 0, 10**9, Fraction(250_000), Fraction(1, 100), np.random.default_rng(0))
    # the rank is off by more than 10⁴ with probability below e^(−100 + 21)
    assert abs(value - 250_000) < 10_000
    with pytest.raises(ValueError, match="rate must lie"):
        draw_by_rank(points, 0, 10, Fraction(0), Fraction(0), np.random.default_rng(0))


# ------------------------------------------------------------------------------------------------- orders


def test_the_first_of_an_order_are_those_of_repeated_exponential_mechanisms():
    weights = [0.0, -0.5, -1.0, -2.5]
    rng = np.random.default_rng(5)
    names, found = list(permutations(range(4), 2)), []
    for _ in range(2500):
        order = NoisyOrder("gumbel", rng, top=2)
        order.add(np.array(weights), lambda i: Fraction(weights[i]))
        found.append(names.index(tuple(order.largest())))
    for wrong in (1, 2):
        e = np.exp(wrong * np.array(weights))
        expected = [e[i] / e.sum() * e[j] / (e.sum() - e[i]) for i, j in names]
        assert fits(np.array(found), range(12), expected) == (wrong == 1)


@pytest.mark.parametrize("top", [1, 3, 7])
def test_every_order_in_double_precision_is_the_exact_one(top, monkeypatch):
    """With a window that lets nothing pass unexamined, the order comes from exact arithmetic on the same bits."""
    from dpkit.samplers import noisy_order

    weights = -np.abs(np.random.default_rng(0).normal(size=7))
    sizes = np.array([1, 5, 2**40, 3, 1, 1, 9])

    def orders():
        found = []
        for seed in range(20):
            order = NoisyOrder("gumbel", np.random.default_rng(seed), top=top)
            order.add(weights, lambda i: Fraction(weights[i]), sizes)
            found.append(order.largest())
        return found

    fast = orders()
    assert all(len(set(found)) == top for found in fast)
    monkeypatch.setattr(noisy_order, "WINDOW", 1e9)
    assert orders() == fast


def test_sizes_multiply_the_weight():
    rng = np.random.default_rng(2)
    wins = 0
    for _ in range(2000):
        order = NoisyOrder("gumbel", rng)
        order.add(np.array([0.0, -math.log(4)]), lambda i: Fraction(0 if i == 0 else -math.log(4)), np.array([1, 12]))
        wins += order.largest()[0]
    # the second has 12/4 of the weight of the first
    assert stats.binomtest(wins, 2000, 0.75).pvalue > ALARM
    assert stats.binomtest(wins, 2000, 0.65).pvalue < ALARM

"""What quantiles, top k and private bounds say of their errors: checked on whole laws, and by simulation."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Budget
from dpkit import queries
from dpkit.queries._ranks import between_neighbours, plan, rank_errors
from dpkit.queries._units import Share

ADD, SWAP = Budget(1.0, 0.0, adjacency="add_remove"), Budget(1.0, 0.0)
ROW = Share(1, 1, "replace", alone=True)


def outcomes(points, levels, top, steps):
    """Every outcome of the draws on the cells 0 to ``top``, with its probability: written from the description."""
    found = [({-1: 0, len(levels): top}, 1.0)]
    for step in steps:
        grown = []
        for known, p in found:
            low, high = known[step.start], known[step.stop]
            inside = [x for x in points if (step.start < 0 or x >= low) and (step.stop == len(levels) or x < high)]
            cells = range(low, high + 1)
            off = [abs(sum(x < o for x in inside) - float(step.rank) * len(inside)) for o in cells]
            weights = np.exp(-float(step.rate) * (np.array(off) - min(off)))
            weights /= weights.sum()
            grown += [(known | {step.level: o}, p * w) for o, w in zip(cells, weights, strict=True) if p * w > 1e-12]
        found = grown
    return found


@settings(max_examples=15)
@given(
    points=st.sets(st.integers(0, 20), min_size=3, max_size=12).map(sorted),
    levels=st.sampled_from([[0.5], [0.2, 0.9], [0.1, 0.4, 0.8]]),
    epsilon=st.floats(4.0, 60.0),
    confidence=st.floats(0.1, 0.99),
)
def test_bounds_hold_for_all_data(points, levels, epsilon, confidence):
    """Over every outcome: all ranks within their bounds, and all quantiles within their intervals, together."""
    n, steps, q = len(points), plan(levels, epsilon, ROW), np.array(levels)
    missed = outside = 0.0
    for known, p in outcomes(points, levels, 21, steps):
        errors = rank_errors(steps, [known[s.stop] - known[s.start] + 1 for s in steps], confidence)
        o = np.array([known[i] for i in range(len(levels))], float)
        ranks = np.searchsorted(points, o)
        missed += p * bool((np.abs(ranks - q * n) > errors).any())
        low, high = between_neighbours(q, o, errors, n, 0.0, 21.0)
        true = np.quantile(points, q)
        outside += p * bool(((true < low) | (true > high)).any())
    assert missed <= 1 - confidence + 1e-9
    assert outside <= 1 - confidence + 1e-9


def test_the_bound_on_ranks_is_nearly_reached():
    """Where all cells but a few have a rank that is just beyond the bound, they are drawn as often as it says."""
    # the ranks 0 to 40 have one cell each and all others, as many as make the bound 19.5 rows, the last
    (step,) = steps = plan([0.5], 1.0, ROW)
    size = round(0.05 * math.exp(19.5 * float(step.rate)))
    off = np.abs(np.arange(40) - 20.0)
    others = size - 40
    inside = np.exp(-float(step.rate) * off).sum()
    outside = others * math.exp(-float(step.rate) * 20.0)
    missed = outside / (inside + outside)
    assert rank_errors(steps, [size], 0.95)[0] == pytest.approx(20.0, abs=0.01)
    assert 0.15 * 0.05 < missed < 0.05


def test_errors_of_ends_are_passed_on():
    steps = plan([0.25, 0.5, 0.75], 2.0, ROW)
    assert [(s.level, s.start, s.stop) for s in steps] == [(1, -1, 3), (0, -1, 1), (2, 1, 3)]
    assert [float(s.rank) for s in steps] == [0.5, 0.5, 0.5]
    # c: ε/2 in the first round of one part, ε/(4·½) after it
    assert [float(s.rate) for s in steps] == [1.0, 1.0, 1.0]
    own = 0.5 + math.log(100) + math.log(3 / 0.05)
    np.testing.assert_allclose(rank_errors(steps, [100] * 3, 0.95), [1.5 * own, own, 1.5 * own])


NASTY = {
    "smooth": np.random.default_rng(0).normal(50, 15, 4000),
    "whole numbers": np.random.default_rng(1).integers(0, 100, 4000),
    "one value": np.full(4000, 30.0),
    "two values": np.repeat([20.0, 80.0], [1990, 2010]),
    "half at a bound": np.concatenate([np.full(2000, 100.0), np.random.default_rng(2).uniform(0, 100, 2000)]),
    "half beyond one": np.concatenate([np.full(2000, -7.0), np.random.default_rng(2).uniform(0, 100, 2000)]),
    "tiny": 1e-9 * np.random.default_rng(3).random(4000),
}


@pytest.mark.parametrize("name", NASTY)
def test_intervals_of_quantiles_cover(name):
    x, q = NASTY[name], np.array([0.1, 0.5, 0.8])
    truth = np.quantile(np.clip(x, 0, 100), q)
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(40):
        answer = queries.quantile(x, q=q, bounds=(0, 100), budget=Budget(4.0, 0.0), confidence=0.95, rng=rng)
        low, high = answer.interval(0.95)
        inside += bool(((low <= truth) & (truth <= high)).all())
        assert (low <= answer.value).all()
        assert (answer.value <= high).all()
    # the bounds are far from tight: 40 runs of 95 % or more would all but never miss 13
    assert inside > 27
    if name == "smooth":  # and they say something: ± 12 % of the rows at most
        assert np.quantile(x, 0.38) <= low[1] <= high[1] <= np.quantile(x, 0.62)


def test_an_interval_for_one_quantile():
    x = np.random.default_rng(0).normal(50, 15, 20_000)
    answer = queries.quantile(x, bounds=(0, 100), budget=SWAP, confidence=0.95, rng=np.random.default_rng(1))
    low, high = answer.interval(0.95)
    assert isinstance(low, float)
    assert 40 < low < answer.value < high < 60
    assert answer.interval(0.999999) == (0.0, 100.0)
    assert low <= answer.interval(0.5)[0]
    assert "95 % interval" in repr(answer)


def test_one_quantile_without_an_interval_says_its_value_and_how_many_rows_it_is_off():
    """And of so few rows that any value would be as near, that there is no information."""
    x = np.random.default_rng(0).normal(50, 15, 5_000)
    answer = queries.quantile(x, bounds=(0, 100), budget=SWAP, rng=np.random.default_rng(1))
    assert abs(np.sum(x < answer.value) - 2500) <= answer.rows_off() < 80
    assert answer.informative() is True
    assert f"q = 0.5: {answer.value:.6g}\n  at most 76 rows off" in repr(answer)
    with pytest.raises(ValueError, match=r"no interval for the noise: no other quantile.*confidence=0.95"):
        answer.interval()
    # an interval that was asked for, and is as wide as the bounds, takes nothing from the value
    wide = queries.quantile(x, bounds=(0, 100), budget=Budget(0.1, 0.0), confidence=0.95)
    assert wide.interval() == (0.0, 100.0)
    assert wide.informative()
    # any value is at most 75 rows off the median of 150, and 135 off their 90 % quantile
    few = x[:150]
    assert "q = 0.5: no information" in repr(queries.quantile(few, bounds=(0, 100), budget=SWAP))
    assert queries.quantile(few, q=[0.9], bounds=(0, 100), budget=SWAP).to_dict()["informative"] == [True]
    dates = np.datetime64("2025-01-01") + np.arange(2000) % 365
    told = repr(queries.quantile(dates, bounds=("2025-01-01", "2026-01-01"), budget=SWAP))
    assert "q = 0.5: 2025-0" in told


def test_where_the_number_of_rows_is_private_ranks_are_bounded_only():
    x = np.arange(1000.0)
    answer = queries.quantile(x, bounds=(0, 1000), budget=ADD)
    # c = 1/(2·½), 2⁵⁰ cells and as many as 2⁴¹ more
    assert answer.rows_off(0.95) == pytest.approx(0.5 + math.log((2**50 + 2**41) / 0.05))
    assert "at most 39 rows off, with probability 95 %" in repr(answer)
    assert answer.to_dict(0.9)["rows_off"] == pytest.approx(answer.rows_off(0.9))
    with pytest.raises(ValueError, match=r"number of rows.*is private here; rows_off"):
        answer.interval()


@pytest.mark.parametrize("budget", [ADD, SWAP], ids=["add_remove", "replace"])
def test_top_k_leaves_out_nobody_who_is_much_larger(budget):
    sizes = np.array([40, 38, 20, 18, 17, 3])
    words = np.repeat(np.arange(6), sizes)
    rng, missed = np.random.default_rng(0), 0
    for _ in range(300):
        answer = queries.top_k(words, k=2, keys=range(6), budget=budget, rng=rng)
        out = np.delete(sizes, answer.value)
        missed += out.max() - sizes[answer.value].min() > answer.rows_off(0.9)
    assert missed < 300 * 0.1 + 6.2 * math.sqrt(300 * 0.09)  # 1e-9 under reseeding
    scale = 2.0 if budget is ADD else 4.0  # of two rounds with half of ε each
    assert answer.rows_off(0.9) == pytest.approx(scale * math.log(6 * 2 / 0.1))
    assert queries.top_k(words, k=6, keys=range(6), budget=budget).rows_off() == 0.0


def test_private_bounds_leave_as_many_rows_as_they_say():
    x = np.concatenate([np.random.default_rng(0).exponential(30.0, 3000), [-5.0]])
    rng, missed = np.random.default_rng(1), 0
    for _ in range(60):
        answer = queries.private_bounds(x, share=0.9, budget=SWAP, rng=rng)
        off, (_, high) = answer.rows_off(0.9), answer.value
        missed += np.sum(x <= high) < 0.9 * x.size - off or np.sum(x <= high / 2) > 0.9 * x.size + off
    assert missed <= 6
    assert 100 < off < 300


@pytest.mark.parametrize("smallest", [5e-324, 1e-300, 1e-8, 2.0**1001, 1e308])
def test_private_bounds_have_an_error_for_every_smallest_bound(smallest):
    answer = queries.private_bounds([1.0, 2.0], smallest=smallest, budget=SWAP)
    assert 10 < answer.rows_off(0.95) < 200


def test_ties_are_counted_up_to_the_cells_that_they_are_moved_by():
    """All rows are equal, so those that are equal to the answer, nearly, count or not: its error is 0."""
    x, width = np.full(1000, 40.0), 150.0
    value = queries.quantile(x, bounds=(0, width), budget=Budget(50.0, 0.0), rng=np.random.default_rng(0)).value
    near = x.size * width * 2.0**-50
    assert np.sum(x < value - near) == 0
    assert np.sum(x <= value + near) == 1000


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_a_choice_among_candidates_is_rarely_much_worse_than_the_best(epsilon):
    x, grid = np.repeat(np.arange(5.0), [10, 20, 5, 30, 9]), np.arange(-3.0, 9.0)
    off = np.abs(np.searchsorted(x, grid) - 0.5 * x.size)
    rng, missed = np.random.default_rng(0), 0
    for _ in range(300):
        answer = queries.quantile(x, candidates=grid, budget=Budget(epsilon, 0.0), rng=rng)
        missed += off[grid == answer.value][0] - off.min() > answer.rows_off(0.8)
    assert answer.rows_off(0.8) == pytest.approx(math.log(12 / 0.2) / (epsilon / 2))
    assert missed < 300 * 0.2 + 6.2 * math.sqrt(300 * 0.16)  # 1e-9 under reseeding
    with pytest.raises(ValueError, match=r"no interval.*rows_off\(0.95\) bounds by how many rows the answer"):
        answer.interval()


def test_counts_say_that_they_choose_nothing():
    with pytest.raises(ValueError, match=r"chooses nothing by rank or count: ask for interval\(0.95\)"):
        queries.count([1, 2], budget=ADD).rows_off()


def test_levels_that_lie_close_are_told_apart():
    """Every gap of a plan is between the levels that are drawn before."""
    levels = sorted({a / b for a, b in combinations(range(1, 12), 2)})
    steps = plan(levels, 1.0, ROW)
    assert sorted(s.level for s in steps) == list(range(len(levels)))
    done = {-1, len(levels)}
    for s in steps:
        assert {s.start, s.stop} <= done
        assert s.start < s.level < s.stop
        done.add(s.level)

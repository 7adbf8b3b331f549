"""Three laws of which any two are neighbours: no three have a larger mean than the bound, and some come near."""

import math

import numpy as np
import pytest
from choice_laws import KINDS, exponential, gumbel, neighbours
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.accountants.coin_kinds import CoinKind
from accounting.accountants.triples import _halves, largest_means, means_of_coins

REACH = 24


def functions(eps, rate):
    """Some convex functions of P/Q, with kinks on a grid, in rows; and the grid's step."""
    step = math.log1p(rate * math.expm1(eps)) / REACH * (1 + 1e-12)
    ratios = np.exp(step * np.arange(-REACH, REACH + 1))
    rows = [
        np.maximum(ratios - 1, 0.0),
        np.maximum(ratios - ratios[REACH + 5], 0.0) + 2 * np.maximum(ratios[REACH - 4] - ratios, 0.0),
        (ratios - 1) ** 2,
        ratios**4 - 4 * ratios + 3,
    ]
    return np.array(rows), step


def mean(values, step, p, q):
    """E_Q φ(P/Q), φ linear between its values."""
    ratios = np.exp(step * np.arange(-REACH, REACH + 1))
    return np.array([q @ np.interp(p / q, ratios, row) for row in values])


BOUNDS: dict = {}


def bounds(choice, eps, rate):
    if (choice, eps, rate) not in BOUNDS:
        values, step = functions(eps, rate)
        found = largest_means(KINDS[choice](eps), rate, values, step, share=0.01, work=60_000)
        BOUNDS[choice, eps, rate] = values, step, found
    return BOUNDS[choice, eps, rate]


@pytest.mark.parametrize("choice", [gumbel, exponential])
@settings(max_examples=30, deadline=None)
@given(data=st.data(), eps=st.sampled_from([0.1, 1.0, 4.0]), rate=st.sampled_from([0.02, 0.5]))
def test_no_three_choices_have_a_larger_mean(choice, data, eps, rate):
    values, step, found = bounds(choice, eps, rate)
    absent, one, other = (choice(scores) for scores in neighbours(data, eps, data.draw(st.integers(2, 5)), 1 + eps))
    p, q = (1 - rate) * absent + rate * one, (1 - rate) * absent + rate * other
    assert (mean(values, step, p, q) <= found * (1 + 1e-9) + 1e-15).all()


@pytest.mark.parametrize("choice", [gumbel, exponential])
@pytest.mark.parametrize("eps", [0.1, 1.0])
def test_coins_come_near(choice, eps):
    values, step, found = bounds(choice, eps, 0.02)
    # of one kink they are the worst
    assert found[0] <= 1.03 * means_of_coins(KINDS[choice](eps), 0.02, values, step)[0]
    lead = np.array([eps / 2, 0.0])
    before, after = choice(lead), choice(lead - np.array([eps, 0.0]))
    assert mean(values, step, 0.98 * after + 0.02 * before, after)[0] >= 0.97 * found[0]


def test_three_strong_scores_come_near():
    eps, rate = 4.0, 0.02
    values, step, found = bounds(gumbel, eps, rate)
    best = np.zeros(len(values))
    for behind in np.linspace(0.0, 9.0, 60):
        absent = gumbel(np.array([-behind, -behind, 0.0]))
        one, other = (gumbel(np.array([a - behind, eps * 1.5 - a - behind, 0.0])) for a in (eps, eps / 2))
        p, q = (1 - rate) * absent + rate * one, (1 - rate) * absent + rate * other
        best = np.maximum(best, mean(values, step, p, q))
    # of the variance: more than any coin, and nearly all that there is
    assert best[2] > 1.1 * means_of_coins(CoinKind(eps), rate, values, step)[2]
    assert best[2] > 0.9 * found[2]


def test_less_work_is_a_larger_bound():
    values, step = functions(2.0, 0.1)
    few, many = (largest_means(CoinKind(2.0), 0.1, values, step, share=1e-3, work=work) for work in (1, 40_000))
    assert (few >= many).all()
    assert few.max() > 1.2 * many.max()
    assert (many >= means_of_coins(CoinKind(2.0), 0.1, values, step)).all()


def test_functions_in_a_row_lose_little_by_the_cells_they_share():
    kind, rate = CoinKind(2.0), 0.1
    step = math.log1p(rate * math.expm1(2.0)) / REACH * (1 + 1e-12)
    ratios = np.exp(step * np.arange(-REACH, REACH + 1))
    rows = np.array([ratios**a - a * ratios + a - 1 for a in np.linspace(1.5, 9.0, 40)])
    together = largest_means(kind, rate, rows, step, share=0.02, work=10**7)
    reached = means_of_coins(kind, rate, rows, step)
    for i in (0, 1, 7, 20, 21, 39):
        (alone,) = largest_means(kind, rate, rows[i : i + 1], step, share=0.02, work=10**7)
        assert together[i] == pytest.approx(alone, rel=0.02)
        assert together[i] >= reached[i]
    # where there is no work for more, none of the first cells is left out
    few = largest_means(kind, rate, rows, step, share=0.02, work=0)
    alone = [float(largest_means(kind, rate, row[None], step, share=0.02, work=0)[0]) for row in rows]
    assert few == pytest.approx(alone, rel=1e-12)


def test_halves_are_all_of_a_cell():
    rng = np.random.default_rng(2)
    cells = np.sort(rng.random((2, 3, 50)), axis=0)
    axis = rng.integers(0, 3, 50)
    halves = _halves(cells, axis)
    for share in rng.random((20, 3, 1)):
        at = np.tile(cells[0] + share * (cells[1] - cells[0]), 2)
        inside = ((halves[0] <= at) & (at <= halves[1])).all(axis=0)
        assert (inside[:50] ^ inside[50:]).all()
    widths = np.diff(halves, axis=0)[0] / np.tile(np.diff(cells, axis=0)[0], 2)
    assert widths.prod(axis=0) == pytest.approx(np.full(100, 0.5))

"""Games of laws on a grid from above and from below, against recursion; and laws that are gathered on a grid."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.adaptive.fixed_batches.games_on_grids import Laws, gathered, places_up_to, play_above, play_below
from accounting.loss.curves import pair_of_points_below
from accounting.loss.pair import delta_of_atoms

STEP = 0.05
# P's masses at −2, …, 2 steps, and of the mirror image
ONE = np.array([0.1, 0.25, 0.2, 0.2, 0.25])


def both_ways(p):
    """P such that Q = P·e^(−L) has the same mass, and the mirror image."""
    nodes = STEP * np.arange(-2, 3)
    q = p * np.exp(-nodes)
    p = p.copy()
    p[0] += (p.sum() - q.sum()) / math.expm1(-nodes[0])
    p /= p.sum()
    return np.array([p, (p * np.exp(-nodes))[::-1]])


LAWS = Laws(both_ways(ONE), STEP)


@cache
def exact(x, count, each=1):
    """The game by its definition, where ``each`` so many steps have the same law."""
    if count == 0:
        return max(0.0, -math.expm1(x))
    found = []
    for law in LAWS.masses:
        power = law
        for _ in range(each - 1):
            power = np.convolve(power, law)
        places = STEP * (np.arange(power.size) - power.size // 2)
        found.append(sum(m * exact(round(x - l, 10), count - each, each) for m, l in zip(power, places, strict=True)))
    return max(found)


def test_both_laws_are_laws_and_differ():
    for law in LAWS.masses:
        assert law.sum() == pytest.approx(1.0)
        assert float(law @ np.exp(-STEP * np.arange(-2, 3))) == pytest.approx(1.0)
        assert np.all(law > 0)
    assert not np.allclose(*LAWS.masses, rtol=1e-3)


def test_a_game_is_what_its_definition_says():
    losses, above = play_above(LAWS, 4, 1e-30)
    _, below, most = play_below(LAWS, 4, 1e-30)
    for i, x in enumerate(losses):
        value = exact(round(float(x), 10), 4)
        assert below[i] <= value * (1 + 1e-12) <= above[4, i] * (1 + 2e-12) + 1e-15
        assert above[4, i] - below[i] <= 1e-10
        assert below[i] <= value <= most[i] + 1e-15


def test_who_looks_up_now_and_then_has_less(monkeypatch):
    monkeypatch.setattr("accounting.adaptive.fixed_batches.games_on_grids._CHOICES", 2)
    losses, found, most = play_below(LAWS, 4, 1e-30)
    for i, x in enumerate(losses):
        value = exact(round(float(x), 10), 4, 2)
        assert found[i] == pytest.approx(value, abs=1e-9)
        assert value <= most[i] + 1e-15
        assert found[i] <= exact(round(float(x), 10), 4) + 1e-12


@settings(max_examples=30, deadline=None)
@given(at=st.floats(-0.35, 0.35))
def test_between_the_points_a_pair_is_less_than_the_game(at):
    atoms = pair_of_points_below(*play_below(LAWS, 3, 1e-30))
    found = delta_of_atoms(at, *atoms[:2])
    value = exact(at, 3)
    assert found <= value + 1e-13
    assert found >= value - 0.08 * STEP  # at most 0.073 of it, in 300 places


@settings(max_examples=60, deadline=None)
@given(
    masses=st.lists(st.floats(0.01, 1.0), min_size=3, max_size=12),
    gaps=st.lists(st.floats(0.01, 0.5), min_size=12, max_size=12),
    start=st.floats(-2.0, 0.0),
    at=st.floats(-2.0, 3.0),
)
def test_what_is_gathered_is_less_in_convex_order(masses, gaps, start, at):
    p = np.array(masses) / sum(masses)
    losses = start + np.cumsum(gaps[: p.size])
    q = p * np.exp(-losses)
    nodes = np.linspace(-2.5, 4.5, 29)
    on_nodes = gathered(p, q, nodes)
    assert on_nodes.sum() <= p.sum() * (1 + 1e-12)
    assert delta_of_atoms(at, nodes, on_nodes) <= delta_of_atoms(at, losses, p) + 1e-12
    # and so is the mirror image of what is gathered for it
    turned = gathered(p, q, nodes, mirrored=True) * np.exp(-nodes)
    assert turned.sum() <= q.sum() * (1 + 1e-12)
    assert delta_of_atoms(at, -nodes[::-1], turned[::-1]) <= delta_of_atoms(at, -losses[::-1], q[::-1]) + 1e-12


@pytest.mark.parametrize("mirrored", [False, True])
def test_losses_at_nodes_stay_there(mirrored):
    nodes = 0.25 * np.arange(-4, 5)
    p = np.array([0.2, 0.3, 0.5])
    # a last digit to the other side they would be joined to others, and how exp rounds is not ours
    losses = nodes[[1, 4, 7]] + 1e-12 * np.array([-1, -1 if mirrored else 1, 1])
    found = gathered(p, p * np.exp(-losses), nodes, mirrored=mirrored)
    assert found[[1, 4, 7]] == pytest.approx(p, abs=1e-10)
    # a steep end at the top, of which a little is left over below
    steep = np.append(np.full(50, 0.01), 0.5)
    losses = np.append(np.linspace(-0.9, 0.74, 50), 0.75)
    assert gathered(steep, steep * np.exp(-losses), nodes, mirrored=mirrored).sum() == pytest.approx(1.0, abs=0.01)


def test_of_many_small_losses_all_are_gathered_and_little_is_lost():
    losses = np.linspace(-1.0, 1.0, 801)
    p = np.exp(-((losses - 0.02) ** 2) / 0.08)
    p /= p.sum()
    nodes = np.linspace(-1.1, 1.1, 45)
    found = gathered(p, p * np.exp(-losses), nodes)
    assert found.sum() == pytest.approx(1.0, abs=1e-5)
    assert found @ nodes**2 == pytest.approx(p @ losses**2, rel=0.02)
    # the steep end of a law is at a point where no other loss is below
    steep = gathered(np.append(0.5, p / 2), np.append(0.5 * math.exp(1.02), p / 2 * np.exp(-losses)), nodes)
    assert steep.sum() == pytest.approx(1.0, abs=1e-5)


def test_losses_beyond_floats_are_left_out_below():
    losses = 2.0 * np.arange(401)
    values = np.exp(-losses / 50) * 0.5
    with np.errstate(over="raise"):
        found, p, q = pair_of_points_below(losses, values, values * (1 + 1e-9))
    assert np.all(np.isfinite(np.concatenate([found, p, q])))
    assert max(p.sum(), q.sum()) <= 1 + 1e-9
    assert 0 < delta_of_atoms(5.0, found, p) <= values[2]


@pytest.mark.parametrize("reach", [50, 63, 64, 65, 500, 8000])
def test_the_places_of_a_grid_reach_its_end_from_both_sides(reach):
    places = places_up_to(reach)
    assert (places[0], places[-1]) == (-reach, reach)
    assert np.array_equal(places, -places[::-1])
    near = np.arange(min(64, reach) + 1)
    assert np.array_equal(places[places >= 0][: near.size], near)
    assert np.all(np.diff(places) <= 1 + 0.02 * np.abs(places[1:]))

"""Many batches of a fixed size with Laplace noise: against triples of laws in the plane, and players of the game."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import FixedSizeSubsampled, Laplace, bound, epsilon
from accounting.accountants.curves import delta_of_atoms
from accounting.accountants.loss_games import Laws, play_above
from accounting.accountants.losses import LaplacePair
from accounting.accountants.lower import lower_epsilon
from accounting.accountants.numerics import split
from accounting.accountants.pairs import alternatives
from accounting.accountants.replaced_games import played
from accounting.accountants.replaced_laplace import ReplacedLaplace, _laws_below
from accounting.accountants.sampled_losses import SubsampledPair
from accounting.accountants.triangles import LaplaceCornerPair, LaplaceTrianglePair

TAIL = 1e-15
EDGES = np.concatenate([[-40.0], np.linspace(-3.0, 3.0, 241), [40.0]])


def law(place):
    """Laplace noise of scale 1 around a place of the plane, in cells: what is seen of it, no more."""
    shifted = EDGES[:, None] - np.asarray(place)
    below = np.where(shifted < 0, 0.5 * np.exp(-np.abs(shifted)), 1 - 0.5 * np.exp(-np.abs(shifted)))
    below[0], below[-1] = 0.0, 1.0
    one, other = np.diff(below, axis=0).T
    return np.outer(one, other)


def laws(rate, places):
    absent, one, other = (law(place) for place in places)
    return (1 - rate) * absent + rate * one, (1 - rate) * absent + rate * other


def divergence(p, q, at):
    return float(np.maximum(p - math.exp(at) * q, 0.0).sum())


triples = st.lists(st.tuples(st.floats(-1.0, 1.0), st.floats(-1.0, 1.0)), min_size=3, max_size=3)


@settings(max_examples=20, deadline=None)
@given(triple=triples, case=st.sampled_from([(0.4, 0.6), (1.5, 0.05)]), share=st.floats(-1.2, 1.2))
def test_no_triple_passes_the_bound_of_its_arms_or_the_game(triple, case, share):
    theta, rate = case
    places = np.array(triple)
    distances = [np.abs(places[i] - places[j]).sum() for i, j in ((0, 1), (0, 2), (1, 2))]
    places *= theta / max(*distances, 1e-9)
    at = share * math.log1p(rate * math.expm1(theta))
    assert divergence(*laws(rate, places), at) <= ReplacedLaplace(theta, rate, 1, TAIL).delta(at) + 1e-12


@pytest.mark.parametrize(
    "places",
    [
        # each of S′ = R, S = R, and all three apart: what is played first, and after a small and a large loss
        ([(0, 0), (1, 0), (0, 0)], [(0, 0), (0, 0), (1, 0)], [(0, 0), (1, 0), (0, 0)]),
        ([(0, 0.5), (-0.5, 0), (0.5, 0)], [(0, 0), (0, 0), (1, 0)], [(0, 0), (1, 0), (0, 0)]),
        ([(0, 0.2), (-0.8, 0), (0.2, 0)], [(0, 0.5), (-0.5, 0), (0.5, 0)], [(0, 0), (1, 0), (0, 0)]),
    ],
)
def test_no_player_of_two_steps_passes_the_curve(places):
    theta, rate = 0.8, 0.2

    def atoms(which):
        p, q = (x.ravel() for x in laws(rate, theta * np.array(which, dtype=float)))
        losses = np.log(p / q)
        # what is seen of them: cells of the loss
        cell = np.digitize(losses, np.linspace(-0.25, 0.25, 400))
        p, q = (np.bincount(cell, weights=x, minlength=401) for x in (p, q))
        some = p > 0
        return np.log(p[some] / q[some]), p[some]

    first, weights = atoms(places[0])
    for at in (0.0, 0.1, 0.25):
        total = 0.0
        for chosen, which in ((first > at / 2, places[1]), (first <= at / 2, places[2])):
            second, chances = atoms(which)
            gained = np.maximum(-np.expm1(at - first[chosen][:, None] - second), 0.0)
            total += float(weights[chosen] @ gained @ chances)
        assert total <= ReplacedLaplace(theta, rate, 2, TAIL).delta(at) + 1e-12


@pytest.mark.parametrize(("theta", "rate", "count"), [(0.5, 0.05, 3), (2.5, 0.1, 2)])
def test_from_below_is_less_than_what_its_two_laws_reach(theta, rate, count, monkeypatch):
    reach = 300
    step = math.log1p(rate * math.expm1(theta)) * (1 + 1e-12) / reach
    edges = step * np.arange(-reach - 1, reach + 2)
    monkeypatch.setattr("accounting.accountants.triangles._PIECES", 100)
    found = []
    poisson = SubsampledPair(LaplacePair(theta), rate, True)
    for pair in (poisson, LaplaceTrianglePair(theta, rate), LaplaceCornerPair(theta, rate)):
        p, q = pair.masses(edges)
        found += [split(p, q, edges), split(q[::-1], p[::-1], edges)]
    losses, values = play_above(Laws(np.array(found), step), count, 1e-16)
    below, above = (ReplacedLaplace(theta, rate, count, 1e-16, from_below=of) for of in (True, False))
    for x, value in zip(losses[:-2:30], values[-1, :-2:30], strict=True):
        assert below.delta(x) <= value <= above.delta(x) + 1e-13
        assert below.delta(x) >= 0.99 * value - 1e-4 * rate


@pytest.mark.parametrize("theta", [0.3, 2.0])
def test_laws_from_below_are_less_than_the_bounds_of_a_step(theta):
    laws = _laws_below(theta, 0.1)
    nodes = laws.step * np.arange(-laws.reach, laws.reach + 1)
    one = ReplacedLaplace(theta, 0.1, 1, TAIL)
    for masses in laws.masses:
        assert masses.sum() == pytest.approx(1.0, abs=1e-3)
        for at in nodes[1:-1:3]:
            assert delta_of_atoms(at, nodes, masses) <= one.delta(at) + 1e-12


def test_tiny_losses_are_rounded_up_too():
    theta, rate = 1e-4, 1e-7
    highest = math.log1p(rate * math.expm1(theta))
    one, pair = ReplacedLaplace(theta, rate, 1, TAIL), LaplacePair(theta)
    for share in (0.1, 0.5, 0.9):
        assert one.delta(share * highest) >= SubsampledPair(pair, rate, True).delta(share * highest)


@pytest.mark.parametrize(("theta", "rate"), [(0.4, 0.6), (1.5, 0.05)])
def test_the_triangle_has_the_divergence_of_its_laws(theta, rate):
    pair = LaplaceTrianglePair(theta, rate)
    p, q = laws(rate, theta / 2 * np.array([(0, 1), (-1, 0), (1, 0)]))
    highest = pair.highest(-50.0)
    edges = highest * np.linspace(-1, 1, 2001)
    in_p, in_q = pair.masses(edges)
    assert (in_p.sum(), in_q.sum()) == pytest.approx((1.0, 1.0), abs=1e-12)
    assert in_p[0] + in_p[-1] == pytest.approx(0.0, abs=1e-12)
    for at in highest * np.array([-0.6, 0.0, 0.3, 0.8]):
        # what cells of the noise hide, and pieces of R's own coordinate
        assert pair.delta(at) == pytest.approx(divergence(p, q, at), abs=2e-3 * rate)
        assert pair.delta(at) <= ReplacedLaplace(theta, rate, 1, TAIL).delta(at) + 1e-12
        assert pair.delta(at) == pytest.approx(float(np.maximum(in_p - math.exp(at) * in_q, 0).sum()), abs=2e-3 * rate)


@pytest.mark.filterwarnings("ignore:ε is only known")
@pytest.mark.parametrize(
    ("noise", "size", "count", "delta", "width"),
    # 7 % and more where both directions were the worst at once, and no player followed what was seen
    [(2.0, 1000, 100, 1e-6, 0.004), (10.0, 5000, 100, 1e-9, 0.002), (1.0, 100, 1000, 1e-5, 0.005)],
)
def test_totals_are_known_closely(noise, size, count, delta, width):
    lower, upper = bound(count * FixedSizeSubsampled(Laplace(noise), size, 10_000), delta)
    assert (1 - width) * upper < lower <= upper


def test_totals_grow_with_steps_rate_and_noise():
    def total(count, size, z):
        return float(epsilon(count * FixedSizeSubsampled(Laplace(z), size, 1000), 1e-6))

    counts = [total(count, 50, 2.0) for count in (1, 2, 9)]
    sizes = [total(4, size, 2.0) for size in (1, 50, 1000)]
    noises = [total(4, 50, z) for z in (5.0, 0.34, 0.32)]
    for found in (counts, sizes, noises):
        assert np.all(np.diff(found) > 0)


def test_what_is_played():
    def of(noise):
        (parts,) = alternatives(20 * FixedSizeSubsampled(Laplace(noise), 10, 100))
        ((pair, _),) = played(parts, 1e-6)
        return pair

    assert of(2.0) == ReplacedLaplace(0.5, 0.1, 20, 1e-13)
    assert not isinstance(of(0.05), ReplacedLaplace)


@pytest.mark.parametrize(("theta", "rate"), [(0.4, 0.6), (1.5, 0.05), (4.0, 0.01)])
def test_the_corner_has_nearly_the_divergence_of_its_laws(theta, rate):
    pair = LaplaceCornerPair(theta, rate)
    p, q = laws(rate, theta / 2 * np.array([(1, 0), (-1, 0), (0, 1)]))
    edges = pair.highest * (1 + 1e-9) * np.linspace(-1, 1, 2001)
    in_p, in_q = pair.masses(edges)
    assert (in_p.sum(), in_q.sum()) == pytest.approx((1.0, 1.0), abs=1e-12)
    assert in_p[-1] == pytest.approx(0.0, abs=1e-12)
    for k in range(0, edges.size, 100):
        # both are seen in pieces, of different sizes
        above = in_p[k + 1 :].sum() - math.exp(edges[k]) * in_q[k + 1 :].sum()
        assert above == pytest.approx(divergence(p, q, edges[k]), abs=4e-3 * rate * theta)


def test_strong_steps_cost_more_than_two_of_three_points_at_a_time_say():
    step = FixedSizeSubsampled(Laplace(0.25), 1, 1000)
    # 0.925 where S and R do not lie on one axis
    assert 0.955 < lower_epsilon(1000 * step, 1e-6) < epsilon(1000 * step, 1e-6)

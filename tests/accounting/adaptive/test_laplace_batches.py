"""Batches of a fixed size with Laplace noise: against triples of laws in the plane, and players of many steps."""

import math

import numpy as np
import pytest
from hockey_stick import divergence
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import FixedSizeSubsampled, Laplace, NoisyMax, PoissonSubsampled, PureDP, bound, delta, epsilon
from accounting.loss.replaced_noise import LaplaceTrianglePair

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


def batch(theta, rate):
    return FixedSizeSubsampled(Laplace(1 / theta), round(1000 * rate), 1000)


triples = st.lists(st.tuples(st.floats(-1.0, 1.0), st.floats(-1.0, 1.0)), min_size=3, max_size=3)


@settings(max_examples=20, deadline=None)
@given(triple=triples, case=st.sampled_from([(0.4, 0.6), (1.5, 0.05)]), share=st.floats(0.0, 1.2))
def test_no_triple_passes_the_curve(triple, case, share):
    theta, rate = case
    places = np.array(triple)
    distances = [np.abs(places[i] - places[j]).sum() for i, j in ((0, 1), (0, 2), (1, 2))]
    places *= theta / max(*distances, 1e-9)
    at = share * math.log1p(rate * math.expm1(theta))
    for p, q in (laws(rate, places), laws(rate, places)[::-1]):
        assert divergence(p, q, at) <= delta(batch(theta, rate), at) + 1e-12


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
        assert total <= delta(2 * batch(theta, rate), at) + 1e-12


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
        assert pair.delta(at) == pytest.approx(float(np.maximum(in_p - math.exp(at) * in_q, 0).sum()), abs=2e-3 * rate)
        if at >= 0:
            assert pair.delta(at) <= delta(batch(theta, rate), at) + 1e-12


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:ε is only known")
@pytest.mark.parametrize(
    ("noise", "size", "count", "delta", "width"),
    [(2.0, 1000, 100, 1e-6, 0.08), (10.0, 5000, 100, 1e-9, 0.03)],
)
def test_totals_are_known_roughly(noise, size, count, delta, width):
    lower, upper = bound(count * FixedSizeSubsampled(Laplace(noise), size, 10_000), delta)
    assert (1 - width) * upper < lower <= upper


@pytest.mark.parametrize(
    ("step", "count"), [(Laplace(2.0), 1), (Laplace(2.0), 1000), (NoisyMax(0.5, "exponential"), 10)]
)
def test_they_cost_at_most_what_pure_releases_do_and_at_least_what_samples_do(step, count):
    found = epsilon(count * FixedSizeSubsampled(step, 100, 10_000), 1e-6)
    assert found <= epsilon(count * FixedSizeSubsampled(PureDP(0.5), 100, 10_000), 1e-6) * (1 + 1e-9)
    assert found >= epsilon(count * PoissonSubsampled(step, 0.01), 1e-6) * (1 - 1e-4)


def test_totals_grow_with_steps_rate_and_noise():
    def total(count, size, z):
        return float(epsilon(count * FixedSizeSubsampled(Laplace(z), size, 1000), 1e-6))

    counts = [total(count, 50, 2.0) for count in (1, 2, 9)]
    sizes = [total(4, size, 2.0) for size in (1, 50, 1000)]
    noises = [total(4, 50, z) for z in (5.0, 0.34, 0.32)]
    for found in (counts, sizes, noises):
        assert np.all(np.diff(found) > 0)

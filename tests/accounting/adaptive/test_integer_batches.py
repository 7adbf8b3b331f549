"""Many batches of a fixed size with discrete noise: against all triples of integers, and three laws at once."""

import itertools
import math

import numpy as np
import pytest
from hockey_stick import divergence
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import (
    DiscreteGaussian,
    DiscreteLaplace,
    FixedSizeSubsampled,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    RandomizedResponse,
    bound,
)
from accounting.adaptive.fixed_batches import integer_batches
from accounting.adaptive.fixed_batches.gaussian_batches import ReplacedSteps
from accounting.adaptive.fixed_batches.in_totals import batches_at_least, in_place
from accounting.adaptive.fixed_batches.integer_batches import ReplacedIntegers, _groups, most_steps
from accounting.adaptive.fixed_batches.pure_batches import ReplacedCoins
from accounting.compose.pairs import alternatives
from accounting.loss.integers import IntegerPair
from accounting.loss.lattice import discrete_gaussian_mu, three_laws
from accounting.loss.sampled import ReplacedPair

TAIL = 1e-15


def noise(kind, scale, place, size=60):
    x = np.arange(-size, size + 1.0) - place
    mass = np.exp(-(x**2) / (2 * scale**2)) if kind == "gaussian" else np.exp(-np.abs(x) / scale)
    return mass / mass.sum()


def step(kind, scale, rate, places):
    """P and Q of a step of R, S and S′ around three integers."""
    absent, one, other = (noise(kind, scale, place) for place in places)
    return (1 - rate) * absent + rate * one, (1 - rate) * absent + rate * other


def triples(shift):
    """R, S and S′ of all kinds."""
    near = range(-shift, shift + 1)
    return [(0, s, other) for s, other in itertools.product(near, near) if abs(s - other) <= shift]


@pytest.mark.parametrize(
    ("kind", "scale", "rate"), [("gaussian", 1.2, 0.1), ("gaussian", 4.0, 0.6), ("laplace", 1.5, 0.1)]
)
def test_no_triple_of_integers_is_worse_than_the_ones_that_are_played(kind, scale, rate):
    shift = 4
    at = np.linspace(-2.0, 2.0, 21) * (0.2 if kind == "laplace" else 1.0)

    def curve(places):
        return np.array([divergence(*step(kind, scale, rate, places), e) for e in at])

    known = [curve((i, shift, 0)) for i in range(shift + 1)]
    known += [curve((0, *two)) for i in range(1, shift) for two in ((shift, i), (i, shift))]
    for places in triples(shift):
        assert any(np.all(curve(places) <= one + 1e-12) for one in known)


@pytest.mark.parametrize(("kind", "z", "shift", "groups"), [("gaussian", 0.5, 6, 3), ("laplace", 0.4, 4, 24)])
def test_every_triple_of_integers_has_a_law_that_is_worse(kind, z, shift, groups, monkeypatch):
    monkeypatch.setattr(integer_batches, "_BETWEEN", groups)
    laws = integer_batches._laws.__wrapped__(IntegerPair(kind, z, shift), 0.3, TAIL)
    nodes = laws.step * np.arange(-laws.reach, laws.reach + 1)
    at = nodes[laws.reach - 40 : laws.reach + 41 : 2]
    known = np.array([mass @ np.maximum(-np.expm1(at - nodes[:, None]), 0.0) for mass in laws.masses]) + laws.beyond
    for places in triples(shift):
        curve = [divergence(*step(kind, z * shift, 0.3, places), e) for e in at]
        assert np.any(np.all(known >= np.array(curve) - 1e-12, axis=1))


def test_masses_are_those_of_the_noise():
    gaussian, laplace = (
        np.exp(IntegerPair(kind, 0.6, 3).log_laws(np.arange(4))[1]) for kind in ("gaussian", "laplace")
    )
    size = (gaussian.shape[1] - 4) // 2
    for place in range(4):
        exact = noise("gaussian", 1.8, place, size)
        assert gaussian[place] == pytest.approx(np.append(exact, [0.0] * 3), rel=1e-9, abs=1e-300)
        exact = noise("laplace", 1.8, place)
        exact = np.concatenate([[exact[:61].sum()], exact[61:63], [exact[63:].sum()]])
        assert laplace[place] == pytest.approx(exact, rel=1e-9)


def test_groups_are_all_integers():
    for last, most in ((0, 5), (4, 12), (40, 7)):
        assert [i for group in _groups(0, last, most) for i in group] == list(range(last + 1))
        assert len(_groups(0, last, most)) == min(most, last + 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ε is only known")
@pytest.mark.parametrize(
    ("total", "width"),
    [
        # one by one 0.990, 0.447, 0.502 and 0.0959 at most
        (100 * FixedSizeSubsampled(DiscreteGaussian(1.0, shift=1), 100, 10_000), 0.006),
        (100 * FixedSizeSubsampled(DiscreteLaplace(1.0, shift=4), 100, 10_000), 0.005),
        (100 * FixedSizeSubsampled(DiscreteLaplace(1.0, shift=1), 100, 10_000), 1e-4),
        (100 * FixedSizeSubsampled(DiscreteGaussian(4.0), 100, 10_000), 0.01),
        (20 * FixedSizeSubsampled(DiscreteGaussian(2.0, shift=7), 10, 100) + 2 * Laplace(10.0), 0.005),
        (30 * FixedSizeSubsampled(DiscreteGaussian(4.0, shift=300), 10, 100), 0.006),
    ],
    ids=repr,
)
def test_totals_are_known_closely(total, width):
    lower, upper = bound(total, 1e-6)
    assert (1 - width) * upper < lower <= upper


def test_what_is_played():
    def of(inner):
        (parts,) = alternatives(20 * FixedSizeSubsampled(inner, 10, 100))
        ((pair, _),) = in_place(parts, 1e-6) or parts
        return pair

    assert isinstance(of(DiscreteGaussian(2.0, shift=3)), ReplacedIntegers)
    # two laws with losses of ±2
    assert of(DiscreteLaplace(0.5, shift=1)) == ReplacedCoins(math.nextafter(2.0, 3.0), 2, 0.1, 20, 1e-13)
    vectors = of(DiscreteGaussian(2.0))
    assert isinstance(vectors, ReplacedSteps)
    assert vectors.apart > 0
    assert vectors.mu >= discrete_gaussian_mu(2.0)
    # a game would take long
    assert isinstance(of(DiscreteGaussian(30.0, shift=200)), ReplacedSteps)
    assert isinstance(of(DiscreteGaussian(0.05, shift=2)), ReplacedPair)
    assert most_steps(IntegerPair("gaussian", 2.0, 1), 1e-9, TAIL) == 0


def test_normal_noise_and_responses_are_among_what_is_described():
    def at_least(inner):
        found = batches_at_least(FixedSizeSubsampled(inner, 10, 100), 30, 1e-6)
        return found and found[1]

    assert at_least(GeneralizedGaussian(1.0)) == at_least(DiscreteGaussian(1.0)) == at_least(Gaussian(1.0))
    responses = at_least(RandomizedResponse(2.0, 2))
    assert at_least(DiscreteLaplace(0.5)) == at_least(DiscreteLaplace(0.5, shift=1)) == responses is not None
    assert at_least(DiscreteGaussian(1.0, shift=2)) is at_least(DiscreteLaplace(1.0, shift=2)) is None


# --------------------------------------------------------------------------------------------------- three laws at once


@pytest.mark.parametrize(("z", "most"), [(1.0, 1e-3), (1.5, 1e-5), (3.0, 1e-7)])
def test_rounded_normal_noise_is_discrete_noise_up_to_what_is_said(z, most):
    mu, apart = three_laws(z, most)
    assert 0 < apart <= most * (1 + 1e-9)
    # of Δ = 2, where a coordinate may have three values: normal noise that is rounded at random
    square, rho = 4 * z * z, z * z - 1 / mu**2
    y, x = np.linspace(-12, 12, 8001) * 2 * z, np.arange(-math.ceil(10 * z), math.ceil(10 * z) + 1)
    chances = np.exp(-((np.arange(-80, 81)[:, None] - y) ** 2) / (8 * rho))
    normal = np.exp(-(y**2) / (2 * (square - 4 * rho)))
    rounded = (chances / chances.sum(axis=0))[x + 80] @ normal
    ratio = rounded / np.exp(-(x**2) / (2 * square))
    widest = math.log(ratio.max() / ratio.min())
    # two such coordinates at most, or one
    assert 0.3 * apart <= 2 * widest <= apart * (1 + 1e-6) + 1e-11
    mu, apart = three_laws(z, most, 2)
    assert mu <= three_laws(z, most)[0]
    assert apart <= most * (1 + 1e-9)


def test_three_laws_are_worse_where_less_may_be_added():
    found = [three_laws(2.0, most)[0] for most in (1e-2, 1e-4, 1e-6, 1e-8)]
    assert np.all(np.diff(found) >= 0)
    assert found[0] == pytest.approx(discrete_gaussian_mu(2.0), rel=1e-12)
    assert three_laws(0.6, 1e-9) == three_laws(0.5, 1e-3) == three_laws(0.1, 1e-3, 5) == (math.inf, math.inf)
    # of one integer that moves far there are nearly normal laws
    assert three_laws(1.0, 1e-9, 100)[0] == pytest.approx(1.0, rel=1e-4)


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rate=st.just(0.3),
    at=st.floats(-0.5, 0.5),
)
def test_triples_of_integer_vectors_are_no_worse_than_normal_ones(seed, rate, at):
    # in the plane, no farther apart than 2
    z, places = 1.0, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (0, 2), (-1, 1)]
    rng = np.random.default_rng(seed)
    while True:
        three = [places[i] for i in rng.integers(0, len(places), 3)]
        if all(math.dist(a, b) <= 2 for a, b in itertools.combinations(three, 2)):
            break
    laws = [np.outer(noise("gaussian", 2 * z, a, 30), noise("gaussian", 2 * z, b, 30)) for a, b in three]
    p, q = ((1 - rate) * laws[0] + rate * other for other in laws[1:])
    mu, apart = three_laws(z, 1e-4)
    assert divergence(p, q, at) <= ReplacedSteps(mu, rate, 1, TAIL, apart=apart).delta(at) + 1e-12


def test_what_laws_are_apart_is_added_for_every_step():
    mu, _ = three_laws(1.0, 1e-4)
    exact, apart = (ReplacedSteps(mu, 0.1, 10, TAIL, apart=of) for of in (0.0, 0.01))
    for at in (0.0, 0.3, 1.0):
        assert apart.delta(at) >= min(1.0, math.exp(0.1) * exact.delta(at - 0.1)) * (1 - 1e-9)

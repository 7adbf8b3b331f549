"""A description from outside the package, priced by every accountant through a weaker one that they know."""

import math
from dataclasses import dataclass

import pytest

from accounting import (
    AdjacencyMismatch,
    ApproxDP,
    Budget,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    Release,
    TreeAggregation,
    UnsupportedRelease,
    bound,
    calibrate,
    compare,
    delta,
    epsilon,
    gdp,
    parallel,
    rdp,
    zcdp,
)


@dataclass(frozen=True, repr=False)
class Staircase(Release):
    """Staircase noise (Geng & Viswanath 2014) of ε = 1/``noise_multiplier``: pure differential privacy is claimed."""

    noise_multiplier: float

    def weaker(self):
        return PureDP(1 / self.noise_multiplier, adjacency=self.adjacency)


@dataclass(frozen=True, repr=False)
class Leaky(Release):
    """A Gaussian release that fails once in a million."""

    def weaker(self):
        return Gaussian(2.0) + ApproxDP(0.0, 1e-6)


@dataclass(frozen=True, repr=False)
class Silent(Release):
    """Claims nothing."""


@dataclass(frozen=True, repr=False)
class Broken(Release):
    def weaker(self):
        return self


@dataclass(frozen=True, repr=False)
class Relabelled(Release):
    def weaker(self):
        return Gaussian(1.0, adjacency="replace")


@pytest.mark.parametrize("build", [lambda x: x, lambda x: 20 * x, lambda x: 3 * x + Gaussian(4.0) + PureDP(0.1)])
def test_every_accountant_prices_it_as_the_weaker_one(build):
    outside, inside = build(Staircase(2.0)), build(PureDP(0.5))
    assert compare(outside, 1e-6) == compare(inside, 1e-6)
    assert delta(outside, 0.7) == delta(inside, 0.7)
    assert gdp(outside) == gdp(inside)
    assert zcdp(outside) == zcdp(inside)
    assert rdp(outside, [1.5, 20.0]).tolist() == rdp(inside, [1.5, 20.0]).tolist()


def test_it_composes_like_any_other():
    assert set(compare(Staircase(2.0), 1e-6)) == {"gdp", "pure", "zcdp", "rdp", "pld"}
    sampled = PoissonSubsampled(Staircase(2.0), 0.1)
    assert compare(50 * sampled, 1e-6) == compare(50 * PoissonSubsampled(PureDP(0.5), 0.1), 1e-6)
    assert epsilon(parallel(Staircase(2.0), PureDP(0.2)), 0.0) == 0.5
    z = calibrate(lambda z: 10 * Staircase(z), Budget(1.0, 1e-6))
    assert epsilon(10 * Staircase(z), 1e-6) <= 1.0


def test_a_weaker_description_may_fail():
    assert epsilon(Leaky(), 1e-5) == epsilon(Gaussian(2.0) + ApproxDP(0.0, 1e-6), 1e-5)
    assert epsilon(2 * Leaky(), 1e-6) == math.inf


def test_what_claims_nothing_is_refused_by_both_names():
    for name in ("pure-DP", "zCDP", "RDP", "GDP", "PLD"):
        with pytest.raises(UnsupportedRelease, match=rf"the {name} accountant has no bound for Silent\(\)"):
            compare(Silent(), 1e-6)
    with pytest.raises(UnsupportedRelease, match=r"Silent\(\): give it a method weaker\(\), a known description"):
        epsilon(Silent(), 1e-6)


def test_a_description_is_not_weaker_than_itself_and_keeps_its_adjacency():
    with pytest.raises(TypeError, match=r"weaker\(\) must return another description, got Broken\(\)"):
        gdp(Broken())
    with pytest.raises(AdjacencyMismatch, match=r"weaker\(\) must keep the adjacency"):
        gdp(Relabelled(adjacency="add_remove"))


@pytest.mark.parametrize(
    ("release", "same"),
    [
        (TreeAggregation(5.0, 1023), Gaussian(5.0 / math.sqrt(10))),
        (DiscreteLaplace(4.0), PureDP(0.25)),
        (NoisyMax(0.5, noise="exponential"), Laplace(math.nextafter(2.0, 0.0))),
        (NoisyMax(0.5, noise="laplace"), Laplace(math.nextafter(2.0, 0.0))),
    ],
)
def test_descriptions_that_are_priced_by_weaker_ones(release, same):
    assert release.weaker() == same
    found, expected = (compare(7 * one, 1e-6) for one in (release, same))
    assert found.keys() == expected.keys()
    for name in found.keys() - {"pld"}:  # which knows more of some
        assert found[name] == pytest.approx(expected[name], rel=1e-14)


def test_a_tree_loses_nothing():
    assert bound(TreeAggregation(5.0, 1023), 1e-6).lower > 0.999 * epsilon(TreeAggregation(5.0, 1023), 1e-6)

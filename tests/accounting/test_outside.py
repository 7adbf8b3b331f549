"""Descriptions from outside: priced by the weaker one or by the pair that they state, and never by another class's."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from accounting import (
    AdjacencyMismatch,
    ApproxDP,
    BestOfPoissonRuns,
    BestOfRuns,
    Budget,
    DiscreteLaplace,
    FixedSizeSubsampled,
    Gaussian,
    Laplace,
    Ledger,
    LocalShuffled,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    Release,
    TreeAggregation,
    UnsupportedRelease,
    audit,
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
from accounting.amplification.participation import group
from accounting.loss import AllFinite, Atoms, Symmetric, check_pair
from accounting.loss.gaussian import GaussianPair
from accounting.notions.pure import pure


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


class Careless(Release):
    """Keeps its noise where equality does not look."""

    def __init__(self, z):
        super().__init__()
        object.__setattr__(self, "z", z)

    def pair(self):
        return GaussianPair(1.0)  # which covers any noise of 1 and more

    def renyi(self, orders):
        return orders / (2 * self.z**2)


# ------------------------------------------------------------------------------------------ by a weaker description


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


def test_what_compares_equal_and_costs_more_is_priced_by_itself():
    for z in (8.0, 1.0):
        found, same = (rdp(BestOfPoissonRuns(one, 5.0), [2.0, 9.0]) for one in (Careless(z), Gaussian(z)))
        assert found == pytest.approx(same, rel=1e-12)


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


# --------------------------------------------------------------------- a class that is derived from one of this package


class Mine(Gaussian):
    """Noise that somebody calls Gaussian, and of which they claim an ε of 2.254."""

    def weaker(self):
        return PureDP(2.254, adjacency=self.adjacency)


class Mute(Gaussian):
    """Says nothing of its own."""


class MuteChoice(NoisyMax):
    """Derived from what has a weaker description, and says none of its own."""


class Winners(BestOfRuns):
    """Derived from what has an inner release."""


# Each of these takes a part, whatever its class, and is another description.
PLACES: dict[str, Callable[[Release], Release]] = {
    "alone": lambda part: part,
    "many": lambda part: 7 * part,
    "in a sum": lambda part: part + Laplace(3.0),
    "in parallel": lambda part: parallel(part, Gaussian(9.0)),
    "on a sample": lambda part: PoissonSubsampled(part, 0.5),
    "swapped in a sample": lambda part: PoissonSubsampled(part, 0.5, adjacency="replace"),
    "in a batch": lambda part: FixedSizeSubsampled(part, 5, 10),
    "the best of some": lambda part: BestOfRuns(part, stop=0.5),
    "everywhere": lambda part: parallel(2 * part + PureDP(0.1), PoissonSubsampled(part, 0.5)) + 2 * part,
}


def some(compute):
    """What is computed, or the name of what is raised."""
    try:
        return compute()
    except UnsupportedRelease:
        return "unsupported"


@pytest.mark.parametrize("place", PLACES)
def test_a_derived_class_is_never_taken_for_its_parent(place):
    """By any function, anywhere in a description: what it says counts, and else it is refused with the way out."""
    mine, said, mute = (PLACES[place](one) for one in (Mine(4.0), PureDP(2.254), Mute(4.0)))
    asked = [
        lambda x: float(epsilon(x, 1e-6)),
        lambda x: float(delta(x, 0.5)),
        lambda x: dict(compare(x, 1e-6)),
        lambda x: gdp(x),
        lambda x: zcdp(x),
        lambda x: rdp(x, [2.0]).tolist(),
        lambda x: pure(x),
    ]
    for ask in asked:
        assert some(lambda ask=ask: ask(mine)) == some(lambda ask=ask: ask(said))
        with pytest.raises(
            UnsupportedRelease, match=r"Mute\(.*: give it a method pair\(\), its privacy loss, or weaker"
        ):
            ask(mute)
    # of what is weaker nothing follows from below
    with pytest.warns(UserWarning, match="only known"):
        assert bound(mine, 0.01).upper == min(compare(said, 0.01).values())
    with pytest.raises(UnsupportedRelease, match="give it a method"):
        bound(mute, 0.01)


def test_a_derived_class_costs_at_least_nothing():
    with pytest.warns(UserWarning, match="between 0 and 2.25"):
        assert bound(Mine(4.0), 1e-6).lower == 0.0
    known = bound(Laplace(2.0), 1e-6).lower
    with pytest.warns(UserWarning, match="only known"):
        assert bound(Mine(4.0) + Laplace(2.0), 1e-6).lower == pytest.approx(known, rel=1e-9)


def test_calibration_ledgers_and_audits_do_as_well(tmp_path):
    assert calibrate(lambda z: Mine(z) + Gaussian(z), Budget(4.0, 1e-6)) == pytest.approx(
        calibrate(lambda z: PureDP(2.254) + Gaussian(z), Budget(4.0, 1e-6))
    )
    with pytest.raises(UnsupportedRelease, match="give it a method"):
        calibrate(Mute, Budget(4.0, 1e-6))
    ledger = Ledger(Budget(2.0, 1e-6))
    with pytest.raises(Exception, match="Mine"):
        ledger.spend(Mine(4.0))
    for silent in (Mute(4.0), MuteChoice(0.1)):
        with pytest.raises(UnsupportedRelease, match="Mute"):
            ledger.spend(silent)
    with Ledger.create(tmp_path / "spends.ledger", Budget(5.0, 1e-6)) as stored:
        stored.spend(2 * Mine(4.0))
    with Ledger.open(tmp_path / "spends.ledger") as stored:
        assert stored.total == 2 * Mine(4.0)
        assert stored.epsilon() == epsilon(2 * PureDP(2.254), 1e-6)
        assert not audit.recompute(stored).problems


def test_what_is_made_of_other_releases_may_not_be_derived_from_either():
    with pytest.raises(UnsupportedRelease, match=r"Winners\(.*give it a method"):
        epsilon(Winners(Gaussian(4.0), stop=0.5), 1e-6)
    with pytest.raises(UnsupportedRelease, match="its ε is accepted"):
        LocalShuffled(type("Near", (Laplace,), {})(1.0), 1000)
    with pytest.raises(UnsupportedRelease, match="no group privacy"):
        group(Mine(4.0), 2)


# --------------------------------------------------------------------------------------------------- by its own pair


@dataclass(frozen=True)
class Flips(Atoms, Symmetric):
    """A coin of losses ±``loss``, and with probability ``beyond`` an infinite one."""

    loss: float
    beyond: float = 0.0
    tilt: float = 1.0

    def atoms(self):
        p = np.array([1.0, math.exp(self.loss)]) / (1 + math.exp(self.loss)) * (1 - self.beyond)
        return np.array([-self.loss, self.loss]), p, p[::-1], self.beyond

    def delta(self, epsilon):
        return super().delta(epsilon) * self.tilt


@dataclass(frozen=True)
class Lopsided(AllFinite):
    """One loss of 0.1 and small ones below."""

    def delta(self, epsilon):
        losses, p = np.log([0.9 / 0.95, 0.1 / 0.05]), np.array([0.9, 0.1])
        return float(p @ np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0))

    def masses(self, edges):
        at = np.searchsorted(edges, np.log([0.9 / 0.95, 0.1 / 0.05]))
        size = edges.size + 1
        return np.bincount(at, [0.9, 0.1], size), np.bincount(at, [0.95, 0.05], size)


@dataclass(frozen=True, repr=False)
class Told(Release):
    loss: float = 0.5
    beyond: float = 0.0

    def pair(self):
        return Flips(self.loss, self.beyond)


@dataclass(frozen=True, repr=False)
class Curved(Told):
    def renyi(self, orders):
        return rdp(PureDP(self.loss), orders)

    def weaker(self):
        return PureDP(2 * self.loss, adjacency=self.adjacency)


@dataclass(frozen=True, repr=False)
class OneSided(Release):
    def pair(self):
        return Lopsided()


@pytest.mark.parametrize("place", [place for place in PLACES if place not in ("swapped in a sample", "in a batch")])
def test_its_own_pair_counts_wherever_it_is(place):
    found, same = epsilon(PLACES[place](Told(0.5)), 1e-6, accountant="pld"), PLACES[place](PureDP(0.5))
    assert found == pytest.approx(float(epsilon(same, 1e-6, accountant="pld")), rel=1e-6)


def test_whatever_else_it_says_counts_for_the_other_accountants():
    with pytest.raises(UnsupportedRelease, match="RDP accountant has no bound for Told"):
        rdp(Told(), [2.0])
    assert set(compare(Told(), 1e-6)) == {"pld"}
    prices = compare(30 * Curved(0.2), 1e-6)
    same, twice = compare(30 * PureDP(0.2), 1e-6), compare(30 * PureDP(0.4), 1e-6)
    for name, expected in (("pld", same), ("rdp", same), ("zcdp", twice), ("gdp", twice), ("pure", twice)):
        assert prices[name] == pytest.approx(expected[name], rel=1e-6)
    assert epsilon(Curved(0.2), 0.0) == 0.4


def test_infinite_losses_count():
    assert epsilon(Told(0.5, 1e-5), 1e-6) == math.inf
    assert delta(3 * Told(0.5, 1e-5), 2.0) == pytest.approx(3e-5, rel=1e-4)


def test_a_pair_that_only_dominates_is_no_lower_bound_and_an_exact_one_is():
    with pytest.warns(UserWarning, match="between 0 and"):
        bound(10 * Told(), 1e-6)
    exact = type("Known", (Told,), {"pair": lambda self: Laplace(2.0).pair()})
    assert bound(10 * exact(), 1e-6) == pytest.approx(bound(10 * Laplace(2.0), 1e-6))


def test_a_pair_for_one_order_of_neighbours_may_not_be_sampled():
    assert epsilon(5 * OneSided(), 1e-6) <= 5 * math.log(2) * (1 + 1e-6)
    with pytest.raises(UnsupportedRelease, match="must be symmetric"):
        epsilon(PoissonSubsampled(OneSided(), 0.1), 1e-6, accountant="pld")
    with pytest.raises(UnsupportedRelease, match="Gaussian, Laplace"):
        PoissonSubsampled(Told(), 0.1, adjacency="replace")


# ----------------------------------------------------------------------------------------------- pairs that are checked


@pytest.mark.parametrize(
    "pair",
    [
        *(release.pair() for release in (Gaussian(0.3), Laplace(2.0), PureDP(0.5), PureDP(0.0), NoisyMax(0.7))),
        *(
            DiscreteLaplace(3.0, shift=2).pair(),
            TreeAggregation(5.0, 8).pair(),
            Flips(0.3),
            Flips(0.3, 1e-3),
            Lopsided(),
        ),
    ],
    ids=repr,
)
def test_pairs_that_fit_together_pass(pair):
    check_pair(pair)


def changed(name, answer):
    """The coin of losses ±½ with another answer to one question."""
    return type(f"Wrong{name}", (Flips,), {name: answer})(0.5)


def light(self, edges):
    return tuple(0.9 * mass for mass in Flips.masses(self, edges))


def negative(self, edges):
    """Q's lowest mass is."""
    p, q = Flips.masses(self, edges)
    return p, np.append(-0.01, q[1:])


WRONG = {
    "delta": Flips(0.5, tilt=0.99),
    "law of −L": type("Skew", (Symmetric,), {"delta": Lopsided.delta, "masses": Lopsided.masses})(),
    "edge times Q": changed("masses", lambda self, e: (Flips(0.5).masses(e)[0], Flips(0.4).masses(e)[1])),
    "highest": changed("highest", lambda self, tail: 0.3),
    "lowest": changed("lowest", lambda self, tail: 0.3),
    "mass 1": changed("masses", light),
    "Q at most that": changed("masses", negative),
    "shape": changed("masses", lambda self, e: (np.zeros(3), np.zeros(3))),
}


@pytest.mark.parametrize("says", WRONG)
def test_answers_that_contradict_each_other_are_found(says):
    with pytest.raises(ValueError, match=says):
        check_pair(WRONG[says])


def test_an_accountant_refuses_masses_that_are_no_law():
    unlawful = type("Unlawful", (Told,), {"pair": lambda self: WRONG["mass 1"]})
    with pytest.raises(UnsupportedRelease, match="has mass"):
        epsilon(20 * unlawful(), 1e-6, accountant="pld")


@dataclass(frozen=True)
class Twice(GaussianPair):
    """Derived from a pair of the package, and twice as bad as its ``mu`` says."""

    def delta(self, epsilon):
        return GaussianPair(2 * self.mu).delta(epsilon)

    def masses(self, edges):
        return GaussianPair(2 * self.mu).masses(edges)

    def highest(self, log_tail):
        return GaussianPair(2 * self.mu).highest(log_tail)


# no theorem about the package's pair of this name is about it
SpanPair = type("SpanPair", (Twice,), {})


@pytest.mark.parametrize("kind", [Twice, SpanPair])
def test_a_pair_that_is_derived_or_named_like_one_of_ours_is_asked_itself(kind):
    @dataclass(frozen=True, repr=False)
    class Noise(Release):
        def pair(self):
            return kind(0.1)

    assert epsilon(9 * Noise() + Gaussian(5.0), 1e-6) == pytest.approx(
        epsilon(9 * Gaussian(5.0) + Gaussian(5.0), 1e-6), rel=1e-4
    )

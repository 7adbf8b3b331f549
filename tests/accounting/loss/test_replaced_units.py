"""Samples in which one unit is replaced: against all batches of a small table, and the divergence that pairs have."""

import itertools
import math

import numpy as np
import pytest
from hockey_stick import divergence
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import (
    AdjacencyMismatch,
    Budget,
    DiscreteGaussian,
    DiscreteLaplace,
    FixedSizeSubsampled,
    Gaussian,
    Laplace,
    Ledger,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    UnsupportedRelease,
    bound,
    compare,
    delta,
    epsilon,
)
from accounting.ledger.record.release_json import decode, encode
from accounting.loss.gaussian import GaussianPair
from accounting.loss.integers import IntegerPair
from accounting.loss.laplace import LaplacePair
from accounting.loss.responses import Coins
from accounting.loss.sampled import ReplacedPair
from accounting.loss.swapped import swapped


def law(totals, probabilities, z):
    """The law of a sum that is random itself, with discrete Laplace noise of scale z."""
    x = np.arange(-60, 61)
    out = np.zeros(x.size)
    for total, probability in zip(totals, probabilities, strict=True):
        noise = np.exp(-np.abs(x - total) / z)
        out += probability * noise / noise.sum()
    return out


@settings(max_examples=10, deadline=None)
@given(
    others=st.lists(st.integers(-2, 2), min_size=1, max_size=5),
    ends=st.tuples(st.integers(-2, 2), st.integers(-2, 2)),
    size=st.integers(1, 4),
    z=st.floats(0.5, 4.0),
    at=st.floats(0.0, 1.5),
)
def test_no_table_is_worse_than_the_pair_of_fixed_batches(others, ends, size, z, at):
    records = 1 + len(others)
    size = min(size, records)
    laws = []
    for end in ends:
        batches = [sum(batch) for batch in itertools.combinations([end, *others], size)]
        laws.append(law(batches, [1 / len(batches)] * len(batches), 4 * z))
    # a record lies in [−2, 2], so a replacement moves the sum by at most 4
    step = FixedSizeSubsampled(DiscreteLaplace(z, shift=4), size, records)
    for p, q in (laws, laws[::-1]):
        assert divergence(p, q, at) <= delta(step, at) + 1e-9


@settings(max_examples=15, deadline=None)
@given(
    others=st.lists(st.integers(-2, 2), max_size=3),
    rate=st.floats(0.05, 0.9),
    z=st.floats(0.5, 4.0),
    at=st.floats(0.0, 1.5),
)
def test_no_table_is_worse_than_the_pair_of_poisson_samples(others, rate, z, at):
    laws = []
    for end in (-2, 2):
        rows = [end, *others]
        kept = list(itertools.product((0, 1), repeat=len(rows)))
        totals = [sum(row for row, one in zip(rows, keep, strict=True) if one) for keep in kept]
        weights = [math.prod(rate if one else 1 - rate for one in keep) for keep in kept]
        laws.append(law(totals, weights, 2 * z))
    # present or absent, a unit moves the sum by at most 2
    step = PoissonSubsampled(DiscreteLaplace(z, shift=2), rate, adjacency="replace")
    for p, q in (laws, laws[::-1]):
        assert divergence(p, q, at) <= delta(step, at) + 1e-9


@pytest.mark.parametrize("inner", [GaussianPair(0.7), LaplacePair(1.3)], ids=repr)
@pytest.mark.parametrize("rate", [0.03, 0.5])
def test_the_masses_of_the_pair_have_its_divergence(inner, rate):
    pair = ReplacedPair(inner, rate)
    edges = np.linspace(-3, 3, 60_001)
    p, q = pair.masses(edges)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert q.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.all(p >= 0)
    for at in (-0.4, 0.0, 0.1, 0.6):
        assert float(np.maximum(p - math.exp(at) * q, 0).sum()) == pytest.approx(pair.delta(at), rel=1e-3)
    # P is the mirror image of Q, but for the atom at 0, which lies in the cell that ends there
    assert np.delete(p, 30_000)[-29_000:] == pytest.approx(q[:29_000][::-1], abs=1e-10)


# ------------------------------------------------------------------------------------------- swaps in Poisson samples

SWAPPABLE = [Laplace(2.0), PureDP(0.5), DiscreteGaussian(2.0, shift=1), DiscreteLaplace(2.0, shift=3), Gaussian(2.0)]


@settings(max_examples=60, deadline=None)
@given(
    weights=st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6),
    choices=st.data(),
    eps=st.floats(0.05, 3.0),
    rate=st.floats(0.01, 0.99),
    at=st.floats(-2.0, 2.0),
)
def test_no_swap_of_a_pure_release_passes_the_pair(weights, choices, eps, rate, at):
    absent = np.array(weights) / sum(weights)

    def one_step():
        """A law that is ε-DP from the one without the unit: the ratios e^(±ε), and one between, in some order."""
        order = choices.draw(st.permutations(range(absent.size)))
        low, high = absent * math.exp(-eps), absent * math.exp(eps)
        law = low.copy()
        for i in order:
            law[i] += min(high[i] - low[i], 1.0 - law.sum())
        return law

    p, q = ((1 - rate) * absent + rate * one_step() for _ in range(2))
    assert divergence(p, q, at) <= swapped(Coins(eps), rate).delta(at) + 1e-12


@pytest.mark.parametrize(("theta", "rate"), [(0.5, 0.1), (2.0, 0.7), (6.0, 0.01), (20.0, 0.5)])
def test_a_swap_costs_what_three_laplace_laws_do(theta, rate):
    edges = np.union1d(np.linspace(-theta - 45, theta + 45, 400_001), [-theta, 0.0, theta])
    middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    densities = [0.5 * np.exp(-np.abs(middle - shift)) * width for shift in (0.0, theta, -theta)]
    p, q = ((1 - rate) * densities[0] + rate * densities[i] for i in (1, 2))
    pair = swapped(LaplacePair(theta), rate)
    for at in (-0.3, 0.0, 0.01, 0.2, 0.9 * pair.highest(-1.0)):
        assert divergence(p, q, at) == pytest.approx(pair.delta(at), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize(
    "inner",
    [GaussianPair(0.7), LaplacePair(1.3), Coins(0.8), IntegerPair("laplace", 1.5, 3), IntegerPair("gaussian", 1.5, 3)],
    ids=repr,
)
@pytest.mark.parametrize("rate", [0.03, 0.5])
def test_the_masses_of_a_swap_have_its_divergence(inner, rate):
    pair = swapped(inner, rate)
    edges = np.linspace(-3, 3, 60_001)
    p, q = pair.masses(edges)
    assert (p.sum(), q.sum()) == pytest.approx((1.0, 1.0), abs=1e-11)
    assert min(p.min(), q.min()) >= 0
    assert p[edges.size] == p[0] == 0 or pair.highest(-700.0) > 3
    for at in (-0.4, 0.0, 0.1, 0.3):
        found = float(np.maximum(p - math.exp(at) * q, 0).sum())
        assert found == pytest.approx(pair.delta(at), rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("inner", SWAPPABLE, ids=repr)
def test_what_a_swap_costs_is_known_to_a_part_in_ten_thousand(inner):
    swap = PoissonSubsampled(inner, 0.1, adjacency="replace")
    for count in (1, 20):
        lower, upper = bound(count * swap, 1e-6)
        assert 0.9999 * upper < lower <= upper
    if not isinstance(inner, (Gaussian, DiscreteGaussian)):
        largest = math.log((0.9 + 0.1 * math.exp(0.5)) / (0.9 + 0.1 * math.exp(-0.5)))
        assert epsilon(swap, 0.0) == pytest.approx(largest, rel=1e-12)


def test_swaps_of_discrete_and_of_continuous_noise_agree():
    fine = PoissonSubsampled(DiscreteLaplace(2.0, shift=500), 0.1, adjacency="replace")
    smooth = PoissonSubsampled(Laplace(2.0), 0.1, adjacency="replace")
    assert epsilon(50 * fine, 1e-6) == pytest.approx(float(epsilon(50 * smooth, 1e-6)), rel=2e-4)
    # 50 swaps of 10 % cost 3.51 when they were priced as two full steps
    assert epsilon(50 * smooth, 1e-6) == pytest.approx(2.7213, abs=1e-4)
    # losses whose powers of e are beyond floats
    assert swapped(LaplacePair(1000.0), 0.1).highest(-1.0) == pytest.approx(1000 - math.log(9), rel=1e-12)


# ------------------------------------------------------------------------------------------------------ fixed batches


@pytest.mark.slow
def test_batches_of_a_fixed_size_cost_a_little_more_than_poisson_samples():
    fixed = FixedSizeSubsampled(Gaussian(1.0), 600, 60_000)
    poisson = PoissonSubsampled(Gaussian(1.0), 0.01)
    assert epsilon(fixed, 1e-5) == pytest.approx(float(epsilon(poisson, 1e-5)), rel=1e-6)
    lower, upper = bound(250 * fixed, 1e-5)
    assert epsilon(250 * poisson, 1e-5) < lower < upper < 1.01 * lower
    with pytest.warns(UserWarning, match="only known to lie between"):
        bound(100 * FixedSizeSubsampled(Laplace(0.3), 1, 100), 1e-6)
    # all of the data, each time
    assert epsilon(FixedSizeSubsampled(Gaussian(1.0), 5, 5), 1e-5) == pytest.approx(float(epsilon(Gaussian(1.0), 1e-5)))


def test_pure_releases_are_amplified_as_the_theorems_say():
    assert epsilon(FixedSizeSubsampled(PureDP(1.0), 1, 10), 0.0) == pytest.approx(math.log1p(0.1 * math.expm1(1.0)))
    swap = PoissonSubsampled(PureDP(1.0), 0.1, adjacency="replace")
    assert epsilon(swap, 0.0) == pytest.approx(math.log((0.9 + 0.1 * math.e) / (0.9 + 0.1 / math.e)))
    for eps in (1e-300, 800.0):
        assert 0 < epsilon(PoissonSubsampled(PureDP(eps), 0.1, adjacency="replace"), 0.0) <= 2 * eps


@pytest.mark.parametrize(
    "inner",
    [Laplace(2.0), DiscreteGaussian(2.0, shift=1), DiscreteGaussian(2.0)],
    ids=repr,
)
def test_a_swap_costs_more_than_an_absence_and_less_than_two_full_steps(inner):
    swap = PoissonSubsampled(inner, 0.1, adjacency="replace")
    found = min(compare(20 * swap, 1e-6).values())
    assert epsilon(20 * PoissonSubsampled(inner, 0.1), 1e-6) < found
    assert epsilon(swap, 1e-6) < 2 * epsilon(inner, 1e-7)


def test_what_is_refused():
    with pytest.raises(AdjacencyMismatch, match="fixed size"):
        FixedSizeSubsampled(Gaussian(1.0), 5, 10, adjacency="add_remove")
    with pytest.raises(AdjacencyMismatch, match="fixed size"):
        FixedSizeSubsampled(Gaussian(1.0, adjacency="add_remove"), 5, 10)
    with pytest.raises(ValueError, match="batch_size must be at most records=10"):
        FixedSizeSubsampled(Gaussian(1.0), 11, 10)
    with pytest.raises(TypeError, match="release must be a description"):
        FixedSizeSubsampled(0.1, 5, 10)
    with pytest.raises(UnsupportedRelease, match="may be sampled"):
        PoissonSubsampled(RandomizedResponse(1.0, 3), 0.1, adjacency="replace")
    with pytest.raises(UnsupportedRelease):
        epsilon(FixedSizeSubsampled(2 * Laplace(1.0), 5, 10), 1e-6, accountant="pld")


def test_ledgers_and_files_take_it():
    step = FixedSizeSubsampled(Gaussian(4.0), 10, 1000)
    assert decode(encode(step)) == step
    ledger = Ledger(Budget(1.0, 1e-6))
    for _ in range(3):
        ledger.spend(step)
    assert ledger.epsilon() < 0.5

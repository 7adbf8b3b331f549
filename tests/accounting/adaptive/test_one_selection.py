"""The best of a random number of runs, from above and from below, against laws computed from their definition."""

import math
from itertools import cycle

import numpy as np
import pytest
from hockey_stick import divergence
from scipy.special import gammaln, ndtr, ndtri

from accounting import (
    BestOfPoissonRuns,
    BestOfRuns,
    Gaussian,
    Laplace,
    PoissonSubsampled,
    PureDP,
    bound,
    compare,
    delta,
    epsilon,
)
from accounting.adaptive.repeated_selection.one_selection import BestPair, OrderedPair, best_order
from accounting.conversions import gdp_delta
from accounting.loss.gaussian import GaussianPair
from accounting.loss.responses import Coins
from accounting.lower.witnesses import witness
from accounting.releases.selection import runs_of

pytestmark = pytest.mark.filterwarnings("ignore:ε is only known")

LAWS = [
    BestOfRuns(Gaussian(4.0), 0.2),
    BestOfRuns(Gaussian(4.0), 0.05, shape=0.0),
    BestOfRuns(Gaussian(4.0), 0.1, shape=-0.5),
    BestOfRuns(Gaussian(4.0), 0.3, shape=2.5),
    BestOfPoissonRuns(Gaussian(4.0), 6.0),
]
NAMES = [f"{type(law).__name__}-{getattr(law, 'shape', '')}" for law in LAWS]


def chances(law, count=600):
    """P(K = k) for k = 0, …, from the definition."""
    k = np.arange(count)
    if isinstance(law, BestOfPoissonRuns):
        return np.exp(k * math.log(law.mean) - law.mean - gammaln(k + 1))
    log = k * math.log1p(-law.stop) + gammaln(np.maximum(k + law.shape, 1e-300)) - gammaln(k + 1)
    weights = np.where(k > 0, np.exp(log - log[1:].max()), 0.0)
    return weights / weights.sum()


def best(law, masses):
    """The law of the best of K outputs, in increasing order, and of none."""
    below = np.concatenate([[0.0], np.cumsum(masses)])
    powers = below[:, None] ** np.arange(600)
    return np.append(np.diff(powers @ chances(law)), chances(law)[0])


def neighbours(kind, outputs, rng):
    """Laws of one run that outputs numbers, and of its neighbour; both in the same random order."""
    if kind == "normal":
        edges = np.concatenate([[-np.inf], np.linspace(-4, 4.25, outputs - 1), [np.inf]])
        p, q = np.diff(ndtr(edges - 0.25)), np.diff(ndtr(edges))
    else:
        truth = 1 / (1 + math.exp(-0.25))
        parts = rng.dirichlet(np.ones(outputs // 2))
        p = np.concatenate([truth * parts, (1 - truth) * parts])
        q = np.concatenate([(1 - truth) * parts, truth * parts])
    # sorted by the loss, from some place on, or by a noisy score
    order = np.argsort(np.log(p / q) * rng.choice([-1, 0, 1]) + rng.normal(size=p.size) * rng.choice([0.0, 0.1, 1.0]))
    order = np.roll(order, rng.integers(p.size))
    return p[order], q[order]


# ------------------------------------------------------------------------------------------- the law of K


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_the_generating_function_is_that_of_the_law(law):
    runs, k, probabilities = runs_of(law), np.arange(600), chances(law)
    s = np.array([0.0, 1e-9, 0.03, 0.5, 1.0])
    x = 1 - s[:, None]
    assert runs.slope(s) == pytest.approx((k * x ** np.maximum(k - 1, 0)) @ probabilities, rel=1e-6)
    assert runs.bend(s) == pytest.approx((k * (k - 1) * x ** np.maximum(k - 2, 0)) @ probabilities, rel=1e-5)
    assert runs.gain(s[:-1], np.full(4, 0.01)) == pytest.approx(
        ((x**k) @ probabilities - ((x - 0.01) ** k) @ probabilities)[:-1], rel=1e-6
    )
    assert runs.none == pytest.approx(probabilities[0], rel=1e-6)
    found = runs.chances()[:100]
    assert found == pytest.approx(probabilities[1 : 1 + found.size], rel=1e-6)
    # a small part of what is left keeps its digits
    assert runs.gain(np.array(0.2), np.array(1e-30)) == pytest.approx(1e-30 * runs.slope(np.array(0.2)), rel=1e-12)


# ----------------------------------------------------------------------------------------------- from above


@pytest.mark.thorough
@pytest.mark.parametrize(("law", "kind"), list(zip(LAWS, cycle(["normal", "coins"]))), ids=NAMES)
def test_no_order_costs_more(law, kind):
    rng = np.random.default_rng(0)
    run = Gaussian(4.0) if kind == "normal" else PureDP(0.25)
    release = type(law)(run, *((law.mean,) if isinstance(law, BestOfPoissonRuns) else (law.stop, law.shape)))
    once = {at: delta(release, at, accountant="pld") for at in (0.0, 0.3)}
    twice = delta(2 * release, 0.3, accountant="pld")
    for _ in range(12):
        one, other = (best(law, masses) for masses in neighbours(kind, 40, rng))
        for at, cost in once.items():
            assert max(divergence(one, other, at), divergence(other, one, at)) <= cost + 1e-12
        # two of them
        p, q = np.outer(one, one).ravel(), np.outer(other, other).ravel()
        assert max(divergence(p, q, 0.3), divergence(q, p, 0.3)) <= twice + 1e-12


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_brackets_of_one_choice_are_narrow(law):
    lower, upper = bound(law, 1e-7)
    assert 0.97 * upper < lower <= upper
    assert upper < 0.9 * compare(law, 1e-7)["rdp"]


def test_a_choice_among_pure_runs_is_known():
    for release in (BestOfRuns(PureDP(0.4), 0.05, 0.5), BestOfPoissonRuns(PureDP(0.4), 4.0)):
        lower, upper = bound(release, 0.0)
        assert lower == pytest.approx(upper, rel=1e-6)
        # both outputs by their definition: the worse one is the better score, but for a small part of the other
        truth, part = 1 / (1 + math.exp(-0.4)), 1e-7
        first, second = (best(release, np.array([t - part * t, part * t, 1 - t])) for t in (truth, 1 - truth))
        assert math.log(first[1] / second[1]) == pytest.approx(upper, rel=1e-5)


@pytest.mark.thorough
def test_values():
    assert epsilon(BestOfRuns(Gaussian(8.0), 0.1), 1e-6) == pytest.approx(0.7505, abs=5e-4)  # 1.127 by Rényi
    assert epsilon(10 * BestOfRuns(Gaussian(8.0), 0.1), 1e-6) == pytest.approx(3.651, abs=2e-2)  # 8.488
    assert epsilon(BestOfPoissonRuns(Gaussian(8.0), 10.0), 1e-6) == pytest.approx(0.9518, abs=5e-4)  # 1.213
    # a run that is composed, and one that both directions of a sample differ in
    composed = BestOfRuns(64 * Gaussian(64.0), 0.1)
    assert epsilon(composed, 1e-6) == pytest.approx(epsilon(BestOfRuns(Gaussian(8.0), 0.1), 1e-6), rel=1e-6)
    many = BestOfRuns(20 * Laplace(40.0), 0.1)
    assert epsilon(20 * Laplace(40.0), 1e-6) < epsilon(many, 1e-6, accountant="pld") < 1.2
    sampled = BestOfRuns(PoissonSubsampled(Laplace(2.0), 0.1), 0.1)
    assert bound(sampled, 1e-6).lower > 0.84 * epsilon(sampled, 1e-6, accountant="pld")


def test_laws_beyond_floats_are_left_to_other_accountants():
    assert "pld" not in compare(BestOfRuns(Gaussian(8.0), 1e-14), 1e-6)
    assert "pld" not in compare(BestOfPoissonRuns(Gaussian(8.0), 700.0), 1e-6)


# ----------------------------------------------------------------------------------------------- from below


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
@pytest.mark.parametrize("pair", [GaussianPair(0.3), Coins(0.4)], ids=["normal", "coins"])
def test_a_witness_is_a_pair_of_laws(law, pair):
    runs = runs_of(law)
    for order in ((0.2, 1.0), best_order(runs, (pair,), 5.0)):
        losses, p, q, beyond = OrderedPair(runs, pair, *order).atoms()
        assert beyond == 0
        assert p.sum() == pytest.approx(1.0, abs=1e-6)
        assert q.sum() == pytest.approx(1.0, abs=1e-6)
        assert max(p.sum(), q.sum()) < 1.0
        assert np.all(np.diff(losses) >= 0)
        assert p == pytest.approx(q * np.exp(losses))


@pytest.mark.parametrize("pace", [0.5, 1.0, 3.0])
def test_a_witness_is_the_best_of_its_runs(pace):
    law, truth, count = LAWS[0], 1 / (1 + math.exp(-0.4)), 3000
    _, p, q, _ = OrderedPair(runs_of(law), Coins(0.4), 0.1, pace).atoms()
    # the best ones: some of the smaller loss, then both, until one of them ends
    fine = np.full(count, 1 / count)
    first, second = (np.concatenate([t * fine, (1 - t) * fine]) for t in (truth, 1 - truth))
    when = np.append((np.arange(count) + 0.5) * truth / count, (np.arange(count) + 0.5) * (1 - truth) / count)
    when[count:] = (when[count:] - 0.1) / pace
    order = np.argsort(-when)
    one, other = (best(law, masses[order]) for masses in (first, second))
    for at in (0.0, 0.3, 0.6):
        assert float(np.maximum(p - math.exp(at) * q, 0).sum()) == pytest.approx(divergence(one, other, at), abs=2e-3)


def test_a_curve_is_symmetric():
    pair = BestPair(runs_of(LAWS[0]), (((GaussianPair(0.25), 1),),), 0.25)
    for at in (0.2, 0.7):
        mirrored = -math.expm1(-at) + math.exp(-at) * pair.delta(at)
        assert pair.delta(-at) == pytest.approx(mirrored, rel=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_the_worst_place_is_found(law):
    from accounting.adaptive.repeated_selection.one_selection import _all_runs, _worst_place

    runs, inner = runs_of(law), (((GaussianPair(0.25), 1),),)
    at, gain = _worst_place(runs, inner)
    s = np.concatenate([[0.0], np.geomspace(1e-8, 1.0, 20001)])
    # the most that the neighbour has of outputs that have s
    most = ndtr(0.25 + ndtri(s))
    for ratio in (0.1, 0.5, 1.0, 1.1):
        exact = max(0.0, float(np.max(runs.slope(s) - ratio * runs.slope(most))))
        found = float(np.interp(ratio, at, gain, right=0.0))
        assert exact * (1 - 1e-9) <= found <= exact * 1.01 + 1e-4
    # all runs together, one number of them after the other
    probabilities = chances(law)
    for ratio in (0.0, 0.4):
        deltas = [gdp_delta(math.sqrt(k) / 4, ratio) for k in range(1, 600)]
        exact = float(probabilities[1:] @ deltas)
        assert exact <= _all_runs(runs, 0.25, np.array([ratio]))[0] <= exact * 1.02


def test_runs_beyond_floats_are_left_to_other_accountants():
    release = BestOfRuns(Gaussian(1e-3), 0.1)
    lower, upper = bound(release, 1e-6)
    assert epsilon(Gaussian(1e-3), 1e-6) * (1 - 1e-6) < lower < upper == compare(release, 1e-6)["rdp"]


def test_a_witness_has_one_direction_inside_and_outside():
    best = BestOfRuns(PoissonSubsampled(Gaussian(2.0), 0.3), 0.5)
    # the best of a sample's runs on a sample: of two directions one inside would have to be the other one outside
    assert witness(PoissonSubsampled(best, 0.3), 5.0) is None
    assert witness(PoissonSubsampled(BestOfRuns(Gaussian(2.0), 0.5), 0.3), 5.0) is not None

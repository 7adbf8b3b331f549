"""Shifted binomial counts against exact sums of small cases: starts between integers, all splits, both directions."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from accounting import Gaussian, Laplace, ShuffledBinomial, bound, delta, epsilon
from accounting.accountants.count_pairs import CountsPair, ShiftPair, pairs_of_counts
from accounting.accountants.failures import split_failures
from accounting.amplification.count_shifts import count_curve, is_listed, vector_rows
from accounting.releases import compose


def law(trials, at, size):
    """Bin(trials, ½) and ``at``, rounded at random."""
    whole = math.floor(at)
    shifted = [binom.pmf(np.arange(size) - k, trials, 0.5) for k in (whole, whole + 1)]
    return (1 - (at - whole)) * shifted[0] + (at - whole) * shifted[1]


def divergence(pairs, at):
    """H of the product, exactly."""
    p, q = np.ones(1), np.ones(1)
    for one, other in pairs:
        p, q = np.multiply.outer(p, one).ravel(), np.multiply.outer(q, other).ravel()
    return float(np.maximum(p - math.exp(at) * q, 0.0).sum())


def moved(trials, starts, shifts):
    size = trials + 3 + math.ceil(max(a + t for a, t in zip(starts, shifts, strict=True)))
    return [(law(trials, a + t, size), law(trials, a, size)) for a, t in zip(starts, shifts, strict=True)]


@pytest.mark.parametrize(("trials", "shift"), [(20, 1.0), (31, 3.0), (30, 0.4), (31, 2.7), (200, 7.5)])
def test_one_count_is_exact(trials, shift):
    # of all starts, those at which the count is an integer before or after
    for at in np.array([0.0, 0.3, 1.0, 2.0, 4.0]) * 2 * shift / math.sqrt(trials):
        exact = [
            divergence([pair if up else pair[::-1]], at)
            for start in np.linspace(0.0, 1.0, 9)
            for up in (True, False)
            for pair in moved(trials, [start], [shift]) + moved(trials, [math.ceil(shift) - shift], [shift])
        ]
        found = ShiftPair(trials, shift).delta(at)
        # between its corners a curve of two is rounded up
        assert max(exact) * (1 - 1e-12) - 1e-16 <= found <= max(exact) * (1.005 if shift % 1 else 1 + 1e-8) + 1e-15


def test_what_has_no_other_explanation_counts_as_infinite():
    pair = ShiftPair(30, 3.0)
    assert pair.infinite() == pytest.approx((1 + 30 + 435) / 2**30, rel=1e-8)
    assert pair.delta(80.0) == pytest.approx(pair.infinite(), rel=1e-8)
    assert epsilon(ShuffledBinomial(30, 3.0, 1), 1e-7) == math.inf
    # of three rounds, what any tells for certain is added up
    pair = ShiftPair(4, 1.0)
    assert sum(map(float, pair._atoms()[1])) + pair.infinite() == pytest.approx(1.0, abs=1e-7)
    one = np.array([1.0, 4.0, 6.0, 4.0, 1.0, 0.0]) / 16
    exact = divergence(3 * [(one[::-1], one)], 1.0)
    assert exact <= delta(3 * ShuffledBinomial(4, 1.0, 1), 1.0) <= exact + 3 * pair.infinite() ** 2
    # what was cut off may be far less likely than δ: N = 50 hides a unit well below 1e-12
    assert 2.7 < epsilon(ShuffledBinomial(50, 1.0, 1), 1e-12) < 2.8


@pytest.mark.parametrize(
    ("trials", "norm", "entries"),
    [(60, 2.9, 2), (200, 5.0, 2), (200, 7.1, 2), (400, 3.0, 2), (24, 1.8, 3)],
)
def test_no_integer_vector_is_worse(trials, norm, entries):
    rows, mu = vector_rows(trials, norm, entries, False), 2 * norm / math.sqrt(trials)
    whole = range(math.floor(norm) + 1)
    vectors = [v for v in itertools.combinations_with_replacement(whole, entries) if 0 < np.dot(v, v) <= norm**2]
    for z in (0.0, 0.5, 1.0, 2.0, 3.5, 5.0, 7.0):
        at = mu * (z + mu / 2)
        worst = max(divergence(moved(trials, [0] * entries, v), at) for v in vectors)
        found = float(rows.deltas(np.array(at)))
        assert found >= worst * (1 - 1e-9)
        if trials >= 200 and 3e-16 < worst < 0.1:
            assert found <= 1.5 * worst


@pytest.mark.parametrize(("trials", "norm"), [(60, 0.8), (200, 1.0), (150, 4.6)])
def test_no_rounded_vector_is_worse(trials, norm):
    rows, mu = vector_rows(trials, norm, 2, True), 2 * norm / math.sqrt(trials)
    starts = (0.0, math.sqrt(0.5))
    for z in (0.0, 1.0, 2.0, 3.5, 5.0, 7.0):
        at, worst = mu * (z + mu / 2), 0.0
        for angle in np.linspace(0.0, math.pi / 4, 4):
            shifts = norm * math.cos(angle), norm * math.sin(angle)
            for first, second in itertools.product(*([*starts, math.ceil(t) - t] for t in shifts)):
                one, other = moved(trials, [first, second], shifts)
                for pairs in ([one, other], [one[::-1], other[::-1]]):
                    worst = max(worst, divergence(pairs, at))
        found = float(rows.deltas(np.array(at)))
        assert found >= worst * (1 - 1e-9)
        if trials >= 200 and 3e-16 < worst < 0.1:
            assert found <= 2.0 * worst


@pytest.mark.parametrize("rounded", [False, True])
def test_many_trials_cost_what_gaussian_noise_does(rounded):
    for z in (1.0, 3.0, 6.0):
        mu = 2 * 30.0 / math.sqrt(10**6)
        at = z * mu
        found = CountsPair(10**6, 30.0, 3, rounded).delta(at)
        exact = float(delta(Gaussian(1 / mu), at))
        assert exact <= found <= 1.25 * exact


def test_pairs_are_those_of_the_curves():
    for pair in (ShiftPair(1000, 2.5), CountsPair(1000, 2.5, 3, True), CountsPair(1000, 2.9, 3, False)):
        _, p, q, beyond = pair._atoms()
        assert float(p.sum()) + beyond == pytest.approx(1.0, abs=1e-8)
        assert float(q.sum()) == pytest.approx(1.0, abs=1e-8)
        for at in (0.0, 0.1, 0.3, 0.6):
            by_atoms = float(np.maximum(p - math.exp(at) * q, 0.0).sum()) + beyond
            assert pair.delta(at) * 0.995 <= by_atoms <= pair.delta(at) * 1.01
        assert pair.delta(-0.1) == pytest.approx(1 - math.exp(-0.1) + math.exp(-0.1) * pair.delta(0.1))


def test_which_counts_have_their_own_pair():
    assert pairs_of_counts(900, 1.8, 5, rounded=False) == {ShiftPair(900, 1.0): 3}
    assert pairs_of_counts(900, 1.8, 2, rounded=False) == {ShiftPair(900, 1.0): 2}
    assert pairs_of_counts(900, 2.9, 1, rounded=False) == {ShiftPair(900, 2.0): 1}
    assert pairs_of_counts(900, 2.9, 1, rounded=True) == {ShiftPair(900, 2.9): 1}
    assert pairs_of_counts(900, 2.9, 2, rounded=True) == {CountsPair(900, 2.9, 2, True): 1}
    assert not is_listed(900, 0.5, 2, rounded=False)  # nothing moves
    assert is_listed(900, 0.5, 2, rounded=True)
    assert not is_listed(10, 5.0, 1, rounded=False)  # nothing is hidden
    assert not is_listed(20, 9.5, 1, rounded=True)
    assert not is_listed(20, 3.0, 2, rounded=False)
    assert not is_listed(10**6, 40.0, 3, rounded=False)  # Gaussian noise is as good
    assert count_curve(900, 1.0)[1][0] == pytest.approx(math.sqrt(2 / math.pi / 900), rel=1e-2)


def test_many_kinds_of_counts_are_gaussian_noise():
    parts = [ShuffledBinomial(1000 + k, 2.0, 3, rounded=True) for k in range(9)]
    whole, many = (split_failures(compose((p, 1) for p in some), whole_counts=True) for some in (parts[1:], parts))
    assert whole[0] == 0 > many[0]
    assert "CentralShuffledBinomial" in repr(many[1])
    assert "Central" not in repr(whole[1])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "release",
    [
        ShuffledBinomial(50, 1.0, 4),
        ShuffledBinomial(300, 5.0, 3),
        ShuffledBinomial(1000, 1.0, 4, rounded=True),
        ShuffledBinomial(3000, 20.0, 3, rounded=True),
        5 * ShuffledBinomial(1000, 2.0, 3) + Gaussian(5.0) + Laplace(2.0),
        20 * ShuffledBinomial(200, 1.5, 1, rounded=True),
        2 * ShuffledBinomial(2000, 60.0, 1),
    ],
    ids=repr,
)
def test_brackets_are_narrow(release):
    for at in (1e-5, 1e-10, 1e-14):
        lower, upper = bound(release, at)
        assert 0 < lower <= upper <= lower / 0.99

"""Units that take part more than once, against brute force over every pattern of participation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from accounting import (
    ZCDP,
    ApproxDP,
    Gaussian,
    Laplace,
    LocalShuffled,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    ShuffledBinomial,
    TreeAggregation,
    UnsupportedRelease,
    epsilon,
    gdp,
    parallel,
)
from accounting.amplification.participation import at_most, group, toeplitz_sensitivity, tree_sensitivity
from accounting.releases import Composed


def patterns(steps, participations, separation):
    for size in range(1, participations + 1):
        for pattern in itertools.combinations(range(steps), size):
            if all(later - earlier >= separation for earlier, later in itertools.pairwise(pattern)):
                yield list(pattern)


def tree_matrix(steps):
    rows = []
    width = 1
    while width <= steps:
        for start in range(0, steps - width + 1, width):
            rows.append([start <= t < start + width for t in range(steps)])
        width *= 2
    return np.array(rows, dtype=float)


def toeplitz_matrix(c):
    return np.array([[c[i - j] if i >= j else 0.0 for j in range(c.size)] for i in range(c.size)])


def worst(matrix, *pattern_arguments):
    """max over patterns of ‖Σ of the columns‖₂; equal contributions are the worst ones (next test)."""
    return max(np.linalg.norm(matrix[:, p].sum(axis=1)) for p in patterns(matrix.shape[1], *pattern_arguments))


def test_equal_contributions_are_the_worst():
    rng = np.random.default_rng(5)
    matrix = tree_matrix(11)
    for pattern in patterns(11, 3, 2):
        u = rng.normal(size=(len(pattern), 4))
        u /= np.maximum(1.0, np.linalg.norm(u, axis=1, keepdims=True))
        assert np.linalg.norm(matrix[:, pattern] @ u) <= np.linalg.norm(matrix[:, pattern].sum(axis=1)) + 1e-12


@tabled("steps", [1, 2, 3, 5, 7, 8, 11, 13])
@tabled("participations", [1, 2, 3, 4])
def test_tree_against_every_pattern(steps, participations):
    for separation in (1, 2, 3, 4, 5, 8):
        exact = worst(tree_matrix(steps), participations, separation)
        found = tree_sensitivity(steps, participations, separation)
        assert found >= exact - 1e-9
        if separation in (1, 2, 4, 8):
            assert found == pytest.approx(exact, abs=1e-9)


def test_one_participation_is_the_number_of_levels():
    for steps in (1, 2, 3, 4, 1000, 1023, 1024, 10**9):
        assert tree_sensitivity(steps) == pytest.approx(math.sqrt(TreeAggregation(1.0, steps).levels))


@settings(max_examples=60, deadline=None)
@given(
    gaps=st.lists(st.floats(0, 1), min_size=1, max_size=9),
    participations=st.integers(1, 4),
    separation=st.integers(1, 5),
)
def test_toeplitz_against_every_pattern(gaps, participations, separation):
    c = np.cumsum(gaps)[::-1].copy()
    found = toeplitz_sensitivity(c, participations, separation)
    assert found == pytest.approx(worst(toeplitz_matrix(c), participations, separation), rel=1e-12, abs=1e-12)


def test_toeplitz_reference_values():
    # Σ (C(2k, k)/4^k)², computed with mpmath at 40 digits
    for steps, value in ((16, 1.9438788471567705), (1024, 3.2725541502731326)):
        root = np.cumprod([1.0, *(1 - 1 / (2 * np.arange(1, steps)))])
        assert toeplitz_sensitivity(root) ** 2 == pytest.approx(value, rel=1e-12)


def test_a_longer_separation_and_fewer_participations_cost_less():
    c = 1 / np.sqrt(1 + np.arange(64.0))
    for sensitivity in (lambda m, b: tree_sensitivity(64, m, b), lambda m, b: toeplitz_sensitivity(c, m, b)):
        assert sensitivity(1, 1) < sensitivity(2, 16) < sensitivity(2, 1) < sensitivity(4, 1)
        assert sensitivity(100, 16) == sensitivity(4, 16)  # no more than ⌈64/16⌉ fit


@tabled(
    ("call", "error", "message"),
    [
        (lambda: tree_sensitivity(0), ValueError, "steps must be at least 1, got steps=0"),
        (lambda: tree_sensitivity(8, 0), ValueError, "participations must be at least 1, got participations=0"),
        (lambda: tree_sensitivity(8, 1, 0), ValueError, "min_separation must be at least 1, got min_separation=0"),
        (lambda: toeplitz_sensitivity([]), ValueError, "coefficients must be a nonempty vector"),
        (lambda: toeplitz_sensitivity([[1.0]]), ValueError, "coefficients must be a nonempty vector"),
        (lambda: toeplitz_sensitivity([1.0, math.nan]), ValueError, "coefficients must be .* finite"),
        (lambda: toeplitz_sensitivity([1.0, 1.1]), ValueError, "coefficients must be nonnegative and nonincreasing"),
        (lambda: toeplitz_sensitivity([1.0, -0.1]), ValueError, "coefficients must be nonnegative and nonincreasing"),
        (lambda: at_most(0, [Gaussian(1.0)]), ValueError, "participations must be at least 1"),
        (lambda: group(Gaussian(1.0), 0), ValueError, "size must be at least 1, got size=0"),
        (lambda: group(Gaussian(1.0), 1.5), TypeError, "size must be a whole number, got size=1.5"),
    ],
)
def test_bad_arguments_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_rounds_of_which_a_person_is_in_a_few():
    rounds = [Gaussian(2.0), Gaussian(1.0), Gaussian(3.0), Gaussian(1.5)]
    assert gdp(at_most(1, rounds)) == 1.0
    # an upper bound on every pair of rounds
    for pair in itertools.combinations(rounds, 2):
        assert gdp(at_most(2, rounds)) >= gdp(sum(pair, Composed()))
    assert at_most(3, [Laplace(1.0)] * 50) == 3 * Laplace(1.0)
    assert at_most(10, [Laplace(1.0)] * 4) == 4 * Laplace(1.0)
    assert at_most(3, []) == Composed()


def test_groups():
    assert group(Gaussian(6.0) + Laplace(3.0), 3) == Gaussian(2.0) + Laplace(1.0)
    assert group(5 * PureDP(0.5), 2) == 5 * PureDP(1.0)
    assert group(NoisyMax(0.5), 2) == NoisyMax(1.0)
    assert group(ZCDP(0.1), 3) == ZCDP(9 * 0.1)
    assert group(RandomizedResponse(1.0, 4), 3) == 3 * RandomizedResponse(1.0, 4)
    assert group(ShuffledBinomial(1000, 2.0, 3), 2) == ShuffledBinomial(1000, 4.0, 3)
    assert group(Gaussian(1.0, adjacency="replace"), 2).adjacency == "replace"
    grown = group(ApproxDP(0.5, 1e-6), 3)
    assert grown.epsilon == 1.5
    assert grown.delta == pytest.approx(1e-6 * (1 + math.exp(0.5) + math.exp(1.0)), rel=1e-9)
    tree = group(TreeAggregation(5.0, 64), 2, min_separation=8)
    assert gdp(tree) == pytest.approx(tree_sensitivity(64, 2, 8) / 5.0)


@pytest.mark.slow
@given(size=st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_a_group_of_one_is_a_row_and_larger_groups_cost_more(size):
    for release in (Gaussian(3.0), Laplace(4.0), NoisyMax(0.1), PureDP(0.1), TreeAggregation(9.0, 40)):
        assert epsilon(group(release, 1), 1e-6, accountant="rdp") == pytest.approx(
            epsilon(release, 1e-6, accountant="rdp"), rel=1e-12
        )
        larger, smaller = (epsilon(group(release, n), 1e-6, accountant="rdp") for n in (size + 1, size))
        assert larger >= smaller


@pytest.mark.parametrize(
    "release",
    [PoissonSubsampled(Gaussian(1.0), 0.1), parallel(Gaussian(1.0), Laplace(1.0)), LocalShuffled(1.0, 10)],
    ids=repr,
)
def test_groups_without_a_proof_are_refused(release):
    with pytest.raises(UnsupportedRelease, match="no group privacy is proved for"):
        group(release, 2)
    with pytest.raises(UnsupportedRelease, match="says nothing about a group of 10"):
        group(ApproxDP(2.0, 1e-3), 10)


def test_a_group_pays_for_the_rounding_of_each_of_its_members():
    """k rounded numbers move by up to k·(norm + √D) together, and no description of less may be given."""
    one = ShuffledBinomial(40_000, 10.0, 4, rounded=True)
    assert group(one, 3) == ShuffledBinomial(40_000, 3 * (10.0 + 2.0), 4)
    assert group(ShuffledBinomial(40_000, 10.0, 4), 3) == ShuffledBinomial(40_000, 30.0, 4)

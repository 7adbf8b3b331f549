"""Descriptions: value equality, canonical composition, adjacency, refusal of what no mechanism can mean."""

import copy
import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from accounting import (
    ZCDP,
    AdjacencyMismatch,
    ApproxDP,
    DiscreteGaussian,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    NoisyMax,
    PureDP,
    RandomizedResponse,
    TreeAggregation,
    compose,
    parallel,
)
from accounting.compose.failures import split_failures
from accounting.releases import Composed

EXAMPLES = [
    Gaussian(1.5),
    DiscreteGaussian(2.0),
    GeneralizedGaussian(3.0),
    Laplace(0.5),
    NoisyMax(0.3),
    NoisyMax(0.3, noise="laplace"),
    RandomizedResponse(1.0, 4),
    PureDP(0.7),
    ZCDP(0.1),
    ApproxDP(0.5, 1e-7),
    TreeAggregation(5.0, 100),
]
releases = st.sampled_from(EXAMPLES)
terms = st.lists(st.tuples(releases, st.integers(0, 5)), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(terms=terms, order=st.randoms(use_true_random=False))
def test_the_order_of_composition_is_irrelevant(terms, order):
    shuffled = list(terms)
    order.shuffle(shuffled)
    total, other = (sum((count * release for release, count in some), Composed()) for some in (terms, shuffled))
    assert total == other
    assert hash(total) == hash(other)
    assert repr(total) == repr(other)


@settings(max_examples=40, deadline=None)
@given(a=terms, b=terms, c=terms)
def test_composition_is_associative(a, b, c):
    a, b, c = (sum((count * release for release, count in some), Composed()) for some in (a, b, c))
    assert (a + b) + c == a + (b + c)


@given(release=releases, m=st.integers(0, 50), n=st.integers(0, 50))
def test_multiples_add(release, m, n):
    assert m * release + n * release == (m + n) * release
    assert m * (n * release) == (m * n) * release


def test_repeated_addition_is_a_multiple():
    assert Gaussian(2.0) + Gaussian(2.0) + Gaussian(2.0) == 3 * Gaussian(2.0) == Gaussian(2.0) * 3
    assert sum([Gaussian(2.0)] * 4) == 4 * Gaussian(2.0)
    assert 1 * Gaussian(2.0) == Gaussian(2.0)
    assert 0 * Gaussian(2.0) == Composed()
    assert Gaussian(2.0) + 0 * Laplace(1.0) == Gaussian(2.0)
    assert Gaussian(2) == Gaussian(2.0)


def test_a_million_releases_are_one_count():
    assert (1_000_000 * Gaussian(2.0)).parts == ((Gaussian(2.0), 1_000_000),)


def test_parallel_is_a_set_and_flattens():
    a, b, c = Gaussian(1.0), Laplace(1.0), PureDP(1.0)
    assert parallel(a, parallel(b, c)) == parallel(c, b, a, a)
    assert parallel(a, a) == a


@pytest.mark.parametrize(
    "release", [*EXAMPLES, EXAMPLES[0] + EXAMPLES[3], parallel(EXAMPLES[0], EXAMPLES[3])], ids=repr
)
def test_descriptions_are_frozen_values(release):
    assert pickle.loads(pickle.dumps(release)) == copy.deepcopy(release) == release
    with pytest.raises(AttributeError):
        release.adjacency = "replace"


def test_repr_shows_what_was_stated():
    assert repr(Gaussian(1.5)) == "Gaussian(noise_multiplier=1.5)"
    assert repr(Gaussian(1.5, adjacency="replace")) == "Gaussian(noise_multiplier=1.5, adjacency='replace')"
    assert repr(2 * Gaussian(1.5) + PureDP(1.0)) == "(2 * Gaussian(noise_multiplier=1.5) + PureDP(epsilon=1.0))"
    assert repr(parallel(Laplace(1.0), PureDP(1.0))) == "parallel(Laplace(noise_multiplier=1.0), PureDP(epsilon=1.0))"


# ---------------------------------------------------------------------------------------------------- adjacency


def test_one_stated_adjacency_spreads_over_a_composition():
    total = Gaussian(1.0, adjacency="replace") + Laplace(1.0)
    assert total.adjacency == "replace"
    assert parallel(Gaussian(1.0), Laplace(1.0, adjacency="zero_out")).adjacency == "zero_out"
    assert (Gaussian(1.0) + Laplace(1.0)).adjacency is None


@pytest.mark.parametrize("combine", [lambda a, b: a + b, parallel, lambda a, b: 3 * a + 2 * b])
def test_mixed_adjacencies_are_refused(combine):
    with pytest.raises(AdjacencyMismatch, match="different adjacencies: 'add_remove' and 'replace'"):
        combine(Gaussian(1.0, adjacency="replace"), Laplace(1.0, adjacency="add_remove"))


def test_an_unknown_adjacency_is_refused():
    with pytest.raises(ValueError, match=r"adjacency must be one of .*, got adjacency='swap'"):
        Gaussian(1.0, adjacency="swap")


# ------------------------------------------------------------------------------------------------------ refusal


@tabled("kind", [Gaussian, DiscreteGaussian, GeneralizedGaussian, Laplace])
@tabled("noise", [0.0, -1.0, math.nan, math.inf])
def test_noise_must_be_positive_and_finite(kind, noise):
    with pytest.raises(ValueError, match=r"noise_multiplier must be .*, got noise_multiplier="):
        kind(noise)


@tabled(
    ("make", "error", "message"),
    [
        (lambda: Gaussian("1"), TypeError, "noise_multiplier must be a number, got noise_multiplier='1'"),
        (lambda: Gaussian(None), TypeError, "noise_multiplier must be a number, got noise_multiplier=None"),
        (lambda: NoisyMax(-1.0), ValueError, "epsilon must be positive and finite, got epsilon=-1.0"),
        (lambda: NoisyMax(1.0, noise="cauchy"), ValueError, "noise must be .*, got noise='cauchy'"),
        (lambda: RandomizedResponse(1.0, 1), ValueError, "categories must be at least 2, got categories=1"),
        (lambda: RandomizedResponse(1.0, 2.5), TypeError, "categories must be a whole number, got categories=2.5"),
        (lambda: PureDP(-0.1), ValueError, "epsilon must be nonnegative and finite, got epsilon=-0.1"),
        (lambda: ZCDP(math.nan), ValueError, "rho must be a number, got rho=nan"),
        (lambda: ApproxDP(1.0, 1.0), ValueError, r"delta must lie in \[0, 1\), got delta=1.0"),
        (lambda: TreeAggregation(1.0, 0), ValueError, "steps must be at least 1, got steps=0"),
        (lambda: TreeAggregation(1.0, True), TypeError, "steps must be a whole number, got steps=True"),
        (lambda: -1 * Gaussian(1.0), ValueError, "count must be at least 0, got count=-1"),
        (lambda: 1.5 * Gaussian(1.0), TypeError, "count must be a whole number, got count=1.5"),
        (lambda: Gaussian(1.0) + 1, TypeError, "unsupported operand"),
        (lambda: 1 + Gaussian(1.0), TypeError, "unsupported operand"),
    ],
)
def test_refusals_name_the_parameter_its_value_and_the_bound(make, error, message):
    with pytest.raises(error, match=message):
        make()


# ------------------------------------------------------------------------------------------------------ failures


def test_failures_are_split_off_as_a_survival_probability():
    log_survival, rest = split_failures(3 * ApproxDP(0.5, 1e-7) + Gaussian(1.0))
    assert log_survival == pytest.approx(3 * math.log1p(-1e-7), rel=1e-15)
    assert rest == 3 * PureDP(0.5) + Gaussian(1.0)
    assert split_failures(Gaussian(1.0)) == (0.0, Gaussian(1.0))


def test_a_parallel_release_fails_as_often_as_its_worst_branch():
    log_survival, rest = split_failures(parallel(ApproxDP(0.5, 1e-7), ApproxDP(0.1, 1e-5)))
    assert log_survival == math.log1p(-1e-5)
    assert rest == parallel(PureDP(0.5), PureDP(0.1))


def test_tree_levels():
    for steps in range(1, 70):
        nodes = [(start, start + width) for width in (1, 2, 4, 8, 16, 32, 64) for start in range(0, steps, width)]
        complete = [node for node in nodes if node[1] <= steps]
        most = max(sum(start <= t < end for start, end in complete) for t in range(steps))
        assert TreeAggregation(1.0, steps).levels == most


@tabled(
    ("parts", "message"),
    [
        ([(Gaussian(1.0), 1)], "parts must be a tuple"),
        (((Gaussian(1.0), -100),), "count must be at least 1, got count=-100"),
        (((Gaussian(1.0), 0),), "count must be at least 1, got count=0"),
        (((Gaussian(1.0), 1.5),), "count must be a whole number"),
        ((("Gaussian", 1),), "release must be a description"),
        (((Gaussian(1.0) + Laplace(1.0), 1),), "parts must not be sums themselves"),
    ],
)
def test_sums_check_their_own_parts(parts, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Composed(parts)


def test_combinations_state_the_adjacency_of_their_parts():
    with pytest.raises(AdjacencyMismatch):
        Composed(((Gaussian(1.0, adjacency="replace"), 1),), adjacency="add_remove")
    assert Composed(((Gaussian(1.0, adjacency="replace"), 1),)).adjacency == "replace"
    assert Composed(((Gaussian(1.0), 1), (Gaussian(1.0), 2))) == 3 * Gaussian(1.0)
    with pytest.raises(TypeError, match="release must be a description"):
        compose([("Gaussian", 1)])


def test_a_sum_survives_pickling_before_and_after_it_was_read():
    total = sum(Gaussian(1.0 + i) for i in range(2000))
    assert pickle.loads(pickle.dumps(total)) == total
    assert copy.deepcopy(total) == total

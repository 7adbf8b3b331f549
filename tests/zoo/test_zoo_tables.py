"""Faults of sums, means and variances are caught, and this project's queries do not have them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import zoo_tables as broken
from published import is_caught, lower_bound, same_coins

from accounting import Budget, PureDP
from dpkit import queries
from dpkit.geometry import LpBall
from dpkit.optimize import sufficient_statistics
from dpkit.sklearn import PrivatePCA

ONE = Budget(1.0, 0.0, adjacency="add_remove")
SWAPPED = Budget(1.0, 0.0)


def middle(outputs):
    return outputs


def audit_of(program, data, neighbour, *, trials=4_000, score=middle):
    program = partial(program, epsilon=1.0, rng=np.random.default_rng(1))
    return lower_bound(program, data, neighbour, trials=trials, delta=0.0, score=score)


# from 2¹⁴ on, 2⁻¹⁰ is half of the last digit of a sum of 24 bits
LARGE, SMALL = np.ones(2**14), np.full(2**14, 2.0**-10)
SMALL_LAST, SMALL_FIRST = np.concatenate([LARGE, SMALL]), np.concatenate([SMALL, LARGE[1:]])


def test_sum_in_floats_is_caught():
    is_caught(audit_of(broken.sum_in_floats, SMALL_FIRST, SMALL_LAST), PureDP(1.0))


def test_sum_in_floats_is_not_ours():
    def total(rows, rng):
        return queries.sum(rows, bounds=(0.0, 1.0), budget=ONE, rng=rng).value

    for kind in (np.float32, np.float64):
        first, last = same_coins(total, SMALL_FIRST.astype(kind), SMALL_LAST.astype(kind))
        assert last - first == 1.0


def test_sum_that_wraps_around_is_caught():
    is_caught(audit_of(broken.sum_that_wraps_around, [2**28] * 7, [2**28] * 8), PureDP(1.0))


def test_sum_that_wraps_around_is_not_ours():
    def total(rows, rng):
        return queries.sum(rows, bounds=(0, 2**28), budget=ONE, rng=rng).value

    seven, eight = same_coins(total, *(np.full(n, 2**28, dtype=np.int32) for n in (7, 8)))
    assert eight - seven == 2**28
    with pytest.raises(ValueError, match=r"at most 2\*\*53"):
        total(np.full(3, 2**62), np.random.default_rng(0))


ROUNDED = np.full(1024, 2.0**50 + 0.25)
TURNED = np.concatenate([[2.0**50], ROUNDED[1:]])


def test_deviations_from_a_rounded_mean_is_caught():
    # 0 against 63.9: the mean is exact, or turned down for all
    found = audit_of(broken.deviations_from_a_rounded_mean, TURNED, ROUNDED)
    is_caught(found, PureDP(1.0))


def test_deviations_from_a_rounded_mean_is_not_ours():
    def spread(rows, rng):
        found = queries.variance(rows, bounds=(2.0**50, 2.0**50 + 1), budget=SWAPPED, rng=rng)
        return found.interval()[1]

    one, other = same_coins(spread, ROUNDED, TURNED)
    assert abs(one - other) <= 1 / 1024


def test_mean_with_the_number_at_hand_is_caught():
    found = audit_of(
        broken.mean_with_the_number_at_hand, [1.0], [1.0, 0.0], trials=20_000, score=lambda y: np.abs(y - 0.5)
    )
    is_caught(found, PureDP(1.0))


def means(rows, trials):
    source = np.random.default_rng(len(rows))
    return np.array([queries.mean(rows, bounds=(0.0, 1.0), budget=ONE, rng=source).value for _ in range(trials)])


def test_mean_with_the_number_at_hand_is_not_ours():
    one, two = np.array([1.0]), np.array([1.0, 0.0])
    # the noise is on a sum and a number of rows, and the same for either
    assert (
        queries.mean(one, bounds=(0.0, 1.0), budget=ONE).cost == queries.mean(two, bounds=(0.0, 1.0), budget=ONE).cost
    )
    assert (means(two, 20) >= 0.0).all()


@pytest.mark.slow
def test_mean_with_the_number_at_hand_is_not_ours_in_many_runs():
    pair = np.array([1.0]), np.array([1.0, 0.0])
    for sign in (1, -1):
        found = lower_bound(means, *pair, trials=10_000, delta=0.0, score=lambda y, sign=sign: sign * np.abs(y - 0.5))
        found.check(1.0)


OUTSIDE = [[1000.0, 1000.0], [0.2, 0.4], [0.9, 0.1]]
INSIDE = [[0.5, 0.5], *OUTSIDE[1:]]


def test_covariance_of_what_was_not_cut_is_caught():
    is_caught(audit_of(broken.covariance_of_what_was_not_cut, OUTSIDE, INSIDE), PureDP(1.0))


def test_covariance_of_what_was_not_cut_is_not_ours(declared):
    for rows in (OUTSIDE, INSIDE):
        PrivatePCA(2, budget=Budget(1.0, 1e-6), bounds=([0, 0], [1, 1]), random_state=0).fit(np.array(rows))
    assert max(declared.distances()) <= 1


def test_squares_by_the_lower_bound_is_caught():
    is_caught(audit_of(broken.squares_by_the_lower_bound, [10.0, 2.0], [1.0, 2.0]), PureDP(1.0))


def test_squares_by_the_lower_bound_is_not_ours(declared):
    for row, other in ((10.0, 1.0), (1.0, -50.0), (10.0, -50.0)):
        declared.clear()
        for first in (row, other):
            sufficient_statistics(
                np.array([[first], [2.0]]),
                np.array([1.0, 2.0]),
                constraint=LpBall(2, 1, 1.0),
                budget=Budget(1.0, 1e-6),
                label_bound=2.0,
                row_norm=10.0,
                rng=np.random.default_rng(0),
            )
        assert max(declared.distances()) <= 1


def test_wishart_noise_is_caught():
    # a second moment below the neighbour's in its direction: impossible there
    found = audit_of(broken.wishart_noise, [[1.0, 0.0]], [[0.0, 1.0]], score=lambda y: (y[:, 1, 1] < 1).astype(float))
    is_caught(found, PureDP(1.0))


def test_wishart_noise_is_not_ours(declared):
    for row in ([1.0, 0.0], [0.0, 1.0]):
        rows = np.array([row, [0.5, 0.5]])
        PrivatePCA(2, budget=Budget(1.0, 1e-6), bounds=([-1, -1], [1, 1]), random_state=0).fit(rows)
    # a Gaussian mechanism, of which every matrix may come
    assert max(declared.distances()) <= 1


def test_bounds_that_are_the_data_is_caught():
    found = audit_of(
        broken.bounds_that_are_the_data, [0.1, 0.5, 0.9], [0.1, 0.5], score=lambda y: (y[:, 2] == 0.9).astype(float)
    )
    is_caught(found, PureDP(3.0))


def test_bounds_that_are_the_data_is_not_ours():
    rows = np.array([0.1, 3.3, 17.0])
    with pytest.raises(TypeError, match="bounds"):
        queries.mean(rows, budget=SWAPPED)
    # what is found are powers of two, whatever the rows are
    low, high = queries.private_bounds(rows, budget=Budget(1.0, 0.0)).value
    assert {abs(low), abs(high)} <= {2.0**j for j in range(1001)}


ALL_VALUES = [(f"person {i}", i) for i in range(100)]
TAKER = [("x", i) for i in range(100)]


def test_values_that_one_person_takes_along_is_caught():
    is_caught(audit_of(broken.values_that_one_person_takes_along, ALL_VALUES, ALL_VALUES + TAKER), PureDP(1.0))


@pytest.mark.filterwarnings("ignore:epsilon is so large")
def test_values_that_one_person_takes_along_is_not_ours():
    # without noise to speak of: one person moves one count by one
    budget = Budget(60.0, 0.0, adjacency="add_remove", unit="person")
    counts = []
    for rows in (ALL_VALUES, ALL_VALUES + TAKER):
        people, values = zip(*rows, strict=True)
        found = queries.count(
            np.array(values),
            groups=np.array(values),
            keys=range(100),
            person=np.array(people),
            max_groups=1,
            max_per_group=1,
            budget=budget,
        )
        counts.append(np.array(found.value))
    assert np.abs(counts[1] - counts[0]).sum() == 1

"""Running sums of records of any kind: what is summed, how noisy it is, what it costs, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Budget, BudgetExceeded, Gaussian, Ledger, calibrate
from dpkit.moments.records import RecordSums

BUDGET = Budget(1.0, 1e-6)


def sums(sensitivity: float = 2.0, seed: int = 0, **more) -> RecordSums:
    parameters = {"budget": BUDGET, "releases": 4, "horizon": 1000, "rng": np.random.default_rng(seed)} | more
    return RecordSums(3, sensitivity, **parameters)


def test_what_is_released_is_the_sum_of_all_records_so_far():
    """With ε = 5·10³, hence nearly without noise."""
    made, rng, total = sums(budget=Budget(5e3, 1e-6)), np.random.default_rng(1), np.zeros(3)
    for _ in range(4):
        for _ in range(50):
            z = rng.uniform(-0.8, 0.8, 3)
            made.add(z)
            total += z
        released = made.release()
        np.testing.assert_allclose(released.sums, total, atol=8.0 * released.noise + 1e-6)
    assert released.noise < 0.1


@pytest.mark.thorough
def test_noise_is_as_stated_and_the_cost_is_the_budget():
    """Over 4,000 streams the standard deviation of an entry is within 6.2/√8000 of what is stated: a false alarm below
    10⁻⁹."""
    seen = []
    made = sums()
    fresh = made.kept()
    for _ in range(4000):
        made.resume(fresh)
        seen.append(made.release().sums[0])
    stated = made.sums.noise_std(1)
    assert abs(np.std(seen) / stated - 1.0) <= 6.2 / math.sqrt(8000)
    z = calibrate(lambda z: Gaussian(z, adjacency="replace"), BUDGET)
    assert made.cost == Gaussian(z, adjacency="replace")


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 100), sensitivity=st.floats(1e-3, 1e3))
def test_a_record_moves_the_sum_by_the_sensitivity_whatever_the_rounding(seed, n, sensitivity):
    rng = np.random.default_rng(seed)
    longest = sensitivity / math.sqrt(2.0)

    def record():
        z = rng.normal(size=3)
        return z * longest * rng.random() / np.linalg.norm(z)

    def batch(records):
        made, seen = sums(sensitivity), []
        for z in records:
            made.add(z)
        made.sums.add = lambda z: (seen.append(z), z)[1]
        made.release()
        return seen[0]

    others, one, other = [record() for _ in range(n)], record(), record()
    one, other = (one, other) if rng.random() < 0.5 else (one, one * 0.0)
    order = rng.permutation(n)
    moved = np.linalg.norm(batch([*others, one]) - batch([other, *(others[i] for i in order)]))
    stated = sums(sensitivity).sums.sensitivity
    assert moved <= np.linalg.norm(one - other) + (stated - sensitivity)
    assert sensitivity < stated <= sensitivity * (1 + 1e-6)


def test_a_state_goes_on_and_one_of_another_unit_is_refused():
    made, again = sums(), sums()
    made.add([0.5, 0.5, 0.0])
    again.resume(made.kept())
    assert made.release().sums.tolist() == again.release().sums.tolist()
    with pytest.raises(ValueError, match="units"):
        sums(1.0).resume(made.kept())


@pytest.mark.parametrize("record", [[1.0, 1.0, 0.2], [math.nan, 0.0, 0.0], [math.inf, 0.0, 0.0], [0.0, 0.0], 1.0])
def test_records_that_are_none_are_refused_and_change_nothing(record):
    made = sums()
    made.add([0.1, 0.2, 0.3])
    before = made.batch.copy()
    with pytest.raises(ValueError, match="record must"):
        made.add(record)
    assert made.batch.tolist() == before.tolist()


def test_zeroed_out_records_may_be_as_long_as_the_sensitivity():
    made = sums(budget=Budget(1.0, 1e-6, adjacency="zero_out"))
    made.add([2.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="record must"):
        made.add([2.1, 0.0, 0.0])


def test_parameters_and_the_ledger():
    for wrong in ({"releases": -1}, {"horizon": 0}, {"budget": 1.0}):
        with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
            sums(**wrong)
    with pytest.raises(ValueError, match="sensitivity"):
        sums(0.0)
    ledger = Ledger(BUDGET)
    made = sums(ledger=ledger)
    assert ledger.total == made.cost
    with pytest.raises(BudgetExceeded):
        sums(ledger=ledger)

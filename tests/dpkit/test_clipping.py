"""What is cut to a bound is at most that bound as a real number: checked in rational arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpkit.clipping import clipped, clipped_slope, lengths, shortened, within_norm
from dpkit.training import whole_rows
from dpkit.training.whole_rows import UnitRows, whole_product

finite = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=True)
sizes = st.one_of(finite, st.sampled_from([5e-324, 2.2e-308, 1e-162, 1e-154, 1e154, 1e160, 1.7976931348623157e308]))
rows = st.integers(1, 6).flatmap(lambda d: arrays(np.float64, st.tuples(st.integers(1, 4), st.just(d)), elements=sizes))
bounds = st.floats(1e-200, 1e200)
HUGE = np.full((2, 5), 1.7976931348623157e308)


def power(x, q=2):
    """Σ|x_j|^q, exactly."""
    return sum(abs(Fraction(float(v))) ** q for v in x)


def times(slope, x):
    with np.errstate(all="ignore"):
        return slope * x


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("scale", [1.0, 1e-200])
def test_the_length_of_a_row_does_not_depend_on_the_others(order, scale):
    """Else a row that comes would move the rounding of others: one alone in its part was added up in another order."""
    X = np.asarray(np.random.default_rng(0).normal(size=(40, 40)) * scale, order=order)
    together = lengths(X)
    assert all(lengths(X[i : i + 1])[0] == together[i] for i in range(len(X)))


@settings(max_examples=60, deadline=None)
@given(rows)
@example(HUGE)
@example(np.full((1, 3), 5e-324))
@example(np.array([[1.95460232e-107]]))  # its cube has few digits
def test_lengths_are_never_short(X):
    for q in (1, 2, 3):
        for x, found in zip(X, lengths(X, q), strict=True):
            assert found == math.inf or Fraction(float(found)) ** q >= power(x, q)
            if found < 1e300:
                assert found < 1e-100 or Fraction(float(found)) ** q <= power(x, q) * Fraction(1 + 1e-11) ** q
    assert (lengths(X, math.inf) >= np.abs(X).max(axis=1)).all()


@pytest.mark.thorough
@settings(max_examples=100, deadline=None)
@given(rows, bounds)
@example(HUGE, 1.0)
@example(np.array([[1.0, 0.0]]), 1.0)
@example(np.array([[0.6, 0.8], [3.0, 4.0]]), 1.0)
def test_shortened_rows_and_vectors_within_a_norm(X, bound):
    cut, found = shortened(X, bound)
    for x in cut:
        assert power(x) <= Fraction(bound) ** 2
    assert (found <= bound).all()
    for q in (1, 2, 3):
        for x in within_norm(X, float(q), bound, clip=True):
            assert power(x, q) <= Fraction(bound) ** q
    assert (np.abs(within_norm(X, math.inf, bound, clip=True)) <= bound).all()


@pytest.mark.thorough
@settings(max_examples=100, deadline=None)
@given(rows, bounds, st.data())
@example(HUGE, 1.0, None)
def test_no_clipped_gradient_passes_the_bound(X, bound, data):
    slopes = np.full(len(X), math.inf)
    if data is not None:
        slopes = data.draw(arrays(np.float64, len(X), elements=st.floats(allow_nan=True, allow_infinity=True)))
    found = lengths(X)
    cut, count = clipped(slopes, found, bound)
    single = [clipped_slope(float(psi), float(length), bound) for psi, length in zip(slopes, found, strict=True)]
    assert [psi for psi, _ in single] == cut.tolist()
    assert sum(was for _, was in single) == count
    for psi, x in zip(cut, X, strict=True):
        assert power(times(psi, x)) <= Fraction(bound) ** 2


@pytest.mark.thorough
@settings(max_examples=100, deadline=None)
@given(rows, bounds, st.data())
@example(HUGE, 1.0, None)
def test_whole_rows_hold_the_sensitivity_as_real_numbers(X, bound, data):
    slopes = np.full(len(X), math.inf)
    if data is not None:
        slopes = data.draw(arrays(np.float64, len(X), elements=st.floats(allow_nan=True, allow_infinity=True)))
    held = UnitRows(X)
    assert np.array_equal(held.units, np.trunc(held.units))
    for u in held.units:
        assert power(u) <= Fraction(2) ** 36
    total, _ = held.gradient_sum(slopes, bound)
    for i in range(len(X)):
        others = np.arange(len(X)) != i
        without, _ = UnitRows(X[others]).gradient_sum(slopes[others], bound)
        difference = [Fraction(float(a)) - Fraction(float(b)) for a, b in zip(total, without, strict=True)]
        assert sum(v * v for v in difference) <= Fraction(held.sensitivity(bound, replaced=False)) ** 2
        swapped = slopes.copy()
        swapped[i] = -slopes[i]
        other, _ = held.gradient_sum(swapped, bound)
        difference = [Fraction(float(a)) - Fraction(float(b)) for a, b in zip(total, other, strict=True)]
        assert sum(v * v for v in difference) <= Fraction(held.sensitivity(bound, replaced=True)) ** 2
    assert held.sensitivity(bound, replaced=False) <= bound * (1 + 1e-7)


def test_whole_rows_are_close_to_the_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 7)) * 10.0 ** rng.uniform(-3, 3, size=(300, 1))
    theta, slopes = rng.normal(size=7), rng.normal(size=300)
    held = UnitRows(X)
    np.testing.assert_allclose(held.products(theta), X @ theta, atol=2e-5 * np.linalg.norm(X, axis=1).max())
    exact = sum(psi * x * min(1.0, 0.9 / (abs(psi) * np.linalg.norm(x))) for psi, x in zip(slopes, X, strict=True))
    total, count = held.gradient_sum(slopes, 0.9)
    np.testing.assert_allclose(total, exact, atol=300 * 0.9 * 2e-5)
    assert 0 < count < 300
    # an index array and a slice are the same rows
    part = held.gradient_sum(slopes[10:20], 0.9, slice(10, 20))[0]
    assert np.array_equal(part, held.gradient_sum(slopes[10:20], 0.9, np.arange(10, 20))[0])


def test_a_row_is_read_alike_wherever_it_stands():
    # the last digits of a product with a matrix depend on the other rows: on where a row stands, and how many there are
    rng = np.random.default_rng(1)
    X, theta = rng.normal(size=(41, 9)), rng.normal(size=9)
    held = UnitRows(X).products(theta)
    for n in range(1, 41):
        assert np.array_equal(UnitRows(X[n:]).products(theta), held[n:])
        assert np.array_equal(UnitRows(X).products(theta, np.arange(n)), held[:n])


def test_sums_are_exact_at_the_largest_size(monkeypatch):
    # 2¹⁶ rows of the largest products fill 52 bits; more rows are added as integers, here in many parts
    n = (1 << 16) + 3
    A, B = np.full(n, 2.0**18), np.full((n, 2), 2.0**18)
    B[0] -= 1.0
    assert whole_product(A, B).tolist() == [(n << 36) - (1 << 18)] * 2
    monkeypatch.setattr(whole_rows, "_BLOCK", 7)
    rng = np.random.default_rng(2)
    A, B = (rng.integers(-(2**18), 2**18, size=size, endpoint=True).astype(float) for size in (50, (50, 3)))
    assert whole_product(A, B).tolist() == (A.astype(int) @ B.astype(int)).tolist()
    monkeypatch.setattr(whole_rows, "_MOST", 49)
    with pytest.raises(ValueError, match=r"X must have at most 2\*\*26 rows"):
        UnitRows(B)


def test_the_margin_is_needed():
    # without it some row would be longer than its bound after clipping
    rng = np.random.default_rng(3)
    X = rng.normal(size=(2000, 6))
    naive = X * (1.0 / np.linalg.norm(X, axis=1))[:, None]
    assert any(power(x) > 1 for x in naive)
    assert all(power(x) <= 1 for x in shortened(X, 1.0)[0])

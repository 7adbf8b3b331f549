"""Discounted sums against dense matrices in rational numbers, the closed form of their noise, and what they cost."""

import math
from fractions import Fraction

import numpy as np
import pytest
from factors import Given, decoder, noise_by, step_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ellipk
from tabled import tabled

from accounting import Budget, Gaussian, Ledger, calibrate
from dpkit.continual import Discounted


def make(discount, *, shape=(), sensitivity=1.0, noise_multiplier=1.0, seed=0, **more):
    rng = np.random.default_rng(seed)
    return Discounted(
        discount=discount, shape=shape, sensitivity=sensitivity, noise_multiplier=noise_multiplier, rng=rng, **more
    )


def discounted_triangle(discount, steps):
    """A with the entries γ^(t−s), in rational numbers."""
    g = Fraction(discount)
    return [[g ** (t - s) if t >= s else Fraction(0) for s in range(steps)] for t in range(steps)]


def square_root(discount, steps):
    """C with the entries γ^(t−s) binom(2(t−s), t−s)/4^(t−s), in rational numbers."""
    g = Fraction(discount)
    c = [g**k * math.comb(2 * k, k) / Fraction(4) ** k for k in range(steps)]
    return [[c[t - s] if t >= s else Fraction(0) for s in range(steps)] for t in range(steps)]


def product(X, Y):
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*Y, strict=True)] for row in X]


@pytest.mark.parametrize("discount", [Fraction(1, 3), Fraction(9, 10), Fraction(999, 1000)])
def test_the_stated_coefficients_are_those_of_the_square_root(discount):
    C = square_root(discount, 9)
    assert product(C, C) == discounted_triangle(discount, 9)


def decoder_of(discount, steps, horizon=None, splits=None):
    sums = make(discount, shape=steps, horizon=horizon)
    sums.horizon = steps
    return sums, decoder(sums, steps, splits)


@tabled("horizon", [None, 30])
@tabled("discount", [0.25, 0.9, 0.99])
def test_it_is_the_matrix_mechanism_of_a_nonnegative_factor_with_columns_of_norm_at_most_one(discount, horizon):
    steps = 30
    sums, B = decoder_of(discount, steps, horizon)
    A = np.array(discounted_triangle(discount, steps), dtype=float)
    # estimates are A x + Bζ = B(C x + ζ): a changed input moves what is released by a column of C
    C = np.linalg.solve(B, A)
    assert np.linalg.norm(C, axis=0).max() <= 1
    assert C.min() >= -1e-12
    # columns of the square root, to the accuracy of the quadrature, but for their common scale
    root = np.array(square_root(discount, steps), dtype=float)
    np.testing.assert_allclose(C / C[0, 0], root, atol=0.01)
    np.testing.assert_allclose((C / C[0, 0])[:, 0], sums.coefficients(steps), atol=1e-12)
    # the closed form, in which rounding adds a thousandth at most
    stated = np.array([sums.noise_std(t + 1) for t in range(steps)])
    added = stated / np.linalg.norm(B, axis=1)
    assert added.min() >= 1
    assert added.max() <= 1.001


@given(data=st.data(), discount=st.floats(0.01, 0.9999), steps=st.integers(1, 140))
@settings(max_examples=15, deadline=None)
def test_many_inputs_at_once_are_as_many_single_ones(data, discount, steps):
    splits = data.draw(st.lists(st.integers(0, steps), max_size=3))
    B = decoder_of(discount, steps)[1]
    np.testing.assert_allclose(decoder_of(discount, steps, splits=splits)[1], B, atol=1e-9)
    x = np.random.default_rng(steps).normal(size=(steps, 3))
    sums = make(discount, shape=3)
    noise = np.random.default_rng(1).integers(-(2**34), 2**34, size=(steps, 3))
    noise_by(sums, Given(noise))
    released = np.vstack([sums.add_many(part) for part in np.split(x, sorted(splits))])
    lags = np.subtract.outer(np.arange(steps), np.arange(steps))
    A = np.where(lags >= 0, discount ** np.maximum(lags, 0.0), 0.0)
    step = step_of(sums)
    np.testing.assert_allclose(released, A @ x + B @ (step * noise), atol=2 * step * np.abs(B).sum(axis=1).max())


@tabled("discount", [1e-6, 0.5, 0.9, 0.99, 0.999, 0.9999, 1 - 1e-6])
@tabled("horizon", [None, 1, 10, 1000, 10**6])
def test_noise_is_at_most_the_elliptic_integral_for_any_horizon(discount, horizon):
    sums = make(discount, horizon=horizon)
    limit = 2 / math.pi * ellipk(discount**2)
    # rounding may add a thousandth, and the quadrature 10⁻⁴
    assert max(sums.noise_std(min(t, sums.horizon)) for t in (1, 7, 10**3, 10**6, 2**40)) <= 1.0011 * limit
    if horizon is None:
        assert sums.noise_std(2**40) >= limit  # no factorization has less


def test_noise_has_the_documented_levels():
    # (2/π)K(γ²), by scipy's ellipk; noise on every input alone would give 1/√(1 − γ²)
    for discount, stated, alone in ((0.9, 1.45, 2.29), (0.99, 2.14, 7.09), (0.999, 2.86, 22.4), (0.9999, 3.59, 70.7)):
        assert make(discount).noise_std(2**40) == pytest.approx(stated, rel=3e-3)
        assert 1 / math.sqrt(1 - discount**2) == pytest.approx(alone, rel=3e-3)


def test_the_closed_form_is_the_norm_of_the_exact_square_root():
    for discount in (0.5, 0.99, 0.999):
        for horizon in (1, 5, 400):
            k = np.arange(1, horizon)
            c = np.cumprod(np.append(1.0, discount * (1 - 0.5 / k)))
            assert make(discount, horizon=horizon).noise_std(horizon) == pytest.approx(c @ c, rel=2e-3)


def test_a_stream_costs_one_gaussian_and_forgets():
    budget = Budget(1.0, 1e-6)
    ledger = Ledger(budget)
    sums = Discounted.calibrated(budget=budget, discount=0.5, shape=(), sensitivity=1.0, ledger=ledger)
    assert ledger.total == sums.cost == Gaussian(calibrate(Gaussian, budget), adjacency="replace")
    quiet = make(0.5, noise_multiplier=1e-9)
    assert [round(float(quiet.add(x)), 6) for x in (8.0, 0.0, 0.0, 1.0)] == [8.0, 4.0, 2.0, 2.0]


@tabled("discount", [0.0, 1.0, -0.5, 1.5, math.nan, 1 - 1e-13, 1e-13, 1e-300])
def test_discounts_outside_of_the_open_interval_are_refused(discount):
    with pytest.raises(ValueError, match="discount must"):
        make(discount)

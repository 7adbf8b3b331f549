"""The fast product with a Toeplitz triangle, and the encoder that uses it, against exact integers."""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from factors import factorization_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from dpkit.continual import Toeplitz
from dpkit.continual._convolution import FAST, Convolution, Product, roots, rounding

SCALE = 200  # binary digits after the point of what is summed exactly

HOSTILE = {
    "ones": lambda rng, shape: np.ones(shape),
    "signs": lambda rng, shape: rng.choice([-1.0, 1.0], shape),
    "alternating": lambda rng, shape: np.cos(np.pi * np.arange(shape[0]))[:, None] * np.ones(shape),
    "magnitudes": lambda rng, shape: rng.choice([-1.0, 1.0], shape) * 10.0 ** rng.uniform(-25, 0, shape),
    "one": lambda rng, shape: (np.arange(shape[0])[:, None] == shape[0] // 3) * np.ones(shape),
    "tiny": lambda rng, shape: np.full(shape, 5e-324),
}


def square_root(horizon):
    return Toeplitz(horizon=horizon, shape=1, sensitivity=1.0, noise_multiplier=1.0).coefficients


def exact_product(c, v):
    """The first T terms of c(x)·v(x), times 2**SCALE, as integers: one product of two very long numbers."""
    return _product(*(tuple(map(float, values)) for values in (c, v)))


@lru_cache(maxsize=16)  # the same columns come in calls of many lengths
def _product(c, v):
    T, width = len(c), 8 * (2 * SCALE // 8 + 16)

    def pack(values):
        total, shifted = 0, [int(Fraction(float(value)) * 2**SCALE) for value in values]
        for sign in (1, -1):
            digits = b"".join(max(0, sign * value).to_bytes(width // 8, "little") for value in shifted)
            total += sign * int.from_bytes(digits, "little")
        return total

    # one more digit everywhere makes all of them positive
    offset = 1 << (width - 2)
    lifted = pack(c) * pack(v) + offset * (((1 << (width * 2 * T)) - 1) // ((1 << width) - 1))
    digits = lifted.to_bytes(width // 8 * 2 * T + 8, "little")
    size = width // 8
    return [(int.from_bytes(digits[i * size : (i + 1) * size], "little") - offset) >> SCALE for i in range(T)]


def distance(computed, exact):
    """The L2 distance of an array of floats from integers in units of 2**-SCALE."""
    squares = sum((int(Fraction(float(value)) * 2**SCALE) - k) ** 2 for value, k in zip(computed, exact, strict=True))
    return math.sqrt(squares / 4**SCALE)


def test_the_exact_product_is_exact():
    c, v = [1.0, 0.5, 0.25], [3.0, -1.0, 2.0**-60]
    expected = [Fraction(3), Fraction(1, 2), Fraction(1, 4) + Fraction(1, 2**60)]
    assert exact_product(c, v) == [value * 2**SCALE for value in expected]


@pytest.mark.parametrize("name", HOSTILE)
@tabled(("terms", "columns"), [(1, 2), (2, 1), (17, 3), (100, 2), (700, 2), (1300, 1)])
def test_the_product_is_as_close_to_the_exact_one_as_its_bound_says(name, terms, columns):
    c = square_root(terms)
    v = HOSTILE[name](np.random.default_rng(0), (terms, columns))
    found = Convolution(c)(v)
    size = math.ldexp(float(np.linalg.norm(np.ldexp(v, 200))), -200)
    total = math.hypot(*(distance(found[:, j], exact_product(c, v[:, j])) for j in range(columns)))
    # what is below 2^-1000 may be lost
    assert total <= rounding(c) * size + 2.0**-1000


def test_the_bound_is_not_far_from_what_happens():
    # so that a product in single precision, or roots that are wrong in the twelfth digit, would not pass
    c = square_root(700)
    v = HOSTILE["signs"](np.random.default_rng(0), (700, 1))
    error = distance(Convolution(c)(v)[:, 0], exact_product(c, v[:, 0]))
    assert 1e-5 < error / (rounding(c) * np.linalg.norm(v)) < 0.1


@given(seed=st.integers(0, 2**32), terms=st.integers(1, 300), columns=st.sampled_from([1, 2, 5, 129]))
@settings(max_examples=30, deadline=None)
def test_any_size_is_the_product_with_the_triangle(seed, terms, columns):
    rng = np.random.default_rng(seed)
    c, v = rng.normal(size=terms), rng.normal(size=(terms, columns))
    product = Product(c, columns)
    np.testing.assert_allclose(Convolution(c)(v), product.extend(0, v, None), atol=1e-11)


def cosine_and_sine(angle):
    """Of π·angle, by their series, in integers with 160 digits after the point."""
    one = 1 << 160

    def arctan_inverse(n):
        total, power, k = 0, one // n, 1
        while power:
            total += power // k if k % 4 == 1 else -(power // k)
            power //= n * n
            k += 2
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    x = int(pi * angle)
    cosine, sine, term, k = 0, 0, one, 0
    while term:
        cosine, sine = (cosine + (term, 0, -term, 0)[k % 4], sine + (0, term, 0, -term)[k % 4])
        k += 1
        term = term * x // (one * k)
    return Fraction(cosine, one), Fraction(sine, one)


@pytest.mark.parametrize("levels", [0, 1, 6, 20])
def test_the_roots_are_right_within_what_the_proof_allows(levels):
    found = roots(levels)
    indices = range(len(found)) if levels < 8 else np.random.default_rng(0).integers(0, len(found), 200).tolist()
    for i in indices:
        reversed_bits = int(format(i, f"0{levels}b")[::-1], 2) if levels else 0
        cosine, sine = cosine_and_sine(Fraction(reversed_bits, 2**levels))
        square = (Fraction(float(found[i].real)) - cosine) ** 2 + (Fraction(float(found[i].imag)) - sine) ** 2
        assert square <= Fraction(8, 2**53) ** 2


@pytest.mark.parametrize("name", ["ones", "signs", "alternating", "magnitudes"])
@tabled("calls", [(1400,), (600, 1, 799), (888, 512), (30, 1370)])
def test_rows_that_are_encoded_at_once_are_near_the_exact_ones(name, calls):
    """η: at most 1.5 in root mean square over a call, and half a step of rounding, at inputs as large as can be."""
    T = sum(calls)
    sums = Toeplitz(horizon=T, shape=2, sensitivity=1.0, noise_multiplier=1.0, rng=np.random.default_rng(0))
    factorization = factorization_of(sums)
    assert max(calls) >= FAST
    v = HOSTILE[name](np.random.default_rng(1), (T, 2)) * factorization.reach
    rows = []

    def noisy(k):
        rows.append(k.copy())
        return k

    start = 0
    for count in calls:
        factorization.many(start, v[start : start + count], noisy)
        start += count
    c = sums.coefficients
    exact = [exact_product(c, v[:, j]) for j in range(2)]
    start = 0
    for k in rows:
        squares = sum(
            (int(value) * 2**SCALE - exact[j][start + i]) ** 2 for j in range(2) for i, value in enumerate(k[:, j])
        )
        assert math.sqrt(squares / 4**SCALE / k.size) <= 0.5 + 1.5
        start += len(k)


def test_many_rows_at_once_are_as_many_single_ones():
    T = 2 * FAST
    x = np.random.default_rng(3).normal(size=(T, 3))
    sums, twin = (
        Toeplitz(horizon=T, shape=3, sensitivity=1.0, noise_multiplier=1e-9, rng=np.random.default_rng(0))
        for _ in range(2)
    )
    split = FAST + 7
    at_once = np.vstack([sums.add_many(x[:split]), sums.add_many(x[split:])])
    np.testing.assert_allclose(at_once, [twin.add(row) for row in x], atol=1e-6)
    np.testing.assert_allclose(at_once, np.cumsum(x, axis=0), atol=1e-6)

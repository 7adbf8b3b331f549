"""The divergence of Bernoulli laws, and the largest mean within a distance of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpkit.models.bernoulli import divergence, upper_mean


def exact(p: float, q: float) -> float:
    """d(p, q) from its definition."""
    total = 0.0
    for a, b in ((p, q), (1 - p, 1 - q)):
        if a > 0:
            total += math.inf if b == 0 else a * (math.log(a) - math.log(b))  # a / b may be too large
    return total


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_divergence_is_its_definition(p, q):
    assert float(divergence(p, q)) == pytest.approx(exact(p, q), rel=1e-9, abs=1e-12)
    assert float(divergence(p, q)) >= 2 * (p - q) ** 2 - 1e-12  # Pinsker


@given(st.floats(0, 1), st.floats(0, 60))
@example(1e-9, 1e-9)
@example(1 - 1e-9, 3.0)
@example(0.5, 1e-12)
@example(0.0, 0.7)
@example(1.0, 0.7)
@example(0.3, 0.0)
@example(0.3, 60.0)
def test_the_upper_mean_is_where_the_divergence_reaches_the_bound(p, bound):
    """By bisection, which needs no derivative."""
    low, high = p, 1.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if exact(p, middle) <= bound else (low, middle)
    found = float(upper_mean(p, bound))
    assert p <= found <= 1.0
    assert found == pytest.approx(low, abs=2e-8 if bound < 1e-9 else 1e-10)


def test_it_is_computed_entry_by_entry():
    p, bound = np.array([[0.0, 0.2], [0.6, 1.0]]), np.array([0.1, 0.3])
    found = upper_mean(p, bound)
    assert found.shape == (2, 2)
    assert found[0, 0] == -math.expm1(-0.1)
    assert found[1, 1] == 1.0
    assert found[0, 1] == upper_mean(0.2, 0.3)
    assert upper_mean(np.empty(0), 1.0).shape == (0,)

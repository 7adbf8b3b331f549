"""Each formula is an upper bound on random pairs of units, and some pair attains it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tabled import tabled

from dpkit.geometry import (
    one_hot_sensitivity,
    outer_product_sensitivity,
    pair_sensitivity,
    svec,
    vector_sensitivity,
)

ADJACENCIES = ["replace", "add_remove", "zero_out"]
scales = st.floats(1e-3, 1e3)
unit = st.floats(0, 1)
angles = st.sampled_from([0.0, math.pi / 2]) | st.floats(0, math.pi)
# a pair that attains a sensitivity has most numbers at their ends
ends, signs = st.sampled_from([0.0, 1.0]) | unit, st.sampled_from([-1.0, 1.0]) | st.floats(-1, 1)


def planar(length, angle):
    return length * np.array([math.cos(angle), math.sin(angle)])


def stacked(a, w, c, g, x):
    return np.concatenate([a * w * svec(np.outer(x, x)), c * g * x])


@given(scales, scales, scales, scales)
def test_some_pair_of_units_attains_the_pair_sensitivity(a, W, c, B):
    # the two candidates of the proof: one weight zero and opposite vectors, or both weights full at the best angle
    s = min(math.sqrt(0.5), (c * B) ** 2 / (2 * (a * W) ** 2))
    reached = max(
        np.linalg.norm(stacked(a, v, c, B, planar(1, 0.0)) - stacked(a, W, c, -B, planar(1, angle)))
        for v, angle in [(0.0, 0.0), (W, math.acos(s))]
    )
    assert reached == pytest.approx(pair_sensitivity(a, W, c, B, "replace"), rel=1e-9)


@pytest.mark.parametrize(("a", "W", "c", "B"), [(1, 1, 1, 1), (1, 0.3, 2, 0.9), (2, 1, 0.5, 1), (1, 1, 1.19, 1)])
def test_a_fine_grid_of_corners_confirms_the_pair_sensitivity(a, W, c, B):
    s = np.linspace(0, 1, 100_001)
    both = 2 * (a * W) ** 2 * (1 - s**2) + 2 * (c * B) ** 2 * (1 + s)
    one = (a * W) ** 2 + 2 * (c * B) ** 2 * (1 + s)
    assert pair_sensitivity(a, W, c, B, "replace") ** 2 == pytest.approx(max(both.max(), one.max()), rel=1e-9)


@given(
    *(scales, scales, scales, scales, ends, ends, ends, ends, ends, unit),
    *(signs, signs, angles),
)
def test_no_pair_of_units_is_farther_with_or_without_a_least_matrix(a, W, c, B, share, p, q, v, w, rho, g, h, angle):
    m, units = share * W, []
    # a gradient of length |γ| ≤ pB with a matrix of norm ω, mp² ≤ ω ≤ W, along unit vectors
    for q_, weight, gradient, x in ((p, v, g, planar(1, 0.0)), (q, w, h, planar(1, angle))):
        least = m * q_**2
        units.append(stacked(a, least + weight * (W - least), c, gradient * q_ * B, x))
    most = pair_sensitivity(a, W, c, B, "replace", least=m)
    assert most <= pair_sensitivity(a, W, c, B, "replace") * (1 + 1e-12)
    assert np.linalg.norm(units[0] - units[1]) <= most * (1 + 1e-12)
    # in different steps, with columns of inner product rho; and against nothing
    moved = np.concatenate([units[0] - rho * units[1], math.sqrt(1 - rho**2) * units[1]])
    assert np.linalg.norm(moved) <= most * (1 + 1e-12)
    assert np.linalg.norm(units[0]) <= most * (1 + 1e-12)
    assert np.linalg.norm(units[0]) <= pair_sensitivity(a, W, c, B, "zero_out") * (1 + 1e-12)


@pytest.mark.parametrize("least", [0.0, 0.3, 1.0])
def test_some_pair_with_a_least_matrix_attains_the_sensitivity(least):
    # a = c = W = B = 1, on a grid of the angle's cosine, for q = 1 and for the smaller q that go with smaller matrices
    s, reached = np.linspace(0, 1, 20_001), 0.0
    for q in np.linspace(0, 1, 101):
        for other in (least * q**2, 1.0):
            reached = max(reached, float((1 + other**2 - 2 * other * s**2 + 1 + q**2 + 2 * q * s).max()))
    assert pair_sensitivity(1, 1, 1, 1, "replace", least=least) ** 2 == pytest.approx(reached, rel=1e-6)


def test_a_least_matrix_above_the_largest_is_refused():
    with pytest.raises(ValueError, match=r"least must be at most weight=1, got least=1\.5"):
        pair_sensitivity(1, 1, 1, 1, "replace", least=1.5)


@given(scales)
def test_the_pair_without_one_part_is_the_other(scale):
    assert pair_sensitivity(0, 1, scale, 1, "replace") == pytest.approx(vector_sensitivity(scale, "replace"))
    assert pair_sensitivity(scale, 1, 0, 1, "replace") == pytest.approx(outer_product_sensitivity(scale, "replace"))


@given(scales, unit, unit, angles, unit, unit)
def test_no_two_outer_products_are_farther_apart(W, v, w, angle, p, q):
    x, y = planar(p, 0.0), planar(q, angle)
    distance = np.linalg.norm(v * W * np.outer(x, x) - w * W * np.outer(y, y))
    assert distance <= outer_product_sensitivity(W, "replace") * (1 + 1e-12)


def test_closed_forms():
    assert vector_sensitivity(3.0, "replace") == 6.0
    assert vector_sensitivity(3.0, "add_remove") == vector_sensitivity(3.0, "zero_out") == 3.0
    assert outer_product_sensitivity(0.5, "replace") == pytest.approx(0.5 * 2**0.5, rel=1e-15)
    assert outer_product_sensitivity(0.5, "zero_out") == 0.5
    assert pair_sensitivity(3, 1, 4, 1, "add_remove") == 5.0


@given(st.floats(1, 100), st.integers(2, 6))
def test_two_bins_attain_the_one_hot_sensitivity(q, bins):
    difference = np.eye(bins)[0] - np.eye(bins)[-1]
    assert one_hot_sensitivity(q, "replace") == pytest.approx(float(np.linalg.norm(difference, ord=q)))
    assert one_hot_sensitivity(q, "zero_out") == 1.0
    assert one_hot_sensitivity(math.inf, "replace") == 1.0


@tabled(
    "call",
    [
        lambda a: vector_sensitivity(1.0, a),
        lambda a: outer_product_sensitivity(1.0, a),
        lambda a: pair_sensitivity(1.0, 1.0, 1.0, 1.0, a),
        lambda a: one_hot_sensitivity(1, a),
    ],
)
@tabled("adjacency", ["swap", None, ""])
def test_an_unknown_adjacency_is_refused(call, adjacency):
    with pytest.raises(ValueError, match="adjacency must be one of"):
        call(adjacency)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bounds_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match=r"bound must be"):
        vector_sensitivity(bad, "replace")
    with pytest.raises(ValueError, match=r"weight must be"):
        outer_product_sensitivity(bad, "replace")
    if bad != 0:
        with pytest.raises(ValueError, match=r"matrix_scale must be"):
            pair_sensitivity(bad, 1, 1, 1, "replace")


@pytest.mark.parametrize("bad", [0.5, 0.0, -1.0, math.nan])
def test_norms_below_one_are_refused(bad):
    with pytest.raises(ValueError, match=r"norm must be"):
        one_hot_sensitivity(bad, "replace")

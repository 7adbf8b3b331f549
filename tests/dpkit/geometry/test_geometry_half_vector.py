import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpkit.geometry import smat, svec
from dpkit.geometry.half_vector import svec_of_rows

matrices = st.integers(1, 8).flatmap(
    lambda d: arrays(np.float64, (d, d), elements=st.floats(-1e6, 1e6, allow_subnormal=False))
)


@settings(max_examples=40)
@given(matrices)
def test_is_isometric_and_invertible_on_symmetric_matrices(M):
    M = M + M.T
    assert np.linalg.norm(svec(M)) == pytest.approx(np.linalg.norm(M), rel=1e-14)
    np.testing.assert_allclose(smat(svec(M)), M, rtol=1e-15)


@settings(max_examples=40)
@given(matrices)
def test_takes_the_symmetric_part_which_never_lengthens(M):
    np.testing.assert_allclose(smat(svec(M)), (M + M.T) / 2, rtol=1e-14, atol=1e-9)
    assert np.linalg.norm(svec(M)) <= np.linalg.norm(M) * (1 + 1e-14)


def test_order_is_the_diagonal_then_the_upper_triangle_row_by_row():
    M = np.array([[1, 4, 5], [4, 2, 6], [5, 6, 3]])
    np.testing.assert_allclose(svec(M) / [1, 1, 1, 2**0.5, 2**0.5, 2**0.5], [1, 2, 3, 4, 5, 6])


@given(st.lists(st.integers(0, 3), max_size=3), st.integers(1, 5))
def test_leading_axes_are_a_batch(leading, d):
    M = np.random.default_rng(0).normal(size=(*leading, d, d))
    M = M + np.swapaxes(M, -1, -2)
    half = svec(M)
    assert half.shape == (*leading, d * (d + 1) // 2)
    for index in np.ndindex(*leading):
        np.testing.assert_array_equal(half[index], svec(M[index]))
    np.testing.assert_allclose(smat(half), M, rtol=1e-14)


@given(st.integers(0, 4), st.integers(1, 6))
def test_of_rows_it_is_that_of_their_squares_to_the_last_digit(n, d):
    X = np.random.default_rng(0).normal(size=(n, d))
    np.testing.assert_array_equal(svec_of_rows(X), svec(X[:, :, None] * X[:, None, :]))


def test_matrices_come_back_exactly_symmetric_and_the_argument_is_left_alone():
    v = np.random.default_rng(1).normal(size=(4, 15))
    before = v.copy()
    M = smat(v)
    np.testing.assert_array_equal(M, np.swapaxes(M, -1, -2))
    np.testing.assert_array_equal(v, before)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 0), ()])
def test_svec_refuses_what_is_not_a_square(shape):
    with pytest.raises(ValueError, match=r"M must have shape \(\.\.\., d, d\)"):
        svec(np.zeros(shape))


@pytest.mark.parametrize("length", [0, 2, 5, 14])
def test_smat_refuses_lengths_that_are_no_triangle(length):
    with pytest.raises(ValueError, match="last axis of length"):
        smat(np.zeros(length))

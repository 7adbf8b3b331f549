"""The metric in which records are formed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbandits.mathematics.metric import levelling, symmetric_root


def moments(rng, d, rank=None) -> np.ndarray:
    root = rng.standard_normal((d, d if rank is None else rank))
    return root @ root.T


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 6), noise=st.sampled_from([1e-6, 0.1, 10.0]))
def test_arms_keep_their_lengths_on_average_and_long_directions_get_shorter(seed, d, noise):
    rng = np.random.default_rng(seed)
    H = moments(rng, d)
    A = levelling(H, noise)
    assert np.trace(A @ H @ A) == pytest.approx(np.trace(H))
    np.testing.assert_allclose(A, A.T, atol=1e-12)
    h, W = np.linalg.eigh(H)
    a = np.einsum("ij,jk,ki->i", W.T, A, W)
    assert a.min() > 0
    assert (np.diff(a) <= 1e-9).all()  # h ascends
    np.testing.assert_allclose(a**2 * (h + 20.0 * noise), a[0] ** 2 * (h[0] + 20.0 * noise), rtol=1e-6)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_it_turns_with_the_arms(seed):
    rng = np.random.default_rng(seed)
    H, (Q, _) = moments(rng, 4), np.linalg.qr(rng.standard_normal((4, 4)))
    np.testing.assert_allclose(levelling(Q @ H @ Q.T, 0.3), Q @ levelling(H, 0.3) @ Q.T, atol=1e-9)


def test_noise_that_hides_everything_leaves_the_plain_metric():
    H = np.diag([3.0, 1.0, -2.0])
    np.testing.assert_allclose(levelling(H, 1e9), np.eye(3), atol=1e-6)
    np.testing.assert_array_equal(levelling(-H @ H, 1.0), np.eye(3))


@given(seed=st.integers(0, 2**32 - 1), rank=st.integers(0, 4))
def test_a_symmetric_root(seed, rank):
    S = moments(np.random.default_rng(seed), 4, rank)
    root = symmetric_root(S)
    np.testing.assert_allclose(root @ root, S, atol=1e-9)
    np.testing.assert_allclose(root, root.T, atol=1e-9)

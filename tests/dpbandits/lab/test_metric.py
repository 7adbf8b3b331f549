"""The metric in which records are formed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbandits.private.parts.metric import carried, levelling, standing_out, symmetric_root
from dpbandits.private.parts.noisy_estimate import shrunken_eigenvalues


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
    np.testing.assert_allclose(a**2 * (h + noise), a[0] ** 2 * (h[0] + noise), rtol=1e-6)


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


# ------------------------------------------------------------------------------------------- what stands out of noise


@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 6), noise=st.sampled_from([0.0, 0.1, 10.0]))
def test_only_the_largest_eigenvalue_stands_out_and_by_what_noise_does_not_explain(seed, d, noise):
    eigenvalues, none = np.sort(np.random.default_rng(seed).exponential(5.0, d)), np.zeros(d)
    out = standing_out(eigenvalues, noise, none)
    assert (out >= 0.0).all()
    assert (out[:-1] == out[0]).all()
    assert out[-1] >= out[0]
    if d > 1:
        assert out[:-1].sum() == pytest.approx(eigenvalues[:-1].sum())
        assert out[-1] == pytest.approx(max(out[0], eigenvalues[-1] - 3.0 * noise))
        # arms that are alike in all directions leave the metric as it was
        alike = standing_out(np.full(d, 2.0), noise, none)
        np.testing.assert_allclose(levelling(np.diag(alike), 0.1), np.eye(d), atol=1e-12)


@given(angle=st.floats(0.0, math.pi), length=st.floats(1e-3, 1e3))
def test_what_stands_out_along_theta_is_what_the_play_has_chosen(angle, length):
    eigenvalues, theta = np.array([2.0, 4.0, 50.0]), length * np.array([0.0, math.sin(angle), math.cos(angle)])
    out = standing_out(eigenvalues, 1.0, theta)
    np.testing.assert_allclose(out, [3.0, 3.0, 3.0 + 44.0 * math.sin(angle) ** 2], atol=1e-9)


@pytest.mark.parametrize("size", [0.0, 30.0])
def test_noise_alone_makes_hardly_a_metric_and_a_common_direction_makes_one(size):
    """Forty noisy moments with d = 5; largest over smallest length, on average: 1.2 and 2.0 were found."""
    rng, ratios = np.random.default_rng(0), []
    for _ in range(40):
        N = rng.standard_normal((5, 5))
        H = 5.0 * np.eye(5) + (N + N.T) / 2.0
        H[0, 0] += size
        eigenvalues, U = np.linalg.eigh(H)
        told = standing_out(shrunken_eigenvalues(eigenvalues, 1.0), 1.0, np.zeros(5))
        a = np.linalg.eigvalsh(levelling((U * told) @ U.T, 1.0))
        ratios.append(a[-1] / a[0])
    assert (np.mean(ratios) < 1.3) if size == 0.0 else (np.mean(ratios) > 1.7)


# ---------------------------------------------------------------------------------------- from one metric to the next


def metrics(rng, d, count) -> list[np.ndarray]:
    return [symmetric_root(moments(rng, d) + 0.1 * np.eye(d)) for _ in range(count)]


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 5))
def test_noise_goes_along_as_if_there_had_been_one_metric_all_the_time(seed, d):
    """b is summed from differences of noisy releases, each in the metric of its batch, and the metric changes twice."""
    rng = np.random.default_rng(seed)
    noise = np.concatenate([np.zeros((1, d)), rng.standard_normal((6, d))])
    H, b, plain = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    first, second, third = metrics(rng, d, 3)
    A = first
    for k, following in enumerate([first, first, second, second, third, third], start=1):
        b, plain = b + np.linalg.solve(A, noise[k] - noise[k - 1]), plain + np.linalg.solve(A, noise[k] - noise[k - 1])
        if following is not A:
            H, b = carried(A, following, H, b)
            A = following
    np.testing.assert_allclose(b, np.linalg.solve(A, noise[6]), rtol=1e-6, atol=1e-6)
    assert np.abs(plain - b).max() > 1e-6


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 5))
def test_the_parameter_stays_where_metrics_follow_the_second_moment(seed, d):
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    h, a, following = rng.uniform(0.5, 3.0, (3, d))
    H, theta = (Q * h) @ Q.T, rng.standard_normal(d)
    moved, b = carried((Q * a) @ Q.T, (Q * following) @ Q.T, H, H @ theta)
    np.testing.assert_allclose(np.linalg.solve(moved, b), theta, atol=1e-9)
    np.testing.assert_array_equal(moved, moved.T)


@given(seed=st.integers(0, 2**32 - 1), rank=st.integers(0, 4))
def test_a_symmetric_root(seed, rank):
    S = moments(np.random.default_rng(seed), 4, rank)
    root = symmetric_root(S)
    np.testing.assert_allclose(root @ root, S, atol=1e-9)
    np.testing.assert_allclose(root, root.T, atol=1e-9)

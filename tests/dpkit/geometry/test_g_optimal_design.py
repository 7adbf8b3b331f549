"""G-optimal designs: the theorem of Kiefer and Wolfowitz, and arms that do not span the space."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regret import ball

from dpkit.geometry import g_optimal_design


def largest(arms, weights):
    """max ‖x‖²_{V(π)⁻¹}, with the inverse in the span of the arms."""
    V = (arms.T * weights) @ arms
    return np.einsum("ij,ij->i", arms @ np.linalg.pinv(V, rcond=1e-9, hermitian=True), arms).max()


@settings(deadline=None, max_examples=60)
@given(
    K=st.integers(1, 60),
    d=st.integers(1, 6),
    rank=st.integers(1, 6),
    tolerance=st.sampled_from([1.0, 0.1, 1e-4]),
    seed=st.integers(0, 10_000),
)
def test_the_largest_norm_is_near_the_rank(K, d, rank, tolerance, seed):
    rng = np.random.default_rng(seed)
    rank = min(rank, d, K)
    arms = rng.standard_normal((K, rank)) @ rng.standard_normal((rank, d))
    weights = g_optimal_design(arms, tolerance=tolerance)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    # no design does better than the rank, and this one is within the tolerance
    assert rank * (1 - 1e-6) <= largest(arms, weights) <= rank * (1 + tolerance) * (1 + 1e-6)


def test_known_optima():
    np.testing.assert_allclose(g_optimal_design(np.eye(4), tolerance=1e-6), 0.25)
    # a long arm needs no more plays than a short one: only directions count
    np.testing.assert_allclose(g_optimal_design(np.diag([1.0, 0.01]), tolerance=1e-6), 0.5)
    # 60 points on a circle: any optimum has V = I/2
    angle = np.arange(60) * np.pi / 30
    arms = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    weights = g_optimal_design(arms, tolerance=1e-7)
    np.testing.assert_allclose((arms.T * weights) @ arms, np.eye(2) / 2, atol=1e-3)


def test_many_arms_in_twenty_dimensions():
    arms = ball(np.random.default_rng(0), 1000, 20)
    weights = g_optimal_design(arms)
    assert largest(arms, weights) <= 22 * (1 + 1e-9)
    assert (weights > 0).sum() <= 20 * 21 / 2  # Carathéodory: so many arms suffice


@pytest.mark.parametrize("arms", [np.zeros((3, 2)), np.ones((1, 1)), np.ones((5, 3)), [[1.0, 0.0], [2.0, 0.0]]])
def test_degenerate_sets(arms):
    weights = g_optimal_design(arms)
    assert weights.sum() == pytest.approx(1)
    assert weights.min() >= 0
    if np.any(arms):
        assert largest(np.asarray(arms), weights) <= 1.1


@pytest.mark.parametrize(
    ("arms", "tolerance", "message"),
    [
        (np.ones(3), 0.1, r"arms must have shape \(K, d\) with K, d >= 1, got shape \(3,\)"),
        (np.ones((0, 3)), 0.1, r"got shape \(0, 3\)"),
        ([[np.nan, 1.0]], 0.1, "arms must be finite, got nan"),
        (np.eye(2), 0.0, "tolerance must be positive"),
        (np.eye(2), 1e-12, "tolerance must be at least 1e-8, got tolerance=1e-12"),
    ],
)
def test_bad_input_is_refused(arms, tolerance, message):
    with pytest.raises(ValueError, match=message):
        g_optimal_design(arms, tolerance=tolerance)

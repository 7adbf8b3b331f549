"""Rank-one inverses against direct inversion, and the ball-constrained minimiser against its optimality conditions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpkit.models import RankOneInverse, ball_constrained_minimizer, norms


@settings(deadline=None, max_examples=40)
@given(d=st.integers(1, 12), seed=st.integers(0, 2**32 - 1), refresh=st.sampled_from([3, 1000]))
def test_the_inverse_follows_the_matrix(d, seed, refresh):
    rng = np.random.default_rng(seed)
    H, direct = RankOneInverse(d, ridge=0.5, refresh=refresh), 0.5 * np.eye(d)
    for _ in range(30):
        x, w = rng.standard_normal(d), rng.random()
        H.add(x, w)
        direct += w * np.outer(x, x)
    np.testing.assert_allclose(H.matrix, direct, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(H.inverse @ direct, np.eye(d), atol=1e-9)
    arms = rng.standard_normal((5, d))
    expected = [np.sqrt(x @ np.linalg.solve(direct, x)) for x in arms]
    np.testing.assert_allclose(norms(arms, H.inverse), expected, rtol=1e-8)


@pytest.mark.thorough
def test_no_drift_over_many_badly_conditioned_updates():
    rng, d = np.random.default_rng(0), 5
    scale = np.array([1.0, 0.3, 0.1, 0.03, 0.01])
    H = RankOneInverse(d, ridge=1e-3)
    for x in rng.standard_normal((100_000, d)) * scale:
        H.add(x, 1.0)
    direct = np.linalg.inv(H.matrix)
    assert np.abs(H.inverse - direct).max() <= 1e-9 * np.abs(direct).max()


@settings(deadline=None, max_examples=100)
@given(
    d=st.integers(1, 8),
    seed=st.integers(0, 2**32 - 1),
    radius=st.floats(1e-3, 1e3),
    spread=st.floats(0.0, 6.0),
    pull=st.floats(-4.0, 4.0),
)
def test_the_minimiser_meets_the_optimality_conditions(d, seed, radius, spread, pull):
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    eigenvalues = 10.0 ** rng.uniform(-spread / 2, spread / 2, d)
    b = 10.0**pull * rng.standard_normal(d)
    theta = ball_constrained_minimizer(eigenvalues, Q, b, radius)
    size = float(np.linalg.norm(theta))
    assert size <= radius * (1 + 1e-12)
    gradient = (Q * eigenvalues) @ Q.T @ theta - b  # −νθ with ν >= 0, and 0 inside
    scale = np.linalg.norm(b) + eigenvalues.max() * size
    if size < radius * (1 - 1e-9):
        assert np.linalg.norm(gradient) <= 1e-9 * scale
    else:
        nu = -float(gradient @ theta) / size**2
        assert nu >= -1e-9 * scale / size
        assert np.linalg.norm(gradient + nu * theta) <= 1e-8 * scale


def test_zero_arm_has_norm_zero():
    assert norms(np.zeros((1, 3)), np.eye(3)) == pytest.approx(0.0)

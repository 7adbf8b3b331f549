"""What the policies ask of ellipsoids beyond inverses: determinants, membership, projection, and a million updates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpkit.models import RankOneInverse, project_on_ball, within


@settings(deadline=None, max_examples=40)
@given(d=st.integers(1, 8), seed=st.integers(0, 2**32 - 1), refresh=st.sampled_from([3, 1000]))
def test_the_determinant_follows_the_matrix(d, seed, refresh):
    rng = np.random.default_rng(seed)
    H = RankOneInverse(d, ridge=0.5, refresh=refresh)
    for _ in range(30):
        H.add(rng.standard_normal(d), rng.random())
    assert H.log_det == pytest.approx(np.linalg.slogdet(H.matrix)[1] - d * np.log(0.5), rel=1e-10)
    twin = RankOneInverse(d, ridge=1.0)
    twin.resume(H.kept())
    assert twin.log_det == H.log_det


@settings(deadline=None, max_examples=100)
@given(d=st.integers(1, 6), seed=st.integers(0, 2**32 - 1), radius=st.floats(0.01, 10.0))
def test_the_projection_is_the_nearest_point_of_the_ball(d, seed, radius):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((d, d))
    M, point = A @ A.T + 0.1 * np.eye(d), 3 * rng.standard_normal(d)
    found = project_on_ball(point, M, radius)
    assert np.linalg.norm(found) <= radius * (1 + 1e-12)
    if np.linalg.norm(point) <= radius:
        assert found is point
        return
    # no point of the ball lies on the other side: ⟨M(point − found), v − found⟩ ≤ 0
    others = rng.standard_normal((50, d))
    others *= radius / np.linalg.norm(others, axis=1, keepdims=True)
    scale = np.linalg.norm(M) * (np.linalg.norm(point) + radius) * radius
    assert ((others - found) @ M @ (point - found)).max() <= 1e-8 * scale


def test_membership_is_by_the_norm_of_the_matrix():
    center, M = np.array([1.0, -1.0]), np.diag([4.0, 1.0])
    assert within(np.array([1.5, -1.0]), center, M, 1.0)
    assert not within(np.array([1.51, -1.0]), center, M, 1.0)


@pytest.mark.slow
def test_no_drift_over_a_million_updates():
    rng, d = np.random.default_rng(0), 5
    scale = np.array([1.0, 0.3, 0.1, 0.03, 0.01])
    H = RankOneInverse(d, ridge=1e-3)
    for _ in range(10):
        for x in rng.standard_normal((100_000, d)) * scale:
            H.add(x, 1.0)
        direct = np.linalg.inv(H.matrix)
        assert np.abs(H.inverse - direct).max() <= 1e-9 * np.abs(direct).max()
    assert H.log_det == pytest.approx(np.linalg.slogdet(H.matrix)[1] - d * np.log(1e-3), rel=1e-9)

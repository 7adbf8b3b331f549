"""The test for a change: its law where nothing moves, its power where something does, and its arithmetic."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from dpbandits.private.parts.progress import surprise, surprise_bound


@pytest.mark.parametrize("dim", [1, 5, 40])
@pytest.mark.parametrize("false_alarms", [0.5, 1e-5])
def test_the_bound_is_the_quantile_of_chi_square(dim, false_alarms):
    assert surprise_bound(dim, false_alarms) == pytest.approx(chi2.isf(false_alarms, dim), rel=1e-9)


@given(seed=st.integers(0, 2**32 - 1), dim=st.integers(1, 6), scale=st.floats(0.1, 10))
@settings(max_examples=50, deadline=None)
def test_it_does_not_depend_on_coordinates_and_grows_with_the_square(seed, dim, scale):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, dim))
    M, V, R = X.T @ X, np.cov(rng.normal(size=(dim, 50))).reshape(dim, dim), rng.normal(size=dim)
    U = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    known = {"noise": 2.0, "reward_variance": 0.3}
    value = surprise(R, M, V, **known)
    assert surprise(U @ R, U @ M @ U.T, U @ V @ U.T, **known) == pytest.approx(value, rel=1e-6)
    assert surprise(scale * R, M, V, **known) == pytest.approx(scale**2 * value, rel=1e-6)
    # written out where M is not cut
    W = 2.0 * np.eye(dim) + 0.3 * M + M @ V @ M
    assert value == pytest.approx(R @ np.linalg.inv(W) @ R, rel=1e-6)


def statistics(moved, n=2000):
    """RᵀW⁻¹R of simulated batches of a logistic model, estimated with the covariance V before."""
    rng = np.random.default_rng(5)
    d, batch, noise = 4, 300, 9.0
    V = np.diag([0.02, 0.05, 0.1, 0.3])
    found = []
    for _ in range(n):
        star = rng.normal(size=d)
        theta = star + np.sqrt(np.diag(V)) * rng.normal(size=d)
        now = -star if moved else star
        x = rng.normal(size=(batch, d))
        x /= np.maximum(1, np.linalg.norm(x, axis=1))[:, None]
        p = 1 / (1 + np.exp(-x @ theta))
        r = rng.random(batch) < 1 / (1 + np.exp(-x @ now))
        M = (x * (p * (1 - p))[:, None]).T @ x
        residual = x.T @ (r - p) + 3.0 * rng.normal(size=d)
        found.append(surprise(residual, M, V, noise=noise, reward_variance=1.0))
    return np.array(found)


def test_without_a_change_it_is_chi_square_or_less():
    # 2,000 batches at the 1 % bound: 20 expected; more than 60 have a probability below 1e-9 (Chernoff)
    assert (statistics(moved=False) > surprise_bound(4, 0.01)).sum() <= 60


def test_a_change_of_sign_is_seen():
    assert np.median(statistics(moved=True, n=300)) > surprise_bound(4, 1e-5)

"""What noisy sums of rewards say of fixed arms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbandits.private.parts.arm_fits import LevelPrior, Precision, arrivals, fitted, weighed, weighed_together
from dpkit.models import Prior


def triangle(rng: np.random.Generator, k: int) -> np.ndarray:
    C = np.tril(rng.uniform(0.1, 1.0, (k, k)))
    return C / np.linalg.norm(C, axis=0)


# ------------------------------------------------------------------------------------------------- estimates


def covariance(C: np.ndarray, noise: float) -> np.ndarray:
    return noise**2 * np.linalg.inv(C.T @ C)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), k=st.integers(1, 6), K=st.integers(1, 4), noise=st.floats(0.1, 10.0))
def test_estimates_are_generalized_least_squares_of_the_encoded_sums(seed, k, K, noise):
    """Arm by arm, of y = C·s with its independent noise: min over m of (y − mCn)ᵀV⁻¹(y − mCn)."""
    rng = np.random.default_rng(seed)
    C, plays, sums = triangle(rng, k), rng.integers(0, 20, (k, K)).astype(float), rng.normal(0, 9, (k, K))
    v = rng.uniform(0.0, 1.0, K)
    precisions, scores = weighed(covariance(C, noise), plays, sums, v)
    for arm in range(K):
        inverse = np.linalg.inv(noise**2 * np.eye(k) + v[arm] * C @ np.diag(plays[:, arm]) @ C.T)
        design, outputs = C @ plays[:, arm], C @ sums[:, arm]
        assert precisions[arm] == pytest.approx(design @ inverse @ design, rel=1e-6, abs=1e-9)
        assert scores[arm] == pytest.approx(design @ inverse @ outputs, rel=1e-5, abs=1e-7)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32), J=st.integers(1, 3), more=st.integers(0, 3), K=st.integers(1, 4), d=st.integers(1, 3)
)
def test_estimates_by_directions_are_too(seed, J, more, K, d):
    """All of y = C·s, of which the batches after the J-th hold nothing but noise."""
    rng, k = np.random.default_rng(seed), J + more
    C, plays, sums = triangle(rng, k), rng.integers(0, 20, (J, K)).astype(float), rng.normal(0, 9, (k, d))
    v, X = rng.uniform(0.0, 1.0, K), rng.normal(size=(K, d))
    (left, right), scores = weighed_together(covariance(C, 2.0), plays, sums, v, X)
    F = np.kron(C, np.eye(d))
    design, chance = np.zeros((k * d, K)), np.zeros((k * d, k * d))
    for j in range(J):
        rows = slice(j * d, (j + 1) * d)
        design[rows], chance[rows, rows] = X.T * plays[j], (X.T * (v * plays[j])) @ X
    inverse = np.linalg.inv(4.0 * np.eye(k * d) + F @ chance @ F.T)
    assert np.allclose(left @ right, design.T @ F.T @ inverse @ F @ design, rtol=1e-5, atol=1e-7)
    assert np.allclose(scores, design.T @ F.T @ inverse @ F @ sums.ravel(), rtol=1e-4, atol=1e-6)


def test_an_arm_of_a_single_batch_has_the_noise_of_a_single_release():
    C, plays = triangle(np.random.default_rng(0), 5), np.zeros((5, 1))
    plays[1] = 10.0
    precision, _ = weighed(covariance(C, 3.0), plays, np.zeros((5, 1)), np.zeros(1))
    assert precision.item() == pytest.approx((10.0 / 3.0) ** 2, rel=1e-9)  # since columns of C have norm 1


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), d=st.integers(1, 4), K=st.integers(1, 6), radius=st.sampled_from([0.5, 100.0]))
def test_a_linear_model_is_ridge_regression_in_the_ball(seed, d, K, radius):
    rng = np.random.default_rng(seed)
    X, p, mean = rng.normal(size=(K, d)), rng.uniform(0.0, 9.0, K), rng.normal(size=K)
    prior = Prior(rng.normal(size=d) / (9 * d), np.diag(rng.uniform(0.5, 2.0, d)))
    found, _ = fitted(X, lambda e: (e, np.ones(K)), lambda slopes: (np.diag(p), p * mean), prior, np.zeros(d), radius)
    precision = X.T @ np.diag(p) @ X + prior.precision
    free = np.linalg.solve(precision, X.T @ (p * mean) + prior.precision @ prior.mean)
    assert np.linalg.norm(found.mean) <= radius * (1 + 1e-9)
    if np.linalg.norm(free) <= radius:
        assert np.allclose(found.mean, free, rtol=1e-7, atol=1e-9)
    assert np.allclose(found.covariance, np.linalg.inv(precision), rtol=1e-7, atol=1e-9)
    assert np.allclose(found.root @ found.root, found.covariance, rtol=1e-7, atol=1e-9)


def test_a_precision_is_the_matrix_that_it_stands_for():
    rng = np.random.default_rng(0)
    p, left, right = rng.uniform(size=4), rng.normal(size=(4, 2)), rng.normal(size=(2, 4))
    for columns in (rng.normal(size=4), rng.normal(size=(4, 3))):
        assert np.allclose(Precision(p, left, right) @ columns, (np.diag(p) + left @ right) @ columns)


@settings(max_examples=40)
@given(shares=st.lists(st.floats(0.1, 1.0), min_size=1, max_size=8), delayed=st.booleans())
def test_shares_that_are_known_well_are_found_and_others_are_within_their_limits(shares, delayed):
    plays = 1e6 * np.arange(1.0, len(shares) + 1.0)
    plays[0] *= not delayed  # nothing is counted yet
    found = arrivals(np.eye(len(plays)), plays, plays * shares, least=0.01)
    assert np.allclose(found[delayed:], shares[delayed:], atol=1e-3)
    drowned = arrivals(1e30 * np.eye(len(plays)), plays, -plays, least=0.01)
    assert ((drowned >= 0.01) & (drowned <= 1.0)).all()


def test_what_is_known_well_is_found_on_the_curve():
    """Means that are known without doubt are solved for, though they are far from where Newton starts."""
    X, theta = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), np.array([2.0, -1.5])
    many = np.full(3, 1e8)

    def moments(e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = 1.0 / (1.0 + np.exp(-e))
        return mean - 0.5, mean * (1.0 - mean)

    scores = many * moments(X @ theta)[0]
    known = X, moments, lambda slopes: (np.diag(many), scores), Prior(np.zeros(2), np.eye(2)), np.zeros(2)
    found, level = fitted(*known, 3.0)
    assert np.allclose(found.mean, theta, atol=1e-4)
    assert level == 0.0


@given(seed=st.integers(0, 10_000), d=st.integers(1, 4), K=st.integers(1, 6))
def test_a_level_is_one_more_feature_that_the_ball_does_not_bound(seed, d, K):
    """With a wide prior of both modes, next to the dense fit of d + 1 features: mean, level and θ's own covariance."""
    rng = np.random.default_rng(seed)
    X, p, mean = rng.normal(size=(K, d)), rng.uniform(0.1, 9.0, K), rng.normal(size=K)
    prior = Prior(rng.normal(size=d), np.diag(rng.uniform(0.5, 2.0, d)))
    wide = LevelPrior(wide=2.0**0.5 * 1e3, narrow=2e3)  # precisions 5e-7, and 2/(4e6 + o²)
    known = X, lambda e: (e, np.ones(K)), lambda slopes: (np.diag(p), p * mean), prior, np.zeros(d), 1e9
    found, level = fitted(*known, wide)
    more = np.column_stack([X, np.ones(K)])
    precision = more.T @ np.diag(p) @ more + np.diag([*np.diag(prior.precision), 5e-7])
    dense = np.linalg.solve(precision, more.T @ (p * mean) + [*(prior.precision @ prior.mean), 0.0])
    assert np.allclose([*found.mean, level], dense, rtol=1e-4, atol=1e-4)
    assert np.allclose(found.covariance, np.linalg.inv(precision)[:d, :d], rtol=1e-5, atol=1e-9)
    # a ball that is too small for θ is none for the level
    tight, far = fitted(*known[:-1], 1e-3, wide)
    assert np.linalg.norm(tight.mean) <= 1e-3 * (1 + 1e-9)
    assert abs(far - p @ mean / p.sum()) < 0.01 * (1.0 + np.abs(X).max())


@pytest.mark.parametrize(("shares", "expected"), [([0.1, 0.1, 0.1, 0.15], -1.8), ([0.45, 0.5, 0.5, 0.55], 0.0)])
def test_a_level_is_found_where_it_is_far_off_and_is_none_next_to_the_base_rate(shares, expected):
    """Shares of arms with a feature each, of which 400 are known of each.

    They do not tell a level from the mean of θ, which a priori is 0 ± ½: of −2.08 a tenth goes to θ.
    """
    shares = np.array(shares)

    def moments(e):
        mean = 1.0 / (1.0 + np.exp(-e))
        return mean - 0.5, np.maximum(mean * (1.0 - mean), 0.01)

    def evidence(slopes):
        return np.diag(400.0 / slopes), 400.0 / slopes * (shares - 0.5)

    prior = Prior(np.zeros(4), np.eye(4))
    found, level = fitted(np.eye(4), moments, evidence, prior, np.zeros(4), 3.0, LevelPrior(2.0, 0.1))
    assert abs(level - expected) < 0.1
    assert np.allclose(1.0 / (1.0 + np.exp(-found.mean - level)), shares, atol=0.01)

"""Estimates from noisy sums: against formulas written out, against what they are for, and at their edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpbandits.private.parts.noisy_estimate import precisions, shrunken_eigenvalues, stalled, standing
from dpkit.models.prior import Prior, posterior

spectra = arrays(np.float64, st.integers(1, 8), elements=st.floats(-1e6, 1e6)).map(np.sort)


@settings(deadline=None)
@given(eigenvalues=spectra, noise=st.floats(1e-3, 1e5))
def test_shrunken_eigenvalues_are_positive_and_ascending(eigenvalues, noise):
    found = shrunken_eigenvalues(eigenvalues, noise)
    assert (found >= 0).all()
    assert np.isfinite(found).all()
    assert (np.diff(found) >= -1e-9 * (noise + np.abs(found).max())).all()


@settings(deadline=None)
@given(eigenvalues=spectra, noise=st.floats(1e-3, 1e5), scale=st.floats(0.01, 100.0))
def test_shrinking_knows_no_unit(eigenvalues, noise, scale):
    one, other = shrunken_eigenvalues(eigenvalues, noise), shrunken_eigenvalues(scale * eigenvalues, scale * noise)
    np.testing.assert_allclose(scale * one, other, rtol=1e-5, atol=1e-9 * scale * (noise + np.abs(eigenvalues).max()))


def test_shrinking_is_the_formula():
    ell, noise = np.array([-0.5, 0.4, 3.0, 9.0]), 1.2
    tau2 = noise**2 / 2
    lam = sorted(
        ell[i] - 2 * tau2 * sum((ell[i] - ell[j]) / ((ell[i] - ell[j]) ** 2 + tau2) for j in range(4) if j != i)
        for i in range(4)
    )
    tau = math.sqrt(tau2)
    phi = [math.exp(-((x / tau) ** 2) / 2) / math.sqrt(2 * math.pi) for x in lam]
    Phi = [0.5 * math.erfc(-x / tau / math.sqrt(2)) for x in lam]
    expected = [x + tau * p / P for x, p, P in zip(lam, phi, Phi, strict=True)]
    np.testing.assert_allclose(shrunken_eigenvalues(ell, noise), expected, rtol=1e-12)


def test_without_noise_nothing_shrinks():
    eigenvalues = np.array([0.0, 1.0, 1.0, 5.0])
    np.testing.assert_array_equal(shrunken_eigenvalues(eigenvalues, 0.0), eigenvalues)
    np.testing.assert_allclose(shrunken_eigenvalues(eigenvalues, 1e-9), eigenvalues, atol=1e-8)


@pytest.mark.parametrize("spectrum", [[5.0] * 10, [0.0] * 5 + [20.0] * 5, np.linspace(0, 30, 10)])
def test_shrunken_matrices_are_nearer_to_the_truth(spectrum):
    """The mean of 200 differences of squared errors is some twenty standard errors from 0; six are asked for."""
    rng, d, sigma, gains = np.random.default_rng(7), 10, 2.0, []
    M = np.diag(np.asarray(spectrum, dtype=float))
    for _ in range(200):
        N = rng.standard_normal((d, d)) * sigma
        N = (N + N.T) / 2  # σ on the diagonal, σ/√2 off it, when the diagonal is drawn apart
        N[np.diag_indices(d)] = sigma * rng.standard_normal(d)
        eigenvalues, U = np.linalg.eigh(M + N)
        raw = np.sum((M - (U * np.maximum(eigenvalues, 0.0)) @ U.T) ** 2)
        gains.append(raw - np.sum((M - (U * shrunken_eigenvalues(eigenvalues, sigma)) @ U.T) ** 2))
    assert np.mean(gains) > 6 * np.std(gains) / math.sqrt(200)


def test_weights_are_those_of_a_gaussian_posterior():
    """b = λθ + error of variance r, θ of mean m and variance τ²: Bayes' rule on a grid."""
    lam, r, m, prior, b = 3.0, 2.0, -0.3, 0.7, 1.4
    gains, precision = precisions(np.array([lam]), np.array([r]))
    found = posterior(Prior(np.array([m]), np.array([[prior]])), precision, np.eye(1), gains * b, radius=100.0)
    theta = np.linspace(-20, 20, 400_001)
    density = np.exp(-0.5 * (b - lam * theta) ** 2 / r - 0.5 * prior * (theta - m) ** 2)
    mean = (density @ theta) / density.sum()
    assert found.mean[0] == pytest.approx(mean, rel=1e-6)
    assert (
        found.covariance[0, 0]
        == found.root[0, 0] ** 2
        == pytest.approx(density @ (theta - mean) ** 2 / density.sum(), rel=1e-6)
    )


@given(pace=st.floats(-1.0, 3.0), share=st.floats(0.05, 1.0), eigenvalue=st.floats(0.01, 1e6))
def test_steady_growth_is_not_stalled_and_none_is(pace, share, eigenvalue):
    (f,) = stalled(np.array([eigenvalue]), np.array([pace * eigenvalue * share]), share, noise=0.0)
    assert f == pytest.approx(min(max(1 - 2 * pace, 0.0), 1.0), abs=1e-9)
    assert stalled(np.array([eigenvalue]), np.array([eigenvalue]), share, noise=eigenvalue)[0] == 1.0


def test_what_noise_may_have_hidden_counts_as_growth_and_what_is_unknown_stands_still():
    eigenvalues, none = np.array([5.0, 10.0, 100.0]), np.zeros(3)
    np.testing.assert_allclose(stalled(eigenvalues, none, 0.5, noise=1.0), [0.2, 0.6, 0.96])
    np.testing.assert_allclose(stalled(eigenvalues, none, 0.5, noise=1.0, known=6.0), [1.0, 0.6, 0.96])


def test_one_arm_stands_and_a_ball_of_them_is_fresh():
    """Without noise: (0.45 − 0.08)·(0.265 − share)/0.15², the share that of all but the largest eigenvalue."""
    assert standing(np.array([0.0, 0.0, 0.0, 7.0]), 0.0) == pytest.approx(0.37 * 0.265 / 0.0225)
    assert standing(np.full(4, 7.0), 0.0) == pytest.approx(0.37 * (0.265 - 1.0) / 0.0225)
    assert standing(np.array([0.0, 0.0, 7.0, 14.0]), 0.0) == pytest.approx(0.37 * (0.265 - 4 / 9) / 0.0225)
    # two directions have repelled each other by 2·½·8/(8² + ½), and noise adds 1/5² to the variance
    share = (1.0 + 8.0 / 64.5) / 5.0
    assert standing(np.array([1.0, 9.0]), 1.0) == pytest.approx(0.37 * (0.265 - share) / (0.0225 + 1 / 25))


@pytest.mark.parametrize("eigenvalues", [[5.0], [-3.0], [-2.0, 1.0], [0.0, 0.0, 0.0]])
def test_one_dimension_and_nothing_that_was_learned_say_nothing_of_arms(eigenvalues):
    assert standing(np.array(eigenvalues), 1.0) == 0.0


@settings(deadline=None)
@given(eigenvalues=spectra, noise=st.floats(0.0, 1e5), scale=st.floats(0.01, 100.0))
def test_whether_arms_stand_is_a_number_of_no_unit(eigenvalues, noise, scale):
    found = standing(eigenvalues, noise)
    assert math.isfinite(found)
    if eigenvalues.mean() > 1e-3 * np.abs(eigenvalues).max():  # a mean of rounding errors has no scale
        assert standing(scale * eigenvalues, scale * noise) == pytest.approx(found, rel=1e-4, abs=1e-6)


def test_all_directions_together_tell_earlier_than_each_alone():
    """Ten directions at 1.5 σ_H each, where one eigenvalue says nothing: the ratio has the right sign on average.

    Its mean over 200 draws is twenty standard errors from 0 in both worlds; six are asked for.
    """
    rng, d, found = np.random.default_rng(11), 10, {True: [], False: []}
    for stand in (True, False):
        M = np.diag([15.0] + [0.0] * 9) if stand else 1.5 * np.eye(d)
        for _ in range(200):
            N = rng.standard_normal((d, d))
            N = (N + N.T) / 2
            N[np.diag_indices(d)] = rng.standard_normal(d)
            found[stand].append(standing(np.linalg.eigvalsh(M + N), 1.0))
    for stand, sign in ((True, 1.0), (False, -1.0)):
        assert sign * np.mean(found[stand]) > 6 * np.std(found[stand]) / math.sqrt(200)

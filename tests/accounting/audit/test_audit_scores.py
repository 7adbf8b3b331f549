"""Scores are log-likelihood ratios, and the learned one comes close to them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import laplace, multivariate_normal, norm

from accounting import audit
from accounting.audit import scores

vectors = arrays(np.float64, 4, elements=st.floats(-5, 5))


@settings(deadline=None, max_examples=30)
@given(first=vectors, second=vectors, scale=st.floats(0.1, 10))
def test_independent_noise(first, second, scale):
    outputs = np.random.default_rng(0).normal(scale=5, size=(7, 4))
    for make, law in ((scores.gaussian, norm), (scores.laplace, laplace)):
        expected = (law.logpdf(outputs, first, scale) - law.logpdf(outputs, second, scale)).sum(axis=1)
        # logarithms of densities up to 1e4 in size are subtracted
        assert make(first, second, scale)(outputs) == pytest.approx(expected, rel=1e-9, abs=1e-9 * (1 + 1e3 / scale**2))
    assert scores.gaussian(first, second, scale).mu == pytest.approx(np.linalg.norm(first - second) / scale)


def test_correlated_noise():
    rng = np.random.default_rng(1)
    factor = np.tril(rng.normal(size=(4, 4))) + 2 * np.eye(4)
    first, second = rng.normal(size=(2, 4))
    outputs = rng.normal(size=(6, 4))
    covariance = factor @ factor.T
    expected = multivariate_normal(first, covariance).logpdf(outputs) - multivariate_normal(second, covariance).logpdf(
        outputs
    )
    for given_as in ({"factor": factor}, {"covariance": covariance}):
        score = scores.correlated_gaussian(first, second, **given_as)
        assert score(outputs) == pytest.approx(expected, rel=1e-9)
        assert score.mu == pytest.approx(np.linalg.norm(np.linalg.solve(factor, first - second)), rel=1e-12)


def test_further_axes_are_independent_copies():
    rng = np.random.default_rng(2)
    factor = np.tril(np.ones((3, 3)))
    first, second = rng.normal(size=(2, 3, 2))
    outputs = rng.normal(size=(5, 3, 2))
    whole = scores.correlated_gaussian(first, second, factor=factor)
    columns = [scores.correlated_gaussian(first[:, k], second[:, k], factor=factor) for k in range(2)]
    assert whole(outputs) == pytest.approx(sum(c(outputs[:, :, k]) for k, c in enumerate(columns)))
    assert whole.mu**2 == pytest.approx(sum(c.mu**2 for c in columns))


def test_a_stream_of_prefix_sums_shows_its_mu():
    """The audit of correlated releases reaches the μ that the score knows, and no more.

    Above it with probability at most 1e-9; below 0.85 of it would be 8 standard deviations under the usual 0.935.
    """
    rng = np.random.default_rng(3)
    factor = np.tril(0.5 ** np.subtract.outer(np.arange(8), np.arange(8)))
    shift = np.where(np.arange(8) >= 2, 1.5, 0.0)
    score = scores.correlated_gaussian(shift, np.zeros(8), factor=factor)
    found = audit.lower_bound(
        lambda mean, n: mean + rng.normal(size=(n, 8)) @ factor.T,
        shift,
        np.zeros(8),
        trials=20_000,
        delta=1e-6,
        confidence=1 - 1e-9,
        score=score,
        batched=True,
        gaussian=True,
    )
    assert 0.85 * score.mu < found.mu < score.mu


@pytest.mark.parametrize("heavy", [False, True])
def test_logistic_comes_close_to_the_likelihood_ratio(heavy):
    rng = np.random.default_rng(4)
    mean = np.array([0.7, 0.7, 0.0, 0.7, 0.0])

    def mechanism(x, trials):
        noise = rng.laplace(size=(trials, 5)) if heavy else rng.normal(size=(trials, 5))
        return x + noise

    # usual ratios over seeds: 1.00 ± 0.02 and 0.97 ± 0.02, so below 0.8 with probability < 1e-9; a score that sees one
    # entry only gives 0.58
    exact = (scores.laplace if heavy else scores.gaussian)(mean, np.zeros(5), 1.0)
    known, learned = (
        audit.lower_bound(
            mechanism, mean, np.zeros(5), trials=40_000, delta=1e-5, score=score, batched=True, gaussian=True
        ).mu
        for score in (exact, None)
    )
    assert learned > 0.8 * known


def test_logistic_sees_a_change_of_scale():
    # usually 4.2 ± 0.3; a score that looks at one entry gives less than 2
    rng = np.random.default_rng(5)
    found = audit.lower_bound(
        lambda scale, n: scale * rng.normal(size=(n, 4, 4)), 1.3, 1.0, trials=20_000, delta=1e-3, batched=True
    )
    assert found.epsilon > 2.2


def test_logistic_with_constant_entries_and_outliers():
    rng = np.random.default_rng(6)
    outputs = rng.normal(1.0, 1.0, (400, 3))
    others = rng.normal(0.0, 1.0, (400, 3))
    outputs[:, 1] = others[:, 1] = 7.0
    outputs[0, 0] = 1e12
    score = scores.logistic(outputs, others)
    fresh = score(np.array([[1.5, 7.0, 1.5], [-0.5, 7.0, -0.5], [1e300, 0.0, 0.0]]))
    assert np.isfinite(fresh).all()
    assert fresh[0] > 0 > fresh[1]


def test_refusals():
    with pytest.raises(ValueError, match="scale must be positive"):
        scores.gaussian(1.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="neighbour_mean must have the shape of mean"):
        scores.laplace([1.0, 2.0], 0.0, 1.0)
    with pytest.raises(ValueError, match="must be finite"):
        scores.gaussian(np.nan, 0.0, 1.0)
    for make in (scores.gaussian, scores.laplace):
        with pytest.raises(ValueError, match="outputs must have shape"):
            make([1.0, 2.0], [0.0, 0.0], 1.0)(np.zeros((4, 3)))
    pair = np.ones(2), np.zeros(2)
    for options, message in (
        ({}, "exactly one of covariance and factor"),
        ({"covariance": np.eye(2), "factor": np.eye(2)}, "exactly one of covariance and factor"),
        ({"covariance": np.eye(3)}, "covariance must have shape"),
        ({"covariance": [[1.0, 0.5], [0.2, 1.0]]}, "covariance must be symmetric"),
        ({"covariance": [[1.0, 2.0], [2.0, 1.0]]}, "covariance must be positive definite"),
        ({"factor": [[1.0, 1.0], [0.0, 1.0]]}, "factor must be lower triangular"),
        ({"factor": [[0.0, 0.0], [0.0, 1.0]]}, "factor must be lower triangular"),
    ):
        with pytest.raises(ValueError, match=message):
            scores.correlated_gaussian(*pair, **options)
    with pytest.raises(ValueError, match="at least one axis"):
        scores.correlated_gaussian(1.0, 0.0, covariance=[[1.0]])

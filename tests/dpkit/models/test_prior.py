"""Normal priors: what an estimate makes of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpkit.models import Prior, checked_prior, posterior


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 6))
def test_the_posterior_is_the_minimiser(seed, d):
    """Of ½Σpᵢ(uᵢᵀθ − eᵢ)² + ½(θ − m)ᵀP(θ − m): the gradient vanishes inside the ball."""
    rng = np.random.default_rng(seed)
    U, _ = np.linalg.qr(rng.standard_normal((d, d)))
    root = rng.standard_normal((d, d))
    prior = Prior(rng.standard_normal(d), root @ root.T + 0.1 * np.eye(d))
    p, estimate = rng.uniform(0, 10, d), rng.standard_normal(d)
    found = posterior(prior, p, U, p * estimate, radius=1e6)
    gradient = U @ (p * (U.T @ found.mean - estimate)) + prior.precision @ (found.mean - prior.mean)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-7 * (1 + np.abs(prior.precision).max()))
    np.testing.assert_allclose(found.root @ found.root, found.covariance, rtol=1e-6, atol=1e-9)
    short = posterior(prior, p, U, p * estimate, radius=0.1)
    assert np.linalg.norm(short.mean) <= 0.1 * (1 + 1e-9)


def test_directions_of_no_precision_get_that_of_the_ball():
    prior = Prior.of(checked_prior(([0.0, 0.0], np.diag([0.0, 9.0])), 2, 2.0), 2, 1.0, 2.0)
    np.testing.assert_allclose(prior.precision, np.diag([0.25, 9.0]))

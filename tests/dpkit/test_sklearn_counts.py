"""Regression of counts: a gradient that is bounded whatever the data are, and the fit of the likelihood."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("sklearn")

from sklearn.linear_model import PoissonRegressor

from accounting import Budget, Ledger
from dpkit.models.capped_counts import CAPPED_POISSON, START
from dpkit.sklearn import PrivateGLMClassifier, PrivateGLMRegressor

ETAS = st.floats(-1e300, 1e300)
SHARES = st.floats(0, 1)


@given(ETAS, SHARES)
def test_no_row_has_a_longer_gradient_than_its_own_length(eta, t):
    """|ψ| ≤ 1: with rows of length R√2 that is what a person can change, twice for a swap."""
    slope = float(CAPPED_POISSON.slope(np.array([eta]), np.array([t]))[0])
    assert abs(slope) <= 1.0 == CAPPED_POISSON.slope_bound


@given(st.floats(-30, 30), st.floats(-30, 30), SHARES)
def test_the_loss_is_convex_with_the_curvature_that_it_states(a, b, t):
    at = np.array([a, b])
    slopes, losses = CAPPED_POISSON.slope(at, np.full(2, t)), CAPPED_POISSON.loss(at, np.full(2, t))
    assert (slopes[1] - slopes[0]) * (b - a) >= -1e-12
    assert abs(slopes[1] - slopes[0]) <= CAPPED_POISSON.curvature_bound * abs(b - a) + 1e-12
    # the slope is the derivative: a convex function lies above its tangents
    assert losses[1] >= losses[0] + slopes[0] * (b - a) - 1e-9


def test_below_the_top_it_is_the_poisson_likelihood():
    eta, y, top = np.linspace(-6, START, 7), np.arange(7.0), 10.0
    mean = top * np.exp(eta - START)
    np.testing.assert_allclose(top * CAPPED_POISSON.slope(eta, y / top), mean - y, atol=1e-12)


def _counts(seed, n=20_000):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, rng.poisson(2.0 * np.exp(X @ [1.0, -1.0, 0.5, 0.0]))


def test_a_private_fit_comes_near_the_maximum_of_the_likelihood():
    X, y = _counts(7)
    model = PrivateGLMRegressor(Budget(1.0, 1e-6), link="poisson", target_range=(0, 20), random_state=1).fit(X, y)
    right = PoissonRegressor(alpha=0.0).fit(X, y)
    assert np.abs(model.coef_ - right.coef_).max() < 0.25  # seeds 20 to 29: 0.14 at most
    assert model.predict(X).mean() == pytest.approx(y.mean(), rel=0.05)
    assert model.predict(1e9 * X).max() <= 20.0


def test_bad_input_is_refused_before_anything_is_spent():
    X, y = _counts(7, 50)
    ledger = Ledger(Budget(2.0, 1e-6))
    for options, message in (
        ({"link": "log", "target_range": (0, 9)}, "link must be 'linear' or 'poisson'"),
        ({"link": "poisson"}, "target_range must be given"),
        ({"link": "poisson", "target_range": (1, 9)}, "target_range must start at 0"),
        ({"link": "poisson", "target_range": (0, 9), "loss": "huber"}, "leave them out"),
        ({"link": "poisson", "target_range": (0, math.inf)}, "target_range must be two increasing"),
    ):
        with pytest.raises(ValueError, match=message):
            PrivateGLMRegressor(Budget(1.0, 1e-6), ledger=ledger, **options).fit(X, y)
    assert not ledger.rows()


@pytest.mark.parametrize("pair", [("no", "yes"), ("N", "Y"), ("False", "True"), ("negative", "positive"), ("0", "1")])
def test_texts_of_two_classes_that_everybody_writes_alike(pair):
    X, _ = _counts(7, 200)
    for dtype in (object, str):
        y = np.array(pair, dtype)[(X[:, 0] > 0).astype(int)]
        model = PrivateGLMClassifier(Budget(1.0, 1e-6), random_state=0).fit(X, y)
        assert model.classes_.tolist() == list(pair)
        assert set(model.predict(X).tolist()) <= set(pair)
        # of one class alone, the other is known
        assert (
            PrivateGLMClassifier(Budget(1.0, 1e-6), random_state=0).fit(X, np.full(200, pair[0])).classes_[1] == pair[1]
        )


def test_other_texts_must_be_named():
    X, _ = _counts(7, 10)
    with pytest.raises(ValueError, match="which texts occur is not public"):
        PrivateGLMClassifier(Budget(1.0, 1e-6)).fit(X, np.array(["cold", "warm"] * 5))
    with pytest.raises(ValueError, match="classes must name the labels"):
        PrivateGLMClassifier(Budget(1.0, 1e-6)).fit(X, np.array(["no", "Yes"] * 5))

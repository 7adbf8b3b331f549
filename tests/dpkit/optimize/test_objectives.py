"""Losses of generalized linear models: gradients, clipping, constants."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from accounting import Budget
from dpkit import optimize
from dpkit.geometry import LpBall
from dpkit.optimize import glm

LOSSES = ["logistic", "probit", "squared", "poisson", "huber", "linear"]
each_loss = pytest.mark.parametrize("loss", LOSSES)
linear = st.floats(-6.0, 6.0)
response = st.floats(0.0, 1.0)


def slope(loss, eta, y):
    return float(glm(loss).gradients([eta], [[1.0]], [y])[0, 0])


@each_loss
@settings(max_examples=40)
@given(eta=linear, y=response)
def test_slopes_are_derivatives_of_losses(loss, eta, y):
    h = 1e-5
    up, down = (float(glm(loss).values([eta + s * h], [[1.0]], [y])[0]) for s in (1, -1))
    assert slope(loss, eta, y) == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-7)


@each_loss
@settings(max_examples=40)
@given(eta=linear, other=linear, y=response)
def test_losses_are_convex_with_the_stated_constants(loss, eta, other, y):
    objective = glm(loss)
    difference = slope(loss, eta, y) - slope(loss, other, y)
    assert difference * (eta - other) >= -1e-9
    if eta != other:
        assert abs(difference) <= objective.curvature_bound * abs(eta - other) * (1 + 1e-9) + 1e-12
    assert abs(slope(loss, eta, y)) <= objective.slope_bound


@tabled(
    ("loss", "eta", "y", "value", "gradient"),
    [
        # closed forms
        ("logistic", 0.0, 1.0, math.log(2), -0.5),
        ("logistic", 2.0, 0.0, math.log(1 + math.exp(2)), 1 / (1 + math.exp(-2))),
        ("probit", 0.0, 0.0, math.log(2), math.sqrt(2 / math.pi)),
        ("squared", 3.0, 1.0, 2.0, 2.0),
        ("poisson", 1.0, 2.0, math.e - 2, math.e - 2),
        ("huber", 0.5, 0.0, 0.125, 0.5),
        ("huber", 3.0, 0.0, 2.5, 1.0),
        ("huber", -3.0, 0.0, 2.5, -1.0),
    ],
)
def test_known_values(loss, eta, y, value, gradient):
    assert glm(loss).mean([eta], [[1.0]], [y]) == pytest.approx(value)
    assert slope(loss, eta, y) == pytest.approx(gradient)


@each_loss
@tabled("eta", [-1e4, -50.0, 50.0, 1e4])
@tabled("y", [0.0, 1.0])
def test_far_out_nothing_overflows(loss, eta, y):
    objective = glm(loss, clip=1.0)
    assert math.isfinite(objective.mean([eta], [[1.0]], [y]))
    gradient = objective.gradients([eta], [[1.0]], [y])
    assert np.all(np.isfinite(gradient))
    # the slope has the sign of the error, where there is one
    assert loss == "linear" or gradient[0, 0] * (eta if loss != "poisson" else np.exp(min(eta, 50.0)) - y) >= -1e-9


@each_loss
@settings(max_examples=40)
@given(
    st.lists(st.lists(st.floats(-1e200, 1e200), min_size=2, max_size=2), min_size=1, max_size=5),
    st.floats(-3, 3),
    st.floats(1e-3, 1e3),
)
def test_clipped_gradients_are_never_longer_than_the_clip(loss, rows, theta, clip):
    X, y = np.array(rows), np.linspace(0, 1, len(rows))
    gradients = glm(loss, clip=clip).gradients([theta, -theta], X, y)
    lengths = np.hypot(*gradients.T)
    assert np.all(lengths <= clip)
    with np.errstate(all="ignore"):
        plain = glm(loss).gradients([theta, -theta], X, y)
        kept = np.hypot(*plain.T) <= clip * (1 - 1e-9)
    np.testing.assert_allclose(gradients[kept], plain[kept], rtol=1e-12)


def test_sums_are_sums_of_gradients():
    rng = np.random.default_rng(0)
    X, y, theta = rng.normal(size=(50, 3)), rng.random(50), rng.normal(size=3)
    for objective in (glm("logistic"), glm("poisson", clip=0.3)):
        np.testing.assert_allclose(
            objective.gradient_sum(theta, X, y), objective.gradients(theta, X, y).sum(axis=0), atol=1e-12
        )
        assert objective.mean(theta, X, y) == pytest.approx(objective.values(theta, X, y).mean())
    assert glm("squared").mean(theta, np.empty((0, 3)), []) == 0.0


def test_constants_follow_the_rows_and_the_clip():
    assert glm("logistic").lipschitz(2.0) == 2.0
    assert glm("logistic", clip=0.5).lipschitz(2.0) == 0.5
    assert glm("squared").lipschitz(1.0) == math.inf
    assert glm("squared", clip=3.0).lipschitz(1.0) == 3.0
    assert glm("logistic").smoothness(2.0) == 1.0


@given(st.floats(1e-3, 1e3), st.floats(-1e4, 1e4))
def test_the_threshold_of_huber_joins_the_two_branches(threshold, residual):
    objective = glm("huber", threshold=threshold)
    value, slope = (float(f(np.array(residual), np.array(0.0))) for f in (objective.loss, objective.slope))
    size = abs(residual)
    quadratic = size <= threshold
    assert value == pytest.approx(0.5 * size**2 if quadratic else threshold * size - 0.5 * threshold**2, rel=1e-12)
    assert slope == pytest.approx(residual if quadratic else math.copysign(threshold, residual))
    assert (objective.slope_bound, objective.curvature_bound) == (threshold, 1.0)


def test_objectives_of_the_same_loss_are_equal():
    assert glm("huber") == glm("huber", threshold=1.0) != glm("huber", threshold=2.0)
    assert glm("squared", clip=1.0) == glm("squared", clip=1.0)


# With next to no noise: a tenth of the responses lies far off, which pulls the squared loss away and Huber's not.
@pytest.mark.parametrize(
    "optimizer",
    ["noisy_gradient_descent", "noisy_sgd", "objective_perturbation", "phased_sgd", "online_frank_wolfe"],
)
def test_huber_withstands_outliers_in_the_optimizers(optimizer):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2)) / 2
    y = X @ [0.8, -0.6] + 0.05 * rng.normal(size=1000)
    y[::10] += 30.0 * X[::10, 1]
    fits = [
        getattr(optimize, optimizer)(
            objective, X, y, constraint=LpBall(2, 2, 4.0), budget=Budget(1000.0, 1e-5), rng=np.random.default_rng(1)
        ).x
        for objective in (glm("huber", threshold=0.2, clip=1.0), glm("squared", clip=100.0))
    ]
    errors = [float(np.linalg.norm(x - [0.8, -0.6])) for x in fits]
    assert errors[0] < 0.4 < errors[1]


@tabled(
    ("call", "message"),
    [
        (
            lambda: glm("hinge"),
            "loss must be one of 'huber', 'linear', 'logistic', 'poisson', 'probit', 'squared', got loss='hinge'",
        ),
        (lambda: glm(["squared"]), "loss must be one of"),
        (lambda: glm("squared", clip=0.0), "clip must be positive"),
        (lambda: glm("huber", threshold=0.0), "threshold must be positive and finite, got threshold=0.0"),
        (lambda: glm("huber", threshold=math.inf), "threshold must be positive and finite"),
        (lambda: glm("squared", threshold=1.0), "threshold is for the loss 'huber' only, got threshold=1.0"),
        (lambda: glm("squared").lipschitz(-1.0), "row_norm must be positive"),
        (lambda: glm("squared").values([1.0], [[1.0, 2.0]], [1.0]), r"must have shapes \(d,\), \(n, d\) and \(n,\)"),
        (lambda: glm("squared").gradients([1.0], [[1.0]], [1.0, 2.0]), r"must have shapes"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()

"""Estimators over the history: derivatives, optimality on the ball, and extremes over level sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from regret import ball
from scipy.optimize import minimize

from dpkit.models import Rows, get_link, glm_loss, level_set_maxima, minimize_in_ball

NAMES = ("linear", "logistic", "poisson", "probit")


def data(name: str, n: int, d: int, S: float, seed: int):
    """Arms, rewards of a parameter of norm S, and the rng."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(d)
    theta *= S / np.linalg.norm(theta)
    X = ball(rng, n, d)
    mean = get_link(name).mean(X @ theta)
    if name in ("logistic", "probit"):
        return X, (rng.random(n) < mean).astype(float), rng
    return X, rng.poisson(mean).astype(float) if name == "poisson" else mean + rng.standard_normal(n), rng


def test_rows_grow_and_are_restored():
    rows, rng = Rows(3), np.random.default_rng(0)
    table = rng.standard_normal((200, 3))
    for row in table:
        rows.append(row)
    assert np.array_equal(rows.array, table)
    twin = Rows(3)
    twin.resume(rows.kept())
    assert np.array_equal(twin.array, table)
    twin.append([1.0, 2.0, 3.0])
    assert twin.count == 201
    assert rows.count == 200
    empty = Rows(2)
    empty.resume(Rows(2).kept())
    assert empty.array.shape == (0, 2)


@settings(max_examples=40)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 1000))
def test_the_loss_has_the_derivatives_that_it_says(name, seed):
    X, r, rng = data(name, 20, 3, 1.0, seed)
    loss = glm_loss(get_link(name), X, r, ridge=0.3, dispersion=0.8)
    theta, h = rng.standard_normal(3), 1e-5
    _, gradient, hessian = loss(theta)
    for i, e in enumerate(np.eye(3)):
        (up, up_gradient, _), (down, down_gradient, _) = loss(theta + h * e), loss(theta - h * e)
        assert (up - down) / (2 * h) == pytest.approx(gradient[i], rel=1e-5, abs=1e-4)
        np.testing.assert_allclose((up_gradient - down_gradient) / (2 * h), hessian[i], rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=40)
@given(
    name=st.sampled_from(NAMES),
    n=st.integers(0, 60),
    d=st.integers(1, 4),
    radius=st.sampled_from([0.2, 1.0, 5.0, np.inf]),
    far=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_the_minimum_meets_the_optimality_conditions(name, n, d, radius, far, seed):
    X, r, rng = data(name, n, d, 1.5, seed)
    loss = glm_loss(get_link(name), X, r, ridge=0.1)
    start = rng.standard_normal(d)
    start *= (min(radius, 6.0) if far else 0.1 * min(radius, 1.0)) / np.linalg.norm(start)
    theta, _ = minimize_in_ball(loss, start, radius=radius)
    value, gradient, _ = loss(theta)
    size, scale = np.linalg.norm(theta), 1.0 + n
    assert size <= radius * (1 + 1e-12)
    if size < radius * (1 - 1e-9):
        assert np.linalg.norm(gradient) <= 1e-5 * scale
    else:  # the gradient is −νθ with ν >= 0
        nu = -gradient @ theta / size**2
        assert nu >= -1e-5 * scale
        assert np.linalg.norm(gradient + nu * theta) <= 1e-5 * scale
    for _ in range(10):  # and nothing near is better
        other = theta + 0.1 * rng.standard_normal(d)
        other *= min(1.0, radius / np.linalg.norm(other))
        assert loss(other)[0] >= value - 1e-9 * scale


def test_a_step_into_an_overflow_is_taken_back():
    """From far on the flat side, Newton's first step would overshoot by hundreds."""
    loss = glm_loss(get_link("poisson"), np.array([[1.0]]), np.array([3.0]), ridge=1e-9)
    theta, _ = minimize_in_ball(loss, np.array([-9.0]))
    assert theta[0] == pytest.approx(np.log(3.0), abs=1e-6)


@pytest.mark.thorough
@settings(deadline=None, max_examples=30)
@example(name="probit", n=3, d=3, S=0.5, depth=0.3, ridge=1e-6, seed=200)  # the centre is on the sphere
@given(
    name=st.sampled_from(NAMES),
    n=st.integers(0, 80),
    d=st.integers(1, 4),
    S=st.sampled_from([0.5, 2.0]),
    depth=st.sampled_from([0.3, 3.0, 30.0]),
    ridge=st.sampled_from([1e-6, 1.0]),
    seed=st.integers(0, 10_000),
)
def test_level_set_maxima_are_those_of_a_generic_solver(name, n, d, S, depth, ridge, seed):
    X, r, rng = data(name, n, d, S, seed)
    link = get_link(name)
    loss = glm_loss(link, X, r, ridge=ridge)
    center, _ = minimize_in_ball(loss, np.zeros(d), radius=S)
    level = loss(center)[0] + depth
    arms = ball(rng, 6, d)
    bounds = level_set_maxima(link, X, r, arms, center=center, depth=depth, radius=S, ridge=ridge)
    constraints = [
        {"type": "ineq", "fun": lambda v: level - loss(v)[0], "jac": lambda v: -loss(v)[1]},
        {"type": "ineq", "fun": lambda v: S**2 - v @ v, "jac": lambda v: -2 * v},
    ]
    reached = []
    for x in arms:
        options = {"ftol": 1e-12, "maxiter": 300}
        found = minimize(lambda v, x=x: -x @ v, center * 0.99, constraints=constraints, method="SLSQP", options=options)
        # a generic solver may end a little outside, or early
        v = center + 0.999 * (found.x - center)
        reached.append(x @ v if loss(v)[0] <= level and v @ v <= S**2 else -np.inf)
    assert (bounds >= np.array(reached) - 1e-6).all()
    best = int(bounds.argmax())
    if np.isfinite(reached[best]):
        assert bounds[best] <= max(reached) + 0.01 * S


def test_arms_of_zeros_and_no_history():
    link = get_link("logistic")
    arms = np.array([[0.0, 0.0], [0.6, 0.8]])
    empty = np.empty((0, 2))
    bounds = level_set_maxima(link, empty, np.empty(0), arms, center=np.zeros(2), depth=1.0, radius=2.0, ridge=1e-6)
    np.testing.assert_allclose(bounds, [0.0, 2.0], atol=1e-12)
    only_zero = level_set_maxima(
        link, empty, np.empty(0), arms[:1], center=np.zeros(2), depth=1.0, radius=2.0, ridge=1e-6
    )
    assert only_zero.tolist() == [0.0]


def test_a_set_that_is_a_point_up_to_rounding():
    X, r, rng = data("logistic", 50, 2, 1.0, 0)
    link = get_link("logistic")
    center, _ = minimize_in_ball(glm_loss(link, X, r, ridge=1.0), np.zeros(2), radius=2.0)
    arms = ball(rng, 4, 2)
    bounds = level_set_maxima(link, X, r, arms, center=center, depth=1e-13, radius=2.0, ridge=1.0)
    assert np.array_equal(bounds, arms @ center)

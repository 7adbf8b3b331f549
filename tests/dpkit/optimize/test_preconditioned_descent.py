"""Descent in the metric of a noisy second moment, for GLMs and multinomial models."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit
from tabled import tabled
from watched import refused

from accounting import Budget, Ledger, epsilon
from dpkit.geometry import LpBall
from dpkit.mechanisms import GaussianMechanism
from dpkit.optimize import glm, noisy_gradient_descent, preconditioned_descent, softmax
from dpkit.optimize.batch.preconditioned_descent import _within
from dpkit.optimize.parts.softmax import SoftmaxSums, softmax_probabilities
from dpkit.training.groups import Groups
from dpkit.training.whole_rows import UnitRows

BUDGET = Budget(1.0, 1e-6)
AMPLE = Budget(1e5, 1e-6)


def rows(n=300, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) / math.sqrt(d)
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True)), rng


# ------------------------------------------------------------------------------------------------- what it finds


@pytest.mark.parametrize("loss", ["logistic", "probit", "squared", "huber"])
def test_without_noise_to_speak_of_it_finds_the_minimum(loss):
    X, rng = rows(2000, 4)
    y = (X @ [2.0, -1.0, 0.0, 0.5] + 0.7 * rng.normal(size=2000) > 0.2).astype(float)
    objective = glm(loss)
    fit = preconditioned_descent(
        glm(loss, clip=50.0), X, y, budget=AMPLE, radius=50.0, constant=1.0, steps=60, rng=np.random.default_rng(1)
    )
    A = np.column_stack([X, np.ones(2000)])
    best = minimize(lambda theta: objective.mean(theta, A, y), np.zeros(5)).fun
    assert objective.mean(fit.x, A, y) < best + 1e-4


def test_a_badly_conditioned_problem_takes_no_more_passes():
    rng = np.random.default_rng(0)
    scale = np.array([1.0, 0.1, 0.01])
    X = rng.normal(size=(20_000, 3)) * scale / 3
    y = (rng.random(20_000) < expit(X @ (6.0 / scale))).astype(float)
    known = {"budget": AMPLE, "rng": np.random.default_rng(1)}
    found = preconditioned_descent(glm("logistic", clip=1.0), X, y, radius=3000.0, **known).x * scale
    np.testing.assert_allclose(found, 6.0, rtol=0.15)


def test_a_softmax_finds_the_minimum_and_its_classes_sum_to_nothing():
    X, rng = rows(3000, 4)
    y = np.argmax(X @ rng.normal(size=(4, 3)) * 3 + rng.gumbel(size=(3000, 3)), axis=1)
    objective = softmax(3, clip=50.0)
    fit = preconditioned_descent(objective, X, y, budget=AMPLE, radius=100.0, steps=80, rng=rng)
    best = minimize(lambda theta: objective.mean(theta.reshape(3, 4), X, y), np.zeros(12)).fun
    assert fit.x.shape == (3, 4)
    assert objective.mean(fit.x, X, y) < best + 1e-4
    np.testing.assert_allclose(fit.x.sum(axis=0), 0.0, atol=1e-9)


@pytest.mark.thorough
def test_it_beats_two_hundred_plain_passes():
    # a table on which no default was chosen: a spectrum of 1/j, and an offset
    rng = np.random.default_rng(7)
    X = rng.normal(size=(20_000, 20)) / np.arange(1, 21)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    y = (rng.random(20_000) < expit(X @ (4 * rng.normal(size=20)) + 0.5)).astype(float)
    A, objective = np.column_stack([X, np.ones(len(X))]), glm("logistic")
    losses = []
    for seed in range(3):
        known = {"budget": BUDGET, "rng": np.random.default_rng(seed)}
        clipped = glm("logistic", clip=math.sqrt(2))
        fit = preconditioned_descent(clipped, X, y, radius=50.0, constant=1.0, **known)
        plain = noisy_gradient_descent(clipped, A, y, constraint=LpBall(2, 21, 50.0), **known)
        losses.append([objective.mean(theta, A, y) for theta in (fit.x, plain.x)])
    ours, theirs = np.mean(losses, axis=0)
    assert ours < theirs


@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), st.floats(0.01, 100.0))
def test_the_projection_is_the_nearest_point_in_its_metric(theta, radius):
    theta, metric = np.array(theta), np.array([0.1, 1.0, 30.0])
    point = _within(theta, metric, radius)
    assert np.linalg.norm(point) <= radius * (1 + 1e-12)
    if np.linalg.norm(theta) > radius:
        # stationary: metric·(θ − point) is along the point, outwards
        pull = metric * (theta - point)
        assert np.linalg.norm(point) == pytest.approx(radius, rel=1e-9)
        cosine = pull @ point / max(np.linalg.norm(pull) * np.linalg.norm(point), 1e-300)
        assert cosine == pytest.approx(1.0, abs=1e-6)


# ------------------------------------------------------------------------------------------------- what it costs


@pytest.mark.parametrize("adjacency", ["replace", "add_remove", "zero_out"])
def test_a_run_costs_its_budget_whole(adjacency):
    X, rng = rows()
    budget, ledger = Budget(1.0, 1e-6, adjacency=adjacency), Ledger()
    fit = preconditioned_descent(
        glm("logistic", clip=1.0), X, rng.integers(0, 2, 300), budget=budget, radius=5.0, public_rows=300, ledger=ledger
    )
    assert ledger.total == fit.cost
    assert fit.cost.adjacency == adjacency
    assert epsilon(fit.cost, 1e-6) == pytest.approx(1.0, rel=1e-9)
    assert not ledger.simulation
    assert sorted(count for _, count in fit.cost.parts) == [1, 24]


def test_every_release_has_the_noise_that_is_priced(monkeypatch):
    X, rng = rows()
    seen = []
    release = GaussianMechanism.release

    def watched(self, value):
        noisy = release(self, value)
        seen.append((self.noise_multiplier, self.sensitivity, noisy - value))
        return noisy

    monkeypatch.setattr(GaussianMechanism, "release", watched)
    objective = softmax(4, clip=2.0)
    fit = preconditioned_descent(objective, X, rng.integers(0, 4, 300), budget=BUDGET, radius=5.0, steps=150, rng=rng)
    (z0, moment, _), steps = seen[0], seen[1:]
    priced = {part.noise_multiplier: count for part, count in fit.cost.parts}
    assert priced == {z0: 1, steps[0][0]: 150}
    # √(2 + 0.2²), the whole gradient matrix 2·clip, and the last digits of sums
    assert math.sqrt(2.04) <= moment < math.sqrt(2.04) * (1 + 1e-6)
    assert 4.0 <= steps[0][1] < 4.0 * (1 + 1e-4)
    # 1800 numbers: outside 0.9 to 1.1 with probability below 1e-9 for the right noise, and inside it for 0.8 or 1.25
    noise = np.concatenate([difference.ravel() for _, _, difference in steps]) / (steps[0][0] * steps[0][1])
    assert 0.9 < noise.std() < 1.1


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3, 10]), st.booleans())
def test_one_row_moves_the_joint_sum_by_no_more_than_its_bound(seed, classes, replaced):
    # the searched pair: any Θ, any row for any other, labels that the model is sure of among them
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(4, 3)) * 10.0 ** rng.uniform(-3, 3)
    y, theta = rng.integers(0, classes, 4), rng.normal(size=(classes, 3)) * 10.0 ** rng.uniform(-2, 3)
    X[1], y[1] = -X[0], (y[0] + 1) % classes
    clip = 10.0 ** rng.uniform(-1, 1)
    kept = [[0, 2, 3], [1, 2, 3] if replaced else [2, 3]]
    sums = [SoftmaxSums(softmax(classes, clip=clip), X[k], y[k], None, math.inf) for k in kept]
    moved = np.linalg.norm(sums[0].at(theta) - sums[1].at(theta))
    assert moved <= sums[0].sensitivity("replace" if replaced else "add_remove")


def test_the_gradient_of_a_row_is_at_most_root_two_rows_long():
    # and reaches it: the model is sure of the wrong class
    eta = np.array([[800.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    slopes = softmax_probabilities(eta) - np.eye(3)[[1, 1]]
    np.testing.assert_allclose(np.linalg.norm(slopes, axis=1), [math.sqrt(2), math.sqrt(2 / 3)])
    found = SoftmaxSums(softmax(3, clip=9.0), np.array([[0.6, 0.8]]), np.array([1]), None, math.inf)
    assert np.linalg.norm(found.at(np.array([[1e3, 1e3], [0, 0], [0, 0]]))) == pytest.approx(math.sqrt(2), rel=1e-4)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 3.0))
def test_one_row_moves_the_second_moment_by_root_two(seed, longest):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(4, 3)) * 10.0 ** rng.uniform(-2, 2)
    X[1] = np.cross(X[0], rng.normal(size=3))  # orthogonal to the first: the worst case
    first, second = (UnitRows(X[k], longest).second_moment(longest) / 2.0**36 for k in ([0, 2, 3], [1, 2, 3]))
    assert np.linalg.norm(first - second) <= math.sqrt(2)
    short = X[[0, 2, 3]] * np.minimum(1.0, longest / np.linalg.norm(X[[0, 2, 3]], axis=1))[:, None]
    np.testing.assert_allclose(first, short.T @ short / longest**2, atol=5e-5)


# ------------------------------------------------------------------------------------------------- people, and edges


@pytest.mark.parametrize("make", [lambda: glm("logistic", clip=1.0), lambda: softmax(2, clip=1.0)])
def test_a_person_counts_once_however_many_rows(make):
    X, rng = rows(60)
    y = rng.integers(0, 2, 60)
    budget = Budget(1.0, 1e-6, unit="person")
    known = {"budget": budget, "radius": 5.0, "row_norm": 0.7}
    copies = np.repeat(np.arange(60), rng.integers(1, 4, 60))
    fits = [
        preconditioned_descent(make(), X[k], y[k], groups=k, rng=np.random.default_rng(0), **known)
        for k in (np.arange(60), copies)
    ]
    np.testing.assert_allclose(fits[0].x, fits[1].x, atol=2e-3)
    assert fits[0].shortened == pytest.approx(fits[1].shortened, abs=1e-4)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_one_person_moves_the_joint_sum_by_no_more_than_the_clip(seed):
    rng = np.random.default_rng(seed)
    whose = np.sort(rng.integers(0, 3, 12))
    X, y, theta = rng.normal(size=(12, 2)) * 30, rng.integers(0, 3, 12), rng.normal(size=(3, 2)) * 5
    change = X.copy()
    change[whose == whose[0]] *= -1
    objective = softmax(3, clip=0.5)
    sums = [SoftmaxSums(objective, Z, y, Groups(whose), math.inf) for Z in (X, change)]
    assert np.linalg.norm(sums[0].at(theta) - sums[1].at(theta)) <= sums[0].sensitivity("replace") == 1.0


def test_the_share_of_shortened_rows_is_released_with_its_noise():
    X = np.eye(2)[np.arange(4000) % 2] * np.where(np.arange(4000) < 1000, 2.0, 1.0)[:, None]
    fits = [
        preconditioned_descent(glm("logistic", clip=1.0), X, np.zeros(4000), budget=BUDGET, radius=5.0, rng=rng)
        for rng in map(np.random.default_rng, range(20))
    ]
    errors = np.array([(fit.shortened - 0.25) / fit.shortened_std for fit in fits])
    # χ² with 20 degrees: outside with probability below 1e-9
    assert 0.6 < np.square(errors).sum() < 95.0


def test_no_rows():
    nothing = {"X": np.empty((0, 2)), "y": [], "radius": 1.0}
    fit = preconditioned_descent(glm("logistic", clip=1.0), budget=BUDGET, constant=1.0, **nothing)
    assert np.array_equal(fit.x, np.zeros(3))
    assert not fit.cost.parts
    hidden = Budget(1.0, 1e-6, adjacency="add_remove")
    assert preconditioned_descent(glm("logistic", clip=1.0), budget=hidden, public_rows=5, **nothing).cost.parts


@tabled(
    ("change", "message"),
    [
        ({"objective": glm("poisson", clip=1.0)}, "bounded curvature"),
        ({"objective": glm("logistic")}, "clip"),
        ({"objective": softmax(2, clip=1.0), "y": [0.5, 0.0]}, "whole numbers from 0 to 1"),
        ({"objective": softmax(2, clip=1.0), "y": [2, 0]}, "whole numbers from 0 to 1"),
        ({"X": np.zeros(2)}, "X must have shape"),
        ({"X": np.array([[np.nan], [0.0]])}, "finite"),
        ({"radius": 0.0}, "radius"),
        ({"row_norm": 0.0}, "row_norm"),
        ({"constant": -1.0}, "constant"),
        ({"typical": 0.0}, "typical"),
        ({"steps": 0}, "steps"),
        ({"step_scale": 0.0}, "step_scale"),
        ({"momentum": 1.0}, "momentum"),
        ({"share": 0.0}, "share"),
        ({"budget": Budget(1.0, 1e-6, adjacency="add_remove")}, "public_rows must be given"),
        ({"budget": Budget(1.0, 1e-6, unit="person")}, "groups must be given"),
    ],
)
def test_what_is_refused_draws_and_records_nothing(change, message):
    data = {"objective": glm("logistic", clip=1.0), "X": np.ones((2, 1)), "y": [0.0, 1.0]}
    with refused(ValueError, message) as known:
        preconditioned_descent(**data | {"budget": BUDGET, "radius": 1.0} | known | change)


@pytest.mark.parametrize("bad", [{"classes": 1, "clip": 1.0}, {"classes": 3, "clip": 0.0}])
def test_softmax_refuses(bad):
    with pytest.raises(ValueError, match=r"classes must|clip must"):
        softmax(bad["classes"], clip=bad["clip"])

"""Estimates of how probable the largest of many scores is: without bias, with an error that is about right."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpkit.normal_chances import of_largest
from dpkit.normal_estimates import draws_until, draws_until_largest, estimated_chance, estimated_chance_of_largest

# 6.5 standard errors of a mean of many: a false alarm is rarer than once in 10⁹
_SIX = 6.5


def circle(K: int) -> np.ndarray:
    turns = 2 * math.pi * np.arange(K) / K
    return np.stack([np.cos(turns), np.sin(turns)], axis=1)


def worlds():
    """X, index, θ, R, bonus and the probability, which is known."""
    rng = np.random.default_rng(0)
    K = 1200
    yield "a circle", (circle(K), 5, None, None, None), 1 / K
    R = rng.standard_normal((2, 2))
    turned = circle(K) @ np.linalg.inv(R)  # (x R⁻¹)(R ξ) = x ξ
    yield "a circle, with a root", (turned, 9, None, R, None), 1 / K
    center, scale = 0.3 * rng.standard_normal(60), 0.2 + rng.random(60)
    exact = of_largest(center, scale, int(center.argmax()))
    yield "axes", (np.eye(60), int(center.argmax()), center, np.diag(scale), None), exact
    yield "axes, moved by a bonus", (np.eye(60), int(center.argmax()), None, np.diag(scale), center), exact
    far = np.vstack([np.eye(2), -0.01 * np.ones((2000, 2)) * rng.random((2000, 1))])
    yield "two that count of many", (far, 1, np.array([3.0, 3.0]), 0.1 * np.eye(2), None), 0.5
    twice = np.vstack([np.eye(2), np.eye(2), np.zeros((1500, 2))])
    yield "of equal rows the first", (twice, 0, np.array([9.0, 9.0]), 0.1 * np.eye(2), None), 0.5


WORLDS = {name: (given, exact) for name, given, exact in worlds()}


@pytest.mark.parametrize("name", WORLDS)
def test_the_mean_of_estimates_is_the_probability(name):
    given, exact = WORLDS[name]
    rng = np.random.default_rng(1)
    found, errors = np.array([estimated_chance(*given, rng=rng) for _ in range(60)]).T
    assert abs(found.mean() - exact) <= _SIX * found.std(ddof=1) / math.sqrt(len(found)) + 1e-12
    # heavy tails: within a factor
    assert 0.3 * found.std() <= errors.mean() <= 3.0 * found.std() + 1e-3 * exact


@pytest.mark.parametrize("name", ["axes", "axes, moved by a bonus", "two that count of many"])
def test_the_mean_of_waiting_is_the_inverse_of_the_probability(name):
    """N is geometric, of mean 1/p and standard deviation √(1 − p)/p."""
    given, exact = WORLDS[name]
    rng = np.random.default_rng(2)
    found = [draws_until(*given, rng=rng) for _ in range(60)]
    assert abs(np.mean(found) - 1 / exact) <= _SIX * math.sqrt((1 - exact) / len(found)) / exact


def test_a_row_that_is_never_the_largest_has_no_chance():
    X = np.vstack([np.eye(3), np.eye(3), 0.1 * np.ones((1, 3))])
    rng = np.random.default_rng(0)
    assert estimated_chance(X, 4, rng=rng)[0] == 0.0  # row 1 is the same, and comes first
    assert estimated_chance(X, 1, rng=rng)[0] > 0.2
    inside = np.vstack([circle(50), [[0.0, 0.0]]])
    chance, error = estimated_chance(inside, 50, rng=rng)
    assert (chance, error) == (0.0, 1 / 192)


def test_one_row_always_wins():
    rng = np.random.default_rng(0)
    assert estimated_chance(np.ones((1, 2)), 0, rng=rng)[0] == 1.0
    assert draws_until(np.ones((1, 2)), 0, rng=rng) == 1
    assert estimated_chance_of_largest(np.zeros(1), np.ones(1), 0, rng=rng)[0] == pytest.approx(1.0)
    assert draws_until_largest(np.zeros(1), np.ones(1), 0, rng=rng) == 1


@pytest.mark.parametrize("case", ["equal", "spread", "fixed ones", "closed ones"])
def test_independent_scores(case):
    rng = np.random.default_rng(3)
    center, scale = 0.3 * rng.standard_normal(60), 0.2 + 0.3 * rng.random(60)
    if case == "equal":
        center, scale = np.zeros(60), np.ones(60)
    elif case == "fixed ones":
        scale[::3] = 0.0
    elif case == "closed ones":
        center[1:40] = -np.inf
    index = 0 if case == "equal" else int((center + scale).argmax())
    exact = of_largest(center, scale, index)
    found, errors = np.array([estimated_chance_of_largest(center, scale, index, rng=rng) for _ in range(100)]).T
    assert abs(found.mean() - exact) <= _SIX * found.std(ddof=1) / 10 + 1e-9
    assert 0.3 * found.std() <= errors.mean() <= 0.3 * exact
    waits = [draws_until_largest(center, scale, index, rng=rng) for _ in range(60)]
    assert abs(np.mean(waits) - 1 / exact) <= _SIX * math.sqrt((1 - exact) / len(waits)) / exact

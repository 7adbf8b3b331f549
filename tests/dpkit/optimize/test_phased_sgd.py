"""Phased SGD: one row moves a phase's outcome by no more than the sensitivity that is used, rounding included."""

import importlib
import math

import numpy as np
import pytest
from tabled import tabled
from watched import recorded_releases

from accounting import Budget, Gaussian, calibrate
from dpkit.geometry import Box, Ellipsoid, LpBall, Simplex
from dpkit.optimize import glm, phased_sgd

BUDGET = Budget(1.0, 1e-5)


@pytest.fixture
def releases(monkeypatch):
    return recorded_releases(monkeypatch, importlib.import_module(phased_sgd.__module__))


SETS = {
    "round": lambda d: LpBall(2, d, 2.0),
    "curved": lambda d: LpBall(1.5, d, 2.0),
    "cross": lambda d: LpBall(1, d, 2.0),
    "box": lambda d: Box(np.full(d, -0.3), np.full(d, 0.4)),
    "simplex": lambda d: Simplex(d),
    "ellipsoid": lambda d: Ellipsoid(np.diag(np.linspace(1.0, 4.0, d))),
}


@pytest.mark.parametrize("name", sorted(SETS))
@tabled("loss", ["logistic", "squared", "probit"])
@tabled("scale", [1.0, 1e-13, 1e-15])
def test_a_swapped_row_moves_the_first_phase_by_at_most_the_sensitivity(name, loss, scale, releases):
    n, d = 256, 5
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(n, d)), rng.integers(0, 2, n).astype(float)
    swapped = np.vstack([-X[:1], X[1:]])
    constraint = SETS[name](d)
    start = constraint.project(rng.normal(size=d))
    releases.clear()
    for rows in (X, swapped):
        phased_sgd(glm(loss, clip=1.0), rows, y, constraint=constraint, budget=BUDGET, step_scale=scale, start=start)
    half = len(releases) // 2
    (sensitivity, first), (_, second) = releases[0], releases[half]
    moved = float(np.linalg.norm(first - second))
    assert moved <= sensitivity
    if scale == 1.0:  # the bound is not far off, and rounding is no part of it that matters
        assert moved > 0.001 * sensitivity
        eta = float(constraint.diameter()) / math.sqrt(n)
        assert sensitivity < 2.0 * eta * 1.001


def test_the_claim_in_real_arithmetic_alone_is_passed_by_rounding(releases):
    # 2Lη alone was the sensitivity once: steps near the resolution of float64 move the mean by more than that
    n, d = 256, 20
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(n, d)), rng.integers(0, 2, n).astype(float)
    X /= np.linalg.norm(X, axis=1)[:, None]
    swapped = np.vstack([-X[:1], X[1:]])
    constraint, scale = LpBall(2, d, 2.0), 1e-15
    eta = scale * constraint.diameter() * min(1.0 / math.sqrt(n), 0.5 / (calibrate(Gaussian, BUDGET) * math.sqrt(d)))
    worst = 0.0
    for start in (constraint.project(rng.normal(size=d)) for _ in range(30)):
        releases.clear()
        for rows in (X, swapped):
            phased_sgd(
                glm("logistic", clip=1.0), rows, y, constraint=constraint, budget=BUDGET, step_scale=scale, start=start
            )
        (sensitivity, first), (_, second) = releases[0], releases[len(releases) // 2]
        moved = float(np.linalg.norm(first - second))
        assert moved <= sensitivity
        worst = max(worst, moved / (2.0 * eta))
    assert worst > 1.0

"""The convex workload of section 5.2 of Han, Liang, Liang, Wang, Yao & Zhang, and the algorithms that run on it.

y = xᵀθ + N(0, 0.05²); x is a Gaussian direction with ‖x‖_q = 1, θ one with ‖θ‖_p = 1; the set is {‖θ‖_p ≤ 2}; the loss
is squared. Every algorithm takes a clip norm, within its objective, and one scale: of its steps, or what stands for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accounting import Budget
from dpkit import optimize
from dpkit.geometry import LpBall
from dpkit.optimize import GLM

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

__all__ = ["ALGORITHMS", "RADIUS", "Algorithm", "Cell", "draw", "suboptimality"]

Vector = NDArray[np.float64]

TEST_ROWS = 10_000
NOISE = 0.05
RADIUS = 2.0


@dataclass(frozen=True)
class Cell:
    """One cell of the workload."""

    T: int
    d: int
    p: float

    @property
    def q(self) -> float:
        """The dual exponent."""
        return LpBall(self.p, self.d).dual

    @property
    def row_length(self) -> float:
        """The ℓ₂ length of a row with equal entries and ‖x‖_q = 1; public, and about that of all rows."""
        return float(self.d ** (0.5 - 1.0 / self.q))


def draw(cell: Cell, seed: int) -> tuple[Vector, Vector, Vector, Vector, Vector]:
    """X, y of T rows, X, y of the test set, and θ."""
    rng = np.random.default_rng([seed, cell.T, cell.d, 0 if math.isinf(cell.p) else 1])
    theta = rng.normal(size=cell.d)
    theta /= np.linalg.norm(theta, cell.p)
    X = rng.normal(size=(cell.T + TEST_ROWS, cell.d))
    X /= np.linalg.norm(X, cell.q, axis=1, keepdims=True)
    y = X @ theta + NOISE * rng.normal(size=len(X))
    return X[: cell.T], y[: cell.T], X[cell.T :], y[cell.T :], theta


def suboptimality(estimate: Vector, X: Vector, y: Vector, theta: Vector) -> float:
    """SubOpt on a test set."""

    def loss(parameters: Vector) -> float:
        return float(np.mean((y - X @ parameters) ** 2))

    best = loss(theta)
    return (loss(estimate) - best) / (loss(np.zeros_like(theta)) - best)


Runner = Callable[[GLM, Vector, Vector, Cell, Budget, float, np.random.Generator], "OptimizeResult"]


def _with_scale(name: str, **fixed: Any) -> Runner:
    def run_it(
        objective: GLM, X: Vector, y: Vector, cell: Cell, budget: Budget, scale: float, rng: np.random.Generator
    ) -> OptimizeResult:
        constraint = LpBall(cell.p, cell.d, RADIUS)
        more = {"row_norm": _row_bound(cell)} if name == "phased_sgd" else {}
        optimizer: Callable[..., OptimizeResult] = getattr(optimize, name)
        return optimizer(
            objective, X, y, constraint=constraint, budget=budget, step_scale=scale, rng=rng, **fixed, **more
        )

    return run_it


def _ftrl(
    objective: GLM, X: Vector, y: Vector, cell: Cell, budget: Budget, scale: float, rng: np.random.Generator
) -> OptimizeResult:
    # as many steps as NoisyGD's, of a quarter of the rows; all of them, for Ctrl-C must end the table and not a run
    learner = optimize.DPFTRL(
        objective,
        X,
        y,
        constraint=LpBall(cell.p, cell.d, RADIUS),
        budget=budget,
        epochs=25,
        batch=-(-len(X) // 4),
        iterate="tail",
        step_scale=scale,
        rng=rng,
    )
    learner.advance(learner.horizon)
    return learner.result()


def _without_noise(
    objective: GLM, X: Vector, y: Vector, cell: Cell, budget: Budget, scale: float, rng: np.random.Generator
) -> OptimizeResult:
    from scipy.optimize import OptimizeResult

    constraint = LpBall(cell.p, cell.d, RADIUS)
    theta = before = total = np.zeros(cell.d)
    for t, (x, label) in enumerate(zip(X, y.tolist(), strict=True), 1):
        total = total + ((t + 1) * (x @ theta - label) - t * (x @ before - label)) * x
        before, theta = theta, theta + scale / (t + 1) * (constraint.linear_minimizer(total) - theta)
    return OptimizeResult(x=theta, cost=None)


def _objective_perturbation(
    objective: GLM, X: Vector, y: Vector, cell: Cell, budget: Budget, scale: float, rng: np.random.Generator
) -> OptimizeResult:
    return optimize.objective_perturbation(
        objective,
        X,
        y,
        constraint=LpBall(cell.p, cell.d, RADIUS),
        budget=budget,
        row_norm=_row_bound(cell),
        curvature_share=min(0.9, scale / 8.0),
        rng=rng,
    )


def _sufficient_statistics(
    objective: GLM, X: Vector, y: Vector, cell: Cell, budget: Budget, scale: float, rng: np.random.Generator
) -> OptimizeResult:
    # the grid of clip norms is that of rows, and scales are bounds of labels relative to it
    bound = float(objective.clip or 0.0)
    constraint = LpBall(cell.p, cell.d, RADIUS)
    return optimize.sufficient_statistics(
        X, y, constraint=constraint, budget=budget, label_bound=scale * bound, row_norm=bound, rng=rng
    )


def _row_bound(cell: Cell) -> float:
    """R: nearly all rows are shorter; the others are shortened."""
    return 1.25 * cell.row_length


@dataclass(frozen=True)
class Algorithm:
    """How to run it, how often it reads a row, and where it is defined."""

    run: Runner
    passes: str
    geometries: tuple[float, ...] = (1.5, math.inf)
    private: bool = True


ALGORITHMS: dict[str, Algorithm] = {
    "OFW": Algorithm(_with_scale("online_frank_wolfe"), "one, online"),
    "NoisySFW": Algorithm(_with_scale("noisy_stochastic_frank_wolfe"), "one"),
    "PhasedSGD": Algorithm(_with_scale("phased_sgd"), "one"),
    "LocalMD": Algorithm(_with_scale("localized_mirror_descent"), "many", (1.5,)),
    "NoisySGD": Algorithm(_with_scale("noisy_sgd", steps=200), "many"),
    "DP-FTRL": Algorithm(_ftrl, "many"),
    "NoisyGD": Algorithm(_with_scale("noisy_gradient_descent", max_iterations=100), "many"),
    "ObjectivePerturbation": Algorithm(_objective_perturbation, "many"),
    "SufficientStatistics": Algorithm(_sufficient_statistics, "one"),
    "OFW without noise": Algorithm(_without_noise, "one, online", private=False),
}

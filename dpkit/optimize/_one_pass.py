"""One pass of an online learner over rows that are all there: what the one-call forms of the stream learners share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Ledger, Release
from dpkit.geometry import ConvexSet
from dpkit.optimize._rows import checked_data, lengths
from dpkit.optimize.objectives import GLM
from dpkit.optimize.result import NOTHING, outcome

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

__all__ = ["Learner", "check_same_problem", "one_pass"]

Vector = NDArray[np.float64]


class Learner(Protocol):
    """What a pass needs of an online learner."""

    theta: Vector
    norm: float
    clipped: int

    @property
    def cost(self) -> Release:
        """Of the whole stream."""

    def _advance(self, x: Vector, y: float, length: float) -> Vector:
        """The next iterate from a checked row, its label and its ℓ_norm length."""


def one_pass(
    make: Callable[[int, Ledger | None], Learner],
    X: ArrayLike,
    y: ArrayLike,
    *,
    dimension: int,
    callback: Callable[[Vector], object] | None,
    ledger: Ledger | None,
) -> OptimizeResult:
    """Run the learner ``make(horizon, ledger)`` over the rows in their order; without rows its start, at no cost."""
    rows, labels = checked_data(X, y, dimension)
    n = len(rows)
    # without rows the parameters are checked all the same, and nothing is charged
    learner = make(max(1, n), ledger if n else None)
    if n == 0:
        return outcome(learner.theta, NOTHING, nit=0, nfev=0, message="no rows: the start is returned", clipped=0)
    for x, label, length in zip(rows, labels.tolist(), lengths(rows, learner.norm).tolist(), strict=True):
        theta = learner._advance(x, label, length)
        if callback is not None:
            callback(theta)
    return outcome(
        learner.theta, learner.cost, nit=n, nfev=2 * n, message=f"one pass over {n} rows", clipped=learner.clipped
    )


def check_same_problem(clip: float, iterates: Vector, objective: GLM, constraint: ConvexSet) -> None:
    """Refuse to continue a stream with another clip norm, whose noise would not fit, or outside the set."""
    if objective.clip != clip:
        raise ValueError(f"objective must have the clip of the saved learner, {clip!r}, got clip={objective.clip!r}")
    if iterates.ndim != 2 or iterates.shape[1] != constraint.dimension or not constraint.contains(iterates[0]):
        raise ValueError(f"constraint must be that of the saved learner, got {constraint!r}, where its iterate is not")

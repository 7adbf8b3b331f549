"""Private choices among few vertices by means of clipped gradients: what the batch Frank–Wolfe methods in ℓ₁ share.

A score is ⟨d, v⟩ with ‖v‖₁ ≤ R and d made of means of gradients that are clipped in ℓ_∞. With Gumbel noise of scale τ a
choice among scores that one row moves by δ has a privacy loss of range 2δ/τ, hence costs (2δ/τ)²/8 = δ²/(2τ²) in zCDP
(Cesar & Rogers 2021, arXiv:2106.09805). What a row spends on several choices adds up, adaptively: Σδ_t²/(2τ²).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting import ZCDP, Budget, calibrate
from dpkit.clipping import clipped, lengths
from dpkit.geometry import PolyhedralSet
from dpkit.mechanisms import report_noisy_max
from dpkit.models.losses import GLM
from dpkit.training.rows import clip_of

__all__ = ["BoundedMeans", "check_vertices", "choose", "largest_rho"]

Vector = NDArray[np.float64]


class BoundedMeans:
    """Means of gradients over rows, every gradient clipped in ℓ_∞; and how many were (which is not private)."""

    def __init__(self, objective: GLM, X: Vector, y: Vector) -> None:
        self.clip = clip_of(objective)
        self._slope = objective.slope
        self._X, self._y = X, y
        self._lengths = lengths(X, math.inf)
        self.clipped = self.nfev = 0

    def at(self, theta: Vector, rows: slice) -> Vector:
        """The mean of ∇ℓ(θ; x_i), each clipped to ``clip``: shape (d,)."""
        return self._mean(self._slopes(theta, rows), rows, self.clip)

    def difference(self, theta: Vector, before: Vector, weight: float, rows: slice, clip: float) -> Vector:
        """The mean of ∇ℓ(θ; x_i) − weight·∇ℓ(before; x_i), each clipped to ``clip``: shape (d,)."""
        with np.errstate(all="ignore"):
            slopes = self._slopes(theta, rows) - weight * self._slopes(before, rows)
        return self._mean(slopes, rows, clip)

    def _slopes(self, theta: Vector, rows: slice) -> Vector:
        self.nfev += rows.stop - rows.start
        with np.errstate(all="ignore"):  # what overflows is clipped
            return self._slope(self._X[rows] @ theta, self._y[rows])

    def _mean(self, slopes: Vector, rows: slice, clip: float) -> Vector:
        cut, count = clipped(slopes, self._lengths[rows], clip)
        self.clipped += count
        return np.asarray(cut @ self._X[rows]) / len(slopes)


def check_vertices(constraint: PolyhedralSet) -> int:
    """How many vertices the set has; refuses one that is not the hull of few."""
    if not isinstance(constraint, PolyhedralSet):
        raise TypeError(f"constraint must have vertices, such as LpBall(1, d) or Simplex(d), got {constraint!r}")
    return len(constraint.vertex_scores(constraint.center))


@lru_cache(maxsize=64)
def largest_rho(budget: Budget) -> float:
    """The zCDP that just meets the budget."""
    z = calibrate(lambda z: ZCDP(0.5 / z**2, adjacency=budget.adjacency), budget)
    return 0.5 / z**2


def choose(constraint: PolyhedralSet, d: Vector, scale: float, rng: np.random.Generator) -> Vector:
    """The vertex v of the least ⟨d, v⟩ + Gumbel noise of that scale, sampled exactly from the scores as computed."""
    # ε/(2Δ) is 1/τ, whatever Δ is
    return constraint.vertex(
        report_noisy_max(constraint.vertex_scores(d), scale, 2.0, "gumbel", minimise=True, rng=rng)
    )

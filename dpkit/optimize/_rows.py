"""What every optimizer does with its rows: check them, clip their gradients, and count what a change of one can do."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Budget, Ledger, Release
from accounting.checks import integer
from dpkit import randomness
from dpkit.geometry import ConvexSet
from dpkit.geometry.sets import vector
from dpkit.optimize.objectives import GLM

__all__ = [
    "GradientSums",
    "charge",
    "checked_budget",
    "checked_data",
    "checked_row",
    "checked_start",
    "clip_of",
    "clipped",
    "clipped_slope",
    "convex_labels",
    "lengths",
    "public_count",
    "row_sensitivity",
    "shortened",
]

Vector = NDArray[np.float64]

_TINY = float(np.finfo(np.float64).tiny)
_SMALLEST = 5e-324
# the margin covers the rounding of a norm and of a product: a clipped gradient is never longer than the clip norm
_MARGIN = 1.0 - 2.0**-40


def checked_data(X: ArrayLike, y: ArrayLike, dimension: int) -> tuple[Vector, Vector]:
    """Rows (n, d) and labels (n,), finite; n may be 0."""
    rows = np.asarray(X)
    if rows.size == 0 and rows.ndim < 2:
        rows = np.empty((0, dimension))
    if rows.dtype.kind not in "biuf":
        raise TypeError(f"X must be an array of real numbers, got X.dtype={rows.dtype}")
    if rows.ndim != 2 or rows.shape[1] != dimension:
        raise ValueError(f"X must have shape (n, {dimension}), got X.shape={rows.shape}")
    rows = rows.astype(np.float64, copy=False)
    if not np.isfinite(rows).all():
        raise ValueError(
            f"X must be finite, got {np.count_nonzero(~np.isfinite(rows))} entries that are NaN or infinite"
        )
    return rows, vector("y", y if np.size(y) else np.empty(0), len(rows))


def checked_row(x: ArrayLike, y: float, dimension: int, norm: float) -> tuple[Vector, float, float]:
    """One finite row (d,), its label and its ℓ_norm length."""
    label = y if type(y) is float and math.isfinite(y) else float(vector("y", np.reshape(y, -1), 1)[0])
    if norm == 2 and type(x) is np.ndarray and x.dtype == np.float64 and x.shape == (dimension,):
        squared = float(np.vdot(x, x))  # unlike dot, it does not warn of an overflow
        if 1e-280 < squared < 1e280:  # so no entry is NaN or infinite
            return x, label, math.sqrt(squared)
    row = vector("x", x, dimension)
    return row, label, float(lengths(row[None, :], norm)[0])


def checked_start(constraint: ConvexSet, start: ArrayLike | None) -> Vector:
    """The first iterate: the set's centre, or a point that lies in it."""
    if start is None:
        return constraint.center.copy()
    point = vector("start", start, constraint.dimension)
    if not constraint.contains(point):
        raise ValueError(f"start must lie in the constraint set {constraint!r}, got start={point.tolist()!r}")
    return point.copy()


def checked_budget(budget: Budget, *, allowed: tuple[Adjacency, ...]) -> Budget:
    """``budget``, if it counts neighbours in a way that the optimizer is proved for."""
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget, got budget={budget!r}")
    if budget.adjacency not in allowed:
        raise ValueError(f"budget.adjacency must be one of {allowed}, got budget.adjacency={budget.adjacency!r}")
    return budget


def row_sensitivity(bound: float, adjacency: Adjacency) -> float:
    """How far one row moves a sum of vectors of length at most ``bound``."""
    return 2.0 * bound if adjacency == "replace" else bound


def public_count(rows: int, public_rows: int | None, adjacency: Adjacency) -> int:
    """The public n that sums are divided by: under add_remove the caller's, for the true number is private."""
    if public_rows is None:
        if adjacency == "add_remove":
            raise ValueError("public_rows must be given under add_remove, where the number of rows is private")
        return rows
    return integer("public_rows", public_rows, at_least=1)


def convex_labels(objective: GLM, y: Vector) -> Vector:
    """``y``, cut to where the loss is convex in η: for probit to [0, 1]; the other losses are for any label."""
    return np.clip(y, 0.0, 1.0) if objective.name == "probit" else y


def lengths(X: Vector, norm: float = 2.0) -> Vector:
    """The ℓ_norm length of every row."""
    with np.errstate(over="ignore"):
        found: Vector = np.linalg.norm(X, norm, axis=1)
        doubtful = np.flatnonzero(~((found > 1e-150) & (found < 1e150)))
        if doubtful.size:
            # squares that underflow would make a row look shorter than it is, and its gradient pass the clip norm
            largest = np.abs(X[doubtful]).max(axis=1)
            relative = X[doubtful] / np.maximum(largest, _SMALLEST)[:, None]
            found[doubtful] = largest * np.linalg.norm(relative, norm, axis=1)
    return found


def shortened(X: Vector, bound: float) -> tuple[Vector, Vector]:
    """The rows scaled to ℓ₂ length at most ``bound``, and their lengths."""
    found = lengths(X)
    factors = np.minimum(1.0, bound * _MARGIN / np.maximum(found, _TINY))
    return X * factors[:, None], np.minimum(found, bound)


def clip_of(objective: GLM) -> float:
    """The objective's clip norm, which every privacy claim rests on."""
    if objective.clip is None:
        raise ValueError("objective must have a clip, which bounds what one row can change, got clip=None")
    return objective.clip


def clipped(slopes: Vector, row_lengths: Vector, clip: float) -> tuple[Vector, int]:
    """The slopes ψ_i cut so that ‖ψ_i·x_i‖ ≤ ``clip``, and how many were; a NaN becomes 0."""
    bounds = clip * _MARGIN / np.maximum(row_lengths, _TINY)
    inside = np.abs(slopes) <= bounds  # false for NaN
    cut = np.where(np.isnan(slopes), 0.0, np.clip(slopes, -bounds, bounds))
    return cut, int(slopes.size - np.count_nonzero(inside))


def clipped_slope(slope: float, length: float, clip: float) -> tuple[float, bool]:
    """:func:`clipped` for one row, in plain floats: ψ cut so that ‖ψ·x‖ ≤ ``clip``, and whether it was."""
    bound = clip * _MARGIN / max(length, _TINY)
    if -bound <= slope <= bound:
        return slope, False
    if slope != slope:  # NaN
        return 0.0, True
    return (bound if slope > 0 else -bound), True


class GradientSums:
    """Sums of clipped gradients over rows, and how many of these were clipped (which is not private)."""

    def __init__(self, objective: GLM, X: Vector, y: Vector) -> None:
        self.clip = clip_of(objective)
        self._slope = objective.slope
        self.X, self.y = X, y
        self._lengths = lengths(X)
        self.clipped = self.nfev = 0

    def at(self, theta: Vector, rows: slice | NDArray[np.intp] = slice(None)) -> Vector:
        """Σ_i ∇ℓ(θ; x_i) over the ``rows``, each gradient clipped in ℓ₂: shape (d,)."""
        X = self.X[rows]
        with np.errstate(all="ignore"):  # what overflows is clipped
            psi, count = clipped(self._slope(X @ theta, self.y[rows]), self._lengths[rows], self.clip)
        self.clipped += count
        self.nfev += len(X)
        return np.asarray(psi @ X)

    def difference(self, theta: Vector, before: Vector, weight: float, rows: slice, clip: float) -> Vector:
        """Σ_i (∇ℓ(θ; x_i) − weight·∇ℓ(before; x_i)), each term clipped to ``clip`` in ℓ₂: shape (d,)."""
        X, y = self.X[rows], self.y[rows]
        with np.errstate(all="ignore"):
            slopes = self._slope(X @ theta, y) - weight * self._slope(X @ before, y)
            psi, count = clipped(slopes, self._lengths[rows], clip)
        self.clipped += count
        self.nfev += 2 * len(X)
        return np.asarray(psi @ X)


def charge(ledger: Ledger | None, cost: Release, label: str, rng: np.random.Generator) -> None:
    """Record the whole run before any noise is drawn; raises where the ledger refuses."""
    if ledger is not None:
        ledger.spend(cost, label=label, simulation=randomness.is_simulation(rng))

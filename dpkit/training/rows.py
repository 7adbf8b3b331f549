"""What every optimizer does with its rows: check them, sum their clipped gradients, count what a change can do."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Budget
from accounting.checks import integer
from dpkit.clipping import clipped_slope, grown, lengths, real_array
from dpkit.geometry import ConvexSet
from dpkit.geometry.sets import vector
from dpkit.models.losses import GLM
from dpkit.training.whole_rows import UnitRows

__all__ = [
    "GradientSums",
    "checked_budget",
    "checked_data",
    "checked_row",
    "checked_start",
    "clip_of",
    "clipped_gradient",
    "convex_labels",
    "poisson_sample",
    "public_count",
    "row_sensitivity",
]

Vector = NDArray[np.float64]


def checked_data(X: ArrayLike, y: ArrayLike, dimension: int, objective: GLM | None = None) -> tuple[Vector, Vector]:
    """Rows (n, d) and labels (n,), finite, and labels that the objective is for; n may be 0.

    A refusal depends on the rows, and no cost covers it: as everywhere it is one for the holder of the data, of a fault
    that is to be mended before anything private is made, and says how many entries are at fault, but none of them.
    """
    rows = real_array("X", X)
    if rows.size == 0 and rows.ndim < 2:
        rows = np.empty((0, dimension))
    if rows.ndim != 2 or rows.shape[1] != dimension:
        raise ValueError(f"X must have shape (n, {dimension}), got X.shape={rows.shape}")
    labels = vector("y", y if np.size(y) else np.empty(0), len(rows))
    if objective is not None:
        _check_labels(objective, labels)
    return rows, labels


def _check_labels(objective: GLM, y: Vector) -> None:
    low, high = objective.response_range
    outside = int(np.count_nonzero((y < low) | (y > high)))
    if outside:
        way = ""
        if (low, high) == (0.0, 1.0):
            way = ": give two classes as 0 and 1, which (y + 1) / 2 makes of -1 and 1, and y - 1 of 1 and 2"
        end = "infinity)" if math.isinf(high) else f"{high:g}]"
        raise ValueError(
            f"y must lie in [{low:g}, {end} for the loss {objective.name!r}, got {outside} labels that do not{way}"
        )


def checked_row(
    x: ArrayLike, y: float, dimension: int, norm: float, objective: GLM | None = None
) -> tuple[Vector, float, float]:
    """One finite row (d,), its label and its ℓ_norm length, rounded up."""
    label = y if type(y) is float and math.isfinite(y) else float(vector("y", np.reshape(y, -1), 1)[0])
    if objective is not None and not objective.response_range[0] <= label <= objective.response_range[1]:
        _check_labels(objective, np.array([label]))
    if norm == 2 and type(x) is np.ndarray and x.dtype == np.float64 and x.shape == (dimension,):
        squared = float(np.vdot(x, x))  # unlike dot, it does not warn of an overflow
        if 1e-280 < squared < 1e280:  # so no entry is NaN or infinite
            return x, label, grown(math.sqrt(squared), dimension)
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


def checked_budget(budget: Budget, *, allowed: tuple[Adjacency, ...], people: bool = False) -> Budget:
    """``budget``, if it counts neighbours in a way that the optimizer is proved for, and ``people`` only if it can."""
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget, got budget={budget!r}")
    if budget.adjacency not in allowed:
        raise ValueError(f"budget.adjacency must be one of {allowed}, got budget.adjacency={budget.adjacency!r}")
    if budget.unit == "person" and not people:
        raise ValueError(
            "budget.unit must not be 'person' where every row counts as a unit of its own, got budget.unit='person': "
            "take an optimizer with groups=, such as noisy_gradient_descent"
        )
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


def poisson_sample(source: np.random.Generator, count: int, rate: float) -> NDArray[np.intp]:
    """The indices of a Poisson sample: each with probability ``rate``, rounded down to what uniform numbers resolve."""
    # they are multiples of 2⁻⁵³; without rounding down the probability would be up to 2⁻⁵³ above the one that is priced
    return np.flatnonzero(source.random(count) < math.floor(rate * 2.0**53) * 2.0**-53)


def convex_labels(objective: GLM, y: Vector) -> Vector:
    """``y``, cut to where the loss is convex in η: for probit to [0, 1]; the other losses are for any label."""
    return np.clip(y, 0.0, 1.0) if objective.name == "probit" else y


def clip_of(objective: GLM) -> float:
    """The objective's clip norm, which every privacy claim rests on."""
    if objective.clip is None:
        raise ValueError("objective must have a clip, which bounds what one row can change, got clip=None")
    return objective.clip


def clipped_gradient(objective: GLM, theta: Vector, x: Vector, y: float, length: float) -> tuple[Vector, bool]:
    """∇ℓ(θ; x) of one row whose length is at most ``length``, clipped as a real number; and whether it was."""
    with np.errstate(all="ignore"):  # what overflows is clipped
        slope = float(objective.slope(np.array([np.vdot(x, theta)]), np.array([y]))[0])
    psi, cut = clipped_slope(slope, length, clip_of(objective))
    return psi * x, cut


class GradientSums:
    """Sums of clipped gradients over rows, without rounding; and how many were clipped (which is not private)."""

    def __init__(self, objective: GLM, X: Vector, y: Vector, longest: float = math.inf) -> None:
        self.clip = clip_of(objective)
        self._slope = objective.slope
        self.rows, self.y = UnitRows(X, longest), y
        self.units = len(X)
        self.clipped = self.nfev = 0

    def sensitivity(self, adjacency: Adjacency, clip: float | None = None) -> float:
        """How far one row moves a sum, in ℓ₂."""
        return self.rows.sensitivity(self.clip if clip is None else clip, replaced=adjacency == "replace")

    def at(self, theta: Vector, rows: slice | NDArray[np.intp] = slice(None)) -> Vector:
        """Σ_i ∇ℓ(θ; x_i) over the ``rows``, each gradient clipped in ℓ₂: shape (d,)."""
        with np.errstate(all="ignore"):  # what overflows is clipped
            slopes = self._slope(self.rows.products(theta, rows), self.y[rows])
        return self._sum(slopes, self.clip, rows)

    def second_moment(self, longest: float) -> NDArray[np.int64]:
        """Σ_i x_i·x_iᵀ/``longest``² in units of 2⁻³⁶, exactly; no row may be longer."""
        return self.rows.second_moment(longest)

    def difference(self, theta: Vector, before: Vector, weight: float, rows: slice, clip: float) -> Vector:
        """Σ_i (∇ℓ(θ; x_i) − weight·∇ℓ(before; x_i)), each term clipped to ``clip`` in ℓ₂: shape (d,)."""
        y = self.y[rows]
        with np.errstate(all="ignore"):
            slopes = self._slope(self.rows.products(theta, rows), y)
            slopes = slopes - weight * self._slope(self.rows.products(before, rows), y)
        self.nfev += len(slopes)
        return self._sum(slopes, clip, rows)

    def _sum(self, slopes: Vector, clip: float, rows: slice | NDArray[np.intp]) -> Vector:
        total, count = self.rows.gradient_sum(slopes, clip, rows)
        self.clipped += count
        self.nfev += len(slopes)
        return total

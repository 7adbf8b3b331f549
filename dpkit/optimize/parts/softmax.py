"""Multinomial logistic regression: the objective of K classes at once, with gradients that are clipped row by row.

A parameter is a matrix Θ of K rows. With η = Θx and p = softmax(η) the loss of a row of class y is −ln p_y, and its
gradient the matrix (p − e_y)·xᵀ.

Privacy. Its Frobenius norm is ‖p − e_y‖₂·‖x‖₂, and one budget covers all classes together, for

    ‖p − e_y‖₂² = (1 − p_y)² + Σ_{k≠y} p_k² ≤ (1 − p_y)² + (Σ_{k≠y} p_k)² = 2(1 − p_y)² ≤ 2:

at most √2·‖x‖₂, however many classes there are. (K separate models under one budget would move by up to √K·‖x‖₂.)
``clip`` bounds it whatever the data are.

Curvature. ∇²ℓ = (diag p − ppᵀ) ⊗ xxᵀ ≼ ½(I − 11ᵀ/K) ⊗ xxᵀ (Böhning 1992): as a bound, the same matrix for every class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting import Adjacency
from accounting.arrays import Array
from accounting.checks import integer, positive
from dpkit.training.groups import Groups
from dpkit.training.whole_rows import BITS, UnitRows, whole_rows

__all__ = ["Softmax", "SoftmaxSums", "softmax", "softmax_probabilities"]


# numbers of people's gradients that are held at once
_HELD = 1 << 20


@dataclass(frozen=True)
class Softmax:
    """The loss of a multinomial logistic regression; :func:`softmax` makes one.

    Parameters
    ----------
    classes : int
        K, at least 2. Labels are 0, …, K − 1.
    clip : float
        The Frobenius norm to which longer gradients of single rows are scaled back.

    Examples
    --------
    >>> from dpkit.optimize import softmax
    >>> softmax(3, clip=1.0).classes
    3
    """

    classes: int
    clip: float

    curvature_bound = 0.5
    slope_bound = math.sqrt(2.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", integer("classes", self.classes, at_least=2))
        object.__setattr__(self, "clip", positive("clip", self.clip))

    def mean(self, theta: Array, X: Array, y: NDArray[np.intp]) -> float:
        """The mean loss of rows (n, d) with labels (n,) at a (K, d) parameter. Not private."""
        from scipy.special import logsumexp

        eta = np.asarray(X) @ np.asarray(theta).T
        return float(np.mean(logsumexp(eta, axis=1) - eta[np.arange(len(eta)), y]))


def softmax(classes: int, *, clip: float) -> Softmax:
    """The objective of so many classes.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.optimize import softmax
    >>> objective = softmax(3, clip=1.0)
    >>> round(objective.mean(np.zeros((3, 2)), np.ones((4, 2)), np.array([0, 1, 2, 0])), 4)  # ln 3
    1.0986
    """
    return Softmax(classes, clip)


def softmax_probabilities(eta: Array) -> Array:
    """e^η over its sum, along the last axis; of each row by itself.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.optimize.parts.softmax import softmax_probabilities
    >>> softmax_probabilities(np.array([[0.0, 0.0, 800.0]]))
    array([[0., 0., 1.]])
    """
    found = np.exp(eta - eta.max(axis=-1, keepdims=True))
    found /= found.sum(axis=-1, keepdims=True)
    return np.asarray(found)


class SoftmaxSums:
    """Sums of clipped gradients over rows, or over people: exact, as those of a GLM."""

    def __init__(
        self, objective: Softmax, X: Array, y: NDArray[np.intp], people: Groups | None, longest: float
    ) -> None:
        self.clip, self.classes = objective.clip, objective.classes
        self._people = people
        if people is not None:
            X, y = X[people.order], y[people.order]
        self.rows, self._y = UnitRows(X, longest), y
        self.units = len(X) if people is None else len(people.sizes)
        self.clipped = self.nfev = 0

    def sensitivity(self, adjacency: Adjacency) -> float:
        """How far one unit moves a sum, in Frobenius norm."""
        if self._people is not None:
            return 2.0 * self.clip if adjacency == "replace" else self.clip
        return self.rows.sensitivity(self.clip, replaced=adjacency == "replace", slopes=self.classes)

    def second_moment(self, longest: float) -> NDArray[np.int64]:
        """As that of a GLM's sums."""
        people = self._people
        return self.rows.second_moment(longest, None if people is None else people.root_shares()[people.order])

    def at(self, theta: Array) -> Array:
        """Σ_i of the clipped gradients at Θ, over all units: shape (K, d)."""
        self.nfev += self.units
        if self._people is None:
            total, count = self.rows.gradient_sum(self._slopes(theta, slice(None)), self.clip)
            self.clipped += count
            return total
        total = np.zeros(theta.shape)
        for persons in self._people.parts(np.arange(self.units), max(1, _HELD // theta.size)):
            total += self._of_people(theta, self._people, slice(int(persons[0]), int(persons[-1]) + 1))
        return total

    def _slopes(self, theta: Array, rows: slice | NDArray[np.intp]) -> Array:
        eta = self.rows.products(theta, rows)
        with np.errstate(all="ignore"):  # what overflows counts as zero
            found = softmax_probabilities(eta)
        found[np.arange(len(found)), self._y[rows]] -= 1.0
        return found

    def _of_people(self, theta: Array, people: Groups, persons: slice) -> Array:
        """Σ_p over some of the clipped mean gradients: whole numbers of a power of two."""
        rows, begins = people.rows(persons)
        slopes = self._slopes(theta, rows) * (self.rows.lengths[rows] * 2.0**-BITS)[:, None]
        gradients = (slopes[:, :, None] * self.rows.units[rows][:, None, :]).reshape(len(slopes), -1)
        means = np.add.reduceat(gradients, begins, axis=0) / people.sizes[persons][:, None]
        whole, unit, count = whole_rows(means, self.clip)
        self.clipped += count
        return np.asarray(whole.sum(axis=0).reshape(theta.shape) * unit)

"""Gradients of people with several rows each: a person's mean gradient is what is clipped and summed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Budget
from dpkit.models.losses import GLM
from dpkit.training.rows import GradientSums, clip_of
from dpkit.training.whole_rows import BITS, UnitRows, whole_rows

__all__ = ["Groups", "GroupSums", "checked_groups", "gradient_sums"]

Vector = NDArray[np.float64]


class Groups:
    """Who has which rows: ``order`` sorts the rows by person, ``starts`` says where those of each of ``labels`` begin.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.training.groups import Groups
    >>> people = Groups(np.array(["ann", "bob", "ann"]))
    >>> people.order.tolist(), people.starts.tolist(), people.sizes.tolist()
    ([0, 2, 1], [0, 2], [2, 1])
    """

    def __init__(self, groups: NDArray[np.generic]) -> None:
        self.labels, index, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        self.order = np.argsort(index, kind="stable")
        self.sizes: NDArray[np.intp] = sizes
        self.starts = np.cumsum(sizes) - sizes

    def parts(self, persons: NDArray[np.intp], most: int) -> list[NDArray[np.intp]]:
        """The ``persons`` in parts of at most ``most`` rows, or of one person who has more."""
        found, begin, rows = [], 0, 0
        for i, size in enumerate(self.sizes[persons].tolist()):
            if i > begin and rows + size > most:
                found.append(persons[begin:i])
                begin, rows = i, 0
            rows += size
        return [*found, persons[begin:]] if len(persons) else found

    def shares(self) -> Vector:
        """1/m for every row, in the order they came, m the number of its person's rows; rounded down."""
        return self._by_row((1.0 - 2.0**-50) / self.sizes)

    def root_shares(self) -> Vector:
        """1/√m for every row, likewise."""
        return self._by_row((1.0 - 2.0**-50) / np.sqrt(self.sizes))

    def _by_row(self, values: Vector) -> Vector:
        """A number of each person's, for each of its rows."""
        found = np.empty(len(self.order))
        found[self.order] = np.repeat(values, self.sizes)
        return found

    def rows(self, persons: slice | NDArray[np.intp]) -> tuple[slice | NDArray[np.intp], NDArray[np.intp]]:
        """The rows of some persons, among the sorted ones, and where each person's begin among these."""
        sizes, starts = self.sizes[persons], self.starts[persons]
        begins = np.cumsum(sizes) - sizes
        if isinstance(persons, slice):
            first = int(starts[0]) if len(starts) else 0
            return slice(first, first + int(sizes.sum())), begins
        return np.repeat(starts - begins, sizes) + np.arange(int(sizes.sum())), begins


def checked_groups(budget: Budget, groups: ArrayLike | None, rows: int) -> Groups | None:
    """Who has which rows, if ``groups`` says so; its presence and ``budget.unit`` must go together."""
    if groups is None:
        if budget.unit == "person":
            raise ValueError(
                "groups must be given where budget.unit is 'person', got groups=None: np.arange(n), if everybody has "
                "one row only"
            )
        return None
    if budget.unit != "person":
        raise ValueError(f"budget.unit must be 'person' where groups are given, got budget.unit={budget.unit!r}")
    labels = np.asarray(groups) if np.size(groups) else np.empty(0, np.int64)  # an empty list is one of floats
    if labels.dtype.kind not in "iuSU":
        raise TypeError(f"groups must be integers or strings, got groups.dtype={labels.dtype}")
    if labels.shape != (rows,):
        raise ValueError(f"groups must have shape ({rows},), got groups.shape={labels.shape}")
    return Groups(labels)


def gradient_sums(
    objective: GLM, X: Vector, y: Vector, people: Groups | None, longest: float = math.inf
) -> GradientSums | GroupSums:
    """Sums over rows, or over people; rows are shortened to ``longest``."""
    if people is None:
        return GradientSums(objective, X, y, longest)
    return GroupSums(objective, X, y, people, longest)


class GroupSums:
    """:class:`GradientSums` with people in the place of rows: Σ_p of the mean gradient of p's rows, clipped as one.

    A person's mean is computed from that person's rows alone, then scaled to length at most ``clip`` and cut to whole
    multiples of a power of two, so that a person moves a sum by at most ``clip`` as a real number, however many rows
    there are. A mean that is not finite counts as zero.
    """

    def __init__(self, objective: GLM, X: Vector, y: Vector, people: Groups, longest: float = math.inf) -> None:
        self.clip = clip_of(objective)
        self._slope = objective.slope
        self._people = people
        self._rows, self._y = UnitRows(X[people.order], longest), y[people.order]
        self.units = len(people.sizes)
        self.clipped = self.nfev = 0

    def sensitivity(self, adjacency: Adjacency, clip: float | None = None) -> float:
        """How far one person moves a sum, in ℓ₂."""
        bound = self.clip if clip is None else clip
        return 2.0 * bound if adjacency == "replace" else bound

    def at(self, theta: Vector, persons: slice | NDArray[np.intp] = slice(None)) -> Vector:
        """Σ_p of the clipped mean gradients at θ, over the ``persons``: shape (d,)."""
        rows, begins = self._people.rows(persons)
        return self._sum(self._slopes(theta, rows), rows, begins, persons, self.clip)

    def second_moment(self, longest: float) -> NDArray[np.int64]:
        """Σ_p of the mean of x·xᵀ/``longest``² over p's rows, in units of 2⁻³⁶, exactly; no row may be longer."""
        return self._rows.second_moment(longest, self._people.root_shares()[self._people.order])

    def difference(self, theta: Vector, before: Vector, weight: float, persons: slice, clip: float) -> Vector:
        """Σ_p of the mean of ∇ℓ(θ; x_i) − weight·∇ℓ(before; x_i), clipped to ``clip``: shape (d,)."""
        rows, begins = self._people.rows(persons)
        with np.errstate(all="ignore"):
            slopes = self._slopes(theta, rows) - weight * self._slopes(before, rows)
        self.nfev += len(begins)
        return self._sum(slopes, rows, begins, persons, clip)

    def _slopes(self, theta: Vector, rows: slice | NDArray[np.intp]) -> Vector:
        with np.errstate(all="ignore"):  # what overflows counts as zero
            return self._slope(self._rows.products(theta, rows), self._y[rows])

    def _sum(
        self,
        slopes: Vector,
        rows: slice | NDArray[np.intp],
        begins: NDArray[np.intp],
        persons: slice | NDArray[np.intp],
        clip: float,
    ) -> Vector:
        self.nfev += len(begins)
        if not len(begins):
            return np.zeros(self._rows.dimension)
        with np.errstate(all="ignore"):
            weighted = slopes * (self._rows.lengths[rows] * 2.0**-BITS)
            means = np.add.reduceat(weighted[:, None] * self._rows.units[rows], begins, axis=0)
            means /= self._people.sizes[persons][:, None]
        whole, unit, count = whole_rows(means, clip)
        self.clipped += count
        return np.asarray(whole.sum(axis=0) * unit)

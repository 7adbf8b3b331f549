"""Cross-tables put together from the parts that were measured, and the noise of every cell.

A table is a linear function of its parts' contrasts (``residual_basis``), whose noise is independent and known: so is
the standard deviation of every cell. The noise of a contrast is Gaussian, rounded: the interval of a cell takes the
Gaussian part's quantile, and half of the sum of the absolute weights for what rounding can have moved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, Release
from accounting.arrays import Array
from accounting.checks import fraction
from dpkit.queries.answer import Answer
from dpkit.queries.residual_basis import Part, along, contrasts, parts_of, squared_norms

__all__ = ["Marginals"]


@dataclass(frozen=True, eq=False)
class Marginals:
    """Cross-tables that agree with each other, and all their margins.

    Attributes
    ----------
    keys : mapping of tuple
        The values of each column, in the order of the tables' entries.
    tables : tuple of tuple of str
        The tables that were asked for. Any of their margins may be read, too.
    cost : Release
        What was recorded in the ledger, if there was one.
    budget : Budget
    deviations : mapping of float
        By columns, the standard deviation σ_B of a part's noise, in units of its contrasts' norms.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> table = {"town": ["A", "B", "A"], "sex": ["f", "f", "m"]}
    >>> budget = Budget(1.0, 1e-6, adjacency="add_remove")
    >>> found = queries.marginals(table, {"town": ["A", "B"], "sex": ["f", "m"]}, budget=budget)
    >>> found.noise_std("town", "sex").round(2).tolist(), float(found.noise_std("town")[0].round(2))
    ([[4.23, 4.23], [4.23, 4.23]], 5.98)
    >>> found.table("town", "sex").keys
    (('A', 'f'), ('A', 'm'), ('B', 'f'), ('B', 'm'))
    """

    keys: dict[str, tuple[Any, ...]]
    tables: tuple[tuple[str, ...], ...]
    cost: Release
    budget: Budget
    deviations: dict[tuple[str, ...], float]
    _measured: dict[Part, NDArray[np.int64]] = field(repr=False)

    def array(self, *columns: str) -> Array:
        """The counts of a table as an array with one axis for each column; without columns the total.

        Without bias. Small cells may fall below 0: nothing is cut, or tables would no longer agree.
        """
        return self._table(columns, lambda part, moves: along(self._measured[part], moves))

    def noise_std(self, *columns: str) -> Array:
        """The standard deviation of the noise of each cell of :meth:`array`."""

        def variance(part: Part, moves: list[Array]) -> Array:
            scales = self._scale(part)
            return along(_rounded_variance(scales), [move**2 for move in moves])

        return np.sqrt(self._table(columns, variance, power=2))

    def table(self, *columns: str) -> Answer:
        """The table of some columns as an answer, with an interval for every cell.

        Its keys are the values of one column, or tuples of those of several.
        """
        values, scale = self.array(*columns), self._gaussian_std(columns)
        moved = self._table(columns, lambda part, moves: along(np.ones(self._shape(part)), [abs(m) for m in moves])) / 2
        several = [self.keys[name] for name in columns]
        keys = tuple(product(*several)) if len(several) > 1 else several[0] if several else None
        flat = values.reshape(-1)

        def interval(confidence: float) -> tuple[Any, Any]:
            from scipy.special import ndtri

            half = (float(ndtri((1 + fraction("confidence", confidence)) / 2)) * scale + moved).reshape(-1)
            return (
                (flat - half, flat + half) if keys is not None else (float(flat[0] - half[0]), float(flat[0] + half[0]))
            )

        std = self.noise_std(*columns).reshape(-1)
        return Answer(
            flat if keys is not None else float(flat[0]),
            self.cost,
            f"count by {', '.join(columns)}" if columns else "count",
            self.budget,
            keys=keys,
            noise_std=std if keys is not None else float(std[0]),
            noise_interval=interval,
        )

    def _gaussian_std(self, columns: tuple[str, ...]) -> Array:
        return np.sqrt(
            self._table(
                columns, lambda part, moves: along(self._scale(part) ** 2, [move**2 for move in moves]), power=2
            )
        )

    def _names(self) -> list[str]:
        return list(self.keys)

    def _shape(self, part: Part) -> tuple[int, ...]:
        return tuple(len(self.keys[self._names()[i]]) - 1 for i in part)

    def _scale(self, part: Part) -> Array:
        """The standard deviation of each contrast's noise before it is rounded."""
        names = self._names()
        return self.deviations[tuple(names[i] for i in part)] * np.sqrt(
            squared_norms([contrasts(len(self.keys[names[i]])) for i in part])
        )

    def _table(self, columns: tuple[str, ...], of_part: Any, power: int = 1) -> Array:
        """Σ over the parts B of what ``of_part`` makes of B, spread evenly over the other columns."""
        names = self._names()
        for name in columns:
            if name not in names:
                raise ValueError(f"columns must be among {names!r}, got {name!r}")
        if len(set(columns)) != len(columns):
            raise ValueError(f"columns must be distinct, got {columns!r}")
        wanted = tuple(sorted(names.index(name) for name in columns))
        if wanted not in self._measured:
            raise ValueError(
                f"the table of {', '.join(columns)} was not measured, for it is no margin of one of {self.tables!r}: "
                "ask for it in tables="
            )
        sizes = {i: len(self.keys[names[i]]) for i in wanted}
        out = np.zeros(tuple(sizes.values()))
        for part in parts_of([wanted]):
            moves = [_inverse(contrasts(sizes[i])) for i in part]
            found = np.asarray(of_part(part, moves), np.float64)
            rest = math.prod(sizes[i] for i in wanted if i not in part)
            out += found.reshape([sizes[i] if i in part else 1 for i in wanted]) / rest**power
        return out.transpose([wanted.index(names.index(name)) for name in columns])

    def __repr__(self) -> str:
        lines = [f"marginals of {', '.join(self.keys)}: {float(self.array()):,.6g} rows"]
        for table in self.tables:
            std = self.noise_std(*table)
            lines.append(f"  {' × '.join(table)}: {std.size} cells, standard deviation of the noise {std.max():,.4g}")
        return "\n".join([*lines, f"  costs {self.cost!r}, counts one {self.budget.unit}"])


def _inverse(matrix: NDArray[np.int64]) -> Array:
    """H⁺ = Hᵀ(HHᵀ)⁻¹, (n, n − 1)."""
    return np.asarray((matrix / (matrix**2).sum(axis=1, keepdims=True)).T)


def _rounded_variance(scale: Array) -> Array:
    """The variance of rounded Gaussian noise: σ² + 1/12 to 12 digits from σ = 1 on, a sum below."""
    from scipy.special import ndtr

    k = np.arange(1, 11) - 0.5
    tails = 2 * (2 * np.arange(10) + 1) * ndtr(-k / np.maximum(scale, 1e-9)[..., None])
    return np.asarray(np.where(scale >= 1, scale**2 + 1 / 12, tails.sum(axis=-1)))

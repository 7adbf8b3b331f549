"""One column as whole numbers, in SQL: clipped, scaled and rounded; its bins; its ranks among candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting.arrays import Array
from dpkit.queries.engines.dialects import Dialect, literal
from dpkit.queries.engines.layers import once

if TYPE_CHECKING:
    from dpkit.queries.engines.tables import Table

__all__ = ["Value", "number"]

# as for what is in memory
_EXACT = 1 << 53


@dataclass(frozen=True)
class Value:
    """A column of whole numbers, or (not ``whole``) of DOUBLE."""

    x: str
    whole: bool
    say: Dialect

    @property
    def known(self) -> str:
        """The value, where it is one that counts."""
        x = self.x
        good = f"{x} BETWEEN -{_EXACT} AND {_EXACT}" if self.whole else self.say.finite(x)
        return once(f"CASE WHEN {good} THEN {f'CAST({x} AS DOUBLE)' if self.whole else x} END")

    def steps(self, step: float, bounds: tuple[float, float]) -> str:
        """Clipped to the bounds, and rounded to whole steps: 1, or a power of two."""
        if not (self.whole and step == 1.0):
            return once(self.say.rounded(f"{self.clipped(bounds)} * {literal(1 / step, self.say)}"))
        a, b = (round(end) for end in bounds)
        x = self.x
        clipped = f"CASE WHEN {x} < {a} THEN {a} WHEN {x} > {b} THEN {b} ELSE {x} END"
        return once(f"CASE WHEN {x} BETWEEN -{_EXACT} AND {_EXACT} THEN CAST({clipped} AS BIGINT) END")

    def clipped(self, bounds: tuple[float, float]) -> str:
        """Cut to the bounds, where it counts."""
        (low, high), x = (literal(end, self.say) for end in bounds), self.known
        return once(f"CASE WHEN {x} < {low} THEN {low} WHEN {x} > {high} THEN {high} ELSE {x} END")

    def place(self, bounds: tuple[float, float], bits: int) -> str:
        """u, the place between the bounds, in units of 2**-bits."""
        low, high = bounds
        factor = literal(2.0**bits / (high - low), self.say)
        above = f"({self.clipped(bounds)} - {literal(low, self.say)})" if low else self.clipped(bounds)
        return once(self.say.rounded(f"{above} * {factor}"))

    def bin(self, edges: Array, cut: bool) -> str:
        """The bin of the value, −1 for none, NULL for no value."""
        last = edges.size - 2
        if cut:
            # what is on the last edge is in the bin below it
            x = self.clipped((float(edges[0]), float(np.nextafter(edges[-1], -np.inf))))
            if place := self._even_bin(edges, x):
                return place
            return f"CAST(CASE WHEN {x} IS NOT NULL THEN {self._tree(edges, x, 0, edges.size)} - 1 END AS INTEGER)"
        x, low, high = self.known, literal(float(edges[0]), self.say), literal(float(edges[-1]), self.say)
        place = self._even_bin(edges, x) or f"{self._tree(edges, x, 0, edges.size)} - 1"
        ends = f"WHEN {x} = {high} THEN {last} WHEN {x} > {high} OR {x} < {low} THEN -1"
        return f"CAST(CASE {ends} WHEN {x} IS NOT NULL THEN {place} END AS INTEGER)"

    def reached(self, grid: Array) -> str:
        """How many points of an increasing grid are not above the value, NULL for no value."""
        x, low, high = self.known, literal(float(grid[0]), self.say), literal(float(grid[-1]), self.say)
        if grid.size > 1 and (bin_of := self._even_bin(grid, x)):
            count = f"WHEN {x} < {low} THEN 0 WHEN {x} >= {high} THEN {grid.size} ELSE {bin_of} + 1"
        else:
            count = f"WHEN {x} IS NOT NULL THEN {self._tree(grid, x, 0, grid.size)}"
        return f"CAST(CASE {count} END AS BIGINT)"

    def _even_bin(self, edges: Array, x: str) -> str | None:
        """The bin by a division, where that is right for every number between the edges.

        Difference, quotient and floor never fall as x grows: what is right at every edge and just below it is right in
        between, too.
        """
        low, width = edges[0], (edges[-1] - edges[0]) / (edges.size - 1)
        at, below = (np.floor((ends - low) / width) for ends in (edges[:-1], np.nextafter(edges[1:], -np.inf)))
        bins = np.arange(edges.size - 1)
        if not (np.array_equal(at, bins) and np.array_equal(below, bins)):
            return None
        return f"CAST(FLOOR(({x} - {literal(float(low), self.say)}) / {literal(float(width), self.say)}) AS INTEGER)"

    def _tree(self, edges: Array, x: str, low: int, high: int) -> str:
        """How many of the increasing edges are not above x, by bisection."""
        if low == high:
            return str(low)
        middle = (low + high) // 2
        left, right = self._tree(edges, x, low, middle), self._tree(edges, x, middle + 1, high)
        return f"CASE WHEN {x} < {literal(float(edges[middle]), self.say)} THEN {left} ELSE {right} END"


def number(table: Table, column: Any, what: str, dated: bool = False) -> str:
    """A column as whole numbers, or as DOUBLE."""
    kind = table.kind(column, what)
    name = table.dialect.column(column)
    if dated:
        if kind != "date":
            raise TypeError(f"{what} must hold dates, as its bounds are dates, got {column!r} of {table.types[column]}")
        # days since 1970
        return f"(CAST({table.dialect.microseconds(name)} AS DOUBLE) / CAST('86400000000.0' AS DOUBLE))"
    if kind == "date":
        raise TypeError(
            f"{what} must hold numbers, got dates in {column!r}: the bounds of dates are dates, "
            "bounds=('2025-01-01', '2026-01-01') say"
        )
    if kind not in ("whole", "real", "truth"):
        raise TypeError(
            f"{what} must hold numbers, got {column!r} of {table.types[column]}: convert the column, what is no "
            "number to a missing value, and leave those rows out by where="
        )
    if kind == "truth":
        return f"CAST({name} AS INTEGER)"
    return name if kind == "whole" else f"CAST({name} AS DOUBLE)"

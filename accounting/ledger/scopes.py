"""Nested parts of the data, and costs summed over what one unit meets.

A scope is a part of the data that is fixed by public information; ``None`` is all of it. ``"north/ann"`` is a part
of ``"north"``; two scopes of which neither lies in the other are disjoint. A unit lies in one innermost scope,
and meets what is released there, on every scope around it, and on the whole data.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from accounting.arrays import Array

__all__ = ["ScopedSums", "inside", "path"]


def path(scope: str | None) -> list[str | None]:
    """The whole data, then every scope around this one, then this one."""
    if scope is None:
        return [None]
    steps = scope.split("/")
    return [None, *("/".join(steps[:depth]) for depth in range(1, len(steps) + 1))]


def inside(scope: str | None, outer: str | None) -> bool:
    """Whether a scope is ``outer`` or a part of it."""
    return outer is None or scope == outer or (scope is not None and scope.startswith(outer + "/"))


class ScopedSums:
    """Vectors of nonnegative costs, one sum per scope; O(depth of the scope) to ask and to add."""

    def __init__(self, width: int) -> None:
        self._zero = np.zeros(width)
        self._own: dict[str | None, Array] = {}
        # per scope, componentwise the most that any unit meets in the parts of it
        self._below: dict[str | None, Array] = {}
        self._parts: dict[str | None, list[str]] = {}
        self.terms = 0

    def after(self, scope: str | None, amount: Array) -> Array:
        """Componentwise the most that any unit would meet that meets this amount in this scope."""
        around = sum((self._own.get(outer, self._zero) for outer in path(scope)), amount)
        return np.asarray(around + self._below.get(scope, self._zero))

    def each_after(self, scope: str | None, amount: Array) -> list[Array]:
        """What the units would meet that meet this amount: one vector for every innermost scope."""
        around = sum((self._own.get(outer, self._zero) for outer in path(scope)), amount)
        return list(self._within(scope, np.asarray(around)))

    def add(self, scope: str | None, amount: Array, count: int = 1) -> None:
        """Count an amount that is met in a scope, ``count`` times."""
        self.terms += count
        steps = path(scope)
        for outer, part in pairwise(steps):
            if part not in self._own:
                self._own[part] = self._zero
                self._parts.setdefault(outer, []).append(str(part))
        # an infinite cost, zero times, is none
        self._own[scope] = self._own.get(scope, self._zero) + amount * count
        for outer, part in reversed(list(pairwise(steps))):
            there = self._own[part] + self._below.get(part, self._zero)
            self._below[outer] = np.maximum(self._below.get(outer, self._zero), there)

    def state(self) -> dict[str, object]:
        """Everything counted, as plain values; infinities as None."""
        sums = [
            [scope, [float(x) if np.isfinite(x) else None for x in values]]
            for scope, values in self._own.items()
            if scope is None or values.any()
        ]
        return {"terms": self.terms, "sums": sums}

    def restore(self, terms: int, sums: list[tuple[str | None, Array]]) -> None:
        """Count what :meth:`state` said."""
        for scope, values in sums:
            self.add(scope, values)
        self.terms = terms

    def _within(self, scope: str | None, around: Array) -> Iterator[Array]:
        parts = self._parts.get(scope, [])
        if not parts:
            yield around
        for part in parts:
            yield from self._within(part, around + self._own[part])

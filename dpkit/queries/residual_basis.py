"""Whole-number contrasts: what a cross-table says beyond its totals, in coordinates that take exact noise.

For one column with n values the contrasts are the rows of a matrix H, (n − 1, n), of whole numbers: a binary tree over
the values, and for a node that splits a values from b others the row with b on the first and −a on the others, divided
by their common divisor. The rows are orthogonal to each other and to the row of ones, so Hᵀ(HHᵀ)⁻¹H = I − 11ᵀ/n with
HHᵀ diagonal. For a set B of columns the contrasts are the Kronecker product of theirs, applied to the marginal of B.

Here B stands for its part of the space of tables: all tables are orthogonal sums of their parts, and the marginal of A
is the sum over B ⊆ A of ⊗_{i ∈ B} Hᵢ⁺ ⊗_{i ∈ A∖B} (1/nᵢ)1 applied to the contrasts of B, with H⁺ = Hᵀ(HHᵀ)⁻¹.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["along", "contrasts", "parts_of", "squared_norms"]

Part = tuple[int, ...]


def contrasts(n: int) -> NDArray[np.int64]:
    """H of one column, (n − 1, n).

    >>> contrasts(3).tolist()
    [[1, 1, -2], [1, -1, 0]]
    """
    rows = np.zeros((n - 1, n), np.int64)
    nodes, filled = [(0, n)], 0
    while nodes:
        start, stop = nodes.pop()
        if stop - start < 2:
            continue
        middle = start + (stop - start + 1) // 2
        left, right = middle - start, stop - middle
        divisor = math.gcd(left, right)
        rows[filled, start:middle], rows[filled, middle:stop] = right // divisor, -(left // divisor)
        filled += 1
        nodes += [(middle, stop), (start, middle)]
    return rows


def squared_norms(matrices: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The squared norms of the Kronecker product's rows, as an array with one axis for each matrix.

    >>> squared_norms([contrasts(3), contrasts(2)]).tolist()
    [[12], [4]]
    """
    out = np.ones((), np.int64)
    for matrix in matrices:
        out = np.multiply.outer(out, (matrix**2).sum(axis=1))
    return out


def parts_of(tables: Sequence[Part]) -> list[Part]:
    """All subsets of the tables, the smaller ones first.

    >>> parts_of([(0, 1), (2,)])
    [(), (0,), (1,), (2,), (0, 1)]
    """
    found = {
        part for table in tables for part in chain.from_iterable(combinations(table, k) for k in range(len(table) + 1))
    }
    return sorted(found, key=lambda part: (len(part), part))


def along(array: NDArray[Any], matrices: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One matrix applied along each axis in order: the Kronecker product without forming it."""
    out = array
    for axis, matrix in enumerate(matrices):
        out = np.moveaxis(np.tensordot(matrix, out, axes=(1, axis)), 0, axis)
    return out

"""Exact sums of products as what a Gaussian mechanism takes: float64 numbers with few enough digits to be exact."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpkit.training.whole_rows import BITS, COARSE

__all__ = ["LAST_DIGIT", "half_vector", "rounded_once"]

# sums of products of whole numbers of 2⁻¹⁸ are rounded to multiples of this
LAST_DIGIT = 2.0 ** (COARSE - 2 * BITS)


def rounded_once(parts: Sequence[tuple[NDArray[np.int64], int]]) -> NDArray[np.float64]:
    """Whole numbers of 2⁻³⁶ times a weight (a multiple of 2⁻⁴⁰, given as that many), rounded once to ``LAST_DIGIT``.

    The products are taken in Python's integers.
    """
    shift = 40 + COARSE
    digits = [(part.astype(object) * weight + (1 << (shift - 1))) >> shift for part, weight in parts]
    return np.concatenate(digits).astype(np.float64) * LAST_DIGIT


def half_vector(second: NDArray[np.int64]) -> list[tuple[NDArray[np.int64], int]]:
    """The parts of svec(second), √2 rounded down."""
    return [(second.diagonal(), 1 << 40), (second[np.triu_indices(len(second), 1)], math.isqrt(2 << 80))]

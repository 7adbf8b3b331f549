"""Rows as whole numbers, of which sums of clipped gradients and of squares are exact in float64.

A sum of floats depends on all of its rows in its last digits, so that one row moves it by more than its sensitivity.
Sums of whole numbers that fit 53 bits do not: what is added here is cut to its bound as a whole number first
(``dpkit.clipping`` has the lengths), and the sum is rounded once, at the end. ``UnitRows`` holds rows for gradients,
``whole_rows`` makes whole numbers of any vectors, ``whole_product`` sums products of them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpkit.clipping import by_largest, lengths, lots, quotient

__all__ = [
    "BITS",
    "COARSE",
    "WHOLE_BITS",
    "UnitRows",
    "check_rows",
    "grid",
    "whole_product",
    "whole_rows",
]

Vector = NDArray[np.float64]

# Of the whole numbers that a row and a slope are held as, apart from the sign.
BITS = 18
# Of the last digits of a sum, which are rounded away: the others fit into the 53 bits of a float64.
COARSE = 9
# Of the whole numbers that :func:`whole_rows` makes.
WHOLE_BITS = 26
_BLOCK = 1 << 16
_MOST = 1 << 26


def check_rows(count: int) -> None:
    """Refuse more rows than :func:`whole_product` sums exactly."""
    if count > _MOST:
        raise ValueError(f"X must have at most 2**26 rows, for their sums to be exact, got {count}")


def whole_product(A: Vector, B: Vector) -> NDArray[np.int64]:
    """AᵀB for at most 2²⁶ rows of whole numbers of at most 2¹⁸ in size, exactly.

    Products are at most 2³⁶ in size, so every partial sum of 2¹⁶ of them is at most 2⁵² and thus exact in float64, in
    whichever order it is taken; the parts are added as 64-bit integers.
    """
    total: NDArray[np.int64] = np.zeros(A.shape[1:] + B.shape[1:], dtype=np.int64)
    for start in range(0, len(A), _BLOCK):
        part = slice(start, start + _BLOCK)
        total += (A[part].T @ B[part]).astype(np.int64)
    return total


def grid(bound: float, bits: int) -> tuple[float, float]:
    """A power of two of which ``bound`` is less than 2^bits, and the largest whole number of these up to ``bound``."""
    unit = math.ldexp(1.0, math.frexp(bound)[1] - bits)
    return unit, float(math.floor(bound / unit))


def whole_rows(X: Vector, bound: float, bits: int = WHOLE_BITS) -> tuple[Vector, float, int]:
    """The rows scaled to ℓ₂ length at most ``bound`` and cut off to whole numbers of a unit, about bound/2^bits.

    Returns the whole numbers, the unit (a power of two) and how many rows were scaled; those that are not finite become
    0. Sums of 2²⁶ of them are exact in float64 with the default ``bits``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.training.whole_rows import whole_rows
    >>> whole, unit, count = whole_rows(np.array([[3.0, 4.0], [0.5, 0.0], [np.nan, 0.0]]), 1.0)
    >>> (whole * unit).round(6), count
    (array([[0.6, 0.8],
           [0.5, 0. ],
           [0. , 0. ]]), 2)
    """
    unit, most = grid(bound, bits)
    finite = np.asarray(np.isfinite(X).all(axis=1))
    rows = X if finite.all() else np.where(finite[:, None], X, 0.0)
    found = lengths(rows)
    endless = np.isinf(found)
    if endless.any():  # beyond the floats in length, though not in any entry
        rows = np.where(endless[:, None], rows * 2.0**-600, rows)
        found = lengths(rows)
    factors = quotient(most, found)
    count = int(np.count_nonzero(~finite | endless | (found > bound)))
    factors = np.where(endless, factors, np.minimum(factors, 1.0 / unit))
    return np.trunc(rows * factors[:, None]), unit, count


class UnitRows:
    """Rows as x_i ≈ len_i·u_i/2¹⁸ with whole numbers u_i, ‖u_i‖₂ ≤ 2¹⁸, for sums of clipped gradients without rounding.

    The entries of 2¹⁸·x_i/len_i are cut off behind the point, towards 0, so ‖u_i‖ ≤ 2¹⁸ as real numbers. A gradient
    ψ_i·x_i becomes c_i·u_i with c_i = ψ_i·len_i in units of a power of two (about clip/2¹⁸), cut to ±clip and
    rounded: a whole vector of length at most clip, of which :func:`whole_product` takes exact sums. The price is an
    error of a gradient of 2⁻¹⁸ in each entry, relative to its length, and of 2⁻¹⁹ of the clip norm.

    Parameters
    ----------
    X : (n, d) ndarray
        Finite; n at most 2²⁶.
    longest : float
        Longer rows are shortened to it.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.training.whole_rows import UnitRows
    >>> rows = UnitRows(np.array([[3.0, 4.0], [0.0, 2.0]]))
    >>> rows.products(np.array([1.0, 1.0])).round(3)
    array([7., 2.])
    >>> total, count = rows.gradient_sum(np.array([0.1, 1.0]), 1.0)  # (0.3, 0.4) + (0, 1), one of them clipped
    >>> total.round(3), count
    (array([0.3, 1.4]), 1)
    """

    def __init__(self, X: Vector, longest: float = math.inf) -> None:
        check_rows(len(X))
        self.dimension = X.shape[1]
        self.lengths = lengths(X)
        usual = (self.lengths > 1e-150) & (self.lengths < 1e150)
        scale = np.divide(2.0**BITS, self.lengths, out=np.zeros(len(X)), where=usual)
        self.units = X * scale[:, None]
        doubtful = np.flatnonzero(~usual & (self.lengths > 0))
        if doubtful.size:
            _, relative = by_largest(X[doubtful])
            self.units[doubtful] = relative * (2.0**BITS / lengths(relative))[:, None]
        np.trunc(self.units, out=self.units)
        np.minimum(self.lengths, longest, out=self.lengths)

    def products(self, theta: Vector, rows: slice | NDArray[np.intp] = slice(None)) -> Vector:
        """x_iᵀθ, to ten digits: shape (n,), or (n, k) for the k rows of a matrix θ.

        θ, which is public, is rounded to whole multiples of about 2⁻³⁴ of its length, so that ‖θ‖ < 2³⁵ of them and
        every partial sum of u_iᵀθ, at most ‖u_i‖·‖θ‖ in size, is exact. Thus what is computed for a row depends on this
        row alone, whichever rows stand beside it.
        """
        longest = float(np.abs(theta).max()) * math.sqrt(self.dimension)
        unit = math.ldexp(1.0, max(-960, math.frexp(longest)[1] - 34))
        exact = self.units[rows] @ np.rint(theta / unit).T
        exact *= self.lengths[rows] if theta.ndim == 1 else self.lengths[rows, None]
        exact *= unit * 2.0**-BITS
        return np.asarray(exact)

    def gradient_sum(
        self, slopes: Vector, clip: float, rows: slice | NDArray[np.intp] = slice(None)
    ) -> tuple[Vector, int]:
        """Σ ψ_i·x_i over the ``rows``, each clipped to ``clip``, shape (d,), and how many were; a NaN counts as 0.

        For slopes (n, k) the gradients are matrices ψ_i·x_iᵀ, of which the sum has shape (k, d), clipped in Frobenius
        norm. Changing one row moves the sum by at most what :meth:`sensitivity` says, as real numbers.
        """
        unit, most = grid(clip, BITS)
        if slopes.ndim == 2:
            with np.errstate(all="ignore"):
                whole, unit, count = whole_rows(slopes * self.lengths[rows, None], clip, BITS)
            return self._rounded(whole_product(whole, self.units[rows]), unit), count
        with np.errstate(all="ignore"):  # what overflows is clipped
            scaled = slopes * self.lengths[rows]
            scaled /= unit
        cut: Vector = np.maximum(scaled, -most)
        np.minimum(cut, most, out=cut)
        count = int(scaled.size - np.count_nonzero(cut == scaled))
        if count:
            cut[np.isnan(cut)] = 0.0
        np.rint(cut, out=cut)
        return self._rounded(whole_product(cut, self.units[rows]), unit), count

    @staticmethod
    def _rounded(total: NDArray[np.int64], unit: float) -> Vector:
        """Sums of whole numbers without their last digits, in float64."""
        rounded = ((total + (1 << (COARSE - 1))) >> COARSE).astype(np.float64)
        return np.asarray(rounded * (unit * 2.0 ** (COARSE - BITS)))

    def sensitivity(self, clip: float, *, replaced: bool, slopes: int = 1) -> float:
        """How far one row moves a :meth:`gradient_sum`: 2·clip if it is replaced, else clip; and √(kd) last digits."""
        unit, _ = grid(clip, BITS)
        last = unit * 2.0 ** (COARSE - BITS)
        return (2.0 * clip if replaced else clip) + last * math.sqrt(slopes * self.dimension) * (1.0 + 2.0**-50)

    def second_moment(self, longest: float, shares: Vector | None = None) -> NDArray[np.int64]:
        """Σ_i v_i·v_iᵀ with whole v_i ≈ 2¹⁸·x_i/``longest``, ‖v_i‖ ≤ 2¹⁸ (times ``shares``_i, if given), exactly.

        No row may be longer than ``longest``.
        """
        weights = self.lengths / longest * (1.0 - 2.0**-50)
        if shares is not None:
            weights *= shares
        total: NDArray[np.int64] = np.zeros((self.dimension, self.dimension), dtype=np.int64)
        for part in lots(len(weights)):
            scaled = np.trunc(self.units[part] * weights[part, None])
            total += (scaled.T @ scaled).astype(np.int64)
        return total

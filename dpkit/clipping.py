"""Input is checked, and held to a norm, before any noise is drawn: what a sensitivity rests on.

``real_array`` lets finite real numbers through and nothing else. What is cut to a bound here is at most that bound as a
real number, not only up to rounding, for bounds from 1e-280 on:

* ``within_norm`` scales or refuses vectors; ``shortened`` scales rows.
* ``clipped`` and ``clipped_slope`` cut the slopes ψ of gradients ψ·x, whose rows have the ``lengths`` given.
* ``UnitRows`` holds rows as whole numbers: sums of clipped gradients over it have no rounding error at all.

The proof is one for all. A computed ℓ_q length of d entries is within a relative (d + 700)·2⁻⁵³ of the true one (d
additions, a power and a root of numbers below e⁷⁰⁰; entries that would over- or underflow are first divided by the
largest). ``lengths`` multiplies it by 1 + 2⁻⁴⁰ + d·2⁻⁵¹, which is more than twice that: what it returns is at least the
true length, with as much to spare, and the quotient and product that follow are each within 2⁻⁵³.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.checks import positive

__all__ = [
    "BITS",
    "COARSE",
    "WHOLE_BITS",
    "UnitRows",
    "check_bound",
    "check_rows",
    "clipped",
    "clipped_slope",
    "grid",
    "grown",
    "lengths",
    "real_array",
    "shortened",
    "whole_product",
    "whole_rows",
    "within_norm",
]

Vector = NDArray[np.float64]

# A norm may pass its bound by this much and still be taken as meeting it; the value is then scaled back.
_ROUNDING = 2.0**-30
_TINY = float(np.finfo(np.float64).tiny)
_SMALLEST, _LARGEST = 5e-324, float(np.finfo(np.float64).max)


def real_array(name: str, value: ArrayLike, *, finite: bool = True) -> NDArray[np.float64]:
    """``value`` as a float64 array, if its real numbers fit float64 exactly (and, by default, are finite).

    Examples
    --------
    >>> from dpkit.clipping import real_array
    >>> real_array("value", [1, 2])
    array([1., 2.])
    """
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must not be masked: fill it or drop the masked entries, got a masked array")
    array = np.asarray(value)
    kind = array.dtype.kind
    if kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(f"{name} must be an array of real numbers of at most 64 bits, got {name}.dtype={array.dtype}")
    if kind in "iu" and array.size and max(abs(int(array.min())), abs(int(array.max()))) > 2**53:
        raise ValueError(f"{name} must be integers of at most 2**53 in size, got larger ones")
    converted = array.astype(np.float64, copy=False)
    if finite and not np.isfinite(converted).all():
        bad = int(np.count_nonzero(~np.isfinite(converted)))
        raise ValueError(f"{name} must be finite, got {bad} entries that are NaN or infinite")
    return converted


def check_bound(norm_bound: float | None, clip: bool) -> float | None:
    """``norm_bound`` as a float or None; clipping needs one."""
    if norm_bound is None:
        if clip:
            raise ValueError("norm_bound must be given where clip=True, got norm_bound=None")
        return None
    return positive("norm_bound", norm_bound)


def within_norm(x: NDArray[np.float64], norm: float, bound: float | None, clip: bool) -> NDArray[np.float64]:
    """``x`` with every vector along its last axis inside the ball of radius ``bound``, exactly; by scaling if ``clip``.

    A vector above the bound by no more than rounding (a relative 2⁻³⁰) is scaled back too; beyond that it is refused.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.clipping import within_norm
    >>> within_norm(np.array([[3.0, 4.0], [0.0, 1.0]]), 2.0, 2.5, clip=True).round(6)
    array([[1.5, 2. ],
           [0. , 1. ]])
    """
    if bound is None or x.size == 0:
        return x
    vectors = np.atleast_1d(x)
    found = _norms(vectors, norm)
    longest = float(found.max())
    safe = bound / grown(1.0, vectors.shape[-1])
    if longest <= safe:
        return x
    if not clip and longest > bound * (1 + _ROUNDING):
        raise ValueError(f"value must have norm at most norm_bound={bound!r}, got a vector of norm {longest!r}")
    factors = np.minimum(1.0, _quotient(safe, found))
    scaled: NDArray[np.float64] = (vectors * factors).reshape(x.shape)
    return scaled


def _norms(x: NDArray[np.float64], norm: float) -> NDArray[np.float64]:
    """ℓ_q norms along the last axis (kept), q = ``norm``, without overflow."""
    magnitudes = np.abs(x)
    largest: NDArray[np.float64] = magnitudes.max(axis=-1, keepdims=True)
    if math.isinf(norm):
        return largest
    relative = magnitudes / np.where(largest > 0, largest, 1.0)
    with np.errstate(over="ignore"):  # a norm beyond the floats is infinite: refused, or clipped to nothing
        return np.asarray(largest * np.sum(relative**norm, axis=-1, keepdims=True) ** (1 / norm))


# ------------------------------------------------------------------------------------------ rows and their gradients


def grown(length: Any, dimension: int) -> Any:
    """A computed length of ``dimension`` entries, rounded up far enough to be no less than the true one."""
    return length * (1.0 + 2.0**-40 + dimension * 2.0**-51)


def lengths(X: Vector, norm: float = 2.0) -> Vector:
    """The ℓ_norm length of every row, rounded up; of a row that is not 0 at least 1e-300.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.clipping import lengths
    >>> lengths(np.array([[3.0, 4.0], [3e-200, 4e-200]])).round(9)
    array([5., 0.])
    """
    # the powers of what is longer or shorter by as much lose their digits, or overflow
    shortest = 1e-300 ** (1.0 / norm) if math.isfinite(norm) else 1e-300
    with np.errstate(over="ignore", under="ignore"):
        found: Vector = np.empty(len(X))
        for part in _lots(len(X)):  # the squares of some rows stay in a cache
            # row after row in memory: else a row is added up in another order where it stands alone in its part
            found[part] = np.linalg.norm(np.ascontiguousarray(X[part]), norm, axis=1)
        doubtful = np.flatnonzero(~((found > shortest) & (found < 1.0 / shortest)))
        if doubtful.size:
            # powers that underflow would make a row look shorter than it is, and its gradient pass the bound
            largest, relative = _relative(np.ascontiguousarray(X[doubtful]))
            found[doubtful] = largest * np.linalg.norm(relative, norm, axis=1)
            # products of numbers as small as these have no relative error to speak of
            found[doubtful[largest > 0]] = np.maximum(found[doubtful[largest > 0]], 1e-300)
        found *= grown(1.0, X.shape[1])
    return found


def _relative(X: Vector) -> tuple[Vector, Vector]:
    """The largest entry of every row, and the rows divided by theirs."""
    largest: Vector = np.abs(X).max(axis=1, initial=0.0)
    return largest, X / np.maximum(largest, _SMALLEST)[:, None]


def shortened(X: Vector, bound: float, out: Vector | None = None) -> tuple[Vector, Vector]:
    """The rows scaled to ℓ₂ length at most ``bound`` (in ``out``), and their lengths, rounded up."""
    found = lengths(X)
    factors = np.minimum(1.0, _quotient(bound, found))
    return np.multiply(X, factors[:, None], out=out), np.minimum(found, bound)


def _quotient(bound: float, found: Vector) -> Vector:
    """``bound``/length: finite, so that its product with a row of zeros is zero; and 0 where it has too few digits."""
    with np.errstate(over="ignore", under="ignore"):
        quotient = np.minimum(_LARGEST, bound / np.maximum(found, _TINY))
    return np.where(quotient < _TINY, 0.0, quotient)


def clipped(slopes: Vector, row_lengths: Vector, clip: float) -> tuple[Vector, int]:
    """The slopes ψ_i cut so that ‖ψ_i·x_i‖ ≤ ``clip``, and how many were; a NaN becomes 0."""
    bounds = _quotient(clip, row_lengths)
    inside = np.abs(slopes) <= bounds  # false for NaN
    cut = np.where(np.isnan(slopes), 0.0, np.clip(slopes, -bounds, bounds))
    return cut, int(slopes.size - np.count_nonzero(inside))


def clipped_slope(slope: float, length: float, clip: float) -> tuple[float, bool]:
    """:func:`clipped` for one row, in plain floats: ψ cut so that ‖ψ·x‖ ≤ ``clip``, and whether it was."""
    bound = min(_LARGEST, clip / max(length, _TINY))
    if bound < _TINY:
        bound = 0.0
    if -bound <= slope <= bound:
        return slope, False
    if slope != slope:  # NaN
        return 0.0, True
    return (bound if slope > 0 else -bound), True


# Of the whole numbers that a row and a slope are held as, apart from the sign.
BITS = 18
# Of the last digits of a sum, which are rounded away: the others fit into the 53 bits of a float64.
COARSE = 9
# Of the whole numbers that :func:`whole_rows` makes.
WHOLE_BITS = 26
_BLOCK = 1 << 16
_MOST = 1 << 26
_LOT = 1 << 11


def _lots(count: int) -> Iterator[slice]:
    """``count`` rows in parts, of which a few arrays fit a cache."""
    return (slice(start, start + _LOT) for start in range(0, count, _LOT))


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
    >>> from dpkit.clipping import whole_rows
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
    factors = _quotient(most, found)
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
    >>> from dpkit.clipping import UnitRows
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
            _, relative = _relative(X[doubtful])
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
        for part in _lots(len(weights)):
            scaled = np.trunc(self.units[part] * weights[part, None])
            total += (scaled.T @ scaled).astype(np.int64)
        return total

"""Input is checked, and held to a norm, before any noise is drawn: what a sensitivity rests on.

``real_array`` lets finite real numbers through and nothing else. What is cut to a bound here is at most that bound as a
real number, not only up to rounding, for bounds from 1e-280 on:

* ``within_norm`` scales or refuses vectors; ``shortened`` scales rows.
* ``clipped`` and ``clipped_slope`` cut the slopes ψ of gradients ψ·x, whose rows have the ``lengths`` given.

Sums of what is clipped have no rounding error at all where the rows are whole numbers: ``dpkit.training.whole_rows``.

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
    "check_bound",
    "clipped",
    "clipped_slope",
    "grown",
    "lengths",
    "lots",
    "quotient",
    "real_array",
    "by_largest",
    "shortened",
    "within_norm",
]

Vector = NDArray[np.float64]

# A norm may pass its bound by this much and still be taken as meeting it; the value is then scaled back.
_ROUNDING = 2.0**-30
_TINY = float(np.finfo(np.float64).tiny)
# the rows of which a few arrays fit a cache
_LOT = 1 << 11
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
    factors = np.minimum(1.0, quotient(safe, found))
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


def lots(count: int) -> Iterator[slice]:
    """``count`` rows in parts, of which a few arrays fit a cache."""
    return (slice(start, start + _LOT) for start in range(0, count, _LOT))


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
        for part in lots(len(X)):  # the squares of some rows stay in a cache
            # row after row in memory: else a row is added up in another order where it stands alone in its part
            found[part] = np.linalg.norm(np.ascontiguousarray(X[part]), norm, axis=1)
        doubtful = np.flatnonzero(~((found > shortest) & (found < 1.0 / shortest)))
        if doubtful.size:
            # powers that underflow would make a row look shorter than it is, and its gradient pass the bound
            largest, relative = by_largest(np.ascontiguousarray(X[doubtful]))
            found[doubtful] = largest * np.linalg.norm(relative, norm, axis=1)
            # products of numbers as small as these have no relative error to speak of
            found[doubtful[largest > 0]] = np.maximum(found[doubtful[largest > 0]], 1e-300)
        found *= grown(1.0, X.shape[1])
    return found


def by_largest(X: Vector) -> tuple[Vector, Vector]:
    """The largest entry of every row, and the rows divided by theirs."""
    largest: Vector = np.abs(X).max(axis=1, initial=0.0)
    return largest, X / np.maximum(largest, _SMALLEST)[:, None]


def shortened(X: Vector, bound: float, out: Vector | None = None) -> tuple[Vector, Vector]:
    """The rows scaled to ℓ₂ length at most ``bound`` (in ``out``), and their lengths, rounded up."""
    found = lengths(X)
    factors = np.minimum(1.0, quotient(bound, found))
    return np.multiply(X, factors[:, None], out=out), np.minimum(found, bound)


def quotient(bound: float, found: Vector) -> Vector:
    """``bound``/length: finite, so that its product with a row of zeros is zero; and 0 where it has too few digits."""
    with np.errstate(over="ignore", under="ignore"):
        quotient = np.minimum(_LARGEST, bound / np.maximum(found, _TINY))
    return np.where(quotient < _TINY, 0.0, quotient)


def clipped(slopes: Vector, row_lengths: Vector, clip: float) -> tuple[Vector, int]:
    """The slopes ψ_i cut so that ‖ψ_i·x_i‖ ≤ ``clip``, and how many were; a NaN becomes 0."""
    bounds = quotient(clip, row_lengths)
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

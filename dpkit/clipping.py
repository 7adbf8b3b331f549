"""Input is checked, and held to a norm, before any noise is drawn: what a sensitivity rests on.

``real_array`` lets finite real numbers through and nothing else; ``within_norm`` scales or refuses vectors so that
their ℓ_q norm is at most a bound, exactly, whatever the rounding.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.checks import positive

__all__ = ["check_bound", "real_array", "within_norm"]

# A norm may pass its bound by this much and still be taken as meeting it; the value is then scaled back.
_ROUNDING = 2.0**-30


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
    lengths = _norms(vectors, norm)
    longest = float(lengths.max())
    if longest <= bound * (1 - 2.0**-40):
        return x
    if not clip and longest > bound * (1 + _ROUNDING):
        raise ValueError(f"value must have norm at most norm_bound={bound!r}, got a vector of norm {longest!r}")
    # the margin covers the rounding errors of the norm and of the product
    factors = np.minimum(1.0, bound * (1 - 2.0**-40) / np.maximum(lengths, np.finfo(np.float64).tiny))
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

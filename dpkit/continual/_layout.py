"""The layout of a stream: the public shape of its inputs and estimates, and the flat vector that is noised."""

from __future__ import annotations

import math
import sys
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.checks import integer
from dpkit.geometry import smat, svec

__all__ = ["Layout"]

_FLOAT = np.dtype(np.float64)
# of one entry: its square has to be finite
_LARGEST = 1e150


class Layout:
    """The public shape of an input and of an estimate, and the flat vector that is noised in its place."""

    def __init__(self, shape: int | tuple[int, ...], symmetric: bool, dtype: np.dtype[Any] = _FLOAT) -> None:
        self.cut(math.inf, 1.0)
        sizes = shape if isinstance(shape, tuple) else (shape,)
        self.shape = tuple(integer("shape", size, at_least=1) for size in sizes)
        self.symmetric = bool(symmetric)
        if self.symmetric and (len(self.shape) != 2 or self.shape[0] != self.shape[1]):
            raise ValueError(f"shape must be (d, d) for symmetric inputs, got shape={shape!r}")
        self.dimension = self.shape[0] * (self.shape[0] + 1) // 2 if self.symmetric else math.prod(self.shape)
        self.dtype = dtype
        # scalars and vectors of floats are, nearly, their own flat form, which saves a third of the work on short ones
        self._plain = len(self.shape) == 1 and self.dtype == _FLOAT

    def cut(self, most: float, step: float) -> None:
        """From now on entries are cut to [−most, most], and of a single input in units of ``step``."""
        self._most, self._step, self._units = most, step, None if step == 1.0 else np.array(step)
        # a finite sum of squares rules out NaN and infinity in one pass, and a small one anything to cut
        self._nothing_to_cut = min(most * most * (1 - 2.0**-30), sys.float_info.max)

    def flatten(self, x: ArrayLike) -> NDArray[Any]:
        """One input as a flat vector (possibly a view of it); an error if its shape, type or values are wrong."""
        array = x if type(x) is np.ndarray else _unmasked(x)
        if array.shape != self.shape:
            raise ValueError(f"x must have shape {self.shape}, got x.shape={array.shape}")
        if self._plain and array.dtype == _FLOAT and np.vdot(array, array) <= self._nothing_to_cut:
            flat = array
        else:
            flat = self._checked(array, (self.dimension,))
        # an array divided by an array, in half the time that a number takes
        return flat if self._units is None else np.divide(flat, self._units)

    def number(self, x: ArrayLike) -> float:
        """One input of dimension 1 as a number; an error as in :meth:`flatten`."""
        given: object = x
        if isinstance(given, float) and not self.shape and abs(given) < self._most and abs(given) < _LARGEST:
            return float(given) / self._step
        return float(self.flatten(x)[0])

    def flatten_rows(self, xs: ArrayLike) -> NDArray[Any]:
        """Several inputs as the rows of a matrix; an error if any of them is wrong."""
        array = _unmasked(xs)
        if array.shape[1:] != self.shape or array.ndim == 0:
            expected = ", ".join(["n", *map(str, self.shape)])
            raise ValueError(f"x must have shape ({expected}), got x.shape={array.shape}")
        return self._checked(array, (len(array), self.dimension))

    def _checked(self, array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        if array.dtype != self.dtype:
            kinds, values = ("biuf", "real numbers") if self.dtype.kind == "f" else ("biu", "integers")
            # unsigned 64-bit integers do not fit into signed ones
            if array.dtype.kind not in kinds or (self.dtype.kind == "i" and array.dtype == np.uint64):
                raise TypeError(f"x must be an array of {values}, got x.dtype={array.dtype}")
            array = array.astype(self.dtype)
        if self.dtype.kind == "i":
            return array.reshape(shape)
        flat = array.reshape(-1)
        squares = np.vdot(flat, flat)  # which, unlike dot, does not warn of overflow
        if not math.isfinite(squares):
            bad = int(np.count_nonzero(~np.isfinite(flat)))
            detail = f"x with {bad} entries that are NaN or infinite" if bad else "x with entries above 1e150"
            raise ValueError(f"x must be finite, got {detail}")
        flat = self._half(array) if self.symmetric else flat.reshape(shape)
        # the half-vector is as long as the matrix, within far less than the margin
        return flat if squares <= self._nothing_to_cut else np.clip(flat, -self._most, self._most)

    def _half(self, array: NDArray[np.float64]) -> NDArray[np.float64]:
        """The half-vectors of matrices that are symmetric, if possible in one pass."""
        mirrored = np.swapaxes(array, -1, -2)
        if np.array_equal(array, mirrored):
            upper, weights = _triangle(self.shape[0])
            half = array.reshape(*array.shape[:-2], -1).take(upper, axis=-1)
            half *= weights
            return half
        excess = float(np.abs(array - mirrored).max())
        if excess > 1e-8 * float(np.abs(array).max()):
            raise ValueError(f"x must be symmetric, got |x - x.T| up to {excess:g}")
        return svec(array)

    def estimate(self, y: float) -> NDArray[np.float64]:
        """The array of the public shape with the one entry ``y``."""
        return np.array(y) if not self.shape else self.unflatten(np.array([y]))

    def unflatten(self, flat: NDArray[Any]) -> NDArray[Any]:
        """The array of the public shape with the contents of ``flat``, whose leading axes are kept; may be a view."""
        if self.symmetric:
            return smat(flat)
        return flat if self._plain else flat.reshape(flat.shape[:-1] + self.shape)


def _unmasked(x: ArrayLike) -> NDArray[Any]:
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError("x must not be masked: fill it with a number that does not depend on the data")
    return np.asarray(x)


@lru_cache(maxsize=8)
def _triangle(d: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Where the half-vector's entries lie in a flat (d, d) matrix, diagonal first, and their weights 1 and √2."""
    rows, columns = np.triu_indices(d, 1)
    indices = np.concatenate([np.arange(d) * (d + 1), rows * d + columns])
    weights = np.repeat([1.0, math.sqrt(2.0)], [d, rows.size])
    indices.setflags(write=False)
    weights.setflags(write=False)
    return indices, weights

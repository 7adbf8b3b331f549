"""The isometric half-vector of a symmetric matrix: how matrices are noised.

    svec(M) = (M_11, …, M_dd ; √2·M_12, √2·M_13, …, √2·M_{d−1,d})

The diagonal comes first, then the upper triangle row by row. The factor √2 makes ‖svec(M)‖₂ = ‖M‖_F, so that an L2
sensitivity in the Frobenius norm is one of the half-vector, and isotropic noise of standard deviation σ on svec
is a symmetric matrix with diagonal entries of variance σ² and off-diagonal ones of variance σ²/2.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["smat", "svec", "svec_of_rows"]

_ROOT_HALF = math.sqrt(0.5)


@lru_cache(maxsize=32)
def _indices(d: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Positions in a raveled (d, d) matrix of the half-vector's entries and of their mirrors; and smat's gather."""
    rows, columns = np.triu_indices(d, 1)
    diagonal = np.arange(d) * (d + 1)
    upper = np.concatenate([diagonal, rows * d + columns])
    lower = np.concatenate([diagonal, columns * d + rows])
    gather = np.empty(d * d, dtype=np.intp)
    gather[lower] = gather[upper] = np.arange(d * (d + 1) // 2)
    for shared in (upper, lower, gather):
        shared.setflags(write=False)
    return upper, lower, gather


def svec(M: ArrayLike) -> NDArray[np.float64]:
    """The half-vector of a symmetric matrix, with ‖svec(M)‖₂ = ‖M‖_F.

    Parameters
    ----------
    M : (..., d, d) array_like
        Symmetric. Of any other matrix the symmetric part (M + Mᵀ)/2 is taken; being an orthogonal projection,
        that never lengthens a difference of two inputs.

    Returns
    -------
    (..., d (d + 1)/2) ndarray
        The diagonal, then √2 times the upper triangle row by row.

    Raises
    ------
    ValueError
        If the last two axes do not form a square of at least 1 × 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.geometry import smat, svec
    >>> M = np.array([[1.0, 2.0], [2.0, 3.0]])
    >>> svec(M).round(4)
    array([1.    , 3.    , 2.8284])
    >>> bool(np.allclose(smat(svec(M)), M)), float(np.linalg.norm(svec(M)) - np.linalg.norm(M)) < 1e-15
    (True, True)
    """
    matrix = np.asarray(M, dtype=np.float64)
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2] or matrix.shape[-1] == 0:
        raise ValueError(f"M must have shape (..., d, d) with d at least 1, got M.shape={matrix.shape}")
    d = matrix.shape[-1]
    upper, lower, _ = _indices(d)
    flat = matrix.reshape(*matrix.shape[:-2], d * d)
    half: NDArray[np.float64] = flat.take(upper, axis=-1)
    half[..., d:] += flat.take(lower[d:], axis=-1)
    half[..., d:] *= _ROOT_HALF
    return half


def svec_of_rows(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """svec(x xᵀ) of every row x of X, shape (n, d): to the last digit, in a third of the time.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.geometry.half_vector import svec_of_rows
    >>> svec_of_rows(np.array([[1.0, 2.0]])).round(4)
    array([[1.    , 4.    , 2.8284]])
    """
    d = X.shape[1]
    # of the transpose, of which whole rows are taken
    columns, upper = np.ascontiguousarray(X.T), _indices(d)[0]
    half: NDArray[np.float64] = columns.take(upper // d, axis=0)
    half *= columns.take(upper % d, axis=0)
    half[d:] *= 2.0 * _ROOT_HALF
    return np.ascontiguousarray(half.T)


def smat(v: ArrayLike) -> NDArray[np.float64]:
    """The symmetric matrix with the half-vector ``v``: the inverse of :func:`svec`.

    Parameters
    ----------
    v : (..., d (d + 1)/2) array_like

    Returns
    -------
    (..., d, d) ndarray
        Exactly symmetric.

    Raises
    ------
    ValueError
        If the last axis has no length of the form d (d + 1)/2 with d at least 1.

    Examples
    --------
    >>> from dpkit.geometry import smat
    >>> smat([1.0, 3.0, 0.0])
    array([[1., 0.],
           [0., 3.]])
    """
    vector: NDArray[Any] = np.array(v, dtype=np.float64, ndmin=1)
    D = vector.shape[-1]
    d = (math.isqrt(8 * D + 1) - 1) // 2
    if D == 0 or d * (d + 1) // 2 != D:
        raise ValueError(f"v must have a last axis of length d (d + 1)/2 with d at least 1, got v.shape={vector.shape}")
    vector[..., d:] *= _ROOT_HALF
    matrix: NDArray[np.float64] = vector.take(_indices(d)[2], axis=-1).reshape(*vector.shape[:-1], d, d)
    return matrix

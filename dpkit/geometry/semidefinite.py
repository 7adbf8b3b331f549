"""Repairing a noisy symmetric matrix after its release: post-processing, which costs no privacy."""

from __future__ import annotations

import math
from typing import SupportsFloat

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.checks import fraction, integer, nonnegative

__all__ = ["nearest_psd", "ridge_shift"]


def nearest_psd(M: ArrayLike) -> NDArray[np.float64]:
    """The positive semidefinite matrix closest to ``M`` in the Frobenius norm: negative eigenvalues become 0.

    Parameters
    ----------
    M : (..., d, d) array_like
        Symmetric; of any other matrix the symmetric part is taken (Higham 1988, "Computing a nearest symmetric positive
        semidefinite matrix", Theorem 2.1).

    Returns
    -------
    (..., d, d) ndarray
        Exactly symmetric, and positive semidefinite up to rounding.

    Raises
    ------
    ValueError
        If the last two axes do not form a square, or an entry is not finite.

    Examples
    --------
    >>> from dpkit.geometry import nearest_psd
    >>> nearest_psd([[1.0, 0.0], [0.0, -2.0]])
    array([[1., 0.],
           [0., 0.]])
    """
    matrix = np.asarray(M, dtype=np.float64)
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2] or matrix.shape[-1] == 0:
        raise ValueError(f"M must have shape (..., d, d) with d at least 1, got M.shape={matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"M must be finite, got {np.count_nonzero(~np.isfinite(matrix))} entries that are not")
    values, vectors = np.linalg.eigh((matrix + np.swapaxes(matrix, -1, -2)) / 2)
    scaled = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    repaired: NDArray[np.float64] = scaled @ np.swapaxes(scaled, -1, -2)
    return (repaired + np.swapaxes(repaired, -1, -2)) / 2


def ridge_shift(noise_std: SupportsFloat, dimension: int, failure_probability: SupportsFloat) -> float:
    """How much to add to the diagonal so that a noisy matrix is at least the exact one, with high probability.

    For symmetric noise N whose half-vector (:func:`dpkit.geometry.svec`) has independent Gaussian entries of standard
    deviation σ, N + shift·I is positive semidefinite with probability at least 1 − ζ for

        shift = σ(√(2d) + √(2 ln(1/ζ))).

    Proof. uᵀNu has increments of variance σ²‖uuᵀ − vvᵀ‖_F² ≤ 2σ²‖u − v‖², those of √2·σ·gᵀu for a Gaussian vector g,
    so E max_u uᵀNu ≤ √2·σ·E‖g‖ ≤ σ√(2d) (Sudakov & Fernique). The largest eigenvalue is 1-Lipschitz in the half-vector,
    so it passes its mean by u with probability at most exp(−u²/(2σ²)); and −N has the law of N. The operator norm is
    the larger of two eigenvalues, hence below the shift for ζ/2 with probability at least 1 − ζ.

    Parameters
    ----------
    noise_std : float
        σ: the standard deviation of a diagonal entry, which is what ``noise_std(t)`` of a symmetric stream gives.
    dimension : int
        d, of a (d, d) matrix.
    failure_probability : float
        ζ, in (0, 1).

    Examples
    --------
    >>> from dpkit.geometry import ridge_shift
    >>> round(ridge_shift(2.0, 50, 0.01), 3)
    26.07
    """
    sigma, zeta = nonnegative("noise_std", noise_std), fraction("failure_probability", failure_probability)
    d = integer("dimension", dimension, at_least=1)
    return sigma * (math.sqrt(2.0 * d) + math.sqrt(2.0 * math.log(1.0 / zeta)))

"""Power series that are cut off after T terms: products, and the inverse of a short one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["correlation", "inverse_series", "product"]

Vector = NDArray[np.float64]

_BLOCK = 256


def inverse_series(a: Vector, terms: int) -> Vector:
    """The first ``terms`` coefficients of 1/a(z), for a_0 = 1.

    c_t = −Σ_{j≥1} a_j c_{t−j}, and where c is known for s terms, s ≥ len(a), for the next s at once: c_{s+i} =
    −Σ_{m≤i} c_{i−m} Σ_{j>m} a_j c_{s+m−j}. If all a_j ≤ 0 for j ≥ 1, nothing cancels: the relative error of a term is
    then at most T·(len(a) + 2)·u in first order, as a term takes at most that many roundings on the longest way to it.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.continual._series import inverse_series
    >>> inverse_series(np.array([1.0, -0.5]), 4)
    array([1.   , 0.5  , 0.25 , 0.125])
    """
    p = len(a)
    c = np.zeros(terms)
    c[0] = 1.0
    size = min(terms, max(p, _BLOCK))
    backwards = -a[:0:-1]
    for t in range(1, size):
        k = min(t, p - 1)
        c[t] = backwards[p - 1 - k :] @ c[t - k : t]
    if p == 1 or size == terms:
        return c
    i = np.arange(size)
    lags = i[:, None] - i
    triangle = np.where(lags >= 0, c[np.abs(lags)], 0.0)
    # row m holds −a_j at the distance j = m + p − 1 − k from the k-th of the last p − 1 terms
    reach = np.arange(p - 1)[:, None] + (p - 1) - np.arange(p - 1)
    earlier = np.where(reach < p, -a[np.minimum(reach, p - 1)], 0.0)
    for start in range(size, terms, size):
        stop = min(start + size, terms)
        pushed = earlier @ c[start - p + 1 : start]
        c[start:stop] = triangle[: stop - start, : p - 1] @ pushed
    return c


def product(x: Vector, y: Vector) -> Vector:
    """The first T terms of x(z)·y(z), for x of T terms and y of at most as many; by a Fourier transform."""
    from scipy.fft import irfft, next_fast_len, rfft

    n = next_fast_len(len(x) + len(y) - 1, real=True)
    found: Vector = irfft(rfft(x, n) * rfft(y, n), n)[: len(x)]
    return found


def correlation(g: Vector, x: Vector, lags: int) -> Vector:
    """Σ_t g_t x_{t−j} for j = 0, …, ``lags`` − 1; g and x have the same length."""
    return product(g[::-1], x)[::-1][:lags]

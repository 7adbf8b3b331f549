"""The error of a banded factorization as a function of its coefficients, with its gradient, and its minimum.

Let a(z) have p coefficients, c(z) = a or 1/a (the first column of C) and n(z) = 1/a or a (that of C⁻¹). SGD with
momentum β and rates η_t releases the iterates Σ_{u≤t} η_u m_u, m(z) = x(z)/(1 − βz), so that the noise of the t-th one
has the coefficients q_s = Σ_{u=s}^t η_u (n/(1 − βz))_{u−s}, s ≤ t. Minimised is

    ln ‖Σ_{j<m} z^{jb}c‖² + ln mean_t ‖q^{(t)}‖²,

the squares of the sensitivity of m participations b steps apart and of the error. With constant rates q runs through
the coefficients of n/((1 − z)(1 − βz)), and the mean over all t is one weighted sum; otherwise it is taken over a grid
of t, two Fourier transforms each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpkit.continual._series import correlation, inverse_series, product

__all__ = ["mean_square", "optimal_bands"]

Vector = NDArray[np.float64]

# iterates of which the error is averaged where rates change
_GRID = 24
# how far the first step of L-BFGS goes: division by a(z) soon explodes
_STEP = 0.01
# the objective where it overflows
_FAR = 1e9


def mean_square(n: Vector, momentum: float, rates: ArrayLike | None = None) -> tuple[float, Vector]:
    """mean_t ‖q^{(t)}‖² for the first column n of C⁻¹, and its gradient in n."""
    T = len(n)
    faded = np.power(momentum, np.arange(T, dtype=np.float64)) if momentum else None
    moved = n if faded is None else product(n, faded)
    if rates is None:
        b = np.cumsum(moved)
        weights = np.arange(T, 0.0, -1.0) / T
        value = float(weights @ (b * b))
        gradient = np.cumsum((2.0 * weights * b)[::-1])[::-1]
    else:
        eta = np.asarray(rates, dtype=np.float64)
        if eta.shape != (T,) or not np.isfinite(eta).all() or (eta < 0).any() or not eta.any():
            raise ValueError(f"rates must be {T} finite numbers of at least 0, not all 0, got rates={rates!r}")
        value, gradient = 0.0, np.zeros(T)
        ends = np.unique(np.ceil(np.linspace(0.0, T, _GRID + 1)[1:]).astype(int))
        for t in ends:
            # Σ_{u=s}^{t−1} η_u n_{u−s} is a correlation, and so is the gradient
            q = correlation(eta[:t], moved[:t], t)
            value += float(q @ q) / len(ends)
            gradient[:t] += correlation(eta[:t], 2.0 * q, t) / len(ends)
    if faded is not None:
        gradient = correlation(gradient, faded, T)
    return value, gradient


def squared_sensitivity(c: Vector, participations: int, min_separation: int) -> tuple[float, Vector]:
    """‖Σ_{j<m} z^{jb}c‖² and its gradient in c."""
    total = np.zeros_like(c)
    starts = range(0, participations * min_separation, min_separation)
    for start in starts:
        total[start:] += c[: c.size - start]
    gradient = np.zeros_like(c)
    for start in starts:
        gradient[: c.size - start] += 2.0 * total[start:]
    return float(total @ total), gradient


def optimal_bands(
    start: Vector,
    horizon: int,
    inverse: bool,
    participations: int,
    min_separation: int,
    momentum: float,
    rates: ArrayLike | None,
) -> Vector:
    """The coefficients with the smallest objective near ``start``, of the signs that ``Banded`` asks for."""
    from scipy.optimize import minimize

    p = len(start)
    if p == 1:
        return start.copy()

    # a(1) > 0 is what keeps 1/a summable
    step = min(_STEP, 0.25 * float(start.sum()) / np.sqrt(p)) if inverse else _STEP

    def objective(x: Vector) -> tuple[float, Vector]:
        with np.errstate(all="ignore"):
            value, gradient = measured(np.concatenate([[1.0], start[1:] + step * x]))
        finite = np.isfinite(value) and np.isfinite(gradient).all()
        return (value, step * gradient) if finite else (_FAR, np.zeros(p - 1))

    def measured(a: Vector) -> tuple[float, Vector]:
        series = inverse_series(a, horizon)
        padded = np.zeros(horizon)
        padded[:p] = a
        c, n = (series, padded) if inverse else (padded, series)
        sensitivity, by_c = squared_sensitivity(c, participations, min_separation)
        error, by_n = mean_square(n, momentum, rates)
        by_c, by_n = by_c / sensitivity, by_n / error
        by_series, by_padded = (by_c, by_n) if inverse else (by_n, by_c)
        # ∂(1/a)/∂a_j = −z^j/a²
        gradient = by_padded[:p] - correlation(by_series, product(series, series), p)
        return float(np.log(sensitivity) + np.log(error)), gradient[1:]

    low, high = (-1.0, 0.0) if inverse else (0.0, np.inf)
    found = minimize(
        objective,
        np.zeros(p - 1),
        jac=True,
        method="L-BFGS-B",
        bounds=np.column_stack([(low - start[1:]) / step, (high - start[1:]) / step]),
        options={"maxiter": 1000, "maxfun": 1500, "ftol": 1e-10, "gtol": 1e-9},
    )
    best = np.clip(start[1:] + step * found.x, low, high)
    if inverse and -best.sum() > 1.0:
        best *= (1.0 - 1e-12) / -best.sum()
    return np.concatenate([[1.0], best])

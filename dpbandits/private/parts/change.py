"""Whether a batch of records still fits the parameter at which they were formed: a test of what was released.

With records (w·x xᵀ, g·x), g = w·e + r − μ(e) at e = xᵀθ (or any records of which g·x − w·e·x is (r − μ(e))·x), the
sums M and m over a batch have the residual

    R = m − Mθ = Σ (r − μ(xᵀθ))·x      ≈ M(θ* − θ) + the rewards' noise + privacy noise,

θ* being what the world follows. If θ was estimated before, with the covariance V, and θ* is as it was, then R has about
the mean 0 and a covariance of at most

    W = σ²I + v·M + M V M,

σ² the variance of the privacy noise in R and v·M that of the rewards. RᵀW⁻¹R is then about χ² with d degrees of freedom
or less; where θ* has moved by Δ, it grows by ΔᵀM W⁻¹M Δ.

All of that is post-processing of released sums, so it costs nothing.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from accounting.arrays import Array

__all__ = ["surprise", "surprise_bound"]


def surprise(residual: Array, information: Array, covariance: Array, *, noise: float, reward_variance: float) -> float:
    """RᵀW⁻¹R, with the positive part of the noisy M.

    Parameters
    ----------
    residual : ndarray of shape (d,)
        R.
    information : ndarray of shape (d, d)
        M, noisy and symmetric.
    covariance : ndarray of shape (d, d)
        V.
    noise : float
        σ² > 0.
    reward_variance : float
        v, the largest variance of a reward for each unit of weight w.

    Examples
    --------
    >>> import numpy as np
    >>> eye = np.eye(2)
    >>> surprise(np.array([3.0, 4.0]), 2 * eye, 0.5 * eye, noise=1.0, reward_variance=0.5)   # W = 4·I
    6.25
    """
    eigenvalues, U = np.linalg.eigh(information)
    M = (U * np.maximum(eigenvalues, 0.0)) @ U.T
    W = noise * np.eye(len(residual)) + reward_variance * M + M @ covariance @ M
    return float(residual @ np.linalg.solve(W, residual))


@cache
def surprise_bound(dim: int, false_alarms: float) -> float:
    """What a χ² variable with ``dim`` degrees of freedom passes with probability ``false_alarms``."""
    from scipy.special import chdtri

    return float(chdtri(dim, false_alarms))

"""A public metric in which records are formed, so that noise falls on what decides and not on what all arms share.

A record (ψs·v vᵀ, ψg·v) with v = A x, A symmetric, positive definite and public, says of θ' = A⁻¹θ what (ψs·x xᵀ,
ψg·x) says of θ, as xᵀθ = vᵀθ'. Noise is isotropic, and gradients g·v are sent at unit length. So a direction that all
arms share, a constant feature or the mean of features that are not centred, takes up most of that length for A = I, at
the cost of the directions in which arms differ.

Let x have the second moment Σh_i·w_iw_iᵀ, and A = Σa_i·w_iw_iᵀ. In θ along w_i a unit of noise is then worth
√(Σ_j a_j²h_j)/(a_ih_i) for each round; the sum of its square times h_i, which is what noise adds to the squared errors
of predictions, is least for a_i = h_i^(−1/2), by Cauchy and Schwarz: d², where A = I has
Σ_j h_j·Σ_i 1/h_i. A ridge of twenty standard deviations of the noise keeps A near I as long as H says little.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["levelling", "symmetric_root"]

Array = NDArray[np.float64]

_POWER, _RIDGE = 0.5, 20.0


def levelling(information: Array, noise: float) -> Array:
    """A = c·(H₊ + 20σI)^(−1/2), with the c for which tr(A H₊ A) = tr H₊: arms keep their lengths on average.

    Parameters
    ----------
    information : ndarray of shape (d, d)
        H, symmetric; H₊ is its positive part.
    noise : float
        σ > 0, the standard deviation of the noise on its diagonal.

    Examples
    --------
    >>> import numpy as np
    >>> A = levelling(np.diag([80.0, 5.0, 5.0]), noise=0.01)
    >>> A.diagonal().round(2).tolist()
    [0.62, 2.43, 2.43]
    >>> np.allclose(levelling(np.eye(3), noise=1.0), np.eye(3)), np.allclose(levelling(-np.eye(3), 1.0), np.eye(3))
    (True, True)
    """
    eigenvalues, W = np.linalg.eigh(information)
    h = np.maximum(eigenvalues, 0.0)
    if not h.any():
        return np.eye(len(h))
    a = (h + _RIDGE * noise) ** -_POWER
    return np.asarray((W * (a * np.sqrt(h.sum() / (a**2 @ h)))) @ W.T)


def symmetric_root(matrix: Array) -> Array:
    """The symmetric root of a positive semidefinite matrix.

    Examples
    --------
    >>> import numpy as np
    >>> symmetric_root(np.array([[5.0, 4.0], [4.0, 5.0]])).round(6).tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """
    eigenvalues, U = np.linalg.eigh(matrix)
    return np.asarray((U * np.sqrt(np.maximum(eigenvalues, 0.0))) @ U.T)

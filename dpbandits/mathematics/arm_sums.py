"""What noisy sums of rewards say of arms that stand, where it is known exactly how often each was played.

Batch j has n_jk plays of arm k, whose records g have the mean m_k and the variance v_k; s_jk is their sum. Running sums
leave as A·C⁻¹(C·s + σζ), A the running sum and C the lower triangle of :class:`dpkit.continual.Weighted`, which is
public. So all that is known of arm k is y_k = C·s_k + σζ_k, with independent noise in every entry, and

    E y_k = m_k·Cn_k,    cov y_k = V_k = σ²I + v_k·C diag(n_k) Cᵀ.

* :func:`weighed` is generalized least squares: what all releases together say of m_k. For an arm that was played in a
  single batch it has the noise of a single release, where the newest running sum has one and a half to two times as
  much.
* :func:`fitted` joins the arms: m_k = μ(x_kᵀθ) − c₀ for one parameter θ, with a normal prior, by Gauss and Newton.

Both are post-processing of what was released, and cost O(Kk³) after k releases, and O(Kd² + d³).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpbandits.mathematics.ellipsoid import ball_constrained_minimizer
from dpbandits.mathematics.prior import Posterior, Prior

__all__ = ["fitted", "weighed"]

Array = NDArray[np.float64]

# of Gauss and Newton: at most so many, and until nothing moves by more than that
_STEPS, _STILL = 8, 1e-5


def weighed(factor: Array, plays: Array, outputs: Array, noise: float, variances: Array) -> tuple[Array, Array]:
    """What is known of each m_k: the precision p_k, and p_k times the estimate.

    Parameters
    ----------
    factor : ndarray of shape (k, k)
        C.
    plays : ndarray of shape (k, K)
        n, at least 0.
    outputs : ndarray of shape (k, K)
        y.
    noise : float
        σ > 0.
    variances : ndarray of shape (K,)
        v, at least 0.

    Examples
    --------
    One batch with 9 plays, whose records have the sum 3 and the variance 1 each:

    >>> import numpy as np
    >>> p, score = weighed(np.eye(1), np.array([[9.0]]), np.array([[3.0]]), noise=2.0, variances=np.ones(1))
    >>> (score / p).round(3).item(), (1.0 / p).round(3).item()    # (4 + 9·1)/9²
    (0.333, 0.16)
    """
    D = factor @ plays
    chance = (factor * (variances[:, None] * plays.T)[:, None, :]) @ factor.T
    weights = np.linalg.solve(noise**2 * np.eye(len(factor)) + chance, D.T[:, :, None])[:, :, 0]
    return np.einsum("kj,jk->k", weights, D), np.einsum("kj,jk->k", weights, outputs)


def fitted(
    arms: Array,
    moments: Callable[[Array], tuple[Array, Array]],
    evidence: Callable[[Array], tuple[Array, Array]],
    prior: Prior,
    start: Array,
    radius: float,
) -> Posterior:
    """θ given what is known of every m_k, to first order around its mean.

    Parameters
    ----------
    arms : ndarray of shape (K, d)
    moments : callable
        From e = (x_kᵀθ)_k to (m_k) and their slopes in e, positive.
    evidence : callable
        From these slopes, to which variances are in proportion, to what :func:`weighed` returns.
    prior : Prior
    start : ndarray of shape (d,)
        Where to begin.
    radius : float
        S ≥ ‖θ‖.

    Examples
    --------
    Two arms of a linear model of which the first is known well; the prior has mean 0 and variance 1:

    >>> import numpy as np
    >>> known = lambda slopes: (np.array([99.0, 0.0]), np.array([99.0, 0.0]))
    >>> linear = lambda e: (e, np.ones(2))
    >>> found = fitted(np.eye(2), linear, known, Prior(np.zeros(2), np.eye(2)), np.zeros(2), radius=3.0)
    >>> found.mean.round(6).tolist(), found.covariance.diagonal().round(6).tolist()
    ([0.99, 0.0], [0.01, 1.0])
    """
    theta = start
    for _ in range(_STEPS):
        e = arms @ theta
        mean, slopes = moments(e)
        precisions, scores = evidence(slopes)
        eigenvalues, U = np.linalg.eigh((arms.T * (precisions * slopes**2)) @ arms + prior.precision)
        # the mean is taken to be m + slope·(xᵀθ' − e)
        pull = arms.T @ (slopes * (scores - precisions * (mean - slopes * e))) + prior.precision @ prior.mean
        before, theta = theta, ball_constrained_minimizer(eigenvalues, U, pull, radius)
        if np.abs(theta - before).max() <= _STILL:
            break
    return Posterior(theta, (U / eigenvalues) @ U.T, (U / np.sqrt(eigenvalues)) @ U.T)

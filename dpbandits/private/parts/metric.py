"""A public metric in which records are formed, so that noise falls on what decides and not on what all arms share.

A record (ψs·v vᵀ, ψg·v) with v = A x, A symmetric, positive definite and public, says of θ' = A⁻¹θ what (ψs·x xᵀ,
ψg·x) says of θ, as xᵀθ = vᵀθ'. Noise is isotropic, and gradients g·v are sent at unit length. So a direction that all
arms share, a constant feature or the mean of features that are not centred, takes up most of that length for A = I, at
the cost of the directions in which arms differ.

Let x have the second moment Σh_i·w_iw_iᵀ, and A = Σa_i·w_iw_iᵀ. In θ along w_i a unit of noise is then worth
√(Σ_j a_j²h_j)/(a_ih_i) for each round; the sum of its square times h_i, which is what noise adds to the squared errors
of predictions, is least for a_i = h_i^(−1/2), by Cauchy and Schwarz: d², where A = I has
Σ_j h_j·Σ_i 1/h_i.

* :func:`standing_out` says what of a noisy second moment is neither noise nor the play's own choice of arms: where arms
  are alike in all directions nothing is, and A stays as it was.
* :func:`levelling` makes A.
* :func:`relearned` does both after a release, and says when A is final.
* :func:`carried` goes from one A to the next so that noise goes along.

Noise and a change of A. Released are running sums in the metric, S_k + ξ_k, where the noises ξ_k of successive releases
are nearly the same. Sums over all batches in terms of x, b = ΣA_j⁻¹·(the difference of releases j and j − 1), hold the
noise A⁻¹ξ_k as long as A is one. Let A change to A′ after release k. Then A′⁻¹(ξ_{k+1} − ξ_k) comes to A⁻¹ξ_k, and
(A⁻¹ − A′⁻¹)ξ_k is left for good, which is as large as what A′ saves. With P = A′⁻¹A it is P·b that holds A′⁻¹ξ_k, and
after the next release A′⁻¹ξ_{k+1}: the noise is as if all records had been formed in A′. As b ≈ Hθ says Pb ≈ PHθ, H
becomes PH, or rather its symmetric part, since P and H have nearly the same eigenvectors. Records from before the
change count for less where A′ is larger than A, that is a few early batches, of which little was known anyway.
"""

from __future__ import annotations

import numpy as np

from accounting.arrays import Array

__all__ = ["KNOWN", "carried", "levelling", "relearned", "standing_out", "symmetric_root"]

# eigenvalues of H below so many times its noise are not known yet
KNOWN = 6.0
# the metric is final once the largest eigenvalue is so many times its noise: until then the play knows too little of θ
# to make arms look alike that are not (from 12 on, uncentred features would cost 5 % more)
_SETTLED = 20.0

_POWER, _RIDGE = 0.5, 1.0
# in standard deviations of the noise: what an eigenvalue must be larger by than the others, to be told from them
_TOLD = 3.0


def standing_out(eigenvalues: Array, noise: float, theta: Array) -> Array:
    """Eigenvalues of a noisy second moment, all of them alike but the largest, which counts as far as arms share it.

    It is larger than the others by noise, for which 3σ are taken off, by what all arms share, and because arms are
    chosen that are long along θ. That is what θ is learned by, and no reason to shorten anything: of what is left after
    3σ, sin² of the angle to θ counts.

    Parameters
    ----------
    eigenvalues : ndarray of shape (d,)
        Ascending, at least 0.
    noise : float
        σ ≥ 0, the standard deviation of the noise on the diagonal.
    theta : ndarray of shape (d,)
        The components of θ, or an estimate of it, along the eigenvectors; 0 where nothing is known.

    Examples
    --------
    >>> import numpy as np
    >>> standing_out(np.array([3.0, 5.0, 20.0]), noise=2.0, theta=np.array([1.0, 0.0, 0.0])).tolist()
    [4.0, 4.0, 14.0]
    >>> standing_out(np.array([3.0, 5.0, 20.0]), noise=2.0, theta=np.array([1.0, 0.0, 1.0])).round(3).tolist()
    [4.0, 4.0, 9.0]
    >>> standing_out(np.array([3.0, 8.0]), noise=2.0, theta=np.zeros(2)).tolist()
    [3.0, 3.0]
    """
    rest = float(eigenvalues[:-1].mean()) if len(eigenvalues) > 1 else 0.0
    out = np.full(len(eigenvalues), rest)
    length = float(theta @ theta)
    shared = 1.0 - float(theta[-1]) ** 2 / length if length > 0.0 else 1.0
    out[-1] += shared * max(0.0, float(eigenvalues[-1]) - rest - _TOLD * noise)
    return out


def levelling(information: Array, noise: float) -> Array:
    """A = c·(H₊ + σI)^(−1/2), with the c for which tr(A H₊ A) = tr H₊: arms keep their lengths on average.

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
    [0.61, 2.45, 2.45]
    >>> np.allclose(levelling(np.eye(3), noise=1.0), np.eye(3)), np.allclose(levelling(-np.eye(3), 1.0), np.eye(3))
    (True, True)
    """
    eigenvalues, W = np.linalg.eigh(information)
    h = np.maximum(eigenvalues, 0.0)
    if not h.any():
        return np.eye(len(h))
    a = (h + _RIDGE * noise) ** -_POWER
    return np.asarray((W * (a * np.sqrt(h.sum() / (a**2 @ h)))) @ W.T)


def relearned(eigenvalues: Array, U: Array, metric: Array, theta: Array, noise: float) -> tuple[Array, bool]:
    """The metric of records to come, and whether it is final.

    Parameters
    ----------
    eigenvalues, U : ndarray of shape (d,) and (d, d)
        Of A H A, shrunk for its noise, ascending.
    metric : ndarray of shape (d, d)
        A, the metric so far.
    theta : ndarray of shape (d,)
        An estimate of θ.
    noise : float
        σ > 0, the standard deviation of the noise on the diagonal of A H A.

    Examples
    --------
    >>> import numpy as np
    >>> A, final = relearned(np.array([5.0, 80.0]), np.eye(2), np.eye(2), np.array([1.0, 0.0]), noise=1.0)
    >>> A.diagonal().round(2).tolist(), final
    ([2.74, 0.76], True)
    """
    final = bool(eigenvalues[-1] > _SETTLED * noise or (eigenvalues > KNOWN * noise).mean() >= 0.5)
    inverse = np.linalg.inv(metric)
    told = standing_out(eigenvalues, noise, U.T @ inverse @ theta)
    return levelling(inverse @ (U * told) @ U.T @ inverse, noise), final


def carried(before: Array, after: Array, H: Array, b: Array) -> tuple[Array, Array]:
    """Sums H and b of records that were formed in the metric A, for records that will be formed in A′; see above.

    Parameters
    ----------
    before, after : ndarray of shape (d, d)
        A and A′, symmetric and positive definite.
    H, b : ndarray of shape (d, d) and (d,)
        In terms of x, with b ≈ Hθ.

    Examples
    --------
    >>> import numpy as np
    >>> H, b = carried(np.eye(2), np.diag([0.5, 2.0]), np.diag([8.0, 4.0]), np.array([8.0, 4.0]))
    >>> H.tolist(), b.tolist()
    ([[16.0, 0.0], [0.0, 2.0]], [16.0, 2.0])
    """
    P = np.linalg.solve(after, before)
    moved = P @ H
    return 0.5 * (moved + moved.T), P @ b


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

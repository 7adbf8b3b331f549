"""Estimating θ from H = M + N and b = Mθ + n, where N and n are noise that was added for privacy, of known size.

M is positive semidefinite; N is symmetric with independent Gaussian entries, of standard deviation σ_H on the diagonal
and σ_H/√2 off it, as noise that is isotropic on half-vectors is; n has independent entries. Along an eigenvector of M
whose eigenvalue λ is well above σ_H everything is as without noise; along others H says nothing, and what it says there
is biased: eigenvalues of H repel each other and spread beyond those of M on both sides.

* :func:`shrunken_eigenvalues` takes that spread out.
* :func:`errors` is all that makes b uncertain along each eigenvector, :func:`precisions` weighs b against it, and
  :func:`weighed` joins what it says to a prior.
* :func:`stalled` finds the eigenvectors along which information has stopped growing, because the play is stuck.
* :func:`standing` tells fixed arms from fresh ones, by all eigenvalues together: far earlier than each one can.

All are functions of what was released and of public numbers, and cost O(d²) beside the eigendecomposition.
"""

from __future__ import annotations

import math

import numpy as np

from accounting.arrays import Array
from dpkit.models.prior import Posterior, Prior, posterior

__all__ = ["errors", "precisions", "shrunken_eigenvalues", "stalled", "standing", "weighed"]


# the mean of all eigenvalues but the largest over that of all, for fixed arms and for fresh ones, and how far
# worlds are from these: measured, up to 0.2 where arms stand once a run has settled, and 0.35 to 0.95 where they are
# fresh
_STANDING, _FRESH, _WORLDS = 0.08, 0.45, 0.15


def _drawn_together(eigenvalues: Array, noise: float) -> Array:
    """Step 1 of :func:`shrunken_eigenvalues`: ascending, and of the same sum."""
    variance = 0.5 * noise**2
    if variance == 0.0:
        return np.sort(eigenvalues)
    gaps = eigenvalues[:, None] - eigenvalues
    return np.sort(eigenvalues - 2.0 * variance * (gaps / (gaps**2 + variance)).sum(axis=1))


def shrunken_eigenvalues(eigenvalues: Array, noise: float) -> Array:
    """Estimates λ > 0 of M's eigenvalues, ascending as those of H are.

    Two steps, with τ² = σ_H²/2 the variance of an off-diagonal entry of N:

    1. λ_i = ℓ_i − 2τ²·Σ_{j≠i}(ℓ_i − ℓ_j)/((ℓ_i − ℓ_j)² + τ²). Eigenvalues of a noisy matrix repel each other: to second
       order E ℓ_i = λ_i + τ²Σ_j 1/(λ_i − λ_j), and Stein's unbiased estimate of the risk of a rotationally invariant
       estimator takes out twice that (as in Ledoit & Wolf 2012). The τ² in the denominator keeps close ones apart from
       dividing by zero. The result is sorted, as averaging over the permutations asks for.
    2. λ ← λ + τφ(λ/τ)/Φ(λ/τ): the mean of λ given that it is positive, for noise of standard deviation τ.

    Parameters
    ----------
    eigenvalues : ndarray of shape (d,)
        ℓ, of H.
    noise : float
        σ_H ≥ 0.

    Examples
    --------
    >>> import numpy as np
    >>> shrunken_eigenvalues(np.array([-1.0, 2.0, 50.0]), noise=1.0).round(2).tolist()
    [0.38, 1.72, 49.96]
    >>> shrunken_eigenvalues(np.array([1.0, 2.0]), noise=0.0).tolist()
    [1.0, 2.0]
    """
    from scipy.special import log_ndtr

    if noise == 0.0:
        return np.maximum(eigenvalues, 0.0)
    deviation = math.sqrt(0.5) * noise
    z = _drawn_together(eigenvalues, noise) / deviation
    near = np.maximum(z, -50.0)
    mean = near + np.exp(-0.5 * near**2 - 0.5 * math.log(2.0 * math.pi) - log_ndtr(near))
    # far below 0 the two terms cancel; there z + φ(z)/Φ(z) = −1/z + 2/z³ − …
    far = np.minimum(z, -50.0)
    return np.asarray(deviation * np.where(z < -50.0, (2.0 / far**2 - 1.0) / far, mean))


def errors(eigenvalues: Array, noise_H: float, noise_b: float, length: float, chance: float) -> Array:
    """The variances r of uᵀb − λ·uᵀθ along eigenvectors u of H with the eigenvalues λ.

    r = σ_b² + ½·(1 + 1/d)·0.7·σ_H²‖θ‖² + v·λ: the noise of b; that of H times θ, E‖Nθ‖² = ½(d + 1)σ_H²‖θ‖² shared by d
    directions, of which shrinking takes out some three tenths; and the chance of rewards.

    Parameters
    ----------
    eigenvalues : ndarray of shape (d,)
    noise_H, noise_b : float
        σ_H and σ_b.
    length : float
        About ‖θ‖².
    chance : float
        v, the variance that a round adds to b over what it adds to M.

    Examples
    --------
    >>> import numpy as np
    >>> errors(np.array([0.0, 10.0]), noise_H=0.0, noise_b=2.0, length=1.0, chance=0.5).tolist()
    [4.0, 9.0]
    """
    d = len(eigenvalues)
    return np.asarray(noise_b**2 + 0.7 * noise_H**2 * (d + 1) / (2 * d) * length + chance * eigenvalues)


def precisions(eigenvalues: Array, variances: Array) -> tuple[Array, Array]:
    """The weights of θ's estimate along eigenvectors with eigenvalues λ: gains λ/r and precisions λ²/r.

    Along eigenvector u, uᵀb = λ·uᵀθ + an error of variance r. So gain·uᵀb is the precision times the estimate of uᵀθ.

    Parameters
    ----------
    eigenvalues, variances : ndarray of shape (d,)
        λ and r.

    Examples
    --------
    >>> import numpy as np
    >>> gains, precision = precisions(np.array([1.0, 10.0]), np.array([2.0, 5.0]))
    >>> gains.tolist(), precision.tolist()
    ([0.5, 2.0], [0.5, 20.0])
    """
    gains = eigenvalues / variances
    return gains, gains * eigenvalues


def weighed(
    eigenvalues: Array, variances: Array, directions: Array, told: Array, prior: Prior, radius: float
) -> Posterior:
    """The prior together with what b says along each eigenvector, as much as it is to be believed.

    Parameters
    ----------
    eigenvalues, variances : ndarray of shape (d,)
        λ and r.
    directions : ndarray of shape (d, d)
        In its columns what the eigenvectors are in terms of θ.
    told : ndarray of shape (d,)
        uᵀb.
    prior : Prior
    radius : float
        S ≥ ‖θ‖.
    """
    gains, precision = precisions(eigenvalues, variances)
    return posterior(prior, precision, directions, gains * told, radius)


def stalled(eigenvalues: Array, growth: Array, share: float, noise: float, known: float = 2.0) -> Array:
    """How far information has stopped growing along each eigenvector: from 0 (it keeps pace) to 1 (it stands still).

    Where arms are fresh in every round, M grows in all directions in proportion to the rounds. A policy that is stuck
    on a few fixed arms learns about them alone: along other eigenvectors λ stands still. With the pace
    (growth_i + σ_H)/(λ_i·share), which is about 1 for steady growth, this is 1 − 2·pace cut to [0, 1], and 1 where
    λ_i is below ``known``·σ_H: there it is noise that decides. (σ_H in the pace is what noise may have hidden.)

    Parameters
    ----------
    eigenvalues, growth : ndarray of shape (d,)
        λ, and what uᵀHu has grown by since an earlier release.
    share : float
        The part of the rounds that came since then, in (0, 1].
    noise : float
        σ_H.
    known : float
        In units of σ_H.

    Examples
    --------
    >>> import numpy as np
    >>> eigenvalues, growth = np.array([1.0, 100.0, 100.0, 100.0]), np.array([1.0, 50.0, 10.0, 0.0])
    >>> stalled(eigenvalues, growth, 0.5, noise=2.0).round(2).tolist()
    [1.0, 0.0, 0.52, 0.92]
    """
    pace = (growth + noise) / np.maximum(eigenvalues * share, np.finfo(np.float64).tiny)
    return np.where(eigenvalues < known * noise, 1.0, np.clip(1.0 - 2.0 * pace, 0.0, 1.0))


def standing(eigenvalues: Array, noise: float) -> float:
    """How much likelier it is that arms stand than that they are fresh in every round: the logarithm of the ratio.

    Where arms stand and the best one is played, what H grows by is nearly of rank one. Fresh arms, also the best ones
    of many, spread into all directions. So the mean of all eigenvalues but the largest, over the mean of all, is small
    or not. It has the noise d·σ_H/tr H over √(d − 1), a single eigenvalue √(d − 1) times as much. The two hypotheses
    are normal, around 0.08 and 0.45, with the variance of noise plus 0.15², as worlds differ. Arms that lie near a line
    look as if they stood; so do those of one or no dimension, about which this says nothing: 0.

    Parameters
    ----------
    eigenvalues : ndarray of shape (d,)
        Ascending, of what H has grown by since an earlier release.
    noise : float
        σ_H ≥ 0, of that difference.

    Examples
    --------
    >>> import numpy as np
    >>> round(standing(np.array([0.0, 0.0, 0.0, 40.0]), noise=2.0), 2)
    2.63
    >>> round(standing(np.array([9.0, 10.0, 11.0, 10.0]), noise=2.0), 2)
    -6.56
    >>> round(standing(np.array([-1.0, 0.0, 1.0, 4.0]), noise=2.0), 2)
    -0.07
    """
    d, mean = len(eigenvalues), float(eigenvalues.mean())
    if d == 1 or mean <= 0.0:
        return 0.0
    # share = rest/mean has the variance (σ/mean)²/(d − 1) + 0.15²; in units in which neither σ nor the mean exceeds 1
    unit = max(mean, noise)
    rest, mean, noise = float(_drawn_together(eigenvalues, noise)[:-1].mean()) / unit, mean / unit, noise / unit
    off = 0.5 * (_FRESH + _STANDING) * mean - rest
    return (_FRESH - _STANDING) * mean * off / (noise**2 / (d - 1) + (_WORLDS * mean) ** 2)

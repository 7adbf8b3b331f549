"""How much is added to a noisy sum of x xᵀ so that it is positive definite, and how wide a confidence set then is.

With H = M + N, M positive semidefinite and N symmetric noise whose half-vector is isotropic, σ is the standard
deviation of a diagonal entry of N, which is what sums call their noise in H.
"""

from __future__ import annotations

import math

import numpy as np

from accounting.arrays import Array

__all__ = ["lifted", "surely_lifted", "theory_width"]


def lifted(eigenvalues: Array, noise: float, ridge: float = 1.0, left: float = 0.0) -> Array:
    """The eigenvalues of H + (ridge + σ√(2d))·I, none below ridge + ``left``·σ√(2d).

    E‖N‖ ≤ σ√(2d) in the operator norm: with that much more, H is seldom indefinite.

    Examples
    --------
    >>> lifted(np.array([-9.0, 1.0]), noise=2.0).tolist()
    [1.0, 6.0]
    """
    level = noise * math.sqrt(2 * len(eigenvalues))
    return np.maximum(eigenvalues + ridge + level, ridge + left * level)


def surely_lifted(eigenvalues: Array, upsilon: float) -> Array:
    """The eigenvalues of H + 2Υ·I, none below Υ: N + 2Υ·I lies between Υ·I and 3Υ·I where ‖N‖ ≤ Υ."""
    return np.maximum(eigenvalues + 2 * upsilon, upsilon)


def theory_width(
    noise_bound: float, failures: float, growth: float, theta_bound: float, upsilon: float, noise: float
) -> float:
    """β of the ellipsoid ‖θ − θ*‖_V ≤ β, V = H + 2Υ·I,, after Shariff & Sheffet (2018).

    β = R√(2 ln(1/α) + ln det V − d ln Υ) + S√(3Υ) + ‖n‖/√Υ.

    Parameters
    ----------
    noise_bound : float
        R, the sub-Gaussian constant of rewards.
    failures : float
        1/α, α how often chance may pass the first term.
    growth : float
        ln det V − d ln Υ, or a bound on it.
    theta_bound : float
        S.
    upsilon : float
        Υ, which ‖N‖ does not pass.
    noise : float
        Which ‖n‖, of the noise in Σr·x, does not pass.
    """
    chance = math.sqrt(2.0 * math.log(failures) + growth)
    return noise_bound * chance + theta_bound * math.sqrt(3.0 * upsilon) + noise / math.sqrt(upsilon)

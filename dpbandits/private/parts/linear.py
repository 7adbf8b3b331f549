"""From noisy sums V of x xᵀ and u of r·x to θ and how wide to look around it: what DPLinUCB computes at a release.

In three ways: by the practical parameters, by the theory's, and where there is a prior. All of it is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accounting.arrays import Array
from dpbandits.private.parts.noisy_estimate import errors, shrunken_eigenvalues, weighed
from dpbandits.private.parts.ridge import lifted, surely_lifted, theory_width
from dpkit.models.ellipsoid import ball_constrained_minimizer
from dpkit.models.prior import Posterior, Prior, posterior
from dpkit.moments.pairs import NoisyPair

__all__ = ["Estimate", "Practical", "Theory", "UnderPrior"]


@dataclass(frozen=True)
class Estimate:
    """The public half: θ, V⁻¹, β, β²Σ, and a root of ¼β²Σ."""

    theta: Array
    inverse: Array
    beta: float
    shape: Array
    root: Array

    @classmethod
    def along(cls, U: Array, eigenvalues: Array, theta: Array, beta: float, variances: Array) -> Estimate:
        """For V with the columns of U as its eigenvectors, along which Σ has these ``variances``."""
        inverse, shape = (U / eigenvalues) @ U.T, (U * (beta**2 * variances)) @ U.T
        return cls(theta, inverse, beta, shape, U * (0.5 * beta * np.sqrt(variances)))


@dataclass(frozen=True)
class Practical:
    """ρ = ridge + σ_V√(2d), θ in the ball of radius S, and Σ = V⁻¹ + ¼σ_u²V⁻²."""

    ridge: float
    beta: float
    theta_bound: float

    def __call__(self, last: Estimate, sums: NoisyPair, ends: Sequence[int]) -> Estimate:
        eigenvalues, U = np.linalg.eigh(sums.H)
        eigenvalues = lifted(eigenvalues, sums.noise[0], self.ridge)
        theta = ball_constrained_minimizer(eigenvalues, U, sums.b, self.theta_bound)
        # the noise of u beside that of rewards
        variances = 1.0 / eigenvalues + (0.5 * sums.noise[1] / eigenvalues) ** 2
        return Estimate.along(U, eigenvalues, theta, self.beta, variances)


@dataclass(frozen=True)
class Theory:
    """ρ = 2Υ, and β of the paper's ellipsoid.

    Attributes
    ----------
    upsilon, noise : float
        Υ, and what the noise of u does not pass, in all releases with probability 1 − α/2.
    failure_probability : float
        α.
    noise_bound, theta_bound : float
        R and S.
    """

    upsilon: float
    noise: float
    failure_probability: float
    noise_bound: float
    theta_bound: float

    @classmethod
    def of(cls, noises: Sequence[tuple[float, float]], dim: int, failure: float, R: float, S: float) -> Theory:
        """For releases with these σ_V and σ_u."""
        # the largest noise of any release: P(‖N‖ > σ(√(2d) + x)) ≤ 2e^(−x²/2), and with √d for a vector
        noise_V, noise_u = np.max(noises, axis=0)
        tail = math.sqrt(2 * math.log(4 * len(noises) / failure))
        upsilon, noise = float(noise_V) * (math.sqrt(2 * dim) + tail), float(noise_u) * (math.sqrt(dim) + tail)
        return cls(upsilon, noise, failure, R, S)

    def __call__(self, last: Estimate, sums: NoisyPair, ends: Sequence[int]) -> Estimate:
        eigenvalues, U = np.linalg.eigh(sums.H)
        eigenvalues = surely_lifted(eigenvalues, self.upsilon)
        growth, failures = float(np.log(eigenvalues / self.upsilon).sum()), 2 / self.failure_probability
        beta = theory_width(self.noise_bound, failures, growth, self.theta_bound, self.upsilon, self.noise)
        theta = ball_constrained_minimizer(eigenvalues, U, sums.b, math.inf)
        return Estimate.along(U, eigenvalues, theta, beta, np.zeros(len(theta)))


@dataclass(frozen=True)
class UnderPrior:
    """The posterior of a normal prior: θ its mean, and Σ its covariance over R²."""

    prior: Prior
    beta: float
    noise_bound: float
    theta_bound: float

    def nothing(self) -> Estimate:
        """What is known at the start."""
        d = len(self.prior.mean)
        return self._of(posterior(self.prior, np.zeros(d), np.eye(d), np.zeros(d), self.theta_bound))

    def __call__(self, last: Estimate, sums: NoisyPair, ends: Sequence[int]) -> Estimate:
        eigenvalues, U = np.linalg.eigh(sums.H)
        eigenvalues = shrunken_eigenvalues(eigenvalues, sums.noise[0])
        length = min(float(last.theta @ last.theta), self.theta_bound**2)
        variances = errors(eigenvalues, *sums.noise, length, self.noise_bound**2)
        return self._of(weighed(eigenvalues, variances, U, U.T @ sums.b, self.prior, self.theta_bound))

    def _of(self, known: Posterior) -> Estimate:
        beta = self.beta / self.noise_bound
        inverse = known.covariance / self.noise_bound**2
        return Estimate(known.mean, inverse, self.beta, beta**2 * known.covariance, 0.5 * beta * known.root)

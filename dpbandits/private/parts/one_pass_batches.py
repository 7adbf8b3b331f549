"""From noisy sums of batches of secant records to a parameter: what ShuffleOnePassGLM computes after a batch.

As in :mod:`~dpbandits.private.parts.one_pass`, but every batch has noise of its own, so that batches are weighed by
it; and as they are long, everything is looked at a little. All of it is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accounting.arrays import Array
from dpbandits.private.parts.noisy_estimate import errors, shrunken_eigenvalues, stalled, weighed
from dpbandits.private.parts.progress import Past, misfit
from dpbandits.private.parts.records import SecantRecord
from dpkit.models.prior import Prior
from dpkit.moments.shuffled_pairs import NoisyBatch

__all__ = ["Estimate", "Refit"]

# the least f: batches are long
_LEAST = 0.1


@dataclass(frozen=True)
class Estimate:
    """The public half.

    θ; a root such that θ + root·ξ is what plays; H and b, with the variances of the noise in scaled records of H, of
    Σω_jρ_jM_j, and of b; Σθ_jᵀM_jθ_j; and the mean residual of the last batch over B where it is far from 0, else 0.
    """

    theta: Array
    root: Array
    H: Array
    b: Array
    noise: tuple[float, float, float]
    squares: float
    past: Past
    misfit: float

    @property
    def level(self) -> float:
        """Of rewards, on the link's scale: that of the base rate."""
        return 0.0


@dataclass(frozen=True)
class Refit:
    """How one estimate follows from the one before it and a batch.

    Attributes
    ----------
    record : SecantRecord
    theta_bound : float
        S.
    prior : Prior
    given : bool
        Whether it was given: then the first batch plays by it.
    width : float
        β.
    reward_range : (float, float)
    """

    record: SecantRecord
    theta_bound: float
    prior: Prior
    given: bool
    width: float
    reward_range: tuple[float, float]

    def nothing(self) -> Estimate:
        """What is known at the start."""
        d = len(self.prior.mean)
        square = np.zeros((d, d))
        root = self.width * self.prior.root if self.given else square
        return Estimate(self.prior.mean, root, square, np.zeros(d), (0.0, 0.0, 0.0), 0.0, Past.empty(d), 0.0)

    def __call__(self, last: Estimate, sums: NoisyBatch, ends: Sequence[int]) -> Estimate:
        M, m, std, (a, c), theta = sums.H, sums.b, sums.std, sums.scales, last.theta
        S, rounds, (low, high) = self.theta_bound, ends[-1], self.reward_range
        # noise against the chance in a coordinate of b, for x of which the mean square of a coordinate is 1/d, and
        # rewards of half the largest variance
        n_0 = (std / c) ** 2 * 8.0 * len(theta) / (high - low) ** 2
        weight = 1.0 / (1.0 + n_0 / sums.users)

        # in the first batch e is 0, unless there is a prior
        guessed = len(ends) > 1 or self.given
        squares = last.squares + (float(theta @ M @ theta) if guessed else 0.0)
        slope, secant = last.past.slopes(self.record, squares, ends) if guessed else self.record.slopes(0.0)
        H = last.H + weight * slope * M
        b = last.b + weight * (m - (secant - slope) * (M @ theta))
        of_H, of_secants, of_b = (
            before + (weight * times * std) ** 2 for before, times in zip(last.noise, (slope, secant, 1.0), strict=True)
        )
        noise_H, noise_secants, noise_b = math.sqrt(of_H) / a, math.sqrt(of_secants) / a, math.sqrt(of_b) / c

        eigenvalues, U = np.linalg.eigh(H)
        eigenvalues = shrunken_eigenvalues(eigenvalues, noise_H)
        length = min(float(theta @ theta), S**2) if guessed else 0.25 * S**2
        # b − Hθ has the noise of Σω_jρ_jM_jθ: as (ρ − γ)Mθ is taken from b, and γMθ by H
        variances = errors(eigenvalues, noise_secants, noise_b, length, self.record.chance)
        known = weighed(eigenvalues, variances, U, U.T @ b, self.prior, S)

        # look around, most where information stands still
        since, earlier, _ = last.past.before(0.55 * rounds)
        growth = np.einsum("ij,ij->j", U, (H - earlier) @ U)
        f = stalled(eigenvalues, growth, 1.0 - since / rounds, noise_H) if since else np.ones(len(theta))
        root = known.root @ (U * (self.width * np.sqrt(np.maximum(f, _LEAST))))
        past = last.past.followed_by(rounds, H, squares)
        variance = (std / c) ** 2 + (secant * std / a) ** 2 * float(theta @ theta)
        found = misfit(m - secant * M @ theta, theta, variance, sums.users, self.record.B)
        return Estimate(known.mean, root, H, b, (of_H, of_secants, of_b), squares, past, found)

"""Which arms a batch of ShuffleGLM rules out: how far θ may be from its fit, by Q_k of half-widths √(xᵀQ_k x)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpbandits.policy.parameters import Parameters
from dpbandits.private.parts.held_rows import BatchFit
from dpbandits.private.parts.ridge import lifted
from dpkit.models.links import Link

__all__ = ["HalfWidths", "surviving"]


@dataclass(frozen=True)
class HalfWidths:
    """Practical: ``exploration`` standard deviations, by chance and by noise. Theory: γ²H⁻¹ (Lemma F.9).

    Attributes
    ----------
    parameters : {"practical", "theory"}
    link : Link
    theta_bound, R : float
        S, and the constant of self-concordance and rewards.
    reward_range : (float, float)
    exploration : float
    failure_probability : float
        ζ.
    horizon, batches : int
    """

    parameters: Parameters
    link: Link
    theta_bound: float
    R: float
    reward_range: tuple[float, float]
    exploration: float
    failure_probability: float
    horizon: int
    batches: int

    def __call__(self, fit: BatchFit, *, first: bool) -> Array:
        """Q_k of batch k; in the first one there is no μ̇ in the matrix."""
        eigenvalues, U = np.linalg.eigh(fit.matrix)
        axes = (self._practical if self.parameters == "practical" else self._theory)(eigenvalues, fit, first)
        return np.asarray((U * axes) @ U.T)

    def _practical(self, eigenvalues: Array, fit: BatchFit, first: bool) -> Array:
        S, (low, high) = self.theta_bound, self.reward_range
        link = self.link.shifted(fit.level)
        eigenvalues = lifted(eigenvalues, fit.matrix_noise)
        if first:  # the mean of μ̇ over [−S, S]
            eigenvalues *= float(link.mean(S) - link.mean(-S)) / (2.0 * S)
        # the mean over the last half of the iterates sees the noise of so many rounds
        noise = fit.gradient_noise**2 * 2.0 / fit.rounds
        chance = 0.25 * (high - low) ** 2 / link.lipschitz(S)
        return np.asarray(self.exploration**2 * (chance / eigenvalues + noise / eigenvalues**2))

    def _theory(self, eigenvalues: Array, fit: BatchFit, first: bool) -> Array:
        d, S, R, users = len(eigenvalues), self.theta_bound, self.R, fit.users
        log_T = math.log(self.horizon)
        spread = math.sqrt(math.log(2 * d * self.batches * self.horizon / self.failure_probability))
        reach = fit.matrix_noise * (4.0 * math.sqrt(d) + 2.0 * spread)
        lam = 20.0 * d * R * max(1.0, log_T) + reach  # so that λ_min is what the lemma asks for
        lam_min, lam_max = lam - reach, lam + reach
        # of the descent, and of the ridge that it leaves out
        per_user = (2.0 * S) ** 2 / (fit.step * fit.rounds) + 0.5 * fit.step * d * (fit.gradient_noise / users) ** 2
        nu = users * per_user + 0.5 * lam_max * S**2
        chance = math.sqrt(log_T + d) + R * (log_T + d) / math.sqrt(lam_min)
        gamma = 24.0 * R * S * chance + 2.0 * S * math.sqrt(lam_max) + math.sqrt(4.0 * R * S * nu)
        eigenvalues = np.maximum(eigenvalues + lam, lam_min)
        return np.asarray(gamma**2 / eigenvalues * (self.link.kappa(S) if first else 1.0))


def surviving(arms: Array, thetas: Array, shapes: Array) -> NDArray[np.int64]:
    """Indices of the arms that no batch has ruled out, each batch among those that the earlier ones left.

    Parameters
    ----------
    arms : ndarray of shape (K, d)
    thetas, shapes : ndarray of shape (k, d) and (k, d, d)
        θ and Q of every batch: it rules out an arm x for which xᵀθ + √(xᵀQx) is below some xᵀθ − √(xᵀQx).

    Examples
    --------
    >>> surviving(np.eye(2), np.array([[1.0, 0.0]]), np.zeros((1, 2, 2))).tolist()
    [0]
    """
    centre = thetas @ arms.T
    half = np.sqrt(np.maximum(np.einsum("kij,ij->ki", arms @ shapes, arms), 0.0))
    low, high = centre - half, centre + half
    alive = np.arange(len(arms))
    while True:  # all batches at once, and once more after those that rule out an arm
        kept = high[:, alive] >= low[:, alive].max(axis=1, keepdims=True)
        drops = np.flatnonzero(~kept.all(axis=1))
        if not len(drops):
            return alive
        first = int(drops[0])
        alive, low, high = alive[kept[first]], low[first + 1 :], high[first + 1 :]

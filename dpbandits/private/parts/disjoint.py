"""What the policies with a parameter per arm have in common: their contexts, what is public, and how it is refitted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from accounting.checks import positive
from dpbandits.arms.standing import Catalogue
from dpbandits.policy.choices import Independent, Law, inverse_gap
from dpbandits.policy.parameters import Exploration, checked_exploration
from dpbandits.private.parts.block_fits import Collected, posteriors, prior_variance
from dpbandits.private.parts.block_model import Play, contexts, corrected, proportional, replay
from dpkit.geometry import svec
from dpkit.models.links import Link
from dpkit.models.prior import Prior
from dpkit.moments.blocks import Released, features

__all__ = ["Estimate", "PlayedBlocks", "middle"]

# the draws of a replay, for every arm; more arms than these are not replayed, which would take minutes
_DRAWS, _FEWEST_DRAWS, _MOST_REPLAYED = 100, 2500, 200
# the width of draws is α where ln(T/t) is so much, and at the end a tenth of that
_LOG, _NARROWEST = 3.0, 0.1
# standard errors by which τ² is enlarged: so many that only many arms together say that it is small, as one that is too
# small ends exploration
_MARGIN = 300.0
# where μ is flat at the base rate, parameters may be longer than S, by so much at most
_LONGER = 3.0


def middle(reward_range: tuple[float, float]) -> tuple[float, float]:
    """c₀ and B with |r − c₀| ≤ B."""
    low, high = reward_range
    return 0.5 * low + 0.5 * high, 0.5 * (high - low)


@dataclass(frozen=True)
class Estimate:
    """The public half.

    Attributes
    ----------
    theta : (K, d) ndarray
        E[r | x, k] ≈ μ(xᵀθ_k).
    covariance : (K, D) ndarray
        Half-vectors of P_k, the posterior covariance of θ_k.
    collected : (K, D) ndarray
        H_k as the policies so far would have collected it.
    total : (D,) ndarray
        M, the sum of all H_k.
    variance : float
        τ² of the prior.
    """

    theta: Array
    covariance: Array
    collected: Array
    total: Array
    variance: float


class PlayedBlocks:
    """The law by which arms are chosen, and how it follows from what is released.

    Arm k is chosen by posterior draws of xᵀθ_k, or by the gaps of the means μ(xᵀθ_k) (``choices.inverse_gap``), at a
    rate that is 0 before the first release.

    Parameters
    ----------
    d : int
        Of a feature vector.
    link : Link
        μ, with the base rate μ(0).
    rewards : (float, float)
        c₀ and B: the middle of the range of rewards, and half its length.
    theta_bound : float
        S. The standard deviation of the prior is at most S·L/μ̇(0), L = sup μ̇ on [−S, S], and at most 3S: next to a base
        rate where μ is flat, rewards may differ as much as where it is steep.
    exploration : float or "inverse_gap"
        α: after a release at round t the width of the draws is α·ln(T/t)/3 standard deviations, at least α/10, since
        the later an arm is found the less it is worth; and α before the first release.
    gamma_scale : float
        After a release at round t the rate is this times √t.
    horizon : int, optional
        T; without it the width is α.
    prior : (array, array), optional
        Mean and precision of every arm's, in place of one around 0 with a variance that is estimated.
    """

    def __init__(
        self,
        d: int,
        link: Link,
        rewards: tuple[float, float],
        theta_bound: float,
        exploration: Exploration,
        gamma_scale: float,
        horizon: int | None = None,
        prior: tuple[Array, Array] | None = None,
    ) -> None:
        self.link = link
        self.centre, self.spread = rewards
        steepest = link.lipschitz(theta_bound)
        longest = theta_bound * steepest / max(float(link.derivative(0.0)), steepest / _LONGER)
        self.given = None if prior is None else Prior.of(prior, d, 1.0, longest)
        self.prior = np.zeros(d) if self.given is None else self.given.mean
        self.most = longest**2
        self.exploration, self.alpha = checked_exploration(exploration)
        self.horizon = horizon
        self.gamma_scale = positive("gamma_scale", gamma_scale)

    def nothing(self, arms: int) -> Estimate:
        """What is known at the start."""
        d = len(self.prior)
        D = d * (d + 1) // 2
        one = self.most * np.eye(d) if self.given is None else self.given.covariance
        covariance = np.tile(svec(one), (arms, 1))
        return Estimate(np.tile(self.prior, (arms, 1)), covariance, np.zeros((arms, D)), np.zeros(D), self.most)

    def grown(self, known: Estimate) -> Estimate:
        """And of one more arm."""
        own = self.nothing(1)
        covariance = np.concatenate([known.covariance, own.covariance * (known.variance / self.most)])
        theta, collected = (
            np.concatenate([getattr(known, name), getattr(own, name)]) for name in ("theta", "collected")
        )
        return replace(known, theta=theta, covariance=covariance, collected=collected)

    def law(self, known: Estimate, z: Array, standing: NDArray[np.bool_], since: int) -> Law:
        """Of a choice among the arms that stand; the last release was after ``since`` rounds."""
        x = features(z)
        u = known.theta @ x
        if (rate := self._rate(since)) is not None:
            return inverse_gap(np.where(standing, self.link.mean(u), -np.inf), rate)
        squares = known.covariance @ svec(x[:, None] * x)
        return Independent(np.where(standing, u, -np.inf), self.width(since) * np.sqrt(np.maximum(squares, 0.0)))

    def width(self, since: int) -> float:
        """Of the draws, after a release at round ``since``; 0 where arms are drawn by their gaps."""
        if self.horizon is None or since == 0:
            return self.alpha
        return self.alpha * max(math.log(self.horizon / since) / _LOG, _NARROWEST)

    def _rate(self, since: int) -> float | None:
        return self.gamma_scale * math.sqrt(since) if self.exploration == "inverse_gap" else None

    def refit(
        self,
        known: Estimate,
        sums: Released,
        catalogue: Catalogue,
        rounds: tuple[int, int],
        rng: np.random.Generator,
        decay: float = 1.0,
    ) -> Estimate:
        """Post-processing of noisy sums over all batches so far, of which the last had these ``rounds``.

        What was in the sums before that has lost the factor ``decay``.
        """
        arms = len(sums.H)
        if arms <= _MOST_REPLAYED:
            z = contexts(sums.total, sums.fourth, max(_FEWEST_DRAWS, _DRAWS * arms), rng)
            width = self.width(rounds[0]) if rounds[0] or self.given is not None else math.inf
            play = Play(known.theta, known.covariance, width, self._rate(rounds[0]), self.link)
            found = replay(z, play, (catalogue.born, catalogue.died), rounds, rng)
            # 2·M's corner is Σψ: so much the records of the batch weigh
            model = decay * known.collected + max(2.0 * (sums.total[0] - decay * known.total[0]), 1.0) * found
        else:
            model = proportional(sums.H, sums.total)
        values, U = corrected(model, sums.H, sums.matrix_noise)
        # what rewards add to the noise of b: a variance of at most B²
        error = sums.vector_noise[:, None] ** 2 + self.spread**2 * values
        held = Collected(values, U, sums.b, error, self.centre)
        if self.given is None:
            variance = prior_variance(held, self.link, known.theta, self.prior, self.most, _MARGIN)
            precision = np.eye(len(self.prior)) / variance
        else:
            variance, precision = self.most, self.given.precision
        theta, covariance = posteriors(held, self.link, known.theta, self.prior, precision)
        return Estimate(theta, covariance, model, sums.total, variance)

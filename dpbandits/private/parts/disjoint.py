"""What the private policies with a parameter per arm have in common: their record, their rule, and their refit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from accounting.checks import positive
from dpbandits.durability.pending import Pending
from dpbandits.policy.catalogue import Catalogue
from dpbandits.policy.choices import Independent, Law, Shares, gap_shares, inverse_gap
from dpbandits.policy.many import Gaps, Laws, Noised, Repeated, Rounds
from dpbandits.policy.parameters import Exploration, checked_exploration
from dpbandits.policy.progress import Found, along, rms
from dpbandits.private.parts.block_fits import Collected, posteriors, prior_variance
from dpbandits.private.parts.block_model import Play, contexts, corrected, proportional, replay
from dpkit.geometry import smat, svec
from dpkit.geometry.half_vector import svec_of_rows
from dpkit.models.links import Link
from dpkit.models.prior import Prior
from dpkit.moments.blocks import Released, features

__all__ = ["BlockRecord", "Draws", "Estimate", "Refit", "parts"]

# the draws of a replay, for every arm; more arms than these are not replayed, which would take minutes
_DRAWS, _FEWEST_DRAWS, _MOST_REPLAYED = 100, 2500, 200
# contexts whose squares are held at once
_CONTEXTS = 1000
# the width of draws is α where ln(T/t) is so much, and at the end a tenth of that
_LOG, _NARROWEST = 3.0, 0.1
# standard errors by which τ² is enlarged: so many that only many arms together say that it is small, as one that is too
# small ends exploration
_MARGIN = 300.0
# where μ is flat at the base rate, parameters may be longer than S, by so much at most
_LONGER = 3.0


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


@dataclass(frozen=True)
class BlockRecord:
    """What a round tells: the arm k, the context z, and g = r − c₀, |g| ≤ B.

    Attributes
    ----------
    centre, spread : float
        c₀ and B: the middle of the range of rewards, and half its length.
    """

    centre: float
    spread: float

    @classmethod
    def of(cls, reward_range: tuple[float, float]) -> BlockRecord:
        low, high = reward_range
        return cls(0.5 * low + 0.5 * high, 0.5 * (high - low))

    def __call__(self, pending: Pending, reward: float, public: object) -> tuple[int, Array, float]:
        return pending.index, pending.arm, reward - self.centre


@dataclass(frozen=True)
class Draws:
    """The law by which arms are chosen: by posterior draws of xᵀθ_k, or by the gaps of the means μ(xᵀθ_k).

    Attributes
    ----------
    link : Link
        μ, with the base rate μ(0).
    exploration : float or "inverse_gap"
        Or by gaps (``choices.inverse_gap``), at the rate ``gamma_scale``·√t after a release at round t.
    alpha : float
        α: after a release at round t the width of the draws is α·ln(T/t)/3 standard deviations, at least α/10, since
        the later an arm is found the less it is worth; and α before the first release. 0 where arms are drawn by gaps.
    gamma_scale : float
    horizon : int, optional
        T; without it the width is α.
    given : bool
        Whether there is a prior. Where nothing is known, all fixed arms are alike.
    """

    link: Link
    exploration: Exploration
    alpha: float
    gamma_scale: float
    horizon: int | None
    given: bool

    def __call__(self, known: Estimate, z: Array, standing: NDArray[np.bool_], since: int) -> Law:
        """Of a choice among the fixed arms; the last release was after ``since`` rounds."""
        if since == 0 and not self.given:
            return Shares(standing / standing.sum())
        x = features(z)
        u = known.theta @ x
        if (rate := self.rate(since)) is not None:
            return inverse_gap(np.where(standing, self.link.mean(u), -np.inf), rate)
        squares = known.covariance @ svec(x[:, None] * x)
        return Independent(np.where(standing, u, -np.inf), self.width(since) * np.sqrt(np.maximum(squares, 0.0)))

    def many(self, known: Estimate, contexts: Rounds, standing: NDArray[np.bool_], since: int) -> Laws:
        """The same for many contexts."""
        if since == 0 and not self.given:
            return Repeated(Shares(standing / standing.sum()), len(contexts))
        x = features(np.asarray(contexts))
        u = x @ known.theta.T
        if (rate := self.rate(since)) is not None:
            return Gaps(gap_shares(np.where(standing, self.link.mean(u), -np.inf), rate))
        squares = np.empty_like(u)
        for start in range(0, len(x), _CONTEXTS):
            some = x[start : start + _CONTEXTS]
            squares[start : start + _CONTEXTS] = svec_of_rows(some) @ known.covariance.T
        return Noised(np.where(standing, u, -np.inf), self.width(since) * np.sqrt(np.maximum(squares, 0.0)))

    def width(self, since: int) -> float:
        """Of the draws, after a release at round ``since``."""
        if self.horizon is None or since == 0:
            return self.alpha
        return self.alpha * max(math.log(self.horizon / since) / _LOG, _NARROWEST)

    def rate(self, since: int) -> float | None:
        return self.gamma_scale * math.sqrt(since) if self.exploration == "inverse_gap" else None

    def played(self, known: Estimate, since: int) -> Play:
        """The same law, for a replay of the batch that began after ``since`` rounds."""
        width = self.width(since) if since or self.given else math.inf
        return Play(known.theta, known.covariance, width, self.rate(since), self.link)


@dataclass(frozen=True)
class Refit:
    """How what is public follows from noisy sums over all batches so far; all of it is post-processing.

    Attributes
    ----------
    record : BlockRecord
    draws : Draws
        By which arms were chosen.
    mean : (d,) ndarray
        Of every arm's prior.
    most : float
        The largest variance of the prior.
    given : Prior, optional
        Every arm's, in place of one around 0 with a variance that is estimated.
    """

    record: BlockRecord
    draws: Draws
    mean: Array
    most: float
    given: Prior | None

    def nothing(self, arms: int) -> Estimate:
        """What is known at the start."""
        d = len(self.mean)
        D = d * (d + 1) // 2
        one = self.most * np.eye(d) if self.given is None else self.given.covariance
        covariance = np.tile(svec(one), (arms, 1))
        return Estimate(np.tile(self.mean, (arms, 1)), covariance, np.zeros((arms, D)), np.zeros(D), self.most)

    def found(self, known: Estimate, catalogue: Catalogue) -> Found:
        """How far each arm's parameter is from its prior, in standard errors: the root mean square over directions."""
        d, given = len(self.mean), self.given
        prior = Prior(self.mean, np.eye(d) / known.variance) if given is None else given
        arms = zip(catalogue.names, catalogue.active, known.theta, known.covariance, strict=True)
        signal = {name: rms(along(theta, smat(half), prior)) for name, stands, theta, half in arms if stands}
        length = float(np.linalg.norm(known.theta, axis=1).max())
        missing = dict.fromkeys(("predicted", "seen"), "sums of arms do not tell how often each was played")
        return Found(signal, len(signal), length, cut=0.0, missing=missing)

    def with_room(self, known: Estimate, arms: int) -> Estimate:
        """And of the arms that have come since, up to so many."""
        own = self.nothing(max(0, arms - len(known.theta)))
        covariance = np.concatenate([known.covariance, own.covariance * (known.variance / self.most)])
        theta, collected = (
            np.concatenate([getattr(known, name), getattr(own, name)]) for name in ("theta", "collected")
        )
        return replace(known, theta=theta, covariance=covariance, collected=collected)

    def __call__(
        self,
        known: Estimate,
        sums: Released,
        catalogue: Catalogue,
        rounds: tuple[int, int],
        rng: np.random.Generator,
        decay: float = 1.0,
    ) -> Estimate:
        """After noisy sums over all batches so far, of which the last had these ``rounds``.

        What was in the sums before that has lost the factor ``decay``.
        """
        arms, link = len(sums.H), self.draws.link
        if arms <= _MOST_REPLAYED:
            z = contexts(sums.total, sums.fourth, max(_FEWEST_DRAWS, _DRAWS * arms), rng)
            found = replay(z, self.draws.played(known, rounds[0]), (catalogue.born, catalogue.died), rounds, rng)
            # 2·M's corner is Σψ: so much the records of the batch weigh
            model = decay * known.collected + max(2.0 * (sums.total[0] - decay * known.total[0]), 1.0) * found
        else:
            model = proportional(sums.H, sums.total)
        values, U = corrected(model, sums.H, sums.matrix_noise)
        # what rewards add to the noise of b: a variance of at most B²
        error = sums.vector_noise[:, None] ** 2 + self.record.spread**2 * values
        held = Collected(values, U, sums.b, error, self.record.centre)
        if self.given is None:
            variance = prior_variance(held, link, known.theta, self.mean, self.most, _MARGIN)
            precision = np.eye(len(self.mean)) / variance
        else:
            variance, precision = self.most, self.given.precision
        theta, covariance = posteriors(held, link, known.theta, self.mean, precision)
        return Estimate(theta, covariance, model, sums.total, variance)


def parts(
    d: int,
    link: Link,
    reward_range: tuple[float, float],
    theta_bound: float,
    exploration: Exploration,
    gamma_scale: float,
    horizon: int | None,
    prior: tuple[Array, Array] | None,
) -> tuple[BlockRecord, Draws, Refit]:
    """Record, rule and refit of arms with ``d`` features.

    The standard deviation of the prior is at most S·L/μ̇(0), L = sup μ̇ on [−S, S], and at most 3S: next to a base rate
    where μ is flat, rewards may differ as much as where it is steep.
    """
    steepest = link.lipschitz(theta_bound)
    longest = theta_bound * steepest / max(float(link.derivative(0.0)), steepest / _LONGER)
    given = None if prior is None else Prior.of(prior, d, 1.0, longest)
    mean = np.zeros(d) if given is None else given.mean
    how, alpha = checked_exploration(exploration)
    record = BlockRecord.of(reward_range)
    draws = Draws(link, how, alpha, positive("gamma_scale", gamma_scale), horizon, given is not None)
    return record, draws, Refit(record, draws, mean, longest**2, given)

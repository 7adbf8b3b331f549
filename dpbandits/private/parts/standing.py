"""From noisy sums of rewards of public arms to a parameter: what StandingPrivateGLM computes after a release.

All of it is post-processing: nothing here is told more than what was released, exact plays, and public numbers. Release
k

1. takes what its batch added out of the running sums, and asks whether rewards are missing;
2. scales plays by the share of rewards that has come;
3. fits θ to the sums of all batches, weighed by the covariance of their noise
   (:mod:`~dpbandits.private.parts.arm_fits`);
4. says how widely to draw, and whether the next batch is summed by directions, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accounting.arrays import Array
from dpbandits.private.parts.arm_fits import LevelPrior, Precision, arrivals, fitted, weighed, weighed_together
from dpbandits.private.parts.records import SecantRecord
from dpkit.models.prior import Prior
from dpkit.moments.arms import ArmSums

__all__ = ["Estimate", "Refit", "Told"]

# records are summed by directions until plays are spread over no more than so many arms
_SPREAD = 3.0
# the least slope over W where the level is learned: that of rewards of about 1 %
_FLATTEST = 0.04


@dataclass(frozen=True)
class Estimate:
    """The public half.

    θ̂; a root such that θ̂ + root·ξ is what plays; θ's covariance; of every batch the plays of each arm, and what the
    released sums and the number of rewards grew by, zero where there was none yet; the share of rewards that has
    come; how many batches, up to the open one at most, are summed by directions; and the level, which is added to all
    x_kᵀθ.
    """

    theta: Array
    root: Array
    covariance: Array
    plays: Array
    growth: Array
    arrived: float
    together: int
    level: float

    def check(self) -> None:
        """Refuse one that was read from a file, and is none."""
        if (self.plays < 0.0).any() or not 0.0 < self.arrived <= 1.0 or self.together > len(self.plays) + 1:
            raise ValueError(
                "public must have plays of at least 0, arrived in (0, 1], and together of as many batches, got others"
            )


@dataclass(frozen=True)
class Told:
    """What a release says: sums by directions and arms, the number of rewards, and the batch's plays.

    ``noise`` is the covariance of the noise between batches, ``unsure`` the standard deviation of that number, and
    ``per_count`` its variance over that of a sum.
    """

    sums: Array
    came: float
    plays: Array
    noise: Array
    unsure: float
    per_count: float

    @classmethod
    def of(cls, sums: ArmSums, k: int) -> Told:
        """The k-th release, which is made here."""
        per_count = (sums.noise_of_count(1) / sums.noise_of_sums(1)) ** 2
        return cls(*sums.release(), sums.noise_of_batches(k), sums.noise_of_count(k), per_count)


@dataclass(frozen=True)
class Refit:
    """How one estimate follows from the one before it and a release.

    Attributes
    ----------
    arms : (K, d) ndarray
    record : SecantRecord
        The levels of a record: those of μ, whose slopes are cut as it says.
    prior : Prior
    theta_bound : float
        S.
    width : float
        β.
    horizon : int
        T.
    delay : int
        By how many rounds all rewards come late.
    once : bool
        Whether people come back of whom nothing more is learned.
    level : LevelPrior, optional
        None where the level is 0.
    """

    arms: Array
    record: SecantRecord
    prior: Prior
    theta_bound: float
    width: float
    horizon: int
    delay: int
    once: bool
    level: LevelPrior | None

    def nothing(self, releases: int) -> Estimate:
        """What is known at the start, of so many releases."""
        K, d = self.arms.shape
        # where there are no more arms than dimensions, their own sums are never worse
        together = int(max(_SPREAD, d) < K)
        known = self.prior.mean, self.width * self.prior.root, self.prior.covariance
        return Estimate(*known, np.zeros((releases, K)), np.zeros((releases, d + K + 1)), 1.0, together, 0.0)

    def means(self, known: Estimate, releases: int) -> tuple[float | None, float | None]:
        """The mean reward of all plays so far, by θ, and by the released sums; None before a release."""
        plays = known.plays[:releases].sum(axis=0)
        if not plays.sum() > 0.0:
            return None, None
        predicted = float(plays @ self._moments(known.level + self.arms @ known.theta)[0] / plays.sum())
        sums = known.growth[:releases, self.arms.shape[1] : -1].sum()
        centre = self.record.centre
        return centre + predicted, centre + float(sums / (known.arrived * plays.sum()))

    def __call__(self, last: Estimate, told: Told, ends: Sequence[int]) -> Estimate:
        """The next estimate, after batches that ended after so many rounds."""
        k, d = len(ends), self.arms.shape[1]
        plays, growth = last.plays.copy(), last.growth.copy()
        plays[k - 1] = told.plays
        growth[k - 1] = np.append(told.sums, told.came) - growth.sum(axis=0)
        share = self._arrivals(told, plays[:k], growth[:k, -1], max(1, ends[-1] - self.delay))
        apart = plays[:k] if share is None else plays[:k] * share[1][:, None]
        J = min(k, last.together)
        together = apart[:J]
        apart = np.concatenate([np.zeros_like(together), apart[J:]])

        def evidence(slopes: Array) -> tuple[Precision, Array]:
            variances = self.record.chance * slopes
            precisions, scores = weighed(told.noise, apart, growth[:k, d:-1], variances)
            more, score = weighed_together(told.noise, together, growth[:k, :d], variances, self.arms)
            return Precision(precisions, *more), scores + score

        known, level = fitted(self.arms, self._moments, evidence, self.prior, last.theta, self.theta_bound, self.level)
        late = min(1.0, math.sqrt(2.0 * max(0.0, 1.0 - ends[-1] / self.horizon)))
        spread = float(told.plays.sum() ** 2 / max(1.0, told.plays @ told.plays))
        directions = last.together + int(last.together >= k and spread > _SPREAD)
        arrived = 1.0 if share is None else share[0]
        return Estimate(
            known.mean, self.width * late * known.root, known.covariance, plays, growth, arrived, directions, level
        )

    def _arrivals(self, told: Told, plays: Array, came: Array, due: int) -> tuple[float, Array] | None:
        """The share of rewards that has come, in all and of each batch; None where it cannot be told from all."""
        if told.came + 2.0 * told.unsure >= due:
            return None
        arrived = min(max(told.came, told.unsure) / due, 1.0)
        if not self.once:
            return arrived, np.full(len(plays), arrived)
        # of those who come back nothing is learned, so that the share falls. What is late is another matter: as many
        # rewards as are missing in a batch come in later ones, and plays and rewards agree in total
        least = min(arrived, told.unsure / due)
        return arrived, arrivals(told.per_count * told.noise, plays.sum(axis=1), came, least)

    def _moments(self, e: Array) -> tuple[Array, Array]:
        """μ(e) − c₀ and μ̇(e), within their levels whatever a caller's link says."""
        record = self.record
        mean = np.fmin(np.fmax(record.link.mean(e) - record.centre, -record.B), record.B)
        least = record.s_min if self.level is None else _FLATTEST * record.W
        return mean, np.fmin(np.fmax(record.link.derivative(e), least), record.W)

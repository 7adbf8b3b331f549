"""From noisy sums of secant records to a parameter: what OnePassPrivateGLM computes after a release, step by step.

All of it is post-processing: nothing here is told more than the released sums, and public numbers. With the notation of
:mod:`~dpbandits.private.one_pass_private_glm`, release k

1. takes the sums of its batch, M and m, out of the running ones, and asks whether they fit what was released before;
2. finds γ_k, adds to H and b, and shrinks H for its noise;
3. weighs b along every eigenvector of H by what there is to know, together with the prior;
4. looks around where information stands still, and there all the wider if arms stand;
5. makes the metric of the next batch; and, once or twice, its level, where it may begin anew. Where the level may move
   early, batches play at random as long as rewards seem to be rare and it has not moved: arms that are chosen by θ have
   a mean along it, and records that are centred far above rewards then speak against θ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from accounting.arrays import Array
from dpbandits.private.parts.metric import KNOWN, carried, relearned, symmetric_root
from dpbandits.private.parts.noisy_estimate import errors, shrunken_eigenvalues, stalled, standing, weighed
from dpbandits.private.parts.posterior_rule import PosteriorRule
from dpbandits.private.parts.progress import Past, misfit, surprise
from dpbandits.private.parts.records import Levels, lopsided
from dpkit.models.prior import Prior
from dpkit.moments.pairs import NoisyPair

__all__ = ["Estimate", "Noise", "Refit"]

# of eigenvalues of H below so many times its noise nothing is known
_SEEN = 1.5
# arms stand from the release on at which that is e^0.5 times as likely as that they are fresh. Where fresh arms are at
# times taken for standing ones (unit-linear), e^1 would save 2 % of the regret, as much as if none were ever taken for
# such; where arms stand it costs some 3 % at ε = 1 and 7 % at 4
_LIKELY = 0.5
# how wide to look around, in units of β: where little is known, and, at least, where arms stand
_LITTLE, _WIDE = 0.5, 1.0

# σ_H and σ_b of a release
Noise = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """The public half.

    θ; a root such that θ + root·ξ is what plays; H, b, Σγ_j², Σρ_j² and Σθ_jᵀM_jθ_j; the running sums as last released;
    the mean residual of the last batch over B where it is far from 0, else 0; θ's covariance; how badly the last batch
    fits what was released before it (see ``private.parts.progress``); A, by which records of the next batch are formed;
    whether A is final; whether arms seem to stand; the level at which those records are formed; and whether that is
    final.
    """

    theta: Array
    root: Array
    H: Array
    b: Array
    slopes: float
    secants: float
    squares: float
    totals: tuple[Array, Array]
    past: Past
    misfit: float
    covariance: Array
    surprise: float
    metric: Array
    settled: bool
    standing: bool
    level: float
    levelled: bool


@dataclass(frozen=True)
class Refit:
    """How one estimate follows from the one before it and a release.

    Attributes
    ----------
    levels : Levels
    prior : Prior
    rule : PosteriorRule
        How widely arms are drawn, and whether the prior was given: then the first batch plays by it.
    grouped : (d, d) ndarray
        0 where no record has an entry, and 1 elsewhere.
    horizon : int
        T.
    discount : float, optional
        What is left of a round when the next one comes.
    shapes : bool
        Whether the metric is learned.
    """

    levels: Levels
    prior: Prior
    rule: PosteriorRule
    grouped: Array
    horizon: int
    discount: float | None
    shapes: bool

    def nothing(self) -> Estimate:
        """What is known at the start."""
        d = len(self.prior.mean)
        zero, square = np.zeros(d), np.zeros((d, d))
        root, covariance = square, self.levels.theta_bound**2 * np.eye(d)
        if self.rule.given:
            root, covariance = self.rule.width * self.prior.root, self.prior.covariance
        level = 0.0, not self.levels.learned
        public = self.prior.mean, root, square, zero, 0.0, 0.0, 0.0, (square, zero)
        return Estimate(*public, Past.empty(d), 0.0, covariance, 0.0, np.eye(d), not self.shapes, False, *level)

    def __call__(self, last: Estimate, sums: NoisyPair, ends: Sequence[int]) -> Estimate:
        """The next estimate.

        Parameters
        ----------
        last : Estimate
        sums : NoisyPair
            The running sums as released.
        ends : sequence of int
            Of all batches up to this one.
        """
        at = self.levels.at(last.level)
        record, units = at.record, at.units
        totals, decay, S = (sums.H, sums.b), sums.decay, self.levels.theta_bound
        noise, batch_noise = ((H * units[0], b * units[1]) for H, b in (sums.noise, sums.batch_noise))
        k, rounds = len(ends), ends[-1]
        start = ends[-2] if k > 1 else 0
        # entries of M that are 0 hold nothing but noise, of which so much is left in a row on average
        left_in_row = math.sqrt(float(self.grouped.mean()))
        noise_H, noise_b = left_in_row * noise[0], noise[1]
        theta = last.theta
        # the batch in the metric in which its records were formed, of θ' = A⁻¹θ
        A, inverse = last.metric, np.linalg.inv(last.metric)
        M = units[0] * self.grouped * (totals[0] - decay * last.totals[0])
        m = units[1] * (totals[1] - decay * last.totals[1])
        seen = inverse @ theta

        # before anything is known e is 0, unless there is a prior
        guessed = bool(theta.any()) or self.rule.given
        squares = last.squares + (float(seen @ M @ seen) if guessed else 0.0)
        slope, secant = last.past.slopes(record, squares, ends) if guessed else record.slopes(0.0)

        residual, in_row = m - secant * M @ seen, secant * batch_noise[0]
        unlikely = self._unlikely(last, secant * M, residual, (left_in_row * in_row, batch_noise[1]))
        variance = batch_noise[1] ** 2 + in_row**2 * float(seen @ seen)
        # a level that is not settled may be far off, and does not stay
        found = misfit(residual, seen, variance, rounds - start, record.B) if last.levelled else 0.0
        M, m = inverse @ M @ inverse, inverse @ m
        H = decay * last.H + slope * M
        b = decay * last.b + m - (secant - slope) * (M @ theta)
        slopes, secants = last.slopes + slope**2, last.secants + secant**2

        # what H says of Σγψs·v vᵀ along the eigenvectors of A H A; the noise of Σγ_jM_j is about that of ΣM_j times
        # the root mean square of γ. (Where A has changed some of earlier releases' noise is left in H, not in b.)
        left_in_H = noise_H * math.sqrt(slopes / k)
        eigenvalues, U = np.linalg.eigh(A @ H @ A)
        eigenvalues = shrunken_eigenvalues(eigenvalues, left_in_H)
        length = float(seen @ seen) if guessed else 0.25 * S**2
        # b − Hθ has the noise of Σρ_jM_jθ: as (ρ − γ)Mθ is taken from b, and γMθ by H
        variances = errors(eigenvalues, noise_H * math.sqrt(secants / k), noise_b, length, record.chance)
        known = weighed(eigenvalues, variances, inverse @ U, U.T @ A @ b, self.prior, S)

        f, stands = self._looks(last, rounds, U, A @ H @ A, eigenvalues, left_in_H)
        root = A @ symmetric_root(inverse @ known.covariance @ inverse) @ (U * (self.rule.width * np.sqrt(f)))
        metric, settled = A, last.settled or stands
        if not settled:
            metric, settled = relearned(eigenvalues, U, A, known.mean, left_in_H)
            H, b = carried(A, metric, H, b)
        past = last.past.followed_by(rounds, H, squares)
        level, levelled = last.level, last.levelled
        if not levelled:
            counted = rounds if sums.numbers is None else sums.numbers
            level, levelled = self.levels.moved(last.level, *sums.level, counted)
            levelled = levelled or (self.levels.until is not None and rounds >= self.levels.until)
            # the weights of earlier records, at the new level
            flatter = self.levels.at(level).units[0] / units[0]
            if self.levels.early:
                # with all that was summed from the start. Of arms that were chosen at random, without a mean in common,
                # all eigenvalues are alike, and b may be so many times S long
                signal = flatter * float(eigenvalues.mean()) * S
                in_common = lopsided(totals[1], sums.noise[1], rounds * self.levels.base.B**2, signal)
            else:
                in_common = bool(last.level) or lopsided(b, noise_b, rounds * record.B**2)
            if level != last.level and in_common:
                if levelled or not last.level:
                    return self._anew(totals, rounds, k, (level, levelled))
                level, flatter = last.level, 1.0  # beginning anew is costly: twice at most
            if self.levels.early and not (level or levelled) and self.levels.low(*sums.level, counted):
                known, root = replace(known, mean=self.prior.mean), self.prior.root
            H, squares = flatter * H, flatter * squares
            past = replace(past, H=flatter * past.H, squares=flatter * past.squares)
        history = H, b, slopes, secants, squares, totals, past
        also = found, known.covariance, unlikely, metric, settled, stands
        return Estimate(known.mean, root, *history, *also, level, levelled)

    def _anew(self, totals: tuple[Array, Array], rounds: int, k: int, level: tuple[float, bool]) -> Estimate:
        """As at the start, at another level; the noise of sums since then is taken to be that of all sums."""
        nothing = self.nothing()
        return replace(
            nothing,
            # a random direction, of whatever length
            root=nothing.root if self.rule.given else self.prior.root,
            slopes=float(k),
            secants=float(k),
            totals=totals,
            past=nothing.past.restarted(rounds),
            level=level[0],
            levelled=level[1],
        )

    def _unlikely(self, last: Estimate, M: Array, residual: Array, noises: Noise) -> float:
        """How badly the batch fits what was released before; M, the residual and their noise are in its metric."""
        inverse = np.linalg.inv(last.metric)
        seen = inverse @ last.theta
        noise = noises[1] ** 2 + 0.5 * noises[0] ** 2 * float(seen @ seen)
        before = inverse @ last.covariance @ inverse
        return surprise(residual, M, before, noise=noise, reward_variance=self.levels.at(last.level).record.chance)

    def _looks(
        self, last: Estimate, rounds: int, U: Array, H: Array, eigenvalues: Array, noise: float
    ) -> tuple[Array, bool]:
        """How wide to look around along each column of U, squared and in units of β, and whether arms stand.

        H, U and the eigenvalues are in the metric of the last batch. As long as arms may be fresh, what is known a
        little needs little. Where they stand, all that is not known is looked at, and what was known long ago: by
        √ln(T/t), since the later an arm is found the less it is worth.
        """
        since, earlier, _ = last.past.before(0.55 * rounds)
        if not earlier.any():
            return np.ones(len(eigenvalues)), False
        # of what was known then, and of rounds (all alike, or fading), this much is left
        left, share = 1.0, since / rounds
        if self.discount is not None:
            left = share = self.discount ** (rounds - since)
        newer = H - left * last.metric @ earlier @ last.metric
        # the difference of two releases has 0.2 to 1.5 times the variance of the newer one, by schedule and factor; a
        # bound on it is taken here, since it is the whole noise that must not look like fixed arms
        likelier = standing(np.asarray(np.linalg.eigvalsh(newer), np.float64), math.sqrt(2.0) * noise)
        stands = last.standing or likelier > _LIKELY
        f = stalled(eigenvalues, np.einsum("ij,ij->j", U, newer @ U), 1.0 - share, noise, known=0.0)
        known = eigenvalues >= KNOWN * noise
        if stands:
            return max(_WIDE**2, math.log(self.horizon / rounds)) * np.where(known, f, 1.0), True
        little = np.where(eigenvalues >= _SEEN * noise, _LITTLE**2, 1.0)
        return np.where(known, f, little), False

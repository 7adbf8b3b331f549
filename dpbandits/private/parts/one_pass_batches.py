"""From noisy sums of batches of secant records to a parameter: what ShuffleOnePassGLM computes after a batch.

As in :mod:`~dpbandits.private.parts.one_pass`, but every batch has noise of its own, so that batches are weighed by
it; and as they are long, everything is looked at a little. As long as rewards seem rare and their level is not known
arms are played at random: then records have no mean in common, and stay when the level moves. What a base rate adds
along θ that nobody stated and that is too high is taken out where arms are fresh
(``private.parts.progress.turned_round``). A metric is learned as there. One that was made after a batch is that of all
batches that have not begun: of others some users may have sent their records. All of it is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from accounting.arrays import Array
from dpbandits.policy.schedule import Schedule
from dpbandits.private.parts.metric import carried, relearned, symmetric_root
from dpbandits.private.parts.noisy_estimate import errors, shrunken_eigenvalues, stalled, standing, weighed
from dpbandits.private.parts.posterior_rule import PosteriorRule
from dpbandits.private.parts.progress import Past, believed, misfit, turned_round
from dpbandits.private.parts.records import Levels, lopsided
from dpkit.models.prior import Prior
from dpkit.moments.shuffled_pairs import NoisyBatch

__all__ = ["Estimate", "Refit"]

# the least f: batches are long
_LEAST = 0.1
# by how many se rewards must seem rare for a batch at random
_RARE = 1.0


@dataclass(frozen=True)
class Estimate:
    """The public half.

    θ; a root such that θ + root·ξ is what plays; H and b, with the variances of the noise in scaled records of H, of
    Σω_jρ_jM_j, and of b; Σθ_jᵀM_jθ_j; the mean residual of the last batch over B where it is far from 0, else 0; the
    level at which records are formed, and whether that is final; and while it is not, Σω_jf_j of the deviations f of
    rewards, Σω_jn_j, and the variance of the noise in the first of these; the metric of earlier batches and, from batch
    ``turn`` on, of later ones; whether that is final; θ's covariance; and the sum and the number of scores by which the
    base rate seems to be too high.
    """

    theta: Array
    root: Array
    H: Array
    b: Array
    noise: tuple[float, float, float]
    squares: float
    past: Past
    misfit: float
    level: float
    levelled: bool
    deviations: tuple[float, float, float]
    metric: Array
    later: Array
    turn: int
    settled: bool
    covariance: Array
    scores: tuple[float, float]

    def metric_of(self, batch: int) -> Array:
        """A, by which the records of a batch are formed that is not released yet."""
        return self.later if batch >= self.turn else self.metric


@dataclass(frozen=True)
class Refit:
    """How one estimate follows from the one before it and a batch.

    Attributes
    ----------
    levels : Levels
    prior : Prior
    rule : PosteriorRule
        How widely arms are drawn, and whether the prior was given: then the first batch plays by it.
    schedule : Schedule
    """

    levels: Levels
    prior: Prior
    rule: PosteriorRule
    schedule: Schedule

    def nothing(self) -> Estimate:
        """What is known at the start."""
        d = len(self.prior.mean)
        square = np.zeros((d, d))
        root = self.rule.width * self.prior.root if self.rule.given else square
        known = self.prior.mean, root, square, np.zeros(d), (0.0, 0.0, 0.0), 0.0, Past.empty(d), 0.0
        metrics = np.eye(d), np.eye(d), 0, False
        scores = self.prior.covariance, (0.0, 0.0)
        return Estimate(*known, 0.0, not self.levels.learned, (0.0, 0.0, 0.0), *metrics, *scores)

    def __call__(self, last: Estimate, sums: NoisyBatch, ends: Sequence[int]) -> Estimate:
        at = self.levels.at(last.level)
        record, (unit_w, unit_g) = at.record, at.units
        M, m, std, (a, c), theta = unit_w * sums.H, unit_g * sums.b, sums.std, sums.scales, last.theta
        S, rounds, (low, high) = self.levels.theta_bound, ends[-1], self.levels.reward_range
        # noise against the chance in a coordinate of b, for x of which the mean square of a coordinate is 1/d, and
        # rewards of half the largest variance
        n_0 = (unit_g * std / c) ** 2 * 8.0 * len(theta) / (high - low) ** 2
        weight = 1.0 / (1.0 + n_0 / sums.users)
        # M and m are in the metric in which their records were formed, of θ' = A⁻¹θ
        A = last.metric_of(len(ends) - 1)
        inverse = np.linalg.inv(A)
        seen = inverse @ theta

        # before anything is known e is 0, unless there is a prior
        guessed = bool(last.H.any()) or self.rule.given
        squares = last.squares + (float(seen @ M @ seen) if guessed else 0.0)
        slope, secant = last.past.slopes(record, squares, ends) if guessed else record.slopes(0.0)
        residual, noise_M = m - secant * M @ seen, unit_w * std / a
        variance = (unit_g * std / c) ** 2 + (secant * noise_M) ** 2 * float(seen @ seen)
        level, levelled, scores = last.level, last.levelled, last.scores
        deviations = last.deviations if levelled else _added(last.deviations, weight, sums)
        if last.H.any() and self._unsure(last, deviations) and _fresh(M, np.asarray(inverse, np.float64), noise_M):
            covariance = inverse @ last.covariance @ inverse
            eta, score = turned_round(residual, M, seen, covariance, slope, variance, record.chance)
            scores = scores[0] + score, scores[1] + 1.0
            m = m - eta * believed(*scores) * (M @ seen)
        M, m = inverse @ M @ inverse, inverse @ m
        H = last.H + weight * slope * M
        b = last.b + weight * (m - (secant - slope) * (M @ theta))
        of_H, of_secants, of_b = (
            before + (weight * times * std) ** 2
            for before, times in zip(last.noise, (unit_w * slope, unit_w * secant, unit_g), strict=True)
        )
        noise_H, noise_secants, noise_b = math.sqrt(of_H) / a, math.sqrt(of_secants) / a, math.sqrt(of_b) / c

        eigenvalues, U = np.linalg.eigh(A @ H @ A)
        eigenvalues = shrunken_eigenvalues(eigenvalues, noise_H)
        length = min(float(seen @ seen), S**2) if guessed else 0.25 * S**2
        # b − Hθ has the noise of Σω_jρ_jM_jθ: as (ρ − γ)Mθ is taken from b, and γMθ by H
        variances = errors(eigenvalues, noise_secants, noise_b, length, record.chance)
        known = weighed(eigenvalues, variances, inverse @ U, U.T @ A @ b, self.prior, S)

        # look around, most where information stands still
        since, earlier, _ = last.past.before(0.55 * rounds)
        f = np.ones(len(theta))
        if earlier.any():
            growth = np.einsum("ij,ij->j", U, A @ (H - earlier) @ A @ U)
            f = stalled(eigenvalues, growth, 1.0 - since / rounds, noise_H)
        widths = U * (self.rule.width * np.sqrt(np.maximum(f, _LEAST)))
        root = A @ symmetric_root(inverse @ known.covariance @ inverse) @ widths
        metric, later, turn, settled = last.metric, last.later, last.turn, last.settled
        if not settled and turn <= len(ends):  # else one waits for its first batch
            metric, (later, settled) = later, relearned(eigenvalues, U, A, known.mean, noise_H)
            turn = self.schedule.batch(rounds + self.schedule.lag - 1) + 1
        shape = metric, later, turn, settled
        if not np.array_equal(A, ahead := later if turn <= len(ends) else metric):
            H, b = carried(A, ahead, H, b)
        past = last.past.followed_by(rounds, H, squares)
        found = misfit(residual, seen, variance, sums.users, record.B) if last.levelled else 0.0
        if not levelled:
            total, counted, variance = deviations
            level, levelled = self.levels.moved(last.level, total, math.sqrt(variance), counted)
            # the weights of earlier records, at the new level
            flatter = self.levels.at(level).units[0] / unit_w
            in_common = lopsided(b, noise_b, counted * record.B**2)
            if level != last.level and (last.level or in_common):
                moved = replace(self._anew(rounds), level=level, levelled=levelled, deviations=deviations)
                return replace(moved, metric=metric, later=later, turn=turn, settled=settled)
            # records of arms at random will have no mean in common, unless all arms have: then they are dropped anyway
            rare = self.levels.low(total, math.sqrt(variance), counted, by=_RARE)
            if self.levels.early and rare and not (level or levelled or in_common):
                known, root = replace(known, mean=self.prior.mean), self.prior.root
            H, squares, of_H, of_secants = flatter * H, flatter * squares, flatter**2 * of_H, flatter**2 * of_secants
            past = replace(past, H=flatter * past.H, squares=flatter * past.squares)
        history = H, b, (of_H, of_secants, of_b), squares, past
        return Estimate(
            known.mean, root, *history, found, level, levelled, deviations, *shape, known.covariance, scores
        )

    def _unsure(self, last: Estimate, deviations: tuple[float, float, float]) -> bool:
        """Whether nobody stated the base rate, which is taken for the middle and need not move; and no reward is cut.

        What is cut off is missing from residuals, too. Where the base rate will move, residuals are what turns a θ
        round that has the wrong direction.
        """
        total, counted, variance = deviations
        if not self.levels.learned or last.level:
            return False
        if not last.levelled and self.levels.low(total, math.sqrt(variance), counted):
            return False
        (low, high), record = self.levels.reward_range, self.levels.base
        return max(high - record.centre, record.centre - low) <= record.B

    def _anew(self, rounds: int) -> Estimate:
        """As at the start, after so many rounds."""
        nothing = self.nothing()
        past = nothing.past.restarted(rounds)
        # a random direction, of whatever length
        root = nothing.root if self.rule.given else self.prior.root
        return replace(nothing, root=root, past=past)


def _added(before: tuple[float, float, float], weight: float, sums: NoisyBatch) -> tuple[float, float, float]:
    """The sum of deviations, their number, and the variance of noise, with those of one more batch."""
    (total, counted, variance), (more, noise) = before, sums.level
    return total + weight * more, counted + weight * sums.users, variance + (weight * noise) ** 2


def _fresh(M: Array, inverse: Array, noise: float) -> bool:
    """Whether the arms of a batch look fresh, and without a feature that they share, by their M in the metric A.

    Where they stand, or share one, θ says how much rewards are on average, and is what residuals are to correct.
    """
    spectrum, stretch = np.linalg.eigvalsh(inverse @ M @ inverse), np.linalg.eigvalsh(inverse)
    return standing(np.asarray(spectrum, np.float64), noise * float(np.mean(stretch**2))) < 0.0

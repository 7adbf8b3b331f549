"""From noisy sums of the batches of arms to a posterior of each arm's mean reward, for arms without features.

``PrivateArms``, ``ShuffleArms`` and ``LDPArms`` share it. All of it is post-processing of what was released. Rewards
are in units of their range, x = (r − low)/(high − low). Batch j of arm k had n_j decisions, and its sum y_kj of x − ½
has the noise variance σ_j². By its own batches, weighed by what they know, arm k has the mean

    m_k = ½ + Σ_j w_kj·y_kj / p_k,    p_k = Σ_j w_kj·n_j,    w_kj = n_j/(σ_j² + n_j·v_k),

of variance 1/p_k, v_k = μ(1 − μ) the largest variance of rewards in [0, 1] with the arm's mean μ. All arms' means come
from one normal law, N(λ, τ²) (empirical Bayes): λ has a normal prior around the base rate, with a standard deviation of
half the range, and τ lies on a grid, so that the posterior of each mean is a mixture of normals, of which mean and
variance are taken. Nothing else has to be told of the level, or of how far arms are apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from accounting.checks import fraction, integer
from dpbandits.policy.catalogue import Catalogue
from dpbandits.policy.progress import Found

__all__ = ["Estimate", "Posteriors", "first_length"]

# τ, up to that of means which are 0 or 1, alike
_SPREADS = np.concatenate([[0.0], np.geomspace(0.003, 0.5, 23)])
# logarithms of their prior weights: a flat density, on a grid of equal ratios
_WEIGHTS = np.log(_SPREADS + _SPREADS[1])
# of the level
_LEVEL_VARIANCE = 0.25
# as many decisions of the level are added to an arm's own, where its variance is computed
_SHRUNK = 4.0
# of the first batch, in standard deviations of the noise of a sum of rewards in [0, 1]; and at least so many decisions,
# but no more than a share of an arm's part of all rounds
_CLEAR, _FEWEST, _SHARE = 11.3, 8, 8
# variances depend on means, and means on variances
_PASSES = 2
_UNTOLD = {"theta_length": "arms have no features", "signal": "nothing was released yet"}


@dataclass(frozen=True)
class Estimate:
    """The public half.

    Attributes
    ----------
    closed : (K,) ndarray of int
        How many batches of each arm have been released.
    sums : (K, J) ndarray
        Their noisy sums of r − c, zero where there was none yet.
    mean, width : (K,) ndarray
        Of the normal draws by which arms are chosen, in the units of rewards.
    own, error : (K,) ndarray
        Of each arm by its own batches alone: the mean, and its standard error; the middle of the range, and its length,
        where there was none.
    since : int
        After how many decisions the last release was made.
    """

    closed: NDArray[np.int64]
    sums: Array
    mean: Array
    width: Array
    own: Array
    error: Array
    since: int

    def means(self, catalogue: Catalogue, rewards: tuple[float, float]) -> dict[str, float]:
        """Of the active arms of which something was released, the mean by the arm's own batches, within the range.

        Raises
        ------
        ValueError
            If nothing was released of any of them.
        """
        found = zip(catalogue.names, catalogue.active, self._informed(rewards), self.own, strict=True)
        known = {name: float(np.clip(own, *rewards)) for name, active, some, own in found if active and some}
        if not known:
            raise ValueError(
                "no information yet: no active arm has completed its first batch, so that nothing was released of any; "
                "go on with select and update"
            )
        return known

    def interval(
        self, catalogue: Catalogue, rewards: tuple[float, float], arm: str, confidence: float, *, laplace: bool
    ) -> tuple[float, float]:
        """Where the mean of an arm lies, within the range; ``laplace`` says that noise has Laplace's tails.

        Raises
        ------
        ValueError
            If there never was such an arm, nothing was released of it, or for a confidence that is not in (0, 1).
        """
        from scipy.special import ndtri

        level, names, (low, high) = fraction("confidence", confidence), catalogue.names, rewards
        if arm not in names:
            raise ValueError(f"arm must be one of {names}, got arm={arm!r}")
        slot = len(names) - 1 - names[::-1].index(arm)
        if not self._informed(rewards)[slot]:
            raise ValueError(f"no information yet: arm {arm!r} has not completed its first batch, nothing was released")
        reach = float(ndtri(0.5 + 0.5 * level))
        if laplace:  # the sum of normal and Laplace errors has no longer tails than these
            reach = max(reach, -math.log1p(-level) / math.sqrt(2.0))
        own, error = float(self.own[slot]), float(self.error[slot])
        return max(low, min(own - reach * error, high)), min(high, max(own + reach * error, low))

    def _informed(self, rewards: tuple[float, float]) -> NDArray[np.bool_]:
        """Of which arms anything was released, in this run or one before it."""
        return np.asarray((self.closed > 0) | (self.error < rewards[1] - rewards[0]))

    def check(self) -> None:
        """Refuse one that was read from a file, and is none."""
        if (self.closed < 0).any() or (self.closed > self.sums.shape[1]).any() or (self.width < 0).any():
            raise ValueError("public must have a sum for each closed batch, and widths of at least 0, got others")


@dataclass(frozen=True)
class Posteriors:
    """How what is public follows from noisy sums.

    Attributes
    ----------
    low, high : float
        The range of rewards.
    base_rate : float
        Around which the level is expected.
    lengths : (J,) ndarray
        n_j.
    noise : float or (J,) ndarray
        Of a sum of r − c, beyond what rewards add to it that are 0 or 1: its standard deviation.
    exploration : float
        The width of draws, over the posterior's standard deviation.
    horizon : int
        T: after t rounds the width is multiplied by √(1 − t/T), as an arm that is found late is worth little.
    before : (2, K) ndarray, optional
        What earlier runs have released of the arms (:meth:`told_by`): the precision and the mean of x − ½ of each.
    """

    low: float
    high: float
    base_rate: float
    lengths: Array
    noise: float | Array
    exploration: float
    horizon: int
    before: Array | None = None

    def told_by(self, known: Estimate) -> Array:
        """What these batches, and those before them, tell of the arms, for a run that comes after this one."""
        length = self.high - self.low
        informed = known.error < length
        precision = np.where(informed, (length / known.error) ** 2, 0.0)
        return np.array([precision, np.where(informed, (known.own - self.low) / length - 0.5, 0.0)])

    def full(self, known: Estimate, counts: NDArray[np.int64]) -> int | None:
        """The first arm whose open batch has all that it waits for, of these counts."""
        found = np.flatnonzero(counts >= np.append(self.lengths, np.inf)[known.closed])
        return int(found[0]) if len(found) else None

    def missing(self, known: Estimate, counts: NDArray[np.int64]) -> int:
        """For how few decisions an open batch might have all that it waits for; 2⁶² where none will."""
        found = float((np.append(self.lengths, np.inf)[known.closed] - counts).min())
        return int(found) if math.isfinite(found) else 2**62

    def nothing(self, arms: int) -> Estimate:
        """What is known at the start."""
        return self.of(np.zeros(arms, np.int64), np.zeros((arms, len(self.lengths))), 0)

    def with_room(self, known: Estimate, arms: int) -> Estimate:
        """And of arms that have come since, up to so many: they are expected to be like the others."""
        more = arms - len(known.closed)
        if more <= 0:
            return known
        closed, sums = np.append(known.closed, np.zeros(more, np.int64)), np.pad(known.sums, ((0, more), (0, 0)))
        return self.of(closed, sums, known.since)

    def __call__(self, known: Estimate, arm: int, total: float, decisions: int) -> Estimate:
        """After the next batch of an arm, of this noisy sum."""
        closed, sums = known.closed.copy(), known.sums.copy()
        sums[arm, closed[arm]] = total
        closed[arm] += 1
        return self.of(closed, sums, decisions)

    def found(self, known: Estimate, catalogue: Catalogue) -> Found:
        """What was found so far: how far each arm's mean is from that of all, in standard errors.

        Their weighted mean has been fitted, and leaves one number less that could differ by noise alone.
        """
        told = np.flatnonzero((known.closed > 0) & (known.error > 0.0))
        if not len(told):
            return Found(missing=_UNTOLD)
        own, weights = known.own[told], known.error[told] ** -2.0
        level = float(weights @ own / weights.sum())
        counts = np.array([self.lengths[: known.closed[k]].sum() for k in told])
        off = (own - level) / known.error[told]
        signal = {catalogue.names[k]: abs(float(one)) for k, one in zip(told, off, strict=True)}
        predicted, seen = (float(counts @ one / counts.sum()) for one in (known.mean[told], own))
        return Found(signal, len(told) - 1, None, predicted, seen, 0.0, {"theta_length": "arms have no features"})

    def contradicted(self, known: Estimate, false_alarms: float) -> bool:
        """Whether the last batch of some arm is farther from its earlier ones than chance and noise explain.

        Where nothing moves that is so with probability ``false_alarms`` for a batch at most: half of it for the chance
        of rewards and all earlier batches, by normal quantiles, half for the batch's own noise, by those of Laplace.
        """
        from scipy.special import ndtri

        slots = np.flatnonzero(known.closed >= 2)
        if not len(slots):
            return False
        last = known.closed[slots] - 1
        earlier = np.where(np.arange(len(self.lengths)) < last[:, None], self.lengths, 0.0)
        sums, n = known.sums[slots] / (self.high - self.low), self.lengths[last]
        noise = np.broadcast_to(np.asarray(self.noise) / (self.high - self.low), self.lengths.shape)
        # both together say how much rewards vary
        mean = np.clip(0.5 + sums.sum(axis=1) / (earlier.sum(axis=1) + n), 0.0, 1.0)
        variance = np.maximum(mean * (1.0 - mean), 0.25 / (earlier.sum(axis=1) + _SHRUNK))
        weights = earlier / (noise**2 + earlier * variance[:, None])
        precision = (weights * earlier).sum(axis=1)
        apart = sums[np.arange(len(slots)), last] / n - (weights * sums).sum(axis=1) / precision
        reach = float(ndtri(1.0 - false_alarms / 4.0)) * np.sqrt(variance / n + 1.0 / precision)
        reach += math.log(2.0 / false_alarms) / math.sqrt(2.0) * noise[last] / n
        return bool((np.abs(apart) > reach).any())

    def of(self, closed: NDArray[np.int64], sums: Array, decisions: int) -> Estimate:
        """What follows from the sums of so many first batches of each arm, after so many decisions."""
        length = self.high - self.low
        released = np.arange(len(self.lengths)) < closed[:, None]
        counts, level = np.where(released, self.lengths, 0.0), (self.base_rate - self.low) / length
        told = np.zeros((2, len(closed)))
        if self.before is not None:
            told[:, : self.before.shape[1]] = self.before
        # earlier decisions are as many as tell so much, at most
        total, mean = counts.sum(axis=1) + 0.25 * told[0], np.full(len(closed), 0.5)
        for _ in range(_PASSES):
            shrunk = np.clip((total * np.clip(mean, 0.0, 1.0) + _SHRUNK * level) / (total + _SHRUNK), 0.0, 1.0)
            variance = np.maximum(shrunk * (1.0 - shrunk), 0.25 / (total + _SHRUNK))
            weights = counts / ((self.noise / length) ** 2 + counts * variance[:, None])
            precision = (weights * counts).sum(axis=1) + told[0]
            found = (weights * sums).sum(axis=1) + told[0] * told[1] * length
            own = 0.5 + found / np.where(precision > 0.0, precision * length, 1.0)
            mean, square, level = _pooled(own, precision, (self.base_rate - self.low) / length)
        late = math.sqrt(max(0.0, 1.0 - decisions / self.horizon))
        width = self.exploration * late * length * np.sqrt(np.maximum(square - mean**2, 0.0))
        error = length * np.minimum(1.0, 1.0 / np.sqrt(np.maximum(precision, 1.0)))
        return Estimate(closed, sums, self.low + length * mean, width, self.low + length * own, error, decisions)


def first_length(first: int | None, noise: float, horizon: int, arms: int) -> int:
    """Decisions for an arm before its first release: those that were asked for, or by the noise of a sum in ranges.

    Examples
    --------
    >>> first_length(None, 1.41, 20_000, 5), first_length(None, 1.41, 400, 5), first_length(7, 1.41, 400, 5)
    (16, 10, 7)
    """
    if first is None:
        first = min(max(_FEWEST, round(_CLEAR * noise)), max(1, horizon // (_SHARE * arms)))
    return integer("first_batch", first, at_least=1)


def _pooled(own: Array, precision: Array, base_rate: float) -> tuple[Array, Array, float]:
    """Mean and mean square of each arm's mean reward, given all arms, and the mean of the level λ."""
    tau = _SPREADS[:, None] ** 2
    # of own around λ, 1/(τ² + 1/p), and which share of what an arm tells of itself is believed
    weight = precision / (tau * precision + 1.0)
    believed = tau * weight
    known = 1.0 / _LEVEL_VARIANCE + weight.sum(axis=1)
    level = (base_rate / _LEVEL_VARIANCE + (weight * own).sum(axis=1)) / known
    apart = (weight * (own - level[:, None]) ** 2).sum(axis=1) + (level - base_rate) ** 2 / _LEVEL_VARIANCE
    seen = precision > 0.0
    likely = _WEIGHTS + 0.5 * (np.log(weight[:, seen]).sum(axis=1) - np.log(known) - apart)
    share = np.exp(likely - likely.max())
    share /= share.sum()
    means = believed * own + (1.0 - believed) * level[:, None]
    squares = means**2 + tau * (1.0 - believed) + (1.0 - believed) ** 2 / known[:, None]
    return share @ means, share @ squares, float(share @ level)

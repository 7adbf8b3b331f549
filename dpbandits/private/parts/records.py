"""Records of rounds, whose noisy sum is all that a policy knows: clipping levels, and the scales of their two parts.

A record is a pair (w·x xᵀ, g·x), formed at a parameter θ that was released; e = xᵀθ.

* Tangent (:class:`GLMRecord`): w = clip(μ̇(e), w_min, W) and g = clip(w·e + r − μ(e), ±B), the round's least-squares
  approximation of the loss around θ.
* Secant (:class:`SecantRecord`): with c₀ the base rate and s(e) = (μ(e) − c₀)/e, w = ψ·clip(s(e), s_min, W) and
  g = ψ·clip(r − c₀, ±B). There is no θ in g, and no part of ±B is spent on w·e − μ(e). W is the slope at the base
  rate, or that of the chord to where good arms are, e = 0.6S: where rewards are rare, chords to far points of the curve
  are several times as steep as at the base rate, and else it is steepest there, where no good arm is. Noise for slopes
  that few rounds have drowns what the others say. M = Σw·x xᵀ is too small by about a factor ρ that is known: ρMθ is
  Σψ(μ(e) − c₀)x, the difference Σgx − ρMθ the gradient Σψ(r − μ(e))x, and with slopes γ for w, about those of the
  curve itself, θ* solves γMθ* = Σgx − (ρ − γ)Mθ. But γ ≤ ρ: where the curve is steeper than its chord, as below the
  middle of a sigmoid, Newton's step adds more noise, that of (γ − ρ)Mθ, than it saves steps. The factor
  ψ = min(1/‖x‖, 2) makes gradients of unit length: the noise does not shrink with ‖x‖. Vectors longer than 1, as
  v = A x may be, have ψ = 1/‖v‖², and those longer than 10⁵⁰, or of entries that are no numbers, ψ = 0.

:class:`Levels` moves c₀ to where rewards are. Policies whose optimizers read all rounds again keep nothing that is
formed at a level: they release the sum of (r − middle)/(high − low) once, and estimate anew at :func:`level_of` it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction, positive
from dpbandits.policy.checks import finite_rewards
from dpbandits.policy.schedule import Schedule
from dpkit.models.links import Link

__all__ = [
    "LONGEST_SCALE",
    "LONGEST_SQUARE",
    "Asked",
    "GLMRecord",
    "Level",
    "Levels",
    "SecantRecord",
    "ONCE_SHARE",
    "begins_in_the_middle",
    "checked_slope",
    "deviations",
    "known_after",
    "level_of",
    "lopsided",
    "never_cut",
    "typical_deviation",
]

# the largest ψ: a round with a short arm weighs little in the regret, too
LONGEST_SCALE = 2.0
# of 2001 points from −S to S, that at 0.6S; and how much of the slope at the base rate is left at least: where S or the
# base rate is far off, ρ is large, and so is the noise of (ρ − γ)Mθ
_TYPICAL, _LEAST_CUT = 1600, 0.7
# ‖v‖² from which ψ is 0: no metric makes such vectors, and W/‖v‖² might have lost its digits
LONGEST_SQUARE = 1e100
# s_min over W at least, at every level but the first: the sensitivity grows as this falls below ½
_FLATTEST_LEVEL = 0.5
# of the squared sensitivity of a record, what goes to the level while that is learned; it adds 1 % to all noise
_LEVEL_SHARE = 0.1
# in units of the range: how well the level must be known, and from where on it is far from the middle
_SETTLED, _FAR = 0.04, 0.2
# where numbers come in place of records: how well the mean must be known before it is looked at, and how well it should
# be after the first batch; how many se it must be below the border; and how much lower a rate is worth a second move
_SOON, _ENOUGH, _SURELY, _HALF = 0.2, 0.15, 1.5, 0.5
# how well it must be known for a first move, where one is made, how much lower a rate is worth a second one, and how
# well it may be asked to be known where it has moved
_EARLY, _LOWER, _SURE = 0.1, 0.75, 0.02
# and how well for rounds not to be played at random any more, where none is made
_KNOWN = 0.05
# by how many se it is taken to be above the mean: a level of a third of the rate costs twice as much as one of thrice
_ABOVE = 0.5
# of the least chance of a reward
_CHANCE = 0.05
# of μ², what a level costs that is released once: 1 % more of all other noise; and how well it must be known then
ONCE_SHARE, _ONCE = 0.02, 0.05
# b is longer than noise and chance make it if its square is so many times what they give it on average; or, where arms
# were chosen at random, if they make it so long with this probability
_LOPSIDED, _UNLIKELY = 2.0, 0.01
# the squares of W, and of what is in proportion to it, must be numbers
_FLATTEST, _STEEPEST = 1e-100, 1e100


@dataclass(frozen=True, slots=True)
class GLMRecord:
    """The levels w_min, W and B at which the weights of a record are clipped."""

    link: Link
    w_min: float
    W: float
    B: float

    @classmethod
    def of(cls, link: Link, theta_bound: float, reward_range: tuple[float, float], clip: float | None) -> GLMRecord:
        """W is the largest slope over |e| ≤ S and w_min a fifth of it; B is ``clip``.

        By default B is 1.2 × the largest |r − μ(0)|, or the largest |w·e + r − μ(e)| there is where that is smaller,
        and for counts at most 1.2 × :func:`typical_deviation`.
        """
        S, (low, high) = theta_bound, reward_range
        W = link.lipschitz(S)
        e = np.linspace(-S, S, 2001)
        excess = np.clip(link.derivative(e), 0.2 * W, W) * e - link.mean(e)
        centre = float(link.mean(0.0))
        largest = max(float(np.abs(excess + r).max()) for r in (low, high))
        default = min(largest, 1.2 * max(abs(low - centre), abs(high - centre)), 1.2 * typical_deviation(link, S))
        return cls(link, 0.2 * W, W, default if clip is None else positive("clip", clip))

    def weigh(self, e: float, reward: float) -> tuple[float, float]:
        """w and g, within their levels whatever a caller's link says."""
        w = min(max(self.w_min, float(self.link.derivative(e))), self.W)
        return w, min(max(-self.B, w * e + reward - float(self.link.mean(e))), self.B)


@dataclass(frozen=True, slots=True)
class SecantRecord:
    """The levels s_min, W and B at which the weights of a secant record are clipped, and the slope of the curve.

    Privacy. With x = ‖x‖u, ‖u‖ = 1, and any length, the record is (ω·u uᵀ, γ·u) with ω = ψs‖x‖² and γ = ψg‖x‖. Let
    q = ψ‖x‖ = min(1, 2‖x‖, 1/‖x‖), so that ‖x‖ ≥ q/2 and q‖x‖ ≤ 1. As s and g are clipped, ω = sq‖x‖ ∈ [0, W] and
    |γ| ≤ qB, and ω ≥ ½s_min·q²: what ``dpkit.geometry.pair_sensitivity`` asks for with ``least`` = ½s_min.
    """

    link: Link
    s_min: float
    W: float
    B: float
    centre: float
    # the largest variance of a reward of mean c₀, over the slope there: 1 for a Bernoulli reward and its link
    chance: float
    # for e ∈ [0, S]: w·e², w the secant's slope as it is recorded, which increases, and γ and ρ
    squares: Array
    tangents: Array
    secants: Array

    @classmethod
    def of(
        cls,
        link: Link,
        theta_bound: float,
        reward_range: tuple[float, float],
        clip: float | None,
        flattest: float = 0.2,
    ) -> SecantRecord:
        """W is μ̇(0) or s(0.6S), the smaller one; s_min the least s over |e| ≤ S, or ``flattest``·W; B is ``clip``.

        But W is at least 0.7·μ̇(0), and a fifth of the largest s there.

        By default B is the largest |r − c₀|, so that nothing is cut off, and for counts at most 0.8 ×
        :func:`typical_deviation`: there is no prediction in g that would have to fit into ±B.
        """
        low, high = reward_range
        c = float(link.mean(0.0))
        e = np.linspace(-theta_bound, theta_bound, 2001)
        e[1000] = 0.0
        slopes = np.where(e == 0.0, link.derivative(0.0), (link.mean(e) - c) / np.where(e == 0.0, 1.0, e))
        steepest = checked_slope(float(slopes.max()))
        base, typical = float(slopes[1000]), float(slopes[_TYPICAL])
        W = max(min(base, max(typical, _LEAST_CUT * base)), 0.2 * steepest)
        s_min = max(float(slopes.min()), flattest * W)
        half, s = e[1000:], np.clip(slopes[1000:], s_min, W)
        secants = np.maximum(slopes[1000:], s_min) / s
        tangents = np.minimum(np.maximum(link.derivative(half), s_min) / s, secants)
        default = min(max(high - c, c - low), 0.8 * typical_deviation(link, theta_bound))
        B = default if clip is None else positive("clip", clip)
        # of rewards as they are after clipping; no reward in the range has the mean c₀ if that is outside
        least, most = max(low - c, -B), min(high - c, B)
        largest = -least * most if least < 0.0 < most else 0.25 * (high - low) ** 2
        chance = largest / max(float(link.derivative(0.0)), s_min)
        return cls(link, s_min, W, B, c, chance, np.maximum.accumulate(s * half**2), tangents, secants)

    @property
    def least(self) -> float:
        """m = ½s_min; see above."""
        return self.s_min / LONGEST_SCALE

    def weigh(self, x: Array, e: float, reward: float) -> tuple[float, float]:
        """ψs and ψg, within their levels whatever a caller's link says."""
        square = float(x @ x)
        if not square < LONGEST_SQUARE:
            return 0.0, 0.0
        length = math.sqrt(square)
        psi = LONGEST_SCALE if length * LONGEST_SCALE <= 1.0 else 1.0 / max(length, square)
        secant = (float(self.link.mean(e)) - self.centre) / e if abs(e) > 1e-6 else float(self.link.derivative(0.0))
        s = min(max(self.s_min, secant), self.W)
        return psi * s, psi * min(max(-self.B, reward - self.centre), self.B)

    def weigh_many(self, X: Array, e: Array, rewards: Array) -> tuple[Array, Array]:
        """The same for the rows of X."""
        squares = np.einsum("nd,nd->n", X, X)
        known = squares < LONGEST_SQUARE
        squares = np.where(known, squares, 1.0)
        lengths = np.sqrt(squares)
        psi = np.where(lengths * LONGEST_SCALE <= 1.0, LONGEST_SCALE, 1.0 / np.maximum(lengths, squares)) * known
        apart = np.abs(e) > 1e-6
        secants = (self.link.mean(e) - self.centre) / np.where(apart, e, 1.0)
        s = np.where(apart, secants, float(self.link.derivative(0.0)))
        s = np.minimum(np.where(s > self.s_min, s, self.s_min), self.W)  # also where a link's value is NaN
        return psi * s, psi * np.clip(rewards - self.centre, -self.B, self.B)

    def slopes(self, square: float) -> tuple[float, float]:
        """γ, at least 0.3, and ρ, both at the e ≥ 0 at which w·e² is ``square``."""
        gamma, rho = (float(np.interp(square, self.squares, ratios)) for ratios in (self.tangents, self.secants))
        return max(0.3, gamma), rho


@dataclass(frozen=True)
class Level:
    """A record at one level, and in which units it is summed.

    Attributes
    ----------
    record : SecantRecord
    units : (float, float)
        W/W₀ and B/B₀.
    """

    record: SecantRecord
    units: tuple[float, float]

    def weigh(self, x: Array, e: float, reward: float) -> tuple[float, float]:
        """w and g in units of the sums."""
        w, g = self.record.weigh(x, e, reward)
        return w / self.units[0], g / self.units[1]

    def weigh_many(self, X: Array, e: Array, rewards: Array) -> tuple[Array, Array]:
        """The same for the rows of X."""
        w, g = self.record.weigh_many(X, e, rewards)
        return w / self.units[0], g / self.units[1]


@dataclass(frozen=True)
class Levels:
    """Secant records where the level of rewards is learned: at o, by which the link is shifted; 0 is the base rate.

    A policy that is told no base rate begins at the middle of the range of rewards. Of its first rounds, which play
    about at random, it sums (r − middle)/(high − low), too. After a release that says their mean to ± se, se by noise
    and chance. When se is at most 0.04 the level is settled, and no round is asked for it any more: if the mean
    is below the middle by 0.2 at least, records to come are centred at it, as at a base rate, and else at the middle.

    * Below only: whoever plays well gets more than a random arm would, so that a mean above the middle says nothing.
    * Clearly only: a record that is not centred at the middle has a larger B, and its sums up to twice as much noise.
    * Not at the end of the range: the slope of μ falls to 0 there. The level is half an se above the mean, and two se
      above the end at least.
    * With ``early``, first when se is at most that, if the mean is below the middle by 0.2 and two se: as long as
      records are centred far from where rewards are, what is learned of arms is wrong. Again, at the latest when the
      level is settled, if the rate is below three quarters of what was taken for it. With a prior there is no such
      move: first rounds are then not played at random, and a wrong prior would be taken for a low level. With ``sure``
      a low level is settled later: by chance it may be several se off, and twice the rate taken for good is costly.
    * No oftener: records that were formed at one level are biased at another, by (c₀ − c₀′)·Σψx. That sum is not known.
      Where arms have no mean in common, earlier records are carried along, in H with about the weight that they would
      have now, W/W₀ times theirs. Where b says that they have one (:func:`lopsided`), as for fixed arms, records are
      counted from there on: an arm that was played in early rounds alone would look far worse than it is. After rounds
      at random b may also be as long as θ makes it.

    * With ``until``, numbers cost records: they come in messages of their own, in place of a record
      (:class:`Asked`). So little is asked. Where se is at most 0.2, the level is settled at the middle as soon as the
      mean plus se is above the border, 0.2 below the middle, and moves as soon as the mean plus 1.5 se is below it; a
      level of twice the rate costs little. Then it moves once more when it is settled, if the rate is below half of
      what was taken for it. After so many rounds it is settled in any case.

    At another level W and B are others. Records are summed in units of the first ones, w·W₀/W and g·B₀/B, and taken
    back to their own after a release: sensitivity and noise of the sums are what they were.

    Attributes
    ----------
    link : Link
    theta_bound : float
    reward_range : (float, float)
    clip : float, optional
        B, at every level.
    learned : bool
        Whether the level is; else it stays 0.
    early : float
        How well the mean must be known for a first move, in units of the range; 0 for none.
    until : int, optional
        The number of rounds after which nobody is asked for numbers, where they come in place of records.
    sure : float
        How well the mean must be known for the level to be settled, where it is below the middle by 0.2.
    """

    link: Link
    theta_bound: float
    reward_range: tuple[float, float]
    clip: float | None
    learned: bool
    early: float = 0.0
    until: int | None = None
    sure: float = _SETTLED

    @classmethod
    def of(
        cls,
        policy: _Centred,
        clip: float | None,
        *,
        able: bool = True,
        early: bool = False,
        sure: bool = False,
        until: int | None = None,
    ) -> Levels:
        """Those of a policy. It learns the level if it is ``able`` to, there are releases, and nothing was stated."""
        learned = begins_in_the_middle(policy) and able and len(policy.schedule.ends) > 0
        stated = None if clip is None else positive("clip", clip)
        known = policy.link, policy.theta_bound, finite_rewards(policy.reward_range), stated, learned
        return cls(*known, _EARLY if early else 0.0, until, _SURE if sure else _SETTLED)

    @property
    def base(self) -> SecantRecord:
        """The record at o = 0."""
        return self.at(0.0).record

    @property
    def share(self) -> float:
        """Of the squared sensitivity of a record, what goes to the level."""
        return _LEVEL_SHARE if self.learned else 0.0

    @property
    def least(self) -> float:
        """m for the records of every level, in units of the sums: see :class:`SecantRecord`."""
        return min(self.base.least, _FLATTEST_LEVEL * self.base.W / 2.0) if self.learned else self.base.least

    def gradient_share(self, given: float | None, dim: int) -> float:
        """The share that was given, or one for which b and Hθ are known about equally well, from 0.65 to 0.8.

        The variance σ_b² + ½(1 + 1/d)·0.7·σ_H²‖θ‖² of ``noisy_estimate.errors`` is, by
        :func:`~dpkit.moments.pairs.pair_scales`, in proportion to (2B)²/share + 0.7(1 + 1/d)(WS)²/(1 − share), and
        least where share/(1 − share) is the ratio of these roots. By measurement 0.65 is best also where that is less
        (H decides where to look, too); and so is 0.8 where it is more.
        """
        if given is not None:
            return fraction("gradient_share", given)
        gradients = 2.0 * self.base.B
        matrices = math.sqrt(0.7 * (1.0 + 1.0 / dim)) * self.base.W * self.theta_bound
        return min(max(gradients / (gradients + matrices), 0.65), 0.8)

    def at(self, o: float) -> Level:
        """The level o."""
        return _level(self, o)

    def deviation(self, reward: float) -> float:
        """(r − middle)/(high − low), within ±½."""
        low, high = self.reward_range
        return min(max(-0.5, (reward - low) / (high - low) - 0.5), 0.5)

    def deviations(self, rewards: Array) -> Array:
        """The same for many rewards."""
        return deviations(rewards, self.reward_range)

    def low(self, total: float, noise: float, rounds: float, by: float = 0.0) -> bool:
        """Whether the mean seems to be below the middle by 0.2 and ``by`` standard errors, and is not known well.

        Rounds at random by mistake cost next to nothing as long as little is known. Where the mean is known well and
        the level has not moved, it is next to the border, and a record that is centred at the middle does no harm.
        Other arguments as of :meth:`moved`.
        """
        if rounds == 0:
            return False
        mean, se = _mean(total, noise, rounds)
        return mean + by * se <= -_FAR and se >= _KNOWN

    def moved(self, last: float, total: float, noise: float, rounds: float) -> tuple[float, bool]:
        """The level that follows the ``last`` one after so many rounds with a number, and whether it is settled.

        ``total`` is the noisy sum of deviations, and ``noise`` the standard deviation of that noise.
        """
        if rounds == 0:
            return last, False
        low, high = self.reward_range
        mean, se = _mean(total, noise, rounds)
        below = -mean - _FAR
        settled = se <= (self.sure if below >= 0.0 else _SETTLED)
        lower = _LOWER if self.until is None else _HALF
        if self.until is None or last or se > _SOON:
            moves = below >= 0.0 and (settled or (se <= self.early and below >= 2.0 * se))
        else:
            moves = below >= (0.0 if settled else _SURELY * se)
            settled = settled or below <= -se
        if not moves:
            return last, settled
        share = _share(mean, se)
        rate = low + share * (high - low)
        # a link that does not take this value has no such level
        if not self.link.reaches(rate):
            return last, settled
        if last and share > lower * (float(self.link.mean(last)) - low) / (high - low):
            return last, settled
        return self.link.inverse(rate), settled


def deviations(rewards: Array, reward_range: tuple[float, float]) -> Array:
    """(r − middle)/(high − low), within ±½ whatever rewards are."""
    low, high = reward_range
    return np.clip((rewards - low) / (high - low) - 0.5, -0.5, 0.5)


def _mean(total: float, noise: float, rounds: float) -> tuple[float, float]:
    """The mean of so many deviations, and its standard error."""
    mean = min(max(-0.5, total / rounds), 0.5)
    return mean, math.hypot(noise / rounds, math.sqrt(max(0.25 - mean**2, _CHANCE) / rounds))


def _share(mean: float, se: float) -> float:
    """Where in the range the level is taken to be."""
    return max(0.5 + mean + _ABOVE * se, 2.0 * se)


def known_after(ends: Sequence[int], noise: float, horizon: int) -> int | None:
    """The first end of a batch at which noise leaves the mean known to ±0.05; None if that is not in the first T/5.

    Examples
    --------
    >>> known_after([20, 42, 66, 93], noise=3.0, horizon=1000), known_after([20, 42, 66, 93], noise=9.0, horizon=1000)
    (66, None)
    """
    for end in ends:
        if end > horizon / 5:
            break
        if noise <= _ONCE * end:
            return end
    return None


def level_of(link: Link, reward_range: tuple[float, float], total: float, noise: float, rounds: int) -> float:
    """The level by a noisy sum of deviations over so many rounds; 0 unless it is below the middle by 0.2 at least."""
    low, high = reward_range
    mean, se = _mean(total, noise, rounds)
    rate = low + _share(mean, se) * (high - low)
    # a link that does not take this value has no such level
    return link.inverse(rate) if -mean >= _FAR and link.reaches(rate) else 0.0


@dataclass(frozen=True)
class Asked:
    """Which rounds are asked for a number in place of their record, while the level is not settled.

    By their number and the level, which are public: every second one of the first batch, until they are enough for an
    se of 0.15; then one in four of the first T/5, and one in eight when the level has moved.

    Attributes
    ----------
    first : int
        Rounds in the first batch.
    enough : int
    until : int
        T/5.
    """

    first: int
    enough: int
    until: int

    @classmethod
    def of(cls, first: int, noise: float, horizon: int) -> Asked:
        """``noise`` is that of a number of ±½."""
        return cls(first, math.ceil((noise**2 + 0.25) / _ENOUGH**2), horizon // 5)

    def __call__(self, round: int, level: float) -> bool:
        if round < self.first:
            return round % 2 == 1 and round < 2 * self.enough
        every = 8 if level else 4
        return round < self.until and round % every == every - 1


@lru_cache(maxsize=256)
def _level(levels: Levels, o: float) -> Level:
    known = levels.theta_bound, levels.reward_range, levels.clip
    if o == 0.0:
        return Level(SecantRecord.of(levels.link, *known), (1.0, 1.0))
    base, record = levels.base, SecantRecord.of(levels.link.shifted(o), *known, flattest=_FLATTEST_LEVEL)
    return Level(record, (record.W / base.W, record.B / base.B))


def lopsided(b: Array, noise: float, chance: float, signal: float | None = None) -> bool:
    """Whether the chosen arms of all rounds so far seem to have a mean far from 0, beside the noise of b.

    Rewards far below c₀ make b about −(c₀ − mean)·Σψx. Without such a mean it has d·σ_b² of squared length on average,
    and what the ``chance`` of rewards adds. Where arms were chosen at random, a ``signal`` is given: the square of that
    is what θ adds at most, of which half is allowed for. Then noise and chance are alike in all directions, so that the
    square is about χ² with d degrees of freedom, times a d-th of its average.
    """
    square, usual = float(b @ b), len(b) * noise**2 + chance
    if signal is None:
        return square > _LOPSIDED * usual
    from scipy.special import chdtri

    return square > float(chdtri(len(b), _UNLIKELY)) / len(b) * usual + 0.5 * signal**2


def checked_slope(W: float) -> float:
    """The largest slope of a link, whoever's it is, if it is one that can be computed with."""
    if not _FLATTEST <= W <= _STEEPEST:  # also true for NaN
        raise ValueError(
            f"link must have a largest slope from {_FLATTEST:g} to {_STEEPEST:g} within theta_bound, got {W:g}: state "
            "another base_rate or a smaller theta_bound, or look at the link"
        )
    return W


def typical_deviation(link: Link, theta_bound: float) -> float:
    """How far a count is from μ(0), typically: the root mean square, over e uniform in [−S, S].

    For rewards in [0, ∞) of variance μ̇(e), that of Poisson counts; infinite for other links. The range to which such
    rewards are cut is far above nearly all of them, and noise in proportion to it would drown what clipping saves: what
    is cut off at B ≈ 1 standard deviation costs less than noise for B ≈ 3. It depends on nothing but μ and S.
    """
    if math.isfinite(link.reward_range[1]) or math.isinf(link.reward_range[0]):
        return math.inf
    e = np.linspace(-theta_bound, theta_bound, 2001)
    squares = (link.mean(e) - link.mean(0.0)) ** 2 + link.derivative(e)
    return math.sqrt(float(np.mean(squares)))


class _Clipped(Protocol):
    """A policy with records whose g is cut at ``clip``."""

    link: Link
    clip: float
    reward_range: tuple[float, float]


def never_cut(policy: _Clipped) -> float | None:
    """0, where no reward of the range is cut; None where some may be."""
    centre, (low, high) = float(policy.link.mean(0.0)), policy.reward_range
    return 0.0 if policy.clip >= max(high - centre, centre - low) else None


class _Centred(Protocol):
    """A policy with a base rate, which its caller may have stated."""

    link: Link
    theta_bound: float
    schedule: Schedule
    stated_base_rate: float | None
    base_rate: float
    reward_range: tuple[float, float]


def begins_in_the_middle(policy: _Centred) -> bool:
    """Whether no base rate was stated, and the default is the middle of the range: a level is learned from there."""
    low, high = policy.reward_range
    middle = math.isclose(policy.base_rate, 0.5 * low + 0.5 * high, abs_tol=1e-9 * (high - low))
    return policy.stated_base_rate is None and middle

"""The level of rewards: where none is stated it is learned in the first rounds, from one more number of each.

``theta_bound`` bounds by how much arms differ, and not how rare rewards are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from accounting.arrays import Array
from dpbandits.private.parts.records import SecantRecord
from dpkit.models.links import Link

__all__ = ["Level", "Levels", "begins_in_the_middle", "lopsided", "with_level"]

# s_min over W at least, at every level but the first: the sensitivity grows as this falls below ½
_FLATTEST_LEVEL = 0.5
# of the squared sensitivity of a record, what goes to the level while that is learned; it adds 1 % to all noise
_LEVEL_SHARE = 0.1
# in units of the range: how well the level must be known, and from where on it is far from the middle
_SETTLED, _FAR = 0.04, 0.2
# the same for a first move, which is clear by two se, and how much lower a rate is worth another one
_COARSE, _LOWER = 0.07, 0.75
# by how many se it is taken to be above the mean: a level of a third of the rate costs twice as much as one of thrice
_ABOVE = 0.5
# of the least chance of a reward
_CHANCE = 0.05
# b is longer than noise and chance make it if its square is so many times what they give it on average
_LOPSIDED = 2.0


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
    and chance. As soon as se is at most 0.04 the level is settled, and no round is asked for it any more: if the mean
    is below the middle by 0.2 at least, records to come are centred at it, as at a base rate, and else at the middle.

    * Below only: whoever plays well gets more than a random arm would, so that a mean above the middle says nothing.
    * Clearly only: a record that is not centred at the middle has a larger B, and its sums up to twice as much noise.
    * Not at the end of the range: the slope of μ falls to 0 there. The level is half an se above the mean, and two se
      above the end at least.
    * Once: records that were formed at one level are biased at another, by (c₀ − c₀′)·Σψx. That sum is not known. Where
      arms have no mean in common, earlier records are carried along, in H with about the weight that they would have
      now, W/W₀ times theirs. Where b says that they have one (``private.parts.one_pass``), as for fixed arms, records
      are counted from there on: an arm that was played in early rounds alone would look far worse than it is.

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
    """

    link: Link
    theta_bound: float
    reward_range: tuple[float, float]
    clip: float | None
    learned: bool

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

    def at(self, o: float) -> Level:
        """The level o."""
        return _level(self, o)

    def deviation(self, reward: float) -> float:
        """(r − middle)/(high − low), within ±½."""
        low, high = self.reward_range
        return min(max(-0.5, (reward - low) / (high - low) - 0.5), 0.5)

    def deviations(self, rewards: Array) -> Array:
        """The same for many rewards."""
        low, high = self.reward_range
        return np.clip((rewards - low) / (high - low) - 0.5, -0.5, 0.5)

    def moved(self, last: float, total: float, noise: float, rounds: float) -> tuple[float, bool]:
        """The level that follows the ``last`` one after so many rounds, and whether it is settled.

        ``total`` is the noisy sum of deviations, and ``noise`` the standard deviation of that noise.
        """
        low, high = self.reward_range
        mean = min(max(-0.5, total / rounds), 0.5)
        se = math.hypot(noise / rounds, math.sqrt(max(0.25 - mean**2, _CHANCE) / rounds))
        settled = se <= _SETTLED
        if -mean < _FAR or not (settled or (se <= _COARSE and -mean - 2.0 * se >= _FAR)):
            return last, settled
        share = max(0.5 + mean + _ABOVE * se, 2.0 * se)
        rate = low + share * (high - low)
        # a link that does not take this value has no such level
        if not self.link.reaches(rate):
            return last, settled
        if last and share > _LOWER * (float(self.link.mean(last)) - low) / (high - low):
            return last, settled
        return self.link.inverse(rate), settled


@lru_cache(maxsize=256)
def _level(levels: Levels, o: float) -> Level:
    known = levels.theta_bound, levels.reward_range, levels.clip
    if o == 0.0:
        return Level(SecantRecord.of(levels.link, *known), (1.0, 1.0))
    base, record = levels.base, SecantRecord.of(levels.link.shifted(o), *known, flattest=_FLATTEST_LEVEL)
    return Level(record, (record.W / base.W, record.B / base.B))


def lopsided(b: Array, noise: float, chance: float) -> bool:
    """Whether the chosen arms of all rounds so far seem to have a mean far from 0, beside the noise of b.

    Rewards far below c₀ make b about −(c₀ − mean)·Σψx. Without such a mean it has d·σ_b² of squared length on average,
    and what the ``chance`` of rewards adds.
    """
    return float(b @ b) > _LOPSIDED * (len(b) * noise**2 + chance)


def with_level(saved: Any, **level: Any) -> Any:
    """What was ``saved``, with these entries of the public half: states of before levels were learned have none."""
    if not (isinstance(saved, Mapping) and isinstance(saved.get("public"), Mapping)):
        return saved
    return {**saved, "public": level | dict(saved["public"])}


class _Centred(Protocol):
    """A policy with a base rate, which its caller may have stated."""

    stated_base_rate: float | None
    base_rate: float
    reward_range: tuple[float, float]


def begins_in_the_middle(policy: _Centred) -> bool:
    """Whether no base rate was stated, and the default is the middle of the range: a level is learned from there."""
    low, high = policy.reward_range
    middle = math.isclose(policy.base_rate, 0.5 * low + 0.5 * high, abs_tol=1e-9 * (high - low))
    return policy.stated_base_rate is None and middle

"""The level of rewards, learned: where records are centred, and in which units they are summed.

A policy that is told no base rate begins at the middle of the range of rewards. Of its first rounds, which play about
at random, it sums (r − middle)/(high − low), too. After a release that says their mean to ± se, se by noise and chance.
Where the mean is below the middle by 0.2 and by 2.5·se at least, records to come are centred at it, as at a base rate;
and as soon as se is at most 0.05 the level is settled, and no round is asked for it any more.

* Below only: whoever plays well gets more than a random arm would, so that a mean above the middle says nothing.
* Clearly only: a record that is not centred at the middle has a larger B, and its sums up to twice as much noise.
* No nearer to the end of the range than se: the slope of μ falls to 0 there.

At another level W and B are others. Records are summed in units of the first ones, w·W₀/W and g·B₀/B, and taken back
to their own after a release: sensitivity and noise of the sums are what they were. Earlier records are carried along:
in H with about the weight that they would have now, W/W₀ times theirs; in b as they are. (Σψx, by which b would have to
move, is not known. To leave them out costs more: the rounds, and a fifth more noise where a run is young.)

All of it is a function of what was released.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from accounting.arrays import Array
from dpbandits.private.parts.records import SecantRecord
from dpkit.models.links import Link

__all__ = ["Level", "Levels", "reach", "with_level"]

# s_min over W at least, at every level but the first: the sensitivity grows as this falls below ½
_FLATTEST = 0.5
# in units of the range: how well the level must be known, from where on it is far from the middle (also in se), and how
# far it is from the ends at least
_SETTLED, _FAR, _SURE, _LEAST = 0.05, 0.2, 2.5, 0.01
# of the least chance of a reward
_CHANCE = 0.05
# by how much of the range the mean reward of half the reach is away from the ends
_ENDS = 0.02


def reach(link: Link, low: float, high: float) -> float:
    """A standard deviation for a level that may be anywhere: a quarter of the link's scale from ``low`` to ``high``.

    Not quite from ``low`` to ``high``, where many links are at infinity.

    Examples
    --------
    >>> from dpkit.models import get_link
    >>> round(reach(get_link("logistic"), 0.0, 1.0), 2), round(reach(get_link("linear"), 0.0, 1.0), 2)
    (1.95, 0.24)
    """
    margin = _ENDS * (high - low)
    ends = [value for value in (low + margin, high - margin) if link.reaches(value)]
    if not ends:
        return 1.0
    # where only one end can be reached, as far on the other side of the base rate
    farthest = [link.inverse(value) for value in ends]
    return 0.25 * (farthest[-1] - farthest[0] if len(ends) > 1 else 2.0 * abs(farthest[0])) or 1.0


def with_level(saved: Any, **level: Any) -> Any:
    """What was ``saved``, with these entries of the public half: states of before levels were learned have none."""
    if not (isinstance(saved, Mapping) and isinstance(saved.get("public"), Mapping)):
        return saved
    return {**saved, "public": level | dict(saved["public"])}


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


@dataclass(frozen=True)
class Levels:
    """What follows from a level o, by which the link is shifted; at 0 it is that of the base rate.

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
    def least(self) -> float:
        """m for the records of every level, in units of the sums: see :class:`SecantRecord`."""
        return min(self.base.least, _FLATTEST * self.base.W / 2.0) if self.learned else self.base.least

    def at(self, o: float) -> Level:
        """The level o."""
        return _level(self, o)

    def deviation(self, reward: float) -> float:
        """(r − middle)/(high − low), within ±½."""
        low, high = self.reward_range
        return min(max(-0.5, (reward - low) / (high - low) - 0.5), 0.5)

    def moved(self, total: float, noise: float, rounds: int) -> tuple[float, bool]:
        """The level after so many rounds, whose deviations have this noisy sum, and whether it is settled."""
        low, high = self.reward_range
        mean = min(max(-0.5, total / rounds), 0.5)
        se = math.hypot(noise / rounds, math.sqrt(max(0.25 - mean**2, _CHANCE) / rounds))
        settled = se <= _SETTLED
        if -mean < max(_FAR, _SURE * se):
            return 0.0, settled
        rate = low + max(0.5 + mean, _LEAST, min(se, 0.5 - _FAR)) * (high - low)
        # a link that does not take this value has no such level
        return (self.link.inverse(rate) if self.link.reaches(rate) else 0.0), settled


@lru_cache(maxsize=256)
def _level(levels: Levels, o: float) -> Level:
    known = levels.theta_bound, levels.reward_range, levels.clip
    if o == 0.0:
        return Level(SecantRecord.of(levels.link, *known), (1.0, 1.0))
    base, record = levels.base, SecantRecord.of(levels.link.shifted(o), *known, flattest=_FLATTEST)
    return Level(record, (record.W / base.W, record.B / base.B))

"""The level of rewards, learned: where records are centred, and in which units they are summed.

A policy that is told no base rate begins at the middle of the range of rewards. Beside its records it sums (r − middle),
over the range, of its first rounds, which play about at random; after a release the mean of these rewards is known to
± se, by the noise and by chance, and as soon as se is at most a twentieth of the range the level is settled: at the
mean reward, where that is clearly far from the middle, and else at the middle, since rewards that are not centred
at it need a larger B, and with it more noise. From then on no round is asked for it any more.

Records at another level have other bounds W and B. They are summed in those of the first one, w·W₀/W and g·B₀/B, and
taken back to their own after a release: sensitivity and noise of the sums are what they were.

All of it is a function of what was released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

from accounting.arrays import Array
from dpbandits.private.parts.records import SecantRecord
from dpkit.models.links import Link

__all__ = ["Level", "Levels"]

# s_min over W at least, at every level: records of all levels have the same bounds, and the sensitivity grows as this
# falls below ½
_FLATTEST = 0.5
# in units of the range: how well the level must be known, from where on it is far from the middle, and what it is at
# least away from both ends
_SETTLED, _FAR, _LEAST = 0.05, 0.2, 0.01
_SURE = 2.5


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
    """What follows from a level o, by which the link is shifted; 0 is the base rate.

    Attributes
    ----------
    link : Link
    theta_bound : float
    reward_range : (float, float)
    clip : float, optional
        B, at every level.
    learned : bool
        Whether the level is; else it is 0.
    """

    link: Link
    theta_bound: float
    reward_range: tuple[float, float]
    clip: float | None
    learned: bool

    @cached_property
    def base(self) -> SecantRecord:
        """The record at o = 0."""
        return SecantRecord.of(self.link, self.theta_bound, self.reward_range, self.clip)

    @property
    def least(self) -> float:
        """Of records of every level, as they are summed."""
        return min(self.base.least, 0.5 * _FLATTEST * self.base.W) if self.learned else self.base.least

    def at(self, o: float) -> Level:
        """The level o."""
        return _level(self, o)

    def deviation(self, reward: float) -> float:
        """(r − middle)/range, within ±½."""
        low, high = self.reward_range
        return min(max(-0.5, (reward - low) / (high - low) - 0.5), 0.5)

    def moved(self, total: float, noise: float, rounds: int) -> tuple[float, bool]:
        """The next level, and whether it is settled, after so many rounds, whose deviations have this sum."""
        low, high = self.reward_range
        mean = min(max(-0.5, total / rounds), 0.5)
        se = math.hypot(noise / rounds, math.sqrt(max(0.25 - mean**2, 0.05) / rounds))
        if -mean < max(_FAR, _SURE * se):
            return 0.0, se <= _SETTLED
        # no nearer to an end of the range than it is known
        away = max(_LEAST, min(se, 0.5 - _FAR))
        share = min(max(0.5 + mean, away), 1.0 - away)
        return self.link.inverse(low + share * (high - low)), se <= _SETTLED


@lru_cache(maxsize=256)
def _level(levels: Levels, o: float) -> Level:
    base = levels.base
    if o == 0.0:
        return Level(base, (1.0, 1.0))
    record = SecantRecord.of(
        levels.link.shifted(o), levels.theta_bound, levels.reward_range, levels.clip, max(0.2, _FLATTEST)
    )
    return Level(record, (record.W / base.W, record.B / base.B))

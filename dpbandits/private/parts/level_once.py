"""The level of rewards, released once: for policies whose optimizers read all rounds again when they estimate anew.

What such a policy keeps of a round is not formed at a level, so that nothing is lost when it moves: the next estimate
is made at the level, of all rounds. It is the middle of the range of rewards (0 on the link's scale), unless rewards
are far below: after so many rounds that noise leaves their mean known to ±0.05 of the range, the sum of
(r − middle)/(high − low) is released, rewards that have not come counting for 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from accounting.arrays import Array
from dpkit.models.links import Link

__all__ = ["LEVEL_SHARE", "deviations", "due", "level_of", "number_sensitivity"]

# of μ²: 1 % more of all other noise
LEVEL_SHARE = 0.02
# in units of the range: how well the mean must be known, and from where on it is far from the middle
_KNOWN, _FAR = 0.05, 0.2
# by how many se the level is taken to be above the mean, and the least chance of a reward
_ABOVE, _CHANCE = 0.5, 0.05


def number_sensitivity(adjacency: str) -> float:
    """How far one round moves the sum."""
    return 0.5 if adjacency == "zero_out" else 1.0


def deviations(rewards: Array, reward_range: tuple[float, float]) -> Array:
    """(r − middle)/(high − low), within ±½ whatever rewards are."""
    low, high = reward_range
    return np.clip((rewards - low) / (high - low) - 0.5, -0.5, 0.5)


def due(ends: Sequence[int], noise: float, horizon: int) -> int | None:
    """After how many rounds the level is released, at the end of a batch; None if noise is too large in the first T/5.

    Examples
    --------
    >>> due([20, 42, 66, 93], noise=3.0, horizon=1000), due([20, 42, 66, 93], noise=9.0, horizon=1000)
    (66, None)
    """
    for end in ends:
        if end > horizon / 5:
            break
        if noise <= _KNOWN * end:
            return end
    return None


def level_of(link: Link, reward_range: tuple[float, float], total: float, noise: float, rounds: int) -> float:
    """The level that a noisy sum over so many rounds tells, on the link's scale; ``noise`` is its standard deviation.

    Half a standard error above the mean, and two above the end of the range at least: a level of a third of the rate
    costs more than one of thrice. What is above the middle tells nothing: good arms pay more than the average one.
    """
    low, high = reward_range
    mean = min(max(-0.5, total / rounds), 0.5)
    se = math.hypot(noise / rounds, math.sqrt(max(0.25 - mean**2, _CHANCE) / rounds))
    rate = low + max(0.5 + mean + _ABOVE * se, 2.0 * se) * (high - low)
    # a link that does not take this value has no such level
    return link.inverse(rate) if -mean >= _FAR and link.reaches(rate) else 0.0

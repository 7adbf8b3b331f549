"""Sieving arms stage by stage, so that within a stage rewards say nothing about which arms were played.

Bounds by fixed weights (truncated sums, medians of groups) hold for arms that do not depend on the noise. Auer's sieve
("Using Confidence Bounds for Exploitation-Exploration Trade-offs", JMLR 2002) brings that about: stage s has arms
played because their width is above 2^{−s}, which the arms alone decide, and rewards of stage s are used there only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count

import numpy as np

from accounting.arrays import Array

__all__ = ["EXPLOITS", "sieved", "stages"]

# the stage of a round whose reward is not used
EXPLOITS = 0


def stages(horizon: int) -> int:
    """So many stages that the last width, 2^{−s}, is at most 1/√T. (Published: ⌊ln T⌋, of which no more are reached.)

    Examples
    --------
    >>> stages(18_000), math.floor(math.log(18_000))
    (8, 9)
    """
    return max(math.ceil(0.5 * math.log2(horizon)), 1)


def sieved(estimates: Callable[[int], tuple[Array, Array]], arms: int, horizon: int) -> tuple[Array, int]:
    """What to maximise, and the stage that the reward belongs to.

    Parameters
    ----------
    estimates : callable
        From a stage to (r̂, w), each of shape (arms,): estimates of the means of all arms, and their widths.
    arms, horizon : int
        K and T.

    Examples
    --------
    >>> means, widths = np.array([0.9, 0.1, 0.8]), np.array([0.3, 0.4, 0.1])
    >>> scores, stage = sieved(lambda s: (means, widths / s**2), arms=3, horizon=100)
    >>> int(scores.argmax()), stage
    (0, 0)
    """
    left = np.ones(arms, dtype=np.bool_)
    # ends at the latest in stage ``stages(horizon)``, where 2^{−s} is at most 1/√T
    for stage in count(1):
        means, widths = estimates(stage)
        upper = means + widths
        if (widths[left] <= 1.0 / math.sqrt(horizon)).all():
            return np.where(left, upper, upper[left].min() - 1.0), EXPLOITS
        wide = left & (widths > 2.0**-stage)
        if wide.any():
            return wide.astype(np.float64), stage  # the first of them
        left &= upper >= upper[left].max() - 2.0 ** (1 - stage)
    raise AssertionError("unreachable")

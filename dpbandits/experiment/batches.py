"""After how many decisions an arm's batches end: few where noise is large, many where looking costs little.

A batch costs a test about as much as 2b²/v decisions do, for noise of variance 2b² and values of variance v, and half
its length until it is released. Of batches of c·√N decisions after N, which are 2√N/c, both together are least for
c² = 8b²/v, whatever N will be: a share √(8b²/v)/√N of all decisions. b = 1, v = 0.09, N = 7,500: 11 %.
"""

from __future__ import annotations

import math

__all__ = ["batch_ends"]

# c over the noise's standard deviation, and the first batch over it: by simulation, on seeds 1 and 2
_GROWTH, _FIRST = 3.5, 11.3
# decisions of a batch at least; and a share of all decisions of the arm so far, so that batches are some hundreds
_FEWEST, _SHARE = 8, 1 / 40
# the first batch is at most such a share of an arm's part of all decisions
_LATEST = 8


def batch_ends(horizon: int, arms: int, noise: float) -> list[int]:
    """Ends of batches, in decisions for one arm, up to the horizon (the last one is at least there).

    Parameters
    ----------
    horizon, arms : int
        T, K.
    noise : float
        The standard deviation of the noise of a sum, in lengths of the range of values.

    Examples
    --------
    >>> from dpbandits.experiment.batches import batch_ends
    >>> batch_ends(1000, 2, 1.4)
    [16, 36, 65, 105, 155, 216, 288, 371, 465, 571, 688, 817, 957, 1109]
    """
    first = min(max(_FEWEST, round(_FIRST * noise)), max(1, horizon // (_LATEST * arms)))
    ends = [first]
    while ends[-1] < horizon:
        so_far = ends[-1]
        ends.append(so_far + max(first, round(_GROWTH * noise * math.sqrt(so_far)), int(_SHARE * so_far)))
    return ends

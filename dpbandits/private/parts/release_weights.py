"""How much the noise of each release costs a bandit, as a function of public numbers.

A release after t rounds is played for the L rounds of the batch after it. Its noise σ moves θ by σ/t, for which a round
pays in proportion to σ²/t², up to what a random choice costs. As long as there is more noise than signal that is what
it pays, and a little less noise does not matter. So the weights of variances should be about L/max(t, t₀)². Measured
regrets fall less steeply (chance of rewards, looking around, records formed at earlier releases). Of what was tried on
ten workloads, one of the best is

    w = L/max(c_t, 5)^{3/2},

c_t the signal over the noise after t rounds (``private.parts.cold_start``) where noise is that of a single release.
Exponents from 5/4 to 2 and bounds from 5 to 8 are within one or two hundredths of the regret of that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accounting.arrays import Array

__all__ = ["release_weights"]

_CLEAR, _EXPONENT = 5.0, 1.5
# as good as without noise; powers of it are numbers
_FAR = 1e100


def release_weights(ends: Sequence[int], signal: float) -> Array:
    """The weights of the variances of releases, for ``dpkit.continual.Weighted``.

    Parameters
    ----------
    ends : sequence of int
        After how many rounds there are releases; at least one.
    signal : float
        c_1, at least 0.

    Examples
    --------
    >>> release_weights([100, 200, 400, 800], 0.0125).round(2).tolist()
    [8.94, 17.89, 35.78, 12.65]
    """
    t = np.array(ends, dtype=np.float64)
    # the last batch is about as long as the one before it
    lengths = np.append(np.diff(t), t[-1] - (t[-2] if len(t) > 1 else 0.0))
    return np.asarray(lengths / np.clip(t * signal, _CLEAR, _FAR) ** _EXPONENT)

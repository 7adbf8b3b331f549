"""The report that a device sends of one number, in place of the number: one of a few levels, at random.

The geometric mechanism of Ghosh, Roughgarden & Sundararajan (2012), "Universally utility-maximizing privacy
mechanisms", cut to its range. A number x in [0, 1] is rounded at random to one of the levels 0, 1/k, …, 1, up with the
probability of its fraction; to the level's number i discrete Laplace noise of scale k/ε is added, and the sum is cut to
0, …, k. With two levels this is Warner's (1965) randomized response to a bit that is 1 with probability x.

Privacy. Unit: one number, replaced by any other. Levels are at most k apart, and cutting is post-processing: the report
is ε-DP by itself, with exact noise.

What a report stands for is chosen so that it is right on average whatever x is. Beyond the spread of x itself it then
has this standard deviation, for x at an end of [0, 1] | the largest for any x; the last column is Laplace noise without
a cut:

=====  ===========  ===========  ===========  =======
ε      two levels   three        nine         Laplace
=====  ===========  ===========  ===========  =======
1      0.96 | 1.08  1.06 | 1.12  1.13 | 1.16  1.41
4      0.14 | 0.52  0.22 | 0.36  0.29 | 0.34  0.35
8      0.02 | 0.50  0.07 | 0.26  0.14 | 0.18  0.18
=====  ===========  ===========  ===========  =======

Two levels have the least noise for numbers that are 0 or 1, at every ε; more of them are for numbers between, where ε
is large.
"""

from __future__ import annotations

import math

import numpy as np

from accounting.arrays import Array
from accounting.checks import integer, positive
from dpkit import randomness
from dpkit.samplers import discrete_laplace

__all__ = ["Reports"]

# the table of chances is solved for the values of reports
_MOST_LEVELS = 64
# scales are rounded up
_UP = 1.0 + 2.0**-50


class Reports:
    """Randomized reports of numbers in [0, 1].

    Parameters
    ----------
    epsilon : float
        ε of one report.
    levels : int
        k + 1, from 2 to 64.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.

    Attributes
    ----------
    chances : (k + 1, k + 1) ndarray
        Of each report, in columns, for each level.
    values : (k + 1,) ndarray
        What each report counts for: on average x − ½.
    noise : float
        The standard deviation of what a report of 0 or 1 counts for.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.moments.reports import Reports
    >>> reports = Reports(1.0, rng=np.random.default_rng(0))
    >>> sent = [reports.draw(0.25) for _ in range(4000)]
    >>> reports.values.round(2).tolist(), bool(abs(reports.values[sent].mean() + 0.25) < 0.1)
    ([-1.08, 1.08], True)
    """

    def __init__(self, epsilon: float, levels: int = 2, *, rng: np.random.Generator | None = None) -> None:
        k = integer("levels", levels, at_least=2) - 1
        if k >= _MOST_LEVELS:
            raise ValueError(f"levels must be at most {_MOST_LEVELS}, got levels={levels!r}")
        self._scale, self._steps = k / positive("epsilon", epsilon) * _UP, k
        self._rng = randomness.resolve(rng)
        level = np.arange(k + 1)
        q = math.exp(-1.0 / self._scale)
        # P(report | level): of an end, all beyond it
        inner = np.where((level == 0) | (level == k), 1.0, 1.0 - q)
        self.chances: Array = inner * q ** np.abs(level - level[:, None]) / (1.0 + q)
        self.values: Array = np.linalg.solve(self.chances, level / k - 0.5)
        self.noise = math.sqrt(float(self.chances[0] @ (self.values + 0.5) ** 2))

    def draw(self, x: float) -> int:
        """One report: all that leaves a device. ``x`` is in [0, 1], and cut to it."""
        place = min(max(x, 0.0), 1.0) * self._steps
        level = math.floor(place)
        level += float(self._rng.random()) < place - level
        return min(max(level + int(discrete_laplace(self._scale, rng=self._rng)), 0), self._steps)

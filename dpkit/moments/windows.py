"""A range for records of an unknown scale, learned from a first few of them at no cost to what comes after.

For a stream of numbers r of which nobody can say beforehand how large they are: revenue in an unknown currency, times
in an unknown unit. The first records, of a public number of rounds, are used for nothing but this. Every other one says
where records end above, the rest where they end below: the exponential mechanism takes one of 323 cells,

    {0},   ±(2^((j − 1)/2), 2^(j/2)],   j = −80, …, 80

(the innermost reach to 0, the outermost to infinity), of the score −|κ − N|, N the nearest to κ of the counts that the
records in and beyond the cell allow: the cell with the κ-th record from the end has the score 0. The outer edges of the
two cells are the range.

κ = 22/ε′ records from the end, ε′ what the mechanism costs, are enough that no far cell wins by noise: each of the 160
cells beyond the data is by e^(−ε′κ/2) = e^(−11) less likely than the right one. A sixth of the records is beyond each
edge then, if there are as many as :attr:`RecordWindow.rounds` says. An edge that is too far out costs noise; one that
is too near cuts records, which then say which side they are on.

Privacy
-------
Adjacency: one record replaced, or missing. A record that does not come counts as 0, so that a round always has one
number. Replaced, it moves each N(> cell) and N(≥ cell) by at most 1, all in one direction, so every score by at most 1.
Each round is asked for one end only, by whether its number is odd: it touches one mechanism of cost ε′.

ε′ is such that this is no easier to tell than what comes after, whose ``cost`` is one Gaussian or Laplace mechanism
with the trade-off function f (of error probabilities: Dong, Roth & Su 2022). If rounds of the first batch touch nothing
else, and later rounds not this one, all together cost what comes after, and nothing more: a round of the first batch
meets this mechanism, and everything else is post-processing of it; a later round meets the other, whose trade-off
function is f whatever the range is that was released before.

* Gaussian(z): the exponential mechanism has the bounded range ε′, and is (1/z)-GDP (``accounting.gdp``).
* Laplace(z): permute-and-flip is ε′-DP. The trade-off function of the worst ε′-DP mechanism is two lines, from (0, 1)
  to (a, a) and on to (1, 0), a = 1/(1 + e^ε′). f is convex and symmetric with the fixed point e^(−1/(2z))/2. So f is
  below these lines if e^ε′ ≤ 2e^(1/(2z)) − 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import Gaussian, Laplace, NoisyMax, Release, gdp
from dpkit import randomness
from dpkit.mechanisms import report_noisy_max
from dpkit.states import entries

__all__ = ["RecordWindow", "covered"]

# the smallest and the largest edge in size, and edges in between by half powers of two
_EDGES = 2.0 ** (0.5 * np.arange(-80, 81))
_CELLS, _ZERO = 2 * len(_EDGES) + 1, len(_EDGES)
# κ·ε′, and how many times κ the records of each end are
_RANK, _TIMES = 22.0, 6
# κ is at most this part of the records of an end
_MOST = 4
# rounded down, so that nothing is promised that holds up to rounding only
_DOWN = 1.0 - 2.0**-40


def covered(cost: Release) -> NoisyMax:
    """The best choice of one of many that is no easier to tell than a Gaussian or Laplace mechanism.

    Raises
    ------
    TypeError
        If ``cost`` is neither.

    Examples
    --------
    >>> from accounting import Gaussian, Laplace
    >>> round(covered(Laplace(1.0)).epsilon, 3), round(covered(Gaussian(1.0)).epsilon, 3)
    (0.832, 1.614)
    """
    adjacency = cost.adjacency
    if isinstance(cost, Laplace):
        half = 0.5 / cost.noise_multiplier
        largest = half + math.log(2.0 - math.exp(-half))  # the logarithm of 2e^half − 1
        return NoisyMax(_DOWN * largest, "exponential", adjacency=adjacency)
    if not isinstance(cost, Gaussian):
        raise TypeError(f"cost must be a Gaussian or a Laplace, got {cost!r}")
    mu = 1.0 / cost.noise_multiplier
    # ε′-DP alone would do here: a range ε′ is (ε′/2)-GDP or a little worse, and never more than ε′-GDP
    least, most = 0.5 * mu, 4.0 * mu + mu**2
    for _ in range(60):
        middle = 0.5 * (least + most)
        least, most = (middle, most) if gdp(NoisyMax(middle)) <= mu else (least, middle)
    return NoisyMax(_DOWN * least, "gumbel", adjacency=adjacency)


class RecordWindow:
    """Two ends of a range, from the first records of a stream.

    Parameters
    ----------
    cost : Release
        Of what uses the range, a Gaussian or a Laplace. This costs nothing besides: see the module's text.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.

    Attributes
    ----------
    choice : NoisyMax
        The mechanism by which each end is taken.
    rank : int
        κ, where there are enough records.

    Examples
    --------
    >>> from accounting import Laplace
    >>> window = RecordWindow(Laplace(0.1), rng=np.random.default_rng(0))
    >>> for t in range(200):
    ...     window.add(t % 2, 100.0 + 10.0 * (t % 17))
    >>> low, high = window.release((100, 100))
    >>> 90 < low < 130, 200 < high < 370
    (True, True)
    """

    def __init__(self, cost: Release, *, rng: np.random.Generator | None = None) -> None:
        self.choice, self._rng = covered(cost), randomness.resolve(rng)
        self.rank = math.ceil(_RANK / self.choice.epsilon)
        # of the records that tell the upper and the lower end
        self.counts = np.zeros((2, _CELLS), np.int64)

    @property
    def rounds(self) -> tuple[int, int]:
        """How many rounds are needed, so that noise does not decide, and how many are enough."""
        return 2 * _MOST * self.rank, 2 * _TIMES * self.rank

    def add(self, end: int, r: float) -> None:
        """Take in the record of a round that tells the upper end (0) or the lower one (1)."""
        if not math.isfinite(r):
            raise ValueError(f"r must be a finite number, got r={r!r}")
        size = 0 if r == 0.0 else 1 + min(int(np.searchsorted(_EDGES, abs(r))), len(_EDGES) - 1)
        self.counts[end, _ZERO + (size if r > 0.0 else -size)] += 1

    def release(self, sizes: tuple[int, int]) -> tuple[float, float]:
        """The range, of so many rounds that told each end; rewards that have not come count as 0.

        Where both ends are 0 it is the smallest one around it, in which every record says its sign alone.
        """
        above = self._end(self.counts[0], sizes[0])
        below = _CELLS - 1 - self._end(self.counts[1, ::-1], sizes[1])
        self.counts[:] = 0
        low, high = _outer(below, -1), _outer(above, 1)
        if low >= high:  # by noise, or as all records are alike
            low, high = min(low, high), max(low, high)
        if low == high:
            low, high = min(low, -_EDGES[0]), max(high, _EDGES[0])
        return low, high

    def _end(self, counts: NDArray[np.int64], size: int) -> int:
        """The cell with the κ-th record from above."""
        counts = counts.copy()
        counts[_ZERO] += size - int(counts.sum())
        at_least = np.cumsum(counts[::-1])[::-1]
        above, wanted = at_least - counts, max(1, min(self.rank, size // _MOST))
        # of κ from the numbers of records that are beyond the cell, and that are in it or beyond
        off = np.maximum(above - wanted, 0) + np.maximum(wanted - at_least, 0)
        choice = self.choice
        return report_noisy_max(-off.astype(np.float64), 1.0, choice.epsilon, choice.noise, rng=self._rng)

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        return entries.kept(self, ("counts",)) | {"units": np.array([self.choice.epsilon, float(self.rank)])}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        entries.resume(self, ("counts",), entries.in_units(saved, (self.choice.epsilon, float(self.rank))))
        if (self.counts < 0).any():
            raise ValueError("counts must be at least 0, got others")


def _outer(cell: int, side: int) -> float:
    """The edge of a cell, above (1) or below (−1)."""
    size = side * (cell - _ZERO)
    edge = float(_EDGES[size - 1]) if size > 0 else -float(_EDGES[-size - 2]) if size < -1 else 0.0
    return side * edge + 0.0

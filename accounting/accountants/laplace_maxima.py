"""Report-noisy-max with Laplace noise: groups of equal scores, and how far below the proved bound they are.

Two scores are a coin whose log-odds move by at most ε, as with Gumbel noise. Two groups of scores that all tie, N in
all, are one whose log-odds move N/(N − 1)·(1 − 2^(1 − N)) times as fast: their best is P(A) = |A|/N, with the slope

    |A||B| ∫ f² F^(N − 2) dx = P(A)P(B)·N/(N − 1)·(1 − 2^(1 − N)),

f and F the density and the distribution function of the noise: 1, 9/8, 7/6, 75/64 for N = 2, …, 5, and less for more.
So the privacy loss is not of range ε. Nothing is proved from above but that Laplace noise on a number is worse
(:class:`accounting.accountants.losses.LaplacePair`). By computation no scores were found for which the losses of two
outcomes differ by more than 1.174ε as ε → 0, which would leave a bracket of 1 to 3 %.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["groups_of_scores", "wins"]

Array = NDArray[np.float64]

_MOST_SCORES = 4
_CELLS = 96
# Integrals of polynomials of degree 7, and of sums of exponentials over an interval of a few units, to the last digits.
_NODES, _WEIGHTS = (np.polynomial.legendre.leggauss(24)[0] + 1) / 2, np.polynomial.legendre.leggauss(24)[1] / 2


def _below(x: Array, count: int) -> Array:
    half = 0.5 * np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, half, 1 - half) ** count)


def wins(first: int, second: int, lead: Array) -> Array:
    """The probability that the best of ``first`` scores, ``lead`` ahead, beats the best of ``second`` equal ones."""
    low, high = np.minimum(0.0, -lead)[:, None], np.maximum(0.0, -lead)[:, None]

    def mass(noise: Array) -> Array:
        half = 0.5 * np.exp(-np.abs(noise))
        return first * half * _below(noise, first - 1) * _below(noise + lead[:, None], second)

    # with v = e^(−distance) outside of the two kinks
    outside = (mass(low + np.log(_NODES)) + mass(high - np.log(_NODES))) / _NODES
    return np.asarray((outside + (high - low) * mass(low + (high - low) * _NODES)) @ _WEIGHTS)


@lru_cache(maxsize=32)
def groups_of_scores(epsilon: float) -> list[tuple[Array, Array]]:
    """``low`` and ``high`` of the coins of two groups of up to four equal scores, one of which moves by ε.

    One group leads by a, and then by a − ε; a curve of coins for every two sizes.
    """
    lead = epsilon / _CELLS * np.arange(-_CELLS, 2 * _CELLS + 1, dtype=np.float64)
    now, later = slice(_CELLS, None), slice(None, -_CELLS)
    curves = []
    for first in range(1, _MOST_SCORES + 1):
        for second in range(1, _MOST_SCORES + 1):
            win, lose = np.log(wins(first, second, lead)), np.log(wins(second, first, -lead))
            curves.append((lose[later] - lose[now], win[now] - win[later]))
    return curves

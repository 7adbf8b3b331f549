"""The best that an adversary does with a ledger full of releases, by dynamic programming over the loss so far.

For each release the adversary chooses, from the loss so far, a mechanism that the description covers, and may stop. The
value of a loss ℓ at the end is (1 − e^(ε − ℓ))₊, of which the mean under P is the δ that is reached. Losses that lie on
the grid are exact. Others are split between two points of the grid so that P and Q keep their masses, which is a little
worse for the ledger than the mechanism itself: what is found is no less than what can be reached, and with a step u it
is as if each release had u²/4 more of variance. Nothing here is shared with what the ledger computes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import ndtr

Array = NDArray[np.float64]
#: the first point of the grid, and the P-masses there and above
Law = tuple[int, Array]


def on_grid(losses: Array, masses: Array, step: float) -> Law:
    """A law of losses under P, each split between the two points around it so that Σp and Σp·e^(−ℓ) stay."""
    place = np.floor(losses / step + 1e-9)
    rest = np.maximum(losses - step * place, 0.0)
    up = np.clip(masses * np.expm1(-rest) / math.expm1(-step), 0.0, masses)
    index = place.astype(int) - int(place.min())
    size = int(index.max()) + 2
    found = np.bincount(index, masses - up, minlength=size) + np.bincount(index + 1, up, minlength=size)
    return int(place.min()), found


def two_losses(high: float, low: float, step: float) -> Law:
    """The mechanism of two outcomes with the losses ``high`` and −``low``."""
    chance = math.expm1(low) / (math.exp(low) - math.exp(-high))
    return on_grid(np.array([high, -low]), np.array([chance, 1 - chance]), step)


def pure(epsilon: float, step: float, shares: Sequence[float] = (1.0, 0.5, 0.25)) -> list[Law]:
    """Mechanisms of two outcomes that are ε-DP."""
    return [two_losses(epsilon * a, epsilon * b, step) for a in shares for b in shares]


def coins(epsilon: float, step: float, parts: int = 8) -> list[Law]:
    """What report-noisy-max with Gumbel noise may be: losses t and t − ε."""
    return [two_losses(epsilon * j / parts, epsilon * (parts - j) / parts, step) for j in range(1, parts)]


def normal(z: float, step: float) -> list[Law]:
    """Gaussian noise."""
    x = np.linspace(-10.0, 10.0, 20_001)
    return [on_grid((x[1:] + x[:-1]) / (2 * z) + 0.5 / z**2, np.diff(ndtr(x)), step)]


def sampled_normal(z: float, rate: float, step: float) -> list[Law]:
    """Poisson samples with Gaussian noise, of a unit that is as large as it may be or half as large, both ways."""
    found = []
    for shift in (1.0, 0.5):
        x = np.linspace(-10.0 * z, shift + 10.0 * z, 100_001)
        q, middle = np.diff(ndtr(x / z)), (x[1:] + x[:-1]) / 2
        losses = np.log1p(rate * np.expm1((2 * middle * shift - shift**2) / (2 * z * z)))
        p = q * np.exp(losses)
        found += [on_grid(one, masses[masses > 0] / masses.sum(), step) for one, masses in (
            (losses[p > 0], p), (-losses[q > 0], q)
        )]  # fmt: skip
    return found


class Adversary:
    """Values at the points of a grid from ``low`` to ``high``, for several kinds of releases.

    Parameters
    ----------
    epsilon : float
        Of the δ that is asked for.
    kinds : sequence of list of Law
        What each kind of release may be.
    step : float
        Of the grid.
    """

    def __init__(self, epsilon: float, kinds: Sequence[list[Law]], step: float) -> None:
        below, above = math.ceil(1.5 * epsilon / step), math.ceil(1.7 * epsilon / step)
        self._start, self._size = below, below + above + 1
        losses = step * np.arange(-below, above + 1)
        self.stopped = np.maximum(0.0, -np.expm1(np.minimum(epsilon - losses, 0.0)))
        laws = [law for kind in kinds for law in kind]
        self._left = max(0, *(-first for first, _ in laws))
        self._right = max(0, *(first + len(masses) for first, masses in laws))
        self._length = fft.next_fast_len(self._size + self._left + self._right, real=True)
        self._laws = [[self._transformed(*law) for law in kind] for kind in kinds]

    def _transformed(self, first: int, masses: Array) -> NDArray[np.complex128]:
        """For means of a function at the points from each one on."""
        kernel = np.zeros(self._length)
        kernel[-(first + np.arange(len(masses))) % self._length] = masses
        return np.asarray(fft.rfft(kernel))

    def ahead(self, values: Array) -> NDArray[np.complex128]:
        """The transform of values, which go on as they end on both sides."""
        long = np.zeros(self._length)
        long[: self._size] = values
        long[self._size : self._size + self._right] = values[-1]
        if self._left:
            long[-self._left :] = values[0]
        return np.asarray(fft.rfft(long))

    def best(self, after: NDArray[np.complex128], kind: int) -> Array:
        """The value before a release of a kind."""
        found = [fft.irfft(after * law, self._length)[: self._size] for law in self._laws[kind]]
        return np.minimum(np.max(found, axis=0), 1.0)

    def reached(self, kinds: Iterable[int]) -> float:
        """δ after these kinds of releases, the last one first."""
        values = self.stopped
        for kind in kinds:
            values = np.maximum(self.stopped, self.best(self.ahead(values), kind))
        return self.at_start(values)

    def at_start(self, values: Array) -> float:
        return float(values[self._start])

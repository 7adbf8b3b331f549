"""Convolutions of measures on a circle of n nodes, by the fast Fourier transform or directly, with bounds on rounding.

Why there are both: :mod:`accounting.compose.convolution`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from accounting.arrays import Array

__all__ = ["Directly", "Transformed"]


_UNIT_ROUNDOFF = 2.0**-52
# A factor of the spectrum below e^(−this) is left out.
_FAINT = 60.0
# What floats that are too small for their digits may come to in a node.
_VANISHED = 1e-300


# Where masses begin on the circle, and the masses: what is beyond them is 0.
_Stretch = tuple[int, Array]


class Transformed:
    """The convolution of measures of mass 1, by their spectra: time n·ln n for each."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._image_error = 8 * _UNIT_ROUNDOFF * math.log2(n)  # of one output of a transform of total mass 1
        self._spectrum, self._error = np.ones(n // 2 + 1, dtype=np.complex128), np.zeros(n // 2 + 1)
        self._left_out = 0.0

    def take(self, measure: Array, times: int) -> None:
        """Convolve with ``times`` times the ``measure``; the bound on the spectrum's error grows entry by entry."""
        image, image_error = np.fft.rfft(measure), self._image_error
        kept: Any = slice(None)
        if times == 1:
            power, grown, loss = image, np.abs(image) + image_error, np.full(image.size, image_error)
        else:
            # what has died out is left out: far fewer frequencies than there are survive many factors (the least that
            # is kept is positive: e^(−30) is more than the error of a transform of any size that there is)
            least = math.exp(-_FAINT / times) * (1 - 4 * _UNIT_ROUNDOFF) - image_error
            kept = np.flatnonzero(image.real**2 + image.imag**2 > least * least)
            size, logs = np.abs(image[kept]) + image_error, np.log(image[kept])
            with np.errstate(under="ignore"):
                power, grown = np.exp(times * logs), np.exp(times * np.log(size))
                rounding = 4 * _UNIT_ROUNDOFF * (8 + times * np.abs(logs)) * np.abs(power)
                loss = times * image_error * grown / size + rounding
        before = self._spectrum[kept]
        product = before * power
        error = self._error[kept] * grown + np.abs(before) * loss + 4 * _UNIT_ROUNDOFF * np.abs(product)
        self._spectrum, self._error = np.zeros_like(self._spectrum), np.zeros_like(self._error)
        self._spectrum[kept], self._error[kept] = product, error
        self._left_out += 2 * math.exp(-_FAINT)

    def measure(self) -> tuple[Array, tuple[float, float], float]:
        """The product, the error of every entry and of all in the Euclidean norm (Parseval), and the relative error."""
        error = self._error + self._image_error * np.abs(self._spectrum) + self._left_out
        errors = float(error.sum()) * 2 / self._n, math.sqrt(float(error @ error) * 2 / self._n)
        return np.maximum(np.fft.irfft(self._spectrum, self._n), 0.0), errors, 0.0


class Directly:
    """The same by sums of products, none of which cancel: time n² for each, less where a measure has a large gap."""

    def __init__(self, n: int) -> None:
        self._n, self._count = n, 0
        self._product: _Stretch | None = None

    def take(self, measure: Array, times: int) -> None:
        """Convolve with ``times`` times the ``measure``, by squaring."""
        self._count += times
        power = self._without_gap(measure)
        while times:
            if times & 1:
                self._product = power if self._product is None else self._around(self._product, power)
            times >>= 1
            if times:
                power = self._around(power, power)

    def measure(self) -> tuple[Array, tuple[float, float], float]:
        """As :meth:`Transformed.measure`."""
        product = np.zeros(self._n)
        if self._product is not None:
            start, masses = self._product
            product[: masses.size] = masses
            product = np.roll(product, start)
        relative = self._count * (self._n + 2) * _UNIT_ROUNDOFF
        return product, (_VANISHED, _VANISHED * math.sqrt(self._n)), relative

    def _without_gap(self, measure: Array) -> _Stretch:
        """All but the longest stretch of zeros around the circle."""
        some = np.flatnonzero(measure)
        if some.size == 0:
            return 0, measure
        gaps = np.diff(some, append=some[0] + self._n)
        last = int(np.argmax(gaps))
        start = int(some[(last + 1) % some.size])
        return start, np.roll(measure, -start)[: self._n + 1 - int(gaps[last])]

    def _around(self, one: _Stretch, other: _Stretch) -> _Stretch:
        with np.errstate(under="ignore"):
            sums = np.convolve(one[1], other[1])
        beyond = max(0, sums.size - self._n)
        sums[:beyond] += sums[self._n :]
        return (one[0] + other[0]) % self._n, sums[: self._n]

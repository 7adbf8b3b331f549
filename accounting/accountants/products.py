"""Convolutions of measures on a circle of n nodes, by the fast Fourier transform or directly, with bounds on rounding.

Why there are both: :mod:`accounting.accountants.convolution`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["Directly", "Transformed"]

Array = NDArray[np.float64]

_UNIT_ROUNDOFF = 2.0**-52
# A factor of the spectrum below e^(−this) is left out.
_FAINT = 60.0
# What floats that are too small for their digits may come to in a node.
_VANISHED = 1e-300


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
        size = np.abs(image)
        if times == 1:
            power, grown, loss = image, size + image_error, np.full_like(size, image_error)
        else:
            # what has died out is left out: far fewer frequencies than there are survive many factors
            kept = np.flatnonzero(size + image_error > math.exp(-_FAINT / times))
            logs = np.log(image[kept])
            with np.errstate(under="ignore"):
                power, grown, loss = np.zeros_like(image), np.zeros_like(size), np.zeros_like(size)
                power[kept] = np.exp(times * logs)
                grown[kept] = np.exp(times * np.log(size[kept] + image_error))
                rounding = 4 * _UNIT_ROUNDOFF * (8 + times * np.abs(logs)) * np.abs(power[kept])
                loss[kept] = times * image_error * grown[kept] / (size[kept] + image_error) + rounding
        product = self._spectrum * power
        self._error = self._error * grown + np.abs(self._spectrum) * loss + 4 * _UNIT_ROUNDOFF * np.abs(product)
        self._spectrum = product
        self._left_out += 2 * math.exp(-_FAINT)

    def measure(self) -> tuple[Array, tuple[float, float], float]:
        """The product, the error of every entry and of all in the Euclidean norm (Parseval), and the relative error."""
        error = self._error + self._image_error * np.abs(self._spectrum) + self._left_out
        errors = float(error.sum()) * 2 / self._n, math.sqrt(float(error @ error) * 2 / self._n)
        return np.maximum(np.fft.irfft(self._spectrum, self._n), 0.0), errors, 0.0


class Directly:
    """The same by sums of products, none of which cancel: time n² for each."""

    def __init__(self, n: int) -> None:
        self._n, self._count = n, 0
        self._product: Array | None = None

    def take(self, measure: Array, times: int) -> None:
        """Convolve with ``times`` times the ``measure``, by squaring."""
        self._count += times
        power = measure
        while times:
            if times & 1:
                self._product = power if self._product is None else self._around(self._product, power)
            times >>= 1
            if times:
                power = self._around(power, power)

    def measure(self) -> tuple[Array, tuple[float, float], float]:
        """As :meth:`Transformed.measure`."""
        product = np.zeros(self._n) if self._product is None else self._product
        relative = self._count * (self._n + 2) * _UNIT_ROUNDOFF
        return product, (_VANISHED, _VANISHED * math.sqrt(self._n)), relative

    def _around(self, one: Array, other: Array) -> Array:
        with np.errstate(under="ignore"):
            sums = np.convolve(one, other)
        sums[: sums.size - self._n] += sums[self._n :]
        return sums[: self._n]

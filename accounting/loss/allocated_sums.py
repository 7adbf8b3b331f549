"""Sums of independent variables on a lattice: t that are alike, and t − 1 of them with one that is weighted.

The characteristic function φ is a sum over the few points that have mass, at the few frequencies at which its power has
not died out: φ(ω)e^(−iωc) − 1 = Σ mass·(e^(iω(x − c)) − 1) is right to as many units in the last place of the sum of
the terms' sizes as there are terms, and the power to t times that. Where frequencies are many, t is small, and the
Fourier transform is as good (:mod:`accounting.compose.convolution`). One more transform brings the sum; every entry is
off by at most the mean of these errors over the circle, and all together in the Euclidean norm by Parseval's identity.

What may lie outside the window is bounded by Chernoff. The window is a circle: what lies outside wraps around.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import UNIT_ROUNDOFF, Array

__all__ = ["OUTSIDE", "Measured", "Places", "Window", "sums_of", "window_of"]

#: ln of what is outside the window.
OUTSIDE = -44.0
# A factor of the spectrum below e^(−this) is left out.
_FAINT = 55.0
# Products by which the characteristic function is found; fewer where few steps forgive what a transform is off by.
_MOST_PRODUCTS, _FEWER, _FEW_STEPS = 2e7, 1e6, 300


Places = NDArray[np.int64]


@dataclass(frozen=True)
class Window:
    """Where the sum of all places is: the first node, how many there are, and ln of what is outside at most."""

    start: int
    nodes: int

    @property
    def places(self) -> Places:
        """All nodes."""
        return self.start + np.arange(self.nodes, dtype=np.int64)


def window_of(places: Places, values: Array, law: Array, steps: int) -> Window:
    far = float(places[-1] - places[0]) or 1.0
    with np.errstate(divide="ignore"):
        log_law, log_unit = np.log(law), np.log(law * np.maximum(values, 1e-300))
    tilts = np.geomspace(1e-5, 60.0, 28) / far
    spread = float(law @ (places - law @ places / law.sum()) ** 2)
    tilts = np.concatenate([tilts, np.geomspace(0.5, 20.0, 16) / math.sqrt(steps * max(spread, 1e-300))])
    tilts = tilts[tilts * far < 600]

    def curve(log_mass: Array, tilt: float) -> float:
        terms = log_mass + tilt * places
        peak = float(terms.max())
        return peak + math.log(float(np.exp(terms - peak).sum()))

    # of the sum that is one step shorter, which is less
    top = min((curve(log_unit, s) + (steps - 1) * curve(log_law, s) - OUTSIDE) / s for s in tilts)
    bottom = max(-((steps - 1) * curve(log_law, -s) - OUTSIDE) / s for s in tilts)
    start = max((steps - 1) * int(places[0]), math.floor(bottom))
    end = min(steps * int(places[-1]), math.ceil(top))
    return Window(start, _power_of_two(max(end - start, 0) + 2))


def _power_of_two(least: int) -> int:
    """2^k or 3·2^k, at least ``least``."""
    two = 1 << max(4, (least - 1).bit_length())
    return 3 * two // 4 if 3 * two // 4 >= least else two


Measured = tuple[Array, float, float]


def sums_of(places: Places, law: Array, weights: Array, window: Window, steps: int) -> tuple[Measured, Measured]:
    """Masses of the sum of ``steps`` − 1 variables, and of that with one more, whose masses have ``weights``.

    And what they are off by: every entry, and all in the Euclidean norm.
    """
    n = window.nodes
    one, last = (np.fft.rfft(np.bincount(places % n, weights=mass, minlength=n)) for mass in (law, law * weights))
    image_error = 8 * UNIT_ROUNDOFF * math.log2(n) * max(1.0, float(law.sum()), float(law @ weights))
    least = math.exp(-_FAINT / max(1, steps - 1)) * (1 - 4 * UNIT_ROUNDOFF) - image_error
    kept = np.flatnonzero(np.abs(one) > max(least, 0.0))
    if kept.size * places.size <= (_MOST_PRODUCTS if steps > _FEW_STEPS else _FEWER):
        log_power, off = _powers_by_terms(places, law, kept, n, steps - 1)
    else:
        log_power = (steps - 1) * np.log(one[kept])
        off = (steps - 1) * image_error / np.maximum(np.abs(one[kept]) - image_error, 1e-300)
    power = np.exp(log_power)
    error = np.abs(power) * (np.expm1(np.minimum(off, 50.0)) + 8 * UNIT_ROUNDOFF * (1 + np.abs(log_power)))
    with_last = error * (np.abs(last[kept]) + image_error) + np.abs(power) * image_error
    return _on_circle(power, error, kept, window), _on_circle(power * last[kept], with_last, kept, window)


def _on_circle(values: NDArray[Any], error: Array, kept: Places, window: Window) -> Measured:
    n = window.nodes
    spectrum = np.zeros(n // 2 + 1, dtype=np.complex128)
    spectrum[kept] = values
    errors = error + 8 * UNIT_ROUNDOFF * math.log2(n) * np.abs(values)
    left_out = 4 * math.exp(-_FAINT)
    each, norm = float(errors.sum()) * 2 / n, math.sqrt(float(errors @ errors) * 2 / n)
    circle = np.roll(np.fft.irfft(spectrum, n), -window.start % n)
    return circle, each + left_out, norm + left_out * math.sqrt(n)


def _powers_by_terms(places: Places, law: Array, kept: Places, n: int, times: int) -> tuple[Array, Array]:
    """ln φ^``times`` and what that is off by, of the characteristic function at some frequencies."""
    centre = round(float(law @ places) / float(law.sum()))
    turn = -2 * math.pi * np.arange(n) / n
    # e^(ix) − 1, which keeps its digits at small angles
    small = np.where(turn < -math.pi, turn + 2 * math.pi, turn)
    circle = -2 * np.sin(small / 2) ** 2 + 1j * np.sin(small)
    offsets = (places - centre) % n
    sums, sizes = np.empty(kept.size, dtype=np.complex128), np.empty(kept.size)
    at_once = max(1, int(2e6) // places.size)
    for first in range(0, kept.size, at_once):
        some = kept[first : first + at_once]
        terms = circle[(some[:, None] * offsets) % n]
        sums[first : first + at_once] = terms @ law
        sizes[first : first + at_once] = np.abs(terms) @ law
    missing = math.fsum(law.tolist()) - 1.0
    x = sums + missing
    off = (places.size + 16) * UNIT_ROUNDOFF / 2 * (sizes + abs(missing)) + 2 * UNIT_ROUNDOFF
    # near x = −1, where a fair coin's φ vanishes, |1 + x|² − 1 has lost the digits of |1 + x|
    size = np.maximum(np.abs(1 + x), off)
    square = np.maximum(2 * x.real + x.real**2 + x.imag**2, -0.9)
    real = np.where(np.abs(x) < 0.5, 0.5 * np.log1p(square), np.log(size))
    log_one = real + 1j * np.arctan2(x.imag, 1 + x.real)
    # a φ as small as that may be twice as large, or nothing
    off = times * off / size + np.where(size <= off, 1.0, 0.0)
    back = -2 * math.pi * ((kept * (times * centre % n)) % n) / n
    return times * log_one + 1j * back, off

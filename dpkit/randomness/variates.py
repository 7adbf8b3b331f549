"""Continuous variates made from random 64-bit words, on whole arrays: normal, exponential and gamma.

Used by the secure generator, whose words come from a cryptographic stream. Normals come from the ziggurat with 256
layers (Marsaglia & Tsang 2000), run on whole blocks: one word gives the layer (8 bits) and a signed position
(56 bits), 98.8 % of the positions are accepted at once, and the rest is finished as one small array.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK", "exponentials", "gammas", "normals", "uniforms"]

Words = Callable[[int], NDArray[np.uint64]]

# Words are turned into variates in blocks of 64 KiB: they stay in the processor's cache, and below the size from which
# the allocator asks the operating system for pages each time (twice the time per value).
BLOCK = 1 << 13

_TAIL = 3.6541528853610088  # where the base layer of a ziggurat with 256 layers of equal area ends


def _layers() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The right edges x₀ > x₁ = tail > … > x₂₅₆ = 0 of the layers, and exp(−x²/2) there.

    Every layer has the area V = r·f(r) + ∫ᵣ^∞ f of the base; x₀ = V/f(r) is the width that the base, tail included,
    would have as a rectangle.
    """
    density = math.exp(-_TAIL * _TAIL / 2)
    area = _TAIL * density + math.sqrt(math.pi / 2) * math.erfc(_TAIL / math.sqrt(2))
    edges = [area / density, _TAIL]
    while len(edges) < 256:
        edges.append(math.sqrt(-2 * math.log(area / edges[-1] + math.exp(-(edges[-1] ** 2) / 2))))
    edges.append(0.0)
    x = np.array(edges)
    return x, np.exp(-x * x / 2)


_EDGES, _HEIGHTS = _layers()
_WIDTHS = _EDGES[:-1] * 2.0**-55  # of one unit of the signed 56-bit position
_INNER = _EDGES[1:].copy()


def uniforms(out: NDArray[np.float64], words: Words) -> None:
    """Fill the 1-d array ``out`` with uniform multiples of 2⁻⁵³ in [0, 1)."""
    for start in range(0, out.size, BLOCK):
        block = out[start : start + BLOCK]
        block[:] = _unit_interval(block.size, words)


def _unit_interval(count: int, words: Words) -> NDArray[np.float64]:
    u: NDArray[np.float64] = (words(count) >> np.uint64(11)).view(np.int64).astype(np.float64)
    u *= 2.0**-53
    return u


def normals(out: NDArray[np.float64], words: Words) -> None:
    """Fill the 1-d array ``out`` with standard normals."""
    rejected = []
    for start in range(0, out.size, BLOCK):
        block = out[start : start + BLOCK]
        layer, x = _positions(block.size, words)
        block[:] = x
        outside = np.flatnonzero(np.abs(x, out=x) >= _INNER.take(layer))
        rejected.append((start + outside, layer[outside]))
    if rejected:
        pending, layer = (np.concatenate(parts) for parts in zip(*rejected, strict=True))
        _finish_normals(out, pending, layer, words)


def _finish_normals(
    out: NDArray[np.float64], pending: NDArray[np.int64], layer: NDArray[np.int64], words: Words
) -> None:
    """Settle the positions ``out[pending]`` that lie outside the inner part of their layer."""
    x = out[pending]
    while pending.size:
        accepted = _accept_wedge(layer, x, words)
        base = layer == 0  # beyond the end of the base layer: draw from the tail instead
        x[base] = np.copysign(_tail(int(np.count_nonzero(base)), words), x[base])
        accepted |= base
        out[pending[accepted]] = x[accepted]
        pending = pending[~accepted]
        layer, x = _positions(pending.size, words)
        inside = np.abs(x) < _INNER.take(layer)
        out[pending[inside]] = x[inside]
        pending, layer, x = pending[~inside], layer[~inside], x[~inside]


def _positions(count: int, words: Words) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """A layer and a uniform position over its full width, for each of ``count`` words."""
    bits = words(count).view(np.int64)
    layer = bits & 255
    x: NDArray[np.float64] = (bits >> 8).astype(np.float64)
    x *= _WIDTHS.take(layer)
    return layer, x


def _accept_wedge(layer: NDArray[np.int64], x: NDArray[np.float64], words: Words) -> NDArray[np.bool_]:
    """Whether a uniform height inside the layer lies below the density at ``x``."""
    low, high = _HEIGHTS[layer], _HEIGHTS[layer + 1]
    below: NDArray[np.bool_] = low + _unit_interval(x.size, words) * (high - low) < np.exp(-x * x / 2)
    return below


def _tail(count: int, words: Words) -> NDArray[np.float64]:
    """Normals conditioned on being above the end of the base layer (Marsaglia 1964)."""
    out = np.empty(count)
    pending = np.arange(count)
    while pending.size:
        beyond, other = np.empty(pending.size), np.empty(pending.size)
        exponentials(beyond, words)
        exponentials(other, words)
        beyond /= _TAIL
        accepted = 2 * other > beyond * beyond
        out[pending[accepted]] = _TAIL + beyond[accepted]
        pending = pending[~accepted]
    return out


def exponentials(out: NDArray[np.float64], words: Words) -> None:
    """Fill the 1-d array ``out`` with standard exponentials, −ln U for U uniform on the odd multiples of 2⁻⁶⁴."""
    for start in range(0, out.size, BLOCK):
        block = out[start : start + BLOCK]
        block[:] = (words(block.size) >> np.uint64(1)).view(np.int64)
        block += 0.5
        block *= 2.0**-63
        np.log(block, out=block)
        np.negative(block, out=block)


def gammas(shape: NDArray[np.float64], words: Words) -> NDArray[np.float64]:
    """Standard gamma variates of the ``shape`` parameters in a 1-d array (Marsaglia & Tsang 2000)."""
    out = np.empty(shape.size)
    for start in range(0, shape.size, BLOCK):
        out[start : start + BLOCK] = _gamma_block(shape[start : start + BLOCK], words)
    return out


def _gamma_block(shape: NDArray[np.float64], words: Words) -> NDArray[np.float64]:
    # a shape below 1 goes through Gamma(a) = Gamma(a + 1)·U^(1/a)
    small = shape < 1
    d = np.where(small, shape + 1, shape) - 1 / 3
    c = 1 / np.sqrt(9 * d)
    out = np.empty(shape.size)
    pending = np.arange(shape.size)
    while pending.size:
        x, e = np.empty(pending.size), np.empty(pending.size)
        normals(x, words)
        exponentials(e, words)
        v = 1 + c[pending] * x
        positive = v > 0
        v = np.where(positive, v * v * v, 1.0)
        accepted = positive & (-e < x * x / 2 + d[pending] * (1 - v + np.log(v)))
        out[pending[accepted]] = (d[pending] * v)[accepted]
        pending = pending[~accepted]
    if small.any():
        e = np.empty(int(np.count_nonzero(small)))
        exponentials(e, words)
        out[small] *= np.exp(-e / shape[small])
    return out

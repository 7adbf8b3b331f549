"""Products of lower-triangular Toeplitz matrices with rows of float64, by a fast transform with a proved error.

For c and v of T terms, the first T terms of the polynomial product c(x)·v(x) are those of c·v modulo xⁿ − 1, n ≥ 2T.
With s² = r, x^2m − r = (x^m − s)(x^m + s): what is low + x^m·high modulo the left side is low ± s·high modulo the two
factors. So n = L·2^H leads, in H levels of n/2 such pairs, to 2^H polynomials of L terms modulo x^L − r, |r| = 1, where
the product is that with a small matrix; and back. (Each level goes over memory once, in halves that soon fit into the
processor's cache.) Two real columns are the real and the imaginary part of one.

Rounding. Let u = 2⁻⁵³, ‖·‖ the L2 norm over all entries, K = Σ|c_k|, and hats denote what is computed.

* A level is √2 times a unitary map, as |s| = 1. Products of complex numbers are right within √2·2u(1 + 2u), in whatever
  order and with or without fused operations (Higham 2002, Lemma 3.5), and ŝ within 8u (a test compares them with exact
  ones): high is turned within 11u·‖high‖, and after one more operation the pair is right within 12.1u, relative to its
  norm. The way back is the same map transposed, the factors of 2 being in the small matrices. H levels: 12.2Hu.
* A small matrix M has the entries c_k of c modulo x^L − r, times r above the diagonal. It is unitarily similar to a
  diagonal of values of c(x) at |x| = 1, so ‖M‖₂ ≤ K; and ‖|M|‖₂ ≤ Σ|c_k| ≤ K. A complex dot product of L terms is right
  within √2·2L·u(1 + …) times that of the absolute values (Higham §3.1). So ‖fl(M̂x) − Mx‖ ≤ (2.9Lu + 11u)K‖x‖ + ‖M̂ −
  M‖₂‖x‖, where c's own way down, 12.2Hu·√2^H‖c‖ at most in any of its parts, makes ‖M̂ − M‖₂ ≤ √L·12.2Hu·√2^H‖c‖.

With n = L·2^H, the product is within (25H + 3L + 12)·u·K‖v‖ + 12.5H·u·√n·‖c‖·‖v‖ of the exact one: :func:`rounding`.
(What falls below the smallest normal number is lost besides: less than 2^−1000.)
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpkit.continual.factorization import UNIT_ROUNDOFF

__all__ = ["FAST", "Convolution", "Product", "roots", "rounding"]

Vector = NDArray[np.float64]
Complex = NDArray[np.complex128]

# rows of a product that are computed at once, step by step; and from how many on the transform is faster
_BLOCK = 64
FAST = 512
# complex numbers that are worked on at once: half a megabyte; and columns
_CACHE = 1 << 15
_COLUMNS = 64


def rounding(c: Vector) -> float:
    """The bound of this module: ‖computed − exact‖ ≤ rounding(c)·‖v‖ for ``Convolution(c)(v)``."""
    levels, size = _sizes(len(c))
    row_sum, norm = float(np.abs(c).sum()), float(np.linalg.norm(c))
    own = 12.5 * levels * math.sqrt(size << levels) * norm
    return UNIT_ROUNDOFF * ((25 * levels + 3 * size + 12) * row_sum + own)


def _sizes(terms: int) -> tuple[int, int]:
    """H ≥ 1 and L < 32 with L·2^H ≥ 2·``terms``."""
    levels = max(1, (2 * terms).bit_length() - 5)
    return levels, -(-2 * terms >> levels)


@lru_cache(maxsize=8)
def roots(levels: int) -> Complex:
    """exp(πi·e) for e = 0, ½, ¼, ¾, …: the s of the first 2^levels pairs of any level; e has the bits of 0, 1, 2, …"""
    angles = np.zeros(1)
    for _ in range(levels):
        angles = np.concatenate([angles, angles + 0.5 / angles.size])
    s: Complex = np.empty(angles.size, np.complex128)
    s.real, s.imag = np.cos(np.pi * angles), np.sin(np.pi * angles)
    s.setflags(write=False)
    return s


class Convolution:
    """Multiplication by c, of T terms: the first T terms of the product, where the module's bound holds."""

    def __init__(self, c: Vector) -> None:
        self._levels, size = _sizes(len(c))
        self._roots = roots(self._levels)
        x = np.zeros((size << self._levels, 1), np.complex128)
        x[: len(c), 0] = c
        for level in range(self._levels):
            self._down(x, level, 0, 1 << level)
        # with the factors of 2 of the way back; then r·c_1, …, r·c_{L−1}, c_0, …, c_{L−1}, of which M is made
        leaves = np.ldexp(x.view(np.float64), -self._levels).view(np.complex128).reshape(-1, size)
        squares = np.repeat(self._roots[: len(leaves) // 2], 2)  # s of x^2L − r is the r of its halves, up to the sign
        squares[1::2] *= -1
        self._terms = np.hstack([leaves[:, 1:] * squares[:, None], leaves])

    def __call__(self, v: Vector) -> Vector:
        """The first T terms of the product with each column of ``v``, of shape (T, columns)."""
        product = np.empty(v.shape)
        for first in range(0, v.shape[1], 2 * _COLUMNS):
            columns, out = v[:, first : first + 2 * _COLUMNS], product[:, first : first + 2 * _COLUMNS]
            count = (columns.shape[1] + 1) // 2
            size = (self._terms.shape[1] + 1) // 2
            # the first level: the upper half of v is 0, so that both halves are the lower one
            halves = np.zeros((2, size << self._levels - 1, count), np.complex128)
            halves.real[:, : len(v)] = columns[:, :count]
            halves.imag[:, : len(v), : columns.shape[1] - count] = columns[:, count:]
            for i, half in enumerate(halves):
                self._multiply(half, 1, i)
            whole = halves[0, : len(v)]
            whole += halves[1, : len(v)]
            out[:, :count] = whole.real
            out[:, count:] = whole.imag[:, : columns.shape[1] - count]
        return product

    def _multiply(self, x: Complex, level: int, first: int) -> None:
        """Multiply ``x`` by c, in place, modulo the ``first`` polynomial of a level."""
        if x.size > _CACHE and level < self._levels:
            self._down(x, level, first, 1)
            half = len(x) // 2
            self._multiply(x[:half], level + 1, 2 * first)
            self._multiply(x[half:], level + 1, 2 * first + 1)
            self._up(x, level, first, 1)
            return
        depth = self._levels - level
        for i in range(depth):
            self._down(x, level + i, first << i, 1 << i)
        terms = self._terms[first << depth : (first + 1) << depth]
        size = (terms.shape[1] + 1) // 2
        matrices = np.lib.stride_tricks.sliding_window_view(terms, size, axis=1)[:, :, ::-1]
        parts = x.reshape(len(terms), size, -1)
        parts[...] = np.matmul(np.ascontiguousarray(matrices), parts)
        for i in reversed(range(depth)):
            self._up(x, level + i, first << i, 1 << i)

    def _down(self, x: Complex, level: int, first: int, count: int) -> None:
        """From ``count`` polynomials of a level, the ``first`` one and those after it, to twice as many."""
        pairs = x.reshape(count, 2, -1, x.shape[1])
        low, high = pairs[:, 0], pairs[:, 1]
        turned = high * self._roots[first : first + count, None, None]
        np.subtract(low, turned, high)
        low += turned

    def _up(self, x: Complex, level: int, first: int, count: int) -> None:
        """The way back, but for a factor of 2."""
        pairs = x.reshape(count, 2, -1, x.shape[1])
        low, high = pairs[:, 0], pairs[:, 1]
        turned = low - high
        low += high
        np.multiply(turned, self._roots[first : first + count, None, None].conj(), high)


class Product:
    """The product of a lower-triangular Toeplitz matrix with rows that come one by one, and are all kept."""

    def __init__(self, c: Vector, dimension: int) -> None:
        self._c = c
        self._last = np.ascontiguousarray(c[:_BLOCK][::-1])
        self.rows = np.zeros((len(c), dimension))
        self._earlier: Vector | None = None

    def next(self, t: int, row: NDArray[np.generic]) -> Vector:
        """The t-th row of the product, whose t-th factor is ``row``."""
        start = t - t % _BLOCK
        if self._earlier is None or start == t:
            self._earlier = self._band(start, min(_BLOCK, len(self._c) - start), start)
        self.rows[t] = row
        product: Vector = self._last[start - t - 1 :].dot(self.rows[start : t + 1])
        product += self._earlier[t - start]
        return product

    def next_number(self, t: int, number: float) -> float:
        """The same for a single column."""
        start = t - t % _BLOCK
        if self._earlier is None or start == t:
            self._earlier = self._band(start, min(_BLOCK, len(self._c) - start), start)
        rows = self.rows.reshape(-1)
        rows[t] = number
        return float(self._last[start - t - 1 :].dot(rows[start : t + 1])) + self._earlier.item(t - start)

    def extend(self, t: int, rows: NDArray[np.generic], convolution: Convolution | None) -> Vector:
        """The rows of the product from the t-th on, for as many factors; by a transform of all, if there is one."""
        stop = t + len(rows)
        self.rows[t:stop] = rows
        self._earlier = None  # the block at hand does not know of them
        if convolution is not None:
            return convolution(self.rows[:stop])[t:]
        product = np.empty(rows.shape)
        for i in range(t, stop, _BLOCK):
            end = min(i + _BLOCK, stop)
            product[i - t : end - t] = self._band(i, end - i, end)
        return product

    def _band(self, start: int, count: int, stop: int) -> Vector:
        """What the rows before ``stop`` add to the rows start, …, start + count − 1 of the product."""
        if stop == 0:
            return np.zeros((count, self.rows.shape[1]))
        # row i holds c_{start+i}, …, c_{start+i−stop+1}, and zeros for negative indices
        padded = np.concatenate([self._c[start + count - 1 :: -1], np.zeros(max(0, stop - start))])
        if self.rows.shape[1] == 1:
            found = np.correlate(padded[: stop + count - 1], self.rows[:stop, 0], "valid")
            return found[::-1, None]
        matrix = np.lib.stride_tricks.sliding_window_view(padded, stop)[:count][::-1]
        product: Vector = matrix @ self.rows[:stop]
        return product

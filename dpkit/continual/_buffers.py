"""Prefix sums by a lower triangle C_ts = c_{t−s}/d_s whose entries c_k are sums of few geometric series."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpkit.continual.coefficients import ColumnScales, Geometric
from dpkit.continual.factorization import Factorization, reach_of

__all__ = ["Buffered"]

Vector = NDArray[np.float64]

# L, rows per matrix product of the encoder: the bound on its rounding grows with it
_ROWS = 16
# rows per matrix product of the decoder: its cost is quadratic in it, Python's overhead is inverse to it
_BLOCK = 48
# multiplications up to which one small matrix product is faster than several passes over the buffers
_SMALL = 60_000
_TINY = 4_000


class Buffered(Factorization):
    """c_k = Σ_i ω_i(1 − g_i)^k, one buffer per term in each direction (Dvijotham et al., arXiv:2404.16706).

    Encoder: s_i ← s_i − g_i s_i + v_t/d_t, and the row is Σ_i ω_i s_i. Decoder: w = (c_{t−s})⁻¹z is
    w_t = z_t − Σ_i ω_iλ_i s_i, then s_i ← λ_i s_i + w_t, and the sum grows by d_t w_t.

    Rounding of the encoder. A buffer is kept as a multiple s of a power of two h_i and a rest of at most h_i/2, so that
    what is added is rounded relative to the size of an input, and not to that of a sum over thousands. Let G_i be the
    largest |s_i| for inputs of size 1, G′_i = max(1.1·G_i, 2.5) and K = Σω_iG′_i. h_i is at most 2⁻⁴⁹·V·G′_i =
    16u·V·G′_i, increments are below 2·V·G_i < 2⁵¹h_i and buffers below 2⁵⁰h_i, so that sums of multiples of h_i, and
    taking the rest, are exact. With b buffers and L = 16, in units of u·V·G′_i, errors are at most

    * 2·(2L + 7) in a buffer from increments. That of n ≤ L inputs is a dot product of n + 1 terms, plus the rest; its
      coefficients are right within (n + 4)·u and inputs within u (single steps are better). So its error is at most
      (2L + 7)·u·V times the sum of λ^j/d over its inputs and (1 − λⁿ)G_i, and over all calls, in whatever groups,
      both add up to at most G_i in what is left of them at any later step;
    * 8 in a buffer from the rests, which are added without the factor λⁿ; this adds up to one h_i/2;
    * 8 in a row for the rests left out of it, and 2b + 2L + 8 for its dot product of b buffers and up to L inputs,
      with coefficients right within (b + L + 5)·u.

    Together κ = 2b + 6L + 38 in the sense of :func:`dpkit.continual.factorization.reach_of`.
    """

    def __init__(self, c: Geometric, horizon: int, scales: ColumnScales) -> None:
        super().__init__(horizon)
        self._c, self._scales = c, scales
        buffers = c.weights.size
        sizes = np.maximum(1.1 * scales.buffer_sizes(c), 2.5)
        self.reach = reach_of(float(c.weights @ sizes), 2 * buffers + 6 * _ROWS + 38)
        # 1.5·2⁵²·h_i: adding and subtracting it rounds to a multiple of h_i
        self._rounder = 1.5 * 2.0**52 * np.exp2(np.ceil(np.log2(self.reach * sizes)) - 50)[:, None]
        self._gaps, self._rates = c.gaps[:, None], c.rates[:, None]
        self._feedback = c.weights * c.rates

    def begin(self, dimension: int, dtype: np.dtype[Any]) -> None:
        buffers = self._c.weights.size
        self._scale, self._start, self._stop = 0.0, 0, 0  # d_t for the steps between
        # of the encoder: (v; s; rests)
        self._encoder = np.zeros((1 + 2 * buffers, dimension))
        self._input, self._high, self._low = np.split(self._encoder, [1, 1 + buffers])
        # of the decoder: (z; s; last sum)
        self._decoder = np.zeros((buffers + 2, dimension))
        self._noisy, self._kept = self._decoder[0], self._decoder[1:]
        self._buffers, self._total = self._decoder[1:-1], self._decoder[-1]
        self._small = buffers**2 * dimension < _SMALL
        self._tiny = buffers**2 * dimension < _TINY
        # of one call: what is added, and its multiples of h
        self._increment, self._whole = np.zeros((2, buffers, dimension))

    def secret(self, t: int) -> dict[str, NDArray[Any]]:
        return {"encoder": self._high, "encoder_rest": self._low}

    def public(self, t: int) -> dict[str, NDArray[Any]]:
        return {"decoder": self._buffers, "decoder_sum": self._total}

    def error(self, t: int) -> float:
        return self._scales.error(t)

    def _scale_at(self, t: int) -> float:
        """d_t, with the matrices of one step."""
        if not self._start <= t < self._stop:
            self._start = t
            self._scale, self._stop = self._scales.bound(t)
            self._decode = _decoding(self._c, 1)[1:].copy()
            self._decode[-1, :-1] *= self._scale
            buffers = self._gaps.size
            self._encode = np.hstack([np.full((buffers, 1), 1 / self._scale), np.diag(-self._c.gaps), np.eye(buffers)])
        return self._scale

    def encode(self, t: int, v: NDArray[Any]) -> NDArray[Any]:
        scale = self._scale_at(t)
        increment = self._increment
        if self._tiny:
            self._input[0] = v
            np.dot(self._encode, self._encoder, out=increment)
        else:
            np.multiply(self._high, self._gaps, out=increment)
            np.subtract(v / scale, increment, out=increment)
            increment += self._low
        self._carry(increment)
        row = np.dot(self._c.weights, self._high)
        rounded: NDArray[np.int64] = np.rint(row, out=row).astype(np.int64)
        return rounded[None]

    def _carry(self, increment: Vector) -> None:
        """Add the increments to the buffers: their multiples of h exactly; the rests are kept."""
        whole = self._whole
        np.add(increment, self._rounder, out=whole)
        whole -= self._rounder
        np.subtract(increment, whole, out=self._low)
        self._high += whole

    def encode_many(self, t: int, v: NDArray[Any]) -> NDArray[Any]:
        rows = np.empty(v.shape, np.int64)
        scales = self._scales.bounds(t, t + len(v))[:, None]
        for first in range(0, len(v), _ROWS):
            block = slice(first, min(first + _ROWS, len(v)))
            n = block.stop - first
            product = _encoding(self._c, n) @ np.concatenate([v[block] / scales[block], self._high])
            rows[block] = np.rint(product[:n])
            increment = product[n:]
            increment += self._low
            self._carry(increment)
        return rows

    def decode(self, t: int, z: NDArray[Any]) -> NDArray[Any]:
        scale = self._scale_at(t)
        if self._small:
            self._noisy[:] = z[0]
            self._kept[:] = np.dot(self._decode, self._decoder)
        else:
            w = z[0] - self._feedback @ self._buffers
            self._buffers *= self._rates
            self._buffers += w
            w *= scale
            self._total += w
        total: Vector = self._total.copy()
        return total

    def decode_many(self, t: int, z: NDArray[Any], count: int) -> NDArray[Any]:
        sums = np.empty(z.shape)
        scales = self._scales.bounds(t, t + count)[:, None]
        for first in range(0, count, _BLOCK):
            block = slice(first, min(first + _BLOCK, count))
            n = block.stop - first
            stepped = _decoding(self._c, n)[:-1, :-1] @ np.concatenate([z[block], self._buffers])
            self._buffers[:] = stepped[n:]
            np.multiply(stepped[:n], scales[block], out=sums[block])
        sums[0] += self._total
        accumulate(sums)
        self._total[:] = sums[-1]
        return sums


def accumulate(rows: NDArray[Any]) -> None:
    """Replace the rows of a matrix by their prefix sums, at twice the speed of ``numpy.cumsum``.

    Runs of 32 rows are summed side by side, then each run is shifted by the last row of the one before.
    """
    whole = len(rows) // 32 * 32
    runs = rows[:whole].reshape(-1, 32, rows.shape[1])
    for i in range(1, 32 if whole else 0):
        runs[:, i] += runs[:, i - 1]
    for run, last in zip(runs[1:], runs[:, -1], strict=False):
        run += last
    rest = rows[max(0, whole - 1) :]
    np.cumsum(rest, axis=0, out=rest)


@lru_cache(maxsize=64)
def _encoding(c: Geometric, rows: int) -> Vector:
    """The matrix that takes (v; s) to the rows of C·v and to what the buffers grow by, over ``rows`` inputs."""
    powers = np.power(c.rates, np.arange(rows + 1)[:, None])  # (rows + 1, buffers)
    lags = np.subtract.outer(np.arange(rows), np.arange(rows))
    near = np.where(lags >= 0, (powers @ c.weights)[np.abs(lags)], 0.0)
    lost = np.diag(np.expm1(rows * np.log1p(-c.gaps)))
    matrix = np.block([[near, powers[1:] * c.weights], [powers[rows - 1 :: -1].T if rows > 1 else powers[:1].T, lost]])
    matrix.setflags(write=False)
    return matrix


@lru_cache(maxsize=64)
def _decoding(c: Geometric, rows: int) -> Vector:
    """The matrix that takes (z; s; r), with ``rows`` rows of z, to (w; s; r + Σw) after those steps."""
    coefficients = c.terms(0, rows)
    lags = np.subtract.outer(np.arange(rows), np.arange(rows))
    inverse = np.tril(np.linalg.inv(np.where(lags >= 0, coefficients[np.abs(lags)], 0.0)))
    powers = np.power(c.rates, np.arange(rows)[:, None])  # (rows, series)
    w = np.hstack([inverse, -inverse @ (powers * (c.weights * c.rates))])
    s = powers[::-1].T @ w
    s[:, rows:] += np.diag(c.rates**rows)
    step = np.zeros((len(w) + len(s) + 1,) * 2)
    step[:-1, :-1] = np.vstack([w, s])
    step[-1] = np.append(w.sum(axis=0), 1.0)
    step.setflags(write=False)
    return step

"""Prefix sums with the noise A·D·C⁻¹ζ, D diagonal, row by row or in blocks, in one buffer per geometric series of C."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpkit.continual._stream import accumulate, chunks
from dpkit.continual.coefficients import Geometric

__all__ = ["BufferedSums"]

Vector = NDArray[np.float64]

# rows per matrix product: their cost is quadratic in it, Python's overhead is inverse to it
BLOCK = 48
# multiplications up to which one small matrix product is faster than several passes over the buffers
_SMALL = 60_000


class BufferedSums:
    """Noisy prefix sums, Σ_{s≤t} (x_s + d_s w_s) with w = C⁻¹ζ, as streamed by Dvijotham et al. (arXiv:2404.16706).

    w_t = ζ_t − Σ_i ω_iλ_i s_i, then s_i ← λ_i s_i + w_t. The buffers s and the last sum are all there is to save.
    """

    def __init__(self, c: Geometric, dimension: int) -> None:
        self._c = c
        series = c.weights.size
        # (ζ; s; last sum), in two copies that take turns, each with views of its parts
        self._now, self._next = (_Rows(series, dimension) for _ in range(2))
        self._rates = c.rates[:, None]
        self._feedback = c.weights * c.rates
        self._small = series**2 * dimension < _SMALL
        self._scale = 0.0
        self._step = np.empty((series + 1, series + 2))

    @property
    def buffers(self) -> Vector:
        """s, of shape (number of series, dimension), to be saved or overwritten in place."""
        return self._now.buffers

    @property
    def total(self) -> Vector:
        """The last noisy sum, to be saved or overwritten in place."""
        return self._now.total

    def add(self, rng: np.random.Generator, x: Vector, scale: float) -> Vector:
        """The next noisy sum, a new array; ``scale`` is d_t."""
        now, after = self._now, self._next
        rng.standard_normal(out=now.zeta)
        if self._small:
            if scale != self._scale:
                self._step[:] = _block_step(self._c, 1)[1:]
                self._step[-1, :-1] *= scale
                self._scale = scale
            np.dot(self._step, now.all, out=after.kept)
            after.total += x
        else:
            w = now.zeta
            w -= self._feedback @ now.buffers
            np.multiply(now.buffers, self._rates, out=after.buffers)
            after.buffers += w
            w *= scale
            w += x
            np.add(now.total, w, out=after.total)
        # the only change, so that an interrupted call leaves the last step whole
        self._now, self._next = after, now
        return after.total.copy()

    def add_rows(self, rng: np.random.Generator, rows: Vector, scales: Vector) -> Vector:
        """The noisy sums after each of ``rows``; ``scales``, of shape (number of rows, 1), holds d_t.

        The draws, and up to rounding the sums, are those of as many calls of :meth:`add`.
        """
        sums = np.empty(rows.shape)
        series, dimension = self.buffers.shape
        draws, stepped = (np.empty((BLOCK + series, dimension)) for _ in range(2))
        for chunk in chunks(len(rows), dimension):
            part = sums[chunk]
            rng.standard_normal(out=part)
            for first in range(0, len(part), BLOCK):
                block = part[first : first + BLOCK]
                n = len(block)
                draws[:n] = block
                draws[n : n + series] = self.buffers
                np.dot(_block_step(self._c, n)[:-1, :-1], draws[: n + series], out=stepped[: n + series])
                self.buffers[:] = stepped[n : n + series]
                np.multiply(stepped[:n], scales[chunk][first : first + n], out=block)
            part += rows[chunk]
            part[0] += self.total
            accumulate(part)
            self.total[:] = part[-1]
        return sums


class _Rows:
    """One copy of (ζ; s; last sum), and views of its parts, which cost more to make than to use."""

    def __init__(self, series: int, dimension: int) -> None:
        self.all: Vector = np.zeros((series + 2, dimension))
        self.zeta: Vector = self.all[0]
        self.kept: Vector = self.all[1:]
        self.buffers: Vector = self.all[1:-1]
        self.total: Vector = self.all[-1]


@lru_cache(maxsize=64)
def _block_step(c: Geometric, rows: int) -> Vector:
    """The matrix that takes (ζ; s; r), with ``rows`` rows of ζ, to (w; s; r + Σw) after those steps."""
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

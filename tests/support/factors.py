"""The encoder matrices of continual mechanisms, written out."""

from __future__ import annotations

import math
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np

from dpkit.continual import Factorization, Unbounded, Weighted


def toeplitz_factor(c: np.ndarray) -> np.ndarray:
    """C with entries c_{t−s} for t ≥ s, every column divided by its norm."""
    m = len(c)
    C = np.array([[c[t - s] if t >= s else 0.0 for s in range(m)] for t in range(m)])
    return C / np.linalg.norm(C, axis=0)


def length(mechanism, horizon: int) -> dict[str, Any]:
    """The parameters that say that a stream has so many inputs (at most 256 where every one has a weight)."""
    if mechanism is Unbounded:
        return {}
    return {"weights": 1.0 + np.arange(min(horizon, 256)) % 5} if mechanism is Weighted else {"horizon": horizon}


def factorization_of(sums) -> Factorization:
    """The encoder and decoder of a stream, which speak the public protocol."""
    return sums._factorization


def step_of(sums) -> float:
    """γ, of which what leaves is a whole multiple."""
    return sums._law.step


def row_std(sums) -> float:
    """The standard deviation of the noise in one encoded row, in units of the inputs."""
    return sums.noise_std(1) / factorization_of(sums).error(1)


def rounded_std(sums) -> float:
    """The standard deviation of the real noise in an encoded row, in steps; rounding adds 1/12 to its variance."""
    return math.sqrt((row_std(sums) / step_of(sums)) ** 2 - 1 / 12)


def coarsen(sums, bits: int) -> None:
    """Gaussian noise of the standard deviation 2**bits in units of the step, which stays."""
    sums._law.bits = bits


def encoder(factorization: Factorization, steps: int) -> np.ndarray:
    """C, from large unit inputs, where nothing but zeros is released."""
    size = min(factorization.reach, 2.0**40)
    factorization.begin(steps, np.dtype(np.int64))
    rows = []
    for t, unit in enumerate(size * np.eye(steps)):
        rows.append(factorization.encode(t, unit))
        factorization.decode(t, np.zeros_like(rows[-1]))
    return np.vstack(rows) / size


def worst_unit(C: np.ndarray, m: int, b: int) -> float:
    """max ‖Σ Ce_j u_jᵀ‖ over sets of m columns, b apart, and unit vectors u_j along two axes, with both signs."""
    directions = [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0)]
    largest = 0.0
    for count in range(1, m + 1):
        for S in combinations(range(C.shape[1]), count):
            if all(q - p >= b for p, q in pairwise(S)):
                for u in product(directions, repeat=count):
                    largest = max(largest, float(np.linalg.norm(C[:, list(S)] @ np.array(u))))
    return largest


def triangle(first: np.ndarray, T: int) -> np.ndarray:
    """The lower-triangular Toeplitz matrix with this first column."""
    column = np.zeros(T)
    column[: min(T, len(first))] = first[:T]
    lags = np.subtract.outer(np.arange(T), np.arange(T))
    return np.where(lags >= 0, column[np.abs(lags)], 0.0)


def scale_noise(sums, factor: float) -> None:
    """Break a continual sum: its noise is ``factor`` times what it claims."""
    law, draw = sums._law, sums._law.draw
    law.draw = lambda *arguments: np.rint(factor * draw(*arguments)).astype(law.dtype)
    law.std *= factor


class Noise:
    """What stands for a stream's noise, once :func:`noise_by` has put it there: a single number is a row."""

    def one(self, encoded: int) -> int:
        return self.add_to(np.array([[encoded]]))[0, 0].item()


def noise_of(sums) -> Noise:
    """What a stream asks for noise: ``add_to`` takes encoded rows to noisy ones, ``one`` a number."""
    return sums._ahead


def noise_by(sums, noise: Noise) -> Noise:
    sums._ahead = noise
    return noise


class Given(Noise):
    """In place of a stream's noise: these rows of integers, in order."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = iter(rows)

    def add_to(self, encoded: np.ndarray) -> np.ndarray:
        for row in encoded:
            row += next(self._rows).astype(encoded.dtype)
        return encoded


class Recorded(Noise):
    """The noise that a stream draws, kept: ``rows`` are the encoded rows and the noisy ones."""

    def __init__(self, sums) -> None:
        self._source, self.rows = noise_of(sums), []
        noise_by(sums, self)

    def add_to(self, encoded: np.ndarray) -> np.ndarray:
        before = encoded.copy()
        noisy = self._source.add_to(encoded)
        self.rows += [(k, z) for k, z in zip(before, noisy.copy(), strict=True)]
        return noisy


class Forced(Noise):
    """In place of a stream's noise: these noisy rows are released, whatever is encoded, which is kept."""

    def __init__(self, sums, rows) -> None:
        self._rows, self.encoded = iter(rows), []
        noise_by(sums, self)

    def add_to(self, encoded: np.ndarray) -> np.ndarray:
        self.encoded += list(encoded.copy())
        return np.array([next(self._rows) for _ in encoded], dtype=encoded.dtype).reshape(encoded.shape)


UNIT = 2**40


def decoder(sums, draws: int, splits=None) -> np.ndarray:
    """B of a stream of shape (draws,): rows are estimates, columns are rows of noise in their order."""
    noise_by(sums, Given(UNIT * np.eye(draws, dtype=np.int64)))
    steps = min(sums.horizon, draws)
    zeros = np.zeros((steps, draws))
    if splits is None:
        estimates = np.array([sums.add(row) for row in zeros])
    else:
        estimates = np.vstack([sums.add_many(part) for part in np.split(zeros, sorted(splits))])
    return estimates / (UNIT * step_of(sums))

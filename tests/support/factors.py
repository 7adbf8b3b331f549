"""The encoder matrices of continual mechanisms, written out."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpkit.continual import Unbounded, Weighted


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


def scale_noise(sums, factor: float) -> None:
    """Break a continual sum: its noise is ``factor`` times what it claims."""
    law, draw = sums._law, sums._law.draw
    law.draw = lambda *arguments: np.rint(factor * draw(*arguments)).astype(law.dtype)
    law.std *= factor


class Noise:
    """What stands for a stream's noise: a single number is a row."""

    def one(self, encoded: int) -> int:
        return self.add_to(np.array([[encoded]]))[0, 0].item()


class Given(Noise):
    """In place of a stream's noise: these rows of integers, in order."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = iter(rows)

    def add_to(self, encoded: np.ndarray) -> np.ndarray:
        for row in encoded:
            row += next(self._rows).astype(encoded.dtype)
        return encoded


UNIT = 2**40


def decoder(sums, draws: int, splits=None) -> np.ndarray:
    """B of a stream of shape (draws,): rows are estimates, columns are rows of noise in their order."""
    sums._ahead = Given(UNIT * np.eye(draws, dtype=np.int64))
    steps = min(sums.horizon, draws)
    zeros = np.zeros((steps, draws))
    if splits is None:
        estimates = np.array([sums.add(row) for row in zeros])
    else:
        estimates = np.vstack([sums.add_many(part) for part in np.split(zeros, sorted(splits))])
    return estimates / (UNIT * sums._law.step)

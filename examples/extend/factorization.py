"""A factorization of your own: any lower triangle C, written out, as a continual mechanism.

A = B·C turns running sums into noise on the rows of C·x. Whatever ``ContinualSum`` promises (exact noise, calibration,
ledger, states and their marks) is the same for every factorization, so this class is all that a new mechanism needs.

    >>> from accounting import Budget
    >>> from dpkit.continual import ContinualSum
    >>> C = np.eye(8) + 0.5 * np.eye(8, k=-1)
    >>> sums = ContinualSum.calibrated(
    ...     budget=Budget(1.0, 1e-6), factorization=Dense(C), shape=2, sensitivity=1.0)
    >>> sums.add([1.0, 0.0]).shape
    (2,)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpkit.continual.factorization import Factorization, reach_of

__all__ = ["Dense"]

Array = NDArray[Any]


class Dense(Factorization):
    """Any lower triangle C with a positive diagonal: B = A·C⁻¹, for a few dozen inputs."""

    def __init__(self, C: Array) -> None:
        super().__init__(len(C))
        self.C, self.B = C, np.tril(np.ones(C.shape)) @ np.linalg.inv(C)
        self.column_norm = float(np.linalg.norm(C, axis=0).max()) * (1 + 1e-12)
        self.reach = reach_of(float(np.abs(C).sum(axis=1).max()), len(C))

    def begin(self, dimension: int, dtype: np.dtype[Any]) -> None:
        self.inputs, self.noisy = np.zeros((2, self.horizon, dimension))

    def encode(self, t: int, v: Array) -> Array:
        self.inputs[t] = v
        return np.rint(self.C[t, : t + 1] @ self.inputs[: t + 1]).astype(np.int64)[None]

    def decode(self, t: int, z: Array) -> Array:
        self.noisy[t] = z[0]
        return np.asarray(self.B[t, : t + 1] @ self.noisy[: t + 1])

    def secret(self, t: int) -> dict[str, Array]:
        return {"inputs": self.inputs[:t]}

    def public(self, t: int) -> dict[str, Array]:
        return {"noisy": self.noisy[:t]}

    def error(self, t: int) -> float:
        return float(np.linalg.norm(self.B[t - 1]))

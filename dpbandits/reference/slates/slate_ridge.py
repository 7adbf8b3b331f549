"""The ridge regression of the clicks on slates, of the positions that were seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from accounting.arrays import Array
from dpkit.models.ellipsoid import RankOneInverse
from dpkit.states.entries import Kept

__all__ = ["SlateRidge"]


class SlateRidge(Kept):
    """θ = V⁻¹Σ q(r − q·base_rate)x, V = λI + Σq²x xᵀ: the mean of r at a position that is looked at by chance q.

    Parameters
    ----------
    dim : int
        d.
    ridge : float
        λ.
    examination : "cascade" or tuple of float
        q by position; 1 in a cascade.
    base_rate : float
        What is subtracted from rewards of arms that are seen.

    Attributes
    ----------
    theta : (d,) ndarray
    V : RankOneInverse
    """

    _KEPT = ("V", "b", "theta")

    def __init__(
        self, dim: int, ridge: float, examination: Literal["cascade"] | tuple[float, ...], base_rate: float
    ) -> None:
        self.V, self.b, self.theta = RankOneInverse(dim, ridge), np.zeros(dim), np.zeros(dim)
        self._examination, self._base_rate = examination, base_rate

    def add(self, arms: Array, clicks: Sequence[float]) -> None:
        """Take in the clicks on a slate, of the positions that were seen."""
        known = [1.0] * len(clicks) if isinstance(self._examination, str) else self._examination
        for x, r, q in zip(arms, clicks, known, strict=False):
            self.V.add(q * x, 1.0)
            self.b += q * (r - q * self._base_rate) * x
        self.theta = self.V.inverse.dot(self.b)

"""Ridge regression for every arm of the policies without privacy that have a parameter per arm."""

from __future__ import annotations

import numpy as np

from accounting.arrays import Array
from dpkit.states.entries import Kept

__all__ = ["RidgeBlocks"]


class RidgeBlocks(Kept):
    """V_k = λI + Σx xᵀ with its inverse, b_k = Σg·x and θ_k = V_k⁻¹b_k, for K arms that grow in number.

    Parameters
    ----------
    d, arms : int
        Of a feature vector, and K.
    ridge : float
        λ.
    """

    _KEPT = ("V", "inverse", "b", "theta")

    def __init__(self, d: int, arms: int, ridge: float) -> None:
        self._ridge = ridge
        self.V = np.tile(ridge * np.eye(d), (arms, 1, 1))
        self.inverse = np.tile(np.eye(d) / ridge, (arms, 1, 1))
        self.b, self.theta = np.zeros((arms, d)), np.zeros((arms, d))

    def grow(self) -> None:
        """One more arm."""
        own = RidgeBlocks(self.b.shape[1], 1, self._ridge)
        for name in self._KEPT:
            setattr(self, name, np.concatenate([getattr(self, name), getattr(own, name)]))

    def add(self, arm: int, x: Array, g: float) -> None:
        """Take in one record."""
        self.V[arm] += np.outer(x, x)
        self.b[arm] += g * x
        # afresh, so that no rounding gathers
        self.inverse[arm] = np.linalg.inv(self.V[arm])
        self.theta[arm] = self.inverse[arm] @ self.b[arm]

    def norms(self, x: Array) -> Array:
        """‖x‖ in the norm of V_k⁻¹, for every arm."""
        return np.asarray(np.sqrt(np.maximum(self.inverse @ x @ x, 0.0)))

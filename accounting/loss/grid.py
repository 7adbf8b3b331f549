"""A privacy loss on an even grid: what other software hands over, and what a composed loss is stored as."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction, integer, positive
from accounting.loss.pair import LopsidedAtoms

__all__ = ["GridPair"]


@dataclass(frozen=True, eq=False)
class GridPair(LopsidedAtoms):
    """P has ``mass`` at the losses ``step`` × (``first``, ``first`` + 1, …), and ``beyond`` at infinite ones.

    Q has e^(−L) times as much. Pairs of the same numbers are equal.
    """

    step: float
    first: int
    mass: Array = field(repr=False)
    beyond: float
    _digest: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        positive("step", self.step)
        integer("first", self.first, at_least=-(2**53))
        fraction("beyond", self.beyond, include_zero=True, include_one=True)
        mass = np.array(self.mass, dtype=np.float64)
        if mass.ndim != 1 or mass.size == 0 or not np.all(mass >= 0):
            raise ValueError(f"mass must be a row of numbers ≥ 0, got mass={self.mass!r}")
        # what is missing would be free of charge; what is more than 1 only adds
        if not -1e-12 <= float(mass.sum()) + self.beyond - 1 <= 1e-6:
            raise ValueError(f"mass and beyond must add up to 1, got {float(mass.sum()) + self.beyond!r}")
        mass.setflags(write=False)
        object.__setattr__(self, "mass", mass)
        told = np.array([self.step, self.first, self.beyond]).tobytes() + mass.tobytes()
        object.__setattr__(self, "_digest", hashlib.sha256(told).digest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GridPair) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    def atoms(self) -> tuple[Array, Array, Array, float]:
        losses = self.step * (self.first + np.arange(self.mass.size, dtype=np.float64))
        with np.errstate(over="ignore"):
            q = np.exp(-losses) * self.mass
        return losses, self.mass, q, self.beyond

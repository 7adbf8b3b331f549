"""The noise of one node of a tree: four distributions, each with its scale, its standard deviation and its cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from accounting import Adjacency, DiscreteGaussian, Gaussian, GeneralizedGaussian, Laplace, Release
from dpkit.geometry import best_norm
from dpkit.samplers import discrete_gaussian, generalized_gaussian

__all__ = ["KINDS", "NodeNoise", "node_cost", "node_noise"]

KINDS = ("gaussian", "laplace", "generalized_gaussian", "discrete_gaussian")

_COSTS: dict[str, Callable[..., Release]] = {
    "gaussian": Gaussian,
    "laplace": Laplace,
    "generalized_gaussian": GeneralizedGaussian,
    "discrete_gaussian": DiscreteGaussian,
}


# what the exact sampler takes; refused when the tree is made, not at its first draw
_SMALLEST_SCALE, _LARGEST_SCALE = 2.0**-40, 2.0**40


class NodeNoise(Protocol):
    """Independent rows of noise; ``std`` is the standard deviation of one entry."""

    std: float

    def row(self, rng: np.random.Generator) -> NDArray[Any]:
        """One fresh row, shape (dimension,)."""

    def rows(self, rng: np.random.Generator, count: int) -> NDArray[Any]:
        """``count`` fresh rows, shape (count, dimension)."""


def node_cost(noise: str, noise_multiplier: float, adjacency: Adjacency) -> Release:
    """What one noisy node costs."""
    return _COSTS[noise](noise_multiplier, adjacency=adjacency)


def node_noise(noise: str, scale: float, q: float, dimension: int) -> NodeNoise:
    """The noise of a node; ``scale`` is z·s, the noise multiplier times the sensitivity in the norm of ``noise``."""
    match noise:
        case "laplace":
            return _Laplace(scale, dimension)
        case "generalized_gaussian":
            return _Generalized(scale, q, dimension)
        case "discrete_gaussian":
            return _Discrete(scale, dimension)
        case _:
            return _Gaussian(scale, dimension)


class _Gaussian:
    """Standard deviation z·s, s in L2."""

    def __init__(self, scale: float, dimension: int) -> None:
        self.std = scale
        self._dimension = dimension

    def row(self, rng: np.random.Generator) -> NDArray[np.float64]:
        return rng.normal(0.0, self.std, self._dimension)

    def rows(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        noise: NDArray[np.float64] = rng.standard_normal((count, self._dimension))
        noise *= self.std
        return noise


class _Laplace:
    """Scale z·s, s in L1."""

    def __init__(self, scale: float, dimension: int) -> None:
        self.std = math.sqrt(2.0) * scale
        self._scale = scale
        self._dimension = dimension

    def row(self, rng: np.random.Generator) -> NDArray[np.float64]:
        return rng.laplace(0.0, self._scale, self._dimension)

    def rows(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        return rng.laplace(0.0, self._scale, (count, self._dimension))


class _Generalized:
    """Density ∝ exp(−‖n‖_r²/(2σ₊²)), σ₊ = z·√κ·s, s in ℓ_q; r and κ follow from q and the dimension."""

    def __init__(self, scale: float, q: float, dimension: int) -> None:
        self._r, kappa = best_norm(q, dimension)
        self._sigma = math.sqrt(kappa) * scale
        self._dimension = dimension
        # An entry is R·x_1/‖x‖_r with E R² = dσ₊² and independent |x_i|^r ~ Gamma(1/r). The direction is independent of
        # ‖x‖_r, so E(x_1²/‖x‖_r²) = E x_1²/E‖x‖_r², where ‖x‖_r^r ~ Gamma(d/r).
        r, d = self._r, dimension
        log = math.lgamma(3 / r) - math.lgamma(1 / r) + math.lgamma(d / r) - math.lgamma((d + 2) / r)
        self.std = self._sigma * math.sqrt(d * math.exp(log))

    def row(self, rng: np.random.Generator) -> NDArray[np.float64]:
        row: NDArray[np.float64] = self.rows(rng, 1)[0]
        return row

    def rows(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        return generalized_gaussian(self._r, self._sigma, self._dimension, count, rng=rng)


class _Discrete:
    """Integers of parameter z·s, s in L2, sampled exactly."""

    def __init__(self, scale: float, dimension: int) -> None:
        if not _SMALLEST_SCALE <= scale <= _LARGEST_SCALE:
            raise ValueError(f"noise_multiplier * sensitivity must lie in [2**-40, 2**40] for integers, got {scale!r}")
        self._sigma = scale
        self._dimension = dimension
        # from σ = 8 on, the standard deviation is σ to the last digit
        self.std = scale
        if scale < 8:
            k = np.arange(-80, 81, dtype=np.float64)
            weights = np.exp(-0.5 * (k / scale) ** 2)
            self.std = math.sqrt(float(weights @ (k * k)) / float(weights.sum()))

    def row(self, rng: np.random.Generator) -> NDArray[np.int64]:
        return discrete_gaussian(self._sigma, self._dimension, rng=rng)

    def rows(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        return discrete_gaussian(self._sigma, (count, self._dimension), rng=rng)

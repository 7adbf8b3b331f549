"""Prefix sums of a stream with correlated Gaussian noise, by the exact square-root factorization: the reference.

Source: Fichtenberger, Henzinger & Upadhyay (2023), "Constant matters: fine-grained error bound on differentially
private continual observation", arXiv:2202.11205.

The all-ones lower triangle A is C·C for the lower-triangular Toeplitz matrix C with entries c_k = binom(2k, k)/4^k.
What leaves is A·x + σCζ, row by row, with independent standard Gaussian ζ; that is C applied to C·x + σζ.

All inputs and all encoded rows are kept, so memory grows with the stream: 2T × dimension numbers.
``BufferedToeplitz`` does the same job with less noise in logarithmic memory; this is what it is compared with.

Guarantee
---------
* Unit: one input x_t. Neighbouring streams differ in one input, in the sense of ``adjacency``, by at most
  ``sensitivity`` in L2 norm.
* The column of C that meets that input has norm at most ‖(c_0 … c_{T−1})‖, and σ = noise_multiplier × sensitivity ×
  that norm. So the *whole stream* costs one ``Gaussian(noise_multiplier)``.
* Inputs may depend on earlier outputs: a lower-triangular C with Gaussian noise is as private for adaptive inputs as
  for fixed ones (Denisov, McMahan, Rush, Smith & Thakurta 2022, arXiv:2202.08312, Theorem 2.1).
* It holds for the program as it runs, in floating point: noise is added to integers (``dpkit.continual.sums``). C has
  float64 entries, and the dot products of the encoder with them are right within T + 2 roundings; from 512 inputs at
  once on, a fast transform takes their place (``dpkit.continual._convolution`` has its bound).

Cost per step t: 4t × dimension multiplications and additions, most of them in matrix products over blocks of steps.
T inputs at once: some 30 log₂ T × dimension per step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from accounting import Adjacency
from accounting.amplification.participation import toeplitz_sensitivity
from dpkit.continual._convolution import FAST, Convolution, Product, rounding
from dpkit.continual.coefficients import ROUNDING
from dpkit.continual.factorization import UNIT_ROUNDOFF, Factorization, checked_horizon, reach_of
from dpkit.continual.sums import ContinualSum

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["Toeplitz"]


class Toeplitz(ContinualSum):
    """Noisy prefix sums of at most ``horizon`` inputs, by the square root of the all-ones triangle.

    Parameters
    ----------
    horizon : int
        T, the largest number of inputs; what is calibrated for.
    noise_multiplier : float
        The whole stream costs ``Gaussian(noise_multiplier)``.
    shape, sensitivity, noise, adjacency, participations, min_separation, symmetric, rng, ledger, label
        As for :class:`dpkit.continual.ContinualSum`; so are the attributes and what is raised.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.continual import Toeplitz
    >>> sums = Toeplitz(horizon=1024, shape=(), sensitivity=1.0, noise_multiplier=1.0, rng=np.random.default_rng(0))
    >>> estimate = sums.add(1.0)
    >>> round(sums.noise_std(1), 4), round(sums.noise_std(1024), 4)
    (1.8099, 3.2742)
    """

    _PARAMETERS: ClassVar[tuple[str, ...]] = ("horizon",)

    def __init__(
        self,
        *,
        horizon: int,
        shape: int | tuple[int, ...],
        sensitivity: float,
        noise_multiplier: float,
        noise: Literal["gaussian"] = "gaussian",
        adjacency: Adjacency = "replace",
        participations: int = 1,
        min_separation: int = 1,
        symmetric: bool = False,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        label: str = "Toeplitz sums",
    ) -> None:
        horizon = checked_horizon(horizon)
        self._c, norms = _square_root(horizon)
        super().__init__(
            _SquareRoot(self._c, norms),
            shape=shape,
            sensitivity=sensitivity,
            noise_multiplier=noise_multiplier,
            noise=noise,
            adjacency=adjacency,
            participations=participations,
            min_separation=min_separation,
            symmetric=symmetric,
            rng=rng,
            ledger=ledger,
            label=label,
        )

    @property
    def coefficients(self) -> NDArray[np.float64]:
        """c_0, …, c_{T−1}, the first column of C; all are nonnegative."""
        return self._c.copy()


class _SquareRoot(Factorization):
    """B = C, Toeplitz with the first column ``c``; ``norms`` are those of its first t entries."""

    in_parts = False  # each part would transform all rows before it

    def __init__(self, c: NDArray[np.float64], norms: NDArray[np.float64]) -> None:
        super().__init__(len(c))
        self._c, self._norms = c, norms
        self.column_norm = float(norms[-1]) * ROUNDING
        row_sum, longest = float(c.sum()), len(c)
        # A dot product of up to T terms, in two sums; or all rows at once, with an error in root mean square over those
        # of one call, of which there are FAST or more: rounding(c)·‖v‖/√FAST ≤ rounding(c)·√(T/FAST)·V.
        fast = rounding(c) / (UNIT_ROUNDOFF * row_sum) * math.sqrt(longest / FAST)
        self.reach = reach_of(row_sum, max(longest + 2, fast if longest >= FAST else 0))

    def joint_norm(self, participations: int, min_separation: int = 1) -> float:
        # exact: the earliest and closest columns
        return toeplitz_sensitivity(self._c, participations, min_separation) * ROUNDING

    def begin(self, dimension: int, dtype: np.dtype[Any]) -> None:
        self._inputs, self._noisy = (Product(self._c, dimension) for _ in range(2))

    def secret(self, t: int) -> dict[str, NDArray[Any]]:
        return {"inputs": self._inputs.rows[:t]}

    def public(self, t: int) -> dict[str, NDArray[Any]]:
        return {"noisy": self._noisy.rows[:t]}

    def check_saved(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        if (np.abs(arrays["inputs"]) > self.reach).any():
            raise ValueError(f"inputs must be at most {self.reach:.3g} in size, got others")

    def error(self, t: int) -> float:
        return float(self._norms[t - 1])

    def encode(self, t: int, v: NDArray[Any]) -> NDArray[Any]:
        return np.rint(self._inputs.next(t, v)).astype(np.int64)[None]

    def decode(self, t: int, z: NDArray[Any]) -> NDArray[Any]:
        return self._noisy.next(t, z[0])

    def one(self, t: int, v: float, noisy: Callable[[int], int]) -> float:
        return self._noisy.next_number(t, noisy(round(self._inputs.next_number(t, v))))

    def many(self, t: int, v: NDArray[Any], noisy: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
        convolution = Convolution(self._c[: t + len(v)]) if len(v) >= FAST else None
        rows = self._inputs.extend(t, v, convolution)
        np.rint(rows, rows)
        return self._noisy.extend(t, noisy(rows.astype(np.int64)), convolution)


@lru_cache(maxsize=4)
def _square_root(horizon: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """c_0, …, c_{T−1} and the norms ‖(c_0 … c_{t−1})‖ for t = 1, …, T."""
    k = np.arange(1, horizon, dtype=np.float64)
    c = np.cumprod(np.concatenate([[1.0], 1.0 - 0.5 / k]))
    norms = np.sqrt(np.cumsum(c * c))
    c.setflags(write=False)
    norms.setflags(write=False)
    return c, norms

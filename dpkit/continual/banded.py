"""Prefix sums by a Toeplitz factorization with few bands, made for streams in which units take part more than once.

For training over several epochs (:func:`dpkit.optimize.dp_ftrl`), where a row comes back every b steps. A·x leaves as
B(C·x + noise), B = A·C⁻¹, as in all of ``dpkit.continual``; here C is lower-triangular Toeplitz, and

* ``inverse=True``: C⁻¹ has p bands. :func:`inverse_root` is the *banded inverse square root* of Kalinin, McKenna,
  Upadhyay & Lampert (2025), "Back to square roots: an optimal bound on the matrix factorization error for multi-epoch
  differentially private SGD", arXiv:2505.12128: C⁻¹ has the first p coefficients of (1 − z)^{1/2},

      r_0 = 1,    r_k = r_{k−1}(k − 3/2)/k,

  and with momentum β those of ((1 − z)(1 − βz))^{1/2}, the inverse of the square root of the workload
  Σ_s (1 + β + … + β^{t−s}) x_s. With another ``power`` γ it has those of (1 − z)^γ, r_k = r_{k−1}(k − 1 − γ)/k, which
  is better where bands are few: the γ-BIFR of Rehn et al. (2026), "Beyond square roots: explicit memory-efficient
  factorization for multi-epoch private learning", arXiv:2605.18379. Two bands are 1, −γ.
* ``inverse=False``: C has p bands (Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta & Xu 2023, "(Amplified)
  banded matrix factorization: a unified approach to private training", arXiv:2306.08153). Columns p or more steps
  apart are then orthogonal.

:func:`optimal` finds the p numbers of either kind that minimise the error for given steps, participations, momentum
and learning rates; ``dpkit.continual._optimal_bands`` has the objective.

Sensitivity. Let a unit contribute to at most m inputs, any two b or more steps apart. For C ≥ 0 with nonincreasing
coefficients the worst are the columns 0, b, 2b, … with equal contributions (Kalinin & Lampert 2024, arXiv:2405.13763,
Theorem 2): N = ‖Σ_{j<m} Ce_{jb}‖, exactly. Where coefficients c_k ≥ 0 rise, N is that of max_{l≥k} c_l, whose inner
products of columns are no smaller. Where p ≤ b, columns of a banded C have disjoint rows: N² = Σ_{j<m} ‖Ce_{jb}‖²,
whatever the signs of contributions and coefficients. With m = 1, N is the longest column, the first.

For ``inverse=True``, a_0 = 1, a_j ≤ 0 and Σ_{j≥1} |a_j| ≤ 1 are asked for: then c_t = Σ_j |a_j|c_{t−j} lies in [0, 1].

A search ends elsewhere on a machine whose linear algebra rounds otherwise: by up to 4 % of the first column of C where
the error is flat. So a saved stream goes on with the coefficients that it has kept. They are checked as new ones are,
and norm, noise and errors are computed from them; the factorization that is given to ``ContinualSum.restore`` says the
horizon, the number of bands, and of which of C and C⁻¹ they are.

Cost per step: 2p multiplications and additions of the dimension, and one draw. Memory: 2p vectors, and 8T bytes.

The factorization and the choice of its bands are one file: the error that is minimised is that of the class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.amplification.participation import toeplitz_sensitivity
from accounting.checks import fraction, integer
from dpkit.continual._optimal_bands import mean_square, optimal_bands
from dpkit.continual._series import inverse_series
from dpkit.continual.coefficients import ROUNDING
from dpkit.continual.factorization import UNIT_ROUNDOFF, Factorization, most_participations, reach_of

__all__ = ["Banded", "inverse_root", "lowest_error", "optimal", "root_mean_square_error"]

Vector = NDArray[np.float64]

_LONGEST = 2**24
# the most bands that are chosen unasked
_BANDS = 1024


class Banded(Factorization):
    """A = B·C over ``horizon`` steps, where C or C⁻¹ is Toeplitz with these first coefficients and zeros after them.

    Parameters
    ----------
    coefficients : (p,) array_like
        a_0 = 1, a_1, …, at most ``horizon`` of them. With ``inverse`` a_j ≤ 0 and −Σ_{j≥1} a_j ≤ 1; otherwise a_j ≥ 0.
    horizon : int
        T, at most 2²⁴.
    inverse : bool
        Whether they are those of C⁻¹.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.continual import Banded, ContinualSum
    >>> sums = ContinualSum(
    ...     Banded([1.0, -0.5, -0.125], 100, inverse=True), shape=(), sensitivity=1.0, noise_multiplier=1.0,
    ...     participations=4, min_separation=25, rng=np.random.default_rng(0)
    ... )
    >>> estimate = sums.add(1.0)
    >>> round(sums.noise_std(100), 2)
    9.53
    """

    def __init__(self, coefficients: ArrayLike, horizon: int, *, inverse: bool) -> None:
        super().__init__(horizon)
        if self.horizon > _LONGEST:
            raise ValueError(f"horizon must be at most 2**24 for a banded factorization, got horizon={horizon!r}")
        a = np.array(coefficients, dtype=np.float64)
        self.coefficients, self.inverse, self.bands = a, bool(inverse), len(a) if a.ndim == 1 else 0
        if not 1 <= self.bands <= self.horizon or not np.isfinite(a).all() or a[0] != 1.0:
            raise ValueError(
                f"coefficients must be at most horizon={horizon} finite numbers, the first of them 1, "
                f"got coefficients={coefficients!r}"
            )
        off = a[1:]
        if self.inverse and ((off > 0).any() or -off.sum() > 1.0):
            raise ValueError("coefficients of an inverse must be at most 0 after the first, and add up to 0 or more")
        if not self.inverse and (off < 0).any():
            raise ValueError("coefficients of C must not be negative")
        a.setflags(write=False)
        T, p = self.horizon, self.bands
        if self.inverse:
            self._c = inverse_series(a, T)
            self._slack = ROUNDING * (1.0 + 1.1 * T * (p + 4) * UNIT_ROUNDOFF)
        else:
            self._c, self._slack = np.concatenate([a, np.zeros(T - p)]), ROUNDING
        self.column_norm = float(np.linalg.norm(self._c)) * self._slack
        # K ≥ Σ_s |C_ts|. A banded C takes one dot product. For an inverse, k_t = v_t − Σ_j a_j k_{t−j} is right within
        # p roundings of at most 2KV, which C turns into K times as much.
        K = float(self._c.sum()) * self._slack
        self._most = K
        self.reach = reach_of(K, (p + 2.0) * (1.0 + K) if self.inverse else p + 2.0)

    def __repr__(self) -> str:
        return f"Banded({self.bands} bands, horizon={self.horizon:,}, inverse={self.inverse})"

    @cached_property
    def _majorant(self) -> Vector:
        return np.maximum.accumulate(self._c[::-1])[::-1]

    def joint_norm(self, participations: int, min_separation: int = 1) -> float:
        most = most_participations(self.horizon, participations, min_separation)
        if most == 1:
            return self.column_norm
        if not self.inverse and self.bands <= min_separation:
            full = np.cumsum(self.coefficients**2)
            left = self.horizon - min_separation * np.arange(most)
            return math.sqrt(float(full[np.minimum(left, self.bands) - 1].sum())) * self._slack
        return toeplitz_sensitivity(self._majorant, most, min_separation) * self._slack

    def begin(self, dimension: int, dtype: np.dtype[Any]) -> None:
        self._encoder, self._decoder = (_Filter(self.coefficients, dimension, divide) for divide in self._divides)
        self._total, self._kept = np.zeros(dimension), self.coefficients.copy()

    @property
    def _divides(self) -> tuple[bool, bool]:
        """Whether the encoder divides by a(z), and whether the decoder does."""
        return self.inverse, not self.inverse

    def secret(self, t: int) -> dict[str, NDArray[Any]]:
        return {"inputs": self._encoder.rows}

    def public(self, t: int) -> dict[str, NDArray[Any]]:
        return {"noisy": self._decoder.rows, "sum": self._total, "coefficients": self._kept}

    def as_saved(self, arrays: Mapping[str, NDArray[Any]]) -> Banded:
        kept = arrays["coefficients"]
        same = np.array_equal(kept, self.coefficients)
        return self if same else Banded(kept, self.horizon, inverse=self.inverse)

    def check_saved(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        most = 1.01 * self._most * self.reach if self.inverse else self.reach
        if (np.abs(arrays["inputs"]) > most).any():
            raise ValueError(f"inputs must be at most {most:.3g} in size, got others")

    @cached_property
    def _norms(self) -> Vector:
        inverse = np.zeros(self.horizon)
        if self.inverse:
            inverse[: self.bands] = self.coefficients
        else:
            inverse = inverse_series(self.coefficients, self.horizon)
        return np.asarray(np.sqrt(np.cumsum(np.cumsum(inverse) ** 2)))

    def error(self, t: int) -> float:
        return float(self._norms[t - 1])

    def encode(self, t: int, v: NDArray[Any]) -> NDArray[Any]:
        return np.rint(self._encoder.next(t, v)).astype(np.int64)[None]

    def decode(self, t: int, z: NDArray[Any]) -> NDArray[Any]:
        self._total += self._decoder.next(t, z[0])
        return self._total


class _Filter:
    """Rows times a(z), or divided by it, one after the other; ``rows`` holds the last p − 1 factors, in a ring."""

    def __init__(self, a: Vector, dimension: int, divide: bool) -> None:
        self._divide, m = divide, len(a) - 1
        self.rows = np.zeros((m, dimension))
        # from (−t mod m) on, these are the coefficients of the ring's places at step t
        places = np.arange(2 * m)
        self._weights = a[1:][(m - 1 - places) % m] if m else np.zeros(0)

    def next(self, t: int, row: NDArray[Any]) -> Vector:
        m = len(self.rows)
        if m == 0:
            return np.asarray(row, dtype=np.float64)
        start = -t % m
        earlier = self._weights[start : start + m] @ self.rows
        found: Vector = row - earlier if self._divide else row + earlier
        self.rows[t % m] = found if self._divide else row
        return found


def inverse_root(
    horizon: int,
    *,
    bands: int | None = None,
    power: float = 0.5,
    momentum: float = 0.0,
    participations: int = 1,
    min_separation: int = 1,
) -> Banded:
    """The banded inverse square root of the prefix sums, or of the workload of SGD with momentum; or another root.

    Parameters
    ----------
    horizon : int
        T.
    bands : int, optional
        p; by default the power of two, up to 1024, with the smallest error for the participations.
    power : float
        γ in (0, 1]: C⁻¹ begins as (1 − z)^γ does. Only 1/2 with momentum.
    momentum : float
        β in [0, 1).
    participations, min_separation : int
        What the default number of bands is chosen for; the privacy of a stream follows from its own.

    Examples
    --------
    >>> from dpkit.continual import inverse_root
    >>> inverse_root(1000, bands=4).coefficients
    array([ 1.    , -0.5   , -0.125 , -0.0625])
    >>> inverse_root(1000, bands=4, power=0.8).coefficients.round(3)
    array([ 1.   , -0.8  , -0.08 , -0.032])
    >>> inverse_root(1000, participations=10, min_separation=100).bands
    64
    """
    beta = fraction("momentum", momentum, include_zero=True)
    gamma = fraction("power", power, include_one=True)
    if beta and gamma != 0.5:
        raise ValueError(f"power must be 0.5 with momentum, as others have coefficients above 0, got power={power!r}")
    if bands is not None:
        p = integer("bands", bands, at_least=1)
        k = np.arange(1, p, dtype=np.float64)
        r = np.cumprod(np.concatenate([[1.0], (k - 1.0 - gamma) / k]))
        if beta:
            r = np.convolve(r, r * beta ** np.arange(p))[:p]
            # all of them are negative: differences below the last digit are not
            r[1:] = np.minimum(r[1:], 0.0)
        return Banded(r, horizon, inverse=True)
    most = min(_BANDS, integer("horizon", horizon, at_least=1))
    made = [inverse_root(horizon, bands=2**i, power=gamma, momentum=beta) for i in range(most.bit_length())]
    known: dict[str, Any] = {"participations": participations, "min_separation": min_separation, "momentum": beta}
    return min(made, key=lambda banded: root_mean_square_error(banded, **known))


def optimal(
    horizon: int,
    *,
    bands: int | None = None,
    inverse: bool = False,
    momentum: float = 0.0,
    rates: ArrayLike | None = None,
    participations: int = 1,
    min_separation: int = 1,
) -> Banded:
    """The banded factorization with the least mean squared error, found by L-BFGS from the square root.

    Parameters
    ----------
    horizon : int
        T.
    bands : int, optional
        p; by default 64, or as many as ``horizon`` and, unless ``inverse``, ``min_separation`` allow.
    inverse : bool
        Whether C⁻¹ has the bands, or C.
    momentum : float
        β in [0, 1).
    rates : (T,) array_like, optional
        Learning rates η_t ≥ 0, public: the error is that of Σ_{u≤t} η_u m_u, m_u = βm_{u−1} + x_u. By default all 1.
    participations, min_separation : int
        What the error is relative to; the privacy of a stream follows from its own.

    Examples
    --------
    >>> from dpkit.continual import inverse_root, optimal
    >>> from dpkit.continual.banded import root_mean_square_error
    >>> known = {"participations": 10, "min_separation": 100}
    >>> for found in (inverse_root(1000, **known), optimal(1000, **known), optimal(1000, inverse=True, **known)):
    ...     print(round(root_mean_square_error(found, **known), 2))
    12.37
    12.76
    12.19
    """
    T = integer("horizon", horizon, at_least=1)
    beta = fraction("momentum", momentum, include_zero=True)
    most = most_participations(T, participations, min_separation)
    p = min(64, T) if bands is None else integer("bands", bands, at_least=1)
    if not inverse and most > 1:
        if bands is not None and p > min_separation:
            raise ValueError(
                f"bands must be at most min_separation={min_separation} where C is banded, got bands={bands!r}: take "
                "inverse=True"
            )
        p = min(p, min_separation)
    start = inverse_root(T, bands=p, momentum=beta)
    first = start.coefficients if inverse else inverse_root(T, bands=T, momentum=beta)._c[:p]
    return Banded(optimal_bands(first, T, inverse, most, min_separation, beta, rates), T, inverse=inverse)


def root_mean_square_error(
    factorization: Banded,
    *,
    participations: int = 1,
    min_separation: int = 1,
    momentum: float = 0.0,
    rates: ArrayLike | None = None,
) -> float:
    """The error at noise multiplier 1: the joint norm of C times √(mean over t of the t-th iterate's variance).

    The literature's RMSE; iterates are Σ_{u≤t} η_u m_u as in :func:`optimal`, prefix sums by default.
    """
    inverse = np.zeros(factorization.horizon)
    if factorization.inverse:
        inverse[: factorization.bands] = factorization.coefficients
    else:
        inverse = inverse_series(factorization.coefficients, factorization.horizon)
    value, _ = mean_square(inverse, fraction("momentum", momentum, include_zero=True), rates)
    return factorization.joint_norm(participations, min_separation) * math.sqrt(value)


def lowest_error(
    horizon: int,
    *,
    bands: int,
    momentum: float = 0.0,
    rates: ArrayLike | None = None,
    participations: int = 1,
    min_separation: int = 1,
) -> Banded:
    """The better one of the :func:`optimal` factorizations with at most so many bands, of C and of C⁻¹.

    Examples
    --------
    >>> from dpkit.continual.banded import lowest_error
    >>> [lowest_error(2000, bands=p, participations=20, min_separation=100).inverse for p in (16, 100)]
    [True, False]
    """
    shared = None if rates is None else tuple(np.asarray(rates, dtype=np.float64).tolist())
    coefficients, inverse = _searched(horizon, bands, momentum, shared, participations, min_separation)
    return Banded(coefficients, horizon, inverse=inverse)


@lru_cache(maxsize=64)
def _searched(
    horizon: int,
    bands: int,
    momentum: float,
    rates: tuple[float, ...] | None,
    participations: int,
    min_separation: int,
) -> tuple[Vector, bool]:
    """The coefficients of :func:`lowest_error`; kept, for whoever tries several learning rates asks for the same."""
    error: dict[str, Any] = {
        "momentum": momentum,
        "rates": rates,
        "participations": participations,
        "min_separation": min_separation,
    }
    most = min(bands, integer("horizon", horizon, at_least=1))
    banded = min(most, min_separation) if participations > 1 else most
    made = [
        optimal(horizon, bands=most, inverse=True, **error),
        optimal(horizon, bands=banded, inverse=False, **error),
    ]
    best = min(made, key=lambda one: root_mean_square_error(one, **error))
    return best.coefficients, best.inverse

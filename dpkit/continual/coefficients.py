"""Buffered Toeplitz coefficients: lower-triangular Toeplitz matrices whose entries are sums of few geometric series.

Let C have the entries c_k = Σ_i ω_i λ_i^k (k steps below the diagonal), ω_i > 0, 0 < λ_i < 1, c_0 = Σω_i = 1. Then

* C ≥ 0, and the norm of a column with n entries is closed-form: ‖c_{0:n}‖² = Σ_ij ω_iω_j (1 − (λ_iλ_j)^n)/(1 − λ_iλ_j);
* products with C⁻¹ take one number per buffer and coordinate (Dvijotham, McMahan, Pillutla, Steinke & Thakurta
  2024, "Efficient and Near-Optimal Noise Generation for Streaming Differential Privacy", arXiv:2404.16706);
* A·C⁻¹, with A the all-ones lower triangle, has entries of the same kind, Σ_j η_j μ_j^k with η ≥ 0 and one μ_j = 1, so
  that the error of each prefix sum is closed-form too (McMahan & Pillutla 2025, "An Inversion Theorem for Buffered
  Linear Toeplitz (BLT) Matrices and Applications to Streaming Differential Privacy").
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ROUNDING",
    "ColumnScales",
    "Geometric",
    "column_scales",
    "prefix_sum_errors",
    "sqrt_coefficients",
    "square_summable_coefficients",
]

Vector = NDArray[np.float64]

# Sensitivities are multiplied by this: two orders of magnitude above the rounding error of a closed-form norm.
ROUNDING = 1.0 + 1e-12

# 1 − λ is here still a multiple, by a dozen or more, of the spacing of floats below 1.
_LARGEST_LOGIT = 34.0


@dataclass(frozen=True, eq=False)
class Geometric:
    """The sequence k ↦ Σ_i ``weights``_i (1 − ``gaps``_i)^k. Gaps rather than rates, which lose digits near 1."""

    weights: Vector
    gaps: Vector

    def __post_init__(self) -> None:
        # instances are cached and shared between mechanisms, so nobody may write to them
        self.weights.setflags(write=False)
        self.gaps.setflags(write=False)

    def discounted(self, discount: float) -> Geometric:
        """The sequence times ``discount``^k, 0 < discount ≤ 1."""
        lost = 1.0 - discount  # exact from ½ on, where gaps may be small
        return Geometric(self.weights, lost + discount * self.gaps)

    @property
    def rates(self) -> Vector:
        """1 − gaps."""
        return 1.0 - self.gaps

    def powers(self, n: int | Vector) -> Vector:
        """rates^n, accurate also where a rate is close to 1: shape ``n.shape + rates.shape``."""
        powers: Vector = np.exp(np.multiply.outer(n, self._logs))
        return powers

    def terms(self, start: int, stop: int) -> Vector:
        """The entries k = start, …, stop − 1."""
        powers: Vector = np.power(self.rates, np.arange(start, stop, dtype=np.float64)[:, None])
        return powers @ self.weights

    def gram(self, n: int | Vector) -> Vector:
        """Σ_{k<n} r_i^k r_j^k for all pairs of rates, n ≥ 1; shape ``n.shape + (m, m)``."""
        ends = -np.expm1(np.multiply.outer(n, np.add.outer(self._logs, self._logs)))  # 1 − (r_i r_j)^n
        gaps = np.add.outer(self.gaps, self.gaps) - np.multiply.outer(self.gaps, self.gaps)  # 1 − r_i r_j
        counts = np.broadcast_to(np.asarray(n, dtype=np.float64)[..., None, None], ends.shape)
        sums: Vector = np.divide(ends, gaps, out=counts.copy(), where=gaps > 0)
        return sums

    def squared_norm(self, n: int | Vector) -> Vector:
        """The sum of the squares of the first ``n`` ≥ 1 entries, to a few units in the last place."""
        squares: Vector = self.gram(n) @ self.weights @ self.weights
        return squares

    @cached_property
    def _logs(self) -> Vector:
        with np.errstate(divide="ignore"):  # a rate of 0 has the logarithm −∞
            return np.log1p(-self.gaps)


@lru_cache(maxsize=64)
def sqrt_coefficients(horizon: int, buffers: int) -> Geometric:
    """A quadrature of c_k = binom(2k, k)/4^k, the entries of the square root of A, good for k < ``horizon``.

    Since c_k = (1/π)∫₀¹ u^k du/√(u(1 − u)), the trapezoidal rule in y = logit(u) over [−8, ln T + 6] gives
    ω = h√(u(1 − u))/π and λ = u; the weights are rescaled so that c_0 = 1. Privacy never depends on the quality of the
    quadrature, since the norm is that of the coefficients which are used.

    Examples
    --------
    >>> from dpkit.continual.coefficients import sqrt_coefficients
    >>> sqrt_coefficients(1024, 16).terms(0, 4).round(2)
    array([1.  , 0.5 , 0.38, 0.31])
    """
    y = np.linspace(-8.0, min(math.log(horizon) + 6.0, _LARGEST_LOGIT), buffers)
    rates = 1.0 / (1.0 + np.exp(-y))
    weights = np.sqrt(rates * (1.0 - rates))
    return Geometric(weights / weights.sum(), 1.0 - rates)


@lru_cache(maxsize=1)
def square_summable_coefficients() -> Geometric:
    """Coefficients whose squares have a sum that hardly grows with the horizon, so that none has to be known.

    The quadrature of :func:`sqrt_coefficients`, its weights multiplied by (1 + 2 ln(1/(1 − λ)))^(−0.36), which makes
    c_k fall like k^(−1/2) (ln k)^(−0.36). The two numbers were fitted to the worst ratio, over 1 ≤ t ≤ 2⁴⁰, of the
    error at t to that of ``BufferedToeplitz`` with the horizon t.
    """
    y = np.linspace(-8.0, _LARGEST_LOGIT, 20)
    rates = 1.0 / (1.0 + np.exp(-y))
    gaps = 1.0 - rates
    weights = np.sqrt(rates * gaps) * (1.0 - 2.0 * np.log(gaps)) ** -0.36
    return Geometric(weights / weights.sum(), gaps)


@lru_cache(maxsize=64)
def prefix_sum_errors(c: Geometric) -> Geometric:
    """The entries b_k of A·C⁻¹; the noise in the t-th prefix sum has the norm ‖b_{0:t}‖.

    C⁻¹ has the entries 1, −vᵀv, −vᵀMv, −vᵀM²v, … with v = √(ωλ) and the symmetric M = diag(λ) − vvᵀ (write w = C⁻¹ζ as
    the recursion w_t = ζ_t − Σ ω_iλ_i s_i, s ← λs + w). An eigendecomposition of I − M turns them, and then their
    prefix sums, into geometric series with nonnegative weights.
    """
    v = np.sqrt(c.weights * c.rates)
    gaps, vectors = np.linalg.eigh(np.diag(c.gaps) + np.outer(v, v))
    # one eigenvalue of I − M is exactly 1; rounding must not turn its rate negative
    gaps = np.minimum(gaps, 1.0)
    limit = 1.0 / float(np.sum(c.weights / c.gaps))  # 1/Σc_k
    weights = (vectors.T @ v) ** 2 / gaps
    return Geometric(np.append(weights, limit), np.append(gaps, 0.0))


class ColumnScales:
    """The norms of C's columns, rounded up to a step function of the column, and the errors when they are divided out.

    Column s (from 0) of the T × T matrix C has T − s entries and the norm ‖c_{0:T−s}‖: it shrinks towards the end.
    Dividing every column by its norm leaves the sensitivity at 1, and the increments of the noise C⁻¹ζ are multiplied
    by those norms instead of by the first one. The norm is held constant over runs of at most 2 % of the entries, at
    its value in the run's first and longest column, which bounds the others (``constant``: one run of all columns).
    That keeps the number of runs logarithmic, and the errors closed-form: within run p the noise in the t-th prefix sum
    is d_p N_t + K_p, where N = A·C⁻¹ζ and K_{p+1} = K_p + (d_p − d_{p+1}) N_{s_p}, s_p the number of steps before run
    p + 1.
    """

    def __init__(self, c: Geometric, horizon: int, *, constant: bool = False, errors: Geometric | None = None) -> None:
        self.errors = prefix_sum_errors(c) if errors is None else errors
        self._c, self._horizon = c, horizon
        lengths = [horizon]
        while lengths[-1] > 1 and not constant:
            lengths.append(min(lengths[-1] - 1, int(lengths[-1] / 1.02)))
        # the first column of each run, and the bound on the norms in it
        self.starts = [horizon - length for length in lengths]
        self._stops = [*self.starts[1:], horizon]
        self.norms: Vector = np.sqrt(c.squared_norm(np.array(lengths, dtype=np.float64))) * ROUNDING

    def bound(self, column: int) -> tuple[float, int]:
        """The bound on the norm of a column, and the end of the run that it holds for."""
        p = self._run(column)
        return float(self.norms[p]), self._stops[p]

    def bounds(self, start: int, stop: int) -> Vector:
        """The bounds for the columns start, …, stop − 1."""
        runs = np.searchsorted(self.starts, np.arange(start, stop), side="right") - 1
        return self.norms[runs]

    def inner(self, gap: int) -> float:
        """The largest inner product of two of the scaled columns, ``gap`` or more steps apart.

        For columns i < j it is a/(d_id_j) with a = Σ_{k<T−j} c_k c_{k+j−i}. For a given j, c and d fall, so that it is
        largest for the nearest i = j − gap. While d_i and d_j keep their values, it falls with j, as a loses terms. So
        one of the first columns j of a stretch on which both are constant has the largest one.
        """
        firsts = np.array(self.starts)
        firsts = np.unique(np.concatenate([firsts, firsts + gap]))
        j = firsts[(firsts >= gap) & (firsts < self._horizon)]
        if not j.size:
            return 0.0
        c, n = self._c, (self._horizon - j).astype(np.float64)
        products = (c.gram(n) @ c.weights) @ (c.weights * c.powers(gap))
        runs = (np.searchsorted(self.starts, column, side="right") - 1 for column in (j, j - gap))
        d_j, d_i = (self.norms[run] for run in runs)
        return float((products / (d_i * d_j)).max())

    def error(self, t: int) -> float:
        """The standard deviation of the t-th prefix sum's noise, t ≥ 1, for standard Gaussian ζ."""
        b, p = self.errors, self._run(t - 1)
        d = float(self.norms[p])
        with_carry = float(b.powers(t - self.starts[p]) @ self._covariances[p])
        return math.sqrt(d * d * float(b.squared_norm(t)) + 2.0 * d * with_carry + self._variances[p])

    def _run(self, column: int) -> int:
        return bisect.bisect_right(self.starts, column) - 1

    @cached_property
    def _carried(self) -> tuple[Vector, Vector]:
        """For each run, the variance of K_p and η_j Cov(K_p, Σ_s μ_j^(t−s) ζ_s) at its start t. All terms are ≥ 0."""
        b = self.errors
        drops = self.norms[:-1] - self.norms[1:]
        at = np.array(self.starts[1:], dtype=np.float64)
        rows = b.gram(at) @ b.weights * b.weights if at.size else np.empty((0, b.weights.size))
        lengths = np.diff(np.array(self.starts, dtype=np.float64))
        decay = b.powers(lengths)
        covariance, variance = np.zeros(b.weights.size), 0.0
        covariances, variances = [covariance], [variance]
        for drop, row, factor in zip(drops, rows, decay, strict=True):
            covariance = covariance * factor
            variance += 2.0 * drop * float(covariance.sum()) + drop * drop * float(row.sum())
            covariance = covariance + drop * row
            covariances.append(covariance)
            variances.append(variance)
        return np.array(variances), np.array(covariances)

    @property
    def _variances(self) -> Vector:
        return self._carried[0]

    @property
    def _covariances(self) -> Vector:
        return self._carried[1]


@lru_cache(maxsize=64)
def column_scales(c: Geometric, horizon: int, *, constant: bool = False) -> ColumnScales:
    """The column norms of the ``horizon`` × ``horizon`` matrix of ``c``, computed once."""
    return ColumnScales(c, horizon, constant=constant)

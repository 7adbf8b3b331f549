"""Prefix sums by a lower triangle C_ts = c_{t−s}/d_s whose entries c_k are sums of few geometric series."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpkit.continual.coefficients import ROUNDING, ColumnScales, Geometric
from dpkit.continual.factorization import UNIT_ROUNDOFF, Factorization, joint_norm_of, most_participations

__all__ = ["Buffered", "accumulate"]

Vector = NDArray[np.float64]

# n, rows per matrix product. The bound on the rounding grows with it, which leaves less room for noise: up to horizons
# of 2²⁵ there is enough for vectors of 10⁶ numbers, beyond not.
_ROWS, _ROWS_OF_LONG_STREAMS, _LONG = 64, 16, 2**25
# multiplications up to which one small matrix product is faster than several passes over the buffers
_TINY = 4_000


class Buffered(Factorization):
    """c_0 = 1 and c_k = Σ_i φ_i(1 − g_i)^(k−1), one buffer per series (Dvijotham et al., arXiv:2404.16706).

    With q_t = v_t/d_t and the public w_t = z_t, the secret buffers D_i ← λ_iD_i + q_t − w_t, λ_i = 1 − g_i, hold what
    is not released yet of the earlier inputs, and the encoded row is k_t = ⌊q_t + Σφ_iD_i⌉: that of C·v, less what the
    public rows before it say of it. The sum grows by d_t w_t. So nothing secret grows with the stream: the numbers
    D are as large as the noise, whatever the inputs are, and double precision does for 2⁴⁰ steps.

    Several inputs at once: k is the rows of C_n q + (φ_iλ_i^j)D with the buffers D before them, w = ⌊C_n⁻¹z⌉ (public,
    so that its rounding is nobody's secret), and D_i ← λ_iⁿD_i + Σ_j λ_i^(n−1−j)(q_j − w_j).

    Here φ_i = ω_iλ_i is the float64 number that is computed, and λ_i = 1 − g_i exact: so c is within two roundings of
    the one that scales and errors are computed for, which the factor ``ROUNDING`` of the former covers.

    Sensitivity. Given the same z, two streams that differ in q_s by Δ have the same w. So |ΔD_i| ≤ λ_i^(t−s−1)|Δ|, and
    since φ ≥ 0, their rows are at most c_{t−s}|Δ| apart, also if every D_i is cut to a range (and, where several inputs
    are taken at once, every q − w), as cutting lengthens no distance. They are cut, to ±M and ±M/4. With noise of at
    most M/(8‖b‖) and M/48, b as in A·C⁻¹, that is six standard deviations away or more (w − q is C⁻¹ of noise, whose
    rows have norms of at most √2, and D_i has at most 2‖b‖/(1 + λ_i) and 2/√(1 − λ_i²)): cutting makes the bounds
    below certain, and hardly ever happens. In streams of up to 2²⁰ inputs of 10⁴ numbers, with noise multipliers of up
    to 8, it is 380 standard deviations away. That matters where two streams differ in several inputs and the proof lets
    parts of the differences cancel (a record that moves from one input to another): cutting may spoil that, so such a
    claim holds but for the event of a cut, whose probability, there below e^(−70,000), is far less than what a budget's
    δ is rounded by.

    Rounding. D_i is the sum of an integer H_i and a rest |L_i| ≤ ½. Integers move to H exactly, while −g_iH_i and
    fractions of q are collected in L_i. Exactly, as M ≤ 2⁵⁰ and V ≤ 2⁴⁸: if no w of the call is beyond 2⁵², all of them
    stay below 2⁵³ (of several inputs the sum of the q − w, cut to ±M/4 each, is at most nM/4 ≤ 2⁵²). Otherwise q − w
    may be rounded, but is beyond 2⁵¹ also then, and whatever it is added to, both it and its exact value are cut to the
    same end of the range. Cutting H + L is exact, too, as L is at most ½: see :func:`_cut`.

    So what is computed is the process above in real numbers, with q as rounded (which is the same in both worlds but
    where they differ: ``dpkit.continual._noise`` counts it there), and an error ε_i of each call in D_i. As cutting
    lengthens no distance, errors add up to at most Σ_calls |ε_i|λ_i^(steps since). η, the distance of the number that
    is rounded from that process's row, is at most, with u = 2⁻⁵³, b buffers and φ = Σφ_i = c_1:

    * φ/2 for the rests, which are left out of rows, and φ/2 for −(1 − λⁿ)L, left out of each call of n inputs: for
      calls of n_1, n_2, … inputs Σ_m (1 − λ^n_m)λ^(n_{m+1} + n_{m+2} + …) ≤ 1, as the terms telescope;
    * (n + b + 8)·u·(c_0 + … + c_{n−1})·V for C_n q: n + 2 roundings suffice, one of the coefficient, n of the dot
      product and one as the next term is added. V is such that this is 0.3. (Single inputs have no such error, as the
      integer part of q is added last.)
    * (b + 5)·u·φM for ΣφD, as |H| ≤ M: b + 2 roundings suffice;
    * by way of D, (n + 6)·u·φ(M + nM/4) for −(1 − λⁿ)H + Σ(λ^j − 1)(q − w), j < n: one rounding of the coefficient, n
      of the dot product, and three of sums. Both parts have the factor 1 − λⁿ at most, and telescope;
    * by way of D, (n + 6)·u·n·Σφ_i(min(T, 1/g_i) + 1) for the rests and fractions in it, of size n at most, as
      Σ_calls λ^later ≤ min(T, 1/g).

    M is such that all is at most 1.45. The rest of 1.5 is for terms of the order of u².
    """

    _discount = 1.0  # what a step leaves of the sum

    def __init__(self, c: Geometric, horizon: int, scales: ColumnScales) -> None:
        super().__init__(horizon)
        self._c, self._scales = c, scales
        self._losses, self._feedback = -c.gaps[:, None], c.weights * c.rates
        self._rows = n = _ROWS if horizon <= _LONG else _ROWS_OF_LONG_STREAMS
        b, first = c.gaps.size, float(self._feedback.sum())
        self.reach = 0.3 / ((n + b + 8) * UNIT_ROUNDOFF * float(c.terms(0, n).sum()))
        counts = np.minimum(float(horizon), 1 / c.gaps) + 1
        drift = (n + 6) * n * UNIT_ROUNDOFF * float(self._feedback @ counts)
        largest = (1.14 - first - drift) / (first * UNIT_ROUNDOFF * (b + 5 + (n + 6) * (1 + n / 4)))
        self._most = 4.0 * math.floor(min(largest, 2.0**50) / 4)  # M
        error = math.sqrt(float(scales.errors.squared_norm(horizon)))
        self.largest_noise = self._most / max(8 * error, 48)
        # takes (H; L; fraction of q) to what is rounded to the row and to what the buffers grow by
        ones, eye = np.ones((b, 1)), np.eye(b)
        self._step = np.block([[self._feedback, np.zeros(b), 1.0], [-np.diag(c.gaps), eye, ones]])

    def joint_norm(self, participations: int, min_separation: int = 1) -> float:
        most = most_participations(self.horizon, participations, min_separation)
        return joint_norm_of(self._scales.inner, most, min_separation) * ROUNDING

    def begin(self, dimension: int, dtype: np.dtype[Any]) -> None:
        b = self._feedback.size
        self._scale, self._start, self._stop = 0.0, 0, 0  # d_t for the steps between
        self._numbers = np.zeros((2 * b + 1, dimension))
        self._high, self._low, self._fraction = self._numbers[:b], self._numbers[b : 2 * b], self._numbers[-1]
        self._total, self._flat_high = np.zeros(dimension), self._high.reshape(-1)
        self._tiny = b * b * dimension < _TINY
        # of one call: the integer part of q; the row and what the buffers grow by, as real numbers and as integers
        self._whole = np.zeros(dimension)
        self._moves, self._rounded = np.zeros((2, b + 1, dimension))
        self._row, self._growth = self._moves[0], self._moves[1:]
        self._rounded_row, self._carry = self._rounded[0], self._rounded[1:]
        # of single numbers: vectors, and a number as an array, which is added in half the time
        single = (self._numbers, self._moves, self._rounded, self._growth, self._carry, self._low)
        self._single = tuple(array[:, 0] for array in single)
        self._move = np.zeros(())

    def secret(self, t: int) -> dict[str, NDArray[Any]]:
        return {"buffers": self._high, "rests": self._low}

    def public(self, t: int) -> dict[str, NDArray[Any]]:
        return {"sum": self._total}

    def check_saved(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        high, low = arrays["buffers"], arrays["rests"]
        if not ((np.rint(high) == high) & (np.abs(high) <= self._most) & (np.abs(low) <= 0.5)).all():
            raise ValueError(f"buffers and rests must be whole up to {self._most:.0f} and at most 0.5, got others")

    def error(self, t: int) -> float:
        return self._scales.error(t)

    def _new_scale(self, t: int) -> None:
        self._scale, self._stop = self._scales.bound(t)
        self._start = t

    def encode(self, t: int, v: NDArray[Any]) -> NDArray[Any]:
        if not self._start <= t < self._stop:
            self._new_scale(t)
        whole, moves, rounded, growth = self._whole, self._moves, self._rounded, self._growth
        q = np.divide(v, self._scale)
        np.rint(q, whole)
        np.subtract(q, whole, self._fraction)
        if self._tiny:
            self._step.dot(self._numbers, moves)
        else:
            np.dot(self._feedback, self._high, self._row)
            np.multiply(self._high, self._losses, growth)
            np.add(growth, self._low, growth)
            np.add(moves, self._fraction, moves)
        np.rint(moves, rounded)
        np.subtract(growth, self._carry, self._low)
        np.add(whole, self._rounded_row, q)
        row: NDArray[np.int64] = q.astype(np.int64)
        return row[None]

    def decode(self, t: int, z: NDArray[Any]) -> NDArray[Any]:
        """The sum; and the buffers take in that z was released."""
        carry, high, total = self._carry, self._high, self._total
        w = z[0].astype(np.float64)
        np.add(carry, self._whole - w, carry)
        np.multiply(w, self._scale, w)
        if self._discount != 1.0:
            np.multiply(total, self._discount, total)
        np.add(total, w, total)
        np.add(high, carry, high)
        if not self._flat_high.dot(self._flat_high) < self._most * self._most:
            _cut(high, self._low, self._most)
        return total

    def one(self, t: int, v: float, noisy: Callable[[int], int]) -> float:
        if not self._start <= t < self._stop:
            self._new_scale(t)
        numbers, moves, rounded, growth, carry, low = self._single
        q = v / self._scale
        whole = float(round(q))
        numbers[-1] = q - whole
        self._step.dot(numbers, moves)
        np.rint(moves, rounded)
        w = float(noisy(int(whole + rounded.item(0))))
        np.subtract(growth, carry, low)
        self._move[()] = whole - w
        np.add(carry, self._move, carry)
        high = self._flat_high
        np.add(high, carry, high)
        if not high.dot(high) < self._most * self._most:
            _cut(self._high, self._low, self._most)
        self._total[0] = total = self._discount * self._total.item(0) + w * self._scale
        return total

    def many(self, t: int, v: NDArray[Any], noisy: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
        sums = np.empty(v.shape)
        scales = self._scales.bounds(t, t + len(v))[:, None]
        qs = v / scales
        high, low = self._high, self._low
        for first in range(0, len(v), self._rows):
            q, w = qs[first : first + self._rows], sums[first : first + self._rows]
            near, earlier, inverse, faded, kept, lost = _matrices(self._c, len(q))
            row = near.dot(q)
            row += earlier.dot(high)
            z = noisy(np.rint(row, row).astype(np.int64))
            inverse.dot(z.astype(np.float64), w)
            np.rint(w, w)
            whole = np.rint(q)
            q -= whole
            whole -= w
            _cut(whole, q, self._most / 4)
            moved = faded.dot(whole)
            low += kept.dot(q)
            low += lost * high
            low += moved[:-1]
            high += moved[-1]
            carry = np.rint(low)
            low -= carry
            high += carry
            _cut(high, low, self._most)
        sums *= scales
        self._add_up(sums)
        return sums

    def _add_up(self, growth: Vector) -> None:
        """Turn what the sum grows by in each of several steps into the sums after them, in place."""
        growth[0] += self._total
        accumulate(growth)
        self._total[:] = growth[-1]


def _cut(whole: Vector, rest: Vector, most: float) -> None:
    """Cut whole + rest to ±most, in place; ``whole`` and ``most`` are integers and rests at most ½ in size.

    Exactly: above ``most`` by one or more, the sum is above it; at ``most``, if the rest is positive; and below it by
    one or more, never. The dot product settles that nothing is near: where some |whole| ≥ most, it is at least most² as
    computed, since its terms are nonnegative and rounding is monotone.
    """
    if np.vdot(whole, whole) < most * most or (np.max(whole) < most and np.min(whole) > -most):
        return
    for sign in (1.0, -1.0):
        over = sign * whole >= most
        rest[over] = np.where(sign * whole[over] > most, 0.0, sign * np.minimum(sign * rest[over], 0.0))
        whole[over] = sign * most


def accumulate(rows: NDArray[Any]) -> None:
    """Replace the rows of a matrix by their prefix sums, at twice the speed of ``numpy.cumsum``.

    Runs of 32 rows are summed side by side, then each run is shifted by the last row of the one before.
    """
    whole = len(rows) // 32 * 32
    runs = rows[:whole].reshape(-1, 32, rows.shape[1])
    for i in range(1, 32 if whole else 0):
        runs[:, i] += runs[:, i - 1]
    for run, last in zip(runs[1:], runs[:, -1], strict=False):
        run += last
    rest = rows[max(0, whole - 1) :]
    np.cumsum(rest, axis=0, out=rest)


@lru_cache(maxsize=64)
def _matrices(c: Geometric, rows: int) -> tuple[Vector, ...]:
    """For ``rows`` inputs at once: C_n, (φ_iλ_i^j), C_n⁻¹, (λ_i^(n−1−j) − 1) above ones, that plus 1, and λ_iⁿ − 1.

    All but C_n⁻¹, which is public, are computed in whole numbers and rounded once: powers of 1 − g that is rounded
    before would be wrong by a rounding for each factor.
    """
    gaps, feedback = _whole(c.gaps), _whole(c.weights * c.rates)
    one = 1 << gaps[1]
    steps = range(rows + 1)
    powers = [[(one - gap) ** k << gaps[1] * (rows - k) for k in steps] for gap in gaps[0]]
    unit = one**rows
    weighted = [[weight * power for power in row] for weight, row in zip(feedback[0], powers, strict=True)]
    weighted_unit = unit << feedback[1]
    earlier = np.array([[row[j] / weighted_unit for row in weighted] for j in steps[:-1]])
    coefficients = np.array([1.0, *(sum(row[j] for row in weighted) / weighted_unit for j in steps[: rows - 1])])
    lags = np.subtract.outer(steps[:-1], steps[:-1])
    near = np.where(lags >= 0, coefficients[np.abs(lags)], 0.0)
    faded = np.array([[(row[rows - 1 - j] - unit) / unit for j in steps[:-1]] for row in powers])
    kept = np.array([[row[rows - 1 - j] / unit for j in steps[:-1]] for row in powers])
    lost = np.array([[(row[rows] - unit) / unit] for row in powers])
    faded = np.vstack([faded, np.ones(rows)])  # the ones sum whole numbers, exactly
    matrices = near, earlier, np.tril(np.linalg.inv(near)), faded, kept, lost
    for matrix in matrices:
        matrix.setflags(write=False)
    return matrices


def _whole(values: Vector) -> tuple[list[int], int]:
    """``values``, of at most 1 in size, as multiples of 2^−e, and e."""
    ratios = [value.as_integer_ratio() for value in values.tolist()]
    e = max(denominator.bit_length() - 1 for _, denominator in ratios)
    return [(numerator << e) // denominator for numerator, denominator in ratios], e

"""Dominating pairs of releases that read a random sample (see :mod:`accounting.accountants.losses`).

All but ``SubsampledPair`` are symmetric.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.losses import LossPair, Symmetric, normal_masses

__all__ = ["ReplacedPair", "SubsampledPair", "SwappedPair"]

Array = NDArray[np.float64]

_UNIT_ROUNDOFF = 2.0**-52
_OUTWARD = 1 + 1e-13


@dataclass(frozen=True)
class SubsampledPair:
    """A symmetric pair seen through a Poisson sample: with probability q the unit is read (Zhu, Dong & Wang 2022, Thm
    11).

    ``present=True`` is (1 − q)Q + qP against Q, ``False`` is Q against (1 − q)Q + qP: both directions of
    ``"add_remove"``.
    """

    inner: LossPair
    rate: float
    present: bool

    def delta(self, epsilon: float) -> float:
        q = self.rate
        if self.present:
            # H = q·H_inner((e^ε − 1 + q)/q)
            scaled = math.expm1(epsilon) / q if epsilon < 700 else math.inf
            if scaled <= -1:
                return -math.expm1(epsilon)
            if math.isinf(scaled):
                return q * self.inner.delta(epsilon - math.log(q)) * (1 + 8 * _UNIT_ROUNDOFF)
            return q * self.inner.delta(math.log1p(scaled)) * (1 + 8 * _UNIT_ROUNDOFF)
        # H = b·H_inner(e^ε·q/b) with b = 1 − e^ε(1 − q)
        left = q - (1 - q) * math.expm1(epsilon) if epsilon < 700 else -1.0
        if left <= 0:
            return 0.0
        return left * self.inner.delta(epsilon + math.log(q) - math.log(left)) * (1 + 8 * _UNIT_ROUNDOFF)

    def masses(self, edges: Array) -> tuple[Array, Array]:
        at = edges if self.present else -edges[::-1]
        p, q = self.inner.masses(self._inner_loss(at))
        mixed = (1 - self.rate) * q + self.rate * p
        return (mixed, q) if self.present else (q[::-1], mixed[::-1])

    def _inner_loss(self, loss: Array) -> Array:
        """The inner L at which ln(1 − q + qe^L) is ``loss``."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            near = np.log1p(np.maximum(np.expm1(np.minimum(loss, 30.0)) / self.rate, -1.0))
            far = loss - math.log(self.rate) + np.log1p((self.rate - 1) * np.exp(-loss))
        return np.asarray(np.where(loss < 30.0, near, far))

    def highest(self, log_tail: float) -> float:
        if not self.present:
            return -math.log1p(-self.rate) * _OUTWARD if self.rate < 1 else self.inner.highest(log_tail)
        inner = self.inner.highest(log_tail)
        high = math.log1p(self.rate * math.expm1(inner)) if inner < 30 else inner
        # an atom at the end must not come to lie beyond it when the loss is translated back
        return high * _OUTWARD

    def lowest(self, log_tail: float) -> float:
        # the other direction exchanges P and Q, and −L is its loss
        return SubsampledPair(self.inner, self.rate, not self.present).highest(log_tail)


@dataclass(frozen=True)
class ReplacedPair(Symmetric):
    """A sample in which one unit is replaced: H = q·H_inner((e^ε − 1 + q)/q) for ε ≥ 0, and symmetric.

    With or without the unit, which is in the sample with probability q, the laws are (1 − q)R + qS and (1 − q)R + qS′.
    Where the inner pair dominates S against S′ and S against R, both ways, the first is bounded by advanced joint
    convexity (Balle, Barthe & Gaboardi 2018), with α′ = 1 + q(α − 1) and a mixture of R and S′ on the right:
    H_α′ ≤ q·H_inner(α). The exchange of the neighbours gives ε < 0.

    * Batches of a fixed size m of n records, q = m/n: S and S′ differ in the replaced record; and R is the mean over
      batches of which S changes one other record, so that the inner pair is that of a replacement (Zhu, Dong & Wang
      2022, Proposition 30).
    * Poisson samples: R is S without the unit, and S′ two steps away, so the inner pair is that of twice the shift.

    It is the divergence of a pair: on L > 0 that of (1 − q)Q + qP against Q, mirrored on L < 0, and the rest at 0. That
    is not negative: P(L > 0) + Q(L > 0) ≤ 1 for a symmetric inner pair, so q·P + (2 − q)·Q ≤ 1 there, as Q ≤ ½.
    """

    inner: LossPair
    rate: float

    @property
    def _present(self) -> SubsampledPair:
        return SubsampledPair(self.inner, self.rate, True)

    def delta(self, epsilon: float) -> float:
        if epsilon >= 0:
            return self._present.delta(epsilon)
        return -math.expm1(epsilon) + math.exp(epsilon) * self._present.delta(-epsilon)

    def masses(self, edges: Array) -> tuple[Array, Array]:
        k = int(np.searchsorted(edges, 0.0))
        up_p, up_q = self._present.masses(np.concatenate([[0.0], edges[k:]]))
        down_q, down_p = self._present.masses(np.concatenate([[0.0], -edges[:k][::-1]]))
        p, q = np.zeros(edges.size + 1), np.zeros(edges.size + 1)
        for mass, up, down in ((p, up_p, down_p), (q, up_q, down_q)):
            mass[k:] += up[1:]
            mass[: k + 1] += down[:0:-1]
            mass[k] += max(0.0, 1.0 - float(up_p[1:].sum()) - float(up_q[1:].sum()))
        return p, q

    def highest(self, log_tail: float) -> float:
        return self._present.highest(log_tail)


@dataclass(frozen=True)
class SwappedPair(Symmetric):
    """(1 − q)N(0, z²) + qN(1, z²) against (1 − q)N(0, z²) + qN(−1, z²): a Gaussian release on a Poisson sample in which
    one unit is swapped; see :mod:`accounting.amplification.subsampling`.

    L grows with x and is odd: x/z² = L/2 + asinh(((1 − q)/q)e^{1/(2z²)}·sinh(L/2)).
    """

    noise_multiplier: float
    rate: float

    def delta(self, epsilon: float) -> float:
        from scipy.special import ndtr

        # beyond that what e^ε·Q takes off is left out
        gap, q, scale = 1.0 / self.noise_multiplier, self.rate, math.exp(epsilon) if epsilon < 700 else 0.0
        t = float(self._place(np.array([epsilon]))[0])
        in_p = float((1 - q) * ndtr(-t) + q * ndtr(gap - t))
        in_q = float((1 - q) * ndtr(-t) + q * ndtr(-gap - t))
        # ndtr is right to a few units in the last place of t²
        return max(0.0, in_p - scale * in_q) + (64 + 8 * t * t) * _UNIT_ROUNDOFF * (in_p + scale * in_q)

    def masses(self, edges: Array) -> tuple[Array, Array]:
        t, gap, q = self._place(edges), 1.0 / self.noise_multiplier, self.rate
        middle, right, left = (normal_masses(t - shift) for shift in (0.0, gap, -gap))
        return (1 - q) * middle + q * right, (1 - q) * middle + q * left

    def highest(self, log_tail: float) -> float:
        # both parts of P are beyond this x with less than that probability
        z, q = self.noise_multiplier, self.rate
        x = 1.0 + z * math.sqrt(-2 * log_tail)
        at_x, at_minus_x = np.logaddexp(math.log1p(-q), math.log(q) + (np.array([x, -x]) - 0.5) / z**2)
        return float(at_x - at_minus_x)

    def _place(self, loss: Array) -> Array:
        """x/z at which L is ``loss``."""
        z, q = self.noise_multiplier, self.rate
        half = np.abs(loss) / 2
        factor = math.log1p(-q) - math.log(q) + 0.5 / z**2
        with np.errstate(divide="ignore", over="ignore"):
            # ln of the argument of asinh, and asinh of what may be too large for a float
            log_a = factor + half + np.log(-np.expm1(-2 * half)) - math.log(2.0)
            reach = np.where(log_a < 300.0, np.arcsinh(np.exp(np.minimum(log_a, 300.0))), log_a + math.log(2.0))
        return np.asarray(np.sign(loss) * (half + reach) * z)

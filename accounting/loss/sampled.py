"""Dominating pairs of releases that read a random sample (see :mod:`accounting.loss.pair`).

Those of a swap on a Poisson sample are in :mod:`accounting.loss.swapped`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.arrays import UNIT_ROUNDOFF, Array
from accounting.loss.pair import AllFinite, LossPair, Symmetric

__all__ = ["ReplacedPair", "SubsampledPair"]


_OUTWARD = 1 + 1e-13


@dataclass(frozen=True)
class SubsampledPair(AllFinite):
    """A symmetric pair seen through a Poisson sample: with probability q the unit is read (Zhu, Dong & Wang 2022, Thm
    11).

    ``present=True`` is (1 − q)Q + qP against Q, ``False`` is Q against (1 − q)Q + qP: both directions of
    ``"add_remove"``.
    """

    inner: LossPair
    rate: float
    present: bool

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """As the inner pair."""
        return self.inner.exact

    @property
    def follows(self) -> bool:  # type: ignore[override]
        """As the inner pair."""
        return self.inner.follows

    def delta(self, epsilon: float) -> float:
        q, u = self.rate, UNIT_ROUNDOFF
        # next to the largest loss H_inner is as small as the errors of its ε, which is therefore rounded down
        if self.present:
            # H = q·H_inner((e^ε − 1 + q)/q)
            scaled = math.expm1(epsilon) / q if epsilon < 700 else math.inf
            if scaled <= -1:
                return -math.expm1(epsilon)
            if math.isinf(scaled):
                inner, off = epsilon - math.log(q), 2 * u * epsilon
            else:
                inner, off = math.log1p(scaled), 4 * u * abs(scaled) / (1 + scaled)
            return q * self.inner.delta(inner - off - 2 * u * abs(inner)) * (1 + 8 * u)
        # H = b·H_inner(e^ε·q/b) with b = 1 − e^ε(1 − q)
        unread = (1 - q) * math.expm1(epsilon) if epsilon < 700 else 2.0
        left, error = q - unread, 4 * u * (q + abs(unread))
        if left + error <= 0:
            return 0.0
        left += error
        inner = epsilon + math.log(q) - math.log(left)
        off = 2 * u * (2 + abs(epsilon) + abs(math.log(q)) + abs(math.log(left)))
        return left * self.inner.delta(inner - off) * (1 + 8 * u)

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
        inner = self.inner.highest(log_tail)
        if self.present:
            high = math.log1p(self.rate * math.expm1(inner)) if inner < 30 else inner
        elif self.rate == 1:
            high = inner
        else:
            # of a symmetric pair Q has as much below −x as P above x; and less, as the translation back is rounded
            least = math.expm1(-inner) - 8 * UNIT_ROUNDOFF if isinstance(self.inner, Symmetric) else -1.0
            high = -math.log1p(self.rate * max(least, -1.0))
        # an atom at the end must not come to lie beyond it when the loss is translated back
        return high * _OUTWARD

    def lowest(self, log_tail: float) -> float:
        # the other direction exchanges P and Q, and −L is its loss
        return SubsampledPair(self.inner, self.rate, not self.present).highest(log_tail)


@dataclass(frozen=True)
class ReplacedPair(Symmetric):
    """A batch of a fixed size in which one unit is replaced: H = q·H_inner((e^ε − 1 + q)/q) for ε ≥ 0, and symmetric.

    Of m of n records a unit is in the batch with probability q = m/n, so the laws are (1 − q)R + qS and (1 − q)R + qS′,
    S and S′ with the unit and with its substitute. S and S′ differ in the replaced record; and R is the mean over
    batches of which S changes one other record, so that the inner pair is that of a replacement (Zhu, Dong & Wang
    2022, Proposition 30) and dominates S against S′ and S against R, both ways. The first is bounded by advanced joint
    convexity (Balle, Barthe & Gaboardi 2018), with α′ = 1 + q(α − 1) and a mixture of R and S′ on the right:
    H_α′ ≤ q·H_inner(α). The exchange of the neighbours gives ε < 0.

    It is the divergence of a pair: on L > 0 that of (1 − q)Q + qP against Q, mirrored on L < 0, and the rest at 0. That
    is not negative: P(L > 0) + Q(L > 0) ≤ 1 for a symmetric inner pair, so q·P + (2 − q)·Q ≤ 1 there, as Q ≤ ½.

    Many of these cost less than their composition if the noise is normal
    (:mod:`accounting.adaptive.fixed_batches.gaussian_batches`) or on an integer
    (:mod:`accounting.adaptive.fixed_batches.integer_batches`), or the release pure
    (:mod:`accounting.adaptive.fixed_batches.pure_batches`). For that, ``own`` says that R, S and S′ are laws of the
    inner pair's kind, and not only as private.
    """

    follows = True
    inner: LossPair
    rate: float
    own: bool = False

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

"""Dominating pairs of distributions (P, Q), seen through their privacy loss L = ln P/Q.

A pair dominates a mechanism if its hockey-stick divergence H(e^ε) = ∫(P − e^ε Q)₊ is at least the mechanism's for
every pair of neighbours and every ε. Dominating pairs compose, also adaptively (Zhu, Dong & Wang 2022, Theorem 10).
Each class here has four methods: ``delta(ε)``, the divergence in closed form; ``masses(edges)``, what P and Q give
to L between neighbouring edges; ``highest(log_tail)``, a loss that P exceeds with probability at most e^``log_tail``;
and ``lowest(log_tail)``, the same at the other end.

All pairs but ``SubsampledPair`` and ``RangePair`` are symmetric: L under P has the law of −L under Q.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from accounting.amplification.blanket import response_delta
from accounting.amplification.shuffling import shuffled_delta, shuffled_losses
from accounting.conversions import gdp_delta

__all__ = [
    "Coins",
    "GaussianPair",
    "GumbelPair",
    "LaplacePair",
    "LossPair",
    "RangePair",
    "ReplacedPair",
    "ShuffledPair",
    "SubsampledPair",
    "SwappedPair",
    "Symmetric",
    "histogram",
]

Array = NDArray[np.float64]

_UNIT_ROUNDOFF = 2.0**-52
_OUTWARD = 1 + 1e-13
# ln of a probability that never matters
_NEVER = -745.0


class LossPair(Protocol):
    """What the composition needs to know about a pair."""

    def delta(self, epsilon: float) -> float:
        """H(e^ε), rounded up; ε may be negative."""

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """P and Q of L ≤ edges[0], between neighbouring edges, and above the last; each of shape (edges + 1,)."""

    def highest(self, log_tail: float) -> float:
        """A loss above which P has at most e^``log_tail``."""

    def lowest(self, log_tail: float) -> float:
        """An x such that below the loss −x P has at most e^``log_tail``."""


class Symmetric:
    """L under P has the law of −L under Q, so that P(L < −x) = Q(L > x) ≤ P(L > x) for x ≥ 0."""

    def highest(self, log_tail: float) -> float:
        raise NotImplementedError

    def lowest(self, log_tail: float) -> float:
        """An x such that below the loss −x P has at most e^``log_tail``."""
        return self.highest(log_tail)


@dataclass(frozen=True)
class GaussianPair(Symmetric):
    """N(μ, 1) against N(0, 1), which dominates all that is μ-Gaussian DP. L is N(±μ²/2, μ²)."""

    mu: float

    def delta(self, epsilon: float) -> float:
        if epsilon >= 0:
            return gdp_delta(self.mu, epsilon)
        return -math.expm1(epsilon) + math.exp(epsilon) * gdp_delta(self.mu, -epsilon)

    def masses(self, edges: Array) -> tuple[Array, Array]:
        t = edges / self.mu
        return _normal_masses(t - self.mu / 2), _normal_masses(t + self.mu / 2)

    def highest(self, log_tail: float) -> float:
        return self.mu**2 / 2 + self.mu * math.sqrt(-2 * log_tail)


def _normal_masses(z: Array) -> Array:
    """Φ between neighbouring edges, from whichever tail is the smaller."""
    from scipy.special import ndtr

    tail = np.concatenate([[0.0], ndtr(-np.abs(z)), [0.0]])
    right = np.concatenate([[False], z > 0, [True]])
    masses = np.where(right[1:], -tail[1:], tail[1:]) - np.where(right[:-1], -tail[:-1], tail[:-1])
    masses[right[1:] & ~right[:-1]] += 1.0
    return np.asarray(masses)


@dataclass(frozen=True)
class LaplacePair(Symmetric):
    """Laplace noise of scale 1, shifted by θ in the L1 norm, over any number of coordinates.

    The loss of one coordinate shifted by v is v or −v with an atom of P-mass ½ or e^(−v)/2, and has density
    e^((L−v)/2)/4 between, so that H = 1 − e^((ε−v)/2) on |ε| ≤ v. A shift that is spread, v₁ ≤ v₂ with v₁ + v₂ = θ,
    is never worse: given the first loss ℓ the divergence of both is H₂(ε − ℓ), and its mean over ℓ ~ P₁ is 1 − (1 +
    v₁/2)E for 0 ≤ ε ≤ v₂ − v₁ and 1 − (1 + (v₁ + v₂ − ε)/4)E for v₂ − v₁ ≤ ε ≤ θ, where 1 − E is the divergence of a
    single shift θ.

    *Mechanisms that come to their neighbours in small steps* are dominated by the pair, too: let P = M_0 and Q = M_θ be
    the ends of a path on which M_s and M_t are |s − t|-DP. Then for every event S, x(t) = M_t(S) and 1 − x(t) change by
    a factor of at most e^(|s − t|). If x(0) ≤ ½ or x(θ) ≥ ½ the pure bound x(θ) ≥ e^(−θ)x(0) or 1 − x(0) ≥ e^(−θ)(1 −
    x(θ)) is what the pair's trade-off curve says. Else, as x is continuous, x(t) = ½ for some t, so x(θ) ≥ ½e^(t−θ) and
    1 − x(0) ≥ ½e^(−t), hence x(θ)(1 − x(0)) ≥ e^(−θ)/4, which is the middle of that curve. ∎

    So it is with report-noisy-max: scores that lie on the segment between two neighbours' cost their share of ε, for
    Laplace noise and for permute-and-flip (Ding et al. 2021). Two scores that start t/c apart and end (t − θ)/c
    apart, c the rate of exponential noise, meet the curve: the difference of two exponential noises is Laplace noise.
    As a single release nothing better can be said of permute-and-flip.
    """

    theta: float

    def delta(self, epsilon: float) -> float:
        if epsilon < -self.theta:
            return -math.expm1(epsilon)
        return -math.expm1(min(0.0, epsilon - self.theta) / 2) * (1 + 4 * _UNIT_ROUNDOFF)

    def masses(self, edges: Array) -> tuple[Array, Array]:
        theta = self.theta
        inside = np.clip(edges, -theta, theta)
        low, high = np.concatenate([[-theta], inside]), np.concatenate([inside, [theta]])
        gap = -np.expm1((low - high) / 2)
        p, q = 0.5 * np.exp((high - theta) / 2) * gap, 0.5 * np.exp(-(low + theta) / 2) * gap
        first, last = np.searchsorted(edges, [-theta, theta])
        for at, atom_p, atom_q in ((first, 0.5 * math.exp(-theta), 0.5), (last, 0.5, 0.5 * math.exp(-theta))):
            p[at] += atom_p
            q[at] += atom_q
        return p, q

    def highest(self, log_tail: float) -> float:
        return self.theta


@dataclass(frozen=True)
class Coins(Symmetric):
    """Finitely many losses: randomized response, and with k = 2 every pure DP mechanism (Kairouz et al. 2015)."""

    epsilon: float
    categories: int = 2

    def _atoms(self) -> tuple[Array, Array, Array]:
        eps, k = self.epsilon, self.categories
        losses = np.array([-eps, 0.0, eps])
        low = math.exp(-eps) / (1 + (k - 1) * math.exp(-eps))
        p = np.array([low, (k - 2) * low, 1 / (1 + (k - 1) * math.exp(-eps))])
        return losses, p, p[::-1]

    def delta(self, epsilon: float) -> float:
        losses, p, _ = self._atoms()
        gained = np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0)
        return min(1.0, float(p @ gained) * (1 + 8 * _UNIT_ROUNDOFF))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        return histogram(edges, *self._atoms())

    def highest(self, log_tail: float) -> float:
        return self.epsilon


def histogram(edges: Array, losses: Array, p: Array, q: Array) -> tuple[Array, Array]:
    """``masses`` of a pair with finitely many losses."""
    at = np.searchsorted(edges, losses)
    size = edges.size + 1
    in_p, in_q = (np.bincount(at, weights=mass, minlength=size).astype(np.float64) for mass in (p, q))
    return in_p, in_q


@dataclass(frozen=True)
class GumbelPair(Symmetric):
    """Report-noisy-max with Gumbel noise, whose loss has range ε₀, with the worst offset for every ε.

    The pair of coins with losses t and t − ε₀ has H = (1 − e^(ε−t))(1 − e^(t−ε₀))/(1 − e^(−ε₀)), largest at t = (ε +
    ε₀)/2. With y = e^((ε−ε₀)/2) that is (1 − y)²/(1 − e^(−ε₀)), again the divergence of a pair (Dong, Durfee & Rogers
    2020): P(L > ε) = (1 − y)/(1 − e^(−ε₀)), and Q has the density e^(−L).
    """

    epsilon: float

    def delta(self, epsilon: float) -> float:
        if epsilon < -self.epsilon:
            return -math.expm1(epsilon)
        gap = -math.expm1(min(0.0, epsilon - self.epsilon) / 2)
        return min(1.0, gap * gap / -math.expm1(-self.epsilon) * (1 + 8 * _UNIT_ROUNDOFF))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        inside = np.clip(edges, -self.epsilon, self.epsilon)
        low, high = np.concatenate([[-self.epsilon], inside]), np.concatenate([inside, [self.epsilon]])
        gap = -np.expm1((low - high) / 2) / -math.expm1(-self.epsilon)
        return np.exp((high - self.epsilon) / 2) * gap, np.exp(-(low + self.epsilon) / 2) * gap

    def highest(self, log_tail: float) -> float:
        return self.epsilon


@dataclass(frozen=True)
class RangePair:
    """Two losses, −``low`` and ``high``: of all pairs whose loss lies between, the largest in convex order of e^L."""

    low: float
    high: float

    def delta(self, epsilon: float) -> float:
        losses, p, _ = self._atoms()
        gained = np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0)
        return min(1.0, float(p @ gained) * (1 + 8 * _UNIT_ROUNDOFF))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        return histogram(edges, *self._atoms())

    def highest(self, log_tail: float) -> float:
        return self.high

    def lowest(self, log_tail: float) -> float:
        """An x such that no loss lies below −x."""
        return self.low

    def _atoms(self) -> tuple[Array, Array, Array]:
        # the two laws of a coin whose likelihood ratios are e^−low and e^high
        low, high, whole = (-math.expm1(-x) for x in (self.low, self.high, self.low + self.high))
        p = np.array([math.exp(-self.low) * high, low]) / whole
        q = np.array([high, math.exp(-self.high) * low]) / whole
        return np.array([-self.low, self.high]), p, q


@dataclass(frozen=True)
class ShuffledPair(Symmetric):
    """Shuffled messages of an ε₀-DP local randomizer; see :mod:`accounting.amplification.shuffling`.

    Of k-ary responses, with the curve of :mod:`accounting.amplification.blanket` where one release is alone; in
    compositions they are priced as any ε₀-DP randomizer.
    """

    local_epsilon: float
    users: int
    categories: int | None = None

    def delta(self, epsilon: float) -> float:
        if epsilon < 0:
            return -math.expm1(epsilon) + math.exp(epsilon) * self.delta(-epsilon)
        found = shuffled_delta(self.local_epsilon, self.users, epsilon)
        if self.categories is None or self.categories == 2 or found == 0:
            return found
        return min(found, response_delta(self.local_epsilon, self.categories, self.users, epsilon))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        losses, log_p = shuffled_losses(self.local_epsilon, self.users)
        with np.errstate(under="ignore"):
            return histogram(edges, losses, np.exp(log_p), np.exp(log_p - losses))

    def highest(self, log_tail: float) -> float:
        losses, log_p = shuffled_losses(self.local_epsilon, self.users)
        with np.errstate(under="ignore"):
            above = np.cumsum(np.exp(log_p[::-1]))
        rare = int(np.searchsorted(above, math.exp(max(log_tail, _NEVER)) * (1 - 1e-9)))
        return float(losses[-1 - min(rare, losses.size - 1)])


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
        middle, right, left = (_normal_masses(t - shift) for shift in (0.0, gap, -gap))
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

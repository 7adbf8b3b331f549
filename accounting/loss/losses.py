"""Dominating pairs of distributions (P, Q), seen through their privacy loss L = ln P/Q.

A pair dominates a mechanism if its hockey-stick divergence H(e^ε) = ∫(P − e^ε Q)₊ is at least the mechanism's for
every pair of neighbours and every ε. Dominating pairs compose, also adaptively (Zhu, Dong & Wang 2022, Theorem 10).
Each class here has four methods: ``delta(ε)``, the divergence in closed form; ``masses(edges)``, what P and Q give
to L between neighbouring edges; ``highest(log_tail)``, a loss that P exceeds with probability at most e^``log_tail``;
and ``lowest(log_tail)``, the same at the other end.

All pairs but ``RangePair`` are symmetric: L under P has the law of −L under Q. Those of samples are in
:mod:`accounting.loss.sampled`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from accounting.amplification.randomizers import Randomizer, curve_atoms, delta_at_most
from accounting.amplification.shuffling import MOST_LOCAL_EPSILON, shuffled_delta, shuffled_losses
from accounting.arrays import Array
from accounting.loss.numerics import normal_tail
from accounting.notions.conversions import gdp_delta

__all__ = [
    "AllFinite",
    "Bits",
    "Coins",
    "GaussianPair",
    "LaplacePair",
    "LatticeGaussianPair",
    "LossPair",
    "RangePair",
    "ShuffledPair",
    "SpanPair",
    "Symmetric",
    "histogram",
    "normal_masses",
]


_UNIT_ROUNDOFF = 2.0**-52
# ln of a probability that never matters
_NEVER = -745.0


class LossPair(Protocol):
    """What the composition needs to know about a pair."""

    def __hash__(self) -> int:
        """Equal pairs are one key."""

    def delta(self, epsilon: float) -> float:
        """H(e^ε), rounded up; ε may be negative."""

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """P and Q of L ≤ edges[0], between neighbouring edges, and above the last; each of shape (edges + 1,)."""

    def highest(self, log_tail: float) -> float:
        """A loss above which P has at most e^``log_tail``, or only infinite losses."""

    def infinite(self) -> float:
        """What P has at infinite losses."""

    def lowest(self, log_tail: float) -> float:
        """An x such that below the loss −x P has at most e^``log_tail``."""


class AllFinite:
    """No loss is infinite."""

    def infinite(self) -> float:
        """What P has at infinite losses."""
        return 0.0


class Symmetric(AllFinite):
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
        return normal_masses(t - self.mu / 2), normal_masses(t + self.mu / 2)

    def highest(self, log_tail: float) -> float:
        return self.mu**2 / 2 + self.mu * math.sqrt(-2 * log_tail)


@dataclass(frozen=True)
class LatticeGaussianPair(GaussianPair):
    """Discrete Gaussian noise on vectors or one integer, which is μ-GDP; see :mod:`accounting.loss.lattice`."""

    noise_multiplier: float
    shift: int | None


def normal_masses(z: Array) -> Array:
    """Φ between neighbouring edges, from whichever tail is the smaller."""
    tail = np.concatenate([[0.0], normal_tail(np.abs(z)), [0.0]])
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
    categories: float = 2

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


@dataclass(frozen=True)
class Bits(Coins):
    """A unary encoding: losses as of a response of as many ``categories``, but of three values other laws."""

    optimized: bool = True


def histogram(edges: Array, losses: Array, p: Array, q: Array) -> tuple[Array, Array]:
    """``masses`` of a pair with finitely many losses."""
    at = np.searchsorted(edges, losses)
    size = edges.size + 1
    in_p, in_q = (np.bincount(at, weights=mass, minlength=size).astype(np.float64) for mass in (p, q))
    return in_p, in_q


@dataclass(frozen=True)
class SpanPair(Symmetric):
    """A loss in an interval of length s = ``span``, with the worst interval for every ε: report-noisy-max with Gumbel
    noise.

    The pair of coins with losses t and t − s has H = (1 − e^(ε−t))(1 − e^(t−s))/(1 − e^(−s)), largest at t = (ε + s)/2.
    With y = e^((ε−s)/2) that is (1 − y)²/(1 − e^(−s)), again the divergence of a pair (Dong, Durfee & Rogers 2020):
    P(L > ε) = (1 − y)/(1 − e^(−s)), and Q has the density e^(−L).
    """

    span: float

    def delta(self, epsilon: float) -> float:
        if epsilon < -self.span:
            return -math.expm1(epsilon)
        gap = -math.expm1(min(0.0, epsilon - self.span) / 2)
        return min(1.0, gap * gap / -math.expm1(-self.span) * (1 + 8 * _UNIT_ROUNDOFF))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        inside = np.clip(edges, -self.span, self.span)
        low, high = np.concatenate([[-self.span], inside]), np.concatenate([inside, [self.span]])
        gap = -np.expm1((low - high) / 2) / -math.expm1(-self.span)
        return np.exp((high - self.span) / 2) * gap, np.exp(-(low + self.span) / 2) * gap

    def highest(self, log_tail: float) -> float:
        return self.span


@dataclass(frozen=True)
class RangePair(AllFinite):
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

    Of a ``randomizer`` that is known, by its own curve (:mod:`accounting.amplification.randomizers`).
    """

    local_epsilon: float
    users: int
    randomizer: Randomizer | None = None

    def delta(self, epsilon: float) -> float:
        if epsilon < 0:
            return -math.expm1(epsilon) + math.exp(epsilon) * self.delta(-epsilon)
        found = shuffled_delta(self.local_epsilon, self.users, epsilon)
        if self.randomizer is None or found == 0:
            return found
        return min(found, delta_at_most(self.randomizer, self.users, epsilon))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        if self.randomizer is not None and self.local_epsilon <= MOST_LOCAL_EPSILON:
            return histogram(edges, *curve_atoms(self.randomizer, self.users))
        losses, log_p = shuffled_losses(self.local_epsilon, self.users)
        with np.errstate(under="ignore"):
            return histogram(edges, losses, np.exp(log_p), np.exp(log_p - losses))

    def highest(self, log_tail: float) -> float:
        if self.randomizer is not None and self.local_epsilon <= MOST_LOCAL_EPSILON:
            losses, p, _ = curve_atoms(self.randomizer, self.users)
            above = np.cumsum(p[::-1])
        else:
            losses, log_p = shuffled_losses(self.local_epsilon, self.users)
            with np.errstate(under="ignore"):
                above = np.cumsum(np.exp(log_p[::-1]))
        rare = int(np.searchsorted(above, math.exp(max(log_tail, _NEVER)) * (1 - 1e-9)))
        return float(losses[-1 - min(rare, losses.size - 1)])

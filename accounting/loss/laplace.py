"""Laplace noise and its dominating pair."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.arrays import UNIT_ROUNDOFF, Array
from accounting.loss.pair import Symmetric
from accounting.masses import between_places

__all__ = ["LaplacePair", "laplace_masses"]


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

    exact = True
    theta: float

    def delta(self, epsilon: float) -> float:
        if epsilon < -self.theta:
            return -math.expm1(epsilon)
        return -math.expm1(min(0.0, epsilon - self.theta) / 2) * (1 + 4 * UNIT_ROUNDOFF)

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


def laplace_masses(x: Array) -> Array:
    """Laplace noise of scale 1: its mass up to x[0], between neighbouring x, and above the last."""
    with np.errstate(under="ignore"):
        tails = np.exp(-np.abs(x)) / 2
    return np.asarray(np.maximum(between_places(x, tails), 0.0))

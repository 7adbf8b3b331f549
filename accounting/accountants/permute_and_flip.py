"""Report-noisy-max with exponential noise (permute-and-flip): its pair, and the coins that are the worst of many.

As a single release it is what Laplace noise is (:class:`accounting.accountants.losses.LaplacePair`). Of many choices,
each of which may follow the others, the worst are those of two scores that change places: the first leads by a ≤ ε
before, the second by b = ε − a after. Their losses are

    h(a) = ε − a + ln(2 − e^(−a))   and   −h(b).

*Theorem.* For any two neighbours there is an a such that all losses lie between −h(b) and h(a).

So at every ε the coin of these two scores is at least as bad, and the game with these coins is exact
(:mod:`accounting.accountants.coin_games`). The longest is that of a = ε/2, with the range 2 ln(2e^(ε/2) − 1).

*Proof.* Scores in units of the noise's scale, of which the neighbour's are larger by 0 to ε once the same is taken off
all; P and Q are the laws of the choice. Let i have the largest loss and j the least. If i rises by less, Q_i falls and
Q_j grows, and so it is if j rises by more: let i rise by 0 and j by ε. Put α = e^(−a), β = e^(−b), so that αβ = e^(−ε),
e^h(a) = (2 − α)/β and e^h(b) = (2 − β)/α; A = 1/(1 − α), B = 1/(1 − β); w = e^(s_j − s_i) and ω = αβ/w. For 0 < a < ε

    wA(P_i − e^h(a)·Q_i) + αB(Q_j − e^h(b)·P_j) ≤ 0,                                                         (1)

as will be shown. So P_i > e^h(a)·Q_i implies Q_j ≤ e^h(b)·P_j. h falls from ε to h(ε). If L_i ≤ h(ε), a = ε will do,
as −L_j ≤ ε = h(0); else L_i = h(a) for some a, and −L_j ≤ h(b′) for all b′ < b.

*One other score is enough.* With u = e^(−x) a score is at most x with probability (1 − w_k u)₊, w_k = e^(s_k). Let D(u)
be the product of those of all scores but i and j, before, and D̃(u) after. Convex and falling from 1 to 0, it is a mean
of ramps (1 − pu)₊, with P(p ≤ 1/u) = D − uD′. For D(1 − w_k u) this is (1 − w_k u)(D − uD′) + w_k uD, whose derivative
in w_k is u²D′ ≤ 0. As the w_k rise by factors between 1 and e^ε, the law of p becomes stochastically larger, but not
more than e^ε times so: the p before and the p̃ after can be drawn together such that p ≤ p̃ ≤ e^ε·p. As (1) is linear in
D and D̃ together, it need be seen for two such ramps only: one other score, or none if p = 0.

*So Φ ≥ 0 is to be shown.* Let J(c, p) = ∫(1 − cu)(1 − pu)du up to u = 1/max(1, c, p). In units of i before and of j
after, and with r = ωp̃, P_i = J(w, p), P_j = w∫(1 − u)(1 − pu)du, Q_j = J(ω, r), Q_i = ω∫(1 − u)(1 − ru)du, these two
integrals up to where their neighbours' go, so that (1) is

    Φ = w[(1 + B)P_j/w − A·P_i] + α[(1 + A)Q_i/ω − B·Q_j] ≥ 0   where   ωp ≤ r ≤ p/w.

If w and ω, p and r, α and β, A and B change places, Φ is multiplied by β/w. So let ω ≤ 1, as wω < 1. Put m = max(1, w).
For p ≤ m, P_i and P_j are affine in p, and else 3/p − w/p² and 3w/p − w/p² sixths; so with ω and r, from r = 1 on.

(a) *p ≥ m, r ≥ 1.* On a ray r = p/ρ, pΦ is affine in 1/p, so it need be seen as p → ∞, and on the border of (b) to (d).
There 2pΦ → w(1 + B − A) + αρ(1 + A − B), affine in ρ, which is w(α + B(1 − α)) at ρ = w and α(β + A(1 − β))/ω at 1/ω.

(b) *p ≤ m, r ≤ 1.* Φ is affine in p and r. Its corners are as follows, with d = α − w, k = 1 − w and t = 1 − α.
If w ≤ 1, at (0, 0) 2Φ = d[A(1 − w) − B(1 − ω)]; in brackets the first is ≥ 1 and the second ≤ 1 where d ≥ 0, and the
other way round where d ≤ 0. At (1, 1), 6Φ = A[d² + d(1 − 2w) + 2wk] + (B − 1)d(d − w)/w. If d ≤ 0 both terms are ≥ 0,
and also if d ≥ w, as then w < ½; else (B − 1)d ≤ w, as ω ≤ 1, and 6Φ/A ≥ [...] − (w − d)(k − d) = 2dk + wk. At (w, 1),
6Φ = (B − 1)[d² − wd + w²k]/w + A[t² + t(1 − 2k − 2k²) + 2k³], where d ≤ k. The first bracket is ≥ d² if d ≤ wk, and
else ≥ d(d − wk). The second is 2t(1 − k)²(1 + k) + (1 − t)(2k³ − t), whose last term is ≥ −t(1 − √(2k³))², and
√2[(1 − k)√(1 + k) + k√k] ≥ √2(1 − 4/27) ≥ 1. By the symmetry Φ ≥ 0 at (1, ω), too.
If w ≥ 1, at (0, 0) 2Φ = 1 + α + 2B(1 − α) − [1 + α² + B(1 − α²)]/w is least for w = 1: α(1 − α) + B(1 − α)².
At (w, 1) 6Φ = 1 + 2α + 3B(1 − α) − [1 + α² + B(1 − α²)]/w ≥ (2 − α)(α + B(1 − α)). At (w, αβ) 6Φ = 3α(1 − α) +
A(1 − αβ) + αβ(1 − α) + 3B(1 − α)² + [...]/w; if the bracket is negative it is least for w = 1, where it is
4α³ − 7α² + 4α + 2B(1 − α)³ + (A − 1 − α + α² − 2α³)/B, and A − 1 ≥ α + α² + α³, 49 < 64.

(c) *p ≥ m, r ≤ 1.* Φ is affine in r: see r = 1 and r = ωp, with z = 1/p from ω to 1/m.
On r = 1, 6Φ = α[2(1 + A − B) − B(1 − ω)] − w[3z(A − 1 − B) − z²(Aw − 1 − B)]. At z = ω it is α[1 + (A − 1)(1 + 1/B)/B +
ω/B]; at 1/m, in (b). It is concave in z if Aw ≤ 1 + B. Else, if w ≤ 1, it falls up to z = 1; if w > 1 and A ≤ 1 + B, it
rises; and if 1 + B < A the minimum lies inside only if A < (1 + B)(3 − 2/w), at most (A − (1 + B)/w)(1 − αβ)²/4 ≤
D(1 − 1/(3w)) below both ends, D = (1 + g)²/(4A) with g = (A − 1)/B ≤ A − 1. D is convex in A, at most 1/(1 + B) and
(2B + 1)²/(3B²(1 + B)) ≤ 3/2 at the ends A = 1 + B and 3(1 + B). At z = ω, 6Φ ≥ (A − 1)(1 + g)/A ≥ D as A ≥ 2; at 1/w it
is linear in 1/w, ≥ 2 at 1/w = 0 and ≥ 1 at 1, so ≥ 2 − 1/w ≥ (3/2)(1 − 1/(3w)).
On r = ωp =: s, max(ω, αβ) ≤ s ≤ 1, 6Φ/α is, with ϱ = β/s and for given α, β and s, affine in ω ≤ s: for ω = s that is
(1, ω) in (b), and for ω = 0

    (A − 1)[(1 − ϱ)(2 − ϱ) + 1 − s] + 3B(1 − s)²/s + 6 − 2s − 3/s.

If ϱ ≤ 1 that is ≥ s, as B ≥ 1. If ϱ > 1, (A − 1)(ϱ − 1) ≤ 1 as ϱ ≤ 1/α, and B > 1/(1 − s): it is ≥ 2 − 2s.

(d) *p ≤ m, r ≥ 1.* As r ≤ p/w, w ≤ 1: by the symmetry this is (c). ∎
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.coin_kinds import Kind
from accounting.accountants.losses import LaplacePair

__all__ = ["FlipKind", "FlipPair"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FlipPair(LaplacePair):
    """Permute-and-flip, once."""


@dataclass(frozen=True)
class FlipKind(Kind):
    """The coins of two scores that change places, on a sample of ``rate``; t = b is the lead after.

    P has 1 − e^(−a)/2 at the high loss h(a), and Q has e^(−b)/2.
    """

    epsilon: float
    rate: float = 1.0
    present: bool = True

    @property
    def ends(self) -> tuple[float, float]:
        return 0.0, self.epsilon

    @property
    def longest(self) -> float:
        # 2e^(ε/2) − 1 = 1 + 2(e^(ε/2) − 1)
        return 2 * math.log1p(2 * math.expm1(self.epsilon / 2))

    def plain(self, t: Array) -> tuple[Array, Array]:
        before = self.epsilon - t
        return t + np.log1p(-np.expm1(-before)), before + np.log1p(-np.expm1(-t))

    def inverses(self, high: Array, low: Array) -> tuple[Array, Array]:
        # e^(h(a) − ε) = 1 − (1 − e^(−a))²: where a is known badly, near 0, h does not depend on it
        a, b = (-np.log1p(-np.sqrt(np.maximum(-np.expm1(x - self.epsilon), 0.0))) for x in (high, low))
        return self.epsilon - a, b

    @property
    def exponent(self) -> float:
        return self.epsilon

    @property
    def multiple(self) -> float:
        return 0.5

    def chances(self, u: Array, s: Array, rest: Array) -> tuple[Array, Array]:
        return u / 2, (s + rest / u) / 2

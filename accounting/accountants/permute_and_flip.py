"""Report-noisy-max with exponential noise (permute-and-flip): its pair, and the range of its privacy loss.

As a single release it is what Laplace noise is (:class:`accounting.accountants.losses.LaplacePair`). Of many, the
range of its loss says more: the losses of two outcomes differ by at most

    s = 2 ln(2e^(ε/2) − 1),

less than the 2ε of pure DP. Two scores that change places meet it, with a lead of ε/2 before and after.

*Proof.* Scores in units of the noise's scale, moved along a straight line to a neighbour's, each by at most ε, the
same for all taken off. Let λ_k(x) = 1/(e^(x − s_k) − 1) and G(x) the probability that all scores are at most x, above
the largest s. Outcome k has the probability P_k = ∫λ_k G dx, and G′ = ΛG with Λ = Σλ_k. Write E_k for the mean over
λ_k G/P_k, and i, j for two outcomes with s_i = s_j + l, l ≥ 0. All λ fall as x grows, with λ′ = −λ(1 + λ), and

    λ_i = λ_j·(e^l + (e^l − 1)λ_i).                                                                          (1)

(a) *One score.* d ln P_j/ds_j = E_j[Λ − λ_j] =: ΣE_jλ_k over k ≠ j, which is at most 1 as the mechanism is pure DP.
By (1) P_i/P_j = e^l + (e^l − 1)Z with Z = E_jλ_i ≤ 1: so l ≤ ln(P_i/P_j) ≤ f(l) := ln(2e^l − 1).

(b) *The two change places*, from l₀ to −l₁, l₀ + l₁ ≤ ε: the difference of their losses is at most f(l₀) + f(l₁) ≤
2f(ε/2), as f is concave.

(c) *They do not.* While j comes nearer to i at the rate 1 and every other score moves with one of them, those of a
set K with j, ln(P_i/P_j) falls at the rate T = Σ over k not in K and ≠ j of E_jλ_k, plus E_iλ_j + E_iΛ_K. With κ =
E_jΛ_K the first is at most 1 − κ; with (1) and P_i/P_j =: R

    T ≤ 1 + [Z + (e^l − 1)C]/R,    C = Cov_j(λ_i, Λ_K).

As −∫(λ_jλ_k)′G = ∫λ_jλ_kΛG but for a boundary term of one sign, E_j[λ_kΛ − λ_k(λ_j + λ_k)] ≤ 2E_jλ_k. Hence C ≤
min(2Z, 2κ) − Zκ, with Z + κ ≤ 1. So C ≤ Z(2 − Z) if Z ≤ ½ and C ≤ (1 − Z)(2 − Z) else. Put w = 1 − e^(−l): the last
term of T is at most (Z(1 − w) + wC)/(1 + wZ), rising in Z up to Z = ½, where it is ½, and from there on a convex
function over a linear one, at most what it is at an end, ½ or (1 − w)/(1 + w). Therefore T ≤ τ(l) = 1 + max(½,
1/(2e^l − 1)). If the two keep their distance and the others move, the rate is at most (e^l − 1)C/R ≤ ½; every motion
is a mean of such. In all, the losses differ by at most ∫₀^ε τ, which is ln(2e^ε − 1) for ε ≤ ln 1.5 and grows by 1.5
per unit from there; and by (a) by at most ln 2 + ε. Both are compared with s: e^s = (2e^(ε/2) − 1)² = 2e^ε − 1 +
2(e^(ε/2) − 1)²; then s grows by more than 1.5 per unit until e^(ε/2) = 1.5, is still larger where ε = 1.07, and from
there on e^s ≥ 2e^ε. ∎
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.accountants.losses import LaplacePair

__all__ = ["FlipPair", "range_of_loss"]


def range_of_loss(epsilon: float) -> float:
    """How far two losses of one release are apart, at most.

    >>> round(range_of_loss(1.0), 4)
    1.6636
    """
    # 2e^(ε/2) − 1 = 1 + 2(e^(ε/2) − 1)
    return 2 * math.log1p(2 * math.expm1(epsilon / 2)) * (1 + 1e-15)


@dataclass(frozen=True)
class FlipPair(LaplacePair):
    """Permute-and-flip, once."""

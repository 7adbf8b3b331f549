"""Report-noisy-max with Laplace noise: groups of equal scores, and the range of its privacy loss.

Two scores are a coin whose log-odds move by at most ε, as with Gumbel noise. Two groups of scores that all tie, N in
all, are one whose log-odds move N/(N − 1)·(1 − 2^(1 − N)) times as fast: their best is P(A) = |A|/N, with the slope

    |A||B| ∫ f² F^(N − 2) dx = P(A)P(B)·N/(N − 1)·(1 − 2^(1 − N)),

f and F the density and the distribution function of the noise: 1, 9/8, 7/6, 75/64 for N = 2, …, 5, and less for more.
So the privacy loss is not of range ε. But it is of range

    s = 1.28ε,

less than the 2ε of pure DP; by computation no scores were found for which it is more than 1.174ε as ε → 0.

*Proof.* Scores in units of the noise's scale, moved along a straight line to a neighbour's, each at a rate of 0 to ε
once the same is taken off all. Let λ_l = f/F at x − s_l, Λ = Σλ_l, G = ΠF(x − s_l), so G′ = ΛG, and E_l the mean over
λ_l G/P_l. With the rates v, (ln P_j)′ = Σ(v_j − v_l)E_jλ_l: how fast the losses of j and k come apart is linear in v,
and it is enough that all are 0 or ε. If j and k move alike, both derivatives lie between 0 and ε or between −ε and 0,
as −f′ ≤ f. Else, call the lower one 0 and the other d, as they are d ≥ 0 apart. Let Λ_0 be the hazards λ of those that
move with the first, Λ_d of those with the second. It remains to show

    T = E_0[λ_d + Λ_d] + E_d[λ_0 + Λ_0] ≤ c = 1.28.

(a) *The others.* H, the product of their F, has H″ + H′ ≥ 0: f′ ≥ −f, and (UV)″ + (UV)′ = (U″ + U′)V + U(V″ + V′) +
2U′V′. So it is convex in −e^(−x), increasing from 0, and a mean of the ramps H_t = (1 − e^(t − x))₊, −∞ ≤ t < ∞
(t = −∞ where there are no others). Functionals that are linear in H need to be looked at for ramps only.

(b) *d ≤ 4.* Let κ = P_d/P_0. As λ_d/λ_0 lies between 1 and 2e^d − 1, so does κ. Put a = f_0 F_d and b = f_d F_0. Then

    T P_d = ∫κλ_0(λ_d + Λ_d)G + λ_d(λ_0 + Λ_0)G ≤ N_κ(H) := ∫(κ + 1)f_0 f_d H + max(κa, b)H′,

as (Λ_0 + Λ_d)H = H′. For any θ, T ≤ c follows if N_κ(H) − c∫bH ≤ θ∫(b − κa)H, the right-hand side being 0: for
ramps, an inequality between functions of t. For one θ it is convex in κ, and holds between two κ if at both. Where d
changes by η and κe^(−d) does not, f_d and κF_d change by factors between e^(−η) and e^η, κf_d by one between 1 and
e^(2η). So finitely many points suffice, and how far they are apart is in the margin that is asked for. With steps of
0.005 in d and 0.01 in t and 16 cells of κe^(−d) it is there everywhere: at least 0.005 of (P_d + κP_0) is left. The
computation is a test.

(c) *d ≥ 4.* Let g be (2e^d − 1)λ_0 up to x = d and λ_d from there on; both are 1 at d. As g/λ_0 and g/λ_d nowhere
increase, the law of density gG/∫gG is stochastically smaller than those of E_0 and E_d; and the hazards nowhere
increase. So T is at most the mean of Λ over it, ∫gΛG/∫gG = −∫g′G/∫gG. Let now H be the product of all F but F_d, and
M a multiple of gF_d: with m = 1 − e^(−d)/2 it is 2me^x, mu, e^(d − x) for x ≤ 0, 0 ≤ x ≤ d, d ≤ x, and −g′/g is 0, u,
2/(2 − e^(d − x)) there, with u = 1 + λ_0. For the ramp at t = d − z, 0 ≤ z ≤ d, and σ = e^(−z),

    ∫(−g′/g − c)MH ≤ −(1 − e^(−d)/2)(c − 1)(z − 1 + σ) + ∫₀¹(2/(2 − v) − c)(1 − σv)dv + r,
    r = ∫₀^d ((u − c)u − (1 − c))H dx = ∫₀^d λ_0(λ_0 + 2 − c)H dx.

The first two are at most −(0.28z − 0.3863 + 0.4125σ) + 0.0026(z − 1 + σ), and the bracket is at least 0.0021, near
z = 0.39. Where z ≤ 3, t ≥ 1 and λ_0 ≤ 0.613e^(−x), so that r ≤ 0.29e^(z − 4)(1 − σ)²; where z ≥ 3, r is at most what it
is for t = 0 and d = ∞, 0.301, and the bracket is 0.47 or more. For t > d the mean of 2/(2 − v) with the weights
1 − v/p on (0, p), p = e^(d − t), is largest for p = 1, 4(1 − ln 2) < 1.228. For t < 0 the integral over x > 0 is linear
in e^t, negative at 1, as seen, and at 0, where it is at most m(0.806 − 0.28d) + 0.107; over x < 0 it is negative. ∎
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.losses import LaplacePair

__all__ = ["LARGEST_RANGE", "MaximumPair", "groups_of_scores", "wins"]

Array = NDArray[np.float64]

#: In units of ε.
LARGEST_RANGE = 1.28

_MOST_SCORES = 4
_CELLS = 96
# Integrals of polynomials of degree 7, and of sums of exponentials over an interval of a few units, to the last digits.
_NODES, _WEIGHTS = (np.polynomial.legendre.leggauss(24)[0] + 1) / 2, np.polynomial.legendre.leggauss(24)[1] / 2


@dataclass(frozen=True)
class MaximumPair(LaplacePair):
    """Report-noisy-max with Laplace noise, once."""


def _below(x: Array, count: int) -> Array:
    half = 0.5 * np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, half, 1 - half) ** count)


def wins(first: int, second: int, lead: Array) -> Array:
    """The probability that the best of ``first`` scores, ``lead`` ahead, beats the best of ``second`` equal ones."""
    low, high = np.minimum(0.0, -lead)[:, None], np.maximum(0.0, -lead)[:, None]

    def mass(noise: Array) -> Array:
        half = 0.5 * np.exp(-np.abs(noise))
        return first * half * _below(noise, first - 1) * _below(noise + lead[:, None], second)

    # with v = e^(−distance) outside of the two kinks
    outside = (mass(low + np.log(_NODES)) + mass(high - np.log(_NODES))) / _NODES
    return np.asarray((outside + (high - low) * mass(low + (high - low) * _NODES)) @ _WEIGHTS)


@lru_cache(maxsize=32)
def groups_of_scores(epsilon: float) -> list[tuple[Array, Array]]:
    """``low`` and ``high`` of the coins of two groups of up to four equal scores, one of which moves by ε.

    One group leads by a, and then by a − ε; a curve of coins for every two sizes.
    """
    lead = epsilon / _CELLS * np.arange(-_CELLS, 2 * _CELLS + 1, dtype=np.float64)
    now, later = slice(_CELLS, None), slice(None, -_CELLS)
    curves = []
    for first in range(1, _MOST_SCORES + 1):
        for second in range(1, _MOST_SCORES + 1):
            win, lose = np.log(wins(first, second, lead)), np.log(wins(second, first, -lead))
            curves.append((lose[later] - lose[now], win[now] - win[later]))
    return curves

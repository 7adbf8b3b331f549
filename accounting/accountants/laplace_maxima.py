"""Report-noisy-max with Laplace noise: groups of equal scores, and the range of its privacy loss.

Two scores are a coin whose log-odds move by at most ε, as with Gumbel noise. Two groups of scores that all tie, N in
all, are one whose log-odds move N/(N − 1)·(1 − 2^(1 − N)) times as fast: their best is P(A) = |A|/N, with the slope

    |A||B| ∫ f² F^(N − 2) dx = P(A)P(B)·N/(N − 1)·(1 − 2^(1 − N)),

f and F the density and the distribution function of the noise: 1, 9/8, 7/6, 75/64 for N = 2, …, 5, and less for more.
So the privacy loss is not of range ε. But it is of range

    s = 1.23ε,

less than the 2ε of pure DP; by computation no scores were found for which it is more than 1.174ε as ε → 0.

*Proof.* Scores in units of the noise's scale, moved along a straight line to a neighbour's, each at a rate of 0 to ε
once the same is taken off all. Let λ_l = f/F at x − s_l, Λ = Σλ_l, G = ΠF(x − s_l), so G′ = ΛG, and E_l the mean over
λ_l G/P_l. With the rates v, (ln P_j)′ = Σ(v_j − v_l)E_jλ_l: how fast the losses of j and k come apart is linear in v,
and it is enough that all are 0 or ε. If j and k move alike, both derivatives lie between 0 and ε or between −ε and 0,
as −f′ ≤ f. Else, call the lower one 0 and the other d, as they are d ≥ 0 apart. Let Λ_0 be the hazards λ of those that
move with the first, Λ_d of those with the second. It remains to show

    T = E_0[λ_d + Λ_d] + E_d[λ_0 + Λ_0] ≤ c = 1.23.

(a) *The others.* H, the product of some F, has H″ + H′ ≥ 0: f′ ≥ −f, and (UV)″ + (UV)′ = (U″ + U′)V + U(V″ + V′) +
2U′V′. So it is convex in −e^(−x), increasing from 0, and a mean of the ramps H_t = (1 − e^(t − x))₊, −∞ ≤ t < ∞
(t = −∞ where there are no others). Functionals that are linear in H need to be looked at for ramps only; those that are
linear in each of two products, for two ramps.

(b) *d ≤ 2.* Let H_0 and H_d be the products of the F of those that move with 0 and with d, κ = P_d/P_0, a = f_0 F_d and
b = f_d F_0. As λ_d/λ_0 lies between 1 and 2e^d − 1, so does κ, and

    T P_d = ∫(κ + 1)f_0 f_d H_0 H_d + κa H_0 H_d′ + b H_0′ H_d =: N_κ(H_0, H_d).

For any θ, T ≤ c follows if c∫bH_0 H_d − N_κ + θ∫(b − κa)H_0 H_d ≥ 0, as the last integral is 0: for ramps, an
inequality between functions of two numbers. It is affine in κ, and holds between two κ if for one θ at both; the θ that
will do are an interval. And T changes by a factor of at most e^(2η) where d changes by η: F_d changes by one between 1
and e^(±η), and f_d by one between e^(−η) and e^η, so that in no E_l do numerator and denominator part by more. So
finitely many points suffice: d in steps of 0.005, for which T ≤ 1.2238 is enough, and ramps in steps of 0.025. What is
between them is in the margin that is asked for. The computation is a test; the truth for ramps is 1.2175, at d = 0.

(c) *d ≥ 2.* By parts, as −f′ ≤ f, E_0[λ_d + Λ_d] ≤ 1 − E_0Λ_0, so that T ≤ 1 + E_dλ_0 + E_dΛ_0 − E_0Λ_0. Let g be λ_d
up to x = d and (2e^d − 1)λ_0 from there on; both are 1 at d. As g/λ_0 nowhere falls, and the hazards nowhere rise, the
last mean is at least that over gG/∫gG. Now let κ = ∫λ_d G/∫gG, between ½ and 1, as λ_d/g is. With H, the product of all
F but F_0 and F_d, b as before and b̃ = gF_0 F_d,

    (T − 1)P_d ≤ N := ∫f_0 f_d H + (b − κb̃)₊ H′,

and T ≤ c follows if (c − 1)∫bH − N ≥ θ∫(b − κb̃)H for some θ. This is for ramps again, concave in κ, and so the worst at
the ends of a cell of κ. Let z = x − d and ι = e^(−d). For z ≥ −d, b is e^z/2 − ι/4 up to 0 and e^(−z)/2 − ιe^(−2z)/4
from there on, b̃ the same up to 0 and then (1 − ι/2)(e^(−z) − e^(−2z)/2), f_0 f_d is ι/4 and then ιe^(−2z)/4: affine in
ι, and N convex, so that ramps from −2 on need be seen for ι = 0 and e^(−2) only. A ramp that begins earlier is, from −2
on, a mean of H = 1 and the ramp at −2. What is below −2, where b̃ = b rises, adds to N at most ∫f_0 f_d + b(−2)/2 ≤
0.41e^(−2), times the weight of H = 1, if c − 1 ≥ θ(1 − κ). The computation is a test, too; the truth for ramps is
1.2245, at d = 2, and falls to 1.2230 as d → ∞. ∎

*What is lost.* Ramps are steeper than any product, at their beginning: that is all that is between 1.22 and 1.174.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.losses import LaplacePair

__all__ = ["LARGEST_RANGE", "SIZES", "MaximumPair", "groups_of_scores", "wins"]

Array = NDArray[np.float64]

#: In units of ε.
LARGEST_RANGE = 1.23

#: Two groups of up to four, and one or two scores against more: as these grow, their loss comes near ε.
SIZES = [(one, other) for one in range(1, 5) for other in range(1, 5)]
SIZES += [sizes for few in (1, 2) for many in (5, 6, 8, 10, 14) for sizes in ((few, many), (many, few))]
_CELLS = 96
# Integrals of polynomials of degree 17, and of sums of exponentials over a few units, to the last digits.
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
    """``low`` and ``high`` of the coins of two groups of equal scores, one of which moves by ε.

    One group leads by a, and then by a − ε; a curve of coins for every two sizes.
    """
    lead = epsilon / _CELLS * np.arange(-_CELLS, 2 * _CELLS + 1, dtype=np.float64)
    now, later = slice(_CELLS, None), slice(None, -_CELLS)
    curves = []
    for first, second in SIZES:
        win, lose = np.log(wins(first, second, lead)), np.log(wins(second, first, -lead))
        curves.append((lose[later] - lose[now], win[now] - win[later]))
    return curves

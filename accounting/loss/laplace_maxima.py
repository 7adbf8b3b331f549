"""Report-noisy-max with Laplace noise: groups of equal scores, and the range of its privacy loss.

Two scores are a coin whose log-odds move by at most ε, as with Gumbel noise. Two groups of scores that all tie, N in
all, are one whose log-odds move N/(N − 1)·(1 − 2^(1 − N)) times as fast: their best is P(A) = |A|/N, with the slope

    |A||B| ∫ f² F^(N − 2) dx = P(A)P(B)·N/(N − 1)·(1 − 2^(1 − N)),

f and F the density and the distribution function of the noise: 1, 9/8, 7/6, 75/64 for N = 2, …, 5, and less for more.
So the privacy loss is not of range ε. But it is of range

    s = ε + max(2c(ε/2), min(0.2ε, max(0.2905, min(0.202 + 0.05ε, 0.4443)))),

at most 1.2ε, and ε + 0.5386: c is concave, a table (``_MORE``), and never more than 0.2693. By computation no
scores were found for which it is more than 1.174ε as ε → 0, 1.146ε for ε = 2 and 1.109ε for ε = 4.

*Proof of 1.2ε.* Scores in units of the noise's scale, moved along a straight line to a neighbour's, each at a rate of
0 to ε once the same is taken off all. Let λ_l = f/F at x − s_l, Λ = Σλ_l, G = ΠF(x − s_l), so G′ = ΛG, and E_l the
mean over λ_l G/P_l. With the rates v, (ln P_j)′ = Σ(v_j − v_l)E_jλ_l: how fast the losses of j and k come apart is
linear in v, and it is enough that all are 0 or ε. If j and k move alike, both derivatives lie between 0 and ε or
between −ε and 0, as −f′ ≤ f. Else, call the lower one 0 and the other d, as they are d ≥ 0 apart. Let H_0 and H_d be
the products of the F of the others that move with the first and with the second, Λ_0 and Λ_d the sums of their λ, and
H = H_0 H_d. It remains to show T = E_0[λ_d + Λ_d] + E_d[λ_0 + Λ_0] ≤ c = 1.2. As λ′ = −λ(1 + λ) from the score on, and
λ = 1 before,

    E_0[λ_0 + λ_d + Λ_0 + Λ_d] = E_0[(1 + λ_0)1_{x > 0}],    T = 1 − 2π + E_dλ_0 + E_dΛ_0 − E_0Λ_0,            (1)

π the probability of x < 0 under E_0. Let κ = P_d/P_0, between 1 and 2e^d − 1 as λ_d/λ_0 is, a = f_0 F_d, b = f_d F_0.

(a) *The steepest functions.* Let Λ = Σλ_l, of some of the others. As λ_l ≤ 1, Λ falls, and Λ′ ≥ −Λ − min(Λ, Λ²). With
equality that is the logarithmic derivative of

    φ_t = 1 − e^(t − x)/2 for x ≥ t,    φ_t = ½exp((1 − e^(2(t − x)))/2) for x ≤ t,

and φ_t = 1 for t = −∞. Where the two are equal once, Λ is less before and more afterwards: H/φ_t falls, then rises. Let
W be positive, negative and positive again, with the changes at p ≤ q. There are t and C with Cφ_t = H at both, as φ_t
rises by any factor from p to q for some t. So Cφ_t is at least H between them and at most H outside, ∫WH ≥ C∫Wφ_t, and
∫WH ≥ 0 need be seen for H = φ_t only. Any other W may first be lowered to one with such signs: as H ≥ 0 increases,
what is positive may be moved to the left or left out, and what is negative moved to the right.

(b) *d ≤ 1.4.* By (1), T ≤ c follows if for some ϑ, as the last term is 0,

    Φ = ∫[(c − 1)b − f_0 f_d + 2κa·1_{x < 0}]H − (b − κa)Λ_0 H + ϑ(b − κa)H ≥ 0.

a/b = λ_0/λ_d =: ρ falls from 1 to 1/(2e^d − 1) on (0, d), and is e^(−d) − (1 − e^(−d))λ_0 beyond. If κ ≤ e^d, b − κa
is negative and then positive; its integral over H is 0, Λ_0 falls, and the term with Λ_0 is left out. What is left is
affine in κ and linear in H: see H = φ_t, for ϑ = 1 and κ = 1, e^d. If κ > e^d, b − κa is negative up to some x_1 ≤ d,
positive up to some x_2 ≥ d, and negative again, and the term with Λ_0 is left out from x_2 on. The rest is concave in κ
for every ϑ, and holds between two κ if for one ϑ at both. Let 0 ≤ ϑ ≤ 1, κ ≤ 1/(c − 1) and (κe^(−d) − 1)ϑ < c − 1.

For given H_0 the weight of H_d is bH_0 times 2κ − 2 + c − (κ − 1)m > 0 for x < 0, with m = ϑ − Λ_0, which rises, and
g = c − 1 − λ_0 + (1 − κρ)m up to x_2. On (0, x_1) g falls where κm ≤ −1, as g′ = m′(1 − κρ) − λ_0′(1 + κm), and then
is c − 1 − 1/κ − (ρ − 1/κ)(1 + κm) ≤ 0. On (x_1, d) this is not positive where κm ≤ −1, and then rises. Beyond d,
1 − κρ = α + βλ_0, α ≤ 0 ≤ β, and g rises where βm ≤ 1, as g′ = m′(1 − κρ) − λ_0′(1 − βm); from there on g ≥
c − 1 + αϑ > 0. From x_2 on the weight is c − 1 + αϑ + (βϑ − 1)λ_0, which rises or is positive. So the signs are as in
(a), and H_d = φ_t′ is the worst. Then the weight of H_0 is known, by parts; it is lowered, and H_0 = φ_t.

(c) *d ≥ 1.4.* Let g/λ_0 nowhere fall. The mean E_g over gG/∫gG has at most the Λ_0 and the π of E_0, as Λ_0 falls. Let
g = (2e^d − 1)λ_0 from d on and λ_d e^(min(d − x, d, 3)/2) before. Let κ be ∫λ_d G/∫gG now, and b̃ = gF_0 F_d. By (1), T
≤ c follows if

    ∫[(c − 1)b − f_0 f_d + 2κb̃·1_{x < 0} + ϑ(b − κb̃)]H − (b − κb̃)₊H′ ≥ 0

for some ϑ, as ΛH_0 H_d ≤ H′ for the Λ of H_0. That is linear in H and concave in κ. As g ≥ λ_d, κ ≤ 1. And κ ≥ ½: g/λ_d
is at most 2 beyond d; before, its mean is at most that for the density e^(x − d), as H increases and b/e^x, too, and
∫e^(z/2) = 2 over z = x − d < 0. In z and with ι = e^(−d), for z ≥ −min(d, 3), b is e^z/2 − ι/4 up to 0 and
e^(−z)/2 − ιe^(−2z)/4 from there on, b̃ is be^(−z/2) and then (1 − ι/2)(e^(−z) − e^(−2z)/2), and f_0 f_d is ι/4 and then
ιe^(−2z)/4: affine in ι, and what is to be shown concave. So all d ≥ 3 are seen by ι = 0 and e^(−3), with one ϑ for
both, and from z = −3 on: below, b ≤ κb̃, and the integral is at least −(∫f_0 f_d + ϑ(κe^(3/2) − 1)∫b)H(−3), ∫f_0 f_d ≤
e^(−3.5)/4 < 0.0076 and ∫b ≤ e^(−3)/2 < 0.025. The functions in (b) with P_d/P_0 ≥ 5 = 1/(c − 1) are seen here, too: as
g ≤ (2e^d − 1)λ_0, they have κ ≥ 5/(2e^d − 1).

*Finitely many points suffice.* T changes by a factor of at most e^(2η) where d changes by η: F_d changes by one between
1 and e^(±η), and f_d by one between e^(−η) and e^η, so that in no E_l do numerator and denominator part by more. So d
is seen in cells, with c less by what T may change from the middle. φ_t is smooth in t, and between two t, h apart, at
most a mixture of the two and h²/8 times its largest second derivative, which is taken off; for t < −5 it is a mixture
of φ_(−5) and 1, from x = −5 on. Where t is far beyond d, all of φ_t that counts lies where weights are positive. The
computations are tests. For d = 0 the steepest functions reach 1.1939; for (c), c = 1.195 would do. ∎

*Proof of the rest.* Let i have the largest loss and j the least. If i rises by less, Q_i falls and Q_j grows, and so it
is if j rises by more: let i rise by 0 and j by ε, and let j lead by d before. With κ the odds of j against i, the
losses are as far apart as ln κ before and after. From now on G is the product for all others.

(d) *Leads that change sides.* The odds of one at 0 who leads another one, at −a, are at most e^(a + c(a)), whatever the
others are. That is ∫WG ≥ 0 for W = e^(a + c)f_a F − fF_a, with f_a and F_a at x + a, which is positive where λ(x)/λ(x +
a) < e^(a + c). That ratio is 1 up to −a, rises up to 0, and then falls to e^a: W has the signs of (a), with changes at
p and q. As there, it is enough to see all ψ whose logarithmic derivative is at least Λ, that of G, up to x₀, and at
most Λ afterwards, for all x₀ in [p, q]: for one of them Cψ = G at both p and q. Let m = Λ(x₀) and ζ = Σλ_l²/m, of λ_l =
λ(x₀ − s_l). At x₀ + y, as λ′ = −λ(1 + λ) or 0,

    λ ≥ e^(−y)λ_l/(1 + (1 − e^(−y))λ_l),   so   Λ ≥ e^(−y)m/(1 + (1 − e^(−y))ζ)

(Cauchy). At x₀ − y, λ is at most 1 and e^y λ_l/(1 − (e^y − 1)λ_l). Over λ_l this is convex, from e^y for λ_l = 0 to
2e^y − 1 for λ_l = λ(y), and then falls, convex, to 1 for λ_l = 1. So Λ/m is at most e^y + ζ(2e^y − 1)(e^y − 1) if ζ ≤
λ(y), and else 1 + (1 − ζ)(2e^y − 1). With equality that is one ψ = exp(−mk(x − x₀)) for every x₀, m and ζ; as x₀ goes
from p to q, it changes continuously.
In a box of m, x₀ and ζ ψ is one mixture of those at its corners but for a bend, at most 1/8 of each second derivative
times the width squared, and ψ ≥ 0 where at some corner it is less than that. Where m > 100 it is 300 times as large
from q + 1 on as before q. Between two a near each other c is linear, and ∂²W/∂a², W being e^(a + c)f_a F − fF_a, is at
most e^(a + c)f_a F times c′² beyond −a and (2 + c′)² before, and f f_a more beyond −a; at −a the slope of e^a f_a
falls. So W is a mixture but for a bend, too, and finitely many a suffice. For all a ≥ 8 see z = x + a, with the leader
at a, from −5 on: the other's F is at most 1 there, and e^a times its density is ½e^(−z).

If d ≤ 0 ≤ d + ε then s ≤ ε + c(−d) + c(d + ε) ≤ ε + 2c(ε/2).

(e) *Leads that do not.* Let d ≥ 0; else let both P and Q and i and j change places. Let y = ln κ − x where j leads by
x, as d ≤ x ≤ d + ε. By (d) y ≤ 0.2693, and y′ = T − 1 ≤ 0.2. Where y ≤ 0, that is κ ≤ e^x, the last term of (1) is at
most 0 as in (b), and T ≤ U = 1 − 2π + E_dλ_0. As there, U ≤ 1.05 follows for 0.8 ≤ x ≤ 3, with 0 ≤ ϑ ≤ 2 and κ from 1
to e^x: the weight is positive below 0, rises from there to x, and beyond it is or becomes positive. A change of x by η
changes U by a factor of at most e^(2η), and y by at most η as 0 ≤ T ≤ 2. For x ≥ 3 what E_d has below 0 may be left
out, as 2κ ≥ 1, and then G, as λ_0 falls:

    U − 1 ≤ (½ + x)e^(−x)/4 / (1 − (5/8 + x/4)e^(−x)) < 0.05,    in all less than 0.065 from 3 on.

And where y ≤ 0, it is at least what it is for G = 1, since λ_d/λ_0 − κ is negative and then positive and G rises: at
least −0.021 for x ≤ 0.8. So let y ≤ 0 somewhere. Up to the last such x it rises by 0.021 at most if d ≤ 0.8, and else
by 0.05 times the way to the first 0, or 0.175. After it, it rises by at most 0.2693, in 1.3465 or more. In all that is
at most 0.2905 or 0.2693 + 0.05(ε − 1.3465), which is less than 2c(ε/2) from ε = 2 on up to 4, and from there on at most
0.4443, which is less, too. ∎

*What is lost.* No product is as steep as φ_t for long: Λ(x − y) ≤ (2e^y − 1)Λ(x) for y > 0. With functions of two
numbers, as steep as that allows, the largest T at d = 0 is 1.186; with those of (d) it is 1.178. As far as is known,
the largest odds in (d) are those against F(x − s)ⁿ, with c(1) = 0.146 and c(2) = 0.217.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from accounting.arrays import Array
from accounting.loss.laplace import LaplacePair
from accounting.masses import laplace_below

__all__ = ["SIZES", "MaximumPair", "excess", "groups_of_scores", "integral", "more_than_lead", "wins"]


# By how much the logarithm of a leader's odds is above the lead, c; the first slope is 0.2.
_LEADS = (0.0, 0.52, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 8.0)
_MORE = (
    0.0, 0.104, 0.1523, 0.1769, 0.1968, 0.2125, 0.2249, 0.2346, 0.2423, 0.2482, 0.2533, 0.2597, 0.2634, 0.2659, 0.2672,
    0.2691, 0.2693,
)  # fmt: skip

#: Two groups of up to four, and one or two scores against more: as these grow, their loss comes near ε.
SIZES = [(one, other) for one in range(1, 5) for other in range(1, 5)]
SIZES += [sizes for few in (1, 2) for many in (5, 6, 8, 10, 14) for sizes in ((few, many), (many, few))]
_CELLS = 96
# Integrals of polynomials of degree 17, and of sums of exponentials over a few units, to the last digits.
_NODES, _WEIGHTS = (np.polynomial.legendre.leggauss(24)[0] + 1) / 2, np.polynomial.legendre.leggauss(24)[1] / 2


@dataclass(frozen=True)
class MaximumPair(LaplacePair):
    """Report-noisy-max with Laplace noise, once."""

    exact = False
    follows = True


def more_than_lead(lead: Array) -> Array:
    """c: how much the logarithm of a leader's odds may be above the lead."""
    return np.interp(lead, _LEADS, _MORE)


def excess(epsilon: float) -> float:
    """How much more than ε the losses of two outcomes may be apart."""
    twice = 2 * float(more_than_lead(np.array(epsilon / 2)))
    return max(twice, min(0.2 * epsilon, max(0.2905, min(0.202 + 0.05 * epsilon, 0.4443))))


def integral(mass: Callable[[Array], Array], *kinks: Array) -> Array:
    """∫ mass(x) dx for every row, of what falls exponentially before the first and after the last of its kinks."""
    # with v = e^(−distance) outside of the kinks
    whole = (mass(kinks[0] + np.log(_NODES)) + mass(kinks[-1] - np.log(_NODES))) / _NODES
    for start, end in pairwise(kinks):
        whole = whole + (end - start) * mass(start + (end - start) * _NODES)
    return np.asarray(whole @ _WEIGHTS)


def wins(first: int, second: int, lead: Array) -> Array:
    """The probability that the best of ``first`` scores, ``lead`` ahead, beats the best of ``second`` equal ones."""
    low, high = np.minimum(0.0, -lead)[:, None], np.maximum(0.0, -lead)[:, None]

    def mass(noise: Array) -> Array:
        density = 0.5 * np.exp(-np.abs(noise))
        others = laplace_below(noise) ** (first - 1) * laplace_below(noise + lead[:, None]) ** second
        return np.asarray(first * density * others)

    return integral(mass, low, high)


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

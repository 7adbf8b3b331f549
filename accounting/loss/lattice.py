"""The discrete Gaussian on integer vectors, of any dimension, as a Gaussian that is a little easier to tell apart.

P(x) ∝ e^(−‖x‖²/(2σ²)) on ℤᵈ has independent coordinates; one unit shifts it by an integer vector v.

*Theorem.* For σ > 1/√3 and every d the shifted law and the law are μ-GDP with

    μ = κ(σ)·‖v‖₂/σ,    κ(σ)² = 2/(1 + √(1 − 1/(3σ²))) = 1 + 1/(12σ²) + O(σ⁻⁴).

There is no term in δ and nothing is cut off. κ is 1.0493 at σ = 1, 1.0108 at 2, 1.0017 at 5, 1.0004 at 10; the least
that is possible there is 1.0458, 1.0107, 1.0017 and 1.0004, the increment at 0.

*One coordinate, shifted by j.* Let F be the distribution function and g(k) = Φ⁻¹(F(k)). The likelihood ratio is
monotone, so the best tests are thresholds, at which Φ⁻¹(1 − α) − Φ⁻¹(β) = g(m) − g(m − j). The trade-off curve is
linear between them and that of μ-GDP convex, so the pair is μ-GDP with the largest of these differences, at most j·D
with D = sup_k d_k, d_k = g(k) − g(k − 1). Independent coordinates compose: μ² ≤ D²·Σ v_i².

*Lemma.* D ≤ κ(σ)/σ.

*Proof.* (a) d_k → 1/σ for k → ±∞, uniformly for σ in a compact set: 1 − F(k) is the density at k + 1 times something
bounded, so g(k)²/2 + ln g(k) = k²/(2σ²) + k/σ² + O(1), hence g(k) = (k + 1)/σ − σ·(ln k)/k + O(1/k). So D ≥ 1/σ, and if
D > 1/σ some k has d_k = D =: d.

(b) At this k the cell (g(k − 1), g(k)) has the centre m and length d, and the neighbouring cells are no longer. With
ψ(y) = ln Φ(y − d/2, y + d/2) their masses p give

    −1/σ² = ln p(k − 1)p(k + 1)/p(k)² ≤ ψ(m − d) + ψ(m + d) − 2ψ(m) ≤ d²·sup ψ″.

(c) ψ″(y) = −1 + V, where V is the variance of the density ∝ e^(−yw − w²/2) on |w| ≤ d/2, and V ≤ d²/12: let s in the
density ∝ e^(−yw − sw²/2) fall from 1 to 0 while y keeps the mean a. Then dV/ds = −½·Cov(w² + 2y′w, (w − a)²) with
Cov(w² + 2y′w, w) = 0, which is −½ times the variance of what linear regression on w leaves of (w − a)². So V grows, to
that of a tilted uniform law, at most d²/12 (ln(sinh x/x) has a second derivative of at most ⅓).

(d) So d²(1 − d²/12) ≤ 1/σ². For σ² > ⅓ that leaves d² ≤ 6(1 − √(1 − 1/(3σ²))) = κ²/σ², the claim, or d² ≥ 6(1 + √(1 −
1/(3σ²))) > 6. D is continuous in σ, by (a), and cannot pass from one side to the other. It is below √6 for σ ≥ 20,000.
For, let a cell of length d ≥ √6 begin at a, and by symmetry end at or beyond d/2. If a < 4 its mass is at least 3·10⁻⁵,
above the largest, p(0) ≤ 1/(σ√(2π)). If a ≥ 4, write R(k) for the mass of k, k + 1, …, so that a and a + d are the
upper quantiles of R(k) and R(k + 1). Then e^(−a²) ≤ Φ(−a) = R(k) ≤ e^(−k²/(2σ²)) shows k/σ ≤ √2·a, and with
R(k) − R(k + 1) = p(k) and R(k + 1) ≥ p(k + 1)

    ad ≤ ln(Φ(−a)/Φ(−a − d)) = ln(R(k)/R(k + 1)) ≤ ln(1 + p(k)/p(k + 1)) ≤ ln 2 + (k + ½)/σ²,

so d ≤ (ln 2 + ½)/4 + √2/σ < 1. ∎

**Beside Gaussian noise** hardly anything is left of κ. *Theorem.* Let z = σ/Δ with Δ ≥ ‖v‖. Who sees the release and,
at a shift of μ₀, a Gaussian of deviation 1 has something μ-GDP, with

    μ = √(μ₀² + 1/z²) − √(2π)·ln(1 − r),   r = expm1(2q/(1 − q³)) + expm1(2q′/(1 − q′³)),
    q = e^(−2π²z²ρ),   q′ = e^(−2π²z²),   ρ = μ₀²z²/(1 + μ₀²z²),

if 2π²z²ρ ≥ 1 and r ≤ ½.

*Proof.* The loss depends on y = ⟨v, x⟩ + sw alone, s = μ₀σ², x the integers and w the Gaussian. Complete the square:
with A = I/σ² + vvᵀ/s² and u = A⁻¹v/s² the density of y is that of N(0, s² + σ²‖v‖²) times, by Poisson's summation,

    t(y) = Σ_k e^(−2π²kᵀA⁻¹k)·cos(2πy⟨k, u⟩) / Σ_k e^(−2π²σ²‖k‖²),   k ∈ ℤᵈ.

A⁻¹ = σ²(I − (1 − ρ′)v̂v̂ᵀ) with ρ′ = μ₀²σ²/(μ₀²σ² + ‖v‖²), so kᵀA⁻¹k ≥ σ²ρ′‖k‖² ≥ z²ρS‖k‖², S = ‖v‖². Coordinates that
do not move cancel; at most S are left, hence |t − 1| ≤ (1 + x)^S − 1 + (1 + x′)^S − 1 ≤ expm1(Sx) + expm1(Sx′) with x =
2q^S/(1 − q^(3S)), and x′ likewise; as 2π²z²ρ ≥ 1 that is largest at S = 1: r. The other law is the same, further on by
h = ‖v‖² + s·μ₀, and hu = v is an integer vector: so t(y − h) = t(y), and the ratio of the two is still that of the two
normal laws P and Q, at the distance √(μ₀² + ‖v‖²/σ²): thresholds are the best tests. At a threshold c, in units of the
deviation, the mass of either law on either side is that of the normal law but for a share of r. Φ⁻¹ of it moves by at
most e = −√(π/2)·ln(1 − r): the normal law has a hazard rate of √(2/π) or more from 0 on, so for c ≥ 0 what is above
c + e is at most 1 − r of what is above c; and Φ(c + e)/Φ(c) falls in c, so for c ≤ 0 it is at least 2Φ(e) ≥ 1 + r.
Twice that is added to μ. ∎

**Several releases**, with anything between them that follows what was seen. Write T for the worst next release as a
map of what can be reached after it (a function of the loss so far, convex in e^loss) and G for Gaussian noise. T is a
supremum of convolutions C. So for a convolution A, TAf ≤ ATf: what is Gaussian, or dominated by a pair, is the worst
for those who come after it, and counts as if it came first. Of T…Tf the last costs κ/z, or the last k; and as CG_μ₀ ≤
G_μ, hence TG_μ₀ ≤ G_μ, every other one 1/z and the little above. Which z is last is not known: the largest excess
κ²/z² − 1/z² is taken, and what is added at every step for the smallest z, beside as little μ₀ as that step can meet.

*Filters.* Let F be the μ² of that sum, with those of Gaussian releases added. One more lattice release raises F from
f to what G_f and it make at least: to f + κ²/z² where it is one of the k, and else √F by a step from √f to √(f + 1/z²)
and by what is added beside no more than f. So if F of all that is drawn stays below M whatever is seen, what is left to
be drawn can never reach more than G of the largest F that it may have, by induction from the last release on.

*Three laws at once*, as of batches of a fixed size. Let R, S and S′ be the law around three points of ℤᵈ no two of
which are farther apart than Δ, and σ = zΔ. For 1/(8π²) ≤ ρ ≤ z²/2 let μ be the larger one of κ(z)/z and 1/√(z² − ρ).

*Theorem.* Three normal laws of unit variance, around points that are μ/Δ times as far from each other, can be processed
to R̃, S̃ and S̃′ such that each of R, S and S′ is between K′ and K times its own, everywhere, with the same K′ ≤ 1 ≤ K
for all three, and with e, β and ω as below

    ln K/K′ ≤ λ = 2 ln((1 + e)/(1 − e)),  e = ωb/(1 − b),  b = 2β/(1 − β³),  β = e^(−8π²ρ),  ω = e^(−8π²ρ(1 − ρ/z²)).

So the divergence of (1 − q)R + qS and (1 − q)R + qS′ at ε is at most e^λ times that of the same mixtures of normal laws
at ε − λ; and N steps, whatever they follow, lose λN and e^(λN) at most.

*Proof.* Coordinate by coordinate. (i) Where only two values occur, j apart, the two laws are jμ/Δ-GDP, as κ falls, and
come from normal laws at that distance (Blackwell). (ii) Where there are three, two are at least 2 apart. So n = Δ² ≥ 4,
and there are at most n/2 such coordinates: in each of them the squares of the three distances add up to 6 or more, in
all of them to 3n at most. There let y ~ N(c, s²), s² = (z² − ρ)n, and let x be an integer with a chance proportional to
e^(−(x − y)²/(2r²)), r² = ρn. As s² + r² = σ², the law of x is p(x − c) times a constant and the mean of 1/θ over a
normal law around c + (x − c)s²/σ² of variance v = r²s²/σ². Here θ(y) = 1 + 2 Σ_m β^(m²) cos 2πmy, with e^(−2π²r²) for β
(Poisson's sum). The constant is the same for all integers c; 1/θ has a mean of at least 1 over a period, and beside it
Fourier coefficients of b + b² + … = b/(1 − b) together at most, if they are summed as a geometric series; and the
normal law multiplies these by at most ω = e^(−2π²v). So the mean of 1/θ is within 1 ± e of its own mean, and K/K′ at
most (1 + e)/(1 − e) for each coordinate. In all that is (n/2) ln((1 + e)/(1 − e)), n = 4 being the worst: from there
on e falls by e^(−2π²ρ(2 − ρ/z²)) ≤ e^(−3/8) at least whenever n grows by 1, and n grows by e^(1/4) at most. Lastly
1/s ≤ μ/Δ, and laws that are closer to each other come from those that are farther apart. ∎

Of one integer that moves by k at most there is one coordinate, and n = k²: then μ may be κ(kz)/z and λ is less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from accounting.arrays import Array
from accounting.errors import UnsupportedRelease

__all__ = ["composed_mu", "discrete_gaussian_mu", "three_laws"]


_SAFETY = 1 + 1e-14
# Releases for which what is added is known one by one; and so many of the last may be priced at κ/z.
_STEPS, _LAST = 64, 12
# Noise of a larger multiplier is priced as this one: the square of that is a float.
_LARGEST = 1e150


def discrete_gaussian_mu(noise_multiplier: float, shift: int = 1) -> float:
    """μ of discrete Gaussian noise with σ = ``noise_multiplier`` × the sensitivity, which is at least ``shift``.

    κ falls as σ grows, and an integer vector that is not 0 has a length of at least 1: so σ ≥ ``noise_multiplier``.

    Raises
    ------
    UnsupportedRelease
        If σ may be 1/√3 or less, where nothing is proved.

    Examples
    --------
    >>> from accounting.loss.lattice import discrete_gaussian_mu
    >>> round(discrete_gaussian_mu(2.0), 5), round(discrete_gaussian_mu(2.0, shift=5), 5)
    (0.50541, 0.50021)
    """
    scale = noise_multiplier * shift
    inner = 1 - 1 / (3 * scale * scale) - 1e-15 if scale > 0.5 else 0.0
    if inner <= 0:
        raise UnsupportedRelease(
            f"the GDP accountant has no bound for a discrete Gaussian of scale {scale:g}, it must be above 1/√3 = 0.577"
        )
    return math.sqrt(2 / (1 + math.sqrt(inner))) / noise_multiplier * _SAFETY


def composed_mu(releases: Sequence[tuple[float, int]]) -> float:
    """μ of several discrete Gaussians that may follow what was seen.

    Parameters
    ----------
    releases : sequence of (float, int)
        Noise multipliers, and how many releases have each.

    Raises
    ------
    UnsupportedRelease
        If a multiplier is 1/√3 or less.

    Examples
    --------
    >>> from accounting.loss.lattice import composed_mu
    >>> [round(composed_mu([(1.0, n)]), 4) for n in (1, 100)]
    [1.0493, 10.0053]
    """
    order = sorted(((min(z, _LARGEST), n) for z, n in releases), reverse=True)
    count, smallest = sum(n for _, n in order), order[-1][0]
    alone = [discrete_gaussian_mu(z) for z, _ in order]
    # as if every one were alone
    plain = math.sqrt(math.fsum(n * mu * mu for mu, (_, n) in zip(alone, order, strict=True)))
    excess = max(mu * mu - 1 / (z * z) for mu, (z, _) in zip(alone, order, strict=True))
    total = math.fsum(n / (z * z) for z, n in order)
    # the weakest first: μ₀² that a step meets at least, beginning with the second
    first = np.concatenate([np.full(min(n, _STEPS), 1 / (z * z)) for z, n in order])[: min(count, _STEPS) - 1]
    added = _added(np.cumsum(first), smallest)
    # all beyond these meet more than the last of them
    rest = (count - _STEPS) * float(added[-1]) if count > _STEPS else 0.0
    known = [
        math.sqrt(total + k * excess) + float(added[k - 1 :].sum()) + rest for k in range(1, min(count, _LAST) + 1)
    ]
    return min(plain, *known) * (1 + 1e-12)


def _added(square: Array, z: float) -> Array:
    """What is added to √(μ₀² + 1/z²), where μ₀² is ``square``; infinite where nothing is proved."""
    rho = square * z * z / (1 + square * z * z)
    exponent = 2 * math.pi**2 * z * z * rho
    theirs, own = np.exp(-np.maximum(exponent, 1.0)), math.exp(-2 * math.pi**2 * z * z)
    stray = np.expm1(2 * theirs / (1 - theirs**3)) + math.expm1(2 * own / (1 - own**3))
    proved = (exponent >= 1) & (stray <= 0.5)
    return np.where(proved, -math.sqrt(2 * math.pi) * np.log1p(-np.minimum(stray, 0.5)), np.inf)


def three_laws(noise_multiplier: float, most: float, shift: int | None = None) -> tuple[float, float]:
    """μ and λ of three laws at once, for λ up to about ``most``; (∞, ∞) where there are none.

    Examples
    --------
    >>> from accounting.loss.lattice import three_laws
    >>> [round(x, 9) for x in three_laws(2.0, 1e-7)]
    [0.507473539, 1e-07]
    """
    try:
        square, mu = noise_multiplier**2, discrete_gaussian_mu(noise_multiplier, shift or 1)
    except UnsupportedRelease:
        return math.inf, math.inf
    # less than this does not lower μ
    low, high = max(1 / (8 * math.pi**2) * _SAFETY if shift is None else 0.0, square - 1 / mu**2), square / 2
    if low > high or _apart(high, square, shift) > most:
        return math.inf, math.inf
    if _apart(low, square, shift) > most:
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if _apart(middle, square, shift) > most else (low, middle)
        low = high
    return max(mu, 1 / math.sqrt(square - low)) * _SAFETY, _apart(low, square, shift)


def _apart(rho: float, square: float, shift: int | None) -> float:
    """λ, rounded up."""
    n, coordinates = (4, 2) if shift is None else (shift * shift, 1)
    at = 2 * math.pi**2 * rho * n
    beta, omega = math.exp(-at), math.exp(-at * (1 - rho / square))
    b = 2 * beta / (1 - beta**3) if beta < 0.2 else 1.0
    return 2 * coordinates * math.atanh(omega * b / (1 - b)) * (1 + 1e-12) + 1e-15 if b < 0.5 else math.inf

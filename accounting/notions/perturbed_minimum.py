"""Rényi divergences of the minimizer of a randomly tilted objective whose term for one person is any convex function.

Where it comes from. J(θ) = Σ_p f_p(θ) + (Λ/2)‖θ‖² + bᵀθ with b ~ N(0, σ²I) and convex f_p, ‖∇f_p‖ ≤ L, whose Hessians
have traces of at most β: of a person with several rows the mean loss, say. The direction of ∇f_p turns with θ, so that
the argument for a single row (:mod:`accounting.loss.one_row`) does not apply. This one has no use for
directions, nor for the dimension.

Densities. b(θ) = −(Σ∇f_p(θ) + Λθ) is one-to-one and Lipschitz in both directions, so the minimizer has the density
φ(b(θ))·det A(θ), φ that of N(0, σ²I), A = ΛI + Σ∇²f_p. Let two neighbours agree but for f in one and g in the other;
the others' terms and the ridge have the Hessian A₀ ⪰ ΛI. With H = ∇²f and K = ∇²g put X = A₀^(−½)HA₀^(−½),
Y = A₀^(−½)KA₀^(−½): positive semidefinite, of traces at most τ = β/Λ. For s > 0 and the order 1 + s

    −(1 + s)‖b‖² + s‖b′‖² = −‖c‖² + s(1 + s)‖b − b′‖²,      c = (1 + s)b − sb′,

where c(θ) = −(gradients of the others + (1 + s)∇f − s∇g + Λθ). If sτ < 1, −c is strongly monotone, hence one-to-one,
so ∫φ(c)·det C ≤ 1 with C = A₀ + (1 + s)H − sK, −C the derivative of c. Hence with ‖b − b′‖ = ‖∇f − ∇g‖ ≤ Δ

    ∫p^(1+s)·p′^(−s) ≤ exp(s(1 + s)Δ²/(2σ²)) · sup det(I + X)^(1+s)·det(I + Y)^(−s) / det(I + (1 + s)X − sY).

The determinants. For a given X the logarithm is convex in Y (−ln det is), so its largest value over the Y ⪰ 0 of trace
at most τ is at an extreme point, 0 or τvvᵀ, ‖v‖ = 1. There det(I + (1 + s)X − sτvvᵀ) is at least
det(I + (1 + s)X)·(1 − sτ), and the logarithm at most h(X) + k,

    h(X) = (1 + s)·ln det(I + X) − ln det(I + (1 + s)X),      k = −s·ln(1 + τ) − ln(1 − sτ) ≥ 0.

h is a sum over eigenvalues x of (1 + s)ln(1 + x) − ln(1 + (1 + s)x), which is 0 at 0, increases, and is convex as long
as √(1 + s)·x ≤ 1; so if √(1 + s)·τ ≤ 1 its largest value under Σx ≤ τ is where one eigenvalue is τ: call it h. A person
who goes has Y = 0, and costs h; one who comes has X = 0, and costs k; one who is replaced costs h + k:

    D_{1+s} ≤ (1 + s)u²/2 + (h, k or h + k)/s,      u = Δ/σ.

So of two persons' whole losses only L and β matter.

Any order. k is infinite from s = 1/τ on, while losses are not that large: ‖∇g‖ ≤ L, too. With σu₀ = L let g come, P₀ be
the law without it, and θ = θ(b) the minimizer there. The loss of P₀ against P′ is at most −⟨b, ∇g(θ)⟩/σ² + u₀²/2, as
the determinant only helps; and as g is convex, with η = a/Λ, a > 0,

    −⟨b, ∇g(θ)⟩ ≤ F(b) = (g(θ − ηb) − g(θ))/η.

θ(b) has the derivative −A₀⁻¹, at most 1/Λ, so F/σ² is Lipschitz in b/σ with (1 + 2/a)u₀. Its mean is that of
−⟨b, ∇g(θ − λb)⟩ over 0 < λ < η, which by parts is σ²·E tr(∇²g·(A₀⁻¹ + λI)) ≤ σ²β(1/Λ + λ); so E[F]/σ² ≤ τ(1 + a/2). By
the concentration of Lipschitz functions of normal variables, at any order 1 + s

    D_{1+s}(P₀‖P′) ≤ u₀²/2 + τ(1 + a/2) + s(1 + 2/a)²u₀²/2.

For a person who goes, where √(1 + s)·τ > 1, the sum above is at most τ times the largest share that an eigenvalue x ≤ τ
adds of itself; h(x) ≤ s(1 + s)x²/2, and it increases. One who is replaced goes and another comes: with 1/p + 1/q = 1
(Mironov 2017, Proposition 11)

    D_{1+s}(P‖P′) ≤ (1 + 1/(qs))·D_{p(1+s)}(P‖P₀) + D_{1+qs}(P₀‖P′).

Any a and p will do; a is taken from a few, and p = 2 + 2/a. The least of all bounds counts.

(ε, δ) follows by Proposition 12 of Canonne, Kamath & Steinke
(2020), δ = e^(s(D − ε))·(s/(1 + s))^(1+s)/s, at the order that allows the largest u.
"""

from __future__ import annotations

import math

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction, positive
from accounting.releases.perturbation import LARGEST_CURVATURE
from accounting.roots import root_between

__all__ = ["divergence", "divergences", "largest_determinants", "largest_shift"]


# orders to choose from: 1 + s, with neighbours of s in the ratio 1.005
_FIRST, _RATIO, _COUNT = 1e-2, 1.005, 5000
_SLACK = 1e-9
# of τ, and a, where no order is too large
_EIGENVALUES = np.geomspace(1e-3, 1.0, 140)
_REACHES = np.array([0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 4.5, 7.0, 12.0, 25.0])[:, None]


def divergence(s: float, shift: float, curvature: float, *, replaced: bool) -> float:
    """A bound on the Rényi divergence of order 1 + s between neighbours, in both directions.

    Parameters
    ----------
    s : float
        Positive and below 1/``curvature``.
    shift : float
        u = Δ/σ.
    curvature : float
        τ = β/Λ, at most 0.6.
    replaced : bool
        Whether the person is another one, and not there or not there at all.
    """
    positive("s", s)
    if not (0 < curvature <= LARGEST_CURVATURE and s * curvature < 1):
        raise ValueError(f"curvature must be at most {LARGEST_CURVATURE} and below 1/s, got {curvature!r} and s={s!r}")
    goes, comes = _determinants(s, curvature)
    return (1.0 + s) * shift**2 / 2.0 + (goes + comes if replaced else max(goes, comes)) / s


def divergences(orders: Array, shift: float, curvature: float, *, replaced: bool) -> Array:
    """The same at many orders, or less; finite at all of them.

    Examples
    --------
    >>> divergences(np.array([3.0, 30.0]), 0.2, 0.05, replaced=False).round(6)
    array([0.06389 , 1.159444])
    >>> round(divergence(2.0, 0.2, 0.05, replaced=False), 6)
    0.06389
    """
    s = orders - 1.0
    finite = s * curvature < 1.0 - 1e-12
    inside = np.where(finite, s, 0.5 / curvature)
    once = math.log1p(curvature)
    goes = (1.0 + inside) * once - np.log1p((1.0 + inside) * curvature)
    comes = -inside * once - np.log1p(-inside * curvature)
    # both are differences of logarithms, right to a few units of these
    slack = 16 * 2.0**-52 * ((1.0 + inside) * once - np.log1p(-inside * curvature))
    found = (1.0 + inside) * shift**2 / 2.0 + ((goes + comes if replaced else np.maximum(goes, comes)) + slack) / inside
    found = np.where(finite, found, np.inf)
    return np.minimum(found, _at_any_order(s, shift, curvature, replaced=replaced)) * (1 + 1e-13)


def _at_any_order(s: Array, shift: float, curvature: float, *, replaced: bool) -> Array:
    def goes(s: Array) -> Array:
        return np.asarray((1.0 + s) * u * u / 2.0 + largest_determinants(s, curvature) / s)

    def comes(s: Array) -> Array:
        return np.asarray(u * u / 2.0 + curvature * (1.0 + a / 2.0) + s * ((1.0 + 2.0 / a) * u) ** 2 / 2.0)

    a, u = _REACHES, shift / 2.0 if replaced else shift
    if not replaced:
        return np.asarray(np.maximum(goes(s), comes(s).min(axis=0)))
    p = 2.0 + 2.0 / a
    q = p / (p - 1.0)
    return np.asarray(((1.0 + 1.0 / (q * s)) * goes(p * (1.0 + s) - 1.0) + comes(q * s)).min(axis=0))


def largest_determinants(s: Array, curvature: float) -> Array:
    """The largest (1 + s)ln det(I + X) − ln det(I + (1 + s)X), X ⪰ 0 of a trace of at most ``curvature``, or more.

    Examples
    --------
    >>> largest_determinants(np.array([3.0, 100.0]), 0.3).round(3)
    array([ 0.261, 24.302])
    """
    x = curvature * _EIGENVALUES
    added = (1.0 + s[..., None]) * np.log1p(x) - np.log1p((1.0 + s[..., None]) * x)
    shares = np.maximum((added[..., 1:] / x[:-1]).max(axis=-1), s * (1.0 + s) * x[0] / 2.0)
    found = np.where((1.0 + s) * curvature**2 <= 1.0 - 1e-12, added[..., -1], curvature * shares)
    return np.asarray(found + 1e-14 * (1.0 + s) * curvature)


def _determinants(s: float, τ: float) -> tuple[float, float]:
    """h and k."""
    return (
        (1.0 + s) * math.log1p(τ) - math.log1p((1.0 + s) * τ),
        -s * math.log1p(τ) - math.log1p(-s * τ),
    )


def largest_shift(epsilon: float, delta: float, share: float, *, replaced: bool) -> tuple[float, float]:
    """The largest u = Δ/σ, and the τ = β/Λ beside it, that meet (ε, δ); a ``share`` of the divergence is for τ.

    Examples
    --------
    The standard deviation of the linear term over Δ, and the ridge over β:

    >>> u, curvature = largest_shift(1.0, 1e-6, 0.2, replaced=True)
    >>> round(1 / u, 3), round(1 / curvature, 1)
    (5.066, 22.2)
    """
    positive("epsilon", epsilon)
    fraction("delta", delta)
    fraction("share", share)
    best, order = 0.0, 0.0
    for i in range(_COUNT):
        s = _FIRST * _RATIO**i
        u = 2.0 * (1.0 - share) * _allowed(s, epsilon, delta) / (1.0 + s)
        if u > best:
            best, order = u, s
    if not best:
        raise ValueError(f"epsilon and delta must be larger to be met, got epsilon={epsilon!r}, delta={delta!r}")
    spent = share * _allowed(order, epsilon, delta)

    def over(τ: float) -> float:
        return divergence(order, 0.0, τ, replaced=replaced) - spent

    high = min(LARGEST_CURVATURE, (1.0 - _SLACK) / order)
    curvature = high if over(high) <= 0 else root_between(over, 1e-12 * high, high, absolute=0.0)
    return math.sqrt(best) * (1.0 - _SLACK), curvature * (1.0 - _SLACK)


def _allowed(s: float, epsilon: float, delta: float) -> float:
    """The largest divergence of order 1 + s that implies (ε, δ)."""
    return epsilon + (math.log(delta) + math.log(s) + (1.0 + s) * math.log1p(1.0 / s)) / s

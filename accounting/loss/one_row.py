"""Objective perturbation of one row of a generalized linear model: what it costs at most.

Where it comes from. The minimizer θ of J(θ) = Σf_i(θ) + (Λ/2)‖θ‖² + bᵀθ, b ~ N(0, σ²I), is a one-to-one function of b.
Let f be the convex loss of one row x: its gradient is s·L·x/‖x‖ with s in [−1, 1]. Of two neighbours, one without it,
the densities at θ are that of N(0, σ²I) at what b must be, times a determinant. With the row that is b, and without it
b + sL·x/‖x‖. Let N be b along x over σ, standard normal given the rest of b, and m = N + μs, μ = L/σ: what it is
without the row. The determinants have the ratio 1 + y, y = f″·xᵀA₀⁻¹x ≤ β/Λ, A₀ the Hessian without the row. Along x,
as all Hessians are positive, xᵀθ falls when N or m rises, and so does s. So given the rest of b, N = m + v(m) with v =
−μs in [−μ, μ], which does not fall; its slope is y, as dN/dm = 1 + y along x. With the normal density φ, then,

    P = φ(m + v)(1 + v′) (with the row),    Q = φ(m) (without it),    |v| ≤ μ,    0 ≤ v′ ≤ β/Λ.

Let c = ln(1 + β/Λ), and H be the δ of μ-Gaussian DP.

*A row that comes*, Q against P: the loss under Q is mv + v²/2 − ln(1 + v′) ≤ μ|m| + μ²/2, m ~ N(0, 1) (after Redberg,
Koskela & Wang 2023). (1 − e^(ε − L))₊ rises in L, so δ(ε) is at most its mean at this bound. With u = ε − μ²/2,

    δ(ε) ≤ 2H(ε) if u ≥ 0,    1 − e^u·E[e^(−μ|m|)] = 1 − e^(u + μ²/2)·2Φ(−μ) if u < 0.

Where the rounded u has the other sign than u, |u| is below the bound on its error. The first formula is then above the
second (it adds what losses between u and 0 contribute, as u < 0), and the second below the first by at most u², which
the slack of u itself more than covers. So with u rounded down both are upper bounds.

*A row that goes*, P against Q. There is an m₀ below which v ≤ 0 and above which v ≥ 0; let m₀ ≥ 0, else reflect both.

(A) With t = −v the loss is ln(1 + v′) + tN + t²/2 ≤ c + tN + t²/2, convex in t, and N is standard normal. Where N ≥ 0
the largest value is that of t = μ. Where N < 0, m < m₀, as N rises with m and is m₀ at m₀; so t ≥ 0, and t is 0 or μ
where the value is largest. If ε ≥ c, t = 0 contributes nothing to (1 − e^(ε − loss))₊, and δ ≤ H(ε − c). Else it is at
most the mean of the larger of both, 1 − e^(ε − c)(1 − H(0)).

(B) (P − e^εQ)₊ ≤ (φ(m + v) − e^ε·φ(m))₊ + φ(m + v)v′. For ε ≥ 0 the first is 0 unless 0 < m < m₀, where −μ ≤ v ≤ 0 and
φ(m + v) is at most φ(m − μ), or φ(0) if m < μ. So its integral is at most H(ε), plus, if ε < μ²/2, ∫₀^μ φ(0) − φ(m − μ)
≤ φ(0)μ³/6. The second integral is at most 2μ·φ(0), the whole rise of v. For ε ≥ c only those m count where P > e^εQ,
hence |m|μ > ε − c, and mv < 0, which is 0 < m < m₀, where v rises by at most μ: at most μ·φ((ε − c)/μ − μ), or μ·φ(0).

The lesser of A and B is a bound for one that goes. *A row that is replaced* goes, and another comes: with x₁ + x₂ = ε

    δ(ε) ≤ δ₁(x₁) + e^(x₁)·δ₂(x₂),

whichever of the two is first (with none of the rows in between, or with both).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting.arrays import UNIT_ROUNDOFF, Array
from accounting.checks import fraction
from accounting.conversions import gdp_delta
from accounting.loss.curves import pair_of_curve
from accounting.loss.pair import Atoms, Symmetric, mirrored, remembered
from accounting.roots import root_between

__all__ = ["OneRowPair", "delta_of_arrival", "largest_mu"]


_UP = 1 + 1e-12
_PEAK = 1 / math.sqrt(2 * math.pi)
# A curve is followed down to this.
_LEAST = 1e-280
_DEVIATIONS = np.concatenate([np.linspace(0.0, 10.0, 120), np.linspace(10.0, 38.0, 90)[1:]])


def _goes(mu: float, offset: float, epsilon: float) -> float:
    """δ at ``epsilon`` ≥ 0 of a row that goes, from above."""
    whole = gdp_delta(mu, epsilon)
    left = epsilon - offset - 2.0**-50 * (epsilon + offset)
    early = _PEAK * mu**3 / 6 if epsilon <= mu * mu / 2 * _UP else 0.0
    if left < 0:
        first = -math.expm1(left) + math.exp(left) * gdp_delta(mu, 0.0)
        return min(first, whole + 2 * mu * _PEAK + early) * _UP
    far = max(0.0, left / mu - mu) * (1 - 1e-12)
    return min(gdp_delta(mu, left), (whole + mu * _PEAK * math.exp(-far * far / 2) + early) * _UP)


def delta_of_arrival(mu: float, epsilon: float) -> float:
    """δ at ``epsilon`` ≥ 0 of a row that comes, from above."""
    from scipy.special import erfcx

    u = epsilon - mu * mu / 2
    if u >= 0:
        return min(1.0, 2 * gdp_delta(mu, epsilon * (1 - UNIT_ROUNDOFF)))
    # ln E[e^(u − μ|m|)]; μ/√2 is right to two units in the last place and moves ln erfcx by no more, erfcx to eight
    log_mean = math.log(float(erfcx(mu / math.sqrt(2)))) + u
    slack = UNIT_ROUNDOFF * (2 * (epsilon + mu * mu) + 2 * abs(log_mean) + 16)
    return min(1.0, -math.expm1(log_mean - slack) * (1 + 2 * UNIT_ROUNDOFF))


@dataclass(frozen=True)
class OneRowPair(Atoms, Symmetric):
    """One row that is there or not, or ``replaced``; ``mu`` is L/σ, and ``offset`` ln(1 + β/Λ), both rounded up."""

    mu: float
    offset: float
    replaced: bool

    @mirrored
    def delta(self, epsilon: float) -> float:
        if self.replaced:
            return float(_replaced(self.mu, self.offset, np.array([epsilon]))[0])
        return max(_goes(self.mu, self.offset, epsilon), delta_of_arrival(self.mu, epsilon))

    @remembered(16)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        times = 2 if self.replaced else 1
        first = self.offset + times * self.mu**2 / 2
        x = np.unique(np.concatenate([_places(self.mu, self.offset), first + times * self.mu * _DEVIATIONS]))
        deltas = np.array([self.delta(at) for at in x.tolist()])
        last = min(int(np.searchsorted(-deltas, -_LEAST)), x.size - 1)
        return pair_of_curve(x[: last + 1], deltas[: last + 1])


def largest_mu(offset: float, epsilon: float, delta: float, *, replaced: bool) -> float:
    """The largest μ = L/σ, rounded down, at which one row meets (ε, δ).

    Examples
    --------
    The standard deviation of the linear term over L, where a fifth of ε is kept for the curvature:

    >>> round(1 / largest_mu(0.2, 1.0, 1e-6, replaced=False), 3)
    5.198
    """
    fraction("delta", delta)

    def over(log_mu: float) -> float:
        found = OneRowPair(math.exp(log_mu), offset, replaced).delta(epsilon)
        return math.log(max(found, 1e-300) / delta)

    low = high = -2.0
    while over(high) <= 0:
        high += 1.0
    while over(low) > 0:
        low -= 1.0
    # rounding may have put it on the other side
    found = root_between(over, low, high, absolute=1e-8) - 2e-8
    return math.exp(found if over(found) <= 0 else low)


def _places(mu: float, offset: float) -> Array:
    """Where the curves of one row change: from 0 on, and from the offset on."""
    starts = mu * mu / 2, offset + mu * mu / 2
    return np.unique(
        np.concatenate([np.linspace(0.0, starts[-1], 60), *(start + mu * _DEVIATIONS for start in starts)])
    )


@lru_cache(maxsize=16)
def _one_goes_one_comes(mu: float, offset: float) -> tuple[Array, Array, Array]:
    places = _places(mu, offset)
    both = [(_goes(mu, offset, at), delta_of_arrival(mu, at)) for at in places.tolist()]
    return places, *np.array(both).T


def _replaced(mu: float, offset: float, epsilons: Array) -> Array:
    """δ at ``epsilons`` ≥ 0 of a row that is replaced, from above."""
    places, goes, comes = _one_goes_one_comes(mu, offset)
    found = np.ones(epsilons.size)
    with np.errstate(over="ignore"):
        for i, epsilon in enumerate(epsilons.tolist()):
            first = places[places <= epsilon]
            rest = epsilon - first
            # a curve is convex in e^ε, hence below its chords
            at = np.minimum(np.searchsorted(places, rest, side="right"), places.size - 1)
            share = np.expm1(rest - places[at - 1]) / np.expm1(places[at] - places[at - 1])
            second = comes[at - 1] + np.minimum(share, 1.0) * (comes[at] - comes[at - 1])
            left, right = goes[: first.size] + np.exp(first) * second, second + np.exp(rest) * goes[: first.size]
            found[i] = min(1.0, float(min(np.min(left), np.min(right))) * (1 + 1e-9))
    return found

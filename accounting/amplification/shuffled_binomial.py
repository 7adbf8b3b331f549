"""Integer counts under binomial noise Bin(N, ½): an approximate-Rényi curve for a shift of any integer vector.

One unit shifts the counts by an integer vector v with ‖v‖₂ at most the ``shift_norm``, so Σvᵢ² ≤ S = ⌊shift_norm²⌋,
at most min(D, S) counts move, and none by more than V = ⌊√S⌋.

**Failures.** For one count let P be the law of N/2 + X and Q that of N/2 + X + v, X centred binomial. Their supports
differ at the ends, so both are cut to the window that the two share, −m + v ≤ x ≤ m. By symmetry P and Q give it the
same mass 1 − τ_v. Each law is (1 − τ) times itself on the window plus τ times some other law, with τ = max over v of
τ_v. Tell an adversary which of the two was drawn: with probability (1 − τ)^min(D, S) no moved count failed, and what
left is a draw from the windows. So δ(ε) ≤ (1 − s) + s·δ_window(ε), s = (1 − τ)^min(D, S), also inside compositions
(Bun & Steinke 2016, Lemma 8.8). By the same symmetry the two directions have the same Rényi divergence.

**The curve on the window**, r_α(v) for one count, is bounded in two ways.

*Numeric*: summed exactly for every v ≤ V; Σᵢ r_α(vᵢ) ≤ S·max_v r_α(v)/v².

*Analytic*, for any N, V and real α. Let f = −ln pmf, continued by Γ functions: f″(x) = ψ′(N/2 + x + 1) + ψ′(N/2 − x +
1), even and convex in x. For a point a of the window put b = a − v and c = a + (α − 1)v, so that a = c/α + (1 −
1/α)b. The error of linear interpolation gives αf(a) − (α − 1)f(b) ≥ f(c) − ½κα(α − 1)v² with κ the maximum of f″ over
[b, c], so each term of the Rényi sum is at most e^(½κα(α−1)v²)·pmf(c). The points c form a shifted lattice, on which
the continued binomial coefficients sum to 2^N (their Fourier transform vanishes beyond π); those outside [−1, N + 1]
alternate and add less than 1. Points with |c| ≤ R have κ ≤ f″(R + αV); the others have mass at most 2exp(−2(R −
1)²/N) (Hoeffding) and κ ≤ f″(m + (α − 1)V).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from accounting.arrays import Array

__all__ = ["central_rdp", "integer_shift", "log_pmf", "log_survival", "window"]


# The mass that may fall outside the window of one count, where N allows it: far below any δ that is asked for.
_TAIL = 1e-40
# Sum exactly while (window × V) is at most this; beyond it the analytic bound is within 1 % of the exact value.
_EXACT_TERMS = 250_000
# Relative rounding error of the exact sums.
_SAFETY = 1 + 1e-10


def integer_shift(shift_norm: float) -> tuple[int, int]:
    """S and V. The margin keeps a norm such as √50, whose square rounds to below 50, from losing a unit."""
    square = math.floor(shift_norm**2 * (1 + 1e-12))
    return square, math.isqrt(square)


@lru_cache(maxsize=64)
def window(trials: int, largest: int) -> tuple[int, float]:
    """The lowest count of the window, and the mass τ that falls outside it (1 if the laws hardly overlap)."""
    from scipy.special import betainc

    reach = largest + math.sqrt(trials * math.log(4 / _TAIL) / 2)  # Hoeffding
    low = max(0, math.floor(trials / 2 - reach))
    if low + largest > trials / 2:
        return low, 1.0
    # Pr(X < k) = I_½(N − k + 1, k)
    tail = sum(float(betainc(trials - k + 1.0, k, 0.5)) for k in (low + largest, low) if k > 0)
    return low, min(1.0, tail * (1 + 1e-9))


def log_survival(trials: int, shift_norm: float, coordinates: int) -> float:
    """ln of the probability that no count that a unit moves leaves its window (−∞ if the noise hides nothing)."""
    square, largest = integer_shift(shift_norm)
    if largest == 0:
        return 0.0
    tail = window(trials, largest)[1]
    return min(coordinates, square) * math.log1p(-tail) if tail < 1 else -math.inf


def central_rdp(trials: int, shift_norm: float, coordinates: int, orders: Array) -> Array:
    """The Rényi curve of the whole vector of counts on its windows, for the worst shift; shape (m,).

    Examples
    --------
    Close to the Gaussian of the same variance N/4:

    >>> import numpy as np
    >>> orders = np.array([2.0, 8.0])
    >>> (central_rdp(20_000, 80.0, 6, orders) / (orders * 80.0**2 / (2 * 20_000 / 4))).round(3)
    array([1.   , 1.002])
    """
    square, largest = integer_shift(shift_norm)
    if largest == 0:
        return np.zeros_like(orders)
    low, tail = window(trials, largest)
    if tail >= 1:
        return np.full_like(orders, np.inf)
    if (trials - 2 * low + 1) * largest <= _EXACT_TERMS:
        return _exact(trials, largest, square, coordinates, orders)
    return _analytic(trials, largest, square, coordinates, orders)


@lru_cache(maxsize=8)
def log_pmf(trials: int, low: int) -> Array:
    """ln of the binomial pmf on low … trials − low, from its exact ratios outwards from the centre."""
    k = np.arange(low + 1, trials - low + 1, dtype=np.float64)
    steps = np.log1p((trials - 2 * k + 1) / k)  # ln(C(N, k)/C(N, k − 1))
    centre = steps.size // 2
    relative = np.concatenate([-np.cumsum(steps[:centre][::-1])[::-1], [0.0], np.cumsum(steps[centre:])])
    # what lies outside is below 1e-40, or nothing
    return relative - math.log(math.fsum(np.exp(relative)))


def _exact(trials: int, largest: int, square: int, coordinates: int, orders: Array) -> Array:
    low, _ = window(trials, largest)
    log_p = log_pmf(trials, low)
    best = np.zeros_like(orders)
    for v in range(1, largest + 1):
        p, loss = log_p[v:], log_p[v:] - log_p[:-v]
        weights = np.exp(p)
        mass = weights.sum()
        share = max(v * v, 1) if coordinates > 1 else largest * largest
        for i, alpha in enumerate(orders):
            exponent = (alpha - 1) * loss
            top = float(exponent[0])  # the loss falls with the count
            if top < 30:
                log_moment = math.log1p(float(weights @ np.expm1(exponent)) / mass)
            else:
                total = p + exponent
                peak = float(total.max())
                log_moment = peak + math.log(float(np.exp(total - peak).sum()) / mass)
            best[i] = max(best[i], log_moment / (alpha - 1) / share)
    whole = square if coordinates > 1 else largest * largest
    return best * whole * _SAFETY


def _analytic(trials: int, largest: int, square: int, coordinates: int, orders: Array) -> Array:
    low, tail = window(trials, largest)
    half = trials / 2
    alpha, eta = orders[:, None], orders[:, None] - 1
    # R in standard deviations √N/2; the best of these is taken for each order
    radius = math.sqrt(trials) / 2 * np.arange(1.0, 16.0)[None, :]
    inner = _curvature(half, radius + alpha * largest)
    outer = _curvature(half, half - low + eta * largest)
    growth = 0.5 * alpha * eta * largest**2
    with np.errstate(over="ignore", invalid="ignore"):
        stray = 2 * np.exp(-2 * (radius - 1) ** 2 / trials + (outer - inner) * growth)
        spill = np.log1p(stray + 0.5**trials) + 2 * tail
        costs = 0.5 * alpha * inner * square + min(coordinates, square) * spill / eta
    return np.asarray(np.min(np.where(np.isnan(costs), np.inf, costs), axis=1) * _SAFETY)


def _curvature(half: float, x: Array) -> Array:
    """f″(x), infinite where the continued pmf ends."""
    from scipy.special import polygamma

    inside = np.minimum(np.abs(x), half)
    value = polygamma(1, half + inside + 1) + polygamma(1, half - inside + 1)
    return np.asarray(np.where(np.abs(x) <= half, value, np.inf))

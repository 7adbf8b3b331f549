"""Privacy amplification by Poisson subsampling: the exact Rényi curves of the subsampled Gaussian.

Each unit is kept with probability q, and Gaussian noise of standard deviation z (in units of the sensitivity) is
added. With w = (2x − 1)/(2z²) the likelihood ratio of "present" against "absent" is 1 + u, u = q(e^w − 1), and with x
~ N(0, z²)

    A_α = E[(1 + u)^α],      ε_α = ln A_α / (α − 1)                      (Mironov, Talwar & Zhang 2019, section 3.2),

which is also the larger of the two directions (their Theorem 5).

A swap. One unit's vector g is replaced by g', neither longer than 1. In Rényi and in hockey-stick divergence

    P = (1 − q)N(0, z²) + qN(1, z²)    and    Q = (1 − q)N(0, z²) + qN(−1, z²)

is the worst that can happen, for every order and every ε: these two dominate, so they compose. Proof. Divergences are
jointly convex, so let the rest of the sample be fixed; it is a translation then. The hockey-stick divergence of the two
outputs at e^ε = c ≥ 1 is, with x ~ N(0, z²I),

    E[φ(U, V)],    φ(u, v) = (qu − cqv − (c − 1)(1 − q))₊,    U = e^{⟨g, x⟩/z² − ‖g‖²/(2z²)},  V likewise for g'.

(ln U, ln V) is Gaussian and E U = E V = 1, so this is a function of the covariances s = ‖g‖²/z², s' = ‖g'‖²/z² and
r = ⟨g, g'⟩/z². Integration by parts gives, for smooth φ and hence in the limit, as for the price of a spread option,

    dE = ½E[U²φ_uu] ds + ½E[V²φ_vv] ds' + E[UVφ_uv] dr    with φ_uu ≥ 0, φ_vv ≥ 0 and φ_uv ≤ 0.

On the straight way from (s, s', r) to (1, 1, −1)/z² the first two rise and r falls, as r ≥ −√(ss') ≥ −1/z². So
g' = −g of length 1 is the worst. For c < 1 the two change places, and P and Q are mirror images. ∎ (Koskela, Jälkö &
Honkela 2020 price swaps by this pair too.) With u₋ like u at −x, A_α = E[(1 + u)^α(1 + u₋)^(1−α)].

Numbers. Because E[u] = E[u₋] = 0, nothing cancels however small q is in

    A_α − 1 = E[b·h(v)],    h(v) = (1 + v)^α − 1 − αv ≥ 0,

with v = u, b = 1 for one unit more, and 1 + v = (1 + u)/(1 + u₋), b = 1 + u₋ for a swap. The trapezoidal rule on
t = x/z converges geometrically: the integrand is analytic for |Im t| < πz, the distance to the zeros of 1 + u, and
decays like a Gaussian. One formula thus serves whole and fractional orders alike, in log space, to a relative 1e-12.

Bounds. Both terms of 1 + u = (1 − q) + q·e^w are positive, so by Minkowski's inequality, and as (a + b)^α ≥ a^α + b^α,

    α·ln(1 − q + q·e^m) ≥ ln A_α ≥ ln((1 − q)^α + q^α·e^{αm}),    m = (α − 1)/(2z²).

For a swap, Q ≥ (1 − q)·N(0, z²) adds −(α − 1)·ln(1 − q). Where e^m is far larger than α/q, the upper one is the curve
to the last digit, as nothing else counts at the peak. Where z is tiny, nodes 0.45·z apart are too many, and it serves
in the place of the curve, above which it is by at most ln 2, and −ln(1 − q) for a swap.
"""

from __future__ import annotations

import math

import numpy as np

from accounting.arrays import Array

__all__ = ["log_mixture", "subsampled_gaussian_rdp"]


# Beyond this many standard deviations from its outermost mode the integrand is below 1e-19 of its peak.
_REACH = 9.6
# A drop of the log-integrand after which a stretch of nodes is left out.
_NEGLIGIBLE = 60.0
_NODES_AT_ONCE = 1 << 18
# Noise below which the curve is bounded: a call takes up to a second there, and a hundred times as long at z/100.
_LITTLE = 0.01
# Relative error of the evaluation (tested against 50 digits), added to the curve so that it stays an upper bound.
_SAFETY = 1 + 2e-13


def subsampled_gaussian_rdp(rate: float, noise_multiplier: float, orders: Array, *, swap: bool = False) -> Array:
    """ε_α of a Gaussian release on a Poisson sample, for any real orders α > 1.

    Parameters
    ----------
    rate : float
        Sampling probability q in (0, 1].
    noise_multiplier : float
        z, the noise standard deviation over the L2 sensitivity (``"add_remove"`` neighbours).
    orders : ndarray, shape (m,)
    swap : bool
        Whether the neighbours differ by a swap.

    Returns
    -------
    ndarray, shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> subsampled_gaussian_rdp(0.01, 1.0, np.array([2.0, 32.0])).round(9)
    array([1.71813000e-04, 1.12462759e+01])
    >>> subsampled_gaussian_rdp(0.01, 1.0, np.array([2.0]), swap=True).round(9)
    array([0.00045755])
    """
    q, z = rate, noise_multiplier
    shift = 2 if swap else 1
    curve = shift**2 * orders / (2 * z * z)  # without sampling; never exceeded
    if q == 1.0:
        return curve
    eta = orders - 1
    m = eta / (2 * z * z)
    bound = orders / eta * log_mixture(q, m)
    curve = np.minimum(curve, (bound - math.log1p(-q) if swap else bound) * _SAFETY)
    if z < _LITTLE:
        return curve
    ends = np.maximum(shift * orders, 2.0) / z + _REACH
    # a range that is longer has more nodes than are worth it
    narrow = np.flatnonzero((m < 40 - math.log(q) + np.log(orders)) & (ends < 2e5))
    step = min(0.4, 0.45 * z)
    order_of_ends = narrow[np.argsort(ends[narrow])]
    start = 0
    while start < order_of_ends.size:
        # orders whose ranges are alike share one set of nodes
        limit = max(2.0 * ends[order_of_ends[start]], 60.0)
        stop = start + int(np.searchsorted(ends[order_of_ends[start:]], limit, side="right"))
        last = float(ends[order_of_ends[stop - 1]])
        stop = min(stop, start + max(1, int(_NODES_AT_ONCE * step / (last + _REACH))))
        chosen = order_of_ends[start:stop]
        last = float(ends[chosen[-1]])
        log_moment = _log_moment(q, z, orders[chosen], _nodes(q, z, orders[chosen], last, step, swap), step, swap)
        curve[chosen] = np.minimum(curve[chosen], log_moment / (orders[chosen] - 1) * _SAFETY)
        start = stop
    return curve


def _nodes(q: float, z: float, orders: Array, last: float, step: float, swap: bool) -> Array:
    """The lattice points of the trapezoidal rule; of a long range only the stretches that matter."""
    first, count = -math.ceil((_REACH + (1.0 / z if swap else 0.0)) / step), math.ceil(last / step)
    if count < 4096:
        return np.asarray(step * np.arange(first, count + 1), dtype=np.float64)
    # Every peak of the integrand is at least as wide as a Gaussian of variance 1 (ln(1 + u) is convex), so a scan in
    # steps of about ½ sees it.
    stride = max(1, round(0.5 / step))
    coarse = np.arange(first, count + stride + 1, stride, dtype=np.float64)
    heights = _log_integrand(q, z, orders, step * coarse, swap)
    seen = np.any(heights > heights.max(axis=1, keepdims=True) - _NEGLIGIBLE, axis=0)
    seen[1:] |= seen[:-1]
    seen[:-1] |= seen[1:]
    return np.asarray(step * (coarse[seen][:, None] + np.arange(stride)).ravel(), dtype=np.float64)


def _log_moment(q: float, z: float, orders: Array, t: Array, step: float, swap: bool) -> Array:
    """ln A_α by the trapezoidal rule over the nodes t."""
    heights = _log_integrand(q, z, orders, t, swap)
    peak = heights.max(axis=1)
    total = np.exp(heights - peak[:, None]).sum(axis=1)
    return np.asarray(np.logaddexp(0.0, peak + np.log(total * (step / math.sqrt(2 * math.pi)))))


def _ratio(q: float, z: float, t: Array) -> tuple[Array, Array]:
    """u = q(e^w − 1) and ln(1 + u) at x = zt; u is cut where it is beyond use."""
    w = t / z - 0.5 / (z * z)
    return q * np.expm1(np.minimum(w, 30.0)), log_mixture(q, w)


def log_mixture(q: float, w: Array) -> Array:
    """ln(1 − q + q·e^w), q < 1."""
    with np.errstate(over="ignore"):
        direct = np.log1p(q * np.expm1(np.minimum(w, 30.0)))
        return np.where(w < 30.0, direct, np.logaddexp(math.log1p(-q), math.log(q) + w))


def _log_integrand(q: float, z: float, orders: Array, t: Array, swap: bool) -> Array:
    """−t²/2 + ln b + ln h(v), shape (orders, nodes)."""
    v, L = _ratio(q, z, t)
    log_b = np.zeros_like(t)
    if swap:
        _, log_b = _ratio(q, z, -t)
        L = L - log_b
        # (u − u₋)/(1 + u₋) where that loses no digits to the logarithms
        middle = math.exp(-0.5 / (z * z)) * np.sinh(np.clip(t / z, -1.0, 1.0))
        up, down = (np.exp(np.minimum(s * t / z - 0.5 / (z * z), 30.0)) for s in (1, -1))
        apart = q * np.where(np.abs(t) < z, 2.0 * middle, up - down)
        v = np.where(np.abs(L) < 1.0, apart * np.exp(-log_b), np.expm1(np.minimum(L, 700.0)))
    alpha, eta = orders[:, None], orders[:, None] - 1
    x = eta * L
    size = np.abs(x)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # h = (1 + v)·(e^x − 1)·(1 − η(1 − e^(−L))/(e^x − 1)), in logarithms
        shrunk = -np.expm1(-size)
        ratio = eta * np.where(L > 0, -np.expm1(-L) * np.exp(-size), np.expm1(-L)) / shrunk
        log_h = L + np.maximum(x, 0.0) + np.log(shrunk) + np.log(np.abs(1.0 - ratio))
        log_h = np.where(L < -300.0, np.log(eta), log_h)
        # where αv is small the binomial series instead: C(α,2)v²(1 + (α−2)v/3·(1 + (α−3)v/4·(1 + …)))
        small = alpha * np.abs(v) < 0.02
        series = np.ones_like(x)
        for k in range(9, 2, -1):
            series = 1.0 + (alpha - (k - 1)) * v / k * series
        log_series = np.log(0.5 * alpha * eta * series) + 2.0 * np.log(np.abs(v))
    return np.asarray(np.where(small, log_series, log_h) - 0.5 * t * t + log_b)

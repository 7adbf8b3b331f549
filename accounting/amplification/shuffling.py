"""Privacy amplification by shuffling single messages, as an explicit pair of distributions.

n users each run an ε₀-DP local randomizer, and only the multiset of their messages is seen. Neighbours differ in one
user's input (``"replace"``). Feldman, McMahan & Talwar ("Stronger privacy amplification by shuffling for Rényi and
approximate differential privacy", 2023, section 3) prove that the views are at least as private as the pair

    P = (A + T, C − A + 1 − T),    Q = (A + 1 − T, C − A + T),
    C ~ Bin(n − 1, 2/(e^ε₀ + 1)),   A | C ~ Bin(C, ½),   T ~ Bernoulli(p),   p = e^ε₀/(e^ε₀ + 1):

wherever the two inputs of one user make a difference, each other user produces an exact copy of either with
probability at least 1/(e^ε₀ + 1). It is the variation-ratio bound of Wang et al. (2023, arXiv:2304.05007) for an
arbitrary ε₀-DP randomizer.

Given C = c both are laws of x ∈ 0 … c + 1, P(x) = p·b(x − 1) + (1 − p)·b(x) with b the pmf of Bin(c, ½) and Q with p
and 1 − p swapped. P/Q increases in x, so the hockey-stick divergence at ε is taken on x > x*,

    x* = (c + 1)(e^ε·p − 1 + p)/((2p − 1)(e^ε + 1)),    δ_c(ε) = p S₁ + (1 − p)S₀ − e^ε((1 − p)S₁ + p S₀),

with S₁, S₀ = Pr(Bin(c, ½) ≥ x₀ − 1), Pr(… ≥ x₀), x₀ = ⌊x*⌋ + 1. δ_c falls as c grows (more copies are a
post-processing of fewer), so C may be rounded down, which keeps the work bounded for any n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.checks import fraction, integer, nonnegative, positive

__all__ = ["local_epsilon", "shuffled_delta", "shuffled_epsilon", "shuffled_losses"]

Array = NDArray[np.float64]

# At most this many values of C; the curve needs more of them than the pair of pmfs, which is summed over x too.
_CURVE_VALUES = 1 << 13
_PAIR_VALUES = 1 << 8
# Values of C that are rarer than this are rounded to the ends, and so are values of x.
_RARE = 1e-40
# More users than this are priced as this many.
_MOST_USERS = 10**9
# Relative error granted to the incomplete beta function.
_BETA_ERROR = 4e-13


@lru_cache(maxsize=32)
def _copies(local_epsilon: float, users: int, values: int) -> tuple[Array, Array]:
    """Values c of C, rounded down to a grid, and their probabilities (which sum to 1 or a rounding error more)."""
    n = min(users, _MOST_USERS) - 1
    rate = 2 * math.exp(-local_epsilon) / (1 + math.exp(-local_epsilon))
    if n * rate < 1e-9 or local_epsilon > 700:
        return np.zeros(1), np.ones(1)
    mean = n * rate
    log_rare = -math.log(_RARE)
    # Chernoff: Pr(C ≤ mean − h) ≤ exp(−h²/(2 mean)), Pr(C ≥ mean + h) ≤ exp(−h²/(2 mean + h))
    low = max(0, math.floor(mean - math.sqrt(2 * mean * log_rare)))
    high = min(n, math.ceil(mean + math.sqrt(2 * mean * log_rare) + log_rare))
    k = np.arange(low, high + 1, dtype=np.float64)
    # the pmf from its exact ratios outwards from the mode, where nothing underflows
    steps = (
        np.log((n - k[1:] + 1) / k[1:]) + math.log(rate) - math.log1p(-rate) if rate < 1 else np.full(k.size - 1, 700.0)
    )
    mode = int(np.argmin(np.abs(k - mean)))
    relative = np.concatenate([-np.cumsum(steps[:mode][::-1])[::-1], [0.0], np.cumsum(steps[mode:])])
    with np.errstate(under="ignore"):
        weights = np.exp(relative)
    weights /= weights.sum() * (1 - 1e-12)
    weights[0] += _RARE  # what is below the window
    if low > 0:
        k = np.concatenate([[0.0], k])
        weights = np.concatenate([[_RARE], weights])
    width = math.ceil(k.size / values)
    starts = np.arange(0, k.size, width)
    return k[starts], np.add.reduceat(weights, starts)


def shuffled_delta(local_epsilon: float, users: int, epsilon: float) -> float:
    """δ at ε of the shuffled messages of ``users``, rounded up.

    Examples
    --------
    >>> round(shuffled_delta(1.0, 1000, 0.148670732975) * 1e6, 4)
    1.0
    """
    positive("local_epsilon", local_epsilon)
    integer("users", users, at_least=1)
    nonnegative("epsilon", epsilon)
    if epsilon >= local_epsilon:
        return 0.0
    from scipy.special import betainc

    c, weights = _copies(local_epsilon, users, _CURVE_VALUES)
    lie = math.exp(-local_epsilon) / (1 + math.exp(-local_epsilon))
    truth = 1 / (1 + math.exp(-local_epsilon))
    # e^ε/(1 + e^ε) and its complement keep the threshold finite for any ε
    up, down = 1 / (1 + math.exp(-epsilon)), math.exp(-epsilon) / (1 + math.exp(-epsilon))
    threshold = (c + 1) * (up * truth - down * lie) / (truth - lie)
    x0 = np.floor(threshold) + 1

    def upper(x: Array) -> Array:
        """Pr(Bin(c, ½) ≥ x)."""
        inside = (x >= 1) & (x <= c)
        a = np.where(inside, x, 1.0)
        b = np.where(inside, c - x + 1, 1.0)
        return np.where(x < 1, 1.0, np.where(inside, betainc(a, b, 0.5), 0.0))

    s0, s1 = upper(x0), upper(x0 - 1)
    grow = math.exp(min(epsilon, 700.0))
    gain, loss = truth - grow * lie, grow * truth - lie
    found = np.maximum(gain * s1 - loss * s0, 0.0) + _BETA_ERROR * (gain * s1 + loss * s0)
    return min(1.0, float(weights @ found))


def shuffled_epsilon(local_epsilon: float, users: int, delta: float) -> float:
    """The smallest ε at which the shuffled messages have at most ``delta``, rounded up.

    Examples
    --------
    >>> round(shuffled_epsilon(1.0, 10_000, 1e-6), 7)
    0.0432062
    """
    positive("local_epsilon", local_epsilon)
    fraction("delta", delta, include_zero=True)
    if delta == 0 or shuffled_delta(local_epsilon, users, 0.0) <= delta:
        return local_epsilon if delta == 0 else 0.0
    root = _root(lambda e: shuffled_delta(local_epsilon, users, e), delta, 0.0, local_epsilon)
    step = 1e-14
    while root < local_epsilon and shuffled_delta(local_epsilon, users, root) > delta:
        root += step * max(root, 1e-6 * local_epsilon)
        step *= 2
    return min(root, local_epsilon)


def local_epsilon(users: int, epsilon: float, delta: float) -> float:
    """The largest ε₀ that each user's randomizer may have, such that the shuffled messages are (ε, δ)-DP.

    Examples
    --------
    >>> round(local_epsilon(10_000, 0.5, 1e-6), 4)
    4.3364
    """
    integer("users", users, at_least=1)
    positive("epsilon", epsilon)
    fraction("delta", delta, include_zero=True)
    if delta == 0:
        return epsilon
    low = high = epsilon
    while shuffled_delta(high, users, epsilon) <= delta:
        if high > 1e3:
            return high
        low, high = high, 1.5 * high
    root = _root(lambda e: shuffled_delta(e, users, epsilon), delta, low, high)
    step = 1e-14
    while root > epsilon and shuffled_delta(root, users, epsilon) > delta:
        root *= 1 - step
        step *= 2
    return max(root, epsilon)


def _root(to_delta: Callable[[float], float], delta: float, low: float, high: float) -> float:
    """Where ``to_delta`` meets δ: √(−ln δ) is close to linear in ε, which a secant likes."""
    from scipy.optimize import brentq

    target = math.sqrt(-math.log(delta))

    def distance(at: float) -> float:
        return math.sqrt(-math.log(max(to_delta(at), 1e-320))) - target

    return float(brentq(distance, low, high, xtol=1e-15, rtol=1e-13))


@lru_cache(maxsize=32)
def shuffled_losses(local_epsilon: float, users: int) -> tuple[Array, Array, Array]:
    """The pair as atoms: privacy losses ln P/Q and the masses of P and Q, with what is rare moved to the largest loss.

    By the symmetry x ↦ c + 1 − x the loss of Q against P has the same law.
    """
    from scipy.special import gammaln

    values, weights = _copies(local_epsilon, users, _PAIR_VALUES)
    truth, lie = 1 / (1 + math.exp(-local_epsilon)), math.exp(-local_epsilon) / (1 + math.exp(-local_epsilon))
    losses, mass_p, mass_q = [], [], []
    for c, weight in zip(values, weights, strict=True):
        reach = math.sqrt(c * -math.log(_RARE) / 2) + 2
        x = np.arange(max(0, math.floor(c / 2 - reach)), min(c + 1, math.ceil(c / 2 + reach)) + 1)
        # b(x − 1) and b(x) are shares x/(c + 1) and 1 − x/(c + 1) of C(c + 1, x)/2^c
        whole = np.exp(gammaln(c + 2) - gammaln(x + 1) - gammaln(c + 2 - x) - c * math.log(2))
        whole *= 2 / whole.sum()
        share = x / (c + 1)
        p, q = truth * share + lie * (1 - share), lie * share + truth * (1 - share)
        losses.append(np.log(p) - np.log(q))
        mass_p.append(weight * p * whole)
        mass_q.append(weight * q * whole)
    rare = 4 * _RARE
    return (
        np.concatenate([*losses, [local_epsilon]]),
        np.concatenate([*mass_p, [rare]]),
        np.concatenate([*mass_q, [rare * math.exp(-local_epsilon)]]),
    )

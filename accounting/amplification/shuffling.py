"""Privacy amplification by shuffling single messages, as an explicit pair of distributions.

n users each run the same ε₀-DP local randomizer R, chosen before anything is seen, and only the multiset of their
messages is seen. Neighbours differ in one user's input (``"replace"``). With e = e^ε₀ the views are at least as private
as the pair

    P = (A + T, C − A + 1 − T),    Q = (A + 1 − T, C − A + T),
    C ~ Bin(n − 1, 2/(e + 1)),   A | C ~ Bin(C, ½),   T ~ Bernoulli(p),   p = e/(e + 1).

(The bound is that of Feldman, McMillan & Talwar, arXiv:2208.04591, section 3, whose lemma for users with *different*,
adaptively chosen randomizers its authors withdrew. What follows needs one randomizer for all; different or adaptive
ones are not covered. The form of the blanket is that of Balle, Bell, Gascón & Nissim 2019.)

Proof. Let the inputs of the one user be 0 and 1, with laws p₀ and p₁ of R's message y, and m = max(p₀, p₁)/e. As R is
ε₀-DP, every other user's law is at least m; so with probability γ = Σm it is drawn from m/γ, else from something that
depends on its input. Reveal the messages of the second kind. Those that stay are the one user's and N of m/γ,
N ~ Bin(n − 1, γ), in random order, so the density of their multiset relative to the case that all were drawn from m/γ
is the mean of γp(yᵢ)/m(yᵢ), p = p₀ or p₁. Hence, and because E[f(N + 1)/(N + 1)] = E[f(N′)]/(nγ) for
N′ ~ Bin(n, γ),

    δ(ε) ≤ (1/n)·E[(Y₁ + … + Yₙ)₊],    Y = (p₀ − e^ε·p₁)(y)/m(y) with mass m(y), and 0 with mass 1 − γ.       (*)

The larger of p₀/m and p₁/m is e, the other between 1 and e. So p₀/m = αe + β and p₁/m = α + βe for some α, β ∈ [0, 1],
and Y = αA − βB with A = e − e^ε ≥ 0 and B = e·e^ε − 1 > 0. For convex φ with φ(0) = 0, φ(Y) ≤ αφ(A) + βφ(−B): if
Y ≥ 0, then Y = τA with 0 ≤ τ = α − βB/A ≤ 1, so φ(Y) ≤ τφ(A), and β((B/A)φ(A) + φ(−B)) ≥ 0 by convexity between −B,
0 and A; if Y ≤ 0, likewise. Sum over y with weights m: since Σp₀ = Σp₁ = 1, Σmα = Σmβ = 1/(e + 1). So Y is smaller in
convex order than the variable that is A or −B with probability 1/(e + 1) each, and 0 otherwise; so are sums of
independent copies, and (*) grows if these take their places. For them (*) is an equality, the δ of the randomizer
that sends 0 or 1 by p = e/(e + 1) from the one user, and from every other user 0 or 1 with probability 1/(e + 1)
each: the pair above. With 0 and 1 exchanged this holds for ε < 0 too, so the pair dominates, also in compositions. ∎

Given C = c both are laws of x ∈ 0 … c + 1, P(x) = p·b(x − 1) + (1 − p)·b(x) with b the pmf of Bin(c, ½) and Q with p
and 1 − p swapped. P/Q increases in x, so the hockey-stick divergence at ε is taken on x > x*,

    x* = (c + 1)(e^ε·p − 1 + p)/((2p − 1)(e^ε + 1)),    δ_c(ε) = p S₁ + (1 − p)S₀ − e^ε((1 − p)S₁ + p S₀),

with S₁, S₀ = Pr(Bin(c, ½) ≥ x₀ − 1), Pr(… ≥ x₀), x₀ = ⌊x*⌋ + 1. δ_c falls as c grows (more copies are a
post-processing of fewer), so C may be rounded down: to at most some thousand values near its mean, as finely as ε
notices, and to coarser ones in the tails, whose probabilities Chernoff's bound gives in logarithms. So the work is
bounded for any n, and no mass is rounded up to where a large Rényi order would see it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction, integer, nonnegative, positive
from accounting.masses import split
from accounting.roots import root_between

__all__ = [
    "MOST_LOCAL_EPSILON",
    "binomial_bins",
    "local_epsilon",
    "shuffled_delta",
    "shuffled_losses",
    "where_delta_is",
]


#: Of more than this, 1 − e^(−ε₀) has too few digits for the sums here: such messages are priced unshuffled.
MOST_LOCAL_EPSILON = 30.0

# The share of ε that rounding C down may cost, and the values of C in one deviation, for the curve at one ε and for the
# whole pair.
_CURVE, _PAIR = (4e-6, 400), (2e-4, 32)
# Beyond 8.5 deviations C is rounded down by up to this share of its mean.
_FAR = 1e-3
# C beyond this many deviations from its mean has a probability below 1e-300 (Chernoff).
_REACH = 38.0
# More users than this are priced as this many.
_MOST_USERS = 10**9
# Relative error granted to the incomplete beta function.
_BETA_ERROR = 4e-13
# Points of the pair's loss, on either side of 0: evenly spaced up to so many deviations, then geometrically.
_EVEN, _GEOMETRIC, _DEVIATIONS = 240, 100, 10.0


def _copies(local_epsilon: float, users: int, share: float, fineness: int) -> tuple[Array, Array]:
    """Values c of C, rounded down to a grid, and the logarithms of their probabilities, rounded up."""
    rate = 2 * math.exp(-local_epsilon) / (1 + math.exp(-local_epsilon)) if local_epsilon < 700 else 0.0
    return binomial_bins(min(users, _MOST_USERS) - 1, rate, share, fineness)


@lru_cache(maxsize=32)
def binomial_bins(n: int, rate: float, share: float, fineness: int) -> tuple[Array, Array]:
    """Values of Bin(n, rate), rounded down to a grid, and the logarithms of their probabilities, rounded up.

    The grid is as fine as ``share`` of the mean, or one ``fineness``-th of the deviation where that is coarser.
    """
    from scipy.special import betainc

    if n * rate < 1e-9:
        return np.zeros(1), np.zeros(1)
    if rate >= 1:
        return np.array([float(n)]), np.zeros(1)
    mean, deviation = n * rate, math.sqrt(n * rate * (1 - rate))
    # a step of d deviations costs about d·deviation/(2·mean) of c, and half of that of ε
    step = max(1.0, math.floor(share * 4 * mean), math.floor(deviation / fineness))
    near = np.arange(max(0.0, math.floor(mean - 8.5 * deviation)), min(n, mean + 8.5 * deviation) + 1, step)
    # what is so rare may be known a little less well
    coarse = max(step, math.floor(8 * deviation / fineness), math.floor(_FAR * mean))
    far = np.arange(max(0.0, math.floor(mean - _REACH * math.sqrt(mean))), near[0], coarse)
    low = far[0] if far.size else near[0]
    rest = np.unique(np.concatenate([[0.0], np.floor(np.geomspace(1.0, max(low, 1.0), 60))]))
    values = np.unique(np.concatenate([rest[rest < low], far, near]))
    # ln Pr(C < v): by the incomplete beta function, by Chernoff's bound where that is too small for a float
    with np.errstate(divide="ignore", invalid="ignore"):
        log_below = np.log(betainc(n - values + 1, values, 1 - rate)) + 2e-10
        chernoff = -n * _divergence((values - 1) / n, rate)
    log_below = np.where(np.isfinite(log_below) & (log_below > -600), log_below, chernoff)
    log_below[values < 1] = -np.inf
    log_below = np.minimum(log_below, 0.0)
    # Pr(v ≤ C < next v), of which the last is the whole upper tail
    ends = np.append(log_below[1:], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_weights = ends + np.log(-np.expm1(np.minimum(log_below - ends, 0.0)))
    log_weights = np.where(ends > -500, log_weights + 2e-10, ends)
    kept = log_weights > -np.inf
    return values[kept], log_weights[kept]


def _divergence(a: Array, rate: float) -> Array:
    """The Kullback–Leibler divergence of coins of probability a and ``rate``, 0 where a ≥ ``rate`` or a < 0."""
    inside = np.clip(a, 0.0, rate)
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(inside > 0, inside * np.log(inside / rate), 0.0)
        return np.asarray(np.maximum(first + (1 - inside) * np.log((1 - inside) / (1 - rate)), 0.0) * (1 - 1e-9))


def _log_upper(c: Array, x: Array) -> Array:
    """ln Pr(Bin(c, ½) ≥ x), rounded up; c and x are integers."""
    from scipy.special import betainc

    inside = (x >= 1) & (x <= c)
    a, b = np.where(inside, x, 1.0), np.where(inside, c - x + 1, 1.0)
    with np.errstate(divide="ignore"):
        log_tail = np.log(betainc(a, b, 0.5)) + _BETA_ERROR
    # Chernoff: the tail at x ≥ c/2 is at most e^(−c·KL(x/c ‖ ½))
    small = inside & ~(log_tail > -600)
    if np.any(small):
        share = np.where(small, (c - x) / np.maximum(c, 1.0), 0.25)
        log_tail = np.where(small, -c * _divergence(share, 0.5), log_tail)
    return np.where(x < 1, 0.0, np.where(inside, log_tail, -np.inf))


def _coin(local_epsilon: float) -> tuple[float, float]:
    """The probabilities of the truth and of the lie."""
    return 1 / (1 + math.exp(-local_epsilon)), math.exp(-local_epsilon) / (1 + math.exp(-local_epsilon))


def _thresholds(local_epsilon: float, c: Array, epsilon: Array | float) -> Array:
    """x₀, the smallest x at which the loss is above ``epsilon``."""
    truth, lie = _coin(local_epsilon)
    # e^ε/(1 + e^ε) and its complement keep the threshold finite for any ε
    up, down = 1 / (1 + np.exp(-epsilon)), np.exp(-epsilon) / (1 + np.exp(-epsilon))
    return np.asarray(np.floor((c + 1) * (up * truth - down * lie) / (truth - lie)) + 1)


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
    if local_epsilon > MOST_LOCAL_EPSILON:
        return -math.expm1(epsilon - local_epsilon)  # of one message, rounded up by less than e^(−ε₀) of it
    c, log_weights = _copies(local_epsilon, users, *_CURVE)
    x0 = _thresholds(local_epsilon, c, epsilon)
    s0, s1, weights = np.exp(_log_upper(c, x0)), np.exp(_log_upper(c, x0 - 1)), np.exp(log_weights)
    truth, lie = _coin(local_epsilon)
    grow = math.exp(min(epsilon, 700.0))
    gain, loss = truth - grow * lie, grow * truth - lie
    found = np.maximum(gain * s1 - loss * s0, 0.0) + 2 * _BETA_ERROR * (gain * s1 + loss * s0)
    return min(1.0, float(weights @ found))


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
    root = where_delta_is(delta, lambda e: shuffled_delta(e, users, epsilon), low, high, 1e-15, 1e-13)
    step = 1e-14
    while root > epsilon and shuffled_delta(root, users, epsilon) > delta:
        root *= 1 - step
        step *= 2
    return max(root, epsilon)


def where_delta_is(
    delta: float, to_delta: Callable[[float], float], low: float, high: float, absolute: float, relative: float = 0.0
) -> float:
    """About where ``to_delta`` meets δ: √(−ln δ) is close to linear in ε, which a secant likes."""
    target = math.sqrt(-math.log(delta))

    def distance(at: float) -> float:
        return math.sqrt(-math.log(max(to_delta(at), 1e-320))) - target

    return root_between(distance, low, high, absolute=absolute, relative=relative)


@lru_cache(maxsize=32)
def shuffled_losses(local_epsilon: float, users: int) -> tuple[Array, Array]:
    """A pair that dominates, as atoms: privacy losses ln P/Q in increasing order and the logarithms of P's masses.

    Q's masses are e^(−loss) times P's. By the symmetry x ↦ c + 1 − x the loss of Q against P has the law of L under P,
    so Pr(L < −ℓ) under P is Pr(L > ℓ) under Q.
    """
    c, log_weights = _copies(local_epsilon, users, *_PAIR)
    truth, lie = _coin(local_epsilon)
    # L is about 2(2p − 1)(2x/(c + 1) − 1), and x has a deviation of √c/2
    typical = max(1.0, float(np.exp(log_weights) @ c))
    core = min(local_epsilon / 2, _DEVIATIONS * 2 * (truth - lie) / math.sqrt(typical))
    half = np.concatenate([np.linspace(0, core, _EVEN + 1), np.geomspace(core, local_epsilon, _GEOMETRIC + 1)[1:]])
    half[-1] = local_epsilon * (1 + 1e-12)
    x0 = _thresholds(local_epsilon, c[:, None], half)
    log_s0, log_s1 = _log_upper(c[:, None], x0), _log_upper(c[:, None], x0 - 1)

    def above(first: float, second: float) -> Array:
        terms = np.logaddexp(math.log(first) + log_s1, math.log(second) + log_s0) + log_weights[:, None]
        return np.asarray(np.logaddexp.reduce(terms, axis=0))

    log_p, log_q = above(truth, lie), above(lie, truth)
    log_p[-1] = log_q[-1] = -np.inf
    p, q = np.exp(log_p), np.exp(log_q)
    gone_p, gone_q = np.maximum(p[:-1] - p[1:], 0.0), np.maximum(q[:-1] - q[1:], 0.0)
    even = max(0.0, 1.0 - p[0] - q[0])  # L = 0
    left, right = np.append(gone_q[::-1], 0.0), np.append(gone_p, 0.0)
    left[-2] += even
    cells = np.concatenate([[0.0], left[:-1], right])
    mirrored = cells[::-1].copy()
    mirrored[half.size - 1] += even
    mirrored[half.size] -= even
    losses = np.concatenate([-half[:0:-1], half])
    with np.errstate(divide="ignore"):
        # the margin covers the error of the tails that the cells are differences of
        log_mass = np.log(split(cells * (1 + 1e-9), np.maximum(mirrored, 0.0) * (1 - 1e-9), losses))
    # what is too small for a float is rounded up to the next loss
    rare = np.flatnonzero(log_p[:-1] < -600) + half.size
    log_mass[rare] = np.maximum(log_mass[rare], log_p[rare - half.size])
    return losses, log_mass

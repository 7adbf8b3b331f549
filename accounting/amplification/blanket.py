"""k-ary randomized response behind a shuffler, from above and from below.

Every user says the truth with probability e·r and each of the k − 1 other values with probability r = 1/(e + k − 1),
e = e^ε₀. One user holds 0 or 1, n − 1 others hold anything. Let E = e^ε. Binary responses are known better
(:mod:`accounting.amplification.binary`); here k is at least 3.

**From above** (the blanket of Balle, Bell, Gascón & Nissim 2019; Su, Cheng & Wang 2025, arXiv:2504.07414). Whatever the
others hold, each says each value with probability at least r; so with probability γ = kr its message is uniform. Reveal
the messages that are not. N ~ Bin(n − 1, γ) uniform ones stay, together with the one user's, in random order; of these
M = N + 1 let a be 0, b be 1 and c anything else. Relative to the case that all are uniform, the laws of the two views
have densities (γ/M)(ea + b + c) and (γ/M)(a + eb + c), hence

    δ_M = (γ/M)·E[(aA − bB − c(E − 1))₊],    A = e − E, B = eE − 1, (a, b, c) multinomial with 1/k, 1/k, (k − 2)/k.

It is a sum over s = a + b ~ Bin(M, 2/k) of truncated means of a ~ Bin(s, ½), which incomplete beta functions give. All
pairs of values are alike, so this is the worst. More uniform messages are a post-processing of fewer, so δ_M falls as M
grows, and N may be rounded down.

Fewer terms. With g = E − 1 the truncated mean at s is f(s) = E[(W − Mg)₊], where W is a sum of s independent steps,
A + g or g − B, of mean −m, m = (B − A)/2 − g ≥ 0. One more step of mean zero, W + step + m, is larger in convex
order. So f(s) ≤ E[(W′ + jm − Mg)₊] with s + j steps in W′, and a stretch of values of s is priced at its upper end,
with the largest j. Stretches of 10⁻⁴·s add a few parts in ten thousand to δ.

**From below.** The others hold what is worse of two. Let all hold the same third value. Merge all messages but 0 and 1,
which is a post-processing. The others' messages are 0 or 1 with probability r each; and the law of the two views is as
above, with M = n, γ = 1 and the density of c, (k − 2)r/(1 − 2r), in place of 1. Or let all hold 0, and compare with
messages that are all for 0: then A/e is in the place of A, M = n, γ = 1, and (a, b, c) is multinomial with er, r,
(k − 2)r. Where δ is so small, or n, that all decisive messages are in favour of 0, this is the value from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from accounting.amplification.binary import binary_delta, binary_delta_at_least
from accounting.amplification.shuffling import MOST_LOCAL_EPSILON, binomial_bins, local_epsilon
from accounting.arrays import Array

__all__ = [
    "LEFT_OUT",
    "MOST_USERS",
    "binomial_window",
    "counts_delta",
    "gains",
    "mean_delta",
    "positive_part",
    "response_delta",
    "response_delta_at_least",
    "response_local_epsilon",
    "same_delta_at_least",
]


# More users than this are priced as this many.
MOST_USERS = 1 << 20
# What the binomial windows leave out, at most; it is added, or taken off.
LEFT_OUT = 1e-22
# Relative error granted to incomplete beta functions and sums of them.
_BETA_ERROR = 1e-12
# From so many on, as many that speak against a value cannot be missing.
_MOST_LIES = 1000
# Stretches of counts that are priced at their upper ends, as a share of the counts.
_STRETCH = 1e-4


def binomial_window(trials: int, rate: float) -> tuple[Array, Array]:
    """Values of Bin(trials, rate) and their probabilities, but for a mass of ``LEFT_OUT`` (Bernstein)."""
    mean, log_rare = trials * rate, math.log(2 / LEFT_OUT)
    reach = math.sqrt(2 * mean * (1 - rate) * log_rare) + 2 * log_rare / 3
    k = np.arange(max(0, math.floor(mean - reach)), min(trials, math.ceil(mean + reach)) + 1, dtype=np.float64)
    with np.errstate(divide="ignore"):
        steps = np.log((trials - k[1:] + 1) / k[1:]) + (math.log(rate) - math.log1p(-rate) if rate < 1 else np.inf)
    if rate >= 1:
        return np.array([float(trials)]), np.ones(1)
    relative = np.concatenate([[0.0], np.cumsum(steps)])
    weights = np.exp(relative - relative.max())
    return k, weights / weights.sum()


def positive_part(
    s: Array, slope: float, threshold: Array, rate: float = 0.5, rest: float = 0.5
) -> tuple[Array, Array]:
    """E[(slope·a − threshold)₊] for a ~ Bin(s, rate), as its two terms: what is gained and what is lost.

    ``rest`` is 1 − rate, where that is the smaller one.
    """
    from scipy.special import betainc, betaincc

    first = np.maximum(np.floor(threshold / slope) + 1, 0.0)  # the smallest a that counts

    def tail(trials: Array, at: Array) -> Array:
        inside = (at >= 1) & (at <= trials)
        up, down = np.where(inside, at, 1.0), np.where(inside, trials - at + 1, 1.0)
        value = betainc(up, down, rate) if rate <= 0.5 else betaincc(down, up, rest)
        return np.where(at < 1, 1.0, np.where(inside, value, 0.0))

    return slope * s * rate * tail(s - 1, first - 1) * (s > 0), threshold * tail(s, first)


def gains(epsilon0: float, epsilon: float) -> tuple[float, float, float]:
    """A, B and g."""
    return math.exp(epsilon) * math.expm1(epsilon0 - epsilon), math.expm1(epsilon0 + epsilon), math.expm1(epsilon)


def counts_delta(
    messages: int,
    scale: float,
    told: float,
    share: tuple[float, float],
    worth: tuple[float, float, float],
    sign: float,
) -> float:
    """(scale/M)·E[(aA − bB − cg)₊] where a message counts in a + b with probability ``told``, and there in a or in b by
    their ``share``; ``worth`` is A, B and g. Errors by ``sign``."""
    A, B, g = worth
    s, mass = binomial_window(messages, min(1.0, told))
    threshold = s * B + (messages - s) * g
    stretch = math.floor(_STRETCH * s[0])
    if sign > 0 and stretch > 1:
        starts = np.arange(0, s.size, stretch)
        ends = np.append(starts[1:], s.size) - 1
        mass, drift = np.add.reduceat(mass, starts), max(0.0, share[1] * B - share[0] * A - g) * (1 + 1e-9)
        threshold, s = threshold[ends] - (s[ends] - s[starts]) * drift, s[ends]
    gained, lost = positive_part(s, A + B, threshold, *share)
    total = float(mass @ (gained - lost)) + sign * _BETA_ERROR * float(mass @ (np.abs(gained) + np.abs(lost)))
    return scale / messages * total + sign * LEFT_OUT * scale * (A + B)


def same_delta_at_least(epsilon0: float, lie: float, users: int, epsilon: float) -> float:
    """δ at ε where all others hold 0, and the one user 0 or 1, rounded down; 0 where that is hardly the worst.

    A message speaks for 0 or for 1, with probabilities ``lie`` and e times that, or for neither.
    """
    if users * lie > _MOST_LIES:
        return 0.0
    (A, B, g), e = gains(epsilon0, epsilon), math.exp(epsilon0)
    return counts_delta(users, 1.0, (e + 1) * lie, (e / (e + 1), 1 / (e + 1)), (A / e, B, g), -1.0)


@lru_cache(maxsize=512)
def response_delta(epsilon0: float, categories: int, users: int, epsilon: float) -> float:
    """δ at ε ≥ 0 of n shuffled responses, rounded up.

    Examples
    --------
    >>> round(response_delta(1.0, 10, 10_000, 0.0233) * 1e6, 1)
    1.0
    """
    if epsilon >= epsilon0:
        return 0.0
    if epsilon0 > MOST_LOCAL_EPSILON:
        return -math.expm1(epsilon - epsilon0)  # of one message at most
    if categories == 2:
        return binary_delta(epsilon0, users, epsilon)
    r = 1 / (math.exp(epsilon0) + categories - 1)
    gamma, worth = min(1.0, categories * r), gains(epsilon0, epsilon)
    return mean_delta(users, gamma, lambda n: counts_delta(n, gamma, 2 / categories, (0.5, 0.5), worth, 1.0))


def mean_delta(users: int, blanket: float, delta_of: Callable[[int], float]) -> float:
    """The mean of ``delta_of`` the number of messages from the blanket, with that of the one user, rounded up."""
    copies, log_weights = binomial_bins(min(users, MOST_USERS) - 1, blanket, 3e-4, 6)
    total = 0.0
    for n, log_weight in zip(copies, log_weights, strict=True):
        likely = log_weight >= math.log(LEFT_OUT)
        total += math.exp(log_weight) * (min(1.0, max(0.0, delta_of(int(n) + 1))) if likely else 1.0)
    return min(1.0, total)


def response_delta_at_least(epsilon0: float, categories: int, users: int, epsilon: float) -> float:
    """δ at ε ≥ 0 of n shuffled responses for some values of the others, rounded down; 0 where there are too many.

    Examples
    --------
    >>> round(response_delta_at_least(1.0, 10, 10_000, 0.0232) * 1e6, 1)
    1.0
    """
    if epsilon >= epsilon0 or epsilon0 > MOST_LOCAL_EPSILON:
        return 0.0
    if categories == 2:
        return binary_delta_at_least(epsilon0, users, epsilon)
    if users > MOST_USERS:
        return 0.0
    A, B, g = gains(epsilon0, epsilon)
    r = 1 / (math.exp(epsilon0) + categories - 1)
    rest = (categories - 2) * r / (1 - 2 * r)
    third = counts_delta(users, 1.0, 2 * r, (0.5, 0.5), (A, B, rest * g), -1.0)
    return max(0.0, third, same_delta_at_least(epsilon0, r, users, epsilon))


@lru_cache(maxsize=64)
def response_local_epsilon(categories: int, users: int, epsilon: float, delta: float) -> float:
    """The largest ε₀ of k-ary responses such that the shuffled ones are (ε, δ)-DP, to a relative 1e-6, rounded down.

    Examples
    --------
    >>> round(response_local_epsilon(10, 2000, 0.5, 1e-6), 2)
    3.13
    """
    least = local_epsilon(users, epsilon, delta)
    if delta == 0:
        return least

    def meets(at: float) -> bool:
        return response_delta(at, categories, users, epsilon) <= delta

    low, high = least, 1.1 * least
    while high < 50 and meets(high):
        low, high = high, 1.1 * high
    while high - low > 1e-6 * low:
        middle = (low + high) / 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low

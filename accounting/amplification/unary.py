"""Unary encodings behind a shuffler, from above and from below.

A user who holds one of k ≥ 3 values sends k bits, each drawn for itself: that of the value is 1 with probability p, any
other one with probability q < p. With e = p(1 − q)/(q(1 − p)) a message costs ln e. The optimized encoding has p = ½,
q = 1/(e + 1) (Wang, Blocki, Li & Jha 2017), the symmetric one p = 1 − q, q = 1/(√e + 1) (Erlingsson, Pihur & Korolova
2014). Let E = e^ε, and compare a user who holds 0 with one who holds 1; all pairs of values are alike.

Against the law of k bits that are 1 with probability q each, the one of a user who holds x has the density
a·(1 + (e − 1)·bit x), a = (1 − p)/(1 − q) < 1.

**From above** (the blanket of Balle, Bell, Gascón & Nissim 2019, as for k-ary responses in
:mod:`accounting.amplification.blanket`). So whatever the others hold, with probability a the message is one of bits
that are all 1 with probability q. Reveal the messages that are not. N ~ Bin(n − 1, a) such messages stay, and the one
user's, in random order. Of these M = N + 1 let c₀ and c₁ be the counts of bits 0 and 1, independent and Bin(M, q)
where all messages are of that kind; relative to it the two views have densities (a/M)(M + (e − 1)c₀) and
(a/M)(M + (e − 1)c₁), hence

    δ_M = (a/M)·E[((e − 1)c₀ − E(e − 1)c₁ − (E − 1)M)₊].

δ_M falls as M grows, as more such messages are a post-processing, so N may be rounded down.

**From below.** Let all others hold the same third value, 2 say. Relative to messages that all are for 2 the one user's
has the density e^(bit 0 − bit 2), or e^(bit 1 − bit 2), so that δ = (1/n)·E[(Σ W)₊] of n independent
W = (e^(bit 0) − E·e^(bit 1))·e^(−bit 2), where bits 0 and 1 are 1 with probability q and bit 2 with p. It is exactly
what these users' messages cost (the other bits tell nothing). Sums of few values that differ much are far apart on any
grid; so the same is found, as for k-ary responses, where only three messages are told apart: one of bits 0 and 1, or
the other, or neither or both (and without bit 2, where that says more). And let all others hold 0: then W is
1 − E·e^(bit 1 − bit 0), where bit 0 is 1 with probability p and bit 1 with q. It has three values too.

Numbers. From above: given c₁ the mean over c₀ is one of incomplete beta functions, and convex in c₁. So c₁ may be
spread over a grid with its mean kept, which adds to δ, by a part in a thousand, as cells are a small share of a
standard deviation. From below: :mod:`accounting.amplification.lattice_sums`.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np

from accounting.amplification.blanket import (
    LEFT_OUT,
    MOST_USERS,
    binomial_window,
    counts_delta,
    gains,
    mean_delta,
    positive_part,
    same_delta_at_least,
)
from accounting.amplification.lattice_sums import FINENESS, MOST_NODES, nodes_for, sums_of_values
from accounting.arrays import Array
from accounting.masses import onto_lattice

__all__ = ["unary_bits", "unary_delta", "unary_delta_at_least", "unary_thirds", "unary_types"]


# Cells of c₁ in one standard deviation.
_CELLS = 16
_BETA_ERROR = 1e-12
# An encoding of more than this hides nothing that could be computed.
_MOST_EPSILON = 30.0


def unary_bits(epsilon0: float, optimized: bool) -> tuple[float, float]:
    """p and q: with which probabilities the bit of the value, and any other bit, is 1.

    Examples
    --------
    >>> [round(probability, 4) for probability in unary_bits(1.0, optimized=True)]
    [0.5, 0.2689]
    >>> [round(probability, 4) for probability in unary_bits(1.0, optimized=False)]
    [0.6225, 0.3775]
    """
    if optimized:
        return 0.5, math.exp(-epsilon0) / (1 + math.exp(-epsilon0))
    return 1 / (1 + math.exp(-epsilon0 / 2)), math.exp(-epsilon0 / 2) / (1 + math.exp(-epsilon0 / 2))


def _blanket(epsilon0: float, optimized: bool) -> float:
    """a = (1 − p)/(1 − q)."""
    return (1 + math.exp(-epsilon0)) / 2 if optimized else math.exp(-epsilon0 / 2)


def unary_types(epsilon0: float, optimized: bool) -> tuple[Array, Array, Array, float]:
    """What bits 0 and 1 may be: the probability of each if both are 1 at the rate q, and the densities of a message for
    0 and for 1 relative to a times that; and a."""
    q, e = unary_bits(epsilon0, optimized)[1], math.exp(epsilon0)
    mass = np.array([q * (1 - q), (1 - q) * q, (1 - q) ** 2, q * q])
    return mass, np.array([e, 1.0, 1.0, e]), np.array([1.0, e, 1.0, e]), _blanket(epsilon0, optimized)


def unary_thirds(epsilon0: float, optimized: bool) -> tuple[float, float, float]:
    """The probabilities of a message with one of two bits: from who holds a third value, the bit's, the other one's.

    Where it says more, of one that does not have the third value's bit either.
    """
    p, q = unary_bits(epsilon0, optimized)
    rest = (1 - p, 1 - q) if (1 - q) ** 2 > 1 - p else (1.0, 1.0)
    return rest[0] * q * (1 - q), rest[1] * p * (1 - q), rest[1] * (1 - p) * q


def _counts(trials: int, rate: float) -> tuple[Array, Array]:
    """Values of Bin(trials, rate), spread over a grid, with their probabilities."""
    counts, mass = binomial_window(trials, rate)
    width = math.floor(math.sqrt(trials * rate * (1 - rate)) / _CELLS)
    if width < 2:
        return counts, mass
    spread = onto_lattice((counts - counts[0]) / width, mass)
    return counts[0] + width * np.arange(spread.size, dtype=np.float64), spread


def _delta_of(messages: int, scale: float, rate: float, epsilon0: float, epsilon: float) -> float:
    """(scale/M)·E[((e − 1)c₀ − E(e − 1)c₁ − (E − 1)M)₊], rounded up."""
    step, grown = math.expm1(epsilon0), math.exp(epsilon)
    counts, mass = _counts(messages, rate)
    trials = np.full_like(counts, messages)
    gained, lost = positive_part(trials, step, grown * step * counts + math.expm1(epsilon) * messages, rate=rate)
    total = float(mass @ (gained - lost)) + _BETA_ERROR * float(mass @ (gained + lost))
    return scale / messages * total + LEFT_OUT * scale * step


@lru_cache(maxsize=4096)
def unary_delta(epsilon0: float, optimized: bool, users: int, epsilon: float) -> float:
    """δ at ε ≥ 0 of n shuffled unary encodings, rounded up.

    Examples
    --------
    >>> round(unary_delta(1.0, True, 10_000, 0.02975) * 1e6, 1)
    1.0
    """
    if epsilon >= epsilon0:
        return 0.0
    if epsilon0 > _MOST_EPSILON:
        return 1.0
    rate, blanket = unary_bits(epsilon0, optimized)[1], _blanket(epsilon0, optimized)
    return mean_delta(users, blanket, lambda n: _delta_of(n, blanket, rate, epsilon0, epsilon))


def unary_delta_at_least(epsilon0: float, optimized: bool, users: int, epsilon: float) -> float:
    """δ at ε ≥ 0 of n shuffled unary encodings where the others hold one and the same value, rounded down.

    Examples
    --------
    >>> round(unary_delta_at_least(1.0, True, 10_000, 0.0268) * 1e6, 1)
    1.0
    """
    if epsilon >= epsilon0 or users > MOST_USERS or epsilon0 > _MOST_EPSILON:
        return 0.0
    (p, q), e, grown = unary_bits(epsilon0, optimized), math.exp(epsilon0), math.exp(epsilon)
    first, second, third = (np.array(bits) for bits in zip(*itertools.product((0, 1), repeat=3), strict=True))
    mass = np.prod([np.where(bit, rate, 1 - rate) for bit, rate in ((first, q), (second, q), (third, p))], axis=0)
    values = (e**first - grown * e**second) * e ** (-1.0 * third)
    nodes = min(MOST_NODES, max(nodes_for(users, FINENESS), 1 << 15))
    whole = sums_of_values(values, mass, users, nodes, -1.0) / users
    A, B, g = gains(epsilon0, epsilon)
    other, mine, its = unary_thirds(epsilon0, optimized)
    seen = its / other * A, its / other * B, (1 - mine - its) / (1 - 2 * other) * g
    three = counts_delta(users, 1.0, 2 * other, (0.5, 0.5), seen, -1.0)
    return max(0.0, whole, three, same_delta_at_least(epsilon0, q * (1 - p), users, epsilon))

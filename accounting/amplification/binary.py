"""Binary randomized response behind a shuffler: what it costs, to about a part in a thousand.

Every user says the truth with probability q = e/(e + 1) and the other value with probability p = 1/(e + 1), e = e^ε₀.
Of the m = n − 1 others let k hold 1. What the shuffler puts out is how many say 1: S + T, where S ~ Bin(k, q) +
Bin(m − k, p), and T is the one user's coin, of rate q or p. Let E = e^ε, 0 ≤ ε < ε₀, a = q − E·p > 0 and
e^λ − 1 = (E − 1)/a. With s the pmf of S,

    P(x) − E·Q(x) = a·s(x − 1) − (a + E − 1)·s(x) = a·e^λ·(e^(−λ)·s(x − 1) − s(x)).

**One k.** Let t(x) = s(x)·e^(λx − K), K = ln E[e^(λS)]: the law of a sum of coins whose rates are q·e^λ/(p + q·e^λ) in
place of q, and the same with p and q exchanged. Then P − E·Q at x is a·e^(K + λ(1 − x))·(t(x − 1) − t(x)), which counts
where t falls. As t is log-concave, it falls beyond its mode, which is one of the two integers next to its mean μ
(Darroch 1964). Sums over x > j telescope, and the largest of them is

    δ_k(ε) = max over j of a·e^(K − λj)·(t(j) − (e^λ − 1)·Σ over i ≥ 1 of e^(−λi)·t(j + i)),

with j the mode; three integers around μ are tried. To exchange the one user's values is to replace k by m − k.

**All k.** For k₁ ≤ k ≤ k₂ reveal the coins of k₂ − k₁ others. The view at k is that of Bin(k₁, q) + Bin(m − k₂, p) + T
with independent coins added, a post-processing. So the largest δ over stretches that cover 0 … m is an upper bound.
A stretch costs no more than k₂ − k₁ fewer users do; few users are taken one k at a time. From below any k will do:
those at which stretches end, m among them, which is the worst but for a few percent of δ.

The largest δ_k at every ε is symmetric and a pair's curve may be laid through it: see
:mod:`accounting.loss.curves`.

**Numbers.** Let f be the characteristic function of t, and w(u) = 1 − (e^λ − 1)·Σ over i = 1 … H of e^(−(λ + iu)i). The
mean of f(u)·e^(−iju)·w(u) over the 2H multiples u of π/H is the sum above with t's values that are 2H apart added up,
and without i > H. That concerns values at a distance of H or more from j, whose probability Bernstein's inequality
bounds; it counts at most twice. With V the variance, |f(u)| ≤ e^(−V(1 − cos u)), so that most u are left out; as
|w| ≤ 2, they count at most 2e^(−V(1 − cos u)) for the first of them. Some sixty u are left for any number of users. A
coin's image 1 + θ(e^(iu) − 1) is right to some units of roundoff times |θ(e^(iu) − 1)|, so the product of all is right
to the sum of these, each over the size of its image.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array

__all__ = ["binary_delta", "binary_delta_at_least"]


# More users than this are priced as this many.
_MOST_USERS = 10**9
# Stretches of k, and how many of them share their nodes.
_STRETCHES, _TOGETHER = 1024, 128
# What is left out has a probability of at most a few e^(−this).
_RARE = 40.0
# Relative errors granted to elementary operations.
_ROUNDING = 64 * 2.0**-52
# A coin's image is taken to be at least this large.
_TINY = 1e-20


def _log_image(rate: float, rest: float, u: Array) -> tuple[Array, Array, Array]:
    """ln |z| and the angle of z = 1 + rate·(e^(iu) − 1), and |z − 1|; ``rest`` is 1 − rate."""
    sine = np.sin(u / 2)
    fall = 4 * rate * rest * sine**2  # 1 − |z|²
    square = (rest - rate) ** 2 + 4 * rate * rest * np.cos(u / 2) ** 2 + _TINY**2
    size = np.where(fall < 0.5, 0.5 * np.log1p(-np.minimum(fall, 0.5)), 0.5 * np.log(square))
    return size, np.arctan2(rate * np.sin(u), 1 - 2 * rate * sine**2), 2 * rate * sine


def _weights(number: Array, half: int, grown: float) -> tuple[NDArray[np.complex128], Array]:
    """w(u) at u = ``number``·π/H times u's share in the mean over the circle, where −u counts too; and its size."""
    u, tilt = math.pi / half * number, math.log1p(grown)
    far = (1 + grown) * (-2 * np.sin(u / 2) ** 2 + 1j * np.sin(u))  # e^(λ + iu) − e^λ
    cut = grown * np.where(number % 2, -1.0, 1.0) * math.exp(-tilt * half)
    parts = np.array([far, cut]) / np.where(number > 0, far + grown, 1.0)
    parts[:, 0] = 0.0, math.exp(-tilt * half)
    share = np.where((number == 0) | (number == half), 0.5, 1.0) / half
    return share * parts.sum(axis=0), share * np.abs(parts).sum(axis=0)


def _together(local: float, epsilon: float, ones: Array, zeros: Array, sign: float) -> float:
    """The largest δ where ``ones`` others hold 1 and ``zeros`` others 0, rounded up or down by ``sign``."""
    truth, lie = 1 / (1 + math.exp(-local)), math.exp(-local) / (1 + math.exp(-local))
    gain = math.exp(epsilon) * math.expm1(local - epsilon) * lie
    grown = math.expm1(epsilon) / gain
    rates = [(x * (1 + grown) / (1 + x * grown), y / (1 + x * grown)) for x, y in ((truth, lie), (lie, truth))]
    mean = ones * rates[0][0] + zeros * rates[1][0]
    variance = ones * math.prod(rates[0]) + zeros * math.prod(rates[1])
    # Bernstein: r² = 2·_RARE·(V + r/3); the mode and its neighbours are closer than 2 to the mean
    half = math.ceil(_RARE / 3 + math.sqrt(_RARE**2 / 9 + 2 * _RARE * float(variance.max()))) + 3
    least = float(variance.min())
    reach = math.acos(1 - _RARE / least) if least > _RARE / 2 else math.pi
    number = np.arange(min(half, math.ceil(reach * half / math.pi)) + 1, dtype=np.float64)
    u = math.pi / half * number
    (size1, angle1, far1), (size0, angle0, far0) = (_log_image(*rate, u) for rate in rates)
    mode = np.rint(mean)
    angle = np.multiply.outer(ones, angle1) + np.multiply.outer(zeros, angle0) - np.multiply.outer(mode, u)
    size = np.exp(np.multiply.outer(ones, size1) + np.multiply.outer(zeros, size0))
    doubt = np.multiply.outer(ones, far1 * np.exp(-size1)) + np.multiply.outer(zeros, far0 * np.exp(-size0))
    doubt = size * (doubt + np.multiply.outer(mode + 1, u) + 4 + u.size / 16)
    weights, weight_sizes = _weights(number, half, grown)
    shifts = np.array([-1.0, 0.0, 1.0])
    found = (size * np.exp(1j * angle) @ (weights[:, None] * np.exp(-1j * np.multiply.outer(u, shifts)))).real
    # values that are added up or left out, u that are left out, and rounding
    found += sign * (10 * math.exp(-_RARE) + _ROUNDING * (doubt @ weight_sizes))[:, None]
    at = mode[:, None] + shifts
    log_moment = (ones * math.log1p(truth * grown) + zeros * math.log1p(lie * grown))[:, None]
    slack = _ROUNDING * (4 + log_moment + math.log1p(grown) * np.abs(at))
    scale = gain * np.exp(np.minimum(log_moment - math.log1p(grown) * at + sign * slack, 700.0))
    return float(np.max(np.maximum(found, 0.0) * scale, initial=0.0))


def _largest(local: float, epsilon: float, users: int, sign: float) -> float:
    """The largest δ of all stretches of k, or of where they end."""
    edges = (np.arange(min(_STRETCHES, users) + 1) * users // min(_STRETCHES, users)).astype(np.float64)
    last = edges[1:] - 1
    first = edges[:-1] if sign > 0 else last
    cuts = (slice(at, at + _TOGETHER) for at in range(0, last.size, _TOGETHER))
    return max(_together(local, epsilon, first[some], users - 1 - last[some], sign) for some in cuts)


def binary_delta(epsilon0: float, users: int, epsilon: float) -> float:
    """δ at ε ≥ 0 of n shuffled binary responses, rounded up.

    Examples
    --------
    >>> round(binary_delta(1.0, 10_000, 0.0357) * 1e6, 1)
    1.0
    """
    return 0.0 if epsilon >= epsilon0 else min(1.0, _largest(epsilon0, epsilon, min(users, _MOST_USERS), 1.0))


def binary_delta_at_least(epsilon0: float, users: int, epsilon: float) -> float:
    """δ at ε ≥ 0 of n shuffled binary responses, rounded down; 0 of too many."""
    return 0.0 if epsilon >= epsilon0 or users > _MOST_USERS else _largest(epsilon0, epsilon, users, -1.0)

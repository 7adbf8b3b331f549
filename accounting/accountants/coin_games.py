"""Many choices by noisy maxima, one after another: what they cost together when each follows the others.

A mechanism whose privacy loss lies in an interval of length s is at least as private as a coin with the losses t and
t − s, for some t (Dong, Durfee & Rogers 2020). So the worst that k such mechanisms can do, where each may depend on the
outcomes before it, is a game with one player:

    V₀(x) = (1 − e^x)₊,    V_k(x) = max over t of p·V_{k−1}(x − t) + (1 − p)·V_{k−1}(x − t + s),

p the probability of the loss t: given the losses so far, x is what is left of ε. Then δ(ε) ≤ V_k(ε). For
report-noisy-max with Gumbel noise s = ε₀ and 0 ≤ t ≤ ε₀ (Cesar & Rogers 2021), and two scores are such a coin for every
t, so that this is exact. With exponential noise the coins of two scores are another curve, and as exact
(:mod:`accounting.accountants.permute_and_flip`). With Laplace noise s = 1.28ε₀
(:mod:`accounting.accountants.laplace_maxima`), and as that is pure DP, s − ε₀ ≤ t ≤ ε₀.
One pair that dominates a single choice for all ε (``SpanPair``) is worse than any coin, and its compositions are up to
15 % dearer; the best single t for all of them is a little cheaper than the truth.

*Samples.* Where the unit is read with probability q, e^L − 1 is q times what it was, or the two neighbours change
places. A mean E_Q[f(1 − q + qe^L)] is one of a convex function of e^L again, so the same coins are the worst ones.

*From above.* V_k is convex in y = e^x, as a maximum of such functions. On a lattice of step h let V̂ be an upper bound,
interpolated linearly in y; that remains one. With u = e^(−t) the coin has the probability p = c − c′/u of the high loss,
and the neighbour's p′ = du − d′: with an interval of length s, E = e^s, c = d = E/(E − 1) and c′ = d′ = 1/(E − 1). Where
V̂ is a₁ + b₁y′ around the first of the two points y′ at which it is asked for, and a₀ + b₀y′ around the second, the value
is

    a₀ + b₀y + (qp + (1 − q)p′)(a₁ − a₀) + p′(b₁ − b₀)y,

a constant and multiples of u and 1/u; where the neighbours change places a and by do. The points change their cells
where a loss is a multiple of h. So the maximum over all t is one over finitely many cells, in each of which it is at an
end or where the derivative is 0. Below the lattice V̂ is 1, above it the last value. What the lattice adds is of second
order in h.

*Kinds beside one another.* V_k is the curve of a pair D_k, as it is convex. D_k yields the answers to every adaptive
strategy: given a coin, the coin followed by D_{k−1} has the curve p·V_{k−1}(x − t) + …, which is at most V_k for every
x; so by Blackwell's theorem both can be drawn from a draw of D_k, and so on with D_{k−1}. Choices of another kind have
draws of their own, and all else has its pair. So whoever plays several kinds in any order, however one choice follows
the outcomes of all others, only processes one draw of each: the total is dominated by the product of the pairs (a case
of the concurrent composition of Vadhan & Zhang 2023). From below: :mod:`accounting.accountants.lattice_games`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["CoinKind", "Kind", "Played", "is_playable", "played_curve", "played_delta", "played_epsilon"]

Array = NDArray[np.float64]

# More choices than this take too long; of smaller losses differences over a cell lose too many digits; a larger sum has
# numbers that are beyond floats.
_MOST_CHOICES, _LEAST, _MOST_SUM = 2000, 5e-7, 300.0
_MOST_ROUNDING = 1e-4
_UNIT_ROUNDOFF = 2.0**-52


class Kind:
    """Coins with the losses h(t) and −l(t), ``first`` ≤ t ≤ ``last``, one rising and one falling, on a sample."""

    rate: float
    present: bool

    @property
    def ends(self) -> tuple[float, float]:
        """The first and the last t."""
        raise NotImplementedError

    @property
    def longest(self) -> float:
        """How far the two losses of the longest coin are apart, without sampling."""
        raise NotImplementedError

    def plain(self, t: Array) -> tuple[Array, Array]:
        """h and l."""
        raise NotImplementedError

    def inverses(self, high: Array, low: Array) -> tuple[Array, Array]:
        """The t of each h, and of each l; an end or what lies beyond where there is none."""
        raise NotImplementedError

    def chances(self) -> tuple[float, float, float, float]:
        """c, c′, d, d′ such that with u = e^(−t) P has c − c′/u at the high loss, and Q du − d′."""
        raise NotImplementedError

    def losses(self, t: Array) -> tuple[Array, Array]:
        """The high loss and minus the low one of every t, on the sample."""
        high, low = self.plain(t)
        if self.rate < 1:
            high, low = np.log1p(self.rate * np.expm1(high)), -np.log1p(self.rate * np.expm1(-low))
        return (high, low) if self.present else (low, high)

    @property
    def width(self) -> float:
        """How far the two losses of the middle coin are apart."""
        high, low = self.losses(np.array([sum(self.ends) / 2]))
        return float(high[0] + low[0])

    @property
    def highest(self) -> float:
        """The largest loss of all."""
        high, _ = self.losses(np.array(self.ends))
        return float(high.max())


@dataclass(frozen=True)
class CoinKind(Kind):
    """The coins with losses t and t − ``span``, ``least`` ≤ t ≤ ``span`` − ``least``, on a sample of ``rate``."""

    span: float
    least: float = 0.0
    rate: float = 1.0
    present: bool = True

    @property
    def ends(self) -> tuple[float, float]:
        return self.least, self.span - self.least

    @property
    def longest(self) -> float:
        return self.span

    def plain(self, t: Array) -> tuple[Array, Array]:
        return t, self.span - t

    def inverses(self, high: Array, low: Array) -> tuple[Array, Array]:
        return high, self.span - low

    def chances(self) -> tuple[float, float, float, float]:
        one, grown = 1 / math.expm1(self.span), -1 / math.expm1(-self.span)
        return grown, one, grown, one


#: One kind, and how often it is played.
Played = tuple[Kind, int]


def is_playable(kind: Kind, count: int) -> bool:
    """Whether there are answers: more than one choice, and neither too many nor too weak or strong ones."""
    if not 1 < count <= _MOST_CHOICES or not kind.rate * kind.longest**2 >= _LEAST or count * kind.highest > _MOST_SUM:
        return False
    # on rare samples of strong releases the losses are nothing like normal, and the lattice would be too coarse
    return count * _rounding(kind, _fineness(kind, count)) < _MOST_ROUNDING and (kind.rate == 1.0 or kind.longest <= 2.0)


def _rounding(kind: Kind, cells: int) -> float:
    """What one step may round, relative to the value: b·y is right to a unit over a cell, and is divided by E − 1."""
    return 1e-10 + 64 * _UNIT_ROUNDOFF * cells / (kind.rate * min(kind.longest, 1.0) ** 2)


def _fineness(kind: Kind, count: int) -> int:
    """Cells of the width of a coin: the work is about count^1.5 times its square, and more of samples."""
    if count > 300:
        return 14 if kind.rate == 1.0 else 10
    return 256 if count <= 4 else 64 if count <= 10 else 32 if count <= 60 else 20


#: Two values of u, in between which the high loss is in the i-th cell and minus the low one in the k-th.
_Cell = tuple[float, float, int, int]


def _cells(kind: Kind, step: float) -> list[_Cell]:
    """All of them, in order."""
    first, last = kind.ends
    high, low = kind.plain(np.array([first, last]))

    def between(ends: Array) -> Array:
        """The losses from one to the other that are multiples of the step on a sample."""
        least, most = (np.log1p(kind.rate * np.expm1(ends)) / step).tolist()
        multiples = step * np.arange(math.ceil(least - 1e-9), math.floor(most + 1e-9) + 1)
        return np.log1p(np.maximum(np.expm1(multiples) / kind.rate, -1.0))

    with np.errstate(invalid="ignore", divide="ignore"):
        inside = kind.inverses(between(high), -between(-low))
    t = np.unique(np.clip(np.concatenate([[first, last], *inside]), first, last))
    t = t[np.concatenate([[True], np.diff(t) > 1e-11 * kind.longest])]
    t[-1] = last
    high, low = kind.plain((t[:-1] + t[1:]) / 2)
    losses = np.log1p(kind.rate * np.expm1(high)), -np.log1p(kind.rate * np.expm1(-low))
    places = (np.floor(x / step).astype(int).tolist() for x in losses)
    u = np.exp(-t)
    return list(zip(u[1:].tolist(), u[:-1].tolist(), *places, strict=True))


def _best_coin(values: Array, y: Array, kind: Kind, cells: list[_Cell], rounding: float) -> Array:
    """The best of all coins, of ``values`` that are interpolated."""
    n, q = values.size, kind.rate
    c, c1, d, d1 = kind.chances()
    slope = np.diff(values) / np.diff(y)
    level = values[1:] - slope * y[1:]
    pad = 2 + max(max(i, k) for _, _, i, k in cells)
    slopes = np.concatenate([np.zeros(pad), slope, np.zeros(pad)])
    levels = np.concatenate([np.ones(pad), level, np.full(pad, values[-1])])
    best = np.zeros(n)
    for low, high, i, k in cells:
        first, second = (pad - i - 1, pad + k) if kind.present else (pad + i, pad - k - 1)
        a1, b1 = levels[first : first + n], slopes[first : first + n] * y
        a0, b0 = levels[second : second + n], slopes[second : second + n] * y
        if not kind.present:
            a1, b1, a0, b0 = b1, a1, b0, a0
        # a0 + b0 + (qP + (1 − q)Q)(a1 − a0) + Q(b1 − b0) with P and Q of the first
        a, b = a0 - a1, b1 - b0
        down, up = (q * c1) * a, d * b
        fixed = a0 + b0
        fixed -= ((q * c) - (1 - q) * d1) * a
        fixed -= d1 * b
        if q < 1:
            up -= ((1 - q) * d) * a
        # both are negative, but for rounding errors
        u = np.sqrt(down / np.minimum(up, -1e-300))
        np.fmin(np.fmax(u, low, out=u), high, out=u)
        up *= u
        down /= u
        fixed += up
        fixed += down
        np.maximum(best, fixed, out=best)
    return np.minimum(np.maximum(best, values) * (1 + rounding), 1.0)


def lattice(deviation: float, most: float, centre: float, step: float, margin: int) -> tuple[Array, int]:
    """Points around ``centre``, and the place of ``centre`` among them."""
    # from four deviations below 0 to four above ``centre``: what happens beyond is rarer than the lattice is fine
    spread = min(4 * deviation, most)
    below, above = math.ceil((centre + spread) / step) + margin, math.ceil(spread / step) + margin
    return centre + step * np.arange(-below, above + 1, dtype=np.float64), below


@lru_cache(maxsize=64)
def played_curve(kind: Kind, count: int) -> tuple[Array, Array]:
    """Values x, evenly spaced, and δ of ``count`` choices at ε = x, rounded up; until it matters no more.

    0 is one of them, and the first are below: there the two neighbours' roles are what matters.
    """
    cells = _fineness(kind, count)
    step, deviation, most = kind.width / cells, math.sqrt(count) * kind.width / 2, count * kind.highest
    top = min(most, 10.0 * deviation + count * kind.width**2 / 8)
    centre = step * math.ceil(top / step)
    x, _ = lattice(deviation, most, centre, step, cells)
    y = np.exp(x)
    values = np.maximum(-np.expm1(x), 0.0)
    rounding, places = _rounding(kind, cells), _cells(kind, step)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for _ in range(count):
            values = _best_coin(values, y, kind, places, rounding)
    return x, values


def played_delta(kind: Kind, count: int, epsilon: float) -> float:
    """δ of ``count`` choices at ``epsilon`` ≥ 0, rounded up; of no use where it is below 1e-40.

    Examples
    --------
    >>> round(played_delta(CoinKind(0.1), 100, 2.2536) * 1e6, 2)
    1.0
    """
    if epsilon >= count * kind.highest * (1 + 1e-12):
        return 0.0
    x, values = played_curve(kind, count)
    at = int(np.searchsorted(x, epsilon, side="right"))
    if at >= x.size:
        return float(values[-1])
    # linear in e^ε
    share = math.expm1(epsilon - x[at - 1]) / math.expm1(x[at] - x[at - 1])
    return float(values[at - 1] + share * (values[at] - values[at - 1])) * (1 + 1e-12)


def played_epsilon(kind: Kind, count: int, delta: float, about: float) -> float:
    """ε of ``count`` choices at ``delta``, the inverse of :func:`played_delta`; at most ``about``, an upper bound.

    Examples
    --------
    >>> round(played_epsilon(CoinKind(0.1), 100, 1e-6, 2.4), 3)
    2.254
    """
    if played_delta(kind, count, 0.0) <= delta:
        return 0.0
    x, values = played_curve(kind, count)
    if values[-1] >= delta:
        return about
    last = int(np.flatnonzero(values > delta)[-1])
    share = (values[last] - delta) / (values[last] - values[last + 1])
    found = float(x[last]) + math.log1p(float(share) * math.expm1(float(x[last + 1] - x[last])))
    return max(0.0, min(about, found + 1e-11 * abs(found)))

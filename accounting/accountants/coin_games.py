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

__all__ = ["MOST_CHOICES", "CoinKind", "Kind", "Played", "is_playable", "played_curve", "played_delta", "played_epsilon"]

Array = NDArray[np.float64]

# More choices than this are played in several games, as a finer lattice gains more than they lose. Weaker ones are next
# to nothing, and e^x of larger losses is beyond floats.
MOST_CHOICES, _LEAST, _LARGEST = 250, 1e-12, 600.0
_UNIT_ROUNDOFF = 2.0**-52
# What the lattice may add to ε, as a share of it; and points times cells times choices, a second or two.
_ADDED, _MOST_WORK = 4e-4, 5e7
# Near the largest sum that there is, ε hardly depends on δ: there this times the largest loss is fine enough.
_HIGHEST_ORDER = 30.0
# A curve is followed down to e^(−this); and at losses below this V is 1, nearly.
_FAINT, _LOWEST, _MARGIN = 69.0, 14.0, 64


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

    def chances(self, u: Array, s: Array, rest: Array) -> tuple[Array, Array]:
        """Of u = e^(−t), s = 1 − u and ``rest`` = u − e^(−E): Q at the high loss, and P less Q.

        E is :attr:`exponent`, and P less Q is a constant less a multiple of u + e^(−E)/u, Q one more multiple of u.
        """
        raise NotImplementedError

    @property
    def exponent(self) -> float:
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

    @property
    def exponent(self) -> float:
        return self.span

    def chances(self, u: Array, s: Array, rest: Array) -> tuple[Array, Array]:
        share = rest / -math.expm1(-self.span)
        return share, share * s / u


#: One kind, and how often it is played.
Played = tuple[Kind, int]


def is_playable(kind: Kind, count: int) -> bool:
    """Whether there are answers: more than one choice, not too many, and not next to nothing."""
    if not 1 < count <= MOST_CHOICES or kind.rate * kind.longest < _LEAST or kind.longest > 40.0:
        return False
    return count * kind.highest < _LARGEST or _extent(kind, count)[1] < _LARGEST


def _moments(kind: Kind) -> tuple[Array, Array]:
    """Orders, and the largest ln E[e^(order·L)] of all coins at each."""
    t = np.linspace(*kind.ends, 65)
    high, low = kind.losses(t)
    # of the law under which L is taken; e^(−low) may be all that is left of the other's
    with np.errstate(divide="ignore", over="ignore"):
        wins, both = np.log(-np.expm1(-low)), np.log(-np.expm1(-low - high))
        loses = np.log(-np.expm1(-high)) - low
        orders = np.geomspace(1e-2, 1e3, 80) / kind.highest
        moments = [float(np.max(np.logaddexp(wins + r * high, loses - r * low) - both)) for r in orders.tolist()]
    return orders, np.maximum(moments, 1e-300)


@lru_cache(maxsize=256)
def _extent(kind: Kind, count: int) -> tuple[float, float, float]:
    """How far below and above 0 the lattice goes, and its step: what it adds to ε is about count·order·step²/12."""
    orders, moments = _moments(kind)
    most = count * kind.highest
    # (Chernoff), also where each choice follows the others
    above = min(most, float(np.min((count * moments + _FAINT) / orders)))
    # two moments near 0 tell the variance
    deviation = math.sqrt(2 * count * float(moments[0]) / float(orders[0]) / (1 + float(orders[0])))
    below = min(most, 4 * deviation + 2 * kind.highest, _LOWEST)
    steps = []
    for fall in (6.0, 35.0):
        at = int(np.argmin((count * moments + fall) / orders))
        epsilon = min(most, float((count * moments[at] + fall) / orders[at]))
        order = min(float(orders[at]), _HIGHEST_ORDER / kind.highest)
        steps.append(math.sqrt(12 * _ADDED * epsilon / (count * order)))
    high, low = kind.losses(np.array(kind.ends))
    cells = min(float(np.ptp(high)), above + below) + min(float(np.ptp(low)), above + below)
    fastest = math.sqrt(count * cells * (above + below) / _MOST_WORK)
    return below, above, max(min(*steps, kind.width / 8), fastest)


def _rounding(cells: list[_Cell]) -> float:
    """What one step may round, relative to the value.

    V less V at the next point is right to a unit of V, and is taken as many times as a loss has cells.
    """
    return 64 * _UNIT_ROUNDOFF * (4 + max(i + k for _, _, i, k in cells))


#: Two values of t, in between which the high loss is in the i-th cell and minus the low one in the k-th.
_Cell = tuple[float, float, int, int]


def _cells(kind: Kind, step: float, most: int) -> list[_Cell]:
    """All of them, in order; ``most`` cells on, the lattice has ended."""
    start, end = kind.ends
    high, low = kind.plain(np.array([start, end]))

    def between(ends: Array) -> Array:
        """The losses from one to the other that are multiples of the step on a sample."""
        first, last = (np.log1p(kind.rate * np.expm1(ends)) / step).tolist()
        multiples = step * np.arange(max(math.ceil(first - 1e-9), -most), min(math.floor(last + 1e-9), most) + 1)
        return np.log1p(np.maximum(np.expm1(multiples) / kind.rate, -1.0))

    with np.errstate(invalid="ignore", divide="ignore"):
        inside = kind.inverses(between(high), -between(-low))
    t = np.unique(np.clip(np.concatenate([[start, end], *inside]), start, end))
    t = t[np.concatenate([[True], np.diff(t) > 1e-11 * kind.longest])]
    t[-1] = end
    high, low = kind.plain((t[:-1] + t[1:]) / 2)
    losses = np.log1p(kind.rate * np.expm1(high)), -np.log1p(kind.rate * np.expm1(-low))
    places = (np.minimum(np.floor(x / step), most).astype(int).tolist() for x in losses)
    return list(zip(t[:-1].tolist(), t[1:].tolist(), *places, strict=True))


def _best_coin(values: Array, kind: Kind, cells: list[_Cell], step: float, rounding: float) -> Array:
    """The best of all coins, of ``values`` that are interpolated."""
    n, q, left = values.size, kind.rate, math.exp(-kind.exponent)
    gone, weak = -math.expm1(-kind.exponent), kind.exponent < 1
    pad = 2 + max(max(i, k) for _, _, i, k in cells)
    # linear from y = 0, where it is 1, to the first point
    before = 1 - (1 - values[0]) * np.exp(step * np.arange(-pad, 0, dtype=np.float64))
    whole = np.concatenate([before, values, np.full(pad, values[-1])])
    # V̂ is V + D(y′/y − 1) from a point y on
    drops = np.append(np.diff(whole) / math.expm1(step), 0.0)
    drops[: pad] = -(1 - whole[:pad])
    best = values.copy()

    def seen(cell: int) -> tuple[Array, Array]:
        """V̂ around the point ``cell`` cells further, at this one; and what multiplies P − Q of it."""
        at = slice(pad + cell, pad + cell + n)
        v, d, away = whole[at], drops[at], -cell * step
        return v + math.expm1(away) * d, (v - d if kind.present else math.exp(away) * d)

    last: tuple[tuple[int, Array, Array], tuple[int, Array, Array]] | None = None
    for t_low, t_high, i, k in cells:
        first, second = (-i - 1, k) if kind.present else (i, -k - 1)
        one = last[0] if last and last[0][0] == first else (first, *seen(first))
        other = last[1] if last and last[1][0] == second else (second, *seen(second))
        last = one, other
        # V̂₀ + Q·a + (P − Q)·b/q, which is concave in u
        a, b = one[1] - other[1], q * (one[2] - other[2])
        slope = np.maximum(b - a, 1e-300)
        if weak:
            bend = (gone * b - a) / slope
            s = bend / (1 + np.sqrt(np.maximum(1 - bend, 0.0)))
            np.clip(s, -math.expm1(-t_low), -math.expm1(-t_high), out=s)
            u, rest = 1 - s, gone - s
        else:
            u = np.sqrt(np.maximum(left * b, 0.0) / slope)
            np.clip(u, math.exp(-t_high), math.exp(-t_low), out=u)
            s, rest = 1 - u, u - left
        share, more = kind.chances(u, s, rest)
        share *= a
        more *= b
        share += more
        share += other[1]
        np.maximum(best, share, out=best)
    return np.minimum(best * (1 + rounding), 1.0)


@lru_cache(maxsize=64)
def played_curve(kind: Kind, count: int) -> tuple[Array, Array]:
    """Values x, evenly spaced, and δ of ``count`` choices at ε = x, rounded up; until it matters no more.

    0 is one of them, and the first are below: there the two neighbours' roles are what matters.
    """
    below, above, step = _extent(kind, count)
    # beyond the largest sum V̂ is not 0, but for a cell with every choice
    margin = 1 + min(count, _MARGIN)
    x = step * np.arange(-math.ceil(below / step) - 1, math.ceil(above / step) + margin + 1, dtype=np.float64)
    values = np.maximum(-np.expm1(np.minimum(x, 1.0)), 0.0)
    places = _cells(kind, step, x.size)
    rounding = _rounding(places)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for _ in range(count):
            values = _best_coin(values, kind, places, step, rounding)
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
        return min(about, count * kind.highest * (1 + 1e-12))
    last = int(np.flatnonzero(values > delta)[-1])
    share = (values[last] - delta) / (values[last] - values[last + 1])
    found = float(x[last]) + math.log1p(float(share) * math.expm1(float(x[last + 1] - x[last])))
    return max(0.0, min(about, found + 1e-11 * abs(found), count * kind.highest * (1 + 1e-12)))

"""Many choices by noisy maxima, one after another: what they cost together when each follows the others.

A mechanism whose privacy loss lies in an interval of length s is at least as private as a coin with the losses t and
t − s, for some t (Dong, Durfee & Rogers 2020). So the worst that k such mechanisms can do, where each may depend on the
outcomes before it, is a game with one player:

    V₀(x) = (1 − e^x)₊,    V_k(x) = max over t of p·V_{k−1}(x − t) + (1 − p)·V_{k−1}(x − t + s),

p the probability of the loss t: given the losses so far, x is what is left of ε. Then δ(ε) ≤ V_k(ε). For
report-noisy-max with Gumbel noise s = ε₀ and 0 ≤ t ≤ ε₀ (Cesar & Rogers 2021), and two scores are such a coin for every
t, so that this is exact. With Laplace noise s is 1.2ε₀ or less (:mod:`accounting.loss.laplace_maxima`), and as
that is pure DP, s − ε₀ ≤ t ≤ ε₀. One pair that dominates a single choice for all ε (``SpanPair``) is worse than any
coin, and its compositions are up to 15 % dearer; the best single t for all of them is a little cheaper than the truth.

*Samples.* Where the unit is read with probability q, e^L − 1 is q times what it was, or the two neighbours change
places. A mean E_Q[f(1 − q + qe^L)] is one of a convex function of e^L again, so the same coins are the worst ones.

*From above.* V_k is convex in y = e^x, as a maximum of such functions. On a lattice of step h let V̂ be an upper bound,
interpolated linearly in y; that remains one. Let the coin have the probability p of its high loss, and p′ for the
neighbour. Where V̂ is a₁ + b₁y′ around the first of the two points y′ at which it is asked for, and a₀ + b₀y′ around the
second, the value is

    a₀ + b₀y + p′·A + q(p − p′)B,    A = (a₁ + b₁y) − (a₀ + b₀y),    B = a₁ − a₀,

and B = (b₁ − b₀)y where the neighbours change places; B ≥ 0. With u = e^(−t) and κ = e^(−s) is p′ = (u − κ)/(1 − κ) and
p − p′ = (1 + κ − u − κ/u)/(1 − κ): concave in u, with its maximum where u² = κqB/(qB − A). The points change
their cells where a loss is a multiple of h. So the maximum over all t is one over finitely many cells. Below the
lattice V̂ is linear, from 1 at y = 0; above it the last value. What the lattice adds is of second order in h. All is
reckoned in differences of V̂, and in 1 − u where s is small: no digits are lost, however weak the choices; and y itself
is not needed, however strong they are.

*Several kinds* are played together where there are few of each: the player then also chooses, by what was seen, which
one comes next, V(x) = max over kinds and t of what is left after one of that kind.

*Kinds beside one another.* V_k is the curve of a pair D_k, as it is convex. D_k yields the answers to every adaptive
strategy: given a coin, the coin followed by D_{k−1} has the curve p·V_{k−1}(x − t) + …, which is at most V_k for every
x; so by Blackwell's theorem both can be drawn from a draw of D_k, and so on with D_{k−1}. Choices of another kind have
draws of their own, and all else has its pair. So whoever plays several kinds in any order, however one choice follows
the outcomes of all others, only processes one draw of each: the total is dominated by the product of the pairs (a case
of the concurrent composition of Vadhan & Zhang 2023). From below: :mod:`accounting.adaptive.choices.lattice_games`.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np

from accounting.adaptive.choices.coin_kinds import CoinKind
from accounting.adaptive.choices.coin_lattice import Coins
from accounting.arrays import Array

__all__ = [
    "MOST_CHOICES",
    "Games",
    "Played",
    "is_playable",
    "largest_moments",
    "most_played",
    "played_curve",
    "played_delta",
    "played_epsilon",
    "states",
]


# More choices than this are played in several games: a finer lattice gains more than that loses. Weaker ones are next
# to nothing, and e^x of larger losses is beyond floats.
MOST_CHOICES, _LEAST, _LARGEST = 250, 1e-12, 600.0
# Between a plain coin's losses values cancel; where the unit is absent what is left is e^loss times as uncertain.
_STRONGEST, _STRONGEST_ABSENT = 36.0, 8.0
# What the lattice may add to ε, as a share of it; and points times cells times choices, a second or two.
_ADDED, _MOST_WORK = 4e-4, 5e7
# As many points take as long as it takes to begin with a cell.
_OVERHEAD = 500
# Of fewer choices the curve has edges, and what a lattice adds depends on where they lie.
_ALIGNED = 10
# Near the largest sum that there is, ε hardly depends on δ: there this times the largest loss is fine enough.
_HIGHEST_ORDER = 30.0
# A curve is followed down to e^(−this); and at losses below this V is 1, nearly.
_FAINT, _LOWEST, _MARGIN = 69.0, 14.0, 64


#: One kind, and how often it is played.
Played = tuple[CoinKind, int]
#: Several, in any order.
Games = tuple[Played, ...]


def is_playable(kind: CoinKind, count: int) -> bool:
    """Whether there are answers: not too many choices, and neither next to nothing nor too strong."""
    if not 1 <= count <= MOST_CHOICES or kind.rate * kind.span < _LEAST or kind.span > _STRONGEST:
        return False
    if kind.rate == 1 and not kind.present and kind.span > _STRONGEST_ABSENT:
        return False
    return count * kind.highest < _LARGEST or _extent(((kind, count),))[1] < _LARGEST


def most_played(kind: CoinKind, count: int) -> int:
    """Of how many choices a game may be, of ``count`` of them: fewer, where their losses are large."""
    most = min(count, MOST_CHOICES)
    return most if is_playable(kind, most) else max(1, min(most, math.ceil(_LARGEST / kind.highest) - 1))


def largest_moments(kind: CoinKind, orders: Array) -> Array:
    """The largest ln E[e^(order·L)] of all coins, at each order."""
    t = np.linspace(*kind.ends, 65)
    high, low = kind.losses(t)
    # of the law under which L is taken; e^(−low) may be all that is left of the other's
    with np.errstate(divide="ignore", over="ignore"):
        wins, both = np.log(-np.expm1(-low)), np.log(-np.expm1(-low - high))
        loses = np.log(-np.expm1(-high)) - low
        moments = [float(np.max(np.logaddexp(wins + r * high, loses - r * low) - both)) for r in orders.tolist()]
    return np.maximum(moments, 1e-300)


@lru_cache(maxsize=256)
def _extent(games: Games) -> tuple[float, float, float]:
    """How far below and above 0 the lattice goes, and its step: what it adds to ε is about count·order·step²/12."""
    most, highest = _most(games), max(kind.highest for kind, _ in games)
    count, orders = sum(n for _, n in games), np.geomspace(1e-2, 1e3, 80) / highest
    moments = np.sum([n * largest_moments(kind, orders) for kind, n in games], axis=0)
    # (Chernoff), also where each choice follows the others
    above = min(most, float(np.min((moments + _FAINT) / orders)))
    # a moment near 0 tells the variance
    deviation = math.sqrt(2 * float(moments[0]) / float(orders[0]) / (1 + float(orders[0])))
    below = min(most, 4 * deviation + 2 * highest, _LOWEST)
    steps = []
    for fall in (6.0, 35.0):
        at = int(np.argmin((moments + fall) / orders))
        epsilon = min(most, float((moments[at] + fall) / orders[at]))
        order = min(float(orders[at]), _HIGHEST_ORDER / highest)
        # a finer one takes little time where they are few
        steps.append(math.sqrt(12 * _ADDED * min(1.0, count / 50) * epsilon / (count * order)))
    rounds, cells = states(games) - 1, 0.0
    for kind, n in games:
        ranges = (float(np.ptp(losses)) for losses in kind.losses(np.array(kind.ends)))
        cells += n / (n + 1) * (rounds + 1) / rounds * sum(min(one, above + below) for one in ranges)
    cells *= rounds
    shorter = _OVERHEAD * cells
    fastest = (shorter + math.sqrt(shorter**2 + 4 * _MOST_WORK * cells * (above + below))) / (2 * _MOST_WORK)
    step = max(min(*steps, max(kind.width for kind, _ in games) / 8), fastest)
    if count >= _ALIGNED and len(games) == 1 and kind.rate == 1:
        # Both losses of a plain coin are multiples at the same t if their range is one: half as many cells. Then the
        # player can have both in the middle of one, where a chord is h²V″/8 above V; else 3/4 of that is the most.
        step = kind.span / math.ceil(math.sqrt(4 / 3) * kind.span / step)
    return below, above, step


def _most(games: Games) -> float:
    """The largest sum of losses."""
    return sum(n * kind.highest for kind, n in games)


def states(games: Games) -> int:
    """How many ways there are for some of the choices to be left."""
    return math.prod(n + 1 for _, n in games)


@lru_cache(maxsize=64)
def played_curve(games: Games) -> tuple[Array, Array]:
    """Values x, evenly spaced, and δ of all choices at ε = x, rounded up; until it matters no more.

    0 is one of them, and the first are below: there the two neighbours' roles are what matters.
    """
    below, above, step = _extent(games)
    # beyond the largest sum V̂ is not 0, but for a cell with every choice
    margin = 1 + min(sum(n for _, n in games), _MARGIN)
    x = step * np.arange(-math.ceil(below / step) - 1, math.ceil(above / step) + margin + 1, dtype=np.float64)
    start = (0,) * len(games)
    values = {start: np.maximum(-np.expm1(np.minimum(x, 1.0)), 0.0)}
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        coins = [Coins(kind, step, x.size) for kind, _ in games]
        # by what is left to play; of one kind only the last is needed
        for left in itertools.product(*(range(n + 1) for _, n in games)):
            for i, of_one_kind in enumerate(coins):
                before = (*left[:i], left[i] - 1, *left[i + 1 :])
                if before in values:
                    best = of_one_kind.best(values[before])
                    values[left] = np.maximum(best, values[left]) if left in values else best
                    if len(games) == 1:
                        del values[before]
    return x, values[left]


def played_delta(games: Games, epsilon: float) -> float:
    """δ of all choices at ``epsilon`` ≥ 0, rounded up; of no use where it is below 1e-40.

    Examples
    --------
    >>> from accounting.adaptive.choices.coin_kinds import CoinKind
    >>> round(played_delta(((CoinKind(0.1), 100),), 2.2521) * 1e6, 1)
    1.0
    """
    if epsilon >= _most(games) * (1 + 1e-12):
        return 0.0
    x, values = played_curve(games)
    at = int(np.searchsorted(x, epsilon, side="right"))
    if at >= x.size:
        return float(values[-1])
    # linear in e^ε
    share = math.expm1(epsilon - x[at - 1]) / math.expm1(x[at] - x[at - 1])
    return float(values[at - 1] + share * (values[at] - values[at - 1])) * (1 + 1e-12)


def played_epsilon(games: Games, delta: float, about: float) -> float:
    """ε of all choices at ``delta``, the inverse of :func:`played_delta`; at most ``about``, an upper bound.

    Examples
    --------
    >>> from accounting.adaptive.choices.coin_kinds import CoinKind
    >>> round(played_epsilon(((CoinKind(0.1), 100),), 1e-6, 2.4), 3)
    2.252
    """
    if played_delta(games, 0.0) <= delta:
        return 0.0
    x, values = played_curve(games)
    if values[-1] >= delta:
        return min(about, _most(games) * (1 + 1e-12))
    last = int(np.flatnonzero(values > delta)[-1])
    share = (values[last] - delta) / (values[last] - values[last + 1])
    found = float(x[last]) + math.log1p(float(share) * math.expm1(float(x[last + 1] - x[last])))
    return max(0.0, min(about, found + 1e-11 * abs(found), _most(games) * (1 + 1e-12)))

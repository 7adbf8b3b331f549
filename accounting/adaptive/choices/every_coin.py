"""Choices by noisy maxima that follow one another: the game of every coin, solved for in each cell of a grid.

*The game.* Each choice is at worst a coin of some kind (:mod:`accounting.adaptive.choices.coins`), whichever the player
takes:

    V_k(x) = max over t of p·V_{k−1}(x − t) + (1 − p)·V_{k−1}(x − t + s),

p the probability of the loss t. With Gumbel noise two scores are such a coin for every t, so that this is exact. One
pair that dominates a single choice for all ε (``SpanPair``) is worse than any coin, and its compositions are up to 15 %
more expensive; the best single t for all of them is a little cheaper than the truth.

*From above.* On a grid of step h let V̂ be an upper bound, interpolated linearly in y = e^x. Let the coin have the
probability p of its high loss, and p′ for the neighbour. Where V̂ is a₁ + b₁y′ around the first of the two points y′ at
which it is asked for, and a₀ + b₀y′ around the second, the value is

    a₀ + b₀y + p′·A + q(p − p′)B,    A = (a₁ + b₁y) − (a₀ + b₀y),    B = a₁ − a₀,

and B = (b₁ − b₀)y where the neighbours change places; B ≥ 0. With u = e^(−t) and κ = e^(−s) is p′ = (u − κ)/(1 − κ) and
p − p′ = (1 + κ − u − κ/u)/(1 − κ): concave in u, with its maximum where u² = κqB/(qB − A). The points change
their cells where a loss is a multiple of h. So the maximum over all t is one over finitely many cells. What the grid
adds is of second order in h. All is reckoned in differences of V̂, and in 1 − u where s is small: no digits are lost,
however weak the choices; and y itself is not needed, however strong they are. That is why these laws are no list: the
best of infinitely many is solved for, which is as exact as a list that would take a hundred times as long.

*Most cells cannot hold the best coin.* In a cell P − Q = C − m(u + κ/u), so the value is concave in u where B ≥ 0, and
above its chord by at most B·mκ(1/√u₁ − 1/√u₂)² between u₁ and u₂. B grows with the distance of the two points, as V̂ is
convex: that of the largest losses is at least that of any cell. So one sum of a few values for each end of a cell says
which cells may pass the best end; that is some three of a hundred, and only these are solved for their u. A cell that
gains less than rounding errors is left out, too.

*Several kinds* are played together where there are few of each: the player then also chooses, by what was seen, which
one comes next.

*Kinds beside one another.* V_k is the curve of a pair D_k, as it is convex. D_k yields the answers to every adaptive
strategy: given a coin, the coin followed by D_{k−1} has the curve p·V_{k−1}(x − t) + …, which is at most V_k for every
x; so by Blackwell's theorem both can be drawn from a draw of D_k, and so on with D_{k−1}. Choices of another kind have
draws of their own, and all else has its pair. So whoever plays several kinds in any order, however one choice follows
the outcomes of all others, only processes one draw of each: the total is dominated by the product of the pairs (a case
of the concurrent composition of Vadhan & Zhang 2023).

Serves whoever selects many times. 100 × ``NoisyMax(0.1)`` cost 2.252 at δ = 1e-6, and 2.400 choice by choice; 20 × with
Laplace noise 1.134 and 1.774. From below: :mod:`accounting.adaptive.choices.scores_below`. By brute force:
``tests/accounting/adaptive/test_games.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting.adaptive.choices.coins import CoinKind, largest_moments
from accounting.adaptive.engine import Board, Played, epsilon_between, play, start
from accounting.arrays import UNIT_ROUNDOFF, Array
from accounting.loss.curves import value_between

__all__ = [
    "MOST_CHOICES",
    "EveryCoin",
    "Games",
    "OfOneKind",
    "PlayedPair",
    "is_playable",
    "most_played",
    "played_delta",
    "played_epsilon",
    "states",
]


# So many values at the ends of cells at once.
_AT_ONCE = 1 << 19
# More choices than this are played in several games: a finer grid gains more than that loses. Weaker ones are next
# to nothing, and e^x of larger losses is beyond floats.
MOST_CHOICES, _LEAST, _LARGEST = 250, 1e-12, 600.0
# Between a plain coin's losses values cancel; where the unit is absent what is left is e^loss times as uncertain.
_STRONGEST, _STRONGEST_ABSENT = 36.0, 8.0
# What the grid may add to ε, as a share of it; and points times cells times choices, a second or two.
_ADDED, _MOST_WORK = 4e-4, 5e7
# As many points take as long as it takes to begin with a cell.
_OVERHEAD = 500
# Of fewer choices the curve has edges, and what a grid adds depends on where they lie.
_ALIGNED = 10
# Near the largest sum that there is, ε hardly depends on δ: there this times the largest loss is fine enough.
_HIGHEST_ORDER = 30.0
# A curve is followed down to e^(−this); and at losses below this V is 1, nearly.
_FAINT, _LOWEST, _MARGIN = 69.0, 14.0, 64


#: One kind, and how often it is played.
OfOneKind = tuple[CoinKind, int]
#: Several, in any order.
Games = tuple[OfOneKind, ...]


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


@lru_cache(maxsize=256)
def _extent(games: Games) -> tuple[float, float, float]:
    """How far below and above 0 the grid goes, and its step: what it adds to ε is about count·order·step²/12."""
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
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        return x, play([(EveryCoin(kind, step, x.size), n) for kind, n in games], start(x))


def played_delta(games: Games, epsilon: float) -> float:
    """δ of all choices at ``epsilon`` ≥ 0, rounded up; of no use where it is below 1e-40.

    Examples
    --------
    >>> from accounting.adaptive.choices.coins import CoinKind
    >>> round(played_delta(((CoinKind(0.1), 100),), 2.2521) * 1e6, 1)
    1.0
    """
    if epsilon >= _most(games) * (1 + 1e-12):
        return 0.0
    return value_between(*played_curve(games), epsilon)


def played_epsilon(games: Games, delta: float, about: float) -> float:
    """ε of all choices at ``delta``, the inverse of :func:`played_delta`; at most ``about``, an upper bound.

    Examples
    --------
    >>> from accounting.adaptive.choices.coins import CoinKind
    >>> round(played_epsilon(((CoinKind(0.1), 100),), 1e-6, 2.4), 3)
    2.252
    """
    if played_delta(games, 0.0) <= delta:
        return 0.0
    found = epsilon_between(*played_curve(games), delta)
    return max(0.0, min(about, found, _most(games) * (1 + 1e-12)))


@dataclass(frozen=True)
class PlayedPair(Played):
    """Choices of some kinds, among other releases."""

    follows = True
    games: Games

    def delta(self, epsilon: float) -> float:
        return played_delta(self.games, epsilon) if epsilon >= 0 else super().delta(epsilon)

    def _curve(self) -> tuple[Array, Array]:
        return played_curve(self.games)


class EveryCoin:
    """All coins of a kind, on a grid of a ``step``; ``most`` cells on, it has ended."""

    def __init__(self, kind: CoinKind, step: float, most: int) -> None:
        self._kind, self._step, self._board = kind, step, Board(step)
        t = _ends(kind, step, most)
        high, low = kind.sampled((t[:-1] + t[1:]) / 2)
        i, k = (np.minimum(np.floor(loss / step), most).astype(int) for loss in (high, low))
        self._pad = 2 + int(max(i.max(), k.max()))
        # V less V at the next point is right to a unit of V, and is taken as many times as a loss has cells
        self._rounding = 64 * UNIT_ROUNDOFF * (4 + int((i + k).max()))
        # the points from which on V̂ is linear, at the high loss and at the low one
        self._points = (-i - 1, k) if kind.present else (i, -k - 1)
        self._away = tuple(np.expm1(-step * point) for point in self._points)
        i_most, k_most = int(i.max()), int(k.max())
        self._farthest = (-i_most - 1, k_most) if kind.present else (i_most, -k_most - 1)
        left = math.exp(-kind.span)
        self._bulge = kind.multiple * left * float(np.max(np.exp(t[:-1]) * np.expm1(np.diff(t) / 2) ** 2))
        self._u, self._s = np.exp(-t), -np.expm1(-t)
        self._sums = self._at_ends(t, most)
        # memory that is asked for anew in each round is slow
        self._room = np.empty((t.size, min(most, _AT_ONCE // t.size + 1)))

    def _at_ends(self, t: Array, most: int) -> list[list[tuple[bool, int, float]]]:
        """The value at every end of a cell: a sum of V, or of D, so many points on, with weights."""
        kind, s = self._kind, -np.expm1(-t)
        share, more = kind.chances(np.exp(-t), s, -np.exp(-t) * np.expm1(t - kind.span))
        more = kind.rate * more
        high, low = kind.sampled(t)
        shifts = (-high, low) if kind.present else (high, -low)
        cell = np.minimum(np.arange(t.size), t.size - 2)
        sums: list[list[tuple[bool, int, float]]] = [[] for _ in range(t.size)]
        for weight, rest, shift, points, aways in zip(
            (share, 1 - share), (more, -more), shifts, self._points, self._away, strict=True
        ):
            point, away, whole = points[cell], aways[cell], np.rint(shift / self._step)
            on_lattice = (np.abs(shift / self._step - whole) < 1e-12) & (np.abs(whole) < most)
            value = weight + rest if kind.present else weight
            drop = weight * away - rest if kind.present else weight * away + rest * (1 + away)
            for e, terms in enumerate(sums):
                # V̂ is V where the loss is a multiple of the step
                if on_lattice[e]:
                    terms.append((False, int(whole[e]), float(value[e])))
                else:
                    terms += [(False, int(point[e]), float(value[e])), (True, int(point[e]), float(drop[e]))]
        return sums

    def best(self, values: Array) -> Array:
        """The best of all coins, of ``values`` that are interpolated."""
        pad, whole = self._pad, self._board.continued(values, self._pad, self._pad)
        # V̂ is V + D(y′/y − 1) from a point y on
        drops = np.append(np.diff(whole) / math.expm1(self._step), 0.0)
        drops[:pad] = -(1 - whole[:pad])
        result = values.copy()
        # where nothing is seen of what is above the last value, it remains so
        n, many = min(values.size, int(np.count_nonzero(values > values[-1])) + pad), self._room.shape[1]
        for first in range(0, n, many):
            self._improve(result, whole, drops, range(first, min(n, first + many)))
        result[:n] = np.minimum(result[:n] * (1 + self._rounding), 1.0)
        return result

    def _improve(self, result: Array, whole: Array, drops: Array, places: range) -> None:
        """The best coin at some places of ``result``."""
        kind, pad = self._kind, self._pad
        q, left, gone = kind.rate, math.exp(-kind.span), -math.expm1(-kind.span)

        def line(v: Array, d: Array, away: Array | float) -> tuple[Array, Array]:
            """V̂ around a point that is ``away``, at this one; and what multiplies P − Q of it."""
            return v + away * d, (v - d if kind.present else (1 + away) * d)

        def beside(point: int) -> slice:
            return slice(pad + point + places.start, pad + point + places.stop)

        ends, term = self._room[:, : len(places)], np.empty(len(places))
        for row, ((_, point, weight), *more_terms) in zip(ends, self._sums, strict=True):
            np.multiply(whole[beside(point)], weight, out=row)
            for of_drop, point, weight in more_terms:
                row += np.multiply((drops if of_drop else whole)[beside(point)], weight, out=term)
        far, near = (
            line(whole[beside(point)], drops[beside(point)], math.expm1(-self._step * point))[1]
            for point in self._farthest
        )
        doubt = self._rounding / 8
        least = np.maximum(result[places.start : places.stop] * (1 + doubt), ends.max(axis=0) * (1 - doubt))
        may = ends > least - q * self._bulge * np.maximum(far - near, 0.0)
        cell, place = np.divmod(np.flatnonzero(may[1:] | may[:-1]), len(places))
        place += places.start
        at = [pad + place + points.take(cell) for points in self._points]
        (first, other_first), (second, other_second) = (
            line(whole.take(point), drops.take(point), away.take(cell))
            for point, away in zip(at, self._away, strict=True)
        )
        # second + Q·a + (P − Q)·b/q, which is concave in u
        a, b = first - second, q * (other_first - other_second)
        slope = np.maximum(b - a, 1e-300)
        if kind.span < 1:
            bend = (gone * b - a) / slope
            s = bend / (1 + np.sqrt(np.maximum(1 - bend, 0.0)))
            s = np.minimum(np.maximum(s, self._s.take(cell)), self._s.take(cell + 1))
            u, rest = 1 - s, gone - s
        else:
            u = np.sqrt(np.maximum(left * b, 0.0) / slope)
            u = np.minimum(np.maximum(u, self._u.take(cell + 1)), self._u.take(cell))
            s, rest = 1 - u, u - left
        share, more = kind.chances(u, s, rest)
        np.maximum.at(result, place, second + share * a + more * b)


def _ends(kind: CoinKind, step: float, most: int) -> Array:
    """The t at which the high loss or the low one passes from a cell to the next, and the first and the last t."""
    start, end = kind.ends

    def between(first: float, last: float) -> Array:
        """The losses from one to the other that are multiples of the step on a sample."""
        first, last = (np.log1p(kind.rate * np.expm1(np.array([first, last]))) / step).tolist()
        multiples = step * np.arange(max(math.ceil(first - 1e-9), -most), min(math.floor(last + 1e-9), most) + 1)
        return np.asarray(np.log1p(np.maximum(np.expm1(multiples) / kind.rate, -1.0)))

    with np.errstate(invalid="ignore", divide="ignore"):
        inside = between(start, end), kind.span + between(start - kind.span, end - kind.span)
    t = np.unique(np.clip(np.concatenate([[start, end], *inside]), start, end))
    t = t[np.concatenate([[True], np.diff(t) > 1e-11 * kind.span])]
    t[-1] = end
    return np.asarray(t)

"""One round of the game of coins on a lattice: the best of all coins, at every point of it.

What is reckoned, and that it is an upper bound, stands in :mod:`accounting.adaptive.choices.coin_games`. The coins
whose losses lie in the same two cells have the value V̂₀ + Q·a + (P − Q)·b, where V̂ is linear on both; here is which
of these cells are looked at.

*Most cells cannot hold the best coin.* In a cell P − Q = C − m(u + κ/u), so the value is concave in u where b ≥ 0, and
above its chord by at most

    b·mκ(1/√u₁ − 1/√u₂)²

between u₁ and u₂. b grows with the distance of the two points, as V̂ is convex: that of the largest losses is at least
that of any cell. So one sum of a few values for each end of a cell says which cells may pass the best end; that is some
three of a hundred, and only these are solved for their u. A cell that gains less than rounding errors is left out, too.
"""

from __future__ import annotations

import math

import numpy as np

from accounting.adaptive.choices.coin_kinds import CoinKind
from accounting.arrays import Array

__all__ = ["Coins"]


_UNIT_ROUNDOFF = 2.0**-52
# So many values at the ends of cells at once.
_AT_ONCE = 1 << 19


class Coins:
    """All coins of a kind, on a lattice of a ``step``; ``most`` cells on, it has ended."""

    def __init__(self, kind: CoinKind, step: float, most: int) -> None:
        self._kind, self._step = kind, step
        t = _ends(kind, step, most)
        high, low = _sampled(kind, (t[:-1] + t[1:]) / 2)
        i, k = (np.minimum(np.floor(loss / step), most).astype(int) for loss in (high, low))
        self._pad = 2 + int(max(i.max(), k.max()))
        # V less V at the next point is right to a unit of V, and is taken as many times as a loss has cells
        self._rounding = 64 * _UNIT_ROUNDOFF * (4 + int((i + k).max()))
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
        high, low = _sampled(kind, t)
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
        pad, step = self._pad, self._step
        # linear from y = 0, where it is 1, to the first point
        before = 1 - (1 - values[0]) * np.exp(step * np.arange(-pad, 0, dtype=np.float64))
        whole = np.concatenate([before, values, np.full(pad, values[-1])])
        # V̂ is V + D(y′/y − 1) from a point y on
        drops = np.append(np.diff(whole) / math.expm1(step), 0.0)
        drops[:pad] = -(1 - whole[:pad])
        result = values.copy()
        # where nothing is seen of what is above the last value, it remains so
        n, many = min(values.size, int(np.count_nonzero(values > values[-1])) + pad), self._room.shape[1]
        for start in range(0, n, many):
            self._improve(result, whole, drops, range(start, min(n, start + many)))
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


def _sampled(kind: CoinKind, t: Array) -> tuple[Array, Array]:
    """The high loss and minus the low one of every t, on the sample, as the kind has them."""
    high, low = t, kind.span - t
    if kind.rate < 1:
        with np.errstate(divide="ignore"):
            return np.log1p(kind.rate * np.expm1(high)), -np.log1p(kind.rate * np.expm1(-low))
    return high, low


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

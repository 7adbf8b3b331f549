"""Three laws of which any two are neighbours: the largest mean of a convex function that they have on a sample.

Of R, S and S′, the laws of a choice without a record, with it and with its substitute, any two are neighbours. What is
lost between S and R lies between −l(t) and h(t), for some t and the h and l of a :class:`Kind`; between S′ and R for
another t′; and between S and S′ for a third one, t″. A step's laws are P = (1 − q)R + qS and Q = (1 − q)R + qS′, and
means of such over the rest of the batch, which are worth no more: what follows is convex in the three laws together.

Let φ be convex with φ(1) = 0. With u = dS/dR and v = dS′/dR,

    E_Q φ(P/Q) = E_R G(u, v),    G(u, v) = (1 − q + qv)·φ((1 − q + qu)/(1 − q + qv)),

where G is convex (the perspective of φ, of arguments linear in u and v), E u = E v = 1, and (u, v) lies in the hexagon
of those t: e^(−l(t)) ≤ u ≤ e^(h(t)), likewise v, and u/v. So E G is at most what an affine function above G at the six
corners is at (1, 1), and the least of these is the largest mean of G over three corners around (1, 1).

*A cell* [t₀, t₁] of each of the three t has the hexagon of −l(t₀) and h(t₁), which contains all its hexagons, as h
rises and l falls with t. Cells are halved where their bound is above the largest value found so far, along the t for
which a cell without width has the lowest bound, until none is above that by more than a given share; or there are
enough of them, and the largest bound that is left is the answer.

Functions that are neighbours need about the same cells: those of one are what others begin with, which is a bound, too.

A bound holds for all values between those of φ at given points, linearly interpolated: that is above φ.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.coin_kinds import Kind

__all__ = ["largest_means", "means_of_coins"]

Array = NDArray[np.float64]
Places = NDArray[np.int64]

# Cells of each t to begin with, and coins that are looked at.
_CELLS, _COINS = 4, 400
# So many functions in a row begin with the cells of one of them, if these are no fewer than so many; they take this
# share of all work.
_ALIKE, _FEWEST, _FIRST = 8, 16, 0.3
# Cells at once, which stay in fast memory.
_PIECE = 16_384
_OUTWARD = 1 + 1e-10


class _Functions:
    """Convex functions φ on e^(``step``·(−r, …, r)), one in each row of ``values``, for batches of ``rate``."""

    def __init__(self, values: Array, step: float, rate: float) -> None:
        self._values, self._step, self._rate = values, step, rate
        self._reach = values.shape[1] // 2

    def at(self, u: Array, v: Array, which: Places) -> Array:
        """G of u + 1 and v + 1, of the φ numbered ``which``."""
        in_q = 1 + self._rate * v
        loss = np.log1p(self._rate * (u - v) / in_q)
        cell = np.clip(np.floor(loss / self._step), -self._reach, self._reach - 1).astype(np.int64)
        below = self._values[which, cell + self._reach]
        rise = self._values[which, cell + self._reach + 1] - below
        return np.asarray(in_q * (below + rise * (np.expm1(loss - cell * self._step) / math.expm1(self._step))))


def _corners(kind: Kind, first: Array, last: Array) -> tuple[Array, Array]:
    """u − 1 and v − 1 of the six corners, in order, of cells of t, t′ and t″; of shape (6, cells)."""
    low_u, low_v, low_w = -kind.plain(first)[1]
    high_u, high_v, high_w = kind.plain(last)[0]
    # ends that nothing reaches are moved inwards
    left, right = np.maximum(low_u, low_v + low_w), np.minimum(high_u, high_v + high_w)
    bottom, top = np.maximum(low_v, low_u - high_w), np.minimum(high_v, high_u - low_w)
    least, most = np.maximum(low_w, low_u - high_v), np.minimum(high_w, high_u - low_v)
    log_u = np.array([left, bottom + most, right, right, top + least, left])
    log_v = np.array([bottom, bottom, right - most, top, top, left - least])
    return np.expm1(log_u), np.expm1(log_v)


def _bounds(functions: _Functions, kind: Kind, first: Array, last: Array, which: Places) -> Array:
    """The largest mean over three corners around (1, 1)."""
    u, v = _corners(kind, first, last)
    found = functions.at(u, v, which)
    areas = {(i, k): u[i] * v[k] - u[k] * v[i] for i, k in itertools.combinations(range(6), 2)}
    best = np.zeros(which.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        for i, j, k in itertools.combinations(range(6), 3):
            a, b, c = areas[j, k], -areas[i, k], areas[i, j]
            mean = (a * found[i] + b * found[j] + c * found[k]) / (a + b + c)
            mean[np.minimum(np.minimum(a, b), c) < 0] = 0.0
            np.fmax(best, mean, out=best)
    # (1, 1) lies inside; should rounding hide that, no mean is above all corners
    return np.where(best > 0, best, found.max(axis=0)) * _OUTWARD


def _of_coins(functions: _Functions, kind: Kind, which: int) -> float:
    """What is reached with S′ = R, or S = R."""
    high, low = kind.plain(np.linspace(*kind.ends, _COINS + 2)[1:-1])
    chance = np.expm1(-low) / np.expm1(-low - high) * np.exp(-high)
    number = np.full(high.size, which)
    up, down, no = np.expm1(high), np.expm1(-low), np.zeros_like(high)
    present = chance * functions.at(up, no, number) + (1 - chance) * functions.at(down, no, number)
    absent = chance * functions.at(no, up, number) + (1 - chance) * functions.at(no, down, number)
    return float(max(present.max(), absent.max()))


def means_of_coins(kind: Kind, rate: float, values: Array, step: float) -> Array:
    """What is reached with two different laws only; see :func:`largest_means`."""
    functions = _Functions(values, step, rate)
    return np.array([_of_coins(functions, kind, i) for i in range(values.shape[0])])


def largest_means(kind: Kind, rate: float, values: Array, step: float, *, share: float, work: int) -> Array:
    """Upper bounds on E_Q φ(P/Q) for all R, S and S′.

    Parameters
    ----------
    kind : Kind
        What two neighbours are at worst.
    rate : float
        The chance of the record to be in the batch.
    values : ndarray of shape (functions, 2r + 1)
        Values of each φ at e^(``step``·(−r, …, r)); r·``step`` is at least the largest loss of a step. The bounds are
        best where functions in a row are alike.
    step : float
        See ``values``.
    share : float
        How much more than what is reached the bounds may be.
    work : int
        After so many cells the bounds are as they are.
    """
    functions, count = _Functions(values, step, rate), values.shape[0]
    search = _Search(functions, kind, share, means_of_coins(kind, rate, values, step))
    ends = np.linspace(*kind.ends, _CELLS + 1)
    at = np.array(list(itertools.product(range(_CELLS), repeat=3))).T
    alike = min(max(count // _FEWEST, 1), _ALIKE)
    some = np.unique(np.append(np.arange(0, count, alike), count - 1))
    cells = np.tile([ends[at], ends[at + 1]], some.size)
    found, which = search.halve(cells, some.repeat(_CELLS**3), _FIRST * work if alike > 1 else work)
    # the others begin with the cells of the nearest of these
    nearest = np.abs(some[:, None] - np.arange(count)).argmin(axis=0)
    begun = [np.flatnonzero(which == one) for one in some]
    others = [i for i in range(count) if some[nearest[i]] != i]
    if others:
        taken = np.concatenate([begun[nearest[i]] for i in others])
        numbers = np.repeat(others, [begun[nearest[i]].size for i in others])
        search.halve(found[:, :, taken], numbers, work - search.work)
    return search.bounds


def _halves(cells: Array, axis: Places) -> Array:
    """Both halves of ``cells``, the first and last t of each, along an ``axis`` of its own."""
    lower, upper, every = cells.copy(), cells.copy(), np.arange(axis.size)
    lower[1, axis, every] = upper[0, axis, every] = cells[:, axis, every].mean(axis=0)
    return np.concatenate([lower, upper], axis=2)


class _Search:
    """Bounds, and values that are reached, of some functions; and cells that may still be looked at."""

    def __init__(self, functions: _Functions, kind: Kind, share: float, reached: Array) -> None:
        self._functions, self._kind, self._share = functions, kind, share
        self._reached, self.bounds, self.work = reached, np.zeros(reached.size), 0

    def _bounds(self, cells: Array, which: Places) -> Array:
        self.work += which.size
        pieces = (slice(i, i + _PIECE) for i in range(0, which.size, _PIECE))
        found = [
            _bounds(self._functions, self._kind, cells[0, :, piece], cells[1, :, piece], which[piece])
            for piece in pieces
        ]
        return np.concatenate([np.zeros(0), *found])

    def halve(self, cells: Array, which: Places, work: float) -> tuple[Array, Places]:
        """Raise the bounds to those of ``cells``, after they are halved; and what they have become."""
        kept, numbers, most = [], [], self.work + work
        while which.size:
            found = self._bounds(cells, which)
            high = (found > self._reached[which] * (1 + self._share)) & (self.work < most)
            middle = cells[:, :, high].mean(axis=0)
            np.maximum.at(self._reached, which[high], self._bounds(np.stack([middle, middle]), which[high]) / _OUTWARD)
            high &= found > self._reached[which] * (1 + self._share)
            np.maximum.at(self.bounds, which[~high], found[~high])
            kept.append(cells[:, :, ~high])
            numbers.append(which[~high])
            cells, which, found = cells[:, :, high], which[high], found[high]
            # what bounds are without any width
            less = []
            for axis in range(3):
                flat = cells.copy()
                flat[:, axis] = cells[:, axis].mean(axis=0)
                less.append(self._bounds(flat, which))
            cells, which = _halves(cells, np.argmin(less, axis=0)), np.tile(which, 2)
        return np.concatenate(kept, axis=2), np.concatenate(numbers)

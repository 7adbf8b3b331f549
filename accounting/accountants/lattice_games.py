"""What choices that follow one another cost at least: the game of coins, played on a lattice.

Each kind of choice has coins that some scores are exactly (:func:`two_losses`), with losses −``low`` and ``high``. A
coin whose losses are rounded towards 0, to multiples of a step h, is less: both are mixtures, and that of the true coin
is wider. So the player who takes only rounded coins needs no interpolation,

    V₀(x) = (1 − e^x)₊,    V_k(x) = max over coins of p·V_{k−1}(x − high) + (1 − p)·V_{k−1}(x + low),

on one lattice for all kinds, one kind after the other; it is laid such that the ε in question is one of its points, and
h such that little is rounded off the best coins. Below the lattice V is at least the first value, above it 0.

As 0 is one of its points and all losses are multiples of h, V_k is linear in e^x between neighbouring points. So where
choices come after other releases, the values on the lattice are those of a pair with finitely many losses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_CHOICES", "Play", "game_below", "game_epsilon_at_least", "is_playable", "order_of", "two_losses"]

Array = NDArray[np.float64]

# What is rounded in one step, relative to the value.
_ROUNDING = 1e-13
# What is taken off the losses between the points of a curve of coins, for its bend.
_CHORD = 2e-5
_MOST_WORK = 5e8
#: More are too slow.
MOST_CHOICES = 10_000
_MOST_POINTS = 3e5
# The share of the moments that may be lost on the lattice, before a finer one is tried.
_LOST = 2e-3
# Of so many choices only coins with this share of the largest variance matter.
_MANY, _SHARE = 30, 0.75


@dataclass(frozen=True)
class Play:
    """``count`` noisy maxima, on samples of ``rate``; ``present`` says which of two neighbours has the unit."""

    noise: str
    epsilon: float
    count: int
    rate: float = 1.0
    present: bool = True


def is_playable(play: Play) -> bool:
    """Whether there are not too many, and neither next to nothing nor beyond floats."""
    return play.count <= MOST_CHOICES and play.rate * play.epsilon >= 1e-12 and play.epsilon <= 40.0


def two_losses(noise: str, epsilon: float) -> list[tuple[Array, Array]]:
    """``low`` and ``high`` of coins that maxima with this noise are: of two scores, or two groups of scores.

    The first score leads by a, and then by a − ε: it wins with probability 1/(1 + e^(−a)) with Gumbel noise, and
    1 − e^(−a)/2 with exponential noise if a ≥ 0. For Laplace noise see
    :func:`accounting.accountants.laplace_maxima.groups_of_scores`.
    """
    if noise == "laplace":  # whose nodes of integration take a while to import
        from accounting.accountants.laplace_maxima import groups_of_scores

        return groups_of_scores(epsilon)
    lead = epsilon * np.linspace(0.0, 1.0, 257)
    if noise == "gumbel":
        return [(epsilon - lead, lead)]
    # where the leader keeps the lead there is less
    win, lose = np.log1p(-0.5 * np.exp(-lead)), math.log(0.5) - lead
    win_after, lose_after = math.log(0.5) + lead - epsilon, np.log1p(-0.5 * np.exp(lead - epsilon))
    return [(lose_after - lose, win - win_after)]


@lru_cache(maxsize=64)
def _coins(noise: str, epsilon: float, rate: float, present: bool) -> list[tuple[Array, Array]]:
    """``low`` and ``high`` of the coins on samples, the high losses of every curve rising."""
    curves = []
    for low, high in two_losses(noise, epsilon):
        if rate < 1:
            low, high = -np.log1p(rate * np.expm1(-low)), np.log1p(rate * np.expm1(high))
            if not present:
                low, high = high, low
        order = np.argsort(high)
        curves.append((low[order] * (1 - _CHORD), high[order] * (1 - _CHORD)))
    return curves


def _coins_of(play: Play) -> list[tuple[Array, Array]]:
    return _coins(play.noise, play.epsilon, play.rate, play.present)


def _chance(low: NDArray[np.floating], high: NDArray[np.floating]) -> Array:
    """The probability of the high loss."""
    return np.asarray(np.expm1(-low) / np.expm1(-low - high))


def _variance(low: NDArray[np.floating], high: NDArray[np.floating]) -> Array:
    chance = _chance(low, high)
    return np.asarray(chance * (1 - chance) * (low + high) ** 2)


def _moment(low: NDArray[np.floating], high: NDArray[np.floating], order: float) -> Array:
    """ln E[e^(order·L)]."""
    low, high = np.maximum(low, 1e-300), np.maximum(high, 1e-300)
    wins, loses, both = (np.log(-np.expm1(-x)) for x in (low, high, low + high))
    return np.asarray(np.logaddexp(wins + order * high, loses - (1 + order) * low) - both)


def order_of(plays: tuple[Play, ...], delta: float) -> float:
    """At which moment the choices matter: where Chernoff's bound on the ε of fixed coins is least."""
    orders = np.geomspace(0.1, 1e5, 40)
    bounds = np.zeros(orders.size)
    for play in plays:
        for i, order in enumerate(orders.tolist()):
            bounds[i] += play.count * max(float(np.max(_moment(*curve, order))) for curve in _coins_of(play))
    return float(orders[int(np.argmin((bounds - math.log(delta)) / orders))])


def _largest_variance(curves: list[tuple[Array, Array]]) -> float:
    return max(float(np.nanmax(_variance(np.maximum(low, 1e-300), np.maximum(high, 1e-300)))) for low, high in curves)


def _rounded(curves: list[tuple[Array, Array]], step: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The coins on a lattice, in steps: for every low loss the largest high one."""
    ups = np.arange(1, math.floor(max(float(high[-1]) for _, high in curves) / step) + 1)
    lows = np.zeros(ups.size)
    for low, high in curves:
        # a coin with a smaller high loss is less, too; beyond the end of a curve there is none of it
        np.maximum(lows, np.interp(ups * step, high, low, left=float(low[0]), right=0.0), out=lows)
    downs = np.floor(lows / step).astype(np.int64)
    kept = (downs > 0) & np.append(downs[1:] < downs[:-1], True)
    return downs[kept], ups[kept]


def _fineness(count: int) -> int:
    """Cells of the width of a coin."""
    return 256 if count <= 10 else 96 if count <= 60 else 64 if count <= 300 else 40


@lru_cache(maxsize=32)
def _step(plays: tuple[Play, ...], order: float) -> float:
    """The lattice on which little is lost of the coins with the largest moments, near a number of cells."""
    tables = [_coins_of(play) for play in plays]
    best = [_largest_variance(curves) for curves in tables]
    widths = [2 * math.sqrt(one) for one in best]
    weights = np.array([play.count * one for play, one in zip(plays, best, strict=True)])
    total, count = float(weights.sum()), sum(play.count for play in plays)
    deviation = math.sqrt(total)
    wanted = min(
        width / _fineness(min(count, round(total / one))) if weight > 0.05 * total else math.inf
        for width, weight, one in zip(widths, weights, best, strict=True)
    )
    work = sum(play.count * width for play, width in zip(plays, widths, strict=True)) * 18 * deviation
    wanted = max(wanted, math.sqrt(work / _MOST_WORK))
    tried = max(widths) / np.arange(math.ceil(max(widths) / wanted), math.ceil(1.3 * max(widths) / wanted) + 1)
    tried *= 1 - 2 * _CHORD
    tried = np.unique(np.concatenate([tried, np.geomspace(wanted / 1.3, wanted, 24)]))

    def kept(step: float) -> float:
        found = 0.0
        for play, curves in zip(plays, tables, strict=True):
            downs, ups = _rounded(curves, step)
            if downs.size:
                found += play.count * float(_moment(downs * step, ups * step, order).max())
        return found

    best_step = float(max(tried.tolist(), key=kept))
    whole = sum(
        play.count * max(float(np.max(_moment(*curve, order))) for curve in curves)
        for play, curves in zip(plays, tables, strict=True)
    )
    if kept(best_step) >= (1 - _LOST) * whole:
        return best_step
    # the low losses of rare ones are far smaller than the high ones
    spread, most = _extent(plays)
    length = min(most, 10 * deviation + total / 2) + 2 * spread
    lows = sum(
        play.count * max(float(low.max()) for low, _ in curves) for play, curves in zip(plays, tables, strict=True)
    )
    finest = max(math.sqrt(lows * length / _MOST_WORK), length / _MOST_POINTS)
    finer = np.geomspace(best_step, finest, 24).tolist() if finest < best_step else []
    enough = (step for step in finer if kept(step) >= (1 - _LOST) * whole)
    return float(next(enough, max([best_step, *finer], key=kept)))


def _play(values: Array, downs: list[int], ups: list[int], step: float) -> Array:
    """One more choice, rounded down."""
    n, pad = values.size, max(*downs, *ups)
    padded = np.concatenate([np.full(pad, values[0]), values, np.zeros(pad)])
    best, mean, rest = values.copy(), np.empty(n), np.empty(n)
    for down, up in zip(downs, ups, strict=True):
        chance = math.expm1(-down * step) / math.expm1(-(down + up) * step)
        np.multiply(padded[pad - up : pad - up + n], chance, out=mean)
        np.multiply(padded[pad + down : pad + down + n], 1 - chance, out=rest)
        mean += rest
        np.maximum(best, mean, out=best)
    best *= 1 - _ROUNDING
    return best


def _extent(plays: tuple[Play, ...]) -> tuple[float, float]:
    """How far the lattice goes on below 0 and above the ε in question; and the largest value of the sum."""
    square, most, highest = 0.0, 0.0, 0.0
    for play in plays:
        curves = _coins_of(play)
        square += play.count * _largest_variance(curves)
        high = max(float(high[-1]) for _, high in curves)
        most += play.count * high
        highest = max(highest, high)
    return min(most, 4 * math.sqrt(square) + highest), most


def _lattice(spread: float, centre: float, step: float) -> tuple[Array, int]:
    """Points around ``centre``, and the place of ``centre`` among them."""
    below, above = math.ceil((centre + spread) / step) + 1, math.ceil(spread / step) + 1
    return centre + step * np.arange(-below, above + 1, dtype=np.float64), below


def _values(plays: tuple[Play, ...], x: Array, step: float) -> Array:
    values = np.maximum(-np.expm1(np.minimum(x, 1.0)), 0.0)
    for play in plays:
        downs, ups = _rounded(_coins_of(play), step)
        if play.count >= _MANY and downs.size:
            variances = _variance(downs * step, ups * step)
            kept = variances >= _SHARE * variances.max()
            downs, ups = downs[kept], ups[kept]
        for _ in range(play.count if downs.size else 0):
            values = _play(values, downs.tolist(), ups.tolist(), step)
    return values


@lru_cache(maxsize=16)
def game_below(plays: tuple[Play, ...]) -> tuple[Array, Array]:
    """Points x, evenly spaced, and values there, rounded down."""
    step, (spread, most) = _step(plays, 1.0), _extent(plays)
    deviation = spread / 4
    centre = step * math.ceil(min(most, 10.0 * deviation + deviation**2 / 2) / step)
    x, _ = _lattice(spread, centre, step)
    return x, _values(plays, x, step)


@lru_cache(maxsize=64)
def game_epsilon_at_least(plays: tuple[Play, ...], delta: float, about: float) -> float:
    """A proved lower bound on ε at ``delta``, near the upper bound ``about``; 0 if none is found.

    Examples
    --------
    >>> round(game_epsilon_at_least((Play("gumbel", 0.1, 100),), 1e-6, 2.252), 3)
    2.25
    """
    if about <= 0:
        return 0.0
    step, (spread, _), target = _step(plays, order_of(plays, delta)), _extent(plays), about
    for share in (0.0, 1e-4, 1e-3, 1e-2):
        x, place = _lattice(spread, target * (1 - share), step)
        values = _values(plays, x, step)
        if values[place] >= delta and x[place] > 0:
            # the points are right to a unit of the largest
            return max(0.0, float(x[place]) - 1e-15 * float(x[-1] - x[0]))
        if share == 0.0:
            # where the values on the lattice say that δ is met
            last = int(np.flatnonzero(values > delta)[-1]) if values[0] > delta else 0
            with np.errstate(divide="ignore"):
                logs = np.log(values[last : last + 2])
            gone = (logs[0] - math.log(delta)) / (logs[0] - logs[1]) if np.isfinite(logs[-1]) else 0.0
            target = float(x[last] + gone * (x[last + 1] - x[last]))
            if target <= 0:  # δ is met at ε = 0 already, or nearly so
                break
    return 0.0

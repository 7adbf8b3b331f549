"""Several zCDP releases, each of which may follow what was seen: what they cost from above, as a game.

With H(t) what k releases reach at most at t = e^ε, that is sup P(S) − t·Q(S), one more that comes before them reaches

    sup E_Q[g(y)],    g(y) = y·H(t/y),

over all laws of y = P/Q under Q that are ρ-zCDP (:mod:`accounting.worst_coins`): E_Q y = 1 and E_Q y^α ≤ e^(ρα(α − 1))
for α > 1 and for α < 0. All of them together are as private as the sum of their ρ, and so that of the sum is a bound;
but of many small ones, coins that follow what was seen reach hardly more than Gaussian noise of the same ρ does.

*From above.* For any numbers a, b, λ ≥ 0, μ ≥ 0, u, β > 0 with f(y) = b + ay + λy^(1+u) + μy^(−β) ≥ g(y) for all y > 0,

    E_Q[g(y)] ≤ a + b + λe^(ρu(u + 1)) + μe^(ρβ(β + 1)).                                                          (*)

H is followed from above by the lines A − Bt through its values at neighbouring points of a grid, above which no convex
function lies, and H(t) = 1 − t + tH(1/t) for t < 1. So g is at most the largest of the lines Ay − Bt, and f without its
last term is above one of them for all y, where K = A − a > 0 and D = b + Bt > 0, if and only if

    λ ≥ (K/(1 + u))·(uK/((1 + u)D))^u,

and for K ≤ 0 if D ≥ 0. Take a λ that suffices for the lines of all t/y ≤ t/y₀. Below y₀ the convex function g, which is
0 at 0, is at most f(y₀)y/y₀, and f is at least its tangent at y₀; so g is above f by M = (λu·y₀^(1+u) − b)₊ at most,
and μ = M·y₀^β is enough. With the best β the last term of (*) is M·e^(−(ln 1/y₀ − ρ)²/(4ρ)), for ln 1/y₀ > ρ, else M.

Any a, b, u and y₀ give a bound, so it does not matter how they are found: by the coins that are about the best from
below, of which one order α = 1 + u is all that matters. f touches g near their two values of y; so two lines, A₁, B₁
and A₂, B₂, and the ratio x = y₂/y₁ of the points where they are tangents to f say that

    a = (A₁x^u − A₂)/(x^u − 1),    b = t(B₂ − x^(1+u)B₁)/(x^(1+u) − 1),
    y₁ = t(B₂ − B₁)/(A₂ − A₁)·((1 + u)/u)·(x^u − 1)/(x^(1+u) − 1).

Of the bounds at the points of the grid the lower hull is taken, as H is convex; that of the sum of all ρ counts where
it is less. What is above H gives a bound that is above what one more release reaches, so steps may follow each other;
to the first curve a little is added, which keeps its logarithm from falling too far. Of more than ``_MOST`` releases,
some that follow each other count as one; others may come between them, by the argument in
:mod:`accounting.accountants.concentrated_losses`.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.curves import lower_hull, value_between
from accounting.concentrated import zcdp_delta, zcdp_epsilon
from accounting.worst_coins import worst_coin

__all__ = ["concentrated_delta", "concentrated_epsilon", "is_played", "played_curve"]

Array = NDArray[np.float64]
Pair = tuple[Array, Array]

# Steps of the game; of more releases the last ones are played in the smallest steps, by this ratio. Rounding leaves
# fewer of weak ones, below this ρ.
_MOST, _RATIO = 28, 1.07
_WEAK, _MOST_WEAK = 1e-4, 14
# The points of the grid, to where all as one reach this share of δ, and what is added to the last curve, as one.
_POINTS, _BEYOND, _LEAST = 384, 1e-2, 1e-6
# The coins that are tried, up to this multiple of 1/√(2ρ) as orders.
_COINS, _STEEPEST = 96, 8.0
# Where y₀ may be, in multiples of √(2ρ) below y₁.
_REACHES = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.5)
# Lines of t < 1 are looked at one by one down to this multiple of √(2ρ), and so many together beyond.
_NEAR, _TOGETHER = 10.0, 8
# Where the game is played: ρ of one release and of all, and δ.
_WEAKEST, _STRONGEST, _RAREST = 1e-7, 100.0, 1e-60
# Orders of the bound by the sum, and far more than what rounding adds.
_ORDERS, _UP = 60, 1 + 1e-12


def _steps(rho: float, count: int) -> list[float]:
    """ρ of the steps, that of the last release first."""
    most = _MOST if rho * count >= _WEAK * _MOST else _MOST_WEAK
    if count <= most:
        return [rho] * count
    shares = _RATIO ** np.arange(most)
    ends = np.rint(np.cumsum(shares) * (count / shares.sum()))
    return [_total(rho, int(size)) for size in np.diff(ends, prepend=0.0) if size > 0]


def _total(rho: float, count: int) -> float:
    return rho * count * (1 + 2.0**-52) if count > 1 else rho


def is_played(rho: float, count: int, delta: float) -> bool:
    """Whether there is a game, of releases that are neither too weak nor too strong for floats."""
    return count > 1 and rho >= _WEAKEST and _WEAKEST * _MOST <= rho * count <= _STRONGEST and _RAREST <= delta < 1


@lru_cache(maxsize=16)
def played_curve(rho: float, count: int, level: float) -> Pair:
    """ε on a grid from 0 on, and what ``count`` releases reach there at most, good where that is near e^``level``."""
    delta = math.exp(level)
    steps = _steps(rho, count)
    grid = np.linspace(0.0, zcdp_epsilon(rho * count, _BEYOND * delta), _POINTS + 1)
    game = _Game(grid, _LEAST * delta)
    for step in steps:
        game.play(step)
    return grid, game.above


def concentrated_epsilon(rho: float, count: int, delta: float) -> float:
    """An ε that ``count`` releases that are ``rho``-zCDP cost at most.

    Examples
    --------
    >>> round(concentrated_epsilon(0.05, 10, 1e-6), 3), round(zcdp_epsilon(0.5, 1e-6), 3)
    (5.094, 5.222)
    """
    top = zcdp_epsilon(_total(rho, count), delta)
    if not is_played(rho, count, delta):
        return top
    grid, above = played_curve(rho, count, math.log(delta))
    first = int(np.argmax(above <= delta))
    if above[first] > delta or first == 0:
        return top
    # where the line from the point before meets δ
    share = (above[first - 1] - delta) / (above[first - 1] - above[first])
    return min(top, float(grid[first - 1] + math.log1p(share * math.expm1(grid[first] - grid[first - 1]))) * _UP)


def concentrated_delta(rho: float, count: int, epsilon: float) -> float:
    """A δ that they cost at most at ε ≥ 0."""
    found = zcdp_delta(_total(rho, count), epsilon)
    if not is_played(rho, count, found):
        return found
    grid, above = played_curve(rho, count, round(math.log(found)) - 1.0)
    return min(found, value_between(grid, above, epsilon)) if epsilon < grid[-1] else found


class _Game:
    """The game after some steps: its curve from above, and at every point of the grid about the best test (p, q)."""

    def __init__(self, grid: Array, least: float) -> None:
        self.grid, self.t, self.step = grid, np.exp(grid), float(grid[1])
        self.least = least
        self.p = self.q = np.zeros(grid.size)
        self.total, self.played = 0.0, 0
        self.above: Array = np.maximum(1 - self.t, 0.0)
        self.coins: dict[float, Array] = {}

    def _coins(self, rho: float) -> Array:
        """u, ln y₁, ln y₂ and ln p of the coins that are tried."""
        if rho not in self.coins:
            orders = 1e-3 + _STEEPEST / math.sqrt(2 * rho) * np.linspace(0.0, 1.0, _COINS) ** 1.7
            found = (worst_coin(rho, float(eta)) for eta in orders)
            self.coins[rho] = np.array([(coin.eta, coin.low, coin.high, coin.log_p) for coin in found]).T
        return self.coins[rho]

    def play(self, rho: float) -> None:
        """One step more, before all others."""
        self.total += rho
        best = self._best_coins(rho)
        if self.played:
            self.above = _hulled(self.t, np.minimum(self._dual(rho, best), self._of_sum()))
        else:
            self.above = np.array([zcdp_delta(rho, float(e)) for e in self.grid]) + self.least
        self.played += 1

    def _of_sum(self) -> Array:
        """What everything costs as one release, by one order of some."""
        u = np.geomspace(0.02, 1 + 1.5 * math.sqrt(-math.log(self.least) / self.total), _ORDERS)[:, None]
        logs = u * (u + 1) * self.total - u * self.grid + u * np.log(u) - (u + 1) * np.log1p(u)
        return np.asarray(np.exp(np.minimum(logs.min(axis=0), 0.0)) * _UP + self.least)

    def _best_coins(self, rho: float) -> Array:
        """The coin that reaches most at every point of the grid, by its place in the list; and the tests after it."""
        _, low, high, log_p = self._coins(rho)
        p, q = np.exp(log_p), np.exp(log_p - high)
        last = self.grid.size - 1
        if self.played:
            all_p = np.concatenate([1 - self.q[:0:-1], self.p])
            all_q = np.concatenate([1 - self.p[:0:-1], self.q])
        else:
            all_p = all_q = (np.arange(-last, last + 1) < 0).astype(np.float64)

        def after(loss: Array) -> NDArray[np.intp]:
            return np.clip(np.rint((self.grid[:, None] - loss) / self.step).astype(np.intp), -last, last) + last

        heads, tails = after(high), after(low)
        in_p = p * all_p[heads] + (1 - p) * all_p[tails]
        in_q = q * all_q[heads] + (1 - q) * all_q[tails]
        best = np.argmax(in_p - in_q * self.t[:, None], axis=1)
        rows = np.arange(last + 1)
        self.p, self.q = in_p[rows, best], in_q[rows, best]
        return _smoothed(best.astype(np.float64), self._width(rho, 0.3))

    def _width(self, rho: float, share: float) -> int:
        """Points on either side, for what changes over the loss of the steps so far."""
        return max(2, min(int(share * math.sqrt(2 * rho * self.played) / self.step), self.grid.size // 4))

    def _tangents(self, rho: float) -> Pair:
        """A and B of the tangents to about the curve, from the last point mirrored to the last point."""
        from scipy.signal import savgol_filter

        width = self._width(rho, 0.3)
        above = np.maximum(self.above - self.least, 1e-6 * self.least)
        logs = np.log(np.concatenate([(1 - 1 / self.t + above / self.t)[:0:-1], above]))
        value = np.exp(savgol_filter(logs, 2 * width + 1, 3)[self.grid.size - 1 :])
        slope = savgol_filter(logs, 2 * width + 1, 3, deriv=1, delta=self.step)[self.grid.size - 1 :]
        p, q = value * (1 - slope) + self.least, -value * slope / self.t
        return np.concatenate([1 - q[:0:-1], p]), np.concatenate([1 - p[:0:-1], q])

    def _dual(self, rho: float, best: Array) -> Array:
        """The bound (*) at every point of the grid, with about the orders of the coins at ``best``."""
        orders, lows, highs, _ = self._coins(rho)
        places = np.arange(_COINS)
        u, low, high = (np.interp(best, places, some) for some in (orders, lows, highs))
        tangents = self._tangents(rho)
        lines = _lines(self.t, self.above, math.ceil(_NEAR * math.sqrt(2 * rho) / self.step))
        last = self.grid.size - 1

        def touching(loss: Array) -> Pair:
            at = (self.grid - loss) / self.step
            place = np.clip(np.floor(at).astype(np.intp), -last, last - 1)
            share = np.clip(at - place, 0.0, 1.0)
            first, second = ((1 - share) * some[place + last] + share * some[place + last + 1] for some in tangents)
            return first, second

        apart = high - low
        fixed = self.grid + np.log1p(1 / u) + np.log(np.expm1(-u * apart) / np.expm1(-(1 + u) * apart)) - apart

        def miss(at: Array) -> Array:
            (a, b), (c, d) = touching(at), touching(at + apart)
            return np.asarray(fixed + np.log(np.maximum(d - b, 1e-300) / np.maximum(c - a, 1e-300)) - at)

        scale = math.sqrt(2 * rho)
        with np.errstate(all="ignore"):
            before, missed = low, miss(low)
            at = np.clip(before + np.clip(missed, -0.2 * scale, 0.2 * scale), -4 * scale, 0.0)
            for _ in range(6):
                now = miss(at)
                move = np.nan_to_num(-now * (at - before) / (now - missed), nan=0.0, posinf=0.0, neginf=0.0)
                before, missed, at = at, now, at + np.clip(move, -0.3 * scale, 0.3 * scale)
            at = np.where(np.abs(miss(at)) < np.abs(miss(low)), at, low)
        bounds = [self._bound(rho, lines, u, y1, apart, touching(y1), touching(y1 + apart)) for y1 in (low, at)]
        return np.fmin(bounds[0], bounds[1])

    def _bound(self, rho: float, lines: Pair, u: Array, low: Array, apart: Array, one: Pair, other: Pair) -> Array:
        """(*) for an f that has about the tangents ``one``, where ln y is ``low``, and ``other``, ``apart`` from it."""
        down, alpha, last = np.exp(-u * apart), 1 + u, self.grid.size - 1
        a = (one[0] - other[0] * down) / (1 - down)
        down = np.exp(-alpha * apart)
        b = self.t * (other[1] * down - one[1]) / (1 - down)
        over = lines[0] - a[:, None]
        bought = lines[1] * self.t[:, None]
        room = bought + b[:, None] - 1e-15 * (np.abs(bought) + np.abs(b)[:, None])
        with np.errstate(all="ignore"):
            need = np.log(np.maximum(over, 0.0)) * (1 + 1 / u)[:, None] - np.log(np.maximum(room, 0.0))
        needed = np.maximum.accumulate(need, axis=1)
        found = np.full(last + 1, np.inf)
        rows = np.arange(last + 1)
        scale = math.sqrt(2 * rho)
        for reach in _REACHES:
            # the last line that is met ends at the point t/y₀ of the grid, or nowhere
            end = rows + np.floor((reach * scale - low) / self.step).astype(np.intp) + 1
            line = lines[0].size - 2 - last + np.minimum(end, last + 1)
            log_weight = u * (needed[rows, line] + np.log(u)) - alpha * np.log(alpha)
            log_weight += 1e-12 * (1 + u)
            depth = (end - rows) * self.step
            with np.errstate(all="ignore"):
                gain = np.exp(np.minimum(log_weight + rho * alpha * u, 700.0)) * (1 + 1e-12 * (1 + rho * alpha * u))
                gap = np.maximum(u * np.exp(np.minimum(log_weight - alpha * depth, 700.0)) - b, 0.0) * (1 + 1e-9)
            rest = gap * np.exp(-(np.maximum(depth - rho, 0.0) ** 2) / (4 * rho))
            value = a + b + gain + rest + 1e-14 * (np.abs(a) + np.abs(b) + gain)
            found = np.fmin(found, np.where(log_weight < 699.0, value, np.inf))
        return found


def _chords(t: Array, values: Array) -> Pair:
    """p, rounded up, and q of the lines p − q·t through neighbouring points."""
    q = (values[:-1] - values[1:]) / np.diff(t)
    return (values[:-1] + q * t[:-1]) * _UP, q


def _lines(t: Array, values: Array, near: int) -> Pair:
    """A and B of lines above the curve, from that of the smallest t on.

    Those of t < 1 that are not among the last ``near`` are followed by some that are above several of them.
    """
    p, q = _chords(t, values)
    far = np.arange(min(near, q.size), q.size, _TOGETHER)[::-1]
    return (
        np.concatenate([[1.0], 1 - _reduced(np.minimum, q, far), 1 - q[: min(near, q.size)][::-1], p, values[-1:]]),
        np.concatenate(
            [[1 - values[-1]], 1 - _reduced(np.maximum, p, far), 1 - p[: min(near, p.size)][::-1], q, [0.0]]
        ),
    )


def _reduced(of: np.ufunc, values: Array, starts: NDArray[np.intp]) -> Array:
    return np.asarray(of.reduceat(values, starts[::-1])[::-1]) if starts.size else np.empty(0)


def _hulled(t: Array, values: Array) -> Array:
    """The lower hull of points of a curve that is convex, and symmetric as those of neighbours are."""
    values = values.copy()
    values[0] = min(values[0], float(np.min((values + (t - 1) / 2) / (1 + (t - 1) / 2))))
    kept = lower_hull(t, values)
    p, q = (np.repeat(some, np.diff(kept)) for some in _chords(t[kept], values[kept]))
    return np.append(p - q * t[:-1], values[-1])


def _smoothed(values: Array, width: int) -> Array:
    """Means over ``width`` neighbours on either side."""
    padded = np.pad(values, width, mode="edge")
    return np.asarray(np.convolve(padded, np.full(2 * width + 1, 1 / (2 * width + 1)), mode="valid"))

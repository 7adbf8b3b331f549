"""Thousands of choices by noisy maxima of which few tell much: one game, many choices at a time.

The game is that of :mod:`accounting.adaptive.choices.every_coin`. If strong choices are on rare samples, most tell a
little, and a few tell much. Cut into games of hundreds, in each of which the player looks for the best coin
anew, they would be up to a tenth more expensive than they are.

*A lattice that moves.* Let d be what the likely loss of the best coin is less than 0. With f_k(z) = V_k(z − kd),

    f_k(z) = max over coins of E[f_(k−1)(z − L − d)],

and the likely loss of a coin near the best one hardly moves z: on a lattice for z little is lost, but for jumps.

*Finitely many laws.* Losses between two points of the lattice are split over both such that P and Q keep their masses:
V is convex in e^x, so this is worse. Between two coins with a loss on the lattice the places do not change, and the
masses are affine in (u, κ/u), u = e^(−t). This is on a hyperbola, so that for u in [u₁, u₂] it lies in the triangle of
both ends and of where their tangents meet,

    2u₁u₂/(u₁ + u₂),  2κ/(u₁ + u₂).

A mean over a law is linear in its masses, and so at most that of a corner. A negative mass is left out, and all are
rounded up: as f ≥ 0 that is worse. So f_k ≤ T f_(k−1) for the largest mean T over finitely many laws.

*Many choices at a time.* Beyond the lattice let f be its last value, and below be as linear in e^z as V is convex, 1
where that is 0. Both are affine in f, so T f = max(T_j f + c_j) with linear T_j ≥ 0 and c_j ≥ 0. Let T′f = max T_j f;
T(f + g) ≤ Tf + T′g. So with S₀ = Tf − f and S_(l+1) = T′S_l − S_l is T^(i+1)f − T^i f ≤ T′^i S₀, and from
T′S_l = S_l + S_(l+1) and that T′ is sublinear

    T^m f ≤ f + Σ_(l<r) C(m, l+1)·S_l + C(m, r+1)·s·(1 + g)^m·(f + a)   if S_r ≤ s(f + a), S₀ ≤ g(f + a)

for a constant a ≥ 0, as T′(f + a) ≤ (1 + g)(f + a); g counts what a law has more than 1, too. As many steps are taken
as add little; a is the δ in question.

*Another algorithm* than that of ``every_coin``, as rounds are not played one by one: a leap is of hundreds of them,
which needs T to be a maximum of finitely many affine maps, and losses that stay on the moving grid.

Serves whoever asks a strong question of rare samples, thousands of times. 10,000 × ``PoissonSubsampled(NoisyMax(8.0),
0.001)`` cost 17.61 at δ = 1e-6, and 19.27 in short games. By brute force: ``tests/accounting/adaptive/test_games.py``;
leaps against single steps: ``tests/accounting/adaptive/test_rare_choices.py``.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting.adaptive import engine
from accounting.adaptive.choices.coins import CoinKind, largest_moments
from accounting.adaptive.engine import Board, Played, epsilon_between, largest_means
from accounting.arrays import UNIT_ROUNDOFF, Array
from accounting.loss.curves import value_between

__all__ = ["LongPair", "curve_of_many", "delta_of_many", "epsilon_of_many", "is_long"]


# What the lattice adds to ε at least and at most, as a share of it; and what steps at a time may add to δ.
_LEAST_ADDED, _MOST_ADDED, _REST = 1e-4, 1.2e-3, 0.01
# Differences that are taken, and steps that are played one by one.
_TERMS, _FIRST = 3, 8
# At the upper end e^(−this) times δ is about nothing.
_FAINT = 6.0
# Of choices that would else be one game more than this tell much: little would be lost.
_FEWEST, _JUMPS = 250, 10.0
# Products that are added up: as many take half a second, and so many too long. Steps at a time are few where one moves
# far on the lattice: at most about 1/(this + that move).
_WORK, _MOST_WORK, _MOVES = 5e9, 4e10, 0.015
# So much coarser a lattice tells soon whether an answer may matter; and there steps at a time may add more.
_COARSE, _MORE = 3.0, 10.0
# What is rounded, relative to (2 + g)^l·(f + a).
_ROUNDING = 1e-12
_LARGEST = 600.0
# ln of what Chernoff's bound on δ is above it, about.
_ABOVE = 2.0
# ln of δ that are asked for; at others much else decides.
_LEAST, _MOST, _INSIDE = -75.0, -2.0, 1e-6


@dataclass(frozen=True)
class _Plan:
    """Where the game of ``count`` choices is played: d, the lattice's step, and how far it goes below and above 0."""

    drift: float
    step: float
    below: float
    above: float
    #: How often a choice tells much where δ is decided; and an ε at which it is met, by Chernoff's bound: what that
    #: leaves unused, (1 + r)ln(1 + r) − r·ln r at the order r, is far more than the coins between those tried add.
    jumps: float
    enough: float
    #: Products that are about to be added up.
    work: float


@lru_cache(maxsize=64)
def _plan(kind: CoinKind, count: int, level: float, coarser: float = 1.0) -> _Plan:
    """For δ near e^``level``, on a lattice so many times ``coarser`` than it should be."""
    orders = np.geomspace(1e-2, 1e3, 120) / kind.highest
    moments = count * largest_moments(kind, orders)
    at = int(np.argmin((moments - level) / orders))
    order, epsilon = float(orders[at]), float((moments[at] - level) / orders[at])
    above = min(count * kind.highest, float(np.min((moments - level + _FAINT) / orders)))
    high, low = kind.losses(np.linspace(*kind.ends, 2001)[1:-1])
    # ln of what the two losses add to the moment
    with np.errstate(divide="ignore"):
        both = np.log(-np.expm1(-low - high))
        wins = np.log(-np.expm1(-low)) - both + order * high
        loses = np.log(-np.expm1(-high)) - both - (1 + order) * low
    best = int(np.argmax(np.logaddexp(wins, loses)))
    h, l = float(high[best]), float(low[best])
    # not 0, however rare
    jump = 1 / (1 + math.exp(min(abs(float(loses[best] - wins[best])), _LARGEST)))
    below = min(4 * math.sqrt(count * jump) * (h + l) + 2 * (h + l), 12.0)
    drift = l if wins[best] < loses[best] else -h
    finest, coarsest = (
        math.sqrt(12 * added * epsilon / (count * order * jump)) for added in (_LEAST_ADDED, _MOST_ADDED)
    )
    # points, places and three laws for each of them, four times a leap
    length, widest = below + above + abs(count * drift), float(high.max() + low.max())
    steps = np.geomspace(finest, coarsest, 24)
    products = 12 * count * length * widest**2 / steps**3 * (abs(drift) / steps + _MOVES)
    at = min(int(np.count_nonzero(products > _WORK)), steps.size - 1)
    # with the best coin's other loss in the middle of a cell: at an end of one, those beside it gain more
    step = (h + l) / (max(math.ceil((h + l) / (coarser * float(steps[at]))), 6) + 0.5)
    return _Plan(drift, step, below, above, jump, epsilon * (1 + 1e-9), float(products[at]))


def is_long(kind: CoinKind, count: int, level: float) -> bool:
    """Whether there are that many choices, of which few tell much; for δ near e^``level``."""
    if count <= _FEWEST or kind.rate == 1 or not (_LEAST < level < _MOST and 1e-3 < kind.span < 40):
        return False
    if kind.width < 1e-3:
        return False
    plan = _plan(kind, count, level)
    return _FEWEST * plan.jumps < _JUMPS and plan.work < _MOST_WORK and plan.above + abs(count * plan.drift) < _LARGEST


def _breaks(kind: CoinKind, plan: _Plan) -> list[float]:
    """The t of all coins with a loss on the lattice, and the two ends."""
    first, last = kind.ends
    high, low = kind.losses(np.array(kind.ends))
    places = np.arange(
        math.ceil((plan.drift - float(low.max())) / plan.step),
        math.floor((plan.drift + float(high.max())) / plan.step) + 1,
    )
    losses = plan.step * places - plan.drift
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = np.log1p(np.maximum(np.expm1(losses if kind.present else -losses) / kind.rate, -1.0))
        t = np.where(plain >= 0, plain, kind.span + plain)
    return [first, *np.unique(t[(t > first) & (t < last)]).tolist(), last]


def _laws(kind: CoinKind, plan: _Plan) -> tuple[Array, int]:
    """The masses of P of all laws, by columns; in rows for places that fall, from the second value on."""
    found: list[dict[int, float]] = []
    left = math.exp(-kind.span)
    for start, end in itertools.pairwise(_breaks(kind, plan)):
        high, low = kind.losses(np.array([(start + end) / 2]))
        cells = [math.floor((plan.drift + loss) / plan.step) for loss in (float(high[0]), -float(low[0]))]
        u, v = math.exp(-start), math.exp(-end)
        # of where the tangents meet κ/u is less by this than it is on the hyperbola
        less = left * (u - v) ** 2 / (2 * u * v * (u + v))
        first, middle, last = (
            _law(kind, at, off, cells, plan) for at, off in ((u, 0.0), (2 * u * v / (u + v), less), (v, 0.0))
        )
        if found:
            # where a loss is on the lattice the laws of both sides are the same, but for rounding
            before = found.pop()
            first = {place: max(before.get(place, 0.0), first.get(place, 0.0)) for place in before | first}
        found += [first, middle, last]
    places = [place for law in found for place in law]
    lowest, highest = min(0, *places), max(0, *places)
    masses = np.zeros((highest - lowest + 1, len(found)))
    for column, law in enumerate(found):
        for place, mass in law.items():
            masses[highest - place, column] = mass
    return masses, highest


def _law(kind: CoinKind, u: float, less: float, cells: list[int], plan: _Plan) -> dict[int, float]:
    """P's masses, rounded up, where the losses are in ``cells``."""
    s, rest = 1 - u, u - math.exp(-kind.span)
    share, more = (float(x) for x in kind.chances(np.array(u), np.array(s), np.array(rest)))
    width = math.expm1(plan.step)
    gain = kind.rate * (more + kind.multiple * less)
    with_unit, without = (share + gain, 1 - share - gain), (share, 1 - share)
    p, q = (with_unit, without) if kind.present else (without[::-1], with_unit[::-1])
    # the high loss has the chance u and ``rate`` at most, and its digits are lost where it has none
    few = 32 * UNIT_ROUNDOFF * (1 + 1 / width)
    off = (few * (u + kind.rate), few) if kind.present else (few, few * (u + kind.rate))
    law: dict[int, float] = {}
    for cell, in_p, in_q, rounded in zip(cells, p, q, off, strict=True):
        ends = [math.exp(plan.step * place - plan.drift) for place in (cell, cell + 1)]
        at_low, at_high = (ends[1] * in_q - in_p) / width, (in_p - ends[0] * in_q) / width * math.exp(plan.step)
        for place, mass in ((cell, at_low), (cell + 1, at_high)):
            law[place] = law.get(place, 0.0) + max(mass, 0.0) * (1 + _ROUNDING) + rounded
    return law


class RareCoins:
    """T and T′."""

    def __init__(self, kind: CoinKind, plan: _Plan) -> None:
        masses, self.reach = _laws(kind, plan)
        self._laws = np.ascontiguousarray(masses.T)
        self._board, self._after = Board(plan.step), masses.shape[0] - 1 - self.reach
        self._falling = np.exp(plan.step * np.arange(-self.reach, 0, dtype=np.float64))
        #: Products of one step, for every value; and how much more than 1 a law has. A law goes up by ``reach``.
        self.work = masses.size
        self.excess = float(masses.sum(axis=0).max()) - 1

    def best(self, values: Array) -> Array:
        """T f."""
        return largest_means(self._laws, self._board.continued(values, self.reach, self._after), values.size)

    def difference(self, f: Array) -> Array:
        """T′f − f."""
        whole = np.concatenate([f[0] * self._falling, f, np.full(self._after, f[-1])])
        return largest_means(self._laws, whole, f.size) - f


def _leap(game: RareCoins, f: Array, level: float, left: int, rest: float) -> tuple[Array, int]:
    """f after some steps, at most ``left``, and how many these are; ``rest`` is what one may add to ln f."""
    one = game.best(f)
    if left <= _TERMS:
        return one, 1
    differences = [one - f]
    for _ in range(_TERMS):
        differences.append(game.difference(differences[-1]))
    size = f + level
    growth = max(float(np.max(differences[0] / size)), 0.0) + max(game.excess, 0.0) + _ROUNDING
    share = max(float(np.max(differences[-1] / size)), 0.0)

    def added(steps: int) -> float:
        rounded = sum(math.comb(steps, i + 1) * (2 + growth) ** (i + 1) for i in range(_TERMS + 1))
        grown = math.exp(min(steps * math.log1p(growth), 600.0))
        return (math.comb(steps, _TERMS + 1) * share + _ROUNDING * rounded) * grown

    fewest, most = 1, left
    while fewest < most:
        steps = (fewest + most + 1) // 2
        fewest, most = (steps, most) if added(steps) <= rest * steps else (fewest, steps - 1)
    if fewest <= _TERMS:
        return one, 1
    total = sum(math.comb(fewest, i + 1) * differences[i] for i in range(_TERMS))
    return f + total + added(fewest) * size, fewest


@lru_cache(maxsize=16)
def curve_of_many(kind: CoinKind, count: int, level: float, coarser: float = 1.0) -> tuple[Array, Array] | None:
    """Values x from below 0 on, and δ of all choices at ε = x, rounded up, for δ near e^``level``.

    None if it takes too long; on a lattice so many times ``coarser`` than it should be.
    """
    plan = _plan(kind, count, level, coarser)
    moved, game = count * plan.drift, RareCoins(kind, plan)
    first = math.floor((min(0.0, moved) - plan.below) / plan.step)
    last = math.ceil((max(0.0, moved) + plan.above) / plan.step)
    z = plan.step * np.arange(first, last + 1, dtype=np.float64)
    f = engine.start(z)
    rest = _REST / count * (1.0 if coarser == 1 else _MORE)
    played, work, more, faint = 0, 0, game.reach, math.exp(level - _FAINT)
    while played < count:
        # beyond, f is about nothing: the last value that is played
        size = min(f.size, int(np.searchsorted(-f, -faint)) + more)
        left = count - played if played >= _FIRST else 1
        part, steps = _leap(game, f[:size], math.exp(level), left, rest)
        work += (_TERMS + 1) * game.work * size
        if part[-1] > faint and size < f.size:
            more *= 2
            continue
        f = np.append(part, np.full(f.size - size, part[-1]))
        played += steps
        if work > 2 * _MOST_WORK:
            return None
    x = z - moved
    return x + 1e-11 * (abs(x) + float(x[-1] - x[0])), np.minimum(f, 1.0)


def epsilon_of_many(kind: CoinKind, count: int, delta: float, enough: float = 0.0) -> float | None:
    """ε at ``delta``, rounded up, or one that is at most ``enough``; None if it takes too long."""
    level = math.log(delta)
    if _plan(kind, count, level).enough <= enough:
        return 0.0
    quick = _epsilon(curve_of_many(kind, count, level, _COARSE), delta) if enough > 0 else None
    if quick is not None and quick <= enough:
        return quick
    return _epsilon(curve_of_many(kind, count, level), delta)


def _epsilon(curve: tuple[Array, Array] | None, delta: float) -> float | None:
    found = math.inf if curve is None else epsilon_between(*curve, delta)
    return max(0.0, found) if found < math.inf else None


def delta_of_many(kind: CoinKind, count: int, epsilon: float, enough: float = 0.0) -> float | None:
    """δ at ``epsilon``, rounded up, or one that is at most ``enough``; None if it takes too long, or is no such game.

    The game is for δ near one that is known: first by Chernoff's bound, and then by a coarser lattice.
    """
    if epsilon >= count * kind.highest * (1 + 1e-12):
        return 0.0
    if count <= _FEWEST or kind.rate == 1:
        return None
    orders = np.geomspace(1e-2, 1e3, 120) / kind.highest
    level = float(np.min(count * largest_moments(kind, orders) - orders * epsilon)) - _ABOVE
    level, found = min(level, _MOST - _INSIDE), 1.0
    for coarser in (_COARSE, 1.0):
        if not is_long(kind, count, level) or (curve := curve_of_many(kind, count, level, coarser)) is None:
            return None
        found = min(found, value_between(*curve, epsilon) * (1 + 1e-9))
        if found <= enough:
            break
        level = math.log(max(found, 1e-300))
    return found


@dataclass(frozen=True)
class LongPair(Played):
    """``count`` choices of which few tell much, among other releases; for δ near e^``level``.

    It is there only where that game does not take too long.
    """

    kind: CoinKind
    count: int
    level: float

    def _curve(self) -> tuple[Array, Array]:
        curve = curve_of_many(self.kind, self.count, self.level)
        if curve is None:
            raise ArithmeticError(f"the game of {self!r} takes too long")
        return curve

"""What choices that follow one another cost at least: the game of coins, played on a lattice.

Each kind of choice has coins that some scores are exactly (:func:`two_losses`), with losses −``low`` and ``high``. A
coin whose losses are rounded towards 0, to multiples of a step h, is less: both are mixtures, and that of the true coin
is wider. So the player who takes only rounded coins needs no interpolation,

    V₀(x) = (1 − e^x)₊,    V_k(x) = max over coins of p·V_{k−1}(x − high) + (1 − p)·V_{k−1}(x + low),

on one lattice for all kinds, one kind after the other; it is laid such that the ε in question is one of its points, and
h such that little is rounded off the best coins. Below the lattice V is at least the first value, above it 0.

*Many choices at a time.* Of thousands of choices on rare samples few tell much, and the low losses are far smaller than
the high ones. There the player takes b choices with the same coin before looking up. If the small loss is i·h/b and
the sum of both j·h, i and j whole, then the sum of b losses is on the lattice, and its law is binomial. So what is
small is rounded to multiples of h/b, and nothing else is lost but that the player looks up only now and then.

*Beside other releases.* As 0 is one of its points and all losses are multiples of h, V_k is linear in e^x between
neighbouring points. So where choices come after other releases, the values on the lattice are those of a pair with
finitely many losses.

Serves brackets: of 100 × ``NoisyMax(0.1)`` at δ = 1e-6 the best fixed coin costs 2.19, the game 2.250, and no more than
2.252 is possible. By brute force: ``tests/accounting/adaptive/test_games.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting.adaptive import engine
from accounting.adaptive.choices.coins import chance, log_moments
from accounting.adaptive.engine import Board, Played, Sparse
from accounting.arrays import Array

__all__ = [
    "MOST_CHOICES",
    "GamePair",
    "Play",
    "game_below",
    "game_epsilon_at_least",
    "is_playable",
    "order_of",
    "two_losses",
]


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
# How often a player of choices of which few tell much looks up, at least; and how many may tell much at a time.
_LOOKS, _TELLING = 128, 2.0
# Of these choices so many coins are enough, which lie close together.
_COINS = 16
# Their lattice is so much finer.
_FINER = 4.0
# Less likely sums are left out; and beside other releases what is rarer than e^(−this).
_FAINT, _RARE = 1e-25, 50.0


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
    :func:`accounting.loss.laplace_maxima.groups_of_scores`.
    """
    if noise == "laplace":  # whose nodes of integration take a while to import
        from accounting.loss.laplace_maxima import groups_of_scores

        return groups_of_scores(epsilon)
    lead = epsilon * np.linspace(0.0, 1.0, 257)
    if noise == "gumbel":
        return [(epsilon - lead, lead)]
    # where the leader keeps the lead there is less
    win, lose = np.log1p(-0.5 * np.exp(-lead)), math.log(0.5) - lead
    win_after, lose_after = math.log(0.5) + lead - epsilon, np.log1p(-0.5 * np.exp(lead - epsilon))
    return [(lose_after - lose, win - win_after)]


#: ``low`` and ``high`` of coins, the high losses of every curve rising.
Curves = list[tuple[Array, Array]]


@lru_cache(maxsize=64)
def _coins_of(play: Play) -> Curves:
    """The coins on samples."""
    curves = []
    for low, high in two_losses(play.noise, play.epsilon):
        if play.rate < 1:
            low, high = -np.log1p(play.rate * np.expm1(-low)), np.log1p(play.rate * np.expm1(high))
            low, high = (low, high) if play.present else (high, low)
        order = np.argsort(high)
        curves.append((low[order] * (1 - _CHORD), high[order] * (1 - _CHORD)))
    return curves


def _variance(low: Array, high: Array) -> Array:
    low, high = np.maximum(low, 1e-300), np.maximum(high, 1e-300)
    often = chance(low, high)
    return np.asarray(often * (1 - often) * (low + high) ** 2)


def _largest_variance(curves: Curves) -> float:
    return max(float(_variance(low, high).max()) for low, high in curves)


def _ends(curves: Curves) -> tuple[float, float]:
    """The largest low loss, and the largest high one."""
    return max(float(low.max()) for low, _ in curves), max(float(high[-1]) for _, high in curves)


def order_of(plays: tuple[Play, ...], delta: float) -> float:
    """At which moment the choices matter: where Chernoff's bound on the ε of fixed coins is least."""
    orders = np.geomspace(0.1, 1e5, 40)
    return float(orders[int(np.argmin((_moments(plays, orders) - math.log(delta)) / orders))])


def _moments(plays: tuple[Play, ...], orders: Array) -> Array:
    """ln of the largest moment of all, at each order."""
    found = np.zeros(orders.size)
    for play in plays:
        for i, order in enumerate(orders.tolist()):
            found[i] += play.count * max(float(np.max(log_moments(*curve, order))) for curve in _coins_of(play))
    return found


def _rounded(curves: Curves, step: float, at_once: int = 1) -> tuple[Array, Array]:
    """Coins of which so many at a time end on a lattice: for every small loss the largest one of the other sign."""
    lowest, highest = _ends(curves)
    lows_are_small = highest > lowest
    many = math.floor(at_once * min(lowest, highest) / step)
    small = step / at_once * np.arange(1, many + 1)
    large = np.zeros(small.size)
    for low, high in curves:
        # a coin with a smaller loss is less, too; beyond the end of a curve there is none of it
        x, y = (low[::-1], high[::-1]) if lows_are_small else (high, low)
        np.maximum(large, np.interp(small, x, y, left=float(y[0]), right=0.0), out=large)
    large = np.floor((small + large) / step) * step - small
    kept = (large > 0) & np.append(large[1:] < large[:-1], True)[: large.size]
    small, large = small[kept], large[kept]
    return (small, large) if lows_are_small else (large, small)


def _at_once(play: Play) -> int:
    """How many choices the player makes before looking up: more than one where there are many, and few tell much."""
    curves = _coins_of(play)
    if play.rate == 1 or play.count < 2 * _LOOKS or any(np.any(np.diff(low) > 0) for low, _ in curves):
        return 1
    low, high = (np.concatenate(losses) for losses in zip(*curves, strict=True))
    often = float(chance(np.maximum(low, 1e-300), np.maximum(high, 1e-300))[int(np.argmax(_variance(low, high)))])
    most = math.floor(_TELLING / min(often, 1 - often))
    return min(play.count // _LOOKS, most) if most >= _MANY else 1


def _fineness(count: int) -> int:
    """Cells of the width of a coin."""
    return 256 if count <= 10 else 96 if count <= 60 else 64 if count <= 300 else 40


@lru_cache(maxsize=32)
def _step(plays: tuple[Play, ...], order: float) -> float:
    """The lattice on which little is lost of the coins with the largest moments, near a number of cells."""
    tables, at_once = [_coins_of(play) for play in plays], [_at_once(play) for play in plays]
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
    # rare losses, each of which is rounded off, are played in little time
    finer = _FINER if max(at_once) > 1 else 1.0
    wanted = max(wanted / finer, math.sqrt(work / (_MOST_WORK * finer)))
    tried = max(widths) / np.arange(math.ceil(max(widths) / wanted), math.ceil(1.3 * max(widths) / wanted) + 1)
    tried *= 1 - 2 * _CHORD
    tried = np.unique(np.concatenate([tried, np.geomspace(wanted / 1.3, wanted, 24)]))

    def kept(step: float) -> float:
        found = 0.0
        for play, curves, many in zip(plays, tables, at_once, strict=True):
            low, high = _rounded(curves, step, many)
            if low.size:
                found += play.count * float(log_moments(low, high, order).max())
        return found

    best_step = float(max(tried.tolist(), key=kept))
    whole = float(_moments(plays, np.array([order]))[0])
    if kept(best_step) >= (1 - _LOST) * whole:
        return best_step
    # the low losses of rare ones are far smaller than the high ones
    spread, most = _extent(plays)
    length = min(most, 10 * deviation + total / 2) + 2 * spread
    lows = sum(play.count * _ends(curves)[0] for play, curves in zip(plays, tables, strict=True))
    finest = max(math.sqrt(lows * length / _MOST_WORK), length / _MOST_POINTS)
    more = np.geomspace(best_step, finest, 24).tolist() if finest < best_step else []
    enough = (step for step in more if kept(step) >= (1 - _LOST) * whole)
    return float(next(enough, max([best_step, *more], key=kept)))


def _laws(low: Array, high: Array, at_once: int, step: float) -> list[list[tuple[int, float]]]:
    """Of every coin where so many tosses lead, in steps, and how likely."""
    found = []
    wins, loses = chance(low, high), chance(high, low) * np.exp(-low)
    for down, up, win, lose in zip(low.tolist(), high.tolist(), wins.tolist(), loses.tolist(), strict=True):
        # from none of the rarer side on: of the other one that may be too small for floats, which have few digits there
        often, odd, rare, rest = (-down, up, win, lose) if win < lose else (up, -down, lose, win)
        law, mass = [], math.exp(at_once * math.log1p(-rare))
        for many in range(at_once + 1):
            if mass > _FAINT:
                law.append((round((many * odd + (at_once - many) * often) / step), mass))
            mass *= (at_once - many) / (many + 1) * rare / rest
        found.append(law)
    return found


def _extent(plays: tuple[Play, ...]) -> tuple[float, float]:
    """How far the lattice goes on below 0 and above the ε in question; and the largest value of the sum."""
    square = sum(play.count * _largest_variance(_coins_of(play)) for play in plays)
    highs = [_ends(_coins_of(play))[1] for play in plays]
    most = sum(play.count * high for play, high in zip(plays, highs, strict=True))
    return min(most, 4 * math.sqrt(square) + max(highs)), most


@lru_cache(maxsize=32)
def _centre(plays: tuple[Play, ...]) -> float:
    """Losses above this are hardly ever seen; by the variance, or where rare ones are large by Chernoff's bound."""
    spread, most = _extent(plays)
    orders = np.geomspace(1e-2, 1e3, 40)
    return min(most, 2.5 * spread + spread**2 / 32, float(np.min((_moments(plays, orders) + _RARE) / orders)))


def _lattice(spread: float, centre: float, step: float) -> tuple[Array, int]:
    """Points around ``centre``, and the place of ``centre`` among them."""
    below, above = math.ceil((centre + spread) / step) + 1, math.ceil(spread / step) + 1
    return centre + step * np.arange(-below, above + 1, dtype=np.float64), below


def _values(plays: tuple[Play, ...], x: Array, step: float) -> Array:
    values, board = engine.start(x), Board(step, lower=True)
    for one in plays:
        at_once = _at_once(one)
        for many, times in ((one.count % at_once, 1), (at_once, one.count // at_once)):
            low, high = _rounded(_coins_of(one), step, many) if many else (np.empty(0), np.empty(0))
            if one.count >= _MANY and low.size:
                variances = _variance(low, high)
                kept = variances >= _SHARE * variances.max()
                low, high = low[kept], high[kept]
            if at_once > 1 and low.size:
                # next to each other the one of which least was rounded off
                variances = _variance(low, high)
                groups = np.array_split(np.arange(low.size), min(_COINS, low.size))
                best = [int(group[np.argmax(variances[group])]) for group in groups if group.size]
                low, high = low[best], high[best]
            if low.size:
                family = Sparse(board, _laws(low, high, many, step), many * _ROUNDING)
                values = engine.play([(family, times)], values)
    return values


@lru_cache(maxsize=16)
def game_below(plays: tuple[Play, ...]) -> tuple[Array, Array]:
    """Points x, evenly spaced, and values there, rounded down."""
    step, (spread, _) = _step(plays, 1.0), _extent(plays)
    x, _ = _lattice(spread, step * math.ceil(_centre(plays) / step), step)
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


@dataclass(frozen=True)
class GamePair(Played):
    """Choices that come last, each with a few scores, from below."""

    lower, rounding = True, 0.0

    plays: tuple[Play, ...]

    def _curve(self) -> tuple[Array, Array]:
        return game_below(self.plays)

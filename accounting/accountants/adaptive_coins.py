"""Many choices by the exponential mechanism, one after another: what they cost together when each follows the others.

Report-noisy-max with Gumbel noise has a loss of range ε₀ (Cesar & Rogers 2021), so it is at least as private as some
coin with the losses t and t − ε₀, 0 ≤ t ≤ ε₀ (Dong, Durfee & Rogers 2020); and two scores are such a coin, for every t.
So the worst that k choices can do, where each may depend on the outcomes before it, is a game with one player:

    V₀(x) = (1 − e^x)₊,    V_k(x) = max over t of p·V_{k−1}(x − t) + (1 − p)·V_{k−1}(x − t + ε₀),

p the probability of the loss t: given the losses so far, x is what is left of ε. Then δ(ε) = V_k(ε), exactly. One pair
that dominates a single choice for all ε (``GumbelPair``) is worse than any coin, and its compositions are up to 7 %
dearer; the best single t for all of them is a little cheaper than the truth.

*From above.* V_k is convex in y = e^x, as a maximum of such functions. On a lattice x = c + j·ε₀/m let V̂ be an upper
bound, interpolated linearly in y; that remains one. With u = e^(−t), E = e^ε₀ the probabilities are p = (uE −
1)/(u(E − 1)) and (1 − u)/(u(E − 1)); and where V̂ is a₁ + b₁·yu at the first point and a₀ + b₀·yuE at the second,

    (E − 1)·(…) = a₁E − a₀ + y(b₀E − b₁) + (a₀ − a₁)/u + Ey(b₁ − b₀)·u.

As ε₀ is m steps both points change their cells at the same u. So the maximum over all t is one over m cells, in each of
which it is at an end or at u² = (a₀ − a₁)/(Ey(b₁ − b₀)). Below the lattice V̂ is 1, above it the last value. What the
lattice adds is of second order in 1/m.

*From below.* The player who takes only t on the lattice, where no interpolation is needed; below the lattice V is at
least the first value, above it 0. The lattice is laid such that the ε in question is one of its points.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "adaptive_curve",
    "adaptive_curve_at_least",
    "adaptive_delta",
    "adaptive_epsilon",
    "adaptive_epsilon_at_least",
    "is_playable",
]

Array = NDArray[np.float64]

# More choices than this take too long; of a smaller ε₀ differences over a cell lose too many digits; a larger sum has
# numbers that are beyond floats.
_MOST_CHOICES, _LEAST, _MOST_SUM = 2000, 2e-3, 300.0
_UNIT_ROUNDOFF = 2.0**-52


def is_playable(epsilon0: float, count: int) -> bool:
    """Whether there are answers: more than one choice, and neither too many nor too weak or strong ones."""
    return 1 < count <= _MOST_CHOICES and epsilon0 >= _LEAST and count * epsilon0 <= _MOST_SUM


def _rounding(epsilon0: float, cells: int) -> float:
    """What one step may round, relative to the value: b·y is right to a unit over a cell, and is divided by E − 1."""
    return 1e-10 + 64 * _UNIT_ROUNDOFF * cells / min(epsilon0, 1.0) ** 2


def _fineness(count: int) -> int:
    """Cells of ε₀: the work is about count^1.5 times its square."""
    return 256 if count <= 4 else 64 if count <= 10 else 32 if count <= 60 else 20 if count <= 300 else 14


def _lattice(epsilon0: float, count: int, centre: float, cells: int) -> tuple[Array, int]:
    """Points around ``centre``, and the place of ``centre`` among them."""
    # from four deviations below 0 to four above ``centre``: what happens beyond is rarer than the lattice is fine
    deviation = min(4 * math.sqrt(count) * epsilon0 / 2, count * epsilon0)
    step = epsilon0 / cells
    below, above = math.ceil((centre + deviation) / step) + cells, math.ceil(deviation / step) + cells
    return centre + step * np.arange(-below, above + 1, dtype=np.float64), below


def _padded(values: Array, cells: int, below: float, above: float) -> Array:
    return np.concatenate([np.full(cells, below), values, np.full(cells, above)])


def _best_coin(values: Array, y: Array, epsilon0: float, cells: int) -> Array:
    """The best of all t, of ``values`` that are interpolated."""
    grown, n = math.exp(epsilon0), values.size
    slope = np.diff(values) / np.diff(y)
    level = values[1:] - slope * y[1:]
    slopes, levels = _padded(slope, cells, 0.0, 0.0), _padded(level, cells, 1.0, float(values[-1]))
    best = np.zeros(n)
    for i in range(cells):
        # u from e^(−(i + 1)·step) to e^(−i·step); the cells that end at j − i and at j − i + m
        first, second = slice(cells - i - 1, cells - i - 1 + n), slice(2 * cells - i - 1, 2 * cells - i - 1 + n)
        a1, b1, a0, b0 = levels[first], slopes[first], levels[second], slopes[second]
        if a0.size < n:  # above the lattice
            missing = n - a0.size
            a0, b0 = np.append(a0, np.full(missing, values[-1])), np.append(b0, np.zeros(missing))
        down, up = a0 - a1, grown * y * (b1 - b0)
        fixed = a1 * grown - a0 + y * (b0 * grown - b1)
        low, high = math.exp(-epsilon0 * (i + 1) / cells), math.exp(-epsilon0 * i / cells)
        with np.errstate(divide="ignore", invalid="ignore"):
            u = np.sqrt(down / up)
        u = np.where(np.isfinite(u), np.clip(u, low, high), high)
        np.maximum(best, fixed + down / u + up * u, out=best)
    return np.minimum(np.maximum(best / (grown - 1), values) * (1 + _rounding(epsilon0, cells)), 1.0)


def _chances(epsilon0: float, cells: int) -> Array:
    """The probability of the loss t, for every t on the lattice."""
    t = epsilon0 * np.arange(cells + 1) / cells
    return np.asarray(np.expm1(t - epsilon0) / math.expm1(-epsilon0))


def _best_lattice_coin(values: Array, epsilon0: float, cells: int) -> Array:
    """The best of the t on the lattice."""
    n = values.size
    padded = _padded(values, cells, float(values[0]), 0.0)
    best = np.zeros(n)
    for i, chance in enumerate(_chances(epsilon0, cells)):
        second = padded[2 * cells - i : 2 * cells - i + n]
        np.maximum(best, chance * padded[cells - i : cells - i + n] + (1 - chance) * second, out=best)
    return best * (1 - 1e-10)


def _curve_lattice(epsilon0: float, count: int) -> tuple[float, int]:
    """A multiple of the lattice's step above which there is next to nothing, and how many steps it is."""
    cells = _fineness(count)
    top = min(count * epsilon0, 5.0 * math.sqrt(count) * epsilon0 + count * epsilon0**2 / 8)
    steps = math.ceil(top / epsilon0 * cells)
    return steps * epsilon0 / cells, steps


@lru_cache(maxsize=64)
def adaptive_curve(epsilon0: float, count: int) -> tuple[Array, Array]:
    """Values of ε from 0 on, evenly spaced, and δ of ``count`` choices there, rounded up; until it matters no more."""
    centre, steps = _curve_lattice(epsilon0, count)
    cells = _fineness(count)
    x, place = _lattice(epsilon0, count, centre, cells)
    y = np.exp(x)
    values = np.maximum(-np.expm1(x), 0.0)
    for _ in range(count):
        values = _best_coin(values, y, epsilon0, cells)
    kept = values[place - steps :]
    return centre / steps * np.arange(kept.size, dtype=np.float64), kept


@lru_cache(maxsize=16)
def adaptive_curve_at_least(epsilon0: float, count: int) -> Array:
    """As :func:`adaptive_curve`, rounded down, at the same ε."""
    centre, steps = _curve_lattice(epsilon0, count)
    cells = _fineness(count)
    x, place = _lattice(epsilon0, count, centre, cells)
    values = np.maximum(-np.expm1(x), 0.0)
    for _ in range(count):
        values = _best_lattice_coin(values, epsilon0, cells)
    return values[place - steps :]


def adaptive_delta(epsilon0: float, count: int, epsilon: float) -> float:
    """δ of ``count`` choices, each ``epsilon0``-DP, rounded up; of no use where it is below 1e-40.

    Examples
    --------
    >>> round(adaptive_delta(0.1, 100, 2.2536) * 1e6, 2)
    1.0
    """
    if epsilon >= count * epsilon0:
        return 0.0
    x, values = adaptive_curve(epsilon0, count)
    at = int(np.searchsorted(x, epsilon, side="right"))
    if at >= x.size:
        return float(values[-1])
    # linear in e^ε
    share = math.expm1(epsilon - x[at - 1]) / math.expm1(x[at] - x[at - 1])
    return float(values[at - 1] + share * (values[at] - values[at - 1])) * (1 + 1e-12)


def adaptive_epsilon(epsilon0: float, count: int, delta: float, about: float) -> float:
    """ε of ``count`` choices at ``delta``, the inverse of :func:`adaptive_delta`; at most ``about``, an upper bound.

    Examples
    --------
    >>> round(adaptive_epsilon(0.1, 100, 1e-6, 2.4), 3)
    2.254
    """
    x, values = adaptive_curve(epsilon0, count)
    if values[-1] >= delta:
        return about
    if values[0] <= delta:
        return 0.0
    last = int(np.flatnonzero(values > delta)[-1])
    share = (values[last] - delta) / (values[last] - values[last + 1])
    found = float(x[last]) + math.log1p(float(share) * math.expm1(float(x[last + 1] - x[last])))
    return min(about, found * (1 + 1e-11))


@lru_cache(maxsize=64)
def adaptive_epsilon_at_least(epsilon0: float, count: int, delta: float, about: float) -> float:
    """A proved lower bound on the ε of ``count`` choices at ``delta``, near the upper bound ``about``; 0 if none is
    found.

    Examples
    --------
    >>> round(adaptive_epsilon_at_least(0.1, 100, 1e-6, 2.252), 3)
    2.249
    """
    cells, target = _fineness(count), about
    if about <= 0:
        return 0.0
    for share in (0.0, 1e-4, 1e-3, 1e-2):
        x, place = _lattice(epsilon0, count, target * (1 - share), cells)
        values = np.maximum(-np.expm1(x), 0.0)
        for _ in range(count):
            values = _best_lattice_coin(values, epsilon0, cells)
        if values[place] >= delta and x[place] > 0:
            return float(x[place])
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

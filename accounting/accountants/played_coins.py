"""zCDP releases, and Gaussian ones, from below: Gaussian noise first, and then coins that follow what was seen.

V_k(e), what k coins reach at the ε that is left, e, is at least p·V_(k−1)(e − ln y₂) + (1 − p)·V_(k−1)(e − ln y₁) for
every coin that is ρ-zCDP (:mod:`accounting.worst_coins`), and V₀(e) = (1 − e^e)₊. Coins of a few orders are tried at
every e, both ways round. The first few releases of many are Gaussian noise, which adds the mean of V_k(e − s) over its
loss s.

V falls in e. So it is followed at the points of a grid, from below: what lies between two of them counts as the upper
one, and what lies below the grid as its first point.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.losses import normal_masses
from accounting.concentrated import lower_zcdp_epsilon, zcdp_epsilon
from accounting.conversions import gdp_epsilon
from accounting.releases import ZCDP, Composed, Gaussian, Release
from accounting.worst_coins import SAFETY, worst_coin

__all__ = ["concentrated_epsilon_at_least"]

Array = NDArray[np.float64]

# As many are played by coins; of more, the largest.
_MOST_COINS = 32
# The coins that are tried at every point, the points up to ε, and what the grid has below 0 and above ε.
_COINS, _POINTS, _MORE = 64, 16_384, 0.6
# Far more than what rounding adds.
_ROUNDING = 1e-9


def _step(values: Array, rho: float, step: float, steepest: float) -> Array:
    """V with one more coin before it."""

    def moved(loss: float) -> Array:
        """V(e − loss), at least."""
        by = math.floor(loss / step)
        if by >= 0:
            return np.concatenate([np.full(min(by, values.size), values[0]), values[: max(values.size - by, 0)]])
        return np.concatenate([values[min(-by, values.size) :], np.zeros(min(-by, values.size))])

    best = values
    for eta in np.geomspace(0.05, 1.5, _COINS) * steepest:
        coin = worst_coin(rho * (1 - SAFETY), float(eta))
        if coin.meets(rho):
            p, q = math.exp(coin.log_p), math.exp(coin.log_p - coin.high)
            best = np.maximum(best, p * moved(coin.high) + (1 - p) * moved(coin.low))
            # P and Q may change places
            best = np.maximum(best, q * moved(-coin.high) + (1 - q) * moved(-coin.low))
    return best * (1 - _ROUNDING)


def concentrated_epsilon_at_least(release: Release, delta: float) -> float | None:
    """An ε that several zCDP releases, and Gaussian ones, cost at least, or one by itself; None of any others.

    Examples
    --------
    >>> round(concentrated_epsilon_at_least(2 * ZCDP(0.05), 1e-6), 3), round(zcdp_epsilon(0.1, 1e-6), 3)
    (2.138, 2.142)
    """
    coins: list[float] = []
    rest = 0.0
    parts = release.parts if isinstance(release, Composed) else ((release, 1),)
    for part, count in sorted(parts, key=lambda part: -part[0].rho if isinstance(part[0], ZCDP) else 0.0):
        match part:
            case ZCDP(rho=rho):
                played = min(count, _MOST_COINS - len(coins)) if rho > 0 else 0
                coins += played * [rho]
                rest += (count - played) * rho
            case Gaussian(noise_multiplier=z):
                rest += count * 0.5 / z**2
            case _:
                return None
    if not coins or (len(coins) == 1 and rest > 0):
        return None  # of one coin last the loss distribution knows more
    total = math.fsum(coins) + rest
    found = gdp_epsilon(math.sqrt(2 * total), delta) * (1 - _ROUNDING)
    if len(coins) == 1:
        return max(found, lower_zcdp_epsilon(total, delta))
    return max(found, _played_epsilon(coins, rest, delta))


def _played_epsilon(rhos: list[float], rest: float, delta: float) -> float:
    """An ε at which ``rhos`` by coins after ``rest`` by Gaussian noise cost at least δ; 0 where none is known."""
    top = zcdp_epsilon(math.fsum(rhos) + rest, delta)
    if not 0 < top < math.inf:
        return 0.0
    step = top / _POINTS
    below = round(_MORE * _POINTS)
    grid = step * np.arange(-below, _POINTS + below, dtype=np.float64)
    values: Array = np.maximum(-np.expm1(np.minimum(grid, 0.0)), 0.0)
    for rho in rhos:
        values = _step(values, rho, step, math.sqrt(-math.log(delta) / rho))
    first = below
    if rest > 0:
        mu = math.sqrt(2 * rest)
        reach = np.arange(-below, _POINTS + below)
        # the loss of Gaussian noise between neighbouring multiples of the step, and what is above the last
        edges: Array = np.asarray(step * reach / mu - mu / 2, dtype=np.float64)
        masses = normal_masses(edges)[1:]
        followed = np.append(values, 0.0)

        def reached(at: int) -> float:
            return float(masses @ followed[np.clip(at - reach, 0, values.size)]) * (1 - _ROUNDING)

        low, high = first - 1, first + _POINTS
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if reached(middle) >= delta else (low, middle)
        return max(0.0, float(grid[low]) * (1 - 1e-12))
    enough = np.flatnonzero(values[first : first + _POINTS] >= delta)
    return float(grid[first + enough[-1]]) * (1 - 1e-12) if enough.size else 0.0

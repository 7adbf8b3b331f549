"""From a Rényi curve to (ε, δ) at the best real order."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from accounting.arrays import Array
from accounting.checks import nonnegative
from accounting.notions.conversions import log_target, probability

__all__ = ["best_delta", "best_epsilon", "best_order_for_delta", "best_order_for_epsilon"]

Curve = Callable[[Array], Array]

_UNIT_ROUNDOFF = 2.0**-52
# Orders are searched over 1 + e^x with x in this range.
_LOWEST, _HIGHEST = -30.0, 60.0
# Spacing in x at which the search ends; the parabola's vertex is then within its square of the best order.
_CLOSE = 2e-3


def best_epsilon(curve: Curve, delta: float) -> float:
    """min over α of ε_α + ln(1 − 1/α) − (ln δ + ln α)/(α − 1), rounded up; infinite if no order is finite."""
    return max(0.0, _search_epsilon(curve, delta)[0])


def best_order_for_epsilon(curve: Curve, delta: float) -> float:
    """The order at which :func:`best_epsilon` is reached, less 1."""
    return _search_epsilon(curve, delta)[1]


def best_delta(curve: Curve, epsilon: float) -> float:
    """min over α of exp((α − 1)(ε_α − ε + ln(1 − 1/α)) − ln α), rounded up, at most 1."""
    return probability(_search_delta(curve, epsilon)[0])


def best_order_for_delta(curve: Curve, epsilon: float) -> float:
    """The order at which :func:`best_delta` is reached, less 1."""
    return _search_delta(curve, epsilon)[1]


def _search_epsilon(curve: Curve, delta: float) -> tuple[float, float]:
    budget = -log_target(delta)

    def objective(eta: Array) -> Array:
        divergence = curve(1 + eta)
        return _upward(divergence, -np.log1p(1 / eta), budget / eta, -np.log1p(eta) / eta)

    return _valley(objective, math.sqrt(budget / _rate(curve)))


def _search_delta(curve: Curve, epsilon: float) -> tuple[float, float]:
    nonnegative("epsilon", epsilon)

    def objective(eta: Array) -> Array:
        divergence = curve(1 + eta)
        return _upward(eta * divergence, -eta * epsilon, -eta * np.log1p(1 / eta), -np.log1p(eta))

    return _valley(objective, (1 + epsilon) / _rate(curve))


def _rate(curve: Curve) -> float:
    """ρ of the zCDP line through the curve at α = 2: where to start the search."""
    rate = float(curve(np.array([2.0]))[0]) / 2
    return min(max(rate, 1e-20), 1e20)


def _upward(divergence: Array, *terms: Array) -> Array:
    """The sum, rounded up by its own rounding error and by that of the curve."""
    total = divergence + sum(terms)
    magnitude = sum((np.abs(term) for term in terms), 64 * np.abs(divergence))
    return np.asarray(total + 8 * _UNIT_ROUNDOFF * magnitude)


def _valley(objective: Callable[[Array], Array], guess: float) -> tuple[float, float]:
    """The minimum over η = α − 1 > 0 of a function with a single valley, and where; any point of it is a valid bound.

    Five orders at a time, evenly spaced in x = ln η: the spacing grows until the lowest is an inner one, then the
    next five are laid closely around the vertex of the parabola through the lowest three.
    """
    x, step = min(max(math.log(guess), _LOWEST), _HIGHEST), 0.7
    best, at = math.inf, x
    for _ in range(100):
        grid = x + step * np.arange(-2.0, 3.0)
        y = objective(np.exp(np.clip(grid, _LOWEST, _HIGHEST)))
        y = np.where(np.isnan(y), np.inf, y)
        i = int(np.argmin(y))  # where all are infinite, the lowest order
        if y[i] < best:
            best, at = float(y[i]), float(grid[i])
        if i in (0, 4):
            if not _LOWEST < grid[i] < _HIGHEST:
                break
            x, step = float(grid[i]), step * 1.5
            continue
        left, middle, right = (float(value) for value in y[i - 1 : i + 2])
        bend = left - 2 * middle + right
        vertex = 0.5 * step * (left - right) / bend if 0 < bend < math.inf else 0.0
        if step < _CLOSE:
            break
        x, step = float(grid[i]) + vertex, step / 8
    return best, math.exp(min(max(at, _LOWEST), _HIGHEST))

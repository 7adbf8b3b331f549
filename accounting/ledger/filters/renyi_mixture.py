"""A filter on a family of Rényi orders at once, by the method of mixtures.

Let ℓ be the privacy loss of everything released so far, ln dP/dQ, and r_j the sum of the releases' Rényi divergences
of order 1 + η_j. As a release of order-(1 + η) divergence ε has E_P[e^{ηL}] ≤ e^{ηε} whatever was seen before,

    U = Σ_j w_j·e^{η_j(ℓ − r_j)},        w_j ≥ 0,  Σ_j w_j = δ,

is a supermartingale under P that starts at δ, however the releases are chosen. A sequence that is stopped while

    1 − e^{−x} ≤ Σ_j w_j·e^{η_j(x + ε − r_j)}    for every x ≥ 0                                              (*)

is therefore (ε, δ)-DP: with x = ℓ − ε, P(S) − e^ε·Q(S) ≤ E_P[(1 − e^{ε−ℓ})₊] ≤ E_P[U] ≤ δ for every event S. One
order with w = δ is the filter of Feldman & Zrnic (2021) with the conversion of Canonne, Kamath & Steinke (2020):
there the maximum over x is taken in closed form. Neighbouring orders help each other in (*), so that a dense
family costs about ln(1/0.25) in ln(1/δ), whichever of its orders turns out to be the best.

Both sides of (*) increase in x. On a grid it holds between two points if the left side at the upper one is at most
the right side at the lower one, which is how it is checked: on every 16th point first, and on all where that is not
enough.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from accounting.roots import root_between

__all__ = ["best_order", "least_epsilon", "meets", "orders_and_weights"]


# Where the orders lie around the best one for Gaussian noise, and how δ is shared among them.
_ORDERS = np.geomspace(0.5, 4.0, 16)
_WEIGHTS = 0.05 + np.exp(-0.5 * ((np.log(_ORDERS) + 0.05) / 0.3) ** 2)
# How many intervals of the grid are looked at together.
_BLOCK = 16


def orders_and_weights(epsilon: float, delta: float) -> tuple[Array, Array]:
    """The orders 1 + η_j for a budget, and their shares w_j/δ, from the budget alone.

    Around the order at which (ε, δ) holds the most Gaussian noise. Spends of rarely sampled data and little noise
    want lower orders, a few large releases of pure DP higher ones.
    """
    return 1.0 + best_order(epsilon, delta) * _ORDERS, _WEIGHTS / _WEIGHTS.sum()


def best_order(epsilon: float, delta: float) -> float:
    """η of the order 1 + η at which (ε, δ) holds the most Gaussian noise."""
    from accounting.conversions import best_order_for_delta
    from accounting.loss.concentrated_curve import zcdp_rho

    rho = zcdp_rho(epsilon, delta)
    return float(best_order_for_delta(lambda orders: rho * orders, epsilon)) if rho > 0 else 1.0


@cache
def _grid() -> tuple[Array, Array]:
    """The lower ends of the intervals in x, and ln of the left side of (*) at their upper ends; the last is endless."""
    upper = np.concatenate([np.geomspace(1e-6, 40.0, 75 * _BLOCK), [math.inf]])
    return np.concatenate([[0.0], upper[:-1]]), np.log(-np.expm1(-upper))


def meets(eta: Array, weights: Array, divergences: Array, epsilon: float) -> bool:
    """Whether (*) holds for the weights w_j and the sums r_j."""
    finite = np.isfinite(divergences)
    if not finite.any():
        return False
    eta, height = eta[finite], np.log(weights[finite]) + eta[finite] * (epsilon - divergences[finite])
    # a single order by itself, at its worst x = ln(1 + 1/η)
    if np.any(height + eta * np.log1p(1 / eta) + np.log1p(eta) >= 1e-12 * (1 + np.abs(height))):
        return True
    lower, log_left = _grid()
    rounding = 1e-12 * (1 + np.abs(height).max())

    def holds(points: Array, log_most: Array) -> NDArray[np.bool_]:
        return np.asarray(_log_right(eta, height, points) - rounding >= log_most)

    ends = np.minimum(np.arange(_BLOCK - 1, lower.size + _BLOCK - 1, _BLOCK), lower.size - 1)
    doubtful = np.repeat(~holds(lower[::_BLOCK], log_left[ends]), _BLOCK)[: lower.size]
    return bool(np.all(holds(lower[doubtful], log_left[doubtful])))


def _log_right(eta: Array, height: Array, points: Array) -> Array:
    """ln of the right side of (*), ln Σ e^(height_j + η_j·x), at some x."""
    terms = height + points[:, None] * eta
    peak = terms.max(axis=1)
    return np.asarray(peak + np.log(np.exp(terms - peak[:, None]).sum(axis=1)))


def least_epsilon(eta: Array, weights: Array, divergences: Array) -> float:
    """The smallest ε ≥ 0 at which (*) holds, rounded up by at most 1e-9 of it; infinite if no divergence is finite."""
    if not np.isfinite(divergences).any():
        return math.inf
    if meets(eta, weights, divergences, 0.0):
        return 0.0
    # one order by itself, as in the closed form
    with np.errstate(invalid="ignore"):
        alone = divergences - (np.log(weights) + eta * np.log1p(1 / eta) + np.log1p(eta)) / eta
    low, high = 0.0, max(float(np.nanmin(alone)), 0.0) * (1 + 1e-9) + 1e-12
    while not meets(eta, weights, divergences, high):
        high = high * (1 + 1e-6) + 1e-9
    finite = np.isfinite(divergences)
    some, known, log_weights = eta[finite], divergences[finite], np.log(weights[finite])
    lower, log_left = _grid()

    def margin(epsilon: float) -> float:
        return float(np.min(_log_right(some, log_weights + some * (epsilon - known), lower) - log_left))

    if margin(high) <= 0 or margin(low) >= 0:  # then one order by itself is what holds
        return high
    found = root_between(margin, low, high, absolute=0.0, relative=4e-10) * (1 + 4e-10)
    while not meets(eta, weights, divergences, found):
        found = found * (1 + 1e-10) + 1e-15
    return min(found, high)

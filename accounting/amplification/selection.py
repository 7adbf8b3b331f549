"""The best of a random number of runs: what a private choice of hyperparameters costs, as a Rényi curve.

Source: Papernot & Steinke (2022), "Hyperparameter tuning with Rényi differential privacy", arXiv:2110.03620. A run Q
releases something with a score; K runs are made, K drawn apart from the data and kept secret, and the one with the best
score is released. With ε_λ the Rényi curve of Q:

* Theorem 2, K truncated negative binomial with γ in (0, 1) and η > −1, for any other order λ̂ ≥ 1:

      ε′_λ ≤ ε_λ + (1 + η)(1 − 1/λ̂)·ε_λ̂ + (1 + η)·ln(1/γ)/λ̂ + ln E[K]/(λ − 1);

* Theorem 6, K Poisson of mean μ, for any ε̂ with e^ε̂ ≤ 1 + 1/(λ − 1) at which Q is (ε̂, δ̂)-DP:

      ε′_λ ≤ ε_λ + μ·δ̂ + ln μ/(λ − 1).

ln μ counts as 0 where it is negative. Both hold at any λ̂ and ε̂ allowed. The first is taken at the best of a grid of
orders, a twentieth apart in ln(λ̂ − 1) from 10⁻³ to 10⁶, and refined three times around its minimum; the second at the
largest ε̂. So neither depends on a search that succeeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from accounting.arrays import Array

__all__ = ["best_of_poisson_runs", "best_of_runs"]


_GRID = 1.0 + np.exp(np.arange(math.log(1e-3), math.log(1e6), 0.05))


def best_of_runs(curve: Callable[[Array], Array], orders: Array, stop: float, shape: float, mean: float) -> Array:
    """The curve at ``orders`` of the best of K runs, K truncated negative binomial.

    Parameters
    ----------
    curve : callable
        Orders → the curve of one run.
    orders : (m,) ndarray
    stop, shape, mean : float
        γ, η and E[K].

    Examples
    --------
    >>> import numpy as np
    >>> from accounting.amplification.selection import best_of_runs
    >>> best_of_runs(lambda orders: orders / 200, np.array([10.0]), 0.1, 1.0, 10.0).round(3)
    array([0.725])
    """
    log_runs = -math.log(stop)
    grid = _GRID
    for _ in range(4):
        values = (1.0 - 1.0 / grid) * curve(grid) + log_runs / grid
        best = int(np.nanargmin(values))
        other = float(values[best])
        grid = np.linspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], 21)
    # λ̂ = 1 too
    other = min(other, log_runs)
    return np.asarray(curve(orders) + (1.0 + shape) * other + _log(mean) / (orders - 1.0))


def best_of_poisson_runs(
    curve: Callable[[Array], Array], delta: Callable[[float], float], orders: Array, mean: float
) -> Array:
    """The curve at ``orders`` of the best of K runs, K Poisson.

    Parameters
    ----------
    curve : callable
        Orders → the curve of one run.
    delta : callable
        ε̂ → a δ̂ at which one run is (ε̂, δ̂)-DP.
    orders : (m,) ndarray
    mean : float
        μ.
    """
    failures = np.array([delta(float(-np.log1p(-1.0 / order)) * (1.0 - 2.0**-50)) for order in orders])
    return np.asarray(curve(orders) + mean * failures + _log(mean) / (orders - 1.0))


def _log(mean: float) -> float:
    return max(math.log(mean), 0.0) * (1.0 + 2.0**-50)

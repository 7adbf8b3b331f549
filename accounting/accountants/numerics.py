"""Functions that several accountants share, in the form that loses no digits."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["exp_remainder", "randomized_response"]

Array = NDArray[np.float64]


def exp_remainder(x: ArrayLike) -> NDArray[np.float64]:
    """e^x − 1 − x, which is nonnegative; precise where the three terms cancel."""
    x = np.asarray(x, dtype=np.float64)
    near = np.clip(x, -0.6, 0.6)
    series = np.ones_like(near)
    for k in range(16, 2, -1):
        series = 1.0 + near / k * series
    with np.errstate(over="ignore"):
        return np.asarray(np.where(np.abs(x) < 0.6, 0.5 * near * near * series, np.expm1(x) - x))


def randomized_response(epsilon: float, categories: int, orders: Array) -> Array:
    """(1/(α−1))·ln((e^(αε) + e^((1−α)ε) + k − 2)/(e^ε + k − 1)), by the form that loses no digits."""
    eta, k = orders - 1, categories
    x = eta * epsilon
    with np.errstate(over="ignore"):
        # A_α − 1 = ((e^ε − 1)(e^((α−1)ε) − 1) + 4 sinh²((α−1)ε/2))/(e^ε + k − 1), in which nothing cancels
        near = np.minimum(x, 1.0)
        shrink = math.exp(-epsilon) / (1.0 + (k - 1) * math.exp(-epsilon))  # 1/(e^ε + k − 1)
        rise = -math.expm1(-epsilon) / (1.0 + (k - 1) * math.exp(-epsilon))  # (e^ε − 1)/(e^ε + k − 1)
        small = np.log1p(rise * np.expm1(near) + shrink * 4 * np.sinh(near / 2) ** 2)
        tails = np.exp(-(2 * orders - 1) * epsilon) + (k - 2) * np.exp(-orders * epsilon)
    large = x + np.log1p(tails) - math.log1p((k - 1) * math.exp(-epsilon))
    return np.asarray(np.where(x < 1.0, small, large) / eta)

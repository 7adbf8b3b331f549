"""Elementary functions in the form that loses no digits."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["exp_remainder"]


def exp_remainder(x: ArrayLike) -> NDArray[np.float64]:
    """e^x − 1 − x, which is nonnegative; precise where the three terms cancel."""
    x = np.asarray(x, dtype=np.float64)
    near = np.clip(x, -0.6, 0.6)
    series = np.ones_like(near)
    for k in range(16, 2, -1):
        series = 1.0 + near / k * series
    with np.errstate(over="ignore"):
        return np.asarray(np.where(np.abs(x) < 0.6, 0.5 * near * near * series, np.expm1(x) - x))

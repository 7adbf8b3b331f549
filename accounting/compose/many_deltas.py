"""δ of one composed loss at many ε, for a whole curve.

The k-th loss above ε weighs e^(−t(a + kΔ))(1 − e^(−a − kΔ)), where the first one is a above ε and Δ is the step of the
grid. That is

    e^(−ta)·[(1 − e^(−a))·R_k + e^(−a)·R_k(1 − S_k)],    R_k = e^(−tkΔ),    S_k = e^(−kΔ),

with the same R and S for every ε. No term is negative, so this is what
:meth:`~accounting.compose.convolution.Sum.delta` says, but for 10⁻¹⁰ of it; and it is rounded outwards by 10⁻⁹.
"""

from __future__ import annotations

import math

import numpy as np

from accounting.arrays import Array
from accounting.compose.convolution import FADED, GRID_ERROR, Sum

__all__ = ["deltas"]


def deltas(total: Sum, epsilons: Array) -> Array:
    """δ from above at every ε ≥ 0."""
    losses, tilt = total.losses, total.tilt
    at = epsilons * (1 - GRID_ERROR)
    first = np.searchsorted(losses, at, side="right")
    end = np.full(first.shape, losses.size)
    if tilt > 0:
        end = np.maximum(first, np.searchsorted(losses, at + FADED / tilt))
    ahead = total.step * np.arange(int(np.max(end - first, initial=0)))
    near = np.exp(-tilt * ahead)
    far = near * -np.expm1(-ahead)
    # of all weights up to one, and of their squares
    sums = [np.append(0.0, np.cumsum(terms)) for terms in (near, far, near * near, 2 * near * far, far * far)]
    found = np.ones(at.shape)
    for i in np.flatnonzero(at >= losses[0]).tolist():
        n, mass = int(end[i] - first[i]), total.mass[first[i] : end[i]]
        a = float(losses[first[i]] - at[i]) if n else 0.0
        p, q = math.exp(-tilt * a) * -math.expm1(-a), math.exp(-(tilt + 1) * a)
        size, square = p * sums[0][n] + q * sums[1][n], p * p * sums[2][n] + p * q * sums[3][n] + q * q * sums[4][n]
        weighted = p * float(mass @ near[:n]) + q * float(mass @ far[:n])
        weighted += min(total.error[0] * size, total.error[1] * math.sqrt(square))
        if end[i] < losses.size:
            weighted += 2 * math.exp(-FADED)  # as in one δ alone: what has faded away
        found[i] = min(1.0, total.untilted(float(at[i]), weighted) + total.extra)
    return found

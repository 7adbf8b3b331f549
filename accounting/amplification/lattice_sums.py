"""E[(X₁ + … + Xₙ)₊] for independent variables on a grid, from above and from below, for any size of the result.

The law is tilted by e^(tx) such that its mean is 0, convolved n times with itself by one fast Fourier transform, and
tilted back: with K the n-fold cumulant, E[S₊] = e^K·Σ over s > 0 of s·e^(−ts)·(tilted mass of s). So the answer keeps
its digits however small it is. Counted as errors:

* rounding: an output of a transform of length N is right to a few log₂ N units of roundoff (Parseval bounds them all
  together), and the n-th power of an image, which is at most 1, to 4 units times 8 + n·|ln|;
* the window is a circle. What lies above it is lost, and what lies below comes to lie above 0: by Chernoff's bound each
  of the two has at most e^a of tilted mass, and counts at most max s·e^(−ts) = 1/(e·t). Both are added to an upper
  value, or taken off a lower one;
* the grid. Values off it are spread over their two neighbours with the mean kept: an S″ = S + R takes the place of S,
  E[R | S] = 0, so that the upper value is one. From below, S″₊ − S₊ − R·1{S > 0} is |S″| where S and S″ have different
  signs, else 0; then |S″| ≤ |R|, so E[S₊] ≥ E[S″₊] − E[|S″|; |S″| ≤ w] − E[|R|; |R| > w] for every w. R is a sum of n
  terms in intervals of one step Δ: by Hoeffding the last is at most 2(w + nΔ²/(4w))·e^(−2w²/(nΔ²)).
"""

from __future__ import annotations

import math

import numpy as np

from accounting.arrays import UNIT_ROUNDOFF, Array
from accounting.masses import onto_lattice
from accounting.roots import root_between

__all__ = ["FINENESS", "MOST_NODES", "mean_positive_part", "nodes_for", "sums_of_values"]


# e^(−this) is 0 in floats.
_VANISHED = 746.0
# Tilted deviations on either side of the window.
_REACH = 9.5
#: The grid's step over one variable's deviation where what the grid adds is taken off again, and the largest transform.
FINENESS, MOST_NODES = 0.02, 1 << 19


def nodes_for(count: int, fineness: float) -> int:
    """A length such that the grid's step is about ``fineness`` deviations of one of ``count`` variables."""
    return 1 << max(13, math.ceil(math.log2(2 * _REACH * math.sqrt(count) / fineness)))


def log_moment(points: Array, law: Array, tilt: float) -> float:
    """ln Σ law·e^(tilt·points)."""
    top = float((tilt * points).max())
    return top + math.log(float(law @ np.exp(tilt * points - top)))


def saddle(points: Array, law: Array) -> float:
    """The tilt at which the mean is 0, or 0 where it is positive without; some points are positive."""

    def mean(tilt: float) -> float:
        exponents = tilt * points
        weights = law * np.exp(exponents - exponents.max())
        return float(weights @ points) / float(weights.sum())

    if mean(0.0) >= 0:
        return 0.0
    high = 1.0 / float(points.max())
    while mean(high) < 0:
        high *= 2
    return root_between(mean, 0.0, high, absolute=1e-12 * high)


def sums_of_values(values: Array, mass: Array, count: int, nodes: int, sign: float) -> float:
    """E[S₊] of ``count`` variables of a few ``values``, from above (``sign`` 1) or from below (−1)."""
    deviation = math.sqrt(max(float(mass @ values**2) - float(mass @ values) ** 2, 0.0))
    # all sums of a few variables, and many deviations of many
    width = max(2 * _REACH * math.sqrt(count) * deviation, 2.2 * min(count, 12) * float(np.ptp(values)))
    step = width / nodes
    first = math.floor(float(values.min()) / step)
    law = onto_lattice(values / step - first, mass)
    return mean_positive_part(
        step * (first + np.arange(law.size, dtype=np.float64)), law, count, nodes, sign, spread=sign < 0
    )


def mean_positive_part(
    points: Array, law: Array, count: int, nodes: int, sign: float, *, spread: bool = False
) -> float:
    """E[S₊] of ``count`` variables with the ``law`` on evenly spaced ``points``; errors by ``sign`` (1 up, −1 down).

    With ``spread`` what the grid added is taken off.
    """
    from scipy.fft import irfft, rfft

    if points[-1] <= 0:
        return 0.0
    step = (points[-1] - points[0]) / (points.size - 1)
    tilt = max(saddle(points, law), 0.5 / math.sqrt(count * float(law @ points**2)))
    one = log_moment(points, law, tilt)
    tilted = law * np.exp(tilt * points - one)
    half = nodes // 2
    # a circle: the j-th node is the sum's part j·step + count·points[0], modulo nodes
    folded = np.bincount(np.arange(points.size) % nodes, weights=tilted, minlength=nodes)
    image = rfft(folded)
    size, image_error = np.abs(image), 8 * UNIT_ROUNDOFF * math.log2(nodes)
    spectrum, error = np.zeros_like(image), np.zeros_like(size)
    # of most frequencies nothing is left in floats where variables are many
    kept = np.flatnonzero(size + image_error > (math.exp(-_VANISHED / (count - 1)) if count > 1 else 0.0))
    image, size = image[kept], size[kept]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(image)
        power = np.where(size > 0, np.exp(count * logs), 0.0)
        grown = np.exp((count - 1) * np.log(np.minimum(size + image_error, 1.0)))
        doubt = np.where(size > 0, 4 * UNIT_ROUNDOFF * (8 + count * np.abs(logs)) * np.abs(power), 0.0)
    spectrum[kept] = power
    error[kept] = count * image_error * grown + doubt
    composed = irfft(spectrum, nodes)
    error += image_error * np.abs(spectrum)
    largest, norm = float(error.sum()) * 2 / nodes, math.sqrt(float(error @ error) * 2 / nodes)
    # the nodes j with j·step + count·points[0] around 0
    origin = -count * points[0] / step
    first = math.floor(origin) + 1
    ahead = np.arange(first, first + half)
    sums = step * (ahead - origin)
    weights = sums * np.exp(-tilt * sums)
    total = float(np.maximum(composed[ahead % nodes], 0.0) @ weights)
    lost = min(largest * float(weights.sum()), norm * float(np.linalg.norm(weights)))
    reach = (half - 1) * step
    ways = np.geomspace(0.05, 20.0, 24) / (step * nodes / (2 * _REACH))
    lost += sum(
        math.exp(min(0.0, min(count * (log_moment(points, law, tilt + s * way) - one) - s * reach for s in ways)))
        for way in (1.0, -1.0)
    ) / (math.e * tilt)
    slack = 1e-9 + 8 * UNIT_ROUNDOFF * count * abs(one)
    if spread and total > 0:
        square = count * step**2
        # in ln E[S″₊] and beyond it the answer's size matters; w is at most what the window holds
        log_size = count * one + math.log(total)
        w = math.sqrt(0.5 * square * max(1.0, 16.0 + math.log(math.sqrt(square)) - log_size))
        if tilt * w > 600:  # nothing is known then
            return 0.0
        number = min(math.ceil(w / step) + 1, half)
        near = np.arange(first - number, first + number)
        apart = step * (near - origin)
        cost = np.abs(apart) * np.exp(-tilt * apart)
        lost += float(np.maximum(composed[near % nodes], 0.0) @ cost)
        lost += min(largest * float(cost.sum()), norm * float(np.linalg.norm(cost)))
        log_tail = math.log(2 * (w + square / (4 * w))) - 2 * w * w / square
        lost += math.exp(min(700.0, log_tail - count * one + slack))
    if total + sign * lost <= 0:
        return 0.0
    return math.exp(min(700.0, count * one + math.log(total + sign * lost) + sign * slack))

"""Random allocation where one unit is swapped for another: its curve from above.

:mod:`accounting.loss.allocated` has the theorem: l and l′ have the law of one step's ratio, and one rises as the other
falls. The law is first spread onto some values; of finitely many ratios that joint law is known, at every c. For each c
what is left is spread once more, onto an even lattice, and added up as in :mod:`accounting.loss.allocated_epochs`: a
large l is set apart, and a large l′ made smaller, which makes H_c larger. Between the c that are tried the curve, which
is convex in c, is at most the line (:func:`accounting.loss.curves.pair_of_curve`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.arrays import Array
from accounting.loss.allocated_epochs import large_ratios
from accounting.loss.allocated_ratio import Ends, Ratio, ends_of, points, spread
from accounting.loss.allocated_sums import OUTSIDE, sums_of, window_of
from accounting.loss.pair import LossPair
from accounting.masses import onto_lattice

__all__ = ["swap_curve"]

# By what share ratios are apart, from which share of the largest on, and how many there may be.
_APART, _SMALL, _MOST_RATIOS = 0.01, 1e-12, 3000
# The variance that the second lattice may add, as a share of its own; and the most points.
_SHARE, _MOST_NODES = 5e-4, 1 << 18
# Losses at which the curve is found: so many up to some deviations, then farther apart, up to the largest or a small δ.
_EVEN, _DEVIATIONS, _FARTHER, _LARGEST, _LEAST = 64, 6.0, 1.12, 40.0, 1e-15


@dataclass(frozen=True)
class _Joint:
    """Both ratios, one rising as the other falls, and their mass: where the first is not large, and where it is."""

    first: Array
    second: Array
    mass: Array


def swap_curve(pair: LossPair, steps: int) -> tuple[Array, Array]:
    """Losses from 0 on, and δ there from above, of an epoch of ``steps`` ≥ 2 steps.

    ``pair`` is that of a step with a unit over without it.
    """
    ratio = Ratio(pair, turned=False, grows=True)
    nothing = ratio.nothing()
    ends = ends_of(ratio, nothing, steps)
    # even in the logarithm: small ratios count as well, c times
    low = math.log(max(ends.least, _SMALL * ends.cut))
    count = max(2, min(_MOST_RATIOS, math.ceil((math.log(ends.cut) - low) / _APART)))
    values = np.unique(np.append(np.geomspace(math.exp(low), ends.cut, count), ends.least))
    law = spread(ratio, values, nothing)
    rare, masses, told = large_ratios(ratio, ends, steps)
    small, large = _joint(np.concatenate([values, rare]), np.concatenate([law, masses]), ends)
    apart = small.first - small.second
    total = float(small.mass.sum())
    deviation = math.sqrt(float(small.mass @ (apart - float(small.mass @ apart) / total) ** 2) / steps)
    even = np.linspace(0.0, _DEVIATIONS * deviation, _EVEN)
    losses, deltas, epsilon = [], [], 0.0
    for i in range(10_000):
        epsilon = float(even[i]) if i < _EVEN else min(epsilon * _FARTHER, _LARGEST)
        losses.append(epsilon)
        deltas.append(min(1.0, told + _at(math.exp(epsilon), small, large, steps, ends.cut)))
        if epsilon >= _LARGEST or deltas[-1] <= 1.01 * told + _LEAST:
            break
    return np.array(losses), np.minimum.accumulate(np.array(deltas))


def _joint(values: Array, law: Array, ends: Ends) -> tuple[_Joint, _Joint]:
    """A law with itself, one rising as the other falls."""
    some = law > 0
    values, law = values[some], law[some]
    up, down = np.cumsum(law), np.cumsum(law[::-1])
    half = up[-1] / 2
    cuts = np.unique(np.concatenate([[0.0], up[up < half], down[down < half], [half]]))
    middle = (cuts[1:] + cuts[:-1]) / 2
    low = values[np.minimum(np.searchsorted(up, middle), values.size - 1)]
    high = values[::-1][np.minimum(np.searchsorted(down, middle), values.size - 1)]
    mass = np.diff(cuts)
    both = _Joint(np.concatenate([low, high]), np.concatenate([high, low]), np.concatenate([mass, mass]))
    far = both.first > ends.cut * (1 + 1e-9)
    second = np.minimum(both.second, ends.cut)
    return (
        _Joint(both.first[~far], second[~far], both.mass[~far]),
        _Joint(both.first[far], second[far], both.mass[far]),
    )


def _at(c: float, small: _Joint, large: _Joint, steps: int, cut: float) -> float:
    """E((1/t)Σ(lᵢ − c·l′ᵢ))₊ with at most one l that is large."""
    first = small.first
    total = float(small.mass.sum())
    # where the second is so large that no others make up for it, less will do: what counts is a positive sum
    deviation = math.sqrt(float(small.mass @ (first - float(small.mass @ first) / total) ** 2) / total)
    enough = min((steps - 1) * float(first.max()), float(first.max()) + _DEVIATIONS**2 * deviation * math.sqrt(steps))
    weights = np.maximum(first - c * small.second, -enough)
    least, most = float(weights.min()), float(weights.max())
    if most <= 0:  # only a large one makes the sum positive
        return float(large.mass @ np.maximum(large.first - c * large.second + (steps - 1) * most, 0.0))
    variance = float(small.mass @ (weights - float(small.mass @ weights) / total) ** 2) / total
    width = most - least
    h = max(math.sqrt(6 * _SHARE * variance), 2 * (width + 16 * math.sqrt(steps * variance)) / _MOST_NODES)
    h = max(min(h, steps * width / (1 << 12)), 1e-6 * width)
    law = onto_lattice((weights - least) / h, small.mass)
    places = np.flatnonzero(law > 0).astype(np.int64)
    law = law[places]
    window = window_of(places, np.ones(places.size), law, steps)
    others, (masses, each, norm) = sums_of(places, law, np.ones(places.size), window, steps)
    of_others = points((steps - 1) * least, h, window.places)
    gains = np.maximum(of_others + least, 0.0) / steps
    found = float(gains @ np.maximum(masses, 0.0))
    found += min(each * float(gains.sum()), norm * float(np.linalg.norm(gains))) + 2 * cut * math.exp(OUTSIDE)
    gained = _gain_above(of_others, np.maximum(others[0], 0.0) + others[1], c * large.second - large.first)
    return min(found, _chernoff(weights, small.mass, steps)) + float(large.mass @ gained)


def _gain_above(sums: Array, masses: Array, thresholds: Array) -> Array:
    """E(S − a)₊ at some a, rounded up: it is convex in a, and known at every sum."""
    above, whole = np.cumsum(masses[::-1])[::-1], np.cumsum((masses * (sums - sums[0]))[::-1])[::-1]
    gains = np.maximum(whole - (sums - sums[0]) * above, 0.0)
    inside = np.interp(thresholds, sums, gains)
    return np.asarray(np.where(thresholds < sums[0], gains[0] + (sums[0] - thresholds) * above[0], inside))


def _chernoff(weights: Array, mass: Array, steps: int) -> float:
    """A bound on E((1/t)Σw)₊, by x₊ ≤ e^(sx − 1)/s."""
    best = math.inf
    for tilt in np.geomspace(1e-3, 700.0, 40) / float(np.abs(weights).max()):
        log_moment = steps * math.log(float(mass @ np.exp(tilt * weights)))
        best = min(best, log_moment - 1.0 - math.log(tilt * steps))
    return math.exp(min(best, 0.0)) * (1 + 1e-9)

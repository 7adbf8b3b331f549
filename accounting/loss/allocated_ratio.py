"""One step's likelihood ratio, brought onto a lattice: larger in convex order, or smaller.

**From above** it is spread: the mass of each cell goes to its two edges such that its mean stays, which adds about h²/6
to the variance. Cells of large ratios are wider, and their edges still on the lattice. **From below** it is contracted:
consecutive masses that have a point of the lattice as their mean are brought there, in one sweep from the smallest to
the largest. Either keeps what it must whatever the law, of two points as well.

Masses are differences of distribution functions (:func:`accounting.masses.mass_errors`). From above, more mass than
they can be off by is added on either edge. From below that mass is left out, and what is left is moved to the side on
which expectations are smaller. These are the expectations of one order: of (R − c)₊, which grow, or of (1 − cR)₊, which
fall.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from accounting.loss.pair import Atoms, LossPair, where_rare
from accounting.masses import mass_errors, onto_edges

__all__ = ["Ends", "Ratio", "contracted", "ends_of", "lattice", "points", "spread"]

# The variance that the lattice may add to a ratio, as a share of its own; from below cells are so much closer.
_SHARE, _CLOSER = 2e-4, 2.5
# Of few ratios, which have no neighbours that make up for what the lattice does to each.
_SHARE_OF_FEW, _FEW = 2e-6, 64
# By what share large ratios may be apart on the lattice.
_APART = 0.01
# Cells of the lattice from below are made of so many.
_FINE = 8
# The probability that an epoch has a large ratio, and ln of one that is below the lattice.
_RARE, _BELOW = 1e-8, -48.0
# Where expectations fall: how many times the number of steps a ratio is, or how unlikely, that is as good as infinite;
# which share of the middle ratio the lattice resolves, and how many nodes that may take.
_BEYOND, _UNLIKELY, _SHARE_OF_MIDDLE, _SMALL_NODES = 20.0, 1e-4, 0.05, 1 << 17
_USUAL_NODES, _MOST_NODES = 1 << 15, 1 << 19


@dataclass(frozen=True)
class Ratio:
    """The likelihood ratio of one step under the law in its denominator: P over Q, or with ``turned`` Q over P.

    ``grows`` says for which expectations a bound is meant: of (R − c)₊, which grow with R, or of (1 − cR)₊, which fall.
    """

    pair: LossPair
    turned: bool
    grows: bool

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """Of the law above and of the one below: up to edges[0], between neighbouring edges, and above the last."""
        with np.errstate(divide="ignore"):
            losses = np.log(edges)
        if not self.turned:
            return self.pair.masses(losses)
        p, q = self.pair.masses(-losses[::-1])
        return q[::-1], p[::-1]

    def nothing(self) -> float:
        """What the law below has where the one above has nothing."""
        left = self.pair.infinite if self.turned else 1.0 - float(self.masses(np.ones(1))[1].sum())
        return left if left > 1e-11 else 0.0

    def small(self, log_mass: float) -> float:
        """An x such that the law below has at most e^``log_mass`` at positive ratios below e^(−x)."""
        nothing = self.pair.infinite if self.turned else 0.0
        return where_rare(lambda x: float(self.masses(np.array([math.exp(-x)]))[1][0]) - nothing, log_mass)

    def large(self, log_mass: float, *, above: bool = False) -> float:
        """An x such that the law below, or the one ``above``, has at most e^``log_mass`` at finite ratios above e^x."""
        which, infinite = (0, 0.0 if self.turned else self.pair.infinite) if above else (1, 0.0)
        return where_rare(
            lambda x: float(self.masses(np.array([math.exp(min(x, 700.0))]))[which][-1]) - infinite, log_mass
        )

    def between(self, edges: Array, *, lower: bool) -> tuple[Array, Array]:
        """Masses of both laws between edges, moved to the side of the bound by what they may be off."""
        above, below = self.masses(edges)
        p_error, q_error = (self._errors(mass) for mass in (above, below))
        low, high = edges[:-1], edges[1:]
        sign, end = -1.0 if lower else 1.0, high if self.grows else low
        q = np.maximum(below[1:-1] + sign * q_error, 0.0)
        # what comes in or is left out has the ratio at one end, and the rest may be off
        p = above[1:-1] + sign * ((p_error if self.grows else -p_error) + end * q_error)
        return np.clip(p, low * q, high * q), q

    def _errors(self, mass: Array) -> Array:
        if isinstance(self.pair, Atoms):  # which are added, and not subtracted
            return self.pair.mass_rounding * mass[1:-1]
        return mass_errors(mass)[1:-1]


@dataclass(frozen=True)
class Ends:
    """Ratios below which there is hardly anything, and above which they are large; and what these may be off by."""

    least: float
    cut: float
    off: float


def ends_of(ratio: Ratio, nothing: float, steps: int, *, most: float = 600.0) -> Ends:
    """Where the lattice ends, for a sum of ``steps`` ratios; at a loss of ``most`` at the latest."""
    low = 0.0 if nothing > 0 else ratio.small(_BELOW - math.log(steps))
    high = min(ratio.large(math.log(_RARE / steps)), most)
    if not ratio.grows:  # an epoch with a ratio above ``steps`` has R > 1, of which expectations are 0 for c ≥ 1
        high = min(high, max(math.log(_BEYOND * steps), ratio.large(math.log(_UNLIKELY / steps))))
    off = 3e-9 * (1 + max(low, high))
    return Ends(0.0 if nothing > 0 else math.exp(-low) * (1 - off), math.exp(high) * (1 + off), off)


def lattice(
    ratio: Ratio, ends: Ends, least: float, most: float, steps: int, *, lower: bool
) -> tuple[float, NDArray[np.int64]]:
    """The step h, and which multiples of it, above ``least``, are edges of cells; the last one is ``most``."""
    edges = np.unique(np.concatenate([[ends.least], np.geomspace(max(least, 1e-12 * most), ends.cut, 2049)]))
    above, below = (mass[1:-1] for mass in ratio.masses(edges))
    some = below > 0
    means = above[some] / below[some]
    total = max(float(below.sum()), 1e-300)
    variance = float(below[some] @ (means - float(above.sum()) / total) ** 2) / total
    width = most - least
    share = _SHARE_OF_FEW if means.size <= _FEW else _SHARE
    h = math.sqrt(6 * share * max(variance, 1e-300)) / (_CLOSER if lower else 1.0)
    # few steps may have a fine lattice; of many it must not have too many points
    h = min(h, steps * width / _USUAL_NODES)
    if not ratio.grows:  # small sums count
        middle = float(means[np.searchsorted(np.cumsum(below[some]), total / 2)])
        h = min(h, max(_SHARE_OF_MIDDLE * middle, (width + 16 * math.sqrt(steps * variance)) / _SMALL_NODES))
    h = max(h, (width + 16 * math.sqrt(steps * variance)) / (_MOST_NODES / 2), 1e-7 * width)
    m = max(1, math.ceil(width / h))
    even = min(m, math.ceil(1 / _APART))
    places = [np.arange(even + 1)]
    if even < m:
        places.append(np.round(np.geomspace(even, m, math.ceil(math.log(m / even) / _APART) + 2)))
    return width / m, np.unique(np.concatenate(places)).astype(np.int64)


def points(least: float, h: float, places: NDArray[np.int64]) -> Array:
    """The values of places on a lattice."""
    return np.asarray(least + h * places, dtype=np.float64)


def spread(ratio: Ratio, values: Array, nothing: float) -> Array:
    """Masses of the law below on ``values``, which rise: larger in convex order."""
    p, q = ratio.between(values, lower=False)
    law = onto_edges(q, p, values)
    # what is below them all is hardly anything; if expectations fall it is told apart
    _, below = ratio.masses(values)
    law[0] += nothing + (float(below[0]) if values[0] > 0 and ratio.grows else 0.0)
    if not ratio.grows:
        law[-1] += float(below[-1])
    return law


def contracted(ratio: Ratio, values: Array, nothing: float, ends: Ends) -> Array:
    """Masses without the unit on ``values``, smaller in convex order: consecutive ones are brought to their mean."""
    inside = [at[(at > ends.least) & (at < ends.cut)] for at in _divided(values)]
    p, q = ratio.between(np.concatenate([[ends.least], *inside, [ends.cut]]), lower=True)
    if nothing > 0:
        p, q = np.concatenate([[0.0], p]), np.concatenate([[nothing * (1 - 1e-12)], q])
    some = q > 0
    ratios, masses = (p[some] / q[some]).tolist(), (q[some] * (1 - 1e-14)).tolist()
    found, targets = [0.0] * values.size, values.tolist()
    i, at, left, last, off = 0, 0, masses[0] if masses else 0.0, values.size - 1, 8 * ends.off
    while i < len(ratios):
        x = ratios[i]
        while at < last and targets[at] < x * (1 - off):
            at += 1
        goal, mass, short = targets[at], 0.0, 0.0
        moved = goal <= x if ratio.grows else goal >= x
        if (moved and abs(goal - x) <= off * x) or goal < x:
            # it is there but for rounding; or beyond the last point, to which only what counts less then may be moved
            found[at] += left if moved else 0.0
            i += 1
            left = masses[i] if i < len(ratios) else 0.0
            continue
        if at < last and goal - x < 0.25 * (targets[at + 1] - goal):
            at += 1  # so that about as much lies on either side
            goal = targets[at]
        while i < len(ratios) and ratios[i] <= goal:
            mass += left
            short += left * (goal - ratios[i])
            i += 1
            left = masses[i] if i < len(ratios) else 0.0
        while at < last and i < len(ratios) and (taken := short / (ratios[i] - goal)) >= left:
            mass += left
            short -= left * (ratios[i] - goal)
            i += 1
            left = masses[i] if i < len(ratios) else 0.0
        if at < last and i < len(ratios):
            mass, left = mass + taken, left - taken
        else:  # at the upper end the mean need not be a point: it is moved to one
            mean = (goal - short / mass) * (1 - 1e-12 if ratio.grows else 1 + 1e-12)
            place = int(np.searchsorted(values, mean, side="right")) - 1 if ratio.grows else at
            if place >= 0:
                found[place] += mass * (1 - 1e-13)
            continue
        found[at] += mass * (1 - 1e-13)
    return np.array(found)


def _divided(values: Array) -> list[Array]:
    """Every gap in equal parts."""
    shares = np.arange(_FINE) / _FINE
    return [(values[:-1, None] + np.diff(values)[:, None] * shares).ravel(), values[-1:]]

"""Laws of a loss put on a grid Δ·ℤ, for games of many batches: how fine it is, and laws that are less than others.

*Convex order.* V is convex in e^x, and a step is worth more the larger P/Q is in convex order under Q. Upwards, what
lies between two points of the grid is split over both such that P and Q keep their masses
(:func:`~accounting.loss.numerics.split`). Downwards, what lies around a point is moved to it, with as much from below
as from above that P/Q keeps its mean (:func:`gathered`). Either way V is known on the grid without interpolation. What
is left over at an end moves to a node alone, as P or, of a mirror image, Q is made less.

Serves ``gaussian_batches`` and ``integer_batches``; by brute force: ``tests/accounting/test_laws_on_grids.py``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accounting.adaptive.engine import Laws
from accounting.arrays import Array
from accounting.loss.numerics import mass_errors

__all__ = ["Fineness", "gathered", "grid", "laws_below", "places_up_to", "quarters"]


class Fineness(NamedTuple):
    """The grid's step as a share of one loss's deviation, with few nodes and with many; how many that is; the most."""

    few: float
    coarse: float
    many: int
    most: int


def grid(highest: float, spread: float, fine: Fineness) -> tuple[float, int]:
    """Δ, and the number of nodes up to the largest loss, where the deviation of one is ``spread``."""
    step = min(max(fine.few * spread, highest / fine.many), fine.coarse * spread, highest / 50)
    step = max(step, highest / fine.most)
    return step, math.ceil(highest / step)


def places_up_to(reach: int) -> NDArray[np.int64]:
    """All points up to 64 from 0, and then some, at distances of 1.5 % of the loss."""
    some = np.round(np.geomspace(64, max(reach, 64), 2 + max(0, round(67 * math.log(reach / 64))))).astype(int)
    some = np.union1d(np.arange(min(64, reach) + 1), some[some <= reach])
    return np.concatenate([-some[:0:-1], some])


def gathered(p: Array, q: Array, nodes: Array, *, mirrored: bool = False) -> Array:
    """P's masses on ``nodes`` of a law that is less than one with finitely many losses, in rising order.

    The last node that is not above all takes what is above it, and from below as much as makes up for it. From the
    lowest on, every node takes what is left below it, and from above as much as makes up for it. So it has the masses
    of P and Q of what it took: the mean of P/Q where it lies. Where not enough is left, losses move down to a node as P
    is made less; or, if it is the mirror image that is to be less, up to a node as Q is.
    """
    losses = np.log(p / q)
    masses = np.zeros(nodes.size)
    in_p, in_q, ratios = p.tolist(), q.tolist(), np.exp(nodes).tolist()
    top = int(np.searchsorted(nodes, losses[-1], side="right")) - 1
    i = losses.size - 1
    excess = taken = 0.0
    while i >= 0 and top >= 0 and (gain := in_p[i] - ratios[top] * in_q[i]) >= -excess:
        excess, taken, i = excess + gain, taken + in_p[i], i - 1
    if i >= 0 and top >= 0:
        part = excess / -gain
        masses[top] = taken + part * in_p[i]
        in_p[i], in_q[i] = (1 - part) * in_p[i], (1 - part) * in_q[i]
    size = i + 1
    first_above = np.searchsorted(losses[:size], nodes, side="right").tolist()
    at, share = 0, 1.0  # the first atom that is left, and what of it
    for node, (above, ratio) in enumerate(zip(first_above, ratios, strict=True)):
        if above <= at:
            continue  # nothing is left below
        taken, lack = share * in_p[at], share * (ratio * in_q[at] - in_p[at])
        for i in range(at + 1, above):
            taken += in_p[i]
            lack += ratio * in_q[i] - in_p[i]
        i, lack = above, max(lack, 0.0)
        while i < size and (gain := in_p[i] - ratio * in_q[i]) <= lack:
            lack, taken, i = lack - gain, taken + in_p[i], i + 1
        if i == size:
            break
        masses[node] += taken + lack / gain * in_p[i]
        at, share = i, 1 - lack / gain
    for i in range(at, size):
        if mirrored:
            node = int(np.searchsorted(nodes, losses[i]))
            if node < nodes.size:
                masses[node] += share * in_p[i]
        else:
            node = int(np.searchsorted(nodes, losses[i], side="right")) - 1
            if node >= 0:
                masses[node] += share * in_q[i] * ratios[node]
        share = 1.0
    return masses


def laws_below(pairs: list[tuple[Array, Array]], places: NDArray[np.int64], step: float) -> Laws:
    """Laws on ``step`` times ``places`` that are less than pairs of P's and Q's masses, and their mirror images.

    ``places`` rise and are symmetric around 0; the first and the last masses of a pair are left out. Mirrored after
    they are gathered: from the lowest on, a steep end that is there is on the grid first.
    """
    nodes, reach = np.asarray(step * places, dtype=np.float64), int(places[-1])
    found = []
    for p, q in pairs:
        off_p, off_q = mass_errors(p), mass_errors(q)
        # known to some digits
        some = (off_p < 0.5 * p) & (off_q < 0.5 * q) & (q > 1e-280)
        some[[0, -1]] = False
        for sign in (1, -1):
            # of a law its own P is rounded down, and of its mirror image Q
            in_p = (p - sign * off_p)[some] * (1 - 2e-13 * sign)
            in_q = (q + sign * off_q)[some]
            order = np.argsort(np.log(in_p / in_q), kind="stable")
            at_nodes = gathered(in_p[order], in_q[order], nodes, mirrored=sign < 0)
            mass = np.zeros(2 * reach + 1)
            mass[places + reach] = at_nodes if sign > 0 else (at_nodes * np.exp(-nodes))[::-1]
            found.append(mass)
    return Laws(np.array(found), step)


def quarters(nodes: Array) -> Array:
    """Edges between ``nodes``, a quarter of the way from either."""
    middle = (nodes[1:] + nodes[:-1]) / 2
    return np.sort(np.concatenate([(nodes[1:] + middle) / 2, (nodes[:-1] + middle) / 2]))

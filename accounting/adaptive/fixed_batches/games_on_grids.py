"""Games of laws with losses all over a grid Δ·ℤ: how fine it is, laws that are less than others, and many rounds.

*Convex order.* V is convex in e^x, and a step is worth more the larger P/Q is in convex order under Q. Upwards, what
lies between two points of the grid is split over both such that P and Q keep their masses
(:func:`~accounting.masses.split`). Downwards, what lies around a point is moved to it, with as much from below
as from above that P/Q keeps its mean (:func:`gathered`). Either way V is known on the grid without interpolation. What
is left over at an end moves to a node alone, as P or, of a mirror image, Q is made less.

*Many rounds.* From above rounds are played one by one, V(x)e^(λx) by fast Fourier transforms
(:class:`~accounting.adaptive.engine.Circle`). From below the same law is taken for many steps in a row, of which there
are laws by squaring: a player who looks up only now and then.

Serves ``gaussian_batches`` and ``integer_batches``; by brute force:
``tests/accounting/adaptive/test_games_on_grids.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accounting.adaptive.engine import Board, Circle, rounding_of_transforms
from accounting.arrays import Array
from accounting.compose.convolution import fast_length
from accounting.masses import mass_errors

__all__ = [
    "Fineness",
    "Laws",
    "gathered",
    "grid",
    "laws_below",
    "places_up_to",
    "play_above",
    "play_below",
    "quarters",
    "steps_to_play",
]


# ln of what the tilted moment of all losses may come to.
_GROWTH = 12.0
# Choices of the player from below.
_CHOICES = 128


@dataclass(frozen=True)
class Laws:
    """P's ``masses`` on ``step``·(−r, …, r), of shape (laws, 2r + 1), and the largest one ``beyond``."""

    masses: Array
    step: float
    beyond: float = 0.0

    @property
    def reach(self) -> int:
        """r."""
        return int(self.masses.shape[1]) // 2

    def window(self, count: int, tail: float) -> tuple[int, float, float]:
        """Nodes above which ``count`` losses are with at most ``tail``; the tilt, and its ln E[e^(tilt·L)]."""
        edges = self.step * np.arange(-self.reach, self.reach + 1)
        tilts = np.geomspace(1e-3, 600.0, 120) / edges[-1]
        with np.errstate(divide="ignore"):
            moments = [np.max(self.masses @ np.exp(tilt * (edges - edges[-1]))) for tilt in tilts]
            cumulants = np.log(np.array(moments)) + tilts * edges[-1]
        # (Chernoff); and V(x)e^(tilt·x) must not grow so much that V(0) loses its digits
        farthest = float(np.min((count * cumulants - math.log(tail)) / tilts)) / self.step
        at = int(np.flatnonzero(count * cumulants <= _GROWTH)[-1]) if count * cumulants[0] <= _GROWTH else 0
        return min(count * self.reach, math.ceil(farthest)), float(tilts[at]), float(cumulants[at])

    def tilted(self, tilt: float) -> Array:
        """The masses times e^(tilt·L)."""
        return np.asarray(self.masses * np.exp(tilt * self.step * np.arange(-self.reach, self.reach + 1)))


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


# ------------------------------------------------------------------------------------------------------ many rounds


def steps_to_play(count: int) -> int:
    """So many that growing totals need few games: the next power of two, where that is not much more.

    >>> steps_to_play(500), steps_to_play(300)
    (512, 300)
    """
    most = 1 << (count - 1).bit_length()
    return most if count > 0.8 * most else count


def play_above(laws: Laws, most: int, tail: float) -> tuple[Array, Array]:
    """Losses from 0 on, evenly spaced, and V there after 0, 1, …, ``most`` steps, rounded up."""
    whole, _, _ = laws.window(most, most * tail)
    values, played = np.zeros((most + 1, whole + 1)), 0
    for end in sorted({-(-most // 2**i) for i in range(6)}):
        # fewer steps do not come as far
        size, tilt, _ = laws.window(end, most * tail)
        size = min(size, whole)
        circle = Circle(Board(laws.step, symmetric=True), laws.tilted(tilt), tilt, size, laws.beyond)
        for k in range(played + 1, end + 1):
            values[k, : size + 1] = circle.best(values[k - 1, : size + 1])
            values[k, size + 1 :] = values[k, size]
        played = end
    return laws.step * np.arange(whole + 1, dtype=np.float64), values


def play_below(laws: Laws, count: int, tail: float) -> tuple[Array, Array, Array]:
    """Losses from 0 on, V there after ``count`` steps rounded down, and how far at most no player of these comes.

    A player chooses anew after every so many steps that there are some 128 choices. The third array bounds from above
    what those who choose where this one does have at a node.
    """
    size, tilt, cumulant = laws.window(count, tail)
    x, board = laws.step * np.arange(size + 1, dtype=np.float64), Board(laws.step, symmetric=True, lower=True)
    longest = 1 << max(0, math.ceil(math.log2(count / _CHOICES)))
    tilted = {1: laws.tilted(tilt)}
    while (length := max(tilted)) < longest:
        tilted[2 * length] = _squared(tilted[length])
    lengths = [b for b in sorted(tilted) if count % longest & b] + [longest] * (count // longest)
    circles = {b: Circle(board, tilted[b], tilt, size) for b in set(lengths)}
    values, off = np.zeros(size + 1), 0.0
    for length in lengths:
        values = circles[length].best(values)
        # what is off by a·e^(−tilt·x) is off by as much times the moment a step later
        off = off * math.exp(min(length * max(cumulant, 0.0), 700.0)) * (1 + 1e-9) + 2 * circles[length].error
    most = values * (1 + 1e-12 * len(lengths)) + off * np.exp(-tilt * x) + 2 * tail * len(lengths)
    return x, values, most


def _squared(tilted: Array) -> Array:
    """Every law with itself, rounded down, as far as it can be told from nothing."""
    size = 2 * tilted.shape[1] - 1
    n = fast_length(size)
    error = rounding_of_transforms(tilted, n) * math.sqrt(float(np.max(np.sum(tilted * tilted, axis=1))))
    squares = np.maximum(np.fft.irfft(np.fft.rfft(tilted, n) ** 2, n)[:, :size] - error, 0.0)
    some = np.flatnonzero(squares.any(axis=0))
    reach = max(size // 2 - int(some[0]), int(some[-1]) - size // 2)
    return squares[:, size // 2 - reach : size // 2 + reach + 1]

"""Local Laplace noise behind a shuffler, from above and from below.

Every user holds a number in an interval of length 1, say [0, 1], and sends it with Laplace noise of scale 1/ε₀. Let R_x
be the law of the message of x, ω = R_½ and h = ε₀/2, and compare x with x′; E = e^ε ≥ 1.

**From above** (the blanket of Balle, Bell, Gascón & Nissim 2019; Su, Cheng & Wang 2025, arXiv:2504.07414). The
densities of R_0 and R_1 are the smallest of all, on either side, and min(R_0, R_1) = e^(−h)·ω. So every other message
is drawn from ω with probability γ = e^(−h); reveal the others. As in :mod:`accounting.amplification.shuffling`, (*)
with m = γω,

    δ(ε) ≤ (1/n)·E[(Y₁ + … + Yₙ)₊],    Y = W/γ with probability γ, else 0,    W = (R_x − E·R_x′)/ω at y ~ ω.

*The worst pair is 0 and 1.* For every event A with ω(A) = a the power R_x(A) is at most that of the best test of ω
against R_x, which grows with |x − ½|: at most F₀(z), where F_x is the distribution function of R_x and F_½(z) = a; and
R_x′(A) is likewise at least F₁(z). So ∫_A W dω ≤ F₀(z) − E·F₁(z), the same integral for x = 0, x′ = 1 and the half-line
up to z. There W falls as y grows, so half-lines hold its largest values; and E W = 1 − E for every pair. Hence W, and
with it Y and sums of Y, are largest for (0, 1) in convex order (Hardy, Littlewood & Pólya). ∎

At (0, 1), with t = 2ε₀(½ − y) − h: for y ≤ ½ the ratio R_0/ω is e^t, cut at e^h, and R_1/ω is e^(−h), on ω-mass ½; and
the mirror image for y ≥ ½. So W has atoms of mass e^(−h)/2 at e^h − E·e^(−h) and at e^(−h) − E·e^h, and a density
between. The mirror image of y exchanges 0 and 1, which gives ε < 0.

**From below.** All others hold ½: the same with γ = 1, for which the bound is an equality.

Numbers. The sum is convolved on a grid, as :mod:`accounting.amplification.lattice_sums` says. For the upper value W is
spread over the grid, each part over its two neighbours with its mean kept; for the lower one the line is cut into cells
such that the mean of W in each *is* a point of the grid, and drawn together (Jensen).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from accounting.amplification.blanket import MOST_USERS
from accounting.amplification.lattice_sums import mean_positive_part, nodes_for
from accounting.arrays import Array
from accounting.masses import onto_edges

__all__ = ["laplace_thirds", "local_laplace_delta", "local_laplace_delta_at_least"]


_MOST_EPSILON = 30.0


def _half_masses(ratio: Array, h: float) -> tuple[Array, Array]:
    """Of the half where the ratio u to the nearer end is above e^(−h), the ω-mass and the ∫u dω of what is below
    ``ratio``, without the atom at e^h.

    u = e^t has the density e^(−(t + h)/2)/4 in t, so the two are (1 − e^(−(t + h)/2))/2 and (e^((t − h)/2) − e^(−h))/2.
    """
    t = np.clip(np.log(ratio), -h, h)
    return -np.expm1(-(t + h) / 2) / 2, (np.exp((t - h) / 2) - math.exp(-h)) / 2


def _below(w: Array, h: float, grown: float) -> tuple[Array, Array]:
    """ω-mass and mean mass of W below w, without the atoms at the two ends."""
    low = math.exp(-h)
    # the lower half, W = e^(−h) − E·v, falls with v; what is below w is above v = (e^(−h) − w)/E
    v = np.maximum((low - w) / grown, low)
    whole_mass, whole_sum = _half_masses(np.array(math.exp(h)), h)
    mass, total = _half_masses(v, h)
    lower_mass, lower_sum = whole_mass - mass, whole_sum - total
    # the upper half, W = u − E·e^(−h)
    upper_mass, upper_sum = _half_masses(np.maximum(w + grown * low, low), h)
    mean = low * lower_mass - grown * lower_sum + upper_sum - grown * low * upper_mass
    return lower_mass + upper_mass, mean


def _spread(h: float, grown: float, step: float) -> tuple[int, Array]:
    """W spread over the grid step·ℤ: the first point and the masses."""
    least, most, atom = math.exp(-h) - grown * math.exp(h), math.exp(h) - grown * math.exp(-h), math.exp(-h) / 2
    first, last = math.floor(least / step), math.ceil(most / step)
    grid = step * np.arange(first, last + 1, dtype=np.float64)
    mass, mean = (np.diff(part) for part in _below(grid, h, grown))
    law = onto_edges(mass, mean, grid)
    for at in (least, most):
        cell = min(math.floor((at - grid[0]) / step), grid.size - 2)
        share = min(1.0, max(0.0, (at - grid[cell]) / step))
        law[cell] += (1 - share) * atom
        law[cell + 1] += share * atom
    return first, law


def _drawn_together(h: float, grown: float, step: float) -> tuple[float, float, Array]:
    """W drawn together in cells whose means are the grid: its first point, its step, about ``step``, and the masses."""
    least, most, atom = math.exp(-h) - grown * math.exp(h), math.exp(h) - grown * math.exp(-h), math.exp(-h) / 2
    points = max(8, math.ceil((most - least) / step))
    step = (most - least) / points
    law = np.zeros(points + 1)
    law[0] = atom

    def below(w: float) -> tuple[float, float]:
        """``_below`` of one number, a few times as fast."""
        near, low = math.exp(-h / 2), math.exp(-h)
        v, u = min(max((low - w) / grown, low), 1 / low), min(max(w + grown * low, low), 1 / low)
        root_v, root_u = math.sqrt(v), math.sqrt(u)
        lower_mass, lower_sum = near * (1 / root_v - near) / 2, near * (1 / near - root_v) / 2
        upper_mass, upper_sum = near * (1 / near - 1 / root_u) / 2, near * (root_u - near) / 2
        return lower_mass + upper_mass, low * (lower_mass - grown * upper_mass) + upper_sum - grown * lower_sum

    whole = below(most)
    start, end = (0.0, 0.0), least
    for at in range(1, points - 1):
        target = least + at * step
        if target <= end + 0.25 * step:
            continue
        if target > most - 4 * step:
            break
        # the cell ends between its mean and there, as what is beyond 4 steps is far more than enough
        low, high = target, min(target + 4 * step, most)
        while (middle := (low + high) / 2) > low and high - low > 1e-10 * step:
            mass, mean = below(middle)
            short = mean - start[1] < target * (mass - start[0])
            low, high = (middle, high) if short else (low, middle)
        mass, mean = below(low)
        law[at] += mass - start[0]
        start, end = (mass, mean), low
    # the rest, with as much of the upper atom as brings its mean to the point before the last
    rest = whole[0] - start[0], whole[1] - start[1]
    target = most - step
    taken = max(0.0, (target * rest[0] - rest[1]) / step)
    if rest[1] > target * rest[0] or taken > atom:  # nothing is claimed then
        return least, step, np.zeros(points + 1)
    law[points - 1] += rest[0] + taken
    law[points] += atom - taken
    return least, step, law


def _null(first: float, law: Array, step: float, blanket: float) -> tuple[Array, Array]:
    """Points and law of W with probability γ and 0 else, where 0 is a point of the grid."""
    zero = round(-first / step)
    law = blanket * law
    law[zero] += 1 - blanket
    return step * (round(first / step) + np.arange(law.size, dtype=np.float64)), law


def _deviation(h: float, grown: float, blanket: float) -> float:
    """About one standard deviation of Y·γ."""
    fine = 2e-3 * math.exp(h) * (1 + grown)
    first, law = _spread(h, grown, fine)
    points = fine * (first + np.arange(law.size))
    mean = blanket * float(law @ points)
    return math.sqrt(max(blanket * float(law @ points**2) - mean * mean, 1e-12))


@lru_cache(maxsize=4096)
def local_laplace_delta(epsilon0: float, users: int, epsilon: float) -> float:
    """δ at ε ≥ 0 of n shuffled numbers with Laplace noise of scale 1/ε₀ times their range, rounded up.

    Examples
    --------
    >>> round(local_laplace_delta(1.0, 10_000, 0.0378) * 1e6, 1)
    1.0
    """
    if epsilon >= epsilon0:
        return 0.0
    if epsilon0 > _MOST_EPSILON:
        return 1.0
    n, h, grown, blanket = min(users, MOST_USERS), epsilon0 / 2, math.exp(epsilon), math.exp(-epsilon0 / 2)
    nodes = nodes_for(n, 0.05)
    step = 2 * 9.5 * math.sqrt(n) * _deviation(h, grown, blanket) / nodes
    first, law = _spread(h, grown, step)
    points, law = _null(first * step, law, step, blanket)
    return min(1.0, mean_positive_part(points, law, n, nodes, 1.0) / (n * blanket))


def local_laplace_delta_at_least(epsilon0: float, users: int, epsilon: float) -> float:
    """δ at ε ≥ 0 of n shuffled numbers with Laplace noise where the others hold the middle, rounded down.

    Examples
    --------
    >>> round(local_laplace_delta_at_least(1.0, 10_000, 0.0289) * 1e6, 1)
    1.0
    """
    if epsilon >= epsilon0 or epsilon0 > _MOST_EPSILON or users > MOST_USERS:
        return 0.0
    h, grown = epsilon0 / 2, math.exp(epsilon)
    nodes = nodes_for(users, 0.05)
    first, step, law = _drawn_together(h, grown, 2 * 9.5 * math.sqrt(users) * _deviation(h, grown, 1.0) / nodes)
    if not law.any():
        return 0.0
    points = first + step * np.arange(law.size, dtype=np.float64)
    # a mean is right to 1e-10 steps, 5e-12 deviations; √n times that for a sum, whose tilt is below 40 deviations
    return mean_positive_part(points, law, users, nodes, -1.0) / users * (1 - 1e-8 - 2e-10 * math.sqrt(users))


def laplace_thirds(epsilon0: float) -> tuple[float, float, float]:
    """The probabilities of a message below ½ − c, from ½, from 0 and from 1, for the c at which 0 and 1 differ most."""
    h = epsilon0 / 2
    cuts = np.linspace(0.0, 2 * h, 201)
    below = [
        np.exp(-cuts) / 2,
        np.where(cuts < h, 1 - np.exp(cuts - h) / 2, np.exp(h - cuts) / 2),
        np.exp(-cuts - h) / 2,
    ]
    best = int(np.argmax((below[1] - below[2]) ** 2 / below[0]))
    return tuple(float(part[best]) for part in below)  # type: ignore[return-value]

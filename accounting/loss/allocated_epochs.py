"""The law of R = (1/t)Σlᵢ, the likelihood ratio of an epoch with a unit in one of t steps, from both sides.

The lᵢ are independent ratios of one step, as :mod:`accounting.loss.allocated` has it. An epoch with none that is large
is a sum on a lattice (:mod:`~accounting.loss.allocated_ratio`, :mod:`~accounting.loss.allocated_sums`). One with a
large l has the ratio (l + S)/t, with S the sum of the others; that it happens has the probability 10⁻⁸. (Of
expectations that fall, which are 0 there for c ≥ 1, it is counted as the largest ratio of the lattice, or from below
not at all.) From above both are spread, S onto few points, and an epoch with two counts as if everything were told;
from below S is replaced by its mean, which contracts, and such an epoch is left out. So is what rounding may have made
up; from above it is added, and where it is more than there is mass, bounded as a whole and told. What wraps around the
lattice's circle comes to lie where it counts for more, or is told (from below, taken off).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.arrays import Array
from accounting.loss.allocated_ratio import Ends, Ratio, contracted, ends_of, lattice, points, spread
from accounting.loss.allocated_sums import OUTSIDE, Measured, sums_of, window_of
from accounting.loss.pair import LossPair
from accounting.masses import onto_edges

__all__ = ["Epoch", "from_above", "from_below", "large_ratios"]

# By what share very large ratios are apart; ln of what is told beyond them.
_FAR_APART, _TOLD, _MOST_LARGE = 0.02, -60.0, 1000
# From below ratios are large from this loss on.
_LARGE_BELOW = 10.0
# Points onto which the sum of all but a large ratio is spread; points in a standard deviation of an epoch's ratio, and
# by what share they are apart elsewhere.
_FEW, _PER_DEVIATION, _APART = 24, 64, 0.005
_MOST_ATOMS = 4096
# Larger ratios do not say where the mass is.
_MIDDLING = 1e3
# A mass that is moved to the side of the bound.
_RARE = 1e-9


@dataclass(frozen=True)
class Epoch:
    """Ratios, which rise, their masses under both laws of an epoch, and what the one above has beyond."""

    ratios: Array
    above: Array
    below: Array
    beyond: float


def from_above(pair: LossPair, steps: int, *, turned: bool, grows: bool) -> Epoch:
    """The epoch for expectations of (R − c)₊ if ``grows``, else for those of (1 − cR)₊, which has R = 0 ``beyond``."""
    ratio = Ratio(pair, turned, grows)
    nothing = ratio.nothing()
    ends = ends_of(ratio, nothing, steps)
    h, places = lattice(ratio, ends, ends.least, ends.cut, steps, lower=False)
    law = spread(ratio, points(ends.least, h, places), nothing)
    some = law > 0
    places, law = places[some], law[some]
    values = points(ends.least, h, places)
    window = window_of(places, values, law, steps)
    others, sums = sums_of(places, law, values if grows else np.ones(values.size), window, steps)
    of_others = points((steps - 1) * ends.least, h, window.places)
    small = _raised((of_others + ends.least) / steps, sums, grows=grows)
    large = [_one_large(ratio, ends, _few(others, of_others), steps)] if grows else []
    both = _together([small, *large], lower=False)
    return _without_excess(both, grows=grows)


def from_below(pair: LossPair, steps: int, *, turned: bool, grows: bool) -> Epoch:
    """The epoch for expectations of (R − c)₊ if ``grows``, else for those of (1 − cR)₊."""
    ratio = Ratio(pair, turned, grows)
    nothing = ratio.nothing()
    # two large ones are left out, and small ones need a fine lattice
    ends = ends_of(ratio, nothing, steps, most=_LARGE_BELOW)
    # a ratio at an end is moved onto the lattice, to the side on which expectations are less
    least = ends.least if grows else ends.least * (1 + 2 * ends.off)
    most = ends.cut * (1 - 2 * ends.off) if grows else ends.cut
    h, places = lattice(ratio, ends, least, most, steps, lower=True)
    law = contracted(ratio, points(least, h, places), nothing, ends)
    some = law > 0
    places, law = places[some], law[some]
    values = points(least, h, places)
    window = window_of(places, values, law, steps)
    _, (masses, each, _) = sums_of(places, law, values if grows else np.ones(values.size), window, steps)
    ratios = points(steps * least, h, window.places) / steps
    lowered = np.maximum(masses - each - 2 * math.exp(OUTSIDE), 0.0)
    some = (lowered > 0) & (ratios > 0)
    ratios, lowered = ratios[some], lowered[some]
    above, below = (lowered, lowered / ratios) if grows else (lowered * ratios, lowered)
    found = Epoch(ratios, above, below, 0.0)
    large = [_one_large_below(ratio, ends, law, values, steps)] if grows else []
    both = _together([found, *large], lower=True)
    return _with_the_rest(both, grows=grows)


def _raised(ratios: Array, sums: Measured, *, grows: bool) -> Epoch:
    """An epoch without large ratios: weighted sums if expectations grow."""
    masses, each, norm = sums
    clear = np.flatnonzero(masses > 8 * each)
    first, end = (int(clear[0]), int(clear[-1]) + 1) if clear.size else (0, masses.size)
    # at the other end, what is rare is moved to where it counts for more
    if grows:
        first = max(first, min(end - 1, int(np.searchsorted(np.cumsum(np.maximum(masses, 0.0)), _RARE))))
    else:
        rare = int(np.searchsorted(np.cumsum(np.maximum(masses[::-1], 0.0)), _RARE))
        end = min(end, max(first + 1, masses.size - rare))

    def whole(some: Array) -> float:
        return float(np.maximum(some, 0.0).sum()) + min(each * some.size, norm * math.sqrt(some.size))

    small, large = whole(masses[:first]), whole(masses[end:])
    raised, ratios = np.maximum(masses[first:end], 0.0) + each, ratios[first:end]
    if grows:
        raised[0] += small
        return Epoch(ratios, raised, raised / ratios, large + 2 * math.exp(OUTSIDE))
    raised[-1] += large
    some = ratios > 0
    told = small + 2 * math.exp(OUTSIDE) + float(raised[~some].sum())
    raised, ratios = raised[some], ratios[some]
    return Epoch(ratios, raised * ratios, raised, told)


def _one_large(ratio: Ratio, ends: Ends, others: tuple[Array, Array], steps: int) -> Epoch:
    """Epochs with one large ratio; those with two are told."""
    values, rare, told = large_ratios(ratio, ends, steps)
    sums, masses = others
    ratios = ((values[:, None] + sums) / steps).ravel()
    mass = (steps * rare[:, None] * masses).ravel()
    return Epoch(ratios, mass * ratios, mass, told)


def large_ratios(ratio: Ratio, ends: Ends, steps: int) -> tuple[Array, Array, float]:
    """Large ratios of one step, their masses under the law below, and the chance of two, or of an infinite one."""
    values = _large_values(ratio, ends)
    p, q = ratio.between(values, lower=False)
    above, below = ratio.masses(values)
    rare = onto_edges(q, p, values)
    rare[-1] += float(below[-1])
    infinite = float(above[-1])
    weight, chance = float(rare @ values) + infinite, float(rare.sum())
    told = 0.5 * (steps * chance) ** 2 + weight * (steps - 1) * chance + (infinite if ratio.grows else 0.0)
    return values, rare, told


def _large_values(ratio: Ratio, ends: Ends) -> Array:
    last = min(ratio.large(_TOLD, above=True), 700.0)
    length = max(0.0, last - math.log(ends.cut)) + 2 * _FAR_APART
    return np.asarray(ends.cut * np.exp(np.arange(0.0, length, max(_FAR_APART, length / _MOST_LARGE))))


def _one_large_below(ratio: Ratio, ends: Ends, law: Array, values: Array, steps: int) -> Epoch:
    p, q = ratio.between(_large_values(ratio, ends), lower=True)
    some = q > 0
    total, slack = math.fsum(law.tolist()), 1e-9 if ratio.grows else -1e-9
    mean = float(law @ values) / total * (1 - slack)
    ratios = (p[some] / q[some] * (1 - slack) + (steps - 1) * mean) / steps
    mass = steps * q[some] * total ** (steps - 1) * (1 - 1e-9)
    return Epoch(ratios, mass * ratios, mass, 0.0)


def _few(others: Measured, sums: Array) -> tuple[Array, Array]:
    """The sum of all ratios but a large one, spread onto few points."""
    masses = np.maximum(others[0], 0.0) + others[1]
    likely = np.flatnonzero(masses > 1e-13)
    first, last = (int(likely[0]), int(likely[-1])) if likely.size else (0, sums.size - 1)
    # the ends of the window are far, and rare
    few = np.unique(np.concatenate([sums[:1], np.linspace(sums[first], sums[last], _FEW), sums[-1:]]))
    return few, _onto(few, sums, masses)


def _onto(edges: Array, at: Array, masses: Array) -> Array:
    """Masses ``at`` some places, spread onto ``edges``, which reach as far."""
    left = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, edges.size - 2)
    up = masses * np.clip((at - edges[left]) / (edges[left + 1] - edges[left]), 0.0, 1.0)
    found = np.bincount(left, weights=masses - up, minlength=edges.size)
    return np.asarray(found + np.bincount(left + 1, weights=up, minlength=edges.size), dtype=np.float64)


def _together(epochs: list[Epoch], *, lower: bool) -> Epoch:
    """Both kinds of epochs, on fewer ratios: spread from above, gathered from below."""
    ratios, above, below = _one_after_another(epochs)
    beyond = min(1.0, sum(one.beyond for one in epochs))
    order = np.argsort(ratios, kind="stable")
    order = order[below[order] > 0]
    ratios, above, below = ratios[order], above[order], below[order]
    if ratios.size <= _MOST_ATOMS:
        return Epoch(ratios, above, below, beyond)
    total = float(below.sum())
    middling = np.minimum(ratios, _MIDDLING)
    mean = float(below @ middling) / total
    deviation = math.sqrt(float(below @ (middling - mean) ** 2) / total)
    edges = _edges(float(ratios[0]), float(ratios[-1]), deviation)
    if not lower:
        below = _onto(edges, ratios, below)
        some = below > 0
        return Epoch(edges[some], edges[some] * below[some], below[some], beyond)
    at = np.clip(np.searchsorted(edges, ratios, side="right") - 1, 0, edges.size - 2)
    above, below = (
        np.asarray(np.bincount(at, weights=mass, minlength=edges.size), dtype=np.float64) for mass in (above, below)
    )
    some = below > 0
    return Epoch(above[some] / below[some], above[some], below[some], beyond)


def _without_excess(epoch: Epoch, *, grows: bool) -> Epoch:
    """From above, without the mass beyond 1 of the first law: what has the smallest loss goes."""
    mass = epoch.above if grows else epoch.below[::-1]
    kept = np.diff(np.maximum(np.cumsum(mass) - max(0.0, float(mass.sum()) + epoch.beyond - 1.0), 0.0), prepend=0.0)
    kept = kept if grows else kept[::-1]
    some = kept > 0
    ratios, kept = epoch.ratios[some], kept[some]
    above, below = (kept, kept / ratios) if grows else (kept * ratios, kept)
    return Epoch(ratios, above, below, epoch.beyond)


def _with_the_rest(epoch: Epoch, *, grows: bool) -> Epoch:
    """From below, with what both laws lack, at a ratio that tells no more than that both have the mass 1."""
    above, below = (max(0.0, 1.0 - float(mass.sum())) for mass in (epoch.above, epoch.below))
    lacks, other = (above, below) if grows else (below, above)
    if lacks <= 0 or epoch.ratios.size == 0:
        return epoch
    if grows:
        ratio = min(float(epoch.ratios[0]), lacks / other if other > 0 else math.inf)
        rest = Epoch(np.array([ratio]), np.array([lacks]), np.array([lacks / ratio]), 0.0)
        return Epoch(*_one_after_another([rest, epoch]), 0.0)
    ratio = max(float(epoch.ratios[-1]), other / lacks)
    rest = Epoch(np.array([ratio]), np.array([lacks * ratio]), np.array([lacks]), 0.0)
    return Epoch(*_one_after_another([epoch, rest]), 0.0)


def _one_after_another(epochs: list[Epoch]) -> tuple[Array, Array, Array]:
    """The ratios of all, and their masses above and below."""
    return (
        np.concatenate([one.ratios for one in epochs]),
        np.concatenate([one.above for one in epochs]),
        np.concatenate([one.below for one in epochs]),
    )


def _edges(low: float, high: float, deviation: float) -> Array:
    """Ratios from ``low`` to ``high``, closer around 1, where the mass is."""
    near = deviation / _PER_DEVIATION * np.arange(8 * _PER_DEVIATION)
    away = np.concatenate([near, 8 * deviation * np.exp(np.arange(0.0, 40.0, _APART))])
    above, below = 1.0 + away[away < high - 1.0], 1.0 - away[away < min(1.0 - low, 0.5)]
    least = float(below[-1]) if below.size else 1.0
    count = math.ceil(max(0.0, math.log(least / low)) / _APART)
    found = np.unique(np.concatenate([[low, high], least * np.exp(-_APART * np.arange(1, count)), below, above]))
    return np.asarray(found[(found >= low) & (found <= high)])

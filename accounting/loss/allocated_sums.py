"""The law of (1/t)Σlᵢ, the likelihood ratio of an epoch in which a unit takes part in one of t steps, from both sides.

The lᵢ are independent and have the law of the likelihood ratio of one step, l, where the unit takes no part
(:mod:`accounting.loss.allocated`, which says why that is enough and what a bound is here: an order in which all
expectations of convex functions are compared). What is done to l, for a bound *from above*:

* Large ratios, above b, are set apart: that an epoch has one has the probability 10⁻⁸ or less, and two are counted as if
  everything were told.
* The others are spread onto the even lattice a, a + h, …, b: the mass of each cell goes to its two edges such that its
  mean stays. Cells of large ratios are wider, and their edges still on the lattice. That adds h²/4 to the variance of l
  at most, and about h²/6, by which h is chosen.
* One power of the characteristic function gives the law of the sum. What may lie outside its window is bounded by
  Chernoff and counted as told. The window is a circle: what wraps around is counted where it counts for more.
* An epoch with one large ratio l has the ratio (l + S)/t, with S the sum of the others; both are spread, S onto few
  points.

*From below*, l is contracted: consecutive masses that have a point of the lattice as their mean are brought there, in one
sweep from the smallest to the largest; what is left at the upper end is left out, and so is an epoch with two large
ratios. In an epoch with one, S is replaced by its mean.

**Rounding.** Masses are differences of distribution functions (:func:`accounting.masses.mass_errors`); from above they
are made larger, and from below smaller, by what they may be off, and so that l moves to the side on which the bound is.
The characteristic function φ is a sum over the few points that have mass, at the few frequencies at which its power has
not died out: φ(ω)e^(−iωc) − 1 = Σ mass·(e^(iω(l − c)) − 1) is right to as many units in the last place of the sum of
the terms' sizes as there are terms, and the power to t times that. Where frequencies are many, t is small, and the Fourier
transform is as good. One more transform brings the sum, and every entry is off by at most the mean of these errors over
the circle; what is larger than that counts, and the rest is bounded by Parseval's identity and set apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accounting.arrays import Array
from accounting.loss.pair import LossPair, where_rare
from accounting.masses import mass_errors

__all__ = ["Epoch", "epoch"]

_UNIT_ROUNDOFF = 2.0**-52
# The variance that the lattice may add to a ratio, as a share of its own.
_SHARE = 2e-4
# By what share large ratios, and very large ones, may be apart on the lattice.
_APART, _FAR_APART = 0.005, 0.02
# Cells of the lattice from below are made of so many.
_FINE = 8
# The probability that an epoch has a large ratio; ln of one that is told, of one below the lattice, and outside the window.
_RARE, _TOLD, _BELOW, _OUTSIDE = 1e-8, -60.0, -48.0, -44.0
_MOST_NODES, _MOST_PRODUCTS = 1 << 20, 2e7
# A factor of the spectrum below e^(−this) is left out.
_FAINT = 60.0
# Points onto which the sum of all but a large ratio is spread, and of an epoch's ratio: so many in a standard deviation.
_FEW, _PER_DEVIATION = 24, 64
_MOST_ATOMS = 4096


@dataclass(frozen=True)
class Epoch:
    """Ratios, which rise, their masses where the unit takes part and where it does not, and what is told beyond."""

    ratios: Array
    present: Array
    absent: Array
    beyond: float


@dataclass(frozen=True)
class _Side:
    """One step's ratio: with the unit over without it, whichever law of the pair that is, and which bound is wanted."""

    pair: LossPair
    present: bool
    lower: bool

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """With and without the unit: up to edges[0], between neighbouring edges, and above the last."""
        with np.errstate(divide="ignore"):
            losses = np.log(edges)
        if self.present:
            return self.pair.masses(losses)
        p, q = self.pair.masses(-losses[::-1])
        return q[::-1], p[::-1]

    def between(self, edges: Array) -> tuple[Array, Array]:
        """Masses with and without the unit between edges, moved to the side of the bound by what they may be off."""
        given, without = self.masses(edges)
        sign = -1.0 if self.lower else 1.0
        q_error, p_error = mass_errors(without)[1:-1], mass_errors(given)[1:-1]
        low, high = edges[:-1], edges[1:]
        # mass is added or taken away where that counts least, and with it the ratio moves to the other end
        end, tilt = (high, 1.0) if self.present else (low, -1.0)
        q = np.maximum(without[1:-1] + sign * q_error, 0.0)
        p = given[1:-1] + tilt * sign * p_error + sign * end * q_error
        return np.clip(p, low * q, high * q), q

    def nothing(self) -> float:
        """The mass without the unit where there is none with it."""
        given, without = self.masses(np.ones(1))
        left = 1.0 - float(without.sum()) if self.present else self.pair.infinite
        del given
        return left if left > 1e-11 else 0.0

    def rarest(self, log_mass: float, *, small: bool, of_unit: bool = False) -> float:
        """The loss beyond which there is at most e^``log_mass`` without (or with) the unit; small or large ratios."""
        nothing = self.pair.infinite

        def beyond(x: float) -> float:
            given, without = self.masses(np.array([math.exp(-x if small else min(x, 700.0))]))
            mass = given if of_unit else without
            one = float(mass[0 if small else -1])
            return one - nothing if (small and not self.present) or (of_unit and not small and self.present) else one

        return where_rare(beyond, log_mass)


def epoch(pair: LossPair, steps: int, *, present: bool, lower: bool) -> Epoch:
    """The ratio of an epoch of ``steps`` ≥ 2 steps, of which a unit is in one."""
    side = _Side(pair, present, lower)
    nothing = side.nothing()
    ends = _ends(side, nothing, steps)
    # from below a ratio at an end is moved to the lattice by what ends are off by, to the side of the bound
    least = ends.least * (1 + 2 * ends.off) if lower and not present else ends.least
    most = ends.cut * (1 - 2 * ends.off) if lower and present else ends.cut
    h, places = _lattice(side, least, most, steps)
    values = least + h * places
    law = _contracted(side, values, nothing, ends) if lower else _spread(side, values, nothing)
    some = law > 0
    places, values, law = places[some], values[some], law[some]
    window = _window(places, values, law, steps)
    others, sums, with_unit = _sums(places, values, law, window, steps)
    start, n = window.start, window.nodes
    ratios = (steps * least + h * (start + np.arange(n))) / steps
    if lower:
        found = _small_from_below(ratios, sums, with_unit, present=present, outside=math.exp(_OUTSIDE))
    else:
        found = _small_from_above(ratios, sums, with_unit, present=present)
    large = _one_large(side, ends.cut, law, values, others, window, (least, h), steps)
    return _together(found, large, lower=lower, present=present)


# --------------------------------------------------------------------------------------------------------- one ratio


@dataclass(frozen=True)
class _Ends:
    """Ratios below which there is hardly anything, and above which they are large; and what these may be off by."""

    least: float
    cut: float
    off: float


def _ends(side: _Side, nothing: float, steps: int) -> _Ends:
    low = 700.0 if nothing > 0 else side.rarest(_BELOW - math.log(steps), small=True)
    high = min(side.rarest(math.log(_RARE / steps), small=False), 600.0)
    off = 3e-9 * (1 + max(low if nothing == 0 else 0.0, high))
    return _Ends(0.0 if nothing > 0 else math.exp(-low) * (1 - off), math.exp(high) * (1 + off), off)


def _lattice(side: _Side, least: float, largest: float, steps: int) -> tuple[float, Array]:
    """The step h, and which multiples of it, above ``least``, are edges of cells."""
    edges = np.unique(np.concatenate([[least], np.geomspace(max(least, 1e-12 * largest), largest, 2049)]))
    if edges.size < 2:
        return 1.0, np.arange(2)
    p, q = side.masses(edges)
    p, q = p[1:-1], q[1:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.where(q > 0, p / q, 0.0)
    mean = float(p.sum()) / max(float(q.sum()), 1e-300)
    variance = float(q @ (means - mean) ** 2)
    h = math.sqrt(6 * _SHARE * max(variance, 1e-300)) / (2.5 if side.lower else 1.0)
    deviation = math.sqrt(steps * variance)
    h = max(h, (largest - least + 16 * deviation) / (_MOST_NODES / 2), (largest - least) * 1e-7)
    m = max(1, math.ceil((largest - least) / h))
    h = (largest - least) / m
    if 2 * h > largest - least:
        return h, np.arange(m + 1)
    even = min(m, math.ceil(1 / _APART))
    places = [np.arange(even + 1)]
    if even < m:
        places.append(np.round(np.geomspace(even, m, math.ceil(math.log(m / even) / _APART) + 2)))
    return h, np.unique(np.concatenate(places)).astype(np.int64)


def _spread(side: _Side, values: Array, nothing: float) -> Array:
    """Masses without the unit on ``values``, larger in convex order."""
    p, q = side.between(values)
    upper = np.clip((p - values[:-1] * q) / np.diff(values), 0.0, q)
    law = np.zeros(values.size)
    law[1:] += upper
    law[:-1] += q - upper
    # at ratios below them all there is hardly anything; of a present unit it is counted where it tells more
    _, without = side.masses(values)
    law[0] += nothing + (float(without[0]) * (1 + 1e-12) if side.present and values[0] > 0 else 0.0)
    return law


def _contracted(side: _Side, values: Array, nothing: float, ends: _Ends) -> Array:
    """Masses without the unit on ``values``, smaller in convex order: consecutive ones are brought to their mean."""
    inside = [at[(at > ends.least) & (at < ends.cut)] for at in _divided(values)]
    p, q = side.between(np.concatenate([[ends.least], *inside, [ends.cut]]))
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
        moved = goal <= x if side.present else goal >= x
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
        while i < len(ratios) and (taken := short / (ratios[i] - goal)) >= left:
            mass += left
            short -= left * (ratios[i] - goal)
            i += 1
            left = masses[i] if i < len(ratios) else 0.0
        if i < len(ratios):
            mass, left = mass + taken, left - taken
        else:  # the mean of what is left is less than that point
            mean = (goal - short / mass) * (1 - 1e-12 if side.present else 1 + 1e-12)
            at = int(np.searchsorted(values, mean, side="right")) - 1 if side.present else at
        if at >= 0:
            found[at] += mass * (1 - 1e-13)
    return np.array(found)


def _divided(values: Array) -> list[Array]:
    """Every gap in equal parts."""
    shares = np.arange(_FINE) / _FINE
    return [(values[:-1, None] + np.diff(values)[:, None] * shares).ravel(), values[-1:]]


# ------------------------------------------------------------------------------------------------------- their sums


@dataclass(frozen=True)
class _Window:
    """Where the sum of all places is: the first node, how many there are, and ln of what is outside at most."""

    start: int
    nodes: int


def _window(places: Array, values: Array, law: Array, steps: int) -> _Window:
    far = float(places[-1] - places[0]) or 1.0
    with np.errstate(divide="ignore"):
        log_law, log_unit = np.log(law), np.log(law * np.maximum(values, 1e-300))
    tilts = np.geomspace(1e-5, 60.0, 60) / far
    spread = float(law @ (places - law @ places / law.sum()) ** 2)
    tilts = np.concatenate([tilts, np.geomspace(0.5, 20.0, 30) / math.sqrt(steps * max(spread, 1e-300))])
    tilts = tilts[tilts * far < 600]

    def curve(log_mass: Array, tilt: float) -> float:
        terms = log_mass + tilt * places
        peak = float(terms.max())
        return peak + math.log(float(np.exp(terms - peak).sum()))

    # of the sum that is one step shorter, which is less
    top = min((curve(log_unit, s) + (steps - 1) * curve(log_law, s) - _OUTSIDE) / s for s in tilts)
    bottom = max(-((steps - 1) * curve(log_law, -s) - _OUTSIDE) / s for s in tilts)
    start = max((steps - 1) * int(places[0]), math.floor(bottom))
    end = min(steps * int(places[-1]), math.ceil(top))
    return _Window(start, _power_of_two(end - start + 2))


def _power_of_two(least: int) -> int:
    """2^k or 3·2^k, at least ``least``."""
    two = 1 << max(4, (least - 1).bit_length())
    return 3 * two // 4 if 3 * two // 4 >= least else two


_Measured = tuple[Array, float, float]


def _sums(
    places: Array, values: Array, law: Array, window: _Window, steps: int
) -> tuple[_Measured, _Measured, _Measured]:
    """Masses of the sum of all but one ratio, of all, and of all where the unit takes part, and what they are off by.

    Of every entry, and in the Euclidean norm.
    """
    n = window.nodes
    image_error = 8 * _UNIT_ROUNDOFF * math.log2(n)
    one = np.bincount(places % n, weights=law, minlength=n)
    unit = np.bincount(places % n, weights=law * values, minlength=n)
    image, image_unit = np.fft.rfft(one), np.fft.rfft(unit)
    total = float(law.sum())
    image_error *= max(1.0, total, float(law @ values))
    least = math.exp(-_FAINT / max(1, steps - 1)) * (1 - 4 * _UNIT_ROUNDOFF) - image_error
    kept = np.flatnonzero(np.abs(image) > max(least, 0.0))
    if kept.size * places.size <= _MOST_PRODUCTS:
        size, log_power, off = _powers_by_terms(places, law, kept, n, steps - 1)
    else:
        size, log_power = np.abs(image[kept]), (steps - 1) * np.log(image[kept])
        off = (steps - 1) * image_error / np.maximum(size - image_error, 1e-300)
    with np.errstate(under="ignore"):
        power = np.exp(log_power)
        error = np.abs(power) * (np.expm1(np.minimum(off, 50.0)) + 8 * _UNIT_ROUNDOFF * (1 + np.abs(log_power)))
    found = []
    for factor, grown in ((1.0, 0.0), (image[kept], image_error), (image_unit[kept], image_error)):
        spectrum = np.zeros(n // 2 + 1, dtype=np.complex128)
        spectrum[kept] = power * factor
        errors = error * (np.abs(factor) + grown) + np.abs(power) * grown + image_error * np.abs(spectrum[kept])
        left_out = 4 * math.exp(-_FAINT)
        each = float(errors.sum()) * 2 / n + left_out
        norm = math.sqrt(float(errors @ errors) * 2 / n) + left_out * math.sqrt(n)
        circle = np.roll(np.fft.irfft(spectrum, n), -window.start % n)
        found.append((circle, each, norm))
    return found[0], found[1], found[2]


def _powers_by_terms(places: Array, law: Array, kept: Array, n: int, times: int) -> tuple[Array, Array, Array]:
    """|φ|, ln φ^``times`` and what that is off by, of the characteristic function at some frequencies."""
    centre = round(float(law @ places) / float(law.sum()))
    turn = -2 * math.pi * np.arange(n) / n
    # e^(ix) − 1, which keeps its digits at small angles
    small = np.where(turn < -math.pi, turn + 2 * math.pi, turn)
    circle = -2 * np.sin(small / 2) ** 2 + 1j * np.sin(small)
    offsets = (places - centre) % n
    sums, sizes = np.empty(kept.size, dtype=np.complex128), np.empty(kept.size)
    at_once = max(1, int(2e6) // places.size)
    for first in range(0, kept.size, at_once):
        some = kept[first : first + at_once]
        terms = circle[(some[:, None] * offsets) % n]
        sums[first : first + at_once] = terms @ law
        sizes[first : first + at_once] = np.abs(terms) @ law
    missing = math.fsum(law.tolist()) - 1.0
    x = sums + missing
    real = 0.5 * np.log1p(2 * x.real + x.real**2 + x.imag**2)
    log_one = real + 1j * np.arctan2(x.imag, 1 + x.real)
    size = np.exp(real)
    off = times * ((places.size + 16) * _UNIT_ROUNDOFF / 2 * (sizes + abs(missing)) + 2 * _UNIT_ROUNDOFF) / size
    back = -2 * math.pi * ((kept * (times * centre % n)) % n) / n
    return size, times * log_one + 1j * back, off


# ---------------------------------------------------------------------------------------------- epochs, put together


def _small_from_above(ratios: Array, sums: _Measured, with_unit: _Measured, *, present: bool) -> Epoch:
    """Epochs without large ratios."""
    masses, each, norm = with_unit if present else sums
    raised = np.maximum(masses, 0.0) + each
    clear = np.flatnonzero(masses > 8 * each)
    first, end = (int(clear[0]), int(clear[-1]) + 1) if clear.size else (0, masses.size)

    def cut(some: Array) -> float:
        return float(np.maximum(some, 0.0).sum()) + min(each * some.size, norm * math.sqrt(some.size))

    below, above = cut(masses[:first]), cut(masses[end:])
    raised, ratios = raised[first:end], ratios[first:end]
    outside = 2 * math.exp(_OUTSIDE)
    if present:  # what is rare and small is moved up to what tells more
        raised[0] += below
        beyond = above + outside
        return Epoch(ratios, raised, raised / ratios, beyond)
    raised[-1] += above
    told = ratios <= 0
    beyond = below + outside + float(raised[told].sum())
    raised, ratios = raised[~told], ratios[~told]
    return Epoch(ratios, raised * ratios, raised, beyond)


def _small_from_below(ratios: Array, sums: _Measured, with_unit: _Measured, *, present: bool, outside: float) -> Epoch:
    masses, each, _ = with_unit if present else sums
    lowered = np.maximum(masses - each - 2 * outside, 0.0)
    some = (lowered > 0) & (ratios > 0)
    lowered, ratios = lowered[some], ratios[some]
    if present:
        return Epoch(ratios, lowered, lowered / ratios, 0.0)
    return Epoch(ratios, lowered * ratios, lowered, 0.0)


def _one_large(
    side: _Side,
    largest: float,
    law: Array,
    values: Array,
    others: _Measured,
    window: _Window,
    lattice: tuple[float, float],
    steps: int,
) -> Epoch:
    """Epochs with one large ratio; those with more are told, from above."""
    end = math.exp(min(side.rarest(_TOLD, small=False, of_unit=True), 700.0))
    edges = largest * np.exp(np.arange(0, math.log(max(end / largest, 1.0)) + 2 * _FAR_APART, _FAR_APART))
    edges = edges[np.isfinite(edges)]
    p, q = side.between(edges)
    given, without = side.masses(edges)
    unit_beyond, beyond = float(given[-1]), float(without[-1])
    total, mean = float(law.sum()), float(law @ values)
    if side.lower:
        some = q > 0
        ratios = (p[some] / q[some] + (steps - 1) * mean / total * (1 - 1e-9 if side.present else 1 + 1e-9)) / steps
        absent = steps * q[some] * total ** (steps - 1) * (1 - 1e-9)
        return Epoch(ratios, absent * ratios, absent, 0.0)
    upper = np.clip((p - edges[:-1] * q) / np.diff(edges), 0.0, q)
    rare = np.zeros(edges.size)
    rare[1:] += upper
    rare[:-1] += q - upper
    told = 0.0
    if side.present:
        told += unit_beyond + steps * beyond
    else:
        rare[-1] += beyond
    # two large ones, or a large one where the unit takes no part beside one where it does
    q_large, p_large = float(rare.sum()), float(rare @ edges) + unit_beyond
    told += 0.5 * (steps * q_large) ** 2 + (p_large * (steps - 1) * q_large if side.present else 0.0)
    points, chances = _few(others, window, lattice, steps)
    ratios = ((edges[:, None] + points) / steps).ravel()
    absent = (steps * rare[:, None] * chances).ravel()
    return Epoch(ratios, absent * ratios, absent, told)


def _few(others: _Measured, window: _Window, lattice: tuple[float, float], steps: int) -> tuple[Array, Array]:
    """The sum of all ratios but a large one, spread onto few points."""
    masses, each, _ = others
    masses = np.maximum(masses, 0.0) + each
    least, h = lattice
    sums = (steps - 1) * least + h * (window.start + np.arange(window.nodes))
    likely = np.flatnonzero(masses > 1e-13)
    first, last = (int(likely[0]), int(likely[-1])) if likely.size else (0, window.nodes - 1)
    # the ends of the window are far, and rare
    points = np.unique(np.concatenate([[sums[0]], np.linspace(sums[first], sums[last], _FEW), [sums[-1]]]))
    if points.size == 1:
        return points, np.array([float(masses.sum())])
    at = np.clip(np.searchsorted(points, sums, side="right") - 1, 0, points.size - 2)
    up = masses * (sums - points[at]) / (points[at + 1] - points[at])
    return points, np.bincount(at, weights=masses - up, minlength=points.size) + np.bincount(
        at + 1, weights=up, minlength=points.size
    )


def _together(small: Epoch, large: Epoch, *, lower: bool, present: bool) -> Epoch:
    """Both kinds of epochs, on fewer ratios: spread from above, gathered from below."""
    ratios = np.concatenate([small.ratios, large.ratios])
    unit, absent = np.concatenate([small.present, large.present]), np.concatenate([small.absent, large.absent])
    beyond = min(1.0, small.beyond + large.beyond)
    some = (unit > 0) & (absent > 0)
    order = np.flatnonzero(some)[np.argsort(ratios[some], kind="stable")]
    ratios, unit, absent = ratios[order], unit[order], absent[order]
    if ratios.size <= _MOST_ATOMS:
        return Epoch(ratios, unit, absent, beyond)
    mean = float(absent @ ratios) / float(absent.sum())
    deviation = math.sqrt(float(absent @ (ratios - mean) ** 2) / float(absent.sum()))
    edges = _edges(float(ratios[0]), float(ratios[-1]), deviation)
    at = np.clip(np.searchsorted(edges, ratios, side="right") - 1, 0, edges.size - 2)
    size = edges.size
    if lower:
        unit, absent = (np.bincount(at, weights=mass, minlength=size) for mass in (unit, absent))
        some = absent > 0
        unit, absent = unit[some], absent[some]
        return Epoch(unit / absent, unit, absent, beyond)
    up = np.clip((ratios - edges[at]) / (edges[at + 1] - edges[at]), 0.0, 1.0)
    base = np.bincount(at, weights=absent * (1 - up), minlength=size)
    base += np.bincount(at + 1, weights=absent * up, minlength=size)
    some = base > 0
    return Epoch(edges[some], edges[some] * base[some], base[some], beyond)


def _edges(low: float, high: float, deviation: float) -> Array:
    """Ratios around 1 from ``low`` to ``high``, closer where the mass is."""
    inner = deviation / _PER_DEVIATION
    steps = np.concatenate([np.arange(8 * _PER_DEVIATION) * inner])
    outwards = 8 * deviation * np.exp(np.arange(0.0, 40.0, _APART))
    away = np.concatenate([steps, outwards])
    above = 1.0 + away[away < high - 1.0]
    below = 1.0 - away[1:][away[1:] < min(1.0 - low, 0.5)]
    least = float(below[-1]) if below.size else 1.0
    small = least * np.exp(-_FAR_APART / 2 * np.arange(1, 1 + math.ceil(max(0.0, math.log(least / low)) * 2 / _FAR_APART)))
    found = np.unique(np.concatenate([[low], small[small > low], below, above, [high]]))
    return found[(found >= low) & (found <= high)]



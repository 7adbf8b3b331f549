"""Sums of privacy losses on a grid: a composed loss that is never too small, and how far it may be above the truth.

**From above.** The loss L of a pair (P, Q) is put on the grid Δ·ℤ by splitting what lies between two grid points over
both such that P and Q keep their masses there. This is the pair whose hockey-stick divergence interpolates the true
one linearly in e^ε between grid points (Doroshenko et al. 2022), hence from above. Rounding errors move mass upwards
only. Losses add under composition; they are tilted by e^(tL) before they are convolved by the fast Fourier transform
and tilted back, so that what matters sits at the peak of the convolution and δ keeps its digits down to 1e-300. Then
δ(ε) = Σ over L > ε of P(L)(1 − e^(ε−L)), plus the probability that some loss is too large for the grid, plus Chernoff's
bound on the sum above the transform's window (which wraps around to where it might not count), plus a bound on the
transform's rounding error: an output of a transform of length n is a sum in which every term passes log₂ n stages, so
its error is at most a few log₂ n units of roundoff times the sum of the terms' sizes, which is 1. What wraps around
from below only adds.
Where large losses are so rare that no tilt makes them common, that error may exceed δ. Then fewer nodes are convolved
*directly*, around the same circle: as nothing is subtracted, a sum of n products is right to n units of roundoff of
itself, and so are N − 1 of them in a row to N(n + 2).

**From below.** Let S = ΣLᵢ be the composed loss of n releases and S″ = S + Z its value on the grid. Given the Lᵢ, the
n parts of Z are independent, each lies in an interval of length Δ, and E[e^(−Z) | L] = 1, because the split keeps the
mass of Q = e^(−L)P. So Y″ = e^(−S″) is Y = e^(−S) times a factor of conditional mean 1, and with the convex
φ(y) = (1 − e^ε·y)₊

    δ″(ε) − δ(ε) = E[φ(Y″) − φ(Y) − φ′(Y)(Y″ − Y)] = E[|1 − e^(ε−S″)|; ε lies between S and S″]:

φ is linear on either side of its kink. Where ε lies between S and S″, |Z| ≥ |S″ − ε|. Split at |S″ − ε| = w:

    δ(ε) ≥ δ″(ε) − E[|1 − e^(ε−S″)|; |S″ − ε| ≤ w] − P(Z > w) − E[e^(−Z) − 1; −Z > w].

Given L, Z has a mean between 0 and m = nΔ²/8 (Jensen; Hoeffding's lemma), so P(Z > w) ≤ e^(−2(w−m)²/(nΔ²)); the last
term is at most the probability of −Z > w under the measure e^(−Z)dP, where −Z has a mean of at most m too, hence again
at most e^(−2(w−m)²/(nΔ²)) (Hoeffding). δ″ is composed a second time for this, with all rounding errors taken downwards,
nothing for what was cut off, and what may wrap around taken off. With w ≈ Δ√(½n·ln(1/δ)) the two bounds differ by
about w²·f(ε), f the density of the sum: of second order in Δ, though releases of any kind may be mixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from accounting.arrays import UNIT_ROUNDOFF, Array
from accounting.loss.pair import LossPair
from accounting.masses import split
from accounting.roots import root_between

__all__ = [
    "BEYOND_USE",
    "FADED",
    "GRID_ERROR",
    "MOST_NODES",
    "NEGLIGIBLE",
    "USUAL_NODES",
    "Convolution",
    "Directly",
    "Parts",
    "Sum",
    "Transformed",
    "Window",
    "fast_length",
    "log_sum",
    "log_finite",
    "smallest",
]

Parts = tuple[tuple[LossPair, int], ...]

# What the grid may add to ε, as a share of it: as little as fits into the usual number of nodes, and the larger share
# with the largest number.
_ADDED = (3e-8, 1e-5)
MOST_NODES = 1 << 21
USUAL_NODES = 1 << 17
# The tilt times the largest single loss: enough for any bounded loss, and e^(tL) keeps its digits.
_MOST_TILT = 2000.0
# What is cut off the grid and the window, as a share of δ.
NEGLIGIBLE = 1e-9
# An ε beyond this protects nobody: the usual number of nodes will do.
BEYOND_USE = 1e4
# Points of the coarse curve, over all parts.
_COARSE_POINTS = 1 << 13
# Products of floats that direct convolutions take, all in all: a tenth of a second, and a second.
_USUAL_PRODUCTS, _MOST_PRODUCTS = 4e8, 4e9
# A factor of the spectrum below e^(−this) is left out.
_FAINT = 60.0
# What floats that are too small for their digits may come to in a node.
_VANISHED = 1e-300
# Relative error of the grid's floating-point losses.
GRID_ERROR = 8 * UNIT_ROUNDOFF
# How many cells of the grid are put together where a rough answer says where to look.
_TOGETHER = 16
# ln of what the weight of a loss must come to, to be left out.
FADED = 60.0


class Convolution:
    """The sum of many losses: a coarse curve to choose tilt, window and grid by, and the transform.

    Parameters
    ----------
    parts : tuple of (LossPair, int)
        The pairs and how often each occurs.
    log_tail : float
        ln of the probability that may be cut off above, over all parts together.
    alone : bool
        Whether nothing will be added to the sum, so that what it is where it is not positive does not matter.
    """

    def __init__(self, parts: Parts, log_tail: float, *, alone: bool = True) -> None:
        self.parts = parts
        self.counts = np.array([count for _, count in parts], dtype=np.float64)
        spread = math.log(len(parts))
        # the losses of atoms from below may all be less than 0
        tails = (max(log_tail - math.log(count) - spread, -740.0) for _, count in parts)
        self.highest = [max(0.0, pair.highest(tail)) for (pair, _), tail in zip(parts, tails, strict=True)]
        #: No sum is larger, but for what was cut off.
        self.reach = math.fsum(count * high for (_, count), high in zip(parts, self.highest, strict=True))
        #: The probability that one is.
        self.cut_off = math.exp(log_tail) if log_tail - math.log(max(self.counts)) - spread > -740 else math.inf
        self.cut_off -= math.expm1(math.fsum(count * log_finite(pair.infinite) for pair, count in parts))
        # Where one loss is this low no others make up for it, or below it are 1e-18: what is below is rounded up to it.
        self.lowest = [
            max(1e-12, min(pair.lowest(-42.0), self.reach - high + 1e-3 * (self.reach + high) if alone else math.inf))
            for (pair, _), high in zip(parts, self.highest, strict=True)
        ]

    @cached_property
    def _coarse(self) -> tuple[Array, Array]:
        """Losses and ln masses of every part, evenly and geometrically spaced; shape (parts, points)."""
        size = max(24, min(400, _COARSE_POINTS // len(self.parts)))
        share = np.concatenate([np.geomspace(1e-13, 1.0, size), np.linspace(0.0, 1.0, size + 1)[1:]])
        share.sort()
        losses = np.empty((len(self.parts), 4 * size + 1))
        masses = np.empty_like(losses)
        for i, (pair, _) in enumerate(self.parts):
            up, down = max(self.highest[i], 1e-12), self.lowest[i]
            losses[i] = np.concatenate([-down * share[::-1], [0.0], up * share])
            masses[i] = split(*pair.masses(losses[i]), losses[i])
        with np.errstate(divide="ignore"):
            return losses, np.log(masses)

    def _log_moments(self, t: float) -> Array:
        losses, log_p = self._coarse
        terms = t * losses
        terms += log_p
        peak = terms.max(axis=1)
        terms -= peak[:, None]
        # smaller ones do not matter, and the smallest floats take long
        np.maximum(terms, -80.0, out=terms)
        return np.asarray(peak + np.log(np.exp(terms, out=terms).sum(axis=1)))

    def curve(self, t: float) -> float:
        """K(t) = Σ count·ln E[e^(tL)], on the coarse curve."""
        return float(self.counts @ self._log_moments(t))

    def divergence(self, orders: Array) -> Array:
        """The Rényi curve of the coarse sums."""
        return np.array([self.curve(order - 1) / (order - 1) for order in orders])

    def _moments(self, t: float) -> tuple[float, float]:
        """Mean and variance of the tilted sum."""
        losses, log_p = self._coarse
        weights = np.exp(log_p + t * losses - self._log_moments(t)[:, None])
        means = (weights * losses).sum(axis=1)
        variances = (weights * (losses - means[:, None]) ** 2).sum(axis=1)
        return float(self.counts @ means), float(self.counts @ variances)

    def window(self, tilt: float, log_level: float) -> Window:
        """Where the tilted sum is, for a δ of about e^``log_level``, and how fine the grid must be."""
        largest = max(self.highest)
        tilt = min(tilt, _MOST_TILT / largest)
        mean, variance = self._moments(tilt)
        # at the end of a bounded loss the tilted sum has no spread left to measure the grid by
        variance = max(variance, (1e-3 * mean) ** 2, (1e-5 * largest) ** 2)
        base = self.curve(tilt)
        count = float(self.counts.sum())
        # an added variance of nΔ²/6 adds tnΔ²/12 to ε, or to the share of ε that is mean and a few deviations
        size = max(abs(mean), math.sqrt(variance))
        fine, coarse = (math.sqrt(12 * share * size / (count * (tilt + 1 / math.sqrt(variance)))) for share in _ADDED)

        # above it the sum is rarer than matters; below it what wraps around adds little
        ahead = tilt * np.array([0.1, 0.25, 0.5, 1, 2, 4, 8, 16])
        ahead += np.array([0, 0, 0, 0, 1, 2, 4, 8]) / math.sqrt(variance)
        ahead = np.concatenate([ahead, np.array([2, 8, 32]) / largest])
        tops = [(self.curve(tilt + s) - log_level - math.log(NEGLIGIBLE)) / (tilt + s) for s in ahead]
        best = int(np.argmin(tops))
        bottoms = [(base - self.curve(tilt - s) + math.log(NEGLIGIBLE)) / s for s in ahead]
        lowest = int(np.argmax(bottoms))
        top = min(max(tops[best], mean), self.reach + count * fine)
        bottom = min(bottoms[lowest], mean - 4 * math.sqrt(variance))
        # what is above the window wraps around, and must not come to lie above its middle
        far = min((self.curve(tilt + s) - base - math.log(NEGLIGIBLE)) / s for s in ahead)
        top = max(top, bottom + min(far - mean, 4 * (top - bottom), self.reach - bottom))
        return Window(tilt, bottom, top, tilt + float(ahead[best]), tilt - float(ahead[lowest]), fine, coarse)

    def untilted_window(self, log_level: float) -> Window:
        """Where all of the sum is but what matters little for a δ of e^``log_level``, to be convolved directly."""
        tilts = np.geomspace(0.01, _MOST_TILT, 48) / max(self.highest)
        rare = log_level + math.log(NEGLIGIBLE)
        tops = [(self.curve(t) - rare) / t for t in tilts]
        bottoms = [(rare - self.curve(-t)) / t for t in tilts]
        above, below = int(np.argmin(tops)), int(np.argmax(bottoms))
        top = min(tops[above], self.reach)
        bottom = max(bottoms[below], -float(self.counts @ self.lowest))
        return Window(0.0, bottom, top, float(tilts[above]), -float(tilts[below]), 0.0, math.inf, direct=True)

    def step(self, window: Window, wanted: float | None = None) -> float:
        """A grid that is fine enough, or the one that is ``wanted``, within the number of nodes."""
        longest = max(high + low for high, low in zip(self.highest, self.lowest, strict=True))
        nodes: tuple[int, ...] = max(USUAL_NODES // len(self.parts), 1 << 12), MOST_NODES
        if window.direct:
            times = float(np.sum(1 + 2 * np.floor(np.log2(self.counts))))
            nodes = tuple(max(256, int(math.sqrt(products / times))) for products in (_USUAL_PRODUCTS, _MOST_PRODUCTS))
        usual, most = (max(window.top - window.bottom, longest) / number for number in nodes)
        coarse = window.coarse if window.top < 10 * BEYOND_USE else math.inf
        return max(window.fine, min(coarse, usual), most) if wanted is None else max(wanted, most)

    def compose(self, window: Window, step: float, *, lower: bool = False) -> Sum:
        """The sum on the grid; upwards, or with ``lower`` downwards."""
        tilt, start = window.tilt, math.floor(window.bottom / step)
        ends = [
            (times, math.floor(-low / step), math.ceil(high / step * (1 + 1e-12)))
            for (_, times), high, low in zip(self.parts, self.highest, self.lowest, strict=True)
        ]
        count = int(self.counts.sum())
        least, end = (sum(times * at[i] for times, *at in ends) for i in (0, 1))
        if least <= start <= least + count:  # no sum is smaller than all the smallest losses together
            start = least
        n = fast_length(math.ceil(window.top / step) - start + 2)
        product = (Directly if window.direct else Transformed)(n)
        cumulant, log_within, above, below = 0.0, 0.0, 0.0, 0.0
        for (pair, _), (times, first, last) in zip(self.parts, ends, strict=True):
            edges = step * np.arange(first, last + 1, dtype=np.float64)
            p, q = pair.masses(edges)
            mass = split(p, q, edges, lower=lower)
            if not lower:
                log_within += times * log_finite(float(p[-1]))
                if abs(float(mass.sum() + p[-1]) - 1.0) > 1e-6:
                    raise ArithmeticError(f"the privacy loss of {pair!r} has mass {mass.sum() + p[-1]!r} on its grid")
            with np.errstate(divide="ignore"):
                log_mass = np.log(mass)
                part_cumulant = log_sum(log_mass + tilt * edges)
                tilted = np.exp(log_mass + tilt * edges - part_cumulant)
            cumulant += times * part_cumulant
            above += times * log_sum(log_mass + window.tilt_above * edges)
            below += times * log_sum(log_mass + window.tilt_below * edges)
            product.take(_folded(tilted, first, n), times)
        composed, errors, relative = product.measure()
        measure = np.roll(composed, -start % n) * (1 - relative if lower else 1 + relative)
        extra = -math.expm1(log_within)
        lift = tilt - window.tilt_below
        from_below = min(0.0, below - cumulant + lift * step * start + 1e-9), lift
        if start <= least:
            from_below = -math.inf, lift
        from_above = above - cumulant + 1e-9, window.tilt_above - tilt
        if end < start + n:
            from_above = -math.inf, 0.0
        elif not lower:
            extra += math.exp(min(0.0, above - window.tilt_above * step * (start + n - 1) + 1e-9))
        possible = min(n, end - start + 1)  # no sum is larger than all the largest losses together
        losses = step * (start + np.arange(possible, dtype=np.float64))
        return Sum(
            losses,
            measure[:possible],
            errors,
            tilt,
            cumulant,
            extra,
            from_below,
            from_above,
            step,
            n * step,
            count,
        )


@dataclass(frozen=True)
class Window:
    """The tilt, where the tilted sum is, the tilts of Chernoff's bounds beyond it, and the finest and coarsest grid.

    And whether sums are convolved directly.
    """

    tilt: float
    bottom: float
    top: float
    tilt_above: float
    tilt_below: float
    fine: float
    coarse: float
    direct: bool = False


def log_finite(beyond: float) -> float:
    """ln of the probability that one loss is not among those beyond, rounded down."""
    return math.log1p(-beyond) * (1 + 1e-9) if beyond < 1 else -math.inf


def _folded(tilted: Array, first: int, n: int) -> Array:
    """Mass on first, first + 1, … wrapped around a circle of n nodes."""
    shift = first % n
    if shift + tilted.size <= n:
        folded = np.zeros(n)
        folded[shift : shift + tilted.size] = tilted
        return folded
    circle = np.bincount((shift + np.arange(tilted.size)) % n, weights=tilted, minlength=n)
    return np.asarray(circle, dtype=np.float64)


# ------------------------------------------------------------------------------------------ products on a circle


# Where masses begin on the circle, and the masses: what is beyond them is 0.
_Stretch = tuple[int, Array]


class Transformed:
    """The convolution of measures of mass 1, by their spectra: time n·ln n for each."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._image_error = 8 * UNIT_ROUNDOFF * math.log2(n)  # of one output of a transform of total mass 1
        self._spectrum, self._error = np.ones(n // 2 + 1, dtype=np.complex128), np.zeros(n // 2 + 1)
        self._left_out = 0.0

    def take(self, measure: Array, times: int) -> None:
        """Convolve with ``times`` times the ``measure``; the bound on the spectrum's error grows entry by entry."""
        image, image_error = np.fft.rfft(measure), self._image_error
        kept: Any = slice(None)
        if times == 1:
            power, grown, loss = image, np.abs(image) + image_error, np.full(image.size, image_error)
        else:
            # what has died out is left out: far fewer frequencies than there are survive many factors (the least that
            # is kept is positive: e^(−30) is more than the error of a transform of any size that there is)
            least = math.exp(-_FAINT / times) * (1 - 4 * UNIT_ROUNDOFF) - image_error
            kept = np.flatnonzero(image.real**2 + image.imag**2 > least * least)
            size, logs = np.abs(image[kept]) + image_error, np.log(image[kept])
            power, grown = np.exp(times * logs), np.exp(times * np.log(size))
            rounding = 4 * UNIT_ROUNDOFF * (8 + times * np.abs(logs)) * np.abs(power)
            loss = times * image_error * grown / size + rounding
        before = self._spectrum[kept]
        product = before * power
        error = self._error[kept] * grown + np.abs(before) * loss + 4 * UNIT_ROUNDOFF * np.abs(product)
        self._spectrum, self._error = np.zeros_like(self._spectrum), np.zeros_like(self._error)
        self._spectrum[kept], self._error[kept] = product, error
        self._left_out += 2 * math.exp(-_FAINT)

    def measure(self) -> tuple[Array, tuple[float, float], float]:
        """The product, the error of every entry and of all in the Euclidean norm (Parseval), and the relative error."""
        error = self._error + self._image_error * np.abs(self._spectrum) + self._left_out
        errors = float(error.sum()) * 2 / self._n, math.sqrt(float(error @ error) * 2 / self._n)
        return np.maximum(np.fft.irfft(self._spectrum, self._n), 0.0), errors, 0.0


class Directly:
    """The same by sums of products, none of which cancel: time n² for each, less where a measure has a large gap."""

    def __init__(self, n: int) -> None:
        self._n, self._count = n, 0
        self._product: _Stretch | None = None

    def take(self, measure: Array, times: int) -> None:
        """Convolve with ``times`` times the ``measure``, by squaring."""
        self._count += times
        power = self._without_gap(measure)
        while times:
            if times & 1:
                self._product = power if self._product is None else self._around(self._product, power)
            times >>= 1
            if times:
                power = self._around(power, power)

    def measure(self) -> tuple[Array, tuple[float, float], float]:
        """As :meth:`Transformed.measure`."""
        product = np.zeros(self._n)
        if self._product is not None:
            start, masses = self._product
            product[: masses.size] = masses
            product = np.roll(product, start)
        relative = self._count * (self._n + 2) * UNIT_ROUNDOFF
        return product, (_VANISHED, _VANISHED * math.sqrt(self._n)), relative

    def _without_gap(self, measure: Array) -> _Stretch:
        """All but the longest stretch of zeros around the circle."""
        some = np.flatnonzero(measure)
        if some.size == 0:
            return 0, measure
        gaps = np.diff(some, append=some[0] + self._n)
        last = int(np.argmax(gaps))
        start = int(some[(last + 1) % some.size])
        return start, np.roll(measure, -start)[: self._n + 1 - int(gaps[last])]

    def _around(self, one: _Stretch, other: _Stretch) -> _Stretch:
        sums = np.convolve(one[1], other[1])
        beyond = max(0, sums.size - self._n)
        sums[:beyond] += sums[self._n :]
        return (one[0] + other[0]) % self._n, sums[: self._n]


def fast_length(least: int) -> int:
    """The smallest number 2^a·3^b·5^c that is at least ``least``: of so many points a Fourier transform is fast.

    >>> fast_length(1), fast_length(7), fast_length(1025), fast_length(3_100_000)
    (1, 8, 1080, 3110400)
    """
    best, fives = 1 << (least - 1).bit_length(), 1
    while fives < best:
        odd = fives
        while odd < best:
            best = min(best, odd << (-(-least // odd) - 1).bit_length())
            odd *= 3
        fives *= 5
    return best


def log_sum(terms: Array) -> float:
    """ln Σ e^terms."""
    peak = float(terms.max())
    return peak + math.log(float(np.exp(terms - peak).sum()))


# ---------------------------------------------------------------------------------------------- the composed loss


@dataclass(frozen=True)
class Sum:
    """The composed loss in its window: e^(K − tL) times ``mass`` on ``losses``.

    The rounding error of ``mass`` is at most ``error``: of every entry, and in the Euclidean norm (Parseval).
    ``extra`` adds to every δ. By Chernoff's bounds (a, s) in ``from_below`` and ``from_above``, of the mass at most
    e^(a − sy) lies more than y ≥ 0 below the window, and wraps around to its upper end; and at most e^(a − sx) lies
    above x.
    """

    losses: Array
    mass: Array
    error: tuple[float, float]
    tilt: float
    cumulant: float
    extra: float
    from_below: tuple[float, float]
    from_above: tuple[float, float]
    step: float
    length: float
    count: int

    def delta(self, epsilon: float) -> float:
        """δ(ε) from above; 1 below the window, where the sum hardly ever is."""
        return self._on_grid(epsilon * (1 - GRID_ERROR))

    def _on_grid(self, epsilon: float) -> float:
        """δ(ε) of losses that are multiples of the grid's step as it is in floating point."""
        if epsilon < self.losses[0]:
            return 1.0
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        weights = self._weights(epsilon, first)
        found = float(self.mass[first : first + weights.size] @ weights) + self._lost(weights)
        if first + weights.size < self.losses.size:
            found += 2 * math.exp(-FADED)  # all mass together is hardly more than 1
        return min(1.0, self.untilted(epsilon, found) + self.extra)

    def doubt(self, epsilon: float) -> float:
        """What errors and cuts contribute to δ(ε), for an ε in the window."""
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        weights = self._weights(epsilon, first)
        return self.untilted(epsilon, self._lost(weights) + self._wrapped(epsilon)) + self.extra

    def wraps(self, epsilon: float) -> float:
        """What wraps around contributes to δ(ε), at most."""
        return self.untilted(epsilon, self._wrapped(epsilon))

    def _lost(self, weights: Array) -> float:
        """What rounding errors may change in a weighted sum of ``mass``."""
        return min(self.error[0] * float(weights.sum()), self.error[1] * float(np.linalg.norm(weights)))

    def _wrapped(self, epsilon: float) -> float:
        """The weighted mass that may count above ``epsilon`` and does not lie there, as the window is a circle.

        What lies less than y below comes to lie less than y below the upper end, where the weight is below
        e^(−tilt·(end − y − ε)); the weight of the rest is at most 1. Both are the same at the best y.
        """
        log_mass, tilt = self.from_above
        above = math.exp(min(0.0, log_mass - tilt * (epsilon + self.length)))
        log_mass, tilt = self.from_below
        light = 0.0
        if self.tilt > 0 and tilt > 0:
            distance = float(self.losses[0]) + self.length - self.step - epsilon
            light = max(0.0, self.tilt * tilt / (self.tilt + tilt) * distance - math.log(2.0))
        return math.exp(min(0.0, log_mass - light)) + above

    def grid_error(self, epsilon: float) -> float:
        """About how much the grid adds to ε: ½ of the variance nΔ²/6 that it adds, times density over slope."""
        at = int(np.clip(np.searchsorted(self.losses, epsilon), 0, self.losses.size - 1))
        density = float(self.mass[max(0, at - 4) : at + 5].mean()) / self.step
        slope = self._tilted_slope(epsilon)
        return self.count * self.step**2 / 12 * density / slope if slope > 0 else math.inf

    def _tilted_slope(self, epsilon: float) -> float:
        first = int(np.searchsorted(self.losses, epsilon))
        return float(self.mass[first:] @ np.exp(-(self.tilt + 1) * (self.losses[first:] - epsilon)))

    def slope(self, epsilon: float) -> float:
        """−dδ/dε, about."""
        return self.untilted(epsilon, self._tilted_slope(epsilon))

    def _weights(self, epsilon: float, first: int) -> Array:
        # up to where they have faded away
        end = None
        if self.tilt > 0:
            end = max(first, int(np.searchsorted(self.losses, epsilon + FADED / self.tilt)))
        ahead = self.losses[first:end] - epsilon
        return np.asarray(np.exp(-self.tilt * ahead) * -np.expm1(-ahead))

    def untilted(self, epsilon: float, total: float, sign: float = 1.0) -> float:
        """A weighted sum of ``mass`` without its tilt, rounded upwards, or downwards where ``sign`` is −1."""
        if total <= 0:
            return 0.0
        slack = 1e-9 + 8 * UNIT_ROUNDOFF * (abs(self.cumulant) + self.tilt * abs(epsilon))
        return math.exp(min(0.0, self.cumulant - self.tilt * epsilon + math.log(total) + sign * slack))

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 with δ(ε) ≤ ``delta``, at least the lower end of the window."""
        to_delta = lru_cache(maxsize=None)(self._on_grid)
        low, high = max(0.0, float(self.losses[0])), float(self.losses[-1])
        near = self._nearby(delta, low, high)
        if near is not None and to_delta(near[0]) > delta >= to_delta(near[1]):
            low, high = near
        elif to_delta(low) <= delta:
            return low * (1 + GRID_ERROR)
        elif not (high > low and to_delta(high) <= delta):
            return math.inf
        return smallest(to_delta, delta, low, high) * (1 + GRID_ERROR)

    def _nearby(self, delta: float, low: float, high: float) -> tuple[float, float] | None:
        """Where to look for ε first: a few cells in [low, high], found on a grid that many times as coarse."""
        size = self.losses.size // _TOGETHER * _TOGETHER
        if size < 64 * _TOGETHER or not low < high:
            return None
        mass = self.mass[:size].reshape(-1, _TOGETHER).sum(axis=1)
        coarse = replace(self, losses=self.losses[:size:_TOGETHER] + (_TOGETHER - 1) / 2 * self.step, mass=mass)
        target = math.log(delta)
        try:
            about = root_between(
                lambda x: math.log(coarse._on_grid(x) + 5e-324) - target, low, high, absolute=self.step
            )
        except ValueError:
            return None
        reach = _TOGETHER * float(self.step)
        return max(low, about - reach), min(high, about + reach)

    # ------------------------------------------------------------------------------------------------ from below

    def delta_at_least(self, epsilon: float, above: Sum, delta: float) -> float:
        """δ(ε) from below, where ``self`` was composed downwards and ``above`` upwards; tuned for a δ near ``delta``.

        See the module's text.
        """
        variance = above.count * above.step**2
        # half a millionth of δ each for the tails of Z, and the losses' own rounding
        reach = variance / 8 + math.sqrt(0.5 * variance * (math.log(2e6) - math.log(delta)))
        reach += 4 * GRID_ERROR * float(np.abs(above.losses[[0, -1]]).max())
        # what straddles costs up to e^((1 + tilt)·reach), also of rounding errors: nothing is known
        if not (1 + max(above.tilt, 0.0)) * reach < 700:
            return 0.0
        tails = 2 * math.exp(-2 * (reach - variance / 8) ** 2 / variance)
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        weights = self._weights(epsilon * (1 + GRID_ERROR), first)
        weights = np.maximum(weights, 0.0)
        kept = float(self.mass[first : first + weights.size] @ weights) - self._lost(weights) - self._wrapped(epsilon)
        near = slice(*np.searchsorted(above.losses, [epsilon - reach, epsilon + reach]))
        apart = above.losses[near] - epsilon
        with np.errstate(over="ignore"):
            cost = np.exp(-above.tilt * apart) * np.abs(np.expm1(-apart))
        straddling = float(above.mass[near] @ cost) + above._lost(cost)
        if epsilon - reach < above.losses[0]:
            straddling += math.exp(above.from_below[0]) * math.exp(min(700.0, above.tilt * reach)) * math.expm1(reach)
        return self.untilted(epsilon, kept, -1.0) - above.untilted(epsilon, straddling) - tails


def smallest(to_delta: Callable[[float], float], delta: float, low: float, high: float) -> float:
    """The smallest ε in [low, high] with ``to_delta(ε) ≤ delta``, rounded up; it falls, and meets δ at ``high``."""
    target = math.log(delta)
    # between two losses δ is linear in e^ε, so secants in ε soon land in the right cell and then on the root
    root = root_between(
        lambda x: math.log(to_delta(x) + 5e-324) - target, low, high, absolute=1e-16 * high, relative=1e-13
    )
    step = 1e-14
    while root < high and to_delta(root) > delta:
        root += step * max(root, 1e-3 * high)
        step *= 2
    return min(root, high)

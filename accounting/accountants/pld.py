"""The privacy loss distribution: the tightest total of many releases, discretised so that it never falls short.

1. Each description has a dominating pair (:mod:`accounting.accountants.losses`). Its privacy loss is put on the grid
   Δ·ℤ by splitting what lies between two grid points over both such that P and Q keep their masses there. This is
   the pair whose hockey-stick divergence interpolates the true one linearly in e^ε between grid points (Doroshenko
   et al. 2022), hence from above; its error is of second order in Δ. Rounding errors move mass upwards only.
2. Losses add under composition. They are tilted by e^(tL) before they are convolved by the fast Fourier transform,
   with t chosen as for the best Rényi order, and tilted back: what matters then sits at the peak of the convolution,
   so that δ keeps its digits down to 1e-300.
3. δ(ε) = Σ over L > ε of P(L)(1 − e^(ε−L)). To it are added the losses too large for the grid, Chernoff's bound on
   the sum above the transform's window (which wraps around to where it might not count), and a bound on the
   transform's rounding error (Higham, *Accuracy and Stability of Numerical Algorithms*, Theorem 24.2). What wraps
   around from below only adds.

A single release is priced by its closed form, without a grid.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.gdp import gdp
from accounting.accountants.orders import best_order_for_delta, best_order_for_epsilon
from accounting.conversions import log_target
from accounting.errors import UnsupportedRelease
from accounting.releases import (
    CentralShuffledBinomial,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    LocalShuffled,
    NoisyMax,
    Parallel,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    Release,
    TreeAggregation,
)

if TYPE_CHECKING:  # the pairs are loaded when the first total is asked for
    from accounting.accountants.losses import LossPair

__all__ = ["check", "delta", "epsilon", "is_quick"]

Array = NDArray[np.float64]
Parts = tuple[tuple["LossPair", int], ...]

_UNIT_ROUNDOFF = 2.0**-52
# The grid may add this share to the variance of the sum, which is about its share of ε: as little as fits into the
# usual number of nodes, and the larger share with the largest number.
_ADDED_VARIANCE = (1e-7, 1e-5)
_NODES = (1 << 18, 1 << 22)
# Combinations of parallel branches that are tried one by one.
_MOST_BRANCHES = 64
_QUICK_PARTS = 4
# The tilt times the largest single loss: enough for any bounded loss, and e^(tL) keeps its digits.
_MOST_TILT = 2000.0
# What is cut off the grid and the window, as a share of δ.
_NEGLIGIBLE = 1e-9
# Rounding errors and cuts may make up this share of δ before the sum is tilted anew.
_DOUBT = 1e-5
# Relative error of the grid's floating-point losses.
_GRID_ERROR = 8 * _UNIT_ROUNDOFF


# ------------------------------------------------------------------------------------------ descriptions to pairs


def _pairs(release: Release, present: bool) -> list[Counter[LossPair]]:
    """The pairs that ``release`` is composed of, one list entry for every branch that a unit may meet."""
    from accounting.accountants.integer_losses import IntegerPair
    from accounting.accountants.losses import Coins, GaussianPair, GumbelPair, LaplacePair, ShuffledPair, SwappedPair

    match release:
        case Gaussian(noise_multiplier=z):
            return [Counter({GaussianPair(1.0 / z): 1})]
        case TreeAggregation(noise_multiplier=z):
            return [Counter({GaussianPair(math.sqrt(release.levels) / z): 1})]
        case Laplace(noise_multiplier=z):
            return [Counter({LaplacePair(1.0 / z): 1})]
        case DiscreteGaussian(noise_multiplier=z, shift=shift) if shift is not None:
            return [Counter({IntegerPair("gaussian", z, int(shift)): 1})]
        case DiscreteLaplace(noise_multiplier=z, shift=shift) if shift is not None:
            return [Counter({IntegerPair("laplace", z, int(shift)): 1})]
        case DiscreteLaplace(noise_multiplier=z):
            return [Counter({Coins(1.0 / z): 1})]
        case NoisyMax(epsilon=eps, noise="gumbel"):
            return [Counter({GumbelPair(eps): 1})]
        case PureDP(epsilon=eps) | NoisyMax(epsilon=eps):
            return [Counter({Coins(eps): 1} if eps > 0 else {})]
        case RandomizedResponse(epsilon=eps, categories=k):
            return [Counter({Coins(eps, int(k)): 1})]
        case CentralShuffledBinomial() if math.isfinite(mu := gdp(release)):
            return [Counter({GaussianPair(mu): 1} if mu > 0 else {})]
        case LocalShuffled(epsilon=eps, users=users):
            return [Counter({ShuffledPair(eps, int(users)): 1})]
        case PoissonSubsampled(release=Gaussian(noise_multiplier=z), rate=rate, adjacency="replace"):
            return [Counter({SwappedPair(z, rate) if rate < 1 else GaussianPair(2.0 / z): 1})]
        case PoissonSubsampled(release=inner, rate=rate):
            return [_sample(branch, rate, present, release) for branch in _pairs(inner, present)]
        case Composed(parts=parts):
            choices = []
            for part, count in parts:
                branches = _pairs(part, present)
                if math.comb(count + len(branches) - 1, count) > _MOST_BRANCHES:
                    raise UnsupportedRelease(f"the PLD accountant cannot try every branch of {release!r}")
                choices.append([_join(some) for some in _spread(branches, count)])
            if math.prod(map(len, choices)) > _MOST_BRANCHES:
                raise UnsupportedRelease(f"the PLD accountant cannot try every branch of {release!r}")
            return [_join([(one, 1) for one in some]) for some in itertools.product(*choices)]
        case Parallel(branches=branches):
            return [pairs for branch in branches for pairs in _pairs(branch, present)]
    raise UnsupportedRelease(f"the PLD accountant has no bound for {release!r}")


def _spread(branches: list[Counter[LossPair]], count: int) -> list[list[tuple[Counter[LossPair], int]]]:
    """Every way in which ``count`` releases may fall on the branches."""
    if len(branches) == 1:
        return [[(branches[0], count)]]
    ways = itertools.combinations_with_replacement(range(len(branches)), count)
    return [[(branches[i], n) for i, n in Counter(way).items()] for way in ways]


def _join(parts: list[tuple[Counter[LossPair], int]]) -> Counter[LossPair]:
    """Add up, with all Gaussians as one."""
    from accounting.accountants.losses import GaussianPair

    total: Counter[LossPair] = Counter()
    square = 0.0
    for pairs, times in parts:
        for pair, count in pairs.items():
            if isinstance(pair, GaussianPair):
                square += times * count * pair.mu**2
            else:
                total[pair] += times * count
    if square > 0:
        total[GaussianPair(math.sqrt(square) * (1 + 4 * _UNIT_ROUNDOFF))] = 1
    return total


def _sample(pairs: Counter[LossPair], rate: float, present: bool, release: Release) -> Counter[LossPair]:
    from accounting.accountants.losses import SubsampledPair

    if not pairs:
        return pairs
    (pair, count), *more = pairs.items()
    if more or count > 1 or isinstance(pair, SubsampledPair):
        raise UnsupportedRelease(f"the PLD accountant has no bound for {release!r}")
    return Counter({SubsampledPair(pair, rate, present): 1} if rate < 1 else {pair: 1})


def _alternatives(release: Release) -> set[Parts]:
    """What a unit may meet: every branch, and both directions of an asymmetric pair."""
    found = [_join([(pairs, 1)]) for present in (True, False) for pairs in _pairs(release, present)]
    return {tuple(sorted(pairs.items(), key=repr)) for pairs in found if pairs}


def check(release: Release) -> None:
    """Raise :class:`UnsupportedRelease` if a part of the description has no known pair."""
    _alternatives(release)


def is_quick(release: Release) -> bool:
    """Whether the total takes a fraction of a second: few branches, few different parts."""
    parts = release.parts if isinstance(release, Composed) else ((release, 1),)
    if len(parts) > 4 * _QUICK_PARTS:
        return False
    try:
        alternatives = _alternatives(release)
    except UnsupportedRelease:
        return False
    return len(alternatives) <= 4 and all(len(parts) <= _QUICK_PARTS for parts in alternatives)


def epsilon(release: Release, delta: float) -> float:
    """ε at ``delta``, rounded up."""
    log_target(delta)
    return max((_epsilon(parts, delta) for parts in _alternatives(release)), default=0.0)


def delta(release: Release, epsilon: float) -> float:
    """δ at ``epsilon``, rounded up."""
    return max((_delta(parts, epsilon) for parts in _alternatives(release)), default=0.0)


# ------------------------------------------------------------------------------------------------- single releases


def _alone(parts: Parts) -> LossPair | None:
    (pair, count), *more = parts
    return pair if count == 1 and not more else None


def _epsilon(parts: Parts, delta: float) -> float:
    alone = _alone(parts)
    if alone is not None:
        return _inverse(alone.delta, delta, alone.highest(math.log(delta)))
    curve = _curve(parts, math.log(delta) + math.log(_NEGLIGIBLE))
    total = _compose(parts, curve, best_order_for_epsilon(curve.divergence, delta), math.log(delta))
    found = total.epsilon(delta)
    if math.isfinite(found) and total.doubt(found) > _DOUBT * delta:
        # the bound on rounding errors weighs less where the sum is tilted to the ε that was found
        again = _compose(parts, curve, best_order_for_delta(curve.divergence, found), math.log(delta))
        found = min(found, again.epsilon(delta))
    return found


def _delta(parts: Parts, epsilon: float) -> float:
    alone = _alone(parts)
    if alone is not None:
        return min(1.0, alone.delta(epsilon))
    curve = _curve(parts, -700.0)
    tilt = best_order_for_delta(curve.divergence, epsilon)
    # the Rényi bound on ln δ, and some room for how far below it the truth may be
    log_level = min(0.0, tilt * (float(curve.divergence(np.array([1 + tilt]))[0]) - epsilon)) - 10.0
    log_level = max(log_level, -690.0)
    return _compose(parts, _curve(parts, log_level + math.log(_NEGLIGIBLE)), tilt, log_level).delta(epsilon)


def _inverse(to_delta: Callable[[float], float], delta: float, high: float) -> float:
    """The smallest ε with ``to_delta(ε) ≤ delta``, rounded up; ``high`` is large enough."""
    from scipy.optimize import brentq

    if to_delta(0.0) <= delta:
        return 0.0
    target = math.log(delta)

    def excess(at: float) -> float:
        value = to_delta(at)
        return (math.log(value) if value > 0 else -750.0) - target

    if excess(high) > 0:
        return high
    root = float(brentq(excess, 0.0, high, xtol=1e-16 * high, rtol=1e-14))
    step = 1e-15
    while root < high and to_delta(root) > delta:
        root += step * max(root, 1e-3 * high)
        step *= 2
    return min(root, high)


# ------------------------------------------------------------------------------------------------ discretisation


def _split(p: Array, q: Array, edges: Array) -> Array:
    """Mass on the edges that dominates the pair between them (P and Q as in ``masses``; above the last is left out).

    Interval masses are differences of distribution functions, right to a few units in the last place of the smaller
    tail times its logarithm.
    """

    def error(mass: Array) -> Array:
        tail = np.minimum(np.cumsum(mass), np.cumsum(mass[::-1])[::-1])
        return np.asarray(tail * np.where(tail > 1e-3, 3e-14, 3e-12))

    low, high = edges[:-1], edges[1:]
    with np.errstate(under="ignore", over="ignore"):
        inner_p = p[1:-1] + error(p)[1:-1]
        # e^low·Q, through e^(low)·Q ≤ P wherever Q is itself too small for its own digits
        inner_q = np.exp(np.minimum(low, 700.0)) * np.maximum(q[1:-1] - error(q)[1:-1], 0.0)
        upper = np.clip((inner_p - inner_q) / -np.expm1(low - high), 0.0, inner_p)
    total = np.zeros(edges.size)
    total[1:] += upper
    total[:-1] += inner_p - upper
    total[0] += p[0] * (1 + 1e-14)
    return total


@dataclass(frozen=True)
class _Curve:
    """Every pair on a coarse grid, both evenly and geometrically spaced: enough to choose tilt, window and Δ."""

    atoms: tuple[tuple[Array, Array, int], ...]  # losses, ln masses, count
    highest: tuple[float, ...]

    def cumulant(self, t: float) -> float:
        """K(t) = Σ count·ln E[e^(tL)]."""
        return math.fsum(count * _log_sum(log_p + t * losses) for losses, log_p, count in self.atoms)

    def divergence(self, orders: Array) -> Array:
        return np.array([self.cumulant(order - 1) / (order - 1) for order in orders])

    def moments(self, t: float) -> tuple[float, float]:
        """Mean and variance of the tilted sum."""
        mean = variance = 0.0
        for losses, log_p, count in self.atoms:
            weights = np.exp(log_p + t * losses - _log_sum(log_p + t * losses))
            first = float(weights @ losses)
            mean += count * first
            variance += count * float(weights @ (losses - first) ** 2)
        return mean, variance


def _log_sum(terms: Array) -> float:
    peak = float(terms.max())
    with np.errstate(under="ignore"):
        return peak + math.log(float(np.exp(terms - peak).sum()))


def _curve(parts: Parts, log_tail: float) -> _Curve:
    atoms, tops = [], []
    for pair, count in parts:
        high = pair.highest(max(log_tail - math.log(count), -740.0))
        low = min(-_lowest(pair), -1e-12)
        up, down = (np.geomspace(1e-13, max(end, 1e-12), 400) for end in (high, -low))
        edges = np.unique(np.concatenate([-down, [0.0], up, np.linspace(-down[-1], up[-1], 800)]))
        with np.errstate(divide="ignore"):
            log_p = np.log(_split(*pair.masses(edges), edges))
        atoms.append((edges, log_p, count))
        tops.append(high)
    return _Curve(tuple(atoms), tuple(tops))


def _lowest(pair: LossPair) -> float:
    """−L such that lower losses have mass 1e-18; they are rounded up to it."""
    from accounting.accountants.losses import SubsampledPair

    mirrored = SubsampledPair(pair.inner, pair.rate, not pair.present) if isinstance(pair, SubsampledPair) else pair
    return mirrored.highest(-42.0)


# ---------------------------------------------------------------------------------------------------- composition


@dataclass(frozen=True)
class _Sum:
    """The composed loss in its window: e^(K − tL) times ``mass`` + ``error`` on ``losses``; ``extra`` adds to every
    δ."""

    losses: Array
    mass: Array
    error: float
    tilt: float
    cumulant: float
    extra: float

    def delta(self, epsilon: float) -> float:
        """δ(ε); 1 below the window, where the sum hardly ever is."""
        return self._on_grid(epsilon * (1 - _GRID_ERROR))

    def _on_grid(self, epsilon: float) -> float:
        """δ(ε) of losses that are multiples of the grid's step as it is in floating point."""
        if epsilon < self.losses[0]:
            return 1.0
        return min(1.0, self._sum(epsilon, self.mass + self.error) + self.extra)

    def doubt(self, epsilon: float) -> float:
        """What errors and cuts contribute to δ(ε), for an ε in the window."""
        return self._sum(epsilon, np.full_like(self.mass, self.error)) + self.extra

    def _sum(self, epsilon: float, mass: Array) -> float:
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        ahead = self.losses[first:] - epsilon
        with np.errstate(under="ignore"):
            total = float(mass[first:] @ (np.exp(-self.tilt * ahead) * -np.expm1(-ahead)))
        if total == 0:
            return 0.0
        slack = 1e-9 + 8 * _UNIT_ROUNDOFF * (abs(self.cumulant) + self.tilt * abs(epsilon))
        return math.exp(min(0.0, self.cumulant - self.tilt * epsilon + math.log(total) + slack))

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 with δ(ε) ≤ ``delta``, at least the lower end of the window."""
        low, high = max(0.0, float(self.losses[0])), float(self.losses[-1])
        if self._on_grid(low) <= delta:
            return low * (1 + _GRID_ERROR)
        if not (high > low and self._on_grid(high) <= delta):
            return math.inf
        # between two losses δ is linear in e^ε, so secants in ε soon land in the right cell and then on the root
        from scipy.optimize import brentq

        target = math.log(delta)
        root = float(
            brentq(lambda x: math.log(self._on_grid(x) + 5e-324) - target, low, high, xtol=1e-16 * high, rtol=1e-13)
        )
        step = 1e-14
        while root < high and self._on_grid(root) > delta:
            root += step * max(root, 1e-3 * high)
            step *= 2
        return min(root, high) * (1 + _GRID_ERROR)


def _compose(parts: Parts, curve: _Curve, tilt: float, log_level: float) -> _Sum:
    from scipy.fft import irfft, next_fast_len, rfft

    largest = max(curve.highest)
    tilt = min(tilt, _MOST_TILT / largest)
    mean, variance = curve.moments(tilt)
    # at the end of a bounded loss the tilted sum has no spread left to measure the grid by
    variance = max(variance, (1e-3 * mean) ** 2, (1e-5 * largest) ** 2)
    base = curve.cumulant(tilt)
    count = sum(times for _, times in parts)
    fine, coarse = (math.sqrt(6 * share * variance / count) for share in _ADDED_VARIANCE)

    # the window: above it the sum is rarer than matters; below it what wraps around adds little
    ahead = tilt * np.array([0.1, 0.25, 0.5, 1, 2, 4, 8, 16]) + np.array([0, 0, 0, 0, 1, 2, 4, 8]) / math.sqrt(variance)
    tops = [(curve.cumulant(tilt + s) - log_level - math.log(_NEGLIGIBLE)) / (tilt + s) for s in ahead]
    top, chernoff_tilt = min(tops), tilt + float(ahead[int(np.argmin(tops))])
    bottom = max((base - curve.cumulant(tilt - s) + math.log(_NEGLIGIBLE)) / s for s in ahead)
    reach = math.fsum(times * high for (_, times), high in zip(parts, curve.highest, strict=True))
    top = min(max(top, mean), reach + count * fine)
    bottom = min(bottom, mean - 4 * math.sqrt(variance))

    longest = max(high + _lowest(pair) for (pair, _), high in zip(parts, curve.highest, strict=True))
    usual, most = (max(top - bottom, longest) / nodes for nodes in _NODES)
    step = max(fine, min(coarse, usual), most)
    n = int(next_fast_len(math.ceil((top - bottom) / step) + 2, real=True))
    start = math.floor(bottom / step)

    log_size, angle = np.zeros(n // 2 + 1), np.zeros(n // 2 + 1)
    cumulant, extra, end = 0.0, 0.0, 0
    chernoff = 0.0
    transforms = []
    for (pair, times), high in zip(parts, curve.highest, strict=True):
        first, last = math.floor(-_lowest(pair) / step), math.ceil(high / step * (1 + 1e-12))
        edges = step * np.arange(first, last + 1)
        p, q = pair.masses(edges)
        extra += times * float(p[-1]) * (1 + 1e-9)
        mass = _split(p, q, edges)
        with np.errstate(divide="ignore", under="ignore"):
            log_mass = np.log(mass)
            part_cumulant = _log_sum(log_mass + tilt * edges)
            tilted = np.exp(log_mass + tilt * edges - part_cumulant)
        end += times * last
        cumulant += times * part_cumulant
        chernoff += times * _log_sum(log_mass + chernoff_tilt * edges)
        folded = np.bincount(np.arange(first, last + 1) % n, weights=tilted, minlength=n)
        image = rfft(folded)
        with np.errstate(divide="ignore"):
            logs = np.log(np.abs(image))
        phase = np.angle(image)
        log_size += times * logs
        angle += times * phase
        transforms.append((times, logs, float(np.linalg.norm(folded))))
    with np.errstate(under="ignore"):
        size = np.exp(log_size)
    composed = irfft(size * np.exp(1j * angle), n)
    error = _transform_error(n, size, log_size, transforms)
    measure = np.roll(np.maximum(composed, 0.0), -start % n)
    if end >= start + n:
        extra += math.exp(min(0.0, chernoff - chernoff_tilt * step * (start + n - 1) + 1e-9))
    possible = min(n, end - start + 1)  # no sum is larger than all the largest losses together
    return _Sum(step * (start + np.arange(possible)), measure[:possible], error, tilt, cumulant, extra)


def _transform_error(n: int, size: Array, log_size: Array, transforms: list[tuple[int, Array, float]]) -> float:
    """A bound on every entry's rounding error: of the transforms, of the powers, and of the transform back."""
    relative = 8 * _UNIT_ROUNDOFF * math.log2(n)  # of a transform, in the Euclidean norm
    total = relative * float(np.linalg.norm(size)) * math.sqrt(2 / n)
    for times, logs, norm in transforms:
        with np.errstate(under="ignore", invalid="ignore"):
            others = np.exp(np.where(np.isfinite(logs), log_size - logs, -np.inf))  # one factor less
            powers = float(np.sum(np.where(size > 0, size * (8 + np.abs(logs)), 0.0)))
        total += times * relative * norm * math.sqrt(2 / n) * float(np.linalg.norm(others))
        total += times * 4 * _UNIT_ROUNDOFF * powers * 2 / n
    return total

"""Dominating pairs of discrete Gaussian noise on integer vectors (see :mod:`accounting.loss.pair`).

σ is z times the sensitivity, which nobody says; so σ ≥ z‖v‖ for the integer vector v ≠ 0 by which a unit shifts.

*From above.* Where σ is large, κ(σ)·‖v‖/σ-Gaussian DP is as good as exact (:mod:`accounting.loss.lattice`): let
μ be its value at ‖v‖² = S₁ and σ = z√S₁. κ falls as σ grows, so all releases with ‖v‖² ≥ S₁ are μ-GDP, and those of a
shorter v from some σ on. What is left is gone through: every way in which S < S₁ is a sum of squares, and σ from z√S to
there. The loss (2Y − S)/(2σ²) depends on Y = ⟨v, x⟩ alone, of which Q has the law of the noise and P one that lies S
further on. So with T(m) = Pr(Y ≥ m)

    δ(ε) = T(m − S) − e^ε·T(m),   m the least value of Y whose loss is above ε.

For given v, δ need not fall as σ grows: at one ε it may rise by some percent. But e^(−‖x‖²/(2σ²)) grows with σ, and so
does its sum Z over any set: between σ₁ and σ₂ a probability is at least Z₁/Z₂ times what it is at σ₁, and at most Z₂/Z₁
times what it is at σ₂. So on a short interval of σ, δ is at most the largest over the values that m takes there, with
the first tail as large and the second one as small as that allows. The curve of all is that of one pair.

*From below*: noise on one integer that moves by j = 1, 2, … with σ = zj, of a sensitivity of j, and its limit as j
grows, the Gaussian. Thresholds of them all are points (Q, P); who plays the release last may choose among them by what
was seen, as with zCDP releases (:mod:`accounting.loss.concentrated`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting.arrays import Array
from accounting.conversions import gdp_delta
from accounting.loss.curves import lower_hull, pair_of_curve, value_between
from accounting.loss.gaussian import LatticeGaussianPair
from accounting.loss.lattice import composed_mu, discrete_gaussian_mu
from accounting.loss.pair import Atoms, Symmetric, mirrored, remembered, with_mirror_image

__all__ = ["LatticeCorners", "LatticePair", "joined", "lattice_pair"]


# From this σ on κ is taken as it is, below 1.0022; and vectors of this length in any case.
_SMOOTH, _LONGEST = 4.4, 9
# Steps of σ, as a share of it.
_STEP = 3e-4
# Points of the curve, evenly spaced up to so many deviations, then geometrically up to where δ is next to nothing.
_EVEN, _DEVIATIONS, _GEOMETRIC, _FURTHEST = 400, 9.0, 200, 37.0
# Tails beyond so many deviations are less than 1e-40, and those above this right to a part in 1e10.
_REACH, _RAREST = 14.0, 1e-30
# So many releases keep their own pairs.
_FEW = 3
# Shifts of one integer that are tried from below, and the least share by which neighbouring points differ.
_SHIFTS, _APART = 12, 1e-3


@dataclass(frozen=True)
class LatticePair(Atoms, Symmetric):
    """One release, from above."""

    noise_multiplier: float

    @mirrored
    def delta(self, epsilon: float) -> float:
        return value_between(*_curve(self.noise_multiplier), epsilon)

    @remembered(16)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        return pair_of_curve(*_curve(self.noise_multiplier))


@dataclass(frozen=True)
class LatticeCorners(Atoms, Symmetric):
    """The last release, from below."""

    exact = True
    noise_multiplier: float

    @remembered(16)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        from scipy.special import ndtr

        noise = self.noise_multiplier
        thresholds = np.linspace(-_DEVIATIONS, _FURTHEST, 4 * _EVEN) + 0.5 / noise
        points = [np.array([ndtr(-thresholds), ndtr(1 / noise - thresholds)])]
        for j in range(1, _SHIFTS + 1):
            (tails,), _ = _tails((1,), np.array([noise * j]))
            upper = np.concatenate([1 - tails[:0:-1], tails])  # Pr(x ≥ m) for every m
            points.append(np.array([upper[j:], upper[:-j]]))
        q, p = np.concatenate(points, axis=1)
        # the other half is this one's mirror image
        some = (p + q < 1 + 1e-12) & (q > _RAREST)
        q, p = np.concatenate([[[0.0], [0.0]], np.array([q[some], p[some]])[:, np.argsort(q[some])]], axis=1)
        corners = lower_hull(q, -p)
        kept = corners[1:2]
        for at in corners[2:]:
            if q[at] > (1 + _APART) * q[kept[-1]] and p[at] > (1 + _APART) * p[kept[-1]]:
                kept.append(at)
        in_p, in_q = (np.diff(x[kept], prepend=0.0) * (1 - 1e-9) for x in (p, q))
        return with_mirror_image(in_p, in_q)


def lattice_pair(noise: float) -> LatticePair | LatticeGaussianPair:
    """The pair of one release whose noise multiplier is ``noise``."""
    mu = discrete_gaussian_mu(noise)
    return LatticePair(noise) if noise < _SMOOTH else LatticeGaussianPair(mu, noise, None)


def joined(
    square: float, releases: Counter[LatticePair | LatticeGaussianPair]
) -> tuple[float, Counter[LatticePair | LatticeGaussianPair]]:
    """Releases beside Gaussian noise, of which μ² is ``square``: what that becomes, and the release that is left.

    All but one, the strongest, are hardly more than Gaussian noise (:mod:`accounting.loss.lattice`).
    """
    count, strongest = sum(releases.values()), min(releases, key=lambda pair: pair.noise_multiplier)
    strong = isinstance(strongest, LatticePair)
    # a single one is not in a sum, and a few strong ones are better off with their own pairs
    if (count == 1 and square == 0) or (strong and count <= _FEW):
        return square, releases
    last = Counter({strongest: int(strong)})
    return square + composed_mu([(pair.noise_multiplier, n) for pair, n in (releases - last).items()]) ** 2, +last


def _squares(total: int, largest: int) -> Iterator[tuple[int, ...]]:
    """Every way in which ``total`` is a sum of squares of positive integers, which do not rise."""
    if total == 0:
        yield ()
    for v in range(min(largest, math.isqrt(total)), 0, -1):
        for rest in _squares(total - v * v, v):
            yield (v, *rest)


def _tails(vector: tuple[int, ...], sigma: Array) -> tuple[Array, Array]:
    """T(m), m = 0, 1, …, of ⟨v, x⟩, one row for every σ, and the sum of e^(−‖x‖²/(2σ²)) over all x."""
    reach = math.ceil(_REACH * float(sigma[-1]))
    x = np.arange(-reach, reach + 1)
    noise = np.exp(-(x**2) / (2 * sigma[:, None] ** 2))
    whole = noise.sum(axis=1)
    noise /= whole[:, None]
    law = np.ones((sigma.size, 1))
    for v in vector:
        longer = np.zeros((sigma.size, law.shape[1] + 2 * reach * v))
        for i in range(x.size):
            longer[:, i * v : i * v + law.shape[1]] += noise[:, i, None] * law
        law = longer
    tails = np.cumsum(law[:, ::-1], axis=1)[:, ::-1][:, law.shape[1] // 2 :]
    return np.append(tails, np.zeros((sigma.size, 1)), axis=1), whole ** len(vector)


def _most(vector: tuple[int, ...], sigma: Array, epsilons: Array) -> Array:
    """The largest δ at every ε of a shift by ``vector``, σ being anywhere between the first and the last."""
    square = sum(v * v for v in vector)
    tails, whole = _tails(vector, sigma)
    grown = whole[1:, None] / whole[:-1, None] * (1 + 1e-11)
    above, below = tails[1:] * grown, tails[:-1] / grown
    rows, end = np.arange(sigma.size - 1)[:, None], tails.shape[1] - 1
    firsts = np.floor(sigma[:, None] ** 2 * epsilons + square / 2).astype(np.int64) + 1
    best = np.zeros(epsilons.size)
    for m in (firsts[:-1] + i for i in range(int(np.diff(firsts, axis=0).max()) + 1)):
        # Pr(Y ≥ m) = 1 − Pr(Y ≥ 1 − m)
        at = m - square
        gained = np.where(at >= 1, above[rows, np.clip(at, 0, end)], 1 - below[rows, np.clip(1 - at, 0, end)])
        lost = below[rows, np.minimum(m, end)]
        best = np.maximum(best, (gained - np.exp(epsilons) * lost).max(axis=0))
    return best + 1e-40


@lru_cache(maxsize=16)
def _curve(noise: float) -> tuple[Array, Array]:
    """Losses from 0 on, and the divergence there, rounded up."""
    longest = min(_LONGEST, math.ceil((_SMOOTH / noise) ** 2))
    smooth, most = discrete_gaussian_mu(noise, 1), discrete_gaussian_mu(noise * math.sqrt(longest)) * math.sqrt(longest)
    core = most * most / 2 + _DEVIATIONS * most
    far = np.geomspace(core, smooth * smooth / 2 + _FURTHEST * smooth, _GEOMETRIC + 1)[1:]
    epsilons = np.linspace(0.0, core, _EVEN + 1)
    values = np.array([gdp_delta(most, float(at)) for at in epsilons])
    for square in range(1, longest):
        start = noise * math.sqrt(square)
        # from here on the Gaussian is as bad
        end = start
        while discrete_gaussian_mu(end) * math.sqrt(square) > most:
            end *= 1 + _STEP
        if end == start:
            continue
        sigma = np.geomspace(start, end, 1 + round(math.log(end / start) / math.log1p(_STEP)))
        for vector in _squares(square, square):
            values = np.maximum(values, _most(vector, sigma, epsilons))
    # further out κ is good enough
    values = np.minimum(values, [gdp_delta(smooth, float(at)) for at in epsilons])
    return np.append(epsilons, far), np.append(values, [gdp_delta(smooth, float(at)) for at in far])

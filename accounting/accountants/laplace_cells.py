"""All triples of Laplace noise in a few curves, for a game in which a step may be any of them.

:mod:`accounting.accountants.laplace_triples` has what is proved: three arms, of which one is θ − t and two are t ≤ θ/2;
and how each of them is split between the other two points, of which every split has a bound above ε = 0 and one below.
A triple has one of each *box* of splits, the same for both. Let r₁ ≥ r₂; the others are mirror images.

*Whole.* Above 0 nothing is worse than D(s₁, r) for some s₁; and below it the same with S and S′ exchanged. So for a
cell of t one curve is enough, where R's arm is as long for both as one is, and S's as long for S′ as for R. If no
moment of its loss is larger than one that a triple is known to have, a game loses next to nothing by it. Else the cell
has boxes:

* s₁ and s′₁ are not small: as before, in the intervals in which they are.
* s₁ is not small, but s′₁ is: below 0 with R's arm split, D(s′₁, r₂) for r₂ ≤ r/2.
* s₁ is small, and r₂ is not: above 0 D(s₁, r₁), and below 0 one of the two.
* Both are small: above 0 the lesser of D(s₁, r) and D(s₁, r₁). Below 0 S′ has nearly nothing on its other side: C. In
  the end such a box is two: where S and R are tied E is less than C, and else B is less than D.

Intervals are halved as long as a moment is too large. In the end boxes, or their mirror images, are joined as long as
no moment becomes larger than those of the worst: the larger of two curves is one for both. (What is known, and moments,
only decide on boxes; whatever they are, every triple has its curve.)
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.laplace_triples import Arms, Weights, alone_against, opposed

__all__ = ["curves"]

Array = NDArray[np.float64]
Pair = tuple[Array, Array]

# t as shares of θ: the ends of the cells.
_CELLS = (0.0, 0.01, 0.03, 0.06, 0.1, 0.2, 0.27, 0.33, 0.38, 0.42, 0.45, 0.47, 0.485, 0.495, 0.5)
# What is small, and where r₂ is; intervals of s₁ and s′₁ that are not; and the narrowest of s₁ and of r₂.
_SMALL, _BETWEEN = 0.2, 0.24
_LARGE = ((0.2, 0.7), (0.7, 1.0))
_NARROW, _NARROWEST = 0.026, (0.013, 0.07)
# p: what of S's arm, or R's, may be elsewhere where they are tied to each other.
_REST = 0.08
# Values of k: at least so many, with a ratio of at most so much, and the smallest as a share of q.
_COUNT, _RATIO, _LEAST = 40, 1.18, 0.15
# Orders of moments, over one loss's deviation; how much more than known they may be; and those of joint curves, more
# than the worst: the least of these with which they are few.
_ORDERS = np.array([0.02, 0.1, 0.3, 1.0])
_MORE, _JOINT, _FEW = 1.003, (1.002, 1.01), 26


class _Curves:
    """D above and below 0, at c = 1 + ``k`` and c = 1/(1 + k), and moments of what has such curves."""

    def __init__(self, theta: float, rate: float, deviation: float) -> None:
        top = rate * math.expm1(theta)
        least = min(_LEAST * rate, top / 8)
        count = max(_COUNT, math.ceil(math.log(top / least) / math.log(_RATIO)))
        self.k = np.append(0.0, np.geomspace(least, top, count))
        c, q = 1 + self.k, np.full(self.k.size, rate)
        self.up = Weights(q, (1 - rate) * self.k, c * rate)
        self.down = Weights(rate / c, (1 - rate) * self.k / c, q)
        orders = _ORDERS[:, None] / deviation
        self._above, self._below = (
            np.abs(np.gradient(x)) * orders * (orders + 1) * np.exp((orders - 1) * np.log(x)) for x in (c, 1 / c)
        )

    def moments(self, up: Array, down: Array) -> Array:
        """E_P[e^(λL)] − 1 for a few λ; and of the mirror image."""
        images = (up, down), self.mirrored(up, down)
        return np.concatenate([self._above @ one + self._below @ other for one, other in images])

    def mirrored(self, up: Array, down: Array) -> Pair:
        """The curves with P and Q exchanged."""
        return down * (1 + self.k), up / (1 + self.k)

    def known(self, theta: float) -> Array:
        """The largest of these that some triples have, or nearly."""
        h, up, down = theta / 2, self.up, self.down
        even = opposed(up, (h, 0.0), h, h), opposed(down, (h, 0.0), h, h)
        corner = opposed(up, (0.0, h), h, h), alone_against(down, h, (h, h))
        two = opposed(up, (theta, 0.0), 0.0, 0.0), opposed(down, (0.0, 0.0), theta, 0.0)
        found = np.array([self.moments(*pair) for pair in (even, corner, two)])
        return np.asarray(np.concatenate([found, np.roll(found, _ORDERS.size, axis=1)]).max(axis=0))


class _Cell:
    """What is found of the arms of one cell."""

    def __init__(self, arms: Arms, curves: _Curves, known: Array) -> None:
        self._arms, self._mirrored, self._curves, self._known = arms, arms.mirrored(), curves, known

    def _up(self, shares: tuple[float, float], against: tuple[float, float] = (1, 1)) -> Array:
        return self._arms.opposed(self._curves.up, shares, against)

    def _down(self, shares: tuple[float, float], against: tuple[float, float] = (1, 1)) -> Array:
        return self._mirrored.opposed(self._curves.down, shares, against)

    def _is_small(self, pairs: list[Pair]) -> bool:
        return all(bool(np.all(self._curves.moments(*pair) <= _MORE * self._known)) for pair in pairs)

    def all(self) -> list[Pair]:
        """Curves above and below 0, of which every triple has one that is worse."""
        self._whole = self._up((0, 1)), self._down((0, 1))
        if self._is_small([self._whole]):
            return [self._whole]
        self._ups, self._downs = [self._up(x) for x in _LARGE], [self._down(x) for x in _LARGE]
        self._least = self._up((0, _SMALL)), self._down((0, _SMALL))
        found = list(itertools.product(self._ups, self._downs))
        found += self._split((0, _BETWEEN)) + self._split((_BETWEEN, 0.5))
        return found + self._both_small((0, _SMALL), (0, _BETWEEN))

    def _split(self, third: tuple[float, float]) -> list[Pair]:
        """With r₂/r in the interval ``third``; s₁ or r₂ is not small."""
        down = np.minimum(self._least[1], self._down((0, _SMALL), third))
        found = [(up, down) for up in self._ups]
        if third[0] >= _BETWEEN:
            up = np.minimum(self._least[0], self._up((0, _SMALL), (1 - third[1], 1 - third[0])))
            found += [(up, other) for other in [*self._downs, down]]
        if self._is_small(found) or third[1] - third[0] < _NARROWEST[1]:
            return found
        return [pair for half in _halves(third) for pair in self._split(half)]

    def _both_small(self, shares: tuple[float, float], third: tuple[float, float]) -> list[Pair]:
        """With s₁/s in ``shares`` and r₂/r in ``third``."""
        up = np.minimum(self._up(shares), self._up(shares, (1 - third[1], 1 - third[0])))
        down = self._mirrored.apart(self._curves.down, (shares[1], 1 - shares[0]), (third[1], 1 - third[0]))
        down = np.minimum(down, self._whole[1])
        found = [(up, down)]
        if self._is_small(found):
            return found
        width = shares[1] - shares[0]
        if width < _NARROW:
            tied = self._mirrored.tied(self._curves.down, max(shares[1], third[1]), _REST)
            found = [
                (up, np.minimum(down, tied)),
                (self._arms.loose(self._curves.up, shares, third[1], _REST, up), down),
            ]
        if width < _NARROWEST[0] or self._is_small(found):
            return found
        quarters = itertools.product(_halves(shares), _halves(third))
        return [pair for quarter in quarters for pair in self._both_small(*quarter)]


def _halves(interval: tuple[float, float]) -> list[tuple[float, float]]:
    start, end = interval
    return [(start, (start + end) / 2), ((start + end) / 2, end)]


def curves(theta: float, rate: float, deviation: float) -> tuple[Array, list[Pair]]:
    """k, and D above 0 at c = 1 + k and below 0 at c = 1/(1 + k) of all triples or of their mirror images.

    ``deviation`` is about that of a loss.
    """
    found = _Curves(theta, rate, deviation)
    known = found.known(theta)
    pairs: list[Pair] = []
    for long in ("S", "S′", "R"):
        for start, end in itertools.pairwise(_CELLS):
            pairs += _Cell(Arms(theta, theta * start, theta * end, long), found, known).all()
    sizes = np.array([found.moments(*pair) for pair in pairs]) / known
    worst = np.maximum(1.0, np.maximum(sizes, np.roll(sizes, _ORDERS.size, axis=1)).max(axis=0))
    rising = [pairs[at] for at in np.argsort(-sizes.max(axis=1))]
    for more in _JOINT:
        joint = _joined(rising, found, known * worst * more)
        if len(joint) <= _FEW:
            break
    return found.k, joint


def _joined(pairs: list[Pair], curves: _Curves, most: Array) -> list[Pair]:
    """Fewer pairs, of which one is at least each of those, or its mirror image, with moments up to ``most``."""
    found: list[Pair] = []
    for pair in pairs:
        images = pair, curves.mirrored(*pair)
        for place, image in itertools.product(range(len(found)), images):
            joint = np.maximum(found[place][0], image[0]), np.maximum(found[place][1], image[1])
            if np.all(curves.moments(*joint) <= most):
                found[place] = joint
                break
        else:
            found.append(pair)
    return found

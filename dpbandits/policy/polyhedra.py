"""The probability that a standard normal vector lies in a polyhedron {ξ : Aξ + b ≥ 0}.

Exact for a half-space, and wherever the rows of A lie on a line. Otherwise by randomised quasi-Monte Carlo
(Richtmyer's lattice with 32 random shifts, as in Genz & Bretz 2009, section 4.2.2): the coordinates of ξ are turned so
that the first is the one along which A moves most; given the others, the values of the first that lie in the polyhedron
are an interval, whose probability is exact. Conditions that hardly ever fail are left out, where all of that is less
than 10⁻⁴ of the value. Where the polyhedron is far from the middle, points are drawn around the nearest place in it.
There are as many points as make the standard error at most a fiftieth of the value or 10⁻⁶, and at most 2¹⁴; they come
from a fixed seed: the same question has the same answer.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from accounting.arrays import Array

__all__ = ["measure"]


_SHIFTS, _FEWEST, _MOST = 32, 16, 2**9  # points are drawn for each shift
_RELATIVE, _ABSOLUTE = 0.02, 1e-6
# beyond so many standard deviations a condition is taken to hold, if all of these fail that much less often than the
# rest holds
_FAR, _NEGLIGIBLE = 6.0, 1e-4
# within so many, points are drawn around the middle, and not around the nearest place in the polyhedron
_NEAR = 1.0
# a coordinate that is this small beside others is zero
_TINY = 1e-12


def measure(A: Array, b: Array) -> tuple[float, float]:
    """P(A·ξ + b ≥ 0) for standard normal ξ, and its standard error; no row of A is zero.

    Examples
    --------
    >>> import numpy as np
    >>> chance, error = measure(np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([0.0, 3.0]))   # ξ₁ ≥ 0 and ξ₁ ≥ −1.5
    >>> round(chance, 12), error
    (0.5, 0.0)
    """
    from scipy.special import ndtr

    # what hardly ever fails is left out, where that is far below the error that is allowed
    distance = b / np.sqrt(np.einsum("ij,ij->i", A, A))
    matters = distance < _FAR
    if not matters.all():
        chance, error = measure(A[matters], b[matters])
        if float(ndtr(-distance[~matters]).sum()) <= _NEGLIGIBLE * chance:
            return chance, error
    if len(A) < 2:
        return (float(ndtr(distance[0])) if len(A) else 1.0), 0.0
    U, s, _ = np.linalg.svd(A, full_matrices=False)
    A = (U * s)[:, s > _TINY * s[0]]
    if A.shape[1] == 1:
        return float(_Lines(A, b)(np.empty((0, 1)))[0]), 0.0
    start = _nearest(A, b)[1:] if distance.min() < -_NEAR else np.zeros(A.shape[1] - 1)
    lines, moved = _Lines(A, A[:, 1:] @ start + b), bool(start.any())
    sums, points, block = np.zeros(_SHIFTS), 0, _FEWEST
    while True:
        z = _points(A.shape[1] - 1, points, block)
        found = lines(z)
        if moved:
            found *= np.exp(-(start @ z) - 0.5 * float(start @ start))
        sums += found.reshape(_SHIFTS, -1).sum(axis=1)
        points += block
        means = sums / points
        chance = float(means.sum()) / _SHIFTS
        error = math.sqrt(float(((means - chance) ** 2).sum()) / (_SHIFTS * (_SHIFTS - 1)))
        allowed = max(_RELATIVE * chance, _ABSOLUTE)
        if error <= allowed or points >= _MOST:
            return min(1.0, chance), error
        # as many more as the error asks for if it falls as slowly as that of independent points does
        while points + block < min(_MOST, 0.5 * points * (error / allowed) ** 2):
            block *= 2
        block = min(block, _MOST - points)


class _Lines:
    """P(A·(ξ, z) + b ≥ 0) over the first coordinate alone, a standard normal ξ, for every column z of the others."""

    def __init__(self, A: Array, b: Array) -> None:
        a, least = A[:, 0], _TINY * np.abs(A[:, 0]).max()
        rising, level = np.flatnonzero(a > least), np.flatnonzero(np.abs(a) <= least)
        self._rising = len(rising)
        moved = np.concatenate([rising, np.flatnonzero(a < -least)])
        # ξ ≥ these, for the rising ones, and ≤ for the falling ones
        scaled = np.column_stack([A, b])[moved] / -a[moved, None]
        self._slopes, self._ends = scaled[:, 1:-1], scaled[:, -1:]
        self._flat, self._floor = A[level, 1:], -b[level, None]

    def __call__(self, z: Array) -> Array:
        from scipy.special import ndtr

        ends = self._slopes @ z
        ends += self._ends
        low = ends[: self._rising].max(axis=0, initial=-math.inf)
        high = ends[self._rising :].min(axis=0, initial=math.inf)
        # in the tail where digits are
        flip = low > 0.0
        low, high = np.where(flip, -high, low), np.where(flip, -low, high)
        inside = low < high
        if len(self._flat):
            inside &= (self._flat @ z >= self._floor).all(axis=0)
        return np.where(inside, ndtr(high) - ndtr(low), 0.0)


def _nearest(A: Array, b: Array) -> Array:
    """The shortest η with A·η + b ≥ 0 (Lawson & Hanson 1974, chapter 23)."""
    if (b >= 0.0).all():
        return np.zeros(A.shape[1])
    from scipy.optimize import nnls

    target = np.zeros(A.shape[1] + 1)
    target[-1] = 1.0
    E = np.vstack([A.T, -b])
    rest = E @ nnls(E, target)[0] - target
    # no such place at all, but for rounding: then any will do
    return -rest[:-1] / rest[-1] if rest[-1] < -_TINY else np.zeros(A.shape[1])


@lru_cache(maxsize=64)
def _points(dim: int, known: int, count: int) -> Array:
    """For every shift ``count`` normal variates after the ``known`` first, of shape (dim, shifts·count)."""
    from scipy.special import ndtri

    enough = max(20, int(2.0 * dim * math.log(dim + 2.0)))
    numbers = np.arange(enough + 1)
    prime = numbers > 1
    for n in range(2, math.isqrt(enough) + 1):
        prime[n * n :: n] &= not prime[n]
    rates = np.sqrt(numbers[prime][:dim].astype(np.float64)) % 1.0
    block = np.arange(known, known + count) + 1.0
    shifts = np.random.default_rng(dim).random((dim, _SHIFTS, 1))
    # folded: the tent that makes integrands periodic
    folded = np.abs(2.0 * ((np.outer(rates, block)[:, None] + shifts) % 1.0) - 1.0).reshape(dim, -1)
    return np.asarray(ndtri(np.clip(folded, 2.0**-53, 1.0 - 2.0**-53)))

"""Probabilities of standard normal vectors that have no closed form: of a polyhedron, and of being the largest.

* :func:`of_polyhedron`: P(Aξ + b ≥ 0).
* :func:`of_largest`: that one of c_k + s_k·ξ_k is the largest, with independent ξ_k. One integral over the real line,
  by Gauss–Legendre rules on pieces of half a standard deviation: exact to 10⁻⁹.

That of a polyhedron is exact for a half-space, and wherever the rows of A lie on a line. Otherwise it is computed by
randomised quasi-Monte Carlo (Richtmyer's lattice with 32 random shifts, as in Genz & Bretz 2009, section 4.2.2): the
coordinates of ξ are turned so that the first is the one along which A moves most; given the others, the values of the
first that lie in the polyhedron are an interval, whose probability is exact. Conditions that hardly ever fail are left
out, where all of that is less than 10⁻⁴ of the value. Where the polyhedron is far from the middle, points are drawn
around the nearest place in it. There are as many points as make the standard error at most a fiftieth of the value or
10⁻⁶, and at most 2¹⁴; they come from a fixed seed: the same question has the same answer.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from accounting.arrays import Array

__all__ = ["of_largest", "of_polyhedron"]


_SHIFTS, _FEWEST, _MOST = 32, 16, 2**9  # points are drawn for each shift
_RELATIVE, _ABSOLUTE = 0.02, 1e-6
# beyond so many standard deviations a condition is taken to hold, if all of these fail that much less often than the
# rest holds
_FAR, _NEGLIGIBLE = 6.0, 1e-4
# within so many, points are drawn around the middle, and not around the nearest place in the polyhedron
_NEAR = 1.0
# a coordinate that is this small beside others is zero
_TINY = 1e-12


def of_polyhedron(A: Array, b: Array) -> tuple[float, float]:
    """P(A·ξ + b ≥ 0) for standard normal ξ, and its standard error; no row of A is zero.

    Examples
    --------
    >>> import numpy as np
    >>> chance, error = of_polyhedron(np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([0.0, 3.0]))   # ξ₁ ≥ 0 and ξ₁ ≥ −1.5
    >>> round(chance, 12), error
    (0.5, 0.0)
    """
    from scipy.special import ndtr

    # what hardly ever fails is left out, where that is far below the error that is allowed
    distance = b / np.sqrt(np.einsum("ij,ij->i", A, A))
    matters = distance < _FAR
    if not matters.all():
        chance, error = of_polyhedron(A[matters], b[matters])
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


def of_largest(center: Array, scale: Array, index: int) -> float:
    """P(c_k + s_k·ξ_k is the largest) for k = ``index``; of equal ones the first is, and c_k = −∞ takes no part.

    Parameters
    ----------
    center, scale : ndarray of shape (K,)
        c and s ≥ 0.

    Examples
    --------
    >>> import numpy as np
    >>> round(of_largest(np.zeros(3), np.ones(3), 0), 12)
    0.333333333333
    """
    from scipy.special import ndtr

    # what is less than the last digit of a score does not move it
    scale = np.where(center + 8.5 * scale == center, 0.0, scale)
    c, s = float(center[index]), float(scale[index])
    if c == -math.inf:
        return 0.0
    others = np.isfinite(center) & (np.arange(len(center)) != index)
    first = np.flatnonzero(others) < index
    C, S = center[others], scale[others]
    fixed = S == 0.0
    # those that do not move are a floor, which must be passed, or reached by the first of them
    floor = float(C[fixed].max(initial=-math.inf))
    if s == 0.0:
        beaten = (c > C[fixed]) | ((c == C[fixed]) & ~first[fixed])
        return float(beaten.all()) * float(ndtr((c - C[~fixed]) / S[~fixed]).prod())
    C, S = C[~fixed], S[~fixed]
    steps = np.arange(-17.0, 18.0) / 2.0
    cuts = np.unique(np.concatenate([(c + s * steps), (C[:, None] + S[:, None] * steps).ravel()]))
    low, high = max(c - 8.5 * s, floor), c + 8.5 * s
    cuts = np.concatenate([[low], cuts[(cuts > low) & (cuts < high)], [high]])
    if not low < high:
        return 0.0
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = 0.5 * np.diff(cuts)[:, None]
    z = (cuts[:-1, None] + half * (1.0 + nodes)).ravel()
    density = np.exp(-0.5 * ((z - c) / s) ** 2) / (s * math.sqrt(2.0 * math.pi))
    for other, width in zip(C, S, strict=True):
        density *= ndtr((z - other) / width)
    return min(1.0, float(density @ (half * weights).ravel()))

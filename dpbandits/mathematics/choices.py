"""How a choice at random is drawn, and how probable every arm was: laws of one choice, as values.

A policy whose choice is random returns one of these in place of scores; it is a snapshot, so that the probability can
be asked for later, at no cost to the choice.

* :class:`Shares`: arm k with probability p_k; :class:`Ties`: one of the arms of the largest score. Exact.
* :class:`Independent`: the largest of c_k + s_k·ξ_k with independent standard normal ξ_k. One integral over the real
  line, by Gauss–Legendre rules on pieces of half a standard deviation: exact to 10⁻⁹.
* :class:`Perturbed`: the largest of c_k + x_kᵀ(θ + Rξ), ξ ~ N(0, I): the Gaussian measure of a polyhedron. Exact for
  two arms, and wherever the differences of the arms' scores lie on a line. Otherwise by randomised quasi-Monte Carlo
  (Richtmyer's lattice with 32 random shifts, as in Genz & Bretz 2009, section 4.2.2): the coordinates of ξ are
  turned so that the first is the one along which the scores differ most; given the others, the values of the first for
  which arm k wins are an interval, whose probability is exact. Arms that hardly ever win against k are left out, where
  all of that is less than 10⁻⁴ of the value. Where arm k wins far from the middle, points are drawn around the nearest
  place where it does. There are as many points as make the standard error at most a fiftieth of the value or 10⁻⁶, and
  at most 2¹⁴; they come from a fixed seed: the same question has the same answer.

Ties are for the first of the best arms, as in ``argmax``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["Independent", "Law", "Perturbed", "Shares", "Ties", "Told", "gap_shares", "inverse_gap"]

Array = NDArray[np.float64]

_SHIFTS, _FEWEST, _MOST = 32, 16, 2**9  # points are drawn for each shift
_RELATIVE, _ABSOLUTE = 0.02, 1e-6
# beyond so many standard deviations a condition is taken to hold, if all of these fail that much less often than the
# rest holds
_FAR, _NEGLIGIBLE = 6.0, 1e-4
# within so many, points are drawn around the middle, and not around the nearest place where an arm wins
_NEAR = 1.0
# a coordinate that is this small beside others is zero
_TINY = 1e-12


class Law(ABC):
    """The distribution of one choice."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Array:
        """Scores of shape (K,): the arm of the largest is chosen."""

    @abstractmethod
    def chance(self, index: int) -> tuple[float, float]:
        """The probability of an arm, and the standard error of that number."""

    @abstractmethod
    def __len__(self) -> int:
        """K."""

    def chances(self) -> Array:
        """The probabilities of all arms."""
        return np.array([self.chance(index)[0] for index in range(len(self))])


class Shares(Law):
    """Arm k with probability p_k.

    Examples
    --------
    >>> import numpy as np
    >>> Shares(np.array([0.25, 0.75])).chance(1)
    (0.75, 0.0)
    """

    def __init__(self, shares: Array) -> None:
        self.shares = shares

    def __len__(self) -> int:
        return len(self.shares)

    def draw(self, rng: np.random.Generator) -> Array:
        # the largest of p_k/E_k with independent exponential E_k is a draw from p
        return np.asarray(self.shares / -np.log(rng.random(len(self.shares))))

    def chance(self, index: int) -> tuple[float, float]:
        return float(self.shares[index]), 0.0

    def chances(self) -> Array:
        return self.shares.copy()


class Ties(Law):
    """One of the arms of the largest score, each with the same probability.

    Examples
    --------
    >>> import numpy as np
    >>> Ties(np.array([1.0, 0.0, 1.0])).chances().tolist()
    [0.5, 0.0, 0.5]
    """

    TOLERANCE = 1e-9

    def __init__(self, scores: Array) -> None:
        self.scores, self.best = scores, scores >= scores.max() - self.TOLERANCE

    def __len__(self) -> int:
        return len(self.scores)

    def draw(self, rng: np.random.Generator) -> Array:
        order = self.scores.max() + self.TOLERANCE * rng.random(len(self.scores))
        return np.where(self.best, order, self.scores)

    def chance(self, index: int) -> tuple[float, float]:
        return float(self.best[index] / self.best.sum()), 0.0


class Told(Law):
    """A choice among K arms that was made elsewhere, with a probability that we are told."""

    def __init__(self, probability: float, count: int) -> None:
        self.probability, self.count = probability, count

    def __len__(self) -> int:
        return self.count

    def draw(self, rng: np.random.Generator) -> Array:
        raise RuntimeError("a choice that was made elsewhere cannot be made again")

    def chance(self, index: int) -> tuple[float, float]:
        return self.probability, 0.0


def inverse_gap(scores: Array, rate: float) -> Shares:
    """p_a = 1/(K + rate·gap_a) for all arms but the best, and the rest for that.

    Source: Foster & Rakhlin, "Beyond UCB" (ICML 2020, arXiv:2002.04926), Algorithm 1; the rule is that of Abe & Long
    (1999). Arms of score −∞ are left out.

    Examples
    --------
    >>> import numpy as np
    >>> inverse_gap(np.array([0.5, 0.0, 0.5]), rate=4.0).shares.tolist()
    [0.4666666666666667, 0.2, 0.3333333333333333]
    """
    return Shares(gap_shares(scores, rate))


def gap_shares(scores: Array, rate: float) -> Array:
    """The probabilities of :func:`inverse_gap`, for one round or for rows of them."""
    offered = np.isfinite(scores)
    best = scores.argmax(axis=-1)[..., None]
    gaps = np.where(offered, np.take_along_axis(scores, best, axis=-1) - scores, 0.0)
    shares: Array = np.where(offered, 1.0 / (offered.sum(axis=-1, keepdims=True) + rate * gaps), 0.0)
    np.put_along_axis(shares, best, 0.0, axis=-1)
    np.put_along_axis(shares, best, 1.0 - shares.sum(axis=-1, keepdims=True), axis=-1)
    return shares


class Independent(Law):
    """The largest of c_k + s_k·ξ_k; an arm with c_k = −∞ is not offered.

    Examples
    --------
    >>> import numpy as np
    >>> round(Independent(np.zeros(3), np.array([1.0, 1.0, 1.0])).chance(0)[0], 12)
    0.333333333333
    """

    def __init__(self, center: Array, scale: Array) -> None:
        self.center, self.scale = center, scale

    def __len__(self) -> int:
        return len(self.center)

    def draw(self, rng: np.random.Generator) -> Array:
        return np.asarray(self.center + self.scale * rng.standard_normal(len(self.center)))

    def chance(self, index: int) -> tuple[float, float]:
        from scipy.special import ndtr

        # what is less than the last digit of a score does not move it
        scale = np.where(self.center + 8.5 * self.scale == self.center, 0.0, self.scale)
        c, s = float(self.center[index]), float(scale[index])
        if c == -math.inf:
            return 0.0, 0.0
        others = np.isfinite(self.center) & (np.arange(len(self)) != index)
        first = np.flatnonzero(others) < index
        C, S = self.center[others], scale[others]
        fixed = S == 0.0
        # those that do not move are a floor, which must be passed, or reached by the first of them
        floor = float(C[fixed].max(initial=-math.inf))
        if s == 0.0:
            beaten = (c > C[fixed]) | ((c == C[fixed]) & ~first[fixed])
            return float(beaten.all()) * float(ndtr((c - C[~fixed]) / S[~fixed]).prod()), 0.0
        C, S = C[~fixed], S[~fixed]
        steps = np.arange(-17.0, 18.0) / 2.0
        cuts = np.unique(np.concatenate([(c + s * steps), (C[:, None] + S[:, None] * steps).ravel()]))
        low, high = max(c - 8.5 * s, floor), c + 8.5 * s
        cuts = np.concatenate([[low], cuts[(cuts > low) & (cuts < high)], [high]])
        if not low < high:
            return 0.0, 0.0
        nodes, weights = np.polynomial.legendre.leggauss(8)
        half = 0.5 * np.diff(cuts)[:, None]
        z = (cuts[:-1, None] + half * (1.0 + nodes)).ravel()
        density = np.exp(-0.5 * ((z - c) / s) ** 2) / (s * math.sqrt(2.0 * math.pi))
        for other, width in zip(C, S, strict=True):
            density *= ndtr((z - other) / width)
        return min(1.0, float(density @ (half * weights).ravel())), 0.0


class Perturbed(Law):
    """The largest of x_kᵀ(θ + Rξ) + c_k, for standard normal ξ.

    Parameters
    ----------
    arms : ndarray of shape (K, d)
        Copied, as they are the caller's.
    theta : ndarray of shape (d,), optional
    root : ndarray of shape (d, m), optional
        R, by default the identity.
    bonus : ndarray of shape (K,), optional

    Examples
    --------
    In a random direction each of two orthogonal arms is as likely as the other, and a third between them loses:

    >>> import numpy as np
    >>> law = Perturbed(np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]))
    >>> law.chances().round(9).tolist()
    [0.5, 0.5, 0.0]
    """

    def __init__(
        self, arms: Array, theta: Array | None = None, root: Array | None = None, bonus: Array | None = None
    ) -> None:
        self.arms, self.theta, self.root, self.bonus = arms.copy(), theta, root, bonus

    def __len__(self) -> int:
        return len(self.arms)

    def draw(self, rng: np.random.Generator) -> Array:
        xi: Array = rng.standard_normal((self.arms if self.root is None else self.root).shape[1:])
        if self.root is not None:
            xi = self.root @ xi
        scores = self.arms @ (xi if self.theta is None else self.theta + xi)
        return np.asarray(scores if self.bonus is None else scores + self.bonus)

    def chance(self, index: int) -> tuple[float, float]:
        others = np.arange(len(self)) != index
        # arm ``index`` wins where A·ξ + b ≥ 0
        apart = self.arms[index] - self.arms[others]
        b = np.zeros(len(apart)) if self.theta is None else apart @ self.theta
        if self.bonus is not None:
            b = b + self.bonus[index] - self.bonus[others]
        A = apart if self.root is None else apart @ self.root
        lengths = np.sqrt(np.einsum("ij,ij->i", A, A))
        moved = lengths > _TINY * max(1.0, float(np.abs(self.arms).max()))
        later = np.flatnonzero(others) > index
        if not ((b > 0.0) | ((b == 0.0) & later))[~moved].all():
            return 0.0, 0.0
        return _cone(A[moved], b[moved])


def _cone(A: Array, b: Array) -> tuple[float, float]:
    """P(A·ξ + b ≥ 0) and its standard error; no row of A is zero."""
    from scipy.special import ndtr

    # what hardly ever fails is left out, where that is far below the error that is allowed
    distance = b / np.sqrt(np.einsum("ij,ij->i", A, A))
    matters = distance < _FAR
    if not matters.all():
        chance, error = _cone(A[matters], b[matters])
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

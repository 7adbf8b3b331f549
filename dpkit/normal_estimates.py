"""How probable the largest of very many Gaussian scores is: estimates without bias, at a price that is bounded.

The score of row k is x_kᵀ(θ + Rξ) + c_k, ξ ~ N(0, I), and row a is asked for; or c_k + s_k·ξ_k, with independent ξ_k.
:mod:`dpkit.normal_chances` integrates over where a wins, which takes as long as thousands of draws. Here are

* :func:`estimated_chance`: p̂ with E p̂ = p = P(a wins) and its estimated standard error. For each of 192 random lines
  in the direction in which a gains most the share of the line on which a beats its 192 strongest rivals is exact. Of
  these lines eight are drawn in proportion to that share, and on each the share that is left against *all* rows is
  exact, too. The mean of the first shares times the mean of what is left of them has no bias, whoever the rivals are:
  E[q] = E[q′]·E[q/q′ | drawn by q′]. For independent scores, :func:`estimated_chance_of_largest`, a line is a value of
  a's own score, and q′ any guess that is positive where q is.
* :func:`draws_until`: N with E N = 1/p, the number of draws of ξ up to the first at which a wins (inverse binomial
  sampling, Haldane 1945). 1/p̂ is not that: where p̂ is off, its inverse is too large on average, or infinite. N costs
  1/p draws; if a itself was drawn, that is K on average, at most. Draws in which a rival wins are not compared with the
  rest. :func:`draws_until_largest` is that of independent scores.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array

__all__ = ["draws_until", "draws_until_largest", "estimated_chance", "estimated_chance_of_largest"]

_RIVALS, _LINES, _PARTS, _WHOLE = 96, 192, 128, 8
_FIRST, _MOST, _DOUBLINGS = 64, 4096, 40
# a slope or a difference that is this small beside others is zero, and nothing lies so many deviations off
_TINY, _FAR = 1e-12, 12.0


class _Contest:
    """Row ``index`` against the others."""

    def __init__(self, X: Array, index: int, theta: Array | None, root: Array | None, bonus: Array | None) -> None:
        self.X, self.index, self.root = X, index, root
        self.theta = np.zeros(X.shape[1]) if theta is None else theta
        self.bonus = None if bonus is None else bonus[:, None]
        self.dim = X.shape[1] if root is None else root.shape[1]
        self.rivals, self.along = self._strongest()

    def _strongest(self) -> tuple[NDArray[np.intp], Array]:
        """The rows that win most where θ is, and where the row at hand is at its best; and its unit direction in ξ."""
        x, R = self.X[self.index], self.root
        own = x if R is None else x @ R
        length = float(np.sqrt(own @ own))
        turned = own if R is None else R @ own
        places = np.stack([self.theta, self.theta + (2.0 / length if length else 0.0) * turned], axis=1)
        scores = self.scores(self.X, places)
        count = min(_RIVALS, len(self.X) - 1)
        if not count:
            return np.empty(0, np.intp), np.eye(1, self.dim)[0]
        first = [np.argpartition(column, -count)[-count:] for column in scores.T]
        rivals = np.setdiff1d(np.concatenate(first), [self.index])
        apart = x - self.X[rivals].mean(axis=0)
        along = apart if R is None else apart @ R
        length = float(np.sqrt(along @ along))
        if length <= _TINY:
            along, length = np.eye(1, self.dim)[0], 1.0
        return rivals, along / length

    def scores(self, rows: Array, places: Array, bonus: Array | None = None) -> Array:
        found: Array = rows @ places
        added = self.bonus if rows is self.X else bonus
        return found if added is None else found + added

    def parameters(self, xi: Array) -> Array:
        """θ + Rξ for every column ξ."""
        return self.theta[:, None] + (xi if self.root is None else self.root @ xi)

    def stretch(self, places: Array, step: Array, which: NDArray[np.intp]) -> tuple[Array, Array]:
        """On each line, ``places`` + z·``step``, from where to where the row beats these others; from ∞ if nowhere."""
        X = self.X[which]
        bonus = None if self.bonus is None else self.bonus[which]
        own = self.X[self.index]
        c = own @ places - self.scores(X, places, bonus)
        if self.bonus is not None:
            c += float(self.bonus[self.index, 0])
        h = float(own @ step) - X @ step
        if not len(X):
            return np.full(len(places.T), -np.inf), np.full(len(places.T), np.inf)
        least = _TINY * max(float(np.abs(h).max()), 1e-300)
        rising, falling = h > least, h < -least
        low = (c[rising] / -h[rising, None]).max(axis=0, initial=-np.inf)
        high = (c[falling] / -h[falling, None]).min(axis=0, initial=np.inf)
        level = ~(rising | falling)
        if level.any():
            # of rows that are the same the first wins
            slack = _TINY * (1.0 + np.abs(c[level]).max())
            low[(c[level] < np.where(which[level] < self.index, slack, -slack)[:, None]).any(axis=0)] = np.inf
        return low, high

    def in_the_way(self, places: Array, step: Array, low: Array, high: Array) -> NDArray[np.intp]:
        """The rows that are not beaten at an end of one of these stretches: no other row makes one shorter."""
        ends = np.clip(np.concatenate([low, high]), -_FAR, _FAR)
        points = np.tile(places, 2) + step[:, None] * ends
        own = self.X[self.index] @ points + (0.0 if self.bonus is None else float(self.bonus[self.index, 0]))
        scores = points.T @ self.X.T  # a row for each point: what is reduced below lies together
        if self.bonus is not None:
            scores += self.bonus.T
        ahead = (scores >= (own - _TINY * (1.0 + np.abs(own)))[:, None]).any(axis=0)
        ahead[self.index] = False
        return np.flatnonzero(ahead)


def _probability(low: Array, high: Array) -> Array:
    """Of a standard normal between these."""
    from scipy.special import ndtr

    flip = low > 0.0  # in the tail where digits are
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    return np.where(low < high, ndtr(high) - ndtr(low), 0.0)


def estimated_chance(
    X: Array,
    index: int,
    theta: Array | None = None,
    root: Array | None = None,
    bonus: Array | None = None,
    *,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """p̂ without bias, and its standard error as these draws show it.

    Parameters
    ----------
    X : ndarray of shape (K, d)
    index : int
        a.
    theta : ndarray of shape (d,), optional
    root : ndarray of shape (d, m), optional
        R, by default the identity.
    bonus : ndarray of shape (K,), optional
        c.
    rng : numpy.random.Generator

    Examples
    --------
    One of the sixteen directions of eight axes:

    >>> import numpy as np
    >>> X = np.concatenate([np.eye(8), -np.eye(8)])
    >>> p, error = estimated_chance(X, 7, rng=np.random.default_rng(0))
    >>> abs(p - 1 / 16) < 5 * error < 0.05
    True
    """
    contest = _Contest(X, index, theta, root, bonus)
    along = contest.along
    xi = rng.standard_normal((contest.dim, _LINES))
    xi -= np.outer(along, along @ xi)
    places, step = contest.parameters(xi), along if root is None else root @ along
    low, high = contest.stretch(places, step, contest.rivals)
    some = _probability(low, high)
    if not some.any():
        return 0.0, 1.0 / _LINES
    picked = _drawn_by(some, rng)
    low, high, left = low[picked], high[picked], np.ones(_WHOLE)
    ahead = contest.in_the_way(places[:, picked], step, low, high)
    if len(ahead):
        start, end = contest.stretch(places[:, picked], step, ahead)
        left = _probability(np.maximum(low, start), np.minimum(high, end)) / some[picked]
    return _of_two(some, float(some.var(ddof=1)) / _LINES, left)


def _drawn_by(shares: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Eight indices, each drawn with these shares."""
    sums = np.cumsum(shares)
    found: NDArray[np.intp] = np.searchsorted(sums, rng.random(_WHOLE) * sums[-1], side="right")
    return np.minimum(found, len(shares) - 1)


def _of_two(some: Array, variance: float, left: Array) -> tuple[float, float]:
    """The product of two means, of shares and of what is left of them, and its standard error.

    ``variance`` is that of the mean of the former.
    """
    mean, kept = float(some.mean()), float(left.mean())
    if kept == 0.0:
        return 0.0, mean / _WHOLE
    return mean * kept, math.sqrt(kept**2 * variance + mean**2 * float(left.var(ddof=1)) / _WHOLE)


def draws_until(
    X: Array,
    index: int,
    theta: Array | None = None,
    root: Array | None = None,
    bonus: Array | None = None,
    *,
    rng: np.random.Generator,
) -> int:
    """N, the number of draws up to the first at which row ``index`` wins; arguments as in :func:`estimated_chance`.

    A row that is as good as another up to rounding wins with it, so that there is an end.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> counts = [draws_until(np.eye(5), 2, rng=rng) for _ in range(2000)]      # 1/p = 5
    >>> bool(abs(np.mean(counts) - 5.0) < 0.5)
    True
    """
    contest = _Contest(X, index, theta, root, bonus)
    rivals = contest.rivals
    own, near = X[index], X[rivals]
    near_bonus = None if bonus is None else bonus[rivals, None]
    mine = 0.0 if bonus is None else float(bonus[index])
    count, size = 0, _FIRST
    while True:
        places = contest.parameters(rng.standard_normal((contest.dim, size)))
        scores = own @ places + mine
        slack = _TINY * (1.0 + np.abs(scores))
        beats = contest.scores(near, places, near_bonus).max(axis=0, initial=-np.inf) <= scores + slack
        for few in np.array_split(np.flatnonzero(beats), -(-int(beats.sum()) // _WHOLE) or 1):
            wins = contest.scores(X, places[:, few]).max(axis=0, initial=-np.inf) <= scores[few] + slack[few]
            if wins.any():
                return count + int(few[wins.argmax()]) + 1
        count, size = count + size, min(2 * size, _MOST)


def estimated_chance_of_largest(
    center: Array, scale: Array, index: int, *, rng: np.random.Generator
) -> tuple[float, float]:
    """p̂ without bias that c_k + s_k·ξ_k is the largest, for k = ``index``, and its standard error.

    Parameters
    ----------
    center, scale : ndarray of shape (K,)
        c, where −∞ takes no part, and s ≥ 0.
    index : int
    rng : numpy.random.Generator

    Examples
    --------
    >>> import numpy as np
    >>> p, error = estimated_chance_of_largest(np.zeros(2000), np.ones(2000), 3, rng=np.random.default_rng(0))
    >>> bool(abs(p - 1 / 2000) < 5 * error < 1 / 1000)
    True
    """
    from scipy.special import ndtri

    rivals, rest = _independent_rivals(center, scale, index)
    # one in each of so many parts, each less probable than the one below it, as the largest of many lies high
    ends = np.append(2.0 ** (-_DOUBLINGS * np.arange(_PARTS) / _PARTS), 0.0)
    width = ends[:-1] - ends[1:]
    own = center[index] - scale[index] * ndtri(ends[1:] + width * (1.0 - rng.random(_PARTS)))
    # a guess of the whole: rivals, and what a sample says of the rest
    guess = _all_below(own, center, scale, rivals, index)
    if len(rest):
        sample = rest[rng.integers(len(rest), size=_RIVALS)]
        guess = guess * _all_below(own, center, scale, sample, index) ** (len(rest) / _RIVALS)
    if not guess.any():
        return 0.0, 1.0 / _PARTS
    some = guess * width * _PARTS
    picked = _drawn_by(some, rng)
    left = _all_below(own[picked], center, scale, np.concatenate([rivals, rest]), index) / guess[picked]
    # neighbouring parts differ by no less than two draws from one of them
    return _of_two(some, float((np.diff(some) ** 2).sum()) / (2.0 * _PARTS**2), left)


def draws_until_largest(center: Array, scale: Array, index: int, *, rng: np.random.Generator) -> int:
    """N, the number of draws up to the first at which c_k + s_k·ξ_k is the largest, for k = ``index``.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> counts = [draws_until_largest(np.zeros(5), np.ones(5), 2, rng=rng) for _ in range(2000)]      # 1/p = 5
    >>> bool(abs(np.mean(counts) - 5.0) < 0.5)
    True
    """
    rivals, rest = _independent_rivals(center, scale, index)
    count = 0
    while True:
        own = center[index] + scale[index] * rng.standard_normal(_FIRST)
        others = center[rivals] + scale[rivals] * rng.standard_normal((_FIRST, len(rivals)))
        for draw in np.flatnonzero(own >= others.max(axis=1, initial=-np.inf)):
            if own[draw] >= (center[rest] + scale[rest] * rng.standard_normal(len(rest))).max(initial=-np.inf):
                return count + int(draw) + 1
        count += _FIRST


def _independent_rivals(center: Array, scale: Array, index: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Those of the others that win most, and the rest."""
    others = np.flatnonzero(np.isfinite(center) & (np.arange(len(center)) != index))
    count = min(2 * _RIVALS, len(others))
    order = np.argpartition(-(center + 2.0 * scale)[others], count - 1) if count else np.empty(0, np.intp)
    return others[order[:count]], others[order[count:]]


def _all_below(own: Array, center: Array, scale: Array, which: NDArray[np.intp], index: int) -> Array:
    """The probability that all these are below each value of row ``index``'s own; of equal ones the first wins."""
    from scipy.special import ndtr

    moving = which[scale[which] > 0.0]
    moving = moving[center[moving] + 8.5 * scale[moving] > own.min()]
    found = np.asarray(ndtr((own[:, None] - center[moving]) / scale[moving]).prod(axis=1))
    for k in which[scale[which] == 0.0]:
        found *= (own > center[k]) | ((own == center[k]) & (k > index))
    return found

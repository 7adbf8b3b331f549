"""How probable the largest of very many Gaussian scores is: estimates without bias, at a price that is bounded.

The score of row k is x_kᵀ(θ + Rξ) + c_k, ξ ~ N(0, I), and row a is asked for. :mod:`dpkit.normal_chances` integrates
over the polyhedron in which a wins, which takes as long as thousands of draws. Here are

* :func:`estimated_chance`: p̂ with E p̂ = p = P(a wins) and its estimated standard error. For each of 256 random lines
  in the direction in which a gains most the share of the line on which a beats its 256 strongest rivals is exact. Of
  these lines eight are drawn in proportion to that share, and on each the share that is left against *all* rows is
  exact, too. The mean of the first shares times the mean of what is left of them has no bias, whoever the rivals are:
  E[q] = E[q′]·E[q/q′ | drawn by q′].
* :func:`draws_until`: N with E N = 1/p, the number of draws of ξ up to the first at which a wins (inverse binomial
  sampling, Haldane 1945). 1/p̂ is not that: where p̂ is off, its inverse is too large on average, or infinite. N costs
  1/p draws; if a itself was drawn, that is K on average, at most. Draws in which a rival wins are not compared with the
  rest.
"""

from __future__ import annotations

import numpy as np

from accounting.arrays import Array

__all__ = ["draws_until", "estimated_chance"]

_RIVALS, _LINES, _WHOLE = 128, 256, 8
_FIRST, _MOST = 64, 4096
# a slope or a difference that is this small beside others is zero
_TINY = 1e-12


class _Contest:
    """Row ``index`` against the others."""

    def __init__(self, X: Array, index: int, theta: Array | None, root: Array | None, bonus: Array | None) -> None:
        self.X, self.index, self.root = X, index, root
        self.theta = np.zeros(X.shape[1]) if theta is None else theta
        self.bonus = None if bonus is None else bonus[:, None]
        self.dim = X.shape[1] if root is None else root.shape[1]
        self.rivals, self.along = self._strongest()

    def _strongest(self) -> tuple[Array, Array]:
        """The rows that win most where θ is, and where the row at hand is at its best; and its unit direction in ξ."""
        x, R = self.X[self.index], self.root
        own = x if R is None else x @ R
        length = float(np.sqrt(own @ own))
        turned = own if R is None else R @ own
        places = np.stack([self.theta, self.theta + (2.0 / length if length else 0.0) * turned], axis=1)
        scores = self.scores(self.X, places)
        count = min(_RIVALS, len(self.X) - 1)
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

    def shares(self, places: Array, step: Array, which: Array | None) -> Array:
        """The probability of the part of each line, ``places`` + z·``step``, on which the row beats these others."""
        from scipy.special import ndtr

        X = self.X if which is None else self.X[which]
        bonus = None if self.bonus is None or which is None else self.bonus[which]
        own = self.X[self.index]
        c = -self.scores(X, places, bonus)
        c += own @ places + (0.0 if self.bonus is None else float(self.bonus[self.index, 0]))
        h = float(own @ step) - X @ step
        order = np.arange(len(X)) if which is None else which
        least = _TINY * max(float(np.abs(h).max()), 1e-300)
        rising, falling = np.flatnonzero(h > least), np.flatnonzero(h < -least)
        level = np.flatnonzero((np.abs(h) <= least) & (order != self.index))
        low = (c[rising] / -h[rising, None]).max(axis=0, initial=-np.inf)
        high = (c[falling] / -h[falling, None]).min(axis=0, initial=np.inf)
        flip = low > 0.0  # in the tail where digits are
        low, high = np.where(flip, -high, low), np.where(flip, -low, high)
        inside = low < high
        if len(level):
            # of rows that are the same the first wins
            slack = _TINY * (1.0 + np.abs(c[level]).max())
            inside &= (c[level] >= np.where(order[level] < self.index, slack, -slack)[:, None]).all(axis=0)
        return np.where(inside, ndtr(high) - ndtr(low), 0.0)


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
    One of a thousand equal directions in space:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((1000, 3))
    >>> X /= np.linalg.norm(X, axis=1)[:, None]
    >>> p, error = estimated_chance(X, 7, rng=rng)
    >>> 0.0 < error < 0.2 * p < 0.001
    True
    """
    contest = _Contest(X, index, theta, root, bonus)
    along = contest.along
    xi = rng.standard_normal((contest.dim, _LINES))
    xi -= np.outer(along, along @ xi)
    places, step = contest.parameters(xi), along if root is None else root @ along
    some = contest.shares(places, step, contest.rivals)
    mean = float(some.mean())
    if mean == 0.0:
        return 0.0, 1.0 / _LINES
    picked = np.searchsorted(np.cumsum(some), rng.random(_WHOLE) * some.sum(), side="right").clip(max=_LINES - 1)
    left = np.divide(
        contest.shares(places[:, picked], step, None), some[picked], out=np.zeros(_WHOLE), where=some[picked] > 0.0
    ).clip(max=1.0)
    kept = float(left.mean())
    if kept == 0.0:
        return 0.0, mean / _WHOLE
    variance = kept**2 * some.var(ddof=1) / _LINES + mean**2 * left.var(ddof=1) / _WHOLE
    return mean * kept, float(np.sqrt(variance))


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

"""What another policy would have earned that shows slates, from a log of slates, their probabilities and their clicks.

A row holds the rewards r_1, …, r_k of the positions, and of every item that was shown how probable it was, under the
policy that made the log and under the one in question (the target). The value is the mean of Σ_j r_j. The probability
of a whole slate is far too small to weigh by; what a click is assumed to depend on says what will do instead:

* ``position_ips``: on the item and its position alone (the position-based model). Weights are those of an item at a
  position: Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay & Wen, "Offline Evaluation of Ranking Policies with Click
  Models" (KDD 2018), the item-position estimator. Where it is known by which chance positions are looked at, an item
  tells as much of all positions: their PBM estimator.
* ``cascade_ips``: on the items down to its position, as in a cascade. Weights are products down to there: McInerney,
  Brost, Chandar, Mehrotra & Carterette, "Counterfactual Evaluation of Slate Recommendations with Sequential Reward
  Interactions" (KDD 2020), RIPS without its normalisation, which would be biased by O(1/n).

Both are unbiased under their model if the logging policy's probabilities are right, and positive wherever the target's
are; where the weights say that they are not, the estimate warns (see ``support``). Estimates are computed from raw data
and are not private.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from dpbandits.lab.evaluate.estimate import Estimate, opened, summed
from dpbandits.lab.evaluate.support import Support, supported, warned
from dpbandits.policy.checks import real_array

__all__ = ["cascade_ips", "position_ips"]


def position_ips(
    rewards: ArrayLike,
    probabilities: ArrayLike,
    target: ArrayLike,
    *,
    examination: ArrayLike | None = None,
    persons: Any = None,
) -> Estimate:
    """Value of slates from a log of clicks by position: the mean of Σ_j r_j·π_j/p_j.

    Parameters
    ----------
    rewards : array_like of shape (n, k)
        Of every position; 0 where nothing was clicked.
    probabilities : array_like of shape (n, k), or (n, k, k) with ``examination``
        p_j, with which the logging policy shows at position j the item that was shown there; or, at [row, j, i], with
        which it shows at position i the item that was shown at j.
    target : array_like of the same shape
        The same items under the policy in question.
    examination : array_like of shape (k,), optional
        q_i > 0, in proportion to the chance that position i is looked at. Then the weight of a click at j is
        Σ_i q_iπ_ji/Σ_i q_ip_ji.
    persons : array_like of shape (n,), optional
        Whose rows they are, for the standard error.

    Raises
    ------
    ValueError
        For arrays of different shapes, values out of range or NaN, or no row.

    Examples
    --------
    Two items were shown in random order; how often would people click if the first were always on top?

    >>> rng = np.random.default_rng(0)
    >>> first = rng.integers(2, size=20_000)                           # which item is on top
    >>> attraction, looks = np.array([0.6, 0.2]), np.array([1.0, 0.5])
    >>> slates = np.column_stack([first, 1 - first])
    >>> clicks = (rng.random((20_000, 2)) < attraction[slates] * looks).astype(float)
    >>> target = (slates == np.array([0, 1])).astype(float)
    >>> found = position_ips(clicks, np.full((20_000, 2), 0.5), target)     # truly 0.6 + 0.5·0.2 = 0.7
    >>> bool(abs(found.value - 0.7) < 3 * found.std_error)
    True
    """
    r = _rewards(rewards)
    shape = r.shape if examination is None else (*r.shape, r.shape[1])
    p, pi = _chances("probabilities", probabilities, shape), _chances("target", target, shape)
    shares = np.full(r.shape[1], 1.0 / r.shape[1])
    if examination is not None:
        q = real_array("examination", examination)
        if q.shape != r.shape[1:] or not ((q > 0) & np.isfinite(q)).all():
            raise ValueError(f"examination must be {r.shape[1]} positive numbers, one for a position, got {q}")
        p, pi, shares = p @ q, pi @ q, q / q.sum()
    # of a random position an item's weight has mean 1, by how often positions are looked at
    return _weighed("position_ips", r, p, pi, persons, lambda w: w @ shares)


def cascade_ips(rewards: ArrayLike, probabilities: ArrayLike, target: ArrayLike, *, persons: Any = None) -> Estimate:
    """Value of slates from a log of clicks down the page: the mean of Σ_j r_j·Π_{i≤j}(π_i/p_i).

    Parameters
    ----------
    rewards : array_like of shape (n, k)
        Of every position: 0 where nothing was clicked, or after the first click, where nobody looked.
    probabilities : array_like of shape (n, k)
        p_i, with which the logging policy shows this item at position i, given the items above it. (What comes after
        the last click does not matter.)
    target : array_like of shape (n, k)
        The same items under the policy in question.
    persons : array_like of shape (n,), optional
        Whose rows they are, for the standard error.

    Raises
    ------
    ValueError
        As :func:`position_ips`.

    Examples
    --------
    >>> log = cascade_ips([[1, 0], [0, 1]], probabilities=[[0.5, 1.0], [0.5, 1.0]], target=[[1, 1], [0, 0]])
    >>> log.value
    1.0
    """
    r = _rewards(rewards)
    p, pi = _chances("probabilities", probabilities, r.shape), _chances("target", target, r.shape)
    # products down to any position have mean 1; without a probability below the last click nobody can say so
    whole = (p > 0.0).all()
    p, pi = np.asarray(p.cumprod(axis=1)), np.asarray(pi.cumprod(axis=1))
    return _weighed("cascade_ips", r, p, pi, persons, (lambda w: w.mean(axis=1)) if whole else None)


def _rewards(rewards: ArrayLike) -> Array:
    r = real_array("rewards", rewards)
    if r.ndim != 2 or not r.size or not np.isfinite(r).all():
        raise ValueError(f"rewards must be a finite table with a row for each slate, got shape {r.shape}")
    return r


def _chances(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Array:
    found = real_array(name, values)
    if found.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, as rewards ask for, got {found.shape}")
    if not ((found >= 0) & (found <= 1)).all():  # also true for NaN
        raise ValueError(f"{name} must be in [0, 1], got {found[~((found >= 0) & (found <= 1))][0]:g}")
    return found


def _weighed(
    method: str, r: Array, p: Array, pi: Array, persons: Any, of_rows: Callable[[Array], Array] | None
) -> Estimate:
    if (p[r != 0.0] == 0.0).any():
        raise ValueError("probabilities must be positive wherever there is a reward, as what was shown cannot be 0")
    w = np.divide(pi, p, out=np.zeros_like(p), where=p > 0.0)
    terms = (w * r).sum(axis=1)
    value, support, k = float(terms.mean()), Support(), r.shape[1]
    if of_rows is not None:
        # certain where every position was shown without chance
        sure = np.where((p == 1.0).all(axis=1), 1.0, 0.0)
        support = warned(supported(sure, of_rows(pi), of_rows(w), persons), level=4)
    ends = opened(support, r, value / k, 0.0)
    return summed(method, terms, w.mean(axis=1), value, persons, support, (k * ends[0], k * ends[1]))

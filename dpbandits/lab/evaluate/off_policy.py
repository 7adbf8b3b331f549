"""What another policy would have earned, from a log of one choice, its probability and its reward per row.

Every row holds the reward r of the chosen item, the probability p > 0 with which the logging policy chose it, and the
probability π with which the policy in question (the target) would have chosen it; w = π/p.

* ``ips``: the mean of w·r (inverse propensity scores; Horvitz & Thompson 1952). Unbiased where p is right and p > 0
  wherever π > 0.
* ``snips``: Σw·r/Σw (Swaminathan & Joachims 2015): biased by O(1/n), within the range of the rewards, and no worse
  where all rewards are shifted.
* ``doubly_robust``: with a model q of the rewards, the mean of Σ_a π(a)q(a) + w·(r − q(chosen)) (Dudík, Langford & Li
  2011). Unbiased where p *or* q is right; q must not be fitted on the row itself (see ``cross_fitted``).

All of them need p > 0 wherever π > 0. Where the weights say that it is not so, the estimate warns, and has an interval
that is as wide as the log leaves it open: see ``support``.

Definitions and values agree with those of Open Bandit Pipeline. Estimates are computed from raw data and are not
private; :func:`dpbandits.lab.evaluate.private_value` releases one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import integer, positive
from dpbandits.lab.evaluate.estimate import Estimate, opened, summed
from dpbandits.lab.evaluate.support import Support, supported, warned
from dpbandits.policy.checks import real_array

__all__ = ["checked_log", "cross_fitted", "doubly_robust", "ips", "snips", "weighted"]


def ips(
    rewards: ArrayLike,
    probabilities: ArrayLike,
    target: ArrayLike,
    *,
    largest_weight: float | None = None,
    persons: Any = None,
) -> Estimate:
    """Inverse propensity scoring of a policy on a log: the mean of w·r, w = π(a)/p(a).

    Parameters
    ----------
    rewards : array_like of shape (n,)
    probabilities : array_like of shape (n,)
        Of the logged choices under the policy that made them, in (0, 1].
    target : array_like of shape (n,)
        Of the same choices under the policy in question, in [0, 1].
    largest_weight : float, optional
        Larger w are cut to it: less variance, and a bias towards 0.
    persons : array_like of shape (n,), optional
        Whose rows they are, for the standard error.

    Raises
    ------
    ValueError
        For arrays of different lengths, values out of range or NaN, or no row.

    Warns
    -----
    UserWarning
        If the log does not hold all that the policy does: the estimate's ``support`` says how much, and what to do.

    Examples
    --------
    A fair coin chose between two items, of which the second pays twice as often:

    >>> rng = np.random.default_rng(0)
    >>> chosen = rng.integers(2, size=10_000)
    >>> clicks = rng.random(10_000) < np.where(chosen, 0.2, 0.1)
    >>> ips(clicks, np.full(10_000, 0.5), target=chosen)      # what "always the second" would earn
    ips: 0.195 ± 0.00594 (standard error), 95 % interval [0.184, 0.207], 10,000 rows worth 5,030.0
    """
    r, w = weighted(rewards, probabilities, target, largest_weight)
    terms = w * r
    value, support = float(terms.mean()), warned(_support(probabilities, target, persons))
    return summed("ips", terms, w, value, persons, support, opened(support, r, value, 0.0))


def snips(
    rewards: ArrayLike,
    probabilities: ArrayLike,
    target: ArrayLike,
    *,
    largest_weight: float | None = None,
    persons: Any = None,
) -> Estimate:
    """Self-normalised inverse propensity scoring, Σw·r/Σw, its error to first order; parameters as of :func:`ips`.

    Raises
    ------
    ValueError
        As :func:`ips`; and where no row has a weight.

    Warns
    -----
    UserWarning
        As :func:`ips`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.lab.evaluate import snips
    >>> rewards, chances = np.array([1.0, 0.0, 1.0, 0.0]), np.full(4, 0.5)
    >>> snips(rewards, chances, target=np.array([1.0, 0.0, 1.0, 0.0])).value
    1.0
    """
    r, w = weighted(rewards, probabilities, target, largest_weight)
    total = float(w.sum())
    if not total > 0:
        raise ValueError("target must be positive for at least one row, got no choice that the policy would make")
    value = float((w * r).sum()) / total
    support = warned(_support(probabilities, target, persons))
    terms = value + w * (r - value) * (len(w) / total)
    return summed("snips", terms, w, value, persons, support, opened(support, r, value, value))


def doubly_robust(
    rewards: ArrayLike,
    probabilities: ArrayLike,
    target: ArrayLike,
    *,
    chosen: ArrayLike,
    model: ArrayLike,
    largest_weight: float | None = None,
    persons: Any = None,
) -> Estimate:
    """Value of a policy from a log and a model q of rewards: the mean of Σ_a π(a)·q(a) + w·(r − q(chosen)).

    Parameters
    ----------
    rewards, probabilities, largest_weight, persons
        As of :func:`ips`.
    target : array_like of shape (n, K)
        The probability of every item under the policy in question; rows add up to 1.
    chosen : array_like of shape (n,)
        The logged choices, numbers of items from 0 to K − 1.
    model : array_like of shape (n, K)
        q, the reward that a model expects of every item; see :func:`cross_fitted`.

    Warns
    -----
    UserWarning
        As :func:`ips`: of what the log lacks the estimate has the model's word alone.

    Examples
    --------
    >>> doubly_robust([1, 0], [0.5, 0.5], [[1, 0], [1, 0]], chosen=[0, 1], model=[[0.6, 0.2], [0.6, 0.2]]).value
    1.0
    """
    pi = _table("target", target)
    q = _table("model", model)
    picked = np.asarray(chosen)
    n, K = pi.shape
    if q.shape != pi.shape or picked.shape != (n,):
        raise ValueError(
            f"target and model must have shape (n, K) and chosen (n,), got {pi.shape}, {q.shape}, {picked.shape}"
        )
    if picked.dtype.kind not in "iu" or (n and not (picked.min() >= 0 and picked.max() < K)):
        raise ValueError(f"chosen must be whole numbers from 0 to {K - 1}, got an entry outside or another type")
    if (pi < 0).any() or (np.abs(pi.sum(axis=1) - 1) > 1e-6).any():
        raise ValueError("target must have rows of probabilities that add up to 1, got others")
    rows = np.arange(n)
    r, w = weighted(rewards, probabilities, pi[rows, picked], largest_weight)
    terms = (pi * q).sum(axis=1) + w * (r - q[rows, picked])
    value, support = float(terms.mean()), warned(_support(probabilities, pi[rows, picked], persons))
    return summed("doubly_robust", terms, w, value, persons, support, opened(support, r, value, q))


def cross_fitted(
    rewards: ArrayLike,
    chosen: ArrayLike,
    arms: int,
    *,
    features: ArrayLike | None = None,
    persons: Any = None,
    folds: int = 5,
    ridge: float = 1.0,
) -> Array:
    """A model of the rewards for :func:`doubly_robust`: each item's ridge regression, fitted without the row's fold.

    Parameters
    ----------
    rewards, chosen : array_like of shape (n,)
    arms : int
        K.
    features : array_like of shape (n, m), optional
        What was known of each row before the choice; without them each item's mean, drawn to that of all.
    persons : array_like of shape (n,), optional
        All rows of a person are in one fold.
    folds : int
        Row i is in fold i mod ``folds``.
    ridge : float
        Penalty, in rows.

    Returns
    -------
    ndarray of shape (n, K)

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.lab.evaluate import cross_fitted
    >>> rng = np.random.default_rng(0)
    >>> chosen = rng.integers(0, 2, size=200)
    >>> cross_fitted(chosen + rng.normal(size=200), chosen, arms=2).shape
    (200, 2)
    """
    r = real_array("rewards", rewards)
    picked = np.asarray(chosen)
    K = integer("arms", arms, at_least=1)
    positive("ridge", ridge)
    integer("folds", folds, at_least=2)
    if r.ndim != 1 or picked.shape != r.shape or not (picked.min(initial=0) >= 0 and picked.max(initial=0) < K):
        raise ValueError(f"chosen must hold one number from 0 to {K - 1} per reward, got shape {picked.shape}")
    Z = np.ones((len(r), 1)) if features is None else np.column_stack([np.ones(len(r)), _table("features", features)])
    groups = np.arange(len(r)) if persons is None else np.unique(np.asarray(persons), return_inverse=True)[1]
    fold = groups % folds
    out = np.zeros((len(r), K))
    for f in range(folds):
        train, test = fold != f, fold == f
        mean = float(r[train].mean()) if train.any() else 0.0
        for a in range(K):
            rows = train & (picked == a)
            X = Z[rows]
            beta = np.linalg.solve(X.T @ X + ridge * np.eye(Z.shape[1]), X.T @ (r[rows] - mean))
            out[test, a] = mean + Z[test] @ beta
    return out


def checked_log(rewards: ArrayLike, probabilities: ArrayLike) -> tuple[Array, Array]:
    """Rewards and propensities, checked."""
    r, p = real_array("rewards", rewards), real_array("probabilities", probabilities)
    if r.ndim != 1 or p.shape != r.shape or not len(r):
        raise ValueError(f"rewards and probabilities must have one entry per row, got shapes {r.shape} and {p.shape}")
    if not np.isfinite(r).all():
        raise ValueError(f"rewards must be finite, got {r[~np.isfinite(r)][0]} in row {_first(~np.isfinite(r))}")
    bad = ~((p > 0) & (p <= 1))
    if bad.any():
        raise ValueError(
            f"probabilities must be in (0, 1], got {p[bad][0]:g} in row {_first(bad)}: the probability with which the "
            "logged choice was made cannot be 0"
        )
    return r, p


def weighted(
    rewards: ArrayLike, probabilities: ArrayLike, target: ArrayLike, largest_weight: float | None
) -> tuple[Array, Array]:
    """Rewards and weights, checked."""
    r, p = checked_log(rewards, probabilities)
    pi = real_array("target", target)
    if pi.shape != r.shape:
        raise ValueError(f"target must have one entry per row, {r.shape}, got shape {pi.shape}")
    bad = ~((pi >= 0) & (pi <= 1))
    if bad.any():
        raise ValueError(f"target must be in [0, 1], got {pi[bad][0]:g} in row {_first(bad)}")
    w = pi / p
    return r, w if largest_weight is None else np.minimum(w, positive("largest_weight", largest_weight))


def _support(probabilities: ArrayLike, target: ArrayLike, persons: Any) -> Support:
    """How much of a target a checked log holds; by the weights themselves, also where the estimate cuts them."""
    p, pi = real_array("probabilities", probabilities), real_array("target", target)
    return supported(p, pi, pi / p, persons)


def _table(name: str, values: ArrayLike) -> Array:
    found = real_array(name, values)
    if found.ndim != 2 or not np.isfinite(found).all():
        raise ValueError(f"{name} must be a finite table with one row per choice, got shape {found.shape}")
    return found


def _first(bad: Any) -> int:
    return int(np.flatnonzero(bad)[0])

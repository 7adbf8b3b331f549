"""What noisy sums of rewards say of fixed arms, where it is known exactly how often each was played.

Batch j has n_jk plays of arm k, whose records g have the mean m_k = μ(x_kᵀθ) − c₀ and the variance v_k. Sums over
batches leave with noise, and what they grow by from release to release is the sum of a batch, with noise whose
covariance between batches is Σ = σ²(CᵀC)⁻¹, C the factor of :class:`dpkit.continual.Weighted`. Generalized least
squares says what *all* releases tell of m. For an arm that was played in a single batch it has the noise of a single
release, where the newest running sum has one and a half to two times as much. Records are summed

* by arms: a sum of g for each of them (:func:`weighed`);
* by directions: a sum of g·x (:func:`weighed_together`). K arms of dimension d < K that are all played alike are known
  better that way, by the factor K/d in the precision, and worse where few are played of many.

:func:`fitted` joins the arms: one parameter θ, with a normal prior, by Gauss and Newton.

All are post-processing of what was released, and cost O(k³) for each arm that was played, O(J³d³ + KJ²d²) for J batches
by directions, and O(KJd² + d³): nothing is of K² entries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accounting.arrays import Array
from dpkit.models.ellipsoid import ball_constrained_minimizer
from dpkit.models.links import Link
from dpkit.models.prior import Posterior, Prior

__all__ = ["LevelPrior", "Precision", "arrivals", "fitted", "weighed", "weighed_together"]


# of Gauss and Newton: at most so many, and until nothing moves by more than that
_STEPS, _STILL = 8, 1e-5
# the scale of a level's prior over how far it may reach. At this one, arms on a sphere about the middle of the range
# have some 5 % more regret than where the level is told (at a quarter 15 %, with a wide normal prior 30 %)
_NARROW = 0.05
# by how much of the range rewards near its ends are away from them: there many links are at infinity
_ENDS = 0.02
# before these, where there is a level: so many with its wide prior
_WIDE_STEPS = 4
# how far the share of rewards that come moves from batch to batch
_DRIFT = 0.2


@dataclass(frozen=True)
class Precision:
    """diag(p) + LR, of shape (K, K), which is not written out."""

    p: Array
    L: Array
    R: Array

    def __matmul__(self, columns: Array) -> Array:
        return np.asarray((self.p * columns.T).T + self.L @ (self.R @ columns))


@dataclass(frozen=True)
class LevelPrior:
    """Of a level of rewards on the link's scale: Cauchy's law around 0, whose tails let it be anywhere.

    Its density at o is in proportion to 1/(1 + (o/narrow)²), which next to o is about that of a normal law around 0
    with the precision 2/(narrow² + o²): rewards about the base rate cost next to nothing, where a wide normal prior
    would cost as much as one more dimension. The posterior has two modes where the level is far off; a search that
    begins with a normal prior of the standard deviation ``wide`` ends at the one that the data speak for.
    """

    wide: float
    narrow: float

    @classmethod
    def of(cls, link: Link, low: float, high: float) -> LevelPrior:
        """``wide`` is a quarter of the link's scale from near ``low`` to near ``high``, the ends of rewards' range.

        Examples
        --------
        >>> from dpkit.models import get_link
        >>> [round(LevelPrior.of(get_link(name), 0.0, 1.0).wide, 2) for name in ("logistic", "linear")]
        [1.95, 0.24]
        """
        margin = _ENDS * (high - low)
        ends = [value for value in (low + margin, high - margin) if link.reaches(value)]
        if not ends:
            return cls(1.0, _NARROW)
        # where only one end can be reached, as far on the other side of the base rate
        farthest = [link.inverse(value) for value in ends]
        reach = 0.25 * (farthest[-1] - farthest[0] if len(ends) > 1 else 2.0 * abs(farthest[0])) or 1.0
        return cls(reach, _NARROW * reach)

    def precision(self, o: float, *, wide: bool) -> float:
        """Of the normal prior that stands for it next to o."""
        return self.wide**-2 if wide else 2.0 / (self.narrow**2 + o**2)


def arrivals(noise: Array, plays: Array, came: Array, least: float) -> Array:
    """Which share of the rewards of each batch has come, from ``least`` to 1.

    A level of mean and deviation 1 and a random walk, seen through c_j = f_j·n_j + noise and chance; the normal
    posterior's mean.

    Parameters
    ----------
    noise : ndarray of shape (k, k)
        Σ, of the numbers that came.
    plays, came : ndarray of shape (k,)
        n and c.
    least : float

    Examples
    --------
    All come, and then half:

    >>> import numpy as np
    >>> plays = np.array([100.0, 200.0, 400.0])
    >>> arrivals(9.0 * np.eye(3), plays, np.array([100.0, 100.0, 200.0]), least=0.01).round(1).tolist()
    [1.0, 0.5, 0.5]
    """
    steps = np.arange(1.0, len(plays) + 1.0)
    prior = (1.0 + _DRIFT**2 * np.minimum(steps[:, None], steps)) * plays
    known = np.linalg.solve(plays[:, None] * prior + noise + np.diag(0.25 * plays), came - plays)
    return np.asarray(np.clip(1.0 + prior @ known, least, 1.0))


def weighed(noise: Array, plays: Array, sums: Array, variances: Array) -> tuple[Array, Array]:
    """What sums by arms say of each m_k: the precision p_k, and p_k times the estimate.

    s_k = m_k·n_k + noise and chance, whose covariance is Σ + v_k·diag(n_k).

    Parameters
    ----------
    noise : ndarray of shape (k, k)
        Σ, positive definite.
    plays, sums : ndarray of shape (k, K)
        n, at least 0, and s.
    variances : ndarray of shape (K,)
        v, at least 0.

    Examples
    --------
    One batch with 9 plays, whose records have the sum 3 and the variance 1 each:

    >>> import numpy as np
    >>> p, score = weighed(np.array([[4.0]]), np.array([[9.0]]), np.array([[3.0]]), variances=np.ones(1))
    >>> (score / p).round(3).item(), (1.0 / p).round(3).item()    # (4 + 9·1)/9²
    (0.333, 0.16)
    """
    weights, known = np.zeros_like(plays.T), plays.any(axis=0)
    if known.any():
        n = plays.T[known, :, None]
        weights[known] = np.linalg.solve(noise + variances[known, None, None] * n * np.eye(len(noise)), n)[:, :, 0]
    return np.einsum("kj,jk->k", weights, plays), np.einsum("kj,jk->k", weights, sums)


def weighed_together(
    noise: Array, plays: Array, sums: Array, variances: Array, arms: Array
) -> tuple[tuple[Array, Array], Array]:
    """What sums by directions say of m: its precision, as factors (K, Jd) and (Jd, K), and that times the estimate.

    s_j = Σ_k n_jk·m_k·x_k + noise and chance: Σ_ij·I for two batches, and Σ_k v_k·n_jk·x_kx_kᵀ for one. Batches after
    the J first ones have no records; what they show is the noise of the others.

    Parameters
    ----------
    noise : ndarray of shape (k, k)
        Σ.
    plays : ndarray of shape (J, K)
        n of the first batches, J ≤ k.
    sums : ndarray of shape (k, d)
        s.
    variances : ndarray of shape (K,)
    arms : ndarray of shape (K, d)

    Examples
    --------
    >>> import numpy as np
    >>> noise, plays, sums = (np.full((1, 1), number) for number in (4.0, 9.0, 3.0))
    >>> (L, R), score = weighed_together(noise, plays, sums, np.ones(1), np.eye(1))
    >>> (L @ R).round(3).item(), score.round(3).item()    # as above
    (6.231, 2.077)
    """
    J, d = len(plays), arms.shape[1]
    sure = np.linalg.inv(noise)
    left = np.linalg.inv(sure[:J, :J])
    s = sums[:J] + left @ sure[:J, J:] @ sums[J:]
    covariance = np.kron(left, np.eye(d)).reshape(J, d, J, d)
    each = np.arange(J)
    covariance[each, :, each] += np.einsum("jk,ka,kb->jab", plays * variances, arms, arms)
    design = (plays[:, None, :] * arms.T).reshape(J * d, len(arms))
    weights = np.linalg.solve(covariance.reshape(J * d, J * d), design)
    return (weights.T, design), weights.T @ s.ravel()


def fitted(
    arms: Array,
    moments: Callable[[Array], tuple[Array, Array]],
    evidence: Callable[[Array], tuple[Array | Precision, Array]],
    prior: Prior,
    start: Array,
    radius: float,
    level: LevelPrior | None = None,
) -> tuple[Posterior, float]:
    """θ given what is known of m, to first order around its mean; and a level that all arms share.

    Parameters
    ----------
    arms : ndarray of shape (K, d)
    moments : callable
        From e = (x_kᵀθ + level)_k to m and its slopes in e, positive.
    evidence : callable
        From these slopes, to which variances are in proportion, to the precision of m, of shape (K, K), and that times
        its estimate.
    prior : Prior
    start : ndarray of shape (d,)
        Where to begin.
    radius : float
        S ≥ ‖θ‖.
    level : LevelPrior, optional
        Of a level that S does not bound. By default it is 0.

    Notes
    -----
    The posterior is θ's own: the level moves all arms alike, and no choice. With A the precision of θ and the level
    together, θ alone has the Schur complement of its last entry.

    Examples
    --------
    Two arms of a linear model of which the first is known well; the prior has mean 0 and variance 1:

    >>> import numpy as np
    >>> known = lambda slopes: (np.diag([99.0, 0.0]), np.array([99.0, 0.0]))
    >>> linear = lambda e: (e, np.ones(2))
    >>> found, _ = fitted(np.eye(2), linear, known, Prior(np.zeros(2), np.eye(2)), np.zeros(2), radius=3.0)
    >>> found.mean.round(6).tolist(), found.covariance.diagonal().round(6).tolist()
    ([0.99, 0.0], [0.01, 1.0])

    With a level of which nothing is known, both have it, as far as can be told:

    >>> prior = Prior(np.zeros(2), np.eye(2))
    >>> found, level = fitted(np.eye(2), linear, known, prior, np.zeros(2), radius=3.0, level=LevelPrior(1e3, 1e3))
    >>> found.mean.round(3).tolist(), round(level, 3)
    ([0.0, 0.0], 1.0)
    """
    theta, shift = start, 0.0
    for step in range(_STEPS if level is None else _WIDE_STEPS + _STEPS):
        e = arms @ theta + shift
        mean, slopes = moments(e)
        precision, scores = evidence(slopes)
        steep = arms * slopes[:, None]
        # m is taken to be mean + slope·(xᵀθ' + level' − e)
        told = scores - precision @ (mean - slopes * e)
        own, pull = steep.T @ (precision @ steep) + prior.precision, steep.T @ told + prior.precision @ prior.mean
        before, last = theta, shift
        if level is not None:
            weight = precision @ slopes
            across, drawn = steep.T @ weight, float(slopes @ told)
            alone = float(slopes @ weight) + level.precision(shift, wide=step < _WIDE_STEPS)
            own, pull = own - np.outer(across, across) / alone, pull - across * (drawn / alone)
        eigenvalues, U = np.linalg.eigh(own)
        theta = ball_constrained_minimizer(eigenvalues, U, pull, radius)
        if level is not None:
            shift = (drawn - float(across @ theta)) / alone
        settled = max(float(np.abs(theta - before).max()), abs(shift - last)) <= _STILL
        if settled and (level is None or step >= _WIDE_STEPS):
            break
    return Posterior(theta, (U / eigenvalues) @ U.T, (U / np.sqrt(eigenvalues)) @ U.T), shift

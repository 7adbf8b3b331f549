"""Scores: numbers that order outputs by how much they speak for one input against its neighbour.

By Neyman and Pearson's lemma the best score is the log-likelihood ratio of the two output distributions. It is known
whenever the noise is: each function here returns it as a callable from outputs of shape (trials, …) to scores of shape
(trials,). Where the noise is not known, ``logistic`` learns a score from outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import positive

__all__ = ["GaussianScore", "Score", "correlated_gaussian", "gaussian", "laplace", "logistic"]

Score = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class GaussianScore:
    """The log-likelihood ratio of two normal distributions with one covariance: linear in the output.

    ``mu`` is the distance of the two means in units of the noise: exactly the μ of the Gaussian DP that this pair of
    inputs has.
    """

    weights: Array
    midpoint: Array
    mu: float

    def __call__(self, outputs: Array) -> Array:
        if outputs.shape[1:] != self.weights.shape:
            raise ValueError(f"outputs must have shape (trials, *{self.weights.shape}), got {outputs.shape}")
        return np.asarray((outputs - self.midpoint).reshape(len(outputs), -1) @ self.weights.ravel())


def gaussian(mean: ArrayLike, neighbour_mean: ArrayLike, scale: float) -> GaussianScore:
    """Independent Gaussian noise of standard deviation ``scale`` on every entry.

    Parameters
    ----------
    mean, neighbour_mean : array_like, one shape
        What is released on the data and on its neighbour, before noise.
    scale : float
        Standard deviation of the noise.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting.audit import scores
    >>> score = scores.gaussian(1.0, 0.0, scale=2.0)
    >>> score.mu, score(np.array([0.5, 1.5]))
    (0.5, array([0.  , 0.25]))
    """
    scale = positive("scale", scale)
    mean, difference, midpoint = _means(mean, neighbour_mean)
    return GaussianScore(difference / scale**2, midpoint, float(np.linalg.norm(difference)) / scale)


def laplace(mean: ArrayLike, neighbour_mean: ArrayLike, scale: float) -> Score:
    """Independent Laplace noise of scale ``scale`` on every entry; arguments as in :func:`gaussian`.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting.audit import scores
    >>> scores.laplace(1.0, 0.0, scale=2.0)(np.array([-3.0, 0.5, 7.0]))
    array([-0.5,  0. ,  0.5])
    """
    scale = positive("scale", scale)
    mean, difference, _ = _means(mean, neighbour_mean)

    def score(outputs: Array) -> Array:
        if outputs.shape[1:] != mean.shape:
            raise ValueError(f"outputs must have shape (trials, *{mean.shape}), got {outputs.shape}")
        excess = np.abs(outputs - mean + difference) - np.abs(outputs - mean)
        return np.asarray(excess.reshape(len(outputs), -1).sum(axis=1) / scale)

    return score


def correlated_gaussian(
    mean: ArrayLike,
    neighbour_mean: ArrayLike,
    *,
    covariance: ArrayLike | None = None,
    factor: ArrayLike | None = None,
) -> GaussianScore:
    """Gaussian noise that is correlated along the first axis of the output, such as a stream of noisy prefix sums.

    Parameters
    ----------
    mean, neighbour_mean : array_like, shape (T, …)
        What is released on the data and on its neighbour, before noise. Entries along further axes have independent
        noise of the same covariance along the first.
    covariance : array_like, shape (T, T)
        Of the noise along the first axis, positive definite.
    factor : array_like, shape (T, T)
        Instead of the covariance: a lower triangular C with nonzero diagonal, the noise being C·(standard normal).

    Returns
    -------
    GaussianScore
        Its ``mu`` is ‖C⁻¹(mean − neighbour_mean)‖.

    Examples
    --------
    Two prefix sums of one stream, the same noise drawn in both, more added in the second:

    >>> import numpy as np
    >>> from accounting.audit import scores
    >>> score = scores.correlated_gaussian([1.0, 1.0], [0.0, 0.0], factor=[[1.0, 0.0], [1.0, 1.0]])
    >>> score.mu, score(np.array([[0.5, 9.0], [1.5, 9.0]]))
    (1.0, array([0., 1.]))
    """
    from scipy.linalg import LinAlgError, cholesky, solve_triangular

    mean, difference, midpoint = _means(mean, neighbour_mean)
    if (covariance is None) == (factor is None):
        raise ValueError("exactly one of covariance and factor must be given")
    if mean.ndim == 0:
        raise ValueError("mean must have at least one axis, got a number")
    C = np.asarray(covariance if factor is None else factor, dtype=np.float64)
    name = "covariance" if factor is None else "factor"
    if C.shape != (len(mean), len(mean)):
        raise ValueError(f"{name} must have shape {(len(mean), len(mean))}, got {C.shape}")
    if factor is None:
        if not np.allclose(C, C.T, rtol=1e-9, atol=1e-12 * np.max(np.abs(C))):
            raise ValueError("covariance must be symmetric")
        try:
            C = cholesky(C, lower=True)
        except LinAlgError:
            raise ValueError("covariance must be positive definite") from None
    elif np.any(np.triu(C, 1)) or not np.all(np.diag(C)):
        raise ValueError("factor must be lower triangular with a nonzero diagonal")
    white = solve_triangular(C, difference.reshape(len(C), -1), lower=True)
    weights = solve_triangular(C, white, lower=True, trans="T").reshape(difference.shape)
    return GaussianScore(weights, midpoint, float(np.linalg.norm(white)))


def _means(mean: ArrayLike, neighbour_mean: ArrayLike) -> tuple[Array, Array, Array]:
    """Both means checked: the first, their difference and their midpoint."""
    first, second = (np.asarray(m, dtype=np.float64) for m in (mean, neighbour_mean))
    if first.shape != second.shape:
        raise ValueError(f"neighbour_mean must have the shape of mean {first.shape}, got {second.shape}")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("mean and neighbour_mean must be finite")
    return first, first - second, (first + second) / 2


def logistic(outputs: Array, neighbour_outputs: Array) -> Score:
    """A score learned from outputs: logistic regression with a ridge penalty.

    Its features are each entry x in units of its spread, x² for noise of another size, and x/(1 + |x|) for
    heavy-tailed noise, whose likelihood ratio levels off.

    Parameters
    ----------
    outputs, neighbour_outputs : ndarray, shape (n, …) and (m, …)
        Outputs of runs on the data and on its neighbour, finite. Judge the score on other runs.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting.audit import scores
    >>> rng = np.random.default_rng(0)
    >>> score = scores.logistic(rng.normal(2.0, 1.0, (500, 3)), rng.normal(0.0, 1.0, (500, 3)))
    >>> near, far = score(np.array([[2.0, 2.0, 2.0], [0.0, 0.0, 0.0]]))
    >>> bool(near > 0 > far)
    True
    """
    rows = [np.asarray(o, dtype=np.float64).reshape(len(o), -1) for o in (outputs, neighbour_outputs)]
    pooled = np.concatenate(rows)
    if not np.isfinite(pooled).all():
        raise ValueError("outputs must be finite to train a classifier on them; give a score")
    # medians and quartiles: one output far out must not squeeze all the others together
    low, centre, high = np.quantile(pooled, (0.25, 0.5, 0.75), axis=0)
    spread = np.where(high > low, high - low, pooled.std(axis=0))
    spread[spread == 0] = 1.0

    def features(values: Array) -> Array:
        unit = np.clip((values.reshape(len(values), -1) - centre) / spread, -10.0, 10.0)
        return np.concatenate([np.ones((len(unit), 1)), unit, unit**2, unit / (1 + np.abs(unit))], axis=1)

    labels = np.repeat([1.0, 0.0], [len(r) for r in rows])
    coefficients = _newton(features(pooled), labels)

    def score(values: Array) -> Array:
        return np.asarray(features(values) @ coefficients)

    return score


def _newton(X: Array, labels: Array) -> Array:
    """Coefficients of a logistic regression with a unit ridge penalty, by damped Newton steps."""
    from scipy.special import expit

    def loss(c: Array) -> float:
        margin = X @ c
        return float(np.sum(np.logaddexp(0.0, margin) - labels * margin) + 0.5 * c @ c)

    c = np.zeros(X.shape[1])
    value = loss(c)
    for _ in range(50):
        p = expit(X @ c)
        gradient = X.T @ (p - labels) + c
        step = np.linalg.solve((X * (p * (1 - p))[:, None]).T @ X + np.eye(len(c)), gradient)
        size = 1.0
        while (trial := loss(c - size * step)) > value and size > 1e-6:
            size /= 2
        if not value - trial > 1e-9 * value:
            break
        c, value = c - size * step, trial
    return c

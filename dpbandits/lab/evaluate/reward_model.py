"""A model of what every item would have paid, fitted to a log of choices and corrected by its probabilities.

For :class:`~dpbandits.lab.environments.ChosenLog`, which plays it. A row is described by y = (1, the visitor's columns,
steps of time), an item by z = (1, the item's columns), and

    E[r | y, k] = 1/(1 + exp(−yᵀc_k − yᵀb_k)),    c_k ~ N(Mᵀz_k, diag τ²),    b_k ~ N(0, diag s²).

* c is what rows say of the items: M, τ and the c_k by expectation and maximisation, with Gaussian posteriors (Laplace's
  method) and MacKay's update of variances (1992), so that an item of few rows is drawn to what its columns, or all
  items, say. Rewards between 0 and 1 are taken by quasi-likelihood, with their own dispersion.
* b is what the log's probabilities say that c got wrong, because the log's policy chose by what the columns do not
  tell: the same fit once more, on what c leaves, with weights 1/p (of every item worth their effective number of rows,
  Kish 1965). Where c is right, s goes to 0 and b with it; where it is not, the mean of every item is that of inverse
  propensity scores. So the model is right where either the columns tell it all, or the probabilities are right, as a
  doubly robust estimate is (Bang & Robins 2005, who fit such a correction to their model).
* Time: the log is cut into pieces of equal length, and step j is 1 from piece j on; coefficients with a variance of
  their own make a random walk, which vanishes where nothing drifts.

Not private. Cost: some 40 passes over n rows with p(p + 1)/2 sums each, p the length of y.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array

__all__ = ["Described", "RewardModel", "described", "fit", "means"]

_ROUNDS = 16
# no variance is smaller, no logit larger
_LEAST, _MOST = 1e-6, 12.0


@dataclass(frozen=True, eq=False)
class Described:
    """What rows and items are described by.

    Attributes
    ----------
    rows : ndarray of shape (n, p)
        (1, visitor's columns, steps).
    items : ndarray of shape (K, g)
        (1, item's columns).
    groups : ndarray of shape (p,)
        Coefficients of the same number share a variance.
    steps : int
        How many of the last entries of a row are steps of time.
    """

    rows: Array
    items: Array
    groups: NDArray[np.int64]
    steps: int

    def of(self, rows: NDArray[np.int64]) -> Described:
        """The same of some rows."""
        return replace(self, rows=self.rows[rows])


@dataclass(frozen=True, eq=False)
class RewardModel:
    """Coefficients of every item, and how well they are known.

    Attributes
    ----------
    coefficients : ndarray of shape (K, p)
    roots : tuple of ndarray of shape (K, p, p)
        Square roots of the covariances of their parts, which are independent.
    """

    coefficients: Array
    roots: tuple[Array, ...]

    def drawn(self, rng: np.random.Generator) -> Array:
        """Coefficients as they may be, from their posterior."""
        found = self.coefficients
        for root in self.roots:
            found = found + np.einsum("kij,kj->ki", root, rng.standard_normal(found.shape))
        return found


def described(X: Array, Z: Array, pieces: int) -> Described:
    """Rows and items for the model, their columns centred and of deviation 1, without far outliers."""
    n, m = X.shape
    steps = (np.arange(n)[:, None] * pieces // n >= np.arange(1, pieces)).astype(np.float64)
    rows = np.hstack([np.ones((n, 1)), _standard(X), steps])
    groups = np.concatenate([np.arange(1 + m), np.full(pieces - 1, 1 + m)])
    return Described(rows, np.hstack([np.ones((len(Z), 1)), _standard(Z)]), groups, pieces - 1)


def _standard(X: Array) -> Array:
    spread = X.std(axis=0)
    return np.asarray(np.clip((X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0), -4.0, 4.0))


def means(rows: Array, coefficients: Array) -> Array:
    """The mean reward of every item for every row, of shape (n, K)."""
    return _mean(rows @ coefficients.T)


def fit(told: Described, rewards: Array, chosen: NDArray[np.int64], probabilities: Array) -> RewardModel:
    """The model of a log.

    Parameters
    ----------
    told : Described
    rewards : ndarray of shape (n,)
        In [0, 1].
    chosen : ndarray of shape (n,)
        Numbers of items.
    probabilities : ndarray of shape (n,)
        With which they were chosen.
    """
    Y, Z = told.rows, told.items
    K, p = len(Z), Y.shape[1]
    pooled = _pooled(np.hstack([Y, Z[chosen, 1:]]), rewards)
    offset = Y @ pooled[:p] + Z[chosen, 1:] @ pooled[p:]
    mu = _mean(offset)
    dispersion = min(1.0, float(((rewards - mu) ** 2).sum() / (mu * (1 - mu)).sum()))
    weights = np.full(len(rewards), 1.0 / max(dispersion, 1e-3))
    own, spread = _effects(Y, chosen, rewards, weights, offset, Z, told.groups)

    # weights of every item that add up to what they are worth
    inverse = 1.0 / probabilities
    total, square = np.bincount(chosen, inverse, K), np.bincount(chosen, inverse**2, K)
    weights = weights * inverse * (total / np.maximum(square, 1e-300))[chosen]
    q = p - told.steps
    offset = offset + (Y * own[chosen]).sum(axis=1)
    wrong, doubt = _effects(Y[:, :q], chosen, rewards, weights, offset, np.empty((K, 0)), told.groups[:q])

    coefficients = own + pooled[:p]
    coefficients[:, 0] += Z[:, 1:] @ pooled[p:]
    coefficients[:, :q] += wrong
    wide = np.zeros((K, p, p))
    wide[:, :q, :q] = doubt
    roots = [np.asarray(np.linalg.cholesky(one)) for one in (spread, wide + 1e-12 * np.eye(p))]
    return RewardModel(coefficients, tuple(roots))


def _pooled(X: Array, rewards: Array) -> Array:
    """A logistic regression for all rows, with a ridge of one row."""
    beta = np.zeros(X.shape[1])
    rate = float(np.clip(rewards.mean(), 1e-3, 1 - 1e-3))
    beta[0] = np.log(rate / (1 - rate))
    ridge = np.eye(len(beta))
    ridge[0, 0] = 1e-3
    for _ in range(8):
        mu = _mean(X @ beta)
        gradient = X.T @ (rewards - mu) - ridge @ (beta * (np.arange(len(beta)) > 0))
        step = np.linalg.solve((X.T * (mu * (1 - mu))) @ X + ridge, gradient)
        beta = beta + step / max(1.0, float(np.abs(step).max()) / 2)
    return beta


def _effects(
    Y: Array,
    chosen: NDArray[np.int64],
    rewards: Array,
    weights: Array,
    offset: Array,
    Z: Array,
    groups: NDArray[np.int64],
) -> tuple[Array, Array]:
    """Posterior means and covariances of every item's coefficients beside ``offset``; without Z, around 0."""
    K, p = len(Z), Y.shape[1]
    upper = np.triu_indices(p)
    found, centre = np.zeros((K, p)), np.zeros((K, p))
    variances = np.full(int(groups.max()) + 1, 0.25)
    covariances: Array = np.zeros((K, p, p))
    for _ in range(_ROUNDS):
        mu = _mean(offset + (Y * found[chosen]).sum(axis=1))
        curve, miss = weights * mu * (1 - mu), weights * (rewards - mu)
        A = np.zeros((K, p, p))
        for i, j in zip(*upper, strict=True):
            A[:, i, j] = A[:, j, i] = np.bincount(chosen, curve * Y[:, i] * Y[:, j], K)
        gradient = np.stack([np.bincount(chosen, miss * Y[:, j], K) for j in range(p)], axis=1)
        precision = 1.0 / variances[groups]
        A[:, np.arange(p), np.arange(p)] += precision
        covariances = np.asarray(np.linalg.inv(A), dtype=np.float64)
        step = np.einsum("kij,kj->ki", covariances, gradient - precision * (found - centre))
        found = found + step / np.maximum(1.0, np.abs(step).max(axis=1, keepdims=True) / 2)
        if Z.shape[1]:
            # a ridge of one item, but for the constant, which is the mean of all items
            ridge = np.eye(Z.shape[1])
            ridge[0, 0] = 1e-9
            centre = Z @ np.linalg.solve(Z.T @ Z + ridge, Z.T @ found)
        told = 1.0 - np.diagonal(covariances, axis1=1, axis2=2) * precision
        for group in range(len(variances)):
            mine = groups == group
            square, worth = float(((found - centre)[:, mine] ** 2).sum()), float(told[:, mine].sum())
            variances[group] = np.clip(square / max(worth, 1e-9), _LEAST, 25.0)
    return found, covariances


def _mean(scores: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(scores, -_MOST, _MOST))))

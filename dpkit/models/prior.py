"""What is known of θ before any data: a normal prior N(mean, precision⁻¹), from public knowledge.

A prior that was fitted on the data that are to be protected would give them away: no budget covers it. It may come from
another study, from an expert, or from what was released before, at a price that was paid there.

Where it is known how precise a noisy estimate is, along eigenvectors uᵢ of its matrix, :func:`posterior` adds up: with
gains gᵢ and precisions pᵢ (so that uᵢᵀb·gᵢ/pᵢ is the estimate of uᵢᵀθ), the posterior has the precision
Λ = Σpᵢuᵢuᵢᵀ + P and the mean Λ⁻¹(Σgᵢ(uᵢᵀb)uᵢ + Pm), cut to the ball ‖θ‖ ≤ S in the norm of Λ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import integer, nonnegative, positive
from dpkit.models.ellipsoid import ball_constrained_minimizer

__all__ = ["Posterior", "Prior", "PriorLike", "checked_prior", "posterior"]


# mean, and precision
PriorLike = tuple[ArrayLike, ArrayLike]


@dataclass(frozen=True)
class Prior:
    """N(mean, precision⁻¹).

    Attributes
    ----------
    mean : ndarray of shape (d,)
    precision : ndarray of shape (d, d)
        Positive definite.

    Examples
    --------
    >>> from dpkit.models import Prior
    >>> Prior(np.zeros(2), np.diag([4.0, 1.0])).covariance.diagonal().tolist()
    [0.25, 1.0]
    """

    mean: Array
    precision: Array

    @property
    def covariance(self) -> Array:
        """precision⁻¹."""
        return np.asarray(np.linalg.inv(self.precision))

    @property
    def root(self) -> Array:
        """precision^(−1/2), symmetric."""
        eigenvalues, U = np.linalg.eigh(self.precision)
        return np.asarray((U / np.sqrt(eigenvalues)) @ U.T)

    @classmethod
    def of(cls, given: tuple[Array, Array] | None, dim: int, precision: float, theta_bound: float) -> Prior:
        """What was given, or a mean of 0 with this ``precision`` in every direction.

        Since ‖θ‖ ≤ S, a direction has a precision of at least 1/S²: where less was given, it is raised to that.

        Parameters
        ----------
        given : (mean, precision), optional
            From :func:`checked_prior`.
        dim : int
            d.
        precision, theta_bound : float
            The default, at least 0, and S.

        Raises
        ------
        ValueError, TypeError
            For a parameter out of range.

        Examples
        --------
        >>> from dpkit.models import Prior
        >>> Prior.of(None, 2, 3.0, theta_bound=2.0).precision.tolist()
        [[3.0, 0.0], [0.0, 3.0]]
        """
        dim = integer("dim", dim, at_least=1)
        precision, theta_bound = nonnegative("precision", precision), positive("theta_bound", theta_bound)
        if given is None:
            return cls(np.zeros(dim), precision * np.eye(dim))
        mean, P = given
        eigenvalues, U = np.linalg.eigh(P * np.eye(dim) if P.ndim == 0 else P)
        return cls(mean, (U * np.maximum(eigenvalues, theta_bound**-2)) @ U.T)


@dataclass(frozen=True)
class Posterior:
    """Mean, covariance Λ⁻¹, and the symmetric root Λ^(−1/2).

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.models import Posterior
    >>> belief = Posterior(mean=np.zeros(2), covariance=np.eye(2), root=np.eye(2))
    >>> belief.mean + belief.root @ [1.0, -1.0]  # one draw, from standard normal numbers
    array([ 1., -1.])
    """

    mean: Array
    covariance: Array
    root: Array


def posterior(prior: Prior, precisions: Array, U: Array, evidence: Array, radius: float) -> Posterior:
    """The prior together with an estimate.

    Parameters
    ----------
    prior : Prior
    precisions : ndarray of shape (d,)
        p ≥ 0, of the estimate along the columns of U.
    U : ndarray of shape (d, d)
        Orthogonal.
    evidence : ndarray of shape (d,)
        p times the estimate, in the basis U.
    radius : float
        S, positive.

    Raises
    ------
    ValueError
        If ``radius`` is not positive.

    Examples
    --------
    One direction was seen, with the precision of the prior: there the mean is half way.

    >>> from dpkit.models import Prior, posterior
    >>> prior = Prior(np.array([1.0, 1.0]), 2.0 * np.eye(2))
    >>> found = posterior(prior, np.array([2.0, 0.0]), np.eye(2), np.array([0.0, 0.0]), radius=3.0)
    >>> found.mean.tolist(), found.covariance.diagonal().tolist()
    ([0.5, 1.0], [0.25, 0.5])
    """
    radius = positive("radius", radius)
    eigenvalues, V = np.linalg.eigh((U * precisions) @ U.T + prior.precision)
    mean = ball_constrained_minimizer(eigenvalues, V, U @ evidence + prior.precision @ prior.mean, radius)
    return Posterior(mean, (V / eigenvalues) @ V.T, (V / np.sqrt(eigenvalues)) @ V.T)


def checked_prior(prior: Any, dim: int, theta_bound: float) -> tuple[Array, Array] | None:
    """A pair (mean, precision) of arrays of float64, the second of shape () or (d, d); None stays None.

    Raises
    ------
    ValueError
        If it is no such pair: with mean finite, of shape (d,) and no longer than S, precision finite, not 0, and
        symmetric positive semidefinite.

    Examples
    --------
    >>> from dpkit.models import checked_prior
    >>> checked_prior(([0.5, 0.0], 4.0), dim=2, theta_bound=1.0)
    (array([0.5, 0. ]), array(4.))
    """
    if prior is None:
        return None
    if not isinstance(prior, (tuple, list)) or len(prior) != 2:
        raise ValueError(f"prior must be a pair (mean, precision) or None, got a {type(prior).__name__}")
    mean, precision = (_numbers(name, value) for name, value in zip(("mean", "precision"), prior, strict=True))
    if mean.shape != (dim,):
        raise ValueError(f"prior[0], the mean, must have shape ({dim},), got shape {mean.shape}")
    if precision.shape not in ((), (dim, dim)):
        raise ValueError(
            f"prior[1], the precision, must be a number or have shape ({dim}, {dim}), got shape {precision.shape}"
        )
    length = float(np.linalg.norm(mean))
    if length > theta_bound * (1.0 + 1e-9):
        raise ValueError(
            f"prior[0], the mean, must have norm at most theta_bound={theta_bound:g}, got norm {length:.6g}: "
            "shorten it, or make theta_bound larger"
        )
    if precision.ndim == 0:
        if not precision > 0:
            raise ValueError(f"prior[1], the precision (1/variance), must be positive, got {float(precision):g}")
        return mean, precision
    size = float(np.abs(precision).max())
    if not np.abs(precision - precision.T).max() <= 1e-9 * size:
        raise ValueError("prior[1], the precision, must be symmetric, got entries that differ from their mirror images")
    least = float(np.linalg.eigvalsh(precision)[0])
    if least < -1e-9 * size or size == 0.0:
        raise ValueError(
            f"prior[1], the precision, must be positive semidefinite and not 0, got a smallest eigenvalue {least:g}"
        )
    return mean, 0.5 * (precision + precision.T)


def _numbers(name: str, value: Any) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"prior's {name} must not be masked: fill it, got a masked array")
    try:
        found = np.array(value)
    except ValueError as error:
        raise ValueError(f"prior's {name} must be an array of numbers, got rows of several lengths") from error
    if found.dtype.kind not in "fiu" or not np.isfinite(found := found.astype(np.float64)).all():
        raise ValueError(f"prior's {name} must hold finite real numbers, got others or an array of type {found.dtype}")
    # squares of what is larger overflow
    if float(np.abs(found).max(initial=0.0)) > math.sqrt(np.finfo(np.float64).max):
        raise ValueError(f"prior's {name} must hold numbers below 1e154, got {float(np.abs(found).max()):g}")
    found.setflags(write=False)
    return np.asarray(found)

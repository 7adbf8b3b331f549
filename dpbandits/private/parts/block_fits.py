"""Parameters of fixed arms, from the sums that they left: a fit of E[r | x] = μ(xᵀθ_k) without a single record.

All of this is post-processing. What is known of arm k is b_k = Σψgx with noise, g = r − c₀, and H_k = Σψx xᵀ over the
rounds that it was played; see :mod:`dpbandits.private.parts.block_model`. The expectation of b_k is

    F(θ_k) = Σψ(μ(xᵀθ_k) − c₀)x.

The contexts are not known, but H_k holds the moments of their law, in which each counts ψ times: x₀ = 1/√2 is constant,
so W = Σψ = 2H₀₀, the mean x̄ is √2·H₀/W, and the covariance C is H/W − x̄x̄ᵀ. For a normal law with these moments, u = xᵀθ
has the mean ū = x̄ᵀθ and the variance v = θᵀCθ, the part of x that u tells is X(u) = x̄ + Cθ(u − ū)/v, and

    F(θ) = W·E[(μ(u) − c₀)·X(u)],    Ḟ(θ) = W·E[μ̇(u)·(X(u)X(u)ᵀ + C − Cθ(Cθ)ᵀ/v)]

are integrals over u alone, which is what the nodes of Gauss and Hermite are for. If μ is linear, F(θ) = F(0) + Hθ
whatever the law of the contexts.

With noise of variance s² in each entry of b, and B² for the variance of a reward, which it bounds, b_k has the
covariance V = s²·I + B²·H_k. θ_k is the least of (b − F(θ))ᵀV⁻¹(b − F(θ)) + (θ − m)ᵀΛ(θ − m), and its covariance
(ḞV⁻¹Ḟ + Λ)⁻¹.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from accounting.arrays import Array
from dpkit.geometry import svec
from dpkit.models.links import Link

__all__ = ["Collected", "posteriors", "prior_variance"]


_NODES, _WEIGHTS = hermegauss(11)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
# of a fit at most; it ends where the last one took less than this share off every arm's sum
_STEPS, _SETTLED = 20, 1e-5


@dataclass(frozen=True)
class Collected:
    """What K arms collected.

    Attributes
    ----------
    values, U : (K, d) and (K, d, d) ndarray
        Eigenvalues λ > 0 and vectors of H_k.
    b : (K, d) ndarray
        The noisy b_k.
    error : (K, d) ndarray
        The eigenvalues of V.
    centre : float
        c₀.
    """

    values: Array
    U: Array
    b: Array
    error: Array
    centre: float

    def expected(self, theta: Array, link: Link) -> tuple[Array, Array]:
        """F(θ_k) and Ḟ(θ_k), of shapes (K, d) and (K, d, d)."""
        H = self._with(self.values)
        W = 2.0 * H[:, 0, 0]
        mean = math.sqrt(2.0) * H[:, :, 0] / W[:, None]
        C = H / W[:, None, None] - mean[:, :, None] * mean[:, None, :]
        along = np.einsum("kij,kj->ki", C, theta)
        variance = np.maximum(np.einsum("ki,ki->k", along, theta), 1e-12)
        steps = np.sqrt(variance)[:, None] * _NODES
        u = np.einsum("ki,ki->k", mean, theta)[:, None] + steps
        slope = along / variance[:, None]
        X = mean[:, None, :] + steps[:, :, None] * slope[:, None, :]
        rest = C - along[:, :, None] * slope[:, None, :]
        gains, slopes = _WEIGHTS * (link.mean(u) - self.centre), _WEIGHTS * link.derivative(u)
        F = np.einsum("kq,kqi->ki", gains, X)
        jacobian = (X * slopes[:, :, None]).transpose(0, 2, 1) @ X + slopes.sum(axis=1)[:, None, None] * rest
        return W[:, None] * F, W[:, None, None] * jacobian

    def weighed(self, theta: Array, link: Link) -> tuple[Array, Array, Array]:
        """What b says next to ``theta``: ḞV⁻¹(b − F), ḞV⁻¹Ḟ, and the misfit (b − F)ᵀV⁻¹(b − F)."""
        F, jacobian = self.expected(theta, link)
        precise = self._with(1.0 / self.error)
        off = self.b - F
        seen = jacobian @ precise
        misfit = np.einsum("ki,kij,kj->k", off, precise, off)
        return np.einsum("kij,kj->ki", seen, off), seen @ jacobian, misfit

    def _with(self, eigenvalues: Array) -> Array:
        return np.asarray((self.U * eigenvalues[:, None, :]) @ self.U.transpose(0, 2, 1))


def prior_variance(arms: Collected, link: Link, theta: Array, mean: Array, most: float, margin: float) -> float:
    """τ², the variance of an entry of θ_k, pooled over all arms, plus ``margin`` standard errors; at most ``most``.

    Next to ``theta``, a = ḞV⁻¹(b − F + Ḟ(θ − m)) is I(θ_k − m) + N(0, I), I = ḞV⁻¹Ḟ: so Σ‖a‖² − Σtr I has the mean
    τ²Σ tr I², and where τ² is small the variance 2Σ tr I². A τ² that is too small shrinks what is known to nothing, one
    that is too large costs little: hence the margin.
    """
    gradient, information, _ = arms.weighed(theta, link)
    a = gradient + np.einsum("kij,kj->ki", information, theta - mean)
    scale = max(float((information**2).sum()), 1e-300)
    found = (float((a**2).sum()) - float(np.trace(information, axis1=1, axis2=2).sum())) / scale
    return min(most, max(found, 0.0) + margin * math.sqrt(2.0 / scale))


def posteriors(arms: Collected, link: Link, start: Array, mean: Array, precision: Array) -> tuple[Array, Array]:
    """θ_k (K, d) and their covariances (K, D), for the prior N(mean, precision⁻¹) of every arm.

    By the steps of Gauss and Newton from ``start``, of all arms at once: a step that makes the sum larger is not taken,
    and the arm's next one is a quarter as long.
    """

    def at(theta: Array) -> tuple[Array, Array, Array]:
        gradient, information, misfit = arms.weighed(theta, link)
        off = theta - mean
        pulled = off @ precision
        return gradient - pulled, information + precision, misfit + np.einsum("ki,ki->k", pulled, off)

    theta, length = start, np.ones(len(start))
    gradient, curvature, value = at(theta)
    for _ in range(_STEPS):
        step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
        tried = theta + length[:, None] * step
        with np.errstate(over="ignore", invalid="ignore"):  # a step too far, under a link without bound
            found = at(tried)
        better = found[2] <= value * (1.0 + 1e-9)
        settled = bool((better & (value - found[2] <= _SETTLED * (1.0 + value))).all())
        theta = np.where(better[:, None], tried, theta)
        gradient = np.where(better[:, None], found[0], gradient)
        curvature = np.where(better[:, None, None], found[1], curvature)
        value = np.where(better, found[2], value)
        if settled:
            break
        length = np.where(better, np.minimum(1.0, 2.0 * length), 0.25 * length)
    return theta, svec(np.linalg.inv(curvature))

"""Fixed arms with a parameter each: what their records would be under a known policy.

All of this is post-processing: pure functions of what was released and of fresh draws. Symmetric matrices are given as
half-vectors (``dpkit.geometry.svec``) of D = d(d + 1)/2 entries, in which noise is the same in every entry, and
features are x = (1, z)/√2 with ‖z‖ ≤ 1.

What a policy knows of the rewards of arm k is b_k = Σψgx and H_k = Σψx xᵀ over the rounds that it played k, ψ = 1/‖x‖.
H_k is needed as precisely as can be, and there is more to know about it than its own noisy sum says: the policy of
every batch is known, so H_k follows from the law of the contexts; and that is learned from the *total* M = ΣH_k, which
has one matrix's noise and not K. So

1. :func:`contexts` draws contexts from the law with the released moments;
2. :func:`replay` lets the batch's policy choose for them, and sums what each arm would collect;
3. :func:`corrected` moves that towards the released H_k as far as the two differ by more than noise.

The parameters follow from H_k and b_k: :mod:`dpbandits.private.parts.block_fits`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpbandits.policy.choices import gap_shares
from dpkit.geometry import smat
from dpkit.geometry.half_vector import svec_of_rows
from dpkit.models.links import Link, get_link
from dpkit.moments.blocks import features

__all__ = [
    "Play",
    "contexts",
    "corrected",
    "proportional",
    "replay",
]


_SMALLEST_VARIANCE = 1e-4
_LINEAR = get_link("linear")


def contexts(total: Array, fourth: float, count: int, rng: np.random.Generator) -> Array:
    """Draws of z from an elliptical law with given moments, cut to the unit ball.

    Parameters
    ----------
    total : (D,) ndarray
        M = Σψ·x xᵀ with noise. Its corner is Σψ/2; so M/(2·corner) are the moments of x under the law of the
        contexts in which each counts ψ times.
    fourth : float
        Σψ‖z‖⁴ with noise.
    count : int
        How many.
    rng : numpy.random.Generator

    Notes
    -----
    z = μ + R·C^{1/2}·√m·u for a uniform direction u and an independent radius with E R² = 1 and E R⁴ = κ. Then
    E‖z‖⁴ = ‖μ‖⁴ + 2‖μ‖² tr C + 4μᵀCμ + κ·m/(m + 2)·((tr C)² + 2 tr C²), from which κ is found.

    ‖z‖ ≤ 1 says that radii are bounded, and arms that are best for few are best at the edge: so R² is a multiple of a
    Beta variable, with R²·tr C ≤ 1 − ‖μ‖². If C is a multiple of the identity and μ = 0, any law of ‖z‖² that is Beta
    is met exactly, as that of a uniform point of the ball is.
    """
    M = smat(total)
    weight = max(2.0 * M[0, 0], 1.0)
    mean = 2.0 * M[0, 1:] / weight
    mean /= max(1.0, float(np.linalg.norm(mean)) / 0.99)
    variances, U = np.linalg.eigh(2.0 * M[1:, 1:] / weight - np.outer(mean, mean))
    m, square = len(mean), float(mean @ mean)
    variances = np.clip(variances, _SMALLEST_VARIANCE, 1.0)
    variances *= min(1.0, (1.0 - square) / variances.sum())  # E‖z‖² ≤ 1
    trace = float(variances.sum())
    known = square**2 + 2.0 * square * trace + 4.0 * float((mean @ U) ** 2 @ variances)
    kurtosis = (fourth / weight - known) * (m + 2) / (m * (trace**2 + 2.0 * float(variances @ variances)))
    direction = rng.standard_normal((count, m))
    direction *= math.sqrt(m) / np.linalg.norm(direction, axis=1, keepdims=True)
    # R² = y/share, y ~ Beta in (0, 1) of mean share and variance (κ − 1)·share², which lies below share·(1 − share)
    share = trace / max(1.0 - square, 1.02 * trace)
    widest = share * (1.0 - share)
    variance = min(max((kurtosis - 1.0) * share**2, 1e-3 * widest), 0.9 * widest)
    size = widest / variance - 1.0
    # by two Gamma variables, which the secure source has
    inside, outside = (rng.standard_gamma(part * size, count) for part in (share, 1.0 - share))
    y = np.divide(inside, inside + outside, out=np.full(count, share), where=inside + outside > 0.0)
    direction *= np.sqrt(y / share)[:, None]
    z = mean + (direction * np.sqrt(variances)) @ U.T
    return np.asarray(z / np.maximum(1.0, np.linalg.norm(z, axis=1, keepdims=True)))


@dataclass(frozen=True)
class Play:
    """How the rounds of a batch chose among K arms: by posterior draws, by gaps of means, or all alike.

    Attributes
    ----------
    theta, covariance : (K, d) and (K, D) ndarray
        θ_k and P_k.
    width : float
        Choices were the argmax of xᵀθ_k + width·‖x‖_{P_k}·ξ_k, ξ_k standard normal; all alike if it is infinite.
    rate : float, optional
        Choices were drawn by the gaps of μ(xᵀθ_k), at this rate (``choices.inverse_gap``), and not by ``width``.
    link : Link
        μ.
    """

    theta: Array
    covariance: Array
    width: float
    rate: float | None = None
    link: Link = _LINEAR

    def scores(self, x: Array, absent: NDArray[np.bool_], rng: np.random.Generator) -> Array:
        """(n, K), of which the argmax is a choice for each of the features x (n, d)."""
        if self.rate is not None:
            means = np.array(self.link.mean(x @ self.theta.T))
            means[absent] = -np.inf
            # the largest of p_k/E_k with exponential E_k
            return np.asarray(gap_shares(means, self.rate) / rng.standard_exponential(absent.shape))
        found = rng.standard_normal(absent.shape)
        if math.isfinite(self.width):
            found *= self.width * np.sqrt(np.maximum(svec_of_rows(x) @ self.covariance.T, 0.0))
            found += x @ self.theta.T
        found[absent] = -np.inf
        return found


def replay(
    z: Array,
    play: Play,
    standing: tuple[NDArray[np.int64], NDArray[np.int64]],
    rounds: tuple[int, int],
    rng: np.random.Generator,
) -> Array:
    """(K, D): the mean over draws z of x xᵀ·1{arm k is chosen}, for the policy that played a batch.

    Parameters
    ----------
    z : (n, m) ndarray
        Contexts, spread evenly over the batch.
    play : Play
        How it chose, among the arms that stood.
    standing : pair of (K,) ndarray
        In which round each arm came, and in which it went (−1: it did not).
    rounds : (int, int)
        The first round of the batch, and the first after it.
    rng : numpy.random.Generator
    """
    x = features(z)
    born, died = standing
    first, last = rounds
    times = (first + (last - first) * (np.arange(len(z)) + 0.5) / len(z))[:, None]
    chosen = play.scores(x, (times < born) | ((died >= 0) & (times >= died)), rng).argmax(axis=1)
    order = np.argsort(chosen, kind="stable")
    arms, starts = np.unique(chosen[order], return_index=True)
    found = np.zeros((len(born), x.shape[1] * (x.shape[1] + 1) // 2))
    found[arms] = np.add.reduceat(svec_of_rows(x[order]), starts, axis=0) / len(z)
    return found


def proportional(released: Array, total: Array) -> Array:
    """(K, D): the multiple h_k·M ≥ 0 of the total that is closest to each noisy H_k.

    For more arms than can be replayed: as if an arm's contexts were those of all.
    """
    share = np.maximum(released @ total, 0.0) / max(float(total @ total), 1e-300)
    return np.asarray(share[:, None] * total)


def corrected(model: Array, released: Array, noise: Array) -> tuple[Array, Array]:
    """Eigenvalues (K, d) and vectors (K, d, d) of H_k: the model's, moved towards what was released.

    Parameters
    ----------
    model, released : (K, D) ndarray
        What a model says of H_k, and its noisy sum.
    noise : (K,) ndarray
        The standard deviation of the latter's entries.

    Notes
    -----
    Misfits are taken for normal: in the eigenvectors of the model, where it has the eigenvalues λ, entry ij has the
    variance η√(λ_iλ_j), half of it off the diagonal as that of the noise is. (In proportion to λ_iλ_j arms that are
    seldom played would hardly be moved, and alike for all arms too much, by noise.) η is the weighted mean over all
    entries of all arms, less one standard error: where nothing but noise is seen the model is left as it is. Each entry
    moves by Wiener's weight, the share of its variance that is not noise; and in no direction H_k becomes less than a
    quarter or more than four times what the model says.
    """
    H = smat(model)
    d = H.shape[-1]
    # where the model has nothing, a trace of the average stands for it: the whitening below divides by it
    floor = 1e-3 * max(1.0, float(np.trace(H.sum(axis=0))) / (d * len(H)))
    values, U = np.linalg.eigh(H + floor * np.eye(d))
    values = np.maximum(values, floor)
    misfit = _inner(U, smat(released - model))
    half = 0.5 * (1.0 + np.eye(d))
    noises = (noise**2)[:, None, None] * half
    roots = np.sqrt(values)
    whole = roots[:, :, None] * roots[:, None, :]
    # in proportion to λ_iλ_j tables of labels would be better off, and contexts that are categories worse
    shapes = whole * half
    # nothing was released of an arm that came under shuffling since the last batch began: no noise, and no misfit
    weights = np.divide(shapes, noises**2, out=np.zeros_like(shapes), where=noises > 0.0)
    scale = max(float((weights * shapes).sum()), 1e-300)
    found = float(((misfit**2 - noises) * weights).sum()) / scale
    eta = found - math.sqrt(2.0 * float((weights**2 * noises**2).sum())) / scale
    if eta > 0.0:
        moved = values[:, :, None] * np.eye(d) + eta * shapes / (eta * shapes + noises) * misfit
        ratios, V = np.linalg.eigh(moved / whole)
        clipped = (V * np.clip(ratios, 0.25, 4.0)[:, None, :]) @ V.transpose(0, 2, 1)
        values, W = np.linalg.eigh(clipped * whole)
        U = U @ W
    return np.maximum(values, 1e-9), U


def _inner(U: Array, H: Array) -> Array:
    return np.asarray(U.transpose(0, 2, 1) @ H @ U)

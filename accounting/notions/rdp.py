"""Rényi differential privacy: the curve α ↦ ε_α of a description over any real orders α > 1 (Mironov 2017).

Curves add under adaptive composition. The conversion to (ε, δ) is Proposition 12 of Canonne, Kamath & Steinke (2020),

    ε = ε_α + ln(1 − 1/α) − (ln δ + ln α)/(α − 1),

valid at every order, hence at the best one. (α − 1)ε_α and (α − 1)ln(α − 1) − α ln α are convex in α, so ε, a convex
function over α − 1 > 0, has a single valley: the order is optimised over the reals, without a grid to run out of.

Where the curves come from, with c = α − ½:

* ε-DP: every ε-DP mechanism is a function of binary randomized response (Kairouz, Oh & Viswanath 2015), whose curve
  ln(cosh(cε)/cosh(ε/2))/(α − 1) is exact, and never above the customary min(ε²α/2, ε)
  (see :mod:`accounting.notions.zcdp`);
* k-ary randomized response: from its two pmfs;
* Laplace, θ = 1/z: ln(α/(2α − 1)·e^((α−1)θ) + (α − 1)/(2α − 1)·e^(−αθ))/(α − 1) (Mironov 2017, Proposition 6). It is
  convex in θ and 0 at 0, so the shift may be spread over coordinates in any way;
* Gumbel report-noisy-max: its loss has range ε, so it is at least as private as some pair of coins whose log-odds w and
  w + ε differ by ε. With S(x) = ln(1 + e^x) their curve is S(w + αε) − αS(w + ε) + (α − 1)S(w) over α − 1. Its
  derivative in u = e^w has a *linear* numerator, so the worst w is known in closed form;
* shuffled messages of a local randomizer: from the pair of :mod:`accounting.amplification.shuffling`;
* objective perturbation: :mod:`accounting.notions.perturbed_minimum`;
* the best of a random number of runs: :mod:`accounting.amplification.selection`;
* Poisson-subsampled pure DP: ε′ = ln(1 + q(e^ε − 1)) is pure again. Subsampled Gaussian:
  :mod:`accounting.amplification.subsampling`.
"""

from __future__ import annotations

import math
from contextlib import suppress
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from accounting.amplification.selection import best_of_poisson_runs, best_of_runs
from accounting.amplification.shuffled_binomial import central_rdp
from accounting.amplification.shuffling import MOST_LOCAL_EPSILON, shuffled_losses
from accounting.amplification.subsampling import subsampled_gaussian_rdp
from accounting.arrays import Array
from accounting.conversions import best_delta, best_epsilon
from accounting.errors import UnsupportedRelease
from accounting.notions.gdp import gdp
from accounting.notions.perturbed_minimum import divergences
from accounting.notions.pure import pure
from accounting.notions.zcdp import bounded_range_rho, exp_remainder, randomized_response
from accounting.releases.base import Composed, Own, Parallel, Release, known, weaker
from accounting.releases.choice import NoisyMax, RandomizedResponse, UnaryEncoding
from accounting.releases.guarantees import ZCDP, PureDP
from accounting.releases.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, is_gaussian
from accounting.releases.perturbation import ObjectivePerturbation
from accounting.releases.sampling import FixedSizeSubsampled, PoissonSubsampled
from accounting.releases.selection import BestOfPoissonRuns, BestOfRuns
from accounting.releases.shuffling import CountsInWindows, LocalShuffled

__all__ = ["delta", "epsilon", "rdp"]


def rdp(release: Release, orders: ArrayLike) -> Array:
    """The Rényi curve ε_α of ``release`` at every one of ``orders``.

    Parameters
    ----------
    release : Release
        A description.
    orders : array_like
        Real orders > 1, of any shape.

    Returns
    -------
    ndarray
        Of the shape of ``orders``.

    Raises
    ------
    UnsupportedRelease
        If no curve is proved for a part of the description.

    Examples
    --------
    >>> from accounting import Gaussian, Laplace, PoissonSubsampled, rdp
    >>> rdp(100 * Gaussian(10.0) + Laplace(2.0), [1.5, 10.0]).round(6)
    array([0.905978, 5.42869 ])
    >>> rdp(PoissonSubsampled(Gaussian(4.0), rate=0.1), [8]).round(9)
    array([0.0026745])
    """
    alphas = np.asarray(orders, dtype=np.float64)
    if not np.all((alphas > 1) & np.isfinite(alphas)):
        raise ValueError(f"orders must be finite and greater than 1, got orders={orders!r}")
    with np.errstate(under="ignore"):
        return curve(known(release), alphas.ravel()).reshape(alphas.shape)


def curve(release: Release, orders: Array) -> Array:
    """As :func:`rdp`, of a known description and for orders that were checked; shape (m,)."""
    match release:
        case Gaussian(noise_multiplier=z) | DiscreteGaussian(noise_multiplier=z):
            return orders * (0.5 / z**2)
        case ZCDP(rho=rho):
            return orders * rho
        case Laplace(noise_multiplier=z):
            return _laplace(np.array(1.0 / z), orders)
        case DiscreteLaplace(noise_multiplier=z, shift=shift) if shift is not None:
            return _discrete_laplace(z, int(shift), orders)
        case RandomizedResponse(epsilon=eps, categories=k):
            return randomized_response(eps, k, orders)
        case UnaryEncoding(epsilon=eps):
            return randomized_response(eps, release.as_many_as, orders)
        case NoisyMax(epsilon=eps, noise="gumbel"):
            return _bounded_range(eps, orders)
        case PureDP(epsilon=eps):
            return randomized_response(eps, 2, orders)
        case PoissonSubsampled():
            return _subsampled(release, orders)
        case FixedSizeSubsampled():
            return randomized_response(pure(release), 2, orders)
        case CountsInWindows(rounded=True, mu=mu):
            return orders * (0.5 * mu**2)  # what is μ-GDP is (μ²/2)-zCDP (Dong, Roth & Su 2022, appendix B)
        case CountsInWindows():
            return central_rdp(release.trials, release.shift_norm, release.coordinates, orders)
        case LocalShuffled(epsilon=eps) if eps > MOST_LOCAL_EPSILON:
            return randomized_response(eps, 2, orders)
        case LocalShuffled(epsilon=eps, users=users):
            return _shuffled(eps, int(users), orders)
        case BestOfRuns(release=inner, stop=stop, shape=eta):
            return best_of_runs(lambda orders: curve(inner, orders), orders, stop, eta, release.mean)
        case BestOfPoissonRuns(release=inner, mean=mean):
            run = _Itself(inner)
            return best_of_poisson_runs(
                lambda orders: curve(inner, orders), lambda epsilon: _delta_of_a_run(run, epsilon), orders, mean
            )
        case ObjectivePerturbation(noise_multiplier=z, curvature=curvature):
            return divergences(orders, 1.0 / z, curvature, replaced=release.replaced)
        case Composed(parts=parts):
            laplace = [(1.0 / part.noise_multiplier, count) for part, count in parts if isinstance(part, Laplace)]
            others = ((part, count) for part, count in parts if not isinstance(part, Laplace))
            total = sum((count * curve(part, orders) for part, count in others), np.zeros_like(orders))
            if laplace:  # all scales at once
                thetas, counts = np.array(laplace, dtype=np.float64).T
                total = total + counts @ _laplace(thetas[:, None], orders)
            return np.asarray(total)
        case Parallel(branches=branches):
            return np.asarray(np.max([np.zeros(orders.size), *(curve(branch, orders) for branch in branches)], axis=0))
    if isinstance(release, Own):
        with suppress(UnsupportedRelease):
            return np.asarray(release.renyi(orders), dtype=np.float64)
    return curve(weaker(release, "RDP"), orders)


def epsilon(release: Release, delta: float) -> float:
    """ε at ``delta`` through the Rényi curve, at its best order."""
    one = known(release)
    return best_epsilon(lambda orders: curve(one, orders), delta)


def delta(release: Release, epsilon: float) -> float:
    """δ at ``epsilon`` through the Rényi curve, at its best order."""
    one = known(release)
    return best_delta(lambda orders: curve(one, orders), epsilon)


class _Itself:
    """A description that equals itself alone: others that compare equal may cost more, where they are from outside."""

    def __init__(self, release: Release) -> None:
        self.release = release

    def __hash__(self) -> int:
        return id(self.release)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.release is other.release


@lru_cache(maxsize=1024)  # three in four of what a search of orders asks were asked before, each a search of its own
def _delta_of_a_run(run: _Itself, epsilon: float) -> float:
    return delta(run.release, epsilon)


def _subsampled(release: PoissonSubsampled, orders: Array) -> Array:
    gaussian = is_gaussian(release.release)
    if not gaussian:
        with suppress(UnsupportedRelease):
            return randomized_response(pure(release), 2, orders)
    try:
        if release.adjacency == "replace" and not gaussian:
            raise UnsupportedRelease("only Gaussian noise is known for a swap")
        mu = gdp(release.release)
    except UnsupportedRelease:
        raise UnsupportedRelease(f"the RDP accountant has no bound for {release!r}") from None
    # what is μ-GDP before the sampling is dominated by one Gaussian, also composed
    if mu == 0:
        return np.zeros_like(orders)
    return subsampled_gaussian_rdp(release.rate, 1.0 / mu, orders, swap=release.adjacency == "replace")


def _shuffled(epsilon: float, users: int, orders: Array) -> Array:
    losses, log_p = shuffled_losses(epsilon, users)
    eta = orders - 1
    log_moments = np.logaddexp.reduce(log_p + eta[:, None] * losses, axis=1)
    return np.asarray(np.minimum(randomized_response(epsilon, 2, orders), (log_moments + 1e-12) / eta))


def _laplace(theta: Array, orders: Array) -> Array:
    eta = orders - 1
    x = eta * theta
    near = np.minimum(x, 1.0)
    # A_α − 1 = (α·E(ηθ) + η·E(−αθ))/(2α − 1) with E(x) = e^x − 1 − x: the linear terms have cancelled exactly
    small = np.log1p((orders * exp_remainder(near) + eta * exp_remainder(-orders * theta)) / (2 * orders - 1))
    tail = eta / orders * np.exp(-(2 * orders - 1) * theta)
    large = x + np.log(orders / (2 * orders - 1)) + np.log1p(tail)
    return np.asarray(np.where(x < 1.0, small, large) / eta)


def _discrete_laplace(z: float, shift: int, orders: Array) -> Array:
    """Of one integer that moves by ``shift``, from the two pmfs; at most the curve of pure DP."""
    k, t, eta = shift, z * shift, orders - 1
    b = math.exp(-1.0 / t)
    # A_α = b^((1−α)k)/(1 + b)·(1 + b^((2α−1)k) + (1 − b) Σ r^(x−k)): x ≥ k, x ≤ 0, and 0 < x < k, with r = b^(1−2α)
    log_r = (2 * orders - 1) / t
    between = np.expm1(-(k - 1) * log_r) / np.expm1(-log_r) * np.exp(-log_r)
    rest = np.exp(-(2 * orders - 1) / z) - math.expm1(-1.0 / t) * between
    log_moment = eta / z + np.log1p(rest) - math.log1p(b)
    # what cancels near order 1 is rounded up
    return np.minimum((log_moment + 4e-15 * (1 + eta / z)) / eta, randomized_response(1.0 / z, 2, orders))


def _bounded_range(epsilon: float, orders: Array) -> Array:
    eta = orders - 1
    bound = np.minimum(bounded_range_rho(epsilon) * orders, epsilon)
    with np.errstate(invalid="ignore", divide="ignore"):
        # the stationary u = e^w, both of its parts divided by e^(αε), and the second once more by e^ε
        up = 1 - orders * np.exp(-eta * epsilon) + eta * np.exp(-orders * epsilon)
        down = eta - orders * math.exp(-epsilon) + np.exp(-orders * epsilon)
        w = np.log(up) - np.log(down) - epsilon
        terms = np.logaddexp(0.0, [w + orders * epsilon, w + epsilon, w]) * np.stack([np.ones_like(eta), -orders, eta])
        log_moment = terms.sum(axis=0) + 1e-15 * np.abs(terms).sum(axis=0)
    usable = np.isfinite(log_moment) & (up > 1e-6) & (down > 1e-6 * eta)
    return np.where(usable, np.minimum(bound, log_moment / eta), bound)

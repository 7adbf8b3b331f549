"""Zero-concentrated differential privacy: ρ of a description (Bun & Steinke 2016). ρ adds under composition."""

from __future__ import annotations

import math

from accounting.errors import UnsupportedRelease
from accounting.guarantees import zcdp_delta, zcdp_epsilon
from accounting.releases import (
    ZCDP,
    Composed,
    DiscreteGaussian,
    Gaussian,
    GeneralizedGaussian,
    NoisyMax,
    Parallel,
    PureDP,
    RandomizedResponse,
    Release,
    TreeAggregation,
)

__all__ = ["delta", "epsilon", "zcdp"]


def zcdp(release: Release) -> float:
    """The smallest known ρ such that ``release`` is ρ-zCDP.

    Raises
    ------
    UnsupportedRelease
        If no ρ is proved for a part of the description.

    Examples
    --------
    >>> from accounting import Gaussian, PureDP, zcdp
    >>> zcdp(Gaussian(2.0) + PureDP(1.0))
    0.625
    """
    match release:
        case ZCDP(rho=rho):
            return rho
        case (
            Gaussian(noise_multiplier=z)
            | DiscreteGaussian(noise_multiplier=z)
            | GeneralizedGaussian(noise_multiplier=z)
        ):
            return 0.5 / z**2
        case TreeAggregation(noise_multiplier=z):
            return 0.5 * release.levels / z**2
        case NoisyMax(epsilon=eps, noise="gumbel"):
            return eps**2 / 8  # bounded range (Cesar & Rogers 2021)
        case PureDP(epsilon=eps) | NoisyMax(epsilon=eps) | RandomizedResponse(epsilon=eps):
            return 0.5 * eps**2
        case Composed(parts=parts):
            return math.fsum(count * zcdp(part) for part, count in parts)
        case Parallel(branches=branches):
            return max(map(zcdp, branches), default=0.0)
    raise UnsupportedRelease(f"the zCDP accountant has no bound for {release!r}")


def epsilon(release: Release, delta: float) -> float:
    """ε at ``delta`` through ρ."""
    return zcdp_epsilon(zcdp(release), delta)


def delta(release: Release, epsilon: float) -> float:
    """δ at ``epsilon`` through ρ."""
    return zcdp_delta(zcdp(release), epsilon)

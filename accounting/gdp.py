"""Gaussian differential privacy: μ of a description, exact for every composition of Gaussians.

μ² adds under adaptive composition (Dong, Roth & Su 2022). A pure ε-DP mechanism is μ-GDP with
μ = 2Φ⁻¹(e^ε/(1 + e^ε)): its trade-off curve lies above the two chords from the kink of randomized response,
which lies on the curve G_μ, to G_μ's end points, and G_μ is convex.
"""

from __future__ import annotations

import math

from accounting.errors import UnsupportedRelease
from accounting.guarantees import gdp_delta, gdp_epsilon
from accounting.releases import Composed, Gaussian, Parallel, PureDP, Release, TreeAggregation

__all__ = ["delta", "epsilon", "gdp", "is_exact"]


def gdp(release: Release) -> float:
    """The smallest known μ such that ``release`` is μ-GDP.

    Raises
    ------
    UnsupportedRelease
        If no μ is proved for a part of the description (zCDP, for one, does not imply any).

    Examples
    --------
    >>> from accounting import Gaussian, gdp
    >>> gdp(100 * Gaussian(10.0))
    1.0
    """
    match release:
        case Gaussian(noise_multiplier=z):
            return 1.0 / z
        case TreeAggregation(noise_multiplier=z):
            return math.sqrt(release.levels) / z
        case PureDP(epsilon=eps):
            from scipy.special import ndtri_exp

            # Φ⁻¹(1/(1 + e^ε)) from its logarithm, which is finite for any ε
            return -2.0 * float(ndtri_exp(-eps - math.log1p(math.exp(-eps)))) if eps > 0 else 0.0
        case Composed(parts=parts):
            return math.sqrt(math.fsum(count * gdp(part) ** 2 for part, count in parts))
        case Parallel(branches=branches):
            return max(map(gdp, branches), default=0.0)
    raise UnsupportedRelease(f"the GDP accountant has no bound for {release!r}")


def is_exact(release: Release) -> bool:
    """Whether μ is the whole truth about ``release``: it is made of Gaussians only."""
    match release:
        case Gaussian() | TreeAggregation():
            return True
        case Composed(parts=parts):
            return all(is_exact(part) for part, _ in parts)
        case Parallel(branches=branches):
            return all(map(is_exact, branches))
    return False


def epsilon(release: Release, delta: float) -> float:
    """ε at ``delta`` through μ."""
    return gdp_epsilon(gdp(release), delta)


def delta(release: Release, epsilon: float) -> float:
    """δ at ``epsilon`` through μ."""
    return gdp_delta(gdp(release), epsilon)

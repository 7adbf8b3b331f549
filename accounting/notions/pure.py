"""Pure differential privacy: the sum of the ε's, and what it gives at a positive δ."""

from __future__ import annotations

import math

from accounting.notions.conversions import pure_delta, pure_epsilon
from accounting.releases import (
    BestOfPoissonRuns,
    BestOfRuns,
    Composed,
    FixedSizeSubsampled,
    Laplace,
    LocalShuffled,
    NoisyMax,
    Parallel,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    Release,
    UnaryEncoding,
    weaker,
)
from accounting.releases.stand_ins import OrderedRuns, ThreeLosses, TwoLosses

__all__ = ["delta", "epsilon", "pure"]

_UNIT_ROUNDOFF = 2.0**-52


def pure(release: Release) -> float:
    """The smallest known ε₀ such that ``release`` is ε₀-DP.

    Examples
    --------
    >>> from accounting import PureDP
    >>> from accounting.notions.pure import pure
    >>> pure(3 * PureDP(0.5))
    1.5
    """
    match release:
        case (
            PureDP(epsilon=eps)
            | RandomizedResponse(epsilon=eps)
            | UnaryEncoding(epsilon=eps)
            | NoisyMax(epsilon=eps)
            | LocalShuffled(epsilon=eps)
        ):
            return eps
        case TwoLosses(low=low, high=high):
            return max(low, high)
        case ThreeLosses(high=high):
            return high
        case Laplace(noise_multiplier=z):
            return 1.0 / z
        case PoissonSubsampled(release=inner, rate=rate) | FixedSizeSubsampled(release=inner, rate=rate):
            # ln(1 + q(e^ε − 1)) (Balle, Barthe & Gaboardi 2018, Theorems 8 and 9)
            eps = pure(inner)
            if isinstance(release, PoissonSubsampled) and release.adjacency == "replace":
                # the largest loss of the pair of a swap (accounting.loss.swapped)
                if rate == 1:
                    return 2 * eps
                return (_log_mixture(rate, eps) - _log_mixture(rate, -eps)) * (1 + 16 * _UNIT_ROUNDOFF)
            return min(eps, _log_mixture(rate, eps) * (1 + 8 * _UNIT_ROUNDOFF))
        case BestOfRuns(release=inner, stop=stop, shape=eta):
            eps = pure(inner)
            return (eps + (1.0 + eta) * _log_odds(eps, float(stop))) * (1 + 8 * _UNIT_ROUNDOFF)
        case BestOfPoissonRuns(release=inner, mean=mean):
            eps = pure(inner)
            return (eps + mean * math.tanh(eps / 2)) * (1 + 8 * _UNIT_ROUNDOFF)
        case OrderedRuns(release=inner) if pure(inner) < math.inf:
            from accounting.compose.pairs import single

            # the largest loss that is told apart, rounded down
            (pair,) = single(release, True)
            return pair.highest(-745.0) * (1 - 2e-12)
        case Composed(parts=parts):
            return math.fsum(count * pure(part) for part, count in parts)
        case Parallel(branches=branches):
            return max(map(pure, branches), default=0.0)
    return pure(weaker(release, "pure-DP"))


def _log_mixture(rate: float, x: float) -> float:
    """ln(1 − q + qe^x), by another form where e^x is beyond floats: there it is a little more."""
    if x < 700:
        return math.log1p(rate * math.expm1(x))
    return x + math.log(rate) + math.exp(-x) / rate


def _log_odds(epsilon: float, stop: float) -> float:
    """ln((e^ε + γ)/(1 + γe^ε)), of which ε is added 1 + η times; see ``adaptive.repeated_selection.one_selection``."""
    if epsilon < 1:
        return math.log1p((1 - stop) * math.expm1(epsilon) / (1 + stop * math.exp(epsilon)))
    return math.log1p(stop * math.exp(-epsilon)) - math.log(stop + math.exp(-epsilon))


def epsilon(release: Release, delta: float) -> float:
    """ε at ``delta`` (0 allowed) of the composed ε₀."""
    return pure_epsilon(pure(release), delta)


def delta(release: Release, epsilon: float) -> float:
    """δ at ``epsilon`` of the composed ε₀."""
    return pure_delta(pure(release), epsilon)

"""Pure differential privacy: the sum of the ε's, and what it gives at a positive δ.

Parameters are the floats that they are, as mechanisms use them. Sums are exact, in rational numbers, and rounded up
once, where they become a float: 0.1 + 0.2 is 0.30000000000000004. A float is within 2⁻⁵³ of itself of the decimal that
somebody wrote, so an exact sum of floats that is beyond a float ε by 2⁻⁵² of it at most may be equal to it in decimals:
:func:`is_within` says that it is no more than ε, and a budget of 0.3 has room for 0.1 and 0.2.
"""

from __future__ import annotations

import math
from fractions import Fraction

from accounting.arrays import UNIT_ROUNDOFF
from accounting.conversions import pure_delta, pure_epsilon
from accounting.releases.base import Composed, Own, Parallel, Release, known, weaker
from accounting.releases.choice import NoisyMax, RandomizedResponse, UnaryEncoding
from accounting.releases.guarantees import PureDP
from accounting.releases.noise import Laplace
from accounting.releases.sampling import FixedSizeSubsampled, PoissonSubsampled, RandomAllocated
from accounting.releases.selection import BestOfPoissonRuns, BestOfRuns
from accounting.releases.shuffling import LocalShuffled

__all__ = ["at_least", "delta", "epsilon", "is_exact", "is_within", "pure"]

_ADDED_EXACTLY = PureDP, RandomizedResponse, UnaryEncoding, NoisyMax, Laplace
# Whose loss one unit may make as large as another one makes it small, at the same output.
_MOVED_APART = PureDP, Laplace


def pure(release: Release) -> float:
    """The smallest known ε₀ such that ``release`` is ε₀-DP.

    Examples
    --------
    >>> from accounting import PureDP
    >>> from accounting.notions.pure import pure
    >>> pure(3 * PureDP(0.5))
    1.5
    """
    return _pure(known(release))


def is_exact(release: Release) -> bool:
    """Whether some mechanism of this description has no smaller ε₀: no other accountant then says less at δ = 0.

    For parts with an output whose loss is the largest, in the same order of the neighbours: all of these outputs
    together have the sum of the losses.

    So it is where a unit is in k of t steps, drawn at random (:class:`~accounting.RandomAllocated`). Let lᵢ and l′ᵢ be
    the ratios of step i with a unit, and with another one, over without either, given what came before. Then the laws
    of all steps are as (mean of Π lᵢ over the k drawn) to (mean of Π l′ᵢ). Of ε-DP steps all ratios lie in [e⁻ᵉ, eᵉ]
    with e for ε, whoever is in which steps and whatever was seen: so the loss is at most kε for a unit that is there or
    not, and 2kε for one that is swapped. An output has that loss if in all t steps, of which each goes its own way,
    the ratios are the largest, and for a swap the other ones the least. Laplace noise has such an output, beyond two
    values that are moved to opposite sides, and so has a pure release with an output that one unit makes eᵉ times as
    likely, and the other one as much rarer.

    >>> from accounting import Gaussian, Laplace, NoisyMax
    >>> is_exact(100 * Laplace(30.0) + NoisyMax(0.1)), is_exact(Laplace(30.0) + Gaussian(3.0))
    (True, False)
    """
    found = known(release)
    parts = found.parts if isinstance(found, Composed) else ((found, 1),)
    return all(map(_is_added_exactly, (part for part, _ in parts)))


def _is_added_exactly(part: Release) -> bool:
    if type(part) is not RandomAllocated:
        return type(part) in _ADDED_EXACTLY
    return type(part.release) in (_MOVED_APART if part.adjacency == "replace" else _ADDED_EXACTLY)


def at_least(release: Release) -> float:
    """:func:`pure`, rounded down: what is added exactly to the next float, and all else by 64 units in the last place.

    >>> from accounting import Laplace
    >>> pure(Laplace(3.0)) > at_least(Laplace(3.0))
    True
    """
    found = known(release)
    total = _exact(found)
    if total is None:
        return math.inf
    if not is_exact(found):
        return float(total) * (1 - 64 * UNIT_ROUNDOFF)
    nearest = float(min(total, Fraction(1e308)))
    return nearest if Fraction(nearest) <= total else math.nextafter(nearest, 0.0)


def is_within(release: Release, epsilon: float) -> bool:
    """Whether the exact sum is at most ε, or equal to it as the decimals that floats stand for.

    >>> from accounting import PureDP
    >>> is_within(PureDP(0.1) + PureDP(0.2), 0.3), is_within(PureDP(0.1) + PureDP(0.21), 0.3)
    (True, False)
    """
    total = _exact(known(release))
    return total is not None and total <= Fraction(epsilon) * (1 + Fraction(1, 2**52))


def _exact(release: Release) -> Fraction | None:
    """The sum in rational numbers, of terms that are right or rounded up; None if it is infinite."""
    match release:
        case Composed(parts=parts):
            terms = [(_exact(part), count) for part, count in parts]
            return None if any(term is None for term, _ in terms) else sum((n * x for x, n in terms if x), Fraction(0))
        case Laplace(noise_multiplier=z):
            return 1 / Fraction(z)
        case RandomAllocated(release=inner, participations=times):
            # see is_exact
            term = _exact(inner)
            return None if term is None else (2 if release.adjacency == "replace" else 1) * times * term
    found = _pure(release)
    return Fraction(found) if found < math.inf else None


def _upwards(total: Fraction | None) -> float:
    """The smallest float that is no less."""
    if total is None:
        return math.inf
    try:
        nearest = float(total)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= total else math.nextafter(nearest, math.inf)


def _pure(release: Release) -> float:
    match release:
        case (
            PureDP(epsilon=eps)
            | RandomizedResponse(epsilon=eps)
            | UnaryEncoding(epsilon=eps)
            | NoisyMax(epsilon=eps)
            | LocalShuffled(epsilon=eps)
        ):
            return eps
        case Own(largest=float(largest)):
            return largest
        case Laplace() | Composed() | RandomAllocated():
            return _upwards(_exact(release))
        case PoissonSubsampled(release=inner, rate=rate) | FixedSizeSubsampled(release=inner, rate=rate):
            # ln(1 + q(e^ε − 1)) (Balle, Barthe & Gaboardi 2018, Theorems 8 and 9)
            eps = _pure(inner)
            if isinstance(release, PoissonSubsampled) and release.adjacency == "replace":
                # the largest loss of the pair of a swap (accounting.loss.swapped)
                if rate == 1:
                    return 2 * eps
                return (_log_mixture(rate, eps) - _log_mixture(rate, -eps)) * (1 + 16 * UNIT_ROUNDOFF)
            return min(eps, _log_mixture(rate, eps) * (1 + 8 * UNIT_ROUNDOFF))
        case BestOfRuns(release=inner, stop=stop, shape=eta):
            eps = _pure(inner)
            return (eps + (1.0 + eta) * _log_odds(eps, float(stop))) * (1 + 8 * UNIT_ROUNDOFF)
        case BestOfPoissonRuns(release=inner, mean=mean):
            eps = _pure(inner)
            return (eps + mean * math.tanh(eps / 2)) * (1 + 8 * UNIT_ROUNDOFF)
        case Parallel(branches=branches):
            return max(map(_pure, branches), default=0.0)
    return _pure(weaker(release, "pure-DP"))


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

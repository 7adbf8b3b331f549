"""The release that is played last of a composition, from below: a zCDP one, or discrete Gaussian noise on vectors.

Of several, the one that matters most; the others are Gaussian noise. Its pair is in
:mod:`accounting.loss.concentrated` or :mod:`accounting.loss.lattice_vectors`.
"""

from __future__ import annotations

from accounting.loss.concentrated import CoinsPair
from accounting.loss.lattice_vectors import LatticeCorners
from accounting.releases import ZCDP, DiscreteGaussian, FixedSizeSubsampled, Own, PoissonSubsampled, Release

__all__ = ["last_coins"]

# Stronger lattice noise has too few values; weaker one is Gaussian noise to a part in ten thousand.
_STRONGEST, _SMOOTH = 0.5, 20.0


def last_coins(parts: tuple[tuple[Release, int], ...]) -> tuple[Release, Release] | None:
    """The part that is played last, and what it is then; None if there is none of these."""
    found: list[tuple[float, Release, Release]] = []
    for part, _ in parts:
        match part:
            case FixedSizeSubsampled(release=inner, rate=rate) | PoissonSubsampled(release=inner, rate=rate):
                # of a batch, all others contribute what the unit is replaced by
                if one := _worst(inner):
                    found.append((one[0] * rate**2, part, PoissonSubsampled(one[1], rate)))
            case _:
                if one := _worst(part):
                    found.append((one[0], part, one[1]))
    return max(found, key=lambda one: one[0])[1:] if found else None


def _worst(release: Release) -> tuple[float, Release] | None:
    """How much a release matters, and what is worst of it."""
    match release:
        case ZCDP(rho=rho) if rho > 0:
            return rho, Own(CoinsPair(rho))
        case DiscreteGaussian(noise_multiplier=z, shift=None) if _STRONGEST <= z < _SMOOTH:
            return 0.5 / z**2, Own(LatticeCorners(z))
    return None

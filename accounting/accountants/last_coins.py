"""The zCDP release that is played last of a composition, from below.

Of several, the one that matters most; the others are Gaussian noise. Its pair is in
:mod:`accounting.accountants.concentrated_losses`.
"""

from __future__ import annotations

from accounting.accountants.failures import WorstCoins
from accounting.releases import ZCDP, FixedSizeSubsampled, PoissonSubsampled, Release

__all__ = ["last_coins"]


def last_coins(parts: tuple[tuple[Release, int], ...]) -> tuple[Release, Release] | None:
    """The part that is played last, and what it is then; None if there is no zCDP release."""
    found: list[tuple[float, Release, Release]] = []
    for part, _ in parts:
        match part:
            case ZCDP(rho=rho) if rho > 0:
                found.append((rho, part, WorstCoins(rho)))
            case PoissonSubsampled(release=ZCDP(rho=rho), rate=rate) if rho > 0:
                found.append((rho * rate**2, part, PoissonSubsampled(WorstCoins(rho), rate)))
            case FixedSizeSubsampled(release=ZCDP(rho=rho), rate=rate) if rho > 0:
                # all others contribute what the unit is replaced by
                found.append((rho * rate**2, part, PoissonSubsampled(WorstCoins(rho), rate)))
    return max(found, key=lambda one: one[0])[1:] if found else None

"""The coins that single choices by noisy maxima are at worst; see :mod:`accounting.adaptive.choices.coin_games`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.arrays import Array

__all__ = ["CoinKind"]


@dataclass(frozen=True)
class CoinKind:
    """The coins with losses t and t − ``span``, ``least`` ≤ t ≤ ``span`` − ``least``, on a sample of ``rate``."""

    span: float
    least: float = 0.0
    rate: float = 1.0
    present: bool = True

    @property
    def ends(self) -> tuple[float, float]:
        """The first and the last t."""
        return self.least, self.span - self.least

    def losses(self, t: Array) -> tuple[Array, Array]:
        """The high loss and minus the low one of every t, on the sample."""
        high, low = t, self.span - t
        if self.rate < 1:
            high, low = np.log1p(self.rate * np.expm1(high)), -np.log1p(self.rate * np.expm1(-low))
        return (high, low) if self.present else (low, high)

    def chances(self, u: Array, s: Array, rest: Array) -> tuple[Array, Array]:
        """Of u = e^(−t), s = 1 − u and ``rest`` = u − e^(−span): Q at the high loss, and P less Q.

        P less Q is a constant less :attr:`multiple` times u + e^(−span)/u, Q another multiple of u.
        """
        share = rest / -math.expm1(-self.span)
        return share, share * s / u

    @property
    def multiple(self) -> float:
        return 1 / -math.expm1(-self.span)

    @property
    def width(self) -> float:
        """How far the two losses of the middle coin are apart."""
        high, low = self.losses(np.array([sum(self.ends) / 2]))
        return float(high[0] + low[0])

    @property
    def highest(self) -> float:
        """The largest loss of all."""
        high, _ = self.losses(np.array(self.ends))
        return float(high.max())

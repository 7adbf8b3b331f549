"""The coins that single choices by noisy maxima are at worst; see :mod:`accounting.accountants.coin_games`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["CoinKind", "Kind"]

Array = NDArray[np.float64]


class Kind:
    """Coins with the losses h(t) and −l(t), ``first`` ≤ t ≤ ``last``, one rising and one falling, on a sample."""

    rate: float
    present: bool

    @property
    def ends(self) -> tuple[float, float]:
        """The first and the last t."""
        raise NotImplementedError

    @property
    def longest(self) -> float:
        """How far the two losses of the longest coin are apart, without sampling."""
        raise NotImplementedError

    def plain(self, t: Array) -> tuple[Array, Array]:
        """h and l."""
        raise NotImplementedError

    def inverses(self, high: Array, low: Array) -> tuple[Array, Array]:
        """The t of each h, and of each l; an end or what lies beyond where there is none."""
        raise NotImplementedError

    def chances(self, u: Array, s: Array, rest: Array) -> tuple[Array, Array]:
        """Of u = e^(−t), s = 1 − u and ``rest`` = u − e^(−E): Q at the high loss, and P less Q.

        E is :attr:`exponent`. P less Q is a constant less :attr:`multiple` times u + e^(−E)/u, Q another multiple of u.
        """
        raise NotImplementedError

    @property
    def exponent(self) -> float:
        raise NotImplementedError

    @property
    def multiple(self) -> float:
        raise NotImplementedError

    def losses(self, t: Array) -> tuple[Array, Array]:
        """The high loss and minus the low one of every t, on the sample."""
        high, low = self.plain(t)
        if self.rate < 1:
            high, low = np.log1p(self.rate * np.expm1(high)), -np.log1p(self.rate * np.expm1(-low))
        return (high, low) if self.present else (low, high)

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


@dataclass(frozen=True)
class CoinKind(Kind):
    """The coins with losses t and t − ``span``, ``least`` ≤ t ≤ ``span`` − ``least``, on a sample of ``rate``."""

    span: float
    least: float = 0.0
    rate: float = 1.0
    present: bool = True

    @property
    def ends(self) -> tuple[float, float]:
        return self.least, self.span - self.least

    @property
    def longest(self) -> float:
        return self.span

    def plain(self, t: Array) -> tuple[Array, Array]:
        return t, self.span - t

    def inverses(self, high: Array, low: Array) -> tuple[Array, Array]:
        return high, self.span - low

    @property
    def exponent(self) -> float:
        return self.span

    @property
    def multiple(self) -> float:
        return 1 / -math.expm1(-self.span)

    def chances(self, u: Array, s: Array, rest: Array) -> tuple[Array, Array]:
        share = rest / -math.expm1(-self.span)
        return share, share * s / u

"""What one choice by a noisy maximum is at worst: a coin, one of a kind.

A mechanism whose privacy loss lies in an interval of length s is at least as private as a coin with the losses t and
t − s, for some t (Dong, Durfee & Rogers 2020). For report-noisy-max with Gumbel noise s = ε₀ and 0 ≤ t ≤ ε₀ (Cesar &
Rogers 2021), and two scores are such a coin for every t. With Laplace noise s is 1.2ε₀ or less
(:mod:`accounting.loss.laplace_maxima`), and as that is pure DP, s − ε₀ ≤ t ≤ ε₀. Exponential noise has no coins: each
choice is as Laplace noise.

*Samples.* Where the unit is read with probability q, e^L − 1 is q times what it was, or the two neighbours change
places. A mean E_Q[f(1 − q + qe^L)] is one of a convex function of e^L again, so the same coins are the worst ones.

Serves the games of choices, :mod:`accounting.adaptive.choices.every_coin` and
:mod:`~accounting.adaptive.choices.rare_choices`, and batches of them; tested with these in
``tests/accounting/adaptive/test_games.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.arrays import Array
from accounting.loss.gumbel_maxima import SpanPair
from accounting.loss.pair import LossPair
from accounting.loss.sampled import SubsampledPair

__all__ = ["CoinKind", "chance", "kind_of", "largest_moments", "log_moments"]


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
        high, low = self.sampled(t)
        return (high, low) if self.present else (low, high)

    def sampled(self, t: Array) -> tuple[Array, Array]:
        """The same by the law with the unit over the one without it."""
        if self.rate == 1:
            return t, self.span - t
        with np.errstate(divide="ignore"):
            return np.log1p(self.rate * np.expm1(t)), -np.log1p(self.rate * np.expm1(t - self.span))

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


def kind_of(pair: LossPair) -> CoinKind | None:
    """The coins that a choice is at worst, maybe on a sample; None for what is no choice."""
    rate, present = 1.0, True
    if isinstance(pair, SubsampledPair):
        rate, present, pair = pair.rate, pair.present, pair.inner
    if type(pair) is SpanPair:
        return CoinKind(pair.span, 0.0, rate, present)
    from accounting.loss.laplace_maxima import MaximumPair, excess

    if type(pair) is MaximumPair:
        more = excess(pair.theta)
        return CoinKind(pair.theta + more, more, rate, present)
    return None


def chance(low: Array, high: Array) -> Array:
    """What P has at the high loss of coins with the losses −``low`` and ``high``."""
    return np.asarray(np.expm1(-low) / np.expm1(-low - high))


def log_moments(low: Array, high: Array, order: float) -> Array:
    """Their ln E[e^(order·L)]."""
    # of the law under which L is taken; e^(−low) may be all that is left of the other's
    with np.errstate(divide="ignore", over="ignore"):
        wins, loses, both = (np.log(-np.expm1(-x)) for x in (low, high, low + high))
        return np.asarray(np.logaddexp(wins + order * high, loses - low - order * low) - both)


def largest_moments(kind: CoinKind, orders: Array) -> Array:
    """The largest ln E[e^(order·L)] of all coins, at each order."""
    high, low = kind.losses(np.linspace(*kind.ends, 65))
    return np.maximum([float(np.max(log_moments(low, high, order))) for order in orders.tolist()], 1e-300)

"""Mechanisms of which only a guarantee is known: pure, concentrated or approximate differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from accounting.checks import fraction, nonnegative
from accounting.releases.base import Release

if TYPE_CHECKING:
    from accounting.loss.pair import LossPair

__all__ = ["PureDP", "ZCDP", "ApproxDP"]


@dataclass(frozen=True, repr=False)
class PureDP(Release):
    """Any mechanism that is known to be ``epsilon``-DP.

    Examples
    --------
    >>> from accounting import PureDP, epsilon
    >>> round(float(epsilon(100 * PureDP(0.1), 1e-6)), 3)
    4.775
    """

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        nonnegative("epsilon", self.epsilon)

    def pair(self) -> LossPair:
        """Binary randomized response, of which every such mechanism is a function (Kairouz et al. 2015)."""
        from accounting.loss.pair import NoLoss
        from accounting.loss.responses import Coins

        return Coins(self.epsilon) if self.epsilon > 0 else NoLoss()


@dataclass(frozen=True, repr=False)
class ZCDP(Release):
    """Any mechanism that is known to be ``rho``-zCDP: of neighbours D_α ≤ ρα for every α > 1, both ways.

    What it costs at worst: :mod:`accounting.loss.worst_coins`.

    Examples
    --------
    >>> from accounting import ZCDP, epsilon
    >>> round(float(epsilon(ZCDP(0.5), 1e-6)), 2)
    5.22
    """

    rho: float

    def __post_init__(self) -> None:
        super().__post_init__()
        nonnegative("rho", self.rho)

    def pair(self) -> LossPair:
        """The curve of the worst coins."""
        from accounting.loss.concentrated import ConcentratedPair
        from accounting.loss.pair import NoLoss

        return ConcentratedPair(self.rho) if self.rho > 0 else NoLoss()


@dataclass(frozen=True, repr=False)
class ApproxDP(Release):
    """Any mechanism that is known to be ``(epsilon, delta)``-DP, and no more.

    Its dominating pair of distributions gives itself away with probability ``delta`` and is
    ``epsilon``-randomized response otherwise (Kairouz, Oh & Viswanath 2015), which is how it is composed.

    Examples
    --------
    >>> from accounting import ApproxDP, epsilon
    >>> round(float(epsilon(10 * ApproxDP(0.1, 1e-8), 1e-6)), 3)
    0.999
    """

    epsilon: float
    delta: float
    _fails = True

    def __post_init__(self) -> None:
        super().__post_init__()
        nonnegative("epsilon", self.epsilon)
        fraction("delta", self.delta, include_zero=True)

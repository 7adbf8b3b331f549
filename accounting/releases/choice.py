"""Private choices: noisy maxima, and answers that are randomized."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from accounting.checks import integer, positive
from accounting.releases.base import Release
from accounting.releases.guarantees import PureDP
from accounting.releases.noise import Laplace

if TYPE_CHECKING:
    from accounting.loss.pair import LossPair

__all__ = ["NoisyMax", "RandomizedResponse", "UnaryEncoding"]

# Weaker choices are priced as pure ones: the scale of their noise is beyond the floats.
_LEAST_CHOICE = 1e-300


@dataclass(frozen=True, repr=False)
class NoisyMax(Release):
    """The index of the largest noisy score, ``epsilon``-DP.

    ``noise="gumbel"`` is the exponential mechanism (bounded range, Cesar & Rogers 2021); ``"exponential"`` is
    permute-and-flip and ``"laplace"`` the classical mechanism, each of which costs as much as Laplace noise; many
    of the latter cost less.

    Examples
    --------
    >>> from accounting import NoisyMax, PureDP, epsilon
    >>> round(epsilon(100 * NoisyMax(0.1, "exponential"), 1e-6), 3), round(epsilon(100 * PureDP(0.1), 1e-6), 3)
    (4.693, 4.775)
    """

    epsilon: float
    noise: Literal["gumbel", "exponential", "laplace"] = "gumbel"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("epsilon", self.epsilon)
        if self.noise not in ("gumbel", "exponential", "laplace"):
            raise ValueError(f"noise must be 'gumbel', 'exponential' or 'laplace', got noise={self.noise!r}")

    def pair(self) -> LossPair:
        """Of one choice: the worst interval of losses for Gumbel noise, else as Laplace noise."""
        if self.noise == "gumbel":
            from accounting.loss.gumbel_maxima import SpanPair

            return SpanPair(self.epsilon)
        if self.epsilon <= _LEAST_CHOICE:
            return self.weaker().pair()
        from accounting.loss.laplace import LaplacePair
        from accounting.loss.laplace_maxima import MaximumPair

        kind = MaximumPair if self.noise == "laplace" else LaplacePair
        return kind(self.epsilon * (1 + 2.0**-51))

    def weaker(self) -> Release:
        """Laplace noise of as large an ε, on one real number.

        Scores may move to a neighbour's in steps, each of which costs its share of ε: see
        :class:`accounting.loss.laplace.LaplacePair`.
        """
        if self.epsilon <= _LEAST_CHOICE:
            return PureDP(self.epsilon, adjacency=self.adjacency)
        return Laplace(math.nextafter(1.0 / self.epsilon, 0.0), adjacency=self.adjacency)


@dataclass(frozen=True, repr=False)
class RandomizedResponse(Release):
    """The truth with probability e^ε/(e^ε + k − 1), else one of the other k − 1 ``categories`` evenly.

    Examples
    --------
    >>> from accounting import RandomizedResponse, epsilon
    >>> round(float(epsilon(10 * RandomizedResponse(0.5, 4), 1e-6)), 3)
    4.968
    """

    epsilon: float
    categories: int

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("epsilon", self.epsilon)
        integer("categories", self.categories, at_least=2)

    def pair(self) -> LossPair:
        """Three losses, or two of a binary response."""
        from accounting.loss.responses import Coins

        return Coins(self.epsilon, int(self.categories))


@dataclass(frozen=True, repr=False)
class UnaryEncoding(Release):
    """One bit for each of ``categories``, flipped at random, so that the message costs ``epsilon``.

    The bit of the user's value is 1 with probability ½, any other one with 1/(e^ε + 1) (the optimized encoding of
    Wang et al. 2017), or, with ``optimized=False``, with e^(ε/2)/(1 + e^(ε/2)) and 1/(1 + e^(ε/2)) (RAPPOR,
    Erlingsson et al. 2014). Two values differ in two bits, of which one outcome has the loss ε, one −ε, and the
    others 0: as of a randomized response of ``as_many_as`` categories, which need not be a whole number.

    Examples
    --------
    >>> from accounting import LocalShuffled, UnaryEncoding, epsilon
    >>> round(UnaryEncoding(1.0, 100).as_many_as, 2)
    5.72
    >>> round(epsilon(LocalShuffled(UnaryEncoding(1.0, 100), users=10_000), 1e-6), 4)
    0.0297
    """

    epsilon: float
    categories: int
    optimized: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("epsilon", self.epsilon)
        if integer("categories", self.categories, at_least=2) < 3:
            raise ValueError("categories must be at least 3 (two are a RandomizedResponse), got categories=2")
        if not isinstance(self.optimized, bool):
            raise TypeError(f"optimized must be True or False, got optimized={self.optimized!r}")

    def pair(self) -> LossPair:
        """Three losses, as likely as those of a response of as many categories."""
        from accounting.loss.responses import Bits

        return Bits(self.epsilon, self.as_many_as, self.optimized)

    @property
    def as_many_as(self) -> float:
        """The k of randomized response at which a loss of ε is as likely: k + e^ε − 1 = e^ε/(p(1 − q)).

        At most about e^700, above which fewer make a loss of ε a little likelier than it is.
        """
        grown = math.exp(min(self.epsilon if self.optimized else self.epsilon / 2, 700.0))
        return grown + 3 if self.optimized else 2 * grown + 2

"""Descriptions of a choice: the best of a random number of runs, as in a private search for hyperparameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from accounting.checks import fraction, positive
from accounting.errors import UnsupportedRelease
from accounting.releases.base import Release, check_release, common_adjacency

if TYPE_CHECKING:
    from accounting.amplification.runs import Runs
    from accounting.loss.pair import LossPair

__all__ = ["BestOfPoissonRuns", "BestOfRuns", "runs_of"]


@dataclass(frozen=True, repr=False)
class BestOfRuns(Release):
    """The best of K runs of ``release``, K ≥ 1 drawn apart from the data, and nothing of the others, nor K itself.

    K has the truncated negative binomial law of Papernot & Steinke (2022), arXiv:2110.03620, Definition 1, with γ =
    ``stop`` and η = ``shape``: P(K = k) ∝ (1 − γ)^k·Γ(k + η)/k!, geometric for η = 1 and logarithmic for
    η = 0. What "best" means is part of what a run releases; a run may draw its own hyperparameters from a public law.

    Examples
    --------
    >>> from accounting import BestOfRuns, Gaussian, PureDP, epsilon
    >>> choice = BestOfRuns(Gaussian(10.0), stop=0.1)
    >>> choice.mean
    10.0
    >>> round(epsilon(choice, 1e-6), 3), round(epsilon(10 * Gaussian(10.0), 1e-6), 3)
    (0.594, 1.368)
    >>> round(epsilon(BestOfRuns(PureDP(0.1), stop=0.01), 0.0), 3)  # less than (2 + η)ε, whatever the mean
    0.296
    """

    release: Release
    stop: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_release(self.release)
        fraction("stop", self.stop)
        if not -1.0 < self.shape < math.inf:
            raise ValueError(f"shape must be finite and greater than -1, got shape={self.shape!r}")
        object.__setattr__(self, "adjacency", common_adjacency((self.adjacency, self.release.adjacency)))

    def pair(self) -> LossPair:
        """What the best of them costs at worst (:mod:`accounting.adaptive.repeated_selection.one_selection`)."""
        return _best_pair(self)

    @classmethod
    def of_mean(cls, release: Release, mean: float, shape: float = 1.0) -> Self:
        """With the ``stop`` that makes so many runs in the mean, or by rounding a little more."""
        target = positive("mean", mean)
        low, high = 1e-300, 1.0 - 2.0**-53
        if not cls(release, high, shape).mean < target < math.inf:
            raise ValueError(f"mean must be greater than 1, got mean={mean!r}")
        while (middle := math.sqrt(low * high)) > low and middle < high:
            low, high = (middle, high) if cls(release, middle, shape).mean >= target else (low, middle)
        return cls(release, low, shape)

    @property
    def mean(self) -> float:
        """The mean of K: η(1 − γ)/(γ(1 − γ^η)), and its limit (1/γ − 1)/ln(1/γ) for η = 0."""
        eta, log_stop = float(self.shape), math.log(self.stop)
        if eta == 1.0:
            return 1.0 / self.stop
        # 1 − γ^η over η, which loses no digits near η = 0 before products with it do
        share = -log_stop if abs(eta) < 1e-100 else -math.expm1(eta * log_stop) / eta
        return (1.0 - self.stop) / (self.stop * share)


@dataclass(frozen=True, repr=False)
class BestOfPoissonRuns(Release):
    """As :class:`BestOfRuns` with K from the Poisson law of that ``mean``; where K = 0, something fixed is released.

    K is concentrated near its mean, so that few runs are as unlikely as many.

    Examples
    --------
    >>> from accounting import BestOfPoissonRuns, Gaussian, epsilon
    >>> round(epsilon(BestOfPoissonRuns(Gaussian(10.0), mean=10.0), 1e-6), 3)
    0.754
    """

    release: Release
    mean: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_release(self.release)
        positive("mean", self.mean)
        object.__setattr__(self, "adjacency", common_adjacency((self.adjacency, self.release.adjacency)))

    def pair(self) -> LossPair:
        """What the best of them costs at worst (:mod:`accounting.adaptive.repeated_selection.one_selection`)."""
        return _best_pair(self)


def _best_pair(release: BestOfRuns | BestOfPoissonRuns) -> LossPair:
    from accounting.adaptive.repeated_selection.one_selection import BestPair
    from accounting.compose.pairs import alternatives
    from accounting.loss.pair import NoLoss
    from accounting.notions.gdp import gdp

    try:
        mu = gdp(release.release)
    except UnsupportedRelease:
        mu = math.inf
    found = tuple(alternatives(release.release))
    return BestPair(runs_of(release), found, mu) if found else NoLoss()


def runs_of(release: BestOfRuns | BestOfPoissonRuns) -> Runs:
    """The law of K, if it is one that floats can follow."""
    from accounting.amplification.runs import NegativeBinomial, Poisson, fits_floats

    law: Runs = Poisson(float(release.mean))
    if isinstance(release, BestOfRuns):
        law = NegativeBinomial(float(release.stop), float(release.shape), float(release.mean))
    if not fits_floats(law):
        raise UnsupportedRelease(f"the PLD accountant has no bound for {release!r}")
    return law

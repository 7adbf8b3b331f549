"""Descriptions of noisy releases: frozen data that say what left the process.

A description gives its noise *relative to* the sensitivity of one unit, so it does not depend on the data,
its scale or its dimension. What one unit's privacy loss is at worst it says by :meth:`Release.pair`, which loads what
that needs when it is asked; accountants are functions of descriptions, and their meaning never changes.

Noise is described in ``noise``, choices in ``choice``, what is only guaranteed in ``guarantees``, samples in
``sampling``, shuffled messages in ``shuffling``, the best of some runs in ``selection``, a perturbed minimizer in
``perturbation``; what all share, and what accountants price in place of a description from outside, in ``base``.

``a + b`` describes releasing both on the same data, ``1000 * a`` a thousand releases like ``a``, and
``parallel(a, b)`` releases on disjoint parts of the data. Composition is adaptive: ``b`` may be chosen
after the output of ``a`` was seen.

Descriptions from outside. A frozen dataclass that derives from :class:`Release` says its loss in :meth:`Release.pair`,
or in :meth:`Release.weaker` which known description costs at least as much; it is priced by that, alone and in any
composition. So is a class that is derived from one of these: never by what its parent costs.

Neighbouring relation. A description may state the adjacency under which its sensitivity was measured:
``"replace"`` (one unit swapped for any other), ``"add_remove"`` (one unit present or absent) or
``"zero_out"`` (one unit swapped for a null contribution). ``None`` leaves it to the budget or to the other
parts of a composition. Two different stated adjacencies never compose.
"""

from accounting.releases.base import (
    Adjacency,
    Composed,
    Own,
    Parallel,
    Release,
    check_adjacency,
    check_release,
    common_adjacency,
    compose,
    parallel,
)
from accounting.releases.choice import NoisyMax, RandomizedResponse, UnaryEncoding
from accounting.releases.guarantees import ZCDP, ApproxDP, PureDP
from accounting.releases.noise import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    TreeAggregation,
)
from accounting.releases.perturbation import ObjectivePerturbation
from accounting.releases.sampling import FixedSizeSubsampled, PoissonSubsampled, RandomAllocated
from accounting.releases.selection import BestOfPoissonRuns, BestOfRuns
from accounting.releases.shuffling import LocalShuffled, ShuffledBinomial

__all__ = [
    "Adjacency",
    "ApproxDP",
    "BestOfPoissonRuns",
    "BestOfRuns",
    "Composed",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "FixedSizeSubsampled",
    "Gaussian",
    "GeneralizedGaussian",
    "Laplace",
    "LocalShuffled",
    "NoisyMax",
    "ObjectivePerturbation",
    "Own",
    "Parallel",
    "PoissonSubsampled",
    "PureDP",
    "RandomAllocated",
    "RandomizedResponse",
    "Release",
    "ShuffledBinomial",
    "TreeAggregation",
    "UnaryEncoding",
    "ZCDP",
    "check_adjacency",
    "check_release",
    "common_adjacency",
    "compose",
    "parallel",
]

"""Descriptions of single releases: additive noise, noisy maxima, responses, known guarantees, trees.

See :mod:`accounting.releases` for what a description says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from accounting.checks import integer, positive
from accounting.releases.base import Composed, Parallel, Release
from accounting.releases.guarantees import PureDP

if TYPE_CHECKING:
    from accounting.loss.pair import LossPair

__all__ = [
    "Gaussian",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "GeneralizedGaussian",
    "Laplace",
    "TreeAggregation",
    "is_gaussian",
]


@dataclass(frozen=True, repr=False)
class Gaussian(Release):
    """Gaussian noise of standard deviation ``noise_multiplier`` × the L2 sensitivity.

    Examples
    --------
    >>> from accounting import Gaussian, epsilon
    >>> round(epsilon(Gaussian(1.0), delta=1e-5), 4)
    4.3772
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("noise_multiplier", self.noise_multiplier)

    def pair(self) -> LossPair:
        """Two normal laws at the distance 1/``noise_multiplier``."""
        from accounting.loss.gaussian import GaussianPair

        return GaussianPair(1.0 / self.noise_multiplier)


@dataclass(frozen=True, repr=False)
class DiscreteGaussian(Release):
    """Discrete Gaussian noise on integer vectors, σ = ``noise_multiplier`` × the (integer-lattice) L2 sensitivity.

    ``shift`` says that it is one integer only, which one unit moves by at most ``shift``: then σ = ``noise_multiplier``
    × ``shift``, and the whole privacy loss is known.

    Examples
    --------
    >>> from accounting import DiscreteGaussian, epsilon
    >>> round(epsilon(DiscreteGaussian(2.0), 1e-6), 4), round(epsilon(DiscreteGaussian(2.0, shift=1), 1e-6), 4)
    (2.2809, 2.2758)
    """

    noise_multiplier: float
    shift: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("noise_multiplier", self.noise_multiplier)
        if self.shift is not None:
            integer("shift", self.shift, at_least=1)

    def pair(self) -> LossPair:
        """Of one integer its own losses; of vectors a pair, or a Gaussian, that is hardly worse than all of them."""
        if self.shift is None:
            from accounting.loss.lattice_vectors import lattice_pair

            return lattice_pair(self.noise_multiplier)
        from accounting.loss.integers import gaussian_pair

        return gaussian_pair(self.noise_multiplier, int(self.shift))


@dataclass(frozen=True, repr=False)
class DiscreteLaplace(Release):
    """Discrete Laplace noise on integer vectors, P(x) ∝ e^(−|x|/t) with t = ``noise_multiplier`` × the L1 sensitivity.

    ``shift`` says that it is one integer only, which one unit moves by at most ``shift``: then t = ``noise_multiplier``
    × ``shift``, and the whole privacy loss is known. Without it only pure differential privacy is claimed.

    Examples
    --------
    >>> from accounting import DiscreteLaplace, epsilon
    >>> round(epsilon(100 * DiscreteLaplace(20.0), 1e-6), 4)
    2.2075
    >>> round(epsilon(100 * DiscreteLaplace(20.0, shift=3), 1e-6), 4)
    2.1953
    """

    noise_multiplier: float
    shift: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("noise_multiplier", self.noise_multiplier)
        if self.shift is not None:
            integer("shift", self.shift, at_least=1)

    def pair(self) -> LossPair:
        """Of one integer its own losses, else those of pure differential privacy."""
        if self.shift is None:
            return self.weaker().pair()
        from accounting.loss.integers import IntegerPair

        return IntegerPair("laplace", self.noise_multiplier, int(self.shift))

    def weaker(self) -> Release:
        """Pure differential privacy: losses lie between −1/``noise_multiplier`` and that."""
        return PureDP(1.0 / self.noise_multiplier, adjacency=self.adjacency)


@dataclass(frozen=True, repr=False)
class GeneralizedGaussian(Release):
    """Noise of density ∝ exp(−‖z‖₊²/(2σ₊²)) with σ₊ = ``noise_multiplier`` × √κ × the sensitivity.

    κ is the smoothness of ‖·‖₊² times the square of the norms' distortion (see ``dpkit.mechanisms``), so that the
    noise multiplier z means the same as for the Gaussian: 1/z-GDP.

    *Theorem.* Let Z have a density ∝ e^(−V) on ℝᵈ, V = ‖·‖₊²/(2σ₊²), and let the slope of V in the direction v rise by
    at most m²t on the way from x to x + tv. By κ-smoothness, used at both ends, it does so with m = √κ‖v‖₊/σ₊. Then
    Z + v and Z are m-GDP.

    *Proof.* Let X = ∂V/∂v (Z), over m, A(c) = E[(X − c)₊] and A₀ the same of N ~ N(0, 1). X does not fall along v and
    rises by at most m per v, so integration by parts along lines gives E[Xψ(X)] ≤ E[ψ′(X)] for every ψ that rises and
    is constant outside an interval. With ψ′ = χ ≥ 0 the left side is ∫χ(c)·E[X; X > c] dc = ∫χ·(A − cA′): as measures

        A″ ≥ A − cA′,    with equality for A₀.

    (a) A ≤ A₀. D = A − A₀ vanishes at ±∞, as E[X] = 0, and w = e^(c²/2)D′ has dw ≥ e^(c²/2)·D dc. At a positive
    maximum of D, w would be at least 0 to its left, at most 0 to its right, and rise: so 0, and positive beyond, where
    D would rise.

    (b) For every h from ℝᵈ to [0, 1] and every c, E[Xh] ≤ E[(X − c)₊] + c·E[h] ≤ A₀(c) + c·E[h]. The least right side
    is φ(Φ⁻¹(E[h])), at P(N > c) = E[h].

    (c) Let a(t) = P(Z + tv ∈ S). Then a′(t) = m·E[X; Z + tv ∈ S] ≤ m·φ(Φ⁻¹(a(t))), so Φ⁻¹(a(t)) rises by at most m on
    0 ≤ t ≤ 1: P(Z + v ∈ S) ≤ Φ(Φ⁻¹(P(Z ∈ S)) + m). ∎

    Nothing less can be said of all such norms: the Euclidean one is Gaussian noise.

    Examples
    --------
    >>> from accounting import Gaussian, GeneralizedGaussian, epsilon
    >>> epsilon(GeneralizedGaussian(2.0), 1e-6) == epsilon(Gaussian(2.0), 1e-6)
    True
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("noise_multiplier", self.noise_multiplier)

    def pair(self) -> LossPair:
        """That of Gaussian noise of the same multiplier."""
        return self.weaker().pair()

    def weaker(self) -> Release:
        """Gaussian noise of the same multiplier."""
        return Gaussian(self.noise_multiplier, adjacency=self.adjacency)


@dataclass(frozen=True, repr=False)
class Laplace(Release):
    """Laplace noise of scale ``noise_multiplier`` × the L1 sensitivity.

    Examples
    --------
    >>> from accounting import Laplace, epsilon
    >>> float(epsilon(Laplace(2.0), 0.0))
    0.5
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("noise_multiplier", self.noise_multiplier)

    def pair(self) -> LossPair:
        """Noise on one number that moves by all of the sensitivity."""
        from accounting.loss.laplace import LaplacePair

        theta = 1.0 / self.noise_multiplier
        if theta < math.inf and Fraction(theta) * Fraction(self.noise_multiplier) < 1:
            theta = math.nextafter(theta, math.inf)
        return LaplacePair(theta)


@dataclass(frozen=True, repr=False)
class TreeAggregation(Release):
    """All prefix sums of a stream of ``steps`` inputs by a binary tree with Gaussian nodes.

    ``noise_multiplier`` is the standard deviation of one node's noise over the L2 sensitivity of one input.
    One unit sits in at most ``levels`` = ⌊log₂ steps⌋ + 1 nodes (Dwork et al. 2010; Chan, Shi & Song 2011).

    Examples
    --------
    >>> from accounting import TreeAggregation
    >>> TreeAggregation(5.0, steps=1023).levels, TreeAggregation(5.0, steps=1024).levels
    (10, 11)
    """

    noise_multiplier: float
    steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("noise_multiplier", self.noise_multiplier)
        integer("steps", self.steps, at_least=1)

    @property
    def levels(self) -> int:
        """The number of nodes that one input can reach."""
        return int(self.steps).bit_length()

    def pair(self) -> LossPair:
        """That of the Gaussian vector."""
        return self.weaker().pair()

    def weaker(self) -> Release:
        """The nodes that one input reaches are a Gaussian vector, which it moves by √``levels``: nothing is lost."""
        return Gaussian(self.noise_multiplier / math.sqrt(self.levels), adjacency=self.adjacency)


def is_gaussian(release: Release) -> bool:
    """Whether a known description is made of Gaussian noise alone, or of what is priced as such."""
    if type(release) is Composed:
        return all(is_gaussian(part) for part, _ in release.parts)
    if type(release) is Parallel:
        return all(map(is_gaussian, release.branches))
    return type(release) in (Gaussian, GeneralizedGaussian, TreeAggregation)

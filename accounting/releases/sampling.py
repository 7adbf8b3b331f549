"""Releases that read a random sample of the data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from accounting.checks import fraction, integer
from accounting.errors import AdjacencyMismatch, UnsupportedRelease
from accounting.releases.base import Release, check_release
from accounting.releases.guarantees import PureDP
from accounting.releases.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace

__all__ = ["FixedSizeSubsampled", "PoissonSubsampled", "RandomAllocated"]


@dataclass(frozen=True, repr=False)
class PoissonSubsampled(Release):
    """A release that reads only a random part of the data, each unit kept independently with probability ``rate``.

    The sensitivity of the inner ``release`` is that of one unit present or absent (``"add_remove"``), whatever the
    relation. Neighbours differ by one unit present or absent as well; or, with ``adjacency="replace"``, by one unit
    swapped, of which either is as far from being absent as that sensitivity allows. A swap is priced for a single
    ``Gaussian``, ``Laplace``, ``PureDP`` or discrete release, by what it costs at worst
    (:mod:`accounting.loss.swapped`).

    Sampling must be done as described. Batches of a fixed size are :class:`FixedSizeSubsampled`, and epochs in which
    every unit is thrown into one batch, independently of the others, :class:`RandomAllocated`. Shuffled epochs are
    none of these, and gain less (Chua et al. 2024): a unit is in one batch of every epoch, so an epoch is one release,
    such as ``Gaussian(noise_multiplier)``, without any amplification.

    Examples
    --------
    >>> from accounting import Gaussian, PoissonSubsampled, epsilon
    >>> step = PoissonSubsampled(Gaussian(1.0), rate=0.01)
    >>> round(epsilon(1000 * step, 1e-5), 2)
    1.83
    >>> swap = PoissonSubsampled(Gaussian(1.0), rate=0.01, adjacency="replace")
    >>> round(epsilon(1000 * swap, 1e-5), 2)
    2.84
    """

    release: Release
    rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_release(self.release)
        fraction("rate", self.rate, include_one=True)
        _keep_presence(self, "Poisson subsampling")
        swappable = (Gaussian, Laplace, PureDP, DiscreteGaussian, DiscreteLaplace)
        if self.adjacency == "replace" and not isinstance(self.release, swappable):
            raise UnsupportedRelease(
                "under 'replace' only Gaussian, Laplace, pure or discrete releases may be sampled, "
                f"got {self.release!r}"
            )


@dataclass(frozen=True, repr=False)
class RandomAllocated(Release):
    """An epoch of ``steps`` releases; each unit takes part in one, drawn uniformly and independently of all others.

    "Balls in bins": every unit is thrown into one of the batches, whose sizes are left to chance. All steps are like
    ``release``, one may depend on what came before, and nobody learns who is in which batch. One value is one epoch,
    whose batches are drawn anew: ``epochs * RandomAllocated(…)``. Costs about what Poisson sampling with the rate
    1/``steps`` does, often less (:mod:`accounting.loss.allocated`, which has the proof).

    With ``participations`` = k a unit takes part in k of the steps: uniformly drawn ones, or one of each of k blocks of
    at least ⌊steps/k⌋. Either costs no more than k allocations to ⌊steps/k⌋ steps, and that is the price.

    As for :class:`PoissonSubsampled`, the sensitivity of the inner ``release`` is that of one unit present or absent
    (``"add_remove"``), whatever the relation; with ``adjacency="replace"`` neighbours swap one unit for another.

    A swap of pure releases of ε each costs 2kε at most, at every δ, and exactly that at δ = 0.

    Known from both sides, but for swaps, within about 0.1 % of ε for a δ from 1e-10 on, which is about where rounding
    is no longer told from what is rare; below that it costs as much as being told the step.

    Batches of one size from a shuffled epoch are *not* this: there, who is in a batch says who is not. No proof known
    to us gives them more than one release per epoch.

    Examples
    --------
    >>> from accounting import Gaussian, PoissonSubsampled, RandomAllocated, epsilon
    >>> epoch = RandomAllocated(Gaussian(1.0), steps=1000)
    >>> round(epsilon(10 * epoch, 1e-6), 3)
    0.54
    >>> round(epsilon(10_000 * PoissonSubsampled(Gaussian(1.0), rate=1e-3), 1e-6), 3)
    0.555
    """

    release: Release
    steps: int
    participations: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_release(self.release)
        integer("steps", self.steps, at_least=1)
        if integer("participations", self.participations, at_least=1) > self.steps:
            raise ValueError(
                f"participations must be at most steps={self.steps}, got participations={self.participations!r}"
            )
        _keep_presence(self, "random allocation")

    @property
    def block(self) -> int:
        """The number of steps of which one is drawn, for each participation."""
        return int(self.steps) // int(self.participations)

    def weaker(self) -> Release:
        """The steps in which the unit takes part, if it is told which: nothing is gained by drawing them.

        Of a swap both units may be told to be in the same steps, each of which costs twice the distance. That is all
        there is to say at δ = 0 (:func:`accounting.notions.pure.is_exact`).

        Raises
        ------
        UnsupportedRelease
            For a swap, unless the inner release is Gaussian or Laplace noise or pure.

        Examples
        --------
        >>> from accounting import Laplace, RandomAllocated
        >>> RandomAllocated(Laplace(2.0), 10, adjacency="replace").weaker()
        Laplace(noise_multiplier=1.0, adjacency='replace')
        """
        times = int(self.participations)
        if self.adjacency != "replace":
            return times * self.release
        # not a class from outside that is derived from one of these
        if type(self.release) in (Gaussian, Laplace, PureDP):
            match self.release:
                case Gaussian(noise_multiplier=z) | Laplace(noise_multiplier=z) as noise:
                    return times * replace(noise, noise_multiplier=z / 2, adjacency="replace")
                case PureDP(epsilon=eps):
                    return times * PureDP(2 * eps, adjacency="replace")
        return super().weaker()


@dataclass(frozen=True, repr=False)
class FixedSizeSubsampled(Release):
    """A release that reads a batch of ``batch_size`` of all ``records`` units, drawn uniformly without replacement.

    Neighbours differ in one unit that is replaced, and so does the sensitivity of the inner ``release``: a clipped sum
    moves by twice the clipping norm. Every batch must be drawn anew from all units: those of a shuffled epoch are not.
    Which data are the worst depends on what was seen already; with Gaussian noise, noise on one integer and for pure
    releases that is played out (:mod:`accounting.adaptive.fixed_batches.gaussian_batches`,
    :mod:`~accounting.adaptive.fixed_batches.integer_batches`,
    :mod:`~accounting.adaptive.fixed_batches.pure_batches`), for noisy maxima bounded
    (:mod:`~accounting.adaptive.fixed_batches.maxima_batches`), and other noise is priced higher.

    Examples
    --------
    >>> from accounting import FixedSizeSubsampled, Gaussian, epsilon
    >>> step = FixedSizeSubsampled(Gaussian(1.0), batch_size=600, records=60_000)
    >>> round(epsilon(300 * step, 1e-5), 2)
    1.08
    """

    release: Release
    batch_size: int
    records: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_release(self.release)
        integer("records", self.records, at_least=1)
        if integer("batch_size", self.batch_size, at_least=1) > self.records:
            raise ValueError(f"batch_size must be at most records={self.records}, got batch_size={self.batch_size!r}")
        for stated in (self.adjacency, self.release.adjacency):
            if stated not in (None, "replace"):
                raise AdjacencyMismatch(
                    "batches of a fixed size are priced for one unit that is replaced, of the sample and of the data "
                    f"('replace'), got adjacency={stated!r}"
                )
        object.__setattr__(self, "adjacency", "replace")

    @property
    def rate(self) -> float:
        """The probability that a unit is in the batch."""
        return self.batch_size / self.records


def _keep_presence(sampled: PoissonSubsampled | RandomAllocated, name: str) -> None:
    """What is sampled is measured for units that are there or not, and so is the whole unless it says ``"replace"``."""
    if sampled.release.adjacency not in (None, "add_remove"):
        raise AdjacencyMismatch(
            "release must have its sensitivity measured for one unit present or absent ('add_remove'), "
            f"got release.adjacency={sampled.release.adjacency!r}"
        )
    if sampled.adjacency not in (None, "add_remove", "replace"):
        raise AdjacencyMismatch(
            f"{name} is priced for neighbours that differ by one unit present or absent "
            f"('add_remove') or swapped ('replace'), got adjacency={sampled.adjacency!r}"
        )
    object.__setattr__(sampled, "adjacency", sampled.adjacency or "add_remove")

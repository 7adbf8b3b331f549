"""Descriptions of noisy releases: frozen data that say what left the process, and nothing about its price.

A description gives its noise *relative to* the sensitivity of one unit, so it does not depend on the data,
its scale or its dimension. Accountants (:mod:`accounting.accountants`) are functions of these descriptions;
the meaning of a description never changes.

``a + b`` describes releasing both on the same data, ``1000 * a`` a thousand releases like ``a``, and
``parallel(a, b)`` releases on disjoint parts of the data. Composition is adaptive: ``b`` may be chosen
after the output of ``a`` was seen.

Descriptions from outside. A frozen dataclass that derives from :class:`Release` and says in :meth:`Release.weaker`
which known description costs at least as much is priced by every accountant, alone and in any composition.

Neighbouring relation. A description may state the adjacency under which its sensitivity was measured:
``"replace"`` (one unit swapped for any other), ``"add_remove"`` (one unit present or absent) or
``"zero_out"`` (one unit swapped for a null contribution). ``None`` leaves it to the budget or to the other
parts of a composition. Two different stated adjacencies never compose.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from accounting.checks import fraction, integer, positive
from accounting.composition import (
    Adjacency,
    Composed,
    Parallel,
    Release,
    check_adjacency,
    check_inner,
    common_adjacency,
    compose,
    parallel,
    weaker,
)
from accounting.errors import AdjacencyMismatch, UnsupportedRelease
from accounting.mechanisms import (
    ZCDP,
    ApproxDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    NoisyMax,
    PureDP,
    RandomizedResponse,
    TreeAggregation,
    UnaryEncoding,
)
from accounting.perturbation import ObjectivePerturbation
from accounting.selection import BestOfPoissonRuns, BestOfRuns

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
    "Parallel",
    "PoissonSubsampled",
    "PureDP",
    "RandomizedResponse",
    "Release",
    "ShuffledBinomial",
    "TreeAggregation",
    "UnaryEncoding",
    "ZCDP",
    "check_adjacency",
    "common_adjacency",
    "compose",
    "parallel",
    "weaker",
]


@dataclass(frozen=True, repr=False)
class PoissonSubsampled(Release):
    """A release that reads only a random part of the data, each unit kept independently with probability ``rate``.

    The sensitivity of the inner ``release`` is that of one unit present or absent (``"add_remove"``), whatever the
    relation. Neighbours differ by one unit present or absent as well; or, with ``adjacency="replace"``, by one unit
    swapped, of which either is as far from being absent as that sensitivity allows. A swap is priced for a single
    ``Gaussian``, ``Laplace``, ``PureDP`` or discrete release, by what it costs at worst
    (:mod:`accounting.accountants.swapped_losses`).

    Sampling must be done as described. Batches of a fixed size are :class:`FixedSizeSubsampled`. Shuffled epochs are
    neither, and gain less (Chua et al. 2024): a unit is in one batch of every epoch, so an epoch is one release,
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
        check_inner(self.release)
        fraction("rate", self.rate, include_one=True)
        if self.release.adjacency not in (None, "add_remove"):
            raise AdjacencyMismatch(
                "release must have its sensitivity measured for one unit present or absent ('add_remove'), "
                f"got release.adjacency={self.release.adjacency!r}"
            )
        if self.adjacency not in (None, "add_remove", "replace"):
            raise AdjacencyMismatch(
                "Poisson subsampling is priced for neighbours that differ by one unit present or absent "
                f"('add_remove') or swapped ('replace'), got adjacency={self.adjacency!r}"
            )
        swappable = (Gaussian, Laplace, PureDP, DiscreteGaussian, DiscreteLaplace)
        if self.adjacency == "replace" and not isinstance(self.release, swappable):
            raise UnsupportedRelease(
                "under 'replace' only Gaussian, Laplace, pure or discrete releases may be sampled, "
                f"got {self.release!r}"
            )
        object.__setattr__(self, "adjacency", self.adjacency or "add_remove")


@dataclass(frozen=True, repr=False)
class FixedSizeSubsampled(Release):
    """A release that reads a batch of ``batch_size`` of all ``records`` units, drawn evenly without replacement.

    Neighbours differ in one unit that is replaced, and so does the sensitivity of the inner ``release``: a clipped sum
    moves by twice the clipping norm. Every batch must be drawn anew from all units: those of a shuffled epoch are not.
    Which data are the worst depends on what was seen already; with Gaussian noise, noise on one integer and for pure
    releases that is played out (:mod:`accounting.accountants.replaced_steps`,
    :mod:`~accounting.accountants.replaced_integers`, :mod:`~accounting.accountants.replaced_coins`), for noisy maxima
    bounded (:mod:`~accounting.accountants.replaced_maxima`), and other noise is priced higher.

    Examples
    --------
    >>> from accounting import FixedSizeSubsampled, Gaussian, epsilon
    >>> step = FixedSizeSubsampled(Gaussian(1.0), batch_size=600, records=60_000)
    >>> round(epsilon(1000 * step, 1e-5), 2)
    1.88
    """

    release: Release
    batch_size: int
    records: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_inner(self.release)
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


@dataclass(frozen=True, repr=False)
class ShuffledBinomial(Release):
    """Integer counts, each with binomial noise Bin(``trials``, ½), of which one unit changes at most a few.

    What a shuffler of bits lets out: one count per coordinate. One unit shifts the vector of ``coordinates`` counts
    by an integer vector of Euclidean length at most ``shift_norm``. With ``rounded=True`` it shifts a real vector by
    at most that, of which every entry is then rounded at random to a neighbouring integer, up with the probability of
    its fraction.

    Neighbours differ in one user's input, ``"replace"`` unless ``"zero_out"`` is stated. Never in a user's presence:
    the noise comes from the users, and the number of messages alone tells how many there are.

    Examples
    --------
    >>> from accounting import ShuffledBinomial, epsilon
    >>> round(epsilon(ShuffledBinomial(trials=40_000, shift_norm=50.0, coordinates=6), 1e-6), 2)
    2.26
    """

    trials: int
    shift_norm: float
    coordinates: int
    rounded: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _keep_number_of_users(self)
        integer("trials", self.trials, at_least=1)
        positive("shift_norm", self.shift_norm)
        integer("coordinates", self.coordinates, at_least=1)
        if not isinstance(self.rounded, bool):
            raise TypeError(f"rounded must be True or False, got rounded={self.rounded!r}")


@dataclass(frozen=True, repr=False)
class LocalShuffled(Release):
    """The shuffled messages of ``users`` who all ran the same local randomizer, chosen before anything was seen.

    ``epsilon`` is what the randomizer costs by itself, or the randomizer: a :class:`RandomizedResponse`, a
    :class:`UnaryEncoding`, or ``Laplace(z)`` for one number in an interval, with noise of scale z times its length.
    Then ``LocalShuffled(RandomizedResponse(1.0, 10), users=10_000)`` is priced by what a k-ary response is known to
    hide, about half as much as any ε-DP randomizer. Randomizers that differ from user to user, or are chosen after
    messages were seen, are not covered.

    Neighbours differ in one user's input, ``"replace"`` unless ``"zero_out"`` is stated. Never in a user's presence:
    the number of messages alone tells how many there are.

    Examples
    --------
    >>> from accounting import Laplace, LocalShuffled, RandomizedResponse, epsilon
    >>> round(epsilon(LocalShuffled(1.0, users=10_000), 1e-6), 4)
    0.0432
    >>> round(epsilon(LocalShuffled(RandomizedResponse(1.0, 10), users=10_000), 1e-6), 4)
    0.0233
    >>> round(epsilon(LocalShuffled(Laplace(1.0), users=10_000), 1e-6), 4)
    0.0378
    """

    epsilon: float
    users: int
    randomizer: RandomizedResponse | UnaryEncoding | Laplace | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _keep_number_of_users(self)
        given: object = self.epsilon
        if isinstance(given, Release):
            object.__setattr__(self, "randomizer", given)
            object.__setattr__(self, "epsilon", _local_epsilon(given))
        if self.randomizer is not None and self.epsilon != _local_epsilon(self.randomizer):
            raise ValueError(f"epsilon must be that of {self.randomizer!r}, got epsilon={self.epsilon!r}")
        positive("epsilon", self.epsilon)
        integer("users", self.users, at_least=1)


def _local_epsilon(randomizer: Release) -> float:
    match randomizer:
        case RandomizedResponse(epsilon=eps) | UnaryEncoding(epsilon=eps):
            return eps
        case Laplace(noise_multiplier=z):
            return 1.0 / z
    raise UnsupportedRelease(
        "epsilon must be a number, a RandomizedResponse, a UnaryEncoding or a Laplace, "
        f"got {randomizer!r} (its ε is accepted)"
    )


def _keep_number_of_users(release: Release) -> None:
    """Shuffled messages hide what a user says, and not whether it is there."""
    if release.adjacency == "add_remove":
        raise AdjacencyMismatch(
            f"{type(release).__name__} is priced for neighbours that differ in one user's input ('replace' or "
            "'zero_out'): the number of messages is seen, got adjacency='add_remove'"
        )
    object.__setattr__(release, "adjacency", release.adjacency or "replace")

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

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from accounting.checks import fraction, integer, nonnegative, positive
from accounting.errors import AdjacencyMismatch, UnsupportedRelease

__all__ = [
    "Adjacency",
    "ApproxDP",
    "Composed",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "FixedSizeSubsampled",
    "Gaussian",
    "GeneralizedGaussian",
    "Laplace",
    "LocalShuffled",
    "NoisyMax",
    "Parallel",
    "PoissonSubsampled",
    "PureDP",
    "RandomizedResponse",
    "Release",
    "ShuffledBinomial",
    "TreeAggregation",
    "ZCDP",
    "compose",
    "parallel",
    "weaker",
]

Adjacency = Literal["replace", "add_remove", "zero_out"]


def check_adjacency(adjacency: str | None) -> None:
    """Refuse a name that is not a neighbouring relation (``None`` passes)."""
    if adjacency is not None and adjacency not in get_args(Adjacency):
        raise ValueError(f"adjacency must be one of {get_args(Adjacency)}, got adjacency={adjacency!r}")


def common_adjacency(adjacencies: Iterable[Adjacency | None]) -> Adjacency | None:
    """The one adjacency that is stated, ``None`` if none is; two different ones raise."""
    stated = sorted({a for a in adjacencies if a is not None})
    if len(stated) > 1:
        raise AdjacencyMismatch(
            f"cannot compose costs measured under different adjacencies: {' and '.join(map(repr, stated))}"
        )
    return stated[0] if stated else None


def _check_inner(release: object) -> None:
    if not isinstance(release, Release):
        raise TypeError(f"release must be a description such as Gaussian(1.0), got release={release!r}")


@dataclass(frozen=True)
class Release:
    """Base of all descriptions: value equality, a stated adjacency, and composition by ``+`` and ``*``."""

    adjacency: Adjacency | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_adjacency(self.adjacency)

    def weaker(self) -> Release:
        """A description that accountants know and that costs at least as much as this one, alone and composed.

        Accountants ask for it where they have no bound of their own. Its adjacency is this description's, or unstated.

        Raises
        ------
        UnsupportedRelease
            Unless a description overrides it: nothing is claimed then.

        Examples
        --------
        >>> from accounting import DiscreteLaplace
        >>> DiscreteLaplace(2.0).weaker()
        PureDP(epsilon=0.5)
        """
        raise UnsupportedRelease(f"{self!r} states no weaker description")

    def __add__(self, other: Release) -> Release:
        if not isinstance(other, Release):
            return NotImplemented
        if _is_empty(self) or _is_empty(other):
            return other if _is_empty(self) else self
        return Composed._of(((self, 1), (other, 1)), common_adjacency((self.adjacency, other.adjacency)))

    def __radd__(self, other: object) -> Release:
        # so that the builtin sum(), which starts from 0, works on a list of releases
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, count: int) -> Release:
        times = integer("count", count, at_least=0)
        if times == 1 or _is_empty(self):
            return self
        return Composed._of(((self, times),), self.adjacency) if times else Composed()

    __rmul__ = __mul__

    def __repr__(self) -> str:
        shown = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in fields(self)
            if f.name != "adjacency" and not (f.default is None and getattr(self, f.name) is None)
        ]
        if self.adjacency is not None:
            shown.append(f"adjacency={self.adjacency!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


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

    def weaker(self) -> Release:
        """Pure differential privacy: losses lie between −1/``noise_multiplier`` and that."""
        return PureDP(1.0 / self.noise_multiplier, adjacency=self.adjacency)


@dataclass(frozen=True, repr=False)
class GeneralizedGaussian(Release):
    """Noise of density ∝ exp(−‖z‖₊²/(2σ₊²)) with σ₊ = ``noise_multiplier`` × √κ × the sensitivity.

    κ is the smoothness of ‖·‖₊² times the square of the norms' distortion (see ``dpkit.mechanisms``), so that the
    noise multiplier means the same as for the Gaussian: ρ = 1/(2·noise_multiplier²).
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True, repr=False)
class Laplace(Release):
    """Laplace noise of scale ``noise_multiplier`` × the L1 sensitivity."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True, repr=False)
class NoisyMax(Release):
    """The index of the largest noisy score, ``epsilon``-DP.

    ``noise="gumbel"`` is the exponential mechanism (bounded range, Cesar & Rogers 2021); ``"exponential"`` is
    permute-and-flip and ``"laplace"`` the classical mechanism, which cost as much as Laplace noise.

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

    def weaker(self) -> Release:
        """Laplace noise of as large an ε, on one real number.

        Scores may move to a neighbour's in steps, each of which costs its share of ε: see
        :class:`accounting.accountants.losses.LaplacePair`.
        """
        if self.epsilon < 1e-300:  # the scale is beyond the floats
            return PureDP(self.epsilon, adjacency=self.adjacency)
        return Laplace(math.nextafter(1.0 / self.epsilon, 0.0), adjacency=self.adjacency)


@dataclass(frozen=True, repr=False)
class RandomizedResponse(Release):
    """The truth with probability e^ε/(e^ε + k − 1), else one of the other k − 1 ``categories`` evenly."""

    epsilon: float
    categories: int

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("epsilon", self.epsilon)
        integer("categories", self.categories, at_least=2)


@dataclass(frozen=True, repr=False)
class PureDP(Release):
    """Any mechanism that is known to be ``epsilon``-DP."""

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        nonnegative("epsilon", self.epsilon)


@dataclass(frozen=True, repr=False)
class ZCDP(Release):
    """Any mechanism that is known to be ``rho``-zCDP."""

    rho: float

    def __post_init__(self) -> None:
        super().__post_init__()
        nonnegative("rho", self.rho)


@dataclass(frozen=True, repr=False)
class ApproxDP(Release):
    """Any mechanism that is known to be ``(epsilon, delta)``-DP, and no more.

    Its dominating pair of distributions gives itself away with probability ``delta`` and is
    ``epsilon``-randomized response otherwise (Kairouz, Oh & Viswanath 2015), which is how it is composed.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        nonnegative("epsilon", self.epsilon)
        fraction("delta", self.delta, include_zero=True)


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

    def weaker(self) -> Release:
        """The nodes that one input reaches are a Gaussian vector, which it moves by √``levels``: nothing is lost."""
        return Gaussian(self.noise_multiplier / math.sqrt(self.levels), adjacency=self.adjacency)


@dataclass(frozen=True, repr=False)
class PoissonSubsampled(Release):
    """A release that reads only a random part of the data, each unit kept independently with probability ``rate``.

        The sensitivity of the inner ``release`` is that of one unit present or absent (``"add_remove"``), whatever the
        relation. Neighbours differ by one unit present or absent as well; or, with ``adjacency="replace"``, by one unit
    swapped, of which either is as far from being absent as that sensitivity allows. A swap is priced for a single
        ``Gaussian``, ``Laplace``, ``PureDP`` or discrete release, exactly so for ``Gaussian``.

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
        _check_inner(self.release)
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

    Examples
    --------
    >>> from accounting import FixedSizeSubsampled, Gaussian, epsilon
    >>> step = FixedSizeSubsampled(Gaussian(1.0), batch_size=600, records=60_000)
    >>> round(epsilon(1000 * step, 1e-5), 2)
    1.83
    """

    release: Release
    batch_size: int
    records: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_inner(self.release)
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

    ``epsilon`` is what the randomizer costs by itself, or the randomizer: ``LocalShuffled(RandomizedResponse(1.0, 10),
    users=10_000)`` is priced by what a k-ary response is known to hide, about half as much as any ε-DP randomizer.
    Randomizers that differ from user to user, or are chosen after messages were seen, are not covered.

    Neighbours differ in one user's input, ``"replace"`` unless ``"zero_out"`` is stated. Never in a user's presence:
    the number of messages alone tells how many there are.

    Examples
    --------
    >>> from accounting import LocalShuffled, RandomizedResponse, epsilon
    >>> round(epsilon(LocalShuffled(1.0, users=10_000), 1e-6), 4)
    0.0432
    >>> round(epsilon(LocalShuffled(RandomizedResponse(1.0, 10), users=10_000), 1e-6), 4)
    0.0233
    """

    epsilon: float
    users: int
    randomizer: RandomizedResponse | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _keep_number_of_users(self)
        given: object = self.epsilon
        if isinstance(given, Release):
            object.__setattr__(self, "randomizer", given)
            object.__setattr__(self, "epsilon", getattr(given, "epsilon", None))
        if self.randomizer is not None:
            if not isinstance(self.randomizer, RandomizedResponse):
                raise UnsupportedRelease(
                    f"epsilon must be a number or a RandomizedResponse, got {self.randomizer!r} (its ε is accepted)"
                )
            if self.randomizer.epsilon != self.epsilon:
                raise ValueError(f"epsilon must be that of {self.randomizer!r}, got epsilon={self.epsilon!r}")
        positive("epsilon", self.epsilon)
        integer("users", self.users, at_least=1)


def _keep_number_of_users(release: Release) -> None:
    """Shuffled messages hide what a user says, and not whether it is there."""
    if release.adjacency == "add_remove":
        raise AdjacencyMismatch(
            f"{type(release).__name__} is priced for neighbours that differ in one user's input ('replace' or "
            "'zero_out'): the number of messages is seen, got adjacency='add_remove'"
        )
    object.__setattr__(release, "adjacency", release.adjacency or "replace")


@dataclass(frozen=True, repr=False)
class Composed(Release):
    """Several releases on the same data; built by ``+`` and ``*``, in a canonical order.

    A sum remembers its terms and brings them into order when ``parts`` is first read, so that a long one is linear.
    """

    parts: tuple[tuple[Release, int], ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.parts, tuple) or not all(
            isinstance(term, tuple) and len(term) == 2 for term in self.parts
        ):
            raise TypeError(f"parts must be a tuple of (release, count) pairs, got parts={self.parts!r}")
        for release, count in self.parts:
            _check_inner(release)
            if isinstance(release, Composed):
                raise TypeError(f"parts must not be sums themselves (use +), got {release!r}")
            integer("count", count, at_least=1)
        object.__setattr__(self, "parts", _ordered(_merged(self.parts)))
        _agree(self, (release for release, _ in self.parts))

    @classmethod
    def _of(cls, terms: tuple[tuple[Release, int], ...], adjacency: Adjacency | None) -> Composed:
        """The sum of descriptions that need no check, each so many times, in any order."""
        composed = object.__new__(cls)
        composed.__dict__.update(adjacency=adjacency, _terms=terms)
        return composed

    def __getattr__(self, name: str) -> tuple[tuple[Release, int], ...]:
        # called where an attribute is missing: ``parts`` before it was read
        terms = self.__dict__.get("_terms")
        if name != "parts" or terms is None:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        parts = self.__dict__["parts"] = _ordered(_merged(terms))
        del self.__dict__["_terms"]
        return parts

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.parts, self.adjacency)

    def __repr__(self) -> str:
        terms = [repr(r) if n == 1 else f"{n} * {r!r}" for r, n in self.parts]
        return "(" + " + ".join(terms) + ")" if terms else "Composed()"


def _is_empty(release: Release) -> bool:
    return isinstance(release, Composed) and release.__dict__.get("parts") == ()


def _restore(parts: tuple[tuple[Release, int], ...], adjacency: Adjacency | None) -> Composed:
    return Composed(parts, adjacency=adjacency)


def _terms(terms: Iterable[tuple[Release, int]]) -> Iterator[tuple[Release, int]]:
    """The descriptions that a sum of sums is made of, without recursion: a sum may be thousands of ``+`` deep."""
    waiting = list(terms)
    while waiting:
        release, times = waiting.pop()
        if isinstance(release, Composed):
            inner = release.__dict__.get("_terms") or release.parts
            waiting.extend((part, count * times) for part, count in inner)
        else:
            yield release, times


def _merged(terms: Iterable[tuple[Release, int]]) -> dict[Release, int]:
    counts: dict[Release, int] = {}
    for release, times in _terms(terms):
        counts[release] = counts.get(release, 0) + int(times)
    return counts


def _ordered(counts: dict[Release, int]) -> tuple[tuple[Release, int], ...]:
    """A canonical order, so that equal totals compare equal."""
    return tuple(sorted(counts.items(), key=repr))


def _agree(release: Release, parts: Iterable[Release]) -> None:
    """Give a combination the adjacency that its parts state; refuse another one."""
    object.__setattr__(release, "adjacency", common_adjacency((release.adjacency, *(part.adjacency for part in parts))))


@dataclass(frozen=True, repr=False)
class Parallel(Release):
    """Releases on disjoint parts of the data, whose assignment does not depend on the data: one unit meets one."""

    branches: tuple[Release, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.branches, tuple):
            raise TypeError(f"branches must be a tuple of descriptions, got branches={self.branches!r}")
        for branch in self.branches:
            _check_inner(branch)
        _agree(self, self.branches)

    def __repr__(self) -> str:
        return f"parallel({', '.join(map(repr, self.branches))})"


def parallel(*releases: Release) -> Release:
    """Describe releases on disjoint scopes: whoever the unit is, it meets only one of them.

    The partition must be fixed by public information. Under ``"replace"`` the swapped unit must stay in its
    scope (its scope is public); otherwise a change touches two scopes and the releases must be added.

    Examples
    --------
    >>> from accounting import Gaussian, epsilon, parallel
    >>> two_cities = parallel(Gaussian(1.0), Gaussian(2.0))
    >>> epsilon(two_cities, 1e-5) == epsilon(Gaussian(1.0), 1e-5)
    True
    """
    flat: set[Release] = set()
    for release in releases:
        flat.update(release.branches if isinstance(release, Parallel) else (release,))
    if len(flat) == 1:
        return flat.pop()
    return Parallel(branches=tuple(sorted(flat, key=repr)), adjacency=common_adjacency(r.adjacency for r in flat))


def compose(terms: Iterable[tuple[Release, int]]) -> Release:
    """The sum of descriptions, each so many times: ``compose([(a, 2), (b, 1)]) == 2 * a + b``.

    Equal descriptions are merged and the rest is sorted, so that equal totals compare equal in any order.

    Examples
    --------
    >>> from accounting import Gaussian, PureDP, compose
    >>> compose([(Gaussian(2.0), 3), (PureDP(0.1), 1), (Gaussian(2.0), 1)])
    (4 * Gaussian(noise_multiplier=2.0) + PureDP(epsilon=0.1))
    """
    given = []
    for release, count in terms:
        _check_inner(release)
        given.append((release, integer("count", count, at_least=0)))
    given = [(release, count) for release, count in given if count and not _is_empty(release)]
    if len(given) == 1 and given[0][1] == 1:
        return given[0][0]
    if not given:
        return Composed()
    return Composed._of(tuple(given), common_adjacency(release.adjacency for release, _ in given))


def weaker(release: Release, accountant: str) -> Release:
    """What ``accountant`` prices in place of a description that it does not know (see :meth:`Release.weaker`).

    Raises
    ------
    UnsupportedRelease
        If there is none, by the names of both.
    """
    try:
        found = release.weaker()
    except UnsupportedRelease:
        raise UnsupportedRelease(f"the {accountant} accountant has no bound for {release!r}") from None
    if not isinstance(found, Release) or found == release:
        raise TypeError(f"weaker() must return another description, got {found!r} from {release!r}")
    if found.adjacency not in (None, release.adjacency):
        raise AdjacencyMismatch(
            f"weaker() must keep the adjacency, got {found.adjacency!r} from {release!r} of {release.adjacency!r}"
        )
    return found

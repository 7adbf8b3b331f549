"""What every description has: value equality, a stated adjacency, and composition by ``+``, ``*`` and ``parallel``.

Composition is adaptive: a part may be chosen after the outputs of others were seen. Equal totals compare equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from accounting.checks import integer
from accounting.errors import AdjacencyMismatch, UnsupportedRelease

if TYPE_CHECKING:  # describing a release loads no accountant
    from accounting.arrays import Array
    from accounting.loss.pair import LossPair

__all__ = [
    "Adjacency",
    "Composed",
    "Own",
    "Parallel",
    "Release",
    "check_adjacency",
    "check_release",
    "common_adjacency",
    "compose",
    "is_ours",
    "known",
    "may_fail",
    "parallel",
    "said",
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


def check_release(release: object) -> None:
    """Refuse what is no description."""
    if not isinstance(release, Release):
        raise TypeError(f"release must be a description such as Gaussian(1.0), got release={release!r}")


@dataclass(frozen=True)
class Release:
    """Base of all descriptions: value equality, a stated adjacency, and composition by ``+`` and ``*``.

    Examples
    --------
    >>> from accounting import Gaussian, PureDP
    >>> 12 * Gaussian(20.0) + PureDP(0.1)
    (12 * Gaussian(noise_multiplier=20.0) + PureDP(epsilon=0.1))
    """

    adjacency: Adjacency | None = field(default=None, kw_only=True)
    # whether it may give everything away, with a probability that is set apart
    _fails: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_adjacency(self.adjacency)

    def pair(self) -> LossPair:
        """What one unit's privacy loss is at worst: a pair of laws that dominates all neighbours, in either order.

        The descriptions of this package say theirs by this method, and so may one from outside; it is then priced by
        its own pair in any sum, sampled (if the pair is symmetric) and in parallel. What is made of others, such as a
        sum or a sample, has the pairs of its parts.

        Raises
        ------
        UnsupportedRelease
            If none is known.

        Examples
        --------
        >>> from accounting import Laplace
        >>> Laplace(2.0).pair()
        LaplacePair(theta=0.5)
        """
        raise UnsupportedRelease(
            f"the PLD accountant has no bound for {self!r} by itself: what is made of others has those of its "
            "parts, which accounting.PLD.of composes"
        )

    def renyi(self, orders: Array) -> Array:
        """The Rényi curve ε_α at real ``orders`` > 1, shape (m,), where a description from outside knows one.

        Raises
        ------
        UnsupportedRelease
            Unless it is overridden; the curves of this package's descriptions are :func:`accounting.rdp`'s.
        """
        raise UnsupportedRelease(f"{self!r} states no Rényi curve")

    def weaker(self) -> Release:
        """A description that accountants know and that costs at least as much as this one, alone and composed.

        Accountants ask for it where they have no bound of their own, and a ledger stores it with what is from outside.
        Its adjacency is this description's, or unstated.

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
            check_release(release)
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
            check_release(branch)
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
        check_release(release)
        given.append((release, integer("count", count, at_least=0)))
    given = [(release, count) for release, count in given if count and not _is_empty(release)]
    if len(given) == 1 and given[0][1] == 1:
        return given[0][0]
    if not given:
        return Composed()
    return Composed._of(tuple(given), common_adjacency(release.adjacency for release, _ in given))


# ------------------------------------------------------------------------------- what accountants price in its place


@dataclass(frozen=True, repr=False)
class Own(Release):
    """A description by its pair alone: what accountants price in place of one that says its own loss.

    ``said_by`` is that description, which may say more. ``absent`` is the pair in samples without the unit, if that is
    another one, and ``largest`` the largest loss, if it is known.
    """

    loss: LossPair
    said_by: Release | None = None
    absent: LossPair | None = None
    largest: float | None = None

    def __repr__(self) -> str:
        return repr(self.loss if self.said_by is None else self.said_by)

    def pair(self) -> LossPair:
        """The pair."""
        return self.loss

    def renyi(self, orders: Array) -> Array:
        """The curve that was said, if any."""
        if self.said_by is None or (said_curve := said(self.said_by, "renyi")) is None:
            return super().renyi(orders)
        found: Array = said_curve(orders)
        return found

    def weaker(self) -> Release:
        """The weaker description that was said, if any."""
        if self.said_by is None or said(self.said_by, "weaker") is None:
            return super().weaker()
        return known(_weaker(self.said_by))


def known(release: Release, *, exact: bool = False) -> Release:
    """The description that accountants price in place of ``release``: made of this package's own, each exactly.

    Whatever is from outside, a class derived from one of this package's included, is replaced by the pair that it
    says, else by its weaker description; also in sums, in parallel, in samples and in choices. So nothing afterwards
    can take a derived class for the one that it is derived from.

    With ``exact`` the answer costs no more than ``release``, instead of no less: pairs count if they are exact, and all
    else from outside as nothing.

    Raises
    ------
    UnsupportedRelease
        If a description says neither.
    """
    kind = type(release)
    if kind is Composed:
        parts = release.parts  # type: ignore[attr-defined]
        terms = [(known(part, exact=exact), count) for part, count in parts]
        return release if all(a is b for (a, _), (b, _) in zip(terms, parts, strict=True)) else compose(terms)
    if kind is Parallel:
        branches = release.branches  # type: ignore[attr-defined]
        found = [known(branch, exact=exact) for branch in branches]
        return release if all(a is b for a, b in zip(found, branches, strict=True)) else parallel(*found)
    if exact and kind is Own and not release.loss.exact:  # type: ignore[attr-defined]
        return Composed()
    if is_ours(kind):
        inner = release.__dict__.get("release")
        if inner is None or (one := known(inner, exact=exact)) is inner:
            return release
        return replace(release, release=one) if one != Composed() else one  # type: ignore[call-arg]
    if (pair := said(release, "pair")) is not None and ((loss := pair()).exact or not exact):
        return Own(loss, release, adjacency=release.adjacency)
    if exact:
        return Composed()
    if said(release, "weaker") is not None:
        return known(_weaker(release))
    raise UnsupportedRelease(
        f"no accountant has a bound for {release!r}: give it a method pair(), its privacy loss, or weaker(), a known "
        "description"
    )


def is_ours(kind: type[Release]) -> bool:
    """Whether accountants know a class itself."""
    return kind.__module__.startswith("accounting.releases.")


def said(release: Release, name: str) -> Callable[..., Any] | None:
    """A method that a class from outside has, and not the one from which it is derived."""
    for kind in type(release).__mro__:
        if is_ours(kind):
            return None
        if name in vars(kind):
            found: Callable[..., Any] = getattr(release, name)
            return found
    return None


def may_fail(release: Release) -> bool:
    """Whether a part of a known description may give everything away (:mod:`accounting.compose.failures`)."""
    if type(release) is Composed:
        return any(may_fail(part) for part, _ in release.parts)
    if type(release) is Parallel:
        return any(map(may_fail, release.branches))
    inner = release.__dict__.get("release")
    return release._fails or (inner is not None and may_fail(inner))


def weaker(release: Release, accountant: str) -> Release:
    """What ``accountant`` prices in place of a known description of which it has no bound.

    Raises
    ------
    UnsupportedRelease
        If there is none, by the names of both.
    """
    try:
        return _weaker(release)
    except UnsupportedRelease:
        raise UnsupportedRelease(f"the {accountant} accountant has no bound for {release!r}") from None


def _weaker(release: Release) -> Release:
    found = release.weaker()
    if not isinstance(found, Release) or found == release:
        raise TypeError(f"weaker() must return another description, got {found!r} from {release!r}")
    if found.adjacency not in (None, release.adjacency):
        raise AdjacencyMismatch(
            f"weaker() must keep the adjacency, got {found.adjacency!r} from {release!r} of {release.adjacency!r}"
        )
    return found

"""What a privacy loss is to accountants: a dominating pair of laws (P, Q), seen through L = ln P/Q.

A pair dominates a mechanism if its hockey-stick divergence H(e^ε) = ∫(P − e^ε Q)₊ is at least the mechanism's for
every pair of neighbours and every ε. Dominating pairs compose, also adaptively (Zhu, Dong & Wang 2022, Theorem 10):
so whoever knows one for a mechanism has its price in every total.

:class:`LossPair` says what a pair is asked for. A pair of one's own derives from :class:`Symmetric`, if L under P has
the law of −L under Q as it has for noise that is symmetric around 0, else from :class:`AllFinite`; or from
:class:`Atoms` where there are finitely many losses. :func:`check_pair` finds out whether what it says fits together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from accounting.arrays import UNIT_ROUNDOFF, Array

__all__ = [
    "AllFinite",
    "Atoms",
    "LopsidedAtoms",
    "LossPair",
    "NoLoss",
    "Symmetric",
    "atoms_below",
    "check_pair",
    "delta_of_atoms",
    "histogram",
    "mirrored",
    "remembered",
    "where_rare",
    "with_mirror_image",
]

_Method = TypeVar("_Method", bound=Callable[..., Any])


# ln of a probability that never matters
_NEVER = -745.0
# What the probabilities of a witness may be off by, and their losses.
_DOWN, _OFF = 1 - 1e-8, 3e-8


class LossPair(Protocol):
    """The privacy loss of a release, as two distributions that dominate its outputs on any two neighbours.

    A pair is hashable, and equal pairs are one. Whatever it answers may be more than the truth by rounding, not less.
    Masses may be off by some units in the last place of the smaller tail times its logarithm: of normal laws, by what
    differences of distribution functions lose.

    Examples
    --------
    >>> from accounting import Gaussian
    >>> pair = Gaussian(1.0).pair()
    >>> round(float(pair.delta(1.0)), 4)
    0.1269
    """

    @property
    def exact(self) -> bool:
        """Whether some two neighbours of some mechanism that fits have this pair, and δ is right to a part in 10⁷.

        Then it is what the description costs at least, too.
        """

    @property
    def follows(self) -> bool:
        """Whether releases that follow each other may cost less than the sum of their pairs.

        Then theorems are asked that are entered in :mod:`accounting.compose.tightenings`.
        """

    @property
    def infinite(self) -> float:
        """What P has at infinite losses."""

    def __hash__(self) -> int:
        """Equal pairs are one key."""

    def delta(self, epsilon: float) -> float:
        """H(e^ε), rounded up; ε may be negative."""

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """P and Q of L ≤ edges[0], between neighbouring edges, and above the last; each of shape (edges + 1,)."""

    def highest(self, log_tail: float) -> float:
        """A loss above which P has at most e^``log_tail``, or only infinite losses."""

    def lowest(self, log_tail: float) -> float:
        """An x such that below the loss −x P has at most e^``log_tail``."""


class AllFinite:
    """A pair without infinite losses, of which ``delta`` and ``masses`` are known; all else is derived from these.

    Examples
    --------
    >>> from accounting import Gaussian
    >>> from accounting.loss import AllFinite
    >>> isinstance(Gaussian(1.0).pair(), AllFinite)
    True
    """

    exact: bool = False
    follows: bool = False
    infinite: float = 0.0

    def delta(self, epsilon: float) -> float:
        raise NotImplementedError

    def masses(self, edges: Array) -> tuple[Array, Array]:
        raise NotImplementedError

    def highest(self, log_tail: float) -> float:
        """A loss above which P has at most e^``log_tail``."""
        return where_rare(lambda x: float(self.masses(np.array([x]))[0][-1]), log_tail)

    def lowest(self, log_tail: float) -> float:
        """An x such that below the loss −x P has at most e^``log_tail``."""
        return where_rare(lambda x: float(self.masses(np.array([-x]))[0][0]), log_tail)


def where_rare(mass: Callable[[float], float], log_tail: float) -> float:
    """An x ≥ 0 at which ``mass``, which falls, is at most e^``log_tail``; a little too large."""
    level = math.exp(max(log_tail, _NEVER))
    low, high = 0.0, 1.0
    while mass(high) > level:
        low, high = high, 2 * high
        if high > 1e6:
            raise ArithmeticError(f"no loss is so rare as e^{log_tail:g}")
    while high - low > 1e-9 * high + 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if mass(middle) > level else (low, middle)
    return high


def remembered(many: int) -> Callable[[_Method], _Method]:
    """For a method of pairs: what it found for the last so many of them, where equal pairs are one."""
    return cast("Callable[[_Method], _Method]", lru_cache(maxsize=many))


def mirrored(at_positive: Callable[[Any, float], float]) -> Callable[[Any, float], float]:
    """The method ``delta`` of symmetric pairs that is known at ε ≥ 0, at any ε."""

    @wraps(at_positive)
    def at_any(pair: Any, epsilon: float) -> float:
        if epsilon < 0:
            return -math.expm1(epsilon) + math.exp(epsilon) * at_positive(pair, -epsilon)
        return at_positive(pair, epsilon)

    return at_any


class Symmetric(AllFinite):
    """L under P has the law of −L under Q, so that P(L < −x) = Q(L > x) ≤ P(L > x) for x ≥ 0.

    Examples
    --------
    >>> from accounting import Laplace
    >>> from accounting.loss import Symmetric
    >>> isinstance(Laplace(1.0).pair(), Symmetric)
    True
    """

    def lowest(self, log_tail: float) -> float:
        """An x such that below the loss −x P has at most e^``log_tail``."""
        return self.highest(log_tail)


class Atoms(AllFinite):
    """Finitely many losses, in increasing order, and what P has beyond them all.

    Examples
    --------
    >>> from accounting import RandomizedResponse
    >>> from accounting.loss import Atoms
    >>> isinstance(RandomizedResponse(1.0, 2).pair(), Atoms)
    True
    """

    #: By what share masses and losses may be off.
    mass_rounding: float = 8 * UNIT_ROUNDOFF
    loss_rounding: float = 0.0

    def atoms(self) -> tuple[Array, Array, Array, float]:
        """Losses, masses of P and of Q there, and what P has beyond."""
        raise NotImplementedError

    @property
    def infinite(self) -> float:  # type: ignore[override]
        """What P has at infinite losses: all beyond the last."""
        return self.atoms()[3]

    def delta(self, epsilon: float) -> float:
        losses, p, _, beyond = self.atoms()
        epsilon -= abs(epsilon) * self.loss_rounding
        first = int(np.searchsorted(losses, epsilon, side="right"))
        found = beyond + delta_of_atoms(epsilon, losses[first:], p[first:])
        return min(1.0, found * (1 + self.mass_rounding))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        losses, p, q, beyond = self.atoms()
        in_p, in_q = histogram(edges, losses, p, q)
        in_p[-1] += beyond
        return in_p, in_q

    def highest(self, log_tail: float) -> float:
        losses, p, _, beyond = self.atoms()
        above = beyond + np.cumsum(p[::-1])
        rare = int(np.searchsorted(above, math.exp(max(log_tail, _NEVER)) * (1 - 1e-9)))
        return float(losses[-1 - min(rare, losses.size - 1)]) * (1 + 1e-12)


class LopsidedAtoms(Atoms):
    """The same of a pair that need not be symmetric."""

    def lowest(self, log_tail: float) -> float:
        """An x such that below the loss −x P has at most e^``log_tail``."""
        losses, p, _, _ = self.atoms()
        rare = int(np.searchsorted(np.cumsum(p), math.exp(max(log_tail, _NEVER)) * (1 - 1e-9)))
        return max(0.0, -float(losses[min(rare, losses.size - 1)])) * (1 + 1e-12)


@dataclass(frozen=True)
class NoLoss(Symmetric):
    """Two laws that are one: nothing is told.

    Examples
    --------
    >>> from accounting.loss import NoLoss
    >>> NoLoss().delta(0.0)
    0.0
    """

    exact = True

    def delta(self, epsilon: float) -> float:
        return max(0.0, -math.expm1(epsilon))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        return histogram(edges, np.zeros(1), np.ones(1), np.ones(1))

    def highest(self, log_tail: float) -> float:
        return 0.0


def histogram(edges: Array, losses: Array, p: Array, q: Array) -> tuple[Array, Array]:
    """``masses`` of a pair with finitely many losses."""
    at = np.searchsorted(edges, losses)
    size = edges.size + 1
    in_p, in_q = (np.bincount(at, weights=mass, minlength=size).astype(np.float64) for mass in (p, q))
    return in_p, in_q


def delta_of_atoms(epsilon: float, losses: Array, p: Array) -> float:
    """The divergence of finitely many losses."""
    return float(p @ np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0))


def atoms_below(p: Array, q: Array) -> tuple[Array, Array, Array, float]:
    """Losses in increasing order, less masses of P and of Q than these, and nothing beyond: of a pair that is known."""
    some = (p > 1e-290) & (q > 1e-290)
    p, q = p[some] * _DOWN, q[some] * _DOWN
    losses = np.log(p / q) - _OFF
    order = np.argsort(losses)
    losses, q = losses[order], q[order]
    return losses, np.exp(losses) * q, q, 0.0


def with_mirror_image(p: Array, q: Array) -> tuple[Array, Array, Array, float]:
    """Atoms of a symmetric pair with these masses at losses above 0, the largest first; what both lack is at 0."""
    losses = np.log(p / q)
    masses = np.concatenate([q, [1 - float(p.sum()) - float(q.sum())], p[::-1]])
    return np.concatenate([-losses, [0.0], losses[::-1]]), masses, masses[::-1], 0.0


def check_pair(pair: LossPair) -> None:
    """Whether what a pair says of itself fits together.

    That it dominates a mechanism is a claim, and its proof is yours. What is checked is this: P has the mass 1, and
    Q at most that; between two edges P is between e^edge times Q for both; δ at an edge is what P has above it less
    e^edge times what Q has; no more than a tail is beyond ``highest`` and ``lowest``; and what derives from
    :class:`Symmetric` is symmetric.

    Raises
    ------
    ValueError
        If two answers contradict each other, with both.

    Examples
    --------
    >>> from accounting import Laplace
    >>> from accounting.loss import check_pair
    >>> check_pair(Laplace(2.0).pair())
    """
    hash(pair)
    for log_tail in (-3.0, -30.0):
        high, low = pair.highest(log_tail), pair.lowest(log_tail)
        p, _ = pair.masses(np.array([-low * (1 + 1e-9) - 1e-9, high * (1 + 1e-9) + 1e-9]))
        for name, beyond in (("lowest", float(p[0])), ("highest", float(p[-1]) - pair.infinite)):
            if beyond > math.exp(log_tail) * (1 + 1e-6) + 1e-15:
                raise ValueError(f"{name}({log_tail!r}) of {pair!r} leaves out {beyond:g}, by masses")
    edges = np.concatenate([np.linspace(-low, 0.0, 25)[:-1], np.linspace(0.0, high, 25)]) + 1e-6 * (1 + high)
    p, q = pair.masses(edges)
    if p.shape != (edges.size + 1,) or q.shape != p.shape:
        raise ValueError(f"masses must be of shape {(edges.size + 1,)}, got {p.shape} and {q.shape} of {pair!r}")
    if abs(float(p.sum()) - 1) > 1e-6 or float(q.sum()) > 1 + 1e-6 or min(float(p.min()), float(q.min())) < 0:
        raise ValueError(f"P must have the mass 1 and Q at most that, got {p.sum():g} and {q.sum():g} of {pair!r}")
    with np.errstate(over="ignore"):
        low_p, high_p = np.exp(edges[:-1]) * q[1:-1], np.exp(edges[1:]) * q[1:-1]
    if np.any(p[1:-1] < low_p * (1 - 1e-6) - 1e-12) or np.any(p[1:-1] > high_p * (1 + 1e-6) + 1e-12):
        raise ValueError(f"between two edges P must be between e^edge times Q, by masses of {pair!r}")
    for i, edge in enumerate(edges.tolist()):
        said, above = pair.delta(edge), float(p[i + 1 :].sum()) - math.exp(min(edge, 700.0)) * float(q[i + 1 :].sum())
        if abs(said - above) > 1e-6 * said + 1e-10:
            raise ValueError(f"delta({edge!r}) of {pair!r} is {said!r}, and {above!r} by masses")
    if isinstance(pair, Symmetric):
        mirrored, _ = pair.masses(-edges[::-1])
        mirrored[-1] -= pair.infinite  # what Q has at −∞ is not among its masses
        if float(np.max(np.abs(mirrored[::-1] - q))) > 1e-9:
            raise ValueError(f"L under P must have the law of −L under Q, by masses of {pair!r}")

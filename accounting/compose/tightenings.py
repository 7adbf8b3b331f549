"""Theorems that price a sequence of releases below the sum of its pairs: where they register and are tried.

A sum of dominating pairs is a bound whatever follows what. For some releases the worst that each can do depends on what
was seen before, and playing that out costs less. Such theorems live in :mod:`accounting.adaptive`, and are entered here
by :mod:`accounting.adaptive.registry`. They are asked by the exact types of pairs that they are about: a total that
none applies to, such as plain DP-SGD, learns that at once and loads none of them.

A theorem's file has some of these functions; whatever they say is a bound, and the least one counts:

* ``replaced(pairs)`` gives pairs that dominate these and cost no more, whatever is asked;
* ``in_place(parts, δ)`` gives other parts that dominate and may cost less, or None;
* ``epsilon(parts, δ, of_sum, enough)`` and ``delta(parts, ε, of_sum, enough)`` give an answer, or None: ``of_sum()`` is
  that of the sum of all losses, for those who can say less than that; at most ``enough`` is as good as any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from accounting.compose.convolution import Parts
from accounting.loss.pair import LossPair

__all__ = ["InPlace", "Tightening", "answer", "in_place", "registered", "replaced"]

#: Of parts, and for about which δ: other parts that dominate them at every ε, or None.
InPlace = Callable[[Parts, float], Parts | None]


@dataclass(frozen=True)
class Tightening:
    """A theorem, and where it is.

    Attributes
    ----------
    name : str
        What it is about.
    module : str
        The file with its entry; the theorem is there, or in files that it names.
    pairs : frozenset of str
        The exact types of pairs, or of what samples are of, that it is about.
    """

    name: str
    module: str
    pairs: frozenset[str]

    def applies(self, pairs: Iterable[LossPair]) -> bool:
        """Whether one of ``pairs`` is of these types, which are this package's: others may bear the same names."""
        kinds = (type(one) for pair in pairs for one in (pair, getattr(pair, "inner", None)))  # or what it samples
        return any(kind.__name__ in self.pairs and kind.__module__.startswith("accounting.") for kind in kinds)

    def offers(self, name: str) -> Callable[..., Any] | None:
        """What the file has under this name; it is loaded."""
        found: Callable[..., Any] | None = getattr(import_module(self.module), name, None)
        return found


#: In the order in which they are asked.
registered: list[Tightening] = []


def _applying(parts: Parts) -> list[Tightening]:
    return [one for one in registered if one.applies(pair for pair, _ in parts)]


def replaced(pairs: Counter[LossPair]) -> Counter[LossPair]:
    """``pairs`` with others in place of some, which dominate them and cost no more."""
    for one in registered:
        if one.applies(pairs) and (offer := one.offers("replaced")):
            pairs = offer(pairs)
    return pairs


def in_place(parts: Parts) -> Iterator[InPlace]:
    """What may give other parts for these, in order."""
    for one in _applying(parts):
        if offer := one.offers("in_place"):
            yield offer


def answer(notion: str, parts: Parts, at: float, of_sum: Callable[[], float], enough: float) -> float:
    """The ``epsilon`` at a δ, or the ``delta`` at an ε: of the first that knows one, or that of the sum."""
    for one in _applying(parts):
        if offer := one.offers(notion):
            found: float | None = offer(parts, at, of_sum, enough)
            if found is not None:
                return found
    return of_sum()

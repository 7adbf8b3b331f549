"""How many features of hashed rows share an entry, and how many numbers are cut: for choosing ``dim`` and ranges.

Names are those of the rows that were given: a report of private rows is as confidential as they are. Give public ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

__all__ = ["Collisions"]

_SHOWN = 3


@dataclass(frozen=True)
class Collisions:
    """What happened to the features of some public rows.

    Attributes
    ----------
    features : int
        Distinct names, those of interactions included.
    dim, used : int
        Entries of a row, and how many of them hold a feature.
    alone : float
        The share of features that have their entry to themselves.
    expected : float
        The same for a random hash, (1 − 1/dim)^(features − 1).
    shared : tuple of (str, ...)
        The names in the entries that are shared by most.
    cut : mapping from str to float
        For every path of numbers, the share of them that came to an end of [−1, 1].

    Examples
    --------
    >>> from dpkit.features import Hashed
    >>> hashed = Hashed(16, namespaces=["item"], interactions=[])
    >>> hashed.collisions([{"item": {"kind": kind, "price": 30}} for kind in ("tea", "mug", "pot")])
    4 features in 4 of 16 entries: 100 % have one to themselves (82 % expected). Cut: item/price (100 %)
    """

    features: int
    dim: int
    used: int
    alone: float
    expected: float
    shared: tuple[tuple[str, ...], ...] = ()
    cut: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[tuple[str, int]], dim: int, cut: Mapping[str, float]) -> Self:
        """From names with their entries, repeated or not."""
        where: dict[int, dict[str, None]] = {}
        for name, entry in entries:
            where.setdefault(entry, {})[name] = None
        count = sum(map(len, where.values()))
        single = sum(len(names) == 1 for names in where.values())
        crowded = sorted((names for names in where.values() if len(names) > 1), key=len, reverse=True)
        return cls(
            count,
            dim,
            len(where),
            single / count if count else 1.0,
            (1 - 1 / dim) ** max(0, count - 1),
            tuple(tuple(names) for names in crowded[:_SHOWN]),
            {name: share for name, share in cut.items() if share > 0},
        )

    def __repr__(self) -> str:
        text = (
            f"{self.features:,} features in {self.used:,} of {self.dim:,} entries: {100 * self.alone:.0f} % have one "
            f"to themselves ({100 * self.expected:.0f} % expected)"
        )
        if self.shared:
            text += f". Shared: {'; '.join(', '.join(names[:_SHOWN]) for names in self.shared)}"
        if self.cut:
            text += f". Cut: {', '.join(f'{name} ({100 * share:.0f} %)' for name, share in self.cut.items())}"
        return text

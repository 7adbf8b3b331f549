"""Who was assigned to what: a person who comes again has the decision of the first time.

By the hash of the person's id (:class:`dpkit.states.registry.Registry`), and as confidential as it. Which decisions are
whose is public (see ``docs/privacy-proofs.md``), so what is looked up here tells nothing of anybody's values.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from dpkit.states.entries import short

__all__ = ["Visits"]


class Visits:
    """From the hash of a person to the number of the decision, and its arm.

    Examples
    --------
    >>> visits = Visits()
    >>> visits.add(7, round=0, index=1)
    >>> visits.find(7, decisions=1), visits.find(8, decisions=1)
    ((0, 1), None)
    """

    def __init__(self) -> None:
        self._of: dict[int, tuple[int, int]] = {}
        self._last: int | None = None  # whose decision the last one is

    def find(self, person: int, decisions: int) -> tuple[int, int] | None:
        """The decision of a person, and its arm, among so many that were made."""
        found = self._of.get(person)
        return found if found is not None and found[0] < decisions else None

    def add(self, person: int, round: int, index: int) -> None:
        """Note a decision: the next one, or the last once more, which an interrupt left unmade, maybe of another."""
        last = self._last
        if last is not None and last != person and self._of[last][0] == round:
            del self._of[last]
        self._of[person], self._last = (round, index), person

    def kept(self) -> dict[str, Any]:
        """For a state file, by ascending hash."""
        persons = np.fromiter(self._of, np.int64, len(self._of))
        found = np.fromiter(chain.from_iterable(self._of.values()), np.int64, 2 * len(persons)).reshape(-1, 2)
        order = persons.argsort()
        return {"persons": persons[order], "rounds": found[order, 0], "indices": found[order, 1]}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        if not isinstance(saved, Mapping) or set(saved) != {"persons", "rounds", "indices"}:
            raise ValueError(f"visits must hold the entries 'persons', 'rounds' and 'indices', got {short(saved)}")
        columns = [saved[name] for name in ("persons", "rounds", "indices")]
        for column in columns:
            if not isinstance(column, np.ndarray) or column.dtype != np.int64 or column.shape != (len(columns[0]),):
                raise ValueError(f"visits must be vectors of int64, one entry per person, got {short(column)}")
        persons, rounds, indices = columns
        if not (persons[:-1] < persons[1:]).all() or (rounds < 0).any() or (indices < 0).any():
            raise ValueError("visits must ascend by person, and name decisions and arms, got others")
        pairs = zip(rounds.tolist(), indices.tolist(), strict=True)
        self._of = dict(zip(persons.tolist(), pairs, strict=True))
        self._last = int(persons[rounds.argmax()]) if len(persons) else None

"""Whose turn it was: how many decisions the open batch of each arm has, and which persons are in it.

For sums in batches of each arm's own (:mod:`dpkit.moments.arm_batches`, :mod:`dpkit.moments.shuffled_arms`). How many
decisions there are, and of whom, is public; whose record has come is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.checks import integer
from dpkit.states import entries

__all__ = ["ArmTurns"]


class ArmTurns:
    """The decisions of each arm's open batch, and who is in it.

    Parameters
    ----------
    arms : int
        K at the start.
    people : bool
        Whether it is noted who is in a batch: only where a person may be in several.

    Examples
    --------
    >>> from dpkit.moments.arm_turns import ArmTurns
    >>> turns = ArmTurns(2, people=True)
    >>> turns.may_ask(0, person=7)
    True
    >>> turns.ask(0, 7)
    >>> turns.decided(0, 0)
    >>> turns.counts(1).tolist(), turns.may_ask(0, 7), turns.may_ask(1, 7)
    ([1, 0], False, True)
    >>> turns.close(0, 1)
    >>> turns.counts(1).tolist(), turns.may_ask(0, 7)
    ([0, 0], True)
    """

    _KEPT = ("counted", "last", "decisions")

    def __init__(self, arms: int, *, people: bool = False) -> None:
        K = integer("arms", arms, at_least=1)
        # but for the last decision, which may be made once more: its arm plus one, or 0
        self.counted = np.zeros(K, np.int64)
        self.last, self.decisions = 0, 0
        # by arm: persons with a decision in the open batch, which is public, and with a record, which is not
        self._asked: list[set[int]] | None = [set() for _ in range(K)] if people else None
        self._told: list[set[int]] | None = [set() for _ in range(K)] if people else None

    def grow(self) -> None:
        """One more arm."""
        self.counted = np.append(self.counted, 0)
        for one in (self._asked, self._told):
            if one is not None:
                one.append(set())

    # ----------------------------------------------------------------------------------------- public: decisions

    def decided(self, round: int, arm: int | None) -> None:
        """A decision in a round from 0: the next one, or the last once more, which an interrupt left unmade.

        It counts for ``arm``, or for none.
        """
        if round >= self.decisions:
            self._count()
        self.last, self.decisions = 0 if arm is None else arm + 1, round + 1

    def decided_many(self, first: int, arms: NDArray[np.int64]) -> None:
        """Decisions in the rounds from ``first`` on, each for an arm, as :meth:`decided` takes them one by one."""
        if not len(arms):
            return
        if first >= self.decisions:
            self._count()
        self.counted += np.bincount(arms[:-1], minlength=len(self.counted))
        self.last, self.decisions = int(arms[-1]) + 1, first + len(arms)

    def _count(self) -> None:
        """Count the last decision, once."""
        last, self.last = self.last, 0
        if last:
            self.counted[last - 1] += 1

    def counts(self, decisions: int) -> NDArray[np.int64]:
        """How many of so many decisions are in the open batch of each arm, shape (K,)."""
        counts = self.counted.copy()
        if self.last and self.decisions <= decisions:
            counts[self.last - 1] += 1
        return counts

    def close(self, arm: int, decisions: int) -> None:
        """Close the batch of an arm after so many decisions, and open its next one."""
        if self.decisions <= decisions:
            self._count()
        self.counted[arm] = 0
        for one in (self._asked, self._told):
            if one is not None:
                one[arm] = set()

    # ------------------------------------------------------------------------------------------ who is in a batch

    def may_ask(self, arm: int, person: int) -> bool:
        """Whether this person has no decision in the open batch of an arm."""
        return self._asked is None or person not in self._asked[arm]

    def ask(self, arm: int, person: int) -> None:
        """Note the decision of a person; perhaps once more."""
        if self._asked is not None:
            self._asked[arm].add(person)

    def may_tell(self, arm: int, person: int) -> bool:
        """Whether this person has no record in the open batch of an arm."""
        return self._told is None or person not in self._told[arm]

    def tell(self, arm: int, person: int) -> None:
        """Note the record of a person."""
        if self._told is not None:
            self._told[arm].add(person)

    # ------------------------------------------------------------------------------------------------------ state

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        found = entries.kept(self, self._KEPT)
        if self._asked is not None and self._told is not None:
            found["asked"], found["told"] = _columns(self._asked), _columns(self._told)
        return found

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked; there are as many arms as in the state already."""
        people = () if self._asked is None else ("asked", "told")
        names = {*self._KEPT, *people}
        if not isinstance(saved, Mapping) or set(saved) != names:
            raise ValueError(f"turns must hold the entries {sorted(names)}, got {entries.short(saved)}")
        entries.resume(self, self._KEPT, {name: saved[name] for name in self._KEPT})
        if (self.counted < 0).any() or self.last > len(self.counted):
            raise ValueError("counted must be at least 0, and last name an arm, got others")
        if people:
            self._asked, self._told = (_sets(name, saved[name], len(self.counted)) for name in people)


def _columns(people: list[set[int]]) -> NDArray[np.int64]:
    """Rows (arm, person), sorted: in no order that tells who came first."""
    rows = [(arm, person) for arm, some in enumerate(people) for person in sorted(some)]
    return np.array(rows, np.int64).reshape(-1, 2)


def _sets(name: str, saved: Any, arms: int) -> list[set[int]]:
    if not isinstance(saved, np.ndarray) or saved.dtype != np.int64 or saved.ndim != 2 or saved.shape[1] != 2:
        raise ValueError(f"{name} must be rows of an arm and a person, got {entries.short(saved)}")
    if len(saved) and not (saved[:, 0].min() >= 0 and saved[:, 0].max() < arms):
        raise ValueError(f"{name} must be of arms from 0 to {arms - 1}, got others")
    found: list[set[int]] = [set() for _ in range(arms)]
    for arm, person in saved.tolist():
        found[arm].add(person)
    return found

"""What is remembered of a decision until its reward comes, in memory, in journals and in states."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import overload

import numpy as np

from accounting.arrays import Array
from dpkit.states.registry import NOBODY

__all__ = ["Pending", "Together"]


@dataclass(slots=True, eq=False)
class Pending:
    """A decision whose reward has not come: all that ``learn`` is told of it.

    Attributes
    ----------
    arm : ndarray of shape (d,)
        What was chosen (for policies with a context: the context); empty once its batch is closed.
    index : int
        Its row.
    round : int
        Its number among the decisions of the run, from 0.
    note : tuple of int
        What else the policy has written down about the choice.
    person : int
        Whose round it was, hashed (:class:`dpkit.states.registry.Registry`), where the policy protects persons;
        else ``NOBODY``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.policies import Uniform
    >>> policy = Uniform(2)
    >>> decision = policy.select(np.eye(2))
    >>> policy.open_decisions == [decision.id]
    True
    """

    arm: Array
    index: int
    round: int
    note: tuple[int, ...] = ()
    person: int = NOBODY


class Together(Sequence[Pending]):
    """Decisions that were made together, or whose rewards came so: each a :class:`Pending` when it is asked for.

    Attributes
    ----------
    arms : ndarray of shape (n, d), or a sequence of arrays
    indices, rounds : sequence of int
    notes : sequence of tuples
        Empty where nothing is noted.
    persons : sequence of int
        Empty where none is kept.

    Examples
    --------
    >>> made = Together(np.eye(3), [2, 0, 1], range(7, 10))
    >>> len(made), made[1].index, made[1].round, made[made.place(9)].arm.tolist()
    (3, 0, 8, [0.0, 0.0, 1.0])
    """

    __slots__ = ("arms", "indices", "notes", "persons", "rounds")

    def __init__(
        self,
        arms: Array | Sequence[Array],
        indices: Sequence[int],
        rounds: Sequence[int],
        notes: Sequence[tuple[int, ...]] = (),
        persons: Sequence[int] = (),
    ) -> None:
        self.arms, self.indices, self.rounds, self.notes, self.persons = arms, indices, rounds, notes, persons

    @classmethod
    def gathered(cls, made: Sequence[Pending]) -> Together:
        """Of decisions that were made one by one."""
        arms, indices, rounds = [one.arm for one in made], [one.index for one in made], [one.round for one in made]
        return cls(arms, indices, rounds, [one.note for one in made], [one.person for one in made])

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Pending]:
        return map(
            Pending, self.arms, self.indices, self.rounds, self.notes or repeat(()), self.persons or repeat(NOBODY)
        )

    @overload
    def __getitem__(self, i: int) -> Pending: ...

    @overload
    def __getitem__(self, i: slice) -> Together: ...

    def __getitem__(self, i: int | slice) -> Pending | Together:
        if isinstance(i, slice):
            return Together(self.arms[i], self.indices[i], self.rounds[i], self.notes[i], self.persons[i])
        note, person = self.notes[i] if self.notes else (), self.persons[i] if self.persons else NOBODY
        return Pending(self.arms[i], self.indices[i], self.rounds[i], note, person)

    def place(self, round: int) -> int:
        """Where the one stands that was made in this round; they ascend."""
        return round - self.rounds[0] if isinstance(self.rounds, range) else bisect_left(self.rounds, round)

    def rows(self) -> Array:
        """The arms, which are of one length, as an array of shape (n, d)."""
        if isinstance(self.arms, np.ndarray):
            return np.ascontiguousarray(self.arms)
        return np.concatenate(self.arms).reshape(len(self.arms), -1)

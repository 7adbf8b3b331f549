"""The decisions whose rewards have not come: admitted, closed, expired, and kept in a file."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpbandits.durability.pending import Pending, Together
from dpbandits.policy.decision import Decision
from dpkit.states.entries import taken

__all__ = ["OpenDecisions"]


class _Batch(Together):
    """Decisions that were made together, by rounds that ascend, and how many of them are open."""

    __slots__ = ("left",)

    def __init__(self, made: Together) -> None:
        super().__init__(made.arms, made.indices, made.rounds, made.notes, made.persons)
        self.left = len(made)

    def only(self, rounds: list[int]) -> _Batch:
        """Some of them, whose arms are copies: those of the others are let go of."""
        at = [*map(self.place, rounds)]
        if isinstance(self.arms, np.ndarray):
            arms: Any = self.arms[at]
            arms.setflags(write=False)
        else:
            arms = [self.arms[i] for i in at]
        notes, persons = ([many[i] for i in at] if many else () for many in (self.notes, self.persons))
        return _Batch(Together(arms, [self.indices[i] for i in at], rounds, notes, persons))  # type: ignore[arg-type]


class OpenDecisions(MutableMapping[int, Pending]):
    """The open decisions of one run by their ids, the oldest first. It knows nothing of learning.

    Decisions that were made together are kept as one array of arms. Whenever half of a batch is closed, those that are
    open move to an array of their own: each moves once, on average, and at least half of the arms in memory are open.

    Attributes
    ----------
    run : str
        The run that they belong to; a :class:`~dpbandits.policy.decision.Decision` of another one is refused.
    """

    def __init__(self) -> None:
        self.run = secrets.token_hex(16)
        # by id, or what it was made together with
        self._made: dict[int, Pending | _Batch] = {}

    def __len__(self) -> int:
        return len(self._made)

    def __iter__(self) -> Iterator[int]:
        return iter(self._made)

    def __contains__(self, key: object) -> bool:
        return key in self._made

    def __getitem__(self, key: int) -> Pending:
        found = self._made[key]
        return found if isinstance(found, Pending) else found[found.place(key)]

    def __setitem__(self, key: int, pending: Pending) -> None:
        before = self._made.get(key)
        self._made[key] = pending
        if isinstance(before, _Batch):
            self._less(before, 1)

    def __delitem__(self, key: int) -> None:
        before = self._made.pop(key)
        if isinstance(before, _Batch):
            self._less(before, 1)

    def clear(self) -> None:
        self._made.clear()

    def admit(self, made: Together) -> None:
        """Wait for the rewards of decisions that were made together."""
        self._made.update(dict.fromkeys(made.rounds, _Batch(made)))

    def those(self, keys: list[int]) -> Together:
        """Decisions by their ids.

        Raises
        ------
        ValueError
            Naming the first whose reward is not open.
        """
        found: list[Any] = [*map(self._made.get, keys)]
        if None in found:
            number, why = found.index(None), "decision must be one whose reward is still open"
            raise ValueError(f"decisions[{number}]: {why}, got decision id {keys[number]!r}")
        first = found[0] if found else None
        if isinstance(first, _Batch) and found.count(first) == len(found):
            at = first.place(keys[0])
            part = first[at : at + len(keys)]
            if [*part.rounds] == keys:
                return part
        made = zip(found, keys, strict=True)
        return Together.gathered([one[one.place(key)] if isinstance(one, _Batch) else one for one, key in made])

    def close(self, keys: Sequence[int]) -> None:
        """Wait for these no longer."""
        found = [*map(self._made.pop, keys)]
        one_batch = found.count(found[0]) == len(found) if found else False
        for batch, count in ({found[0]: len(found)} if one_batch else Counter(found)).items():
            if isinstance(batch, _Batch):
                self._less(batch, count)

    def _less(self, batch: _Batch, count: int) -> None:
        """So many of a batch are open no longer."""
        batch.left -= count
        if 2 * batch.left <= len(batch):
            rounds = [round for round in batch.rounds if self._made.get(round) is batch]
            kept = batch.only(rounds)
            for round in rounds:  # not by ``update``, which may make room, while somebody goes through all of them
                self._made[round] = kept

    def key(self, decision: Decision | int) -> int:
        """The id of a decision, which is given itself or by its id.

        Raises
        ------
        ValueError
            If it is no decision, or one of another run.
        """
        key = decision
        if isinstance(decision, Decision):
            if decision.run != self.run:
                raise ValueError(f"decision must come from this policy, got decision {decision.id} of another one")
            key = decision.id
        # 1.0 and True would find decision 1, too, and could not be read back from a journal
        if type(key) is int or isinstance(key, np.integer):
            return int(key)
        raise ValueError(f"decision must be a Decision or its id, a whole number, got decision={key!r}")

    def expire(self, first: int) -> list[int]:
        """Close the decisions before ``first``; which there were."""
        gone = []
        while (oldest := next(iter(self), first)) < first:
            del self[oldest]
            gone.append(oldest)
        return gone

    def drop_arms(self, closed: Callable[[Pending], bool]) -> None:
        """Keep no arms of decisions whose rewards will count for nothing."""
        nothing = np.empty(0)
        for key, pending in self.items():
            if len(pending.arm) and closed(pending):
                self[key] = replace(pending, arm=nothing)

    # ---------------------------------------------------------------------------------------------- state

    def packed(self, dim: int, notes: int) -> dict[str, Any]:
        """As arrays, of arms of ``dim`` entries and so many ``notes``."""
        waiting = list(self.values())
        arms = np.zeros((len(waiting), dim))
        for row, pending in zip(arms, waiting, strict=True):
            row[: len(pending.arm)] = pending.arm
        return {
            "ids": np.array(list(self), dtype=np.int64),
            "indices": np.array([pending.index for pending in waiting], dtype=np.int64),
            "arms": arms,
            "closed": np.array([not len(pending.arm) for pending in waiting], dtype=np.bool_),
            "notes": np.array([pending.note for pending in waiting], dtype=np.int64).reshape(len(waiting), notes),
            "persons": np.array([pending.person for pending in waiting], dtype=np.int64),
        }

    def unpack(
        self, saved: Any, dim: int, notes: int, *, decisions: int, checked: Callable[[Pending], Pending]
    ) -> None:
        """Be what :meth:`packed` returned, after so many ``decisions``; ``checked`` refuses what is no open decision.

        Raises
        ------
        ValueError
            If it is nothing that :meth:`packed` returns.
        """
        like = {
            name: np.broadcast_to(np.zeros((), none.dtype), (len(saved["ids"]), *none.shape[1:]))
            for name, none in OpenDecisions().packed(dim, notes).items()
        }
        ids, indices, arms, closed, told, persons = taken("open", saved, like).values()
        if len(ids) and not (ids[0] >= 0 and (np.diff(ids) > 0).all() and ids[-1] < decisions):
            raise ValueError(f"open.ids must increase from 0 to less than decisions={decisions}, got others")
        numbers = (one.tolist() for one in (ids, indices, closed, told, persons))
        found = {
            id: checked(Pending(arm[: 0 if shut else None].copy(), index, id, tuple(note), person))
            for arm, id, index, shut, note, person in zip(arms, *numbers, strict=True)
        }
        self.clear()
        self.update(found)

"""The decisions whose rewards have not come: admitted, closed, expired, and kept in a file."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dpbandits.durability.pending import Pending
from dpbandits.policy.decision import Decision
from dpkit.states.entries import taken

__all__ = ["OpenDecisions"]


class OpenDecisions(dict[int, Pending]):
    """The open decisions of one run by their ids, the oldest first. It knows nothing of learning.

    Attributes
    ----------
    run : str
        The run that they belong to; a :class:`~dpbandits.policy.decision.Decision` of another one is refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.run = secrets.token_hex(16)

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

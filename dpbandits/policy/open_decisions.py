"""The decisions whose rewards have not come: how they are admitted, rewarded, forgotten, and kept in a file."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from accounting.arrays import Array
from dpbandits.durability.decision_log import DecisionLog
from dpbandits.policy.checks import real_number
from dpbandits.policy.decision import Decision, Pending
from dpkit.states.entries import short, taken

__all__ = ["Waiting"]


class Waiting(ABC):
    """The books of a run: which of its decisions are open. What a reward teaches is in ``_learn``."""

    dim: int
    # how many arms there are, where that is the same in all rounds
    n_arms: int | None = None
    # whether it is fixed as decisions are made, and not as rewards come, which of them count (and of whom, in which
    # part of the data): then the arm of one that counts no more is dropped
    _counts_decisions: bool = False
    # how many numbers ``_note`` gives
    _notes: int = 0

    reward_range: tuple[float, float]
    on_violation: str
    expire_after: int | None
    decision_log: DecisionLog | None
    # how many there were
    decisions: int
    _open: dict[int, Pending]
    # of the run
    _id: str
    _lock: threading.RLock

    @property
    def open_decisions(self) -> list[int]:
        """The ids of the decisions whose reward has not come."""
        with self._lock:
            return list(self._open)

    def update(self, decision: Decision | int, reward: float | None) -> None:
        """Learn the reward of a decision (given itself or by its id); None is a reward that will never come.

        Raises
        ------
        ValueError
            If the decision is unknown or already has its reward, or the reward is no number, NaN or outside
            ``reward_range``. The policy's state is as it was.
        """
        key = self._key(decision)
        self._check()
        with self._lock:
            self._check_open()
            pending = self._open.get(key)
            if pending is None:
                raise ValueError(f"decision must be one whose reward is still open, got decision id {key!r}")
            if reward is None:
                self.forget(key)
            else:
                value = self._checked_reward(reward)
                self._take_in(key, pending, value)
                if self.decision_log is not None:
                    self.decision_log.closed(key, value)

    def forget(self, decision: Decision | int) -> None:
        """Give up waiting for a reward, so that its arm is no longer kept. Says nothing about the data."""
        key = self._key(decision)
        with self._lock:
            self._open.pop(key, None)
            if self.decision_log is not None:
                self.decision_log.closed(key, None)

    def _check(self) -> None:  # noqa: B027
        """Refuse to go on in the child of a fork, where a policy has a reason to; before the lock is taken."""

    def _check_open(self) -> None:  # noqa: B027
        """Refuse to go on after an interrupt, where a policy has a reason to; behind the lock."""

    @abstractmethod
    def _learn(self, pending: Pending, reward: float) -> None:
        """Take in one checked reward of one arm of norm at most 1."""

    def _admit(self, pending: Pending) -> None:
        """Wait for the reward of the decision that was just made."""
        self._open[self.decisions] = pending
        self.decisions += 1
        if self.expire_after is not None:
            self._expire(self.decisions - self.expire_after)

    def _expire(self, first: int) -> None:
        """Forget the decisions before ``first``; the oldest come first."""
        while (oldest := next(iter(self._open), first)) < first:
            del self._open[oldest]
            if self.decision_log is not None:
                self.decision_log.closed(oldest, None)

    def _take_in(self, key: int, pending: Pending, reward: float) -> None:
        """Close the decision and learn; closed first, so that no reward counts twice."""
        del self._open[key]
        self._learn(pending, reward)

    def _together(self) -> AbstractContextManager[None]:
        """Rewards that are taken in inside of it are acknowledged together, at its end."""
        return nullcontext()

    def _checked_reward(self, reward: float) -> float:
        value = reward if type(reward) is float else real_number("reward", reward)
        low, high = self.reward_range
        if low <= value <= high and math.isfinite(value):
            return value
        if self.on_violation == "clip" and not math.isnan(value) and math.isfinite(low) and math.isfinite(high):
            return min(max(value, low), high)
        raise ValueError(f"reward must be a finite number in [{low:g}, {high:g}], got reward={reward!r}")

    def _key(self, decision: Decision | int) -> int:
        key = decision
        if isinstance(decision, Decision):
            if decision.run != self._id:
                raise ValueError(f"decision must come from this policy, got decision {decision.id} of another one")
            key = decision.id
        # 1.0 and True would find decision 1, too, and could not be read back from a journal
        if type(key) is int or isinstance(key, np.integer):
            return int(key)
        raise ValueError(f"decision must be a Decision or its id, a whole number, got decision={key!r}")

    def _packed(self) -> dict[str, Any]:
        """The open decisions as arrays."""
        waiting = list(self._open.values())
        arms = np.zeros((len(waiting), self.dim))
        for row, pending in zip(arms, waiting, strict=True):
            row[: len(pending.arm)] = pending.arm
        return {
            "ids": np.array(list(self._open), dtype=np.int64),
            "indices": np.array([pending.index for pending in waiting], dtype=np.int64),
            "arms": arms,
            "closed": np.array([not len(pending.arm) for pending in waiting], dtype=np.bool_),
            "notes": np.array([pending.note for pending in waiting], dtype=np.int64).reshape(len(waiting), self._notes),
            "persons": np.array([pending.person for pending in waiting], dtype=np.int64),
        }

    def _unpacked(self, saved: Any) -> dict[int, Pending]:
        """The inverse of :meth:`_packed`, checked, for a policy that has no open decisions yet."""
        like = {
            name: np.broadcast_to(np.zeros((), none.dtype), (len(saved["ids"]), *none.shape[1:]))
            for name, none in self._packed().items()
        }
        ids, indices, arms, closed, notes, persons = taken("open", saved, like).values()
        if len(ids) and not (ids[0] >= 0 and (np.diff(ids) > 0).all() and ids[-1] < self.decisions):
            raise ValueError(f"open.ids must increase from 0 to less than decisions={self.decisions}, got others")
        numbers = (one.tolist() for one in (ids, indices, closed, notes, persons))
        return {
            id: self._checked_pending(Pending(arm[: 0 if shut else None].copy(), index, id, tuple(note), person))
            for arm, id, index, shut, note, person in zip(arms, *numbers, strict=True)
        }

    def _checked_pending(self, pending: Pending) -> Pending:
        """An open decision that was read from a file, checked like what comes in; the arm of a closed one is empty."""
        arm = pending.arm
        # what came in was added up in another order, perhaps: two orders of d terms differ by less than d·2⁻⁵² of them
        longest = 1.0 + self.dim * 2.0**-52
        dropped = self._counts_decisions and not len(arm)
        if not dropped and not (len(arm) == self.dim and float(self._length(arm)) <= longest):  # also for NaN
            raise ValueError(f"an open arm must be finite, of {self.dim} entries and length at most 1, got others")
        if not 0 <= pending.index < (self.n_arms or math.inf):
            raise ValueError(f"an open decision's index must be that of an arm, got index={pending.index}")
        if len(pending.note) != self._notes:
            raise ValueError(f"an open decision's note must have length {self._notes}, got {short(pending.note)}")
        arm.setflags(write=False)
        return pending

    @staticmethod
    def _length(arms: Array) -> Array:
        """How long arms (or contexts) are, in the norm in which they must be at most 1."""
        return np.asarray(np.sqrt(np.einsum("...j,...j->...", arms, arms)))

"""The rounds of a shuffler: how many releases it may make, each one once, whatever threads and interrupts do."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from typing import TYPE_CHECKING

from accounting import Release
from accounting.checks import integer
from dpkit.states import Run, RunStopped

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["Rounds", "drawn_session", "round_number"]


def round_number(round: int, rounds: int) -> int:
    """``round``, if it is the number of one of ``rounds`` rounds, from 0."""
    if integer("round", round, at_least=0) >= rounds:
        raise ValueError(f"round must be below rounds={rounds}, got round={round!r}")
    return int(round)


def drawn_session(session: str | None) -> str:
    """``session``, or a random one."""
    return secrets.token_hex(8) if session is None else session


class Rounds:
    """At most ``rounds`` releases of at least ``users`` users, charged with all rounds before the first.

    Parameters
    ----------
    rounds : int
    cost : Release
        Of one.
    users : int
    label : str
    ledger : Ledger, optional
    simulation : bool
    """

    def __init__(
        self, rounds: int, cost: Release, users: int, label: str, ledger: Ledger | None, simulation: bool
    ) -> None:
        self.rounds = rounds
        self.cost = cost
        self.users = users
        self._run = Run(label, ledger=ledger, simulation=simulation)
        self._charged = False

    @property
    def done(self) -> int:
        """Releases that were begun."""
        return self._run.step

    @property
    def left(self) -> int:
        """Releases that are left."""
        return max(0, self.rounds - self._run.step)

    def check_process(self) -> None:
        """Refuse in a fork: before the lock, which nobody may open there."""
        self._run.check_process()

    @property
    def lock(self) -> threading.RLock:
        """Held while a round's messages are read and released."""
        return self._run.lock

    def open(self) -> int:
        """The number of the open round; the caller holds the lock.

        Raises
        ------
        RunStopped
            If this is a fork, or a release was interrupted.
        ValueError
            If no round is left.
        """
        self._run.check()
        if self.left < 1:
            raise ValueError(f"at most rounds={self.rounds} releases are calibrated for, got one more")
        return self._run.step

    def enough(self, users: int, refused: Counter[str] | None = None) -> None:
        """Refuse to go on with fewer users than the noise was calibrated for."""
        if users < self.users:
            besides = f" and refused messages: {dict(refused)}" if refused else ""
            raise ValueError(
                f"messages must come from at least users={self.users} users, whose noise protects each of them, "
                f"got {users}{besides}"
            )

    def release(self, number: int) -> None:
        """Count round ``number`` as released; the last thing before its sum is handed out.

        Nothing is noised here, so there is nothing to be drawn or saved between begin and end. An interrupt between
        the charge and the note of it makes the next call charge again: the ledger then says too much, never too little.
        """
        if not self._charged:
            self._run.charge(self.rounds * self.cost)
            self._charged = True
        self._run.begin()
        # a signal handler may have released this very round, after it was read and before the line above
        if self._run.step != number + 1:
            raise RunStopped(f"round {number} was released while its messages were read: this object is at its end")
        self._run.end()

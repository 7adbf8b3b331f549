"""The trusted party of the shuffle model: takes one message from every device, mixes them, and puts out nothing else.

What it must be trusted with: not to keep or show who sent what, and not to release before ``users`` users took part,
since their noise is what protects each of them. It needs no access to inputs. Of labelled bits in random order all
that can be seen is how many ones each label has, so it puts out these counts and leaves the order away. It can be a mix
network, an enclave or a secure-aggregation service.

What it does *not* trust is a message: see :mod:`dpkit.shuffle.inbox` for what is refused. Counts that stand for several
users are taken from workers only, through a method of their own, on the caller's word.

Source: Cheu, Smith, Ullman, Zeber & Zhilyaev (2019), "Distributed differential privacy via shuffling", Section 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from dpkit import randomness
from dpkit.shuffle import wire
from dpkit.shuffle.inbox import Inbox
from dpkit.shuffle.protocol import SumProtocol, Tally
from dpkit.shuffle.rounds import Rounds
from dpkit.states import Unrepeatable

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["Shuffler"]


class Shuffler(Unrepeatable):
    """Releases the sum of the messages of at least ``protocol.users`` users, at most ``protocol.rounds`` times.

    Threads take turns. An interrupt leaves a shuffler that goes on correctly, or one that refuses to
    (:class:`~dpkit.states.RunStopped`), as a fork of it does.

    Parameters
    ----------
    protocol : SumProtocol
    rng : numpy.random.Generator, optional
        From which the devices draw, where they are simulated; nothing is drawn here. A seeded generator makes the
        release a simulation in the ledger.
    ledger : Ledger, optional
        Charged once with ``protocol.cost`` for every round, before the first release: whether or not all rounds are
        used, which lets the ledger price them as a whole.
    label : str
        For the reader of the ledger.

    Attributes
    ----------
    refused : Counter
        How many messages were skipped, by reason, when :meth:`shuffle` was last called.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.shuffle import Analyzer, Randomizer, Shuffler, VectorSum
    >>> protocol = VectorSum(2, users=100, bound=1.0, budget=Budget(1.0, 1e-6)).protocol
    >>> device = Randomizer(protocol)
    >>> mixed = Shuffler(protocol).shuffle([device.encode([0.6, -0.8]) for _ in range(100)])
    >>> Analyzer(protocol).decode(mixed, users=100).shape
    (2,)
    """

    def __init__(
        self,
        protocol: SumProtocol,
        *,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        label: str = "shuffled vector sum",
    ) -> None:
        simulation = randomness.is_simulation(randomness.resolve(rng))
        self.protocol = protocol
        self.refused: Counter[str] = Counter()
        self._rounds = Rounds(protocol.rounds, protocol.cost, protocol.users, label, ledger, simulation)

    def __repr__(self) -> str:
        return f"Shuffler of {self.protocol!r}, {self.rounds_left} left"

    @property
    def round(self) -> int:
        """The number of the open round, from 0: devices send it with their messages."""
        return self._rounds.done

    @property
    def rounds_left(self) -> int:
        """How many releases are left."""
        return self._rounds.left

    def shuffle(self, messages: Iterable[bytes] | bytes) -> bytes:
        """The sum of the devices' messages, as a message of kind 3. Each stands for one user.

        Parameters
        ----------
        messages : iterable of bytes
            One from each device (kind 1). Those that do not count are skipped; see :attr:`refused`.

        Raises
        ------
        ValueError
            If messages of fewer than ``protocol.users`` users count, or no round is left. Nothing is released or
            charged.
        TypeError
            If a message is not bytes.
        BudgetExceeded
            If the ledger refuses.
        """
        protocol = self.protocol
        self._rounds.check_process()
        with self._rounds.lock:
            number = self._rounds.open()
            most = protocol.messages_per_coordinate
            inbox = Inbox(protocol.fingerprint, number, protocol.coordinates, protocol.count_width(1), most)
            ones, some = np.zeros((2, protocol.coordinates), dtype=np.int64)
            for rows in inbox.rows(messages):
                ones += rows.sum(axis=0, dtype=np.int64, out=some)
            self.refused = inbox.refused
            self._rounds.enough(inbox.users, inbox.refused)
            released = Tally(protocol, inbox.users, ones).to_bytes(round=number, kind=wire.Kind.SHUFFLED)
            self._rounds.release(number)
        return released

    def shuffle_tallies(self, tallies: Iterable[Tally | bytes] | Tally | bytes) -> bytes:
        """The sum of partial aggregates, as a message of kind 3.

        The caller vouches for whoever made them: that a tally stands for as many users as it says, each of whom
        randomized as the protocol says and is in no other tally of the round. Never pass on what a device sent.

        Parameters
        ----------
        tallies : iterable of Tally, or of bytes
            Bytes are messages of kind 2 (:meth:`Tally.to_bytes`).

        Raises
        ------
        ValueError
            If one is malformed or of another protocol or round, they stand for fewer than ``protocol.users`` users, or
            no round is left. Nothing is released or charged.
        BudgetExceeded
            If the ledger refuses.
        """
        self._rounds.check_process()
        with self._rounds.lock:
            number = self._rounds.open()
            parts = [
                part if isinstance(part, Tally) else Tally.from_worker(self.protocol, part, number)
                for part in ([tallies] if isinstance(tallies, Tally | bytes) else tallies)
            ]
            if any(part.protocol != self.protocol for part in parts):
                raise wire.MessageError("tally was made for a protocol with other public constants", "protocol")
            self._rounds.enough(sum(part.users for part in parts))
            whole: Tally = sum(parts[1:], parts[0])
            released = whole.to_bytes(round=number, kind=wire.Kind.SHUFFLED)
            self._rounds.release(number)
        return released

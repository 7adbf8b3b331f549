"""The trusted party of the shuffle model: takes all messages, permutes them, and puts out nothing else.

What it must be trusted with: not to keep or show who sent what, and not to release before ``users`` users took part,
since their noise is what protects each of them. It needs no access to inputs, and computes nothing but a permutation
(or, in the count encoding, a sum). It can be a mix network, an enclave or a secure-aggregation service.

Source: Cheu, Smith, Ullman, Zeber & Zhilyaev (2019), "Distributed differential privacy via shuffling", Section 2.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from accounting import Ledger
from dpkit import randomness
from dpkit.mechanisms._checked import charge
from dpkit.shuffle import wire
from dpkit.shuffle.protocol import SumProtocol, Tally

__all__ = ["Shuffler", "labelled_bits"]


class Shuffler:
    """Releases the permuted messages of at least ``protocol.users`` users, at most ``protocol.rounds`` times.

    Parameters
    ----------
    protocol : SumProtocol
    rng : numpy.random.Generator, optional
        For the permutation; None draws from the secure source, a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged once with ``protocol.cost`` for every round, before the first release: whether or not all rounds are
        used, which lets the ledger price them as a whole.
    label : str
        For the reader of the ledger.
    """

    def __init__(
        self,
        protocol: SumProtocol,
        *,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        label: str = "shuffled vector sum",
    ) -> None:
        randomness.resolve(rng)
        self.protocol = protocol
        self.rounds_left = protocol.rounds
        self._rng = rng
        self._ledger = ledger
        self._label = label

    def shuffle(self, messages: Iterable[bytes | Tally] | bytes | Tally) -> bytes:
        """All messages in one, in random order: of kind 3 from labelled bits, of kind 4 from counts.

        Parameters
        ----------
        messages : iterable
            Labelled bits (``bytes``, kind 1) of all users, or partial aggregates (:class:`Tally`, or ``bytes`` of
            kind 2); not both.

        Raises
        ------
        ValueError
            If a message is malformed or of another kind, fewer than ``protocol.users`` users took part, or no round is
            left. Nothing is released, charged or drawn.
        BudgetExceeded
            If the ledger refuses.
        """
        if self.rounds_left < 1:
            raise ValueError(f"at most rounds={self.protocol.rounds} releases are calibrated for, got one more")
        bits, tallies = self._sorted([messages] if isinstance(messages, bytes | Tally) else messages)
        users = sum(users for users, _ in bits) + sum(tally.users for tally in tallies)
        if users < self.protocol.users:
            raise ValueError(
                f"messages must come from at least users={self.protocol.users} users, whose noise protects each of "
                f"them, got {users}"
            )
        rng = randomness.resolve(self._rng)
        if self.rounds_left == self.protocol.rounds:
            charge(self._ledger, self.protocol.rounds * self.protocol.cost, self._label, rng)
        self.rounds_left -= 1
        if tallies:
            whole: Tally = sum(tallies[1:], tallies[0])
            return whole.to_bytes(shuffled=True)
        fields = rng.permutation(np.concatenate([values for _, values in bits]))
        width = self.protocol.bit_width
        return wire.write(wire.Kind.SHUFFLED_BITS, self.protocol.fingerprint, users, fields, width)

    def _sorted(self, messages: Iterable[bytes | Tally]) -> tuple[list[tuple[int, NDArray[np.uint32]]], list[Tally]]:
        """The labelled bits and the counts among the messages; refuses what is neither, and both at once."""
        bits: list[tuple[int, NDArray[np.uint32]]] = []
        tallies: list[Tally] = []
        for data in messages:
            if isinstance(data, Tally):
                if data.protocol != self.protocol:
                    raise wire.MessageError("message was made for a protocol with other public constants")
                tallies.append(data)
                continue
            message = wire.read(data, self.protocol.fingerprint)
            match message.kind:
                case wire.Kind.BITS:
                    bits.append((message.users, labelled_bits(self.protocol, message)[0]))
                case wire.Kind.COUNTS:
                    tallies.append(Tally.from_message(self.protocol, message))
                case _:
                    raise wire.MessageError(f"message must be one of users or workers, got {message.kind.name}")
        if bits and tallies:
            raise ValueError("messages must be all labelled bits or all counts, got both")
        return bits, tallies


def labelled_bits(protocol: SumProtocol, message: wire.Message) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The labelled bits of a message, and the number of ones for each label.

    Raises
    ------
    MessageError
        If a label is unknown, or its number of bits is not what the protocol says.
    """
    D, each = protocol.coordinates, message.users * protocol.messages_per_coordinate
    fields = message.fields(D * each, protocol.bit_width).astype(np.uint32)
    if int(fields.max()) >= 2 * D:
        raise wire.MessageError(f"labels must be below {D}, got {int(fields.max()) >> 1}")
    zeros, ones = np.bincount(fields, minlength=2 * D).reshape(D, 2).T
    if np.any(zeros + ones != each):
        label = int(np.argmax(zeros + ones != each))
        raise wire.MessageError(
            f"message must hold {each} bits for each label, got {int(zeros[label] + ones[label])} for label {label}"
        )
    return fields, ones.astype(np.int64)

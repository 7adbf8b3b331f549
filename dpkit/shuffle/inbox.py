"""What the shuffler takes from devices in one round: messages that anybody may have written, each for one user.

A message counts if it is well formed, of this protocol and this round, and the first with its nonce; any other is
skipped and counted under its reason, so that nobody can hold a round up by sending nonsense:

=============  ====================================================================================
reason         the message
=============  ====================================================================================
``malformed``  is no message, damaged, of another version or length, or holds impossible fields
``protocol``   was made for other public constants or another session
``kind``       does not come from a device: what stands for several users is vouched for, or refused
``round``      was made for another round: replayed, late or early
``duplicate``  has the nonce of one that was taken
=============  ====================================================================================

What these rules cannot see is who sends: a party with the addresses of several users sends for several. Senders are
authenticated by whatever carries the messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from dpkit.shuffle import wire

__all__ = ["Inbox"]

# Bytes of payload that are unpacked together.
_TOGETHER = 1 << 15


@dataclass
class Inbox:
    """Reads the devices' messages of one round.

    Parameters
    ----------
    fingerprint : bytes
    round : int
    count, width : int
        Of the fields of one message.
    largest : int
        What a field may hold at most.

    Attributes
    ----------
    users : int
        Messages taken so far.
    refused : Counter
        Messages that were not, by reason.
    """

    fingerprint: bytes
    round: int
    count: int
    width: int
    largest: int
    users: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def rows(self, messages: Iterable[bytes] | bytes) -> Iterator[wire.Fields]:
        """The fields of the messages that count, some users at a time: of shape (users, count), the narrowest type.

        Raises
        ------
        TypeError
            If something is not bytes: that comes from no device.
        """
        seen: set[bytes] = set()
        waiting: list[memoryview] = []
        length = -(-self.count * self.width // 8)
        for data in [messages] if isinstance(messages, bytes) else messages:
            try:
                waiting.append(self._opened(data, seen))
            except wire.MessageError as error:
                self.refused[error.reason] += 1
            if len(waiting) * length >= _TOGETHER:
                yield self._unpacked(waiting)
                waiting.clear()
        if waiting:
            yield self._unpacked(waiting)

    def _opened(self, data: bytes, seen: set[bytes]) -> memoryview:
        message = wire.read(data, self.fingerprint)
        if message.kind is not wire.Kind.DEVICE:
            raise wire.MessageError(f"message must come from a device, got {message.kind.name}", "kind")
        if message.round != self.round:
            raise wire.MessageError(f"message must be for round {self.round}, got round {message.round}", "round")
        wire.check_length(message.payload, self.count, self.width)
        if message.stamp in seen:
            raise wire.MessageError("message must have a nonce of its own, got one again", "duplicate")
        seen.add(message.stamp)
        return message.payload

    def _unpacked(self, payloads: list[memoryview]) -> wire.Fields:
        packed = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(len(payloads), -1)
        values, good = wire.unpacked(packed, self.count, self.width)
        good &= values.max(axis=1) <= self.largest
        taken = int(good.sum())
        self.users += taken
        if taken < len(good):
            self.refused["malformed"] += len(good) - taken
            values = values[good]
        return values

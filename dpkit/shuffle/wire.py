"""The messages of the shuffle model as bytes: one header, one packed array of unsigned integers, one checksum.

All numbers are big-endian.

======  =====  ==========================================================================================
offset  bytes  content
======  =====  ==========================================================================================
0       4      ``b"dpSh"``
4       1      version of this format, 2
5       1      kind (below)
6       8      fingerprint of the protocol's public constants, so that two protocols cannot be mixed up
14      8      the round for which the message was made, from 0
22      16     kind 1: a nonce, random bytes that tell messages apart; else m, the number of users
38      …      the fields, each of the width that kind and protocol give, most significant bit first, without
               gaps; then zero bits up to a whole byte
end     4      CRC-32 of everything before it, against accidents (it is no signature)
======  =====  ==========================================================================================

====  ===================  ==================================================  ==============================
kind  from, to             fields of a vector sum                              of randomized response
====  ===================  ==================================================  ==============================
1     device → shuffler    D counts of ones, each at most g + b                one category, below k
2     worker → shuffler    D counts of ones, each at most m·(g + b)            k counts that add up to m
3     shuffler →           as kind 2                                           as kind 2
====  ===================  ==================================================  ==============================

What a device sends is, to the model, a set of labelled bits: for each of D labels g + b of them, of which some are
ones. The counts of ones are that set and say nothing else, in log₂(g + b + 1) bits a label instead of g + b. In the
same way the counts of kind 3 are what any permutation of all bits shows.

A device has no place to write how many users it stands for: it stands for one. Kinds 1 and 2 are confidential: only
what the shuffler puts out is private at the protocol's cost. Whoever reads a message knows its length from the
protocol, so a wrong one is refused before anything is allocated.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

__all__ = ["NONCE", "Kind", "Message", "MessageError", "header_size", "narrowest", "read", "unpacked", "write"]

Fields = NDArray[np.unsignedinteger]

MAGIC = b"dpSh"
VERSION = 2
#: The bytes of a nonce.
NONCE = 16
_HEADER = struct.Struct(">4sBB8sQ16s")
_CHECKSUM = struct.Struct(">I")
# Fields per vector operation, a multiple of 8 so that every block but the last ends with a whole byte.
_BLOCK = 1 << 13


class MessageError(ValueError):
    """Bytes that are not a message, or not one that is accepted here; ``reason`` is one word for statistics.

    Examples
    --------
    >>> from dpkit.shuffle import MessageError
    >>> issubclass(MessageError, ValueError)
    True
    """

    def __init__(self, text: str, reason: str = "malformed") -> None:
        super().__init__(text)
        self.reason = reason


class Kind(IntEnum):
    """Who sent a message; see the module's table."""

    DEVICE = 1
    WORKER = 2
    SHUFFLED = 3


@dataclass(frozen=True, slots=True)
class Message:
    """The verified header of a message, and its fields still packed."""

    kind: Kind
    round: int
    stamp: bytes
    payload: memoryview

    @property
    def users(self) -> int:
        """How many users it stands for: a device's one for 1."""
        return 1 if self.kind is Kind.DEVICE else int.from_bytes(self.stamp, "big")

    def fields(self, count: int, width: int) -> Fields:
        """The ``count`` fields of ``width`` bits.

        Raises
        ------
        MessageError
            If the payload has another length, or its padding is not zero.
        """
        check_length(self.payload, count, width)
        values, padded = unpacked(np.frombuffer(self.payload, dtype=np.uint8)[None], count, width)
        if not padded[0]:
            raise MessageError("message must be padded with zero bits, got ones")
        fields: Fields = values[0]
        return fields


def header_size() -> int:
    """The bytes of a message besides its fields."""
    return _HEADER.size + _CHECKSUM.size


def narrowest(width: int) -> type[np.unsignedinteger]:
    """The smallest type of numbers of ``width`` ≤ 64 bits."""
    return next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if width <= 8 * kind(0).itemsize)


def write(
    kind: Kind,
    fingerprint: bytes,
    values: NDArray[np.integer],
    width: int,
    *,
    round: int = 0,
    users: int = 1,
    nonce: bytes = bytes(NONCE),
) -> bytes:
    """A message with these fields, each below 2^``width``; a device's has a nonce, all others a number of users.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.shuffle import wire
    >>> data = wire.write(wire.Kind.WORKER, b"protocol", np.array([5, 0, 6]), 3, users=7)
    >>> len(data) - wire.header_size(), wire.read(data, b"protocol").fields(3, 3)
    (2, array([5, 0, 6], dtype=uint8))
    """
    stamp = nonce if kind == Kind.DEVICE else users.to_bytes(NONCE, "big")
    parts = [_HEADER.pack(MAGIC, VERSION, kind, fingerprint, round, stamp)]
    if values.size == 1:  # a category: the general way takes longer than its randomization
        parts.append((int(values[0]) << (-width % 8)).to_bytes(-(-width // 8), "big"))
    elif width in (8, 16, 32, 64):
        parts.append(values.astype(f">u{width // 8}").tobytes())
    else:
        number = narrowest(width)
        shifts = np.arange(width - 1, -1, -1, dtype=number)
        for start in range(0, values.size, _BLOCK):
            block = values[start : start + _BLOCK].astype(number)
            parts.append(np.packbits(((block[:, None] >> shifts) & number(1)).astype(np.uint8)).tobytes())
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join([*parts, _CHECKSUM.pack(checksum)])


def read(data: bytes, fingerprint: bytes) -> Message:
    """The message in ``data``, if it is one of the protocol with this ``fingerprint``.

    Raises
    ------
    TypeError
        If ``data`` is not bytes.
    MessageError
        If it is not a message, of another version or protocol, or damaged.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"a message must be bytes, got {type(data).__name__}")
    view = memoryview(data).cast("B")
    if len(view) < header_size():
        raise MessageError(f"message must be at least {header_size()} bytes long, got {len(view)}")
    magic, version, kind, made_for, round, stamp = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise MessageError(f"message must start with {MAGIC!r}, got {magic!r}")
    if version != VERSION:
        raise MessageError(f"message must be of version {VERSION}, got version {version}")
    (checksum,) = _CHECKSUM.unpack_from(view, len(view) - _CHECKSUM.size)
    if zlib.crc32(view[: -_CHECKSUM.size]) != checksum:
        raise MessageError("message is damaged: its checksum does not match")
    if kind not in Kind._value2member_map_:
        raise MessageError(f"message must be of a kind from 1 to {len(Kind)}, got kind {kind}")
    if made_for != fingerprint:
        raise MessageError("message was made for a protocol with other public constants", "protocol")
    message = Message(Kind(kind), round, stamp, view[_HEADER.size : -_CHECKSUM.size])
    if message.users < 1:
        raise MessageError("message must come from at least 1 user, got 0")
    return message


def check_length(payload: memoryview, count: int, width: int) -> None:
    """Refuse a payload that cannot hold ``count`` fields of ``width`` bits, before anything is allocated for it."""
    expected = -(-count * width // 8)
    if len(payload) != expected:
        raise MessageError(f"message must hold {expected} bytes of fields, got {len(payload)}")


def unpacked(packed: NDArray[np.uint8], count: int, width: int) -> tuple[Fields, NDArray[np.bool_]]:
    """The fields of several payloads of one length, of shape (messages, count), and whose padding is zero.

    Besides the result, in the narrowest type, this takes memory for some thousand fields at a time.
    """
    number = narrowest(width)
    if width == 8 * number(0).itemsize:
        return packed.view(f">u{width // 8}").astype(number, copy=False), np.ones(len(packed), dtype=bool)
    values = np.empty((len(packed), count), dtype=number)
    padded = np.empty(len(packed), dtype=bool)
    places = number(1) << np.arange(width - 1, -1, -1, dtype=number)
    # as many whole messages as fit, or of long ones a piece at a time
    rows = max(1, _BLOCK // count)
    for top in range(0, len(packed), rows):
        some = packed[top : top + rows]
        for start in range(0, count, _BLOCK):
            size = min(_BLOCK, count - start)
            first = start * width // 8
            bits = np.unpackbits(some[:, first : first + -(-size * width // 8)], axis=1)
            fields = bits[:, : size * width].reshape(len(some), size, width)
            values[top : top + rows, start : start + size] = fields @ places
        padded[top : top + rows] = ~bits[:, size * width :].any(axis=1)
    return values, padded

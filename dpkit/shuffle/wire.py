"""The messages of the shuffle model as bytes: one header, one packed array of unsigned integers, one checksum.

All numbers are big-endian.

======  =====  ==========================================================================================
offset  bytes  content
======  =====  ==========================================================================================
0       4      ``b"dpSh"``
4       1      version of this format, 1
5       1      kind (below)
6       8      fingerprint of the protocol's public constants, so that two protocols cannot be mixed up
14      8      m, the number of users whose messages these are
22      …      the fields, each of the width that kind and protocol give, most significant bit first, without
               gaps; then zero bits up to a whole byte
end     4      CRC-32 of everything before it, against accidents (it is no signature)
======  =====  ==========================================================================================

====  =================  =======================================================  ==================================
kind  from, to           fields                                                   width in bits
====  =================  =======================================================  ==================================
1     user → shuffler    m·D·(g + b) labelled bits, 2·label + bit                 bit length of 2D − 1
2     engine → shuffler  D counts of ones, each at most m·(g + b)                 bit length of m·(g + b)
3     shuffler →         as kind 1, in random order                               as kind 1
4     shuffler →         as kind 2                                                as kind 2
5     user → shuffler    m categories                                             bit length of k − 1
6     shuffler →         as kind 5, in random order                               as kind 5
====  =================  =======================================================  ==================================

Kinds 1, 2 and 5 are confidential: only what the shuffler puts out is private at the protocol's cost. Whoever reads a
message learns its length from the header and the protocol, so a wrong length is refused before anything is allocated.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

__all__ = ["Kind", "Message", "MessageError", "header_size", "read", "write"]

Fields = NDArray[np.uint64]

MAGIC = b"dpSh"
VERSION = 1
_HEADER = struct.Struct(">4sBB8sQ")
_CHECKSUM = struct.Struct(">I")
# Fields per vector operation, a multiple of 8 so that every block but the last ends with a whole byte.
_BLOCK = 1 << 15


class MessageError(ValueError):
    """Bytes that are not a message, or not one of this protocol."""


class Kind(IntEnum):
    """What a message holds; see the module's table."""

    BITS = 1
    COUNTS = 2
    SHUFFLED_BITS = 3
    SHUFFLED_COUNTS = 4
    CATEGORIES = 5
    SHUFFLED_CATEGORIES = 6


@dataclass(frozen=True)
class Message:
    """The verified header of a message, and its fields still packed."""

    kind: Kind
    users: int
    payload: memoryview

    def fields(self, count: int, width: int) -> Fields:
        """The ``count`` fields of ``width`` bits.

        Raises
        ------
        MessageError
            If the payload has another length, or its padding is not zero.
        """
        expected = -(-count * width // 8)
        if len(self.payload) != expected:
            raise MessageError(f"message must hold {expected} bytes of fields, got {len(self.payload)}")
        packed = np.frombuffer(self.payload, dtype=np.uint8)
        values = np.empty(count, dtype=np.uint64)
        places = np.uint64(1) << np.arange(width - 1, -1, -1, dtype=np.uint64)
        for start in range(0, count, _BLOCK):
            block = values[start : start + _BLOCK]
            first = start * width // 8
            bits = np.unpackbits(packed[first : first + -(-block.size * width // 8)])
            if bits[block.size * width :].any():
                raise MessageError("message must be padded with zero bits, got ones")
            block[:] = bits[: block.size * width].reshape(block.size, width) @ places
        return values


def header_size() -> int:
    """The bytes of a message besides its fields."""
    return _HEADER.size + _CHECKSUM.size


def write(kind: Kind, fingerprint: bytes, users: int, values: NDArray[np.integer], width: int) -> bytes:
    """A message with these fields, each below 2^``width``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.shuffle import wire
    >>> data = wire.write(wire.Kind.COUNTS, b"protocol", 3, np.array([5, 0, 6]), 3)
    >>> len(data) - wire.header_size(), wire.read(data, b"protocol").fields(3, 3)
    (2, array([5, 0, 6], dtype=uint64))
    """
    parts = [_HEADER.pack(MAGIC, VERSION, kind, fingerprint, users)]
    shifts = np.arange(width - 1, -1, -1, dtype=np.uint64)
    for start in range(0, values.size, _BLOCK):
        block = values[start : start + _BLOCK].astype(np.uint64)
        parts.append(np.packbits(((block[:, None] >> shifts) & np.uint64(1)).astype(np.uint8)).tobytes())
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
    magic, version, kind, made_for, users = _HEADER.unpack_from(view)
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
        raise MessageError("message was made for a protocol with other public constants")
    if users < 1:
        raise MessageError("message must come from at least 1 user, got 0")
    return Message(Kind(kind), users, view[_HEADER.size : -_CHECKSUM.size])

"""MurmurHash3 (x86, 32 bits; Austin Appleby, public domain) of many byte strings at once.

A public function of names to 32 bits, which every language has in a dozen lines; no secret, and no protection.

>>> [hex(h) for h in murmur3([b"", b"hello", b"hello, world"]).tolist()]
['0x0', '0x248bfa47', '0x149bbb7f']
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["finished", "murmur3"]

Hashes = NDArray[np.uint32]
_BITS = 0xFFFFFFFF
# texts that are hashed one by one
_FEW = 4
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def murmur3(texts: Sequence[bytes], seed: int = 0) -> Hashes:
    """The hashes of ``texts``, of shape (n,)."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    found = np.empty(len(texts), dtype=np.uint32)
    # texts of similar lengths together: a long one does not make the table of all others as wide
    sizes = np.frexp(lengths.astype(np.float64))[1]
    for size in np.unique(sizes):
        some = np.flatnonzero(sizes == size)
        some = some[np.argsort(-lengths[some], kind="stable")]  # longest first: those with a further word come first
        group = [texts[i] for i in some.tolist()]
        found[some] = _together(group, lengths[some], seed) if len(some) > _FEW else [_alone(t, seed) for t in group]
    return found


def _alone(text: bytes, seed: int) -> int:
    """The hash of one text: quicker than arrays of one element."""
    h, whole = seed, len(text) & -4
    for k in struct.unpack(f"<{whole // 4}I", text[:whole]):
        h ^= _mixed(k)
        h = (((h << 13) | (h >> 19)) * 5 + 0xE6546B64) & _BITS
    h ^= _mixed(int.from_bytes(text[whole:], "little")) ^ len(text)
    return int(finished(np.array([h & _BITS], dtype=np.uint32))[0])


def _mixed(k: int) -> int:
    k = (k * 0xCC9E2D51) & _BITS
    return (((k << 15) | (k >> 17)) * 0x1B873593) & _BITS


def _together(texts: Sequence[bytes], sizes: NDArray[np.int64], seed: int) -> Hashes:
    """The hashes of texts that are sorted by length, longest first."""
    h = np.full(len(texts), seed, dtype=np.uint32)
    words = (int(sizes[0]) + 3) // 4
    # zeros after the end of a text change nothing
    joined = b"".join(text.ljust(4 * words, b"\0") for text in texts)
    table = np.frombuffer(joined, dtype="<u4").reshape(len(texts), words)
    for place in range(words):
        some = int(np.searchsorted(-sizes, -4 * place, side="left"))  # longer than 4·place bytes
        whole = int(np.searchsorted(-sizes, -4 * place - 4, side="right"))  # with four more
        k = table[:some, place].astype(np.uint32) * _C1
        h[:some] ^= _rotated(k, 15) * _C2
        h[:whole] = _rotated(h[:whole], 13) * np.uint32(5) + np.uint32(0xE6546B64)
    return finished(h ^ sizes.astype(np.uint32))


def finished(h: Hashes) -> Hashes:
    """Murmur's finaliser: a permutation of 32 bits in which each depends on all."""
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def _rotated(x: Hashes, by: int) -> Hashes:
    return (x << np.uint32(by)) | (x >> np.uint32(32 - by))

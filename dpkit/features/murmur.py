"""MurmurHash3 (x86, 32 bits; Austin Appleby, public domain) of many byte strings at once.

A public function of names to 32 bits, which every language has in a dozen lines; no secret, and no protection.

>>> [hex(h) for h in murmur3([b"", b"hello", b"hello, world"]).tolist()]
['0x0', '0x248bfa47', '0x149bbb7f']
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["finished", "murmur3"]

Hashes = NDArray[np.uint32]
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def murmur3(texts: Sequence[bytes], seed: int = 0) -> Hashes:
    """The hashes of ``texts``, of shape (n,)."""
    n = len(texts)
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    h = np.full(n, seed, dtype=np.uint32)
    if not n:
        return h
    # longest first, so that the rows that still have a word are the first ones
    order = np.argsort(-lengths, kind="stable")
    words = (int(lengths.max()) + 3) // 4
    # by columns: a word of all texts is one piece of memory; zeros after the end change nothing
    joined = b"".join(texts[i].ljust(4 * words, b"\0") for i in order)
    table = np.frombuffer(joined, dtype="<u4").reshape(n, words).T if words else np.zeros((0, n), dtype=np.uint32)
    sizes = lengths[order]
    for place in range(words):
        some = int(np.searchsorted(-sizes, -4 * place, side="left"))  # longer than 4·place bytes
        whole = int(np.searchsorted(-sizes, -4 * place - 4, side="right"))  # with four more
        k = table[place, :some].astype(np.uint32) * _C1
        k = _rotated(k, 15) * _C2
        h[:some] ^= k
        h[:whole] = _rotated(h[:whole], 13) * np.uint32(5) + np.uint32(0xE6546B64)
    found = np.empty(n, dtype=np.uint32)
    found[order] = finished(h ^ sizes.astype(np.uint32))
    return found


def finished(h: Hashes) -> Hashes:
    """Murmur's finaliser: a permutation of 32 bits in which each depends on all."""
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def _rotated(x: Hashes, by: int) -> Hashes:
    return (x << np.uint32(by)) | (x >> np.uint32(32 - by))

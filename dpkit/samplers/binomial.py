"""Binomial(m, ½) as the number of ones among m random bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accounting.checks import integer
from dpkit import randomness
from dpkit.samplers._exact import random_words

__all__ = ["binomial_half"]

_BLOCK = 1 << 13  # words per vector operation
_MOST = 1 << 34  # bits per value: about a second


def binomial_half(
    trials: int, shape: int | tuple[int, ...] = (), *, rng: np.random.Generator | None = None
) -> NDArray[np.int64]:
    """Exact Binomial(trials, ½) values: each counts the ones among ``trials`` random bits.

    Parameters
    ----------
    trials : int
        From 0 to 2³⁴. The time per value is proportional to it from 64 on.
    shape : int or tuple of int
        Of the result.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.

    Returns
    -------
    ndarray of int64, in [0, trials]

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.samplers import binomial_half
    >>> int(binomial_half(10, 1000, rng=np.random.default_rng(0)).max()) <= 10
    True
    """
    trials = integer("trials", trials, at_least=0)
    if trials > _MOST:
        raise ValueError(
            f"trials must be at most 2**34, as each is a random bit that is drawn, got trials={trials}: what that many "
            f"bits would say is a sum of values of fewer trials each"
        )
    source = randomness.resolve(rng)
    out = np.zeros(shape, dtype=np.int64)
    flat = out.reshape(-1)
    if trials <= 64:
        _count_short(flat, trials, source)
        return out
    whole, rest = divmod(trials, 64)
    rows = max(1, _BLOCK // whole)
    for start in range(0, flat.size, rows):
        block = flat[start : start + rows]
        for done in range(0, whole, _BLOCK):
            width = min(_BLOCK, whole - done)
            ones = _popcount(random_words(source, block.size * width))
            block += ones.reshape(width, block.size).sum(axis=0, dtype=np.int64)
        _count_short(block, rest, source)
    return out


def _count_short(out: NDArray[np.int64], trials: int, rng: np.random.Generator) -> None:
    """Add to each entry the ones among ``trials`` ≤ 64 bits, cut from words as tightly as whole bytes allow."""
    if trials == 0:
        return
    kind = np.dtype(next(f"u{size}" for size in (1, 2, 4, 8) if trials <= 8 * size))
    mask = kind.type(2**trials - 1)
    step = _BLOCK * 8 // kind.itemsize
    for start in range(0, out.size, step):
        block = out[start : start + step]
        words = random_words(rng, -(-block.size * kind.itemsize // 8))
        block += _popcount(words.view(kind)[: block.size] & mask)


def _popcount_arithmetic(words: NDArray[np.unsignedinteger]) -> NDArray[np.int64]:
    """The number of set bits, by adding neighbouring groups of bits."""
    v = words.astype(np.uint64)
    v -= (v >> np.uint64(1)) & np.uint64(0x5555555555555555)
    v = (v & np.uint64(0x3333333333333333)) + ((v >> np.uint64(2)) & np.uint64(0x3333333333333333))
    v = (v + (v >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return ((v * np.uint64(0x0101010101010101)) >> np.uint64(56)).view(np.int64)


# numpy has a vector instruction for it from version 2.0 on
_popcount = getattr(np, "bitwise_count", _popcount_arithmetic)

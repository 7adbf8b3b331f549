"""The user's side of a shuffled vector sum: from a vector to labelled bits, knowing the protocol's constants only.

Source: Cheu, Joseph, Mao & Peng (2022), "Shuffle private stochastic convex optimization", Algorithms 1 and 3, with the
scale that keeps shifted entries within g bits. For each coordinate: w = (x + Δ)·g/(2Δ) in [0, g] is rounded to
x̂ = ⌊w⌋ + Bernoulli(w − ⌊w⌋), noise γ ~ Bin(b, p) is drawn, and of g + b bits that carry the coordinate's label x̂ + γ
are ones.

A user by itself has no more privacy than its own b bits give: what protects it is the sum with the others' bits
after the shuffle. Messages go to the shuffler and to nobody else.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.arrays import Array
from dpkit import randomness
from dpkit.clipping import real_array, within_norm
from dpkit.geometry import svec
from dpkit.samplers import binomial_half
from dpkit.samplers._exact import random_words
from dpkit.samplers.binomial import _popcount as popcount
from dpkit.shuffle import wire
from dpkit.shuffle.protocol import SumProtocol, Tally
from dpkit.shuffle.rounds import round_number

__all__ = ["Randomizer"]


# Entries per vector operation: a few arrays of this size stay in the processor's cache.
_BLOCK = 1 << 15
# How far below zero rounding errors may leave an entry or eigenvalue of a positive input, relative to the bound.
_ROUNDING = 2.0**-40


class Randomizer:
    """Turns inputs into messages.

    Parameters
    ----------
    protocol : SumProtocol
        The public constants; ``VectorSum(…).protocol``.
    clip : bool
        Scale inputs that are longer than the bound back to it. By default they are refused.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.

    Examples
    --------
    A user's device needs the protocol and nothing else:

    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.shuffle import Randomizer, VectorSum
    >>> protocol = VectorSum(2, 1000, 1.0, budget=Budget(1.0, 1e-6)).protocol
    >>> message = Randomizer(protocol).encode([0.6, -0.8])
    >>> type(message).__name__, protocol.messages_per_user
    ('bytes', 190)
    """

    def __init__(self, protocol: SumProtocol, *, clip: bool = False, rng: np.random.Generator | None = None) -> None:
        randomness.resolve(rng)
        self.protocol = protocol
        self.clip = bool(clip)
        self._rng = rng

    def __repr__(self) -> str:
        return f"Randomizer of {self.protocol!r}"

    def encode(self, x: ArrayLike, *, round: int = 0) -> bytes:
        """One user's labelled bits, as a message of kind 1.

        Parameters
        ----------
        x : (d,) array_like, or (d, d) for matrices
        round : int
            The round of the shuffler for which it is meant, which takes no other: from 0.

        Raises
        ------
        TypeError, ValueError
            If ``x`` has another shape, is not finite, or is longer than the bound and ``clip`` is off (or not positive
            where the protocol asks for it). Nothing is drawn.
        """
        value = np.asarray(x)
        if value.shape != self._shape:
            raise ValueError(f"x must have shape {self._shape}, got x.shape={value.shape}")
        protocol = self.protocol
        number = round_number(round, protocol.rounds)
        ones = self.ones(value[None])[0]
        nonce = randomness.resolve(self._rng).bytes(wire.NONCE)
        width = protocol.count_width(1)
        return wire.write(wire.Kind.DEVICE, protocol.fingerprint, ones, width, round=number, nonce=nonce)

    def ones(self, X: ArrayLike) -> NDArray[np.int64]:
        """How many ones each user sends for each coordinate: the count encoding of several users, one by one.

        Parameters
        ----------
        X : (m, d) array_like, or (m, d, d)

        Returns
        -------
        (m, D) ndarray
        """
        rows = self._rows(X)
        rng = randomness.resolve(self._rng)
        ones = self._noise(self.protocol.noise_bits, rows.shape, rng)
        for block in self._blocks(rows):
            ones[block] += self._rounded(rows[block], rng).astype(np.int64)
        return ones

    def tally(self, X: ArrayLike) -> Tally:
        """The count encoding of several users, added up: what one worker computes from its part of the inputs.

        The sum over m users of Bin(b, ½) is drawn as one Bin(m·b, ½), which has the same law. Memory beyond ``X`` does
        not grow with m.

        Parameters
        ----------
        X : (m, d) array_like, or (m, d, d)
            m at least 1.
        """
        rows = self._rows(X)
        rng = randomness.resolve(self._rng)
        total = self._noise(len(rows) * self.protocol.noise_bits, (self.protocol.coordinates,), rng)
        for block in self._blocks(rows):
            # sums of up to 2⁵³ are exact in float64
            total += self._rounded(rows[block], rng).sum(axis=0).astype(np.int64)
        return Tally(self.protocol, len(rows), total)

    @property
    def _shape(self) -> tuple[int, ...]:
        d = self.protocol.dimension
        return (d, d) if self.protocol.symmetric else (d,)

    def _rows(self, X: ArrayLike) -> Array:
        """Checked inputs of several users as the rows of a matrix (m, D)."""
        values = real_array("x", X, finite=False)
        if values.ndim == 0 or len(values) == 0 or values.shape[1:] != self._shape:
            expected = ", ".join(map(str, ("m", *self._shape)))
            raise ValueError(f"x must have shape ({expected}) with m at least 1, got x.shape={values.shape}")
        rows = svec(values) if self.protocol.symmetric else values
        for block in self._blocks(rows):
            self._bounded(rows[block])
        if self.protocol.positive:
            self._check_positive(values)
        return rows

    def _blocks(self, rows: Array) -> Iterator[slice]:
        height = max(1, _BLOCK // rows.shape[1])
        return (slice(start, start + height) for start in range(0, len(rows), height))

    def _bounded(self, rows: Array) -> Array:
        """A block of rows, none of them longer than the bound; refused or scaled if one is."""
        squares = np.einsum("ij,ij->i", rows, rows)
        # NaN fails the comparison as well
        if squares.max() <= (self.protocol.bound * (1 - 2.0**-40)) ** 2:
            return rows
        rows = real_array("x", rows)
        if not self.clip and squares.max() > (self.protocol.bound * (1 + 2.0**-30)) ** 2:
            longest = float(np.sqrt(squares.max()))
            raise ValueError(f"x must have norm at most bound={self.protocol.bound!r}, got one of norm {longest!r}")
        return within_norm(rows, 2.0, self.protocol.bound, clip=True)

    def _check_positive(self, values: Array) -> None:
        lowest = float(np.linalg.eigvalsh(values).min() if self.protocol.symmetric else values.min())
        if lowest < -_ROUNDING * self.protocol.bound:
            kind = "eigenvalues" if self.protocol.symmetric else "entries"
            raise ValueError(f"x must have nonnegative {kind} where positive=True, got one of {lowest!r}")

    def _rounded(self, rows: Array, rng: np.random.Generator) -> Array:
        """x̂ of a block of rows, as float64."""
        protocol = self.protocol
        w = self._bounded(rows) + protocol.bound
        w *= protocol.resolution / (2.0 * protocol.bound)
        # the product may pass an end by rounding
        np.clip(w, 0.0, protocol.resolution, out=w)
        whole = np.floor(w)
        w -= whole
        whole += rng.random(w.shape) < w
        return whole

    def _noise(self, trials: int, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        if self.protocol.noise_rate == 0.5:
            return binomial_half(trials, shape, rng=rng)
        return _binomial_quarter(trials, shape, rng)


def _binomial_quarter(trials: int, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
    """Exact Bin(trials, ¼): the ones among the bitwise products of pairs of random bits."""
    out = np.zeros(shape, dtype=np.int64)
    flat = out.reshape(-1)
    for done in range(0, trials, 64 * _BLOCK):
        bits = min(trials - done, 64 * _BLOCK)
        words = -(-bits // 64)
        last = np.uint64(2**64 - 1) >> np.uint64(64 * words - bits)
        rows = max(1, _BLOCK // words)
        for start in range(0, flat.size, rows):
            block = flat[start : start + rows]
            both = random_words(rng, words * block.size) & random_words(rng, words * block.size)
            both = both.reshape(words, block.size)
            both[-1] &= last
            block += popcount(both).sum(axis=0, dtype=np.int64)
    return out

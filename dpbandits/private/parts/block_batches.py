"""Shuffled sums of records in blocks: a block for every arm, of which each user tells of one, and none shows which.

The records are those of :mod:`dpkit.moments.blocks`, randomized in the coordinates of all blocks. A block that comes in
the middle of a batch is there from the next one on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from dpkit.moments.blocks import FOURTH, TOTAL, Released, block_record, record_sensitivity
from dpkit.moments.shuffled import ShuffledBatches
from dpkit.states.entries import conform, in_units, short

__all__ = ["BlockBatches", "NoisyBlocks"]

# a: less than without a shuffler, where a record's length costs nothing beside its distance from another
_MATRIX = 0.25


@dataclass(frozen=True)
class NoisyBlocks:
    """The sums of one batch: of its blocks and in total, the noise in each entry, and how many users it had."""

    blocks: Array
    total: Array
    std: float
    users: int


class BlockBatches:
    """The shuffled sums of batches, whose number of blocks grows between batches.

    Parameters
    ----------
    ends : sequence of int
        After how many decisions the batches end.
    dim, blocks : int
        m, and K at the start.
    c : float
        1/(2B).
    budget : Budget
    rng : numpy.random.Generator

    Attributes
    ----------
    own, shared : int
        How many entries a block has, and the total.
    blocks, arms : int
        In the open batch, and from the next one on.
    """

    def __init__(
        self, ends: Sequence[int], dim: int, blocks: int, c: float, *, budget: Budget, rng: np.random.Generator
    ) -> None:
        self._ends, self._dim, self._c, self._budget, self._rng = ends, dim, c, budget, rng
        d = dim + 1
        self.own, self.shared = d * (d + 3) // 2, d * (d + 1) // 2 + 1
        self.sums = self._batches(blocks)
        self.blocks = self.arms = blocks

    def _batches(self, blocks: int) -> ShuffledBatches:
        """Sums of so many blocks."""
        return ShuffledBatches(
            self._ends,
            blocks * self.own + self.shared,
            self._records,
            bound=math.sqrt(_MATRIX**2 + TOTAL**2 + 0.25 + FOURTH**2) * (1 + 2.0**-40),
            distance=record_sensitivity(self._budget.adjacency, _MATRIX),
            budget=self._budget,
            rng=self._rng,
        )

    def _resize(self, blocks: int, done: int) -> None:
        """From the batch that is open now, after those that are ``done``."""
        self.sums, self.blocks = self._batches(blocks), blocks
        self.sums.released = done

    def grow(self) -> None:
        """One more arm, whose block is there from the next batch on."""
        self.arms += 1

    def add(self, block: int, z: Array, g: float) -> None:
        """What one user tells: a record of an arm that has its block, or nothing."""
        if block < self.blocks:
            self.sums.add(np.concatenate([z, [g, block]]), self.sums.released)

    def _records(self, rows: Array) -> Array:
        """Records of rows (z, g, block)."""
        parts = block_record(rows[:, :-2], rows[:, -2], self._c, _MATRIX)
        found = np.zeros((len(rows), self.blocks * self.own + self.shared))
        first = rows[:, -1].astype(np.intp)[:, None] * self.own + np.arange(self.own)
        found[np.arange(len(rows))[:, None], first] = parts[:, : self.own]
        found[:, -self.shared :] = parts[:, self.own :]
        return found

    def release(self) -> NoisyBlocks:
        """Close the batch."""
        batch = self.sums.released
        noisy, std, users = self.sums.release(), self.sums.noise_std(batch), self.sums.protocols[batch].users
        split = self.blocks * self.own
        blocks = noisy[:split].reshape(self.blocks, self.own)
        if self.arms > self.blocks:
            self._resize(self.arms, batch + 1)
        return NoisyBlocks(blocks, noisy[split:], std, users)

    def noisy(self, blocks: Array, total: Array, std: Array) -> Released:
        """What sums of batches say, with noise of ``std`` (of each block) in every entry."""
        return Released.of(np.concatenate([blocks.ravel(), total]), len(blocks), self._dim + 1, self._c, std, _MATRIX)

    def kept(self) -> dict[str, Any]:
        """Randomized counts only."""
        units = np.array([self._c, _MATRIX, TOTAL, FOURTH])
        return {"blocks": self.blocks, "sums": self.sums.kept(), "units": units}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked; ``arms`` is that of the state already."""
        saved = in_units(saved, (self._c, _MATRIX, TOTAL, FOURTH))
        if not isinstance(saved, Mapping) or set(saved) != {"blocks", "sums"}:
            raise ValueError(f"sums must hold the entries ['blocks', 'sums'], got {short(saved)}")
        blocks = conform("blocks", saved["blocks"], 0)
        if not 0 < blocks <= self.arms:
            raise ValueError(f"blocks must be at most the number of arms {self.arms}, got blocks={blocks}")
        if blocks != self.blocks:
            self._resize(blocks, 0)
        self.sums.resume(saved["sums"])

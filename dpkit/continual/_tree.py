"""The factorization of prefix sums by a binary tree: rows of C are nodes, and B adds nodes to estimates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpkit.continual._buffers import accumulate
from dpkit.continual.factorization import Factorization, norm_of_ones

__all__ = ["Tree", "levels_of"]

# Integer inputs up to 2⁶¹ and sums up to 2⁶² leave room for any noise below 2⁴⁰ standard deviations of a tree.
_LARGEST_INPUT = 2**61
_LARGEST_SUM = 2**62


def levels_of(horizon: int, honaker: bool) -> int:
    """The number of levels of a tree for ``horizon`` inputs; Honaker's has no root for a power of two."""
    return max(1, (horizon - 1).bit_length()) if honaker else horizon.bit_length()


class Tree(Factorization):
    """Encoded rows are nodes: at step t that of the lowest set bit of t or, with ``honaker``, all that end there.

    An input is rounded once, v to ⌊v⌉, and then sits in nodes that are exact sums of integers. So such a node
    changes by ‖⌊v⌉ − ⌊v′⌉‖, which is at most ‖v − v′‖ plus the norm of d ones: the column norm and the excess are
    those of *one node*, and the cost counts the nodes.

    With reach ≤ 2⁶⁰/T all sums are at most 2⁶⁰ in size. (Where noise is real, so are the sums, and nothing is cut.)
    """

    def __init__(self, horizon: int, honaker: bool) -> None:
        super().__init__(horizon)
        self._honaker = honaker
        self._levels = levels_of(horizon, honaker)
        self.reach = min(2.0**60 / horizon, 2.0**50)
        # T roundings of an input, if all go one way, add up to a sixteenth of the sensitivity (in streams beyond 2²⁵
        # inputs to more, so that inputs of 64 times the sensitivity are not cut)
        self.fineness = min(8.0 * horizon, 2.0**54 / horizon)
        # variances of Honaker's estimates of the sums of 2^h inputs; those of the standard tree are a node's
        self._variances = [1.0] * self._levels
        for h in range(1, self._levels if honaker else 0):
            self._variances[h] = 1.0 / (1.0 + 0.5 / self._variances[h - 1])

    def joint_norm(self, participations: int, min_separation: int = 1) -> float:
        # of one node, per contribution under it: the cost counts these, too
        return self.column_norm

    def excess(self, dimension: int, order: int) -> float:
        return norm_of_ones(dimension, order)

    def begin(self, dimension: int, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        # row j: of the prefix that consists of the first j nodes of the current one, the sum and the estimate
        self._sums = np.zeros((self._levels + 2, dimension), dtype)
        self._estimates = np.zeros_like(self._sums, dtype=np.float64 if self._honaker else dtype)
        # by level, Honaker's estimate of the node that waits for its right sibling
        self._waiting = np.zeros((self._levels if self._honaker else 0, dimension))

    def secret(self, t: int) -> dict[str, NDArray[Any]]:
        return {"sums": self._sums}

    def public(self, t: int) -> dict[str, NDArray[Any]]:
        return {"estimates": self._estimates, "waiting": self._waiting}

    def check_saved(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        most = self.reach * self.horizon + self.horizon
        if (np.abs(arrays["sums"].astype(np.float64)) > most).any():
            raise ValueError(f"sums must be at most {most:.3g} in size, got others")

    def error(self, t: int) -> float:
        variance = 0.0
        while t:
            h = self._level(t)
            variance += self._variances[h]
            t -= 1 << h
        return math.sqrt(variance)

    def check(self, t: int, v: NDArray[Any]) -> None:
        if v.dtype.kind != "i":
            return
        # in float64 sums cannot wrap around, and are accurate enough for a bound of half the range
        sums = np.cumsum(np.vstack([self._sums[self._nodes(t)], v]), axis=0, dtype=np.float64)
        for name, values, bound in (("x", v, _LARGEST_INPUT), ("the sum of all x", sums, _LARGEST_SUM)):
            if values.size and max(int(values.max()), -int(values.min())) > bound:
                power = bound.bit_length() - 1
                raise ValueError(f"{name} must be at most 2**{power} in size, got {values.min()} to {values.max()}")

    def _nodes(self, t: int) -> int:
        """The number of nodes in the prefix of t inputs: the set bits, with two nodes for the root that is left out."""
        top = self._levels - 1
        return (t >> top) + (t & ((1 << top) - 1)).bit_count()

    def _level(self, t: int) -> int:
        """The level of the last of them: the position of the lowest set bit, below the root."""
        return min((t & -t).bit_length(), self._levels) - 1

    def _rounded(self, v: NDArray[Any]) -> NDArray[Any]:
        return v.copy() if v.dtype == self._dtype else np.rint(v).astype(self._dtype)

    # ------------------------------------------------------------------------------------- step by step

    def encode(self, t: int, v: NDArray[Any]) -> NDArray[Any]:
        last = self._nodes(t)
        t += 1
        before = self._nodes(t) - 1
        total = self._rounded(v)
        total += self._sums[last]
        # the nodes of levels 0, 1, … that end here begin where prefixes of the last one end, the longest first
        begins = self._sums[before : last + 1][::-1] if self._honaker else self._sums[before]
        nodes: NDArray[Any] = total - begins
        self._sums[before + 1] = total
        return nodes if self._honaker else nodes[None]

    def decode(self, t: int, z: NDArray[Any]) -> NDArray[Any]:
        t += 1
        before = self._nodes(t) - 1
        node = z[0]
        if self._honaker:
            node = node.astype(np.float64)
            for h, v in enumerate(self._variances[1 : len(z)], 1):
                node += self._waiting[h - 1]
                node *= 1.0 - v
                node += v * z[h]
            self._waiting[len(z) - 1] = node
        estimate: NDArray[Any] = self._estimates[before + 1]
        np.add(self._estimates[before], node, estimate)
        return estimate

    def one(self, t: int, v: float, noisy: Callable[[int], int]) -> float:
        sums, estimates = self._sums.reshape(-1), self._estimates.reshape(-1)
        last = self._nodes(t)
        before = self._nodes(t + 1) - 1
        total = round(v) + sums.item(last)
        if self._honaker:
            estimate = float(noisy(total - sums.item(last)))
            for h in range(1, last - before + 1):
                v = self._variances[h]
                estimate = (estimate + self._waiting.item(h - 1)) * (1.0 - v) + v * noisy(total - sums.item(last - h))
            self._waiting[last - before] = estimate
        else:
            estimate = noisy(total - sums.item(before))
        sums[before + 1] = total
        estimates[before + 1] = estimate = estimates.item(before) + estimate
        return float(estimate)

    # ------------------------------------------------------------------------------------ many at a time

    def many(self, t: int, v: NDArray[Any], noisy: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
        return self._decode_many(t, noisy(self._encode_many(t, v)), len(v))

    def _encode_many(self, t: int, v: NDArray[Any]) -> NDArray[Any]:
        first = t + 1
        totals = self._rounded(v)
        totals[0] += self._sums[self._nodes(t)]
        accumulate(totals)
        offsets, count = self._offsets(first, len(v))
        nodes = np.empty((count, v.shape[1]), self._dtype)
        for h in range(self._levels):
            size = 1 << h
            start, stride = self._ending(first, h)
            if start >= len(v):
                continue
            ends = totals[start::stride]
            begins = np.empty_like(ends)
            # where only the first may begin before this chunk
            outside = start < size
            if outside:
                begins[0] = self._sums[self._nodes(first + start - size)]
            begins[outside:] = totals[start - size + outside * stride :: stride][: len(ends) - outside]
            np.subtract(ends, begins, out=begins)
            nodes[offsets[start::stride] + (h if self._honaker else 0)] = begins
        self._keep(self._sums, totals, first)
        return nodes

    def _decode_many(self, t: int, z: NDArray[Any], count: int) -> NDArray[Any]:
        first = t + 1
        estimates = self._honaker_nodes(first, z, count) if self._honaker else z.copy()
        # all steps whose last node has the same level at once, from the top, since each adds to one of a higher level
        for h in range(self._levels - 1, -1, -1):
            size = 1 << h
            start, stride = self._last_of(first, h)
            if start < min(size, count):  # the prefix before this node ended in an earlier chunk, or is empty
                estimates[start] += self._estimates[self._nodes(first + start - size)]
                start += stride
            later = estimates[start::stride]
            later += estimates[start - size :: stride][: len(later)]
        self._keep(self._estimates, estimates, first)
        return estimates

    def _honaker_nodes(self, first: int, z: NDArray[Any], count: int) -> NDArray[np.float64]:
        """The estimates of the last node's sum at each of the steps first, …, first + count − 1."""
        offsets, _ = self._offsets(first, count)
        estimates: NDArray[np.float64] = z[offsets].astype(np.float64)
        for h in range(1, self._levels):
            size, v = 1 << h, self._variances[h]
            i = -first % size
            rows = estimates[i::size]
            if i < min(size // 2, count):  # the left half ended in an earlier chunk
                rows[0] += self._waiting[h - 1]
                rows[1:] += estimates[i + size // 2 :: size][: len(rows) - 1]
            else:
                rows += estimates[i - size // 2 :: size][: len(rows)]
            rows *= 1.0 - v
            rows += v * z[offsets[i::size] + h]
        for h in range(self._levels):
            start, stride = self._last_of(first, h)
            if start < count:
                self._waiting[h] = estimates[start::stride][-1]
        return estimates

    def _offsets(self, first: int, count: int) -> tuple[NDArray[np.int64], int]:
        """The first encoded row of each of the steps first, …, first + count − 1, and their number."""
        if not self._honaker:
            return np.arange(count), count
        t = np.arange(first, first + count)
        rows = np.minimum(np.frexp((t & -t).astype(np.float64))[1], self._levels).astype(np.int64)
        return np.cumsum(rows) - rows, int(rows.sum())

    def _last_of(self, first: int, h: int) -> tuple[int, int]:
        """Where, from ``first`` on, the last node has level h: the start and the stride.

        These are the odd multiples of 2^h; of the top level all, of which there are two at most.
        """
        size = 1 << h
        stride, offset = (size, 0) if h == self._levels - 1 else (2 * size, size)
        return (offset - first) % stride, stride

    def _ending(self, first: int, h: int) -> tuple[int, int]:
        """Where, from ``first`` on, a node of level h is drawn."""
        return (-first % (1 << h), 1 << h) if self._honaker else self._last_of(first, h)

    def _keep(self, kept: NDArray[Any], rows: NDArray[Any], first: int) -> None:
        """Keep the rows of all prefixes that consist of nodes of the last one."""
        t = first + len(rows) - 1
        while t >= first:
            kept[self._nodes(t)] = rows[t - first]
            t -= 1 << self._level(t)

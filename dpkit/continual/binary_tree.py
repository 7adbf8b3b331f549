"""Prefix sums of a stream by a binary tree of noisy partial sums: the classical mechanism, with noise of several kinds.

Source: Dwork, Naor, Pitassi & Rothblum (2010), "Differential privacy under continual observation", and Chan, Shi & Song
(2011), "Private and continual release of statistics", Algorithm 2; the better estimator is that of Honaker (2015),
"Efficient use of differentially private binary trees", the one from below, which is online.

A node of level h at step t is the sum of the 2^h inputs up to t, for every t that 2^h divides, with noise of its own.

* ``estimator="standard"``: the estimate is the sum of the nodes over the set bits of t. So its noise is that of t with
  its lowest set bit cleared, plus that of one new node.
* ``estimator="honaker"``: every node is drawn, and the sum of 2^h inputs is estimated from its node and from the
  estimates of its two halves together, weighted by their variances: v_h = 2v_{h−1}/(1 + 2v_{h−1}) in units of a
  node's, v_0 = 1, which tends to ½. Where the horizon is a power of two its root is left out, which saves one level.

Guarantee
---------
* Unit: one input x_t. Neighbouring streams differ in one input, in the sense of ``adjacency``, by at most
  ``sensitivity``: in L2 norm for Gaussian and discrete Gaussian noise, in L1 for Laplace, in ℓ_q for the generalized
  Gaussian.
* One input sits in at most L nodes, L = ⌊log₂ T⌋ + 1 (Honaker: ⌈log₂ T⌉, at least 1), each released once. So the whole
  stream costs L adaptively composed node releases: ``TreeAggregation`` for Gaussian noise, else L times the node's.
* Inputs may depend on earlier outputs, since composition is adaptive.
* Discrete Gaussian noise on integer inputs is exact: integers in, integers out, no floating-point number in between.
  The other kinds are private in real-number arithmetic, and drawn and added in float64.

Cost per step: one draw (Honaker: two on average) and four additions of the dimension. Memory: 2 log₂ T vectors at most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Ledger, Release, TreeAggregation
from accounting.checks import integer, positive
from dpkit.continual._nodes import KINDS, node_cost, node_noise
from dpkit.continual._stream import ContinualSum, accumulate, chunks, one_of

__all__ = ["BinaryTree"]

# Integer inputs up to 2⁶¹ and sums up to 2⁶² leave room for any noise below 2⁴⁰ standard deviations of a tree.
_LARGEST_INPUT = 2**61
_LARGEST_SUM = 2**62


class BinaryTree(ContinualSum):
    """Noisy prefix sums of at most ``horizon`` inputs, by a binary tree.

    Parameters
    ----------
    horizon : int
        T, the largest number of inputs.
    shape : int or tuple of int
        The shape of one input. ``()`` for scalars.
    sensitivity : float
        The largest distance between one input and the one that a neighbouring stream has in its place, under
        ``adjacency`` and in the norm of the noise (see the module's text); for vectors of L2 norm at most B and
        "replace" it is 2B, see ``dpkit.geometry``. It is the caller's to guarantee, by clipping: a distance cannot be
        checked on one input.
    noise_multiplier : float
        The noise of *one node*: its standard deviation (Laplace: its scale) over the sensitivity.
    noise : {"gaussian", "laplace", "generalized_gaussian", "discrete_gaussian"}
        The distribution of the nodes' noise. With ``"discrete_gaussian"`` inputs and estimates are integers (int64).
    q : float
        For the generalized Gaussian: the norm ℓ_q, 1 ≤ q ≤ ∞, of the sensitivity.
    estimator : {"standard", "honaker"}
        How the nodes are combined. Honaker's has about 0.75 of the worst error and draws twice as much noise.
    adjacency : {"replace", "add_remove", "zero_out"}
        The neighbouring relation that ``sensitivity`` was measured under.
    symmetric : bool
        Inputs are symmetric (d, d) matrices; noise is added to their isometric half-vector, estimates are symmetric.
        The sensitivity is that of the half-vector. Not for integers.
    rng : numpy.random.Generator, optional
        By default secure; any other generator makes it a simulation, and the ledger says so.
    ledger : Ledger, optional
        Charged with the whole stream here, before any noise is drawn.
    label : str
        For the reader of the ledger.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.continual import BinaryTree
    >>> known = {"budget": Budget(1.0, 1e-6), "horizon": 1023, "shape": (), "sensitivity": 1.0}
    >>> sums = BinaryTree.calibrated(**known, noise="discrete_gaussian")
    >>> sums.add(3).dtype
    dtype('int64')
    >>> round(BinaryTree.calibrated(**known).noise_std(1023), 2)
    42.25
    >>> round(BinaryTree.calibrated(**known, estimator="honaker").noise_std(1023), 2)
    32.18
    """

    _PARAMETERS: ClassVar[tuple[str, ...]] = (*ContinualSum._PARAMETERS, "q", "estimator")

    def __init__(
        self,
        *,
        horizon: int,
        shape: int | tuple[int, ...],
        sensitivity: float,
        noise_multiplier: float,
        noise: Literal["gaussian", "laplace", "generalized_gaussian", "discrete_gaussian"] = "gaussian",
        q: float = 2.0,
        estimator: Literal["standard", "honaker"] = "standard",
        adjacency: Adjacency = "replace",
        symmetric: bool = False,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        label: str = "binary tree sums",
    ) -> None:
        self._configure(horizon, shape, sensitivity, noise_multiplier, noise, adjacency, symmetric, q, estimator)
        self._open(rng, ledger, label)

    def _configure(
        self,
        horizon: int,
        shape: int | tuple[int, ...],
        sensitivity: float,
        noise_multiplier: float,
        noise: str,
        adjacency: Adjacency,
        symmetric: bool,
        q: float,
        estimator: str,
    ) -> None:
        self.noise = one_of("noise", noise, KINDS)
        self.estimator = one_of("estimator", estimator, ("standard", "honaker"))
        self.q = positive("q", q, finite=False)
        if self.q < 1 or (self.q != 2 and self.noise != "generalized_gaussian"):
            bound = "at least 1" if self.noise == "generalized_gaussian" else f"2 with noise={noise!r}"
            raise ValueError(f"q must be {bound}, got q={q!r}")
        self._exact = self.noise == "discrete_gaussian"
        self._weighted = self.estimator == "honaker"
        if self._exact and (symmetric or self._weighted):
            raise ValueError(
                "noise='discrete_gaussian' must go with symmetric=False and estimator='standard', "
                f"got symmetric={symmetric!r}, estimator={estimator!r}"
            )
        dtype = np.int64 if self._exact else np.float64
        self._declare(horizon, shape, sensitivity, noise_multiplier, adjacency, symmetric, dtype)
        D = self._layout.dimension
        self._node = node_noise(self.noise, self._sigma, self.q, D)
        self._levels = _levels(self.horizon, self.estimator)
        # variances of Honaker's estimates of the sums of 2^h inputs; those of the standard tree are a node's
        self._variances = [1.0] * self._levels
        if self._weighted:
            for h in range(1, self._levels):
                self._variances[h] = 1.0 / (1.0 + 0.5 / self._variances[h - 1])
        self._sum = np.zeros(D, dtype=dtype)
        # the noise of the prefixes that end with the nodes of the current one, longest node first
        self._prefixes: list[NDArray[Any]] = []
        # by level, the noise of Honaker's estimate of the node that waits for its right sibling
        self._waiting = np.zeros((self._levels if self._weighted else 0, D))

    @classmethod
    def _describe(cls, noise_multiplier: float, parameters: Mapping[str, Any]) -> Release:
        adjacency = parameters["adjacency"]
        noise = one_of("noise", parameters.get("noise", "gaussian"), KINDS)
        horizon = integer("horizon", parameters.get("horizon"), at_least=1)
        levels = _levels(horizon, parameters.get("estimator", "standard"))
        if noise == "gaussian":
            # the longest stream of which an input sits in that many nodes; the horizon, except without its root
            return TreeAggregation(noise_multiplier, min(horizon, 2**levels - 1), adjacency=adjacency)
        return levels * node_cost(noise, noise_multiplier, adjacency)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        prefixes = np.zeros((self._levels + 1, self._layout.dimension), self._layout.dtype)
        for row, noise in zip(prefixes, self._prefixes, strict=False):
            row[:] = noise
        return {"sum": self._sum, "prefixes": prefixes, "waiting": self._waiting}

    def _load(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._sum, self._waiting = arrays["sum"], arrays["waiting"]
        self._prefixes = list(arrays["prefixes"][: self._nodes(self.steps)])

    def _nodes(self, t: int) -> int:
        """The number of nodes in the prefix of t inputs: the set bits, with two nodes for the root that is left out."""
        top = self._levels - 1
        return (t >> top) + (t & ((1 << top) - 1)).bit_count()

    def _level(self, t: int) -> int:
        """The level of the last of them: the position of the lowest set bit, below the root."""
        return min((t & -t).bit_length(), self._levels) - 1

    def noise_std(self, t: int) -> float:
        """The standard deviation of the noise in the t-th estimate, 1 ≤ t ≤ horizon, in closed form.

        Of each entry; for symmetric inputs of each diagonal entry, and √2 times that of an off-diagonal one.
        """
        t = self._check_step(t)
        variance = 0.0
        while t:
            h = self._level(t)
            variance += self._variances[h]
            t -= 1 << h
        return self._node.std * math.sqrt(variance)

    def add(self, x: ArrayLike) -> NDArray[Any]:
        """Take the next input and return the noisy sum of all inputs so far, a new array of shape ``shape``.

        Raises
        ------
        ValueError, TypeError
            If ``x`` has the wrong shape or type, is not finite or not symmetric, or passes the horizon; or if an exact
            integer sum would pass 2⁶². Nothing is drawn and the state is unchanged.
        """
        t = self.steps + 1
        if t > self.horizon:
            self._check_room(1)
        flat = self._layout.flatten(x)
        total = self._sum + flat
        if self._exact:
            _check_range(flat, total)
        noise = self._honaker(self._level(t)) if self._weighted else self._node.row(self._rng)
        prefixes = self._prefixes
        before = self._nodes(t) - 1
        if before:
            noise += prefixes[before - 1]
        estimate = total + noise
        # nothing was changed so far, so that an interrupted call can be repeated
        prefixes[before:] = (noise,)
        self._sum = total
        self.steps = t
        return self._layout.unflatten(estimate)

    def _honaker(self, h: int) -> NDArray[np.float64]:
        """The noise of the estimate of the last 2^h inputs, from the new nodes of all levels up to h."""
        nodes = self._node.rows(self._rng, h + 1)
        noise: NDArray[np.float64] = nodes[0]
        for level in range(1, h + 1):
            v = self._variances[level]
            noise += self._waiting[level - 1]
            noise *= 1.0 - v
            noise += v * nodes[level]
        self._waiting[h] = noise
        return noise

    def add_many(self, xs: ArrayLike) -> NDArray[Any]:
        """Take n inputs at once, ``xs`` of shape ``(n, *shape)``, and return the noisy sum after each of them.

        As n calls of :meth:`add`, several times faster. Inputs that depend on earlier outputs must be added one by one.

        Raises
        ------
        ValueError, TypeError
            As for :meth:`add`; then none of the inputs is taken.
        """
        rows = self._layout.flatten_rows(xs)
        self._check_room(len(rows))
        if self._exact:
            # in float64 sums cannot wrap around, and are accurate enough for a bound of half the range
            _check_range(rows, np.cumsum(np.vstack([self._sum, rows]), axis=0, dtype=np.float64))
        estimates = np.empty(rows.shape, self._layout.dtype)
        total, prefixes, waiting = self._sum, self._prefixes, self._waiting.copy()
        for chunk in chunks(len(rows), self._layout.dimension):
            first, count = self.steps + 1 + chunk.start, chunk.stop - chunk.start
            noise, prefixes = self._chunk_noise(first, count, prefixes, waiting)
            sums = estimates[chunk]
            np.copyto(sums, rows[chunk])
            sums[0] += total
            accumulate(sums)
            total = sums[-1].copy()
            sums += noise
        # nothing was changed so far, so that an interrupted call can be repeated
        self._sum, self._prefixes, self._waiting = total, prefixes, waiting
        self.steps += len(rows)
        return self._layout.unflatten(estimates)

    def _chunk_noise(
        self, first: int, count: int, prefixes: list[NDArray[Any]], waiting: NDArray[np.float64]
    ) -> tuple[NDArray[Any], list[NDArray[Any]]]:
        """The noise of the estimates first, …, first + count − 1, and that of the prefixes which later steps refer to.

        All steps whose last node has the same level are taken at once, from the top, since each refers to a prefix
        whose last node has a higher level.
        """
        noise = self._honaker_chunk(first, count, waiting) if self._weighted else self._node.rows(self._rng, count)
        for h in range(self._levels - 1, -1, -1):
            size = 1 << h
            # every odd multiple of 2^h; of the top level every multiple, of which there are two at most
            stride, offset = (size, 0) if h == self._levels - 1 else (2 * size, size)
            i = (offset - first) % stride
            if i < min(size, count):  # the prefix before this node ended in an earlier chunk, or is empty
                if before := self._nodes(first + i - size):
                    noise[i] += prefixes[before - 1]
                i += stride
            later = noise[i::stride]
            later += noise[i - size :: stride][: len(later)]
        last = first + count - 1
        ends = [last]
        while len(ends) < self._nodes(last):
            ends.append(ends[-1] - (1 << self._level(ends[-1])))
        kept = [noise[t - first].copy() for t in reversed(ends) if t >= first]
        return noise, prefixes[: len(ends) - len(kept)] + kept

    def _honaker_chunk(self, first: int, count: int, waiting: NDArray[np.float64]) -> NDArray[np.float64]:
        """The noise of the estimates of the last node's sum at each of the steps first, …, first + count − 1."""
        t = np.arange(first, first + count)
        levels = np.minimum(np.frexp((t & -t).astype(np.float64))[1] - 1, self._levels - 1)
        offsets = np.cumsum(levels + 1) - levels - 1
        nodes: NDArray[np.float64] = self._node.rows(self._rng, int(levels.sum()) + count)
        noise: NDArray[np.float64] = nodes[offsets]
        for h in range(1, self._levels):
            size, v = 1 << h, self._variances[h]
            i = -first % size
            rows = noise[i::size]
            if i < min(size // 2, count):  # the left half ended in an earlier chunk
                rows[0] += waiting[h - 1]
                rows[1:] += noise[i + size // 2 :: size][: len(rows) - 1]
            else:
                rows += noise[i - size // 2 :: size][: len(rows)]
            rows *= 1.0 - v
            rows += v * nodes[offsets[i::size] + h]
        for h in range(self._levels):
            latest = np.flatnonzero(levels == h)
            if latest.size:
                waiting[h] = noise[latest[-1]]
        return noise


def _levels(horizon: int, estimator: str) -> int:
    """The number of levels of a tree for ``horizon`` inputs; Honaker's has no root for a power of two."""
    return max(1, (horizon - 1).bit_length()) if estimator == "honaker" else horizon.bit_length()


def _check_range(inputs: NDArray[np.int64], sums: NDArray[Any]) -> None:
    """Refuse integers whose sums come near the end of the 64-bit range."""
    for name, values, bound in (("x", inputs, _LARGEST_INPUT), ("the sum of all x", sums, _LARGEST_SUM)):
        if values.size and max(int(values.max()), -int(values.min())) > bound:
            power = bound.bit_length() - 1
            raise ValueError(f"{name} must be at most 2**{power} in size, got {values.min()} to {values.max()}")

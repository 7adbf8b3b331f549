"""Private running sums of pairs in blocks: a linear model for each of many things, of which each record is about one.

A record is a context z, ‖z‖ ≤ 1, and a number g, |g| ≤ B, that belong to block k. With x = (1, z)/√2 and ψ = 1/‖x‖
it adds

    (a·ψ·x xᵀ, c·ψ·g·x) to block k,        (a_t·ψ·x xᵀ, a_q·ψ‖z‖⁴) to the total.

K blocks cost no more noise than one: a record is in one of them. The total is known far better than the sum of the
blocks, which have K times its noise.

Cost per record: O(d²); per release a step of continual sums with O(Kd²) entries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting import Adjacency, Budget, Gaussian, Release, calibrate
from accounting.arrays import Array
from accounting.checks import fraction, integer, positive
from dpkit import randomness
from dpkit.continual import BufferedToeplitz, ContinualSum, Discounted
from dpkit.geometry import svec
from dpkit.mechanisms._checked import charge
from dpkit.moments.pairs import whole_digits
from dpkit.states.entries import conform, in_units, short

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["FOURTH", "MATRIX", "TOTAL", "BlockSums", "Released", "block_record", "features", "record_sensitivity"]

# a, a_t and a_q for c·B = ½. What b costs is the most of it, all of it up to a = ¼; beside that, a = 0.4 has 2 % more
# noise in b and 36 % less in H
MATRIX, TOTAL, FOURTH = 0.4, 0.2, 0.125
# more than one stream has a change of rounding in each: see BlockSums
_STREAMS = 1.001
# what computed lengths may be, of those that are 1 at most
_ROUNDED = 1.0 + 1e-12


def features(z: Array) -> Array:
    """x = (1, z)/√2, for one context or rows of them: shape (…, m) gives (…, m + 1).

    Examples
    --------
    >>> from dpkit.moments import features
    >>> features(np.array([0.6, 0.8])).round(3)
    array([0.707, 0.424, 0.566])
    """
    one = np.ones((*z.shape[:-1], 1))
    return np.concatenate([one, z], axis=-1) * math.sqrt(0.5)


def record_sensitivity(adjacency: Adjacency, a: float = MATRIX) -> float:
    """How far a change of one record moves the sums above, in L2 norm over all blocks, with c = 1/(2B).

    Proof. Write x = ‖x‖u, s = uᵀu′, ω = ψ‖x‖² = ‖x‖ ∈ [√½, 1] and γ = cψg‖x‖ = cg ∈ [−½, ½]. ψ‖z‖⁴ ∈ [0, 1] as ‖z‖ ≤ 1,
    where ‖x‖ = 1 if ‖z‖ = 1. A = a² + a_t².

    * A record that counts for nothing on one side: at most A + ¼ + a_q².
    * Another block. The blocks have no entry in common, so they add up: a²(ω² + ω′²) + γ² + γ′². The
      total moves by at most a_t²(ω² + ω′²) + a_q², as x xᵀ and x′x′ᵀ have a nonnegative inner product. In all at most
      2A + ½ + a_q².
    * The same block: A(ω² + ω′² − 2ωω′s²) + γ² + γ′² − 2γγ′s + a_q². It is convex in ω, ω′, γ and γ′ separately, so
      largest at a corner; γ = −γ′ = ±½ makes the middle ½(1 + |s|). What is left is concave in s = |s| ≥ 0, and largest
      at s = min(1, ½/(4Aωω′)): the code takes the four corners.
    * A change may also move the record to another batch, where it comes at another time. With ϱ ∈ [0, 1] the
      inner product of the two columns of the mechanism's factor (one factor for all entries of a record: they are
      in one stream) the mixed terms are multiplied by ϱ, and the whole is linear in ϱ: at ϱ = 1 it is the case above,
      at ϱ = 0 at most 2A + ½ + 2a_q². Another block may be in another stream, with a total of its own: the same.

    Examples
    --------
    >>> from dpkit.moments import record_sensitivity
    >>> round(record_sensitivity("replace") ** 2, 3), round(record_sensitivity("zero_out") ** 2, 3)
    (1.072, 0.466)
    """
    A, q = a**2 + TOTAL**2, FOURTH**2
    if adjacency == "zero_out":
        return math.sqrt(A + 0.25 + q)
    largest = 2.0 * A + 0.5 + 2.0 * q
    for one, other in product((math.sqrt(0.5), 1.0), repeat=2):
        s = min(1.0, 0.5 / (4.0 * A * one * other))
        largest = max(largest, A * (one**2 + other**2 - 2.0 * one * other * s**2) + 0.5 * (1.0 + s) + q)
    return math.sqrt(largest)


def block_record(z: Array, g: Array, c: float, a: float = MATRIX) -> Array:
    """For rows z (n, m) and g (n,): what goes to a block, D + d entries, and what to the total, D + 1 more.

    Examples
    --------
    >>> from dpkit.moments import block_record
    >>> block_record(np.zeros((1, 1)), np.ones(1), c=0.5).round(3).tolist()
    [[0.283, 0.0, 0.0, 0.5, 0.0, 0.141, 0.0, 0.0, 0.0]]
    """
    x = features(z)
    psi = 1.0 / np.sqrt(np.einsum("ij,ij->i", x, x))[:, None]
    H = svec((psi * x)[:, :, None] * x[:, None, :])
    fourth = np.einsum("ij,ij->i", z, z)[:, None] ** 2
    return np.concatenate([a * H, (c * g)[:, None] * psi * x, TOTAL * H, FOURTH * psi * fourth], axis=1)


@dataclass(frozen=True)
class Released:
    """Noisy sums over all batches so far.

    Attributes
    ----------
    H, b : ndarray of shape (K, D) and (K, d)
        Of each block: the half-vector of Σ ψ·x xᵀ (``dpkit.geometry.svec``), and Σ ψ·g·x.
    total, fourth : ndarray of shape (D,), float
        Of all blocks: Σ ψ·x xᵀ, and Σ ψ‖z‖⁴.
    matrix_noise, vector_noise : ndarray of shape (K,)
        The standard deviation of each entry of H and of b.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.moments import Released
    >>> none = np.zeros(1)
    >>> sums = Released(np.zeros((1, 3)), np.zeros((1, 2)), np.zeros(3), 0.0, none + 4.0, none + 2.0)
    >>> float(sums.vector_noise[0])
    2.0
    """

    H: Array
    b: Array
    total: Array
    fourth: float
    matrix_noise: Array
    vector_noise: Array

    @classmethod
    def of(cls, sums: Array, blocks: int, d: int, c: float, std: float | Array, a: float = MATRIX) -> Released:
        """From one vector, that of K blocks and then the total, with noise of ``std`` (of each block) in every entry.

        The total was released itself, and follows from the sum of the blocks, with √K times their noise: both are
        weighted by their precision.
        """
        D = d * (d + 1) // 2
        parts = sums[: blocks * (D + d)].reshape(blocks, D + d)
        H = parts[:, :D] / a
        weight = TOTAL**2 / (TOTAL**2 + a**2 / blocks)
        total = weight * sums[-D - 1 : -1] / TOTAL + (1.0 - weight) * H.sum(axis=0)
        ones = np.ones(blocks)
        return cls(H, parts[:, D:] / c, total, float(sums[-1]) / FOURTH, std / a * ones, std / c * ones)

    @classmethod
    def joined(cls, parts: list[Released]) -> Released:
        """Those of several streams, one after the other."""
        total, fourth = sum(part.total for part in parts), sum(part.fourth for part in parts)
        names = ("H", "b", "matrix_noise", "vector_noise")
        H, b, matrix_noise, vector_noise = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
        return cls(H, b, np.asarray(total), fourth, matrix_noise, vector_noise)


class BlockSums:
    """Running sums of records over batches, in blocks, with Gaussian noise, at the cost of ``budget`` in all.

    Privacy. Adjacency: the budget's, "replace" or "zero_out". Unit: a record, or a person with one. Sensitivity:
    :func:`record_sensitivity`, proved there. Cost: ``cost``, one Gaussian, charged once for all releases.

    Blocks that came between two releases (:meth:`grow`) get one stream of their own, which starts with the second: a
    continual sum with a factor of its own, for the releases that are left, with the same noise multiplier z and the
    same sensitivity. All streams together are one Gaussian mechanism with a block-diagonal factor whose columns have
    norm at most 1, and a record enters one column of one stream. So the whole costs one Gaussian(z), however many
    blocks there are and whenever they come; that is charged at the start. (When they come is public.)

    Two neighbouring runs may differ in two streams, whose integer encoders (``dpkit.continual.sums``) round each
    by itself. With η ≤ 2⁻¹⁰ what rounding adds to a sensitivity s in one stream, and distances v and v′ in the two,
    v² + v′² ≤ Δ², the distance in units of the noise is at most ((v/s + η)² + (v′/s + η)²)/(1 + η)² ≤
    (t² + 2√2·ηt + 2η²)/(1 + η)², t = Δ/s; with s = 1.001·Δ it is below 1.

    Records are rounded to multiples of 2^−digits before they are summed; see :class:`PairSums`.

    Parameters
    ----------
    dim : int
        m, of a context.
    blocks : int
        K at the start.
    c : float
        1/(2B).
    budget : Budget
        With δ > 0.
    releases : int
        How many there are at most.
    horizon : int
        The number of records at most.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with ``cost`` here, before any noise is drawn.
    discount : float, optional
        All sums lose this factor with every batch, by ``dpkit.continual.Discounted``, whose factor has columns of norm
        at most 1, too: the argument above is the same.

    Attributes
    ----------
    decay : float
        ``discount``, or 1.
    released : int
        How many releases there were.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range. Nothing is charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.moments import BlockSums
    >>> sums = BlockSums(2, 3, 0.5, budget=Budget(1.0, 1e-6), releases=5, horizon=1000)
    >>> for _ in range(100):
    ...     sums.add(1, np.array([0.6, 0.0]), g=0.3)
    >>> found = sums.release()
    >>> found.H.shape, found.b.shape, found.total.shape
    ((3, 6), (3, 3), (6,))
    """

    def __init__(
        self,
        dim: int,
        blocks: int,
        c: float,
        *,
        budget: Budget,
        releases: int,
        horizon: int,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        discount: float | None = None,
    ) -> None:
        dim, blocks = integer("dim", dim, at_least=1), integer("blocks", blocks, at_least=1)
        c, releases = positive("c", c), integer("releases", releases, at_least=0)
        horizon, rng = integer("horizon", horizon, at_least=1), randomness.resolve(rng)
        if discount is not None:
            fraction("discount", discount)
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget, got budget={budget!r}")
        self.decay = 1.0 if discount is None else discount
        self.d = dim + 1
        self._D = self.d * (self.d + 1) // 2
        self._c, self._rng, self._adjacency = c, rng, budget.adjacency
        # of a record: its block, in each world, and the total
        digits, slack = whole_digits(horizon, 3 * self._D + 2 * self.d + 1)
        self._unit = 2.0**digits
        self.sensitivity = (record_sensitivity(budget.adjacency) + slack) * _STREAMS
        self.noise_multiplier = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget)
        self._most = releases
        self.released = 0
        self._streams: list[tuple[int, int, ContinualSum]] = []  # blocks, the first release, sums
        charge(ledger, self.cost, type(self).__name__, rng)
        # of the open batch, in units of 2^−digits: what each block's records add to it, and to the total
        self.open = np.zeros((blocks, 2 * self._D + self.d + 1))
        self._start_stream(blocks)

    @property
    def cost(self) -> Release:
        """What all releases together cost a unit."""
        return Gaussian(self.noise_multiplier, adjacency=self._adjacency)

    @property
    def streams(self) -> list[ContinualSum]:
        """The continual sums."""
        return [sums for _, _, sums in self._streams]

    def _start_stream(self, blocks: int) -> None:
        kind: type[ContinualSum] = BufferedToeplitz if self.decay == 1.0 else Discounted
        more: dict[str, Any] = {"horizon": max(1, self._most - self.released)}
        if self.decay < 1.0:
            more["discount"] = self.decay
        sums = kind(
            **more,
            shape=blocks * (self._D + self.d) + self._D + 1,
            sensitivity=self.sensitivity,
            noise_multiplier=self.noise_multiplier,
            adjacency=self._adjacency,
            rng=self._rng,
        )
        self._streams.append((blocks, self.released, sums))

    def grow(self) -> None:
        """One more block; its stream starts at the next release."""
        self.open = np.concatenate([self.open, np.zeros((1, self.open.shape[1]))])

    def noise(self, k: int) -> float:
        """The standard deviation of an entry of b in the k-th release, of the blocks there were from the start."""
        return self._streams[0][2].noise_std(k) / self._c

    def add(self, block: int, z: Array, g: float) -> None:
        """Take in one record, of shape (m,) and a number.

        Raises
        ------
        ValueError
            If z is longer than 1, or g than B. Nothing changes.
        """
        if not (z.dot(z) <= _ROUNDED and abs(g) * self._c <= 0.5 * _ROUNDED):
            raise ValueError(
                f"‖z‖ must be at most 1 and |g| at most {0.5 / self._c:g}, got {math.sqrt(z.dot(z)):g} and g={g!r}"
            )
        self.open[block] += np.rint(self._unit * block_record(z[None], np.array([g]), self._c)[0])

    def release(self) -> Released:
        """Close the batch: noisy sums of all batches so far.

        Raises
        ------
        ValueError
            After the last release.
        RunStopped
            If an earlier call was interrupted, or this is a fork of the process that made it.
        """
        if (waiting := len(self.open) - sum(blocks for blocks, _, _ in self._streams)) > 0:
            self._start_stream(waiting)
        own, first, found = self._D + self.d, 0, []
        for blocks, start, sums in self._streams:
            batch = self.open[first : first + blocks]
            noisy = sums.add(np.concatenate([batch[:, :own].ravel(), batch[:, own:].sum(axis=0)]) / self._unit)
            std = sums.noise_std(self.released - start + 1)
            found.append(Released.of(noisy, blocks, self.d, self._c, std))
            first += blocks
        self.open[...] = 0.0
        self.released += 1
        return found[0] if len(found) == 1 else Released.joined(found)

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        streams = [{"blocks": blocks, "start": start, "sums": sums.kept()} for blocks, start, sums in self._streams]
        units = np.array([self._c, MATRIX, TOTAL, FOURTH])
        return {"open": self.open.copy(), "released": self.released, "streams": streams, "units": units}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked; there are as many blocks as in the state already."""
        saved = in_units(saved, (self._c, MATRIX, TOTAL, FOURTH))
        if not isinstance(saved, Mapping) or set(saved) != {"open", "released", "streams"}:
            raise ValueError(f"sums must hold the entries ['open', 'released', 'streams'], got {short(saved)}")
        opened, released = conform("open", saved["open"], self.open), conform("released", saved["released"], 0)
        streams, left = saved["streams"], len(self.open)
        if released > self._most or not isinstance(streams, list) or not streams:
            raise ValueError(f"streams must be some, and released at most {self._most}, got released={released}")
        there, before = self._streams, 0
        self._streams = []
        for n, stream in enumerate(streams):
            if not isinstance(stream, Mapping) or set(stream) != {"blocks", "start", "sums"}:
                raise ValueError(f"a stream must hold the entries ['blocks', 'start', 'sums'], got {short(stream)}")
            blocks, start = conform("blocks", stream["blocks"], 0), conform("start", stream["start"], 0)
            left -= blocks
            if not (blocks > 0 and left >= 0 and before <= start <= released and isinstance(stream["sums"], Mapping)):
                raise ValueError(f"streams must start one after another and hold the arms' blocks, got {short(stream)}")
            if n < len(there) and there[n][:2] == (blocks, start):
                self._streams.append(there[n])
            else:
                self.released = start
                self._start_stream(blocks)
            sums = self._streams[-1][2]
            sums.resume(stream["sums"])
            if sums.steps != released - start:
                raise ValueError(f"steps must be those since the stream's start, got steps={sums.steps}")
            before = start
        self.open, self.released = opened, released

"""Sums of pairs (w·x xᵀ, g·x) over batches of users: for linear models of people who trust a shuffler, but no server.

Each batch is summed once, by :class:`~dpkit.moments.ShuffledBatches`; whoever adds batches up weighs their noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting import Budget, Release
from accounting.arrays import Array
from accounting.checks import fraction, integer
from dpkit.geometry import pair_sensitivity, smat, svec
from dpkit.mechanisms._checked import charge
from dpkit.moments.pairs import PairBounds, pair_scales
from dpkit.moments.shuffled import ShuffledBatches
from dpkit.states.entries import in_units

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["NoisyBatch", "PairBatches"]


@dataclass(frozen=True)
class NoisyBatch:
    """The sums of one batch as the shuffler let them out, and the noise in them, which is public.

    Attributes
    ----------
    H : (d, d) ndarray
    b : (d,) ndarray
    std : float
        The standard deviation of the noise in each coordinate of the sum of scaled records.
    scales : (float, float)
        a and c: the noise of H is std/a, that of b std/c.
    users : int
        How many the batch has.
    level : (float, float)
        The sum of the numbers that came with records, where there are any, and the noise in it.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.moments import NoisyBatch
    >>> batch = NoisyBatch(H=np.eye(2), b=np.zeros(2), std=3.0, scales=(2.0, 1.0), users=50)
    >>> batch.std / batch.scales[0]  # the noise of H
    1.5
    """

    H: Array
    b: Array
    std: float
    scales: tuple[float, float]
    users: int
    level: tuple[float, float] = (0.0, math.inf)

    def __iter__(self) -> Iterator[Array]:
        """H and b."""
        return iter((self.H, self.b))


class PairBatches:
    """The sums H of w·x xᵀ and b of g·x over batches of users, each with noise.

    Users tell x, w and g, with 0 ≤ w‖x‖² ≤ W and |g|·‖x‖ ≤ B; :meth:`add` refuses others. Records are scaled
    to (a·svec(w·x xᵀ), c·g·x), of which ``share`` of the squared sensitivity goes to the second part, were the two
    replaced independently; two records of one user differ by at most ``dpkit.geometry.pair_sensitivity(a, W, c, B,
    least=m)``, m as there.

    Parameters
    ----------
    ends, budget, rng, ledger, records
        As for :class:`ShuffledBatches`.
    dim : int
        d.
    W, B, share, least : float
        As for :class:`PairSums`.
    level : float
        λ in [0, 1): where it is positive, a record may come with a number from −½ to ½, whose sum is released, too, at
        the price that :class:`PairSums` proves; the null record has the number 0.

    Attributes
    ----------
    batches : ShuffledBatches
        The sums of the scaled records.
    scales : (float, float)
        a and c.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.moments import PairBatches
    >>> batches = PairBatches([500], 2, 1.0, 1.0, 0.5, budget=Budget(2.0, 1e-6))
    >>> for _ in range(500):
    ...     batches.add(np.array([0.6, 0.8]), w=1.0, g=0.5, batch=0)
    >>> H, b = batches.release()
    >>> H.shape, b.shape
    ((2, 2), (2,))
    """

    def __init__(
        self,
        ends: Sequence[int],
        dim: int,
        W: float,
        B: float,
        share: float,
        *,
        budget: Budget,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        records: int | None = None,
        least: float = 0.0,
        level: float = 0.0,
    ) -> None:
        dim = integer("dim", dim, at_least=1)
        self.scales = a, c = pair_scales(W, B, share)
        self._bounds = PairBounds.of(W, B, least)
        self._half, self._dim = dim * (dim + 1) // 2, dim
        level = fraction("level", level, include_zero=True)
        apart, longest = pair_sensitivity(a, W, c, B, budget.adjacency, least=least), math.hypot(a * W, c * B)
        # of a number beside a record, and what it leaves of that; see ``PairSums``
        self._level, self._less = apart * math.sqrt(level), math.sqrt(1.0 - 0.75 * level)
        self.batches = ShuffledBatches(
            ends,
            self._half + dim + int(level > 0.0),
            self.records,
            bound=max(longest, math.hypot(self._less * longest, 0.5 * self._level)),
            distance=apart * math.sqrt(1.0 + 0.25 * level),
            budget=budget,
            rng=rng,
            records=records,
        )
        charge(ledger, self.cost, type(self).__name__, self.batches.rng)

    def records(self, rows: Array) -> Array:
        """(a·svec(w·x xᵀ), c·g·x) of every row (x, w, g), and the scaled f of (x, w, g, f)."""
        (a, c), d = self.scales, self._dim
        X, w, g, beside = rows[:, :d], rows[:, d, None], rows[:, d + 1, None], self._level * rows[:, d + 2 :]
        return np.concatenate([svec((a * w * X)[:, :, None] * X[:, None, :]), c * g * X, beside], axis=1)

    @property
    def cost(self) -> Release:
        """What all batches together cost one user, or one person."""
        return self.batches.cost

    @property
    def absent(self) -> float:
        """The share of the last released batch's users that had sent nothing."""
        return self.batches.absent

    @property
    def noise(self) -> tuple[float, float]:
        """The standard deviations of the noise in the sum of all batches: in H, and in b."""
        std = math.sqrt(sum(self.batches.noise_std(k) ** 2 for k in range(len(self.batches.protocols))))
        return std / self.scales[0], std / self.scales[1]

    def add(self, x: Array, w: float, g: float, batch: int, deviation: float | None = None) -> None:
        """What one user of a batch tells; two zeros are the null record, also where x is no vector of finite numbers.

        Parameters
        ----------
        x : ndarray of shape (d,)
        w, g : float
        batch : int
        deviation : float, optional
            The number beside it, from −½ to ½, where ``level`` is positive.

        Raises
        ------
        ValueError
            If it passes W or B, has a long g·x with a small w·x xᵀ (``least``), or holds NaN. Nothing changes.
        """
        if deviation is not None:
            if not abs(deviation) <= 0.5 or not self._level:  # also true for NaN
                raise ValueError(f"deviation must be from -0.5 to 0.5, and level positive, got deviation={deviation!r}")
            w, g = self._less * w, self._less * g
        if w != 0.0 or g != 0.0:
            self._bounds.check(x, w, g)
        else:  # 0·∞ is no number
            x = np.zeros(self._dim)
        beside = (0.0 if deviation is None else deviation,) if self._level else ()
        self.batches.add(np.concatenate([x, (w, g), beside]), batch)

    def release(self) -> NoisyBatch:
        """Close the batch: H and b with noise.

        Raises
        ------
        ValueError
            After the last batch.
        """
        k, (a, c), scaled = self.batches.released, self.scales, self.batches.release()
        H, b = smat(scaled[: self._half] / a), scaled[self._half : self._half + self._dim] / c
        std, users = self.batches.noise_std(k), self.batches.protocols[k].users
        if not self._level:
            return NoisyBatch(H, b, std, self.scales, users)
        return NoisyBatch(H, b, std, self.scales, users, (float(scaled[-1]) / self._level, std / self._level))

    def kept(self) -> dict[str, Any]:
        """As of other sums, with their units."""
        return self.batches.kept() | {"units": self._units()}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        self.batches.resume(in_units(saved, self._units()))

    def _units(self) -> Array:
        return np.array([*self.scales, self._level] if self._level else self.scales)

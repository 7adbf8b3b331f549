"""Private running sums of pairs (w·x xᵀ, g·x): what a linear or generalized linear model asks of a stream of rows.

Records come one by one, in batches of any public lengths; at the end of a batch H = Σ w·x xᵀ and b = Σ g·x over all
records so far are released with Gaussian noise. With w = 1 and g = y these are the normal equations of least squares
(for the method see Vu & Slavković 2009; Sheffet 2017, arXiv:1507.00056), with weights and residuals at a released θ
those of a generalized linear model.

Cost per record: O(d²), and no random numbers; per release one step of a continual sum of d(d + 3)/2 entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from accounting import Budget, Gaussian, Release, calibrate
from accounting.arrays import Array
from accounting.checks import choice, fraction, integer, nonnegative, positive
from dpkit.continual import BinaryTree, BufferedToeplitz, ContinualSum, Discounted, Weighted
from dpkit.geometry import pair_sensitivity, several_pairs_sensitivity, smat, svec
from dpkit.moments.summed import SumBounds
from dpkit.states import entries

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["MOST_WEIGHTED", "NoisyPair", "PairBounds", "PairSums", "pair_scales", "whole_digits"]

# of more releases, the best factor takes longer to find than a stream should take to open
MOST_WEIGHTED = 64
# numbers that are worked on at once
_NEAR = 2**14
# by which computed lengths of records may pass their bounds
_ROUNDED = 1.0 + 1e-12


def pair_scales(W: float, B: float, gradient_share: float) -> tuple[float, float]:
    """a and c, for which records (a·svec(w·x xᵀ), c·g·x) have squared sensitivity 1 if their parts changed separately.

    Parameters
    ----------
    W, B : float
        0 ≤ w‖x‖² ≤ W and |g|·‖x‖ ≤ B; positive.
    gradient_share : float
        In (0, 1): how much of the squared sensitivity goes to g·x.

    Raises
    ------
    ValueError
        For a parameter out of range.

    Examples
    --------
    >>> from dpkit.moments import pair_scales
    >>> a, c = pair_scales(1.0, 1.0, 0.5)
    >>> round(a, 4), round(c, 4)
    (0.5, 0.3536)
    """
    W, B, gradient_share = positive("W", W), positive("B", B), fraction("gradient_share", gradient_share)
    return math.sqrt(1 - gradient_share) / (math.sqrt(2) * W), math.sqrt(gradient_share) / (2 * B)


def whole_digits(records: int, size: int) -> tuple[int, float]:
    """How many binary digits of scaled records are kept, at most 30, and what that adds to a sensitivity.

    For sums of at most so many ``records`` of ``size`` entries of at most 1; see :class:`PairSums`.

    Examples
    --------
    >>> from dpkit.moments import whole_digits
    >>> digits, slack = whole_digits(10**6, 9)
    >>> digits, slack < 2e-8
    (30, True)
    """
    digits = min(30, 52 - records.bit_length())
    return digits, 4.0 * math.sqrt(size) * 2.0**-digits


class PairBounds(NamedTuple):
    """What a pair may be, up to rounding: 0 ≤ w‖x‖² ≤ W, |g|·‖x‖ ≤ B, and w ≥ (m/B²)·g²."""

    W: float
    B: float
    slope: float

    @classmethod
    def of(cls, W: float, B: float, least: float) -> PairBounds:
        """``least`` is m: ‖g·x‖ ≤ qB and ‖w·x xᵀ‖ ≥ mq² for some q, so for q = |g|·‖x‖/B."""
        return cls(W * _ROUNDED, B * _ROUNDED, least / (B * _ROUNDED) ** 2)

    def check(self, x: Array, w: float, g: float) -> None:
        """Refuse a pair that is farther from others than its sensitivity says, or holds NaN."""
        square = float(x.dot(x))
        W, B, slope = self
        if not (0.0 <= w * square <= W and abs(g) * math.sqrt(square) <= B and slope * g * g <= w):
            raise ValueError(
                f"w·‖x‖² must be from 0 to {W:g}, |g|·‖x‖ at most {B:g} and w at least {slope:g}·g², "
                f"got w={w!r}, g={g!r} and ‖x‖={math.sqrt(square):g}"
            )

    def check_many(self, X: Array, w: Array, g: Array) -> None:
        """The same for the rows of X."""
        squares = np.einsum("nd,nd->n", X, X)
        W, B, slope = self
        weights = w * squares
        good = (weights >= 0.0) & (weights <= W) & (np.abs(g) * np.sqrt(squares) <= B) & (slope * g * g <= w)
        for i in np.flatnonzero(~good)[:1]:
            self.check(X[i], float(w[i]), float(g[i]))
            raise ValueError(f"a pair must be within its bounds, got w={w[i]!r} and g={g[i]!r}")


@dataclass(frozen=True)
class NoisyPair:
    """Running sums as they were released, and the noise in them, which is public.

    Attributes
    ----------
    H : (d, d) ndarray
    b : (d,) ndarray
    noise, batch_noise : (float, float)
        σ_H and σ_b of this release, and of its difference to the one before; see :class:`PairSums`.
    decay : float
        What is left in the running sums of those before.
    level : (float, float)
        The sum of the numbers that came with records, where there are any, and the noise in it.
    numbers : int, optional
        How many these are, where they came in place of records and that is public.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.moments import NoisyPair
    >>> pair = NoisyPair(H=np.eye(2), b=np.ones(2), noise=(2.0, 1.0), batch_noise=(2.0, 1.0), decay=1.0)
    >>> pair.b / pair.noise[1]  # the signal, in standard deviations
    array([1., 1.])
    """

    H: Array
    b: Array
    noise: tuple[float, float]
    batch_noise: tuple[float, float]
    decay: float
    level: tuple[float, float] = (0.0, math.inf)
    numbers: int | None = None

    def __iter__(self) -> Iterator[Array]:
        """H and b."""
        return iter((self.H, self.b))


class PairSums:
    """Running sums H of w·x xᵀ and b of g·x over batches, each with Gaussian noise, at the cost of ``budget`` in all.

    Privacy. Adjacency: the budget's, "replace" or "zero_out" (a record that comes on one side only). Unit: one record,
    whenever it comes, or a person with up to ``records`` of them. Cost: ``cost``, that of the continual sum, charged
    once; it covers all releases, and records that depend on earlier ones. Which records there are in a batch is
    secret; when batches end is public.

    Sensitivity. Records are scaled to (a·svec(w·x xᵀ), c·g·x), of which ``share`` of the squared sensitivity goes to
    the second part, were the two replaced independently. A record enters one batch, so that a change of it moves the
    stream by at most ``dpkit.geometry.pair_sensitivity(a, W, c, B, least=m)``, also where it comes into another batch
    (proof there). The same holds for a person with one record in all. A person with up to n records, one at most in
    each of n batches, which may be other ones in the neighbouring run, moves it by ``several_pairs_sensitivity(a, W, c,
    B)`` times what any n columns of the mechanism's factor add up to (``participations=n``); for that it must be
    nonnegative, and it is.

    Several pairs at once. With ``together`` a record is a sum (Σw·x xᵀ, Σg·x) of any number of pairs that whoever adds
    it has clipped as one vector (:class:`~dpkit.moments.SumBounds`). All above holds with ``summed_pairs_sensitivity(a,
    W, c, B)``, also for a person with n of them.

    A number beside a record. With s that sensitivity, a record that comes with a number f ∈ [−½, ½] is scaled by
    κ = √(1 − ¾λ), and √λ·s·f is one more coordinate; whether records have one is public at any time. The squared
    sensitivity is (1 + λ/4)s²: a scaled record is a record, as κω ≥ m(κq)², so that what has a number on one side only
    moves the pairs by at most s, and the coordinate by at most ½√λ·s; two records with numbers are at most κs and √λ·s
    apart, and (1 − ¾λ) + λ is the same. Two places in the stream multiply f·f′ by ϱ ∈ [0, 1], too, and f² + f′² ≤ 1.

    Records are rounded to multiples of 2^−digits before they are summed, entry by entry, so that the sum of a batch has
    no rounding error that could tell more about a unit than its records do: entries of scaled records are at most 1,
    and those of a sum are whole numbers below 2⁵² in units of 2^−digits. An entry of a record is rounded by half a unit
    and computed within far less, and the half-vector of a sum is rounded by at most a unit in each world; √(number of
    entries) times four units are added to the sensitivity, some 10⁻⁷ of it for up to 2²² records. (That covers what
    :meth:`add` lets pass W and B by rounding, 10⁻¹² of them.)

    Parameters
    ----------
    dim : int
        d.
    W, B : float
        0 ≤ w‖x‖² ≤ W and |g|·‖x‖ ≤ B for every record; :meth:`add` refuses others.
    share : float
        In (0, 1): the larger, the less noise is in b, and the more in H.
    budget : Budget
        With δ > 0.
    releases : int
        How many there are at most.
    horizon : int
        The number of records at most; as they may be late, a batch may have as many.
    mechanism : {"buffered", "tree"}
        ``dpkit.continual.BufferedToeplitz`` or ``BinaryTree``.
    records : int, optional
        n, where the unit is a person; see above.
    discount : float, optional
        The sums lose this factor with every batch, by ``dpkit.continual.Discounted``; the sensitivity is as before.
    least : float
        m: every record has a q ∈ [0, 1] for which ‖g·x‖ ≤ qB and ‖w·x xᵀ‖ ≥ mq²; as for ``pair_sensitivity``.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with ``cost`` here, before any noise is drawn.
    weigh : callable, optional
        From σ_b and σ_H, the noise of a single release, to the weights of all of them: then the mechanism is
        ``dpkit.continual.Weighted``, unless sums are discounted, a person has several records or there are too many.
    level : float
        λ in [0, 1): where it is positive, records may come with a number from −½ to ½, whose sum is released, too.
    together : bool
        Whether records are sums of pairs, which come by :meth:`add_sum`; then ``least`` says nothing.

    Attributes
    ----------
    decay : float
        ``discount``, or 1: H and b of the newest batch are those now less ``decay`` times those before it.
    sums : ContinualSum
        The mechanism.
    bounds : SumBounds
        What a sum of pairs may be.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range. Nothing is charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.moments import PairSums
    >>> sums = PairSums(2, 1.0, 1.0, 0.5, budget=Budget(1.0, 1e-6), releases=10, horizon=1000)
    >>> for x in np.tile([[0.6, 0.8], [1.0, 0.0]], (50, 1)):
    ...     sums.add(x, 1.0, 0.5)
    >>> found = sums.release()
    >>> found.H.shape, found.b.shape, [round(float(std), 1) for std in found.noise]
    ((2, 2), (2,), [10.0, 14.1])
    """

    _KEPT = ("sums", "batch")

    def __init__(
        self,
        dim: int,
        W: float,
        B: float,
        share: float,
        *,
        budget: Budget,
        releases: int,
        horizon: int,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        mechanism: str = "buffered",
        records: int | None = None,
        discount: float | None = None,
        least: float = 0.0,
        weigh: Callable[[float, float], Array] | None = None,
        level: float = 0.0,
        together: bool = False,
    ) -> None:
        dim = self.dim = integer("dim", dim, at_least=1)
        releases, horizon = integer("releases", releases, at_least=0), integer("horizon", horizon, at_least=1)
        mechanism = choice("mechanism", mechanism, "buffered", "tree")
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget, got budget={budget!r}")
        self._a, self._c = pair_scales(W, B, share)
        self._bounds = PairBounds.of(W, B, least)
        entries_of_all = dim * (dim + 1) // 2 + dim + int(level > 0.0)
        digits, slack = whole_digits(horizon, entries_of_all)
        self._unit = 2.0**digits
        # a record as a column times x: what is multiplied with is kept, since making arrays is half the cost of a round
        self._column, self._record = np.zeros((dim + 1, 1)), np.zeros((dim + 1, dim))
        self._weighted = self._column[:dim, 0]
        records = 1 if records is None else integer("records", records, at_least=1)
        scales = self._a, W, self._c, B, budget.adjacency
        self.bounds = SumBounds.of(*scales)
        apart = pair_sensitivity(*scales, least=least) if records == 1 else several_pairs_sensitivity(*scales)
        if together:
            apart = self.bounds.sensitivity
        level = nonnegative("level", level)
        if level >= 1.0 or (level and records > 1):
            raise ValueError(f"level must be below 1, and 0 where a unit has several records, got level={level!r}")
        self._level = apart * math.sqrt(level)
        self._less = math.sqrt(1.0 - 0.75 * level)
        apart *= math.sqrt(1.0 + 0.25 * level)
        self.decay = 1.0 if discount is None else discount
        kind: type[ContinualSum] = BufferedToeplitz if mechanism == "buffered" else BinaryTree
        more: dict[str, Any] = {"participations": records, "horizon": max(1, releases)}
        if discount is not None:
            kind = Discounted
            more["discount"] = discount
        elif weigh is not None and records == 1 and 0 < releases <= MOST_WEIGHTED:
            kind = Weighted
            one = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget) * (apart + slack)
            more = {"weights": weigh(one / self._c, one / self._a)}
        self.sums = kind.calibrated(
            **more,
            budget=budget,
            shape=entries_of_all,
            sensitivity=apart + slack,
            rng=rng,
            ledger=ledger,
        )
        self._empty()

    def _empty(self) -> None:
        # of the open batch, H and below it b: whole numbers, in units of 2^−digits
        self.batch = np.zeros((self.dim + 1, self.dim))
        self.beside = 0.0

    @property
    def cost(self) -> Release:
        """What all releases together cost a unit."""
        return self.sums.cost

    def add(self, x: Array, w: float, g: float, deviation: float | None = None) -> None:
        """Take in one record; one of two zeros adds nothing, also where x is no vector of finite numbers.

        Parameters
        ----------
        x : ndarray of shape (d,)
        w, g : float
        deviation : float, optional
            The number beside it, from −½ to ½, where ``level`` is positive.

        Raises
        ------
        ValueError
            If it passes W or B, has a long g·x with a small w·x xᵀ (``least``), or holds NaN. Nothing changes.
        """
        if deviation is not None:
            self._check(deviation)
            w, g = self._less * w, self._less * g
        if w != 0.0 or g != 0.0:
            self._bounds.check(x, w, g)
        if deviation is not None:
            self.beside += float(np.rint(self._unit * self._level * deviation))
        if w == 0.0 and g == 0.0:
            return
        np.multiply(x, self._unit * self._a * w, self._weighted)
        self._column[-1, 0] = self._unit * self._c * g
        record = self._record
        np.dot(self._column, x[None], record)
        np.rint(record, record)
        self.batch += record

    def add_many(self, X: Array, w: Array, g: Array, deviations: Array | None = None) -> None:
        """Take in the records of the rows of X, shape (n, d), as :meth:`add` takes in each; all, or none."""
        if deviations is not None:
            if not (np.abs(deviations) <= 0.5).all() or not self._level:
                raise ValueError("deviation must be from -0.5 to 0.5, and level positive, got others")
            w, g = self._less * w, self._less * g
        some = (w != 0.0) | (g != 0.0)
        X, w, g = X[some], w[some], g[some]
        self._bounds.check_many(X, w, g)
        if deviations is not None:
            self.beside += float(np.rint(self._unit * self._level * deviations).sum())
        columns = np.concatenate([X * (self._unit * self._a * w)[:, None], (self._unit * self._c * g)[:, None]], axis=1)
        step = max(1, _NEAR // (self.dim * (self.dim + 1)))
        for start in range(0, len(X), step):
            records = columns[start : start + step, :, None] * X[start : start + step, None, :]
            self.batch += np.rint(records, records).sum(axis=0)

    def add_sum(self, X: Array, w: Array, g: Array, deviation: float | None = None) -> None:
        """Take in one record that is a sum of pairs, where records are (``together``).

        Parameters
        ----------
        X : ndarray of shape (n, d)
        w, g : ndarray of shape (n,)
        deviation : float, optional
            As for :meth:`add`.

        Raises
        ------
        ValueError
            If it passes ``bounds``, or holds NaN. Nothing changes.
        """
        M, b = self.bounds.summed(X, w, g)
        less = 1.0
        if deviation is not None:
            self._check(deviation)
            less = self._less
            self.beside += float(np.rint(self._unit * self._level * deviation))
        record = self._record
        np.multiply(M, self._unit * self._a * less, record[:-1])
        np.multiply(b, self._unit * self._c * less, record[-1])
        np.rint(record, record)
        self.batch += record

    def _check(self, deviation: float) -> None:
        if not abs(deviation) <= 0.5 or not self._level:  # also true for NaN
            raise ValueError(f"deviation must be from -0.5 to 0.5, and level positive, got deviation={deviation!r}")

    def release(self) -> NoisyPair:
        """Close the batch: noisy H, symmetric, and b of all batches so far.

        Raises
        ------
        ValueError
            After the last release.
        RunStopped
            If an earlier call was interrupted, or this is a fork of the process that made it.
        """
        beside = [self.beside] if self._level else []
        batch = np.concatenate([svec(self.batch[:-1]), self.batch[-1], beside]) / self._unit
        self._empty()
        k, d = self.sums.steps + 1, self.dim
        noisy = self.sums.add(batch)
        D = d * (d + 1) // 2
        H, b = smat(noisy[:D] / self._a), noisy[D : D + d] / self._c
        found = H, b, self.noise(k), self.batch_noise(k), self.decay
        if not self._level:
            return NoisyPair(*found)
        return NoisyPair(*found, (float(noisy[-1]) / self._level, self.sums.noise_std(k) / self._level))

    def noise(self, k: int) -> tuple[float, float]:
        """σ_H and σ_b of the k-th release: of each off-diagonal pair of H over √2, and of each entry of b."""
        std = self.sums.noise_std(k)
        return std / self._a, std / self._c

    def batch_noise(self, k: int) -> tuple[float, float]:
        """The same of the k-th batch alone: of a release less ``decay`` times the one before it.

        That is row k of C⁻¹; of a Toeplitz factor it has about the entries of √(1 − z), whose squares sum to 4/π.
        """
        if isinstance(self.sums, Weighted):
            std = self.sums.difference_std(k)
        else:
            std = self.sums.noise_std(1) * math.sqrt(4 / math.pi)
        return std / self._a, std / self._c

    def _kept(self) -> tuple[tuple[str, ...], Array]:
        """What is kept, and in which units."""
        if not self._level:
            return self._KEPT, np.array([self._a, self._c])
        return (*self._KEPT, "beside"), np.array([self._a, self._c, self._level])

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        names, units = self._kept()
        return entries.kept(self, names) | {"units": units}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        names, units = self._kept()
        entries.resume(self, names, entries.in_units(saved, units))

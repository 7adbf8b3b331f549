"""Private sums over persons who come back any number of times: each pays for every release out of a total.

For a stream in which the same people have many rounds, and a budget that protects all that a person ever tells. A
person's contribution to a release is a function of all that person's rounds so far, formed again at every release. How
far it can move the release, α², is taken from what the person has left, 1 at first (a filter, one for each person: the
individual accounting of Feldman & Zrnic 2021, arXiv:2008.11193, with public prices). Who has how many rounds is public.

With a trusted server (:class:`PersonSums`) it adds the noise; with a shuffler every person's device does
(:class:`~dpkit.moments.shuffled_people.ShuffledPersonSums`).

A person moves a sum by its own contribution and nothing else, because all the rest is equal bit for bit in the two
worlds: rounds keep their place whether or not their reward comes, places depend on public numbers only, every
contribution is rounded to whole numbers before anything of another person is added, and sums of whole numbers are
exact.

Cost per record: O(1); per release O(d²) for every round so far, and noise for d(d + 3)/2 entries.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, Gaussian, Release, calibrate
from accounting.arrays import Array
from accounting.checks import fraction, integer
from dpkit import randomness
from dpkit.geometry import pair_sensitivity, smat
from dpkit.mechanisms._checked import charge
from dpkit.moments.pairs import whole_digits
from dpkit.samplers import rounded_gaussian
from dpkit.states.entries import array, short

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["People", "PersonSums", "PersonTotals", "Rounds", "Weigh"]

# rounds that are worked on at a time: what belongs to them should stay in the processor's cache
_BLOCK = 1024
# in units of the last digit; noise of a larger scale takes longer
_LARGEST_NOISE = 2.0**38

# rows (m, d) and responses (m,) of rounds to w ≥ 0 and g, both (m,) and finite
Weigh = Callable[[Array, Array], tuple[Array, Array]]
# responses (m,) to numbers (m,) from −½ to ½
Beside = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class People:
    """Who has been there, and when: public numbers. Persons stand in the order in which they first came.

    Attributes
    ----------
    visits : (persons,) ndarray of int
        How many rounds each has had, whether or not their rewards came.
    order : (rounds,) ndarray of int
        All rounds, sorted by person.
    start : (persons,) ndarray of int
        Where in ``order`` each person's begin.

    Examples
    --------
    >>> from dpkit.moments import Rounds
    >>> rounds = Rounds(2)
    >>> for t, person in enumerate([7, 3, 7]):
    ...     rounds.decided(t, person)
    >>> people = rounds.people(3)
    >>> people.visits.tolist(), people.order[people.start].tolist()
    ([2, 1], [0, 1])
    """

    visits: NDArray[np.intp]
    order: NDArray[np.intp]
    start: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.visits)

    def groups(self) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Persons with the same number n of rounds, some at a time: their places (k,), and their rounds (n, k)."""
        by_visits = np.argsort(self.visits, kind="stable")
        numbers, starts = np.unique(self.visits[by_visits], return_index=True)
        for n, who in zip(numbers.tolist(), np.split(by_visits, starts[1:]), strict=True):
            some = max(1, _BLOCK // n)
            for first in range(0, len(who), some):
                places = who[first : first + some]
                yield places, self.order[self.start[places] + np.arange(n)[:, None]]


class Rounds:
    """Everybody's rounds, in the order in which they came: whose, and if a record came of it, row and response.

    A round is opened by :meth:`decided` and may be told its record later by :meth:`rewarded`, or never. The columns
    grow by an eighth, in place as far as the system can.

    Parameters
    ----------
    dim : int
        d, of a row.

    Attributes
    ----------
    count : int
        How many there are.

    Examples
    --------
    >>> from dpkit.moments import Rounds
    >>> rounds = Rounds(2)
    >>> rounds.decided(0, person=12)
    >>> rounds.rewarded(0, np.array([0.6, 0.8]), 1.0)
    >>> rounds.count, [column.tolist() for column in rounds.of(np.array([0]))]
    (1, [[[0.6, 0.8]], [1.0], [True]])
    """

    # the last one to grow tells how much room there is, so that an interrupt among them does no harm
    _COLUMNS = ("arm", "reward", "came", "person")

    def __init__(self, dim: int) -> None:
        dim = integer("dim", dim, at_least=1)
        self.count = 0
        self._person = np.zeros(0, dtype=np.int64)
        self._arm = np.zeros((0, dim))
        self._reward = np.zeros(0)
        self._came = np.zeros(0, dtype=np.bool_)

    def decided(self, round: int, person: int) -> None:
        """A round of this person, from 0: the next one, or the last one once more; persons are numbers."""
        while round >= len(self._person):
            room = len(self._person) + max(64, len(self._person) // 8)
            for name in self._COLUMNS:
                column = getattr(self, f"_{name}")
                column.resize((room, *column.shape[1:]), refcheck=False)
        self._person[round] = person
        self.count = round + 1

    def rewarded(self, round: int, arm: Array, reward: float) -> None:
        """The record of a round came.

        Raises
        ------
        ValueError
            If there is no such round, or ``arm`` is longer than 1. Nothing changes.
        """
        if not 0 <= round < self.count:
            raise ValueError(f"round must be one of the {self.count} that were opened, got round={round!r}")
        if not (arm.dot(arm) <= 1.0 + 1e-12 and math.isfinite(reward)):
            raise ValueError(f"arm must be of norm at most 1 and reward finite, got {arm!r} and {reward!r}")
        self._arm[round], self._reward[round], self._came[round] = arm, reward, True

    def people(self, count: int) -> People:
        """Whose the first ``count`` rounds were."""
        order = np.argsort(self._person[:count], kind="stable")
        person = self._person[order]
        start = np.flatnonzero(np.append(True, person[1:] != person[:-1])[:count])
        visits = np.diff(start, append=count)
        came = np.argsort(order[start])
        return People(visits[came], order, start[came])

    def of(self, rounds: NDArray[np.intp]) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Arms (m, d), rewards, and whether they came; arm and reward are zero where they did not."""
        return self._arm[rounds], self._reward[rounds], self._came[rounds]

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        return {name: getattr(self, f"_{name}")[: self.count].copy() for name in self._COLUMNS}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        if not isinstance(saved, Mapping) or set(saved) != set(self._COLUMNS):
            raise ValueError(f"rounds must hold the entries {sorted(self._COLUMNS)}, got {short(saved)}")
        count = np.size(saved["reward"])
        for name in self._COLUMNS:
            column = getattr(self, f"_{name}")
            like = np.broadcast_to(column.dtype.type(), (count, *column.shape[1:]))  # takes no memory
            setattr(self, f"_{name}", array(saved, name, like))
        self.count = count
        silent = ~self._came
        if self._reward[silent].any() or self._arm[silent].any():
            raise ValueError("arm and reward must be zero where no reward came, got others")
        if (np.einsum("ij,ij->i", self._arm, self._arm) > 1.0 + 1e-15).any():
            raise ValueError("arm must have rows of norm at most 1, got others")


class PersonTotals(ABC):
    """Noisy sums over persons, where each person pays for every release out of a total of 1.

    A release costs a person α², and is a sum that the person shifts by at most α. As Σα² ≤ 1 for everybody, a run with
    Gaussian noise of standard deviation z in each entry costs ``Gaussian(z)`` (docs/privacy-proofs.md, F3).

    A release takes three steps. :meth:`pay` says what share of what is left everybody pays, and returns the α of each;
    with weights ω = α/Δ, Δ from :meth:`shifts`, :meth:`release` then adds up Σ ω_p·(a·M_p, b_p). Whoever releases with
    larger weights than were paid for has no guarantee.

    A number beside a contribution. With λ = ``level`` > 0, a release may ask for the mean f_p ∈ [−½, ½] of a number of
    each round, too (:meth:`release_beside`): then ω_p·(κ·(a·M_p, b_p), √λ·Δ_p·f_p) is summed, with κ² = 1 − λ. Its
    shift is α_p as well, as (1 − λ)Δ_p² + λΔ_p²·(f_p − f_p′)² ≤ Δ_p² under replace, and less under zero_out. So such a
    release has noise in H and G that is larger by 1/κ, and those without that number are as if λ were 0.

    Attributes
    ----------
    cost : Release
        Of the whole run.
    noise : float
        The standard deviation of the noise of a sum whose shift is α, at most.
    rounds : Rounds
        Where records are added.

    Examples
    --------
    >>> from dpkit.moments import PersonSums, PersonTotals
    >>> issubclass(PersonSums, PersonTotals)
    True
    """

    cost: Release
    noise: float

    def __init__(self, dim: int, budget: Budget, rng: np.random.Generator | None, level: float) -> None:
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget, got budget={budget!r}")
        self.dim, self.level = dim, fraction("level", level, include_zero=True)
        self._adjacency = budget.adjacency
        self._rng = randomness.resolve(rng)
        self._pair = dim * (dim + 3) // 2
        self._size = self._pair + int(self.level > 0.0)
        self.rounds = Rounds(dim)
        self._left = np.empty(0)  # of those who had come by the last release

    @property
    def persons(self) -> int:
        """How many had taken part at the last release."""
        return len(self._left)

    def pay(self, people: People, share: float) -> Array:
        """Take ``share`` of what each person has left, and return the α of each.

        Parameters
        ----------
        people : People
            Those of the rounds so far.
        share : float
            In [0, 1], and a function of public numbers.

        Raises
        ------
        ValueError
            If ``share`` is none. Nothing is paid.
        """
        fraction("share", share, include_zero=True, include_one=True)
        left = np.ones(len(people))
        left[: self.persons] = self._left
        paid = share * left
        self._left = left - paid
        return np.sqrt(paid)

    def shifts(self, people: People, scale: float, matrix_bound: float, vector_bounds: Array) -> Array:
        """Δ: how far each person can move (a·M, b), ‖M‖_F ≤ F and ‖b‖ ≤ B_p; shape (persons,).

        Proof. Where a person may be absent ("zero_out") it is the length √(a²F² + B²). For "replace" both M are
        positive semidefinite, so that they are at most √2·F apart, and both b at most 2B: √(2a²F² + 4B²). Of somebody
        with one round M has rank 1, and b is along its eigenvector: :func:`dpkit.geometry.pair_sensitivity`, which is
        less. How many rounds somebody has is public, and the same on both sides.
        """
        if self._adjacency == "zero_out":
            return np.asarray(np.sqrt((scale * matrix_bound) ** 2 + vector_bounds**2))
        found = np.sqrt(2 * (scale * matrix_bound) ** 2 + 4 * vector_bounds**2)
        once = people.visits == 1
        for bound in np.unique(vector_bounds[once]).tolist():
            found[once & (vector_bounds == bound)] = pair_sensitivity(scale, matrix_bound, 1.0, bound, "replace")
        return np.asarray(found)

    def release(
        self, people: People, weigh: Weigh, weights: Array, scale: float, matrix_bound: float, vector_bounds: Array
    ) -> tuple[Array, Array]:
        """Noisy Σ_p ω_p·M_p and Σ_p ω_p·b_p over persons p, the first with noise of standard deviation z/a.

        M_p is the mean of w·x xᵀ over those of the person's rounds of which a record came, scaled down to a Frobenius
        norm of at most F, and b_p is the mean of g·x, scaled down to a length of at most B_p.

        Parameters
        ----------
        people : People
        weigh : callable
            What forms w and g.
        weights : (persons,) ndarray
            ω, for which ω_p·(a·M_p, b_p) moves by at most the α_p that was paid.
        scale, matrix_bound : float
            a and F.
        vector_bounds : (persons,) ndarray
            B.

        Returns
        -------
        (d, d) ndarray, (d,) ndarray
        """
        return self._released(people, weigh, weights, scale, matrix_bound, vector_bounds, None)[:2]

    def release_beside(
        self,
        people: People,
        weigh: Weigh,
        weights: Array,
        scale: float,
        matrix_bound: float,
        vector_bounds: Array,
        beside: Beside,
    ) -> tuple[Array, Array, float]:
        """The same, and Σ_p ω_pΔ_p·f_p; see above for what that costs.

        The noise is κ⁻¹ times that of :meth:`release`, and λ^−½ times ``noise`` in the last sum.

        Parameters
        ----------
        people, weigh, weights, scale, matrix_bound, vector_bounds
            As for :meth:`release`.
        beside : callable
            What forms the number of each round; it is cut to [−½, ½].

        Raises
        ------
        ValueError
            If ``level`` is 0.
        """
        if not self.level:
            raise ValueError("level must be positive where numbers are to come beside records, got level=0")
        return self._released(people, weigh, weights, scale, matrix_bound, vector_bounds, beside)

    def _released(
        self,
        people: People,
        weigh: Weigh,
        weights: Array,
        scale: float,
        matrix_bound: float,
        vector_bounds: Array,
        beside: Beside | None,
    ) -> tuple[Array, Array, float]:
        less = 1.0 if beside is None else math.sqrt(1.0 - self.level)
        cuts = weights, scale, matrix_bound, vector_bounds
        contributions: Iterable[Array] = self._contributions(people, weigh, *cuts)
        if beside is not None:
            numbers = weights * math.sqrt(self.level) * self.shifts(people, scale, matrix_bound, vector_bounds)
            contributions = self._with_numbers(contributions, people, numbers, less, beside)
        # no longer with a number, whose square is at most λΔ²/4, as Δ is at most twice this
        longest = float((weights * np.hypot(scale * matrix_bound, vector_bounds)).max())
        released, d = self._summed(contributions, len(people), longest), self.dim
        H, G = released[: self._pair - d], released[self._pair - d : self._pair]
        if beside is None:
            return smat(H[_half_vector(d)] / scale), G, 0.0
        return smat(H[_half_vector(d)] / (less * scale)), G / less, float(released[-1]) / math.sqrt(self.level)

    def _with_numbers(
        self, contributions: Iterable[Array], people: People, scales: Array, less: float, beside: Beside
    ) -> Iterator[Array]:
        """The columns of the same persons, scaled, with their numbers in the last row."""
        for columns, (who, rounds) in zip(contributions, people.groups(), strict=True):
            _, rewards, known = self.rounds.of(rounds)
            numbers = np.fmin(np.fmax(beside(rewards), -0.5), 0.5) * known
            columns *= less
            columns[-1] = scales[who] * numbers.sum(axis=0) / np.maximum(known.sum(axis=0), 1.0)
            yield columns

    @abstractmethod
    def _summed(self, contributions: Iterable[Array], persons: int, longest: float) -> Array:
        """The sum of all columns and noise; there are so many, and none is longer."""

    def _contributions(
        self, people: People, weigh: Weigh, weights: Array, scale: float, matrix_bound: float, vector_bounds: Array
    ) -> Iterator[Array]:
        """ω_p·(a·M_p, b_p) as columns, some persons at a time."""
        D = self._pair - self.dim
        for who, rounds in people.groups():
            means = self._means(rounds, weigh)
            means[:, ~np.isfinite(means).all(axis=0)] = 0.0  # a weigh that overflows spoils its person's alone
            M, b = means[:D], means[D : self._pair]
            ω = weights[who]
            M *= ω * scale * _shortened(M, matrix_bound)
            b *= ω * _shortened(b, vector_bounds[who])
            yield means

    def _means(self, rounds: NDArray[np.intp], weigh: Weigh) -> Array:
        """Columns of records, averaged over the rounds (n, k) of each person that have a reward."""
        n, k = rounds.shape
        sums, came = np.zeros((self._size, k)), np.zeros(k)
        step = max(1, _BLOCK // k)
        for start in range(0, n, step):
            some = rounds[start : start + step]
            arms, rewards, known = self.rounds.of(some.ravel())
            w, g = weigh(arms, rewards)
            records = _records(arms, known * w, known * g)
            sums[: self._pair] += records.reshape(self._pair, *some.shape).sum(axis=1)
            came += known.reshape(some.shape).sum(axis=0)
        sums /= np.maximum(came, 1.0)
        return sums

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        return {"rounds": self.rounds.kept(), "left": self._left.copy()}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        if not isinstance(saved, Mapping) or set(saved) != {"rounds", "left"}:
            raise ValueError(f"sums must hold the entries 'left' and 'rounds', got {short(saved)}")
        self.rounds.resume(saved["rounds"])
        most = len(self.rounds.people(self.rounds.count))
        left = array(saved, "left", np.broadcast_to(0.0, min(np.size(saved["left"]), most)))
        if len(left) and not (left.min() >= 0.0 and left.max() <= 1.0):
            raise ValueError("left must be numbers from 0 to 1, got others")
        self._left = left


class PersonSums(PersonTotals):
    """Sums over persons with Gaussian noise that a trusted server adds.

    Privacy. Adjacency: the budget's, "replace" or "zero_out". Unit: a person, with any number of rounds, whose number
    is public. Cost: ``cost``, one Gaussian, charged once for all releases (:class:`PersonTotals`).

    Contributions are rounded to multiples of 2^−digits, entry by entry, before they are added up: a sum has no rounding
    error that could tell more. An entry of a contribution is rounded by half a unit and computed within far less in
    each world. So the shift of one release is at most α + s with s = 4√(entries)·2^−digits, and that of m releases at
    most √(Σ(α + s)²) ≤ 1 + s√m, by which the noise is larger.

    Parameters
    ----------
    dim : int
        d.
    budget : Budget
        For one person, with δ > 0.
    releases : int
        m, at most.
    horizon : int
        The number of rounds.
    level : float
        λ in [0, 1); see :class:`PersonTotals`.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with ``cost`` here, before any noise is drawn.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range. Nothing is charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    Twenty people with 50 rounds each, and one release for all that they have left: M and b are means over people.

    >>> from accounting import Budget
    >>> from dpkit.moments import PersonSums
    >>> rng = np.random.default_rng(0)
    >>> sums = PersonSums(2, budget=Budget(8.0, 1e-5, unit="person"), releases=1, horizon=1000, rng=rng)
    >>> for t in range(1000):
    ...     sums.rounds.decided(t, person=t % 20)
    ...     sums.rounds.rewarded(t, np.array([0.6, 0.8]), 0.5)
    >>> people = sums.rounds.people(1000)
    >>> bounds = np.full(len(people), 0.5)
    >>> weights = sums.pay(people, 1.0) / sums.shifts(people, 0.5, 1.0, bounds)
    >>> M, b = sums.release(people, lambda x, y: (np.ones(len(y)), y), weights, 0.5, 1.0, bounds)
    >>> (b / weights.sum()).round(1).tolist(), float(round(sums.noise / weights.sum(), 3))
    ([0.3, 0.4], 0.037)
    """

    def __init__(
        self,
        dim: int,
        *,
        budget: Budget,
        releases: int,
        horizon: int,
        level: float = 0.0,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        super().__init__(dim, budget, rng, level)
        releases, horizon = integer("releases", releases, at_least=0), integer("horizon", horizon, at_least=1)
        z = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget)
        self.cost = Gaussian(z, adjacency=budget.adjacency)
        digits = min(whole_digits(horizon, self._size)[0], math.floor(math.log2(_LARGEST_NOISE / z)))
        self._unit = 2.0**digits
        self.noise = z * (1.0 + 4.0 * math.sqrt(self._size * max(1, releases)) / self._unit)
        charge(ledger, self.cost, type(self).__name__, self._rng)

    def _summed(self, contributions: Iterable[Array], persons: int, longest: float) -> Array:
        total = np.zeros(self._size)
        for columns in contributions:
            columns *= self._unit
            total += np.rint(columns).sum(axis=1)
        return self._noised(total) / self._unit

    def _noised(self, total: Array) -> NDArray[np.int64]:
        """Whole numbers plus the noise of a release."""
        return total.astype(np.int64) + rounded_gaussian(self.noise * self._unit, self._size, rng=self._rng)


def _records(arms: Array, w: Array, g: Array) -> Array:
    """Columns (w·x_ix_j for i ≤ j, row by row, times √2 for i < j; g·x), of shape (d(d + 3)/2, m)."""
    x = np.ascontiguousarray(arms.T)
    d, m = x.shape
    out = np.empty((d * (d + 3) // 2, m))
    weighted, longer = w * x, math.sqrt(2.0) * x
    start = 0
    for i in range(d):
        np.multiply(weighted[i], x[i], out=out[start])
        np.multiply(weighted[i], longer[i + 1 :], out=out[start + 1 : start + d - i])
        start += d - i
    np.multiply(g, x, out=out[start:])
    return out


def _half_vector(d: int) -> NDArray[np.intp]:
    """Where a record has the entries of a half-vector."""
    rows, columns = np.triu_indices(d)
    return np.concatenate([np.flatnonzero(rows == columns), np.flatnonzero(rows < columns)])


def _shortened(columns: Array, bound: Array | float) -> Array:
    """The factors that shorten columns to a length of at most ``bound``."""
    lengths = np.sqrt(np.einsum("ij,ij->j", columns, columns))
    return np.asarray(bound / np.maximum(lengths, bound))

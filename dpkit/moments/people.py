"""The secret half of a policy that protects persons by a total: everybody's rounds, and what each has left to pay.

With a trusted server (:class:`PersonSums`) it adds the noise; with a shuffler every person's device does
(:class:`~dpkit.moments.shuffled_people.ShuffledPersonSums`).

A person's contribution to a release is a function of all that person's rounds so far, formed again at every release.
How far it can move the release, α², is taken from what the person has left, 1 at first.

A person moves a sum by its own contribution and nothing else, because all the rest is equal bit for bit in the two
worlds: rounds keep their place whether or not their reward comes, places depend on public numbers only, every
contribution is rounded to whole numbers before anything of another person is added, and sums of whole numbers are
exact.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, Gaussian, Release, calibrate
from accounting.arrays import Array
from dpkit.geometry import smat
from dpkit.moments.pairs import whole_digits
from dpkit.samplers import rounded_gaussian
from dpkit.states.entries import array, short

__all__ = ["People", "PersonSums", "PersonTotals", "Rounds", "Weigh"]

# rounds that are worked on at a time: what belongs to them should stay in the processor's cache
_BLOCK = 1024
# in units of the last digit; noise of a larger scale takes longer
_LARGEST_NOISE = 2.0**38

# arms (m, d) and rewards (m,) of rounds to w ≥ 0 and g, both (m,) and finite
Weigh = Callable[[Array, Array], tuple[Array, Array]]


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
    """Everybody's rounds, in the order of the decisions: whose, which arm, and the reward if it came.

    The columns grow by an eighth, in place as far as the system can.

    Attributes
    ----------
    count : int
        How many there are.
    """

    # the last one to grow tells how much room there is, so that an interrupt among them does no harm
    _COLUMNS = ("arm", "reward", "came", "person")

    def __init__(self, dim: int) -> None:
        self.count = 0
        self._person = np.zeros(0, dtype=np.int64)
        self._arm = np.zeros((0, dim))
        self._reward = np.zeros(0)
        self._came = np.zeros(0, dtype=np.bool_)

    def decided(self, round: int, person: int) -> None:
        """A round of this person: the next one, or the last one once more."""
        while round >= len(self._person):
            room = len(self._person) + max(64, len(self._person) // 8)
            for name in self._COLUMNS:
                column = getattr(self, f"_{name}")
                column.resize((room, *column.shape[1:]), refcheck=False)
        self._person[round] = person
        self.count = round + 1

    def rewarded(self, round: int, arm: Array, reward: float) -> None:
        """The reward of a round came."""
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

    Parameters
    ----------
    dim : int
        d.
    rng : numpy.random.Generator
        The policy's.

    Attributes
    ----------
    cost : Release
        Of the whole run.
    noise : float
        The standard deviation of the noise of a sum whose shift is α, at most.
    """

    cost: Release
    noise: float

    def __init__(self, dim: int, rng: np.random.Generator) -> None:
        self.dim = dim
        self._rng = rng
        self._size = dim * (dim + 3) // 2
        self.rounds = Rounds(dim)
        self._left = np.empty(0)  # of those who had come by the last release

    @property
    def persons(self) -> int:
        """How many had taken part at the last release."""
        return len(self._left)

    def pay(self, people: People, share: float) -> Array:
        """Take ``share`` of what each person has left, and return the α of each."""
        left = np.ones(len(people))
        left[: self.persons] = self._left
        paid = share * left
        self._left = left - paid
        return np.sqrt(paid)

    def release(
        self, people: People, weigh: Weigh, weights: Array, scale: float, matrix_bound: float, vector_bounds: Array
    ) -> tuple[Array, Array]:
        """Noisy Σ_p ω_p·M_p and Σ_p ω_p·b_p over persons p, the first with noise of standard deviation z/a.

        M_p is the mean of w·x xᵀ over those of the person's rounds whose reward came, scaled down to a Frobenius norm
        of at most F, and b_p is the mean of g·x, scaled down to a length of at most B_p.

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
        """
        contributions = self._contributions(people, weigh, weights, scale, matrix_bound, vector_bounds)
        longest = float((weights * np.hypot(scale * matrix_bound, vector_bounds)).max())
        released, D = self._summed(contributions, len(people), longest), self._size - self.dim
        return smat(released[_half_vector(self.dim)] / scale), released[D:]

    @abstractmethod
    def _summed(self, contributions: Iterable[Array], persons: int, longest: float) -> Array:
        """The sum of all columns and noise; there are so many, and none is longer."""

    def _contributions(
        self, people: People, weigh: Weigh, weights: Array, scale: float, matrix_bound: float, vector_bounds: Array
    ) -> Iterator[Array]:
        """ω_p·(a·M_p, b_p) as columns, some persons at a time."""
        D = self._size - self.dim
        for who, rounds in people.groups():
            means = self._means(rounds, weigh)
            M, b = means[:D], means[D:]
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
            sums += records.reshape(self._size, *some.shape).sum(axis=1)
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
    """With Gaussian noise that a trusted server adds.

    Contributions are rounded to multiples of 2^−digits, entry by entry, before they are added up: a sum has no rounding
    error that could tell more. An entry of a contribution is rounded by half a unit and computed within far less in
    each world. So the shift of one release is at most α + s with s = 4√(entries)·2^−digits, and that of m releases at
    most √(Σ(α + s)²) ≤ 1 + s√m, by which the noise is larger.

    Parameters
    ----------
    dim, rng
        See :class:`PersonTotals`.
    budget : Budget
        For one person.
    releases : int
        m, at most.
    horizon : int
        The number of rounds.
    """

    def __init__(self, dim: int, *, budget: Budget, releases: int, horizon: int, rng: np.random.Generator) -> None:
        super().__init__(dim, rng)
        z = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget)
        self.cost = Gaussian(z, adjacency=budget.adjacency)
        digits = min(whole_digits(horizon, self._size)[0], math.floor(math.log2(_LARGEST_NOISE / z)))
        self._unit = 2.0**digits
        self.noise = z * (1.0 + 4.0 * math.sqrt(self._size * max(1, releases)) / self._unit)

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

"""Sums of numbers that belong to a few public things ("arms"), in batches of each arm's own, through a shuffler.

The shuffled twin of :mod:`dpkit.moments.arm_batches`, for a stream whose server is not trusted. The decisions for an
arm while its batch is open are the users of the batch: their number n is fixed beforehand, and each of them is in this
batch and in no other. A user whose record comes before the batch ends sends one randomized message of it, every other
user that of the middle of the range, so that a record which comes late, or never, is one other message of the same
user. The shuffler lets out no more of a batch than the sum of its messages. Of two kinds of message a batch takes the
one with less noise, which its n decides:

* ``"sum"``: x − ½ as a count of bits among many fair ones (:class:`dpkit.shuffle.VectorSum` in one dimension), whose
  noise does not depend on n;
* ``"response"``: a bit by randomized response (:mod:`dpkit.moments.reports`), whose shuffling hides more than it does
  by itself, and the more, the larger n. Its noise grows with √n: for short batches, and a large ε.

The noise of both is compared for records that are either end of the range. (Shuffled Laplace noise on each record
costs a little less at the same ε₀, and has more than twice the variance: it has more noise at the same price.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting import ApproxDP, Budget, LocalShuffled, RandomizedResponse, Release
from accounting.amplification.blanket import response_local_epsilon
from accounting.arrays import Array
from accounting.checks import integer
from dpkit import randomness
from dpkit.mechanisms._checked import charge
from dpkit.moments.arm_turns import ArmTurns
from dpkit.moments.reports import Reports
from dpkit.moments.shuffled import batch_protocol, max_cost
from dpkit.shuffle import Analyzer, Randomizer, Shuffler, SumProtocol, Tally
from dpkit.states import entries

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["ShuffledArms"]

# of a report, beyond which it is right but for one in 10¹³
_LARGEST_EPSILON = 30.0


# of x − ½; a little more than a half, as records at the bound itself take longer to check
_BOUND = 0.5 * (1.0 + 2.0**-30)


@dataclass(frozen=True)
class _Plan:
    """The messages of a batch of so many ``users``: of a sum, or responses of local privacy ``epsilon``."""

    users: int
    cost: Release
    noise: float
    protocol: SumProtocol | None = None
    epsilon: float = 0.0


@lru_cache(maxsize=64)
def _plans(lengths: tuple[int, ...], budget: Budget, records: int) -> tuple[_Plan, ...]:
    """The least noise for each batch."""
    found, shorter = [], records == 1
    apart = 1.0 if budget.adjacency == "replace" else _BOUND  # from the middle of the range to an end
    for n in lengths:
        protocol = batch_protocol(1, n, _BOUND, apart, budget, records)
        plan = _Plan(n, protocol.cost, protocol.noise_std(n), protocol)
        if shorter:  # where responses have lost, they have for all larger numbers of users
            response = _responses(n, budget)
            if shorter := response.noise < plan.noise:
                plan = response
        found.append(plan)
    return tuple(found)


def _responses(users: int, budget: Budget) -> _Plan:
    epsilon = min(_LARGEST_EPSILON, response_local_epsilon(2, users, budget.epsilon, budget.delta))
    cost = LocalShuffled(
        epsilon, users, randomizer=RandomizedResponse(epsilon, 2), adjacency=budget.adjacency
    )  # fmt: skip
    return _Plan(users, cost, math.sqrt(users) * Reports(epsilon).noise, epsilon=epsilon)


class ShuffledArms:
    """Sums of r − c over disjoint batches of each arm's users, through users' randomizers and a shuffler.

    Privacy. Adjacency: the budget's, "replace" or "zero_out". Unit: a user of one batch, or a person who is a user of
    at most m. Sensitivity: one user changes one message of one batch, its x − ½ by 1 at most, by ½ under "zero_out".
    Cost: ``cost``, what every batch meets by itself, the budget; for a person m times that of the batch that costs
    most. Let the arm of a user, and when batches end, be functions of what was released before: then two runs that
    differ in one user differ in the input of one release, given all earlier ones, and batches compose in parallel. What
    it rests on is that users randomize their own records, and that the shuffler lets out nothing but the sum
    (:mod:`dpkit.shuffle`).

    Parameters
    ----------
    arms : int
        K at the start.
    low, high : float
        The range of records.
    lengths : sequence of int
        The numbers of users of an arm's batches, ascending.
    budget : Budget
        What the sums may cost a user, or a person; δ > 0.
    records : int
        m, where the unit is a person. With several, all messages are of the kind ``"sum"``.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with ``cost`` here, before any noise is drawn.

    Attributes
    ----------
    noise : (J,) ndarray
        The standard deviation of the noise in the sum of each batch, for records at an end of the range.
    kinds : list of str
        Of the messages of each batch.
    turns : ArmTurns
        How many users the open batches have, and whose.
    absent : float
        The share of the last released batch's users that had sent nothing.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range. Nothing is charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.moments.shuffled_arms import ShuffledArms
    >>> sums = ShuffledArms(2, 0.0, 1.0, [8, 1000], budget=Budget(4.0, 1e-6), rng=np.random.default_rng(0))
    >>> sums.kinds, sums.noise.round(1).tolist()
    (['response', 'sum'], [0.4, 1.2])
    >>> for t in range(8):
    ...     sums.turns.decided(t, 1)
    ...     sums.add(1, 1.0)
    >>> bool(abs(sums.release(1, 8) - 4.0) < 2.0), sums.turns.counts(8).tolist()
    (True, [0, 0])
    """

    _KEPT = ("released", "users", "ones")

    def __init__(
        self,
        arms: int,
        low: float,
        high: float,
        lengths: Sequence[int],
        *,
        budget: Budget,
        records: int = 1,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        K, m = integer("arms", arms, at_least=1), integer("records", records, at_least=1)
        if not (low < high and math.isfinite(high - low)):
            raise ValueError(f"low must be less than high, and both finite, got low={low!r} and high={high!r}")
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget, got budget={budget!r}")
        sizes = tuple(integer("lengths", n, at_least=1) for n in lengths)
        if any(after < before for before, after in pairwise(sizes)):
            raise ValueError(f"lengths must ascend, got lengths={list(sizes)!r}")
        self._centre, self._length, self._rng = 0.5 * low + 0.5 * high, high - low, randomness.resolve(rng)
        self._plans = _plans(sizes, budget, m)
        self.noise: Array = np.array([plan.noise for plan in self._plans]) * self._length
        self.kinds = ["response" if plan.protocol is None else "sum" for plan in self._plans]
        self.cost: Release = ApproxDP(budget.epsilon, budget.delta, adjacency=budget.adjacency)
        if m > 1:  # then all are of one kind, and what one of them costs says how several compose
            self.cost = m * max_cost(plan.cost for plan in self._plans)
        charge(ledger, self.cost, type(self).__name__, self._rng)
        # how many batches were released; of the open ones, users who have sent a message, and ones among its bits
        self.released, self.users, self.ones = (np.zeros(K, np.int64) for _ in range(3))
        self.turns = ArmTurns(K, people=m > 1)
        self.absent = 0.0

    def grow(self) -> None:
        """One more arm."""
        for name in self._KEPT:
            setattr(self, name, np.append(getattr(self, name), 0))
        self.turns.grow()

    def add(self, arm: int, r: float) -> None:
        """What one user of the open batch of an arm sends. After the last batch it is dropped, unseen.

        Raises
        ------
        ValueError
            If the record is outside of the range. Nothing changes.
        """
        g = (r - self._centre) / self._length
        if not abs(g) <= 0.5 * (1.0 + 1e-9):  # also true for NaN
            raise ValueError(f"r must be from {self._centre - self._length / 2:g}, {self._length:g} long, got r={r!r}")
        if self.released[arm] < len(self._plans):
            self.ones[arm] += self._sent(self._plans[self.released[arm]], min(max(g, -0.5), 0.5), 1)
            self.users[arm] += 1

    def _sent(self, plan: _Plan, g: float, users: int) -> int:
        """How many ones so many users send of x − ½ = g."""
        if plan.protocol is not None:
            return int(Randomizer(plan.protocol, rng=self._rng).tally(np.full((users, 1), g)).ones[0])
        reports = Reports(plan.epsilon, rng=self._rng)
        return sum(reports.draw(g + 0.5) for _ in range(users))

    def release(self, arm: int, decisions: int) -> float:
        """Close the batch of an arm after so many decisions, and return its noisy sum of r − c.

        Users without a record send a message of the middle of the range.

        Raises
        ------
        ValueError
            After the last batch.
        """
        if self.released[arm] == len(self._plans):
            raise ValueError(f"at most {len(self._plans)} batches of an arm may be released, got one more")
        plan = self._plans[self.released[arm]]
        absent = max(0, int(self.turns.counts(decisions)[arm]) - int(self.users[arm]))
        ones, users = int(self.ones[arm]) + (self._sent(plan, 0.0, absent) if absent else 0), int(self.users[arm])
        users += absent
        self.turns.close(arm, decisions)
        self.ones[arm] = self.users[arm] = 0
        self.released[arm] += 1
        self.absent = absent / users
        if plan.protocol is None:
            first, second = Reports(plan.epsilon).values
            total = first * (users - ones) + second * ones
        else:
            tally = Tally(plan.protocol, users, np.array([ones], np.int64))
            shuffled = Shuffler(plan.protocol, rng=self._rng).shuffle_tallies(tally)
            total = Analyzer(plan.protocol).decode(shuffled, users)[0]
        return float(total) * self._length

    def kept(self) -> dict[str, Any]:
        """Randomized counts only."""
        units = np.array([self._centre, self._length, *self.noise])
        return {**entries.kept(self, self._KEPT), "turns": self.turns.kept(), "units": units}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked; there are as many arms as in the state already."""
        rest = entries.in_units(saved, (self._centre, self._length, *self.noise))
        entries.resume(self, (*self._KEPT, "turns"), rest)
        if min(self.released.min(), self.users.min(), self.ones.min()) < 0:
            raise ValueError("released, users and ones must be at least 0, got others")
        if (self.released > len(self._plans)).any() or (self.users > self.turns.counted + 1).any():
            raise ValueError("released and users must be no more than batches and decisions, got others")

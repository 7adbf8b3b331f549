"""Sums of records over batches of users, each through users' randomizers, a shuffler and an analyzer.

For a stream whose server is not trusted. The rounds of a batch are its users: their number is public, and each of them
is in this batch and in no other. What comes out are sums of single batches, not of all so far. A user
who has something to tell before the batch ends sends one randomized record, every other user the randomized null
vector. So a change of one user, of its record or of whether and when it came, changes one input of one sum; and what a
user pays is one release of its batch: the batches compose in parallel. A person who is a user of m batches changes one
input of each of m sums, and pays for m releases (``accounting.amplification.participation.at_most``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, Release, parallel
from accounting.arrays import Array
from accounting.checks import integer
from accounting.releases import Composed
from dpkit import randomness
from dpkit.mechanisms._checked import charge
from dpkit.shuffle import Analyzer, Randomizer, Shuffler, SumProtocol, Tally, VectorSum
from dpkit.states.entries import conform, short

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["ShuffledBatches", "batch_protocol", "max_cost"]

# Records that are randomized together: the noise of m users is one binomial draw, which costs little more than one's.
_TOGETHER = 64


# the same batches come again in every run of a simulation, and calibration is far slower than a lookup
@lru_cache(maxsize=512)
def batch_protocol(
    dimension: int, users: int, bound: float, distance: float, budget: Budget, batches: int = 1
) -> SumProtocol:
    """The constants of a vector sum over ``users``, of which so many together meet ``budget``.

    Parameters and what raises as for :class:`dpkit.shuffle.VectorSum`.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.moments import batch_protocol
    >>> protocol = batch_protocol(3, 1000, 1.0, 1.0, Budget(1.0, 1e-6))
    >>> protocol.users, round(protocol.noise_std(1000), 1)
    (1000, 4.3)
    """
    return VectorSum(dimension, users, bound, budget=budget, distance=distance, rounds=batches).protocol


def max_cost(costs: Iterable[Release]) -> Release:
    """What batches of these costs cost a user, who is in one of them; nothing if no batch is ever released.

    Examples
    --------
    >>> from accounting import Gaussian, epsilon
    >>> from dpkit.moments import max_cost
    >>> epsilon(max_cost([Gaussian(4.0), Gaussian(8.0)]), 1e-6) == epsilon(Gaussian(4.0), 1e-6)
    True
    """
    listed = list(costs)
    return parallel(*listed) if listed else Composed()


class ShuffledBatches:
    """The sums of records x, ‖x‖₂ ≤ ``bound``, over batches of users, each through users, shuffler and analyzer.

    Privacy. Adjacency: the budget's, "replace" or "zero_out". Unit: a user of one batch, or a person who is a user of
    m of them. Sensitivity: ``distance``, which the caller has proved. Cost: ``cost``, that of the batch that costs
    most, m times for a person; what it rests on is that users randomize their own records and that the shuffler lets
    out nothing but the sum (:mod:`dpkit.shuffle`).

    Parameters
    ----------
    ends : sequence of int
        After how many rounds the batches end, ascending.
    dimension : int
        Of a record.
    form : callable
        What users tell, as rows of shape (m, ·) → their records, of shape (m, dimension).
    bound, distance : float
        ‖x‖₂ ≤ bound, and ‖x − x′‖₂ ≤ distance for any two records of one user, the null vector among them.
    budget : Budget
        What the sums of the batches may cost a user, who is in one of them.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with ``cost`` here, before any noise is drawn.
    records : int, optional
        m, where the unit is a person, who is a user of m batches at most.

    Attributes
    ----------
    protocols : list of SumProtocol
        The public constants of each batch.
    released : int
        How many batches were released.
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
    >>> from accounting import Budget
    >>> from dpkit.moments import ShuffledBatches
    >>> batches = ShuffledBatches(
    ...     [1000], 2, np.asarray, bound=1.0, distance=2.0, budget=Budget(2.0, 1e-6), rng=np.random.default_rng(0)
    ... )
    >>> for _ in range(900):  # the other users send null vectors
    ...     batches.add(np.array([0.6, 0.8]), batch=0)
    >>> found = batches.release()
    >>> round(batches.noise_std(0), 1), bool(np.abs(found - [540, 720]).max() < 30), batches.absent
    (4.5, True, 0.1)
    """

    def __init__(
        self,
        ends: Sequence[int],
        dimension: int,
        form: Callable[[Array], Array],
        *,
        bound: float,
        distance: float,
        budget: Budget,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        records: int | None = None,
    ) -> None:
        if any(end <= start for start, end in pairwise([0, *ends])):
            raise ValueError(f"ends must be positive and ascending, got ends={list(ends)!r}")
        if records is not None:
            integer("records", records, at_least=1)
        self._most = min(records or 1, max(1, len(ends)))
        self.protocols = [
            batch_protocol(dimension, end - start, bound, distance, budget, self._most)
            for start, end in pairwise([0, *ends])
        ]
        self.form = form
        self._coordinates = dimension
        self.rng = randomness.resolve(rng)
        charge(ledger, self.cost, type(self).__name__, self.rng)
        self.released = 0
        self.absent = 0.0  # the share of the last released batch's users that had sent nothing
        # of the batches that are not released yet
        self._tallies: dict[int, Tally] = {}
        self._waiting: dict[int, list[Array]] = {}

    @property
    def cost(self) -> Release:
        """What all batches together cost one user: that of the one that costs most, for a person m times."""
        return self._most * max_cost(protocol.cost for protocol in self.protocols)

    def noise_std(self, batch: int) -> float:
        """The standard deviation of the noise in each coordinate of the sum of a batch."""
        protocol = self.protocols[batch]
        return protocol.noise_std(protocol.users)

    def add(self, row: Array, batch: int) -> None:
        """What one user of a batch tells. Of a batch that was released, or after the last, it is dropped, unseen."""
        if self.released <= batch < len(self.protocols):
            waiting = self._waiting.setdefault(batch, [])
            waiting.append(row)
            if len(waiting) == _TOGETHER:
                self._randomize(batch)

    def release(self) -> Array:
        """Close the batch: the users without a record send null vectors, and the shuffler lets the sum out.

        Raises
        ------
        ValueError
            After the last batch.
        """
        if self.released == len(self.protocols):
            raise ValueError(f"at most {len(self.protocols)} batches may be released, got one more")
        batch = self.released
        self._randomize(batch)
        protocol = self.protocols[batch]
        absent = protocol.users - (self._tallies[batch].users if batch in self._tallies else 0)
        if absent > 0:
            self._send(np.zeros((absent, protocol.dimension)), batch)
        shuffled = Shuffler(protocol, rng=self.rng).shuffle_tallies(self._tallies.pop(batch))
        self.released += 1
        self.absent = absent / protocol.users
        return Analyzer(protocol).decode(shuffled, protocol.users)

    def _randomize(self, batch: int) -> None:
        if waiting := self._waiting.pop(batch, None):
            self._send(self.form(np.array(waiting)), batch)

    def _send(self, records: Array, batch: int) -> None:
        sent = Randomizer(self.protocols[batch], rng=self.rng).tally(records)
        self._tallies[batch] = self._tallies[batch] + sent if batch in self._tallies else sent

    def kept(self) -> dict[str, Any]:
        """Randomized counts only: records that wait for others are randomized first."""
        for batch in list(self._waiting):
            self._randomize(batch)
        open_batches = max(self._tallies, default=self.released - 1) + 1 - self.released
        users, ones = self._empty(open_batches)
        for batch, tally in self._tallies.items():
            users[batch - self.released], ones[batch - self.released] = tally.users, tally.ones
        return {"released": self.released, "users": users, "ones": ones}

    def _empty(self, batches: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of so many open batches, how many users have sent a record, and what they sent: nothing yet."""
        return np.zeros(batches, dtype=np.int64), np.zeros((batches, self._coordinates), dtype=np.int64)

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        if not isinstance(saved, Mapping) or set(saved) != {"released", "users", "ones"}:
            raise ValueError(f"sums must hold the entries ['ones', 'released', 'users'], got {short(saved)}")
        released = conform("released", saved["released"], 0)
        batches = len(saved["users"]) if isinstance(saved["users"], np.ndarray) and saved["users"].ndim == 1 else 0
        if released + batches > len(self.protocols):
            raise ValueError(
                f"released must be at most {len(self.protocols)}, got released={released} and {batches} open batches"
            )
        likes = zip(("users", "ones"), self._empty(batches), strict=True)
        users, ones = (conform(name, saved[name], like) for name, like in likes)
        self.released, self._waiting = released, {}
        self._tallies = {
            batch: Tally(self.protocols[batch], int(count), row)
            for batch, (count, row) in enumerate(zip(users, ones, strict=True), released)
            if count
        }

"""What the shuffle-private policies share: one shuffled sum of records for each batch of a public schedule.

The rounds of a batch are its users: their number is public, and each of them is in this batch and in no other. A user
whose reward comes before the batch ends sends one randomized record, every other user the randomized null vector. Two
things follow. A change of one round, of its arms, its reward or the reward's arrival, changes one input of one sum;
and what a user pays is one release of its batch, so the batches compose in parallel.

A person is a user of the first m batches in which it has rounds, by the first of these; its other rounds send null
vectors. That is decided as decisions are made: which rounds are whose is public, while rewards' arrivals are not, and a
person whose records stood in other batches in the neighbouring run would change 2m sums. So it changes one input of
each of m sums, and pays for m releases (``accounting.amplification.participation.at_most``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from accounting import Budget, Release, parallel
from accounting.releases import Composed
from dpbandits.policies._records import pair_scales
from dpbandits.policy import Array, Pending
from dpbandits.private_policy import PrivatePolicy
from dpkit.geometry import pair_sensitivity, smat, svec
from dpkit.shuffle import Analyzer, Randomizer, Shuffler, SumProtocol, Tally, VectorSum
from dpkit.states.entries import taken

__all__ = ["PairBatches", "ShufflePolicy", "ShuffledBatches", "batch_protocol", "max_cost"]

Public = TypeVar("Public")

# Records that are randomized together: the noise of m users is one binomial draw, which costs little more than one's.
_TOGETHER = 64


# the same batches come again in every run of a simulation, and calibration is far slower than a lookup
@lru_cache(maxsize=512)
def batch_protocol(
    dimension: int, users: int, bound: float, distance: float, budget: Budget, batches: int = 1
) -> SumProtocol:
    """The constants of a vector sum over ``users``, of which so many together meet ``budget``."""
    return VectorSum(dimension, users, bound, budget=budget, distance=distance, rounds=batches).protocol


def max_cost(costs: Iterable[Release]) -> Release:
    """What batches of these costs cost a user, who is in one of them; nothing if no batch is ever released."""
    listed = list(costs)
    return parallel(*listed) if listed else Composed()


class ShuffledBatches:
    """The sums of records x, ‖x‖₂ ≤ ``bound``, over batches of users, each through users, shuffler and analyzer.

    Parameters
    ----------
    ends : sequence of int
        After how many decisions the batches end, ascending.
    dimension : int
        Of a record.
    form : callable
        What users tell, as rows of shape (m, ·) → their records, of shape (m, dimension).
    bound, distance : float
        ‖x‖₂ ≤ bound, and ‖x − x′‖₂ ≤ distance for any two records of one user, the null vector among them.
    budget : Budget
        What the sums of the batches may cost a user, who is in one of them.
    rng : numpy.random.Generator
        The policy's.
    records : int, optional
        m, where the unit is a person, who is a user of m batches at most.
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
        rng: np.random.Generator,
        records: int | None = None,
    ) -> None:
        self._most = min(records or 1, max(1, len(ends)))
        self.protocols = [
            batch_protocol(dimension, end - start, bound, distance, budget, self._most)
            for start, end in pairwise([0, *ends])
        ]
        self.form = form
        self._coordinates = dimension
        self.rng = rng
        self.released = 0
        self._tally: Tally | None = None
        self._waiting: list[Array] = []

    @property
    def cost(self) -> Release:
        """What all batches together cost one user: that of the one that costs most, for a person m times."""
        return self._most * max_cost(protocol.cost for protocol in self.protocols)

    def noise_std(self, batch: int) -> float:
        """The standard deviation of the noise in each coordinate of the sum of a batch."""
        protocol = self.protocols[batch]
        return protocol.noise_std(protocol.users)

    def add(self, row: Array) -> None:
        """What one user tells. After the last batch it is dropped: nobody would ever see it."""
        if self.released < len(self.protocols):
            self._waiting.append(row)
            if len(self._waiting) == _TOGETHER:
                self._randomize()

    def release(self) -> Array:
        """Close the batch: the users without a record send null vectors, and the shuffler lets the sum out."""
        self._randomize()
        protocol = self.protocols[self.released]
        absent = protocol.users - (0 if self._tally is None else self._tally.users)
        if absent > 0:
            self._send(np.zeros((absent, protocol.dimension)))
        shuffled = Shuffler(protocol, rng=self.rng).shuffle_tallies(self._tally or ())
        self._tally = None
        self.released += 1
        return Analyzer(protocol).decode(shuffled, protocol.users)

    def _randomize(self) -> None:
        if self._waiting:
            self._send(self.form(np.array(self._waiting)))
            self._waiting.clear()

    def _send(self, records: Array) -> None:
        sent = Randomizer(self.protocols[self.released], rng=self.rng).tally(records)
        self._tally = sent if self._tally is None else self._tally + sent

    def kept(self) -> dict[str, Any]:
        """Randomized counts only: records that wait for others are randomized first."""
        self._randomize()
        ones = np.zeros(self._coordinates, dtype=np.int64) if self._tally is None else self._tally.ones
        return {"released": self.released, "users": 0 if self._tally is None else self._tally.users, "ones": ones}

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        like = {"released": 0, "users": 0, "ones": np.zeros(self._coordinates, dtype=np.int64)}
        released, users, ones = taken("sums", saved, like).values()
        if released > len(self.protocols) or (users and released == len(self.protocols)):
            raise ValueError(f"released must be at most {len(self.protocols)}, got released={released}")
        self.released, self._waiting = released, []
        self._tally = Tally(self.protocols[released], users, ones) if users else None


class PairBatches(ShuffledBatches):
    """The sums H of w·x xᵀ and b of g·x, |w| ≤ W, |g| ≤ B, over batches of users, each with noise.

    Users tell x, w and g in one row. Records are scaled to (a·svec(w·x xᵀ), c·g·x), of which ``share`` of the squared
    sensitivity goes to the second part, were the two replaced independently; two records of one user differ by at most
    ``dpkit.geometry.pair_sensitivity(a, W, c, B)``.
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
        rng: np.random.Generator,
        records: int | None = None,
    ) -> None:
        self.a, self.c = pair_scales(W, B, share)
        self._half = dim * (dim + 1) // 2
        bound = math.hypot(self.a * W, self.c * B)
        distance = pair_sensitivity(self.a, W, self.c, B, budget.adjacency)
        known = {"bound": bound, "distance": distance}
        super().__init__(ends, self._half + dim, self._records, **known, budget=budget, rng=rng, records=records)

    def _records(self, rows: Array) -> Array:
        """(a·svec(w·x xᵀ), c·g·x) of every row (x, w, g)."""
        X, w, g = rows[:, :-2], rows[:, -2, None], rows[:, -1, None]
        return np.concatenate([svec((self.a * w * X)[:, :, None] * X[:, None, :]), self.c * g * X], axis=1)

    def release_pair(self, weight: float = 1.0) -> tuple[Array, Array]:
        """Close the batch: H and b with noise, times ``weight``."""
        scaled = self.release()
        return weight * smat(scaled[: self._half] / self.a), weight * scaled[self._half :] / self.c


class ShufflePolicy(PrivatePolicy[Public]):
    """Base of the policies whose batches go through a shuffler: a round counts in the batch of its decision, or not."""

    trust: ClassVar[Literal["shuffle"]] = "shuffle"
    # a person is a user of the same batches whether or not, and whenever, rewards come
    _counts_decisions = True
    _prices_persons = True

    def _enters(self, pending: Pending) -> bool:
        """Whether its batch is open. After the last release nobody would ever see a record."""
        is_open = pending.round >= self.schedule.start(self.releases) and len(pending.arm) > 0
        return is_open and self.releases < len(self.schedule.ends)

    def _expose(self) -> None:
        super()._expose()
        # rewards of closed batches may still come and count for nothing, so that their arms are not kept
        start = self.schedule.start(self.releases)
        nothing = np.empty(0)
        for key, pending in self._open.items():
            if key < start and len(pending.arm):
                self._open[key] = replace(pending, arm=nothing)

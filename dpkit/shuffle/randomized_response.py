"""Frequencies of k categories from one short message per user: randomized response, amplified by shuffling.

Each user sends its category with probability p, and otherwise one of the other k − 1 evenly; the shuffler mixes the
messages, of which nothing is left but how many name each category, and puts these counts out. For anyone who can afford
no more than one message per user: with many messages, ``VectorSum`` on one-hot vectors has several times less noise at
the same cost.

Source: Warner (1965), "Randomized response"; for k categories Kairouz, Bonawitz & Ramage (2016). Amplification by
shuffling: what k-ary responses are known to hide, by the privacy blanket of Balle, Bell, Gascón & Nissim (2019); see
:mod:`accounting.amplification.blanket`, and for two categories :mod:`accounting.amplification.binary`.

Privacy. Unit: one user, whose category is replaced by any other. The randomizer is ε₀-DP by itself (whoever holds the
shuffler sees no more than that), with e^ε₀ = p(k − 1)/(1 − p); the shuffled messages are a ``LocalShuffled`` release,
and ε₀ is the largest that meets the budget. Users that are not honest are not counted. What a message must be to count
for a user is said in :mod:`dpkit.shuffle.inbox`: one that lies moves a count by 1, and a share by 1/((p − q)·m).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Budget, LocalShuffled, RandomizedResponse
from accounting.amplification.blanket import response_local_epsilon
from accounting.arrays import Array
from accounting.checks import fraction, integer
from dpkit import randomness
from dpkit.samplers._exact import random_words
from dpkit.shuffle import wire
from dpkit.shuffle.frequencies import Frequencies
from dpkit.shuffle.inbox import Inbox
from dpkit.shuffle.rounds import Rounds, drawn_session
from dpkit.states import Unrepeatable

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["ShuffledRandomizedResponse"]


class ShuffledRandomizedResponse(Unrepeatable):
    """Estimates how often each of ``categories`` occurs among users who send one randomized message each.

    Parameters
    ----------
    categories : int
        k, at least 2. Inputs are 0 … k − 1.
    users : int
        n. The shuffler releases nothing before this many users took part; more may.
    budget : Budget
        What the one release of the shuffler may cost one user; of adjacency ``"replace"``.
    honest : float
        The fraction of ``users`` that is counted on, in (0, 1].
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with :attr:`cost` before anything leaves the shuffler.
    session : str, optional
        Public; a message is valid in one session only. None draws a random one, which devices need to be told.

    Attributes
    ----------
    refused : Counter
        How many messages were skipped, by reason, when :meth:`shuffle` was last called.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.shuffle import ShuffledRandomizedResponse
    >>> response = ShuffledRandomizedResponse(4, 10_000, budget=Budget(0.5, 1e-6))
    >>> round(response.local_epsilon, 1), response.cost.users
    (4.4, 10000)
    >>> workers = [response.tally(np.arange(5000) % 4), response.tally(np.zeros(5000, dtype=int))]
    >>> shares = response.decode(response.shuffle_tallies(workers))
    >>> bool(shares.low[0] < 0.625 < shares.high[0]), shares.users
    (True, 10000)

    Devices send a message each, and are not trusted:

    >>> response = ShuffledRandomizedResponse(4, 100, budget=Budget(1.0, 1e-3))
    >>> messages = [response.encode(i % 4) for i in range(100)]
    >>> response.decode(response.shuffle([*messages, b"nonsense"])).users, dict(response.refused)
    (100, {'malformed': 1})
    """

    def __init__(
        self,
        categories: int,
        users: int,
        *,
        budget: Budget,
        honest: float = 1.0,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        session: str | None = None,
    ) -> None:
        self.categories = integer("categories", categories, at_least=2)
        self.users = integer("users", users, at_least=1)
        counted = max(1, math.floor(fraction("honest", honest, include_one=True) * self.users))
        if not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget, got budget={budget!r}")
        if budget.adjacency != "replace":
            raise ValueError(f"budget must have adjacency 'replace', got adjacency={budget.adjacency!r}")
        simulation = randomness.is_simulation(randomness.resolve(rng))

        epsilon0 = response_local_epsilon(self.categories, counted, budget.epsilon, budget.delta)
        response = RandomizedResponse(epsilon0, self.categories)
        self.cost = LocalShuffled(epsilon0, counted, randomizer=response, adjacency=budget.adjacency)
        self.refused: Counter[str] = Counter()
        self._rng = rng
        self._rounds = Rounds(1, self.cost, self.users, "shuffled randomized response", ledger, simulation)
        # the truth is told if 64 random bits are below this; rounded down, so that ε₀ is never passed
        odds = (self.categories - 1) * math.exp(-self.local_epsilon)
        self._threshold = math.floor(2**64 / (1.0 + odds) * (1.0 - 2.0**-50))
        #: Of all messages; public.
        self.session = drawn_session(session)
        constants = (self.categories, self.users, self._threshold, self.session)
        #: Eight bytes that stand for the public constants in a message.
        self.fingerprint = hashlib.blake2b(repr(constants).encode(), digest_size=8).digest()
        self._width = (self.categories - 1).bit_length()

    def __repr__(self) -> str:
        return (
            f"ShuffledRandomizedResponse(categories={self.categories}, users={self.users:,}): "
            f"{'released' if self.released else 'open'}, local ε = {self.local_epsilon:.6g}, noise of std "
            f"{self.noise_std:.6g}"
        )

    @property
    def released(self) -> bool:
        """Whether the one release was made."""
        return self._rounds.done > 0

    @property
    def local_epsilon(self) -> float:
        """ε₀, what a message costs against someone who sees it before it is shuffled."""
        return self.cost.epsilon

    @property
    def truth_probability(self) -> float:
        """p, with which a user sends its own category."""
        return self._threshold / 2**64

    @property
    def lie_probability(self) -> float:
        """q = (1 − p)/(k − 1), with which a user sends one particular other category."""
        return (1.0 - self.truth_probability) / (self.categories - 1)

    @property
    def noise_std(self) -> float:
        """The standard deviation of the error of one estimated share, at most, over ``users`` users."""
        p, q = self.truth_probability, self.lie_probability
        return math.sqrt(max(p * (1.0 - p), q * (1.0 - q)) / self.users) / (p - q)

    def encode(self, value: int) -> bytes:
        """One user's message, of kind 1 (see :mod:`dpkit.shuffle.wire`).

        Parameters
        ----------
        value : int
            A category.

        Raises
        ------
        TypeError, ValueError
            If it is none. Nothing is drawn.
        """
        if np.ndim(value) != 0:
            raise ValueError(
                f"value must be one user's category, got value.shape={np.shape(value)}; tally takes several"
            )
        sent = self._randomized(value)
        nonce = randomness.resolve(self._rng).bytes(wire.NONCE)
        return wire.write(wire.Kind.DEVICE, self.fingerprint, sent, self._width, nonce=nonce)

    def tally(self, values: ArrayLike) -> bytes:
        """How many of several users' messages name each category: what a trusted worker sends, of kind 2.

        Parameters
        ----------
        values : (m,) array_like of int
            Categories, m at least 1.

        Raises
        ------
        TypeError, ValueError
            If a value is no category. Nothing is drawn.
        """
        sent = self._randomized(values)
        counts = np.bincount(sent, minlength=self.categories)
        return self._write(wire.Kind.WORKER, counts, len(sent))

    def shuffle(self, messages: Iterable[bytes] | bytes) -> bytes:
        """How many of the devices' messages name each category (kind 3). Each message stands for one user.

        Parameters
        ----------
        messages : iterable of bytes
            One from each device. Those that do not count are skipped; see :attr:`refused`.

        Raises
        ------
        ValueError
            If messages of fewer than ``users`` users count, or there was a release already. Nothing is released or
            charged.
        TypeError
            If a message is not bytes.
        BudgetExceeded
            If the ledger refuses.
        """
        self._rounds.check_process()
        with self._rounds.lock:
            number = self._rounds.open()
            inbox = Inbox(self.fingerprint, number, 1, self._width, self.categories - 1)
            counts = np.zeros(self.categories, dtype=np.int64)
            for rows in inbox.rows(messages):
                counts += np.bincount(rows[:, 0], minlength=self.categories)
            self.refused = inbox.refused
            self._rounds.enough(inbox.users, inbox.refused)
            released = self._write(wire.Kind.SHUFFLED, counts, inbox.users)
            self._rounds.release(number)
        return released

    def shuffle_tallies(self, tallies: Iterable[bytes] | bytes) -> bytes:
        """The sum of tallies (kind 3), of whose makers the caller vouches that they count honestly.

        Raises
        ------
        ValueError
            If one is malformed, they stand for fewer than ``users`` users, or there was a release already. Nothing is
            released or charged.
        BudgetExceeded
            If the ledger refuses.
        """
        self._rounds.check_process()
        with self._rounds.lock:
            number = self._rounds.open()
            counts, users = np.zeros(self.categories, dtype=np.int64), 0
            for data in [tallies] if isinstance(tallies, bytes) else tallies:
                counts += self._counts(data, wire.Kind.WORKER)
                users = int(counts.sum())
            self._rounds.enough(users)
            released = self._write(wire.Kind.SHUFFLED, counts, users)
            self._rounds.release(number)
        return released

    def decode(self, shuffled: bytes, *, confidence: float = 0.95) -> Frequencies:
        """The shares of all categories, (c_j/m − q)/(p − q), with Clopper–Pearson intervals.

        The number c_j of messages that name category j is a sum of independent coins with the mean m·(q + (p − q)f_j).
        Its tails, at a distance of at least 1 from the mean, are at most those of a binomial variable of the same mean
        (Hoeffding 1956, Theorem 4), so binomial intervals hold for it as well.

        Parameters
        ----------
        shuffled : bytes
            What the shuffler put out.
        confidence : float
            In [0.5, 1), of each interval.
        """
        if fraction("confidence", confidence) < 0.5:
            raise ValueError(f"confidence must be at least 0.5, got confidence={confidence!r}")
        counts = self._counts(shuffled, wire.Kind.SHUFFLED)
        m = int(counts.sum())
        p, q = self.truth_probability, self.lie_probability
        low, high = _clopper_pearson(counts, m, (1.0 - confidence) / 2.0)
        shares = [(theta - q) / (p - q) for theta in (counts / m, low, high)]
        return Frequencies(shares[0], np.clip(shares[1], 0.0, 1.0), np.clip(shares[2], 0.0, 1.0), confidence, m)

    def _randomized(self, values: ArrayLike) -> NDArray[np.int64]:
        """What users with these categories send."""
        truth = np.atleast_1d(np.asarray(values))
        if truth.dtype.kind not in "iu":
            raise TypeError(f"values must be integers, got values.dtype={truth.dtype}")
        if truth.ndim != 1 or truth.size == 0:
            raise ValueError(f"values must be a category or a vector of them, got values.shape={np.shape(values)}")
        if int(truth.min()) < 0 or int(truth.max()) >= self.categories:
            raise ValueError(f"values must lie in [0, {self.categories - 1}], got {truth.min()} to {truth.max()}")
        rng = randomness.resolve(self._rng)
        truth = truth.astype(np.int64)
        true = random_words(rng, truth.size) < np.uint64(self._threshold)
        others = (truth + rng.integers(1, self.categories, size=truth.size)) % self.categories
        return np.where(true, truth, others)

    def _write(self, kind: wire.Kind, counts: NDArray[np.int64], users: int) -> bytes:
        return wire.write(kind, self.fingerprint, counts, users.bit_length(), users=users)

    def _counts(self, data: bytes, kind: wire.Kind) -> NDArray[np.int64]:
        message = wire.read(data, self.fingerprint)
        if message.kind is not kind:
            raise wire.MessageError(f"message must be of kind {kind.name}, got {message.kind.name}", "kind")
        if message.users >= 2**40:
            raise wire.MessageError(f"message must count fewer than 2**40 users, got {message.users}")
        counts = message.fields(self.categories, message.users.bit_length()).astype(np.int64)
        if int(counts.max()) > message.users or int(counts.sum()) != message.users:
            raise wire.MessageError(f"counts must add up to the number of users, {message.users}, got another sum")
        return counts


def _clopper_pearson(counts: NDArray[np.int64], trials: int, level: float) -> tuple[Array, Array]:
    """Bounds on a probability, each wrong with probability at most ``level``."""
    from scipy.special import betaincinv

    rest = trials - counts
    low = np.where(counts > 0, betaincinv(np.maximum(counts, 1), rest + 1, level), 0.0)
    high = np.where(rest > 0, betaincinv(counts + 1, np.maximum(rest, 1), 1.0 - level), 1.0)
    return low, high

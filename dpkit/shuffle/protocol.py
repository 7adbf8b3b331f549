"""The public constants of a shuffled vector sum, and the partial aggregates of its count encoding."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting import Release
from accounting.checks import integer, positive
from dpkit.shuffle import wire

__all__ = ["SumProtocol", "Tally"]

# What is counted stays below this, so that sums of counts stay within 64 bits.
_MOST = 2**62


@dataclass(frozen=True)
class SumProtocol:
    """What users, shuffler and analyzer of one vector sum must agree on; public.

    Made by :class:`~dpkit.shuffle.VectorSum`, which calibrates it. With the paper's letters: each coordinate of an
    input in [−Δ, Δ] is scaled to [0, g], rounded at random to an integer, and sent as that many ones among g bits,
    together with b random bits.

    Parameters
    ----------
    dimension : int
        Of one input vector; the side of one input matrix if ``symmetric``.
    users : int
        n, the smallest number of users whose messages the shuffler releases.
    bound : float
        Δ, of the L2 norm of an input (of the Frobenius norm of a matrix).
    resolution : int
        g, the number of steps into which [−Δ, Δ] is divided.
    noise_bits : int
        b, the random bits that each user adds to each coordinate.
    cost : Release
        What one release of the shuffler costs one user.
    rounds : int
        How many releases the calibration allows for.
    noise_rate : float
        p, the probability of a one among the noise bits: ½, or ¼ in the analysis of the paper.
    symmetric : bool
        Inputs are symmetric matrices, summed as half-vectors.
    positive : bool
        Inputs have nonnegative entries (matrices: eigenvalues), which brings any two of them closer.
    session : str
        Public; part of the fingerprint. Two sums of the same constants over the same users need different ones, or the
        messages of one can be replayed in the other.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.shuffle import VectorSum
    >>> protocol = VectorSum(2, users=100, bound=1.0, budget=Budget(1.0, 1e-6)).protocol
    >>> protocol.dimension, protocol.users, protocol.rounds
    (2, 100, 1)
    """

    dimension: int
    users: int
    bound: float
    resolution: int
    noise_bits: int
    cost: Release
    rounds: int = 1
    noise_rate: float = 0.5
    symmetric: bool = False
    positive: bool = False
    session: str = ""

    def __post_init__(self) -> None:
        for name in ("dimension", "users", "resolution", "noise_bits", "rounds"):
            object.__setattr__(self, name, integer(name, getattr(self, name), at_least=1))
        object.__setattr__(self, "bound", positive("bound", self.bound))
        if self.noise_rate not in (0.25, 0.5):
            raise ValueError(f"noise_rate must be 0.25 or 0.5, got noise_rate={self.noise_rate!r}")
        if not isinstance(self.session, str):
            raise TypeError(f"session must be a string, got session={self.session!r}")
        if self.users * self.messages_per_coordinate >= _MOST:
            raise ValueError(
                f"users·(resolution + noise_bits) must be below 2**62 to be counted, got users={self.users!r}, "
                f"resolution={self.resolution!r}, noise_bits={self.noise_bits!r}"
            )

    def __repr__(self) -> str:
        return (
            f"SumProtocol(dimension={self.dimension}, users={self.users:,}, bound={self.bound:g}): "
            f"{self.messages_per_user:,} bits a user, noise of std {self.noise_std(self.users):.6g}, "
            f"rounds={self.rounds}"
        )

    @property
    def coordinates(self) -> int:
        """D, the length of the vectors that are summed."""
        d = self.dimension
        return d * (d + 1) // 2 if self.symmetric else d

    @property
    def step(self) -> float:
        """2Δ/g, what a single one is worth."""
        return 2.0 * self.bound / self.resolution

    @property
    def messages_per_coordinate(self) -> int:
        """g + b, the bits that a user sends for each coordinate, as their count."""
        return self.resolution + self.noise_bits

    @property
    def messages_per_user(self) -> int:
        """D·(g + b), the labelled bits that one user sends in one round."""
        return self.coordinates * self.messages_per_coordinate

    def noise_std(self, users: int) -> float:
        """The standard deviation of the noise in each coordinate of a sum over ``users``, at most.

        Binomial noise of variance b·p(1 − p) per user, and random rounding, whose variance depends on the inputs and is
        at most ¼ per user. For matrices this holds for diagonal entries; off the diagonal it is √2 times smaller.
        """
        variance = self.noise_bits * self.noise_rate * (1.0 - self.noise_rate) + 0.25
        return self.step * math.sqrt(users * variance)

    @property
    def fingerprint(self) -> bytes:
        """Eight bytes that stand for these constants in a message."""
        constants = (
            self.dimension,
            self.users,
            self.bound.hex(),
            self.resolution,
            self.noise_bits,
            self.rounds,
            self.noise_rate,
            bool(self.symmetric),
            bool(self.positive),
            self.session,
        )
        return hashlib.blake2b(repr(constants).encode(), digest_size=8).digest()

    def count_width(self, users: int) -> int:
        """The width of one count in a message of ``users``."""
        return (users * self.messages_per_coordinate).bit_length()


@dataclass(frozen=True, eq=False)
class Tally:
    """How many ones some users sent for each coordinate: a partial aggregate, which any map-reduce engine can add up.

    Addition is exact, associative and commutative. A tally is confidential: only what the shuffler makes of all of them
    is private. Whoever made it is trusted with the number of users that it states, and with their noise.

    Parameters
    ----------
    protocol : SumProtocol
    users : int
        How many users it stands for, at least 1.
    ones : (D,) ndarray of int64

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.shuffle import VectorSum
    >>> sums = VectorSum(2, 100, 1.0, budget=Budget(1.0, 1e-6))
    >>> whole = sums.tally(np.zeros((60, 2))) + sums.tally(np.zeros((40, 2)))
    >>> whole.users, sums.decode(sums.shuffle_tallies(whole)).shape
    (100, (2,))
    """

    protocol: SumProtocol
    users: int
    ones: NDArray[np.int64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "users", integer("users", self.users, at_least=1))
        D, most = self.protocol.coordinates, self.users * self.protocol.messages_per_coordinate
        if most >= _MOST:
            raise ValueError(f"users must send fewer than 2**62 bits for each coordinate, got users={self.users}")
        if self.ones.shape != (D,) or self.ones.dtype != np.int64:
            raise ValueError(f"ones must be int64 of shape ({D},), got {self.ones.dtype} of shape {self.ones.shape}")
        if int(self.ones.min()) < 0 or int(self.ones.max()) > most:
            raise ValueError(
                f"ones must lie in [0, {most}] for {self.users} users, got {self.ones.min()} to {self.ones.max()}"
            )

    def __repr__(self) -> str:
        return f"Tally of {self.users:,} users in {self.protocol.coordinates:,} coordinates; confidential"

    def __add__(self, other: Tally) -> Tally:
        if not isinstance(other, Tally):
            return NotImplemented
        if self.protocol != other.protocol:
            raise ValueError("tallies must be of the same protocol to be added")
        return Tally(self.protocol, self.users + other.users, self.ones + other.ones)

    def __radd__(self, other: object) -> Tally:
        # so that the builtin sum(), which starts from 0, works on tallies
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        return (
            self.protocol == other.protocol
            and self.users == other.users
            and bool(np.array_equal(self.ones, other.ones))
        )

    __hash__ = None  # type: ignore[assignment]

    def to_bytes(self, *, round: int = 0, kind: wire.Kind = wire.Kind.WORKER) -> bytes:
        """The tally as a worker's message of :mod:`dpkit.shuffle.wire` for a round of the shuffler."""
        protocol = self.protocol
        width = protocol.count_width(self.users)
        return wire.write(kind, protocol.fingerprint, self.ones, width, round=round, users=self.users)

    @classmethod
    def from_worker(cls, protocol: SumProtocol, data: bytes, round: int = 0) -> Tally:
        """The inverse of :meth:`to_bytes`.

        Raises
        ------
        MessageError
            If ``data`` is no worker's message of this protocol and round.
        """
        message = wire.read(data, protocol.fingerprint)
        if message.kind is not wire.Kind.WORKER:
            raise wire.MessageError(f"message must come from a worker, got {message.kind.name}", "kind")
        if message.round != round:
            raise wire.MessageError(f"message must be for round {round}, got round {message.round}", "round")
        return cls.from_message(protocol, message)

    @classmethod
    def from_message(cls, protocol: SumProtocol, message: wire.Message) -> Tally:
        """The tally in a message of kind 2 or 3.

        Raises
        ------
        MessageError
            If a count is larger than the number of bits that the users sent.
        """
        most = message.users * protocol.messages_per_coordinate
        if most >= _MOST:
            raise wire.MessageError(f"message must count fewer than 2**62 bits, got {message.users} users")
        ones = message.fields(protocol.coordinates, protocol.count_width(message.users))
        if int(ones.max()) > most:
            raise wire.MessageError(f"counts must be at most {most} for {message.users} users, got {ones.max()}")
        return cls(protocol, message.users, ones.astype(np.int64))

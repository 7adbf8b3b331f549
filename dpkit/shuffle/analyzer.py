"""The analyzer's side of a shuffled vector sum: from what the shuffler puts out to an unbiased estimate.

It is not trusted: whatever it does with the shuffled messages is post-processing. It keeps nothing, and may
be called as often as anybody likes: the rounds are the shuffler's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accounting.checks import integer
from dpkit.geometry import smat
from dpkit.shuffle import wire
from dpkit.shuffle.protocol import SumProtocol, Tally

__all__ = ["Analyzer"]


class Analyzer:
    """Estimates the sum of the users' inputs.

    Parameters
    ----------
    protocol : SumProtocol

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.shuffle import Analyzer, VectorSum
    >>> sums = VectorSum(2, users=100, bound=1.0, budget=Budget(1.0, 1e-6))
    >>> Analyzer(sums.protocol).protocol is sums.protocol
    True
    """

    def __init__(self, protocol: SumProtocol) -> None:
        self.protocol = protocol

    def __repr__(self) -> str:
        return f"Analyzer of {self.protocol!r}"

    def decode(self, shuffled: bytes, users: int | None = None) -> NDArray[np.float64]:
        """(2Δ/g)·(number of ones − m·b·p) − mΔ for each coordinate: unbiased, over all m users who sent messages.

        Parameters
        ----------
        shuffled : bytes
            What the shuffler put out (kind 3).
        users : int, optional
            How many users the sum should cover; an error if it covers another number.

        Returns
        -------
        (d,) ndarray, or a symmetric (d, d) one for matrices

        Raises
        ------
        MessageError
            If ``shuffled`` is malformed, not from a shuffler, or of another protocol.
        ValueError
            If it covers another number of users.
        """
        protocol = self.protocol
        message = wire.read(shuffled, protocol.fingerprint)
        if message.kind is not wire.Kind.SHUFFLED:
            raise wire.MessageError(f"message must come from the shuffler, got {message.kind.name}", "kind")
        ones = Tally.from_message(protocol, message).ones
        m = message.users
        if users is not None and integer("users", users, at_least=1) != m:
            raise ValueError(f"users must be the number of users in the message, {m}, got users={users!r}")
        # the zero of the sum is at m·(g/2 + b·p) ones, a multiple of ¼: exact
        centre = m * (0.5 * protocol.resolution + protocol.noise_bits * protocol.noise_rate)
        total: NDArray[np.float64] = np.asarray(protocol.step * (ones - centre), dtype=np.float64)
        return smat(total) if protocol.symmetric else total

"""The mean of scalars in [0, 1] from one bit per user: the single-message protocol that ``VectorSum`` is compared with.

Each user rounds its x to a bit, 1 with probability x, and sends it through binary randomized response; the shuffler
mixes the bits. The error of the mean falls like 1/√n, because every user rounds to a whole bit and some lie, while
that of ``VectorSum`` with ``dimension=1`` falls like 1/n: see ``docs/shuffle-model.md`` for both.

Source: Cheu, Smith, Ullman, Zeber & Zhilyaev (2019), "Distributed differential privacy via shuffling", Section 4.
Privacy: a function of the shuffled responses, see :mod:`dpkit.shuffle.randomized_response`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Budget, LocalShuffled
from dpkit import randomness
from dpkit.clipping import real_array
from dpkit.shuffle.frequencies import Frequencies
from dpkit.shuffle.randomized_response import ShuffledRandomizedResponse
from dpkit.states import Unrepeatable

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["ScalarMean"]


class ScalarMean(Unrepeatable):
    """Estimates the mean of scalars in [0, 1] from one bit per user.

    Parameters
    ----------
    users, budget, honest, rng, ledger, session
        As for :class:`ShuffledRandomizedResponse`.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.shuffle import ScalarMean
    >>> mean = ScalarMean(10_000, budget=Budget(0.5, 1e-6))
    >>> estimate, low, high = mean.decode(mean.shuffle_tallies(mean.tally(np.full(10_000, 0.25))), confidence=0.999999)
    >>> low < 0.25 < high
    True
    """

    def __init__(
        self,
        users: int,
        *,
        budget: Budget,
        honest: float = 1.0,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        session: str | None = None,
    ) -> None:
        self._response = ShuffledRandomizedResponse(
            2, users, budget=budget, honest=honest, rng=rng, ledger=ledger, session=session
        )
        self._rng = rng

    def __repr__(self) -> str:
        noise = f"local ε = {self.cost.epsilon:.6g}, noise of std {self.noise_std:.6g}"
        return f"ScalarMean({self._response.users:,} users): {noise}"

    @property
    def cost(self) -> LocalShuffled:
        """What one release costs one user."""
        return self._response.cost

    @property
    def noise_std(self) -> float:
        """The standard deviation of the estimated mean's error, at most (random rounding and responses together)."""
        p, q = self._response.truth_probability, self._response.lie_probability
        return float(0.5 / np.sqrt(self._response.users) / (p - q))

    @property
    def refused(self) -> Counter[str]:
        """How many messages were skipped, by reason, when :meth:`shuffle` was last called."""
        return self._response.refused

    def encode(self, x: float) -> bytes:
        """One user's bit.

        Parameters
        ----------
        x : float
            In [0, 1].

        Raises
        ------
        TypeError, ValueError
            If it is not. Nothing is drawn.
        """
        if np.ndim(x) != 0:
            raise ValueError(f"x must be one user's number, got x.shape={np.shape(x)}; tally takes several")
        return self._response.encode(int(self._rounded(x)[0]))

    def tally(self, x: ArrayLike) -> bytes:
        """The counts of several users' bits, from a trusted worker; see :meth:`ShuffledRandomizedResponse.tally`."""
        return self._response.tally(self._rounded(x))

    def shuffle(self, messages: Iterable[bytes] | bytes) -> bytes:
        """How many of the devices' bits are ones; see :meth:`ShuffledRandomizedResponse.shuffle`."""
        return self._response.shuffle(messages)

    def shuffle_tallies(self, tallies: Iterable[bytes] | bytes) -> bytes:
        """The same of tallies; see :meth:`ShuffledRandomizedResponse.shuffle_tallies`."""
        return self._response.shuffle_tallies(tallies)

    def decode(self, shuffled: bytes, *, confidence: float = 0.95) -> tuple[float, float, float]:
        """The unbiased estimate of the mean, and the two ends of its confidence interval."""
        shares: Frequencies = self._response.decode(shuffled, confidence=confidence)
        return float(shares.estimate[1]), float(shares.low[1]), float(shares.high[1])

    def _rounded(self, x: ArrayLike) -> NDArray[np.int64]:
        values = np.atleast_1d(real_array("x", x))
        if values.size and not (values.min() >= 0.0 and values.max() <= 1.0):
            raise ValueError(f"x must lie in [0, 1], got {values.min()!r} to {values.max()!r}")
        return (randomness.resolve(self._rng).random(values.shape) < values).astype(np.int64)

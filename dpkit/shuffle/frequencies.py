"""The answer of a shuffled survey: estimated shares of categories, with intervals."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.arrays import Array
from accounting.printed import as_html

__all__ = ["Frequencies"]


@dataclass(frozen=True, eq=False)
class Frequencies:
    """Estimated shares of the categories among the users, with a confidence interval for each.

    Attributes
    ----------
    estimate : (k,) ndarray
        Unbiased; may be negative or above 1, and sums to 1.
    low, high : (k,) ndarray
        In [0, 1]. Each interval holds the share among the users with probability at least ``confidence``, for any
        number of them; also the share in a population from which they were drawn at random. For all k at once take
        1 − (1 − confidence)/k.
    confidence : float
    users : int

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.shuffle import ShuffledRandomizedResponse
    >>> response = ShuffledRandomizedResponse(3, 1000, budget=Budget(1.0, 1e-6))
    >>> shares = response.decode(response.shuffle_tallies(response.tally(np.arange(1000) % 3)))
    >>> shares.users, bool(np.all(shares.low <= shares.high))
    (1000, True)
    """

    estimate: Array
    low: Array
    high: Array
    confidence: float
    users: int

    def __repr__(self) -> str:
        first = ", ".join(f"{share} [{low}, {high}]" for _, share, low, high in self._cells()[:3])
        more = ", …" if len(self.estimate) > 3 else ""
        return f"Frequencies among {self.users:,} users, each with {100 * self.confidence:.6g} %: {first}{more}"

    def _repr_html_(self) -> str:
        return as_html(repr(self), [["category", "share", "low", "high"], *self._cells()])

    def _cells(self) -> list[list[str]]:
        rows = zip(self.estimate, self.low, self.high, strict=True)
        return [[str(k), *(f"{value:.4g}" for value in row)] for k, row in enumerate(rows)]

"""What an estimator returns: a value, its standard error and intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction

__all__ = ["Estimate", "summed"]


@dataclass(frozen=True, eq=False)
class Estimate:
    """The value of a policy, estimated from a log. Computed from raw data: not private.

    Attributes
    ----------
    value : float
        The mean reward that the policy would have had.
    std_error : float
        Of the value. Rows of one person are not independent; where persons were given, it counts them as clusters.
    rows : int
        How many rows it rests on.
    effective_rows : float
        (Σw)²/Σw²: of how many equally weighted rows the weights are worth.
    method : str
        The estimator.
    terms : ndarray of shape (n,)
        Its value is the mean of these (for self-normalised weights, to first order).

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits import evaluate
    >>> evaluate.ips([1, 0, 1, 1], probabilities=[0.5, 0.5, 0.25, 0.5], target=[1, 1, 0.5, 0])
    ips: 1 ± 0.577 (standard error), 95 % interval [-0.132, 2.13], 4 rows worth 3.0
    """

    value: float
    std_error: float
    rows: int
    effective_rows: float
    method: str
    terms: Array = field(repr=False)

    def interval(self, confidence: float = 0.95, *, largest: tuple[float, float] | None = None) -> tuple[float, float]:
        """Where the value lies with probability ``confidence``.

        Parameters
        ----------
        confidence : float
            In (0, 1).
        largest : (float, float), optional
            Bounds on every term that are known without the data: (0, largest weight × largest reward) for ``ips``. With
            them the interval holds for every number of rows (the empirical Bernstein bound of Maurer & Pontil 2009,
            Theorem 4, at both ends); without, it is the normal one, which is too short where few rows carry the weight.
        """
        outside = 1 - fraction("confidence", confidence)
        if largest is None:
            from scipy.special import ndtri

            reach = float(ndtri(1 - outside / 2)) * self.std_error
            return self.value - reach, self.value + reach
        low, high = largest
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"largest must be two increasing finite numbers, got largest={largest!r}")
        if self.method == "snips" or self.rows < 2:
            raise ValueError(f"largest= needs a mean of at least two terms, got {self.rows} of {self.method}")
        if self.terms.min() < low or self.terms.max() > high:
            raise ValueError(
                f"largest must bound every term, got terms in [{self.terms.min():g}, {self.terms.max():g}]"
            )
        log, n = math.log(4 / outside), self.rows
        reach = math.sqrt(2 * float(self.terms.var(ddof=1)) * log / n) + 7 * (high - low) * log / (3 * (n - 1))
        return max(low, self.value - reach), min(high, self.value + reach)

    def __repr__(self) -> str:
        low, high = self.interval()
        return (
            f"{self.method}: {self.value:.3g} ± {self.std_error:.3g} (standard error), 95 % interval "
            f"[{low:.3g}, {high:.3g}], {self.rows:,} rows worth {self.effective_rows:,.1f}"
        )


def summed(method: str, terms: Array, weights: Array, value: float, persons: Any = None) -> Estimate:
    """The estimate whose error is that of the mean of ``terms``."""
    n = len(terms)
    off: Array = terms - value
    clusters = n
    if persons is not None:
        if np.shape(persons) != (n,):
            raise ValueError(f"persons must have one entry per row, {n}, got shape {np.shape(persons)}")
        codes = np.unique(np.asarray(persons), return_inverse=True)[1]
        off = np.bincount(codes, weights=off).astype(np.float64)
        clusters = len(off)
    # with one cluster there is nothing to compare
    error = math.sqrt(float((off**2).sum()) / n**2 * clusters / (clusters - 1)) if clusters > 1 else math.inf
    square = float((weights**2).sum())
    return Estimate(value, error, n, float(weights.sum()) ** 2 / square if square else 0.0, method, terms)
